"""Charges computed once or in parts equal charges computed separately and at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.accounting.charges import charges
from decentral_dp.privacy.ledger import ChannelLedger, Ledger

DELTA = 1e-5
KINDS = ("train", "validation")


def channel(name: str, mechanism: str, kinds: dict[str, np.ndarray], rates: dict[str, np.ndarray]) -> ChannelLedger:
    rounds, columns = next(iter(kinds.values())).shape
    group = np.arange(2 * columns) % columns
    scale = np.linspace(1.0, 3.0, rounds)[:, None] * np.ones(columns)
    return ChannelLedger(name, mechanism, 5, group, np.arange(1, rounds + 1), scale, kinds, rates)


def made(mechanism: str, alike: bool) -> Ledger:
    """x and z are read by both splits; the columns of z differ between splits in one release unless they are equal."""
    rng = np.random.default_rng(4)
    sensitivity, ones = 0.1 * rng.random((40, 3)), np.ones((40, 3))
    other = sensitivity.copy()
    other[7, 1] += 0.0 if alike else 0.5
    both = dict.fromkeys(KINDS, ones)
    lines = (
        channel("x", mechanism, dict.fromkeys(KINDS, sensitivity), both),
        channel("y", mechanism, {"train": 2.0 * sensitivity}, {"train": ones}),
        channel("z", mechanism, {"train": sensitivity, "validation": other}, both),
    )
    return Ledger(6, lines)


def alone(ledger: Ledger, kind: str) -> Ledger:
    """Charges to one split, in a separate ledger."""
    lines = tuple(
        replace(c, sensitivity={kind: c.sensitivity[kind]}, rate={kind: c.rate[kind]})
        for c in ledger.channels
        if kind in c.sensitivity
    )
    return Ledger(ledger.n_agents, lines)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_kinds_that_are_charged_alike_cost_what_each_costs_alone(mechanism: str, alike: bool, delta: float) -> None:
    ledger = made(mechanism, alike)
    budget = account(ledger, delta)
    for kind in KINDS:
        apart = account(alone(ledger, kind), delta)
        assert np.array_equal(budget.records[kind].epsilon, apart.epsilon)
        assert np.array_equal(budget.records[kind].epsilon_pure, apart.epsilon_pure)
    for name in ("x", "y", "z"):
        each = [account(alone(ledger, kind), delta).channels.get(name) for kind in KINDS]
        largest = np.max([cost.epsilon for cost in each if cost is not None], axis=0)
        assert np.array_equal(budget.channels[name].epsilon, largest)


def test_only_what_is_charged_alike_is_one_object() -> None:
    for alike in (True, False):
        lines = charges(made("laplace", alike)).lines
        found = {line.channel: line for line in lines["train"]}
        shared = {line.channel for line in lines["validation"] if line is found[line.channel]}
        assert shared == ({"x", "z"} if alike else {"x"})
    ones = np.ones((4, 1))
    rates = {"train": ones, "validation": 0.5 * ones}
    apart = charges(Ledger(2, (channel("x", "laplace", dict.fromkeys(KINDS, ones), rates),))).lines
    assert apart["train"][0] is not apart["validation"][0]
    assert np.array_equal(apart["validation"][0].rate, 0.5 * ones)
