"""Releasers: the objects that add noise to values and record its price.

Noise is float-safe. What is rounded and noised is the private part u of a value, on a power-of-two grid g, to an
integer k (see `mechanisms`); adding the public part afterwards, on the same grid, is post-processing. The released
value is g·(rint(public/g) + k). Rounding the sum instead would leak u in its low bits. The public part is rounded for
those to whom it is not public: who sees few messages could read from the low bits of one what its sender had received.

A trusted coordinator's `PlannedReleaser` adds the noise at which every release has its planned price. The plan fixes
the price of each release, μ_t or ε_t, before the run; scales follow from prices and from sensitivities, which may
depend on what was released. Prices that the transcript cannot touch compose as if releases were independent (Dong, Roth
& Su 2022), so the plan is the guarantee whatever happens. In a plan every scale is 1: there the grid is as coarse
beside the noise as it gets, so that a release given its price at scale 1 costs at most as much at its own.

A `CheckedReleaser` refuses releases of a custom algorithm that its plan does not list at their price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split
from decentral_dp.exchange import Bundle, Released, SelectionMechanism, Value
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, Mechanism, Unnoised, Workspace, add_public, mechanism_of, noise_of
from decentral_dp.privacy.pair_noise import PairDraws
from decentral_dp.privacy.randomness import Draws, Root, Streams, tag
from decentral_dp.privacy.recorder import Recorder, assemble
from decentral_dp.privacy.schedules import Points, factor_at
from decentral_dp.privacy.time_factors import (
    Past,
    TimeFactor,
    carried_noise,
    charged_sensitivity,
    empty_past,
    next_past,
)
from decentral_dp.user_code import UserCodeError

# Why a plain array costs nothing, whatever was computed on the way to it.
FREE = "reads no record, being a function of public and released values"

_CACHED_VARIATES = 2**14
# Scales and grids are formed for so many rounds at once, where all of them together are so few numbers.
_ROUNDS_AHEAD, _KEPT_AHEAD = 512, 2**16


@dataclass(frozen=True)
class NoiseSchedule:
    """Standard deviation σ/(t+1)^ς · f(t) of the noise on the value with index t, per agent.

    scale: (m,) σ; decay: (m,) ς; points: of f, as `factor_at` takes them, the same of all agents.
    """

    scale: Array
    decay: Array
    points: Points = ()

    def scales(self, index: int | NDArray[np.int64], mechanism: Mechanism | str) -> Array:
        """The mechanism's scale: (m,) at one index, (T, m) at an array of indices."""
        return noise_of(mechanism_of(mechanism), "a channel").scale_of(self.deviations(index))

    def deviations(self, index: int | NDArray[np.int64]) -> Array:
        """σ/(t+1)^ς · f(t), of the same shapes as `scales`."""
        t: Any = index if isinstance(index, int) else np.asarray(index, dtype=np.float64)[..., None]
        deviations: Array = self.scale * (t + 1.0) ** -self.decay * factor_at(self.points, t)
        return deviations

    def select(self, agents: NDArray[np.int64]) -> NoiseSchedule:
        return replace(self, scale=self.scale[agents], decay=self.decay[agents])


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
    pairs: noise that the agents share with others, all of whom have the same schedules, of σ; by default none.
    factor: of noise that goes on from that of earlier rounds; by default it is fresh.
    """

    def __init__(
        self,
        mechanism: Mechanism | str,
        schedules: Mapping[str, NoiseSchedule],
        streams: Streams,
        releases_per_round: int = 1,
        pairs: PairDraws | None = None,
        factor: TimeFactor | None = None,
    ) -> None:
        self.pairs, self.factor = pairs, factor
        self.mechanism = mechanism_of(mechanism)
        self.releases_per_round = releases_per_round
        self.schedules = dict(schedules)
        self.recorder = Recorder(len(streams))
        self._streams = streams
        self._workspace: Workspace = {}
        # Before which release, and what it goes on from. Draws are keyed, so that nothing of it need be saved.
        self._past: tuple[int, Past] | None = None
        # Channel → what the last release added of the noise of earlier ones, (b, d).
        self.past_noise: dict[str, Array] = {}
        # Channels and their widths → a round, and the noise of that one and of those that follow.
        self._ahead: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[int, list[_Noise]]] = {}

    def release(self, index: int, values: Mapping[str, Value], sends: NDArray[np.bool_] | None = None) -> Bundle:
        """Everything that leaves the block at this index. Index 0 is data-independent and costs nothing.

        Args:
            index: of the release.
            values: channel → (b, d).
            sends: (b,) whose values leave; by default everybody's. In the rows of the others there are zeros.
        """
        bounded, free = {}, {}
        for channel, value in values.items():
            if isinstance(value, Bounded):
                bounded[channel] = value
            else:
                free[channel] = value
        if self.mechanism.adds_noise and bounded:
            widths = tuple([v.private.shape[1] for v in bounded.values()])
            noise = self._noise(index, tuple(bounded), widths)
            released, whole = self._add_noise(index, bounded, widths, noise)
            scales = noise.scale
        else:
            released, whole, scales = {c: v.value for c, v in bounded.items()}, None, np.zeros((len(bounded), 1))
        for (channel, noised), scale in zip(bounded.items(), scales, strict=True):
            charged, shared = scale, dict[str, Array]()
            if self.pairs is not None:
                # Charged at its effective scale; what was drawn of noise that neighbours share is listed beside it.
                rounds = np.array([index // self.releases_per_round])
                of_round, drawn = self.pairs.noise.charged_scales(scale[None], rounds, self.pairs.agents)
                charged, shared = of_round[0], {name: values[0] for name, values in drawn.items()}
            if self.factor is not None and index:
                # Rounds read records again and again: charged at the sensitivity that all of them show together.
                width, at = noised.private.shape[1], np.array([index])
                grid = noise_of(self.mechanism, "a channel").grid(scale, width)[None]
                moved = {
                    split: s._replace(
                        sensitivity=charged_sensitivity(self.factor, at, s.sensitivity[None], grid, width)[0]
                    )
                    for split, s in noised.sensitivities.items()
                }
                noised = replace(noised, sensitivities=moved)
            self.recorder.charge(index, channel, self.mechanism, charged, noised, sends=sends, shared=shared)
        out = cast(dict[str, Array], {**values, **released})
        if free:
            for channel, value in free.items():
                self.recorder.free(index, channel, value.shape[1], FREE)
            each = list(out.values())
            whole = np.concatenate(each, axis=1)
        if sends is not None:
            return Bundle({c: np.where(sends[:, None], v, 0.0) for c, v in out.items()})
        return Bundle(out, whole)

    def pair_noise_sum(self, index: int, widths: Mapping[str, int], pairs: PairDraws) -> Array:
        """Compute what pairs add to what these channels release, as `release` would: (b, Σ widths).

        Args:
            index: of the release.
            widths: channel → its width, in the order of the release.
            pairs: of the same noise; draws those pairs alone that some agents can tell.
        """
        noise = self._noise(index, tuple(widths), tuple(widths.values()))
        return noise.grid * pairs.sums(index, index // self.releases_per_round, tag(",".join(widths)), noise.ratio)

    def _noise(self, index: int, channels: tuple[str, ...], widths: tuple[int, ...]) -> _Noise:
        t = index // self.releases_per_round
        first, ahead = self._ahead.get((channels, widths), (0, []))
        if first <= t < first + len(ahead):
            return ahead[t - first]
        # With that of some later rounds, where it is little to keep: many rounds take as many calls as one.
        mechanism = noise_of(self.mechanism, ", ".join(channels))
        used = [self.schedules[c] for c in channels]
        # One row where all agents have the same in every channel.
        alike = all(bool((v == v[:1]).all()) for s in used for v in (s.scale, s.decay))
        schedules = [s.select(np.arange(1)) for s in used] if alike else used
        rows = schedules[0].scale.size
        rounds = np.arange(t, t + max(1, min(_ROUNDS_AHEAD, _KEPT_AHEAD // (rows * sum(widths)))))
        scales = np.stack([s.scales(rounds, self.mechanism) for s in schedules], axis=1)
        grids = np.empty_like(scales)
        for k, width in enumerate(widths):
            grids[:, k] = mechanism.grid(scales[:, k].reshape(-1), width).reshape(rounds.size, rows)
        by_row = (v.transpose(0, 2, 1) for v in (grids, scales / grids))
        if len(widths) == 1:
            # One number for all columns: of a large model even to copy it takes long.
            grid, ratio = (np.broadcast_to(v, (*v.shape[:2], widths[0])) for v in by_row)
        else:
            grid, ratio = (v.repeat(widths, axis=2) for v in by_row)
        ahead = [_Noise(*of_round) for of_round in zip(scales, grid, ratio, strict=True)]
        self._ahead[channels, widths] = t, ahead
        return ahead[0]

    def _add_noise(
        self, index: int, bounded: Mapping[str, Bounded], widths: tuple[int, ...], noise: _Noise
    ) -> tuple[dict[str, Array], Array | None]:
        """The released values by channel, and the array whose columns they are."""
        channels = list(bounded)
        names = ",".join(channels)
        mechanism, queries, publics = noise_of(self.mechanism, names), [], []
        for channel, value in bounded.items():
            _require_norm(mechanism, channel, value)
            queries.append(value.private)
            publics.append(value.public)
        # All channels side by side, (b, Σ widths): few calls where the block is small.
        agents, width = len(queries[0]), sum(widths)
        released = np.empty((agents, width))
        # A few agents at a time, so that their variates are still in cache when they are used.
        rows, tagged = max(1, _CACHED_VARIATES // width), tag(names)
        t, pairs, ratio = index // self.releases_per_round, self.pairs, noise.ratio
        shared, factor = None, self.factor if index else None
        if factor is not None:
            past, drawn = self._past_of(index, factor, bounded), np.empty(released.shape)
            carry = carried_noise(factor, past)
        if pairs is not None:
            shared = pairs.sums(index, t, tagged, ratio)
            ratio = ratio if pairs.noise.own_deviation is None else ratio * pairs.own_deviation[:, None]
        for first in range(0, agents, rows):
            part = slice(first, first + rows)
            g_part = noise.grid if len(noise.grid) == 1 else noise.grid[part]
            ratio_part = ratio if len(ratio) == 1 else ratio[part]
            out = released[part]
            parts = [query[part] for query in queries]
            query = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
            if factor is not None:
                query = query + g_part * carry[part]
            draws = Draws(self._streams, index, tagged, part)
            integers = mechanism.sample(Unnoised(draws, query, g_part, ratio_part, widths, self._workspace))
            if shared is not None:
                integers += shared[part]
            if factor is not None:
                drawn[part] = integers - np.rint(query / g_part)
            np.concatenate([public[part] for public in publics], axis=1, out=out)
            add_public(integers, g_part, out)
        if factor is not None:
            self._past = index + 1, next_past(factor, past, drawn)
            self.past_noise = _columns(channels, widths, noise.grid * carry)
        return _columns(channels, widths, released), released

    def _past_of(self, index: int, factor: TimeFactor, bounded: Mapping[str, Bounded]) -> Past:
        """What noise goes on from before this release: kept from the one before, or drawn again from the first on."""
        if self._past is None or self._past[0] != index:
            zeros = {c: np.zeros_like(v.private) for c, v in bounded.items()}
            none = {c: replace(v, public=zeros[c], private=zeros[c]) for c, v in bounded.items()}
            widths = tuple(v.shape[1] for v in zeros.values())
            self._past = 1, empty_past(factor, (len(self._streams), sum(widths)))
            for before in range(1, index):
                self._add_noise(before, none, widths, self._noise(before, tuple(none), widths))
        return self._past[1]


def _require_norm(mechanism: Mechanism, channel: str, value: Bounded) -> None:
    if value.norm != mechanism.norm:
        raise ValueError(
            f"{mechanism.name} noise on {channel} needs a value bounded in {mechanism.norm}, got {value.norm}"
        )


def _columns(channels: Sequence[str], widths: Sequence[int], whole: Array) -> dict[str, Array]:
    columns, end = {}, 0
    for channel, width in zip(channels, widths, strict=True):
        columns[channel] = whole[:, end : end + width]
        end += width
    return columns


def _planned_row(lines: Mapping[str, ChannelLedger], index: int, channel: str) -> tuple[ChannelLedger, int] | None:
    """Return the line of a channel and the row of a release in it; None where it is not planned and charged."""
    line = lines.get(channel)
    if line is None or not line.mechanism.charged:
        return None
    row = int(np.searchsorted(line.rounds, index))
    return (line, row) if row < line.rounds.size and line.rounds[row] == index else None


# Room for the float64 arithmetic of a scale.
_ROUND_UP = 1.0 + 1e-12
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
            if isinstance(value, Bounded):
                bounds = {split: float(s.sensitivity[0]) for split, s in value.sensitivities.items()}
            else:
                bounds = {split: float(s) for split, s in value.sensitivity.items()}
            scales[channel] = scale = self.scale(index, channel, bounds)
            if isinstance(value, Bounded):
                self._check_rates(index, channel, value)
                # What no record can move is no secret, and there is no scale for its noise to have.
                still = not any(bounds.values())
                out[channel] = value.value if still else self._add_noise(index, channel, value, scale)
            else:
                out[channel] = value.draw(self.generator(index, channel), scale)[None]
            mechanism, distortion = self._channels[channel].mechanism, 0.0
            if not isinstance(value, Bounded):
                if mechanism not in (mechanism_of(value.mechanism), NO_NOISE):
                    raise ValueError(f"{channel} is planned as {mechanism.name} and drawn by {value.mechanism}")
                distortion, nothing = value.distortion, np.zeros((1, value.width))
                sensitivity = {k: Sensitivity(np.array([s]), np.ones(1), None) for k, s in bounds.items()}
                value = Bounded(nothing, nothing, sensitivity, "l2")
            self.recorder.charge(index, channel, mechanism, np.array([scale]), value, distortion)
        return Released(Bundle(out), scales)

    def _check_rates(self, index: int, channel: str, value: Bounded) -> None:
        """Refuse a value that reads a larger sample than the planned one, whose rate is in the price."""
        line, at = self._planned(index, channel)
        for split, moved in value.sensitivities.items():
            rate, planned = float(moved.rate[0]), float(line.rate[split][at, 0]) if split in line.rate else 1.0
            if line.mechanism != NO_NOISE and moved.sensitivity[0] > 0.0 and not rate <= planned * _ROUND_UP:
                raise ReleaseRefusedError(
                    f"release {index}: {channel} reads {split} records at rate {rate:g}, and {planned:g} was planned "
                    "and priced; it was not made. Mend the plan of releases, or `step`."
                )

    def _add_noise(self, index: int, channel: str, value: Bounded, scale: float) -> Array:
        released_by = self._channels[channel].mechanism
        if not released_by.proven:
            # As a paper prints it: what nothing is proven of may leave as it is, at an infinite price.
            return value.value
        mechanism = noise_of(released_by, channel)
        _require_norm(mechanism, channel, value)
        d = value.private.shape[1]
        g = mechanism.grid(scale, d).reshape(1, 1)
        draws, most = Draws(self._streams, index, tag(channel), slice(1)), _LARGEST_INTEGER * g
        out, step = np.empty((1, d)), mechanism.columns_at_a_time or d
        # A part at a time, still in cache when it is used.
        for first in range(0, d, step):
            part = slice(first, min(d, first + step))
            query = np.clip(value.private[:, part], -most, most)
            integers = mechanism.sample(Unnoised(draws, query, g, scale / g, (d,), {}))
            np.add(value.public[:, part], g * integers, out=out[:, part])
        return out

    def scale(self, index: int, channel: str, sensitivity: Mapping[Split, float]) -> float:
        """The smallest scale that costs no kind of record more than planned for this release."""
        line, at = self._planned(index, channel)
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
        return max(_ROUND_UP * needed, _LEAST_SCALE)

    def planned_cost(self, index: int, channel: str) -> dict[Split, float]:
        """What the release may cost one record of each kind: at scale 1, its sensitivity."""
        line, at = self._planned(index, channel)
        return {split: float(s[at, 0]) for split, s in line.sensitivity.items()}

    def _planned(self, index: int, channel: str) -> tuple[ChannelLedger, int]:
        planned = _planned_row(self._channels, index, channel)
        if planned is None:
            raise ValueError(f"a release on {channel!r} with the index {index} was not planned")
        return planned

    def generator(self, index: int, channel: str) -> np.random.Generator:
        """The keyed random bits of one release."""
        return self._streams.generator(0, index, tag(channel))

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        """What was released so far, as a ledger of one agent."""
        return assemble([(np.zeros(1, dtype=np.int64), self.recorder)], 1, releases_per_round)


# How far two computations of one sensitivity may differ by rounding.
_ROUNDING = 1e-9


class ReleaseRefusedError(UserCodeError):
    """A release that was not planned, or that one record moves further than planned; it was not made."""


class CheckedReleaser:
    """A `ScheduledReleaser` that refuses a round before anything of it is noised, where it is not what was priced.

    Args:
        make: builds the releaser.
        plan: the releases of the block's agents, as they were priced.
        algorithm: its class, for messages.
    """

    def __init__(self, make: Callable[[], Any], plan: Ledger, algorithm: type) -> None:
        self._inner: ScheduledReleaser = make()
        self._lines = {c.channel: c for c in plan.channels}
        self._per_round = plan.releases_per_round
        self._algorithm = algorithm

    @property
    def recorder(self) -> Recorder:
        return self._inner.recorder

    @property
    def mechanism(self) -> Mechanism:
        return self._inner.mechanism

    def release(self, index: int, values: Mapping[str, Value], sends: NDArray[np.bool_] | None = None) -> Bundle:
        """Release as planned; arguments as of `ScheduledReleaser`.

        Raises:
            ReleaseRefusedError: a channel, an index or a sensitivity that was not priced.
        """
        for channel, value in values.items():
            # The start, at index 0, depends on no record and is not listed.
            if index > 0 and isinstance(value, Bounded):
                self._check(index, channel, value, sends)
        try:
            return self._inner.release(index, values, sends)
        except (ValueError, KeyError) as error:
            raise ReleaseRefusedError(f"{self._step_location(index)} {error}; nothing of it was released.") from error

    def _check(self, index: int, channel: str, value: Bounded, sends: NDArray[np.bool_] | None) -> None:
        planned_row = _planned_row(self._lines, index, channel)
        if planned_row is None:
            raise ReleaseRefusedError(
                f"{self._step_location(index)} it releases {channel} from records, which was not planned and priced; "
                "nothing of that round was released. Mend the plan of releases, or `step`."
            )
        line, at = planned_row
        for split, moved in value.sensitivities.items():
            planned = line.sensitivity[split][at, line.group] if split in line.sensitivity else np.zeros(1)
            # Written so that what is not a number fails, too.
            fits = moved.sensitivity <= planned * (1.0 + _ROUNDING)
            if sends is not None:
                fits |= ~sends
            if not fits.all():
                row = int(np.argmin(fits))
                raise ReleaseRefusedError(
                    f"{self._step_location(index)} one {split} record may move {channel} by "
                    f"{moved.sensitivity[row]:.6g}, and {np.broadcast_to(planned, fits.shape)[row]:.6g} was planned "
                    "and priced; nothing of that round was released. Mend the plan of releases, or `step`."
                )

    def _step_location(self, index: int) -> str:
        made_by = f"step of {self._algorithm.__name__}"
        return f"round {-(-index // self._per_round)}: {made_by}:"
