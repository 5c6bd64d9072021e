"""FEMNIST: handwritten digits and letters by writer, from LEAF's files.

Format (S. Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018): JSON files, each an object of `users`, a
list of writers' names; `num_samples`, how many records each has; and `user_data`: name → x, a list of 784 numbers from
0 to 1 per record, row by row, and y, a class from 0 to 61 per record (digits, then capitals, then small letters).
LEAF's preprocess.sh writes them into the folders train and test; without the second, test records are held out.

Writers are numbered in the order of their names; writer k belongs to agent k mod m. Names and numbers of records are
public. The files are problem.files, with folder = …, and sha256 by file name where they are to be verified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, nearest
from decentral_dp.data.fetch import Declared, read
from decentral_dp.data.images import DATA_VARIABLE, own_folder
from decentral_dp.errors import InputError, quoted, quoted_path

CLASSES = tuple(range(62))
IMAGE = (28, 28, 1)
_PAGE = "https://github.com/TalwalkarLab/leaf"
_PIXELS = 784

# One writer's records: features (n, 784), labels (n,).
Written = tuple[FloatArray, IntArray]


def load_femnist(files: Mapping[str, Any] | None, *, n_agents: int, root: Path | None = None) -> Dataset:
    """Load the records of all writers.

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
    folder = _folder(files, root)
    inner = folder / "train"
    train, test = sorted((inner if inner.is_dir() else folder).glob("*.json")), sorted((folder / "test").glob("*.json"))
    if not train:
        raise InputError(
            f"problem.files.folder: {quoted_path(folder)} has no JSON file, nor has its folder train. {_wanted()}"
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
        CLASSES,
        tuple(f"pixel {k}" for k in range(_PIXELS)),
        "femnist",
        agent=np.concatenate([np.full(labels.size, agent) for agent, _, labels in parts]),
        image=IMAGE,
        own_test=sum(labels.size for _, labels in held_out.values()),
    )


def _folder(files: Mapping[str, Any] | None, root: Path | None) -> Path:
    given = {key: value for key, value in (files or {}).items() if value}
    for key in given:
        if key not in ("folder", "sha256"):
            raise InputError(f"problem.files.{key}: femnist takes none, only folder and sha256; leave it out.")
    if "folder" in given:
        folder = (root or Path()) / Path(str(given["folder"])).expanduser()
        if not folder.is_dir():
            raise InputError(f"problem.files.folder: {quoted_path(folder)} is no folder. {_wanted()}")
        return folder
    placed = own_folder("femnist")
    if placed is None or not placed.is_dir():
        raise InputError(f"problem.data: the files of femnist are not here, and nothing stands in. {_wanted()}")
    return placed


def _wanted() -> str:
    return (
        f"Make them with preprocess.sh of LEAF ({_PAGE}, data/femnist), and name the folder with train and test in "
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
    if not ((pixels >= 0.0) & (pixels <= 1.0)).all() or not ((labels >= 0) & (labels < len(CLASSES))).all():
        raise ValueError("out of range")
    return pixels, labels.astype(np.int64)
