"""Composition of several runs: equal to the ε of one long ledger, and never below any sequence of agents."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.privacy.accounting.odometer import MOST_SEQUENCES, RecordCost, compose_runs, record_costs
from decentral_dp.privacy.ledger import ChannelLedger, Ledger

DELTA = 1e-6


def _ledger(
    mechanism: str,
    scales: list[list[float]],
    rate: list[float] | float = 1.0,
    sampling: str = "fixed",
) -> Ledger:
    """Return a ledger with one row of scales for each release, and a column for each agent."""
    scale = np.array(scales)
    return Ledger(
        scale.shape[1],
        (
            ChannelLedger(
                channel="y",
                mechanism=mechanism,  # type: ignore[arg-type] # a registered name
                dimension=3,
                group=np.arange(scale.shape[1]),
                rounds=np.arange(1, len(scale) + 1),
                scale=scale,
                sensitivity={"train": np.ones(scale.shape)},
                rate={"train": np.broadcast_to(rate, scale.shape)},
                sampling=sampling,
            ),
        ),
    )


CASES: dict[str, tuple[Any, ...]] = {
    "gaussian": ("gaussian", [[4.0], [5.0], [7.0]]),
    "laplace": ("laplace", [[20.0], [25.0], [60.0]]),
    "laplace on batches": ("laplace", [[3.0], [5.0]], 0.1),
    "gaussian on poisson samples": ("gaussian", [[2.0], [2.5]], 0.05, "poisson"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_runs_compose_like_one_long_run(case: str) -> None:
    costs = record_costs(_ledger(*CASES[case]))
    mechanism, scales, *sampling = CASES[case]
    long = float(epsilon_of(_ledger(mechanism, scales * 3, *sampling), DELTA)[0])
    single = float(epsilon_of(_ledger(*CASES[case]), DELTA)[0])
    assert compose_runs([costs], DELTA) == pytest.approx(single, rel=1e-9)
    assert compose_runs([costs] * 3, DELTA) == pytest.approx(long, rel=1e-6)
    assert single < long < 3.0 * single
    stored = [RecordCost.from_json(json.loads(json.dumps(cost.to_json()))) for cost in costs]
    assert compose_runs([stored, costs, stored], DELTA) == pytest.approx(long, rel=1e-6)


def test_a_record_may_be_with_another_agent_in_every_run() -> None:
    first, second = _ledger("gaussian", [[2.0, 9.0]]), _ledger("gaussian", [[9.0, 2.0]])
    worst = float(epsilon_of(_ledger("gaussian", [[2.0], [2.0]]), DELTA)[0])
    together = compose_runs([record_costs(first), record_costs(second)], DELTA)
    assert worst * (1.0 - 1e-9) <= together <= worst * (1.0 + 1e-7)
    # An agent that has the record in both runs pays less.
    assert together > float(epsilon_of(_ledger("gaussian", [[2.0], [9.0]]), DELTA)[0])


@pytest.mark.parametrize("runs", [2, 4])
def test_no_sequence_of_agents_costs_more(runs: int) -> None:
    ledger = _ledger("laplace", [[20.0, 60.0, 31.0], [25.0, 9.0, 31.0], [40.0, 70.0, 31.0]])
    costs = record_costs(ledger)
    assert len(costs) == 3
    assert (len(costs) ** runs > MOST_SEQUENCES) == (runs == 4)
    bound = compose_runs([costs] * runs, DELTA)
    exact = []
    for agents in product(range(3), repeat=runs):
        scales = [[float(row)] for agent in agents for row in ledger.channels[0].scale[:, agent]]
        exact.append(float(epsilon_of(_ledger("laplace", scales), DELTA)[0]))
    assert bound >= max(exact) * (1.0 - 1e-9)
    if runs == 2:
        assert bound == pytest.approx(max(exact), rel=1e-6)


def test_a_run_without_noise_has_no_finite_epsilon() -> None:
    costs = record_costs(_ledger("gaussian", [[4.0]]))
    assert compose_runs([costs, record_costs(_ledger("gaussian", [[0.0]]))], DELTA) == np.inf
