"""Records of the Hugging Face hub at one commit, through `datasets`, which keeps what it fetches.

Only tables and pictures are read: `datasets` runs no code that comes with a data set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import SPLITS, Dataset, FloatArray, IntArray, Label, encode_labels, nearest
from decentral_dp.data.fetch import cache_folder
from decentral_dp.errors import InputError, quoted

PREFIX = "huggingface:"
_NAME = re.compile(r"huggingface:([\w.-]+/[\w.-]+)(?:/([\w.-]+))?@([0-9a-f]{40})")


def load_huggingface(
    data: str,
    label: str | None,
    classes: Sequence[Label] | None,
    agent: str | None,
    certified: bool,
) -> Dataset:
    """Load a data set of the hub, from the cache or the network.

    Args:
        data: "huggingface:OWNER/NAME@COMMIT", or "huggingface:OWNER/NAME/CONFIGURATION@COMMIT"; a commit of 40
            hexadecimal digits is one version of the records.
        label: its label column; None for "label".
        classes: as of `load`; None for those that the data set publishes for its label column.
        agent: the column with the owner of each record, numbers or words; words are numbered in their order. None for
            no owners.
        certified: whether classes that nobody declared are refused instead of discovered.

    Returns:
        The records of its splits "train", "validation" and "test". A column of lists of one length is as many features;
        a column of pictures of one size is their pixels, from 0 to 1.

    Raises:
        InputError: `datasets` is not installed, no such data set, no network, or columns that are not numbers.
    """
    name = _NAME.fullmatch(data)
    if name is None:
        raise InputError(
            f"problem.data: got {quoted(data)}, but one version of a data set is wanted, as in "
            '"huggingface:owner/name@" and the 40 hexadecimal digits of a commit (on its page: Files, History).'
        )
    try:
        found = _fetched(name[1], name[2], name[3])
    except ImportError:
        raise InputError(
            f'problem.data: {data} needs the package datasets. Run: pip install "decentral_dp[huggingface]".'
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"problem.data: {data} is not in {cache_folder() / 'huggingface'}, and could not be fetched "
            f"({' '.join(str(error).split())[:200]}). Run once where there is a network, or save the records as CSV "
            "and give its path; nothing stands in for them."
        ) from error
    parts = {split: found[split] for split in SPLITS if split in found}
    if not parts:
        raise InputError(
            f"problem.data: {data} has the splits {', '.join(map(str, found))}, but one of {', '.join(SPLITS)} is "
            "wanted. Save the records as CSV and give its path."
        )
    return _dataset(parts, data, label or "label", classes, agent, certified)


def _fetched(name: str, configuration: str | None, commit: str) -> Mapping[str, Any]:
    # Slow to import.
    import datasets

    found: Mapping[str, Any] = datasets.load_dataset(
        name, configuration, revision=commit, cache_dir=str(cache_folder() / "huggingface")
    )
    return found


def _dataset(
    parts: Mapping[str, Any],
    data: str,
    label: str,
    classes: Sequence[Label] | None,
    agent: str | None,
    certified: bool,
) -> Dataset:
    kinds = next(iter(parts.values())).features
    columns = [str(column) for column in kinds]
    for key, column in (("label", label), ("partition", agent)):
        if column is not None and column not in columns:
            raise InputError(f"problem.{key}: {data} has no column {quoted(column)}; {nearest(column, columns)}.")
    names: list[str] = []
    blocks: list[FloatArray] = []
    picture: tuple[int, int, int] | None = None
    for column in columns:
        if column in (label, agent):
            continue
        block, shape = _numbers(_values(parts, column, data), type(kinds[column]).__name__ == "Image", column, data)
        picture = shape or picture
        blocks.append(block)
        names += [column] if block.shape[1] == 1 else [f"{column}_{k}" for k in range(block.shape[1])]
    if not blocks:
        raise InputError(f"problem.data: {data} has no column besides {label!r} and owners, and features are wanted.")
    if classes is None and hasattr(kinds[label], "names"):
        # Published with the data set, and read off no record.
        classes = tuple(range(len(kinds[label].names)))
    labels, known = encode_labels(_values(parts, label, data), classes, certified=certified, source=data)
    only = len(blocks) == 1 and picture is not None
    sizes = {split: part.num_rows for split, part in parts.items()}
    own = "validation" not in parts and "train" in parts
    return Dataset(
        np.ascontiguousarray(np.concatenate(blocks, axis=1)),
        labels,
        known,
        tuple(names),
        data,
        agent=None if agent is None else _owners(_values(parts, agent, data)),
        split=None if own else np.repeat(list(sizes), list(sizes.values())),
        image=picture if only else None,
        bounds=(0.0, 1.0) if only else None,
        own_test=sizes.get("test", 0) if own else 0,
    )


def _values(parts: Mapping[str, Any], column: str, data: str) -> NDArray[Any]:
    """One column, the splits one after the other."""
    try:
        return np.concatenate([np.asarray(part.with_format("numpy")[column][:]) for part in parts.values()])
    except ValueError:
        raise InputError(
            f"problem.data: column {quoted(column)} of {data} holds lists or pictures of several sizes, and features "
            "are numbers, equally many in each record. Save the records as CSV and give its path."
        ) from None


def _numbers(
    raw: NDArray[Any], is_picture: bool, column: str, data: str
) -> tuple[FloatArray, tuple[int, int, int] | None]:
    """(n, d) features of one column, and the shape of its pictures."""
    if raw.dtype.kind not in "biuf":
        raise InputError(
            f"problem.data: column {quoted(column)} of {data} holds words, or lists or pictures of several sizes, and "
            "features are numbers, equally many in each record. Save the records as CSV and give its path."
        )
    if not is_picture:
        return raw.reshape(len(raw), -1).astype(np.float64), None
    pixels = raw[..., None] if raw.ndim == 3 else raw
    height, width, channels = pixels.shape[1:]
    flat = pixels.transpose(0, 3, 1, 2).reshape(len(raw), -1) / 255.0
    return flat, (height, width, channels)


def _owners(raw: NDArray[Any]) -> IntArray:
    """(n,) agents from 0 on: whole numbers as they are, words in their order."""
    if raw.dtype.kind in "iu":
        return raw.astype(np.int64)
    return np.unique(raw.astype(np.str_), return_inverse=True)[1].astype(np.int64)
