"""What a trusted coordinator knows beforehand of a problem, bilevel or minimax, and how it reads agents' answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import numpy as np

from decentral_dp.bounded import CHANNELS, Array, Bounded, Sensitivity, Split, mean_sensitivity_bound, summation_slack
from decentral_dp.central.certified_solver import implicit_mean, project_to_ball
from decentral_dp.central.pooled import Pooled, PooledBounds
from decentral_dp.constants.families import Family
from decentral_dp.constants.problem_constants import ProblemConstants, round_up
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, ClippedQuery, ClippedSum, Value
from decentral_dp.privacy.clipping import Clip, clip_factors
from decentral_dp.problems.protocol import CHANGE, CLIP_OF_TERM, DIRECTED, MATRICES, Problem, Started, split_read
from decentral_dp.problems.saddle import Minimax, PublicBall

# Gauss–Legendre on [−1, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
# The clip in [privacy] of each gradient of a minimax problem; of both as one vector it is that of x.
_CHANNELS = {"grad_x": "x", "grad_y": "y", "joint": "x", "inner_x": "x", "inner_y": "y"}
# The clip of any term.
_FAMILY_OF_TERM = {**CLIP_OF_TERM, **_CHANNELS, CHANGE: "x"}


@dataclass(frozen=True)
class Domain:
    """The box low ≤ x_s ≤ high of every coordinate; all of R^p by default."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def compact(self) -> bool:
        return math.isfinite(self.high - self.low)

    def project(self, x: Array) -> Array:
        """The nearest point, (p,): argmin_u ⟨g, u⟩ + ‖u − x‖²/(2η) is the projection of x − ηg."""
        return np.asarray(np.clip(x, self.low, self.high)) if self.compact else x

    def require_compact(self, what: str) -> None:
        """Refuse a domain without bounds. what: that needs them. Raises InputError."""
        if not self.compact:
            raise InputError(
                f"algorithm.domain: missing, and {what} needs bounds of x. Fix: give for example "
                "{ low = -5.0, high = 0.0 }."
            )

    def corners(self, p: int) -> tuple[Array, Array]:
        """(low, high), (p,) each."""
        return np.full(p, self.low), np.full(p, self.high)

    def diameter(self, p: int) -> float:
        """sup ‖x − x'‖₂."""
        return (self.high - self.low) * math.sqrt(p)


class _Context:
    """What a coordinator reads from its agents' answers, by the questions that a subclass knows the bounds of."""

    def check_bounded(self: Any, terms: Sequence[str]) -> None:
        """Refuse a term that reads records and that nothing bounds.

        Raises:
            InputError: for a clip that is missing.
        """
        for term in terms:
            if self.noisy and self.reads(term) and not math.isfinite(self.bound(term)):
                family = _FAMILY_OF_TERM.get(term, "x")
                raise InputError(
                    f"privacy.clip.{family}: missing. Nothing else bounds what one record adds to {term}; give for "
                    f"example clip.{family} = 1.0."
                )

    def combine(self: Any, number: int, questions: Mapping[str, Any], answers: Mapping[str, Array]) -> Bundle:
        """Question → the mean over all records, or over a Poisson sample divided by its expected size, as `Bounded`.

        answers: the sums of all agents in their order, (m, …). Matrices come row by row in one row. The number of
        records drawn plays no part.
        """
        rates = {query.rate for query in questions.values() if query.rate < 1.0}
        if len(rates) > 1:
            # One draw of coins serves a question: samples at two rates would not be independent.
            raise ValueError(f"one question asks for samples at the rates {sorted(rates)}; ask for one at a time")
        out: dict[str, Any] = {}
        for name, query in questions.items():
            split, total = self.split_of(query.term), answers[name].sum(axis=0).reshape(1, -1)
            mean = total / (query.rate * self.counts[split])
            centre = getattr(query, "centre", None)
            public = np.zeros_like(mean) if centre is None else centre[None]
            bound, rate = np.array([self.sensitivity_of(query, mean.shape[1])]), np.array([query.rate])
            drawn = query.rate < 1.0
            sensitivity = Sensitivity(bound, rate, number if drawn else None, "poisson" if drawn else "fixed")
            out[name] = Bounded(public, mean, {split: sensitivity}, self.clip.norm)
        return Bundle(out)


@dataclass(frozen=True)
class CoordinatorContext(_Context):
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
        return implicit_mean(a, b, jacobian, hessian, self.clip, positive=self.family is not None)

    @property
    def pooled_bounds(self) -> PooledBounds:
        """The public bounds on what is computed over pooled records, of a problem whose constants are known."""
        return PooledBounds(cast(Family, self.family), self.counts["train"], self.counts["validation"])

    def reads(self, term: str) -> bool:
        """Whether this term reads records, so that it must be asked for."""
        return ("lower_jvp" if term == CHANGE else MATRICES.get(term, term)) in self.problem.reads_records

    def bound(self, term: str) -> float:
        """The clip of this term."""
        return self.clip.bound(_FAMILY_OF_TERM[term])

    def check_start(self, start: Mapping[str, float]) -> None:
        """A constant start of a variable that is not there is read by nobody."""

    def with_clips(self, terms: Sequence[str], usual: Callable[[], Clip]) -> CoordinatorContext:
        """Fill in the clips that are missing of terms that read records.

        Args:
            terms: of the problem.
            usual: makes clips from the constants of the problem on the domain of x.

        Raises:
            InputError: for a clip that is missing where no constants are known, or x has no bounds.
        """
        if self.family is None or not self.domain.compact:
            self.check_bounded(terms)
            return self
        missing = {_FAMILY_OF_TERM[t] for t in terms if self.noisy and self.reads(t) and math.isinf(self.bound(t))}
        if not missing:
            return self
        filled = usual()
        bounds = [(filled if c in missing else self.clip).bound(c) for c in CHANNELS]
        return replace(self, clip=Clip(self.clip.norm, *bounds))

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
        """Where x (p,) or y (q,) starts: a constant (0 if absent) plus the problem's own start, x inside its domain."""
        point = np.full(self.problem.p if variable == "x" else self.problem.q, float(constants.get(variable, 0.0)))
        own = self.problem.start.get(variable) if isinstance(self.problem, Started) else None
        point = point if own is None else point + own
        return self.domain.project(point) if variable == "x" else np.asarray(point)

    def project_to_minimisers(self, x: Array, y: Array, penalty: float = 0.0) -> Array:
        """Project y on the ball of the minimisers at x.

        Args:
            x: (p,), public.
            y: (q,), public.
            penalty: λ of g + f/λ; 0, the default, for g alone.

        Returns:
            (q,); the centre where y is not finite, and y itself where no ball is known.
        """
        constants = self.constants_at(x, penalty)
        if self.family is None or constants is None:
            return y
        return project_to_ball(y, self.family.centre(x), constants.radius)

    def constants_at(self, x: Array, penalty: float = 0.0) -> ProblemConstants | None:
        """Constants on the ball of the minimisers at x.

        Args:
            x: (p,), public.
            penalty: λ of g + f/λ; 0, the default, for g alone.

        Returns:
            The constants; None where none are known.
        """
        if self.family is None:
            return None
        try:
            return self.family.constants(x, x, 1.0 + 1.0 / penalty if penalty else 1.0)
        except InputError:
            # An x so far out that nothing holds there; it is public, as x always is.
            return None

    def regulariser_change(self, x: Array, y: Array, other: Array) -> Array:
        """∇_x R(x, y) − ∇_x R(x, other), (p,): ∇²_xy R·(y − other) along the segment, exact to the sixth order in y."""
        at = other + np.outer(0.5 * (1.0 + _NODES), y - other)
        n = len(at)
        along = self.problem.regulariser(np.tile(x, (n, 1)), at, np.tile(y - other, (n, 1))).jvp
        return np.asarray(0.5 * _WEIGHTS @ along)

    def mean_sensitivity(self, term: str, width: int, rate: float = 1.0) -> dict[Split, float]:
        """How far one replaced record moves the mean that answers a question: 2C/(qN), times the slack of its sum.

        Args:
            term: of the problem, clipped to C.
            width: coordinates of the mean.
            rate: q of the Poisson sample; by default 1, all records.

        Returns:
            Kind of record → its sensitivity in ℓ2.
        """
        split = self.split_of(term)
        return {split: mean_sensitivity_bound(2.0 * self.bound(term), self.counts[split], self.agents, width, rate)}

    def tighten(self, change: Bounded, query: ClippedSum, penalty: float) -> Bounded:
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
        oscillation = round_up(query.times * known.d_hxy * float(np.linalg.norm(query.y - query.along)) / n) + rounding
        if not oscillation < most:
            return change
        return replace(
            change, sensitivities={split: change.sensitivities[split]._replace(sensitivity=np.array([oscillation]))}
        )

    def sensitivity_of(self, query: ClippedSum, width: int) -> float:
        """How far one replaced record moves the mean, (width,), that answers a question."""
        (bound,) = self.mean_sensitivity(query.term, width, query.rate).values()
        return bound

    def pool(self, records: Sequence[tuple[Any, Any]]) -> Pooled:
        """What answers queries to all agents' records."""
        if self.family is None:
            raise ValueError("records are pooled only where the problem's constants are known")
        return Pooled.from_agents(self.family, records)


@dataclass(frozen=True)
class MinimaxContext(_Context):
    """Public facts. counts: kind → records of all agents together.

    clip: of ∇_x f and ∇_y f as the scenario gives it. parameters: public, which `problem` was given, and which the
    agents' problems are given with every question. rounds: how many are to come. budget: μ of the Gaussian pair that
    the target (ε, δ) is, inf where there is none. noisy: whether noise is added; without noise nothing is clipped
    either.
    """

    problem: Minimax
    counts: Mapping[Split, int]
    agents: int
    clip: Clip
    rounds: int = 1
    budget: float = math.inf
    noisy: bool = True
    parameters: Array | None = None

    # No constants of curvature are known, and none are needed.
    family: None = None

    @property
    def n(self) -> int:
        """Records of all agents together: public."""
        return self.counts["train"]

    def reads(self, term: str) -> bool:
        """Whether this term reads records, so that it must be asked for."""
        return self.problem.terms.get(term, False)

    def constants_at(self, x: Array, penalty: float = 0.0) -> None:
        return None

    def start(self, variable: str, constants: Mapping[str, float]) -> Array:
        """Where x (p,) or y (q,) starts: a constant (0 if absent) plus the problem's own start, inside its set."""
        own = self.problem.start[variable]
        point = np.asarray(own + float(constants.get(variable, 0.0)))
        return self.problem.project_x(point) if variable == "x" else self.problem.project_y(point)

    def check_start(self, start: Mapping[str, float]) -> None:
        """Refuse a constant start of a variable that is not there.

        Raises:
            InputError: for a variable that is neither x nor y.
        """
        for name in start:
            if name not in ("x", "y"):
                raise InputError(f"algorithm.init.{name}: a minimax problem has x and y alone. Leave it out.")

    def bound(self, term: str) -> float:
        """What bounds this term at the start; inf where nothing does."""
        return self.ball(term, self.start("x", {}), self.start("y", {})).radius

    def width(self, term: str) -> int:
        """Coordinates of a term."""
        return self.problem.width(term)

    def split_of(self, term: str) -> Split:
        """The kind of records that a term reads: there is one."""
        return "train"

    def question(self, term: str, x: Array, y: Array, along: Array | None, rate: float) -> ClippedQuery:
        """Make the question for a term at a public point.

        Args:
            term: of the problem.
            x: (p,), public.
            y: (q,), public.
            along: not read, as no term takes a direction.
            rate: of the Poisson sample; 1 for all records.
        """
        return self.query(term, x, y, rate)

    def public(self, term: str, x: Array, y: Array, along: Array | None, t: int) -> Array:
        """Compute the data-independent part of a term.

        Args:
            term: of the problem.
            x: (p,), public.
            y: (q,), public.
            along: not read, as no term takes a direction.
            t: round.

        Returns:
            (width,), by `width`.
        """
        return self.problem.public(term, x, y, t)

    def ball(self, term: str, x: Array, y: Array) -> PublicBall:
        """The ball that contributions to a term at x (p,) and y (q,) are clipped to: a known one, or the clip around 0.

        The smaller of the two.

        Without noise there is no ball, and with neither a clip nor a known ball its radius is inf.
        """
        if not self.noisy:
            return PublicBall(None, math.inf)
        radius = self.clip.bound(_CHANNELS[term]) if term in _CHANNELS else math.inf
        known = self.problem.public_ball(term, x, y)
        return known if known is not None and known.radius <= radius else PublicBall(None, radius)

    def query(
        self,
        term: str,
        x: Array,
        y: Array,
        rate: float = 1.0,
        since: tuple[Array, Array] | None = None,
        bound: float | None = None,
    ) -> ClippedQuery:
        """Make the question for a term at a public point, or for its change since an earlier one.

        Args:
            term: of the problem.
            x: (p,), public.
            y: (q,), public.
            rate: of the Poisson sample; by default 1, all records.
            since: the earlier point (x, y); None for the term itself.
            bound: what contributions are clipped to. By default a term is clipped to its ball, and a change not at all.

        Limits:
            Without noise `bound` is not used, and nothing is clipped.
        """
        if since is not None:
            most = math.inf if bound is None or not self.noisy else bound
            return ClippedQuery(term, x, y, most, since, None, rate, self.parameters)
        ball = self.ball(term, x, y)
        radius, centre = (ball.radius, ball.centre) if bound is None or not self.noisy else (bound, None)
        return ClippedQuery(term, x, y, radius, None, centre, rate, self.parameters)

    def sensitivity_of(self, query: ClippedQuery, width: int = 0) -> float:
        """How far one replaced record moves the mean that answers a question. width: not read."""
        width, diameter = self.problem.width(query.term), 2.0 * query.bound
        if query.rate == 1.0 and query.earlier_point is None and self.noisy:
            ball = self.ball(query.term, query.x, query.y)
            if ball.diameter is not None and query.bound == ball.radius:
                diameter = ball.diameter
        # A change is added up as two sums.
        summands = 2 * self.n if query.earlier_point is not None else self.n
        whole = mean_sensitivity_bound(2.0 * query.bound, summands, self.agents, width, query.rate) * summands / self.n
        # Rounding errors are as large as what is added up, however close contributions are to each other.
        return whole - (2.0 * query.bound - diameter) / (query.rate * self.n) if diameter < 2.0 * query.bound else whole

    def clip_mean(self, mean: Bounded, bound: float) -> Bounded:
        """A mean that is cut to a ball around 0 as a whole, when it has been taken.

        One record may carry it from one end of the ball to the other, whatever its share in the mean, and whether or
        not a sample was drawn: it moves by up to twice the bound, and nothing is amplified.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            size = float(np.linalg.norm(mean.value))
        factor = float(clip_factors(np.array([size]), bound)[0])
        change = bound * self.cut_sensitivity(mean.private.shape[1])
        sensitivity: dict[Split, Sensitivity] = {"train": Sensitivity(np.array([change]), np.ones(1), None)}
        # What is not finite has the factor 0, and 0·∞ is NaN.
        cut_mean = mean.value * factor if factor > 0.0 else np.zeros_like(mean.private)
        return Bounded(np.zeros_like(mean.private), cut_mean, sensitivity, "l2")

    def cut_sensitivity(self, width: int) -> float:
        """How far one replaced record moves a mean that is cut to a ball of radius 1."""
        return 2.0 * float(summation_slack(1, width))

    def pool(self, records: Sequence[Any]) -> NoReturn:
        raise ValueError("no program of a minimax problem needs the records themselves")
