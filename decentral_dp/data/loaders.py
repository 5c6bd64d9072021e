"""From the name or path in a scenario to a Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decentral_dp.data.bundled import BUNDLED_CLASSES, bundled
from decentral_dp.data.collections import (
    CELEBA_CLASSES,
    COLLECTED,
    COLLECTED_CLASSES,
    COLLECTIONS,
    DIGITS,
    FEMNIST_CLASSES,
    load_celeba,
    load_collected,
    load_femnist,
    load_images,
    standing_in,
)
from decentral_dp.data.dataset import Dataset, Label, encode_labels, nearest, require_two_classes
from decentral_dp.data.synthetic import (
    FAMILIES,
    USUAL_SIZES,
    check_apart,
    classification,
    heterogeneous,
    outline,
)
from decentral_dp.data.tables import (
    HUGGINGFACE,
    OPENML,
    is_libsvm,
    load_huggingface,
    load_openml,
    read_csv,
    read_libsvm,
    read_npz,
    read_parquet,
)
from decentral_dp.data.trajectories import ENVIRONMENTS, read_trajectories, simulated
from decentral_dp.errors import InputError

DATASETS: Mapping[str, str] = {
    "breast_cancer": "569 fine-needle aspirates, 30 shape features of cell nuclei, malignant or benign",
    "wine": "178 wines of one region, 13 chemical measurements, three cultivars",
    "digits": "1797 handwritten digits of 8×8 pixels with values 0..16, ten classes",
    "mnist": "70000 handwritten digits of 28×28 pixels, from files of your own; without them digits stand in",
    "fashion_mnist": "70000 pictures of clothes, 28×28 pixels, from files of your own; without them digits stand in",
    "cifar10": "60000 colour photographs of 32×32 pixels, from files of your own; without them digits stand in",
    "a9a": "48842 people of a census, 123 binary features, whether they earn much; from LibSVM files of your own",
    "ijcnn1": "141691 states of an engine, 22 features, two classes; from LibSVM files of your own",
    "celeba": "202599 photographs of faces: one attribute of CelebA's list, and features from a file of your own",
    "femnist": "handwritten digits and letters of 28×28 pixels by some 3500 writers; from LEAF's files of your own",
    "synthetic_normal": "agent i = 1..m draws features from N(0, i²); labels are the sign of a noisy linear score",
    "synthetic_chi2": "agent i = 1..m draws features from χ²(i); labels are the sign of a noisy linear score",
    "synthetic_mixed": "agent i draws from N(0, i²) if i is even and from χ²(i) if it is odd; labels as above",
    "synthetic_classification": "two Gaussian classes a given distance apart, the same for all agents",
    "cartpole": "trajectories: a cart that balances a pole until it falls, 4 numbers a step; played by gymnasium",
    "acrobot": "trajectories: two links that swing up to a height, 6 numbers a step; played by gymnasium",
    "pong": "trajectories: Atari's Pong played at random, 128 bytes of memory a step; by gymnasium and ale-py",
}

# Those whose records are files of a layout of their own, read by a function of its own.
FILED = ("celeba", "femnist")

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
    d: int | None = None,
    records: int | None = None,
    test_records: int | None = None,
    separation: float | None = None,
    relevant: int | None = None,
    steps: int | None = None,
    drawn: bool = True,
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
        d: features, of synthetic families only; None for 200.
        records: per agent, train and validation together; of synthetic families and environments.
        test_records: held-out records; of synthetic families and environments.
        separation: distance of the class means in standard deviations, of synthetic_classification only.
        relevant: features in which the class means differ, of synthetic_classification only; None for all.
        steps: where a trajectory is cut off; of environments only.
        drawn: False for what is public about records of a synthetic family alone; default True.

    Returns:
        The records and their public description.

    Raises:
        InputError: an argument that these data do not take, or data that are not there or not sound.
    """
    asked = {"d": d, "records": records, "test_records": test_records, "separation": separation}
    asked |= {"relevant": relevant, "steps": steps}
    given = {k: v for k, v in asked.items() if v is not None}
    made_up = data.startswith("synthetic_") and data in DATASETS
    _check_sizes(data, made_up, given)
    if made_up or data in ENVIRONMENTS:
        _known_columns(data, agent, split, {"agent", "split"})
        _known_classes(data, classes, (-1, 1) if made_up else ())
        if files is not None or limit is not None:
            raise InputError(
                f"problem.{'limit' if files is None else 'files'}: {data!r} takes none; its size is set by "
                "problem.synthetic."
            )
        if made_up:
            return _synthetic(data, n_agents, seed, given, drawn)
        return simulated(data, n_agents=n_agents, seed=seed, **{key: int(value) for key, value in given.items()})
    path = (root or Path()) / Path(data).expanduser()
    if features is not None and not is_libsvm(path):
        raise InputError(f"problem.features: {data!r} says how many it has, only a LibSVM file does not; leave it out.")
    if limit is not None and limit < 1:
        raise InputError(f"problem.limit: got {limit}, but a whole number of at least 1 is wanted.")
    if data in COLLECTIONS:
        _known_columns(data, agent, split, set())
        _known_classes(data, classes, DIGITS)
        found = load_images(data, files, limit=limit, root=root)
        return standing_in(data, _first(bundled("digits"), limit)) if found is None else found
    if data in COLLECTED:
        _known_columns(data, agent, split, set())
        _known_classes(data, classes, COLLECTED_CLASSES)
        return load_collected(data, files, limit=limit, root=root)
    if data == "celeba":
        _known_columns(data, agent, split, {"split"})
        _known_classes(data, classes, CELEBA_CLASSES)
        return load_celeba(files, label, limit=limit, root=root)
    if data == "femnist":
        _known_columns(data, agent, split, set())
        _known_classes(data, classes, FEMNIST_CLASSES)
        if limit is not None:
            raise InputError(
                "problem.limit: femnist takes none, for the first records are all of one writer; make files of fewer "
                "records, with --sf of LEAF's preprocess.sh."
            )
        return load_femnist(files, n_agents=n_agents, root=root)
    if files is not None:
        takers = ", ".join((*COLLECTIONS, *COLLECTED, *FILED))
        raise InputError(f"problem.files: {data!r} takes none, only {takers} do; leave it out.")
    if data in BUNDLED_CLASSES:
        _known_columns(data, agent, split, set())
        _known_classes(data, classes, BUNDLED_CLASSES[data])
        return _first(bundled(data), limit)
    if data.startswith(HUGGINGFACE):
        _known_columns(data, None, split, set())
        return _first(load_huggingface(data, label, classes, agent, certified), limit)
    if data.startswith(OPENML) or is_libsvm(path):
        _known_columns(data, agent, split, set())
        if data.startswith(OPENML):
            return _first(load_openml(data, label, classes, certified), limit)
        return _first(read_libsvm(path, features, classes, certified), limit)
    if path.suffix.lower() == ".csv":
        table = read_csv(path, label, agent, split)
    elif path.suffix.lower() == ".npz":
        played = read_trajectories(path, agent, split)
        if played is not None:
            _known_classes(data, classes, ())
            return _first(played, limit)
        table = read_npz(path, agent, split)
    elif path.suffix.lower() == ".parquet":
        table = read_parquet(path, label, agent, split)
    else:
        hint = nearest(data, DATASETS)
        if path.suffix.lower() in (".gz", ".bin", ".tar") or "ubyte" in path.name:
            hint = 'files of images are named in problem.files, beside data = "mnist" or another of the collections'
        raise InputError(
            f"problem.data: {data!r} is neither a bundled name nor a path that ends in .csv, .npz, .parquet or "
            f".libsvm; {hint}."
        )
    labels, known = encode_labels(table.labels, classes, certified=certified, source=str(path))
    if known and not certified and path.suffix.lower() == ".csv":
        # How a certified run ends does not tell whether a class has a record: there the run says it at its end.
        require_two_classes(labels, f"problem.data: {str(path)!r}")
    dataset = Dataset(table.features, labels, known, table.names, str(path), table.agent, table.split)
    return _first(dataset, limit)


def _check_sizes(data: str, made_up: bool, given: Mapping[str, float]) -> None:
    """Refuse sizes of what is not made to size. Raises InputError."""
    played = data in ENVIRONMENTS
    taken = ("records", "test_records", "steps") if played else ("d", "records", "test_records", *_OF_CLASSES)
    for key in given:
        if not (made_up or played):
            raise InputError(f"{_KEYS[key]}: {data!r} takes none, only the synthetic families do; leave it out.")
        if key not in taken:
            takers = "environments such as cartpole" if key == "steps" else "the synthetic families"
            raise InputError(f"{_KEYS[key]}: {data!r} takes none, only {takers} do; leave it out.")


def _first(dataset: Dataset, limit: int | None) -> Dataset:
    return dataset if limit is None else dataset.first(limit)


def _known_columns(data: str, agent: str | None, split: str | None, columns: set[str]) -> None:
    for key, name in (("partition", agent), ("validation", split)):
        if name is not None and name not in columns:
            raise InputError(f"problem.{key}: {data!r} has no column {name!r}; {nearest(name, sorted(columns))}.")


def _known_classes(data: str, classes: Sequence[Label] | None, known: tuple[Label, ...]) -> None:
    if classes is not None and tuple(classes) != known:
        raise InputError(
            f"problem.classes: {data!r} has the classes {list(known)}, got {list(classes)}; leave `classes` out."
        )


def _synthetic(name: str, n_agents: int, seed: int, given: Mapping[str, float], drawn: bool) -> Dataset:
    sizes = {k: int(given.get(k, default)) for k, default in USUAL_SIZES.items()}
    for key, least in (("d", 1), ("records", 2), ("test_records", 0)):
        if sizes[key] < least:
            raise InputError(f"{_KEYS[key]}: got {sizes[key]}, but a whole number of at least {least} is wanted.")
    if n_agents < 1:
        raise InputError(f"topology.agents: got {n_agents}, but at least one agent is wanted.")
    if name in FAMILIES:
        for key in (k for k in _OF_CLASSES if k in given):
            raise InputError(f"{_KEYS[key]}: {name!r} takes none, only synthetic_classification does; leave it out.")
    relevant = int(given["relevant"]) if "relevant" in given else None
    separation = given.get("separation", 2.0)
    if not drawn:
        check_apart(sizes["d"], separation, relevant)
        return outline(name, n_agents=n_agents, **sizes)
    if name in FAMILIES:
        return heterogeneous(name, n_agents=n_agents, seed=seed, **sizes)
    return classification(n_agents=n_agents, seed=seed, separation=separation, relevant=relevant, **sizes)
