"""Localised private descent (Kornowski, Algorithms 2 and 4): projected descent in balls that shrink by stages.

Stage m = 0 … M − 1, T steps each, from the centre ȳ_m of a ball of radius R_m, μ the modulus of the objective h:

    y_{t+1} = P_{B(ȳ_m, R_m)}(y_t − (∇h(y_t) + noise)/(μ(t + 1))),     ȳ_{m+1} = (1/T) Σ_{t<T} y_t

The paper takes T = n² steps and radii up to constants. Any T is as private, and radii follow from the scale s of the
noise, which is public. If the minimiser is in the ball of stage m, it is with probability 1 − γ/M in that of the next:

    I  = (2 R_m/T)(s √(2T log(4M/γ)) + B(T v, w, 4M/γ)),     II = (1 + log T)/(μT) ((L + B(v, w, 8MT/γ))² + N²)
    R_{m+1} = min(R_m, √(2(I + II)/μ)),     N = s(√q + √(2 log(4MT/γ)))

Proof: ‖y_{t+1} − y*‖² expanded and summed leaves the mean of ⟨y* − y_t, noise⟩, a martingale, as y_t and y* are at most
2R_m apart (the paper has R_m), and of η_t(‖mean gradient‖² + ‖noise‖²), Σ η_t ≤ (1 + log T)/μ; then h is μ-strongly
convex. L ≥ ‖∇h‖ on the ball: min(2bR_m, l + bR_m), b its smoothness, l its Lipschitz constant where minimisers are.
Of Poisson samples the mean gradient misses by a sum of independent terms, each at most w long, of variance v in all; B
is the bound of Freedman, and of Pinelis for vectors, on their sums, and 0 when all records are read. Centres are
projected on the ball that is known to hold the minimisers, which brings them no further from any of them.

That is about accuracy, where clips do not bind. Privacy rests on the clips alone, and holds for any radii.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms.budget_split import Part
from decentral_dp.algorithms.coordinator_bilevel.lower_objective import LowerObjective
from decentral_dp.bounded import Array
from decentral_dp.constants.bilevel_rates import noise_quantile
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.constants.record_sensitivity import penalised_modulus
from decentral_dp.exchange import Request, Response
from decentral_dp.participants.coordinator_context import CoordinatorContext

# γ: with what probability some ball of a solve may miss the minimiser.
FAILURE = 0.01


class Objective(NamedTuple):
    """h: its modulus μ, smoothness b, Lipschitz constant l on the ball of its minimisers, dimension q."""

    modulus: float
    smoothness: float
    lipschitz: float
    dimension: int


class Miss(NamedTuple):
    """How far the mean over a sample misses: variance, and the length of a single term. Both 0 for all records."""

    variance: float = 0.0
    term: float = 0.0


class DpLocGd(NamedTuple):
    """steps: T of every stage. stages: M. rate: of Poisson samples."""

    steps: int
    stages: int
    rate: float = 1.0

    @property
    def publishes(self) -> int:
        return self.steps * self.stages

    def part(self, context: CoordinatorContext, level: LowerObjective, first: int, share: float) -> Part:
        """State its releases in a round, from position `first` on.

        Args:
            context, first, share: as of `DpGd.part`.
            level: g, or g + f/λ.
        """
        return Part(range(first, first + self.publishes), context.problem.q, level.kinds(context), share, self.rate)

    def solve(
        self, context: CoordinatorContext, level: LowerObjective, x: Array, y: Array
    ) -> Generator[Request, Response, Array]:
        """Compute ỹ, (q,), by descent in balls that shrink.

        Args:
            context, x: as of `DpGd.solve`.
            level: g, or g + f/λ.
            y: (q,), the public start.

        Raises:
            ValueError: no constants are known at x.
        """
        known = context.constants_at(x, level.penalty)
        if known is None:
            raise ValueError("localised descent needs constants at every x")
        h, miss = objective(known, level.penalty, y.size), self._miss(context, level)
        centre, radius = context.inside(x, y, level.penalty), 2.0 * known.radius
        for _ in range(self.stages):
            at, total, scale = centre, np.zeros_like(y), 0.0
            for t in range(self.steps):
                total = total + at
                released = yield from level.gradient(context, x, at, self.rate)
                # Free where the level reads no record.
                scale = released.scale.get(level.channel, 0.0)
                step = released.released[level.channel][0] / (h.modulus * (t + 1))
                at = centre + _cut(at - step - centre, radius)
            centre = context.inside(x, total / self.steps, level.penalty)
            radius = next_radius(h, radius, scale, miss, self.steps, FAILURE / self.stages)
        return centre

    def _miss(self, context: CoordinatorContext, level: LowerObjective) -> Miss:
        """Of a sample's mean gradient: Σ q(1 − q)(C/(qn))² and max C/(qn), with C/λ for the upper loss."""
        if self.rate == 1.0:
            return Miss()
        variance, term = 0.0, 0.0
        for name, factor in (("lower_grad_y", 1.0), ("upper_grad_y", 1.0 / level.penalty if level.penalty else 0.0)):
            if factor and context.reads(name):
                one = factor * context.bound(name) / (self.rate * context.counts[context.problem.reads_records[name]])
                variance += (1.0 - self.rate) * one * factor * context.bound(name)
                term = max(term, one)
        return Miss(variance, term)


def objective(c: ProblemConstants, penalty: float, dimension: int) -> Objective:
    """State what the radii follow from, of g or of g + f/λ.

    Args:
        c: constants on the ball of its minimisers.
        penalty: λ; 0 for g alone.
        dimension: q.
    """
    if not penalty:
        return Objective(c.mu, c.b_gyy, c.l_gy, dimension)
    return Objective(penalised_modulus(c, penalty), c.b_gyy + c.b_fyy / penalty, c.l_gy + c.l_fy / penalty, dimension)


def next_radius(h: Objective, radius: float, scale: float, miss: Miss, steps: int, failure: float) -> float:
    """Bound the next radius, R_{m+1}.

    Args:
        h: what is minimised.
        radius: R_m.
        scale: deviation of the noise in every step.
        miss: what a Poisson sample misses of the mean gradient.
        steps: T.
        failure: γ/M.
    """
    lipschitz = min(2.0 * radius, radius + h.lipschitz / h.smoothness) * h.smoothness
    lipschitz += _bernstein(miss, 1.0, 8.0 * steps / failure)
    noise = noise_quantile(scale, h.dimension, steps, failure / 4.0)
    along = scale * math.sqrt(2.0 * steps * math.log(4.0 / failure)) + _bernstein(miss, steps, 4.0 / failure)
    first = 2.0 * radius * along / steps
    second = (1.0 + math.log(steps)) / (h.modulus * steps) * (lipschitz**2 + noise**2)
    return min(radius, math.sqrt(2.0 * (first + second) / h.modulus))


def stages_of(modulus: float, lipschitz: float, records: int) -> int:
    """M = ⌈log₂ log(μ n/L)⌉, at least 1: the paper's with ε' = 1, on which it hardly depends. lipschitz: L."""
    return max(1, math.ceil(math.log2(max(math.log(max(modulus * records / lipschitz, math.e)), 1.0))))


def steps_of_stage(records: int, price: float, stages: int, dimension: int) -> int:
    """Compute T = ⌈n² m²/(4 M q)⌉: more steps lower L²/T below the noise.

    Args:
        records: n.
        price: m, μ of one solve.
        stages: M.
        dimension: q.

    Returns:
        T, at least 1.
    """
    return max(1, math.ceil((records * price) ** 2 / (4.0 * stages * dimension)))


def _bernstein(miss: Miss, count: float, odds: float) -> float:
    """u with probability at most 1/odds that the sum of `count` such misses is longer: u² = 2 log(odds)(V + w u/3)."""
    log = math.log(odds)
    third = miss.term * log / 3.0
    return third + math.sqrt(third * third + 2.0 * log * count * miss.variance)


def _cut(away: Array, radius: float) -> Array:
    """The nearest point of a ball around 0, which may have no interior: a minimiser may be known."""
    length = float(np.linalg.norm(away))
    return away * (radius / length) if length > radius else away
