"""Protocol of an algorithm: hyper-parameters, `init`, `step`, and the plan of its releases.

An algorithm is a frozen dataclass. `init` returns the data-independent start. `step` is a generator of the agents or of
a trusted coordinator, which communicates only by yielding an exchange. `planned_releases` bounds the sensitivity of
each release of agents, or the privacy cost of each release of a coordinator, from public numbers only. So ε of a
scenario is known before the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.options import check_options
from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.exchange import Program, Value
from decentral_dp.participants import LocalDataset, Network, other_weight
from decentral_dp.privacy.clipping import RECORD, Clip, Unit
from decentral_dp.privacy.schedules import StepSize as StepSize

Counts = Mapping[Split, NDArray[np.int64]]


class Public(NamedTuple):
    """Public numbers that determine ε. Each column describes a group of agents with equal numbers.

    Args:
        rounds: number of rounds, T.
        averaged_counts: number of records of each split that are averaged in each round, (T, g).
        rate: sampling rate of each split in a round, (g,).
        neighbour_weight: total weight |w_ii| of the neighbours, (g,).
        reads_records: split that each term reads.
        clip: clipping norms of the queries.
        p, q: dimensions of x and y.
        network: public part of the network.
        unit: difference between neighbouring data sets.
        sampling: sampling of batches, "fixed" or "poisson".
        weights: public factors of the means over each split, (g,). Empty if agents have equal weights.
    """

    rounds: int
    averaged_counts: Mapping[Split, Array]
    rate: Mapping[Split, Array]
    neighbour_weight: Array
    reads_records: Mapping[str, Split]
    clip: Clip
    p: int
    q: int
    network: Network
    unit: Unit = RECORD
    sampling: str = "fixed"
    weights: Mapping[Split, Array] = MappingProxyType({})

    def stored_counts(self, split: Split) -> Array:
        """Return the numbers of records, (T, g), for the `memory_slack` of a noiseless state that sums both splits."""
        return np.asarray(self.averaged_counts[split] * np.maximum(1.0, other_weight(self.weights, split)))

    def unsampled(self) -> Public:
        """Return the same numbers for rounds that read all records instead of a batch."""
        counts = self.averaged_counts
        if self.sampling == "fixed":
            counts = {k: np.rint(n / self.rate[k]) for k, n in counts.items()}
        return self._replace(averaged_counts=counts, rate=dict.fromkeys(counts, np.ones(1)), sampling="fixed")


class Channel(NamedTuple):
    """Channel of an algorithm, independent of the data.

    Args:
        family: variable whose noise schedule and budget share it uses, "x", "y" or "z".
        width: dimension of one release.
        terms: terms that its releases read, or all terms that a private state accumulates.
    """

    family: str
    width: int
    terms: tuple[str, ...]


class Planned(NamedTuple):
    """Plan of the R releases of one channel.

    Args:
        sensitivity: sensitivity to a record of each split, (R, g). Empty if the channel reads no record.
        rate: sampling rate of each split, (R, g).
        largest: bound on the norm of the value before rounding and noise, (R, g), or +inf if there is no bound.
        indices: indices of the releases, (R,), positive and ascending.
        sampling: sampling of batches, as in the ledger.
    """

    sensitivity: Mapping[Split, Array]
    rate: Mapping[Split, Array]
    largest: Array
    indices: NDArray[np.int64]
    sampling: str = "fixed"


# Terms of training at one level.
ONE_LEVEL = ("lower_grad_y", "feature_mean", "statistics")


@dataclass(frozen=True)
class AnyAlgorithm(Protocol):
    """Base class of algorithms of all settings.

    Args:
        start: constant start of all coordinates of each variable, by default 0.
    """

    start: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def protocol(self) -> str:
        """State on the right-hand side: "released", "private" (own values without noise), or "as_published".

        A baseline that supports no guarantee is "noiseless".
        """
        return "released"

    @property
    def releases_per_round(self) -> int:
        return 1


@dataclass(frozen=True)
class Algorithm(AnyAlgorithm, Program, Protocol):
    """Gossip algorithm with a plan of its releases.

    With the protocol "released", gradients and consensus use functions of released values only.
    """

    @property
    def channels(self) -> tuple[str, ...]:
        return ("x", "y")

    @property
    def has_server(self) -> bool:
        return False

    @property
    def conserves_mass(self) -> bool:
        """Whether mixing uses `kept_weight`, so that mass is conserved and graphs may be directed."""
        return False

    @property
    def memoryless(self) -> bool:
        """Whether releases are public values plus clipped means of their round, so that ε is known for any unit."""
        return False

    @property
    def one_mean(self) -> bool:
        """Whether each release reads one sample in one clipped mean, so that ε of Poisson sampling is known."""
        return False

    def senders(self, network: Network) -> Iterator[Any] | None:
        """Return the agents that send in rounds 0, 1, …, T, or None if all agents always send.

        Args:
            network: public part of the network.

        Returns:
            Iterator of a boolean mask (m,) or the agents' indices for each round. Values of the other agents get no
            noise, are not recorded, and have no privacy cost. `planned_releases` plans as if all agents sent.
        """
        return None

    @property
    def has_local_rounds(self) -> bool:
        """Whether some rounds send no messages."""
        return False

    def sends(self, t: int) -> bool:
        """Return whether round t sends messages.

        In a local round, agents release values to themselves and send no messages. These releases have noise, are in
        the ledger and count toward ε. The reply contains the agents' own released values, and 0 for the sums over
        neighbours.

        Args:
            t: round 0, 1, …, T − 1.
        """
        return True

    def starts(self, dataset: LocalDataset) -> tuple[Array, Array]:
        """Return the data-independent starts of x (b, p) and y (b, q).

        Args:
            dataset: records of the agents.
        """
        return dataset.start("x", self.start), dataset.start("y", self.start)

    def own_value(self, released: Value, mine: Value) -> Value:
        """Return the value from which an agent continues after sending it, the released value.

        The published variant of an algorithm may continue from the noiseless value.

        Args:
            released: value with noise.
            mine: value without noise.
        """
        return released

    def releases(self, p: int, q: int) -> Mapping[str, Channel]:
        """Return all channels, in the order of the ledger."""
        ...

    def planned_releases(self, public: Public) -> Mapping[str, Planned]:
        """Return the plan of each channel."""
        ...


@runtime_checkable
class Claiming(Protocol):
    """Gossip algorithm as published by a paper, with the paper's claimed ε.

    Args:
        job: the run's `GossipJob`.
    """

    def for_problem(self, problem: Any, box: Mapping[str, float], radius: float | None) -> Any:
        """Return the algorithm with the constants of a problem.

        Args:
            problem: problem of the agents.
            box: bound on the points at which directions are evaluated, for each variable.
            radius: public bound on the l1 norm of every record, or None if there is none.
        """
        ...

    def paper_claim(self, job: Any) -> Any:
        """Return the paper's ε, or None if the paper states none."""
        ...

    def endless_stream(self, job: Any) -> float | None:
        """Bound the worst agent's ε on an endless stream of records. Return None if no bound is known."""
        ...


def tunes_x(algorithm: Algorithm, p: int, q: int) -> bool:
    """Return whether x is tuned, that is, whether releases read a term other than ∇_y of the lower level.

    Otherwise y is trained at a data-independent x, without an upper level or a hypergradient.
    """
    return any(term not in ONE_LEVEL for channel in algorithm.releases(p, q).values() for term in channel.terms)


# Bytes of one agent's message in one exchange.
LARGEST_MESSAGE = 64 * 2**20


def check_message(algorithm: str, numbers: int, p: int, q: int) -> None:
    """Raise InputError for a message of more than `LARGEST_MESSAGE` bytes, before anything is allocated.

    Args:
        algorithm: name of the algorithm.
        numbers: number of floats in a message.
        p: dimension of x.
        q: dimension of y.

    Raises:
        InputError: the message is larger.
    """
    if 8 * numbers > LARGEST_MESSAGE:
        raise InputError(
            f"algorithm.kind: each message of {algorithm} is too large (got {8 * numbers:,} bytes with p = {p} and "
            f"q = {q}, expected at most {LARGEST_MESSAGE:,}). Fix: use fewer features, or another algorithm."
        )
