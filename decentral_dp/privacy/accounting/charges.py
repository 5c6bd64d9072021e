"""A ledger as columns of prices: what every group of agents is charged, release by release.

Agents that share their column in every channel form one group and are priced once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.float_slack import SHARES, Drawn, Slack, drawn, joined, likely, surely
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import Mechanism, NormalVariates


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
    sampling: str = "fixed"
    distortion: float = 0.0


class Charges(NamedTuple):
    """The priced lines of a ledger.

    Args:
        names: channels that are charged.
        kinds: of records.
        group: (m,) of each agent.
        lines: kind → charges of every channel.
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
    lines = {
        split: tuple(
            _line(c, split, column) for c, column in zip(channels, pairs, strict=True) if split in c.sensitivity
        )
        for split in kinds
    }
    return Charges(tuple(c.channel for c in channels), kinds, group.reshape(-1), lines)


def _line(c: ChannelLedger, split: Split, column: IntArray) -> ChannelCharges:
    # A record in a Poisson sample is compared with its absence, which is half as far but rounded as coarsely.
    parts = 2.0 if c.sampling == "poisson" else 1.0
    loss = parts * c.mechanism.cost(c.sensitivity[split] / parts, c.scale, c.dimension)
    return ChannelCharges(
        c.channel, c.mechanism, c.dimension, c.rounds, loss, c.rate[split], column, c.sampling, c.distortion
    )


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
            if not (values >= 0.0).all():
                raise InputError(f"ledger: channel {c.channel!r} has a {name} that is negative or not a number.")
        if not (rate <= 1.0).all():
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
        away = line.distortion * (line.loss > 0.0).sum(axis=0)
        epsilon += 2.0 * away[line.column]
        ratio += away[line.column]
        slack = line.mechanism.float_slack(line.loss, line.dimension)
        if isinstance(slack, NormalVariates):
            normals.append(drawn(line.loss, line.dimension, slack.bits, slack.randomised, line.column))
        else:
            more, less = (part.sum(axis=0)[line.column] for part in slack)
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
