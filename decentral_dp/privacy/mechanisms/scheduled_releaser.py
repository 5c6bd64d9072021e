"""The objects that add noise and state its price, in one place.

Noise is float-safe. What is rounded and noised is the private part u of a value, on a power-of-two grid g, to an
integer k (see `mechanisms`); adding the public part afterwards, on the same grid, is post-processing. The released
value is g·(rint(public/g) + k). Rounding the sum instead would leak u in its low bits. The public part is rounded for
those to whom it is not public: who sees few messages could read from the low bits of one what its sender had received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded
from decentral_dp.exchange import Bundle, Value
from decentral_dp.privacy.keyed_draws import Draws
from decentral_dp.privacy.mechanisms import Mechanism, mechanism_of, noise_of
from decentral_dp.privacy.mechanisms.grid_arithmetic import add_public
from decentral_dp.privacy.mechanisms.protocol import Drawing, Unnoised, Workspace
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.privacy.recorder import Recorder

# Why a plain array costs nothing, whatever was computed on the way to it.
FREE = "reads no record, being a function of public and released values"

_CACHED_VARIATES = 2**14
# Scales and grids are formed for so many rounds at once, where all of them together are so few numbers.
_ROUNDS_AHEAD, _KEPT_AHEAD = 64, 2**16


@dataclass(frozen=True)
class NoiseSchedule:
    """Standard deviation σ/(t+1)^ς of the noise on the value with index t, per agent.

    scale: (m,) σ; decay: (m,) ς.
    """

    scale: Array
    decay: Array

    def at(self, index: int | NDArray[np.int64], mechanism: Mechanism | str) -> Array:
        """The mechanism's scale: (m,) at one index, (T, m) at an array of indices."""
        t: Any = index if isinstance(index, int) else np.asarray(index, dtype=np.float64)[..., None]
        deviation = self.scale * (t + 1.0) ** -self.decay
        return noise_of(mechanism_of(mechanism), "a channel").scale_of(deviation)

    def of(self, agents: NDArray[np.int64]) -> NoiseSchedule:
        return NoiseSchedule(self.scale[agents], self.decay[agents])


class _Noise(NamedTuple):
    """The noise of one release; a single row where all agents have the same.

    scale: (channels, b). grid: of every column, (b, Σ widths). ratio: scale/grid, of the same shape.
    """

    scale: Array
    grid: Array
    ratio: Array


class ScheduledReleaser:
    """Noise and ledger of one block of agents: `release` samples, and writes the ledger line, together.

    mechanism: one that adds noise, or `NO_NOISE` (values leave as they are, at infinite price); or its name.
    schedules: channel → schedule of the block's agents. exchanges: per round; all releases of one round share a scale.
    agents, network: their numbers, and what is public of the network, for mechanisms that ask whose noise they draw.
    """

    def __init__(
        self,
        mechanism: Mechanism | str,
        schedules: Mapping[str, NoiseSchedule],
        streams: Streams,
        releases_per_round: int = 1,
        agents: NDArray[np.int64] | None = None,
        network: Any = None,
    ) -> None:
        self._agents, self._network = agents, network
        self.mechanism = mechanism_of(mechanism)
        self.releases_per_round = releases_per_round
        self.schedules = dict(schedules)
        self.recorder = Recorder(len(streams))
        self._streams = streams
        self._workspace: Workspace = {}
        self._stacked: dict[tuple[str, ...], NoiseSchedule] = {}
        # Channels and their widths → a round, and the noise of that one and of those that follow.
        self._ahead: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[int, list[_Noise]]] = {}

    def release(self, index: int, values: Mapping[str, Value], sends: NDArray[np.bool_] | None = None) -> Bundle:
        """Everything that leaves the block at this index. Index 0 is data-independent and costs nothing.

        Args:
            index: of the release.
            values: channel → (b, d).
            sends: (b,) whose values leave; by default everybody's. In the rows of the others there are zeros.
        """
        bounded = {c: v for c, v in values.items() if isinstance(v, Bounded)}
        whole, scales = None, np.zeros((len(bounded), 1))
        if self.mechanism.adds_noise and bounded:
            noise = self._noise(index, tuple(bounded), tuple(v.private.shape[1] for v in bounded.values()))
            released, noised_together = self._noised(index, bounded, noise)
            whole, scales = noised_together if len(bounded) == len(values) else None, noise.scale
        else:
            released = {c: v.value for c, v in bounded.items()}
        for (channel, noised), scale in zip(bounded.items(), scales, strict=True):
            self.recorder.charge(index, channel, self.mechanism, scale, noised, sends=sends)
        out: dict[str, Array] = {}
        for channel, value in values.items():
            if isinstance(value, Bounded):
                out[channel] = released[channel]
            else:
                out[channel] = value
                self.recorder.free(index, channel, value.shape[1], FREE)
        if sends is not None:
            return Bundle({c: np.where(sends[:, None], v, 0.0) for c, v in out.items()})
        return Bundle(out, whole)

    def _noise(self, index: int, channels: tuple[str, ...], widths: tuple[int, ...]) -> _Noise:
        t = index // self.releases_per_round
        first, ahead = self._ahead.get((channels, widths), (0, []))
        if not first <= t < first + len(ahead):
            first, ahead = t, self._noise_from(t, channels, widths)
            self._ahead[channels, widths] = first, ahead
        return ahead[t - first]

    def _noise_from(self, t: int, channels: tuple[str, ...], widths: tuple[int, ...]) -> list[_Noise]:
        """Of round t, and of some after it where that is little to keep: many rounds take as many calls as one."""
        mechanism = noise_of(self.mechanism, ", ".join(channels))
        schedule = self._stacked_schedule(channels)
        channel_of_column = np.repeat(np.arange(len(widths)), widths)
        rows = schedule.scale.size // len(channels)
        rounds = np.arange(t, t + max(1, min(_ROUNDS_AHEAD, _KEPT_AHEAD // (rows * channel_of_column.size))))
        scales = schedule.at(rounds, self.mechanism).reshape(rounds.size, len(channels), rows)
        grids = np.empty_like(scales)
        for k, width in enumerate(widths):
            grids[:, k] = mechanism.grid(scales[:, k].reshape(-1), width).reshape(rounds.size, rows)
        grid, ratio = (v.transpose(0, 2, 1).take(channel_of_column, axis=2) for v in (grids, scales / grids))
        return [_Noise(*of_round) for of_round in zip(scales, grid, ratio, strict=True)]

    def _stacked_schedule(self, channels: tuple[str, ...]) -> NoiseSchedule:
        """One channel after the other, (channels · b,), or (channels,) where agents have the same."""
        if channels not in self._stacked:
            used = [self.schedules[c] for c in channels]
            scale, decay = np.stack([s.scale for s in used]), np.stack([s.decay for s in used])
            if all(bool((v == v[:, :1]).all()) for v in (scale, decay)):
                scale, decay = scale[:, :1], decay[:, :1]
            self._stacked[channels] = NoiseSchedule(scale.reshape(-1), decay.reshape(-1))
        return self._stacked[channels]

    def _noised(self, index: int, bounded: Mapping[str, Bounded], noise: _Noise) -> tuple[dict[str, Array], Array]:
        """The released values by channel, and the array whose columns they are."""
        mechanism = noise_of(self.mechanism, ", ".join(bounded))
        for channel, value in bounded.items():
            if value.norm != mechanism.norm:
                raise ValueError(
                    f"{mechanism.name} noise on {channel} needs a value bounded in {mechanism.norm}, got {value.norm}"
                )
        channels = list(bounded)
        widths = tuple(value.private.shape[1] for value in bounded.values())
        # All channels side by side, (b, Σ widths): few calls where the block is small.
        queries, publics = [v.private for v in bounded.values()], [v.public for v in bounded.values()]
        released = np.empty((len(queries[0]), sum(widths)))
        # A few agents at a time, so that their variates are still in cache when they are used.
        rows = max(1, _CACHED_VARIATES // released.shape[1])
        for first in range(0, len(released), rows):
            part = slice(first, first + rows)
            g_part, ratio_part = (v if len(v) == 1 else v[part] for v in (noise.grid, noise.ratio))
            query = _concatenated([q[part] for q in queries])
            draws = Draws(self._streams, index, tag(",".join(channels)), part)
            whose = partial(self._whose, index, channels, first)
            integers = mechanism.sample(Unnoised(draws, query, g_part, ratio_part, widths, self._workspace, whose))
            np.concatenate([p[part] for p in publics], axis=1, out=released[part])
            add_public(integers, g_part, released[part])
        ends = accumulate(widths)
        columns = {c: released[:, end - width : end] for c, end, width in zip(channels, ends, widths, strict=True)}
        return columns, released

    def _whose(self, index: int, channels: Sequence[str], first: int, row: int, channel: int) -> Drawing:
        """Whose noise it is, of a row counted from the first one of a part."""
        agent = first + row if self._agents is None else int(self._agents[first + row])
        drawing = Drawing(agent, index, index // self.releases_per_round, channels[channel])
        if self._network is None:
            return drawing
        near = self._network.neighbours(agent)
        return drawing._replace(neighbours=near, weights=self._network.mixing[[agent]].toarray()[0, near])


def _concatenated(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
