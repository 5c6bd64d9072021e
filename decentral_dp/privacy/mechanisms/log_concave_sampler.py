"""Regularised exponential mechanisms: Gaussian privacy for scores whose gradient, not range, moves little.

    density ∝ e^{−k·(Φ(x) + (μ_r/2)|x − x₀|²)} on a public box

If Φ of every dataset is convex up to `curvature` (Φ − (curvature/2)|x|² convex; −ρ for ρ-weakly convex), and one record
moves ∇Φ by at most S anywhere on the box, a draw is a Gaussian pair with

    μ = S·√(k/(μ_r + curvature))           (Gopi, Lee & Liu, COLT 2022, Theorem 4.1)

The theorem is about exact Φ and a continuum. What is drawn is the law of a grid of 2^40 positions along each axis. It
is the continuous one, rounded, but for an error e in its log-density: a position against its cell, the rounding of the
score, and what it is inexact by. So the price is (ε + 4e, e^{2e}δ), with e known beforehand. A coarse grid is *not*
nearly Gaussian.

`regularised` proposes from a Gaussian below the tangent at any point near the minimum, in any dimension: exact discrete
Gaussians, a geometric tail where the centre lies outside the box, and an exact acceptance, all by integers.
`regularised_by_cells` needs no tangent, but at most three dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import exp, isqrt, sqrt
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import box_sampler
from decentral_dp.privacy.mechanisms.box_sampler import DEPTH, Box, Score, Target
from decentral_dp.privacy.mechanisms.finite_sampler import (
    Drawn,
    Guarantee,
    not_negative,
    perturbed,
    positive,
    score_unit,
    units,
    with_restarts,
)
from decentral_dp.privacy.mechanisms.integer_samplers import below, bernoulli_exp, discrete_gaussian, geometric

_POSITIONS = 1 << DEPTH


class Regularised(NamedTuple):
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

    def whole(self, score: Score) -> Score:
        """Φ + (μ_r/2)|x − x₀|², (n, d) → (n,)."""

        def scored(points: Array) -> Array:
            return np.asarray(score(points) + 0.5 * self.strength * ((points - self.anchor) ** 2).sum(axis=1))

        return scored

    def mu(self) -> float:
        """μ of the Gaussian pair that bounds a draw from the continuous law."""
        return self.sensitivity * sqrt(self.rate / (self.strength + self.curvature))

    def guarantee(self, delta: float) -> Guarantee:
        """(ε, δ) of a draw from the grid, δ as given. Raises InputError for what can have no price."""
        _check(self, delta)
        left = delta * exp(-2.0 * self.error())
        why = (
            f"Exact rejection by integers; a Gaussian pair with μ = {self.mu():.6g} if the score of every dataset has "
            "the declared curvature, gradient sensitivity, Lipschitz constant and accuracy on the whole box."
        )
        priced = perturbed(Guarantee(_pair_epsilon(self.mu(), left), left, True, why), self.error())
        return replace(priced, delta=delta)


@lru_cache(maxsize=64)
def _pair_epsilon(mu: float, delta: float) -> float:
    """What every draw of one declared score is priced by, found once."""
    return float(gaussian_epsilon(mu, delta))


def rate_for(mu: float, sensitivity: float, strength: float, curvature: float = 0.0) -> float:
    """Compute k = (μ_r + curvature)·μ²/S², which makes a draw a Gaussian pair with this μ.

    Args:
        mu: μ.
        sensitivity: S, the largest change of ∇Φ on the box.
        strength: μ_r.
        curvature: Φ of every dataset is convex up to it; default 0.

    Raises:
        InputError: μ, S or μ_r + curvature that is not a finite number above 0.
    """
    positive("mu", mu)
    positive("sensitivity", sensitivity)
    positive("strength + curvature", strength + curvature)
    return (strength + curvature) * mu**2 / sensitivity**2


def regularised(
    generator: np.random.Generator,
    declared: Regularised,
    score: Score,
    gradient: Callable[[Array], Array],
    near: Array,
    delta: float,
    *,
    envelope: float | None = None,
    cap: tuple[int, float] | None = None,
) -> Drawn[Array]:
    """Draw a point by rejection from the Gaussian that touches Φ + regulariser at `near`.

    Args:
        generator: of random bits.
        declared: what holds of Φ for every dataset, and its regulariser.
        score: Φ, (n, d) → (n,).
        gradient: of Φ, (d,) → (d,).
        near: (d,), a point near the minimum of Φ + regulariser.
        delta: δ of the guarantee, without the loss of a cap.
        envelope: a lower bound on the curvature of this dataset's Φ, if one better than the declared one is known.
        cap: the most proposals, and a proven public lower bound on the acceptance of one, about
            ((μ_r + curvature)/(μ_r + smoothness))^{d/2}. Its loss is added to δ. By default there is none.

    Returns:
        A point (d,) with its guarantee.

    Raises:
        InputError: what is no box, or no price.

    Limits:
        near, gradient and envelope change how long a draw takes, not its law.
    """
    guarantee = declared.guarantee(delta)
    if cap is not None:
        guarantee = with_restarts(guarantee, cap[1], cap[0])
    proposal = _touching(declared, score, gradient, near, declared.curvature if envelope is None else envelope)
    whole, box = declared.whole(score), declared.box
    rate, proposals = Fraction(declared.rate) * Fraction(declared.unit), 0
    while cap is None or proposals < cap[0]:
        proposals += 1
        numbers = [_on_axis(generator, a, m) for a, m in zip(proposal.precisions, proposal.centre, strict=True)]
        point = box.centres(np.array([numbers], dtype=np.int64), DEPTH)
        height = rate * int(units(whole(point), declared.unit)[0])
        squares = zip(proposal.precisions, numbers, proposal.centre, strict=True)
        gamma = height - sum((a * (n - m) ** 2 for a, n, m in squares), Fraction(0)) / 2 - proposal.floor
        # Below 0 only if a declared constant is wrong.
        if bernoulli_exp(generator, max(gamma, Fraction(0))):
            return Drawn(point[0], guarantee, proposals)
    numbers = [below(generator, _POSITIONS) for _ in box.low]
    return Drawn(box.centres(np.array([numbers], dtype=np.int64), DEPTH)[0], guarantee, proposals)


def quadratic(
    generator: np.random.Generator,
    declared: Regularised,
    hessian: Array,
    linear: Array,
    delta: float,
    *,
    cap: tuple[int, float] | None = None,
) -> Drawn[Array]:
    """Draw from a truncated Gaussian: `regularised` for Φ(x) = x'Hx/2 − b'x.

    One proposal in √(Π_i (λ_min + μ_r)/(λ_i + μ_r)) is accepted inside the box, λ the eigenvalues of H.

    Args:
        generator: of random bits.
        declared: as of `regularised`; `inexact` has to cover the float64 evaluation of Φ.
        hessian: H, (d, d).
        linear: b, (d,).
        delta: as of `regularised`.
        cap: as of `regularised`.

    Returns:
        A point (d,) with its guarantee.
    """
    eigenvalues = np.linalg.eigvalsh(hessian)
    least = float(eigenvalues[0]) - 1e-9 * float(np.abs(eigenvalues).max())
    ridge = declared.strength * np.eye(len(linear))
    near = np.asarray(np.linalg.solve(hessian + ridge, linear + declared.strength * declared.anchor), dtype=np.float64)
    return regularised(
        generator,
        declared,
        lambda x: np.asarray(0.5 * np.einsum("ni,ij,nj->n", x, hessian, x) - x @ linear),
        lambda x: np.asarray(hessian @ x - linear),
        near,
        delta,
        envelope=max(declared.curvature, least),
        cap=cap,
    )


def regularised_by_cells(
    generator: np.random.Generator,
    declared: Regularised,
    score: Score,
    delta: float,
    *,
    restarts: int | None = None,
) -> Drawn[Array]:
    """Draw a point, d ≤ 3, of the same law as `regularised`, by cells.

    Args:
        generator, declared, score, delta: as of `regularised`.
        restarts: cap on the number of proposals; default none.

    Returns:
        A point (d,) with its guarantee.
    """
    guarantee = declared.guarantee(delta)
    target = Target(
        declared.whole(score),
        declared.box,
        Fraction(declared.rate),
        declared.unit,
        declared.whole_lipschitz(),
        declared.whole_inexact(),
    )
    return box_sampler.draw(generator, target, guarantee, restarts)


class _Proposal(NamedTuple):
    """precisions: a of e^{−a(j − centre)²/2} along each axis. floor: of rate·score minus the proposal's exponent."""

    precisions: tuple[Fraction, ...]
    centre: tuple[int, ...]
    floor: Fraction


def _touching(
    declared: Regularised, score: Score, gradient: Callable[[Array], Array], near: Array, curvature: float
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
    value, square = float(declared.whole(score)(y[None])[0]), kappa * float((y - m) @ (y - m))
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
            j = below(generator, _POSITIONS)
            accepted = bernoulli_exp(generator, precision * ((j - centre) ** 2 - outside**2) / 2)
        elif outside <= deviation:
            j = centre + discrete_gaussian(generator, precision)
            accepted = 0 <= j <= last
        else:
            j = geometric(generator, precision * outside)
            accepted = j <= last and bernoulli_exp(generator, precision * j**2 / 2)
        if accepted:
            return j


def _check(declared: Regularised, delta: float) -> None:
    box_sampler.check_box(declared.box)
    positive("rate", declared.rate)
    positive("strength + curvature", declared.strength + declared.curvature)
    not_negative("strength", declared.strength)
    positive("sensitivity", declared.sensitivity)
    for name in ("lipschitz", "inexact", "gradient_error"):
        not_negative(name, getattr(declared, name))
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta: got {delta}, wanted a number between 0 and 1; a Gaussian pair has no pure price.")
