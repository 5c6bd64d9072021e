"""Releases that were made twice, with other noise the second time, as lines of a ledger.

A run whose root of noise is lost goes on from the end of round s, though rounds up to L may be out already. Index
s·E … L·E of every channel, E per round, is then released once more: index s·E belongs to what the end of round s sends.

Why one more line of the same price is enough. A release is charged for what one record can do to its query, whatever
was released before. The query of the second pass depends on the records, on what was released before round s, and on
what the second pass itself has released. So it has the bound of its index, and its noise, of a root of its own, is
independent of all that is out. Both passes compose adaptively, as any two releases do. An agent's private memory
at s is the same for both passes, and its bound is that of its index, too.

Why nothing of these rounds is amplified. The second pass draws fresh batches, but what it releases first was computed
before the end of round s, from a batch that the first pass has used, too: two releases of one batch are not two
samples. Given all batches, each release has its price without amplification. Both passes are charged that price from
s to L; no argument about which batch fed which release is needed. Rounds after L draw fresh batches once.

What is not covered: that the moment of the interruption was chosen by looking at records. Prices are those of a course
that nothing private decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.privacy.ledger import ChannelLedger, Ledger

REASON = "released before an interruption, and once more after it with other noise"


class Window(NamedTuple):
    """Rounds whose releases were in flight.

    Args:
        first: the round whose state the run went on from.
        last: the last round that may have been released.
    """

    first: int
    last: int


def released_again(ledger: Ledger, plan: Ledger, windows: Sequence[Window]) -> Ledger:
    """Add what was in flight, as channels of their own, and take amplification from the rounds concerned.

    Args:
        ledger: of the course that the run ended with, or will.
        plan: of the same run, with all its rounds: what was in flight may be more than a course that ended early.
        windows: one for each interruption after which the noise was another.

    Returns:
        The ledger of all that was, or may have been, released.

    Example:
        >>> from decentral_dp.privacy.accounting.accountants import epsilon_of
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(1, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": ones}, rate={"train": ones})
        >>> course = Ledger(1, (laplace,))
        >>> both = released_again(course, course, [Window(2, 3)])
        >>> [(c.channel, c.rounds.tolist()) for c in both.channels]
        [('y', [1, 2, 3, 4]), ('y again', [2, 3])]
        >>> epsilon_of(course, delta=0.0).round(3).tolist(), epsilon_of(both, delta=0.0).round(3).tolist()
        ([2.0], [3.0])
    """
    if not windows:
        return ledger
    per_round = ledger.releases_per_round
    channels = [_unamplified(c, np.any([_within(c, w, per_round) for w in windows], axis=0)) for c in ledger.channels]
    for number, window in enumerate(windows, 1):
        for c in plan.charged:
            lost = _kept(c, _within(c, window, per_round))
            if lost.rounds.size:
                name = f"{c.channel} again" if number == 1 else f"{c.channel} again {number}"
                channels.append(replace(lost, channel=name, reason=c.reason or REASON))
    return replace(ledger, channels=tuple(channels))


def _within(c: ChannelLedger, window: Window, per_round: int) -> NDArray[np.bool_]:
    return np.asarray((c.rounds >= window.first * per_round) & (c.rounds <= window.last * per_round))


def _unamplified(c: ChannelLedger, inside: NDArray[np.bool_]) -> ChannelLedger:
    rate = {split: np.where(inside[:, None], 1.0, r) for split, r in c.rate.items()}
    return replace(c, rate=rate)


def _kept(c: ChannelLedger, keep: NDArray[np.bool_]) -> ChannelLedger:
    return replace(
        c,
        rounds=c.rounds[keep],
        scale=c.scale[keep],
        sensitivity={split: s[keep] for split, s in c.sensitivity.items()},
        rate={split: np.ones_like(r[keep]) for split, r in c.rate.items()},
    )
