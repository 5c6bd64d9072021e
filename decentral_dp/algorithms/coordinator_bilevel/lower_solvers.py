"""Private solvers of the lower level, for trusted coordinators: a released ỹ near a minimiser of g, or of g + f/λ.

    "dp_gd"                y <- P(y − (1/b)(mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] + noise)),   `inner` times
    "output_perturbation"  ỹ = P(the minimiser + noise), once; the coordinator holds the records
    "dp_loc_gd"            descent in shrinking balls, see `inner_localised`
    "dp_loc_sgd"           the same, every gradient over a Poisson sample

h is the upper loss; with it, the minimiser is that of g + f/λ, which is that of f + λg. P projects on the ball that is
known to hold the minimisers, b ≥ ‖∇²_yy‖ is public, and the start is the last released point.

dp_gd comes as near to the minimiser as its noise allows in κ log n steps, κ = b/μ: the bias (1 − 1/κ)^K of K steps
falls faster than the noise, whose variance per coordinate stays below s²/(bμ), s its deviation in every step.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from decentral_dp.algorithms.budget_split import Part
from decentral_dp.algorithms.coordinator_bilevel.localised_lower_solver import DpLocGd
from decentral_dp.algorithms.coordinator_bilevel.lower_objective import LowerObjective
from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.bounded import Array
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.constants.record_sensitivity import penalised_modulus
from decentral_dp.errors import InputError
from decentral_dp.exchange import Pool, Release, Request, Response
from decentral_dp.participants.coordinator_context import CoordinatorContext

__all__ = ["SOLVERS", "DpGd", "DpLocGd", "LowerObjective", "OutputPerturbation", "Solver", "SolvesLower", "solver_of"]


# At most so many steps by default: each is a release, and where more seem wanted, a narrower domain is.
MOST_STEPS = 200


class Known(NamedTuple):
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

    def part(self, context: CoordinatorContext, objective: LowerObjective, first: int, share: float) -> Part:
        """State its releases in a round, from position `first` on.

        Args:
            context: what the coordinator knows.
            objective: g, or g + f/λ.
            first: position of the first release in the round.
            share: of the round's μ², for all of them together, in proportion to other channels'.
        """
        return Part(range(first, first + self.steps), context.problem.q, objective.kinds(context), share, self.rate)

    def solve(
        self, context: CoordinatorContext, objective: LowerObjective, x: Array, y: Array
    ) -> Generator[Request, Response, Array]:
        """Compute ỹ, (q,), by K projected steps.

        Args:
            context: what the coordinator knows.
            objective: g, or g + f/λ.
            x: (p,), public.
            y: (q,), the public start.
        """
        y = context.inside(x, y, objective.penalty)
        for _ in range(self.steps):
            released = yield from objective.gradient(context, x, y, self.rate)
            y = context.inside(
                x,
                y - released.released[objective.channel][0] / self._smoothness(context, objective, x),
                objective.penalty,
            )
        return y

    def _smoothness(self, context: CoordinatorContext, objective: LowerObjective, x: Array) -> float:
        known = None if self.smoothness is not None else context.constants_at(x, objective.penalty)
        if known is None:
            # Only where an x so far out was reached that no constants hold: nothing moves there.
            return math.inf if self.smoothness is None else self.smoothness
        return known.b_gyy + (known.b_fyy / objective.penalty if objective.penalty else 0.0)


class OutputPerturbation(NamedTuple):
    """The certified minimiser of the pooled records, with noise: one release."""

    publishes: int = 1

    def part(self, context: CoordinatorContext, objective: LowerObjective, first: int, share: float) -> Part:
        """State its release in a round, at position `first`.

        Args:
            context, objective, first, share: as of `DpGd.part`.
        """
        return Part((first,), context.problem.q, objective.kinds(context), share)

    def solve(
        self, context: CoordinatorContext, objective: LowerObjective, x: Array, y: Array
    ) -> Generator[Request, Response, Array]:
        """Compute ỹ, (q,), by one release of the minimiser.

        Args:
            context, objective, x: as of `DpGd.solve`.
            y: the start, which is not read.
        """
        pool = yield Pool()
        released = yield Release(**{objective.channel: pool.minimiser(x, objective.penalty or None)})
        return context.inside(x, released.released[objective.channel][0], objective.penalty)


Solver: TypeAlias = DpGd | OutputPerturbation | DpLocGd


class Sort(NamedTuple):
    """constants: needed. pools: needs the records. samples: reads Poisson samples where there is a rate."""

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


def check_perturbed(context: CoordinatorContext, solver: str) -> None:
    """Raises InputError where a solver of pooled records finds none in the lower level."""
    if SOLVERS[solver].needs_records and not context.reads("lower_grad_y"):
        raise InputError(
            f'algorithm.solver: "{solver}" has nothing to perturb where the lower level reads no record; take "dp_gd".'
        )


# Defaults and noise ------------------------------------------------------------------------------------------------


def steps_of_descent(k: Known) -> int:
    """K = ⌈κ log(μ R₀ n m/C)⌉: from R₀ away, twice the radius, to where noise takes over."""
    far = k.modulus * 2.0 * k.constants.radius * k.records * k.price / k.lipschitz
    return max(1, math.ceil(k.smoothness / k.modulus * math.log(max(far, math.e))))


def best_steps(k: Known) -> int:
    """The K, of at most κ log(…) and `MOST_STEPS` of them, whose bias and noise together are smallest.

    (2R)²(1 − 1/κ)^{2K} + q s_K², s_K the deviation that K steps of a fixed budget leave in a coordinate: with little
    noise that is κ log(…) again, with much of it a few steps.
    """
    left = 1.0 - k.modulus / k.smoothness
    sensitivity = 2.0 * k.lipschitz / (k.records * k.price)

    def error(steps: int) -> float:
        bias = 2.0 * k.constants.radius * left**steps
        return bias**2 + k.dimension * (sensitivity * noise_gain("dp_gd", k, steps, 1)) ** 2

    most = min(steps_of_descent(k), MOST_STEPS)
    tried = np.unique(np.geomspace(1.0, most, 64).astype(np.int64))
    return int(min(tried, key=lambda steps: error(int(steps))))


def noise_gain(name: str, k: Known, steps: int, stages: int) -> float:
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
        left = 1.0 - k.modulus / k.smoothness
        kept = -math.expm1(2.0 * steps * math.log(left)) if left > 0.0 else 1.0
        return math.sqrt(steps * kept / (k.smoothness * k.modulus * (1.0 + left)))
    return math.sqrt(stages) / k.modulus


class SolvesLower(Coordinated, Protocol):
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
