"""The three data sets that come with scikit-learn, read from its files.

Importing scikit-learn takes longer than everything else that `plan` does, and its loaders only read these tables.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decentral_dp.data.dataset import Dataset, Label

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
