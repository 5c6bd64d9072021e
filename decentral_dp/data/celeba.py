"""CelebA's attributes, from its own list, beside features of the same images that somebody else computed.

Format of list_attr_celeba.txt (Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild"): how
many images there are; the names of the attributes; then a line for each image, its name and 1 or −1 per attribute.
Format of list_eval_partition.txt: a line for each image, its name and 0 (train), 1 (validation) or 2 (test).

The features are an NPZ archive of an array X, one row of numbers for each line of the list and in its order, and
optionally an array `names` with the images' names, which must then be those of the list. The label is one attribute;
the classes are −1 and 1. Whatever computed the features must not have seen the labels of these images, for nothing
here protects what it saw.

The attribute is problem.label; the files are problem.files, with folder = …, or attributes, features and, for CelebA's
own division, partition, each by path. Without the last, the share problem.test is held out at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray, nearest
from decentral_dp.data.fetch import Declared, check, is_url, read
from decentral_dp.data.images import DATA_VARIABLE, own_folder
from decentral_dp.data.record_files import matrix, opened
from decentral_dp.errors import InputError

CLASSES = (-1, 1)
# Key of problem.files → the file's name in a folder. Without the last a share of the records is held out at random.
FILES = {"attributes": "list_attr_celeba.txt", "features": "features.npz", "partition": "list_eval_partition.txt"}
_PARTS = {"0": "train", "1": "validation", "2": "test"}


class Attribute(NamedTuple):
    """names: of the images. values: (n,) 1 where an image has the attribute, else 0."""

    names: tuple[str, ...]
    values: IntArray


def load_celeba(
    files: Mapping[str, Any] | None, label: str | None, *, limit: int | None = None, root: Path | None = None
) -> Dataset:
    """Load the features and one attribute of every image.

    Args:
        files: the table problem.files, with folder, or attributes, features and optionally partition, and sha256 by key
            for the two lists. None for the folder celeba of DECENTRAL_DP_DATA.
        label: the attribute.
        limit: the first so many images; default all.
        root: where relative paths start; default the working directory.

    Returns:
        The records, of classes −1 and 1.

    Raises:
        InputError: files that are missing, for which nothing stands in, or that are not as the module says.
    """
    found = _found(files, root)
    for key in ("attributes", "partition"):
        if key in found:
            check(found[key])
    if is_url(found["features"].place) or found["features"].sha256 is not None:
        raise InputError(
            "problem.files.features: features are files of your own, read from a local path and without a checksum; "
            "give such a path."
        )
    listed = _attribute(found["attributes"], label, root)
    features, n = _features(found["features"], listed.names, root), len(listed.names)
    dataset = Dataset(
        features,
        listed.values,
        CLASSES,
        tuple(f"x{k}" for k in range(features.shape[1])),
        "celeba",
        split=_split(found["partition"], listed.names, root) if "partition" in found else None,
    )
    return dataset if limit is None or limit >= n else dataset.first(limit)


def _found(files: Mapping[str, Any] | None, root: Path | None) -> dict[str, Declared]:
    if files is None:
        folder = own_folder("celeba")
        if folder is None or not folder.is_dir():
            raise InputError(
                "problem.files: celeba needs files, and nothing stands in for them. Give folder, or attributes and "
                f"features, or put {' and '.join(list(FILES.values())[:2])} into the folder celeba of {DATA_VARIABLE}."
            )
        return _in_folder(folder, f"{DATA_VARIABLE}/celeba")
    given = {key: str(value) for key, value in files.items() if key != "sha256" and value is not None}
    for key in given:
        if key not in ("folder", *FILES):
            raise InputError(f"problem.files.{key}: celeba takes none, only folder, {', '.join(FILES)}; leave it out.")
    if "folder" in given:
        if len(given) > 1:
            raise InputError(f"problem.files: got {', '.join(given)}, but folder is wanted alone, or not at all.")
        folder = (root or Path()) / Path(given["folder"]).expanduser()
        if not folder.is_dir():
            raise InputError(f"problem.files.folder: {str(folder)!r} is no folder; give the folder with the files.")
        found = _in_folder(folder, "problem.files.folder")
    else:
        for key in ("attributes", "features"):
            if key not in given:
                raise InputError(f"problem.files.{key}: missing. celeba needs attributes and features; add it.")
        found = {key: Declared(f"problem.files.{key}", place) for key, place in given.items()}
    names = {FILES[key]: key for key in found} if "folder" in given else {key: key for key in found}
    for name, checksum in (files.get("sha256") or {}).items():
        if name not in names:
            raise InputError(f"problem.files.sha256: no file here is called {name!r}; {nearest(name, names)}.")
        found[names[name]] = found[names[name]]._replace(sha256=str(checksum))
    return found


def _in_folder(folder: Path, key: str) -> dict[str, Declared]:
    found = {which: Declared(key, str(folder / name)) for which, name in FILES.items() if (folder / name).is_file()}
    for which in ("attributes", "features"):
        if which not in found:
            raise InputError(f"{key}: {str(folder)!r} has no {FILES[which]}; add it.")
    return found


def _lines(declared: Declared, root: Path | None) -> list[list[str]]:
    """The words of every line that has some."""
    try:
        text = read(declared, root).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{declared.key}: {declared.place!r} is no text in UTF-8; get it anew.") from error
    return [words for line in text.splitlines() if (words := line.split())]


def _attribute(declared: Declared, label: str | None, root: Path | None) -> Attribute:
    where = f"{declared.key}: {declared.place!r}"
    lines = _lines(declared, root)
    if len(lines) < 3 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        raise InputError(
            f"{where} does not start with a number of images, a line of attributes and an image; give CelebA's "
            f"{FILES['attributes']}."
        )
    (count,), attributes, *rows = lines
    if len(rows) != int(count):
        raise InputError(f"{where} says it has {count} images, but has {len(rows)}; it is truncated, so get it anew.")
    if label is None or label not in attributes:
        got = "missing" if label is None else f"{label!r} is no attribute"
        hint = nearest(label or "", attributes)
        raise InputError(f"problem.label: {got}. celeba needs the name of an attribute as its label; {hint}.")
    place = attributes.index(label) + 1
    for k, row in enumerate(rows):
        if len(row) != len(attributes) + 1 or row[place] not in ("-1", "1"):
            got = f"{len(row) - 1} attributes" if len(row) != len(attributes) + 1 else f"another value of {label}"
            raise InputError(
                f"{where}, image {k + 1} has {got}, but {len(attributes)} of 1 or -1 are wanted; get it anew."
            )
    return Attribute(tuple(row[0] for row in rows), np.array([row[place] == "1" for row in rows], dtype=np.int64))


def _split(declared: Declared, names: tuple[str, ...], root: Path | None) -> TextArray:
    where = f"{declared.key}: {declared.place!r}"
    rows = _lines(declared, root)
    _same([row[0] for row in rows], names, where)
    for k, row in enumerate(rows):
        if len(row) != 2 or row[1] not in _PARTS:
            raise InputError(f"{where}, image {k + 1} has no part, or another than 0, 1 and 2; get it anew.")
    return np.array([_PARTS[row[1]] for row in rows], dtype=np.str_)


def _features(declared: Declared, names: tuple[str, ...], root: Path | None) -> FloatArray:
    path = (root or Path()) / Path(declared.place).expanduser()
    where = f"{declared.key}: {str(path)!r}"
    arrays = opened(path, where, ("X",), ("names",), "X=...")
    features = matrix(arrays["X"], where)
    if features.shape[0] != len(names):
        raise InputError(
            f"{where} has {features.shape[0]} rows, but {len(names)} images have attributes; give one row for each "
            "image, in the order of the list."
        )
    if "names" in arrays:
        _same([str(name) for name in arrays["names"].ravel().tolist()], names, f"{where}, array 'names'")
    return features


def _same(found: list[str], names: tuple[str, ...], where: str) -> None:
    if tuple(found) == names:
        return
    row = next((k for k, (a, b) in enumerate(zip(found, names, strict=False)) if a != b), min(len(found), len(names)))
    raise InputError(
        f"{where} and the list of attributes have different names for image {row + 1}, or one ends before it; give the "
        "same images in the same order."
    )
