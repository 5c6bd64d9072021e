"""Records of OpenML by number, through scikit-learn, which verifies and keeps what it fetches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from decentral_dp.data.dataset import Dataset, Label, encode_labels, nearest
from decentral_dp.data.fetch import cache_folder
from decentral_dp.errors import InputError, quoted

PREFIX = "openml:"
_NUMBER = re.compile(r"openml:([1-9][0-9]{0,8})")


def load_openml(data: str, label: str | None, classes: Sequence[Label] | None, certified: bool) -> Dataset:
    """Load a data set of OpenML, from the cache or the network.

    Args:
        data: "openml:NUMBER"; a number is one version of one data set.
        label: its label column; None for the one that OpenML names.
        classes: as of `load`.
        certified: whether classes that nobody declared are refused instead of discovered.

    Returns:
        The records; columns of words are refused.

    Raises:
        InputError: no such data set, no network, or columns that are not numbers.
    """
    number = _NUMBER.fullmatch(data)
    if number is None:
        raise InputError(
            f'problem.data: got {quoted(data)}, but the number of a data set is wanted, as in "openml:61".'
        )
    # Slow to import.
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(
            data_id=int(number[1]), as_frame=True, data_home=str(cache_folder()), n_retries=1, delay=0.1
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())[:200]
        raise InputError(
            f"problem.data: {data} is not in {cache_folder() / 'openml'}, and could not be fetched ({reason}). Run "
            "once where there is a network, or save the records as CSV and give its path; nothing stands in for them."
        ) from error
    return _dataset(found.frame, label or _only(found.target_names, data), data, classes, certified)


def _only(names: Sequence[str], data: str) -> str:
    if len(names) != 1:
        raise InputError(f"problem.label: {data} names {len(names)} label columns; name one.")
    return str(names[0])


def _dataset(frame: Any, label: str, data: str, classes: Sequence[Label] | None, certified: bool) -> Dataset:
    columns = [str(column) for column in frame.columns]
    if label not in columns:
        raise InputError(f"problem.label: {data} has no column {quoted(label)}; {nearest(label, columns)}.")
    names = tuple(column for column in columns if column != label)
    for name in names:
        if frame[name].dtype.kind not in "biuf":
            raise InputError(
                f"problem.data: column {quoted(name)} of {data} holds words, and features are numbers. Save the "
                "records as CSV with numbers for words, and give its path."
            )
    labels, known = encode_labels(np.asarray(frame[label]), classes, certified=certified, source=data)
    return Dataset(np.ascontiguousarray(frame[list(names)].to_numpy(np.float64)), labels, known, names, data)
