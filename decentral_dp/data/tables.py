"""Tables of records: CSV, Parquet and NPZ files, read by pandas, pyarrow and NumPy.

Error messages contain rows and columns, but no cell. `load_dataset` selects the reader by the extension of the path.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.columns import (
    EMPTY,
    GAPS,
    ColumnRules,
    Columns,
    Place,
    cells_of,
    encode_features,
    is_number_or_gap,
    with_rules,
)
from decentral_dp.data.dataset import (
    Dataset,
    FloatArray,
    Label,
    as_agents,
    as_split,
    encode_labels,
    missing_cells,
    near_name,
    number_columns,
)
from decentral_dp.errors import InputError, converting, nearest_of, quoted
from decentral_dp.files.regular import DAMAGED, names_in, read_arrays, refuse_above, regular


class CsvFormat(NamedTuple):
    """Separator, decimal mark and encoding of a CSV file, in the form that pandas takes."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8-sig"


USUAL_CSV = CsvFormat()
# For scenarios and for trained models.
_FORMAT_FIX = "Fix: write the file as the keys separator, decimal and encoding of the scenario declare"


def csv_format(separator: str | None, decimal: str | None, encoding: str | None) -> CsvFormat:
    """Return the CSV format that problem.separator, problem.decimal and problem.encoding declare.

    Args:
        separator: a single character. None means a comma.
        decimal: a single character. None means a point.
        encoding: name of a Python encoding. None means UTF-8, with or without a byte order mark.

    Raises:
        InputError: a value is invalid.

    Example:
        >>> csv_format(";", ",", "latin-1")
        CsvFormat(separator=';', decimal=',', encoding='latin-1')
    """
    form = CsvFormat(separator or ",", decimal or ".", encoding or "utf-8-sig")
    marks = {"separator": form.separator, "decimal": form.decimal}
    invalid = [key for key, mark in marks.items() if len(mark) != 1 or mark in '"\r\n\0 ' or mark.isalnum()]
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=form.encoding)
    except (LookupError, ValueError):
        invalid.append("encoding")
    for key in invalid:
        expected = 'a text encoding, such as "latin-1"' if key == "encoding" else 'one character, such as ";" or ","'
        raise InputError(f"problem.{key}: got {quoted(getattr(form, key))}, expected {expected}.")
    return form._replace(encoding="utf-8-sig") if form.encoding.lower().replace("_", "-") == "utf-8" else form


class DeclaredColumns(NamedTuple):
    """Declarations in a scenario about the columns of a table.

    Args:
        label: label column, which is required for CSV and Parquet files.
        agent: owner column; None means "agent" if it exists. After `select_columns` None means that there is none.
        split: split column; None means "split" if it exists, as for `agent`.
        rules: rules that convert columns to features; None if all are numbers.
        agents: names of the agents, in order; None if they are numbered from 0.
        csv: format of a CSV file.
        classes: declared labels. `()` means a numeric target, and None discovers the labels.
        certified: whether discovering the classes is an error.
    """

    label: str = ""
    agent: str | None = None
    split: str | None = None
    rules: ColumnRules | None = None
    agents: Sequence[Label] | None = None
    csv: CsvFormat = USUAL_CSV
    classes: Sequence[Label] | None = None
    certified: bool = True

    @property
    def roles(self) -> list[str]:
        """Names of the columns that are not features, after `select_columns`."""
        return [name for name in (self.label, self.agent, self.split) if name is not None]


def make_dataset(
    columns: Columns,
    raw: Sequence[str],
    column_spec: DeclaredColumns,
    source: str,
    header: Sequence[str] = (),
) -> Dataset:
    """Build a data set from columns of cells. All readers of files and frames use this function.

    Args:
        columns: column → cells, (n,), as returned by `cells_of`.
        raw: columns that become features.
        column_spec: declarations of the scenario, from `select_columns`.
        source: name of the data in messages.
        header: first line of the table, as in `encode_features`.

    Raises:
        InputError: a cell is invalid. The message contains its row and column, but not the cell.
    """
    rules, location = column_spec.rules or ColumnRules(), f"problem.data: {source!r}"
    names = rules.names(raw)
    gaps = {c: missing_cells(columns[c]) for c in column_spec.roles}
    gap_places = [Place(EMPTY, c, int(np.argmax(gap)) + 1) for c, gap in gaps.items() if gap.any()]
    refuse_above(_BYTES_OF_NUMBER * len(columns[column_spec.label]) * len(names), f"{location} unpacks to")
    features = encode_features(columns, names, rules, location, gap_places, header=header)
    return with_rules(_dataset_of(features, names, columns, column_spec, source, "column"), column_spec.rules)


def _dataset_of(
    features: FloatArray,
    names: tuple[str, ...],
    columns: Columns,
    column_spec: DeclaredColumns,
    source: str,
    noun: str,
) -> Dataset:
    labels, classes = encode_labels(
        columns[column_spec.label], column_spec.classes, certified=column_spec.certified, source=source
    )
    location, agent, split = f"problem.data: {source!r}, {noun}", column_spec.agent, column_spec.split
    return Dataset(
        features,
        labels,
        classes,
        names,
        source,
        None if agent is None else as_agents(columns[agent], f"{location} {agent!r}", column_spec.agents),
        None if split is None else as_split(columns[split], f"{location} {split!r}"),
    )


def frame_dataset(frame: Any, source: str, column_spec: DeclaredColumns) -> Dataset:
    """Build a data set from a DataFrame whose column names are distinct texts.

    Args:
        frame: table of records.
        source: name of the data in messages.
        column_spec: declarations of the scenario.

    Raises:
        InputError: a column is missing or has two roles, or a cell is invalid.
    """
    header = list(frame.columns)
    raw, column_spec = select_columns(source, header, column_spec)
    return make_dataset(cells_of(frame, (*raw, *column_spec.roles)), raw, column_spec, source, header)


def read_table(path: Path, column_spec: DeclaredColumns) -> Dataset:
    """Read a CSV file with one header line, or a Parquet file.

    Every column yields one or more features, except the label, owner and split columns and dropped columns.

    Args:
        path: path of the file.
        column_spec: declarations of the scenario.

    Raises:
        InputError: a cell is invalid, or the file is too large or damaged.
    """
    source = str(path)
    location = f"problem.data: {source!r}"
    header = column_names(path, location, column_spec.csv)
    raw, column_spec = select_columns(source, header, column_spec)
    rules = column_spec.rules or ColumnRules()
    text = {*column_spec.roles, *(c for c in raw if c in rules.text)}
    columns = read_columns(path, (*raw, *column_spec.roles), text, location, column_spec.csv)
    return make_dataset(columns, raw, column_spec, source, header)


def column_names(path: Path, location: str, form: CsvFormat = USUAL_CSV) -> list[str]:
    """Return the column names of a CSV or Parquet file without reading a record. Raises InputError."""
    if path.suffix.lower() == ".parquet":
        with _open_parquet(path, location) as parquet:
            names = list(parquet.schema_arrow.names)
    else:
        names = [name.strip() for name in _parse_csv(path, location, form, header=None, nrows=1).iloc[0]]
        if len(names) == 1 and any(mark in names[0] for mark in ",;\t|"):
            raise InputError(f"{location} has no header with the separator {quoted(form.separator)}. {_FORMAT_FIX}.")
    refuse_values(names, location)
    return names


# Names of the column in which pandas writes an index.
INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")


def select_columns(
    source: str, header: Sequence[str], column_spec: DeclaredColumns
) -> tuple[tuple[str, ...], DeclaredColumns]:
    """Select the feature columns and the label, owner and split columns by their names.

    Args:
        source: name of the table in messages.
        header: names of its columns.
        column_spec: declarations of the scenario.

    Returns:
        The feature columns, and the declarations with the owner and split columns that exist.

    Raises:
        InputError: a column is missing or has two roles.
    """
    label, agent, split, rules = column_spec[:4]
    if not label:
        raise InputError(f"problem.label: missing. Fix: name the label column of {source!r}.")
    agent = agent or ("agent" if "agent" in header else None)
    split = split or ("split" if "split" in header else None)
    faults = [
        f"problem.{key}: {source!r} has no column {name!r}{near_name(name, header)}."
        for key, name in (("label", label), ("partition", agent), ("validation", split))
        if name is not None and name not in header
    ]
    column_spec, rules = column_spec._replace(agent=agent, split=split), rules or ColumnRules()
    columns = tuple(c for c in header if c not in column_spec.roles and c not in rules.drop)
    if not faults:
        rules.require_columns(header, column_spec.roles, repr(source))
        faults = [
            f"problem.data: {source!r} has the column {quoted(name)}, which is the index that pandas writes, not a "
            f"feature. Fix: set problem.columns.drop = [{quoted(name)}], or write the file with index=False."
            for name in INDEX_NAMES
            if name in columns
        ]
    for fault in faults:
        raise InputError(fault)
    return columns, column_spec


# Numbers, dates, times, percentages and amounts of money: a digit, and no letters except of exponents and dates.
_VALUE = re.compile(r"[\W_]*\d[\W\d_]*([eEtT][\W\d_]*)?[zZ]?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


def refuse_values(names: Sequence[str], location: str) -> None:
    """Raise InputError if the header appears to be a record, because the table has no header.

    A name must not be empty, a number, a date or a missing value, and must not occur twice.

    Args:
        names: column names. The first may be empty, as pandas writes it above an index.
        location: prefix of the message, which does not include column names.
    """
    for k, name in enumerate(names):
        # Na is a common name: sodium.
        is_gap = name.lower() in GAPS and name not in ("", "Na", "na")
        if _VALUE.fullmatch(name) or is_gap or (not name and k) or name in names[:k]:
            raise InputError(
                f"{location}: column {k + 1} of the first line is numeric, empty or repeated, so it is not a "
                "column name. Fix: add a header line with a distinct name for every column."
            )


def require_numbers(path: Path, names: Collection[str], where: str, form: CsvFormat = USUAL_CSV) -> None:
    """Raise InputError for columns whose first record holds neither a number nor a missing value.

    Names of a file without a header line are cells, so the message contains numbers of columns only.

    Args:
        path: path of a CSV file.
        names: columns without a rule.
        where: beginning of the message.
        form: format of the file.
    """
    columns = _parse_csv(path, where, form, header=None, nrows=2).items()
    wrong = [
        k
        for k, (name, *cells) in columns
        if name.strip() in names and cells and not is_number_or_gap(cells[0].replace(form.decimal, "."))
    ]
    if wrong:
        raise InputError(
            f"{where}: the first record has no number in {number_columns(wrong)}. Fix: add a header line if there is "
            "none. Declare a column of sites by --sites, and others by drop, categories or date, as in "
            "--set 'problem.columns.drop=[\"patient_id\"]'."
        )


def _parse_csv(path: Path, location: str, form: CsvFormat, **options: Any) -> Any:
    """Read a CSV file by pandas, every cell as text unless `options` has a dtype. Raises InputError."""
    import pandas as pd

    file = regular(path, location.partition(":")[0])
    with warnings.catch_warnings():
        # pandas truncates a row that is longer than the header.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(
                file,
                sep=form.separator,
                decimal=form.decimal,
                encoding=form.encoding,
                na_filter=False,
                skipinitialspace=True,
                **{"dtype": str, **options},
            )
        except OSError as error:
            problem = f"cannot be read: {error.strerror}. Fix: use the path of a CSV file"
        except UnicodeError:
            problem = f"is not a table of text in {form.encoding}. {_FORMAT_FIX}"
        except pd.errors.ParserError as error:
            reason = str(error).rpartition("error: ")[2].strip()
            problem = f"has rows that do not fit its header: {reason}. {_FORMAT_FIX}"
        except (ValueError, OverflowError, MemoryError, pd.errors.ParserWarning):
            problem = f"has no records that can be read. {_FORMAT_FIX}"
    # Raised outside the handlers, since errors of pandas quote cells.
    raise InputError(f"{location} {problem}.")


def read_columns(
    path: Path, names: Sequence[str], text: Collection[str], location: str, form: CsvFormat = USUAL_CSV
) -> Columns:
    """Read the named columns of a CSV or Parquet file.

    Args:
        path: path of the file.
        names: names of the columns.
        text: columns with words, dates or missing values, which public rules convert.
        location: beginning of messages.
        form: format of a CSV file.

    Returns:
        Column → cells, (n,), in the form that `encode_features` takes. If a number is invalid, all cells are text, so
        that `encode_features` can report its index.

    Raises:
        InputError: a column is missing, or the file is not a table of records.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(
            f"{location}: unknown format (got {quoted(path.suffix)}, expected .csv or .parquet). Fix: convert the "
            "file to CSV."
        )
    header = column_names(path, location, form)
    require_columns(names, header, location)
    columns: Columns
    if path.suffix.lower() == ".parquet":
        with _open_parquet(path, location) as parquet:
            metadata = parquet.metadata
            # Bound the unpacked size first, since a page of equal values takes few bytes.
            pages = sum(int(metadata.row_group(k).total_byte_size) for k in range(metadata.num_row_groups))
            refuse_above(max(pages, _BYTES_OF_NUMBER * metadata.num_rows * len(names)), f"{location} unpacks to")
            frame = parquet.read(columns=list(names), use_threads=False).to_pandas(ignore_metadata=True)
            columns = cells_of(frame, names)
    else:
        columns = _read_csv(path, header, names, text, location, form)
    if not len(columns[names[0]]):
        raise InputError(f"{location} has no records. Fix: add at least one row below the header.")
    return columns


def _read_csv(
    path: Path, header: list[str], names: Sequence[str], text: Collection[str], location: str, form: CsvFormat
) -> Columns:
    options: dict[str, Any] = {"header": 0, "names": header, "index_col": False}
    types = {c: np.float64 if c in names and c not in text else str for c in header}
    try:
        frame = _parse_csv(path, location, form, dtype=types, **options)
    except InputError:
        frame = _parse_csv(path, location, form, **options)
    columns = cells_of(frame, names)
    if form.decimal != ".":
        for name, cells in columns.items():
            if cells.dtype.kind == "U":
                distinct, inverse = np.unique(cells, return_inverse=True)
                points = [_with_point(cell, form.decimal) for cell in distinct.tolist()]
                columns[name] = np.array(points, dtype=np.str_)[inverse]
    return columns


def require_columns(required_names: Sequence[str], header: Sequence[str], location: str) -> None:
    """Raise a single InputError for all missing columns. `where` is the beginning of its message."""
    missing = [name for name in required_names if name not in header]
    if not missing:
        return
    suffix = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    missing_text = ", ".join(map(quoted, missing[:5]))
    raise InputError(
        f"{location} has no column{'' if len(missing) == 1 else 's'} {missing_text}{suffix}, which the model "
        f"requires{near_name(missing[0], header)}. Fix: provide all columns of the model under their original "
        "names."
    )


def _with_point(cell: str, decimal: str) -> str:
    """Return a number with a decimal point. A number with a thousands point becomes invalid.

    Example:
        >>> _with_point("0,5", ","), _with_point("1.080", ","), _with_point("north, east", ",")
        ('0.5', '1 080', 'north, east')
    """
    if not any(mark in cell for mark in (decimal, ".")):
        return cell
    point = cell.replace(".", " ").replace(decimal, ".")
    try:
        float(point.replace(" ", ""))
    except ValueError:
        return cell
    return point


@contextmanager
def _open_parquet(path: Path, location: str) -> Iterator[Any]:
    """Open a Parquet file. Raises InputError if it is damaged or has another format."""
    # Slow to import.
    import pyarrow as pa
    import pyarrow.parquet as pq

    def sentence(error: BaseException) -> str:
        reason = getattr(error, "strerror", None) or "it is damaged, or no Parquet file"
        return f"{location} cannot be read: {reason}. Fix: use the path of a Parquet file."

    damages = (OSError, pa.ArrowException, ValueError, MemoryError, OverflowError)
    with converting(damages, sentence), regular(path, location).open("rb") as file:
        yield pq.ParquetFile(file)


def read_npz(path: Path, column_spec: DeclaredColumns) -> Dataset:
    """Read an NPZ archive with arrays X (n, d) and y (n,), and optional owner and split arrays.

    Args:
        path: path of the archive.
        column_spec: declarations of the scenario. `agent` and `split` name arrays; `label` and `rules` are not used.

    Raises:
        InputError: an array is missing or invalid.
    """
    source = str(path)
    location = f"problem.data: {source!r}"
    agent, split = column_spec.agent, column_spec.split
    required_names = [name for name in ("X", "y", agent, split) if name is not None]
    optional = [
        name
        for name, name_or_none in (("agent", agent), ("split", split))
        if name_or_none is None and name not in required_names
    ]
    arrays = read_archive(path, location, required_names, optional, "X=..., y=...")
    agent, split = (name if name in arrays else None for name in (agent or "agent", split or "split"))
    features = real_numbers(arrays["X"], 2, f"{location}, array 'X'", "(records, features)")
    n, d = features.shape
    columns = {c: column(a, n, f"{location}, array {c!r}") for c, a in arrays.items() if c != "X"}
    column_spec = column_spec._replace(label="y", agent=agent, split=split)
    return _dataset_of(features, tuple(f"x{k}" for k in range(d)), columns, column_spec, source, "array")


def read_archive(
    path: Path, location: str, required_names: Sequence[str], optional: Sequence[str], example: str
) -> dict[str, NDArray[Any]]:
    """Read the required arrays of an NPZ archive, and those optional arrays that exist. Nothing is unpickled.

    Args:
        path: path of the archive.
        location: name of the archive in messages.
        required_names: required arrays.
        optional: optional arrays.
        example: arguments of np.savez in messages.

    Returns:
        Name → array, of any shape and type.

    Raises:
        InputError: a required array is missing, or the file is not an archive of plain arrays.
    """

    def sentence(error: BaseException) -> str:
        reason = getattr(error, "strerror", None) or "it is damaged, or no archive of plain arrays"
        return f"{location} cannot be read: {reason}. Fix: save arrays of numbers or text with np.savez({arguments})."

    arguments = f"path, {example}"
    with converting((OSError, *DAMAGED), sentence):
        names = names_in(path, location)
        missing = [name for name in required_names if name not in names]
        if missing:
            raise InputError(
                f"{location} has no array {quoted(missing[0])}{nearest_of(missing[0], names)} Fix: save it with "
                f"np.savez({arguments})."
            )
        return read_arrays(path, location, [*required_names, *(n for n in optional if n in names)])


def real_numbers(values: NDArray[Any], axes: int, location: str, shape: str) -> FloatArray:
    """Return an array with `axes` axes as float64. Error messages contain the expected `shape`. Raises InputError."""
    _require_array(values, values.ndim == axes, "biuf", location, f"{shape} of real numbers")
    return np.ascontiguousarray(values, dtype=np.float64)


def column(values: NDArray[Any], records: int, location: str) -> NDArray[Any]:
    """Return the numbers or texts in an array, (records,). Raises InputError."""
    _require_array(values, values.shape == (records,), "biufSU", location, f"({records},) numbers or text")
    return values.astype(np.str_) if values.dtype.kind == "S" else values


def _require_array(values: NDArray[Any], fits: bool, kinds: str, location: str, expected: str) -> None:
    if not fits or values.dtype.kind not in kinds:
        raise InputError(
            f"{location} has the wrong shape or type (got {values.dtype} of shape {values.shape}, expected {expected})."
        )


_BYTES_OF_NUMBER = 8
