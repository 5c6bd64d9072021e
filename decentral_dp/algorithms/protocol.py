"""What an algorithm is: hyper-parameters, `init`, `step`, and what it will release.

An algorithm is a frozen dataclass. `init` gives the data-independent start; `step` is a generator from the agents'
point of view, which reaches others only by yielding an exchange; `planned` says from public numbers alone how far one
replaced record can move each release, so that a scenario can be priced before it is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, LipschitzConstants, Split
from decentral_dp.exchange import Program, Value
from decentral_dp.participants.agents import LocalDataset
from decentral_dp.privacy.clipping import Clip

Counts = Mapping[Split, NDArray[np.int64]]


@dataclass(frozen=True)
class StepSize:
    """λ_t = scale/(t+1)^decay."""

    scale: float
    decay: float = 0.0

    def __call__(self, t: int) -> float:
        return float(self.scale * float(t + 1) ** -self.decay)

    def series(self, rounds: int) -> Array:
        """λ_0, …, λ_{rounds−1}."""
        return np.asarray(self.scale * np.arange(1.0, rounds + 1.0) ** -self.decay)


class Public(NamedTuple):
    """Everything public that prices depend on, one entry per column (a column stands for agents that are alike).

    averaged: kind → (T, g) records averaged at each round. rate: kind → (g,) share drawn afresh each round.
    neighbour_weight: (g,) |w_ii|. touches: term → kind. clip, constants: bounds and constants of the queries.
    """

    rounds: int
    averaged: Mapping[Split, Array]
    rate: Mapping[Split, Array]
    neighbour_weight: Array
    reads_records: Mapping[str, Split]
    clip: Clip
    constants: LipschitzConstants | None
    p: int
    q: int


class Channel(NamedTuple):
    """A channel before anything is known of the problem's records.

    family: "x", "y" or "z": whose noise schedule and share of the budget it takes. width: coordinates of one release.
    terms: what its releases read from records; of a private state, whatever it has ever met.
    """

    family: str
    width: int
    terms: tuple[str, ...]


class Planned(NamedTuple):
    """Sensitivities of the R releases of one channel: kind → (R, g). Empty: it reads no record.

    rate: kind → (R, g). largest: (R, g) bound on the norm of what is rounded and noised, +inf if there is none.
    indices: (R,) of the releases, ascending and above 0.
    """

    sensitivity: Mapping[Split, Array]
    rate: Mapping[Split, Array]
    largest: Array
    indices: NDArray[np.int64]


# What the lower level alone is solved by.
ONE_LEVEL = ("lower_grad_y",)


@dataclass(frozen=True)
class AnyAlgorithm(Protocol):
    """What algorithms of every setting state.

    Args:
        start: variable → the constant that all its coordinates start at, 0 where absent.
    """

    start: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    @property
    def protocol(self) -> str:
        """ "released"; "private" of gossip with a state that is never noised; "printed" in `algorithms.printed`."""
        return "released"

    @property
    def releases_per_round(self) -> int:
        return 1


@dataclass(frozen=True)
class Algorithm(AnyAlgorithm, Program, Protocol):
    """A program that also says what it will release; a class that inherits from it states only what is its own.

    Where its protocol is "released", gradients and consensus use the agent's own released values.
    """

    @property
    def channels(self) -> tuple[str, ...]:
        return ("x", "y")

    @property
    def central(self) -> bool:
        return False

    def starts(self, dataset: LocalDataset) -> tuple[Value, Value]:
        """Where x and y of these agents start.

        Args:
            dataset: of the agents.

        Returns:
            (b, p) and (b, q), data-independent.
        """
        return dataset.start("x", self.start), dataset.start("y", self.start)

    def own(self, released: Value, mine: Value) -> Value:
        """What counts as an agent's own value after it was sent.

        Args:
            released: the value with noise.
            mine: the value without.

        Returns:
            What was released; `algorithms.printed` has others.
        """
        return released

    def releases(self, p: int, q: int) -> Mapping[str, Channel]:
        """Every channel that is ever sent, in the order of the ledger."""
        ...

    def planned_releases(self, public: Public) -> Mapping[str, Planned]:
        """What each of these channels will release."""
        ...


def tunes_x(algorithm: Algorithm, p: int, q: int) -> bool:
    """Whether x is tuned: whether anything but ∇_y of the lower level enters what agents release.

    Where nothing else does, y is trained at an x in which no record has a say. There is no upper level then, and no
    hypergradient.
    """
    return any(term not in ONE_LEVEL for channel in algorithm.releases(p, q).values() for term in channel.terms)
