"""Private solvers of the lower level, for trusted coordinators: a released ỹ near a minimiser of g, or of g + f/λ.

    "dp_gd"                y <- P(y − (1/b)(mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] + noise)),   `inner` times
    "output_perturbation"  ỹ = P(the minimiser + noise), once; the coordinator holds the records

h is the upper loss; with it, the minimiser is that of g + f/λ, which is that of f + λg. P projects on the ball that is
known to hold the minimisers, b ≥ ‖∇²_yy‖ is public, and the start is the last released point.

dp_gd comes as near to the minimiser as its noise allows in κ log n steps, κ = b/μ: the bias (1 − 1/κ)^K of K steps
falls faster than the noise, whose variance per coordinate stays below s²/(bμ), s its deviation in every step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.constants import ProblemConstants


class LowerObjective(NamedTuple):
    """What is minimised over y, at x: g, or with penalty = λ > 0 the function g + f/λ. channel: of the releases."""

    channel: str
    penalty: float = 0.0

    def weights(self, context: dp.CoordinatorContext) -> dict[str, float]:
        """Term that reads records → its weight in the gradient."""
        weights = {"lower_grad_y": 1.0} | ({"upper_grad_y": 1.0 / self.penalty} if self.penalty else {})
        return {term: weight for term, weight in weights.items() if context.reads(term)}

    def kinds(self, context: dp.CoordinatorContext) -> tuple[dp.Split, ...]:
        """The records it reads."""
        return tuple(context.split_of(term) for term in self.weights(context))

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
        weights = self.weights(context)
        gradient: dp.Value = context.public("lower_grad_y", x, y, None, 0)[None]
        if weights:
            answer = yield dp.Ask(**{term: dp.ClippedSum(term, x, y, rate=rate) for term in weights})
            for term, weight in weights.items():
                gradient = gradient + weight * answer[term]
        released: dp.Released = yield dp.Release(**{self.channel: gradient})
        return released


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
        return self.constants.mu

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
        y, smooth = context.project_to_minimisers(x, y, level.penalty), self.smoothness
        if smooth is None:
            c = context.constants_at(x, level.penalty)
            # Where an x so far out was reached that no constants hold nothing moves.
            smooth = math.inf if c is None else c.b_gyy + (c.b_fyy / level.penalty if level.penalty else 0.0)
        for _ in range(self.steps):
            released = yield from level.gradient(context, x, y, self.rate)
            y = context.project_to_minimisers(x, y - released.released[level.channel][0] / smooth, level.penalty)
        return y


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


Solver: TypeAlias = DpGd | OutputPerturbation


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


class SolvesLower(dp.Coordinated, Protocol):
    """A coordinator's program with a private solver of the lower level.

    Args:
        solver: "dp_gd" or "output_perturbation"; this and the others are fields of the program.
        inner: K of "dp_gd".
        smoothness: b of "dp_gd"; None: of the constants at x.
    """

    solver: str
    inner: int | None
    smoothness: float | None

    def __post_init__(self) -> None:
        dp.check_choice("solver", self.solver, ("dp_gd", "output_perturbation"))

    @property
    def needs_constants(self) -> bool:
        return self.needs_records

    @property
    def needs_records(self) -> bool:
        return self.solver == "output_perturbation"

    def lower_solver(self, rate: float = 1.0) -> Solver:
        """Make the solver. rate: of Poisson samples, where it draws any."""
        return OutputPerturbation() if self.needs_records else DpGd(self.inner or 1, self.smoothness, rate)

    def check_solver(self, context: dp.CoordinatorContext) -> None:
        """Refuse keys that the solver does not take, and a minimiser that reads no record. Raises InputError."""
        if self.needs_records:
            dp.refuse((self, context), _PERTURBED)


_PERTURBED = (
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].inner is not None, "algorithm.inner", '"{of[0].solver}" takes none', "leave it out"
    ),
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].smoothness is not None, "algorithm.smoothness", '"{of[0].solver}" takes none', "leave it out"
    ),
    dp.Refusal[tuple[Any, Any]](
        lambda c: not c[1].reads("lower_grad_y"),
        "algorithm.solver",
        '"{of[0].solver}" has nothing to perturb where the lower level reads no record',
        'take "dp_gd"',
    ),
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
        return bias**2 + k.dimension * (sensitivity * noise_gain(k, steps)) ** 2

    most = min(steps_of_descent(k), MOST_STEPS)
    candidates = np.unique(np.geomspace(1.0, most, 64).astype(np.int64))
    return int(min(candidates, key=lambda steps: error(int(steps))))


def noise_gain(k: PublicFacts, steps: int | None) -> float:
    """Compute how strongly a solve passes its noise on.

    Args:
        k: constants and counts.
        steps: K of "dp_gd"; None for "output_perturbation".

    Returns:
        Deviation of a coordinate of ỹ, over (what one record moves a mean gradient by)/(μ of the whole solve).
    """
    if steps is None:
        return 1.0 / k.modulus
    contraction = 1.0 - k.modulus / k.smoothness
    series = -math.expm1(2.0 * steps * math.log(contraction)) if contraction > 0.0 else 1.0
    return math.sqrt(steps * series / (k.smoothness * k.modulus * (1.0 + contraction)))
