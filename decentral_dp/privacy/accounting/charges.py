"""Privacy costs of a ledger's releases for every group of agents, arranged by the way in which they compose.

Agents that share their column in every channel form one group, which is accounted once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.float_slack import (
    SHARES,
    DrawnVariates,
    Slack,
    drawn_variates,
    join_by_grid,
    likely_slack,
    worst_case_slack,
)
from decentral_dp.privacy.accounting.loss_distributions import Releases, amplify
from decentral_dp.privacy.clipping import RECORD, sampled_unit
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import DominatingPair, Mechanism, NormalVariates

# Costs computed at once: 256 KiB an array, which fits into a core's cache.
BLOCK = 1 << 15
# For releases on a Poisson sample, the range of μ, the dimension and the number of records for which float64 samplers
# are compared with the records' absence.
_NEAR, _FAR, _MOST_COORDINATES, _MOST_RECORDS = 2.0, 9.0, 10**6, 16


class ChannelCharges(NamedTuple):
    """Charges of one channel to the records of one split.

    Args:
        channel: name of the channel.
        mechanism: mechanism of its releases.
        dimension: number of coordinates of one release.
        rounds: indices of the releases, (T,).
        loss: cost of every release before amplification, in the mechanism's unit, (T, g).
        rate: sampling rates, (T, g).
        column: index of each group's column, (G,).
        variates: slack (ε, δ) of float64 samplers in each column, (g,) each, or the normal variates of each group.
        sampling: sampling of batches, as in `ChannelLedger`.
        distortion: bound on the distortion, as in `ChannelLedger`.
    """

    channel: str
    mechanism: Mechanism
    dimension: int
    rounds: IntArray
    loss: Array
    rate: Array
    column: IntArray
    variates: tuple[Array, Array] | DrawnVariates
    sampling: str = "fixed"
    distortion: float = 0.0


class Charges(NamedTuple):
    """Charges of a ledger.

    Args:
        names: charged channels.
        kinds: splits of the records.
        group: group of each agent, (m,).
        lines: split → charges of all channels. Splits with equal charges share one object.
    """

    names: tuple[str, ...]
    kinds: tuple[Split, ...]
    group: IntArray
    lines: dict[Split, tuple[ChannelCharges, ...]]


def charges(ledger: Ledger) -> Charges:
    """Compute the cost of every release of a ledger.

    Args:
        ledger: ledger of the releases.

    Returns:
        Costs before composition. Agents with the same columns form one group.

    Raises:
        InputError: no rule covers an entry.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> charged = charges(Ledger(3, (laplace,)))
        >>> charged.lines["train"][0].loss[:, 0].round(4).tolist(), charged.group.tolist()
        ([0.25, 0.25, 0.25, 0.25], [0, 0, 0])
        >>> collect_charges(charged, "train", channel=None).pure().round(4).tolist()
        [1.0]
    """
    channels = ledger.charged_channels
    for c in channels:
        for fault in _faults(c, ledger.n_agents):
            raise InputError(f"ledger: channel {c.channel!r} {fault}.")
    if not channels:
        return Charges((), (), np.zeros(ledger.n_agents, dtype=np.int64), {})
    pairs, group = np.unique(np.stack([c.group for c in channels]), axis=1, return_inverse=True)
    kinds = tuple(k for k in SPLITS if any(k in c.sensitivity for c in channels))
    lines: dict[Split, list[ChannelCharges]] = {split: [] for split in kinds}
    sampled_channels = [
        c for c in channels if sampled_unit(c.sampling) and any((rate < 1.0).any() for rate in c.rate.values())
    ]
    for c, column in zip(channels, pairs, strict=True):
        for split, line in _lines(c, column, len(sampled_channels) == 1).items():
            lines[split].append(line)
    by_split = {split: tuple(channel_charges) for split, channel_charges in lines.items()}
    return Charges(tuple(c.channel for c in channels), kinds, group.reshape(-1), by_split)


def _lines(c: ChannelLedger, column: IntArray, is_single: bool) -> dict[Split, ChannelCharges]:
    """Return split → charges of a channel. Splits with equal charges share one object.

    `is_single` means that a Poisson sample feeds no other channel.
    """
    channel_charges: dict[Split, ChannelCharges] = {}
    # A record in a Poisson sample is compared with its absence: a part of the sensitivity, with the same rounding.
    unit = sampled_unit(c.sampling)
    parts = 1.0 if unit is None else float(unit.steps)
    for split in c.sensitivity:
        for kind, line in channel_charges.items():
            pairs = [(values[kind], values[split]) for values in (c.sensitivity, c.rate)]
            if all(a is b or np.array_equal(a, b) for a, b in pairs):
                channel_charges[split] = line
                break
        else:
            sensitivity, rate, loss = c.sensitivity[split], c.rate[split], np.empty(c.scale.shape)
            for rows in _blocks(loss):
                loss[rows] = parts * c.mechanism.cost(sensitivity[rows] / parts, c.scale[rows], c.dimension)
            variates = _variates(c, loss, column, rate if is_single and not c.shared else np.ones(1))
            channel_charges[split] = ChannelCharges(
                c.channel, c.mechanism, c.dimension, c.rounds, loss, rate, column, variates, c.sampling, c.distortion
            )
    return channel_charges


def _variates(c: ChannelLedger, loss: Array, column: IntArray, rate: Array) -> tuple[Array, Array] | DrawnVariates:
    """Count float64 variates; `rate` is the rate of a sample that feeds no other channel, otherwise 1."""
    epsilon, delta = np.zeros(loss.shape[1]), np.zeros(loss.shape[1])
    for rows in _blocks(loss):
        slack = c.mechanism.float_slack(loss[rows], c.dimension)
        if isinstance(slack, NormalVariates):
            # With shared noise, the variates of all agents protect one agent's record.
            number = c.dimension * c.shared.get("variates", np.ones((1, 1)))
            unit, weight = sampled_unit(c.sampling), np.ones(1)
            if unit is not None and not unit.zeroed and unit.steps <= 2 * _MOST_RECORDS:
                # Most samples have no record of the unit, and no centre is further from those than half of μ.
                is_halved = (loss > _NEAR) & (loss <= _FAR) & (rate <= 0.5) & (c.dimension <= _MOST_COORDINATES)
                loss, weight = (
                    np.where(is_halved, 0.5 * loss, loss),
                    np.where(is_halved, 0.6 * 2.0 ** (unit.steps / 2), 1.0),
                )
            bits = slack.bits
            if c.shared and c.rounds.size:
                # The grid is finer compared with the largest scale that is drawn than with the least, of any round.
                own_scale, pair_scale = c.shared["own_scale"], c.shared["pair_scale"]
                scale_ratio = np.maximum(own_scale, pair_scale).max(axis=1) / own_scale.min(axis=1)
                bits += int(np.ceil(np.log2(scale_ratio).max()))
            return drawn_variates(loss, number, bits, slack.randomised, column, weight)
        epsilon += slack[0].sum(axis=0)
        delta += slack[1].sum(axis=0)
    return epsilon, delta


def _blocks(table: Array) -> Iterator[slice]:
    """Yield slices of at least one row, with about `BLOCK` numbers each."""
    height = max(1, BLOCK // max(1, table.shape[1]))
    return (slice(start, start + height) for start in range(0, max(1, len(table)), height))


def _faults(c: ChannelLedger, agents: int) -> Iterator[str]:
    """Yield reasons why a channel has no sound cost, phrased to follow its name."""
    rules = c.mechanism.amplified_by or ("fixed", "poisson")
    if (c.sampling if sampled_unit(c.sampling) is None else "poisson") not in rules:
        yield (
            f"adds {c.mechanism.name} noise to batches of {c.sampling!r} sampling; no rule covers that. Use "
            '"poisson" with Gaussian noise, "fixed" with Laplace or Gaussian noise'
        )
    if c.group.size != agents or (c.rounds.size > 1 and (np.diff(c.rounds) <= 0).any()):
        yield f"must list {agents} agents and ascending rounds"
    for split, sensitivity in c.sensitivity.items():
        rate = c.rate[split]
        for name, values in (("scale", c.scale), ("sensitivity", sensitivity), ("sampling rate", rate)):
            # A minimum with NaN is NaN.
            if not values.min(initial=0.0) >= 0.0:
                yield f"has a {name} that is negative or not a number"
        if not rate.max(initial=0.0) <= 1.0:
            yield f"has a sampling rate above 1, {rate.max():g}"
        if not c.mechanism.amplified_by and (rate < 1.0).any():
            yield (
                f"samples for a release by {c.mechanism.name!r}, for which no amplification rule is known. "
                "Fix: use full batches, or Laplace or Gaussian noise"
            )


class SamplerCounts(NamedTuple):
    """Counts that determine the slack of float64 samplers for one split and G groups.

    Attributes:
        epsilon, delta, ratio: slack of samplers other than normal variates, (G,).
        normals: normal variates for each kind of grid.
    """

    epsilon: Array
    delta: Array
    ratio: Array
    normals: tuple[DrawnVariates, ...]

    def slacks(self, delta: float) -> Iterator[Slack]:
        """Yield valid bounds at a δ. The first does not depend on δ, and is tight for few coordinates.

        Limits:
            Exact samplers add nothing. See docs/proofs/09.
        """
        if not self.normals:
            none = np.zeros((1, self.epsilon.size))
            yield Slack(self.epsilon, self.delta, self.ratio, none, none + np.inf)
            return
        for share in (0.0, *SHARES) if delta > 0.0 else (0.0,):
            bound = likely_slack(self.normals, share * delta, self.ratio) if share else worst_case_slack(self.normals)
            yield bound._replace(
                epsilon=self.epsilon + bound.epsilon,
                delta=np.minimum(1.0, self.delta + bound.delta),
                ratio=self.ratio + bound.ratio,
            )


def count_samples(ledger_charges: Charges, split: Split, channel: str | None) -> SamplerCounts:
    """Count the samples that protect one record, in one channel or in all channels.

    Args:
        ledger_charges: charges of a ledger.
        split: split of the record.
        channel: name of a single channel. None means all channels.
    """
    groups = int(ledger_charges.group.max()) + 1
    epsilon, lost_delta, ratio = np.zeros(groups), np.zeros(groups), np.zeros(groups)
    normals: list[DrawnVariates] = []
    for line in ledger_charges.lines[split]:
        if channel not in (None, line.channel):
            continue
        if line.distortion:
            away = line.distortion * (line.loss > 0.0).sum(axis=0)
            epsilon += 2.0 * away[line.column]
            ratio += away[line.column]
        if isinstance(line.variates, DrawnVariates):
            normals.append(line.variates)
        else:
            more, less = (part[line.column] for part in line.variates)
            epsilon, lost_delta, ratio = epsilon + more, lost_delta + less, ratio + 0.5 * more
    return SamplerCounts(epsilon, lost_delta, ratio, tuple(join_by_grid(normals)))


# Most columns that are composed one by one; more are bundled and bounded by their elementwise maxima.
MOST_COLUMNS = 32


class Plain(NamedTuple):
    """Releases in which every record takes part.

    Attributes:
        rounds: indices, (T,).
        loss: costs, (T, g).
        column: column of each group, (G,).
    """

    rounds: IntArray
    loss: Array
    column: IntArray


class Fresh(NamedTuple):
    """Rounds with a fresh batch, summed over all channels that use the batch.

    Attributes:
        rounds: indices, (R,).
        base: cost Σε of Laplace releases or √Σμ² of Gaussian releases, (R, G).
        rate: sampling rates, (R, G).
    """

    rounds: IntArray
    base: Array
    rate: Array


# Pair → its field of `Releases`; those of pure ε in the order of their sum.
_PURE = {DominatingPair.LAPLACE: "laplace", DominatingPair.RESPONSE: "pure", DominatingPair.RANGED: "bounded_range"}


@dataclass(frozen=True)
class ComposedCharges:
    """Charges to one split over some channels, for all G groups.

    Args:
        groups: number of groups G.
        plain: pair → releases in which every record takes part, by channel.
        subsampled: key → rounds with a fresh batch. The key is "sampled_laplace" or "sampled_gaussian", as in
            `Releases`, or a Poisson sampling, as in a ledger.
    """

    groups: int
    plain: Mapping[DominatingPair, tuple[Plain, ...]]
    subsampled: Mapping[str, Fresh]

    def has_only(self, pair: DominatingPair) -> bool:
        """Return whether all releases have this dominating pair and every record takes part in all of them."""
        return not self.subsampled and self.plain.keys() <= {pair}

    @property
    def gaussian(self) -> bool:
        """Whether any release is Gaussian."""
        return DominatingPair.GAUSSIAN in self.plain or not self.subsampled.keys() <= {"sampled_laplace"}

    def mu(self) -> Array:
        """Compute √Σμ² over the Gaussian releases in which every record takes part, (G,)."""
        total = np.zeros(self.groups)
        for _, loss, column in self.plain.get(DominatingPair.GAUSSIAN, ()):
            total += np.einsum("tg,tg->g", loss, loss)[column]
        return np.sqrt(total)

    @cached_property
    def sums(self) -> Array:
        """Σε over the pure releases in which every record takes part, (G,)."""
        total = np.zeros(self.groups)
        for _, loss, column in (line for pair in _PURE for line in self.plain.get(pair, ())):
            total += loss.sum(axis=0)[column]
        return total

    def pure(self) -> Array:
        """Compute the pure ε, (G,)."""
        total, gaussian = self.sums.copy(), self.mu()
        for way, (_, base, rate) in self.subsampled.items():
            if way == "sampled_laplace":
                total += amplify(base, rate).sum(axis=0)
            else:
                gaussian = gaussian + base.sum(axis=0)
        return np.where(gaussian > 0.0, np.inf, total)

    def size(self) -> Array:
        """Return numbers (G,) that order columns by cost: +inf if there is no noise, 0 if there are no charges."""
        total = self.mu() + self.sums
        for _, base, rate in self.subsampled.values():
            total = total + (np.where(np.isinf(base), np.inf, base * rate)).sum(axis=0)
        return np.asarray(total)

    def equal_groups(self, groups: IntArray) -> list[IntArray]:
        """Bundle the groups that have equal charges, and return the groups (g,) of each bundle."""
        bundles: dict[tuple[bytes, ...], list[int]] = {}
        plain: list[tuple[list[float | bytes], IntArray]] = []
        for line in (line for lines in self.plain.values() for line in lines):
            # Columns with different sums differ, so that most need no comparison.
            loss, total = line.loss, line.loss.sum(axis=0)
            _, column_index, count = np.unique(total, return_inverse=True, return_counts=True)
            unique = (count[column_index] == 1) & np.isfinite(total)
            names = [float(total[k]) if unique[k] else loss[:, k].tobytes() for k in range(total.size)]
            plain.append((names, line.column))
        for j in groups:
            key = [names[column[j]] for names, column in plain]
            key += [part[:, j].tobytes() for fresh in self.subsampled.values() for part in fresh[1:]]
            bundles.setdefault(tuple(key), []).append(int(j))
        return [np.asarray(b, dtype=np.int64) for b in bundles.values()]

    def releases(self, groups: IntArray) -> Releases:
        """Return the elementwise largest charges of these groups."""
        return self.largest(groups).releases_between(-1, None)

    def releases_between(self, after: int, until: int | None) -> Releases:
        """Return the charges of a single group for releases with after < index ≤ until."""

        def select_rounds(rounds: IntArray, part: Array) -> Array:
            # Rounds ascend.
            first = np.searchsorted(rounds, after, side="right")
            last = None if until is None else max(first, np.searchsorted(rounds, until, side="right"))
            return part[first:last, 0]

        pure: dict[str, Any] = {
            _PURE[pair]: np.concatenate([select_rounds(line.rounds, line.loss) for line in lines])
            for pair, lines in self.plain.items()
            if pair in _PURE
        }
        gaussian = self.plain.get(DominatingPair.GAUSSIAN, ())
        sampled: dict[str, Array] = {}
        for way, (rounds, *parts) in self.subsampled.items():
            charge_rows, unit = np.stack([select_rounds(rounds, part) for part in parts]), sampled_unit(way)
            charge_rows = charge_rows[:, charge_rows[0] > 0.0]
            if unit is not None and unit != RECORD:
                unit_rows = np.broadcast_to([[float(unit.records or 0)], [float(unit.zeroed)]], charge_rows.shape)
                way, charge_rows = "poisson_groups", np.concatenate([charge_rows, unit_rows])
            sampled[way] = np.concatenate([sampled[way], charge_rows], axis=1) if way in sampled else charge_rows
        return Releases(
            **{name: loss[loss > 0.0] for name, loss in pure.items()},
            **sampled,
            mu=float(np.sqrt(sum(float((select_rounds(line.rounds, line.loss) ** 2).sum()) for line in gaussian))),
        )

    def largest(self, groups: IntArray) -> ComposedCharges:
        """Return one group whose charges are the elementwise largest of these groups (g,)."""
        zero = np.zeros(1, dtype=np.int64)

        def elementwise_max(values: Array, columns: IntArray) -> Array:
            if columns.size == 1:
                return values[:, columns[0] : columns[0] + 1]
            return np.asarray(values[:, columns].max(axis=1, keepdims=True))

        def plain(line: Plain) -> Plain:
            return Plain(line.rounds, elementwise_max(line.loss, np.unique(line.column[groups])), zero)

        return ComposedCharges(
            1,
            {pair: tuple(map(plain, lines)) for pair, lines in self.plain.items()},
            {
                way: Fresh(r, elementwise_max(base, groups), elementwise_max(rate, groups))
                for way, (r, base, rate) in self.subsampled.items()
            },
        )


def collect_charges(ledger_charges: Charges, split: Split, channel: str | None) -> ComposedCharges:
    """Collect the charges to one split over one or all channels."""
    lines = [line for line in ledger_charges.lines[split] if channel in (None, line.channel)]
    groups = int(ledger_charges.group.max()) + 1
    plain: dict[DominatingPair, list[Plain]] = {pair: [] for pair in DominatingPair}
    sampled_charges: dict[str, list[ChannelCharges]] = {}
    for line in lines:
        pair = line.mechanism.dominating_pair
        # The least rate shows quickly that there is no sampling, the usual case.
        fresh = (line.rate < 1.0) & (line.loss > 0.0) if line.rate.min(initial=1.0) < 1.0 else None
        if fresh is None or not fresh.any():
            plain[pair].append(Plain(line.rounds, line.loss, line.column))
            continue
        plain[pair].append(Plain(line.rounds, np.where(fresh, 0.0, line.loss), line.column))
        way = f"sampled_{pair.value}" if sampled_unit(line.sampling) is None else line.sampling
        sampled_charges.setdefault(way, []).append(line._replace(loss=np.where(fresh, line.loss, 0.0)))
    charged_plain = {pair: tuple(p for p in parts if p.loss.any()) for pair, parts in plain.items()}
    sampled = {way: _batches(parts, 1.0 if way == "sampled_laplace" else 2.0) for way, parts in sampled_charges.items()}
    for first, second in itertools.combinations(sampled.values(), 2):
        common, i, j = np.intersect1d(first.rounds, second.rounds, return_indices=True)
        overlaps = ((first.base[i] > 0.0) & (second.base[j] > 0.0)).any(axis=1)
        if overlaps.any():
            raise InputError(
                f"ledger: in round {int(common[np.argmax(overlaps)])} one {split} batch feeds releases of two "
                "mechanisms or two samplings, and no amplification rule covers both. Fix: use one of them, "
                "or full batches."
            )
    return ComposedCharges(groups, {pair: parts for pair, parts in charged_plain.items() if parts}, sampled)


def _batches(lines: Sequence[ChannelCharges], power: float) -> Fresh:
    """Return rounds with a fresh batch, with sums over the channels that the batch feeds, and its rate."""
    rounds = np.unique(np.concatenate([line.rounds for line in lines]))
    groups = lines[0].column.size
    total, rate = np.zeros((rounds.size, groups)), np.ones((rounds.size, groups))
    is_read = np.zeros((rounds.size, groups), dtype=bool)
    for line in lines:
        positions = np.searchsorted(rounds, line.rounds)
        loss, share = line.loss[:, line.column], line.rate[:, line.column]
        has_loss = loss > 0.0
        differs = has_loss & is_read[positions] & (rate[positions] != share)
        if differs.any():
            t = int(line.rounds[np.argmax(differs.any(axis=1))])
            raise InputError(
                f"ledger: in round {t} one batch feeds several channels at different sampling rates (channel "
                f"{line.channel!r} among them). Fix: use the same rate for all channels of a batch."
            )
        total[positions] += loss**power
        rate[positions] = np.where(has_loss, share, rate[positions])
        is_read[positions] |= has_loss
    return Fresh(rounds, total ** (1.0 / power), np.where(is_read, rate, 0.0))


def gather(bundles: Sequence[IntArray], size: Array) -> list[IntArray]:
    """Merge bundles of columns into at most `MOST_COLUMNS` bundles, each of which spans the same ratio of costs.

    The most expensive bundle is not merged.

    Args:
        bundles: indices of the columns in each bundle.
        size: cost of each column, (G,).
    """
    order = sorted(bundles, key=lambda b: -size[b[0]])
    cost = np.log([size[b[0]] for b in order[1:]])
    span = max(float(cost[0] - cost[-1]), 1e-12)
    cell = np.minimum((cost[0] - cost) / span * (MOST_COLUMNS - 1), MOST_COLUMNS - 2).astype(np.int64)
    cells: dict[int, list[IntArray]] = {}
    for bundle, cell_index in zip(order[1:], cell, strict=True):
        cells.setdefault(int(cell_index), []).append(bundle)
    return [order[0], *(np.concatenate(b) for b in cells.values())]
