"""Regularised exponential mechanisms: Gaussian privacy for scores whose gradient, not range, moves little.

    density ∝ e^{−k·(Φ(x) + (μ_r/2)|x − x₀|²)} on a public box

If Φ of every dataset is convex up to `curvature` (Φ − (curvature/2)|x|² convex; −ρ for ρ-weakly convex), and one record
moves ∇Φ by at most S anywhere on the box, a draw is a Gaussian pair with

    μ = S·√(k/(μ_r + curvature))           (Gopi, Lee & Liu, COLT 2022, Theorem 4.1)

The theorem is about exact Φ and a continuum. What is drawn is the law of a grid of 2^40 positions along each axis. It
is the continuous one, rounded, but for an error e in its log-density: a position against its cell, the rounding of the
score, and what it is inexact by. So the price is (ε + 4e, e^{2e}δ), with e known beforehand. A coarse grid is *not*
nearly Gaussian.

`draw_regularised` proposes from a Gaussian below the tangent at any point near the minimum, in any dimension: exact
discrete Gaussians, a geometric tail where the centre lies outside the box, and an exact acceptance, all by integers.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central.exponential_samplers import DEPTH, Box, Score, score_unit, units
from decentral_dp.central.integer_samplers import (
    bernoulli_exp,
    discrete_gaussian,
    draw_geometric,
    uniform_integer,
)
from decentral_dp.errors import InputError

_POSITIONS = 1 << DEPTH


class RegularisedLaw(NamedTuple):
    """What is declared of a score Φ, for every dataset, and how it is regularised.

    box: public. rate: k. strength, anchor: μ_r and x₀ (d,). sensitivity: S, the largest change of ∇Φ on the box.
    lipschitz: of Φ on the box. curvature: as above. inexact: bound on |score computed − Φ|. gradient_error: likewise
    for the gradient, l2; used for speed alone.
    """

    box: Box
    rate: float
    strength: float
    anchor: Array
    sensitivity: float
    lipschitz: float
    curvature: float = 0.0
    inexact: float = 0.0
    gradient_error: float = 0.0

    @property
    def unit(self) -> float:
        return score_unit(1.0 / self.rate)

    def farthest(self) -> float:
        """The largest distance of the box from the anchor."""
        return float(np.linalg.norm(np.maximum(self.box.high - self.anchor, self.anchor - self.box.low)))

    def whole_lipschitz(self) -> float:
        return self.lipschitz + self.strength * self.farthest()

    def whole_inexact(self) -> float:
        """With what float64 adds to the regulariser."""
        return self.inexact + self.strength * self.farthest() ** 2 * 2.0**-50

    def error(self) -> float:
        """e: sup |log of the law drawn − log of the continuous one in that cell|, before normalisation."""
        sensitivity = self.whole_lipschitz() * (0.5 * self.box.diameter * 2.0**-DEPTH + self.box.slack())
        return self.rate * (sensitivity + self.whole_inexact() + 0.5 * self.unit)

    def regularise(self, score: Score) -> Score:
        """Φ + (μ_r/2)|x − x₀|², (n, d) → (n,)."""

        def regularised_score(points: Array) -> Array:
            return np.asarray(score(points) + 0.5 * self.strength * ((points - self.anchor) ** 2).sum(axis=1))

        return regularised_score


def draw_regularised(
    generator: np.random.Generator,
    declared: RegularisedLaw,
    score: Score,
    gradient: Callable[[Array], Array],
    near: Array,
    *,
    envelope: float | None = None,
) -> Array:
    """Draw a point (d,) by rejection from the Gaussian that touches Φ + regulariser at `near`.

    Args:
        generator: of random bits.
        declared: what holds of Φ for every dataset, and its regulariser.
        score: Φ, (n, d) → (n,).
        gradient: of Φ, (d,) → (d,).
        near: (d,), a point near the minimum of Φ + regulariser.
        envelope: a lower bound on the curvature of this dataset's Φ, if one better than the declared one is known.

    Raises:
        InputError: a curvature that no regulariser of this strength makes positive.

    Limits:
        near, gradient and envelope change how long a draw takes, not its law. One proposal in about
        ((μ_r + smoothness)/(μ_r + curvature))^{d/2} is accepted.
    """
    if not declared.strength + declared.curvature > 0.0:
        raise InputError(f"strength + curvature: got {declared.strength + declared.curvature:g}, wanted above 0.")
    proposal = _touching(declared, score, gradient, near, declared.curvature if envelope is None else envelope)
    whole, box = declared.regularise(score), declared.box
    rate = Fraction(declared.rate) * Fraction(declared.unit)
    while True:
        numbers = [_on_axis(generator, a, m) for a, m in zip(proposal.precisions, proposal.centre, strict=True)]
        point = box.centres(np.array([numbers], dtype=np.int64), DEPTH)
        height = rate * int(units(whole(point), declared.unit)[0])
        squares = zip(proposal.precisions, numbers, proposal.centre, strict=True)
        gamma = height - sum((a * (n - m) ** 2 for a, n, m in squares), Fraction(0)) / 2 - proposal.floor
        # Below 0 only if a declared constant is wrong.
        if bernoulli_exp(generator, max(gamma, Fraction(0))):
            return np.asarray(point[0])


def quadratic(generator: np.random.Generator, declared: RegularisedLaw, hessian: Array, linear: Array) -> Array:
    """Draw a point (d,) from a truncated Gaussian: `draw_regularised` for Φ(x) = x'Hx/2 − b'x.

    One proposal in √(Π_i (λ_min + μ_r)/(λ_i + μ_r)) is accepted inside the box, λ the eigenvalues of H.

    Args:
        generator: of random bits.
        declared: as of `draw_regularised`; `inexact` has to cover the float64 evaluation of Φ.
        hessian: H, (d, d).
        linear: b, (d,).
    """
    eigenvalues = np.linalg.eigvalsh(hessian)
    least = float(eigenvalues[0]) - 1e-9 * float(np.abs(eigenvalues).max())
    ridge = declared.strength * np.eye(len(linear))
    near = np.asarray(np.linalg.solve(hessian + ridge, linear + declared.strength * declared.anchor), dtype=np.float64)
    return draw_regularised(
        generator,
        declared,
        lambda x: np.asarray(0.5 * np.einsum("ni,ij,nj->n", x, hessian, x) - x @ linear),
        lambda x: np.asarray(hessian @ x - linear),
        near,
        envelope=max(declared.curvature, least),
    )


class _Proposal(NamedTuple):
    """precisions: a of e^{−a(j − centre)²/2} along each axis. floor: of rate·score minus the proposal's exponent."""

    precisions: tuple[Fraction, ...]
    centre: tuple[int, ...]
    floor: Fraction


def _touching(
    declared: RegularisedLaw, score: Score, gradient: Callable[[Array], Array], near: Array, curvature: float
) -> _Proposal:
    """The Gaussian proposal whose exponent lies below k·(Φ + regulariser) by at least `floor` on the whole box.

    F(x) ≥ F(y) + ⟨∇F(y), x − y⟩ + (κ/2)|x − y|² for κ = μ_r + curvature; the right side minus (κ/2)|x − m|² is affine
    in x, with the gradient ∇F(y) − κ(y − m), which vanishes but for rounding where m = y − ∇F(y)/κ is put on the grid.
    """
    box, kappa = declared.box, declared.strength + curvature
    y = np.clip(near, box.low, box.high)
    slope = gradient(y) + declared.strength * (y - declared.anchor)
    step = box.sides * 2.0**-DEPTH
    centre = np.rint((y - slope / kappa - box.low) / step - 0.5)
    m = box.low + step * (centre + 0.5)
    value, square = float(declared.regularise(score)(y[None])[0]), kappa * float((y - m) @ (y - m))
    tilt = float(np.linalg.norm(slope - kappa * (y - m))) + 1e-12 * float(np.linalg.norm(slope))
    lost = (tilt + declared.gradient_error) * box.diameter + 2.0 * declared.whole_inexact() + declared.unit
    lost += 2.0 * declared.whole_lipschitz() * box.slack() + 1e-12 * (abs(value) + square)
    floor = declared.rate * (value - 0.5 * square - lost)
    precisions = tuple(Fraction(float(a) * (1.0 - 1e-12)) for a in declared.rate * kappa * step**2)
    return _Proposal(precisions, tuple(int(c) for c in centre), Fraction(floor))


def _on_axis(generator: np.random.Generator, precision: Fraction, centre: int) -> int:
    """j in [0, 2^40) with probability proportional to e^{−precision·(j − centre)²/2}, exactly."""
    last = _POSITIONS - 1
    if centre > last:
        return last - _on_axis(generator, precision, last - centre)
    outside = max(0, -centre)
    farthest = max(last - centre, centre)
    spread = precision * (farthest**2 - outside**2) / 2
    deviation = isqrt(int(1 / precision))
    while True:
        if spread <= 2:
            j = uniform_integer(generator, _POSITIONS)
            accepted = bernoulli_exp(generator, precision * ((j - centre) ** 2 - outside**2) / 2)
        elif outside <= deviation:
            j = centre + discrete_gaussian(generator, precision)
            accepted = 0 <= j <= last
        else:
            j = draw_geometric(generator, precision * outside)
            accepted = j <= last and bernoulli_exp(generator, precision * j**2 / 2)
        if accepted:
            return j
