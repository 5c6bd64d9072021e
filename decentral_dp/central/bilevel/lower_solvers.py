"""Private solvers of the lower level, for trusted coordinators: a released ỹ near a minimiser of g, or of g + f/λ.

    "dp_gd"                y <- P(y − (1/b)(mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] + noise)),   `inner` times
    "output_perturbation"  ỹ = P(the minimiser + noise), once; the coordinator holds the records
    "dp_loc_gd"            descent in shrinking balls, see below
    "dp_loc_sgd"           the same, every gradient over a Poisson sample

h is the upper loss; with it, the minimiser is that of g + f/λ, which is that of f + λg. P projects on the ball that is
known to hold the minimisers, b ≥ ‖∇²_yy‖ is public, and the start is the last released point.

dp_gd comes as near to the minimiser as its noise allows in κ log n steps, κ = b/μ: the bias (1 − 1/κ)^K of K steps
falls faster than the noise, whose variance per coordinate stays below s²/(bμ), s its deviation in every step.

Localised private descent (Kornowski, Algorithms 2 and 4) is projected descent in balls that shrink by stages. Stage m =
0 … M − 1, T steps each, from the centre ȳ_m of a ball of radius R_m, μ the modulus of the objective h:

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
from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.certified_solver import project_to_ball
from decentral_dp.central.sensitivities import noise_quantile, penalised_modulus
from decentral_dp.constants.problem_constants import ProblemConstants


class LowerObjective(NamedTuple):
    """What is minimised over y, at x: g, or with penalty = λ > 0 the function g + f/λ. channel: of the releases."""

    channel: str
    penalty: float = 0.0

    def kinds(self, context: dp.CoordinatorContext) -> tuple[dp.Split, ...]:
        """The records it reads."""
        terms = ("lower_grad_y", "upper_grad_y") if self.penalty else ("lower_grad_y",)
        return tuple(context.split_of(t) for t in terms if context.reads(t))

    def questions(
        self, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, rate: float
    ) -> Mapping[str, dp.ClippedSum]:
        queries = {"g": dp.ClippedSum("lower_grad_y", x, y, rate=rate)} if context.reads("lower_grad_y") else {}
        if self.penalty and context.reads("upper_grad_y"):
            queries["f"] = dp.ClippedSum("upper_grad_y", x, y, rate=rate)
        return queries

    def gradient(
        self, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, rate: float
    ) -> dp.CoordinatorSteps[dp.Released]:
        """Release mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] at the public (x, y).

        Args:
            context: what the coordinator knows.
            x: (p,), public.
            y: (q,), public.
            rate: of the Poisson sample; 1 for all records.

        Returns:
            What was released, on `channel`, and the scales of its noise.
        """
        queries = self.questions(context, x, y, rate)
        gradient: dp.Value = context.public("lower_grad_y", x, y, None, 0)[None]
        if queries:
            answer = yield dp.Ask(**queries)
            for name in queries:
                gradient = gradient + (answer[name] if name == "g" else (1.0 / self.penalty) * answer[name])
        released: dp.Released = yield dp.Release(**{self.channel: gradient})
        return released


# γ: with what probability some ball of a solve may miss the minimiser.
FAILURE = 0.01


class ObjectiveBounds(NamedTuple):
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

    def solve(
        self, context: dp.CoordinatorContext, level: LowerObjective, x: dp.Array, y: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Compute ỹ, (q,), by descent in balls that shrink.

        Args:
            context, x: as of `DpGd.solve`.
            level: g, or g + f/λ.
            y: (q,), the public start.

        Raises:
            ValueError: no constants are known at x.
        """
        constants = context.constants_at(x, level.penalty)
        if constants is None:
            raise ValueError("localised descent needs constants at every x")
        h, miss = objective(constants, level.penalty, y.size), self._miss(context, level)
        centre, radius = context.project_to_minimisers(x, y, level.penalty), 2.0 * constants.radius
        for _ in range(self.stages):
            at, total, scale = centre, np.zeros_like(y), 0.0
            for t in range(self.steps):
                total = total + at
                released = yield from level.gradient(context, x, at, self.rate)
                # Free where the level reads no record.
                scale = released.scale.get(level.channel, 0.0)
                step = released.released[level.channel][0] / (h.modulus * (t + 1))
                at = centre + project_to_ball(at - step - centre, np.zeros_like(y), radius)
            centre = context.project_to_minimisers(x, total / self.steps, level.penalty)
            radius = next_radius(h, radius, scale, miss, self.steps, FAILURE / self.stages)
        return centre

    def _miss(self, context: dp.CoordinatorContext, level: LowerObjective) -> Miss:
        """Of a sample's mean gradient: Σ q(1 − q)(C/(qn))² and max C/(qn), with C/λ for the upper loss."""
        if self.rate == 1.0:
            return Miss()
        variance, term = 0.0, 0.0
        for name, factor in (("lower_grad_y", 1.0), ("upper_grad_y", 1.0 / level.penalty if level.penalty else 0.0)):
            if factor and context.reads(name):
                one = factor * context.bound(name) / (self.rate * context.counts[context.split_of(name)])
                variance += (1.0 - self.rate) * one * factor * context.bound(name)
                term = max(term, one)
        return Miss(variance, term)


def objective(c: ProblemConstants, penalty: float, dimension: int) -> ObjectiveBounds:
    """State what the radii follow from, of g or of g + f/λ.

    Args:
        c: constants on the ball of its minimisers.
        penalty: λ; 0 for g alone.
        dimension: q.
    """
    if not penalty:
        return ObjectiveBounds(c.mu, c.b_gyy, c.l_gy, dimension)
    return ObjectiveBounds(
        penalised_modulus(c, penalty), c.b_gyy + c.b_fyy / penalty, c.l_gy + c.l_fy / penalty, dimension
    )


def next_radius(h: ObjectiveBounds, radius: float, scale: float, miss: Miss, steps: int, failure: float) -> float:
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


# At most so many steps by default: each is a release, and where more seem wanted, a narrower domain is.
MOST_STEPS = 200


class PublicFacts(NamedTuple):
    """What a solver's defaults follow from, all public.

    constants: on the ball of the minimisers of g + f/λ. lipschitz: bound on a record's ∇_y. records: how many are
    averaged. price: μ of all releases of one solve. dimension: q.
    """

    constants: ProblemConstants
    penalty: float
    lipschitz: float
    records: int
    price: float
    dimension: int

    @property
    def modulus(self) -> float:
        return penalised_modulus(self.constants, self.penalty)

    @property
    def smoothness(self) -> float:
        return self.constants.b_gyy + self.constants.b_fyy / self.penalty


class DpGd(NamedTuple):
    """steps: K. smoothness: b of g + f/λ; None: of the constants at x. rate: of Poisson samples."""

    steps: int
    smoothness: float | None
    rate: float = 1.0

    @property
    def publishes(self) -> int:
        return self.steps

    def solve(
        self, context: dp.CoordinatorContext, level: LowerObjective, x: dp.Array, y: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Compute ỹ, (q,), by K projected steps.

        Args:
            context: what the coordinator knows.
            level: g, or g + f/λ.
            x: (p,), public.
            y: (q,), the public start.
        """
        y = context.project_to_minimisers(x, y, level.penalty)
        for _ in range(self.steps):
            released = yield from level.gradient(context, x, y, self.rate)
            y = context.project_to_minimisers(
                x,
                y - released.released[level.channel][0] / self._smoothness(context, level, x),
                level.penalty,
            )
        return y

    def _smoothness(self, context: dp.CoordinatorContext, level: LowerObjective, x: dp.Array) -> float:
        if self.smoothness is not None:
            return self.smoothness
        constants = context.constants_at(x, level.penalty)
        # Where an x so far out was reached that no constants hold nothing moves.
        return math.inf if constants is None else objective(constants, level.penalty, context.problem.q).smoothness


class OutputPerturbation(NamedTuple):
    """The certified minimiser of the pooled records, with noise: one release."""

    publishes: int = 1
    rate: float = 1.0

    def solve(
        self, context: dp.CoordinatorContext, level: LowerObjective, x: dp.Array, y: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Compute ỹ, (q,), by one release of the minimiser.

        Args:
            context, level, x: as of `DpGd.solve`.
            y: the start, which is not read.
        """
        pool = yield dp.Pool()
        released = yield dp.Release(**{level.channel: pool.minimiser(x, level.penalty or None)})
        return context.project_to_minimisers(x, released.released[level.channel][0], level.penalty)


Solver: TypeAlias = DpGd | OutputPerturbation | DpLocGd


def released_part(
    solver: Solver, context: dp.CoordinatorContext, level: LowerObjective, first: int, share: float
) -> dp.Part:
    """State a solver's releases in a round.

    Args:
        solver: of the lower level.
        context: what the coordinator knows.
        level: g, or g + f/λ.
        first: position of the first release in the round.
        share: of the round's μ², for all of them together, in proportion to other channels'.
    """
    positions = range(first, first + solver.publishes)
    return dp.Part(positions, context.problem.q, level.kinds(context), share, solver.rate)


class Sort(NamedTuple):
    """constants: whether it needs them. needs_records: of the agents. samples: reads Poisson samples where it may."""

    constants: bool
    needs_records: bool
    samples: bool


SOLVERS: Mapping[str, Sort] = {
    "dp_gd": Sort(constants=False, needs_records=False, samples=True),
    "output_perturbation": Sort(constants=True, needs_records=True, samples=False),
    "dp_loc_gd": Sort(constants=True, needs_records=False, samples=False),
    "dp_loc_sgd": Sort(constants=True, needs_records=False, samples=True),
}


def solver_of(name: str, steps: int, stages: int, smoothness: float | None, rate: float) -> Solver:
    """Make a solver of the lower level.

    Args:
        name: a key of `SOLVERS`.
        steps: of "dp_gd", or of every stage of the localised ones.
        stages: M of the localised ones.
        smoothness: b of "dp_gd"; None: of the constants at x.
        rate: of Poisson samples; 1 is taken for a solver that draws none.
    """
    rate = rate if SOLVERS[name].samples else 1.0
    if name == "dp_gd":
        return DpGd(steps, smoothness, rate)
    return OutputPerturbation() if SOLVERS[name].needs_records else DpLocGd(steps, stages, rate)


def check_perturbed(context: dp.CoordinatorContext, solver: str) -> None:
    """Raises InputError where a solver of pooled records finds none in the lower level."""
    if SOLVERS[solver].needs_records and not context.reads("lower_grad_y"):
        raise dp.InputError(
            f'algorithm.solver: "{solver}" has nothing to perturb where the lower level reads no record; take "dp_gd".'
        )


# Defaults and noise ------------------------------------------------------------------------------------------------


def steps_of_descent(k: PublicFacts) -> int:
    """K = ⌈κ log(μ R₀ n m/C)⌉: from R₀ away, twice the radius, to where noise takes over."""
    ratio = k.modulus * 2.0 * k.constants.radius * k.records * k.price / k.lipschitz
    return max(1, math.ceil(k.smoothness / k.modulus * math.log(max(ratio, math.e))))


def best_steps(k: PublicFacts) -> int:
    """The K, of at most κ log(…) and `MOST_STEPS` of them, whose bias and noise together are smallest.

    (2R)²(1 − 1/κ)^{2K} + q s_K², s_K the deviation that K steps of a fixed budget leave in a coordinate: with little
    noise that is κ log(…) again, with much of it a few steps.
    """
    contraction = 1.0 - k.modulus / k.smoothness
    sensitivity = 2.0 * k.lipschitz / (k.records * k.price)

    def error(steps: int) -> float:
        bias = 2.0 * k.constants.radius * contraction**steps
        return bias**2 + k.dimension * (sensitivity * noise_gain("dp_gd", k, steps, 1)) ** 2

    most = min(steps_of_descent(k), MOST_STEPS)
    candidates = np.unique(np.geomspace(1.0, most, 64).astype(np.int64))
    return int(min(candidates, key=lambda steps: error(int(steps))))


def noise_gain(name: str, k: PublicFacts, steps: int, stages: int) -> float:
    """Compute how strongly a solve passes its noise on.

    Args:
        name: a key of `SOLVERS`.
        k: constants and counts.
        steps: K, of "dp_gd".
        stages: M, of the localised solvers.

    Returns:
        Deviation of a coordinate of ỹ, over (what one record moves a mean gradient by)/(μ of the whole solve).
    """
    if name == "output_perturbation":
        return 1.0 / k.modulus
    if name == "dp_gd":
        contraction = 1.0 - k.modulus / k.smoothness
        series = -math.expm1(2.0 * steps * math.log(contraction)) if contraction > 0.0 else 1.0
        return math.sqrt(steps * series / (k.smoothness * k.modulus * (1.0 + contraction)))
    return math.sqrt(stages) / k.modulus


class SolvesLower(dp.Coordinated, Protocol):
    """A coordinator's program with a private solver of the lower level, which says what it needs.

    Args:
        solver: a key of `SOLVERS`; a field of the program.
    """

    solver: str

    @property
    def needs_constants(self) -> bool:
        return SOLVERS[self.solver].constants

    @property
    def needs_records(self) -> bool:
        return SOLVERS[self.solver].needs_records
