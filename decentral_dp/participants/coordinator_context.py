"""What a trusted coordinator knows beforehand, and how it reads the agents' answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split, mean_sensitivity_bound
from decentral_dp.constants.families import Declared, Family
from decentral_dp.constants.problem_constants import ProblemConstants, up
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, ClippedSum, Value
from decentral_dp.participants.implicit_gradient import implicit_mean
from decentral_dp.participants.pooled import Pooled
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.domain import Domain
from decentral_dp.problems.protocol import CHANGE, CLIP_OF_TERM, DIRECTED, MATRICES, Problem, Started, split_read

# Gauss–Legendre on [−1, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass(frozen=True)
class CoordinatorContext:
    """Public facts. counts: kind → records of all agents together. family: None where constants are not known.

    clip: bounds of per-record contributions, as the agents apply them. domain: of x. rounds: how many are to come.
    budget: μ of the Gaussian pair that the target (ε, δ) is, inf where there is none. noisy: whether noise is added.
    """

    problem: Problem
    counts: Mapping[Split, int]
    agents: int
    clip: Clip
    domain: Domain
    family: Family | None = None
    rounds: int = 1
    budget: float = math.inf
    noisy: bool = True

    def implicit(self, a: Value, b: Value, jacobian: Value, hessian: Value) -> Bounded:
        """Compute a − J H⁻¹ b from means at one public point, (1, p).

        Args:
            a, b, jacobian, hessian: as of `implicit_mean`.
        """
        # The lower losses of every family with analytic constants are convex; of other problems that is not known.
        proven = self.family is not None and not isinstance(self.family, Declared)
        return implicit_mean(a, b, jacobian, hessian, self.clip, positive=proven)

    def reads(self, term: str) -> bool:
        """Whether this term reads records, so that it must be asked for."""
        return ("lower_jvp" if term == CHANGE else MATRICES.get(term, term)) in self.problem.reads_records

    def bound(self, term: str) -> float:
        """The clip of this term."""
        return self.clip.bound("x" if term == CHANGE else CLIP_OF_TERM[term])

    def check_start(self, start: Mapping[str, float]) -> None:
        """A constant start of a variable that is not there is read by nobody."""

    def check_bounded(self, terms: Sequence[str]) -> None:
        """Refuse a term that reads records and that nothing bounds.

        Raises:
            InputError: for a clip that is missing.
        """
        for term in terms:
            if self.noisy and self.reads(term) and not np.isfinite(self.bound(term)):
                family = CLIP_OF_TERM[term]
                raise InputError(
                    f"privacy.clip.{family}: missing. Nothing else bounds what one record adds to {term}; give for "
                    f"example clip.{family} = 1.0."
                )

    def width(self, term: str) -> int:
        """Coordinates of a vector term."""
        return self.problem.p if CLIP_OF_TERM[term] == "x" else self.problem.q

    def split_of(self, term: str) -> Split:
        """The kind of records that a term reads. Raises KeyError where it reads none."""
        return split_read(term, self.problem.reads_records)

    def question(self, term: str, x: Array, y: Array, along: Array | None, rate: float) -> ClippedSum:
        """Make the question for a term at a public point.

        Args:
            term: of the problem.
            x: (p,), public.
            y: (q,), public.
            along: (q,), z of lower_hvp and lower_jvp; other terms take none.
            rate: of the Poisson sample; 1 for all records.
        """
        return ClippedSum(term, x, y, along if term in DIRECTED else None, rate)

    def public(self, term: str, x: Array, y: Array, along: Array | None, t: int) -> Array:
        """Compute the data-independent part of a vector term: the regulariser's of a lower term, 0 of an upper one.

        Args:
            term: of the problem.
            x: (p,), public.
            y: (q,), public.
            along: (q,), z of lower_hvp and lower_jvp.
            t: round; the part is the same in any.

        Returns:
            (width,), by `width`.
        """
        if not term.startswith("lower_"):
            return np.zeros(self.width(term))
        at = np.zeros_like(y) if along is None else along
        parts = self.problem.regulariser(x[None], y[None], at[None])._asdict()
        return np.asarray(parts[term.removeprefix("lower_")][0])

    def start(self, variable: str, constants: Mapping[str, float]) -> Array:
        """Where x or y starts: a constant (0 if absent) plus the problem's own public start, x inside its domain."""
        point = np.full(self.problem.p if variable == "x" else self.problem.q, float(constants.get(variable, 0.0)))
        own = self.problem.start.get(variable) if isinstance(self.problem, Started) else None
        point = point if own is None else point + own
        return self.domain.project(point) if variable == "x" else np.asarray(point)

    def inside(self, x: Array, y: Array, penalty: float = 0.0) -> Array:
        """y projected on the ball of the minimisers at x of g, or of g + f/λ; y itself where none is known."""
        known = self.constants_at(x, penalty)
        if self.family is None or known is None:
            return y
        centre: Array = self.family.centre(x)
        radius = known.radius
        away = y - centre
        norm = float(np.linalg.norm(away))
        return np.asarray(centre + away * (radius / norm)) if norm > radius else y

    def constants_at(self, x: Array, penalty: float = 0.0) -> ProblemConstants | None:
        """On the ball of the minimisers at x of g, or of g + f/λ; None where none are known."""
        if self.family is None:
            return None
        try:
            return self.family.constants(x, x, 1.0 + 1.0 / penalty if penalty else 1.0)
        except InputError:
            # An x so far out that nothing holds there; it is public, as x always is.
            return None

    def regulariser_grad_y(self, x: Array, y: Array) -> Array:
        """∇_y R(x, y), (q,): no record is read."""
        return np.asarray(self.problem.regulariser(x[None], y[None], np.zeros((1, y.size))).grad_y[0])

    def regulariser_change(self, x: Array, y: Array, other: Array) -> Array:
        """∇_x R(x, y) − ∇_x R(x, other), (p,): ∇²_xy R·(y − other) along the segment, exact to the sixth order in y."""
        at = other + np.outer(0.5 * (1.0 + _NODES), y - other)
        n = len(at)
        along = self.problem.regulariser(np.tile(x, (n, 1)), at, np.tile(y - other, (n, 1))).jvp
        return np.asarray(0.5 * _WEIGHTS @ along)

    def mean_sensitivity(self, term: str, width: int, rate: float = 1.0) -> dict[Split, float]:
        """How far one replaced record moves the mean that answers a question: 2C/(qN), times the slack of its sum."""
        split = self.split_of(term)
        return {split: mean_sensitivity_bound(2.0 * self.bound(term), self.counts[split], self.agents, width, rate)}

    def tightened(self, change: Bounded, query: ClippedSum, penalty: float) -> Bounded:
        """The answer to a question of `CHANGE` between two points of the ball of minimisers of g + f/λ.

        Where constants are known, one record moves it by D_hxy ‖y − other‖/n as well: what it contributes is an
        integral of ∇²_xy l over the segment, which is in the ball, and clipping brings no two values further apart.
        Not so for a Poisson sample, which has to hide whether the record is in it, too.
        """
        known = self.constants_at(query.x, penalty)
        if self.family is None or known is None or query.along is None or query.rate < 1.0:
            return change
        split = self.split_of(query.term)
        most, n = float(change.sensitivities[split].sensitivity[0]), self.counts[split]
        # Rounding errors are as large as what is added up, however little it differs between neighbours.
        rounding = most - 2.0 * self.bound(query.term) / n
        # So are those of each difference, which are as large as the losses that it is of.
        rounding += (
            query.times * (self.family.loss_range(query.x, query.x) + math.log(query.y.size + 1.0)) * 2.0**-46 / n
        )
        oscillation = up(query.times * known.d_hxy * float(np.linalg.norm(query.y - query.along)) / n) + rounding
        if not oscillation < most:
            return change
        return replace(
            change, sensitivities={split: change.sensitivities[split]._replace(sensitivity=np.array([oscillation]))}
        )

    def combined(self, number: int, questions: Mapping[str, ClippedSum], answers: Mapping[str, Array]) -> Bundle:
        """Question → the mean over all records, or over a Poisson sample divided by its expected size, as `Bounded`.

        answers: the sums of all agents in their order, (m, …). Matrices come row by row in one row.
        """
        out: dict[str, Any] = {}
        for name, query in questions.items():
            total = answers[name].sum(axis=0).reshape(1, -1)
            split = self.split_of(query.term)
            (bound,) = self.mean_sensitivity(query.term, total.shape[1], query.rate).values()
            drawn = query.rate < 1.0
            sensitivity = Sensitivity(
                np.array([bound]), np.array([query.rate]), number if drawn else None, "poisson" if drawn else "fixed"
            )
            mean = total / (query.rate * self.counts[split])
            out[name] = Bounded(np.zeros_like(mean), mean, {split: sensitivity}, self.clip.norm)
        return Bundle(out)

    def pooled(self, handed: Sequence[tuple[Any, Any]]) -> Pooled:
        """The door to all agents' records."""
        if self.family is None:
            raise ValueError("records are pooled only where the problem's constants are known")
        return Pooled.of(self.family, handed)
