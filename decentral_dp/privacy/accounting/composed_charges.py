"""Charges of one kind of record, sorted by what composes with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.charges import ChannelCharges, Charges
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.privacy.accounting.loss_profiles import amplified
from decentral_dp.privacy.ledger import IntArray
from decentral_dp.privacy.mechanisms import DominatingPair

# So many different columns are composed one by one; more are gathered and bounded by their elementwise maxima.
MOST_COLUMNS = 32


@dataclass(frozen=True)
class ComposedCharges:
    """What one kind of record is charged, for all G groups, over some channels.

    Args:
        groups: G.
        laplace: (rounds, loss (T, g), column (G,)) of releases that every record takes part in.
        gaussian: the same.
        sampled_laplace: (rounds (R,), base (R, G), rate (R, G)) of rounds with a fresh batch, over all channels that it
            feeds; base is Σε.
        sampled_gaussian: the same; base is √Σμ².
        other: as `laplace`, of pure ε and unknown law.
        ranged: as `laplace`, exponential mechanisms.
        sampled_poisson: as `sampled_gaussian`, of Poisson samples.
    """

    groups: int
    laplace: tuple[tuple[IntArray, Array, IntArray], ...]
    gaussian: tuple[tuple[IntArray, Array, IntArray], ...]
    sampled_laplace: tuple[IntArray, Array, Array] | None
    sampled_gaussian: tuple[IntArray, Array, Array] | None
    other: tuple[tuple[IntArray, Array, IntArray], ...] = ()
    ranged: tuple[tuple[IntArray, Array, IntArray], ...] = ()
    sampled_poisson: tuple[IntArray, Array, Array] | None = None

    @property
    def plain_gaussian(self) -> bool:
        return not self.laplace and self._plain

    @property
    def plain_laplace(self) -> bool:
        return not self.gaussian and self._plain

    @property
    def _plain(self) -> bool:
        return not self.other and not self.ranged and all(part is None for part in self._sampled)

    @property
    def _sampled(self) -> tuple[tuple[IntArray, Array, Array] | None, ...]:
        return self.sampled_laplace, self.sampled_gaussian, self.sampled_poisson

    def mu(self) -> Array:
        """Compute √Σμ² of the Gaussian releases that every record takes part in, (G,)."""
        total = np.zeros(self.groups)
        for _, loss, column in self.gaussian:
            total += np.einsum("tg,tg->g", loss, loss)[column]
        return np.sqrt(total)

    @cached_property
    def _sums(self) -> Array:
        """Σε of the pure releases that every record takes part in, (G,)."""
        total = np.zeros(self.groups)
        for _, loss, column in (*self.laplace, *self.other, *self.ranged):
            total += loss.sum(axis=0)[column]
        return total

    def pure(self) -> Array:
        """Compute the pure ε, (G,)."""
        total = self._sums.copy()
        if self.sampled_laplace is not None:
            _, base, rate = self.sampled_laplace
            total += amplified(base, rate).sum(axis=0)
        gaussian = self.mu()
        for sampled in (self.sampled_gaussian, self.sampled_poisson):
            if sampled is not None:
                gaussian = gaussian + sampled[1].sum(axis=0)
        return np.where(gaussian > 0.0, np.inf, total)

    def size(self) -> Array:
        """Order columns by cost: (G,) a number; +inf where nothing is hidden, 0 where nothing is charged."""
        total = self.mu() + self._sums
        for sampled in self._sampled:
            if sampled is not None:
                _, base, rate = sampled
                total = total + (np.where(np.isinf(base), np.inf, base * rate)).sum(axis=0)
        return np.asarray(total)

    def alike(self, groups: IntArray) -> list[IntArray]:
        """Bundle the given groups where every charge is the same."""
        bundles: dict[tuple[bytes, ...], list[int]] = {}
        plain = (*self.laplace, *self.gaussian, *self.other, *self.ranged)
        names = [_names(loss) for _, loss, _ in plain]
        for j in groups:
            key = [names[k][column[j]] for k, (_, _, column) in enumerate(plain)]
            for sampled in self._sampled:
                if sampled is not None:
                    key += [sampled[1][:, j].tobytes(), sampled[2][:, j].tobytes()]
            bundles.setdefault(tuple(key), []).append(int(j))
        return [np.asarray(b, dtype=np.int64) for b in bundles.values()]

    def releases(self, groups: IntArray) -> Releases:
        """Return the elementwise largest charges of the given groups."""
        return self._bound(groups).between(-1, None)

    def dominating(self) -> ComposedCharges:
        """Return one group whose charges are the elementwise largest of all."""
        return self._bound(np.arange(self.groups))

    def between(self, after: int, until: int | None) -> Releases:
        """Return the charges of the only group for releases with after < index ≤ until."""

        def keep(rounds: IntArray) -> slice:
            # Rounds ascend.
            first = np.searchsorted(rounds, after, side="right")
            return slice(first, None if until is None else max(first, np.searchsorted(rounds, until, side="right")))

        def sampled(part: tuple[IntArray, Array, Array] | None) -> Array:
            if part is None:
                return np.zeros((2, 0))
            rounds, base, rate = part
            kept = keep(rounds)
            chosen = base[kept, 0] > 0.0
            return np.stack([base[kept, 0][chosen], rate[kept, 0][chosen]])

        def sensitivity(lines: tuple[tuple[IntArray, Array, IntArray], ...]) -> Array:
            every = np.concatenate([np.zeros(0), *(loss[keep(rounds), 0] for rounds, loss, _ in lines)])
            return np.asarray(every[every > 0.0])

        squares = sum(float((loss[keep(rounds), 0] ** 2).sum()) for rounds, loss, _ in self.gaussian)
        return Releases(
            sensitivity(self.laplace),
            float(np.sqrt(squares)),
            sampled(self.sampled_laplace),
            sampled(self.sampled_gaussian),
            sensitivity(self.other),
            sensitivity(self.ranged),
            sampled(self.sampled_poisson),
        )

    def _bound(self, groups: IntArray) -> ComposedCharges:
        zero = np.zeros(1, dtype=np.int64)

        def worst(values: Array, columns: IntArray) -> Array:
            if columns.size == 1:
                return values[:, columns[0] : columns[0] + 1]
            return np.asarray(values[:, columns].max(axis=1, keepdims=True))

        def plain(lines: tuple[tuple[IntArray, Array, IntArray], ...]) -> tuple[tuple[IntArray, Array, IntArray], ...]:
            return tuple((rounds, worst(loss, np.unique(column[groups])), zero) for rounds, loss, column in lines)

        def sampled(part: tuple[IntArray, Array, Array] | None) -> tuple[IntArray, Array, Array] | None:
            return None if part is None else (part[0], worst(part[1], groups), worst(part[2], groups))

        return ComposedCharges(
            1,
            plain(self.laplace),
            plain(self.gaussian),
            sampled(self.sampled_laplace),
            sampled(self.sampled_gaussian),
            plain(self.other),
            plain(self.ranged),
            sampled(self.sampled_poisson),
        )


def _names(loss: Array) -> list[float | bytes]:
    """A name for every column, equal where the columns are."""
    # Equal columns have equal sums, so that most need not be compared.
    total = loss.sum(axis=0)
    _, which, count = np.unique(total, return_inverse=True, return_counts=True)
    alone = (count[which] == 1) & np.isfinite(total)
    return [float(total[j]) if alone[j] else loss[:, j].tobytes() for j in range(total.size)]


def accounts(charged: Charges, split: Split, channel: str | None) -> ComposedCharges:
    """Compose the charges of one kind of record over all channels, or over one."""
    lines = [line for line in charged.lines[split] if channel in (None, line.channel)]
    groups = int(charged.group.max()) + 1
    plain: dict[DominatingPair, list[tuple[IntArray, Array, IntArray]]] = {pair: [] for pair in DominatingPair}
    drawn: dict[DominatingPair, list[ChannelCharges]] = {pair: [] for pair in DominatingPair}
    by_coins: list[ChannelCharges] = []
    for line in lines:
        pair = _pair(line)
        # Mostly nothing is sampled, and the least rate says so at once.
        fresh = (line.rate < 1.0) & (line.loss > 0.0) if line.rate.min(initial=1.0) < 1.0 else None
        if fresh is None or not fresh.any():
            plain[pair].append((line.rounds, line.loss, line.column))
            continue
        plain[pair].append((line.rounds, np.where(fresh, 0.0, line.loss), line.column))
        sampled = by_coins if line.sampling == "poisson" else drawn[pair]
        sampled.append(line._replace(loss=np.where(fresh, line.loss, 0.0)))
    laplace, gaussian = _batches(drawn[DominatingPair.LAPLACE], 1.0), _batches(drawn[DominatingPair.GAUSSIAN], 2.0)
    poisson = _batches(by_coins, 2.0)
    for one, other in ((laplace, gaussian), (laplace, poisson), (gaussian, poisson)):
        if one is not None and other is not None:
            _refuse_mixed(split, one, other)
    return ComposedCharges(
        groups,
        tuple(p for p in plain[DominatingPair.LAPLACE] if p[1].any()),
        tuple(p for p in plain[DominatingPair.GAUSSIAN] if p[1].any()),
        laplace,
        gaussian,
        tuple(p for p in plain[DominatingPair.RESPONSE] if p[1].any()),
        tuple(p for p in plain[DominatingPair.RANGED] if p[1].any()),
        poisson,
    )


def _pair(line: ChannelCharges) -> DominatingPair:
    """Raises InputError where nothing is known to dominate the releases."""
    pair = line.mechanism.dominating_pair
    if pair is None:
        raise InputError(f"ledger: channel {line.channel!r} has no dominating pair. Price its ledger by `charges`.")
    return pair


def _batches(lines: Sequence[ChannelCharges], power: float) -> tuple[IntArray, Array, Array] | None:
    """Rounds with a fresh batch: Σ over the channels that it feeds, and its rate."""
    if not lines:
        return None
    rounds = np.unique(np.concatenate([line.rounds for line in lines]))
    groups = lines[0].column.size
    total, rate = np.zeros((rounds.size, groups)), np.ones((rounds.size, groups))
    taken = np.zeros((rounds.size, groups), dtype=bool)
    for line in lines:
        where = np.searchsorted(rounds, line.rounds)
        loss, share = line.loss[:, line.column], line.rate[:, line.column]
        fed = loss > 0.0
        differs = fed & taken[where] & (rate[where] != share)
        if differs.any():
            t = int(line.rounds[np.argmax(differs.any(axis=1))])
            raise InputError(
                f"ledger: in round {t} one batch feeds several channels at different sampling rates "
                f"(channel {line.channel!r} among them); channels of one batch must share its rate."
            )
        total[where] += loss**power
        rate[where] = np.where(fed, share, rate[where])
        taken[where] |= fed
    return rounds, total ** (1.0 / power), np.where(taken, rate, 0.0)


def _refuse_mixed(split: Split, a: tuple[IntArray, Array, Array], b: tuple[IntArray, Array, Array]) -> None:
    common, i, j = np.intersect1d(a[0], b[0], return_indices=True)
    both = ((a[1][i] > 0.0) & (b[1][j] > 0.0)).any(axis=1)
    if both.any():
        raise InputError(
            f"ledger: in round {int(common[np.argmax(both)])} one {split} batch feeds releases of two mechanisms or "
            "two ways of sampling; no amplification rule here covers both. Use one, or read all records."
        )


def gather(bundles: Sequence[IntArray], size: Array) -> list[IntArray]:
    """At most MOST_COLUMNS bundles, each spanning the same ratio of costs; the dearest column stays alone."""
    order = sorted(bundles, key=lambda b: -size[b[0]])
    cost = np.log([size[b[0]] for b in order[1:]])
    span = max(float(cost[0] - cost[-1]), 1e-12)
    cell = np.minimum((cost[0] - cost) / span * (MOST_COLUMNS - 1), MOST_COLUMNS - 2).astype(np.int64)
    cells: dict[int, list[IntArray]] = {}
    for bundle, which in zip(order[1:], cell, strict=True):
        cells.setdefault(int(which), []).append(bundle)
    return [order[0], *(np.concatenate(b) for b in cells.values())]
