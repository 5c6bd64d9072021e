"""Laws of random choices, as probabilities of finitely many points, and ε(δ) from the laws of privacy losses.

An observer who knows all records computes both. ε(δ) is rounded toward less: what releases show at the least. The
losses of independent releases add up. Each is rounded down to one grid, their sum is found by Fourier transforms, and
whatever is cut off is taken for nothing, so that δ(ε) is never overstated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from decentral_dp.bounded import Array
from decentral_dp.central.selection import BoxExponential, FiniteExponential, RegularisedSelection, grid

# Cells of the grid that the sum of losses lies on.
_CELLS = 2**18
# More moves than this that differ are rounded down to these steps of their logarithms.
_MOVES, _STEP = 64, 0.02
# Beyond so many deviations a normal variable is never found: with probability 1e-19. The same of Laplace's scales.
_FAR, _FAR_LAPLACE = 9.0, 44.0
# Outcomes at which a loss is computed.
_OUTCOMES = 2**16
# Of a loss in float64, about 1e-14 at most.
_ROUNDING = 1e-12


def laplace_epsilon(moves: Array, delta: float) -> float:
    """Compute ε(δ) of independent Laplace releases, from below.

    Args:
        moves: (n,) how far each is moved, in scales.
        delta: δ ≥ 0.

    Returns:
        The ε that holds at δ, or less; the sum of all moves at δ = 0.
    """
    total = float(moves.sum())
    if delta == 0.0 or total == 0.0:
        return total
    # The loss has a mean of at most Σm²/2, and (Hoeffding) is farther than 9√Σm² above it with probability e^{−40}.
    squares = float((moves**2).sum())
    width = 2.0 * min(total, 0.5 * squares + 9.0 * float(np.sqrt(squares))) / (_CELLS // 2)
    steps = np.maximum(np.floor(_round_moves_down(moves) / width), 0.0).astype(np.int64)
    steps, counts = np.unique(steps[steps > 0], return_counts=True)
    laws = [_laplace_loss(int(cells), width) for cells in steps]
    return _compose(laws, counts, width, delta)


def mixture_epsilon(moves: Array, rates: Array, delta: float, laplace: NDArray[np.bool_] | None = None) -> float:
    """Compute ε(δ) of releases on samples, from below.

    Release i is moved up by u_i deviations (scales, of Laplace noise) if the record is in the sample, with probability
    q_i. In the other data set it is moved down by v_i. With noise of law N,

        P = (1 − q)N(0) + qN(u),    Q = (1 − q)N(0) + qN(−v),

    whose likelihood ratio does not fall with the outcome. It is worth more the larger u and v are, each by itself: the
    derivative of P(t, ∞) − e^ε Q(t, ∞) by either is q, or q·e^ε, times a density.

    Args:
        moves: (n, 2) u_i ≥ 0 and v_i ≥ 0.
        rates: (n,) q_i.
        delta: δ > 0.
        laplace: (n,) whether the noise is Laplace's; by default all is Gaussian.

    Returns:
        The ε that holds at δ, or less.
    """
    other = np.zeros(len(rates)) if laplace is None else laplace.astype(np.float64)
    columns = np.stack([_round_moves_down(moves[:, 0]), _round_moves_down(moves[:, 1]), rates, other])
    kinds, counts = np.unique(columns, axis=1, return_counts=True)
    # Made twice, for all together may not fit into memory.
    tops, means, squares = np.array([_Mixture.from_moves(*kind).moments() for kind in kinds.T]).T
    spread = counts @ means + _FAR * np.sqrt(counts @ squares) + tops.max()
    reach = min(float(counts @ tops), float(spread))
    if reach <= 0.0:
        return 0.0
    width = 2.0 * reach / (_CELLS // 2)
    laws = (_Mixture.from_moves(*kind).on_grid(top, width) for kind, top in zip(kinds.T, tops, strict=True))
    return _compose(laws, counts, width, delta)


def _round_moves_down(moves: Array) -> Array:
    """A release that moves less shows less, so that moves may be rounded down."""
    if np.unique(moves).size <= _MOVES:
        return moves
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(_STEP * np.floor(np.log(moves) / _STEP)))


def _compose(laws: Iterable[Array], counts: NDArray[np.int64], width: float, delta: float) -> float:
    """ε(δ) of the sum of losses, each of a law (_CELLS,) on the grid, so many times."""
    transform = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
    for law, count in zip(laws, counts, strict=True):
        # Powers of the transform sum as many equal losses. The grid is circular, and wide enough not to wrap.
        transform *= np.fft.rfft(law) ** int(count)
    law = np.maximum(np.fft.irfft(transform, _CELLS), 0.0)
    losses = np.where(np.arange(_CELLS) < _CELLS // 2, np.arange(_CELLS), np.arange(_CELLS) - _CELLS) * width
    # Rounding in the transforms, about 1e-16 a cell, must not pass for mass far out.
    law = np.where(law < 1e-14, 0.0, law)
    return least_epsilon(law, losses, delta)


def least_epsilon(law: Array, losses: Array, delta: float) -> float:
    """Compute the least ε ≥ 0 with Σ law·(1 − e^{ε − loss})₊ ≤ δ, by bisection.

    Args:
        law: (n,) probabilities.
        losses: (n,).
        delta: δ.

    Returns:
        ε, from below.
    """
    low, high = 0.0, max(0.0, float(losses.max()))
    for _ in range(60):
        middle = 0.5 * (low + high)
        spent = float((law * np.maximum(-np.expm1(np.minimum(middle - losses, 0.0)), 0.0)).sum())
        low, high = (middle, high) if spent > delta else (low, middle)
    return low


def _laplace_loss(cells: int, width: float) -> Array:
    """(_CELLS,) law of the loss of one Laplace release that moves by cells·width scales, rounded down to the grid."""
    move = cells * width
    # P(loss ≥ l) for −move ≤ l ≤ move: the noise n is at most (move − l)/2, which has a Laplace law.
    edges = np.arange(-cells, cells + 1) * width
    at = 0.5 * (move - edges)
    above = np.where(edges <= -move, 1.0, 1.0 - 0.5 * np.exp(-at))
    return _on_grid(above, cells)


class _Mixture(NamedTuple):
    """loss: (_OUTCOMES,) privacy losses of ascending outcomes. survival: (_OUTCOMES,) P(an outcome is at least it)."""

    loss: Array
    survival: Array

    @classmethod
    def from_moves(cls, up: float, down: float, rate: float, laplace: float) -> _Mixture:
        """laplace: above 0, if that is the noise."""
        far = _FAR_LAPLACE if laplace else _FAR
        at = np.linspace(-down - far, up + far, _OUTCOMES)
        at_least = stats.laplace.sf if laplace else stats.norm.sf
        ratios = [np.abs(at) - np.abs(at - move) if laplace else move * at - 0.5 * move * move for move in (up, -down)]
        left_out = np.log1p(-rate) if rate < 1.0 else -np.inf
        first, second = (np.logaddexp(left_out, np.log(rate) + ratio) for ratio in ratios)
        # Where the ratio is flat, float64 may let it fall: what is taken off is more than that.
        return cls(first - second - _ROUNDING, (1.0 - rate) * at_least(at) + rate * at_least(at - up))

    def moments(self) -> tuple[float, float, float]:
        """The largest loss that counts, the mean, and the variance."""
        law = self.survival - np.append(self.survival[1:], 0.0)
        mean = float(law @ self.loss)
        return max(0.0, float(self.loss[-1])), mean, float(law @ (self.loss - mean) ** 2)

    def on_grid(self, top: float, width: float) -> Array:
        """(_CELLS,) law of the loss, rounded down to the grid; top: the largest loss that counts."""
        cells = int(top / width)
        edges = np.arange(-cells, cells + 1) * width
        # The first outcome on the list whose loss reaches the edge: all beyond it do.
        first = np.searchsorted(np.maximum.accumulate(self.loss), edges)
        return _on_grid(np.append(self.survival, 0.0)[first], cells)


def _on_grid(above: Array, cells: int) -> Array:
    """above: (2·cells + 1,) P(loss ≥ edge) at −cells … cells. Negative losses stand at the end."""
    law = np.zeros(_CELLS)
    law[np.arange(-cells, cells + 1)] = above - np.append(above[1:], 0.0)
    return law


# Cells along each axis of a box, by the number of its axes.
_BOX_CELLS = (4096, 128, 24)


class Law(NamedTuple):
    """points: (n, p), of a box the middles of equal cells. logs: (n,) the logarithms of their probabilities."""

    points: Array
    logs: Array

    def log_at(self, value: Array) -> float:
        """The log-probability of the point that is nearest to a value (d,)."""
        return float(self.logs[int(np.argmin(((self.points - value) ** 2).sum(axis=1)))])

    def place_of(self, value: Array, toss: float) -> float:
        """Where the value (d,) lies in the law's order: uniform on [0, 1] if drawn from it. toss: in its step."""
        at = int(np.argmin(((self.points - value) ** 2).sum(axis=1)))
        weights = np.exp(self.logs)
        return float(weights[:at].sum() + toss * weights[at])


def law_of_choice(choice: Any, scale: float) -> Law | None:
    """Compute the law of a random choice, on points.

    Args:
        choice: a selection mechanism with its score.
        scale: of the score.

    Returns:
        The law; None where nothing is chosen at random, or no law is known, as of a walk that stops early.

    Limits:
        Of a box the density is taken at the middle of each cell.
    """
    if not scale > 0.0:
        return None
    if isinstance(choice, FiniteExponential):
        scores = choice.score(choice.points)
        unit = choice.facts.unit
        return _law(choice.points, -np.rint((scores - scores.min()) / unit) * unit / scale)
    if isinstance(choice, BoxExponential) and len(choice.box.low) <= len(_BOX_CELLS):
        points = _middles(choice.box.low, choice.box.high)
        return _law(points, -choice.score(points) / scale)
    if isinstance(choice, RegularisedSelection) and choice.width <= len(_BOX_CELLS):
        declared = choice.facts.regularise(scale)
        points = _middles(declared.box.low, declared.box.high)
        return _law(points, -declared.rate * declared.regularise(choice.scores)(points))
    return None


def _middles(low: Array, high: Array) -> Array:
    cells = _BOX_CELLS[len(low) - 1]
    half = 0.5 * (high - low) / cells
    return grid(low + half, high - half, cells)


def _law(points: Array, logs: Array) -> Law:
    top = logs - logs.max()
    return Law(points, top - np.log(np.exp(top).sum()))


def choice_epsilon(first: Array, second: Array, delta: float) -> float:
    """Compute the least ε for which two laws are (ε, δ) apart in both directions.

    Args:
        first: (n,) log-probabilities.
        second: (n,) the same of the other law.
        delta: δ ≥ 0.

    Returns:
        ε ≥ 0.
    """
    return max(_one_sided_epsilon(first, second, delta), _one_sided_epsilon(second, first, delta))


def _one_sided_epsilon(first: Array, second: Array, delta: float) -> float:
    loss = first - second
    return max(0.0, float(loss.max())) if delta == 0.0 else least_epsilon(np.exp(first), loss, delta)
