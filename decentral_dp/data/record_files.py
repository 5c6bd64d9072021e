"""Records from files of the user's own: CSV and NPZ."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import FloatArray, IntArray, TextArray, as_agents, as_split, nearest
from decentral_dp.errors import InputError
from decentral_dp.files.archives import DAMAGED, NoArchiveError, names_in, read_arrays
from decentral_dp.files.regular import regular

# What stands for a missing value in a cell, in lower case.
_GAPS = ("", "?", "-", "na", "n/a", "nan", "null", "none")


class Table(NamedTuple):
    """What a file holds: features (n, d), labels (n,) as they stand, d names, and the optional columns."""

    features: FloatArray
    labels: NDArray[Any]
    names: tuple[str, ...]
    agent: IntArray | None
    split: TextArray | None


def read_csv(path: Path, label: str | None, agent: str | None = None, split: str | None = None) -> Table:
    """Read a comma-separated file with one header line.

    Every column that is not label, agent or split is a feature.

    Args:
        path: of the file.
        label: name of the label column; a file needs one.
        agent, split: names of the owner and split columns; None means the columns called "agent" and "split" where the
            file has them.

    Returns:
        What the file holds, labels as they stand.

    Raises:
        InputError: with the row (records counted from 1) and column.
    """
    where = f"problem.data: {str(path)!r}"
    header = read_header(regular(path, "problem.data"), where)
    names, label, agent, split = chosen_columns(path, header, label, agent, split)
    text = [c for c in (label, agent, split) if c is not None]

    import pandas as pd

    dtypes: dict[str, Any] = dict.fromkeys(names, np.float64) | dict.fromkeys(text, str)
    try:
        with warnings.catch_warnings():
            # pandas at most warns when every row is longer than the header.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                header=0,
                names=header,
                dtype=dtypes,
                na_filter=False,
                index_col=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
            )
    except (ValueError, MemoryError, pd.errors.ParserWarning) as error:
        _explain(path, header, names, error)
    if _is_too_long(path, len(header)):
        _explain(path, header, names)
    if frame.empty:
        raise InputError(f"{where} has a header but no records.")
    features = np.ascontiguousarray(frame[list(names)].to_numpy(dtype=np.float64))
    words = {c: np.char.strip(frame[c].to_numpy(dtype=np.str_)) for c in text}
    # An empty text cell may be a row that is too short: pandas fills those up.
    if not np.isfinite(features).all() or any((w == "").any() for w in words.values()):
        _explain(path, header, names)
    return Table(
        features,
        words[label],
        names,
        None if agent is None else as_agents(words[agent], f"{where}, column {agent!r}"),
        None if split is None else as_split(words[split], f"{where}, column {split!r}"),
    )


def chosen_columns(
    path: Path, header: Sequence[str], label: str | None, agent: str | None, split: str | None
) -> tuple[tuple[str, ...], str, str | None, str | None]:
    """The features of a table, and its label, owner and split columns; reads names alone.

    Args:
        path: of the file, for messages.
        header: names of its columns.
        label, agent, split: as of `read_csv`.

    Raises:
        InputError: a column is missing, or two of them are one.
    """
    if label is None:
        raise InputError(
            f"problem.label: {str(path)!r} needs the name of its label column, {nearest('target', header)}."
        )
    agent = agent or ("agent" if "agent" in header else None)
    split = split or ("split" if "split" in header else None)
    for key, name in (("label", label), ("partition", agent), ("validation", split)):
        if name is not None and name not in header:
            hint = " (columns are separated by commas)" if len(header) == 1 else ""
            raise InputError(f"problem.{key}: {str(path)!r} has no column {name!r}; {nearest(name, header)}{hint}.")
    text = [c for c in (label, agent, split) if c is not None]
    if len(set(text)) < len(text):
        raise InputError(
            f"problem.data: label, agent and split of {str(path)!r} must be different columns, got {text}."
        )
    names = tuple(c for c in header if c not in text)
    if not names:
        raise InputError(f"problem.data: {str(path)!r} has no feature columns beside {text}.")
    return names, label, agent, split


def read_header(path: Path, where: str) -> list[str]:
    """The names of the columns of a CSV file; reads no record. where: begins a refusal. Raises InputError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = next((row for row in csv.reader(file, skipinitialspace=True) if any(row)), None)
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror}; give the path of a CSV file.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{where} is not text in UTF-8; save it as CSV in UTF-8.") from error
    if names is None:
        raise InputError(f"{where} is empty, but a header line and records are wanted.")
    names = [name.strip() for name in names]
    if len(set(names)) < len(names) or "" in names:
        twice = next(name for name in names if name == "" or names.count(name) > 1)
        raise InputError(
            f"{where} has the column name {twice!r} more than once or empty; give every column its own name."
        )
    return names


def _is_too_long(path: Path, columns: int) -> bool:
    """Whether the first record has more cells than there are columns."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = (row for row in csv.reader(file, skipinitialspace=True) if any(row))
        try:
            next(rows)
            return len(next(rows, [])) > columns
        except (UnicodeDecodeError, csv.Error):
            return False


def _explain(path: Path, header: list[str], names: tuple[str, ...], cause: Exception | None = None) -> NoReturn:
    """Name all columns that cannot be used, by the first places in them: what a cell holds is private."""
    where = f"problem.data: {str(path)!r}"
    found: dict[tuple[str, str], int] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = (row for row in csv.reader(file, skipinitialspace=True) if row)
            next(row for row in rows if any(row))
            for number, row in enumerate(rows, start=1):
                if len(row) != len(header):
                    raise InputError(
                        f"{where}, row {number} has {len(row)} cells, but the header has {len(header)} columns; "
                        "every row needs one cell per column."
                    )
                for column, cell in zip(header, row, strict=True):
                    if not cell.strip() or (column in names and not _is_finite(cell)):
                        kind = "gaps" if cell.strip().lower() in _GAPS else "no numbers"
                        found.setdefault((kind, column), number)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{where} is not text in UTF-8; save it as CSV in UTF-8.") from error
    if len(found) > 1:
        raise InputError(_unusable(where, found))
    for (_, column), number in found.items():
        wanted = "a finite number" if column in names else "a value"
        raise InputError(
            f"{where}, row {number}, column {column!r} does not hold {wanted}; mend the cell, or leave the column or "
            "record out."
        )
    raise InputError(
        f"{where} cannot be read as a table of numbers; save it as CSV with one line for each record."
    ) from cause


def _unusable(where: str, found: Mapping[tuple[str, str], int]) -> str:
    """found: (kind, column) → its first row."""
    parts = []
    for kind in ("no numbers", "gaps"):
        columns = [f"{column!r} (first in row {row})" for (k, column), row in found.items() if k == kind]
        parts += [f"{kind} in {', '.join(columns)}"] if columns else []
    return (
        f"{where} has {' and '.join(parts)}. Make 0 and 1 columns of words by a list that you declare, fill gaps "
        "with a public constant, or leave the columns out."
    )


def _is_finite(cell: str) -> bool:
    # pandas reads a column of true/false as numbers, but no digits with underscores.
    if cell.strip().lower() in ("true", "false"):
        return True
    try:
        return "_" not in cell and math.isfinite(float(cell))
    except ValueError:
        return False


def read_npz(path: Path, agent: str | None = None, split: str | None = None) -> Table:
    """An NPZ archive with arrays X (n, d) and y (n,), and optionally the owner and the split of each record.

    X are records as they are, or features that a public model computed of them. agent, split: names of those arrays;
    None means "agent" and "split" where the archive has them.
    """
    where = f"problem.data: {str(path)!r}"
    named = [name for name in ("X", "y", agent, split) if name is not None]
    if len(set(named)) < len(named):
        raise InputError(f"{where}: X, y, agent and split must be different arrays, got {named}.")
    usual = tuple(name for name, given in (("agent", agent), ("split", split)) if given is None)
    arrays = opened(path, where, named, [name for name in usual if name not in named], "X=..., y=...")
    agent = agent or ("agent" if "agent" in arrays else None)
    split = split or ("split" if "split" in arrays else None)
    features = matrix(arrays["X"], where)
    n, d = features.shape
    columns = {c: _column(a, n, f"{where}, array {c!r}") for c, a in arrays.items() if c != "X"}
    return Table(
        features,
        columns["y"],
        tuple(f"x{k}" for k in range(d)),
        None if agent is None else as_agents(columns[agent], f"{where}, array {agent!r}"),
        None if split is None else as_split(columns[split], f"{where}, array {split!r}"),
    )


def opened(
    path: Path, where: str, wanted: Sequence[str], optional: Sequence[str], example: str
) -> dict[str, NDArray[Any]]:
    """Read the wanted arrays of an NPZ archive, and those of the optional ones that it has; nothing is unpickled.

    Args:
        path: of the archive.
        where: what messages call it.
        wanted: names of arrays that have to be there.
        optional: names of arrays that may be there.
        example: how np.savez is called with the wanted arrays.

    Returns:
        Name → array.

    Raises:
        InputError: a wanted array is missing, or the file is no archive of plain arrays.
    """
    try:
        found = names_in(path, where)
        missing = [name for name in wanted if name not in found]
        if missing:
            raise InputError(
                f"{where} has no array {missing[0]!r}, {nearest(missing[0], found)}; save it with "
                f"np.savez(path, {example})."
            )
        return read_arrays(path, where, [*wanted, *(n for n in optional if n in found)])
    except NoArchiveError:
        raise InputError(f"{where} holds a single array; save it with np.savez(path, {example}).") from None
    except OSError as error:
        reason = error.strerror or "it is not an NPZ archive"
        raise InputError(f"{where} cannot be read: {reason}; give the path of an NPZ archive.") from error
    except InputError:
        raise
    except DAMAGED as error:
        raise InputError(
            f"{where} cannot be read without unpickling or is damaged; save plain arrays of numbers or text with "
            f"np.savez(path, {example})."
        ) from error


def matrix(values: NDArray[Any], where: str) -> FloatArray:
    """The array 'X' as float64. Raises InputError."""
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise InputError(
            f"{where}, array 'X' has the shape {values.shape} and the type {values.dtype}, but (records, features) of "
            "real numbers is wanted."
        )
    return np.ascontiguousarray(values, dtype=np.float64)


def _column(values: NDArray[Any], records: int, where: str) -> NDArray[Any]:
    if values.shape != (records,) or values.dtype.kind not in "biufSU":
        raise InputError(
            f"{where} has the shape {values.shape} and the type {values.dtype}, but ({records},) numbers or text is "
            "wanted."
        )
    return values.astype(np.str_) if values.dtype.kind == "S" else values
