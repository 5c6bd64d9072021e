"""Loading of records: bundled and synthetic data sets, files, and data sets from OpenML.

scikit-learn downloads, verifies and caches data sets of OpenML. Its three bundled data sets are read from its files,
since the import of scikit-learn takes longer than the rest of `plan`.
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
from decentral_dp.data.dataset import Dataset, Label, require_classes
from decentral_dp.data.synthetic import SYNTHETIC
from decentral_dp.data.tables import DeclaredColumns, frame_dataset
from decentral_dp.errors import InputError, converting, nearest_of, quoted

_SHAPES = ("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points")
_WINE = """
    alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids nonflavanoid_phenols proanthocyanins
    color_intensity hue od280/od315_of_diluted_wines proline
"""
_SIDE = 8


class _Table(NamedTuple):
    """File of scikit-learn: an optional heading, then features and the class index in every line."""

    file: str
    heading: bool
    classes: tuple[Label, ...]
    features: tuple[str, ...]
    image: tuple[int, int, int] | None = None


# Published descriptions: classes and names are public.
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
    """Read a data set that scikit-learn bundles.

    Args:
        name: name of the data set, "breast_cancer", "wine" or "digits".

    Returns:
        All records, in file order.
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


# Name on OpenML → (height, width, channels). All have classes 0 to 9, pixels from 0 to 255, and a test set at the end.
IMAGES = {"mnist_784": (28, 28, 1), "Fashion-MNIST": (28, 28, 1), "CIFAR_10": (32, 32, 3)}
TEST_IMAGES = 10_000
# Other common names.
OPENML_NAMES = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR_10"}


def load_openml(data: str, column_spec: DeclaredColumns) -> Dataset:
    """Load an OpenML data set from the cache of scikit-learn or from the network.

    Args:
        data: "openml:NAME" for the first version of a data set, or "openml:NUMBER" for a specific version.
        column_spec: declarations of the scenario. If no label is declared, OpenML's target column is the label.

    Returns:
        The records. The data sets in `IMAGES` are images and have a test set.

    Raises:
        InputError: the data set does not exist, the network is unavailable, or a column is not numeric.
    """
    name = _NAME.fullmatch(data)
    if name is None:
        raise InputError(
            f'problem.data: invalid (got {quoted(data)}, expected a name or a number after "openml:"). Fix: use '
            'for example "openml:mnist_784".'
        )
    version = {"data_id": int(name[1])} if name[1].isdecimal() else {"name": name[1], "version": 1}
    # Slow to import.
    from sklearn.datasets import fetch_openml

    def sentence(error: BaseException) -> str:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())[:200]
        return (
            f"problem.data: {data} is not in scikit-learn's cache and could not be downloaded ({reason}). "
            "Fix: run once with network access, or save the records as CSV or NPZ."
        )

    with converting((OSError, ValueError), sentence), warnings.catch_warnings():
        # Warnings of retries are repeated in the error.
        warnings.simplefilter("ignore", UserWarning)
        bunch = fetch_openml(**version, as_frame=True, n_retries=1)
    if not column_spec.label and len(bunch.target_names) != 1:
        raise InputError(
            f"problem.label: {data} has {len(bunch.target_names)} label columns (expected 1). Fix: set "
            "problem.label to one of them."
        )
    image = IMAGES.get(name[1])
    classes = tuple(range(10)) if image is not None and column_spec.classes is None else column_spec.classes
    column_spec = column_spec._replace(label=column_spec.label or str(bunch.target_names[0]), classes=classes)
    dataset = frame_dataset(bunch.frame.set_axis(bunch.frame.columns.map(str), axis=1), data, column_spec)
    return dataset if image is None else replace(dataset, image=image, bounds=(0.0, 255.0), own_test=TEST_IMAGES)


# Name of a data set → description.
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

# Data sets of trajectories, which an annex simulates.
ENVIRONMENTS = ("cartpole",)

# Name of a data set → public classes; none for trajectories.
_CLASSES: Mapping[str, tuple[Label, ...]] = {
    **dict.fromkeys(SYNTHETIC, (-1, 1)),
    **dict.fromkeys(ENVIRONMENTS, ()),
    **BUNDLED_CLASSES,
}
# Additional columns of generated data.
_COLUMNS = dict.fromkeys((*SYNTHETIC, *ENVIRONMENTS), ("agent", "split"))
# Ending of a file → reader. A new format needs a function and a row here.
FORMATS: Mapping[str, Callable[[Path, tables.DeclaredColumns], Dataset]] = {
    ".csv": tables.read_table,
    ".npz": tables.read_npz,
    ".parquet": tables.read_table,
}

# Argument → key of the scenario's table.
_KEYS = {"d": "dimension"}
# Generator → sizes that it supports.
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
    draws_records: bool = True,
    rules: ColumnRules | None = None,
    agents: Sequence[Label] | None = None,
    csv: tables.CsvFormat | None = None,
    **sizes: float | None,
) -> Dataset:
    """Load the records that `data` refers to.

    Args:
        data: key of DATASETS, path of a .csv, .npz or .parquet file, or "openml:NAME".
        n_agents: number of agents of synthetic families and environments.
        seed: public seed of synthetic families and environments.
        label: label column of a CSV or Parquet file, or of an OpenML data set.
        classes: declared labels. `[]` means a numeric target. None is for bundled data, or discovers the labels if not
            certified.
        agent, split: owner and split columns. None means the columns "agent" and "split" if they exist.
        root: folder in which relative paths start.
        certified: whether it is an error if the classes are not declared.
        draws_records: whether records are drawn. If False, only the public description of a synthetic family is
            returned.
        rules: rules that convert the columns of CSV files, Parquet files and OpenML data sets to features.
        agents: names of the agents in the owner column, in order; None if they are numbered from 0.
        csv: format of a CSV file.
        sizes: sizes of synthetic records; None means a default. `d` is the number of features (200, or 123 for
            synthetic_census), `records` the number of train and validation records per agent, and `test_records` the
            total number of test records. For synthetic_classification, `separation` is the distance of the class means
            and `relevant` the number of features in which they differ. For environments, `steps` is the largest length
            of a trajectory.

    Returns:
        The records and their public description.

    Raises:
        InputError: an argument does not apply to the data, or the data are missing or invalid.
    """
    values = {key: value for key, value in sizes.items() if value is not None}
    path = (root or Path()) / Path(data).expanduser()
    has_columns = data not in DATASETS and path.suffix.lower() != ".npz"
    column_names = _COLUMNS.get(data, ()) if data in _CLASSES else (agent, split)
    unused_keys = {
        **{f"synthetic.{_KEYS.get(key, key)}": key not in _SIZES.get(data, ()) for key in values},
        # Readers check the columns of files.
        "partition": agent is not None and agent not in column_names,
        "validation": split is not None and split not in column_names,
        "label": bool(label) and not has_columns,
        "columns": rules is not None and not has_columns,
        "separator, decimal, encoding": csv is not None and not (has_columns and path.suffix.lower() == ".csv"),
    }
    if keys := [key for key, is_unused in unused_keys.items() if is_unused]:
        raise InputError(f"problem.{keys[0]}: not supported by {data!r}. Fix: remove it.")
    if data in _CLASSES:
        require_classes(data, classes, _CLASSES[data])
    if data in SYNTHETIC:
        return _synthetic(data, n_agents, seed, values, draws_records)
    if data in ENVIRONMENTS:
        dataset: Dataset = annexes.import_place(annexes.TRAJECTORIES).simulate(
            n_agents=n_agents, seed=seed, **{key: int(value) for key, value in values.items()}
        )
        return dataset
    column_spec = tables.DeclaredColumns(
        label or "",
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
    return load_openml(data, column_spec) if data.startswith(OPENML) else _load_file(data, path, column_spec)


def _load_file(data: str, path: Path, column_spec: tables.DeclaredColumns) -> Dataset:
    """Read a file. Raises InputError."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        openml_name = OPENML_NAMES.get(data.lower().replace("-", "_"))
        fix = f'. Fix: data = "openml:{openml_name}", which scikit-learn downloads.'
        near = fix if openml_name else nearest_of(data, DATASETS)
        raise InputError(f"problem.data: {data!r} is no bundled data set or path ending in {', '.join(FORMATS)}{near}")
    if suffix == ".npz":
        reader = annexes.import_place(annexes.TRAJECTORIES).read_trajectories
        trajectories: Dataset | None = reader(path, column_spec.agent, column_spec.split)
        if trajectories is not None:
            require_classes(data, column_spec.classes or None, ())
            return trajectories
    return FORMATS[suffix](path, column_spec)


def _synthetic(name: str, n_agents: int, seed: int, values: Mapping[str, float], draws_records: bool) -> Dataset:
    """Draw the records of a synthetic family."""
    defaults = synthetic.USUAL_SIZES | ({"d": sum(synthetic.CATEGORIES)} if name == synthetic.CENSUS else {})
    sizes = {k: int(values.get(k, default)) for k, default in defaults.items()}
    relevant = int(values["relevant"]) if "relevant" in values else None
    if relevant is not None and relevant > sizes["d"]:
        raise InputError(
            f"problem.synthetic.relevant: out of range (got {relevant}, expected at most the {sizes['d']} "
            "features). Fix: lower it."
        )
    if not draws_records:
        return synthetic.outline(name, n_agents=n_agents, **sizes)
    if name in synthetic.FAMILIES:
        return synthetic.heterogeneous(name, n_agents=n_agents, seed=seed, **sizes)
    if name == synthetic.CENSUS:
        return synthetic.census(n_agents=n_agents, seed=seed, **sizes)
    separation = values.get("separation", 2.0)
    return synthetic.gaussian_classes(n_agents=n_agents, seed=seed, separation=separation, relevant=relevant, **sizes)
