"""Bilevel problem from per-record numpy formulas, with clipping, means, matrices and metrics.

The user's object has these methods. `features` (n, d) and `labels` (n,) contain several records, and row k of the
result depends on record k only:

    sizes(n_features, n_classes) → p, q            dimensions of x and y; n_classes is 0 if labels are numbers
    lower_loss, upper_loss(x, y, features, labels)  (n,)    l and h
    lower_grad_y(x, y, features, labels)            (n, q)  ∇_y l
    upper_grad_y(x, y, features, labels)            (n, q)  ∇_y h
    lower_hvp(x, y, z, features, labels)            (n, q)  ∇²_yy l·z    left out: zero
    lower_jvp(x, y, z, features, labels)            (n, p)  ∇²_xy l·z    left out: zero
    upper_grad_x(x, y, features, labels)            (n, p)  ∇_x h        left out: zero
    regulariser(x, y, z)                            ∇_y R (q,), ∇²_yy R·z (q,), ∇²_xy R·z (p,)    left out: no R
    regulariser_value(x, y)                         R, with regulariser
    predict(y, features)                            (n,) class numbers    left out: nothing is classified
    probabilities(y, features)                      (n, n_classes)        left out: no measures of probabilities

A missing term is never computed and has no privacy cost. `check_rows_apart` raises InputError for rows that depend on
other records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.errors import InputError, converting
from decentral_dp.models.autodiff import rows_or_nan
from decentral_dp.models.linear_terms import as_features
from decentral_dp.models.row_locality import COUNTS, Trial, row_dependence, trials
from decentral_dp.privacy.clipping import Clip, clipped_sum
from decentral_dp.problems.bilevel.losses import CELLS, LossRecords, slices
from decentral_dp.problems.protocol import (
    CLIP_OF_TERM,
    DIRECTED,
    MATRICES,
    TERMS,
    Regulariser,
    Terms,
    matrices_read,
    term_shapes,
)
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

NEEDED = ("sizes", "lower_loss", "upper_loss", "lower_grad_y", "upper_grad_y")
# Synthetic features beyond this belong to an outlier.
_FAR_FEATURE = 1e3


@dataclass(frozen=True)
class RecordwiseProblem:
    """Problem from custom per-record formulas.

    Args:
        author: object with the methods listed in the module docstring.
        p, q: dimensions of x and y.
        n_features: number of columns of the records.
        n_classes: number of classes of the labels, 0 if labels are numbers.
        name: name in messages.
    """

    author: Any
    p: int
    q: int
    n_features: int
    n_classes: int
    name: str

    @property
    def reads_records(self) -> Mapping[str, Split]:
        return {t: _split(t) for t in TERMS if hasattr(self.author, t)}

    def prepare(self, features: Array, labels: Array, norm: Norm) -> LossRecords:
        rows = as_features(features, labels, self.n_features, intercept=False)
        return LossRecords(rows, np.asarray(labels, dtype=np.float64))

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        means: dict[str, Array] = {}
        for term, split in self.reads_records.items():
            if term in term_names:
                records = train if split == "train" else validation
                total = np.zeros(term_shapes(self.p, self.q)[term])
                for part in self._chunks(records, 1):
                    rows = self._rows(term, x, y, z, part)
                    total += clipped_sum(rows, clip.bound(CLIP_OF_TERM[term]), clip.norm)
                means[term] = total / max(len(records.features), 1)
        return Terms(**means)

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: LossRecords, clip: Clip, matrix_names: Collection[str]
    ) -> dict[str, Array]:
        """Average matrices, column by column. Each record's matrix is formed, and clipped as a whole.

        See `Problem.matrices` for the arguments.
        """
        out = {}
        for name in matrices_read(matrix_names, self.reads_records):
            along = np.asarray(matrix) if name == "lower_hessian_product" else np.eye(self.q)
            term, shape = MATRICES[name], term_shapes(self.p, self.q)[name]
            total = np.zeros(shape)
            for part in self._chunks(train, along.shape[1]):
                columns = [self._rows(term, x, y, z, part) for z in along.T]
                flat = np.stack(columns, axis=2).reshape(len(part.features), -1)
                total += clipped_sum(flat, clip.bound(CLIP_OF_TERM[term]), clip.norm).reshape(shape)
            out[name] = total / max(len(train.features), 1)
        return out

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        out = Regulariser(np.zeros_like(y), np.zeros_like(y), np.zeros_like(x))
        if hasattr(self.author, "regulariser"):
            shapes = [whole.shape[1:] for whole in out]
            with np.errstate(all="ignore"):
                for row in range(len(y)):
                    parts = [np.asarray(part) for part in self.author.regulariser(x[row], y[row], z[row])]
                    # numpy would broadcast one number over all coordinates.
                    if [part.shape for part in parts] != shapes:
                        got = [part.shape for part in parts]
                        raise UserCodeError(f"{self.name}: regulariser returns shapes {got}, expected {shapes}.")
                    for whole, part in zip(out, parts, strict=True):
                        whole[row] = part
        return out

    def regulariser_value(self, x: Array, y: Array) -> Array:
        if not hasattr(self.author, "regulariser"):
            return np.zeros(len(y))
        with np.errstate(all="ignore"):
            return np.array([float(self.author.regulariser_value(*row)) for row in zip(x, y, strict=True)])

    def losses(self, x: Array, y: Array, records: LossRecords, weights: Array) -> tuple[Array, Array]:
        out = np.zeros((2, len(y)))
        for row in range(len(y)):
            first = 0
            for part in self._chunks(records, 1):
                weight = weights[first : first + len(part.features)]
                first += len(part.features)
                for k, name in enumerate(("lower_loss", "upper_loss")):
                    out[k, row] += self._call_author(name, (len(part.features),), part, x[row], y[row]) @ weight
        return out[0], out[1]

    def accuracy(self, x: Array, y: Array, records: LossRecords) -> Array | None:
        if not hasattr(self.author, "predict"):
            return None
        with np.errstate(all="ignore"):
            return np.array([np.mean(self.author.predict(row, records.features) == records.labels) for row in y])

    def probabilities(self, x: Array, y: Array, records: LossRecords) -> list[tuple[Array, NDArray[np.int64]]]:
        if not (hasattr(self.author, "probabilities") and self.n_classes):
            return []
        shape = len(records.features), self.n_classes
        with np.errstate(all="ignore"):
            shares = evaluate(lambda some: self.author.probabilities(y, *some), (records.features,), shape)
        return [(shares, records.labels.astype(np.int64))]

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Run every formula on synthetic records, for these batch sizes, and again with one record replaced.

        Raises InputError for a formula that fails, has a wrong shape, or depends on other records.
        """
        draw = np.random.default_rng(0)
        x, y, z = (0.1 * draw.normal(size=d) for d in (self.p, self.q, self.q))
        most = max(1, CELLS // (self.n_features + self.p + self.q))
        trial_records = tuple(trials({min(n, most) for n in counts}, self.n_features, self.n_classes))
        shapes = {t: term_shapes(self.p, self.q)[t] for t in self.reads_records}
        for name, shape in {"lower_loss": (), "upper_loss": (), **shapes}.items():
            point = (x, y, z) if name in DIRECTED else (x, y)
            method = getattr(self.author, name)
            try_rows(
                lambda *r, m=method, point_of_method=point: m(*point_of_method, *r),
                shape,
                f"{self.name}: {name}",
                trial_records,
            )
        if hasattr(self.author, "regulariser"):
            fails = converting(USER_ERRORS, lambda error: f"{self.name}: regulariser does not run: {blame(error)}.")
            with fails, converting(UserCodeError, str):
                values = (*self.regulariser(x[None], y[None], z[None]), self.regulariser_value(x[None], y[None]))
            if not all(np.isfinite(part).all() for part in values):
                raise InputError(
                    f"{self.name}: regulariser or regulariser_value is not finite at a synthetic point. Fix: make "
                    "both finite everywhere."
                )
        classes: dict[str, tuple[int, ...]] = {"probabilities": (self.n_classes,)} if self.n_classes else {}
        for name, shape in ({"predict": ()} | classes).items():
            if (method := getattr(self.author, name, None)) is not None:
                try_rows(lambda a, m=method: m(y, a), shape, f"{self.name}: {name}", trial_records, has_labels=False)

    def _rows(self, term: str, x: Array, y: Array, z: Array, records: LossRecords) -> Array:
        """Return the unclipped rows of a term, (n, width)."""
        point = (x, y, z) if term in DIRECTED else (x, y)
        return self._call_author(term, (len(records.features), *term_shapes(self.p, self.q)[term]), records, *point)

    def _call_author(self, name: str, shape: tuple[int, ...], records: LossRecords, *point: Array) -> Array:
        """Call a method for these records. Rows on which it raises are NaN."""
        call = getattr(self.author, name)
        with np.errstate(all="ignore"):
            return evaluate(lambda some: call(*point, *some), tuple(records), shape)

    def _chunks(self, records: LossRecords, columns: int) -> Iterator[LossRecords]:
        width = self.n_features + columns * (self.p + self.q)
        for part in slices(len(records.features), width):
            yield LossRecords(records.features[part], records.labels[part])


def evaluate(call: Callable[[tuple[Array, ...]], Any], records: tuple[Array, ...], shape: tuple[int, ...]) -> Array:
    """Return the rows (n, …) of a custom formula. Rows on which it raises are NaN, which clipping sets to 0."""

    def rows(*some: Array) -> dict[str, Array]:
        return {"rows": np.array(call(some), dtype=np.float64).reshape(len(some[0]), *shape[1:])}

    result: Array | None = rows_or_nan(rows, *records).get("rows")
    return np.full(shape, np.nan) if result is None else result


def recordwise(author: Any, n_features: int, n_classes: int, name: str) -> RecordwiseProblem:
    """Build the problem from custom formulas, and test it on synthetic records.

    Args:
        author: object with the methods listed in the module docstring.
        n_features: number of columns of the records.
        n_classes: number of classes of the labels, 0 if labels are numbers.
        name: name in messages.

    Raises:
        InputError: a formula is missing, fails, or depends on other records.
    """
    check_has(author, NEEDED, name, "a bilevel problem")
    if hasattr(author, "regulariser"):
        check_has(author, ("regulariser_value",), name, "a problem with a regulariser")
    p, q = author_sizes(author, name, "p and q", n_features=n_features, n_classes=n_classes)
    problem = RecordwiseProblem(author, p, q, n_features, n_classes, name)
    problem.check_rows_apart(COUNTS)
    return problem


def check_has(author: Any, members: Sequence[str], name: str, noun: str) -> None:
    """Raise InputError for a custom object that lacks a method.

    Args:
        author: custom object.
        members: names of the methods.
        name: name of the object in the message.
        noun: noun for the class that needs the methods, in the message.

    Raises:
        InputError: a method is missing.
    """
    for method in members:
        if not hasattr(author, method):
            raise InputError(f"{name}: {method} is missing ({noun} needs {', '.join(members)}). Fix: define it.")


def author_sizes(author: Any, name: str, noun: str, **facts: int) -> tuple[int, int]:
    """Return the two integers of `sizes`. Raises InputError."""
    problem = f"{name}: sizes({', '.join(facts)}) does not give {noun}"
    with converting(USER_ERRORS, lambda error: f"{problem}: {blame(error)}."):
        first, second = author.sizes(**facts)
    for value in (first, second):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name}: sizes returns {value!r} (expected integers of at least 1 for {noun}).")
    return int(first), int(second)


def try_rows(
    call: Callable[..., Any],
    shape: tuple[int, ...],
    name: str,
    trial_records: Iterable[Trial],
    has_labels: bool = True,
) -> None:
    """Raise InputError for a formula that raises, has a wrong shape, or has rows that depend on other records.

    Args:
        call: formula, a function of features and labels.
        shape: shape of one row.
        name: name of the formula.
        trial_records: batches of synthetic records, each also with one record replaced.
        has_labels: whether the formula reads labels.
    """

    def rows(features: Array, labels: Array) -> dict[str, Array]:
        expected_shape, arguments = (len(labels), *shape), (features, labels) if has_labels else (features,)
        try:
            values = np.array(call(*arguments)).astype(np.float64, casting="same_kind")
        except USER_ERRORS as error:
            if len(labels) > max(COUNTS) or not np.all(np.abs(features) < _FAR_FEATURE):
                # A formula may raise on an outlier, which then counts as zero.
                return {"what it gives": evaluate(lambda some: call(*some), arguments, expected_shape)}
            raise InputError(f"{name} fails on synthetic records: {blame(error)}. Fix: correct its code.") from error
        # An outlier may overflow and counts as zero, but some rows of ordinary records must be finite.
        near = len(labels) > 0 and np.all(np.abs(features) < _FAR_FEATURE)
        fits = values.shape == expected_shape
        if not fits or (near and not np.isfinite(values.reshape(len(labels), -1)).all(axis=1).any()):
            got = "no finite number" if fits else f"shape {values.shape}"
            raise InputError(f"{name} returns {got} for {len(labels)} synthetic records, expected {expected_shape}.")
        return {"what it gives": values}

    fault = row_dependence(rows, trial_records)
    if fault is not None:
        raise InputError(
            f"{name} {fault.text}, so clipping does not bound the influence of one record. Fix: make it a "
            "pure function, with row k computed from record k only."
        )


def _split(term: str) -> Split:
    return "train" if term.startswith("lower_") else "validation"
