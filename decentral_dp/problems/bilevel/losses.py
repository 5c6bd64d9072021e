"""Bilevel problem from two per-record torch functions; `from_losses` derives all terms by `torch.func`.

    upper_loss(x, y, features, label) → h      one number per record; validation records
    lower_loss(x, y, features, label) → l      one number per record; train records
    regulariser(x, y) → R                      data-independent, exact, never clipped or charged
    predict(y, features)                       class scores (classes,), a label (integer), or a score (float)

x: (p,), y: (q,), features: (n_features,), float64; label: float64, or with `classes` an integer index.

Per record, vectorised over the records by `vmap`: ∇_y l, ∇²_yy l·z and ∇²_xy l·z are one forward-mode derivative of
∇_{x,y} l along (0, z), forward over reverse.

A loss is a pure function of one record. `vmap` enforces this: `from_losses` raises InputError for branches on a value,
conversions from torch (`.item()`, `.numpy()`), random draws, in-place changes of arguments and running statistics
(BatchNorm). Hidden Python state, such as a counter of calls or the clock, is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.errors import InputError, needing, quoted
from decentral_dp.models.autodiff import (
    Captured,
    Loss,
    Penalty,
    Predict,
    columns,
    directions,
    losses_on,
    over_grid,
    rows_or_nan,
    trace,
)
from decentral_dp.models.devices import check_device, is_of_device, tensor, to_numpy
from decentral_dp.models.linear_terms import as_features, class_index
from decentral_dp.models.row_locality import COUNTS, Oracle, row_dependence, trials
from decentral_dp.privacy.clipping import Clip, clipped_sum
from decentral_dp.problems.bilevel.linear import class_shares
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, TERMS, Regulariser, Terms, matrices_read, term_shapes
from decentral_dp.user_code import USER_ERRORS

if TYPE_CHECKING:
    from torch import Tensor

# Largest number of floats of one vectorised operation: 16 MiB, about a CPU cache; 1 GiB on a device.
CELLS = 2**21
_TIMES = {"cpu": 1, "cuda": 64}
# vmap over records: x, y and z belong to the agent.
_RECORDS = (None, None, None, 0, 0)
# Largest number of floats of matrices in the test of rows, to bound its time.
_TRIED_MATRICES = 2**14


class LossRecords(NamedTuple):
    """Records: features (N, n_features) and labels (N,), which are numbers or class indices, in float64."""

    features: Array
    labels: Array


@dataclass(frozen=True)
class LossProblem:
    """Problem whose terms are derivatives of losses.

    Args:
        upper_loss, lower_loss, penalty, predict: functions as in `from_losses`.
        p, q, n_features: dimensions of x and y, and number of columns of the records.
        classes: number of classes, or None if labels are numbers.
        name: name in messages.
        reads_records: terms that read records. A missing term is never computed, so it cannot leak.
        start: public start of each variable, added to the constants of the scenario.
        device: device of the losses and their derivatives. Rows are clipped on the CPU.

    If a loss raises an error on a record (a singular matrix, a probability of NaN) or a derivative is not finite, the
    contribution of the record is zero. A run must not stop because of a private value.
    """

    upper_loss: Loss
    lower_loss: Loss
    penalty: Penalty | None
    predict: Predict | None
    p: int
    q: int
    n_features: int
    classes: int | None
    name: str
    reads_records: Mapping[str, Split]
    start: Mapping[str, Array] = field(default_factory=dict, compare=False)
    device: str = "cpu"
    # Captured calls by name, created at the first use in each process.
    _captures: dict[tuple[str, ...], Captured] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_captures": {}}

    def prepare(self, features: Array, labels: Array, norm: Norm) -> LossRecords:
        """Prepare records, without norms. Raises InputError on a wrong shape or label."""
        rows = as_features(features, labels, self.n_features, intercept=False)
        if self.classes is not None:
            class_index(labels, range(self.classes))
        return LossRecords(rows, np.asarray(labels, dtype=np.float64))

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        """Average clipped per-record terms. numpy clips and sums in float64.

        See `Problem.terms` for the arguments.
        """
        means: dict[str, Array] = {}
        for split, records in (("train", train), ("validation", validation)):
            names = [t for t, reads in self.reads_records.items() if reads == split and t in term_names]
            means |= self._means(names, self._rows_of(names, x, y, z), records, clip, self._width)
        return Terms(**means)

    def _rows_of(self, names: Collection[str], x: Array, y: Array, z: Array) -> Callable[..., Mapping[str, Tensor]]:
        """Return the function (features, labels) → unclipped rows of these terms."""
        from torch.func import grad, vmap

        def per_record(x: Tensor, y: Tensor, z: Tensor, *record: Tensor) -> dict[str, Tensor]:
            rows: dict[str, Tensor] = {}
            if any(name.startswith("lower_") for name in names):
                parts = directions(self.lower_loss, x, y, z, *record)
                rows |= {"lower_grad_y": parts.grad_y, "lower_hvp": parts.hvp, "lower_jvp": parts.jvp}
            if any(name.startswith("upper_") for name in names):
                by_x, by_y = grad(self.upper_loss, argnums=(0, 1))(x, y, *record)
                rows |= {"upper_grad_x": by_x, "upper_grad_y": by_y}
            return {name: rows[name] for name in names}

        rows = self._capture(tuple(names), lambda: vmap(per_record, in_dims=_RECORDS))
        return partial(rows, *(tensor(a, self.device) for a in (x, y, z)))

    def _capture(self, key: tuple[str, ...], make: Callable[[], Callable[..., Mapping[str, Tensor]]]) -> Captured:
        """Return the captured result of `make`, cached by the key."""
        if key not in self._captures:
            self._captures[key] = Captured(make(), self.device)
        return self._captures[key]

    def _means(
        self,
        names: Collection[str],
        oracle: Callable[..., Mapping[str, Tensor]],
        records: LossRecords,
        clip: Clip,
        width: int,
    ) -> dict[str, Array]:
        """Return (1/N) Σ_k clip(term_k) for each term or matrix. A matrix is clipped as a whole.

        `width` is the number of floats per record during the computation.
        """
        if not names:
            return {}
        sums = {name: np.zeros(term_shapes(self.p, self.q)[name]) for name in names}
        for features, labels in self._chunks(records, width):
            for name, rows in rows_or_nan(oracle, features, labels).items():
                flat, bound = to_numpy(rows).reshape(len(rows), -1), clip.bound(CLIP_OF_TERM[name])
                sums[name] += clipped_sum(flat, bound, clip.norm).reshape(sums[name].shape)
        return {name: total / max(len(records.features), 1) for name, total in sums.items()}

    @property
    def _width(self) -> int:
        """Number of floats per record during the computation of its terms."""
        return self.n_features + 2 * (self.p + self.q)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Test, for these batch sizes, that every row depends only on its own record (see `models.row_locality`).

        The test runs on the CPU, since a device may sum in a different order each time. Raises InputError if a row
        depends on another record, or if repeated calls differ.
        """
        here = self if self.device == "cpu" else replace(self, device="cpu")
        most = max(1, CELLS // self._width)
        trial_records = tuple(trials({min(n, most) for n in counts}, self.n_features, self.classes or 0))
        draw = np.random.default_rng(1)
        for turn, scale in enumerate((0.1, 1.0)):
            x, y, z = (scale * draw.normal(size=d) for d in (self.p, self.q, self.q))
            for function in ("lower_loss", "upper_loss"):
                fault = row_dependence(here._oracle(function, x, y, z), trial_records[turn::2])
                if fault is not None:
                    solves = " (torch.linalg.solve does so in second derivatives; use torch.linalg.inv)"
                    raise InputError(
                        f"{self.name}: {function} {fault.text}, so clipping does not bound the influence of "
                        "one record. Fix: write the loss of one record as a pure function of (x, y, "
                        f"features, label){solves if fault.term in MATRICES else ''}."
                    )

    def _oracle(self, function: str, x: Array, y: Array, z: Array) -> Oracle:
        """Return the function of records to all rows of one loss at one point: terms, matrices, and values."""
        lower = function == "lower_loss"
        names = [t for t in self.reads_records if t.startswith("lower_") == lower]
        loss: Loss = getattr(self, function)

        def rows(features: Array, labels: Array) -> dict[str, Array]:
            with losses_on(self.device):
                (chunk,) = self._chunks(LossRecords(features, labels), 1)
                grid = partial(over_grid(loss, 2), *(tensor(a[None], self.device) for a in (x, y)))
                out = rows_or_nan(self._rows_of(names, x, y, z), *chunk)
                out |= rows_or_nan(lambda *r: {"the value": grid(*r)[0]}, *chunk)
                if lower and len(labels) > 1 and len(labels) * self.q * self._width <= _TRIED_MATRICES:
                    whole = matrices_read(MATRICES, self.reads_records)
                    out |= rows_or_nan(self._matrices_of(whole, x, y, np.outer(z, x)), *chunk)
            return {name: to_numpy(part) for name, part in out.items()}

        return rows

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: LossRecords, clip: Clip, matrix_names: Collection[str]
    ) -> dict[str, Array]:
        """Average matrices, column by column. Each record's matrix is formed (see `CELLS` for the memory).

        See `Problem.matrices` for the arguments.
        """
        names = matrices_read(matrix_names, self.reads_records)
        if not names:
            return {}
        width = self.n_features + (self.q if set(names) != {"lower_hessian_product"} else self.p) * (self.p + self.q)
        return self._means(names, self._matrices_of(names, x, y, matrix), train, clip, width)

    def _matrices_of(
        self, names: Collection[str], x: Array, y: Array, matrix: Array | None
    ) -> Callable[..., Mapping[str, Tensor]]:
        """Return the function (features, labels) → unclipped matrices."""
        from torch.func import vmap

        product = "lower_hessian_product" in names and matrix is not None
        output_names = [name for name in names if name != "lower_hessian_product" or product]

        def per_record(x: Tensor, y: Tensor, units: Tensor, along: Tensor, *record: Tensor) -> dict[str, Tensor]:
            out = {}
            if product:
                out["lower_hessian_product"] = columns(self.lower_loss, x, y, along, *record).hvp
            if len(names) > len(out):
                whole = columns(self.lower_loss, x, y, units, *record)
                out |= {"lower_hessian": whole.hvp, "lower_jacobian": whole.jvp}
            return {name: out[name] for name in output_names}

        in_dims = (None, None, None, None, 0, 0)
        oracle = self._capture(("matrices", *output_names), lambda: vmap(per_record, in_dims=in_dims))
        along = np.zeros((self.q, 0)) if matrix is None else matrix
        return partial(oracle, *(tensor(a, self.device) for a in (x, y, np.eye(self.q), along)))

    def _chunks(self, records: LossRecords, width: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield records as tensors, in chunks of at most `CELLS` floats with `width` floats per record."""
        for part in slices(len(records.features), width, self.device):
            features, labels = (tensor(a[part], self.device) for a in records)
            yield features, labels if self.classes is None else labels.long()

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """Return ∇_y R (b, q), ∇²_yy R·z (b, q) and ∇²_xy R·z (b, p): zero without R, and NaN if R raises an error."""
        if self.penalty is None:
            return Regulariser(np.zeros(y.shape), np.zeros(y.shape), np.zeros(x.shape))
        from torch.func import vmap

        penalty = self.penalty
        rows = self._capture(("penalty slopes",), lambda: vmap(lambda *r: directions(penalty, *r)._asdict()))
        sizes = (self.q,), (self.q,), (self.p,)
        return Regulariser(
            *_evaluate_rows(lambda *r: _numbers(rows(*r)), (x, y, z), sizes, self.p + 2 * self.q, self.device)
        )

    def regulariser_value(self, x: Array, y: Array) -> Array:
        """Return R(x, y) per row, or NaN if R raises an error."""
        if self.penalty is None:
            return np.zeros(len(x))
        from torch.func import vmap

        penalty = self.penalty
        rows = self._capture(("penalty",), lambda: vmap(lambda *r: {"value": penalty(*r)}))
        return _evaluate_rows(lambda *r: _numbers(rows(*r)), (x, y), [()], self.p + 2 * self.q, self.device)[0]

    def losses(self, x: Array, y: Array, records: LossRecords, weights: Array) -> tuple[Array, Array]:
        """Return weighted means of (l, h) per row, or NaN after an error in a loss. Zero-weight records are skipped."""

        def losses_of(x: Tensor, y: Tensor, *record: Tensor) -> dict[str, Tensor]:
            return {"lower": self.lower_loss(x, y, *record), "upper": self.upper_loss(x, y, *record)}

        lower, upper = (np.zeros(len(x)) for _ in range(2))
        grid = self._capture(("losses",), lambda: over_grid(losses_of, 2))
        self._average([lower, upper], grid, (x, y), records, weights)
        return lower, upper

    def accuracy(self, x: Array, y: Array, records: LossRecords) -> Array | None:
        """Return the share of correct predictions, (b,), by the largest class score, the label, or the sign.

        A score is correct if its sign agrees with the label, {−1, +1} or {0, 1}. With k tied class scores, each counts
        1/k. A score of zero counts half.
        """
        if self.predict is None:
            return None
        predict = self.predict

        def right(y: Tensor, features: Tensor, label: Tensor) -> dict[str, Tensor]:
            guess = predict(y, features)
            if guess.dim() == 1:
                best = guess == guess.max()
                return {"right": (best[label] / best.sum().clamp(min=1)).double()}
            if guess.is_floating_point():
                return {"right": ((guess > 0) == (label > 0)).double().where(guess != 0, 0.5)}
            return {"right": (guess == label).double()}

        out, n = np.zeros(len(y)), len(records.features)
        grid = self._capture(("accuracy",), lambda: over_grid(right, 1))
        self._average([out], grid, (y,), records, np.full(n, 1.0 / n))
        return out

    def probabilities(self, x: Array, y: Array, records: LossRecords) -> list[tuple[Array, NDArray[np.int64]]]:
        """Return the softmax of class scores, or σ(s) of one score s, or an empty list if `predict` returns labels."""
        if self.predict is None or self.classes is None:
            return []
        from torch.func import vmap

        predict = self.predict
        rows = self._capture(("scores",), lambda: vmap(lambda y, a, _: {"scores": predict(y, a)}, in_dims=(None, 0, 0)))
        oracle = partial(rows, tensor(y, self.device))
        chunks = [rows_or_nan(oracle, *chunk).get("scores") for chunk in self._chunks(records, self.q)]
        parts = [to_numpy(part) for part in chunks if part is not None and part.is_floating_point()]
        if len(parts) < len(chunks) or (parts[0].ndim == 1 and self.classes > 2):
            return []
        scores = np.concatenate(parts)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        with np.errstate(all="ignore"):
            return [(class_shares(scores.T).T, records.labels.astype(np.int64))]

    def _average(
        self,
        out: Sequence[Array],
        grid: Callable[..., Mapping[str, Tensor]],
        rows: Sequence[Array],
        records: LossRecords,
        weights: Array,
    ) -> None:
        """Add Σ_k weights_k · grid(row, record_k) to `out`, a block of rows × records at a time."""
        positive = weights > 0
        if not positive.all():
            records, weights = LossRecords(*(a[positive] for a in records)), weights[positive]
        width, first = self.n_features + self.p + self.q, 0
        for chunk in self._chunks(records, width):
            weight = weights[first : first + len(chunk[0])]
            first += len(weight)

            def weighted_sums(
                *some: Tensor, chunk: tuple[Tensor, Tensor] = chunk, weight: Array = weight
            ) -> list[Array]:
                return [v @ weight for v in _numbers(grid(*some, *chunk))]

            shares = _evaluate_rows(weighted_sums, rows, [()] * len(out), width * len(weight), self.device)
            for total, share in zip(out, shares, strict=True):
                total += share


def _numbers(tensors: Mapping[str, Tensor]) -> list[Array]:
    # A gradient that is constant along an axis may be a view of one number.
    return [np.ascontiguousarray(to_numpy(t)) for t in tensors.values()]


def slices(n: int, width: int, device: str = "cpu") -> Iterator[slice]:
    """Return slices of 0 … n, each with at most `CELLS` floats (`width` per record) and at least one record."""
    step = max(1, CELLS * _TIMES[device] // width)
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def _evaluate_rows(
    fn: Callable[..., Sequence[Array]],
    rows: Sequence[Array],
    sizes: Sequence[tuple[int, ...]],
    width: int,
    device: str,
) -> list[Array]:
    """Return fn(rows), part by part. If `fn` raises, rows are evaluated one by one, and failing rows are NaN.

    `sizes` are the shapes of its results for one row.
    """
    values: list[Sequence[Array]] = []
    for part in slices(len(rows[0]), width, device):
        some = [r[part] for r in rows]
        try:
            values.append(fn(*(tensor(r, device) for r in some)))
        except USER_ERRORS as error:
            if is_of_device(error):
                raise
            alone = [np.full((1, *size), np.nan) for size in sizes]
            values.append(
                alone if len(some[0]) == 1 else _evaluate_rows(fn, some, sizes, CELLS * _TIMES[device], device)
            )
    if len(values) == 1:
        return list(values[0])
    return [np.concatenate(parts) for parts in zip(*values, strict=True)] or [np.zeros((0, *size)) for size in sizes]


def from_losses(
    upper_loss: Loss,
    lower_loss: Loss,
    *,
    p: int,
    q: int,
    n_features: int,
    classes: int | None = None,
    regulariser: Penalty | None = None,
    predict: Predict | None = None,
    start: Mapping[str, Array] | None = None,
    name: str = "from_losses",
) -> LossProblem:
    """Build a bilevel problem from an upper and a lower per-record loss.

    Every term that may depend on data has a privacy cost. A term has no cost if tracing finds no derivative in the
    graph of the loss: `upper_grad_x` if h does not use x, `lower_jvp` if ∇_y l does not use x, `lower_hvp` if ∇_y l
    does not use y. The trace is valid for all values, since branches on values are not supported. If x enters only
    through `detach`, its derivative is zero in torch and the term has no privacy cost. Put penalties without data into
    `regulariser`: inside a loss they are clipped with the records.

    Args:
        upper_loss: function h that maps (x, y, features, label) to one number.
        lower_loss: function l with the same arguments and result.
        p: dimension of x.
        q: dimension of y.
        n_features: number of columns of the records.
        classes: declared number of classes, with labels 0 … classes − 1. None (the default) means that labels are
            numbers.
        regulariser: function R that maps (x, y) to one number. None (the default) means no regulariser.
        predict: function that maps (y, features) to class scores, a label or a score. None (the default) means no
            predictions. Measures of probabilities use the softmax of class scores, or σ(s) of one score s.
        start: public start of "x" or "y", such as random weights of a network, by default 0. The start must not depend
            on records.
        name: name in messages.

    Returns:
        The problem, as the argument `problem` of `build`, `plan` and `run`.

    Raises:
        InputError: a start has the wrong shape, or a loss is not a scalar float64 function of these arguments, does not
            depend on y, or is not twice differentiable.

    Example:
        >>> import decentral_dp
        >>> problem = decentral_dp.from_losses(
        ...     upper_loss=lambda x, y, features, label: (features @ y - label) ** 2,
        ...     lower_loss=lambda x, y, features, label: (features @ y - label) ** 2,
        ...     regulariser=lambda x, y: x.exp().sum() * (y @ y), p=1, q=3, n_features=3)
        >>> problem.p, problem.q
        (1, 3)
    """
    for key, size, least in (("p", p, 1), ("q", q, 1), ("n_features", n_features, 1), ("classes", classes, 2)):
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if (size is None and key != "classes") or (size is not None and (not whole or size < least)):
            raise InputError(f"{name}: {key} out of range (got {size!r}, expected an integer of at least {least}).")
    sizes = (int(p), int(q), int(n_features))
    starts = {variable: np.asarray(values, dtype=np.float64) for variable, values in (start or {}).items()}
    for variable, vector in starts.items():
        size = {"x": sizes[0], "y": sizes[1]}.get(variable)
        if vector.shape != (size,) or not np.isfinite(vector).all():
            raise InputError(
                f"{name}: start: invalid (got {quoted(variable)} of shape {vector.shape}, expected {sizes[0]} "
                f"finite numbers for x, or {sizes[1]} for y)."
            )
    with needing("from_losses"):
        reads_records = trace(upper_loss, lower_loss, regulariser, predict, sizes, classes)
    functions = (upper_loss, lower_loss, regulariser, predict)
    problem = LossProblem(*functions, *sizes, classes, name, reads_records, starts)
    problem.check_rows_apart(COUNTS)
    return problem


def on_device(problem: LossProblem, device: str) -> LossProblem:
    """Return the same problem with losses and derivatives on a device.

    Args:
        problem: result of `from_losses`.
        device: name of the device, "cpu" or "cuda".

    Returns:
        The problem on the device, or the same object if it is already there.

    Raises:
        InputError: the device is absent, a loss contains tensors of another device, or its values differ there.
    """
    if problem.device == device:
        return problem
    check_device(device, f"{problem.name}: device")
    functions = (problem.upper_loss, problem.lower_loss, problem.penalty, problem.predict)
    reads_records = trace(*functions, (problem.p, problem.q, problem.n_features), problem.classes, device)
    if reads_records != problem.reads_records:
        raise InputError(
            f'{problem.name}: on device = "{device}" the losses depend on other arguments than on the CPU. '
            "Fix: compute the same losses on every device."
        )
    return replace(problem, device=device)
