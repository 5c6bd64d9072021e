"""The problem that is derived from per-record torch functions; `from_losses` checks the functions and makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, LipschitzConstants, Norm, Split
from decentral_dp.errors import InputError
from decentral_dp.models.autodiff import (
    Loss,
    Penalty,
    Predict,
    columns,
    directions,
    losses_on,
    over_grid,
    rows_or_nan,
)
from decentral_dp.models.devices import is_of_device, tensor, to_numpy
from decentral_dp.models.graph_capture import Captured
from decentral_dp.models.linear_terms import checked_features, class_index
from decentral_dp.models.row_locality import Oracle, mixed, trials
from decentral_dp.privacy.clipping import Clip, clipped_sum
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, TERMS, Regulariser, Terms, asked
from decentral_dp.user_code import USER_ERRORS

if TYPE_CHECKING:
    # At run time torch is imported by the functions that need it: `decentral-dp --help` must not wait for it.
    from torch import Tensor

# Numbers that one vectorised call may hold per operation: 16 MiB, about a processor's cache; 1 GiB on a device.
CELLS = 2**21
_TIMES = {"cpu": 1, "cuda": 64}
# Numbers of matrices that are formed where rows are tried: so small that nobody waits for it.
_TRIED_MATRICES = 2**14


class LossRecords(NamedTuple):
    """features: (N, n_features) float64. labels: (N,) float64 numbers, or class indices."""

    features: Array
    labels: Array


@dataclass(frozen=True)
class LossProblem:
    """A problem whose oracles are derivatives of the given losses.

    upper_loss, lower_loss, penalty (the regulariser), predict → the functions, as `from_losses` describes them;
    classes → number of classes, None where the label is a number; declared → constants that the user vouches for;
    touches → the terms that read records. A term missing from it is not computed at all, so nothing can leak through
    it, even if it were missing wrongly. forward → whether the lower level can be differentiated forwards.
    start → variable → public vector that it starts from, added to the scenario's constants. device → where the losses
    and their derivatives are computed; rows come back to the processor before they are clipped.

    A record that makes a loss raise (a singular matrix, a probability of NaN) counts as zero, as one whose derivative
    is not finite does: a run must not stop because of a private value.
    """

    upper_loss: Loss
    lower_loss: Loss
    penalty: Penalty | None
    predict: Predict | None
    p: int
    q: int
    n_features: int
    classes: int | None
    declared: LipschitzConstants | None
    name: str
    reads_records: Mapping[str, Split]
    forward: bool
    start: Mapping[str, Array] = field(default_factory=dict, compare=False)
    device: str = "cpu"
    # What is called, by name; made when first asked for, in each process.
    _captured: dict[tuple[str, ...], Captured] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_captured": {}}

    def prepare(self, features: Array, labels: Array, norm: Norm) -> LossRecords:
        """The records as they are: norms are taken of the derivatives. Raises InputError on a wrong shape or label."""
        rows = checked_features(features, labels, self.n_features, intercept=False)
        if self.classes is not None:
            class_index(labels, range(self.classes))
        return LossRecords(rows, np.asarray(labels, dtype=np.float64))

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        """Clipped per-record means of the terms in `reads_records`. Clips and sums are numpy's, in float64."""
        if (x.shape, y.shape, z.shape) != ((self.p,), (self.q,), (self.q,)):
            raise ValueError(f"x, y, z are {x.shape}, {y.shape}, {z.shape}; wanted ({self.p},), 2 × ({self.q},)")
        means: dict[str, Array] = {}
        with losses_on(self.device):
            for split, records in (("train", train), ("validation", validation)):
                names = [t for t, reads in self.reads_records.items() if reads == split and t in wanted]
                means |= self._means(names, self._rows_of(names, x, y, z), records, clip)
        return Terms(**means)

    def _rows_of(self, names: Collection[str], x: Array, y: Array, z: Array) -> Callable[..., Mapping[str, Tensor]]:
        """Features and labels of records → their rows of these terms, not clipped."""
        from torch.func import grad, vmap

        def per_record(x: Tensor, y: Tensor, z: Tensor, *record: Tensor) -> dict[str, Tensor]:
            rows: dict[str, Tensor] = {}
            if any(name.startswith("lower_") for name in names):
                parts = directions(self.lower_loss, self.forward, x, y, z, *record)
                rows |= {"lower_grad_y": parts.grad_y, "lower_hvp": parts.hvp, "lower_jvp": parts.jvp}
            if any(name.startswith("upper_") for name in names):
                by_x, by_y = grad(self.upper_loss, argnums=(0, 1))(x, y, *record)
                rows |= {"upper_grad_x": by_x, "upper_grad_y": by_y}
            return {name: rows[name] for name in names}

        oracle = self._once(tuple(names), lambda: vmap(per_record, in_dims=(None, None, None, 0, 0)))
        return partial(oracle, *(tensor(a, self.device) for a in (x, y, z)))

    def _once(self, key: tuple[str, ...], make: Callable[[], Callable[..., Mapping[str, Tensor]]]) -> Captured:
        """What `make` makes under this key, made once."""
        if key not in self._captured:
            self._captured[key] = Captured(make())
        return self._captured[key]

    def _means(
        self, names: Collection[str], oracle: Callable[..., Mapping[str, Tensor]], records: LossRecords, clip: Clip
    ) -> dict[str, Array]:
        """(1/N) Σ_k clip(term_k) for each of these terms."""
        if not names:
            return {}
        sums = {t: np.zeros(self.p if CLIP_OF_TERM[t] == "x" else self.q) for t in names}
        for features, labels in self._chunks(records, self._width):
            for term, rows in rows_or_nan(oracle, features, labels).items():
                sums[term] += clipped_sum(to_numpy(rows), clip.bound(CLIP_OF_TERM[term]), clip.norm)
        return {term: total / max(len(records.features), 1) for term, total in sums.items()}

    @property
    def _width(self) -> int:
        """Numbers that one record takes while its terms are formed."""
        return self.n_features + 2 * (self.p + self.q)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Try that every row is of its own record alone, for batches of so many records; see `models.row_locality`.

        On the processor: a device may add up in another order each time. Raises InputError where a row reads another
        record, or where one question has two answers.
        """
        here = self if self.device == "cpu" else replace(self, device="cpu")
        most = max(1, CELLS // self._width)
        tried = tuple(trials({min(n, most) for n in counts}, self.n_features, self.classes or 0))
        draw = np.random.default_rng(1)
        for turn, scale in enumerate((0.1, 1.0)):
            x, y, z = (scale * draw.normal(size=d) for d in (self.p, self.q, self.q))
            for function in ("lower_loss", "upper_loss"):
                found = mixed(here._evaluated(function, x, y, z), tried[turn::2])
                if found is not None:
                    solves = " (torch.linalg.solve does so two derivatives deep; take torch.linalg.inv)"
                    raise InputError(
                        f"{self.name}: {function} {found.what}, and no clip bounds what one record moves then; write "
                        f"the loss of one record only, as a pure function of (x, y, features, label)"
                        f"{solves if found.term in MATRICES else ''}."
                    )

    def _evaluated(self, function: str, x: Array, y: Array, z: Array) -> Oracle:
        """Everything that is ever taken of one loss at one point: terms, matrices, and values."""
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
                    whole = asked(MATRICES, self.reads_records)
                    out |= rows_or_nan(self._matrices_of(whole, x, y, np.outer(z, x)), *chunk)
            return {name: to_numpy(part) for name, part in out.items()}

        return rows

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: LossRecords, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """Column by column from the directions. Here each record's matrix is formed: see `CELLS` for the memory."""
        names = asked(wanted, self.reads_records)
        if "lower_hessian_product" in names and matrix is None:
            raise ValueError("lower_hessian_product needs the matrix that it is a product with")
        if not names:
            return {}
        q = self.q
        shapes = {"lower_hessian": (q, q), "lower_jacobian": (self.p, q), "lower_hessian_product": (q, self.p)}
        sums = {name: np.zeros(shapes[name]) for name in names}
        width = self.n_features + (q if set(names) != {"lower_hessian_product"} else self.p) * (self.p + q)
        with losses_on(self.device):
            oracle = self._matrices_of(names, x, y, matrix)
            for features, labels in self._chunks(train, width):
                for name, rows in rows_or_nan(oracle, features, labels).items():
                    flat = to_numpy(rows).reshape(len(rows), -1)
                    bound = clip.bound(CLIP_OF_TERM[MATRICES[name]])
                    sums[name] += clipped_sum(flat, bound, clip.norm).reshape(shapes[name])
        return {name: total / max(len(train.features), 1) for name, total in sums.items()}

    def _matrices_of(
        self, names: Collection[str], x: Array, y: Array, matrix: Array | None
    ) -> Callable[..., Mapping[str, Tensor]]:
        """Features and labels of records → their matrices, not clipped."""
        from torch.func import vmap

        product = "lower_hessian_product" in names and matrix is not None
        wanted = [name for name in names if name != "lower_hessian_product" or product]

        def per_record(x: Tensor, y: Tensor, units: Tensor, along: Tensor, *record: Tensor) -> dict[str, Tensor]:
            out = {}
            if product:
                out["lower_hessian_product"] = columns(self.lower_loss, self.forward, x, y, along, *record).hvp
            if len(names) > len(out):
                whole = columns(self.lower_loss, self.forward, x, y, units, *record)
                out |= {"lower_hessian": whole.hvp, "lower_jacobian": whole.jvp}
            return {name: out[name] for name in wanted}

        in_dims = (None, None, None, None, 0, 0)
        oracle = self._once(("matrices", *wanted), lambda: vmap(per_record, in_dims=in_dims))
        along = np.zeros((self.q, 0)) if matrix is None else matrix
        return partial(oracle, *(tensor(a, self.device) for a in (x, y, np.eye(self.q), along)))

    def _chunks(self, records: LossRecords, width: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The records as tensors, so many at a time that `CELLS` numbers hold `width` for each."""
        for part in slices(len(records.features), width, self.device):
            features, labels = (tensor(a[part], self.device) for a in records)
            yield features, labels if self.classes is None else labels.long()

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """∇_y R, ∇²_yy R·z and ∇²_xy R·z per row; zero without a regulariser, NaN where it raises."""
        out = Regulariser(np.zeros_like(y), np.zeros_like(y), np.zeros_like(x))
        if self.penalty is not None:
            from torch.func import vmap

            penalty, forward = self.penalty, self.forward
            rows = self._once(("penalty slopes",), lambda: vmap(lambda *r: directions(penalty, forward, *r)._asdict()))
            with losses_on(self.device):
                _add_rows(out, lambda *r: _numbers(rows(*r)), (x, y, z), self.p + 2 * self.q, self.device)
        return out

    def regulariser_value(self, x: Array, y: Array) -> Array:
        """R(x, y) per row; NaN where it raises."""
        out = np.zeros(len(x))
        if self.penalty is not None:
            from torch.func import vmap

            penalty = self.penalty
            rows = self._once(("penalty",), lambda: vmap(lambda *r: {"value": penalty(*r)}))
            with losses_on(self.device):
                _add_rows([out], lambda *r: _numbers(rows(*r)), (x, y), self.p + 2 * self.q, self.device)
        return out

    def losses(self, x: Array, y: Array, records: LossRecords, weights: Array) -> tuple[Array, Array]:
        """Weighted means of (l, h) per row; NaN where a loss raises. A record of weight zero is not evaluated."""

        def both(x: Tensor, y: Tensor, *record: Tensor) -> dict[str, Tensor]:
            return {"lower": self.lower_loss(x, y, *record), "upper": self.upper_loss(x, y, *record)}

        lower, upper = (np.zeros(len(x)) for _ in range(2))
        grid = self._once(("losses",), lambda: over_grid(both, 2))
        self._average([lower, upper], grid, (x, y), records, weights)
        return lower, upper

    def accuracy(self, x: Array, y: Array, records: LossRecords) -> Array | None:
        """Share of records that `predict` gets right, (b,): by its largest class score, its label, or its sign.

        A score is right if it is positive exactly where the label is: labels {−1, +1} and {0, 1} both fit. Where k
        scores tie, each counts 1/k; a score of zero counts half.
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
        grid = self._once(("accuracy",), lambda: over_grid(right, 1))
        self._average([out], grid, (y,), records, np.full(n, 1.0 / n))
        return out

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
        width, done = self.n_features + self.p + self.q, 0
        with losses_on(self.device):
            for chunk in self._chunks(records, width):
                weight = weights[done : done + len(chunk[0])]
                done += len(weight)

                def weighed(*some: Tensor, chunk: tuple[Tensor, Tensor] = chunk, weight: Array = weight) -> list[Array]:
                    return [v @ weight for v in _numbers(grid(*some, *chunk))]

                _add_rows(out, weighed, rows, width * len(weight), self.device)

    def constants(self, box: Mapping[str, float], radius: float | None) -> LipschitzConstants | None:
        """What the user declared, labelled so; nothing is derived from the losses."""
        return self.declared


def _numbers(tensors: Mapping[str, Tensor]) -> list[Array]:
    return [to_numpy(t) for t in tensors.values()]


def slices(n: int, width: int, device: str = "cpu") -> Iterator[slice]:
    """0 … n in parts of so many that `CELLS` numbers hold `width` for each, and at least one; more on a device."""
    step = max(1, CELLS * _TIMES[device] // width)
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def _add_rows(
    out: Sequence[Array], fn: Callable[..., Sequence[Array]], rows: Sequence[Array], width: int, device: str
) -> None:
    """out[part] += fn(rows[part]), part by part. Where `fn` raises, its rows are tried one by one and become NaN."""
    for part in slices(len(rows[0]), width, device):
        some = [r[part] for r in rows]
        try:
            values = fn(*(tensor(r, device) for r in some))
        except USER_ERRORS as error:
            if is_of_device(error):
                raise
            if len(some[0]) > 1:
                _add_rows([o[part] for o in out], fn, some, CELLS * _TIMES[device], device)
                continue
            values = [np.asarray(np.nan)] * len(out)
        for total, value in zip(out, values, strict=True):
            total[part] += value
