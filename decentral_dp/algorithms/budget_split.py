"""Dividing a budget over the releases of a trusted coordinator's algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.bounded import SPLITS, Split


class Part(NamedTuple):
    """The releases of one channel in a round.

    positions: 0, 1, … within the round. width: coordinates. share: of a round's μ², in proportion to other channels'.
    kinds: of records that it reads. rate: of the Poisson sample it reads.
    """

    positions: Sequence[int]
    width: int
    kinds: Sequence[Split]
    share: float = 1.0
    rate: float = 1.0


def gaussian_charges(rounds: int, releases_per_round: int, parts: Mapping[str, Part]) -> dict[str, Charge]:
    """Every round costs the same μ²; in it every channel its share, evenly over its releases.

    Shares count among the channels that a kind of records feeds: both kinds come to the same Σμ².
    """
    total = {k: sum(p.share for p in parts.values() if k in p.kinds) for k in SPLITS}
    out = {}
    for channel, part in parts.items():
        first = np.arange(rounds)[:, None] * releases_per_round + 1
        indices = (first + np.asarray(part.positions)).reshape(-1)
        weight = {
            k: np.full(indices.size, np.sqrt(part.share / (total[k] * len(part.positions) * rounds)))
            for k in part.kinds
        }
        rate = dict.fromkeys(part.kinds, part.rate) if part.rate < 1.0 else {}
        out[channel] = Charge("gaussian", part.width, indices, weight, rate)
    return out
