"""Releasers: objects that add noise to values and write ledger entries.

Noise is float-safe. The private part u of a value is rounded and perturbed on a power-of-two grid g, as an integer k
(see `mechanisms`). Adding the public part on the same grid is post-processing: the released value is
g·(rint(public/g) + k). Rounding the sum instead would leak u in its low bits. The public part is also rounded, since
low bits of a message would leak to its receivers which messages the sender had received.

A `ScheduledReleaser` serves the agents of a block. A trusted coordinator's `PlannedReleaser` adds the noise at which
every release has its planned cost. The plan fixes the cost of each release, μ_t or ε_t, before the run. Scales follow
from costs and sensitivities, which may depend on released values. Costs that do not depend on the transcript compose as
if releases were independent (Dong, Roth & Su 2022). In a plan every scale is 1, at which the grid is coarsest compared
with the noise, so that no release costs more at its own scale.

A `CheckedReleaser` refuses releases of a custom algorithm that exceed its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split
from decentral_dp.exchange import Bundle, Released, SelectionMechanism, Value
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import (
    NO_NOISE,
    Mechanism,
    NoiseMechanism,
    Unnoised,
    Workspace,
    add_public,
    mechanism_of,
    noise_of,
)
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

# The reason in a ledger entry of a plain array.
FREE = "reads no record, being a function of public and released values"

_CACHED_VARIATES = 2**14
# Rounds whose scales and grids are computed at once, and the most floats that this may take.
_ROUNDS_AHEAD, _KEPT_AHEAD = 512, 2**16


@dataclass(frozen=True)
class NoiseSchedule:
    """Standard deviation σ/(t+1)^ς · f(t) of each agent's noise on the release with index t.

    Args:
        scale: scale σ of each agent, (m,).
        decay: exponent ς of each agent, (m,).
        points: points of f, as in `factor_at`, identical for all agents.
    """

    scale: Array
    decay: Array
    points: Points = ()

    def scales(self, index: int | NDArray[np.int64], mechanism: Mechanism | str) -> Array:
        """Return the scales of the mechanism, (m,) at one index or (T, m) at an array of indices."""
        noise = noise_of(mechanism_of(mechanism), "a channel")
        return np.asarray(self.deviations(index) / noise.deviation)

    def deviations(self, index: int | NDArray[np.int64]) -> Array:
        """Return the standard deviations σ/(t+1)^ς · f(t), with the same shapes as `scales`."""
        t: Any = index if isinstance(index, int) else np.asarray(index, dtype=np.float64)[..., None]
        deviations: Array = self.scale * (t + 1.0) ** -self.decay * factor_at(self.points, t)
        return deviations

    def select(self, agents: NDArray[np.int64]) -> NoiseSchedule:
        """Return the schedule of some agents."""
        return replace(self, scale=self.scale[agents], decay=self.decay[agents])


class _Noise(NamedTuple):
    """Scale and grid of one release, in a single row if they are equal for all agents.

    Attributes:
        scale: scale of each channel and agent, (channels, b).
        grid: grid of every column, (b, Σ widths).
        ratio: scale/grid, (b, Σ widths).
    """

    scale: Array
    grid: Array
    ratio: Array


class ScheduledReleaser:
    """Releaser of one block of agents. `release` draws the noise and writes the ledger entry in the same call.

    Args:
        mechanism: mechanism that adds noise, or its name. `NO_NOISE` releases unchanged values at infinite cost.
        schedules: channel → noise schedule of the block's agents.
        streams: keyed noise of the block's agents.
        releases_per_round: number of releases per round, all with the same scale.
        pairs: pairwise correlated noise of agents with equal schedules; None (the default) means independent noise.
        factor: factor for noise correlated over rounds. None (the default) means fresh noise.
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
        # Once, since a check of an abstract class is slow.
        self._noise_mechanism = noise_of(self.mechanism, "noise") if self.mechanism.adds_noise else None
        self.releases_per_round = releases_per_round
        self.schedules = dict(schedules)
        self.recorder = Recorder(len(streams))
        self._streams = streams
        self._workspace: Workspace = {}
        # Index of the next release, and the past noise that it needs. Draws are keyed, so it need not be saved.
        self._past: tuple[int, Past] | None = None
        # Channel → (b, d) noise of earlier rounds in the last release.
        self.past_noise: dict[str, Array] = {}
        # Channels and widths → a round, and the noise of this and the next rounds.
        self._ahead: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[int, list[_Noise]]] = {}

    @classmethod
    def join(cls, parts: Sequence[ScheduledReleaser]) -> ScheduledReleaser:
        """Join the releasers of several blocks. Their noise must be independent, and only their scales may differ."""
        first, schedules = parts[0], {}
        for c, schedule in first.schedules.items():
            scales, decays = ([getattr(p.schedules[c], name) for p in parts] for name in ("scale", "decay"))
            schedules[c] = replace(schedule, scale=np.concatenate(scales), decay=np.concatenate(decays))
        return cls(first.mechanism, schedules, Streams.join([p._streams for p in parts]), first.releases_per_round)

    def release(self, index: int, values: Mapping[str, Value], sends: NDArray[np.bool_] | None = None) -> Bundle:
        """Release the values of a block and charge their privacy cost. Index 0 is data-independent and costs nothing.

        Args:
            index: index of the release.
            values: channel → values, (b, d).
            sends: whether each agent sends, (b,). By default all agents send. The rows of the others are zero.
        """
        bounded_values, free = {}, {}
        for channel, value in values.items():
            if isinstance(value, Bounded):
                bounded_values[channel] = value
            else:
                free[channel] = value
        if self._noise_mechanism is not None and bounded_values:
            widths = tuple([v.private.shape[1] for v in bounded_values.values()])
            noise = self._noise(index, tuple(bounded_values), widths)
            released, matrix = self._add_noise(index, bounded_values, widths, noise)
            scales = noise.scale
        else:
            released, matrix, scales = (
                {c: v.value for c, v in bounded_values.items()},
                None,
                np.zeros((len(bounded_values), 1)),
            )
        for (channel, bounded_value), scale in zip(bounded_values.items(), scales, strict=True):
            charged_scale, pair_scales = scale, dict[str, Array]()
            if self.pairs is not None:
                # Charged at its effective scale. The scales of the draws are listed, too.
                rounds = np.array([index // self.releases_per_round])
                of_round, pair_draws = self.pairs.noise.charged_scales(scale[None], rounds, self.pairs.agents)
                charged_scale, pair_scales = of_round[0], {name: values[0] for name, values in pair_draws.items()}
            if self.factor is not None and index:
                # Charged at a sensitivity that accounts for all rounds together.
                width, indices = bounded_value.private.shape[1], np.array([index])
                grid = noise_of(self.mechanism, channel).grid(scale, width)[None]
                sensitivities = {
                    split: s._replace(
                        sensitivity=charged_sensitivity(self.factor, indices, s.sensitivity[None], grid, width)[0]
                    )
                    for split, s in bounded_value.sensitivities.items()
                }
                bounded_value = replace(bounded_value, sensitivities=sensitivities)
            self.recorder.charge(
                index, channel, self.mechanism, charged_scale, bounded_value, sends=sends, shared=pair_scales
            )
        out = cast(dict[str, Array], {**values, **released})
        if free:
            for channel, value in free.items():
                self.recorder.free(index, channel, value.shape[1], FREE)
            bundles = list(out.values())
            matrix = np.concatenate(bundles, axis=1)
        if sends is not None:
            return Bundle({c: np.where(sends[:, None], v, 0.0) for c, v in out.items()})
        return Bundle(out, matrix)

    def pair_noise_sum(self, index: int, widths: Mapping[str, int], pairs: PairDraws) -> Array:
        """Compute the pairwise noise in the release of these channels, (b, Σ widths).

        Args:
            index: index of the release.
            widths: channel → its width, in the order of the release.
            pairs: draws of the pairs to include, such as those of colluding agents.
        """
        noise = self._noise(index, tuple(widths), tuple(widths.values()))
        return noise.grid * pairs.sums(index, index // self.releases_per_round, tag(",".join(widths)), noise.ratio)

    def _noise(self, index: int, channels: tuple[str, ...], widths: tuple[int, ...]) -> _Noise:
        t = index // self.releases_per_round
        first, ahead = self._ahead.get((channels, widths), (0, []))
        if first <= t < first + len(ahead):
            return ahead[t - first]
        # Later rounds are computed in the same calls.
        mechanism = noise_of(self.mechanism, ", ".join(channels))
        channel_schedules = [self.schedules[c] for c in channels]
        # One row if all agents have the same schedules.
        is_uniform = all(bool((v == v[:1]).all()) for s in channel_schedules for v in (s.scale, s.decay))
        schedules = [s.select(np.arange(1)) for s in channel_schedules] if is_uniform else channel_schedules
        rows = schedules[0].scale.size
        rounds = np.arange(t, t + max(1, min(_ROUNDS_AHEAD, _KEPT_AHEAD // (rows * sum(widths)))))
        scales = np.stack([s.scales(rounds, self.mechanism) for s in schedules], axis=1)
        grids = np.empty_like(scales)
        for k, width in enumerate(widths):
            grids[:, k] = mechanism.grid(scales[:, k].reshape(-1), width).reshape(rounds.size, rows)
        by_row = (v.transpose(0, 2, 1) for v in (grids, scales / grids))
        if len(widths) == 1:
            # One number for all columns: for large models even a copy is slow.
            grid, ratio = (np.broadcast_to(v, (*v.shape[:2], widths[0])) for v in by_row)
        else:
            grid, ratio = (v.repeat(widths, axis=2) for v in by_row)
        ahead = [_Noise(*of_round) for of_round in zip(scales, grid, ratio, strict=True)]
        self._ahead[channels, widths] = t, ahead
        return ahead[0]

    def _add_noise(
        self, index: int, bounded_values: Mapping[str, Bounded], widths: tuple[int, ...], noise: _Noise
    ) -> tuple[dict[str, Array], Array | None]:
        """Return the released values by channel, and the array that contains them as columns."""
        mechanism = cast(NoiseMechanism, self._noise_mechanism)
        channels, queries, publics = list(bounded_values), [], []
        for channel, value in bounded_values.items():
            _require_norm(mechanism, channel, value)
            queries.append(value.private)
            publics.append(value.public)
        # All channels side by side, (b, Σ widths).
        agents, width = len(queries[0]), sum(widths)
        released = np.empty((agents, width))
        # A few agents at a time, whose variates fit into the cache.
        rows, tag_of_names = max(1, _CACHED_VARIATES // width), tag(",".join(channels))
        t, pairs, ratio = index // self.releases_per_round, self.pairs, noise.ratio
        pair_sums, factor = None, self.factor if index else None
        if factor is not None:
            past, noise_sum = self._past_of(index, factor, bounded_values), np.empty(released.shape)
            carry = carried_noise(factor, past)
        if pairs is not None:
            pair_sums = pairs.sums(index, t, tag_of_names, ratio)
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
            draws = Draws(self._streams, index, tag_of_names, part)
            integers = mechanism.sample(Unnoised(draws, query, g_part, ratio_part, widths, self._workspace))
            if pair_sums is not None:
                integers += pair_sums[part]
            if factor is not None:
                noise_sum[part] = integers - np.rint(query / g_part)
            np.concatenate([public[part] for public in publics], axis=1, out=out)
            add_public(integers, g_part, out)
        if factor is not None:
            self._past = index + 1, next_past(factor, past, noise_sum)
            self.past_noise = _columns(channels, widths, noise.grid * carry)
        return _columns(channels, widths, released), released

    def _past_of(self, index: int, factor: TimeFactor, bounded_values: Mapping[str, Bounded]) -> Past:
        """Return the past noise that this release needs, kept from the previous release or drawn again."""
        if self._past is None or self._past[0] != index:
            zeros = {c: np.zeros_like(v.private) for c, v in bounded_values.items()}
            silent = {c: replace(v, public=zeros[c], private=zeros[c]) for c, v in bounded_values.items()}
            widths = tuple(v.shape[1] for v in zeros.values())
            self._past = 1, empty_past(factor, (len(self._streams), sum(widths)))
            for before in range(1, index):
                self._add_noise(before, silent, widths, self._noise(before, tuple(silent), widths))
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
    """Return the line of a channel and the row of a release in it, or None if it is not planned and charged."""
    line = lines.get(channel)
    if line is None or not line.mechanism.charged:
        return None
    row = int(np.searchsorted(line.rounds, index))
    return (line, row) if row < line.rounds.size and line.rounds[row] == index else None


# Exceeds the rounding of a scale.
_ROUND_UP = 1.0 + 1e-12
# Scale of a release whose sensitivity is 0 or negligible.
_LEAST_SCALE = 2.0**-800
# Grid integers up to here are exact in float64 with noise added. Larger queries are clipped, which does not increase
# their distance in neighbouring data sets.
_LARGEST_INTEGER = 2.0**51


class PlannedReleaser:
    """Releaser of a coordinator that releases at the planned costs and records the charges.

    Args:
        plan: ledger of one agent.
        root: noise key.
        fixed: whether the plan fixes the noise scales (as a published calibration does) instead of the costs at scale
            1.
    """

    def __init__(self, plan: Ledger, root: Root, fixed: bool = False) -> None:
        self.plan = plan
        self.recorder = Recorder(1)
        self._fixed = fixed
        self._streams = Streams(root, "noise", [0])
        self._channels = {c.channel: c for c in plan.channels}

    def release(self, index: int, values: Mapping[str, Value | SelectionMechanism]) -> Released:
        """Release the values at one index and charge their privacy cost."""
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
                # A value of sensitivity 0 is no secret, and has no scale for its noise.
                is_public = not any(bounds.values())
                out[channel] = value.value if is_public else self._add_noise(index, channel, value, scale)
            else:
                out[channel] = value.draw(self.generator(index, channel), scale)[None]
            mechanism, distortion = self._channels[channel].mechanism, 0.0
            if not isinstance(value, Bounded):
                if mechanism not in (mechanism_of(value.mechanism), NO_NOISE):
                    raise ValueError(f"{channel}: drawn by {value.mechanism}, planned as {mechanism.name}")
                distortion, nothing = value.distortion, np.zeros((1, value.width))
                sensitivity = {k: Sensitivity(np.array([s]), np.ones(1), None) for k, s in bounds.items()}
                value = Bounded(nothing, nothing, sensitivity, "l2")
            self.recorder.charge(index, channel, mechanism, np.array([scale]), value, distortion)
        return Released(Bundle(out), scales)

    def _check_rates(self, index: int, channel: str, value: Bounded) -> None:
        """Refuse a value that reads a larger sample than planned, since the cost depends on the sampling rate."""
        line, row = self._find_planned(index, channel)
        for split, sensitivity in value.sensitivities.items():
            rate, planned_rate = (
                float(sensitivity.rate[0]),
                float(line.rate[split][row, 0]) if split in line.rate else 1.0,
            )
            if line.mechanism != NO_NOISE and sensitivity.sensitivity[0] > 0.0 and not rate <= planned_rate * _ROUND_UP:
                raise UserCodeError(
                    f"release {index}: {channel} reads {split} records at rate {rate:g}, planned "
                    f"{planned_rate:g}; nothing was released. Fix: change the planned releases, or `step`."
                )

    def _add_noise(self, index: int, channel: str, value: Bounded, scale: float) -> Array:
        released_by = self._channels[channel].mechanism
        if not released_by.proven:
            # As published: releases without a proof stay unchanged, at infinite cost.
            return value.value
        mechanism = noise_of(released_by, channel)
        _require_norm(mechanism, channel, value)
        d = value.private.shape[1]
        g = mechanism.grid(scale, d).reshape(1, 1)
        draws, most = Draws(self._streams, index, tag(channel), slice(1)), _LARGEST_INTEGER * g
        out, step = np.empty((1, d)), mechanism.columns_at_a_time or d
        # In parts that fit into the cache.
        for first in range(0, d, step):
            part = slice(first, min(d, first + step))
            query = np.clip(value.private[:, part], -most, most)
            integers = mechanism.sample(Unnoised(draws, query, g, scale / g, (d,), {}))
            np.add(value.public[:, part], g * integers, out=out[:, part])
        return out

    def scale(self, index: int, channel: str, sensitivity: Mapping[Split, float]) -> float:
        """Return the smallest scale at which the release costs no more than planned for any split."""
        line, row = self._find_planned(index, channel)
        if line.mechanism == NO_NOISE:
            return 0.0
        if self._fixed:
            return float(line.scale[row, 0])
        bounds_planned = self.planned_cost(index, channel)
        # NaN fails this comparison, too.
        if not all(0.0 <= bounds < np.inf for bounds in sensitivity.values()):
            raise ValueError(
                f"{channel} at index {index}: got sensitivities {dict(sensitivity)}, expected finite numbers"
            )
        scale = max(
            (bounds / bounds_planned[split] for split, bounds in sensitivity.items() if bounds > 0.0), default=0.0
        )
        return max(_ROUND_UP * scale, _LEAST_SCALE)

    def planned_cost(self, index: int, channel: str) -> dict[Split, float]:
        """Return split → planned cost of the release, which equals its planned sensitivity at scale 1."""
        line, row = self._find_planned(index, channel)
        return {split: float(s[row, 0]) for split, s in line.sensitivity.items()}

    def _find_planned(self, index: int, channel: str) -> tuple[ChannelLedger, int]:
        plan_row = _planned_row(self._channels, index, channel)
        if plan_row is None:
            raise ValueError(f"{channel}: release {index} was not planned")
        return plan_row

    def generator(self, index: int, channel: str) -> np.random.Generator:
        """Return the keyed generator of one release."""
        return self._streams.generator(0, index, tag(channel))

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        """Return the ledger of one agent with all releases so far."""
        return assemble([(np.zeros(1, dtype=np.int64), self.recorder)], 1, releases_per_round)


# Largest relative difference by rounding between two computations of one sensitivity.
_ROUNDING = 1e-9


class CheckedReleaser:
    """`ScheduledReleaser` that rejects a round exceeding the plan before any noise is drawn for it.

    Args:
        make: function that builds the releaser.
        plan: planned ledger of the block's agents.
        algorithm: class of the algorithm, for error messages.
    """

    def __init__(self, make: Callable[[], Any], plan: Ledger, algorithm: type) -> None:
        self._inner: ScheduledReleaser = make()
        self._lines = {c.channel: c for c in plan.channels}
        self._per_round = plan.releases_per_round
        self._algorithm = algorithm

    @property
    def recorder(self) -> Recorder:
        """Recorder of the releases."""
        return self._inner.recorder

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism of the releases."""
        return self._inner.mechanism

    def release(self, index: int, values: Mapping[str, Value], sends: NDArray[np.bool_] | None = None) -> Bundle:
        """Release values as planned. The arguments are those of `ScheduledReleaser.release`.

        Raises:
            UserCodeError: a channel or an index was not planned, or a sensitivity exceeds the plan.
        """
        step = f"round {-(-index // self._per_round)}: step of {self._algorithm.__name__}:"
        for channel, value in values.items():
            # Index 0 depends on no record and is not listed.
            if index > 0 and isinstance(value, Bounded):
                for fault, fix in self._faults(index, channel, value, sends):
                    raise UserCodeError(f"{step} {fault}; nothing of this round was released. Fix: {fix}.")
        try:
            return self._inner.release(index, values, sends)
        except (ValueError, KeyError) as error:
            raise UserCodeError(f"{step} {error}; nothing was released.") from error

    def _faults(
        self, index: int, channel: str, value: Bounded, sends: NDArray[np.bool_] | None
    ) -> Iterator[tuple[str, str]]:
        """Yield differences from the plan, and how to fix each."""
        planned_row = _planned_row(self._lines, index, channel)
        if planned_row is None:
            yield f"it releases {channel} from records without a plan", "change the planned releases, or `step`"
            return
        line, planned_index = planned_row
        for split, sensitivity in value.sensitivities.items():
            bound = line.sensitivity[split][planned_index, line.group] if split in line.sensitivity else np.zeros(1)
            # NaN fails this comparison, too.
            fits = sensitivity.sensitivity <= bound * (1.0 + _ROUNDING)
            if sends is not None:
                fits |= ~sends
            if not fits.all():
                row = int(np.argmin(fits))
                yield (
                    f"one {split} record may move {channel} by {sensitivity.sensitivity[row]:.6g}, planned "
                    f"{np.broadcast_to(bound, fits.shape)[row]:.6g}",
                    "change the plan of releases, or `step`"
                    if np.isfinite(sensitivity.sensitivity[row])
                    else "evaluate gradients at `own`, or at values computed from releases, since others have no bound",
                )
            planned_rate = line.rate[split][planned_index, line.group] if split in line.rate else 1.0
            # The rate does not matter at sensitivity 0.
            is_dearer = (sensitivity.rate > planned_rate) & (sensitivity.sensitivity > 0.0)
            if (is_dearer if sends is None else is_dearer & sends).any():
                yield (
                    f"{channel} is planned with amplification by sampling, but depends on {split} records of several "
                    "minibatches",
                    "set keeps_batches = True, or plan rates of 1",
                )
