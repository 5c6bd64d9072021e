"""Data sets with a name whose files are the user's or their publisher's: pictures, faces, writers, LibSVM's collection.

MNIST and Fashion-MNIST are IDX files, CIFAR-10 its binary version, CelebA lists beside features, FEMNIST LEAF's JSON
files, a9a and ijcnn1 text in LibSVM's format. They come from local files, or verified URLs; nothing is unpickled, and
nothing is unpacked to disk.
"""

from __future__ import annotations

import json
import os
import struct
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, TextArray, encode_labels, nearest
from decentral_dp.data.fetch import DeclaredFile, check, gunzip, is_url, members, read_verified
from decentral_dp.data.tables import libsvm_names, matrix, parse_libsvm, read_archive
from decentral_dp.errors import InputError, quoted, quoted_path

CATALOGUE: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))
COLLECTIONS: Mapping[str, Any] = {name: table for name, table in CATALOGUE.items() if "image" in table}
# Collection → (address of the folder where its publisher offers the files, key of problem.files → (file, SHA-256)).
PUBLISHED: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    name: (table["address"], {key: (file, sha) for key, (file, sha) in table["files"].items()})
    for name, table in COLLECTIONS.items()
}

Bytes: TypeAlias = NDArray[np.uint8]

DATA_VARIABLE = "DECENTRAL_DP_DATA"
DIGITS = tuple(range(10))


class _Layout(NamedTuple):
    """How the files of a data set are named.

    title: its own name. files: key of problem.files → names of the file in a folder, its publisher's first.
    requirements: pairs of which the first needs the second. files_hint: how files are named one by one, in words.
    """

    title: str
    files: Mapping[str, tuple[str, ...]] = {}
    requirements: tuple[tuple[str, str], ...] = ()
    files_hint: str = ""


_BATCHES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")
_ARCHIVE, _ARCHIVE_FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
# Its publisher offers the same images as Python pickles, which are never opened here.
_PYTHON_ARCHIVE, _PYTHON_FOLDER, _PYTHON_BATCH = "cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1"
_NEEDS_BINARY = f"is CIFAR-10's python version, and the binary version is needed; get {_ARCHIVE} from its publisher."
_IDX = _Layout(
    "MNIST",
    {
        key: tuple(f"{stem}{end}" for stem in (name, name.replace("-idx", ".idx")) for end in ("", ".gz"))
        for key, name in ((key, file.removesuffix(".gz")) for key, (file, _) in PUBLISHED["mnist"][1].items())
    },
    (
        ("images", "labels"),
        ("labels", "images"),
        ("test_images", "test_labels"),
        ("test_labels", "test_images"),
        ("test_images", "images"),
    ),
    "images and labels",
)
_LAYOUTS = {
    "mnist": _IDX,
    "fashion_mnist": _IDX._replace(title="Fashion-MNIST"),
    "cifar10": _Layout("CIFAR-10", {"archive": (_ARCHIVE,)}, tuple(permutations(_BATCHES, 2)), "archive"),
    "celeba": _Layout(
        "CelebA",
        {
            "attributes": ("list_attr_celeba.txt",),
            "features": ("features.npz",),
            "partition": ("list_eval_partition.txt",),
        },
        (("attributes", "features"), ("features", "attributes"), ("partition", "attributes")),
        "attributes and features",
    ),
}


def own_folder(name: str) -> Path | None:
    """The folder of this name in the one that DECENTRAL_DP_DATA names, there or not; None where it names none.

    Raises InputError: it names something that is no folder.
    """
    base = os.environ.get(DATA_VARIABLE)
    if not base:
        return None
    folder = Path(base).expanduser()
    if not folder.is_dir():
        raise InputError(f"{DATA_VARIABLE}: {base!r} is no folder; name one, or unset the variable.")
    return folder / name


def _locate(name: str, files: Mapping[str, Any] | None, root: Path | None) -> tuple[Path | None, dict[str, str]]:
    """The folder with the files of a data set, or what problem.files names one by one: key → path or URL.

    Without problem.files it is the folder of this name in DECENTRAL_DP_DATA, there or not. Raises InputError.
    """
    if files is None:
        return own_folder(name), {}
    layout = _LAYOUTS.get(name, _Layout(name))
    places = {key: str(value) for key, value in files.items() if key != "sha256" and value}
    for key in places:
        if key not in ("folder", *layout.files):
            raise InputError(
                f"problem.files.{key}: {name} takes none, only {', '.join(('folder', *layout.files))}; leave it out."
            )
    needed = f"either folder, or {layout.files_hint} is wanted" if layout.files_hint else "folder is wanted"
    if not places:
        raise InputError(f"problem.files: got no file, but {needed}.")
    if "folder" in places and len(places) > 1:
        raise InputError(f"problem.files: got {', '.join(places)}, but {needed}; folder is wanted alone.")
    if "folder" not in places:
        return None, places
    if is_url(places["folder"]):
        raise InputError(
            f"problem.files.folder: {places['folder']!r} is a URL, but a local folder is wanted; give "
            f"{layout.files_hint or 'such a folder'} by URL instead."
        )
    folder = (root or Path()) / Path(places["folder"]).expanduser()
    if not folder.is_dir():
        raise InputError(f"problem.files.folder: {str(folder)!r} is no folder; give the folder with the files.")
    return folder, {}


def _locate_files(name: str, files: Mapping[str, Any] | None, root: Path | None) -> dict[str, DeclaredFile]:
    """The files of a data set: key, or batch of CIFAR-10, → file; {} where none are declared, and none are there.

    Either a folder (the files under their published names), or one by one, each a path or a URL. sha256: table of
    checksums, by key, or by file name within a folder; required for URLs, optional for paths. Raises InputError.
    """
    layout = _LAYOUTS[name]
    folder, places = _locate(name, files, root)
    declared = {key: DeclaredFile(f"problem.files.{key}", place) for key, place in places.items()}
    where = f"{DATA_VARIABLE}/{name}" if files is None else "problem.files.folder"
    if folder is not None:
        paths = _batches(folder, where) if name == "cifar10" else {}
        for key, names in () if paths else layout.files.items():
            if there := [folder / one for one in names if (folder / one).is_file()]:
                paths[key] = there[0]
        declared = {key: DeclaredFile(where, str(path)) for key, path in paths.items()}
        if not declared and files is not None:
            raise InputError(
                f"{where}: {str(folder)!r} has none of {layout.title}'s files, such as "
                f"{next(iter(layout.files.values()))[0]}; give the folder with the files."
            )
    for key, other in layout.requirements:
        if key in declared and other not in declared:
            if folder is None:
                raise InputError(f"problem.files.{other}: missing, since {key} is given; add it.")
            listed = ", ".join(sorted(Path(file.place).name for file in declared.values()))
            raise InputError(
                f"{where}: {str(folder)!r} has {listed}, but not {layout.files.get(other, (other,))[0]}; add it."
            )
    return _with_checksums(declared, files, in_folder=folder is not None)


def _with_checksums(
    declared: Mapping[str, DeclaredFile], files: Mapping[str, Any] | None, in_folder: bool
) -> dict[str, DeclaredFile]:
    """With the checksums of problem.files, by file name where they are of a folder, else by key. Raises InputError."""
    sums = (files or {}).get("sha256") or {}
    names = {key: Path(file.place).name if in_folder else key for key, file in declared.items()}
    for name in sums:
        if name not in names.values():
            raise InputError(f"problem.files.sha256: no file here is called {name!r}; {nearest(name, names.values())}.")
    return {
        key: file._replace(sha256=str(sums[names[key]])) if names[key] in sums else file
        for key, file in declared.items()
    }


def _batches(folder: Path, where: str) -> dict[str, Path]:
    """Batches of CIFAR-10 in a folder, or in the one that its archive unpacks to. Raises InputError for pickles."""
    for inner in (folder, folder / _ARCHIVE_FOLDER):
        if files_of := {batch: inner / batch for batch in _BATCHES if (inner / batch).is_file()}:
            return files_of
    for pickled in (_PYTHON_BATCH, f"{_PYTHON_FOLDER}/{_PYTHON_BATCH}", _PYTHON_ARCHIVE):
        if (folder / pickled).is_file() and not (folder / _ARCHIVE).is_file():
            raise InputError(f"{where}: {str(folder / pickled)!r} {_NEEDS_BINARY}")
    return {}


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
        files: the table problem.files (see `_locate_files`), or None to look in the folder `name` of DECENTRAL_DP_DATA.
        limit: the first so many records of the training files, and at most as many of the test files; default all.
        root: where relative paths start; default the working directory.

    Returns:
        The records, those of the test files as the data's own held-out ones. None where no files are declared or found.

    Raises:
        InputError: files that are not as declared; a declared file that is missing is an error.
    """
    if files is None or not files.get("published"):
        declared = _locate_files(name, files, root)
        return _pictures(name, declared, limit, root) if declared else None
    for key, value in files.items():
        if key != "published" and value:
            raise InputError(f"problem.files.{key}: published names the files already. Give one of the two.")
    if declared := _locate_files(name, None, None):
        return _pictures(name, declared, limit, None)
    address, known = PUBLISHED[name]
    offered = {key: DeclaredFile(f"problem.files.{key}", address + file, sha) for key, (file, sha) in known.items()}
    try:
        return _pictures(name, offered, limit, None)
    except InputError as error:
        names = ", ".join(file for file, _ in known.values())
        raise InputError(
            f"{error} Where there is no network, put {names} into the folder {name} of a folder that {DATA_VARIABLE} "
            "names; nothing stands in for them."
        ) from error


class _Part(NamedTuple):
    """pixels: (n, d) bytes, channel by channel. labels: (n,) from 0 to 9."""

    pixels: Bytes
    labels: Bytes


def _pictures(name: str, declared: Mapping[str, DeclaredFile], limit: int | None, root: Path | None) -> Dataset:
    for file in declared.values():
        check(file)
    # All are verified before the first is parsed.
    content = {key: read_verified(file, root) for key, file in declared.items()}
    where = {key: f"{file.key}: {file.place!r}" for key, file in declared.items()}
    height, width, channels = COLLECTIONS[name]["image"]
    image = (height, width, channels)
    train, test = (_cifar_parts if name == "cifar10" else _idx_parts)(content, where, image)
    parts = [_Part(part.pixels[:limit], part.labels[:limit]) for part in (train, test) if part is not None]
    planes = ("pixel",) if channels == 1 else ("red", "green", "blue")
    return Dataset(
        features=np.concatenate([part.pixels for part in parts]) / 255.0,
        labels=np.concatenate([part.labels for part in parts]).astype(np.int64),
        classes=DIGITS,
        feature_names=tuple(f"{p}_{row}_{column}" for p in planes for row, column in np.ndindex(height, width)),
        source=name,
        image=image,
        bounds=(0.0, 1.0),
        own_test=0 if test is None else parts[-1].labels.size,
    )


def _idx_parts(
    content: Mapping[str, bytes], where: Mapping[str, str], image: tuple[int, int, int]
) -> tuple[_Part, _Part | None]:
    parts = []
    for images, labels in (("images", "labels"), ("test_images", "test_labels")):
        if images not in content:
            continue
        part = _Part(
            _idx_images(gunzip(content[images], where[images]), where[images], image),
            _idx_labels(gunzip(content[labels], where[labels]), where[labels]),
        )
        if part.labels.size != part.pixels.shape[0]:
            raise InputError(
                f"{where[labels]} has {part.labels.size} labels, but {where[images].partition(': ')[2]} has "
                f"{part.pixels.shape[0]} images; give files that belong together."
            )
        parts.append(part)
    return parts[0], parts[1] if len(parts) > 1 else None


def _idx_images(content: bytes, where: str, image: tuple[int, int, int]) -> Bytes:
    """(n, height·width) from an IDX file of images: 2051, n, height, width, then n·height·width bytes."""
    n, *size = _idx_header(content, where, 2051, 4)
    if tuple(size) != image[:2]:
        raise InputError(
            f"{where} has images of {size[0]}×{size[1]} pixels, but {image[0]}×{image[1]} are wanted; resize them, or "
            'give them as records, with data = "FILE.npz" of arrays X (one row of numbers for each image) and y.'
        )
    return _idx_body(content, where, 16, n, size[0] * size[1], "images").reshape(n, -1)


def _idx_labels(content: bytes, where: str) -> Bytes:
    """(n,) from an IDX file of labels: 2049, n, then n bytes from 0 to 9."""
    (n,) = _idx_header(content, where, 2049, 2)
    return _checked_digits(_idx_body(content, where, 8, n, 1, "labels"), where)


def _idx_header(content: bytes, where: str, magic: int, numbers: int) -> tuple[int, ...]:
    if len(content) < 4 * numbers:
        raise InputError(f"{where} has {len(content)} bytes, too few for the head of an IDX file; get it anew.")
    number, *sizes = struct.unpack(f">{numbers}I", content[: 4 * numbers])
    if number != magic:
        meaning = {2051: "images", 2049: "labels"}
        hint = f", which is that of {meaning[number]}" if number in meaning else ""
        raise InputError(
            f"{where} starts with the number {number}{hint}, but an IDX file of {meaning[magic]} starts with {magic}; "
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


def _cifar_parts(
    content: Mapping[str, bytes], where: Mapping[str, str], image: tuple[int, int, int]
) -> tuple[_Part, _Part | None]:
    if "archive" in content:
        archive, place = content["archive"], where["archive"]
        try:
            content = members(archive, _BATCHES, _ARCHIVE_FOLDER, place)
        except InputError as error:
            if _is_python_version(archive, place):
                raise InputError(f"{place} {_NEEDS_BINARY}") from error
            raise
        where = {batch: f"{place}, member {batch!r}" for batch in _BATCHES}
    *train, test = (_cifar_batch(content[batch], where[batch], image) for batch in _BATCHES)
    return _Part(np.concatenate([p.pixels for p in train]), np.concatenate([p.labels for p in train])), test


def _is_python_version(archive: bytes, where: str) -> bool:
    """Whether an archive has the pickles of the python version, by their names: none is unpickled."""
    try:
        members(archive, (_PYTHON_BATCH,), _PYTHON_FOLDER, where)
    except InputError:
        return False
    return True


def _cifar_batch(content: bytes, where: str, image: tuple[int, int, int]) -> _Part:
    """Records of 1 + height·width·channels bytes: the label from 0 to 9, then the planes one after the other."""
    each = 1 + int(np.prod(image))
    if not content or len(content) % each:
        raise InputError(
            f"{where} has {len(content)} bytes, but a multiple of {each} (one label and {each - 1} pixels per record) "
            "is wanted; it is empty, truncated or damaged, so get it anew."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, each)
    return _Part(records[:, 1:], _checked_digits(records[:, 0], where))


CELEBA_CLASSES = (-1, 1)
_CELEBA_PARTS = {"0": "train", "1": "validation", "2": "test"}


def load_celeba(files: Mapping[str, Any] | None, label: str | None, *, root: Path | None = None) -> Dataset:
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
        root: where relative paths start; default the working directory.

    Returns:
        The records, of classes −1 and 1.

    Raises:
        InputError: files that are missing, for which nothing stands in, or that are not as the module says.
    """
    places = _locate_files("celeba", files, root)
    if not places:
        raise InputError(
            "problem.files: celeba needs files, and nothing stands in for them. Give folder, or attributes and "
            f"features, or put them into the folder celeba of {DATA_VARIABLE}."
        )
    for key in ("attributes", "partition"):
        if key in places:
            check(places[key])
    if is_url(places["features"].place) or places["features"].sha256 is not None:
        raise InputError(
            "problem.files.features: features are files of your own, read from a local path and without a checksum; "
            "give such a path."
        )
    names, values = _celeba_attribute(places["attributes"], label, root)
    features = _celeba_features(places["features"], names, root)
    return Dataset(
        features,
        values,
        CELEBA_CLASSES,
        tuple(f"x{k}" for k in range(features.shape[1])),
        "celeba",
        split=_celeba_split(places["partition"], names, root) if "partition" in places else None,
    )


def _lines(declared: DeclaredFile, root: Path | None) -> list[list[str]]:
    """The words of every line that has some."""
    try:
        text = read_verified(declared, root).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{declared.key}: {declared.place!r} is no text in UTF-8; get it anew.") from error
    return [words for line in text.splitlines() if (words := line.split())]


def _celeba_attribute(declared: DeclaredFile, label: str | None, root: Path | None) -> tuple[tuple[str, ...], IntArray]:
    """Names of the images, and (n,) 1 where an image has the attribute, else 0."""
    where = f"{declared.key}: {declared.place!r}"
    lines = _lines(declared, root)
    if len(lines) < 3 or len(lines[0]) != 1 or not lines[0][0].isdigit():
        raise InputError(
            f"{where} does not start with a number of images, a line of attributes and an image; give CelebA's "
            "list_attr_celeba.txt."
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
    return tuple(row[0] for row in rows), np.array([row[place] == "1" for row in rows], dtype=np.int64)


def _celeba_split(declared: DeclaredFile, names: tuple[str, ...], root: Path | None) -> TextArray:
    where = f"{declared.key}: {declared.place!r}"
    rows = _lines(declared, root)
    _require_same([row[0] for row in rows], names, where)
    for k, row in enumerate(rows):
        if len(row) != 2 or row[1] not in _CELEBA_PARTS:
            raise InputError(f"{where}, image {k + 1} has no part, or another than 0, 1 and 2; get it anew.")
    return np.array([_CELEBA_PARTS[row[1]] for row in rows], dtype=np.str_)


def _celeba_features(declared: DeclaredFile, names: tuple[str, ...], root: Path | None) -> FloatArray:
    path = (root or Path()) / Path(declared.place).expanduser()
    where = f"{declared.key}: {str(path)!r}"
    arrays = read_archive(path, where, ("X",), ("names",), "X=...")
    features = matrix(arrays["X"], where)
    if features.shape[0] != len(names):
        raise InputError(
            f"{where} has {features.shape[0]} rows, but {len(names)} images have attributes; give one row for each "
            "image, in the order of the list."
        )
    if "names" in arrays:
        _require_same([str(name) for name in arrays["names"].ravel().tolist()], names, f"{where}, array 'names'")
    return features


def _require_same(listed: list[str], names: tuple[str, ...], where: str) -> None:
    if tuple(listed) == names:
        return
    row = next((k for k, (a, b) in enumerate(zip(listed, names, strict=False)) if a != b), min(len(listed), len(names)))
    raise InputError(
        f"{where} and the list of attributes have different names for image {row + 1}, or one ends before it; give the "
        "same images in the same order."
    )


FEMNIST_CLASSES = tuple(range(62))
FEMNIST_IMAGE = (28, 28, 1)
_LEAF = "https://github.com/TalwalkarLab/leaf"
_PIXELS = 784
_FEMNIST_WANTED = (
    f"Make them with preprocess.sh of LEAF ({_LEAF}, data/femnist), and name the folder with train and test in "
    f"problem.files.folder, or call it femnist and put it into the folder that {DATA_VARIABLE} names."
)

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
    folder, _ = _locate("femnist", files, root)
    if folder is None or not folder.is_dir():
        raise InputError(f"problem.data: the files of femnist are not here, and nothing stands in. {_FEMNIST_WANTED}")
    inner = folder / "train"
    train, test = sorted((inner if inner.is_dir() else folder).glob("*.json")), sorted((folder / "test").glob("*.json"))
    if not train:
        raise InputError(
            f"problem.files.folder: {quoted_path(folder)} has no JSON file, nor has its folder train. {_FEMNIST_WANTED}"
        )
    listed = {str(path): DeclaredFile("problem.files.folder", str(path)) for path in (*train, *test)}
    listed = _with_checksums(listed, files, in_folder=True)
    written, held_out = (_writers([listed[str(path)] for path in paths]) for paths in (train, test))
    if len(written) < n_agents:
        raise InputError(
            f"topology.agents: got {n_agents}, but these files have {len(written)} writers, and each agent wants one "
            "at least; use fewer agents."
        )
    number = {name: k for k, name in enumerate(sorted(written))}
    for name in sorted(held_out.keys() - number.keys()):
        number[name] = len(number)
    parts = [(number[name] % n_agents, *part[name]) for part in (written, held_out) for name in sorted(part)]
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


def _writers(files: Sequence[DeclaredFile]) -> dict[str, Written]:
    """Name → records, of all files."""
    out: dict[str, Written] = {}
    for file in files:
        where = f"problem.data: {quoted_path(file.place)}"
        content = read_verified(file)
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


def substitute_digits(name: str, digits: Dataset) -> Dataset:
    """scikit-learn's digits in the place of images that are not here, with a note that says so.

    Pixels times the declared constant 1/16, so that they are in [0, 1] like those of the absent images.
    """
    title, (height, width, _) = COLLECTIONS[name]["title"], digits.image or (8, 8, 1)
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


PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"


class Collected(NamedTuple):
    """A data set of LibSVM's page.

    train, test: its files, unpacked; None where it has no test file. names: of its features. above: class 1 are the
    labels above it, where they are numbers.
    """

    train: str
    test: str | None
    names: tuple[str, ...]
    above: float = 0.0


def _collected(table: Mapping[str, Any]) -> Collected:
    names = table["names"]
    named = libsvm_names(names) if isinstance(names, int) else tuple(names)
    return Collected(table["train"], table.get("test"), named, table.get("above", 0.0))


COLLECTED = {name: _collected(table) for name, table in CATALOGUE.items() if "train" in table}
COLLECTED_CLASSES = (-1, 1)


def load_collected(name: str, files: Mapping[str, Any] | None, *, limit: int | None, root: Path | None) -> Dataset:
    """Records in LibSVM's sparse text format: a9a, ijcnn1 and houses of its collection.

    Formats: C.-C. Chang and C.-J. Lin, "LIBSVM Data". A line is `label index:value …`, with indices from 1. How many
    features there are is public, and known of the collection's. a9a is Adult of the UCI repository in 123 binary
    features (J. Platt, 1998), ijcnn1 the competition of IJCNN 2001 in 22 (D. Prokhorov, 2001). houses are the prices of
    California by block groups in 8 (R. K. Pace and R. Barry, 1997; the file cadata), class 1 those above the published
    mean; it has no test file, and ranges that scale = "public_ranges" takes.

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
    if (files or {}).get("sha256"):
        raise InputError(f"problem.files.sha256: {name} takes none, only folder; leave it out.")
    folder, _ = _locate(name, files, root)
    if folder is None or not (folder / own.train).is_file():
        where = f"into {quoted_path(folder)}" if folder is not None else "into a folder, and name it in problem.files"
        raise InputError(
            f"problem.data: the files of {name} are not here. Get {' and '.join(filter(None, own[:2]))} from {PAGE}, "
            f"and put what is unpacked {where}; nothing stands in for it."
        )
    there = [folder / file for file in own[:2] if file is not None and (folder / file).is_file()]
    parts = [[part[:limit] for part in parse_libsvm(file, len(own.names))] for file in there]
    raw = np.concatenate([b for _, b in parts])
    labels, known = encode_labels(
        np.where(raw > own.above, 1.0, -1.0) if own.above else raw, COLLECTED_CLASSES, certified=True, source=name
    )
    held_out = len(parts[1][1]) if len(parts) == 2 else 0
    return Dataset(np.concatenate([a for a, _ in parts]), labels, known, own.names, name, own_test=held_out)
