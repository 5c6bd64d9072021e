"""Private solvers of the lower level for trusted coordinators: a released ỹ near a minimiser of g, or of g + f/λ.

    "dp_gd"                y <- P(y − (1/b)(mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] + noise)),   `inner` times
    "output_perturbation"  ỹ = P(minimiser + noise), once; the coordinator has the records

h is the upper loss, l the lower loss; g + f/λ and f + λg have the same minimiser. P projects on the ball that is known
to contain the minimisers, b ≥ ‖∇²_yy‖ is public, and the start is the last released point.

dp_gd reaches the accuracy that its noise allows in κ log n steps, κ = b/μ: the bias (1 − 1/κ)^K of K steps falls faster
than the noise, whose variance per coordinate stays below s²/(bμ), s the standard deviation of the noise of a step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.constants import ProblemConstants

# Largest default number of steps. Each step is a release; a larger number suggests a narrower domain.
MOST_STEPS = 200


class LowerObjective(NamedTuple):
    """Objective of the lower-level solver, a function of y at a given x.

    Args:
        channel: channel of the releases.
        penalty: λ > 0 for g + f/λ, or 0 for g.
    """

    channel: str
    penalty: float = 0.0

    def weights(self, context: dp.CoordinatorContext) -> dict[str, float]:
        """Return the weight in the gradient of each term that reads records."""
        weights = {"lower_grad_y": 1.0} | ({"upper_grad_y": 1.0 / self.penalty} if self.penalty else {})
        return {term: weight for term, weight in weights.items() if context.reads(term)}

    def kinds(self, context: dp.CoordinatorContext) -> tuple[dp.Split, ...]:
        """Return the splits that the objective reads."""
        return tuple(context.split_of(term) for term in self.weights(context))

    def gradient(
        self, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, rate: float
    ) -> dp.CoordinatorSteps[dp.Released]:
        """Release mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] at the public (x, y).

        Args:
            context: public facts of the run.
            x: public upper variable, (p,).
            y: public lower variable, (q,).
            rate: rate of the Poisson sample, or 1 for all records.

        Returns:
            The release on `channel` and its noise scale.
        """
        weights = self.weights(context)
        gradient: dp.Value = context.public("lower_grad_y", x, y, None, 0)[None]
        if weights:
            answer = yield dp.Ask(**{term: dp.ClippedSum(term, x, y, rate=rate) for term in weights})
            for term, weight in weights.items():
                gradient = gradient + weight * answer[term]
        released: dp.Released = yield dp.Release(**{self.channel: gradient})
        return released


class DpGd(NamedTuple):
    """Noisy gradient descent.

    Args:
        steps: number of steps K.
        smoothness: b of g + f/λ, or None to take it from the constants at x.
        rate: rate of the Poisson samples.
    """

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
            context: public facts of the run.
            level: objective.
            x: public upper variable, (p,).
            y: public start, (q,).
        """
        y, smooth = context.project_to_minimisers(x, y, level.penalty), self.smoothness
        if smooth is None:
            c = context.constants_at(x, level.penalty)
            # Without constants, if x is too large, y does not change.
            smooth = math.inf if c is None else c.b_gyy + (c.b_fyy / level.penalty if level.penalty else 0.0)
        for _ in range(self.steps):
            released = yield from level.gradient(context, x, y, self.rate)
            y = context.project_to_minimisers(x, y - released.released[level.channel][0] / smooth, level.penalty)
        return y


class OutputPerturbation(NamedTuple):
    """The certified minimiser for the pooled records plus noise, in one release."""

    publishes: int = 1
    rate: float = 1.0

    def solve(
        self, context: dp.CoordinatorContext, level: LowerObjective, x: dp.Array, y: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Compute ỹ, (q,), without using the start y. See `DpGd.solve`."""
        pool = yield dp.Pool()
        released = yield dp.Release(**{level.channel: pool.minimiser(x, level.penalty or None)})
        return context.project_to_minimisers(x, released.released[level.channel][0], level.penalty)


Solver: TypeAlias = DpGd | OutputPerturbation


class SolvesLower(dp.Coordinated, Protocol):
    """A coordinator's program with a private solver for the lower level.

    Args:
        solver: lower-level solver, "dp_gd" or "output_perturbation".
        inner: K of "dp_gd".
        smoothness: b of "dp_gd", or None to take it from the constants at x.
    """

    solver: Any
    inner: int | None
    smoothness: float | None

    @property
    def needs_constants(self) -> bool:
        return self.needs_records

    @property
    def needs_records(self) -> bool:
        return bool(self.solver == "output_perturbation")

    def lower_solver(self, rate: float = 1.0) -> Solver:
        """Return the solver, with this rate of the Poisson samples of "dp_gd"."""
        return OutputPerturbation() if self.needs_records else DpGd(self.inner or 1, self.smoothness, rate)

    def check_solver(self, context: dp.CoordinatorContext) -> None:
        """Raise InputError for options that the solver does not support, and for a minimiser that reads no record."""
        if self.needs_records:
            dp.refuse((self, context), _PERTURBED)


_PERTURBED = (
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].inner is not None, "algorithm.inner", 'no effect with "{of[0].solver}"', "remove it"
    ),
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].smoothness is not None, "algorithm.smoothness", 'no effect with "{of[0].solver}"', "remove it"
    ),
    dp.Refusal[tuple[Any, Any]](
        lambda c: not c[1].reads("lower_grad_y"),
        "algorithm.solver",
        '"{of[0].solver}" has nothing to perturb if the lower level reads no record',
        'set "dp_gd"',
    ),
)


# Defaults ------------------------------------------------------------------------------------------------------------


class PublicFacts(NamedTuple):
    """Public numbers that determine the defaults of a solver.

    Args:
        constants: constants on the ball of the minimisers of g + f/λ.
        penalty: penalty weight λ.
        lipschitz: bound on the norm of one record's ∇_y.
        records: number of records in a mean.
        price: privacy cost μ of all releases of one solve.
        dimension: dimension q of y.
    """

    constants: ProblemConstants
    penalty: float
    lipschitz: float
    records: int
    price: float
    dimension: int

    @property
    def smoothness(self) -> float:
        return self.constants.b_gyy + self.constants.b_fyy / self.penalty


def count_descent_steps(k: PublicFacts) -> int:
    """Compute K = ⌈κ log(μ R₀ n m/C)⌉, which reduces a distance R₀ of twice the radius to the level of the noise."""
    ratio = k.constants.mu * 2.0 * k.constants.radius * k.records * k.price / k.lipschitz
    return max(1, math.ceil(k.smoothness / k.constants.mu * math.log(max(ratio, math.e))))


def choose_steps(k: PublicFacts) -> int:
    """Compute the K, at most `count_descent_steps` and `MOST_STEPS`, with the least sum of bias and noise.

    The sum is (2R)²(1 − 1/κ)^{2K} + q s_K², where s_K is the standard deviation of a coordinate after K steps with a
    fixed budget.
    """
    contraction = 1.0 - k.constants.mu / k.smoothness
    sensitivity = 2.0 * k.lipschitz / (k.records * k.price)

    def error(steps: int) -> float:
        bias = 2.0 * k.constants.radius * contraction**steps
        return bias**2 + k.dimension * (sensitivity * noise_gain(k, steps)) ** 2

    largest = min(count_descent_steps(k), MOST_STEPS)
    candidates = np.unique(np.geomspace(1.0, largest, 64).astype(np.int64))
    return int(min(candidates, key=lambda steps: error(int(steps))))


def noise_gain(k: PublicFacts, steps: int | None) -> float:
    """Compute the noise gain of a solve.

    Args:
        k: public facts of the objective.
        steps: K of "dp_gd", or None for "output_perturbation".

    Returns:
        The standard deviation of a coordinate of ỹ, in units of (sensitivity of a mean gradient)/(μ of the whole
        solve).
    """
    if steps is None:
        return 1.0 / k.constants.mu
    contraction = 1.0 - k.constants.mu / k.smoothness
    series = -math.expm1(2.0 * steps * math.log(contraction)) if contraction > 0.0 else 1.0
    return math.sqrt(steps * series / (k.smoothness * k.constants.mu * (1.0 + contraction)))
