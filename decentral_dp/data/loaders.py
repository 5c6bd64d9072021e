"""From the name or path in a scenario to a Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from decentral_dp.data import collections, synthetic, tables, trajectories
from decentral_dp.data.bundled import BUNDLED_CLASSES, load_bundled
from decentral_dp.data.collections import COLLECTED, COLLECTIONS
from decentral_dp.data.columns import ColumnRules, with_rules
from decentral_dp.data.dataset import Dataset, Label, encode_labels, nearest, require_two_classes
from decentral_dp.data.synthetic import SYNTHETIC
from decentral_dp.data.trajectories import ENVIRONMENTS
from decentral_dp.errors import InputError

DATASETS: Mapping[str, str] = {name: table["line"] for name, table in collections.CATALOGUE.items()}

# Data with a name → their classes, which are known without looking at a record; none of trajectories.
_CLASSES: Mapping[str, tuple[Label, ...]] = {
    **dict.fromkeys(SYNTHETIC, (-1, 1)),
    **dict.fromkeys(ENVIRONMENTS, ()),
    **dict.fromkeys(COLLECTIONS, collections.DIGITS),
    **dict.fromkeys(COLLECTED, collections.COLLECTED_CLASSES),
    "celeba": collections.CELEBA_CLASSES,
    "femnist": collections.FEMNIST_CLASSES,
    **BUNDLED_CLASSES,
}
# Their columns beside features and labels.
_COLUMNS = {**dict.fromkeys((*SYNTHETIC, *ENVIRONMENTS), ("agent", "split")), "celeba": ("split",)}
# Those whose records are files of a layout of their own.
FILED = ("celeba", "femnist")
_TAKE_FILES = (*COLLECTIONS, *COLLECTED, *FILED)
# A file's ending → its reader, which gives what the file holds. A new format is a function and a line here.
FORMATS: Mapping[str, Callable[[Path, tables.DeclaredColumns], tables.Table]] = {
    ".csv": tables.read_table,
    ".npz": tables.read_npz,
    ".parquet": tables.read_table,
}

# Argument → key of the scenario's table.
_KEYS = {
    "d": "problem.synthetic.dimension",
    "records": "problem.synthetic.records",
    "test_records": "problem.synthetic.test_records",
    "separation": "problem.synthetic.separation",
    "relevant": "problem.synthetic.relevant",
    "steps": "problem.synthetic.steps",
}

# Taken by synthetic_classification alone.
_OF_CLASSES = ("separation", "relevant")


def load(
    data: str,
    *,
    n_agents: int,
    seed: int,
    label: str | None = None,
    classes: Sequence[Label] | None = None,
    agent: str | None = None,
    split: str | None = None,
    root: Path | None = None,
    certified: bool = True,
    files: Mapping[str, Any] | None = None,
    limit: int | None = None,
    features: int | None = None,
    drawn: bool = True,
    rules: ColumnRules | None = None,
    agents: Sequence[Label] | None = None,
    **sizes: float | None,
) -> Dataset:
    """Load the records that `data` names.

    Args:
        data: a key of DATASETS, the path of a .csv, .npz, .parquet or .libsvm file, "openml:NUMBER", or
            "huggingface:OWNER/NAME@COMMIT".
        n_agents: how many agents there are; read for synthetic families, environments and femnist.
        seed: the public one; read for synthetic families and environments.
        label: label column of a CSV or Parquet file, or attribute of celeba; ignored elsewhere.
        classes: declared labels, `[]` for a number to predict; None for bundled data and, unless certified, to discover
            them.
        agent, split: columns that name the owner and the split of each record; None means "agent" and "split" where the
            data have them.
        root: folder that relative paths start from.
        certified: whether classes that nobody declared are refused instead of discovered; default yes.
        files: where those of mnist, fashion_mnist and cifar10 (see `load_images`), celeba (see
            `load_celeba`) or femnist (see `load_femnist`) are.
        limit: the first so many records, and at most as many of the data's own test set; a public rule, for it reads no
            record.
        features: how many a LibSVM file has; nothing else takes it.
        drawn: False for what is public about records of a synthetic family alone; default True.
        rules: how columns become features, of a CSV or Parquet file or of OpenML; None where they are numbers.
        agents: names of the agents in the owner column, in order; None where they are numbered from 0.
        sizes: of records that are made up; None is as if left out. d: features, of synthetic families only (200, and
            a9a's 123 of synthetic_census). records: per agent, train and validation together. test_records: held out.
            separation: distance of the class means in standard deviations, and relevant: features in which they differ
            (all), of synthetic_classification only. steps: where a trajectory is cut off, of environments only.

    Returns:
        The records and their public description.

    Raises:
        InputError: an argument that these data do not take, or data that are not there or not sound.
    """
    stated = {key: value for key, value in sizes.items() if value is not None}
    made_up = data in SYNTHETIC or data in ENVIRONMENTS
    _check_sizes(data, stated)
    _check_columns(data, {"partition": agent, "validation": split})
    if data in _CLASSES and classes is not None and tuple(classes) != _CLASSES[data]:
        _refuse_classes(data, classes, _CLASSES[data])
    if made_up and rules is not None:
        tables.refuse_rules(f"problem.data: {data!r}")
    if made_up and (files is not None or limit is not None):
        raise InputError(
            f"problem.{'limit' if files is None else 'files'}: {data!r} takes none; its size is set by "
            "problem.synthetic."
        )
    if data in SYNTHETIC:
        return _synthetic(data, n_agents, seed, stated, drawn)
    if data in ENVIRONMENTS:
        return trajectories.simulate(
            data, n_agents=n_agents, seed=seed, **{key: int(value) for key, value in stated.items()}
        )
    path = (root or Path()) / Path(data).expanduser()
    numeric = data in DATASETS or data.startswith(tables.HUGGINGFACE) or tables.is_libsvm(path)
    if rules is not None and (numeric or path.suffix.lower() == ".npz"):
        tables.refuse_rules(f"problem.data: {data!r}")
    if features is not None and not tables.is_libsvm(path):
        raise InputError(f"problem.features: {data!r} says how many it has, only a LibSVM file does not; leave it out.")
    if files is not None and data not in _TAKE_FILES:
        raise InputError(f"problem.files: {data!r} takes none, only {', '.join(_TAKE_FILES)} do; leave it out.")
    if data in COLLECTIONS and (pictures := collections.load_images(data, files, limit=limit, root=root)) is not None:
        return pictures
    if data in COLLECTED:
        return collections.load_collected(data, files, limit=limit, root=root)
    if data == "femnist":
        if limit is not None:
            raise InputError(
                "problem.limit: femnist takes none, for the first records are all of one writer; make files of fewer "
                "records, with --sf of LEAF's preprocess.sh."
            )
        return collections.load_femnist(files, n_agents=n_agents, root=root)
    if data == "celeba":
        dataset = collections.load_celeba(files, label, root=root)
    elif data in BUNDLED_CLASSES or data in COLLECTIONS:
        dataset = load_bundled("digits" if data in COLLECTIONS else data)
    elif data.startswith(tables.HUGGINGFACE):
        dataset = tables.load_huggingface(data, label, classes, agent, certified)
    else:
        declared = tables.DeclaredColumns(label, agent, split, rules, agents)
        dataset = _encode_table(data, path, declared, classes, features, certified)
    dataset = dataset if limit is None else dataset.head(limit)
    return collections.substitute_digits(data, dataset) if data in COLLECTIONS else dataset


def _encode_table(
    data: str,
    path: Path,
    declared: tables.DeclaredColumns,
    classes: Sequence[Label] | None,
    features: int | None,
    certified: bool,
) -> Dataset:
    """Records of a table, whose labels are encoded by the declared classes. Raises InputError."""
    suffix, source = path.suffix.lower(), str(path)
    if data.startswith(tables.OPENML):
        table, source = tables.load_openml(data, declared.label, declared.rules), data
    elif tables.is_libsvm(path):
        table = tables.read_libsvm(path, features, certified)
    elif suffix in FORMATS:
        played = trajectories.read_trajectories(path, declared.agent, declared.split) if suffix == ".npz" else None
        if played is not None:
            if classes:
                _refuse_classes(data, classes, ())
            return played
        table = FORMATS[suffix](path, declared)
    else:
        hint = nearest(data, DATASETS)
        if suffix in (".gz", ".bin", ".tar") or "ubyte" in path.name:
            hint = 'files of images are named in problem.files, beside data = "mnist" or another of the collections'
        raise InputError(
            f"problem.data: {data!r} is neither a bundled name nor a path that ends in {', '.join(FORMATS)} or "
            f".libsvm; {hint}."
        )
    labels, known = encode_labels(table.labels, classes, certified=certified, source=source)
    if known and not certified and suffix == ".csv":
        # How a certified run ends does not tell whether a class has a record: there the run says it at its end.
        require_two_classes(labels, f"problem.data: {source!r}")
    made = Dataset(table.features, labels, known, table.names, source, table.agent, table.split)
    return with_rules(made, declared.rules)


def _check_sizes(data: str, sizes: Mapping[str, float]) -> None:
    """Refuse sizes of what is not made to size. Raises InputError."""
    taken = {"records", "test_records"} | ({"steps"} if data in ENVIRONMENTS else {"d", *_OF_CLASSES})
    for key in sizes:
        if data not in SYNTHETIC and data not in ENVIRONMENTS:
            raise InputError(f"{_KEYS[key]}: {data!r} takes none, only the synthetic families do; leave it out.")
        if key not in taken:
            takers = "environments such as cartpole" if key == "steps" else "the synthetic families"
            raise InputError(f"{_KEYS[key]}: {data!r} takes none, only {takers} do; leave it out.")


def _check_columns(data: str, columns_named: Mapping[str, str | None]) -> None:
    """Refuse an owner's or a split's column that these data do not have; those of other files their readers refuse."""
    if data in _CLASSES:
        columns = _COLUMNS.get(data, ())
    elif data.startswith(tables.HUGGINGFACE):
        columns, columns_named = (), {"validation": columns_named["validation"]}
    elif data.startswith(tables.OPENML) or tables.is_libsvm(Path(data)):
        columns = ()
    else:
        return
    for key, name in columns_named.items():
        if name is not None and name not in columns:
            raise InputError(f"problem.{key}: {data!r} has no column {name!r}; {nearest(name, columns)}.")


def _refuse_classes(data: str, classes: Sequence[Label], known: Sequence[Label]) -> NoReturn:
    raise InputError(
        f"problem.classes: {data!r} has the classes {list(known)}, got {list(classes)}; leave `classes` out."
    )


def _synthetic(name: str, n_agents: int, seed: int, stated: Mapping[str, float], drawn: bool) -> Dataset:
    usual = synthetic.USUAL_SIZES | ({"d": sum(synthetic.CATEGORIES)} if name == synthetic.CENSUS else {})
    sizes = {k: int(stated.get(k, default)) for k, default in usual.items()}
    if sizes["records"] < 2:
        raise InputError(f"{_KEYS['records']}: got {sizes['records']}, but a whole number of at least 2 is wanted.")
    if name != synthetic.CLASSES_APART:
        for key in (k for k in _OF_CLASSES if k in stated):
            raise InputError(f"{_KEYS[key]}: {name!r} takes none, only synthetic_classification does; leave it out.")
    relevant = int(stated["relevant"]) if "relevant" in stated else None
    if not drawn:
        synthetic.check_relevant(sizes["d"], relevant)
        return synthetic.outline(name, n_agents=n_agents, **sizes)
    if name in synthetic.FAMILIES:
        return synthetic.heterogeneous(name, n_agents=n_agents, seed=seed, **sizes)
    if name == synthetic.CENSUS:
        return synthetic.census(n_agents=n_agents, seed=seed, **sizes)
    separation = stated.get("separation", 2.0)
    return synthetic.classification(n_agents=n_agents, seed=seed, separation=separation, relevant=relevant, **sizes)
