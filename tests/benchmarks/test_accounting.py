"""Accounting of long runs: time against the bare sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from tests.benchmarks.timing import fastest, report


def planned(agents: int, rounds: int, columns: int) -> Ledger:
    """Three charged channels; train records touch all, validation records two; agents fall into `columns` schedules."""
    t = np.arange(1.0, rounds + 1)[:, None]
    factors = np.linspace(0.5, 4.0, columns)
    group = np.arange(agents) % columns
    ones = np.ones((rounds, columns))
    channels = []
    for name, step, spread in (("x", 0.95, 0.81), ("y", 0.87, 0.77), ("z", 0.75, 0.61)):
        sensitivity = np.broadcast_to(0.1 * t ** -(1 + step), ones.shape)
        kinds = ("train",) if name == "y" else ("train", "validation")
        channels.append(
            ChannelLedger(
                name,
                "laplace",
                64,
                group,
                np.arange(1, rounds + 1),
                (t + 1.0) ** -spread * factors,
                dict.fromkeys(kinds, sensitivity),
                dict.fromkeys(kinds, ones),
            )
        )
    return Ledger(agents, tuple(channels))


def bare(ledger: Ledger) -> np.ndarray:
    """Σ Δ/b over the same columns, and the larger of the two kinds: no grid, no checks, no breakdown."""
    total = {"train": np.zeros(ledger.n_agents), "validation": np.zeros(ledger.n_agents)}
    for c in ledger.channels:
        for kind, sensitivity in c.sensitivity.items():
            total[kind] += (sensitivity / c.scale).sum(axis=0)[c.group]
    return np.maximum(total["train"], total["validation"])


def test_pricing(benchmark: Any) -> None:
    """10⁴ agents of ten schedules over 10⁵ rounds."""
    ledger = planned(10_000, 100_000, 10)
    np.testing.assert_allclose(price(ledger, 0.0).epsilon_pure, bare(ledger), rtol=2e-6)
    ours, plain, numerical = fastest([lambda: price(ledger, 0.0), lambda: bare(ledger), lambda: price(ledger, 1e-5)], 3)
    print(f"\npure ε: {ours:.3f} s, {ours / plain:.1f} × the bare sums; ε at a δ: {numerical:.2f} s")
    report(benchmark, "seconds of a pure ε", ours, 1.0)
