"""What a trusted coordinator's algorithm is: hyper-parameters, `init`, `step`, what it will release, at what price."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.exchange import Coordination


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


def publish_iterate(program: Any, s: Any) -> dict[str, Array]:
    """`published` of a program whose output is its last (x, y)."""
    return {"x": s.x, "y": s.y}


def no_free_channels(program: Any, context: Any) -> dict[str, int]:
    """`free_channels` of a program whose releases all read records."""
    return {}


class Coordinated(Coordination, Protocol):
    """A coordinator's program that also says what it will release.

    context: a `CoordinatorContext`, or a `MinimaxContext` for programs of minimax problems.
    """

    @property
    def protocol(self) -> str:
        """ "released", or "printed" for what `algorithms.printed` has."""
        ...

    @property
    def needs_constants(self) -> bool:
        """Whether it can run only where the problem's constants are known."""
        ...

    @property
    def needs_records(self) -> bool:
        """Whether the coordinator must hold the records."""
        ...

    @property
    def queries(self) -> tuple[str, ...]:
        """The terms (of `problems.protocol`) that it asks the agents for."""
        ...

    def resolve_defaults(self, context: Any) -> tuple[Self, Any]:
        """With everything filled in that was left out, from public facts: steps, weights, clips.

        Raises InputError for what cannot be run with these facts.
        """
        ...

    def free_channels(self, context: Any) -> Mapping[str, int]:
        """Channel → width, of what is published without reading a record."""
        ...

    def planned_releases(self, context: Any, rounds: int) -> Mapping[str, Charge]:
        """What each channel will release in so many rounds, in the order of the ledger."""
        ...
