"""Algorithms that state what they release, and leave the plan of it to be derived.

A gossip algorithm states, for every channel that it sends each round, the terms that one release carries, each with the
name of the step size (or of the number) that multiplies it:

    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "y"}}

    def init(self, dataset, x, y): ...           x, y: where all agents start, (b, p) and (b, q)
    def step(self, t, dataset, s): ...           one `Gossip` (or `Ask`) a round

Limits: what a release carries must be clipped means times public factors, and released values. An algorithm that keeps
a private state, or whose releases change from round to round, states `releases` and `planned_releases` itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from decentral_dp.algorithms import protocol
from decentral_dp.algorithms.sensitivity_rules import Use, free_release, plan_release
from decentral_dp.bounded import CHANNELS, Array
from decentral_dp.errors import InputError, quoted
from decentral_dp.exchange import Response
from decentral_dp.participants import Network
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS
from decentral_dp.problems.saddle import MINIMAX_TERMS
from decentral_dp.user_code import USER_ERRORS, blame


@dataclass(frozen=True)
class Wrapper(protocol.AnyAlgorithm):
    """An algorithm around another one. program: the other, started from constants and the problem's own start."""

    program: Any

    def init(self, context: Any) -> Any:
        return self.program.init(context, context.start("x", self.start), context.start("y", self.start))

    def step(self, t: int, context: Any, s: Any) -> Generator[Any, Response, Any]:
        running: Generator[Any, Response, Any] = self.program.step(t, context, s)
        return running


@dataclass(frozen=True)
class Derived(protocol.Algorithm, Protocol):
    """A gossip algorithm whose plan is derived from its `RELEASES`. WIDTHS: channel → coordinates, if others."""

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]]
    WIDTHS: ClassVar[Mapping[str, int]] = {}

    @property
    def _author(self) -> Any:
        """What states `RELEASES`, and has the factors that it names."""
        return self

    def _terms(self, channel: str) -> Mapping[str, str | float]:
        terms: Mapping[str, str | float] = self._author.RELEASES.get(channel, {})
        return terms

    def _sent_channels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.channels, *self._author.RELEASES)))

    def releases(self, p: int, q: int) -> dict[str, protocol.Channel]:
        out = {}
        for channel in self._sent_channels():
            terms = tuple(self._terms(channel))
            family = channel if channel in CHANNELS else CLIP_OF_TERM[terms[0]] if terms else "y"
            width = getattr(self._author, "WIDTHS", {}).get(channel, p if family == "x" else q)
            out[channel] = protocol.Channel(family, width, terms)
        return out

    def planned_releases(self, public: protocol.Public) -> dict[str, protocol.Planned]:
        """Release t + 1 carries the terms of round t, each times its factor."""
        indices = np.arange(1, public.rounds + 1)
        out = {}
        for channel in self._sent_channels():
            terms = self._terms(channel)
            uses = [Use(term, self._series(factor, public.rounds), indices - 1) for term, factor in terms.items()]
            # What no record moves is published at the end, and sent in every round where that is stated.
            free = indices if channel in self._author.RELEASES else indices[-1:]
            out[channel] = plan_release(public, indices, uses) if uses else free_release(public, free)
        return out

    def _series(self, factor: str | float, rounds: int) -> Array:
        """Compute (T,) the factor of each round: a step size, a number, or a function of t, by the attribute's name."""
        name = type(self._author).__name__
        if isinstance(factor, str) and not hasattr(self._author, factor):
            raise InputError(
                f"algorithm.kind: RELEASES of {name} names the factor {quoted(factor)}, and {name} has none. "
                "Name a field, or give a number."
            )
        value = getattr(self._author, factor) if isinstance(factor, str) else factor
        cause: BaseException | None = None
        try:
            if hasattr(value, "series"):
                numbers = list(value.series(rounds))
            else:
                numbers = [value(t) if callable(value) else value for t in range(rounds)]
            out = np.array(numbers, dtype=np.float64).reshape(rounds)
        except InputError:
            raise
        except USER_ERRORS as error:
            fault, cause = f"fails with {blame(error)}", error
        else:
            sound = np.isfinite(out) & (out >= 0.0)
            if sound.all():
                return out
            fault = f"gives {numbers[int(np.argmin(sound))]}"
        named = quoted(factor) if isinstance(factor, str) else repr(factor)
        raise InputError(
            f"algorithm.kind: the factor {named} in RELEASES of {name} {fault}; wanted a step size, a finite number of "
            "at least 0, or a method of t that returns it. Mend it."
        ) from cause


@dataclass(frozen=True)
class DeclaredGossip(Wrapper, Derived):
    """A gossip algorithm from outside, with its plan derived."""

    @property
    def _author(self) -> Any:
        return self.program

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self.program.channels)

    @property
    def central(self) -> bool:
        return bool(getattr(self.program, "central", False))

    @property
    def conserves_mass(self) -> bool:
        return bool(getattr(self.program, "conserves_mass", False))

    def solution(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        solve = getattr(self.program, "solution", None)
        return {} if solve is None else dict(solve(values))

    def senders(self, network: Network) -> Iterator[Any] | None:
        choose = getattr(self.program, "senders", None)
        return None if choose is None else choose(network)


def stated_terms(algorithm: type) -> tuple[str, ...]:
    """The terms that a class states, by `QUERIES` or `RELEASES`."""
    if hasattr(algorithm, "QUERIES"):
        return tuple(getattr(algorithm, "QUERIES"))  # noqa: B009 # Of a class that is not known to have one.
    releases = getattr(algorithm, "RELEASES", {})
    return tuple(term for terms in releases.values() for term in terms)


def unknown_term(algorithm: type, known: Sequence[str] = (*TERMS, *MINIMAX_TERMS)) -> str | None:
    """The first term that a class states and that no problem has."""
    return next((term for term in stated_terms(algorithm) if term not in known), None)
