"""What solves over pooled records cost one record: public numbers, from constants and counts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.constants.boxes import UP
from decentral_dp.constants.families import Pulled, Separate, Shared, worst
from decentral_dp.constants.family import Family
from decentral_dp.constants.problem_constants import ProblemConstants, up
from decentral_dp.constants.record_sensitivity import (
    estimate_slack,
    hypergradient_sensitivity,
    minimiser_sensitivity,
    score_oscillation,
)
from decentral_dp.constants.special_families import Linear, Mean
from decentral_dp.participants.certified_solver import Facts, Solve, facts, solve_certificate
from decentral_dp.participants.pooled_means import mean_rounding, squared

# What an implicit gradient at the minimiser reads; at a public y, all but the first.
FED = ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x")


@dataclass(frozen=True)
class PooledBounds:
    """For a family and the public counts of all agents' records together.

    Φ(x) = F(x, y_Z(x)). At a point (`x`) constants are those of that point; over a box (`low`, `high`, (p,) each) they
    hold for every x of it, as the score of a mechanism that draws x needs them.
    """

    family: Family
    train: int
    validation: int

    # At one public x -----------------------------------------------------------------------------------------------

    def minimiser(self, x: Array, penalty: float | None = None) -> dict[Split, float]:
        """D_gy/(μ n_t) + 2a, and with pull = λ, of G + F/λ, also D_fy/(λ μ n_v) + 2a; kinds that are read only."""
        c, accuracy = self.at(x, penalty), self.facts(x, penalty).accuracy
        sensitivity = minimiser_sensitivity(c, self.train, self.validation, accuracy, penalty)
        return self.read(sensitivity, "lower_grad_y", *(() if penalty is None else ("upper_grad_y",)))

    def hypergradient(self, x: Array) -> dict[Split, float]:
        """S_train, S_validation at x, each with twice what the estimate can be off by."""
        return self.read(self._slope(self.at(x), self.facts(x)), *FED)

    def at(self, x: Array, penalty: float | None = None) -> ProblemConstants:
        """Constants at x, on the ball of the minimisers of G, or of G + F/λ."""
        return self.family.constants(x, x, 1.0 if penalty is None else 1.0 + 1.0 / penalty)

    def at_point(self, constants: ProblemConstants, known: Facts, y: Array) -> tuple[ProblemConstants, Facts]:
        """The constants and facts at x on the ball, with what is smaller at one public y of it, (q,).

        Where both levels share a loss of y alone, ‖∇_y f‖ ≤ G(‖y‖) for every record, and G grows with its argument.
        There ∇²_xy R is linear in y about the centre, and rounding errors are those of numbers as large as y.
        """
        if not isinstance(self.family, Shared | Separate):
            return constants, known
        norm = UP * float(np.linalg.norm(y))
        lipschitz, mixed = UP * self.family.loss.gradient(norm), UP * constants.c_gxy * norm
        c = constants._replace(l_fy=min(constants.l_fy, lipschitz), b_gxy=min(constants.b_gxy, mixed))
        return c, known._replace(centre=y, radius=0.0)

    def facts(self, x: Array, penalty: float | None = None) -> Facts:
        """Of the objective at x. Raises InputError where float64 certifies nothing."""
        return self._facts(self.at(x, penalty), self.family.centre(x), penalty)

    # Over a box ----------------------------------------------------------------------------------------------------

    def oscillation(self, low: Array, high: Array) -> dict[Split, float]:
        """sup − inf over the box of what one record moves Φ by; `inexactness` is not in it."""
        width = float(np.linalg.norm(high - low))
        spread, losses = self.family.spread(low, high), self.family.loss_range(low, high)

        def sensitivity(split: Split) -> Callable[[ProblemConstants], float]:
            return lambda c: score_oscillation(c, self.train, self.validation, width, spread, 0.0, losses)[split]

        # How far a train record moves Φ is bounded x by x, and may be taken piece by piece.
        found: dict[Split, float] = {
            "train": worst(self.family, low, high, sensitivity("train")),
            "validation": sensitivity("validation")(self.family.constants(low, high)),
        }
        return self.read(found, "lower_grad_y", "upper_grad_y", "upper_grad_x")

    def lipschitz(self, low: Array, high: Array) -> float:
        """sup ‖∇Φ‖ ≤ L_fx + M L_fy."""
        return worst(self.family, low, high, lambda c: up(c.l_fx + c.m * c.l_fy))

    def inexactness(self, low: Array, high: Array) -> float:
        """e ≥ |computed − exact Φ(x)|: L_fy a, and the rounding of a mean of losses, f and f − min f being bounded."""
        centre, losses = self._farthest(low, high), self.family.loss_range(low, high)
        rounding = 4.0 * mean_rounding((self.validation,), centre.size)

        def error(c: ProblemConstants) -> float:
            f = self._facts(c, centre)
            return up(c.l_fy * f.accuracy + rounding * (losses + c.l_fy * f.reach + math.log(centre.size + 1.0)))

        return worst(self.family, low, high, error)

    def gradient_sensitivity(self, low: Array, high: Array) -> dict[Split, float]:
        """S: how far one record moves ∇Φ(x), at any x of the box; `gradient_error` is not in it."""

        def sensitivity(split: Split) -> Callable[[ProblemConstants], float]:
            return lambda c: hypergradient_sensitivity(c, self.train, self.validation, self._self_concordance())[split]

        kinds: tuple[Split, ...] = ("train", "validation")
        found = {split: worst(self.family, low, high, sensitivity(split)) for split in kinds}
        return self.read(found, *FED)

    def gradient_error(self, low: Array, high: Array) -> float:
        """C a + b_gxy τ and rounding: how far a computed ∇Φ(x) can be from the exact one."""
        centre = self._farthest(low, high)
        return worst(self.family, low, high, lambda c: self._error(c, self._facts(c, centre)))

    def norm_oscillation(self, low: Array, high: Array) -> dict[Split, float]:
        """2S: sup − inf over the box of what one record moves ‖∇Φ‖ by; its inexactness is `gradient_error`.

        Lowy & Liu, Appendix C.3, with S for their 2G/n, which does not bound it.
        """
        return {split: 2.0 * s for split, s in self.gradient_sensitivity(low, high).items()}

    def smoothness(self, low: Array, high: Array) -> float:
        """Lipschitz constant of ∇Φ, and of ‖∇Φ‖: Φ − (c/2)‖x‖² is convex for c = −smoothness.

        b_fxx + 2M b_fxy + M² b_fyy + (L_fy/μ)[M_gxy + M C_gxy + M(M_gyy + M C_gyy)]: ∇_x f − J H⁻¹∇_y f, differentiated
        in x and along dy/dx, ‖dy/dx‖ ≤ M. Source: Lowy & Liu, Equation 28.
        """

        def curved(c: ProblemConstants) -> float:
            through = c.m_gxy + c.m * c.c_gxy + c.m * (c.m_gyy + c.m * c.c_gyy)
            return up(c.b_fxx + 2.0 * c.m * c.b_fxy + c.m**2 * c.b_fyy + c.l_fy / c.mu * through)

        return worst(self.family, low, high, curved)

    @property
    def convex(self) -> bool:
        """Whether Φ is a convex quadratic for every data set: y_Z(x) affine in x, f convex and quadratic in y."""
        family = self.family
        return isinstance(family, Mean | Linear) or (isinstance(family, Pulled) and squared(family.problem))

    def quadratic_inexactness(self, low: Array, high: Array) -> float:
        """e ≥ |½ xᵀHx − bᵀx − (Φ(x) − Φ(0))| for the computed (H, b) of `Pooled.quadratic`, evaluated in float64.

        Column i of H is the difference of gradients at the unit vector i and at 0; errors of both are in it.
        """
        p = self.family.problem.p
        reach = float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))
        start = self._error(self.at(np.zeros(p)), self.facts(np.zeros(p)))
        columns = [start + self._error(self.at(unit), self.facts(unit)) for unit in np.eye(p)]
        wide = self.family.constants(np.minimum(low, 0.0), np.maximum(high, 0.0))
        size = 0.5 * reach**2 * self.smoothness(low, high) + reach * (wide.l_fx + wide.m * wide.l_fy)
        return up(0.5 * reach**2 * math.hypot(*columns) + reach * start + 2.0**-50 * (p + 4) * size)

    # Parts ---------------------------------------------------------------------------------------------------------

    def read(self, sensitivity: Mapping[Split, float], *terms: str) -> dict[Split, float]:
        """Kinds of which any of these terms reads a record; the others change nothing, rounding included."""
        reads_records = self.family.problem.reads_records
        kinds = {reads_records[term] for term in terms if term in reads_records}
        return {split: s for split, s in sensitivity.items() if split in kinds}

    def solve(self, c: ProblemConstants, f: Facts) -> Solve:
        """Of ∇²_yy G v = ∇_y F at a point of the ball."""
        rounding = mean_rounding((self.validation,), len(f.centre))
        return solve_certificate(f, c.l_fy, rounding * (c.l_fy + c.b_fyy * f.reach))

    def rounding(self, c: ProblemConstants, f: Facts) -> float:
        """What float64 loses in ∇_x F − J v with ‖v‖ ≤ L_fy/μ, v as it is."""
        upper = mean_rounding((self.validation,), len(f.centre)) * (c.l_fx + c.b_fxy * f.reach)
        lower = f.rounding * (c.b_gxy + c.d_hxy + c.c_gxy * f.reach) * c.l_fy / c.mu
        return upper + 2.0 * lower

    def _slope(self, c: ProblemConstants, f: Facts) -> dict[Split, float]:
        sensitivity = hypergradient_sensitivity(c, self.train, self.validation, self._self_concordance())
        return {split: up(s + 2.0 * self._error(c, f)) for split, s in sensitivity.items()}

    def _error(self, c: ProblemConstants, f: Facts) -> float:
        return up(0.5 * estimate_slack(c, f.accuracy, self.solve(c, f).error) + self.rounding(c, f))

    def _facts(self, c: ProblemConstants, centre: Array, penalty: float | None = None) -> Facts:
        counts = (self.train,) if penalty is None else (self.train, self.validation)
        self_concordance = self._self_concordance()
        return facts(c, centre, counts, None if math.isinf(self_concordance) else self_concordance, penalty)

    def _self_concordance(self) -> float:
        return self.family.self_concordance

    def _farthest(self, low: Array, high: Array) -> Array:
        """A centre as far out as any of the box: centres are multiples of x, or fixed."""
        return self.family.centre(np.maximum(np.abs(low), np.abs(high)))
