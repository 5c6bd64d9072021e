"""Records in LibSVM's sparse text format: files of one's own, and a9a and ijcnn1 of LibSVM's collection.

Formats: C.-C. Chang and C.-J. Lin, "LIBSVM Data". A line is `label index:value …`, with indices from 1. How many
features there are is public: declared for files of one's own, and known of the collection's. a9a is Adult of the UCI
repository in 123 binary features (J. Platt, 1998), ijcnn1 the competition of IJCNN 2001 in 22 (D. Prokhorov, 2001).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.data.dataset import Dataset, Label, encode_labels
from decentral_dp.data.images import own_folder
from decentral_dp.errors import InputError, quoted_path
from decentral_dp.files.regular import regular

SUFFIXES = (".libsvm", ".svm", ".svmlight")
PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
# Numbers of a table that is filled up with zeros: 1 GiB.
_MOST = 2**27


class Collected(NamedTuple):
    """A data set of LibSVM's page. train, test: its files, unpacked. features: how many there are."""

    train: str
    test: str
    features: int


COLLECTED: Mapping[str, Collected] = {
    "a9a": Collected("a9a", "a9a.t", 123),
    "ijcnn1": Collected("ijcnn1", "ijcnn1.t", 22),
}
_CLASSES = (-1, 1)


def is_libsvm(path: Path) -> bool:
    """Whether a file is in this format, by its name.

    Example:
        >>> is_libsvm(Path("mine.libsvm")), is_libsvm(Path("mine.csv"))
        (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def read_libsvm(path: Path, features: int | None, classes: Sequence[Label] | None, certified: bool) -> Dataset:
    """Read a file of one's own.

    Args:
        path: of the file.
        features: how many there are, at least the largest index.
        classes: as of `load`.
        certified: whether classes or features that nobody declared are refused instead of discovered.

    Returns:
        The records, their features named 1, 2, ….

    Raises:
        InputError: a file that is not sound, or what is not declared.
    """
    if features is None and certified:
        raise InputError(
            f"problem.features: {str(path)!r} does not say how many features there are, and a certified run must not "
            "count them in the records; declare them, as in features = 123."
        )
    rows, raw = _parsed(path, features)
    labels, known = encode_labels(raw, classes, certified=certified, source=str(path))
    return Dataset(rows, labels, known, _names(rows.shape[1]), str(path))


def load_collected(name: str, files: Mapping[str, Any] | None, *, limit: int | None, root: Path | None) -> Dataset:
    """Load a data set of LibSVM's page from its files.

    Args:
        name: a key of COLLECTED.
        files: the table problem.files with a folder, or None for the folder `name` of DECENTRAL_DP_DATA.
        limit: the first so many records, and at most as many of the test file; default all.
        root: where relative paths start.

    Returns:
        The records, those of the test file as the data's own held-out ones, where that is there.

    Raises:
        InputError: the files are not there, and the sentence says what to put where.
    """
    own = COLLECTED[name]
    for key in files or {}:
        if key not in ("folder", "sha256") or (key == "sha256" and (files or {})[key]):
            raise InputError(f"problem.files.{key}: {name} takes none, only folder; leave it out.")
    given = (files or {}).get("folder")
    folder = own_folder(name)
    if given is not None:
        folder = (root or Path()) / Path(given).expanduser()
    if folder is None or not (folder / own.train).is_file():
        where = f"into {quoted_path(folder)}" if folder is not None else "into a folder, and name it in problem.files"
        raise InputError(
            f"problem.data: the files of {name} are not here. Get {own.train} and {own.test} from {PAGE}, unpack them, "
            f"and put them {where}; nothing stands in for them."
        )
    train = _parsed(folder / own.train, own.features)
    test = _parsed(folder / own.test, own.features) if (folder / own.test).is_file() else None
    parts = [(a[:limit], b[:limit]) for a, b in ([train] if test is None else [train, test])]
    raw = np.concatenate([b for _, b in parts])
    labels, known = encode_labels(raw, _CLASSES, certified=True, source=name)
    held_out = 0 if test is None else len(parts[-1][1])
    names = _names(own.features)
    return Dataset(np.concatenate([a for a, _ in parts]), labels, known, names, name, own_test=held_out)


def _names(features: int) -> tuple[str, ...]:
    return tuple(str(k) for k in range(1, features + 1))


def _parsed(path: Path, features: int | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features (n, d) and labels (n,) as numbers."""
    # Slow to import.
    from sklearn.datasets import load_svmlight_file

    where = f"problem.data: {str(path)!r}"
    try:
        content = regular(path, "problem.data").read_bytes()
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror}; give the path of a LibSVM file.") from error
    try:
        rows, labels = load_svmlight_file(io.BytesIO(content), n_features=features, zero_based=False)
    except (ValueError, OverflowError) as error:
        # What scikit-learn says may quote a record.
        most = "" if features is None else f", no index above {features}"
        raise InputError(
            f"{where} is no LibSVM file of lines 'label index:value …' with indices from 1{most}; mend it."
        ) from error
    if not rows.shape[0]:
        raise InputError(f"{where} holds no records.")
    if rows.shape[0] * rows.shape[1] > _MOST:
        raise InputError(
            f"{where} has {rows.shape[0]} records of {rows.shape[1]} features, too many for a full table; give fewer."
        )
    return np.ascontiguousarray(rows.toarray(), dtype=np.float64), np.asarray(labels, dtype=np.float64)
