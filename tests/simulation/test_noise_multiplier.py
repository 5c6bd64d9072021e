"""privacy.noise_multiplier: noise of standard deviation z·C on a sum of clipped per-example gradients, and its ε."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import decentral_dp
from decentral_dp.errors import InputError

DELTA, ROUNDS, Z = 1e-5, 60, 20.0
FIXED = {"privacy.epsilon": None, "privacy.noise_multiplier": Z, "algorithm.rounds": ROUNDS}


def gaussian_epsilon(mu: float) -> float:
    """ε at δ of a Gaussian pair μ (Balle & Wang 2018)."""

    def excess(epsilon: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - DELTA

    return float(brentq(excess, 0.0, 60.0, xtol=1e-12))


@pytest.mark.parametrize(("neighbours", "contributions"), [("replace", 2.0), ("zero_out", 1.0)])
def test_epsilon_is_that_of_the_gaussian_mechanism(neighbours: str, contributions: float) -> None:
    plan = decentral_dp.plan("dp_dsgd", set={**FIXED, "privacy.neighbours": neighbours})
    # Rounding to a grid in 650 coordinates adds up to a hundredth (proof 08).
    expected = gaussian_epsilon(math.sqrt(ROUNDS) * contributions / Z)
    assert expected <= plan.privacy.epsilon_max <= expected * 1.02
    assert plan.privacy.signal["y"].noise_multiplier == pytest.approx((Z, Z), rel=1e-9)


def test_the_sum_of_clipped_gradients_has_noise_z_times_the_clip() -> None:
    job = decentral_dp.build(
        "dp_dsgd",
        set={**FIXED, "algorithm.learning_rate": {"scale": 0.5}, "privacy.clip": 0.25, "topology.agents": 5},
    ).simulation()
    released = job.noise["y"].scale
    np.testing.assert_allclose(released, Z * 0.25 * 0.5 / job.counts["train"], rtol=1e-9)


@pytest.mark.parametrize("sampling", [{"kind": "poisson", "rate": 0.2}, {"kind": "fixed_batch", "batch_size": 64}])
def test_a_sample_costs_less_at_the_same_multiplier(sampling: dict[str, Any]) -> None:
    full = decentral_dp.plan("dp_dsgd", set=FIXED).privacy.epsilon_max
    sampled = decentral_dp.plan("dp_dsgd", set={**FIXED, "problem.sampling": sampling}).privacy
    assert 0.0 < sampled.epsilon_max < full
    assert sampled.signal["y"].noise_multiplier == pytest.approx((Z, Z), rel=1e-9)


def test_different_noise_multipliers_of_agents_are_a_range() -> None:
    sizes = (400, 60, 20)
    X, y = [np.zeros((n, 2)) for n in sizes], [np.arange(n) % 2 for n in sizes]
    weights = {"problem.weights": "sites", "problem.test": 0, "algorithm.centring": True}
    plan = decentral_dp.build(X=X, y=y, classes=(0, 1), epsilon=4.0, delta=DELTA, rounds=9, set=weights).plan()
    ratios = plan.ledger.assign(z=2.0 * plan.ledger["scale"] / plan.ledger["sensitivity"]).groupby(["channel", "agent"])
    for channel, signal in plan.privacy.signal.items():
        levels = ratios["z"].median()[channel]
        assert signal.noise_multiplier == pytest.approx((levels.min(), levels.max()), rel=1e-9)
        assert levels.max() > levels.min()
        if channel == "x":
            assert f"x {levels.min():.3g}–{levels.max():.3g}," in " ".join(str(plan).split())


def test_a_run_records_what_was_planned() -> None:
    run = decentral_dp.run("dp_dsgd", set={**FIXED, "algorithm.rounds": 5})
    assert run.records.same_releases(run.simulation().ledger)


def test_rounds_of_another_noise_multiplier_are_refused() -> None:
    change = {"algorithm.learning_rate": {"scale": 0.5, "decay": 0.5}, "privacy.clip": 0.25}
    with pytest.raises(InputError, match=r"privacy\.noise_multiplier"):
        decentral_dp.plan("dp_dsgd", set={**FIXED, **change})
