"""Data sets with a name whose files are the user's or their publisher's: pictures, faces, writers, LibSVM's collection.

MNIST and Fashion-MNIST are IDX files, CIFAR-10 its binary version, CelebA lists beside features, FEMNIST LEAF's JSON
files, a9a and ijcnn1 text in LibSVM's format. They come from local files, or verified URLs; nothing is unpickled, and
nothing is unpacked to disk.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray, encode_labels, nearest
from decentral_dp.data.fetch import Declared, check, gunzip, is_url, members, read
from decentral_dp.data.tables import libsvm_names, matrix, opened, parse_libsvm
from decentral_dp.errors import InputError, quoted, quoted_path

# Where publishers offer the files of images, and the SHA-256 of each as libraries that fetch them state it:
# collection → (address of the folder, key of problem.files → (file, SHA-256)).
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
DIGITS = tuple(range(10))


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
    """Load MNIST and Fashion-MNIST (IDX files) and CIFAR-10 (its binary version), from local files or verified URLs.

    Formats: Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits" (IDX: a magic number and the
    sizes, big-endian, then bytes); A. Krizhevsky, "The CIFAR-10 dataset" (records of one label and 3072 bytes: the red,
    the green and the blue plane, each row by row). Pixels are bytes times the declared constant 1/255: every possible
    record is in [0, 1]^d. The classes are 0..9.

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
    declared = _in_data_folder(name) if files is None else _declared(name, files, root)
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
        classes=DIGITS,
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
    declared = _in_data_folder(name)
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


def _in_data_folder(name: str) -> dict[str, Declared]:
    """Files in the folder that the environment names; none without one, or without any of the files."""
    base = os.environ.get(DATA_VARIABLE)
    if not base:
        return {}
    folder = Path(base).expanduser()
    if not folder.is_dir():
        raise InputError(f"{DATA_VARIABLE}: {base!r} is no folder; name one, or unset the variable.")
    return _images_in(name, folder / name, f"{DATA_VARIABLE}/{name}")


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
        found = _images_in(name, folder, "problem.files.folder")
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


def _images_in(name: str, folder: Path, key: str) -> dict[str, Declared]:
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
    n, *size = _idx_header(content, where, 2051, 4)
    if tuple(size) != image[:2]:
        raise InputError(
            f"{where} has images of {size[0]}×{size[1]} pixels, but {image[0]}×{image[1]} are wanted; resize them, or "
            'give them as records, with data = "FILE.npz" of arrays X (one row of numbers for each image) and y.'
        )
    return _idx_body(content, where, 16, n, size[0] * size[1], "images").reshape(n, -1)


def idx_labels(content: bytes, where: str) -> Bytes:
    """(n,) from an IDX file of labels: 2049, n, then n bytes from 0 to 9."""
    (n,) = _idx_header(content, where, 2049, 2)
    return _checked_digits(_idx_body(content, where, 8, n, 1, "labels"), where)


def _idx_header(content: bytes, where: str, magic: int, numbers: int) -> tuple[int, ...]:
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


def _idx_body(content: bytes, where: str, head: int, n: int, each: int, what: str) -> Bytes:
    if n < 1 or len(content) != head + n * each:
        raise InputError(
            f"{where} says it has {n} {what}, which take {head + n * each} bytes, but has {len(content)} bytes; it is "
            "empty, truncated or damaged, so get it anew."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head)


def _checked_digits(labels: Bytes, where: str) -> Bytes:
    if labels.max() >= len(DIGITS):
        row = int(np.argmax(labels >= len(DIGITS)))
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
    return Part(records[:, 1:], _checked_digits(records[:, 0], where))


CELEBA_CLASSES = (-1, 1)
# Key of problem.files → the file's name in a folder. Without the last a share of the records is held out at random.
CELEBA_FILES = {
    "attributes": "list_attr_celeba.txt",
    "features": "features.npz",
    "partition": "list_eval_partition.txt",
}
_CELEBA_PARTS = {"0": "train", "1": "validation", "2": "test"}


class Attribute(NamedTuple):
    """names: of the images. values: (n,) 1 where an image has the attribute, else 0."""

    names: tuple[str, ...]
    values: IntArray


def load_celeba(
    files: Mapping[str, Any] | None, label: str | None, *, limit: int | None = None, root: Path | None = None
) -> Dataset:
    """CelebA's attributes, from its own list, beside features of the same images that somebody else computed.

    Format of list_attr_celeba.txt (Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild"):
    how many images there are; the names of the attributes; then a line for each image, its name and 1 or −1 per
    attribute. Format of list_eval_partition.txt: a line for each image, its name and 0 (train), 1 (validation) or 2
    (test).

    The features are an NPZ archive of an array X, one row of numbers for each line of the list and in its order, and
    optionally an array `names` with the images' names, which must then be those of the list. The label is one
    attribute; the classes are −1 and 1. Whatever computed the features must not have seen the labels of these images,
    for nothing here protects what it saw.

    The attribute is problem.label; the files are problem.files, with folder = …, or attributes, features and, for
    CelebA's own division, partition, each by path. Without the last, the share problem.test is held out at random.

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
    found = _celeba_files(files, root)
    for key in ("attributes", "partition"):
        if key in found:
            check(found[key])
    if is_url(found["features"].place) or found["features"].sha256 is not None:
        raise InputError(
            "problem.files.features: features are files of your own, read from a local path and without a checksum; "
            "give such a path."
        )
    listed = _celeba_attribute(found["attributes"], label, root)
    features, n = _celeba_features(found["features"], listed.names, root), len(listed.names)
    dataset = Dataset(
        features,
        listed.values,
        CELEBA_CLASSES,
        tuple(f"x{k}" for k in range(features.shape[1])),
        "celeba",
        split=_celeba_split(found["partition"], listed.names, root) if "partition" in found else None,
    )
    return dataset if limit is None or limit >= n else dataset.first(limit)


def _celeba_files(files: Mapping[str, Any] | None, root: Path | None) -> dict[str, Declared]:
    if files is None:
        folder = own_folder("celeba")
        if folder is None or not folder.is_dir():
            raise InputError(
                "problem.files: celeba needs files, and nothing stands in for them. Give folder, or attributes and "
                f"features, or put {' and '.join(list(CELEBA_FILES.values())[:2])} into the folder celeba of "
                f"{DATA_VARIABLE}."
            )
        return _celeba_in(folder, f"{DATA_VARIABLE}/celeba")
    given = {key: str(value) for key, value in files.items() if key != "sha256" and value is not None}
    for key in given:
        if key not in ("folder", *CELEBA_FILES):
            raise InputError(
                f"problem.files.{key}: celeba takes none, only folder, {', '.join(CELEBA_FILES)}; leave it out."
            )
    if "folder" in given:
        if len(given) > 1:
            raise InputError(f"problem.files: got {', '.join(given)}, but folder is wanted alone, or not at all.")
        folder = (root or Path()) / Path(given["folder"]).expanduser()
        if not folder.is_dir():
            raise InputError(f"problem.files.folder: {str(folder)!r} is no folder; give the folder with the files.")
        found = _celeba_in(folder, "problem.files.folder")
    else:
        for key in ("attributes", "features"):
            if key not in given:
                raise InputError(f"problem.files.{key}: missing. celeba needs attributes and features; add it.")
        found = {key: Declared(f"problem.files.{key}", place) for key, place in given.items()}
    names = {CELEBA_FILES[key]: key for key in found} if "folder" in given else {key: key for key in found}
    for name, checksum in (files.get("sha256") or {}).items():
        if name not in names:
            raise InputError(f"problem.files.sha256: no file here is called {name!r}; {nearest(name, names)}.")
        found[names[name]] = found[names[name]]._replace(sha256=str(checksum))
    return found


def _celeba_in(folder: Path, key: str) -> dict[str, Declared]:
    found = {
        which: Declared(key, str(folder / name)) for which, name in CELEBA_FILES.items() if (folder / name).is_file()
    }
    for which in ("attributes", "features"):
        if which not in found:
            raise InputError(f"{key}: {str(folder)!r} has no {CELEBA_FILES[which]}; add it.")
    return found


def _lines(declared: Declared, root: Path | None) -> list[list[str]]:
    """The words of every line that has some."""
    try:
        text = read(declared, root).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{declared.key}: {declared.place!r} is no text in UTF-8; get it anew.") from error
    return [words for line in text.splitlines() if (words := line.split())]


def _celeba_attribute(declared: Declared, label: str | None, root: Path | None) -> Attribute:
    where = f"{declared.key}: {declared.place!r}"
    lines = _lines(declared, root)
    if len(lines) < 3 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        raise InputError(
            f"{where} does not start with a number of images, a line of attributes and an image; give CelebA's "
            f"{CELEBA_FILES['attributes']}."
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


def _celeba_split(declared: Declared, names: tuple[str, ...], root: Path | None) -> TextArray:
    where = f"{declared.key}: {declared.place!r}"
    rows = _lines(declared, root)
    _require_same([row[0] for row in rows], names, where)
    for k, row in enumerate(rows):
        if len(row) != 2 or row[1] not in _CELEBA_PARTS:
            raise InputError(f"{where}, image {k + 1} has no part, or another than 0, 1 and 2; get it anew.")
    return np.array([_CELEBA_PARTS[row[1]] for row in rows], dtype=np.str_)


def _celeba_features(declared: Declared, names: tuple[str, ...], root: Path | None) -> FloatArray:
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
        _require_same([str(name) for name in arrays["names"].ravel().tolist()], names, f"{where}, array 'names'")
    return features


def _require_same(found: list[str], names: tuple[str, ...], where: str) -> None:
    if tuple(found) == names:
        return
    row = next((k for k, (a, b) in enumerate(zip(found, names, strict=False)) if a != b), min(len(found), len(names)))
    raise InputError(
        f"{where} and the list of attributes have different names for image {row + 1}, or one ends before it; give the "
        "same images in the same order."
    )


FEMNIST_CLASSES = tuple(range(62))
FEMNIST_IMAGE = (28, 28, 1)
_LEAF = "https://github.com/TalwalkarLab/leaf"
_PIXELS = 784

# One writer's records: features (n, 784), labels (n,).
Written = tuple[FloatArray, IntArray]


def load_femnist(files: Mapping[str, Any] | None, *, n_agents: int, root: Path | None = None) -> Dataset:
    """FEMNIST: handwritten digits and letters by writer, from LEAF's files.

    Format (S. Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018): JSON files, each an object of `users`,
    a list of writers' names; `num_samples`, how many records each has; and `user_data`: name → x, a list of 784 numbers
    from 0 to 1 per record, row by row, and y, a class from 0 to 61 per record (digits, then capitals, then small
    letters). LEAF's preprocess.sh writes them into the folders train and test; without the second, test records are
    held out.

    Writers are numbered in the order of their names; writer k belongs to agent k mod m. Names and numbers of records
    are public. The files are problem.files, with folder = …, and sha256 by file name where they are to be verified.

    Args:
        files: the table problem.files, with folder and optionally sha256 by file name; None for the folder femnist of
            DECENTRAL_DP_DATA.
        n_agents: m.
        root: where relative paths start; default the working directory.

    Returns:
        The records, each with its agent; those of the folder test as the data's own held-out ones.

    Raises:
        InputError: files that are not there, for which nothing stands in, or that are not as the module says; fewer
            writers than agents.
    """
    folder = _femnist_folder(files, root)
    inner = folder / "train"
    train, test = sorted((inner if inner.is_dir() else folder).glob("*.json")), sorted((folder / "test").glob("*.json"))
    if not train:
        raise InputError(
            f"problem.files.folder: {quoted_path(folder)} has no JSON file, nor has its folder train. "
            f"{_femnist_wanted()}"
        )
    digests = dict((files or {}).get("sha256") or {})
    found = _writers(train, digests)
    held_out = _writers(test, digests)
    if digests:
        unknown = next(iter(digests))
        raise InputError(
            f"problem.files.sha256: no file here is called {unknown!r}; {nearest(unknown, [p.name for p in train])}."
        )
    if len(found) < n_agents:
        raise InputError(
            f"topology.agents: got {n_agents}, but these files have {len(found)} writers, and each agent wants one at "
            "least; use fewer agents."
        )
    number = {name: k for k, name in enumerate(sorted(found))}
    for name in sorted(held_out.keys() - number.keys()):
        number[name] = len(number)
    parts = [(number[name] % n_agents, *part[name]) for part in (found, held_out) for name in sorted(part)]
    return Dataset(
        np.concatenate([pixels for _, pixels, _ in parts]),
        np.concatenate([labels for _, _, labels in parts]),
        FEMNIST_CLASSES,
        tuple(f"pixel {k}" for k in range(_PIXELS)),
        "femnist",
        agent=np.concatenate([np.full(labels.size, agent) for agent, _, labels in parts]),
        image=FEMNIST_IMAGE,
        own_test=sum(labels.size for _, labels in held_out.values()),
    )


def _femnist_folder(files: Mapping[str, Any] | None, root: Path | None) -> Path:
    given = {key: value for key, value in (files or {}).items() if value}
    for key in given:
        if key not in ("folder", "sha256"):
            raise InputError(f"problem.files.{key}: femnist takes none, only folder and sha256; leave it out.")
    if "folder" in given:
        folder = (root or Path()) / Path(str(given["folder"])).expanduser()
        if not folder.is_dir():
            raise InputError(f"problem.files.folder: {quoted_path(folder)} is no folder. {_femnist_wanted()}")
        return folder
    placed = own_folder("femnist")
    if placed is None or not placed.is_dir():
        raise InputError(f"problem.data: the files of femnist are not here, and nothing stands in. {_femnist_wanted()}")
    return placed


def _femnist_wanted() -> str:
    return (
        f"Make them with preprocess.sh of LEAF ({_LEAF}, data/femnist), and name the folder with train and test in "
        f"problem.files.folder, or call it femnist and put it into the folder that {DATA_VARIABLE} names."
    )


def _writers(paths: list[Path], digests: dict[str, str]) -> dict[str, Written]:
    """Name → records, of all files; takes the digests that it verifies."""
    out: dict[str, Written] = {}
    for path in paths:
        where = f"problem.data: {quoted_path(path)}"
        content = read(Declared("problem.files.folder", str(path), digests.pop(path.name, None)))
        try:
            parsed = json.loads(content)
            users, counts, records = parsed["users"], parsed["num_samples"], parsed["user_data"]
            listed = list(zip(users, counts, strict=True))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"{where} is no JSON object of users, num_samples and user_data, one number for each user; make it "
                "anew with LEAF's preprocess.sh."
            ) from error
        for name, count in listed:
            if not isinstance(name, str) or name in out:
                raise InputError(f"{where} lists the writer {quoted(str(name))} again, or not by name; make it anew.")
            try:
                out[name] = _records(records[name], int(count))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                # What numpy says may quote a record.
                raise InputError(
                    f"{where}, writer {quoted(name)}, does not have the {quoted(count)} records that are said, "
                    "each of 784 numbers from 0 to 1 and a class from 0 to 61; make it anew."
                ) from error
    return out


def _records(part: Mapping[str, Any], count: int) -> Written:
    """Raises ValueError, TypeError, KeyError or OverflowError for what is no such records."""
    pixels, labels = np.asarray(part["x"], dtype=np.float64), np.asarray(part["y"])
    if pixels.shape != (count, _PIXELS) or labels.shape != (count,) or count < 1 or labels.dtype.kind != "i":
        raise ValueError("another shape")
    # Written so that what is not a number fails, too.
    if not ((pixels >= 0.0) & (pixels <= 1.0)).all() or not ((labels >= 0) & (labels < len(FEMNIST_CLASSES))).all():
        raise ValueError("out of range")
    return pixels, labels.astype(np.int64)


# Of a source: these are others than the records that were named.
STANDING_IN = "standing in for"


def standing_in(name: str, digits: Dataset) -> Dataset:
    """scikit-learn's digits in the place of images that are not here, with a note that says so.

    Pixels times the declared constant 1/16, so that they are in [0, 1] like those of the absent images.
    """
    title, (height, width, _) = COLLECTIONS[name].title, digits.image or (8, 8, 1)
    return replace(
        digits,
        features=digits.features / 16.0,
        source=f"digits {STANDING_IN} {name}",
        bounds=(0.0, 1.0),
        notes=(
            f"{title}'s files are not here: scikit-learn's digits ({digits.n} records, {height}×{width}) stand in. "
            f"Name the files in problem.files, or put them into the folder {name} of {DATA_VARIABLE}.",
        ),
    )


PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"


class Collected(NamedTuple):
    """A data set of LibSVM's page. train, test: its files, unpacked. features: how many there are."""

    train: str
    test: str
    features: int


COLLECTED: Mapping[str, Collected] = {
    "a9a": Collected("a9a", "a9a.t", 123),
    "ijcnn1": Collected("ijcnn1", "ijcnn1.t", 22),
}


COLLECTED_CLASSES = (-1, 1)


def load_collected(name: str, files: Mapping[str, Any] | None, *, limit: int | None, root: Path | None) -> Dataset:
    """Records in LibSVM's sparse text format: a9a and ijcnn1 of its collection.

    Formats: C.-C. Chang and C.-J. Lin, "LIBSVM Data". A line is `label index:value …`, with indices from 1. How many
    features there are is public, and known of the collection's. a9a is Adult of the UCI repository in 123 binary
    features (J. Platt, 1998), ijcnn1 the competition of IJCNN 2001 in 22 (D. Prokhorov, 2001).

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
    train = parse_libsvm(folder / own.train, own.features)
    test = parse_libsvm(folder / own.test, own.features) if (folder / own.test).is_file() else None
    parts = [(a[:limit], b[:limit]) for a, b in ([train] if test is None else [train, test])]
    raw = np.concatenate([b for _, b in parts])
    labels, known = encode_labels(raw, COLLECTED_CLASSES, certified=True, source=name)
    held_out = 0 if test is None else len(parts[-1][1])
    names = libsvm_names(own.features)
    return Dataset(np.concatenate([a for a, _ in parts]), labels, known, names, name, own_test=held_out)
