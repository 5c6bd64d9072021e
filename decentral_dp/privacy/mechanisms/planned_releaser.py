"""A trusted coordinator's mechanism: noise that makes every release cost what was planned for it.

The plan fixes the price of each release, μ_t or ε_t, before the run; scales follow from prices and from sensitivities,
which may depend on what was released. Prices that the transcript cannot touch compose as if releases were independent
(Dong, Roth & Su 2022), so the plan is the guarantee whatever happens. In a plan every scale is 1: there the grid is as
coarse beside the noise as it gets, so that a release given its price at scale 1 costs at most as much at its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split
from decentral_dp.exchange import Bundle, Released, SelectionMechanism, Value
from decentral_dp.privacy.keyed_draws import Draws
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, mechanism_of, noise_of
from decentral_dp.privacy.mechanisms.protocol import Drawing, Unnoised
from decentral_dp.privacy.mechanisms.scheduled_releaser import FREE
from decentral_dp.privacy.randomness import Root, Streams, tag
from decentral_dp.privacy.recorder import Recorder, assemble

# Room for the float64 arithmetic of a scale.
_UP = 1.0 + 1e-12
# Of a release that nothing moves, or moves by less than float64 can tell.
_LEAST_SCALE = 2.0**-800
# Integers of the grid up to here are exact in float64 with the noise on top. A query beyond is cut off, which moves it
# no further from its neighbour's.
_LARGEST_INTEGER = 2.0**51


class PlannedReleaser:
    """Releases values at the prices of a plan; the recorder keeps what they were charged.

    fixed: whether the plan's scales are those of the noise (a published calibration), instead of prices at scale 1.
    """

    def __init__(self, plan: Ledger, root: Root, fixed: bool = False) -> None:
        self.plan = plan
        self.recorder = Recorder(1)
        self._fixed = fixed
        self._streams = Streams(root, "noise", [0])
        self._channels = {c.channel: c for c in plan.channels}

    def release(self, index: int, values: Mapping[str, Value | SelectionMechanism]) -> Released:
        """Everything that is published at this index."""
        out: dict[str, Array] = {}
        scales: dict[str, float] = {}
        for channel, value in values.items():
            if isinstance(value, np.ndarray):
                out[channel] = value
                self.recorder.free(index, channel, value.shape[1], FREE)
                continue
            bounds = _bounds_of(value)
            scales[channel] = scale = self.scale(index, channel, bounds)
            if isinstance(value, Bounded):
                # What no record can move is no secret, and there is no scale for its noise to have.
                still = not any(bounds.values())
                out[channel] = value.value if still else self._noised(index, channel, value, scale)
            else:
                out[channel] = value.draw(self.generator(index, channel), scale)[None]
            self._charge(index, channel, value, bounds, scale)
        return Released(Bundle(out), scales)

    def _noised(self, index: int, channel: str, value: Bounded, scale: float) -> Array:
        released_by = self._channels[channel].mechanism
        if not released_by.proven:
            # As a paper prints it: what nothing is proven of may leave as it is, at an infinite price.
            return value.value
        mechanism = noise_of(released_by, channel)
        if value.norm != mechanism.norm:
            raise ValueError(
                f"{mechanism.name} noise on {channel} needs a value bounded in {mechanism.norm}, got {value.norm}"
            )
        d = value.private.shape[1]
        g = mechanism.grid(scale, d).reshape(1, 1)
        draws, most = Draws(self._streams, index, tag(channel), slice(1)), _LARGEST_INTEGER * g
        whose = partial(_whose, index, channel)
        out, step = np.empty((1, d)), mechanism.columns_at_a_time or d
        # A part at a time, still in cache when it is used.
        for first in range(0, d, step):
            part = slice(first, min(d, first + step))
            query = np.clip(value.private[:, part], -most, most)
            integers = mechanism.sample(Unnoised(draws, query, g, scale / g, (d,), {}, whose))
            np.add(value.public[:, part], g * integers, out=out[:, part])
        return out

    def scale(self, index: int, channel: str, sensitivity: Mapping[Split, float]) -> float:
        """The smallest scale that costs no kind of record more than planned for this release."""
        at = self._position(index, channel)
        line = self._channels[channel]
        if line.mechanism == NO_NOISE:
            return 0.0
        if self._fixed:
            return float(line.scale[at, 0])
        planned = self.planned_cost(index, channel)
        # Written so that what is not a number fails, too.
        if not all(0.0 <= bounds < np.inf for bounds in sensitivity.values()):
            raise ValueError(
                f"{channel} at index {index} has the sensitivities {dict(sensitivity)}, which bound nothing"
            )
        needed = max((bounds / planned[split] for split, bounds in sensitivity.items() if bounds > 0.0), default=0.0)
        return max(_UP * needed, _LEAST_SCALE)

    def planned_cost(self, index: int, channel: str) -> dict[Split, float]:
        """What the release may cost one record of each kind: at scale 1, its sensitivity."""
        at = self._position(index, channel)
        return {split: float(s[at, 0]) for split, s in self._channels[channel].sensitivity.items()}

    def _position(self, index: int, channel: str) -> int:
        line = self._channels.get(channel)
        at = -1 if line is None else int(np.searchsorted(line.rounds, index))
        if line is None or not line.mechanism.charged or at >= line.rounds.size or line.rounds[at] != index:
            raise ValueError(f"a release on {channel!r} with the index {index} was not planned")
        return at

    def generator(self, index: int, channel: str) -> np.random.Generator:
        """The keyed random bits of one release."""
        return self._streams.at(0, index, tag(channel))

    def _charge(
        self, index: int, channel: str, value: Bounded | SelectionMechanism, bounds: Mapping[Split, float], scale: float
    ) -> None:
        mechanism = self._channels[channel].mechanism
        distortion = 0.0
        if isinstance(value, Bounded):
            entry = value
        else:
            if mechanism not in (mechanism_of(value.mechanism), NO_NOISE):
                raise ValueError(f"{channel} is planned as {mechanism.name} and drawn by {value.mechanism}")
            sensitivity = {k: Sensitivity(np.array([s]), np.ones(1), None) for k, s in bounds.items()}
            entry = Bounded(np.zeros((1, value.width)), np.zeros((1, value.width)), sensitivity, "l2")
            distortion = value.distortion
        self.recorder.charge(index, channel, mechanism, np.array([scale]), entry, distortion)

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        """What was released so far, as a ledger of one agent."""
        return assemble([(np.zeros(1, dtype=np.int64), self.recorder)], 1, releases_per_round)


def _whose(index: int, channel: str, row: int, number: int) -> Drawing:
    """A coordinator's noise. Its rounds are counted by its releases, from 1."""
    return Drawing(release=index, round=index, channel=channel)


def _bounds_of(value: Any) -> dict[Split, float]:
    if isinstance(value, Bounded):
        return {split: float(s.sensitivity[0]) for split, s in value.sensitivities.items()}
    return {split: float(s) for split, s in value.sensitivity.items()}
