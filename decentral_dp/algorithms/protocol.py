"""What an algorithm is: hyper-parameters, `init`, `step`, and what it will release.

An algorithm is a frozen dataclass. `init` gives the data-independent start; `step` is a generator, from the agents'
point of view or from that of the coordinator whom they trust, which reaches others only by yielding an exchange;
`planned_releases` says from public numbers alone how far one replaced record can move each release of agents, or what
each release of a coordinator may cost, so that a scenario can be priced before it is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.exchange import Program, Value
from decentral_dp.participants.agents import LocalDataset, Network
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.schedules import StepSize as StepSize
from decentral_dp.privacy.unit import RECORD, Unit

Counts = Mapping[Split, NDArray[np.int64]]


class Public(NamedTuple):
    """Everything public that prices depend on, one entry per column (a column stands for agents that are alike).

    averaged_counts: kind → (T, g) records averaged at each round. rate: kind → (g,) share drawn afresh each round.
    neighbour_weight: (g,) |w_ii|. touches: term → kind. clip: bounds of the queries.
    network: what everybody knows of it. unit: what two data sets differ in. sampling: how batches are drawn, "fixed" or
    "poisson".
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

    def unsampled(self) -> Public:
        """What is known where a round reads all records, and not a batch of them."""
        counts = self.averaged_counts
        if self.sampling == "fixed":
            counts = {k: np.rint(n / self.rate[k]) for k, n in counts.items()}
        return self._replace(averaged_counts=counts, rate=dict.fromkeys(counts, np.ones(1)), sampling="fixed")


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
    indices: (R,) of the releases, ascending and above 0. sampling: how batches are drawn, as in the ledger.
    """

    sensitivity: Mapping[Split, Array]
    rate: Mapping[Split, Array]
    largest: Array
    indices: NDArray[np.int64]
    sampling: str = "fixed"


# What the lower level alone is solved by.
ONE_LEVEL = ("lower_grad_y", "feature_mean")


@dataclass(frozen=True)
class AnyAlgorithm(Protocol):
    """What algorithms of every setting state.

    Args:
        start: variable → the constant that all its coordinates start at, 0 where absent.
    """

    start: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    @property
    def protocol(self) -> str:
        """ "released"; "private" of gossip with a state that is never noised; "published" as a paper has it."""
        return "released"

    @property
    def releases_per_round(self) -> int:
        return 1


@dataclass(frozen=True)
class Algorithm(AnyAlgorithm, Program, Protocol):
    """A program that also says what it will release; a class that inherits from it states only what is its own.

    Where its protocol is "released", gradients and consensus use values that follow from what was released.
    """

    @property
    def channels(self) -> tuple[str, ...]:
        return ("x", "y")

    @property
    def central(self) -> bool:
        return False

    @property
    def conserves_mass(self) -> bool:
        """Whether it averages with what agents keep and give away (`kept_weight`), so that graphs may be directed."""
        return False

    @property
    def centring_rounds(self) -> int:
        """In how many rounds agents also send the mean of their features; 0 where features have no centre."""
        return 0

    @property
    def memoryless(self) -> bool:
        """Whether releases are made of public values and of clipped means of their round: any unit has a price."""
        return False

    @property
    def one_mean(self) -> bool:
        """Whether each release reads one sample, in one clipped mean: Poisson samples have a price."""
        return False

    def senders(self, network: Network) -> Iterator[Any] | None:
        """Who sends in round 0, 1, …, T, one round after the other; None where everybody always does.

        Args:
            network: what everybody knows of it.

        Returns:
            For each round a mask (m,) of bool or the numbers of the agents. What the others would have released is not
            noised, not recorded and costs nothing; `planned_releases` is as if everybody sent.
        """
        return None

    def starts(self, dataset: LocalDataset) -> tuple[Value, Value]:
        """Where x and y of these agents start.

        Args:
            dataset: of the agents.

        Returns:
            (b, p) and (b, q), data-independent.
        """
        return dataset.start("x", self.start), dataset.start("y", self.start)

    def own_value(self, released: Value, mine: Value) -> Value:
        """What counts as an agent's own value after it was sent.

        Args:
            released: the value with noise.
            mine: the value without.

        Returns:
            What was released; a published form may keep its own.
        """
        return released

    def releases(self, p: int, q: int) -> Mapping[str, Channel]:
        """Every channel that is ever sent, in the order of the ledger."""
        ...

    def planned_releases(self, public: Public) -> Mapping[str, Planned]:
        """What each of these channels will release."""
        ...


@runtime_checkable
class Claiming(Protocol):
    """A gossip algorithm as a paper publishes it, which states what the paper claims next to what is certified.

    Args:
        job: a `GossipJob`.
    """

    def for_problem(self, problem: Any, box: Mapping[str, float], radius: float | None) -> Any:
        """Return the algorithm with the constants of a problem.

        Args:
            problem: of the agents.
            box: variable → bound on the points at which directions are evaluated.
            radius: public bound on the l1 norm of every record; None if there is none.
        """
        ...

    def paper_claim(self, job: Any) -> Any:
        """Return the paper's ε, a `PaperClaim`; None where it states none."""
        ...

    def paper_notes(self, job: Any) -> list[str]:
        """Return sentences that belong beside these numbers."""
        ...

    def endless_stream(self, job: Any) -> float | None:
        """Bound ε of the worst agent on an endless stream of records; None where no bound is known."""
        ...


def tunes_x(algorithm: Algorithm, p: int, q: int) -> bool:
    """Whether x is tuned: whether anything but ∇_y of the lower level enters what agents release.

    Where nothing else does, y is trained at an x in which no record has a say. There is no upper level then, and no
    hypergradient.
    """
    return any(term not in ONE_LEVEL for channel in algorithm.releases(p, q).values() for term in channel.terms)


# Bytes of one agent's message in one exchange.
LARGEST_MESSAGE = 64 * 2**20


def check_message(algorithm: str, numbers: int, p: int, q: int) -> None:
    """Refuse a message of more than `LARGEST_MESSAGE` bytes before anything is allocated.

    Args:
        algorithm: its name.
        numbers: float64 numbers in a message.
        p: coordinates of x.
        q: coordinates of y.

    Raises:
        InputError: a message that is larger.
    """
    if 8 * numbers > LARGEST_MESSAGE:
        raise InputError(
            f"algorithm.kind: each message of {algorithm} is too large (got {8 * numbers:,} bytes with p = {p} and "
            f"q = {q}, expected at most {LARGEST_MESSAGE:,}). Fix: use fewer features, or another algorithm."
        )
