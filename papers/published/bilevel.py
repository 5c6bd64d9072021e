"""Bilevel algorithms of a trusted coordinator as published.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, except
for `PublishedDpBilevel`.
"""

from __future__ import annotations

import math
from typing import Self, final

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel import (
    dp_bilevel,
    exponential_mechanism,
    second_order_dp_bilevel,
)
from decentral_dp.central.vocabulary import Calibration
from decentral_dp.constants import ProblemConstants
from papers.published import grid_walk
from papers.published.calibration import Noise, one_draw, published_noise, smaller_count


@final
class PublishedSecondOrder(second_order_dp_bilevel.SecondOrder):
    """The fields and steps of `SecondOrder`, with the published noise, which needs a bounded domain.

    σ = 32K√(T log(1/δ))/(nε), with n the smaller number of records of the two splits and K of the whole domain.

    Reference: A. Lowy and D. Liu, 2025: Algorithm 1, Theorem 4.2.
    """

    protocol = "as_published"
    claim = "Theorem 4.2 of Lowy & Liu (2025), as published"

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        resolved = super().resolve_defaults(context)
        context.domain.require_compact("the published noise")
        return resolved

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        bounds, (low, high) = context.pooled_bounds, context.domain.corners(context.problem.p)
        k = published_k(bounds.family.constants(low, high))
        scale = 32.0 * k * np.sqrt(rounds * np.log(1.0 / delta)) / (smaller_count(context) * epsilon)
        slack = 2.0 * bounds.gradient_error(low, high)
        sensitivity = {split: np.full(rounds, s + slack) for split, s in bounds.gradient_sensitivity(low, high).items()}
        return {"gx": Calibration(np.full(rounds, scale), sensitivity)}


@final
class PublishedDpBilevel(dp_bilevel.DpBilevel):
    """The fields and steps of `DpBilevel`, with the published noise.

    Each of the three releases of a round has (ε/√(18T), δ/(3(T+1))), as in Algorithm 1, by Lemma 15, and by Lemma 14
    for the inner descents. For Gaussian noise this is conservative: by exact composition, the true ε is 0.2 to 0.4 for
    a claimed ε = 1, and smaller if solvers take many steps.

    Reference: G. Kornowski, "Differentially Private Bilevel Optimization", 2024, Theorems 4 and 11.
    """

    protocol = "as_published"
    claim = "Theorems 4 and 11 of Kornowski (2024), as published"

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        """Compute the noise of Lemma 15 at (ε/√(18T), δ/(3(T+1))), with the sensitivities of full batches (Theorem 11).

        Raises:
            InputError: the solver needs unclipped records.
        """
        if self.needs_records:
            raise dp.InputError('algorithm.solver: the paper solves the lower level step by step; take "dp_gd".')
        each = epsilon / math.sqrt(18.0 * rounds), delta / (3.0 * (rounds + 1.0))
        inner, width = self._solver, context.problem.q
        below = {"lower_grad_y": 1.0}
        above = {"lower_grad_y": 1.0, "upper_grad_y": 1.0 / self._penalised_objective.penalty}
        out = {
            channel: published_noise(context, factors, width, self.rate, rounds, inner.publishes, each)
            for channel, factors in (("y", below), ("pulled", above))
            if any(context.reads(term) for term in factors)
        }
        if self.reads:
            factors = dict.fromkeys(self.step_terms(context), 1.0)
            out["gx"] = published_noise(context, factors, context.problem.p, self.rate, rounds, 1, each)
        return out


@final
class PublishedExponentialMechanism(exponential_mechanism.ExponentialMechanism):
    """The fields and steps of `ExponentialMechanism`, at the published scale.

    Probabilities ∝ exp(−ε Φ/(2s)), with s = (2/n)(L_fx D_x + L_fy D_y) + 4 L_fy L_gy/μ. The last term lacks a factor
    1/n, so the noise does not decrease with n. The factor ½ is not needed. The true ε is below the claim.

    Reference: A. Lowy and D. Liu, 2025, Equation 4.
    """

    protocol = "as_published"
    claim = "Equation 4 of Lowy & Liu (2025), as published"

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        return one_draw(self.law(context), equation_4_scale(context, epsilon))


def constants_of(context: dp.CoordinatorContext) -> ProblemConstants:
    """Return the constants of the whole domain."""
    bounds = context.pooled_bounds
    return bounds.family.constants(*context.domain.corners(context.problem.p))


def equation_4_scale(context: dp.CoordinatorContext, epsilon: float) -> float:
    """Compute 2s/ε with s of Equation 4."""
    width = (context.domain.high - context.domain.low) * math.sqrt(context.problem.p)
    return 2.0 * published_score(constants_of(context), smaller_count(context), width) / epsilon


@final
class PublishedRegularisedExponentialMechanism(exponential_mechanism.RegularisedExponentialMechanism):
    """The fields and steps of `RegularisedExponentialMechanism`, with S of Lemma B.6.

    Lemma B.6 gives S = 2G/n with G = L_fx + L_fy b_gxy/μ_g + L_gy b_fxy/μ_g. The exact curve of Theorem B.4 replaces
    "k = O(·)". The lemma is false, because it differentiates f(x, y_Z(x)) only in x. The ledger uses the proved S, and
    its ε exceeds the claim if the Hessians of records differ strongly.

    Reference: A. Lowy and D. Liu, 2025, Equation 5 and Lemma B.6.
    """

    protocol = "as_published"
    claim = "Equation 5 and Lemma B.6 of Lowy & Liu (2025), as published"

    def _sensitivity(self, context: dp.CoordinatorContext) -> float:
        """Compute S of Lemma B.6."""
        return published_lipschitz(constants_of(context), smaller_count(context))

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        return one_draw(self.law(context), self._sensitivity(context) / context.budget)


@final
class PublishedGradientNormMechanism(exponential_mechanism.GradientNormMechanism):
    """The fields and steps of `GradientNormMechanism`, at the published scale.

    Probabilities ∝ exp(−(ε/2G)‖∇Φ‖), G = L_fx + L_fy b_gxy/μ + L_gy b_fxy/μ. The paper bounds the sensitivity of ∇Φ by
    2G/n (Lemma B.6), which is false if the Hessians of records differ strongly. The formula also omits n, so the
    distribution is much too flat.

    Reference: A. Lowy and D. Liu, 2025, Appendix C.3.
    """

    protocol = "as_published"
    claim = "Appendix C.3 of Lowy & Liu (2025), as published"

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        # 2G is the published sensitivity for n = 1.
        return one_draw(self.law(context), published_lipschitz(constants_of(context), 1) / epsilon)


@final
class PublishedGridWalk(grid_walk.GridWalk):
    """The fields and steps of `GridWalk`, at the published scale.

    The scale is 2s/ε' of Equation 4 with ε' = ε/2. By Theorem B.15, the other half of ε covers the distance from the
    target distribution. No feasible number of steps has a known distance, so there is no certificate.

    Reference: A. Lowy and D. Liu, 2025, Appendix B.3.
    """

    protocol = "as_published"
    claim = "Theorem B.15 of Lowy & Liu (2025), as published"

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        law, scale = self.law(context), equation_4_scale(context, 0.5 * epsilon)
        law.check(scale)
        return one_draw(law, scale)


@final
class PublishedWarmStart(second_order_dp_bilevel.WarmStart):
    """The fields and steps of `WarmStart`, with the published noise.

    Each part has (ε/2, δ/2). The start uses Equation 4, whose s does not decrease with n. The steps use
    σ = 32 K√(T log(1/δ))/(nε) with K of Equation 12 for the whole domain, which is valid but up to thousands of times
    too large.

    Reference: A. Lowy and D. Liu, 2025, Algorithm 2.
    """

    protocol = "as_published"
    claim = "Theorem 4.3 of Lowy & Liu (2025), as published"

    @property
    def _descent(self) -> PublishedSecondOrder:
        return PublishedSecondOrder(self.x, start=self.start)

    def calibration(self, context: dp.CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        start = one_draw(self.law(context), equation_4_scale(context, 0.5 * epsilon))["x"]
        return {"x0": start, **self._descent.calibration(context, rounds - 1, 0.5 * epsilon, 0.5 * delta)}


# Bounds as published. No accounting uses them.


def published_k(c: ProblemConstants) -> float:
    """Compute K as published.

    References:
        Lowy & Liu 2025, Equation 12.
    """
    kappa, oscillation = c.b_gxy / c.mu, c.l_gy / c.mu
    lipschitz = c.l_fx + c.l_fy * kappa
    curved = c.c_gxy * oscillation + kappa * c.c_gyy * oscillation + kappa * c.b_gyy
    return 2.0 * (c.b_fxy * oscillation + 2.0 * lipschitz + kappa * c.b_fyy * oscillation + c.l_fy / c.mu * curved)


def published_lipschitz(c: ProblemConstants, n: int) -> float:
    """Compute 2G/n, the claimed Lipschitz constant of Φ_Z − Φ_Z'.

    Limits:
        The claim is false, because its proof differentiates f(x, y_Z(x)) only in x. For f = y, g = a y²/2 − b x y and
        a ∈ [μ, β], one replaced record changes the slope by b(β − μ)/(n μ²) to first order, which exceeds
        2G/n = 2b/(μ n) if β > 3μ. See docs/proofs/32.

    References:
        Lowy & Liu 2025, Lemma B.6.
    """
    return 2.0 / n * (c.l_fx + c.l_fy * c.b_gxy / c.mu + c.l_gy * c.b_fxy / c.mu)


def published_score(c: ProblemConstants, n: int, width: float) -> float:
    """Compute s as published, with D_y = L_gy/μ.

    Args:
        c: constants of the whole domain.
        n: number of records.
        width: D_x.

    Limits:
        The last term lacks a factor 1/n, so the noise does not decrease with n. See docs/proofs/32.

    References:
        Lowy & Liu 2025, Equation 4.
    """
    spread = c.l_gy / c.mu
    return 2.0 / n * (c.l_fx * width + c.l_fy * spread) + 4.0 * c.l_fy * spread
