"""A ledger as columns of prices: what every group of agents is charged, release by release.

Agents that share their column in every channel form one group and are priced once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.float_slack import SHARES, Drawn, Slack, drawn, joined, likely, surely
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import Mechanism, NormalVariates

# Prices are computed for so many releases at once, 256 KiB an array: what arises on the way stays in a core's cache.
BLOCK = 1 << 15


class ChannelCharges(NamedTuple):
    """One channel's charges for one kind of record.

    Args:
        channel: its name.
        mechanism: how it is released.
        dimension: coordinates of one release.
        rounds: (T,) indices of the releases.
        loss: (T, g) the price of every release before amplification, in the mechanism's unit.
        rate: (T, g) sampling rate.
        column: (G,) its column for each group of agents.
        variates: what float64 samplers may add: (ε, δ) of each column, (g,) each, or normal variates, by group.
        sampling: as in the ledger.
        distortion: as in the ledger.
    """

    channel: str
    mechanism: Mechanism
    dimension: int
    rounds: IntArray
    loss: Array
    rate: Array
    column: IntArray
    variates: tuple[Array, Array] | Drawn
    sampling: str = "fixed"
    distortion: float = 0.0


class Charges(NamedTuple):
    """The priced lines of a ledger.

    Args:
        names: channels that are charged.
        kinds: of records.
        group: (m,) of each agent.
        lines: kind → charges of every channel; the same object where two kinds are charged alike.
    """

    names: tuple[str, ...]
    kinds: tuple[Split, ...]
    group: IntArray
    lines: dict[Split, tuple[ChannelCharges, ...]]


def charges(ledger: Ledger) -> Charges:
    """Price the lines of a ledger.

    Args:
        ledger: the releases.

    Returns:
        Prices before composition; agents with the same columns form one group.

    Raises:
        InputError: a line that no rule covers.

    Example:
        >>> from decentral_dp.privacy.accounting.composed_charges import accounts
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> priced = charges(Ledger(3, (laplace,)))
        >>> priced.lines["train"][0].loss[:, 0].round(4).tolist(), priced.group.tolist()
        ([0.25, 0.25, 0.25, 0.25], [0, 0, 0])
        >>> accounts(priced, "train", channel=None).pure().round(4).tolist()
        [1.0]
    """
    channels = ledger.charged
    for c in channels:
        _check(c, ledger.n_agents)
    if not channels:
        return Charges((), (), np.zeros(ledger.n_agents, dtype=np.int64), {})
    pairs, group = np.unique(np.stack([c.group for c in channels]), axis=1, return_inverse=True)
    kinds = tuple(k for k in SPLITS if any(k in c.sensitivity for c in channels))
    lines: dict[Split, list[ChannelCharges]] = {split: [] for split in kinds}
    for c, column in zip(channels, pairs, strict=True):
        for split, line in _lines(c, column).items():
            lines[split].append(line)
    found = {split: tuple(of) for split, of in lines.items()}
    return Charges(tuple(c.channel for c in channels), kinds, group.reshape(-1), found)


def _lines(c: ChannelLedger, column: IntArray) -> dict[Split, ChannelCharges]:
    """The charges of a channel by kind of record: where two kinds are charged alike, they are priced once."""
    found: dict[Split, ChannelCharges] = {}
    for split in c.sensitivity:
        alike = next((kind for kind in found if _same(c.sensitivity, kind, split) and _same(c.rate, kind, split)), None)
        found[split] = _line(c, split, column) if alike is None else found[alike]
    return found


def _same(values: Mapping[Split, Array], one: Split, other: Split) -> bool:
    return values[one] is values[other] or np.array_equal(values[one], values[other])


def _line(c: ChannelLedger, split: Split, column: IntArray) -> ChannelCharges:
    # A record in a Poisson sample is compared with its absence, which is half as far but rounded as coarsely.
    parts = 2.0 if c.sampling == "poisson" else 1.0
    sensitivity, loss = c.sensitivity[split], np.empty(c.scale.shape)
    for rows in _blocks(loss):
        loss[rows] = parts * c.mechanism.cost(sensitivity[rows] / parts, c.scale[rows], c.dimension)
    variates = _variates(c, loss, column)
    return ChannelCharges(
        c.channel, c.mechanism, c.dimension, c.rounds, loss, c.rate[split], column, variates, c.sampling, c.distortion
    )


def _variates(c: ChannelLedger, loss: Array, column: IntArray) -> tuple[Array, Array] | Drawn:
    epsilon, delta = np.zeros(loss.shape[1]), np.zeros(loss.shape[1])
    for rows in _blocks(loss):
        slack = c.mechanism.float_slack(loss[rows], c.dimension)
        if isinstance(slack, NormalVariates):
            return drawn(loss, c.dimension, slack.bits, slack.randomised, column)
        epsilon += slack[0].sum(axis=0)
        delta += slack[1].sum(axis=0)
    return epsilon, delta


def _blocks(table: Array) -> Iterator[slice]:
    """Rows of a table, about `BLOCK` numbers at a time, at least once: its entries are priced one by one."""
    height = max(1, BLOCK // max(1, table.shape[1]))
    return (slice(start, start + height) for start in range(0, max(1, len(table)), height))


def _check(c: ChannelLedger, agents: int) -> None:
    if c.mechanism.dominating_pair is None:
        raise InputError(
            f"ledger: channel {c.channel!r} was released by {c.mechanism.name!r}, of whose law no dominating pair is "
            "known, so that no accountant can price it. Give it one, or list it as uncertified."
        )
    rules = c.mechanism.amplified_by or ("fixed", "poisson")
    if c.sampling not in rules:
        raise InputError(
            f"ledger: channel {c.channel!r} adds {c.mechanism.name} noise to batches drawn by {c.sampling!r} sampling; "
            'no rule here covers that. "poisson" goes with Gaussian noise, "fixed" with Laplace and Gaussian noise.'
        )
    if c.group.size != agents or (c.rounds.size > 1 and (np.diff(c.rounds) <= 0).any()):
        raise InputError(f"ledger: channel {c.channel!r} must list {agents} agents and ascending rounds.")
    shape = c.scale.shape
    for split, sensitivity in c.sensitivity.items():
        rate = c.rate[split]
        if sensitivity.shape != shape or rate.shape != shape or shape[0] != c.rounds.size:
            raise InputError(
                f"ledger: channel {c.channel!r} has {c.rounds.size} rounds, scales {shape}, {split} sensitivities "
                f"{sensitivity.shape} and rates {rate.shape}; all must agree."
            )
        for name, values in (("scale", c.scale), ("sensitivity", sensitivity), ("sampling rate", rate)):
            # The least number is not a number where one is not.
            if not values.min(initial=0.0) >= 0.0:
                raise InputError(f"ledger: channel {c.channel!r} has a {name} that is negative or not a number.")
        if not rate.max(initial=0.0) <= 1.0:
            raise InputError(f"ledger: channel {c.channel!r} has a sampling rate above 1, {rate.max():g}.")
        if not c.mechanism.amplified_by and (rate < 1.0).any():
            raise InputError(
                f"ledger: channel {c.channel!r} samples for a release by {c.mechanism.name!r}; no rule here covers it. "
                "Read all records in every round, or take Laplace or Gaussian noise."
            )


def sampling_slack(charged: Charges, split: Split, channel: str | None, delta: float) -> Iterator[Slack]:
    """Bound what float64 samplers may add to one record's (ε, δ), over all channels or over one.

    Args:
        charged: the priced lines of a ledger.
        split: of the record.
        channel: the only one that counts; None for all.
        delta: δ of the budget.

    Returns:
        Bounds, each of which holds. The first does not depend on δ, and is enough where few coordinates are released.

    Limits:
        Exact samplers add nothing. See docs/proofs/09.
    """
    groups = int(charged.group.max()) + 1
    epsilon, lost, ratio = np.zeros(groups), np.zeros(groups), np.zeros(groups)
    normals: list[Drawn] = []
    for line in charged.lines[split]:
        if channel not in (None, line.channel):
            continue
        if line.distortion:
            away = line.distortion * (line.loss > 0.0).sum(axis=0)
            epsilon += 2.0 * away[line.column]
            ratio += away[line.column]
        if isinstance(line.variates, Drawn):
            normals.append(line.variates)
        else:
            more, less = (part[line.column] for part in line.variates)
            epsilon, lost, ratio = epsilon + more, lost + less, ratio + 0.5 * more
    if not normals:
        none = np.zeros((1, groups))
        yield Slack(epsilon, lost, ratio, none, none + np.inf)
        return
    every = joined(normals)
    for share in (0.0, *SHARES) if delta > 0.0 else (0.0,):
        bound = likely(every, share * delta, ratio) if share else surely(every)
        yield bound._replace(
            epsilon=epsilon + bound.epsilon, delta=np.minimum(1.0, lost + bound.delta), ratio=ratio + bound.ratio
        )
