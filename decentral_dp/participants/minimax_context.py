"""What a trusted coordinator knows beforehand of a minimax problem, and how it reads the agents' answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split, mean_sensitivity_bound, summation_slack
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, ClippedQuery
from decentral_dp.privacy.clipping import Clip, clip_factors
from decentral_dp.problems.minimax.protocol import Known, Minimax

# The clip in [privacy] of each gradient; of both as one vector it is that of x.
_CHANNELS = {"grad_x": "x", "grad_y": "y", "joint": "x", "inner_x": "x", "inner_y": "y"}


@dataclass(frozen=True)
class MinimaxContext:
    """Public facts. counts: kind → records of all agents together.

    clip: of ∇_x f and ∇_y f as the scenario gives it. given: public parameters that `problem` was given, and that the
    agents' problems are given with every question. rounds: how many are to come. budget: μ of the Gaussian pair that
    the target (ε, δ) is, inf where there is none. noisy: whether noise is added; without noise nothing is clipped
    either. counted: whether a number counted from the records is in every contribution, which one record then moves.
    """

    problem: Minimax
    counts: Mapping[Split, int]
    agents: int
    clip: Clip
    rounds: int = 1
    budget: float = math.inf
    noisy: bool = True
    given: Array | None = None
    counted: bool = False

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
        """Where x or y starts: a constant (0 if absent) plus the problem's own public start, inside its set."""
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

    def check_bounded(self, terms: Sequence[str]) -> None:
        """Refuse a term that reads records and that nothing bounds.

        Raises:
            InputError: for a clip that is missing.
        """
        x, y = self.start("x", {}), self.start("y", {})
        for term in terms:
            if self.noisy and self.reads(term) and not np.isfinite(self.ball(term, x, y).radius):
                variable = term[-1]
                raise InputError(
                    f"privacy.clip.{variable}: missing. Nothing else bounds what one record adds to the gradient by "
                    f"{variable}; give for example clip.{variable} = 1.0."
                )

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

    def ball(self, term: str, x: Array, y: Array) -> Known:
        """Where contributions are clipped to: the ball that is known, or the clip around 0, whichever is smaller.

        Without noise there is no ball, and with neither a clip nor a known ball its radius is inf.
        """
        if not self.noisy:
            return Known(None, math.inf)
        given = self.clip.bound(_CHANNELS[term]) if term in _CHANNELS else math.inf
        known = self.problem.known(term, x, y)
        return known if known is not None and known.radius <= given else Known(None, given)

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
            return ClippedQuery(term, x, y, most, since, None, rate, self.given)
        ball = self.ball(term, x, y)
        radius, centre = (ball.radius, ball.centre) if bound is None or not self.noisy else (bound, None)
        return ClippedQuery(term, x, y, radius, None, centre, rate, self.given)

    def sensitivity_of(self, query: ClippedQuery) -> float:
        """How far one replaced record moves the mean that answers a question; inf where nothing bounds it."""
        if self.counted:
            return math.inf
        width, diameter = self.problem.width(query.term), 2.0 * query.bound
        if query.rate == 1.0 and query.since is None and self.noisy:
            ball = self.ball(query.term, query.x, query.y)
            if ball.diameter is not None and query.bound == ball.radius:
                diameter = ball.diameter
        # A change is added up as two sums.
        summands = 2 * self.n if query.since is not None else self.n
        whole = mean_sensitivity_bound(2.0 * query.bound, summands, self.agents, width, query.rate) * summands / self.n
        # Rounding errors are as large as what is added up, however close contributions are to each other.
        return whole - (2.0 * query.bound - diameter) / (query.rate * self.n) if diameter < 2.0 * query.bound else whole

    def combined(self, number: int, questions: Mapping[str, ClippedQuery], answers: Mapping[str, Array]) -> Bundle:
        """Question → the mean over all records, or over a Poisson sample divided by its expected size, as `Bounded`.

        answers: the sums of all agents in their order, (m, width). The number of records drawn plays no part.
        """
        rates = {query.rate for query in questions.values() if query.rate < 1.0}
        if len(rates) > 1:
            # One draw of coins serves a question: samples at two rates would not be independent.
            raise ValueError(f"one question asks for samples at the rates {sorted(rates)}; ask for one at a time")
        out: dict[str, Any] = {}
        for name, query in questions.items():
            mean = answers[name].sum(axis=0).reshape(1, -1) / (query.rate * self.n)
            centre = np.zeros_like(mean) if query.centre is None else query.centre[None]
            drawn = query.rate < 1.0
            sensitivity = Sensitivity(
                np.array([self.sensitivity_of(query)]),
                np.array([query.rate]),
                number if drawn else None,
                "poisson" if drawn else "fixed",
            )
            out[name] = Bounded(centre, mean, {"train": sensitivity}, "l2")
        return Bundle(out)

    def cut(self, mean: Bounded, bound: float) -> Bounded:
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
        kept = mean.value * factor if factor > 0.0 else np.zeros_like(mean.private)
        return Bounded(np.zeros_like(mean.private), kept, sensitivity, "l2")

    def cut_sensitivity(self, width: int) -> float:
        """How far one replaced record moves a mean that is cut to a ball of radius 1."""
        return 2.0 * float(summation_slack(1, width))

    def pooled(self, handed: Sequence[Any]) -> NoReturn:
        raise ValueError("no program of a minimax problem needs the records themselves")
