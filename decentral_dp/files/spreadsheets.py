"""CSV files that people open in a spreadsheet program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# OWASP, "CSV Injection": a cell that begins with one of these is a formula, or becomes one when it is imported.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def escape_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before text that a spreadsheet would run as a formula, in cells and in names of columns.

    Args:
        frame: to be written as CSV. Numbers stay as they are, also those that are text.

    Returns:
        A frame of the same shape. pandas and Parquet files need none of this.

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
