"""Noise that is correlated between agents: equal bits on every engine, planned = recorded, ε by colluders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from tests.support.training import training

PAIRWISE = {"between_agents": "pairwise", "ratio": 4.0}


def scenario(
    privacy: dict[str, Any] | None = None, topology: dict[str, Any] | None = None, **run: Any
) -> dict[str, Any]:
    return training(
        topology={"agents": 6, **(topology or {})},
        privacy={"correlation": PAIRWISE, **(privacy or {})},
        run={"evaluate_every": 4, **run},
    )


NETWORKS: dict[str, dict[str, Any]] = {
    "ring": {},
    "matching": {"over_time": "matching"},
    "resample": {"kind": "erdos_renyi", "probability": 0.6, "over_time": "resample"},
    "lossy": {"drop": 0.3, "offline": 0.3, "delay": 1},
}
ZERO_SUM, OPTIMISED = {"between_agents": "zero_sum", "ratio": 4.0}, {"between_agents": "optimised"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{kind: (PAIRWISE, changed) for kind, changed in NETWORKS.items()},
    **{f"zero_sum, {kind}": (ZERO_SUM, NETWORKS[kind]) for kind in ("ring", "matching", "lossy")},
    "optimised, path": (OPTIMISED, {"kind": "path"}),
    "optimised, lossy": (OPTIMISED, {"kind": "path", **NETWORKS["lossy"]}),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_do_not_move_a_bit_and_all_meet_the_target(case: str) -> None:
    correlation, topology = CASES[case]
    whole = decentral_dp.run(scenario({"correlation": correlation}, topology))
    parts = decentral_dp.run(scenario({"correlation": correlation}, topology, blocks=3))
    assert np.array_equal(whole.released["y"], parts.released["y"])
    epsilon = [agent.epsilon for agent in whole.result.privacy.agents]
    assert 3.99 < max(epsilon) <= 4.0
    table = whole.ledger[whole.ledger["channel"] == "y"]
    if correlation != OPTIMISED:
        assert np.allclose(table["pair_scale"], 4.0 * table["own_scale"])
    assert (table["scale"] >= table["own_scale"] * (1.0 - 1e-12)).all()
    assert (table["scale"] > table["own_scale"]).any()


def test_epsilon_rises_with_colluders_until_own_noise_is_all() -> None:
    own = {"epsilon": None, "y": {"scale": 0.02}}
    plans = [decentral_dp.plan(scenario({**own, "colluders": q})) for q in range(4)]
    spent = [plan.privacy.epsilon_max for plan in plans]
    assert spent[0] < spent[1] < spent[2] == spent[3]
    alone = decentral_dp.plan(scenario({**own, "correlation": None})).privacy.epsilon_max
    assert np.isclose(spent[2], alone, rtol=1e-3)
    assert spent[2] >= alone
    shared = plans[0].privacy.shared
    assert shared.collusion_threshold == 2
    assert plans[1].privacy.colluders == 1
    assert plans[1].privacy.shared == shared


def test_all_variates_count_in_the_slack() -> None:
    own = {"epsilon": None, "y": {"scale": 0.02}}
    even = {"between_agents": "pairwise", "ratio": 1.0}
    shared, alone = (decentral_dp.plan(scenario({**own, "correlation": c})).privacy for c in (even, None))
    # Six agents and six links to each coordinate, where one agent's is one.
    assert shared.numerical_slack["epsilon"] > 3.0 * alone.numerical_slack["epsilon"]


def test_large_draws_are_as_fine_as_they_are() -> None:
    """Eight times the deviation on one grid is three bits more, so that each variate errs eight times as much."""
    own = {"epsilon": None, "y": {"scale": 0.02}}
    slack = [
        decentral_dp.plan(scenario({**own, "correlation": {"between_agents": "pairwise", "ratio": ratio}})).privacy
        for ratio in (1.0, 8.0)
    ]
    near, far = (one.numerical_slack["epsilon"] for one in slack)
    assert 7.0 < far / near < 9.0


def test_samples_are_priced_with_it() -> None:
    job = scenario()
    job["problem"]["sampling"] = {"kind": "poisson", "rate": 0.2}
    alone = {**job, "privacy": {k: v for k, v in job["privacy"].items() if k != "correlation"}}
    scale = [decentral_dp.plan(one).ledger.query("channel == 'y'")["scale"].max() for one in (job, alone)]
    # Calibrated to the same ε, both hide as much.
    assert np.isclose(*scale, rtol=5e-3)


def test_a_run_without_noise_shares_none() -> None:
    assert decentral_dp.build(scenario({"guarantee": "none", "epsilon": None, "clip": {}})).simulation().pairs is None


SHIPPED = ("gradient_tracking", "exact_diffusion", "choco", "push_sum", "ldp_dsbo", "gossip_sgda", "federated", "bsa")


@pytest.mark.parametrize("name", SHIPPED)
def test_algorithms_that_keep_nothing_share_it_on_every_channel(name: str) -> None:
    """Planned as recorded, or a run fails; with scales as given, and one agent's own noise no cheaper."""
    keys = {"algorithm.rounds": 3, "run.evaluate_every": 3, "run.average": 1, "privacy.mechanism": "gaussian"}
    run = decentral_dp.run(name, set={**keys, "privacy.correlation": PAIRWISE})
    charged = run.ledger[run.ledger["pair_scale"] > 0.0]
    assert charged["channel"].nunique() == len(run.simulation().ledger.charged_channels)
    assert (charged["scale"] > charged["own_scale"]).any()


def test_all_but_one_leave_an_agent_its_own_noise() -> None:
    """With noise that sums to zero and all other agents colluding, only an agent's own noise is left."""
    own = {"epsilon": None, "y": {"scale": 0.02}}
    spent = [
        decentral_dp.plan(scenario({**own, "correlation": correlation, "colluders": q})).privacy
        for correlation, q in ((ZERO_SUM, 0), (ZERO_SUM, 4), (ZERO_SUM, 5), (None, 0))
    ]
    prices = [one.epsilon_max for one in spent]
    assert prices[0] < prices[1] < prices[2]
    assert np.isclose(prices[2], prices[3], rtol=1e-3)
    assert prices[2] >= prices[3]
    assert spent[0].shared.collusion_threshold == 5


def test_an_agent_is_left_whose_records_are_hidden() -> None:
    for correlation in (PAIRWISE, None):
        five, six = (scenario({"correlation": correlation, "colluders": q}) for q in (5, 6))
        decentral_dp.plan(five)
        with pytest.raises(InputError, match=r"privacy\.colluders: .*got 6 colluders of 6 agents"):
            decentral_dp.plan(six)


def test_a_ratio_that_is_left_out_errs_little() -> None:
    correlation = {"between_agents": "pairwise"}
    chosen = decentral_dp.plan(scenario({"correlation": correlation})).privacy.shared.ratio
    assert 1.0 < chosen < 10.0
    against_one = decentral_dp.plan(scenario({"correlation": correlation, "colluders": 1}))
    assert against_one.privacy.shared.ratio < chosen
    with pytest.raises(InputError, match=r"privacy\.correlation\.ratio"):
        decentral_dp.plan(scenario({"correlation": correlation}, {"over_time": "matching"}))
