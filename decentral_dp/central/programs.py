"""What a trusted coordinator's algorithm is, and what each of its releases may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.protocol import AnyAlgorithm
from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.exchange import Coordination


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
