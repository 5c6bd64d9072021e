"""Tables for other programs: Parquet files, written without pandas, and CSV files that are safe in spreadsheets.

pyarrow imports pandas when it converts objects, so arrays are built from buffers here.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Name of a column → its values, (n,).
Columns: TypeAlias = "Mapping[str, NDArray[Any]] | pd.DataFrame"


def arrow_table(columns: Mapping[str, NDArray[Any] | str], rows: int, categories: Collection[str] = ()) -> pa.Table:
    """Convert columns to a pyarrow table.

    Args:
        columns: name → numbers or texts, (rows,), or a single text for all rows.
        rows: number of rows.
        categories: names of single-text columns that become dictionaries. Other texts become strings.

    Example:
        >>> arrow_table({"round": np.array([1, 2]), "agent": "mean"}, 2).to_pylist()
        [{'round': 1, 'agent': 'mean'}, {'round': 2, 'agent': 'mean'}]
    """
    import pyarrow as pa

    arrays = []
    for name, values in columns.items():
        if not isinstance(values, str) and values.dtype.kind != "U":
            numbers = [None, pa.py_buffer(np.ascontiguousarray(values))]
            arrays.append(pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), rows, numbers))
        elif name in categories:
            codes = pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(bytes(rows))])
            arrays.append(pa.DictionaryArray.from_arrays(codes, _strings([str(values)])))
        else:
            arrays.append(_strings([values] * rows if isinstance(values, str) else values.tolist()))
    return pa.Table.from_arrays(arrays, names=[*columns])


def to_parquet(columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of a Parquet file with these columns, each (n,)."""
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(arrow_table(columns, len(next(iter(columns.values())))), content)
    return content.getvalue()


def _strings(texts: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    byte_strings = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, byte_strings)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(byte_strings))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


# First characters of formulas in spreadsheets (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def escape_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before text in cells and column names that a spreadsheet would evaluate as a formula.

    Args:
        frame: table to be written as CSV. Numbers remain unchanged, even if they are stored as text.

    Returns:
        A table of the same shape. pandas and Parquet files do not need this.

    Example:
        >>> import pandas as pd
        >>> escape_formulas(pd.DataFrame({"label": ["=1+1", "-1", "no"], "score": [-1.0, 0.5, 2.0]}))["label"].tolist()
        ["'=1+1", '-1', 'no']
    """
    text = [k for k, dtype in enumerate(frame.dtypes) if getattr(dtype, "kind", "O") in "OUT"]
    out = frame.rename(columns=_escape)
    for k in text:
        out.isetitem(k, out.iloc[:, k].map(_escape).to_numpy())
    return out


def _escape(cell: Any) -> Any:
    if not (isinstance(cell, str) and cell.startswith(_FORMULA)):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
