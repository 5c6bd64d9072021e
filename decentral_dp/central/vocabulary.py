"""Parts that a trusted coordinator's algorithm is written with: `from decentral_dp.central import vocabulary as dp`.

An algorithm is a frozen dataclass. It states the terms that it asks the agents for, and how each round's budget is
divided among them:

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

from decentral_dp.algorithms.declared import Wrapper
from decentral_dp.algorithms.entry import Entry, Rules
from decentral_dp.algorithms.options import internal, option
from decentral_dp.algorithms.protocol import AnyAlgorithm, StepSize, check_message
from decentral_dp.algorithms.references import AUC, Citation
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


class Calibration(NamedTuple):
    """The noise that a paper publishes for one channel.

    scale: (R,) of every release. sensitivity: kind → (R,) sensitivities that the releases really have.
    """

    scale: Array
    sensitivity: Mapping[Split, Array]


class Charge(NamedTuple):
    """The releases of one channel, before a target is known.

    mechanism: "gaussian", "laplace", "exponential" or "uncertified". width: coordinates of one release.
    indices: (R,), ascending, from 1. weight: kind → (R,) prices (μ, or pure ε) in proportion to each other, also to
    those of the other channels; one common factor meets the target. rate: kind → share of a Poisson sample.
    distortion: as in the ledger. reason: why a law is uncertified.
    """

    mechanism: str
    width: int
    indices: NDArray[np.int64]
    weight: Mapping[Split, Array]
    rate: Mapping[Split, float] = MappingProxyType({})
    distortion: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Coordinated(AnyAlgorithm, Coordination, Protocol):
    """A coordinator's program that also says what it will release; a class that inherits states only what is its own.

    Args:
        context: a `CoordinatorContext`, or a `MinimaxContext` for programs of minimax problems.
    """

    @property
    def needs_constants(self) -> bool:
        """Whether it can run only where the problem's constants are known."""
        return False

    @property
    def needs_records(self) -> bool:
        """Whether the coordinator must hold the records."""
        return False

    @property
    def queries(self) -> tuple[str, ...]:
        """The terms (of `problems.protocol`) that it asks the agents for."""
        return ()

    def resolve_defaults(self, context: Any) -> tuple[Self, Any]:
        """With everything filled in that was left out, from public facts: steps, weights, clips.

        Raises InputError for what cannot be run with these facts: starts of no variable, means that nothing bounds.
        """
        context.check_start(self.start)
        context.check_bounded(self.queries)
        return self, context

    def free_channels(self, context: Any) -> Mapping[str, int]:
        """Channel → width, of what is published without reading a record."""
        return {}

    def published(self, s: Any) -> Mapping[str, Array]:
        """Variable → (d,), the last iterate: x, and y where the state has one."""
        return {c: getattr(s, c) for c in ("x", "y") if hasattr(s, c)}

    def planned_releases(self, context: Any, rounds: int) -> Mapping[str, Charge]:
        """What each channel will release in so many rounds, in the order of the ledger."""
        ...


class Calibrated(Coordinated, Protocol):
    """A coordinator's program as a paper publishes it, whose protocol is "published".

    Args:
        claim: the statement of the paper's ε, for example "Theorem 4.2 of Lowy & Liu (2025)".
    """

    claim: str

    def calibration(self, context: Any, rounds: int, epsilon: float, delta: float) -> Mapping[str, Calibration]:
        """Compute the paper's noise for a claimed (ε, δ), on the channels of `planned_releases`.

        Raises:
            InputError: where the paper's formula has no value.
        """
        ...


class Part(NamedTuple):
    """The releases of one channel in a round.

    positions: 0, 1, … within the round. width: coordinates. share: of a round's μ², in proportion to other channels'.
    kinds: of records that it reads. rate: of the Poisson sample it reads.
    """

    positions: Sequence[int]
    width: int
    kinds: Sequence[Split]
    share: float = 1.0
    rate: float = 1.0


def gaussian_charges(rounds: int, releases_per_round: int, parts: Mapping[str, Part]) -> dict[str, Charge]:
    """Every round costs the same μ²; in it every channel its share, evenly over its releases.

    Shares count among the channels that a kind of records feeds: both kinds come to the same Σμ².
    """
    total = {k: sum(p.share for p in parts.values() if k in p.kinds) for k in SPLITS}
    out = {}
    for channel, part in parts.items():
        first = np.arange(rounds)[:, None] * releases_per_round + 1
        indices = (first + np.asarray(part.positions)).reshape(-1)
        weight = {
            k: np.full(indices.size, np.sqrt(part.share / (total[k] * len(part.positions) * rounds)))
            for k in part.kinds
        }
        rate = dict.fromkeys(part.kinds, part.rate) if part.rate < 1.0 else {}
        out[channel] = Charge("gaussian", part.width, indices, weight, rate)
    return out


# Channel of a release → the term of a minimax problem that it is the mean of; other means are released by their names.
MINIMAX_CHANNELS = {"gx": "grad_x", "gy": "grad_y", "dual": "dual"}
_CHANNEL_OF = {term: channel for channel, term in MINIMAX_CHANNELS.items()}
# Short names of what is returned.
_SHORT_NAMES = {"grad_x": "x", "grad_y": "y"}


def release_gradients(
    t: int,
    context: CoordinatorContext | MinimaxContext,
    queries: Sequence[str],
    x: Array,
    y: Array,
    rate: float = 1.0,
    along: Array | None = None,
) -> Generator[Request, Response, Bundle]:
    """Ask all agents for the means of these terms at one public point, and release them with noise.

    Args:
        t: the round.
        context: what the coordinator knows.
        queries: terms, of `problems.protocol` or `problems.saddle`.
        x: (p,), public.
        y: (q,), public.
        rate: below 1, of one Poisson sample that all these terms read.
        along: (q,) vector of lower_hvp and lower_jvp.

    Returns:
        Term → its gradient, (d,): the released mean, with the data-independent part. grad_x and grad_y are also there
        as x and y.
    """
    read = [term for term in queries if context.reads(term)]
    questions = {_channel(term): context.question(term, x, y, along, rate) for term in read}
    noised = (yield Release(**(yield Ask(**questions)))).released
    out = {}
    for term in queries:
        public = context.public(term, x, y, along, t)
        out[term] = np.asarray(public + noised[_channel(term)][0]) if term in read else public
    return Bundle(out | {_SHORT_NAMES[term]: value for term, value in out.items() if term in _SHORT_NAMES})


def _channel(term: str) -> str:
    return _CHANNEL_OF.get(term, term)


@dataclass(frozen=True)
class DeclaredCoordinator(Wrapper, Coordinated):
    """A coordinator's algorithm with its plan derived."""

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
        """One price for all rounds, each round's μ² shared among the terms that read records."""
        shares: Mapping[str, float] = getattr(self.program, "SHARES", {})
        rate, positions = float(getattr(self.program, "rate", 1.0)), range(self.releases_per_round)
        parts = {
            _channel(term): Part(positions, context.width(term), (context.split_of(term),), shares.get(term, 1.0), rate)
            for term in self.queries
            if context.reads(term)
        }
        return gaussian_charges(rounds, self.releases_per_round, parts)


BILEVEL = Rules(
    is_coordinated=True,
    trust="a trusted coordinator",
    graph="star",
    complete=DeclaredCoordinator,
    domain=True,
    unscored_note="The records are with their agents (problem.manifest), and scores of them are left out.",
)
MINIMAX = BILEVEL._replace(
    domain=False, solves="minimax", example=AUC | {"clip": "clip.x = 1.0\nclip.y = 1.0"}, priced_on_cpu=True
)


S = TypeVar("S")
# What a coordinator does in a round or a part of it: exchanges are yielded, S is what it ends with.
CoordinatorSteps: TypeAlias = Generator[Request, Response, S]

# How a scenario could give the keys of these problems and of ascent, for examples.
ASCENT = {"y": "{ scale = 0.5 }", "solver": '"ascent"'}
DRO = {"problem": '"dro"', "problem_keys": 'divergence = "chi2"\nstrength = 1.0\ncap = 5.0', "clip": "clip.x = 1.0"}
KL_DRO = {"problem": '"kl_dro"', "problem_keys": "strength = 1.0\nradius = 0.5\ncap = 5.0", "clip": "clip.x = 1.0"}


def sampling_rate() -> Any:
    """q of a Poisson sample, of a coordinator's round."""
    return option(
        "share of all records in a round's Poisson sample; 1 reads all of them",
        default=1.0,
        example="0.1",
        above=0,
        at_most=1,
    )


def maximiser() -> Any:
    """How a coordinator's minimax program finds y."""
    return option('how y is found: "ascent", by steps, or "closed_form", from a released mean', default="ascent")


def anchor_period() -> Any:
    """T of estimates that differences carry on (`minimax.steps`)."""
    return option(
        "rounds from one anchor, where the gradient is estimated afresh, to the next",
        unit="rounds",
        example="4",
        at_least=1,
    )


def change_smoothness() -> Any:
    """L of the clip on a difference (`minimax.steps`)."""
    return option(
        "L of the clip L·(distance moved) on a record's change of gradient; needed where period > 1",
        default=None,
        example="2.0",
        above=0,
    )


def count_option(description: str, unit: str, example: str) -> Any:
    """A whole number from 1 that is settled where it is left out."""
    return option(description, default=None, unit=unit, example=example, at_least=1)


def lower_solver() -> Any:
    """How a coordinator solves the lower level."""
    return option('how the lower level is solved: "dp_gd" or "output_perturbation"', default="dp_gd")


def check_choice(key: str, value: str | None, choices: Sequence[str]) -> None:
    """Refuse a value of algorithm.KEY that is none of these. Raises InputError."""
    if value not in choices:
        raise InputError(f"algorithm.{key}: unknown (got {value!r}). Fix: give {' or '.join(map(repr, choices))}.")


def solver_steps(symbol: str = "") -> Any:
    """Steps of a coordinator's lower-level solver."""
    return count_option(
        f"{symbol}steps of the lower-level solver; settled by public constants if left out", "steps", "5"
    )


def solver_smoothness(what: str) -> Any:
    """The inverse of the step of "dp_gd"."""
    return option(
        f"{what}, the inverse of the step of dp_gd; settled by public constants if left out",
        default=None,
        example="2.0",
        above=0,
    )
