"""The share of noise in what is released: a bound from public numbers, before anything is run.

One replaced record moves a release by at most its sensitivity Δ, since it contributes at most Δ/2. All n records of an
agent that a release reads contribute at most nΔ/2, and only if all point the same way; noise of standard deviation σ on
d coordinates has the norm σ√d (root mean square). With index t over the releases of a channel and m agents whose
average moves by what each adds,

    one release     n Δ_t / (2 σ_t √d)
    all releases    Σ_t n Δ_t/2 / √(Σ_t σ_t² d / m)

Where the second is below 1, noise moves the average farther than all records together can. Most records do not agree
that well, so that a run may learn nothing at several times that. At a fixed ε both σ_t and √T grow alike: more rounds
change the second hardly at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from decentral_dp.algorithms.protocol import Counts
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import noise_of
from decentral_dp.simulation.statements.statement import Signal


def signals(ledger: Ledger, counts: Counts, trusted: bool) -> dict[str, Signal]:
    """Bound the signal of every channel that is noised, against its noise.

    Args:
        ledger: what is planned; of unequal releases the first ratio is their median, of unequal agents the smallest.
        counts: record kind → (m,) records of each agent.
        trusted: whether a coordinator releases one value for all, which reads the records of all.

    Returns:
        Channel → its ratios. Choices, and what has no noise or an infinite sensitivity, are left out.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("ring_breast_cancer")
        >>> {c: (round(s.one_release, 2), round(s.all_releases, 1)) for c, s in plan.privacy.signal.items()}
        {'y': (0.12, 4.9), 'z': (0.18, 7.0)}
    """
    # Numbers near the ends of float64 have no ratio.
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        ratios = {c.channel: _signal(c, ledger.n_agents, counts, trusted) for c in ledger.charged if _has_ratio(c)}
    return {c: s for c, s in ratios.items() if _is_usable(s.one_release) and _is_usable(s.all_releases)}


def _is_usable(ratio: float | None) -> bool:
    return ratio is not None and 0.0 < ratio < math.inf


def _has_ratio(c: ChannelLedger) -> bool:
    moves = list(c.sensitivity.values())
    return c.mechanism.adds_noise and bool((c.scale > 0.0).all()) and bool(np.isfinite(moves).all() and np.any(moves))


def _signal(c: ChannelLedger, n_agents: int, counts: Counts, trusted: bool) -> Signal:
    first = np.unique(c.group, return_index=True)[1]
    drift = np.zeros_like(c.scale)
    for split, sensitivity in c.sensitivity.items():
        n = counts[split].sum() if trusted else counts[split][first]
        drift = drift + c.rate[split] * sensitivity * n / 2.0
    noise = c.scale * noise_of(c.mechanism, c.channel).deviation * math.sqrt(c.dimension)
    members = np.bincount(c.group, minlength=first.size) / n_agents
    total = np.sqrt((noise**2 @ members).sum() / (1 if trusted else n_agents))
    return Signal(
        one_release=float(np.median((drift / noise).min(axis=1))), all_releases=float((drift @ members).sum() / total)
    )


def signal_cautions(signal: Mapping[str, Signal], n_agents: int, trusted: bool) -> list[str]:
    """Say which channels noise swamps, and by how much."""
    all_releases = {c: s.all_releases for c, s in signal.items() if s.all_releases is not None}
    swamped = [f"{c} {1.0 / ratio:.2g} times" for c, ratio in all_releases.items() if ratio < 1.0]
    if not swamped:
        return []
    average = "" if trusted or n_agents == 1 else f" the average of {n_agents} agents"
    more = "more records" if trusted else "more records for each agent, more agents"
    return [
        f"Noise swamps the steps: over all rounds it moves{average} farther than all records together can, even if all "
        f"of them agreed ({', '.join(swamped)} as far). Use {more}, fewer coordinates or a larger ε; more rounds do "
        "not help."
    ]
