"""What printed forms add: own values that are never noised, of gossip; the noise of the paper, of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.algorithms.protocol import Algorithm
from decentral_dp.bounded import Array, Split
from decentral_dp.exchange import Value
from decentral_dp.participants.agents import LocalDataset


class Calibration(NamedTuple):
    """A published choice of noise: scale (R,) of every release, and the sensitivities (R,) that it really meets."""

    scale: Array
    sensitivity: Mapping[Split, Array]


# Channel → its published noise.
Noise = dict[str, Calibration]


class PrintedGossip(Algorithm, Protocol):
    """A gossip algorithm whose agents keep own values that are never noised."""

    protocol: str = "printed"

    def starts(self, dataset: LocalDataset) -> tuple[Value, Value]:
        return dataset.untouched(dataset.start("x", self.start)), dataset.untouched(dataset.start("y", self.start))

    def own(self, released: Value, mine: Value) -> Value:
        return mine


class PrintedCoordinated(Coordinated, Protocol):
    """A coordinator's program with the noise and constants of its paper."""

    def printed_calibration(self, context: Any, rounds: int, epsilon: float, delta: float) -> Mapping[str, Calibration]:
        """Compute the paper's noise for a claimed (ε, δ), on the channels of `planned_releases`.

        Args:
            context: what the coordinator knows.
            rounds: of the run.
            epsilon: the claimed ε.
            delta: the claimed δ.

        Returns:
            Channel → its published noise.

        Raises:
            InputError: where the paper's formula has no value.
        """
        ...
