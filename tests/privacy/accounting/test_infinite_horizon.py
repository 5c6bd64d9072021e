"""Privacy cost of infinitely many rounds, for endless streams and finite shards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import decentral_dp
from decentral_dp.privacy.accounting.accountants import account, gaussian_epsilon
from decentral_dp.privacy.accounting.infinite_horizon import (
    Arrivals,
    DecayingRelease,
    account_endless,
    remainder,
    round_losses,
)
from decentral_dp.privacy.schedules import StepSize
from decentral_dp.simulation.job_statement import gossip_horizon as limits
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.schedules import STEPS, noise, sampling


def queries(*channels: str, agent: int = 1, clip: float = 1.0) -> list[DecayingRelease]:
    return [DecayingRelease(STEPS[c], noise(agent)[c], clip) for c in channels]


def test_endless_stream_of_one_record_a_round() -> None:
    assert account_endless(queries("y", "z"), 1) == pytest.approx(2.139992, abs=1e-6)
    assert account_endless(queries("z"), 1) == pytest.approx(0.484363, abs=1e-6)


def test_a_finite_shard_and_an_endless_stream_part() -> None:
    """n = 30, five records a round."""
    finite = [
        sum(round_losses(q, Arrivals(5, records=30), 10**k).sum() for q in queries("y", "z")) for k in (2, 3, 4, 5, 6)
    ]
    endless = [sum(round_losses(q, Arrivals(5), 10**k).sum() for q in queries("y", "z")) for k in (2, 3, 4, 5, 6)]
    np.testing.assert_allclose(finite, [0.5456, 3.564, 27.00, 209.5, 1632.7], rtol=2e-4)
    np.testing.assert_allclose(endless, [0.21, 0.26, 0.29, 0.32, 0.35], atol=0.006)
    assert account_endless(queries("y", "z"), 5, records=30) == math.inf
    assert account_endless(queries("y", "z"), 50, records=50) == math.inf


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_rounds_are_priced_as_in_a_ledger(mechanism: str) -> None:
    rounds = 200
    if mechanism == "laplace":
        found = sum(round_losses(q, Arrivals(1), rounds).sum() for q in queries("y", "z"))
        assert found == pytest.approx(account(sampling(rounds), 0.0).epsilon_pure[0], rel=2e-6)
    else:
        squares = sum((round_losses(q, Arrivals(1), rounds, "gaussian") ** 2).sum() for q in queries("y", "z"))
        ledger = account(sampling(rounds, mechanism="gaussian"), 1e-5).epsilon[0]
        # The rounding grid adds 2⁻¹⁶ a coordinate to every μ.
        assert float(gaussian_epsilon(math.sqrt(squares), 1e-5)) == pytest.approx(ledger, rel=1e-2)


@given(
    st.floats(0.3, 1.0), st.floats(-0.5, 2.3), st.integers(1, 60), st.integers(0, 500), st.booleans(), st.booleans()
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_remainders_are_tight_upper_bounds(
    decay: float, spread: float, batch: int, warm: int, endless: bool, squares: bool
) -> None:
    """Bounds from different starting rounds differ by exactly the rounds between, and never fall below them."""
    query = DecayingRelease(StepSize(0.3, decay), StepSize(2.0, spread), 1.5)
    arrivals = Arrivals(batch, warm, None if endless else 1000)
    mechanism = "gaussian" if squares else "laplace"
    explicit = round_losses(query, arrivals, 150_000, mechanism) ** (2 if squares else 1)
    early, late = (remainder(query, arrivals, a, mechanism) for a in (0, 150_000))
    exponent = (2 if squares else 1) * (decay - spread + endless)
    assert math.isinf(early) == (exponent <= 1.0)
    if exponent > 1.0:
        assert early >= explicit.sum() + late * (1 - 1e-9)
        assert early <= (explicit.sum() + late) * (1 + 1e-5) + 1e-300


def test_remainder_against_a_long_sum() -> None:
    """ς = 0 and v = 0.9 on an endless stream: Σ_{u≥1} u^{−1.9}, whose rest after n is n^{−0.9}/0.9 to second order."""
    step, flat = StepSize(1.0, 0.9), StepSize(math.sqrt(8.0), 0.0)
    total = remainder(DecayingRelease(step, flat, 1.0), Arrivals(1))
    n = 10**6
    head = (np.arange(1.0, n + 1) ** -1.9).sum()
    rest = (n + 0.5) ** -0.9 / 0.9
    assert total == pytest.approx(head + rest, rel=1e-10)
    assert total >= head + rest * (1 - 1e-9)


def test_squares_of_a_finite_shard_may_converge_where_the_sum_does_not() -> None:
    """Constant Laplace noise, v = 0.7: Σε diverges, Σε² = Σ u^{−1.4} does not, and neither does ε(δ)."""
    query = [DecayingRelease(StepSize(0.01, 0.7), StepSize(1.0, 0.0), 1.0)]
    assert account_endless(query, 20, records=20) == math.inf
    assert account_endless(query, 20, records=20, delta=1e-5) < 0.1
    gaussian = account_endless(query, 20, records=20, mechanism="gaussian", delta=1e-5)
    assert 0.0 < gaussian < 0.1
    assert account_endless(query, 20, records=20, mechanism="gaussian") == math.inf


def test_nothing_charged_costs_nothing_and_no_noise_costs_everything() -> None:
    assert remainder(DecayingRelease(StepSize(0.0, 0.5), StepSize(1.0, 0.1), 1.0), Arrivals(1)) == 0.0
    assert remainder(DecayingRelease(StepSize(1.0, 0.5), StepSize(1.0, 0.1), 0.0), Arrivals(1)) == 0.0
    assert remainder(DecayingRelease(StepSize(1.0, 0.5), StepSize(0.0, 0.1), 1.0), Arrivals(1)) == math.inf
    assert account_endless([], 1) == 0.0


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    "sampling", ["full", {"kind": "streaming", "batch_size": 4}, {"kind": "fixed_batch", "batch_size": 5}]
)
def test_a_job_says_what_its_finite_shards_cost_for_ever(
    scenario: Callable[..., dict[str, Any]], mechanism: str, sampling: Any
) -> None:
    """Steps that decay faster than noise by more than t^{1/2} have a finite ε(δ), and no finite pure ε."""
    base = scenario(
        problem={"sampling": sampling},
        algorithm={"rounds": 60, "y": {"decay": 0.9}, "z": {"decay": 0.8}},
        privacy={"mechanism": mechanism, "y": {"decay": 0.1}, "z": {"decay": 0.1}},
    )
    job = build(decentral_dp.load(base))
    finite = limits(job).finite_data
    assert float(job.budget.epsilon.max()) * 0.99 < finite < 40.0
    never = [("privacy", {"y": {"decay": 0.45}}), ("algorithm", {"z": {"scale": 0.5, "decay": 0.5}})]
    never += [("privacy", {"delta": 0.0})] if mechanism == "laplace" else []
    for table, change in never:
        assert limits(build(decentral_dp.load(base | {table: base[table] | change}))).finite_data == math.inf
    private = build(decentral_dp.load(base | {"algorithm": {**base["algorithm"], "protocol": "private"}}))
    # No limit is stated for private states, since neither a finite bound nor divergence is proved.
    assert limits(private).finite_data is None
