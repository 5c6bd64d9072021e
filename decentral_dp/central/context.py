"""Public facts of a bilevel or minimax problem that a trusted coordinator uses, and the means of agents' answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from decentral_dp.bounded import CHANNELS, Array, Bounded, Sensitivity, Split, mean_sensitivity_bound
from decentral_dp.central.certified_solver import implicit_mean, project_to_ball
from decentral_dp.central.pooled import Pooled, PooledBounds
from decentral_dp.central.problems.saddle import Minimax, PublicBall
from decentral_dp.constants import Family, ProblemConstants, round_up
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, ClippedQuery, ClippedSum, Value
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import (
    CLIP_OF_TERM,
    DIRECTED,
    READS_AS,
    Problem,
    regulariser_change,
    split_read,
)

# Term of a minimax problem → its clip in [privacy]; both gradients as one vector use that of x.
_MINIMAX_CLIPS = {"grad_x": "x", "grad_y": "y", "joint": "x", "inner_x": "x", "inner_y": "y"}
# Any term → its clip.
_CLIPS = {**CLIP_OF_TERM, **_MINIMAX_CLIPS}


@dataclass(frozen=True)
class Domain:
    """Box low ≤ x_s ≤ high for every coordinate, by default all of R^p."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def compact(self) -> bool:
        return math.isfinite(self.high - self.low)

    def project(self, x: Array) -> Array:
        """Return the nearest point, (p,)."""
        return np.asarray(np.clip(x, self.low, self.high)) if self.compact else x

    def require_compact(self, subject: str) -> None:
        """Raise InputError for an unbounded domain. `subject` names the component that needs bounds."""
        if not self.compact:
            raise InputError(
                f"algorithm.domain: missing; {subject} requires bounds on x. Fix: set it, for example {{ low = "
                "-5.0, high = 0.0 }."
            )

    def corners(self, p: int) -> tuple[Array, Array]:
        """Return (low, high), (p,) each."""
        return np.full(p, self.low), np.full(p, self.high)


class _Context:
    """Shared methods of the contexts of bilevel and minimax problems."""

    def check_bounded(self: Any, terms: Sequence[str]) -> None:
        """Raise InputError for a term that reads records and has no bound.

        Raises:
            InputError: a clipping norm is missing.
        """
        for term in terms:
            if self.noisy and self.reads(term) and not math.isfinite(self.bound(term)):
                clip = _CLIPS.get(term, "x")
                raise InputError(
                    f"privacy.clip.{clip}: missing, and without it the contribution of one record to {term} "
                    f"is unbounded. Fix: set it, for example clip.{clip} = 1.0."
                )

    def combine(self: Any, number: int, questions: Mapping[str, Any], answers: Mapping[str, Array]) -> Bundle:
        """Return the means that answer the questions, as `Bounded` values.

        A mean over a Poisson sample is the sum divided by the expected sample size, so the number of sampled records is
        not used.

        Args:
            number: index of the query, which keys the Poisson sample.
            questions: name → `ClippedSum` or `ClippedQuery`.
            answers: name → (m, …) sums of all agents in their order. Matrices are flattened row by row.

        Returns:
            Name → (1, width).
        """
        rates = {query.rate for query in questions.values() if query.rate < 1.0}
        if len(rates) > 1:
            # All terms of a question share one sample: samples at two rates would not be independent.
            raise ValueError(f"one query has samples of different rates (got {sorted(rates)}, expected one rate)")
        out: dict[str, Any] = {}
        for name, query in questions.items():
            split, total = self.split_of(query.term), answers[name].sum(axis=0).reshape(1, -1)
            mean = total / (query.rate * self.counts[split])
            centre = getattr(query, "centre", None)
            public = np.zeros_like(mean) if centre is None else centre[None]
            bound, rate = np.array([self.sensitivity_of(query, mean.shape[1])]), np.array([query.rate])
            is_sampled = query.rate < 1.0
            # A contribution is at most one change of a record.
            largest = bound * self.counts[split]
            batch, sampling = (number, "poisson") if is_sampled else (None, "fixed")
            sensitivity = Sensitivity(bound, rate, batch, sampling, largest)
            out[name] = Bounded(public, mean, {split: sensitivity}, self.clip.norm)
        return Bundle(out)


@dataclass(frozen=True)
class CoordinatorContext(_Context):
    """Public facts of a bilevel problem.

    Args:
        problem: bilevel problem.
        counts: total number of records of all agents in each split.
        agents: number of agents.
        clip: clipping norms that the agents apply.
        domain: domain of x.
        family: family of the problem, or None if its constants are unknown.
        rounds: number of rounds.
        budget: μ of a Gaussian pair with the target (ε, δ), or inf without a target.
        noisy: whether noise is added.
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
        """Compute a − J H⁻¹ b from means at one public point, (1, p), as in `implicit_mean`."""
        # The lower losses of every family with analytic constants are convex.
        return implicit_mean(a, b, jacobian, hessian, self.clip, positive=self.family is not None)

    @property
    def pooled_bounds(self) -> PooledBounds:
        """Public bounds on values computed from pooled records of a problem with known constants."""
        return PooledBounds(cast(Family, self.family), self.counts["train"], self.counts["validation"])

    def reads(self, term: str) -> bool:
        """Return whether this term reads records."""
        return READS_AS.get(term, term) in self.problem.reads_records

    def bound(self, term: str) -> float:
        """Return the clipping norm of this term."""
        return self.clip.bound(_CLIPS[term])

    def with_clips(self, terms: Sequence[str], defaults: Callable[[], Clip]) -> CoordinatorContext:
        """Fill in the missing clipping norms of terms that read records.

        Args:
            terms: terms of the problem.
            defaults: function that computes clipping norms from the constants of the problem on the domain of x.

        Raises:
            InputError: a clipping norm is missing, and constants or bounds of x are unknown.
        """
        if self.family is None or not self.domain.compact:
            self.check_bounded(terms)
            return self
        missing = {_CLIPS[t] for t in terms if self.noisy and self.reads(t) and math.isinf(self.bound(t))}
        if not missing:
            return self
        clips = defaults()
        bounds = [(clips if c in missing else self.clip).bound(c) for c in CHANNELS]
        return replace(self, clip=Clip(self.clip.norm, *bounds))

    def width(self, term: str) -> int:
        """Return the number of coordinates of a vector term."""
        return self.problem.p if CLIP_OF_TERM[term] == "x" else self.problem.q

    def split_of(self, term: str) -> Split:
        """Return the split that a term reads. Raises KeyError if it reads no record."""
        return split_read(term, self.problem.reads_records)

    def question(self, term: str, x: Array, y: Array, along: Array | None, rate: float) -> ClippedSum:
        """Build the query of a term at a public point.

        Args:
            term: term of the problem.
            x: public x, (p,).
            y: public y, (q,).
            along: vector z of lower_hvp and lower_jvp, (q,).
            rate: rate of the Poisson sample, or 1 for all records.
        """
        return ClippedSum(term, x, y, along if term in DIRECTED else None, rate)

    def public(self, term: str, x: Array, y: Array, along: Array | None, t: int) -> Array:
        """Compute the data-independent part of a vector term: the regulariser's part for a lower term, 0 otherwise.

        Args:
            term: term of the problem.
            x: public x, (p,).
            y: public y, (q,).
            along: vector z of lower_hvp and lower_jvp, (q,).
            t: round (ignored).

        Returns:
            The public part, (width,).
        """
        if not term.startswith("lower_"):
            return np.zeros(self.width(term))
        direction = np.zeros_like(y) if along is None else along
        parts = self.problem.regulariser(x[None], y[None], direction[None])._asdict()
        return np.asarray(parts[term.removeprefix("lower_")][0])

    def start(self, variable: str, constants: Mapping[str, float]) -> Array:
        """Return the start of x (p,) or y (q,): a constant (default 0) plus the problem's own start, in the domain."""
        point = np.full(self.problem.p if variable == "x" else self.problem.q, float(constants.get(variable, 0.0)))
        offset = self.problem.start.get(variable) if hasattr(self.problem, "start") else None
        point = point if offset is None else point + offset
        return self.domain.project(point) if variable == "x" else np.asarray(point)

    def project_to_minimisers(self, x: Array, y: Array, penalty: float = 0.0) -> Array:
        """Project y onto the ball that contains every minimiser at x.

        Args:
            x: public x, (p,).
            y: public y, (q,).
            penalty: λ of g + f/λ, or 0 (the default) for g.

        Returns:
            The projected y, (q,): the centre if y is not finite, or y itself if no ball is known.
        """
        constants = self.constants_at(x, penalty)
        if self.family is None or constants is None:
            return y
        return project_to_ball(y, self.family.centre(x), constants.radius)

    def constants_at(self, x: Array, penalty: float = 0.0) -> ProblemConstants | None:
        """Return the constants on the ball of the minimisers at x, or None if they are unknown.

        Args:
            x: public x, (p,).
            penalty: λ of g + f/λ, or 0 (the default) for g.
        """
        if self.family is None:
            return None
        try:
            return self.family.constants(x, x, 1.0 + 1.0 / penalty if penalty else 1.0)
        except InputError:
            # No constants hold for such a large x; x is public.
            return None

    def regulariser_change(self, x: Array, y: Array, other_y: Array) -> Array:
        """Compute ∇_x R(x, y) − ∇_x R(x, other), (p,)."""
        change: Array = regulariser_change(self.problem, x[None], y[None], other_y[None])[0]
        return change

    def mean_sensitivity(self, term: str, width: int, rate: float = 1.0) -> dict[Split, float]:
        """Bound the sensitivity of the mean of a term: 2C/(qN), times the slack of its sum.

        Args:
            term: term of the problem, clipped to C.
            width: number of coordinates of the mean.
            rate: rate q of the Poisson sample, default 1.

        Returns:
            The l2 sensitivity to a record of each split.
        """
        split = self.split_of(term)
        return {split: mean_sensitivity_bound(2.0 * self.bound(term), self.counts[split], self.agents, width, rate)}

    def tighten(self, change: Bounded, query: ClippedSum, penalty: float) -> Bounded:
        """Tighten the sensitivity of an answer to `CHANGE` between two points of the ball of minimisers of g + f/λ.

        If constants are known, one record also changes it by at most D_hxy ‖y − other‖/n: its contribution is an
        integral of ∇²_xy l over the segment, which lies in the ball, and clipping is a contraction. This does not hold
        for a Poisson sample, which must also hide whether the record is in the sample.

        Args:
            change: answer to the query.
            query: query of the change.
            penalty: λ.
        """
        constants = self.constants_at(query.x, penalty)
        if self.family is None or constants is None or query.along is None or query.rate < 1.0:
            return change
        split = self.split_of(query.term)
        sensitivity, n = float(change.sensitivities[split].sensitivity[0]), self.counts[split]
        # Rounding errors depend on the size of the summands, not on their difference between neighbours.
        rounding = sensitivity - 2.0 * self.bound(query.term) / n
        # The same holds for each difference, which rounds like the losses that it is computed from.
        rounding += (
            query.times * (self.family.loss_range(query.x, query.x) + math.log(query.y.size + 1.0)) * 2.0**-46 / n
        )
        oscillation = (
            round_up(query.times * constants.d_hxy * float(np.linalg.norm(query.y - query.along)) / n) + rounding
        )
        if not oscillation < sensitivity:
            return change
        return replace(
            change, sensitivities={split: change.sensitivities[split]._replace(sensitivity=np.array([oscillation]))}
        )

    def sensitivity_of(self, query: ClippedSum, width: int) -> float:
        """Return the sensitivity of the mean, (width,), that answers a question."""
        (bound,) = self.mean_sensitivity(query.term, width, query.rate).values()
        return bound

    def pool(self, records: Sequence[tuple[Any, Any]]) -> Pooled:
        """Return the pooled records of all agents, for a problem with known constants."""
        return Pooled.from_agents(cast(Family, self.family), records)


@dataclass(frozen=True)
class MinimaxContext(_Context):
    """Public facts of a minimax problem.

    Args:
        problem: minimax problem.
        counts: total number of records of all agents in each split.
        agents: number of agents.
        clip: clipping norms of ∇_x f and ∇_y f in the scenario.
        rounds: number of rounds.
        budget: μ of a Gaussian pair with the target (ε, δ), or inf without a target.
        noisy: whether noise is added. Without noise nothing is clipped.
        parameters: public parameters of `problem`, which are sent to the agents with every query.
    """

    problem: Minimax
    counts: Mapping[Split, int]
    agents: int
    clip: Clip
    rounds: int = 1
    budget: float = math.inf
    noisy: bool = True
    parameters: Array | None = None

    # No constants of curvature are known or needed.
    family: None = None

    @property
    def n(self) -> int:
        """Public number of records of all agents."""
        return self.counts["train"]

    def reads(self, term: str) -> bool:
        """Return whether this term reads records."""
        return self.problem.terms.get(term, False)

    def start(self, variable: str, constants: Mapping[str, float]) -> Array:
        """Return the start of x (p,) or y (q,): a constant (default 0) plus the problem's own start, in its set."""
        point = np.asarray(self.problem.start[variable] + float(constants.get(variable, 0.0)))
        return self.problem.project_x(point) if variable == "x" else self.problem.project_y(point)

    def bound(self, term: str) -> float:
        """Return the radius to which this term is clipped at the start, or inf if it is unbounded."""
        return self.ball(term, self.start("x", {}), self.start("y", {})).radius

    def width(self, term: str) -> int:
        """Return the number of coordinates of a term."""
        return self.problem.width(term)

    def split_of(self, term: str) -> Split:
        """Return the split that a term reads. There is only one."""
        return "train"

    def question(self, term: str, x: Array, y: Array, along: Array | None, rate: float) -> ClippedQuery:
        """Build the query of a term at a public point, ignoring `along`. See `query`."""
        return self.query(term, x, y, rate)

    def public(self, term: str, x: Array, y: Array, along: Array | None, t: int) -> Array:
        """Compute the data-independent part of a term: the problem's part for a gradient, 0 otherwise.

        Args:
            term: term of the problem.
            x: public x, (p,).
            y: public y, (q,).
            along: vector (ignored).
            t: round.

        Returns:
            The public part, (width,).
        """
        is_gradient = term in ("grad_x", "grad_y")
        return self.problem.public(term, x, y, t) if is_gradient else np.zeros(self.problem.width(term))

    def ball(self, term: str, x: Array, y: Array) -> PublicBall:
        """Return the ball to which contributions to a term are clipped.

        It is the smaller of the problem's public ball and the clipping ball around 0. The radius is inf if there is no
        noise or if neither ball is known.

        Args:
            term: term of the problem.
            x: public x, (p,).
            y: public y, (q,).
        """
        if not self.noisy:
            return PublicBall(None, math.inf)
        radius = self.clip.bound(_MINIMAX_CLIPS[term]) if term in _MINIMAX_CLIPS else math.inf
        ball = self.problem.public_ball(term, x, y)
        return ball if ball is not None and ball.radius <= radius else PublicBall(None, radius)

    def query(
        self,
        term: str,
        x: Array,
        y: Array,
        rate: float = 1.0,
        since: tuple[Array, Array] | None = None,
        bound: float | None = None,
    ) -> ClippedQuery:
        """Build the query of a term at a public point, or for its change since a previous one.

        Args:
            term: term of the problem.
            x: public x, (p,).
            y: public y, (q,).
            rate: rate of the Poisson sample, default 1.
            since: previous point (x, y), or None for the term itself.
            bound: clipping norm. By default a term is clipped to its ball, and a change is not clipped. Without noise
                nothing is clipped.
        """
        if since is not None:
            norm = math.inf if bound is None or not self.noisy else bound
            return ClippedQuery(term, x, y, norm, since, None, rate, self.parameters)
        ball = self.ball(term, x, y)
        radius, centre = (ball.radius, ball.centre) if bound is None or not self.noisy else (bound, None)
        return ClippedQuery(term, x, y, radius, None, centre, rate, self.parameters)

    def sensitivity_of(self, query: ClippedQuery, width: int = 0) -> float:
        """Return the sensitivity of the mean that answers a question. The width is not used."""
        width, diameter = self.problem.width(query.term), 2.0 * query.bound
        if query.rate == 1.0 and query.earlier_point is None and self.noisy:
            ball = self.ball(query.term, query.x, query.y)
            if ball.diameter is not None and query.bound == ball.radius:
                diameter = ball.diameter
        # A change is added up as two sums.
        summands = 2 * self.n if query.earlier_point is not None else self.n
        bound = mean_sensitivity_bound(2.0 * query.bound, summands, self.agents, width, query.rate)
        sensitivity = bound * summands / self.n
        if diameter < 2.0 * query.bound:
            # Rounding errors depend on the size of the summands, not on the distance between contributions.
            sensitivity -= (2.0 * query.bound - diameter) / (query.rate * self.n)
        return sensitivity
