"""Records and their public description."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.errors import InputError
from decentral_dp.formatting import join_words
from decentral_dp.user_code import USER_ERRORS

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
TextArray: TypeAlias = NDArray[np.str_]
Label: TypeAlias = int | float | str

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records and their public description.

    Error messages contain row numbers, counted from 1, but never a value from a record.

    Args:
        features: finite numbers, (n, d).
        labels: int64 indices of classes in `classes`, (n,), or float64 targets if `classes` is empty.
        classes: declared labels, in the declared order. With two classes the sign is 2·label − 1.
        feature_names: names of the d features.
        source: bundled name or path.
        agent: owner of each record, (n,), read from a column of the data.
        split: split of each record, "train", "validation" or "test", (n,), read from a column of the data.
        image: shape (height, width, channels) of image records. `record.reshape(channels, height, width)` is the image.
        bounds: declared range (low, high) of all features of every possible record.
        own_test: size of the data's own test set, which is at the end of the records.
        notes: sentences that every report on these records prints.
        test_is_independent: whether "test" records are drawn independently from the distribution of all other records.
        trajectory: shape (L, d) for trajectories of at most L steps with observations in R^d, laid out as in
            `central.trajectories`.
        is_simulated: whether settings and seeds determine every record, so that no digest is needed.
        has_records: whether records exist. If not, features and labels are zeros that take no memory.
        ranges: feature → range that a public rule declares.
        logs: features of the form log(1 + v), for which the declared range is that of v.

    Raises:
        InputError: shapes, labels or features are inconsistent.
    """

    features: FloatArray
    labels: IntArray | FloatArray
    classes: tuple[Label, ...]
    feature_names: tuple[str, ...]
    source: str
    agent: IntArray | None = None
    split: TextArray | None = None
    image: tuple[int, int, int] | None = None
    bounds: tuple[float, float] | None = None
    own_test: int = 0
    notes: tuple[str, ...] = ()
    test_is_independent: bool = False
    trajectory: tuple[int, int] | None = None
    is_simulated: bool = False
    has_records: bool = True
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    logs: frozenset[str] = frozenset()

    @property
    def digest(self) -> bytes:
        """Digest of the records as loaded, before any arithmetic, or "" for simulated records."""
        if self.is_simulated:
            return b""
        columns = (self.features, self.labels, self.agent, self.split)
        parts = (b"" if c is None else str((c.dtype.kind, c.shape)).encode() + c.tobytes() for c in columns)
        return blake2b(b"".join(blake2b(part).digest() for part in parts)).digest()

    def __post_init__(self) -> None:
        x, location = self.features, f"problem.data: {self.source!r}"
        n, d = x.shape[0], len(self.feature_names)
        columns = [c for c in (self.labels, self.agent, self.split) if c is not None]
        for part in (x, *columns):
            refuse_masked(part, location)
        problem = ""
        if x.shape != (n, d) or 0 in x.shape or any(c.shape != (n,) for c in columns):
            shapes = ", ".join(str(c.shape) for c in columns)
            problem = (
                f"features of shape {x.shape}, {d} names of them and columns of shape {shapes} (expected (n, d), d "
                "names and (n,), with n, d ≥ 1)"
            )
        elif self.has_records and not np.isfinite(x).all():
            row, column = np.argwhere(~np.isfinite(x))[0]
            problem = f"row {row + 1}, column {self.feature_names[column]!r} holds no finite number"
        elif self.classes and not (np.all(self.labels >= 0) and np.all(self.labels < len(self.classes))):
            problem = f"labels outside 0..{len(self.classes) - 1}, the indices of its classes"
        elif (self.image is not None and math.prod(self.image) != d) or not 0 <= self.own_test < n:
            problem = f"{n} records of {d} features do not fit image = {self.image} or own_test = {self.own_test}"
        if problem:
            raise InputError(f"{location}: {problem}.")
        if self.split is not None:
            as_split(self.split, location)

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.features.shape[0])


def public_generator(seed: int, purpose: str, *more: int) -> np.random.Generator:
    """Return a generator of public draws that is keyed by (seed, purpose, …).

    Partitions, splits and synthetic records use it. Its draws are public. Do not pass the key of private noise.
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *more])


def near_name(name: str, header: Sequence[str], noun: str = "column") -> str:
    """Return "; column k has a similar name", or "". The name itself may be a cell of a file without a header.

    Example:
        >>> near_name("Age", ["sex", "age"]), near_name("outcome", ["red", "no"])
        ('; column 2 has a similar name', '')
    """
    similar = [c for c in header if c.lower() == name.lower()] or get_close_matches(name, header, n=1, cutoff=0.75)
    return f"; {noun} {header.index(similar[0]) + 1} has a similar name" if similar else ""


def number_columns(places: Sequence[int]) -> str:
    """Return "columns 1 and 4" for 0 and 3. Names are omitted, since they may be cells of a file without a header."""
    return f"column{'s' * (len(places) > 1)} {join_words([str(k + 1) for k in places])}"


def missing_cells(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each cell is missing, that is, empty text, NaN, NaT or None, (n,)."""
    if cells.dtype.kind == "U":
        return np.asarray(cells == "")
    if cells.dtype.kind == "O":
        # Slow to import.
        import pandas as pd

        return np.asarray(pd.isna(cells), dtype=np.bool_)
    if cells.dtype.kind == "M":
        return np.asarray(np.isnat(cells))
    return np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(cells.shape, dtype=np.bool_)


def refuse_masked(values: object, subject: str) -> None:
    """Raise InputError for a masked array, whose masked entries numpy would read as values."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{subject}: got a masked array. Fix: remove or fill the masked entries, then pass .data.")


def real_array(values: Any, subject: str) -> FloatArray:
    """Return an array-like of real numbers as float64. Raises InputError for other values."""
    refuse_masked(values, subject)
    numbers = None
    with suppress(*USER_ERRORS):
        numbers = None if np.iscomplexobj(values) else np.asarray(values, dtype=np.float64)
    if numbers is None:
        # Not raised in a handler, since the message of numpy contains the value of a cell.
        wrong = [k for k, t in enumerate(values.dtypes) if t.kind not in "biuf"] if hasattr(values, "columns") else []
        where = f" in {number_columns(wrong)} of the features" if wrong else ""
        raise InputError(f"{subject}: not numeric{where}. Fix: convert all values to numbers, or drop the column.")
    return numbers


def refuse_rows(wrong: NDArray[np.bool_], location: str, problem: str) -> None:
    """Raise an InputError that gives the number of the first invalid record, counted from 1.

    Args:
        wrong: mask of invalid records, (n,).
        location: beginning of the message.
        problem: end of the message, without a cell.
    """
    if wrong.any():
        raise InputError(f"{location}, row {int(np.argmax(wrong)) + 1} {problem}")


def plain_cells(values: Any, location: str) -> NDArray[Any]:
    """Convert one column to numbers, dates or text. Objects of different types are converted to text.

    Args:
        values: cells, (n,).
        location: beginning of an error message.

    Raises:
        InputError: a cell is missing, or the array is masked.
    """
    refuse_masked(values, location)
    cells = np.asarray(values)
    if cells.dtype.kind != "U":
        refuse_rows(missing_cells(cells), location, "is empty. Fix: fill the cell.")
    if cells.dtype.kind == "S":
        return np.char.decode(cells, "utf-8", "replace")
    if cells.dtype.kind == "O":
        return np.array([str(cell) for cell in cells.ravel()], dtype=np.str_).reshape(cells.shape)
    return cells


def label_key(value: object) -> float | str:
    """Return the key by which labels are compared: "1", 1, 1.0 and true are equal."""
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def encode_labels(
    raw: NDArray[Any], classes: Sequence[Label] | None, *, certified: bool, source: str
) -> tuple[IntArray | FloatArray, tuple[Label, ...]]:
    """Encode labels as class indices.

    Args:
        raw: labels as text or numbers, (n,).
        classes: declared labels. `()` means a numeric target. With None, the labels are discovered from the records.
        certified: whether the run has a guarantee. In this case discovery is an error, since one record could change
            every code.
        source: name of the data in messages.

    Returns:
        Class indices or numeric targets, and the labels in the order of their indices.

    Raises:
        InputError: a label is undeclared, the run may not discover classes, or there are fewer than two classes.
    """
    location = f"problem.data: {source!r}"
    values, inverse = np.unique(plain_cells(raw, f"{location}, label"), return_inverse=True)
    keys = [label_key(v) for v in values.tolist()]
    if classes is None:
        if certified:
            raise InputError(
                f"problem.classes: missing for {source!r}, and a certified run must not read them from the "
                "records. Fix: declare them, as in classes = [0, 1], or set classes = [] for a numeric "
                "target."
            )
        distinct = sorted(set(keys), key=lambda k: (isinstance(k, str), k))
        classes = [int(k) if isinstance(k, float) and k.is_integer() else k for k in distinct]
    if not classes:
        words = np.array([isinstance(key, str) for key in keys])[inverse]
        problem = "has a label that is not a finite number (classes = [])"
        refuse_rows(words, location, f"{problem}. Fix: declare the classes, or correct the record.")
        return np.array(keys, dtype=np.float64)[inverse], ()
    if not certified and len(inverse) > 1 and len(set(keys)) < 2:
        # A certified run reports it at its end, without revealing whether a class has a record.
        raise InputError(f"{location}: all records have the same label (expected two or more). Fix: use other data.")
    code = {label_key(c): k for k, c in enumerate(classes)}
    labels = np.array([code.get(k, -1) for k in keys], dtype=np.int64)[inverse]
    problem = f"has a label that is not one of the declared classes {list(classes)}"
    refuse_rows(labels < 0, location, f"{problem}. Fix: add it to problem.classes, or correct the record.")
    return labels, tuple(classes)


def require_classes(source: str, declared: Sequence[Label] | None, classes: Sequence[Label]) -> None:
    """Raise InputError if the declared classes differ from the classes of the data.

    Args:
        source: name of the data in messages.
        declared: labels in the scenario, or None if it does not declare them.
        classes: labels of the data.
    """
    if declared is not None and list(declared) != list(classes):
        raise InputError(
            f"problem.classes: {source!r} has the classes {list(classes)} (got {list(declared)}). Fix: remove it."
        )


def as_agents(raw: NDArray[Any], location: str, agents: Sequence[Label] | None = None) -> IntArray:
    """Convert an owner column to agent numbers, (n,).

    Args:
        raw: whole numbers from 0, (n,), or names.
        location: beginning of an error message.
        agents: names of the agents, in order, or None if the agents are numbered.

    Raises:
        InputError: a record has an unknown agent.
    """
    values, inverse = np.unique(plain_cells(raw, f"{location}, agent"), return_inverse=True)
    keys, place = [label_key(v) for v in values.tolist()], {label_key(name): k for k, name in enumerate(agents or ())}
    if agents is None:
        numbers = [int(k) if not isinstance(k, str) and k.is_integer() and 0 <= k < 2**31 else -1 for k in keys]
        problem = (
            "is not an integer from 0. Fix: number the agents 0, 1, …, or list their names in order, as in "
            'problem.partition = { kind = "column", name = …, agents = […] }'
        )
    else:
        numbers = [place.get(key, -1) for key in keys]
        problem = "problem.partition.agents does not list. Fix: add it there"
    owner = np.array(numbers, dtype=np.int64)[inverse]
    refuse_rows(owner < 0, location, f"has an agent that {problem}.")
    return owner


def as_split(raw: NDArray[Any], location: str) -> TextArray:
    """Convert a column to the names of splits, (n,). Raises InputError for other words."""
    words = np.char.strip(plain_cells(raw, f"{location}, split").astype(np.str_))
    refuse_rows(
        ~np.isin(words, SPLITS),
        location,
        "has a split that is none of train, validation and test. Fix: correct the cell.",
    )
    return np.asarray(words, dtype=np.str_)
