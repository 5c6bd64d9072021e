"""A plan draws no synthetic records if only their number matters, and equals the plan of the run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.data import SYNTHETIC, synthetic
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.plan import Plan
from tests.golden.cases import SHIPPED

GOSSIP = {
    "topology": {"kind": "ring", "agents": 6},
    "algorithm": {"kind": "dp_dsgd", "learning_rate": {"scale": 0.1}, "rounds": 3},
}

DRAWN = {name: getattr(synthetic, name) for name in ("heterogeneous", "gaussian_classes", "census")}


@pytest.fixture
def no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("records were drawn")

    for name in DRAWN:
        monkeypatch.setattr(synthetic, name, refuse)


def synthetic_scenarios() -> list[str]:
    """Names of scenarios with synthetic records, from the text: tests are collected in every process."""
    contents = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(SHIPPED.glob("*.toml"))}
    return [name for name, content in contents.items() if content["problem"].get("data") in SYNTHETIC]


@pytest.mark.parametrize("name", synthetic_scenarios())
def test_it_says_what_the_job_of_drawn_records_says(name: str) -> None:
    drawn, plan = Plan.from_job(build_job(name)), decentral_dp.plan(name)
    assert str(plan) == str(drawn)
    assert plan.ledger.equals(drawn.ledger)
    assert plan.privacy == drawn.privacy


@pytest.mark.parametrize("data", SYNTHETIC)
@pytest.mark.parametrize("more", [{}, {"partition": "iid", "validation": 0.3, "test": 0.1}])
def test_no_record_is_drawn(data: str, more: dict[str, Any], no_draws: None) -> None:
    problem = {"kind": "logistic_hyperparameter", "data": data, "synthetic": {"dimension": 5, "records": 30}, **more}
    scenario = {**GOSSIP, "problem": problem, "privacy": {"epsilon": 2.0, "clip": 1.0}, "seed": 1}
    plan = decentral_dp.plan(scenario)
    with pytest.raises(AssertionError, match="were drawn"):
        build_job(scenario)
    with pytest.MonkeyPatch.context() as patch:
        for name, draw in DRAWN.items():
            patch.setattr(synthetic, name, draw)
        drawn = Plan.from_job(build_job(scenario))
    assert str(plan) == str(drawn)
    assert plan.ledger.equals(drawn.ledger)


def test_records_are_drawn_where_somebody_reads_them(no_draws: None, tmp_path: Path) -> None:
    (tmp_path / "deal.py").write_text(
        "def deal(labels, agents):\n    return [k % agents for k in range(len(labels))]\n"
    )
    problem = {"kind": "logistic_hyperparameter", "data": SYNTHETIC[0], "synthetic": {"dimension": 5}}
    for more in ({"partition": {"kind": "dirichlet", "alpha": 1.0}}, {"partition": "deal:deal"}):
        with pytest.raises(AssertionError, match="were drawn"):
            decentral_dp.plan(
                {
                    **GOSSIP,
                    "code_folders": [str(tmp_path)],
                    "problem": problem | more,
                    "privacy": {"epsilon": 2.0, "clip": 1.0},
                    "seed": 1,
                }
            )
