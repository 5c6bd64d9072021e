"""Runs of a trusted coordinator: statement, result, page and figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.reporting.privacy import notes
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from decentral_dp.simulation.summary import statement_of
from tests.support.coordinator_scenarios import content

SECOND = "second_order_dp_bilevel"
CLIP = {"privacy.clip": {"x": 1.0, "y": 1.0, "z": 1.0}}


def job_of(kind: str, **changes: Any) -> Job:
    return build(load(content(kind, **changes)))


def gaussian(mu: float, delta: float) -> float:
    """Return ε of two Gaussians at distance μ (Balle & Wang 2018, Equation 6)."""

    def missing(epsilon: float) -> float:
        tail = math.exp(epsilon + float(norm.logcdf(-mu / 2.0 - epsilon / mu)))
        return float(norm.cdf(mu / 2.0 - epsilon / mu)) - tail - delta

    return float(brentq(missing, 0.0, 200.0, xtol=1e-12))


# --- the result -------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_claimed_and_what_it_meets_is_priced() -> None:
    """Oracle: the ledger's scales and sensitivities, composed by another formula."""
    job = job_of(
        "dp_bilevel", **{"privacy.guarantee": "as_published", "privacy.epsilon": 3.0, "algorithm.inner": 4, **CLIP}
    )
    privacy = statement_of(job).to_dict()
    claim = privacy["claimed"]
    assert (claim["epsilon_max"], claim["delta"], claim["agents"]) == (3.0, 1e-5, [3.0] * 5)
    assert "Kornowski" in claim["source"]
    spent = {"train": 0.0, "validation": 0.0}
    for line in job.ledger.charged_channels:
        for kind, sensitivity in line.sensitivity.items():
            spent[kind] += float(np.sum((sensitivity / line.scale) ** 2))
    exact = gaussian(math.sqrt(max(spent.values())), 1e-5)
    # The slack of float64 is small but positive.
    assert exact <= privacy["epsilon_max"] <= 1.02 * exact
    assert privacy["epsilon_max"] < claim["epsilon_max"]
    assert privacy["target"] is None
    assert any("less than it claims" in note for note in notes(statement_of(job), job.rounds))


@pytest.mark.parametrize("kind", ["pp_ift", SECOND])
def test_prices_of_the_plan_add_up_to_the_target(kind: str) -> None:
    privacy = statement_of(job_of(kind, **{"privacy.epsilon": 5.0})).to_dict()
    assert privacy["at_infinity"] is None
    for records in ("train", "validation"):
        total = sum(
            privacy["releases"][p["channel"]][0] * p["price"][records][0] ** 2
            for p in privacy["prices"]
            if records in p["price"]
        )
        assert 4.9 < gaussian(math.sqrt(total), 1e-5) <= 5.0
        assert all(p["price"][records][0] == p["price"][records][1] for p in privacy["prices"] if records in p["price"])
    assert {p["unit"] for p in privacy["prices"]} == {"μ"}


# --- the page ---------------------------------------------------------------------------------------------------------
