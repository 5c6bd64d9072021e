"""Records from Parquet files: one column for each feature, and others as in a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import as_agents, as_split
from decentral_dp.data.record_files import Table, chosen_columns
from decentral_dp.errors import InputError
from decentral_dp.files.regular import refuse_above, regular

_NUMBER = 8


def read_parquet(path: Path, label: str | None, agent: str | None = None, split: str | None = None) -> Table:
    """Read a Parquet file whose columns are numbers, but for label, agent and split, which may be words.

    Args:
        path: of the file.
        label: name of the label column; a file needs one.
        agent, split: as of `read_csv`.

    Returns:
        What the file holds, labels as they stand.

    Raises:
        InputError: a column that is no column of numbers or words without gaps, or a file that is too large or damaged.
    """
    where = f"problem.data: {str(path)!r}"
    # Slow to import, and few records come so.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with regular(path, "problem.data").open("rb") as file:
            kept = pq.ParquetFile(file)
            header, rows = list(kept.schema_arrow.names), int(kept.metadata.num_rows)
            if len(set(header)) < len(header):
                raise InputError(f"{where} has two columns of one name; give every column its own.")
            names, label, agent, split = chosen_columns(path, header, label, agent, split)
            # What it is unpacked to is bounded before it is: a page of equal values takes a few bytes.
            refuse_above(_NUMBER * rows * len(names), f"{where} unpacks to")
            refuse_above(_unpacked(kept), f"{where} unpacks to")
            text = [column for column in (label, agent, split) if column is not None]
            frame = kept.read(columns=[*names, *text], use_threads=False)
    except InputError:
        raise
    except OSError as error:
        reason = error.strerror or "it is damaged, or no Parquet file"
        raise InputError(f"{where} cannot be read: {reason}; give the path of a Parquet file.") from error
    except (pa.ArrowException, ValueError, MemoryError, OverflowError) as error:
        raise InputError(f"{where} is damaged, or no Parquet file; write it anew.") from error
    if not rows:
        raise InputError(f"{where} has columns but no records.")
    features = np.empty((rows, len(names)))
    for k, name in enumerate(names):
        features[:, k] = _numbers(frame, name, where)
    words = {name: _words(frame, name, where) for name in text}
    return Table(
        features,
        words[label],
        names,
        None if agent is None else as_agents(words[agent], f"{where}, column {agent!r}"),
        None if split is None else as_split(words[split].astype(np.str_), f"{where}, column {split!r}"),
    )


def _unpacked(kept: Any) -> int:
    """Bytes of all pages once they are unpacked, as the file states them."""
    return sum(int(kept.metadata.row_group(k).total_byte_size) for k in range(kept.metadata.num_row_groups))


def _numbers(frame: Any, name: str, where: str) -> NDArray[np.float64]:
    import pyarrow.types as kinds

    column = frame.column(name)
    if not (kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type)):
        raise InputError(
            f"{where}, column {name!r} holds {column.type}, but a feature is a number in every record; leave it out or "
            "write numbers."
        )
    _full(column, name, where)
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _words(frame: Any, name: str, where: str) -> NDArray[Any]:
    """Words or numbers of a column, as the readers of labels take them."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    column = frame.column(name)
    _full(column, name, where)
    if kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (kinds.is_string(column.type) or kinds.is_large_string(column.type)):
        raise InputError(f"{where}, column {name!r} holds {column.type}, but numbers or words are wanted; write those.")
    longest = pc.max(pc.utf8_length(column)).as_py()
    refuse_above(4 * longest * len(column), f"{where}, column {name!r} takes")
    return np.char.strip(np.array(column.to_pylist(), dtype=np.str_))


def _full(column: Sequence[Any], name: str, where: str) -> None:
    """Refuse gaps. Which records have them is told by their places."""
    if gaps := getattr(column, "null_count", 0):
        row = int(np.argmax(np.asarray(column.is_null())))  # type: ignore[attr-defined]
        more = f", and {gaps - 1} more" if gaps > 1 else ""
        raise InputError(
            f"{where}, row {row + 1}{more}: column {name!r} is empty; fill or remove the record before loading it."
        )
