"""ε(δ) from the laws of privacy losses, rounded toward less: what releases show at the least.

The losses of independent releases add up. Each is rounded down to one grid, their sum is found by Fourier transforms,
and whatever is cut off is taken for nothing, so that δ(ε) is never overstated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from decentral_dp.bounded import Array

# Cells of the grid that the sum of losses lies on.
_CELLS = 2**18
# More moves than this that differ are rounded down to these steps of their logarithms.
_MOVES, _STEP = 64, 0.02
# Beyond so many deviations a normal variable is never found: with probability 1e-19.
_FAR = 9.0


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
    steps = np.maximum(np.floor(_few(moves) / width), 0.0).astype(np.int64)
    steps, counts = np.unique(steps[steps > 0], return_counts=True)
    laws = [_laplace_loss(int(cells), width) for cells in steps]
    return _composed(laws, counts, width, delta)


def mixture_epsilon(moves: Array, rates: Array, delta: float) -> float:
    """Compute ε(δ) of Gaussian releases on samples, from below.

    Release i moves by m_i deviations if the record is in the sample, with probability q_i, and by −m_i in the other
    world:

        P = (1 − q)N(0, 1) + qN(m, 1),    Q = (1 − q)N(0, 1) + qN(−m, 1)

    Args:
        moves: (n,) m_i > 0.
        rates: (n,) q_i.
        delta: δ > 0.

    Returns:
        The ε that holds at δ, or less.
    """
    kinds, counts = np.unique(np.stack([_few(moves), rates]), axis=1, return_counts=True)
    tops, means, squares = (np.zeros(counts.size) for _ in range(3))
    for k, (m, q) in enumerate(kinds.T):
        at = np.linspace(-_FAR, m + _FAR, 20_001)
        loss, law = _mixture_loss(at, m, q), _mixture_density(at, m, q)
        law /= law.sum()
        tops[k], means[k] = loss[-1], law @ loss
        squares[k] = law @ (loss - means[k]) ** 2
    reach = min(float(counts @ tops), float(counts @ means + _FAR * np.sqrt(counts @ squares) + tops.max()))
    width = 2.0 * reach / (_CELLS // 2)
    laws = [_mixture_law(m, q, top, width) for (m, q), top in zip(kinds.T, tops, strict=True)]
    return _composed(laws, counts, width, delta)


def _few(moves: Array) -> Array:
    """A release that moves less is a coarser view of one that moves more, so that moves may be rounded down."""
    if np.unique(moves).size <= _MOVES:
        return moves
    return np.asarray(np.exp(_STEP * np.floor(np.log(moves) / _STEP)))


def _composed(laws: list[Array], counts: NDArray[np.int64], width: float, delta: float) -> float:
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


def _mixture_law(move: float, rate: float, top: float, width: float) -> Array:
    """(_CELLS,) the same of one release on a sample; top: the largest loss that counts."""
    cells = int(top / width)
    edges = np.arange(-cells, cells + 1) * width
    # docs/proofs/11: where the loss, which grows with the outcome τ, is at an edge.
    inside = (1.0 - rate) * np.sinh(0.5 * edges) * np.exp(0.5 * move**2) / rate
    at = (0.5 * edges + np.arcsinh(inside)) / move
    above = (1.0 - rate) * ndtr(-at) + rate * ndtr(move - at)
    return _on_grid(above, cells)


def _mixture_loss(at: Array, move: float, rate: float) -> Array:
    up, down = (rate * np.exp(sign * move * at - 0.5 * move**2) for sign in (1.0, -1.0))
    return np.asarray(np.log1p(up - rate) - np.log1p(down - rate))


def _mixture_density(at: Array, move: float, rate: float) -> Array:
    return np.asarray((1.0 - rate) * np.exp(-0.5 * at**2) + rate * np.exp(-0.5 * (at - move) ** 2))


def _on_grid(above: Array, cells: int) -> Array:
    """above: (2·cells + 1,) P(loss ≥ edge) at −cells … cells. Negative losses stand at the end."""
    law = np.zeros(_CELLS)
    law[np.arange(-cells, cells + 1)] = above - np.append(above[1:], 0.0)
    return law
