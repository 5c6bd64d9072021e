"""What the printed form of a trusted coordinator's algorithm adds: the noise that its paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.bounded import Array, Split


class Calibration(NamedTuple):
    """A published choice of noise: scale (R,) of every release, and the sensitivities (R,) that it really meets."""

    scale: Array
    sensitivity: Mapping[Split, Array]


# Channel → its published noise.
Noise = dict[str, Calibration]


class PrintedCoordinated(Coordinated, Protocol):
    """A coordinator's program with the noise and constants of its paper."""

    def printed_calibration(self, context: Any, rounds: int, epsilon: float, delta: float) -> Mapping[str, Calibration]:
        """The paper's noise for a claimed (ε, δ), on the channels of `planned_releases`.

        Raises:
            InputError: where the paper's formula has no value.
        """
        ...
