"""Load the records that a scenario names: a bundled or synthetic set, a file, or a data set of OpenML.

OpenML's data sets are downloaded, verified and cached by scikit-learn. The three bundled sets are read from its files
directly: importing scikit-learn takes longer than everything else that `plan` does.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decentral_dp import annexes
from decentral_dp.data import synthetic, tables
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.dataset import Dataset, Label, nearest
from decentral_dp.data.synthetic import SYNTHETIC
from decentral_dp.data.tables import DeclaredColumns, frame_dataset
from decentral_dp.errors import InputError, quoted

_SHAPES = ("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points")
_WINE = """
    alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids nonflavanoid_phenols proanthocyanins
    color_intensity hue od280/od315_of_diluted_wines proline
"""
_SIDE = 8


class _Table(NamedTuple):
    """A file of scikit-learn: a line of labels if `heading`, then features and the number of the class."""

    file: str
    heading: bool
    classes: tuple[Label, ...]
    features: tuple[str, ...]
    image: tuple[int, int, int] | None = None


# Released descriptions: the classes and the names are known without looking at a record.
_TABLES = {
    "breast_cancer": _Table(
        "breast_cancer.csv",
        True,
        ("malignant", "benign"),
        tuple(
            name
            for form in ("mean {}", "{} error", "worst {}")
            for name in map(form.format, (*_SHAPES, "symmetry", "fractal dimension"))
        ),
    ),
    "wine": _Table("wine_data.csv", True, ("class_0", "class_1", "class_2"), tuple(_WINE.split())),
    "digits": _Table(
        "digits.csv.gz",
        False,
        tuple(range(10)),
        tuple(f"pixel_{row}_{column}" for row in range(_SIDE) for column in range(_SIDE)),
        (_SIDE, _SIDE, 1),
    ),
}

BUNDLED_CLASSES = {name: table.classes for name, table in _TABLES.items()}


def load_bundled(name: str) -> Dataset:
    """Read a data set that comes with scikit-learn.

    Args:
        name: "breast_cancer", "wine" or "digits".

    Returns:
        All its records, in the order of the file.
    """
    table, package = _TABLES[name], find_spec("sklearn")
    # Finding the package imports nothing.
    places = [] if package is None else list(package.submodule_search_locations or [])
    path = Path(places[0] if places else "", "datasets", "data", table.file)
    rows = np.loadtxt(path, delimiter=",", skiprows=1 if table.heading else 0, ndmin=2)
    labels = rows[:, -1].astype(np.int64)
    return Dataset(np.ascontiguousarray(rows[:, :-1]), labels, table.classes, table.features, name, image=table.image)


OPENML = "openml:"
_NAME = re.compile(r"openml:([A-Za-z0-9][\w.()-]{0,99})")


class Images(NamedTuple):
    """Public facts of images: (height, width, channels), and how many records at the end are for testing."""

    image: tuple[int, int, int]
    own_test: int


# Name on OpenML → facts. All have the classes 0 to 9, and pixels from 0 to 255.
IMAGES = {
    "mnist_784": Images((28, 28, 1), 10_000),
    "Fashion-MNIST": Images((28, 28, 1), 10_000),
    "CIFAR_10": Images((32, 32, 3), 10_000),
}
# Names by which these are known elsewhere.
OPENML_NAMES = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR_10"}


def load_openml(data: str, declared: DeclaredColumns) -> Dataset:
    """Load a data set of OpenML, from the cache of scikit-learn or the network.

    Args:
        data: "openml:NAME", the first version of that name, or "openml:NUMBER", one version.
        declared: the facts that the scenario declares about its columns; without a label, the one that OpenML names.

    Returns:
        The records. Those of `IMAGES` are images, and the last ones are held out.

    Raises:
        InputError: no such data set, no network, or columns that are not numbers.
    """
    name = _NAME.fullmatch(data)
    if name is None:
        raise InputError(f'problem.data: got {quoted(data)}, expected a name or a number, as in "openml:mnist_784".')
    chosen = {"data_id": int(name[1])} if name[1].isdecimal() else {"name": name[1], "version": 1}
    # Slow to import.
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            # What it warns of while it tries again is in the refusal.
            warnings.simplefilter("ignore", UserWarning)
            fetched = fetch_openml(**chosen, as_frame=True, n_retries=1)
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())[:200]
        raise InputError(
            f"problem.data: {data} is not in scikit-learn's cache, and could not be downloaded ({reason}). Fix: run "
            "once with a network, copy the folder that SCIKIT_LEARN_DATA names, or save the records as CSV or NPZ."
        ) from None
    if declared.label is None and len(fetched.target_names) != 1:
        raise InputError(f"problem.label: {data} names {len(fetched.target_names)} label columns; name one.")
    facts = IMAGES.get(name[1])
    classes = tuple(range(10)) if facts is not None and declared.classes is None else declared.classes
    declared = declared._replace(label=declared.label or str(fetched.target_names[0]), classes=classes)
    dataset = frame_dataset(fetched.frame.set_axis(fetched.frame.columns.map(str), axis=1), data, declared)
    if facts is None:
        return dataset
    return replace(dataset, image=facts.image, bounds=(0.0, 255.0), own_test=facts.own_test)


# Data set with a name → a line about it.
DATASETS: Mapping[str, str] = {
    "breast_cancer": "569 fine-needle aspirates, 30 shape features of cell nuclei, malignant or benign",
    "wine": "178 wines of one region, 13 chemical measurements, three cultivars",
    "digits": "1797 handwritten digits of 8×8 pixels with values 0..16, ten classes",
    "synthetic_normal": "agent i = 1..m draws features from N(0, i²); labels are the sign of a noisy linear score",
    "synthetic_chi2": "agent i = 1..m draws features from χ²(i); labels are the sign of a noisy linear score",
    "synthetic_mixed": "agent i draws from N(0, i²) if i is even and from χ²(i) if it is odd; labels as above",
    "synthetic_classification": "two Gaussian classes a given distance apart, the same for all agents",
    "synthetic_census": "sparse records shaped like a9a: 14 attributes as 123 binary features, one class of a quarter",
    "cartpole": "trajectories: a cart that balances a pole until it falls, 4 numbers a step; played by gymnasium",
}

# Of these the records are whole trajectories, which an annex plays.
ENVIRONMENTS = ("cartpole",)

# Data with a name → their classes, which are known without looking at a record; none of trajectories.
_CLASSES: Mapping[str, tuple[Label, ...]] = {
    **dict.fromkeys(SYNTHETIC, (-1, 1)),
    **dict.fromkeys(ENVIRONMENTS, ()),
    **BUNDLED_CLASSES,
}
# Their columns beside features and labels.
_COLUMNS = dict.fromkeys((*SYNTHETIC, *ENVIRONMENTS), ("agent", "split"))
# A file's ending → its reader. A new format is a function and a line here.
FORMATS: Mapping[str, Callable[[Path, tables.DeclaredColumns], Dataset]] = {
    ".csv": tables.read_table,
    ".npz": tables.read_npz,
    ".parquet": tables.read_table,
}

# Argument → key of the scenario's table.
_KEYS = {"d": "dimension"}
# Generator → the sizes that it takes.
_SIZES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SYNTHETIC, ("d", "records", "test_records")),
    synthetic.CLASSES_APART: ("d", "records", "test_records", "separation", "relevant"),
    **dict.fromkeys(ENVIRONMENTS, ("records", "test_records", "steps")),
}


def load_dataset(
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
    drawn: bool = True,
    rules: ColumnRules | None = None,
    agents: Sequence[Label] | None = None,
    csv: tables.CsvFormat | None = None,
    **sizes: float | None,
) -> Dataset:
    """Load the records that `data` names.

    Args:
        data: a key of DATASETS, the path of a .csv, .npz or .parquet file, or "openml:NAME".
        n_agents: how many agents there are; read for synthetic families and environments.
        seed: the public one; read for synthetic families and environments.
        label: label column of a CSV or Parquet file, or of OpenML; None elsewhere.
        classes: declared labels, `[]` for a number to predict; None for bundled data and, unless certified, to discover
            them.
        agent, split: columns that name the owner and the split of each record; None means "agent" and "split" where the
            data have them.
        root: folder that relative paths start from.
        certified: whether classes that nobody declared are refused instead of discovered; default yes.
        drawn: False for the public facts of a synthetic family without its records; default True.
        rules: how columns become features, of a CSV or Parquet file or of OpenML; None where they are numbers.
        agents: names of the agents in the owner column, in order; None where they are numbered from 0.
        csv: how a CSV file is written; None for commas, decimal points and UTF-8.
        sizes: of synthetic records; None is as if left out. d: features, of synthetic families only (200, and
            a9a's 123 of synthetic_census). records: per agent, train and validation together. test_records: held out.
            separation: distance of the class means in standard deviations, and relevant: features in which they differ
            (all), of synthetic_classification only. steps: where a trajectory is cut off, of environments only.

    Returns:
        The records and their public description.

    Raises:
        InputError: an argument that these data do not take, or data that are not there or not sound.
    """
    stated = {key: value for key, value in sizes.items() if value is not None}
    path = (root or Path()) / Path(data).expanduser()
    has_columns = data not in DATASETS and path.suffix.lower() != ".npz"
    known = _COLUMNS.get(data, ()) if data in _CLASSES else (agent, split)
    unused = {
        **{f"synthetic.{_KEYS.get(key, key)}": key not in _SIZES.get(data, ()) for key in stated},
        # Columns of files are looked up by their readers.
        "partition": agent is not None and agent not in known,
        "validation": split is not None and split not in known,
        "label": label is not None and not has_columns,
        "columns": rules is not None and not has_columns,
        "separator, decimal, encoding": csv is not None and not (has_columns and path.suffix.lower() == ".csv"),
    }
    if keys := [key for key, is_unused in unused.items() if is_unused]:
        raise InputError(f"problem.{keys[0]}: {data!r} takes none. Fix: leave it out.")
    if data in _CLASSES:
        _check_classes(data, classes, _CLASSES[data])
    if data in SYNTHETIC:
        return _synthetic(data, n_agents, seed, stated, drawn)
    if data in ENVIRONMENTS:
        played: Dataset = annexes.import_place(annexes.TRAJECTORIES).simulate(
            n_agents=n_agents, seed=seed, **{key: int(value) for key, value in stated.items()}
        )
        return played
    declared = tables.DeclaredColumns(
        label,
        agent,
        split,
        rules,
        agents,
        csv or tables.USUAL_CSV,
        None if classes is None else tuple(classes),
        certified,
    )
    if data in BUNDLED_CLASSES:
        return load_bundled(data)
    return load_openml(data, declared) if data.startswith(OPENML) else _load_file(data, path, declared)


def _load_file(data: str, path: Path, declared: tables.DeclaredColumns) -> Dataset:
    """Read a file, whose labels are encoded by the declared classes. Raises InputError."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        known = OPENML_NAMES.get(data.lower().replace("-", "_"))
        fix = f'data = "openml:{known}", which scikit-learn downloads' if known else nearest(data, DATASETS)
        raise InputError(
            f"problem.data: {data!r} is no bundled data set, and no path that ends in {', '.join(FORMATS)}. Fix: {fix}."
        )
    if suffix == ".npz":
        reader = annexes.import_place(annexes.TRAJECTORIES).read_trajectories
        played: Dataset | None = reader(path, declared.agent, declared.split)
        if played is not None:
            _check_classes(data, declared.classes or None, ())
            return played
    return FORMATS[suffix](path, declared)


def _check_classes(data: str, classes: Sequence[Label] | None, known: Sequence[Label]) -> None:
    if classes is not None and tuple(classes) != known:
        raise InputError(
            f"problem.classes: {data!r} has the classes {list(known)}, got {list(classes)}. Fix: leave `classes` out."
        )


def _synthetic(name: str, n_agents: int, seed: int, stated: Mapping[str, float], drawn: bool) -> Dataset:
    usual = synthetic.USUAL_SIZES | ({"d": sum(synthetic.CATEGORIES)} if name == synthetic.CENSUS else {})
    sizes = {k: int(stated.get(k, default)) for k, default in usual.items()}
    relevant = int(stated["relevant"]) if "relevant" in stated else None
    if relevant is not None and relevant > sizes["d"]:
        raise InputError(f"problem.synthetic.relevant: got {relevant}, expected at most the {sizes['d']} features.")
    if not drawn:
        return synthetic.outline(name, n_agents=n_agents, **sizes)
    if name in synthetic.FAMILIES:
        return synthetic.heterogeneous(name, n_agents=n_agents, seed=seed, **sizes)
    if name == synthetic.CENSUS:
        return synthetic.census(n_agents=n_agents, seed=seed, **sizes)
    separation = stated.get("separation", 2.0)
    return synthetic.gaussian_classes(n_agents=n_agents, seed=seed, separation=separation, relevant=relevant, **sizes)
