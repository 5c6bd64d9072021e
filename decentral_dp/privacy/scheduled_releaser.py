"""The objects that add noise and state its price, in one place.

Noise is float-safe. What is rounded and noised is the private part of a value, on a power-of-two grid g; adding the
public part afterwards, on the same grid, is post-processing:

    Laplace:   k = ⌊u/g⌋ + [U < frac(u/g)] + ⌊E₁ν/g⌋ − ⌊E₂ν/g⌋,   U ~ U(0, 1), E ~ Exp(1), g = 2^(⌊log₂ ν⌋ − 20)
               each ⌊Eν/g⌋ is exactly geometric, their difference is exactly discrete Laplace;
               stochastic rounding makes the price (Δ/g)(e^{g/ν} − 1) independent of the dimension
    Gaussian:  k = rint(u/g) + rint(N·s/g),          N ~ N(0, 1), g = 2^(⌊log₂ s⌋ − 16)
               rounded normal noise on an integer is post-processing of the Gaussian: exactly GDP with (Δ₂ + √d·g)/s
    wide:      k = ⌊u/g⌋ + [U < frac(u/g)] + rint(N·s/g), g = 2^(⌊log₂ s⌋ − 18), where √d·g would be much beside Δ₂

and the released value is g·(rint(public/g) + k). Rounding the sum instead would leak u in its low bits. The public part
is rounded for those to whom it is not public: who sees few messages could read from the low bits of one what its sender
had received.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.exchange import Bundle, Value
from decentral_dp.privacy.bounded import Array, Bounded
from decentral_dp.privacy.ledger import Recorder
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.privacy.release_cost import grid, uses_randomised_rounding

# Why a plain array costs nothing, whatever was computed on the way to it.
FREE = "reads no record, being a function of public and released values"

_CACHED_VARIATES = 2**14


@dataclass(frozen=True)
class NoiseSchedule:
    """Standard deviation σ/(t+1)^ς of the noise on the value with index t, per agent; Laplace scale b = σ/(√2 (t+1)^ς).

    scale: (m,) σ; decay: (m,) ς.
    """

    scale: Array
    decay: Array

    def at(self, index: int | NDArray[np.int64], mechanism: str) -> Array:
        """Laplace b or Gaussian standard deviation: (m,) at one index, (T, m) at an array of indices."""
        t: Any = index if isinstance(index, int) else np.asarray(index, dtype=np.float64)[..., None]
        deviation = self.scale * (t + 1.0) ** -self.decay
        return np.asarray(deviation / np.sqrt(2.0) if mechanism == "laplace" else deviation)

    def of(self, agents: NDArray[np.int64]) -> NoiseSchedule:
        return NoiseSchedule(self.scale[agents], self.decay[agents])


class ScheduledReleaser:
    """Noise and ledger of one block of agents: `release` samples, and writes the ledger line, together.

    kind: "laplace", "gaussian", or "none" (values leave as they are, at infinite price).
    schedules: channel → schedule of the block's agents. exchanges: per round; all releases of one round share a scale.
    """

    def __init__(
        self, kind: str, schedules: Mapping[str, NoiseSchedule], streams: Streams, releases_per_round: int = 1
    ) -> None:
        self.kind = kind
        self.releases_per_round = releases_per_round
        self.schedules = dict(schedules)
        self.recorder = Recorder(len(streams))
        self._streams = streams
        self._norm = "l1" if kind == "laplace" else "l2"
        self._buffers: dict[tuple[Any, ...], tuple[Array, Array]] = {}
        self._stacked: dict[tuple[str, ...], NoiseSchedule] = {}

    def release(self, index: int, values: Mapping[str, Value]) -> Bundle:
        """Everything that leaves the block at this index. Index 0 is data-independent and costs nothing."""
        bounded = {c: v for c, v in values.items() if isinstance(v, Bounded)}
        scales = self._scales(index, tuple(bounded))
        if self.kind == "none":
            released = {c: v.value for c, v in bounded.items()}
        else:
            released = self._noised(index, bounded, scales)
        for (channel, noised), scale in zip(bounded.items(), scales, strict=True):
            self.recorder.charge(index, channel, self.kind, scale, noised)
        out: dict[str, Array] = {}
        for channel, value in values.items():
            if isinstance(value, Bounded):
                out[channel] = released[channel]
            else:
                out[channel] = value
                self.recorder.free(index, channel, value.shape[1], FREE)
        return Bundle(out)

    def _scales(self, index: int, channels: tuple[str, ...]) -> Array:
        """Noise scales of these channels at one index, (channels, b); zeros without noise."""
        if self.kind == "none" or not channels:
            return np.zeros((len(channels), len(self._streams)))
        if channels not in self._stacked:
            used = [self.schedules[c] for c in channels]
            self._stacked[channels] = NoiseSchedule(
                np.stack([s.scale for s in used]), np.stack([s.decay for s in used])
            )
        return self._stacked[channels].at(index // self.releases_per_round, self.kind)

    def _noised(self, index: int, bounded: Mapping[str, Bounded], scales: Array) -> dict[str, Array]:
        for channel, value in bounded.items():
            if value.norm != self._norm:
                raise ValueError(
                    f"{self.kind} noise on {channel} needs a value bounded in {self._norm}, got {value.norm}"
                )
        channels = list(bounded)
        if not channels:
            return {}
        widths = [value.private.shape[1] for value in bounded.values()]
        # All channels side by side, (b, Σ widths): few calls where the block is small.
        queries, publics = [v.private for v in bounded.values()], [v.public for v in bounded.values()]
        grids = np.stack([grid(s, self.kind, width) for s, width in zip(scales, widths, strict=True)])
        ends = np.cumsum(widths).tolist()
        columns = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
        randomised = tuple(
            c for c, width in zip(columns, widths, strict=True) if uses_randomised_rounding(self.kind, width)
        )
        g, ratio = _per_column(grids, widths), _per_column(scales / grids, widths)
        positioned = self._streams.each(index, tag(",".join(channels)))
        released = np.empty((len(queries[0]), sum(widths)))
        # A few agents at a time, so that their variates are still in cache when they are used.
        rows = max(1, _CACHED_VARIATES // released.shape[1])
        for first in range(0, len(released), rows):
            part = slice(first, first + rows)
            g_part, ratio_part = (v if len(v) == 1 else v[part] for v in (g, ratio))
            query = _concatenated([q[part] for q in queries])
            integers = self._integers(positioned, query, g_part, ratio_part, randomised)
            # Exact, unless the public part is 2^33 times as large as the noise: integers, times a power of two.
            sent = released[part]
            with np.errstate(over="ignore", invalid="ignore"):
                np.concatenate([p[part] for p in publics], axis=1, out=sent)
                sent *= 1.0 / g_part
                np.rint(sent, out=sent)
                sent += integers
                sent *= g_part
        return {c: released[:, where] for c, where in zip(channels, columns, strict=True)}

    def _integers(
        self,
        positioned: Iterator[np.random.Generator],
        query: Array,
        g: Array,
        ratio: Array,
        randomised: tuple[slice, ...],
    ) -> Array:
        """Rounded and noised queries of the next agents, in units of their grids; one keyed draw for each agent.

        tossed: columns of wide releases.
        """
        laplace = self.kind == "laplace"
        (rows, width), ends = query.shape, tuple(c.stop for c in randomised)
        if (rows, width, *ends) not in self._buffers:
            # Half everywhere rounds to the nearest.
            halves = np.full((rows, width if laplace or randomised else 0), 0.5)
            self._buffers[rows, width, *ends] = (np.empty((rows, 1 + laplace, width)), halves)
        variates, uniforms = self._buffers[rows, width, *ends]
        if not laplace:
            for normals, uniform in zip(variates, uniforms, strict=True):
                generator = next(positioned)
                generator.standard_normal(out=normals)
                for columns in randomised:
                    generator.random(out=uniform[columns])
            return gaussian_integers(query, g, ratio, variates.transpose(1, 0, 2), uniforms if randomised else None)
        for exponentials, uniform in zip(variates, uniforms, strict=True):
            generator = next(positioned)
            generator.standard_exponential(out=exponentials)
            generator.random(out=uniform)
        return laplace_integers(query, g, ratio, variates.transpose(1, 0, 2), uniforms)


def _concatenated(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _per_column(values: Array, widths: Sequence[int]) -> Array:
    """(channels, b) numbers spread over the channels' columns: (b, Σ widths), or (1, Σ widths) where agents agree."""
    alike = values.shape[1] == 1 or bool((values == values[:, :1]).all())
    return np.repeat(values[:, :1].T if alike else values.T, widths, axis=1)


def laplace_integers(query: Array, g: Array, ratio: Array, exponentials: Array, uniforms: Array) -> Array:
    """⌊query/g⌋ + [U < frac(query/g)] + ⌊E₁·ratio⌋ − ⌊E₂·ratio⌋, as float64 integers.

    exponentials: (2, b, d), overwritten.
    """
    # 1/g is exact, g being a power of two, and multiplying is faster than dividing.
    scaled = query * (1.0 / g)
    out = np.floor(scaled)
    # Compared, not added: U + scaled would round away the low bits of U.
    scaled -= out
    out += uniforms < scaled
    exponentials *= ratio
    np.floor(exponentials, out=exponentials)
    out += exponentials[0]
    out -= exponentials[1]
    return np.asarray(out)


def gaussian_integers(query: Array, g: Array, ratio: Array, normals: Array, uniforms: Array | None = None) -> Array:
    """rint(query/g), or with uniforms ⌊query/g⌋ + [U < frac(query/g)], + rint(N·ratio), as float64 integers.

    normals: (1, b, d), overwritten.
    """
    out = query * (1.0 / g)
    if uniforms is None:
        np.rint(out, out=out)
    else:
        scaled = out
        out = np.floor(scaled)
        scaled -= out
        out += uniforms < scaled
    normals *= ratio
    out += np.rint(normals[0], out=normals[0])
    return np.asarray(out)
