"""Pricing 10⁴ agents × 10⁵ rounds, against the bare sums over the same columns."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.ledger import ChannelLedger, Ledger

AGENTS, ROUNDS = 10_000, 100_000


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


def seconds(run: Callable[[], object], repeat: int = 3) -> float:
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.benchmark(group="pricing")
def test_ten_thousand_agents_of_ten_schedules(benchmark: Callable[..., object]) -> None:
    ledger = planned(AGENTS, ROUNDS, 10)
    np.testing.assert_allclose(price(ledger, 0.0).epsilon_pure, bare(ledger), rtol=2e-6)
    ours, plain = seconds(lambda: price(ledger, 0.0)), seconds(lambda: bare(ledger))
    print(f"\npure: {AGENTS} agents × {ROUNDS} rounds, 10 schedules: {ours:.3f} s, {ours / plain:.1f} × the bare sums")
    assert ours < 1.0
    numerical = seconds(lambda: price(ledger, 1e-5), 1)
    print(f"(ε, δ): {numerical:.2f} s")
    benchmark(price, ledger, 0.0)


@pytest.mark.benchmark(group="pricing")
def test_every_agent_with_its_own_schedule(benchmark: Callable[..., object]) -> None:
    """Own columns for all 10⁴ agents would fill 8 GB a table at 10⁵ rounds; an entry costs the same here."""
    ledger = planned(AGENTS, 200, AGENTS)
    ours, plain = seconds(lambda: price(ledger, 0.0)), seconds(lambda: bare(ledger))
    print(f"\nown columns: {AGENTS} agents × 200 rounds: {ours:.3f} s, {ours / plain:.1f} × the bare sums")
    assert ours <= 25.0 * plain
    benchmark(price, ledger, 0.0)
