"""MNIST and Fashion-MNIST (IDX files) and CIFAR-10 (its binary version), from local files or verified URLs.

Formats: Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits" (IDX: a magic number and the
sizes, big-endian, then bytes); A. Krizhevsky, "The CIFAR-10 dataset" (records of one label and 3072 bytes: the red, the
green and the blue plane, each row by row). Nothing is unpickled and nothing is unpacked to disk.

Pixels are bytes times the declared constant 1/255: every possible record is in [0, 1]^d. The classes are 0..9.

Where publishers offer the files of images, and the SHA-256 of each as libraries that fetch them state it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import Dataset, nearest
from decentral_dp.data.fetch import Declared, check, gunzip, is_url, members, read
from decentral_dp.errors import InputError

# Collection → (address of the folder, key of problem.files → (file, SHA-256)).
PUBLISHED: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    "mnist": (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        {
            "images": (
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            "labels": (
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            "test_images": (
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            "test_labels": (
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        },
    ),
    "fashion_mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "images": (
                "train-images-idx3-ubyte.gz",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            "labels": (
                "train-labels-idx1-ubyte.gz",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            "test_images": (
                "t10k-images-idx3-ubyte.gz",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            "test_labels": (
                "t10k-labels-idx1-ubyte.gz",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        },
    ),
    "cifar10": (
        "https://www.cs.toronto.edu/~kriz/",
        {"archive": ("cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd")},
    ),
}


Bytes: TypeAlias = NDArray[np.uint8]

DATA_VARIABLE = "DECENTRAL_DP_DATA"
CLASSES = tuple(range(10))


class Collection(NamedTuple):
    """A data set of images. title: its own name. image: (height, width, channels). keys: of problem.files it reads."""

    title: str
    image: tuple[int, int, int]
    keys: tuple[str, ...]


_IDX_FILES = {
    "images": "train-images-idx3-ubyte",
    "labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
# Whoever gives the first must give the second.
_TOGETHER = (
    ("images", "labels"),
    ("labels", "images"),
    ("test_images", "test_labels"),
    ("test_labels", "test_images"),
    ("test_images", "images"),
)
_IDX_KEYS = ("folder", *_IDX_FILES)
_BATCHES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")
_ARCHIVE, _ARCHIVE_FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
# Its publisher offers the same images as Python pickles, which are never opened here.
_PYTHON_ARCHIVE, _PYTHON_FOLDER, _PYTHON_BATCH = "cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1"
_NEEDS_BINARY = f"is CIFAR-10's python version, and the binary version is needed; get {_ARCHIVE} from its publisher."

COLLECTIONS: Mapping[str, Collection] = {
    "mnist": Collection("MNIST", (28, 28, 1), _IDX_KEYS),
    "fashion_mnist": Collection("Fashion-MNIST", (28, 28, 1), _IDX_KEYS),
    "cifar10": Collection("CIFAR-10", (32, 32, 3), ("folder", "archive")),
}


class Part(NamedTuple):
    """pixels: (n, d) bytes, channel by channel. labels: (n,) from 0 to 9."""

    pixels: Bytes
    labels: Bytes


def own_folder(name: str) -> Path | None:
    """The folder of this name in the one that DECENTRAL_DP_DATA names, there or not; None where it names none."""
    base = os.environ.get(DATA_VARIABLE)
    return Path(base).expanduser() / name if base else None


def load_images(
    name: str, files: Mapping[str, Any] | None, *, limit: int | None = None, root: Path | None = None
) -> Dataset | None:
    """Load the images of a collection from declared files.

    Args:
        name: a key of COLLECTIONS.
        files: the table problem.files (see `_declared`), or None to look in the folder `name` of DECENTRAL_DP_DATA.
        limit: the first so many records of the training files, and at most as many of the test files; default all.
        root: where relative paths start; default the working directory.

    Returns:
        The records, those of the test files as the data's own held-out ones. None where no files are declared or found.

    Raises:
        InputError: files that are not as declared; a declared file that is missing is an error.
    """
    if files is not None and files.get("published"):
        return _published(name, files, limit)
    declared = _found(name) if files is None else _declared(name, files, root)
    if not declared:
        return None
    return _loaded(name, declared, limit, root)


def _loaded(name: str, declared: Mapping[str, Declared], limit: int | None, root: Path | None) -> Dataset:
    for file in declared.values():
        check(file)
    train, test = (_read_cifar if name == "cifar10" else _read_idx)(declared, COLLECTIONS[name], root)
    parts = [Part(part.pixels[:limit], part.labels[:limit]) for part in (train, test) if part is not None]
    return Dataset(
        features=np.concatenate([part.pixels for part in parts]) / 255.0,
        labels=np.concatenate([part.labels for part in parts]).astype(np.int64),
        classes=CLASSES,
        feature_names=_pixel_names(*COLLECTIONS[name].image),
        source=name,
        image=COLLECTIONS[name].image,
        bounds=(0.0, 1.0),
        own_test=0 if test is None else parts[-1].labels.size,
    )


def _published(name: str, files: Mapping[str, Any], limit: int | None) -> Dataset:
    """What the publisher offers: read where it lies in DECENTRAL_DP_DATA, else fetched. Raises InputError."""
    for key, value in files.items():
        if key != "published" and value:
            raise InputError(f"problem.files.{key}: published names the files already. Give one of the two.")
    declared = _found(name)
    address, known = PUBLISHED[name]
    fetched = {key: Declared(f"problem.files.{key}", address + file, sha) for key, (file, sha) in known.items()}
    try:
        return _loaded(name, declared or fetched, limit, None)
    except InputError as error:
        if declared:
            raise
        names = ", ".join(file for file, _ in known.values())
        raise InputError(
            f"{error} Where there is no network, put {names} into the folder {name} of a folder that {DATA_VARIABLE} "
            "names; nothing stands in for them."
        ) from error


def _pixel_names(height: int, width: int, channels: int) -> tuple[str, ...]:
    planes = ("pixel",) if channels == 1 else ("red", "green", "blue")
    return tuple(f"{plane}_{row}_{column}" for plane in planes for row in range(height) for column in range(width))


def _found(name: str) -> dict[str, Declared]:
    """Files in the folder that the environment names; none without one, or without any of the files."""
    base = os.environ.get(DATA_VARIABLE)
    if not base:
        return {}
    folder = Path(base).expanduser()
    if not folder.is_dir():
        raise InputError(f"{DATA_VARIABLE}: {base!r} is no folder; name one, or unset the variable.")
    return _in_folder(name, folder / name, f"{DATA_VARIABLE}/{name}")


def _declared(name: str, files: Mapping[str, Any], root: Path | None) -> dict[str, Declared]:
    """The table problem.files as file → Declared.

    Either folder (the files under their published names), or one by one, each a path or a URL: images, labels and, if
    there is a test set, test_images and test_labels; for cifar10, archive. sha256: table of checksums, by key, or by
    file name within a folder; required for URLs, optional for paths.
    """
    collection, given = COLLECTIONS[name], {k: v for k, v in files.items() if k != "sha256" and v is not None}
    for key in given:
        if key not in collection.keys:
            raise InputError(
                f"problem.files.{key}: {name} takes none, only {', '.join(collection.keys)}; leave it out."
            )
    wanted = "folder, or archive" if name == "cifar10" else "folder, or images and labels"
    if not given or ("folder" in given and len(given) > 1):
        raise InputError(f"problem.files: got {', '.join(given) or 'no file'}, but either {wanted} is wanted.")
    for key, other in _TOGETHER:
        if key in given and other not in given:
            raise InputError(f"problem.files.{other}: missing, since {key} is given; add it.")
    if "folder" in given:
        place = str(given["folder"])
        if is_url(place):
            raise InputError(
                f"problem.files.folder: {place!r} is a URL, but a local folder is wanted; give {wanted} by URL instead."
            )
        folder = (root or Path()) / Path(place).expanduser()
        if not folder.is_dir():
            raise InputError(f"problem.files.folder: {str(folder)!r} is no folder; give the folder with the files.")
        found = _in_folder(name, folder, "problem.files.folder")
        if not found:
            raise InputError(
                f"problem.files.folder: {str(folder)!r} has none of {collection.title}'s files, such as "
                f"{_ARCHIVE if name == 'cifar10' else _IDX_FILES['images']}; give the folder with the files."
            )
        named = {Path(file.place).name: key for key, file in found.items()}
    else:
        found = {key: Declared(f"problem.files.{key}", str(place)) for key, place in given.items()}
        named = {key: key for key in found}
    for file_name, checksum in (files.get("sha256") or {}).items():
        if file_name not in named:
            raise InputError(
                f"problem.files.sha256: no file here is called {file_name!r}; {nearest(file_name, named)}."
            )
        found[named[file_name]] = found[named[file_name]]._replace(sha256=str(checksum))
    return found


def _in_folder(name: str, folder: Path, key: str) -> dict[str, Declared]:
    """Files under their published names; {} if there is none of them. Raises InputError if only some are there."""
    if name == "cifar10":
        # The folder itself, or the one that the archive unpacks to.
        found = {batch: folder / batch for batch in _BATCHES if (folder / batch).is_file()}
        inner = folder / _ARCHIVE_FOLDER
        found = found or {batch: inner / batch for batch in _BATCHES if (inner / batch).is_file()}
        if not found and (folder / _ARCHIVE).is_file():
            return {"archive": Declared(key, str(folder / _ARCHIVE))}
        python = (folder / part for part in (_PYTHON_BATCH, f"{_PYTHON_FOLDER}/{_PYTHON_BATCH}", _PYTHON_ARCHIVE))
        other = next((path for path in python if path.is_file()), None)
        if not found and other is not None:
            raise InputError(f"{key}: {str(other)!r} {_NEEDS_BINARY}")
        wanted: tuple[str, ...] = _BATCHES
    else:
        found = {}
        for which, published in _IDX_FILES.items():
            stems = (published, published.replace("-idx", ".idx"))
            candidates = (folder / f"{stem}{end}" for stem in stems for end in ("", ".gz"))
            path = next((path for path in candidates if path.is_file()), None)
            if path is not None:
                found[which] = path
        has_test = "test_images" in found or "test_labels" in found
        wanted = tuple(_IDX_FILES) if has_test else ("images", "labels")
    missing = [which for which in wanted if which not in found]
    if found and missing:
        raise InputError(
            f"{key}: {str(folder)!r} has {', '.join(sorted(p.name for p in found.values()))}, but not "
            f"{_IDX_FILES.get(missing[0], missing[0])}; add it."
        )
    return {which: Declared(key, str(path)) for which, path in found.items()}


def _read_idx(declared: Mapping[str, Declared], collection: Collection, root: Path | None) -> tuple[Part, Part | None]:
    # All are verified before the first is parsed.
    content = {which: read(file, root) for which, file in declared.items()}
    where = {which: f"{file.key}: {file.place!r}" for which, file in declared.items()}
    parts = []
    for images, labels in (("images", "labels"), ("test_images", "test_labels")):
        if images not in declared:
            continue
        pixels = idx_images(gunzip(content[images], where[images]), where[images], collection.image)
        part = Part(pixels, idx_labels(gunzip(content[labels], where[labels]), where[labels]))
        if part.labels.size != pixels.shape[0]:
            raise InputError(
                f"{where[labels]} has {part.labels.size} labels, but {declared[images].place!r} has {pixels.shape[0]} "
                "images; give files that belong together."
            )
        parts.append(part)
    return parts[0], parts[1] if len(parts) > 1 else None


def idx_images(content: bytes, where: str, image: tuple[int, int, int]) -> Bytes:
    """(n, height·width) from an IDX file of images: 2051, n, height, width, then n·height·width bytes."""
    n, *size = _header(content, where, 2051, 4)
    if tuple(size) != image[:2]:
        raise InputError(
            f"{where} has images of {size[0]}×{size[1]} pixels, but {image[0]}×{image[1]} are wanted; resize them, or "
            'give them as records, with data = "FILE.npz" of arrays X (one row of numbers for each image) and y.'
        )
    return _body(content, where, 16, n, size[0] * size[1], "images").reshape(n, -1)


def idx_labels(content: bytes, where: str) -> Bytes:
    """(n,) from an IDX file of labels: 2049, n, then n bytes from 0 to 9."""
    (n,) = _header(content, where, 2049, 2)
    return _checked(_body(content, where, 8, n, 1, "labels"), where)


def _header(content: bytes, where: str, magic: int, numbers: int) -> tuple[int, ...]:
    if len(content) < 4 * numbers:
        raise InputError(f"{where} has {len(content)} bytes, too few for the head of an IDX file; get it anew.")
    found, *sizes = struct.unpack(f">{numbers}I", content[: 4 * numbers])
    if found != magic:
        meaning = {2051: "images", 2049: "labels"}
        hint = f", which is that of {meaning[found]}" if found in meaning else ""
        raise InputError(
            f"{where} starts with the number {found}{hint}, but an IDX file of {meaning[magic]} starts with {magic}; "
            "give the right file."
        )
    return tuple(sizes)


def _body(content: bytes, where: str, head: int, n: int, each: int, what: str) -> Bytes:
    if n < 1 or len(content) != head + n * each:
        raise InputError(
            f"{where} says it has {n} {what}, which take {head + n * each} bytes, but has {len(content)} bytes; it is "
            "empty, truncated or damaged, so get it anew."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head)


def _checked(labels: Bytes, where: str) -> Bytes:
    if labels.max() >= len(CLASSES):
        row = int(np.argmax(labels >= len(CLASSES)))
        raise InputError(f"{where}, record {row + 1} has a label that is none of 0 to 9; get the file anew.")
    return labels


def _read_cifar(
    declared: Mapping[str, Declared], collection: Collection, root: Path | None
) -> tuple[Part, Part | None]:
    content = {which: read(file, root) for which, file in declared.items()}
    where = {which: f"{file.key}: {file.place!r}" for which, file in declared.items()}
    if "archive" in content:
        place = where["archive"]
        archive = content.pop("archive")
        try:
            content = members(archive, _BATCHES, _ARCHIVE_FOLDER, place)
        except InputError as error:
            if _is_python_version(archive, place):
                raise InputError(f"{place} {_NEEDS_BINARY}") from error
            raise
        where = {batch: f"{place}, member {batch!r}" for batch in _BATCHES}
    *train, test = (cifar_batch(content[batch], where[batch], collection.image) for batch in _BATCHES)
    return Part(np.concatenate([p.pixels for p in train]), np.concatenate([p.labels for p in train])), test


def _is_python_version(archive: bytes, where: str) -> bool:
    """Whether an archive has the pickles of the python version, by their names: none is unpickled."""
    try:
        members(archive, (_PYTHON_BATCH,), _PYTHON_FOLDER, where)
    except InputError:
        return False
    return True


def cifar_batch(content: bytes, where: str, image: tuple[int, int, int]) -> Part:
    """Records of 1 + height·width·channels bytes: the label from 0 to 9, then the planes one after the other."""
    each = 1 + int(np.prod(image))
    if not content or len(content) % each:
        raise InputError(
            f"{where} has {len(content)} bytes, but a multiple of {each} (one label and {each - 1} pixels per record) "
            "is wanted; it is empty, truncated or damaged, so get it anew."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, each)
    return Part(records[:, 1:], _checked(records[:, 0], where))
