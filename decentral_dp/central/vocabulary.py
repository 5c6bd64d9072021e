"""Names for writing an algorithm of a trusted coordinator: `from decentral_dp.central import vocabulary as dp`.

An algorithm is a frozen dataclass. It states the terms of its queries, and the shares of each round's budget:

    QUERIES = ("grad_x", "grad_y")
    SHARES = {"grad_x": 0.5, "grad_y": 0.5}      default: equal shares

    def init(self, context, x, y): ...           x: (p,), y: (q,)
    def step(self, t, context, s): ...           calls `release_gradients` `releases_per_round` times

An algorithm with other releases inherits from `Coordinated` and implements `planned_releases`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.entry import AUC, Citation, Entry, Rules
from decentral_dp.algorithms.options import internal, option
from decentral_dp.algorithms.plans import Wrapper
from decentral_dp.algorithms.protocol import AnyAlgorithm, StepSize, check_message
from decentral_dp.bounded import SPLITS, Array, Bounded, Split
from decentral_dp.central.context import CoordinatorContext, MinimaxContext
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.exchange import (
    Ask,
    Bundle,
    ClippedQuery,
    ClippedSum,
    Coordination,
    Pool,
    Release,
    Released,
    Request,
    Response,
    SelectionMechanism,
    Value,
)

S = TypeVar("S")
# The steps of a coordinator in a round or in a part of it: exchanges are yielded, S is the result.
CoordinatorSteps: TypeAlias = Generator[Request, Response, S]
# Term of a minimax problem → channel of its releases, if the names differ.
_CHANNELS = {"grad_x": "gx", "grad_y": "gy"}


# Plans ---------------------------------------------------------------------------------------------------------------


class Calibration(NamedTuple):
    """Published noise of one channel.

    Args:
        scale: noise scale of each release, (R,).
        sensitivity: sensitivity of each release to a record of each split, (R,).
    """

    scale: Array
    sensitivity: Mapping[Split, Array]


class Charge(NamedTuple):
    """Planned releases of one channel, before calibration to the target ε.

    Args:
        mechanism: noise mechanism, "gaussian", "laplace", "exponential" or "uncertified".
        width: number of coordinates of one release.
        indices: indices of the releases, (R,), ascending, from 1.
        weight: privacy cost of each release (μ, or pure ε) by split, (R,), relative to the other releases and channels.
            One common factor meets the target.
        rate: rate of the Poisson sample of each split.
        distortion: distortion of the mechanism, as in the ledger.
        reason: reason why a mechanism is uncertified.
    """

    mechanism: str
    width: int
    indices: NDArray[np.int64]
    weight: Mapping[Split, Array]
    rate: Mapping[Split, float] = MappingProxyType({})
    distortion: float = 0.0
    reason: str = ""


class Part(NamedTuple):
    """Gaussian releases of one channel during a run.

    Args:
        indices: indices of the releases, (R,), ascending, from 1.
        width: number of coordinates of one release.
        kinds: splits that the releases read.
        share: share of Σμ² relative to other channels, divided evenly among the releases.
        rate: rate of the Poisson samples.
    """

    indices: NDArray[np.int64]
    width: int
    kinds: Sequence[Split] = ("train",)
    share: float = 1.0
    rate: float = 1.0


def round_indices(rounds: int, releases_per_round: int, positions: Sequence[int] = (0,)) -> NDArray[np.int64]:
    """Return the indices (R,) of the releases at these positions of every round."""
    first = np.arange(rounds, dtype=np.int64)[:, None] * releases_per_round + 1
    return (first + np.asarray(positions, dtype=np.int64)).reshape(-1)


def gaussian_charges(parts: Mapping[str, Part]) -> dict[str, Charge]:
    """Plan Gaussian releases according to the shares of their channels, omitting channels without a release.

    Shares are relative to the channels that read a split, so both splits have the same Σμ².
    """
    parts = {channel: part for channel, part in parts.items() if part.indices.size}
    total = {k: sum(p.share for p in parts.values() if k in p.kinds) for k in SPLITS}
    return {
        channel: Charge(
            "gaussian",
            part.width,
            part.indices,
            {k: np.full(part.indices.size, np.sqrt(part.share / (total[k] * part.indices.size))) for k in part.kinds},
            dict.fromkeys(part.kinds, part.rate) if part.rate < 1.0 else {},
        )
        for channel, part in parts.items()
    }


def gradient_parts(
    context: CoordinatorContext | MinimaxContext,
    queries: Sequence[str],
    indices: NDArray[np.int64],
    shares: Mapping[str, float],
    rate: float = 1.0,
) -> dict[str, Part]:
    """Return the releases of `release_gradients` in a run.

    Args:
        context: public facts of the run.
        queries: queried terms.
        indices: indices of the releases, (R,).
        shares: share of Σμ² of each term, default 1.
        rate: rate of the Poisson samples.

    Returns:
        Map from each channel to its releases, for terms that read records.
    """
    return {
        _CHANNELS.get(term, term): Part(
            indices, context.width(term), (context.split_of(term),), shares.get(term, 1.0), rate
        )
        for term in queries
        if context.reads(term)
    }


# Programs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coordinated(AnyAlgorithm, Coordination, Protocol):
    """Program of a coordinator, with a plan of its releases.

    Args:
        context: public facts of the run, a `CoordinatorContext` or, for minimax problems, a `MinimaxContext`.
    """

    @property
    def needs_constants(self) -> bool:
        """Whether the program requires the constants of the problem."""
        return False

    @property
    def needs_records(self) -> bool:
        """Whether the coordinator must hold the records."""
        return False

    @property
    def queries(self) -> tuple[str, ...]:
        """Terms (of `problems.protocol`) that the program queries."""
        return ()

    def resolve_defaults(self, context: Any) -> tuple[Self, Any]:
        """Fill in all defaults from public facts: learning rates, weights, clipping norms.

        Raises:
            InputError: a required clipping norm is missing.
        """
        context.check_bounded(self.queries)
        return self, context

    def free_channels(self, context: Any) -> Mapping[str, int]:
        """Return the widths, by channel, of values that are published without reading a record."""
        return {}

    def published(self, s: Any) -> Mapping[str, Array]:
        """Return the last iterate (d,) of each variable: x, and y if the state has one."""
        return {c: getattr(s, c) for c in ("x", "y") if hasattr(s, c)}

    def planned_releases(self, context: Any, rounds: int) -> Mapping[str, Charge]:
        """Plan the releases of every channel, in the order of the ledger."""
        ...


class Calibrated(Coordinated, Protocol):
    """Program of a coordinator with the noise of its paper. Its protocol is "as_published".

    Args:
        claim: source of the paper's ε, for example "Theorem 4.2 of Lowy & Liu (2025)".
    """

    claim: str

    def calibration(self, context: Any, rounds: int, epsilon: float, delta: float) -> Mapping[str, Calibration]:
        """Compute the paper's noise for a claimed (ε, δ), on the channels of `planned_releases`.

        Raises:
            InputError: the formula of the paper is undefined.
        """
        ...


def release_gradients(
    t: int,
    context: CoordinatorContext | MinimaxContext,
    queries: Sequence[str],
    x: Array,
    y: Array,
    rate: float = 1.0,
    along: Array | None = None,
) -> Generator[Request, Response, Bundle]:
    """Query the means of these terms over all agents at one public point, and release them with noise.

    Args:
        t: round.
        context: public facts of the run.
        queries: terms, of `problems.protocol` or `central.problems.saddle`.
        x: public x, (p,).
        y: public y, (q,).
        rate: rate of one Poisson sample for all terms, or 1 for all records.
        along: vector of lower_hvp and lower_jvp, (q,).

    Returns:
        Map from each term to the released mean plus the data-independent part, (d,). grad_x and grad_y are also named x
        and y.
    """
    terms = [term for term in queries if context.reads(term)]
    questions = {_CHANNELS.get(term, term): context.question(term, x, y, along, rate) for term in terms}
    released = (yield Release(**(yield Ask(**questions)))).released
    out = {}
    for term in queries:
        public = context.public(term, x, y, along, t)
        out[term] = np.asarray(public + released[_CHANNELS.get(term, term)][0]) if term in terms else public
    return Bundle(out | {term[-1]: out[term] for term in _CHANNELS if term in out})


@dataclass(frozen=True)
class DeclaredCoordinator(Wrapper, Coordinated):
    """Program for an algorithm that states `QUERIES` and `SHARES`."""

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(self.program.QUERIES)

    @property
    def releases_per_round(self) -> int:
        return int(getattr(self.program, "releases_per_round", 1))

    def published(self, s: Any) -> Mapping[str, Array]:
        publish = getattr(self.program, "published", super().published)
        return dict(publish(s))

    def planned_releases(self, context: Any, rounds: int) -> dict[str, Charge]:
        shares, rate = getattr(self.program, "SHARES", {}), float(getattr(self.program, "rate", 1.0))
        indices = round_indices(rounds, self.releases_per_round, range(self.releases_per_round))
        return gaussian_charges(gradient_parts(context, self.queries, indices, shares, rate))


BILEVEL = Rules(
    is_coordinated=True,
    trust="a trusted coordinator",
    graph="star",
    complete=DeclaredCoordinator,
    domain=True,
)
MINIMAX = BILEVEL._replace(
    domain=False, solves="minimax", example=AUC | {"clip": "clip.x = 1.0\nclip.y = 1.0"}, plans_on_cpu=True
)


# Options -------------------------------------------------------------------------------------------------------------

# Values of these options in examples.
ASCENT = {"y": "{ scale = 0.5 }", "solver": '"ascent"'}
DRO = {"problem": '"dro"', "problem_keys": 'divergence = "chi2"\nstrength = 1.0\ncap = 5.0', "clip": "clip.x = 1.0"}
KL_DRO = {"problem": '"kl_dro"', "problem_keys": "strength = 1.0\nradius = 0.5\ncap = 5.0", "clip": "clip.x = 1.0"}


def sampling_rate() -> Any:
    """Declare q, the rate of the Poisson sample of a round."""
    return option(
        "rate of a round's Poisson sample; 1 reads all records",
        default=1.0,
        example="0.1",
        above=0,
        at_most=1,
    )


# For a program with the fields solver and y, and inner if it has one.
MAXIMISER_RULES = (
    Refusal[Any](
        lambda a: a.solver == "closed_form" and a.y, "algorithm.y", '"closed_form" takes no steps of y', "remove it"
    ),
    Refusal[Any](
        lambda a: a.solver == "closed_form" and getattr(a, "inner", None),
        "algorithm.inner",
        '"closed_form" takes no steps of y',
        "remove it",
    ),
    Refusal[Any](
        lambda a: a.solver == "ascent" and a.y is None,
        "algorithm.y",
        'missing, and required by solver = "ascent"',
        'set it, for example y = {{ scale = 0.1, decay = 0.5 }}, or set solver = "closed_form"',
    ),
)


def anchor_period() -> Any:
    """Declare T, the number of rounds from one anchor to the next (`minimax.steps`)."""
    return option(
        "T, rounds from one anchor, a new estimate of the gradient, to the next",
        unit="rounds",
        example="4",
        at_least=1,
    )


def change_smoothness() -> Any:
    """Declare L, the constant in the clipping norm of a difference (`minimax.steps`)."""
    return option(
        "L of the clipping norm L·distance of a record's change of gradient; required if period > 1",
        default=None,
        example="2.0",
        above=0,
    )


def count_option(description: str, unit: str, example: str) -> Any:
    """Declare a whole number of at least 1, with a computed default."""
    return option(description, default=None, unit=unit, example=example, at_least=1)


def solver_steps(symbol: str = "") -> Any:
    """Declare the number of steps of the lower-level solver."""
    return count_option(f"{symbol}steps of the lower-level solver; default from public constants", "steps", "5")


def solver_smoothness(symbol: str) -> Any:
    """Declare the inverse of the step size of "dp_gd"."""
    return option(
        f'{symbol}, the inverse of the step size of "dp_gd"; default from public constants',
        default=None,
        example="2.0",
        above=0,
    )
