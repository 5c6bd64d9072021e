"""Tables of records: files of the user's own (CSV, NPZ, Parquet, LibSVM), and those of OpenML and the Hugging Face hub.

A reader makes of a file the numbers, names and columns that it holds. What nobody declared it refuses or leaves to
`encode_labels`; a refusal names places, and quotes no record. `loaders.load` chooses the reader by a file's name.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.columns import EMPTY, ColumnRules, Place, cells_of, encode_features
from decentral_dp.data.dataset import (
    SPLITS,
    Dataset,
    FloatArray,
    IntArray,
    Label,
    TextArray,
    as_agents,
    as_split,
    encode_labels,
    nearest,
)
from decentral_dp.data.fetch import cache_folder
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.regular import DAMAGED, NoArchiveError, names_in, read_arrays, refuse_above, regular


class Table(NamedTuple):
    """What a file holds: features (n, d), labels (n,) as they stand, d names, and the optional columns."""

    features: FloatArray
    labels: NDArray[Any]
    names: tuple[str, ...]
    agent: IntArray | None = None
    split: TextArray | None = None


class DeclaredColumns(NamedTuple):
    """What a scenario says of the columns of a table.

    label: name of the label column, which a CSV or Parquet file needs. agent, split: names of the owner and split
    columns; None for the columns called "agent" and "split" where there are some. rules: how columns become features;
    None where they are numbers. agents: the names of the agents, in order; None where they are numbered from 0.
    """

    label: str | None = None
    agent: str | None = None
    split: str | None = None
    rules: ColumnRules | None = None
    agents: Sequence[Label] | None = None


def _table(
    features: FloatArray,
    names: tuple[str, ...],
    columns: Mapping[str, NDArray[Any]],
    roles: Roles,
    where: str,
    agents: Sequence[Label] | None,
) -> Table:
    """A table of features and of the columns with a role. where: begins the messages on one column."""
    agent, split = roles.agent, roles.split
    return Table(
        features,
        columns[roles.label],
        names,
        None if agent is None else as_agents(columns[agent], f"{where} {agent!r}", agents),
        None if split is None else as_split(columns[split], f"{where} {split!r}"),
    )


class Roles(NamedTuple):
    """Names of the columns that are no features; None where a table has no owners, or no split."""

    label: str
    agent: str | None
    split: str | None

    @property
    def column_names(self) -> list[str]:
        """Those that there are."""
        return [name for name in self if name is not None]


def read_table(path: Path, declared: DeclaredColumns) -> Table:
    """Read a CSV file with one header line, or a Parquet file.

    Every column that is not label, agent or split, and that no rule drops, is a feature or several.

    Args:
        path: of the file.
        declared: what the scenario says of its columns.

    Returns:
        What the file holds, labels as they stand.

    Raises:
        InputError: with the row (records counted from 1) and column; or a file that is too large or damaged.
    """
    # Slow to import.
    import pandas as pd

    where = f"problem.data: {str(path)!r}"
    rules = declared.rules or ColumnRules()
    raw, roles = select_columns(str(path), _header(path, where), declared)
    names, text = rules.names(raw), {*roles.column_names, *(c for c in raw if c in rules.text)}
    # Of cells that are no numbers there is a last refusal, after the one that names their places.
    for columns in read_columns(path, (*raw, *roles.column_names), text, None, where):
        gaps = {
            c: columns[c] == "" if columns[c].dtype.kind == "U" else pd.isna(columns[c]) for c in roles.column_names
        }
        known = [Place(EMPTY, c, int(np.argmax(at)) + 1) for c, at in gaps.items() if at.any()]
        refuse_above(_BYTES_OF_NUMBER * len(columns[roles.label]) * len(names), f"{where} unpacks to")
        features = encode_features(columns, names, rules, where, known)
    return _table(features, names, columns, roles, f"{where}, column", declared.agents)


def _header(path: Path, where: str) -> list[str]:
    """The names of the columns. Raises InputError."""
    if path.suffix.lower() != ".parquet":
        return read_header(regular(path, "problem.data"), where)
    with _parquet(path, where) as parquet:
        header = list(parquet.schema_arrow.names)
    if len(set(header)) < len(header):
        raise InputError(f"{where} has two columns of one name; give every column its own.")
    return header


def select_columns(source: str, header: Sequence[str], declared: DeclaredColumns) -> tuple[tuple[str, ...], Roles]:
    """The columns that features are made of, and the label, owner and split columns; reads names alone.

    Args:
        source: what messages call the table.
        header: names of its columns.
        declared: what the scenario says of them.

    Raises:
        InputError: a column is missing, or two of them are one.
    """
    label, agent, split, rules, _ = declared
    if label is None:
        raise InputError(f"problem.label: {source!r} needs the name of its label column, {nearest('target', header)}.")
    agent = agent or ("agent" if "agent" in header else None)
    split = split or ("split" if "split" in header else None)
    for key, name in (("label", label), ("partition", agent), ("validation", split)):
        if name is not None and name not in header:
            raise InputError(f"problem.{key}: {source!r} has no column {name!r}; {nearest(name, header)}.")
    roles = Roles(label, agent, split)
    if len(set(roles.column_names)) < len(roles.column_names):
        raise InputError(
            f"problem.data: label, agent and split of {source!r} must be different columns, got {roles.column_names}."
        )
    rules = rules or ColumnRules()
    rules.require_columns(header, roles.column_names, repr(source))
    columns = tuple(c for c in header if c not in roles.column_names and c not in rules.drop)
    if not columns:
        raise InputError(
            f"problem.data: {source!r} has no feature columns beside {[*roles.column_names, *rules.drop]}."
        )
    return columns, roles


_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def read_header(path: Path, where: str, index: bool = False) -> list[str]:
    """The names of the columns of a CSV file; reads no record.

    Args:
        path: of the file.
        where: begins a refusal.
        index: whether the first column may be without a name, as pandas writes its index.

    Raises:
        InputError: the file cannot be read, its columns are not separated by commas, or a name is empty or there twice.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = next((row for row in csv.reader(file, skipinitialspace=True) if any(row)), None)
    except OSError as error:
        near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.csv") if p.is_file()], n=1)
        mend = f"did you mean {quoted(near[0])}?" if near else "give the path of a CSV file."
        raise InputError(f"{where} cannot be read: {error.strerror}; {mend}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{where} is not text in UTF-8; save it as CSV in UTF-8.") from error
    if names is None:
        raise InputError(f"{where} is empty, but a header line and records are wanted.")
    names = [name.strip() for name in names]
    separator = next((word for mark, word in _SEPARATORS.items() if len(names) == 1 and mark in names[0]), None)
    if separator is not None:
        raise InputError(
            f"{where} has a single column, whose name has {separator} in it. Separate columns by commas, and save it "
            "again."
        )
    if len(set(names)) < len(names) or "" in names[index:]:
        twice = next(name for name in names if name == "" or names.count(name) > 1)
        raise InputError(
            f"{where} has the column name {twice!r} more than once or empty; give every column its own name."
        )
    return names


def _rows(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV file that are not empty, the header first. Raises UnicodeDecodeError or csv.Error."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, skipinitialspace=True)
        yield next(row for row in rows if any(row))
        yield from (row for row in rows if row)


def _is_too_long(path: Path, columns: int) -> bool:
    """Whether the first record has more cells than there are columns."""
    try:
        return len(next(itertools.islice(_rows(path), 1, None), [])) > columns
    except (UnicodeDecodeError, csv.Error):
        return False


def read_columns(
    path: Path, wanted: Sequence[str], text: Collection[str], rows: int | None, where: str
) -> Iterator[dict[str, NDArray[Any]]]:
    """Read some columns of a CSV or Parquet file, all records or a part of them at a time; others are left unread.

    Args:
        path: of the file.
        wanted: names of columns.
        text: those of them that hold words, gaps or dates, which public rules read.
        rows: records of a part; None for all.
        where: begins the messages.

    Yields:
        Column → its cells, (n,), as `encode_features` takes them. Where a cell holds no number and one is wanted, the
        last part has the cells of all the rest as text, so that `encode_features` names their places.

    Raises:
        InputError: a column is missing, or the file is no table of records.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _parquet_parts(path, wanted, rows, where)
        return
    if suffix != ".csv":
        raise InputError(f"{where}: got a file that ends in {quoted(suffix)}; wanted .csv or .parquet.")
    header = read_header(regular(path, where), where, index=True)
    require_columns(wanted, header, where)
    done, last = 0, header[-1]
    try:
        for frame in _csv_parts(path, header, wanted, text, rows):
            if frame.empty:
                # Of a file with a header alone.
                continue
            if (frame[last].isna() | (frame[last] == "")).any():
                # A row that is too short, which pandas fills up, or a gap.
                _require_lengths(path, header, where)
            yield {c: frame[c].to_numpy() if c not in text else _strip(frame[c]) for c in wanted}
            done += len(frame)
    except _NO_NUMBERS as error:
        if isinstance(error, InputError):
            raise
        _require_lengths(path, header, where)
        # Slower, and only to say where.
        frame = next(_csv_parts(path, header, wanted, wanted, None))[done:]
        yield {c: _strip(frame[c]) for c in wanted}
        raise InputError(f"{where} cannot be read as a table of numbers; save it as CSV anew.") from None
    if not done:
        raise InputError(f"{where} has a header but no records; wanted at least one.")


def _require_lengths(path: Path, header: Sequence[str], where: str) -> None:
    """Refuse rows that are longer or shorter than the header. Raises InputError."""
    try:
        for number, row in enumerate(itertools.islice(_rows(path), 1, None), start=1):
            if len(row) != len(header):
                raise InputError(
                    f"{where}, row {number} has {len(row)} cells, but the header has {len(header)} columns; every row "
                    "needs one cell per column."
                )
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{where} is not text in UTF-8; save it as CSV in UTF-8.") from error


def require_columns(wanted: Sequence[str], known: Sequence[str], where: str) -> None:
    """Refuse a table that lacks columns, all of them at once. where: begins the refusal. Raises InputError."""
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    listed = ", ".join(map(quoted, missing[:5]))
    raise InputError(
        f"{where} has no column{'' if len(missing) == 1 else 's'} {listed}{more}, which the model reads; "
        f"{nearest(missing[0], known)}. Give all columns that features are made of, under the names that they had."
    )


# What pandas raises for cells that are no numbers, and for rows of other lengths.
_NO_NUMBERS = (ValueError, OverflowError, MemoryError)


def _strip(cells: Any) -> NDArray[Any]:
    return np.char.strip(cells.to_numpy(dtype=np.str_))


def _csv_parts(
    path: Path, header: list[str], wanted: Sequence[str], text: Collection[str], rows: int | None
) -> Iterator[Any]:
    """DataFrames of some records each, or one of all. Raises ValueError for what is no number, and no table."""
    import pandas as pd

    options: dict[str, Any] = {
        "header": 0,
        "names": header,
        # Columns that nobody wants are read as well: without them a row that is too long would be cut.
        "dtype": {c: np.float64 if c in wanted and c not in text else str for c in header},
        "na_filter": False,
        "index_col": False,
        "skipinitialspace": True,
        "encoding": "utf-8-sig",
    }
    if _is_too_long(path, len(header)):
        raise ValueError("rows are longer than the header")
    if rows is None:
        yield pd.read_csv(path, **options)
        return
    with pd.read_csv(path, chunksize=rows, **options) as parts:
        yield from parts


@contextmanager
def _parquet(path: Path, where: str) -> Iterator[Any]:
    """An open Parquet file. Raises InputError for what is none, or is damaged."""
    # Slow to import, and few records come so.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with regular(path, where).open("rb") as file:
            yield pq.ParquetFile(file)
    except InputError:
        raise
    except OSError as error:
        reason = error.strerror or "it is damaged, or no Parquet file"
        raise InputError(f"{where} cannot be read: {reason}; give the path of a Parquet file.") from error
    except (pa.ArrowException, ValueError, MemoryError, OverflowError) as error:
        raise InputError(f"{where} is damaged, or no Parquet file; write it anew.") from error


def _parquet_parts(
    path: Path, wanted: Sequence[str], rows: int | None, where: str
) -> Iterator[dict[str, NDArray[Any]]]:
    import pyarrow as pa

    with _parquet(path, where) as parquet:
        require_columns(wanted, list(parquet.schema_arrow.names), where)
        metadata = parquet.metadata
        if not metadata.num_rows:
            raise InputError(f"{where} has columns but no records; wanted at least one.")
        # What it is unpacked to is bounded before it is: a page of equal values takes a few bytes.
        pages = sum(int(metadata.row_group(k).total_byte_size) for k in range(metadata.num_row_groups))
        whole = 0 if rows is not None else _BYTES_OF_NUMBER * metadata.num_rows * len(wanted)
        refuse_above(max(pages, whole), f"{where} unpacks to")
        options: dict[str, Any] = {"columns": list(wanted), "use_threads": False}
        batches = ([batch] for batch in parquet.iter_batches(rows or metadata.num_rows, **options))
        for some in [list(itertools.chain(*batches))] if rows is None else batches:
            part = pa.Table.from_batches(some)
            yield {c: _arrow_cells(part.column(c), f"{where}, column {c!r}") for c in wanted}


def read_npz(path: Path, declared: DeclaredColumns) -> Table:
    """An NPZ archive with arrays X (n, d) and y (n,), and optionally the owner and the split of each record.

    X are records as they are, or features that a public model computed of them. Of `declared` the label is not read,
    for labels are y, and agent and split are names of arrays; rules there are none, for X has numbers alone.

    Raises InputError: an array is missing, has another shape or type, or is named twice; or it is no such archive.
    """
    where = f"problem.data: {str(path)!r}"
    _, agent, split, _, agents = declared
    named = [name for name in ("X", "y", agent, split) if name is not None]
    if len(set(named)) < len(named):
        raise InputError(f"{where}: X, y, agent and split must be different arrays, got {named}.")
    usual = tuple(name for name, given in (("agent", agent), ("split", split)) if given is None)
    arrays = read_archive(path, where, named, [name for name in usual if name not in named], "X=..., y=...")
    roles = Roles(
        "y", agent or ("agent" if "agent" in arrays else None), split or ("split" if "split" in arrays else None)
    )
    features = matrix(arrays["X"], where)
    n, d = features.shape
    columns = {c: column(a, n, f"{where}, array {c!r}") for c, a in arrays.items() if c != "X"}
    return _table(features, tuple(f"x{k}" for k in range(d)), columns, roles, f"{where}, array", agents)


def refuse_rules(where: str) -> NoReturn:
    """Raises InputError: [problem.columns] beside records that have no columns of words, gaps or dates."""
    raise InputError(
        f"{where} holds numbers, and problem.columns is for the columns of CSV files, Parquet files and DataFrames. "
        "Leave it out."
    )


def read_archive(
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
        Name → array, of whatever shape and type the file has.

    Raises:
        InputError: a wanted array is missing, or the file is no archive of plain arrays.
    """
    try:
        names = names_in(path, where)
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InputError(
                f"{where} has no array {missing[0]!r}, {nearest(missing[0], names)}; save it with "
                f"np.savez(path, {example})."
            )
        return read_arrays(path, where, [*wanted, *(n for n in optional if n in names)])
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
    """(n, d) the array 'X' as float64. Raises InputError for another shape, or for what is no real number."""
    return real_numbers(values, 2, f"{where}, array 'X'", "(records, features)")


def real_numbers(values: NDArray[Any], axes: int, where: str, shape: str) -> FloatArray:
    """An array of so many axes as float64. shape: what is wanted, in words. Raises InputError for any other."""
    if values.ndim != axes or values.dtype.kind not in "biuf":
        raise InputError(
            f"{where} has the shape {values.shape} and the type {values.dtype}, but {shape} of real numbers is wanted."
        )
    return np.ascontiguousarray(values, dtype=np.float64)


def column(values: NDArray[Any], records: int, where: str) -> NDArray[Any]:
    """(records,) numbers or text of an array. Raises InputError."""
    if values.shape != (records,) or values.dtype.kind not in "biufSU":
        raise InputError(
            f"{where} has the shape {values.shape} and the type {values.dtype}, but ({records},) numbers or text is "
            "wanted."
        )
    return values.astype(np.str_) if values.dtype.kind == "S" else values


_BYTES_OF_NUMBER = 8


def _arrow_cells(column: Any, where: str) -> NDArray[Any]:
    """The cells of a column of numbers, dates or words, as `encode_features` and the readers of labels take them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_temporal(column.type) and not kinds.is_time(column.type) and not kinds.is_duration(column.type):
        return np.asarray(column.cast(pa.date32(), safe=False).to_numpy()).astype("datetime64[D]")
    if kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type):
        # A gap in whole numbers or truth values is NaN.
        return np.asarray((column.cast(pa.float64()) if column.null_count else column).to_numpy())
    if not (kinds.is_string(column.type) or kinds.is_large_string(column.type)):
        raise InputError(
            f"{where} holds {column.type}, but numbers, dates or words are wanted. Write those, or drop it."
        )
    longest = pc.max(pc.utf8_length(column)).as_py() or 0
    refuse_above(4 * longest * len(column), f"{where} takes")
    return np.char.strip(np.array(["" if cell is None else cell for cell in column.to_pylist()], dtype=np.str_))


SUFFIXES = (".libsvm", ".svm", ".svmlight")
# Numbers of a table that is filled up with zeros: 1 GiB.
_MOST_NUMBERS = 2**27


def is_libsvm(path: Path) -> bool:
    """Whether a file is in this format, by its name.

    Example:
        >>> is_libsvm(Path("mine.libsvm")), is_libsvm(Path("mine.csv"))
        (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def read_libsvm(path: Path, features: int | None, certified: bool) -> Table:
    """Read a file of one's own in LibSVM's sparse text format: lines `label index:value …`, with indices from 1.

    Args:
        path: of the file.
        features: how many there are, at least the largest index.
        certified: whether features that nobody declared are refused instead of counted.

    Returns:
        What the file holds, its features named 1, 2, ….

    Raises:
        InputError: a file that is not sound, or features that are not declared.
    """
    if features is None and certified:
        raise InputError(
            f"problem.features: {str(path)!r} does not say how many features there are, and a certified run must not "
            "count them in the records; declare them, as in features = 123."
        )
    rows, raw = parse_libsvm(path, features)
    return Table(rows, raw, libsvm_names(rows.shape[1]))


def libsvm_names(features: int) -> tuple[str, ...]:
    """Names of so many features: numbers from 1."""
    return tuple(str(k) for k in range(1, features + 1))


def parse_libsvm(path: Path, features: int | None) -> tuple[FloatArray, FloatArray]:
    """Features (n, d) and labels (n,) as numbers. Raises InputError for a file that is not sound, or too large."""
    # Slow to import.
    from sklearn.datasets import load_svmlight_file

    where = f"problem.data: {str(path)!r}"
    try:
        content = regular(path, "problem.data").read_bytes()
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror}; give the path of a LibSVM file.") from error
    try:
        rows, labels = load_svmlight_file(io.BytesIO(content), n_features=features, zero_based=False)
    except (ValueError, OverflowError) as error:
        # What scikit-learn says may quote a record.
        most = "" if features is None else f", no index above {features}"
        raise InputError(
            f"{where} is no LibSVM file of lines 'label index:value …' with indices from 1{most}; mend it."
        ) from error
    if not rows.shape[0]:
        raise InputError(f"{where} holds no records.")
    if rows.shape[0] * rows.shape[1] > _MOST_NUMBERS:
        raise InputError(
            f"{where} has {rows.shape[0]} records of {rows.shape[1]} features, too many for a full table; give fewer."
        )
    return np.ascontiguousarray(rows.toarray(), dtype=np.float64), np.asarray(labels, dtype=np.float64)


OPENML = "openml:"
_OPENML_NUMBER = re.compile(r"openml:([1-9][0-9]{0,8})")


def load_openml(data: str, label: str | None, rules: ColumnRules | None = None) -> Table:
    """Load a data set of OpenML, from the cache or the network, by scikit-learn, which verifies what it fetches.

    Args:
        data: "openml:NUMBER"; a number is one version of one data set.
        label: its label column; None for the one that OpenML names.
        rules: how columns become features; None where they are numbers.

    Returns:
        The records.

    Raises:
        InputError: no such data set, no network, or columns that are not numbers.
    """
    number = _OPENML_NUMBER.fullmatch(data)
    if number is None:
        raise InputError(
            f'problem.data: got {quoted(data)}, but the number of a data set is wanted, as in "openml:61".'
        )
    # Slow to import.
    from sklearn.datasets import fetch_openml

    try:
        fetched = fetch_openml(
            data_id=int(number[1]), as_frame=True, data_home=str(cache_folder()), n_retries=1, delay=0.1
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())[:200]
        raise InputError(
            f"problem.data: {data} is not in {cache_folder() / 'openml'}, and could not be fetched ({reason}). Run "
            "once where there is a network, or save the records as CSV and give its path; nothing stands in for them."
        ) from error
    if label is None and len(fetched.target_names) != 1:
        raise InputError(f"problem.label: {data} names {len(fetched.target_names)} label columns; name one.")
    label, columns = label or str(fetched.target_names[0]), [str(column) for column in fetched.frame.columns]
    if label not in columns:
        raise InputError(f"problem.label: {data} has no column {quoted(label)}; {nearest(label, columns)}.")
    rules = rules or ColumnRules()
    rules.require_columns(columns, [label], data)
    names = rules.names(column for column in columns if column != label)
    features = encode_features(cells_of(fetched.frame, rules.raw(names)), names, rules, f"problem.data: {data}")
    return Table(features, np.asarray(fetched.frame[label]), names)


HUGGINGFACE = "huggingface:"
_HUB_NAME = re.compile(r"huggingface:([\w.-]+/[\w.-]+)(?:/([\w.-]+))?@([0-9a-f]{40})")


def load_huggingface(
    data: str, label: str | None, classes: Sequence[Label] | None, agent: str | None, certified: bool
) -> Dataset:
    """Load a data set of the Hugging Face hub at one commit, from the cache or the network.

    Only tables and pictures are read: `datasets` runs no code that comes with a data set.

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
    name = _HUB_NAME.fullmatch(data)
    if name is None:
        raise InputError(
            f"problem.data: got {quoted(data)}, but one version of a data set is wanted, as in "
            '"huggingface:owner/name@" and the 40 hexadecimal digits of a commit (on its page: Files, History).'
        )
    try:
        splits = _from_hub(name[1], name[2], name[3])
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
    parts = {split: splits[split] for split in SPLITS if split in splits}
    if not parts:
        raise InputError(
            f"problem.data: {data} has the splits {', '.join(map(str, splits))}, but one of {', '.join(SPLITS)} is "
            "wanted. Save the records as CSV and give its path."
        )
    return _of_splits(parts, data, label or "label", classes, agent, certified)


def _from_hub(name: str, configuration: str | None, commit: str) -> Mapping[str, Any]:
    # Slow to import.
    import datasets

    splits: Mapping[str, Any] = datasets.load_dataset(
        name, configuration, revision=commit, cache_dir=str(cache_folder() / "huggingface")
    )
    return splits


def _of_splits(
    parts: Mapping[str, Any], data: str, label: str, classes: Sequence[Label] | None, agent: str | None, certified: bool
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
        block, shape = _of_column(
            _column_of_splits(parts, column, data), type(kinds[column]).__name__ == "Image", column, data
        )
        picture = shape or picture
        blocks.append(block)
        names += [column] if block.shape[1] == 1 else [f"{column}_{k}" for k in range(block.shape[1])]
    if not blocks:
        raise InputError(f"problem.data: {data} has no column besides {label!r} and owners, and features are wanted.")
    if classes is None and hasattr(kinds[label], "names"):
        # Published with the data set, and read off no record.
        classes = tuple(range(len(kinds[label].names)))
    labels, known = encode_labels(_column_of_splits(parts, label, data), classes, certified=certified, source=data)
    only = len(blocks) == 1 and picture is not None
    sizes = {split: part.num_rows for split, part in parts.items()}
    own = "validation" not in parts and "train" in parts
    return Dataset(
        np.ascontiguousarray(np.concatenate(blocks, axis=1)),
        labels,
        known,
        tuple(names),
        data,
        agent=None if agent is None else _number_agents(_column_of_splits(parts, agent, data)),
        split=None if own else np.repeat(list(sizes), list(sizes.values())),
        image=picture if only else None,
        bounds=(0.0, 1.0) if only else None,
        own_test=sizes.get("test", 0) if own else 0,
    )


def _column_of_splits(parts: Mapping[str, Any], column: str, data: str) -> NDArray[Any]:
    """One column, the splits one after the other."""
    try:
        return np.concatenate([np.asarray(part.with_format("numpy")[column][:]) for part in parts.values()])
    except ValueError:
        raise InputError(
            f"problem.data: column {quoted(column)} of {data} holds lists or pictures of several sizes, and features "
            "are numbers, equally many in each record. Save the records as CSV and give its path."
        ) from None


def _of_column(
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


def _number_agents(raw: NDArray[Any]) -> IntArray:
    """(n,) agents from 0 on: whole numbers as they are, words in their order."""
    if raw.dtype.kind in "iu":
        return raw.astype(np.int64)
    return np.unique(raw.astype(np.str_), return_inverse=True)[1].astype(np.int64)
