"""Sensitivities from formulas, against loops and against what the queries themselves state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from decentral_dp.algorithms import vocabulary
from decentral_dp.algorithms.gossip import ldp_dsbo, ma_dsbo, vrdsbo
from decentral_dp.algorithms.plans import (
    Use,
    fading,
    lag,
    plan_release,
    use_sensitivity,
)
from decentral_dp.algorithms.protocol import Public
from decentral_dp.bounded import memory_slack
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.participants import Network
from decentral_dp.privacy.clipping import Clip
from decentral_dp.simulation.jobs.build import build_job as build

ROUNDS = 4
TRAIN = np.array([[3, 5], [4, 5], [5, 5], [5, 5]], dtype=float)
VALIDATION = np.array([[1, 2]] * ROUNDS, dtype=float)
READS_RECORDS: Any = {
    "lower_grad_y": "train",
    "lower_hvp": "train",
    "lower_jvp": "train",
    "upper_grad_y": "validation",
}
P, Q = 3, 2


def public(clip: Clip | None = None, reads_records: Any = None) -> Public:
    counts: Any = {"train": TRAIN, "validation": VALIDATION}
    rates: Any = {"train": np.full((ROUNDS, 2), 0.25), "validation": np.full((ROUNDS, 2), 0.5)}
    clip = clip or Clip("l1", x=2.0, y=0.5, z=0.25)
    known = (ROUNDS, counts, rates, np.array([0.6, 0.4]), reads_records or READS_RECORDS)
    return Public(*known, clip, P, Q, Network(sp.csr_array((2, 2))))


def slack(n: float, width: int) -> float:
    return 1.0 + 1.01 * n * (n + width + 8) / 2**53


@pytest.mark.parametrize(
    ("term", "bound", "width"),
    [
        ("lower_grad_y", 0.5, Q),
        ("lower_hvp", 0.25, Q),
        ("lower_jvp", 2.0, P),
        ("lower_hessian", 0.25, Q * Q),
        ("lower_hessian_product", 0.25, Q * P),
        ("lower_jacobian", 2.0, P * Q),
    ],
)
def test_one_use_moves_by_twice_its_clip_over_the_count(term: str, bound: float, width: int) -> None:
    factor, t = np.array([1.0, -3.0, 0.0]), np.array([0, 1, 3])
    change, reach = use_sensitivity(public(), "train", Use(term, factor, t))
    for r in range(3):
        for g in range(2):
            n = TRAIN[t[r], g]
            assert change[r, g] == pytest.approx(2 * abs(factor[r]) * bound / n * slack(n, width), rel=1e-15)
            assert reach[r, g] == abs(factor[r]) * bound


def test_uses_add_up_kind_by_kind() -> None:
    index, t = np.array([1, 2, 3, 4]), np.arange(ROUNDS)
    ones = np.ones(ROUNDS)
    uses = [Use("lower_hvp", ones, t), Use("lower_hvp", ones, t), Use("upper_grad_y", 3 * ones, t)]
    got = plan_release(public(), index, uses)
    np.testing.assert_allclose(got.sensitivity["train"], 4 * 0.25 / TRAIN, rtol=1e-12)
    np.testing.assert_allclose(got.sensitivity["validation"], 6 * 0.25 / VALIDATION, rtol=1e-12)
    np.testing.assert_allclose(got.largest, np.full((ROUNDS, 2), 5 * 0.25))
    assert (got.rate["train"] == 0.25).all()
    assert (got.rate["validation"] == 0.5).all()
    kept = plan_release(public(), index, uses, kept=True)
    assert all((rate == 1.0).all() for rate in kept.rate.values())
    assert got.indices is index


def test_without_a_clip_only_a_factor_of_zero_is_bounded() -> None:
    change, reach = use_sensitivity(
        public(Clip("l1")), "train", Use("lower_hvp", np.array([0.0, 1.0]), np.array([0, 0]))
    )
    assert (change[0] == 0.0).all()
    assert (reach[0] == 0.0).all()
    assert np.isinf(change[1]).all()
    assert np.isinf(reach[1]).all()


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(-3, 3), st.floats(1, 1.5)), min_size=1, max_size=12),
)
def test_memory_fades_as_in_a_loop(rows: list[tuple[float, float, float]]) -> None:
    change, keep, growth = (np.array(v) for v in zip(*rows, strict=True))
    got = fading(np.stack([change, 2 * change], axis=1), keep[:, None], np.stack([growth, growth], axis=1))
    now = 0.0
    for t in range(len(rows)):
        now = abs(keep[t]) * growth[t] * now + change[t]
        assert got[t, 0] == pytest.approx(now, rel=1e-12, abs=1e-300)
        assert got[t, 1] == pytest.approx(2 * now, rel=1e-12, abs=1e-300)
    shifted = lag(got)
    assert (shifted[0] == 0.0).all()
    np.testing.assert_array_equal(shifted[1:], got[:-1])


@pytest.mark.parametrize(
    ("module", "change", "channel"),
    [
        (ldp_dsbo, 'algorithm.protocol="private"', "y"),
        (ma_dsbo, "algorithm.x.scale=0.5", "x"),
        (vrdsbo, "algorithm.rounds=20", "zg"),
    ],
    ids=["ldp_dsbo", "ma_dsbo", "vrdsbo"],
)
def test_plans_charge_the_rounding_of_memory(
    module: Any, change: str, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use γ = 1.01 instead of 1 + 10⁻¹⁴: the sensitivities of later releases rise by about as much."""
    name = module.__name__.rpartition(".")[2]
    algorithm: Any = build(load(name, [change])).algorithm
    plain = algorithm.planned_releases(public())[channel].sensitivity["train"]
    monkeypatch.setattr(vocabulary, "memory_slack", lambda n: np.full(np.shape(n), 1.01))
    larger = algorithm.planned_releases(public())[channel].sensitivity["train"]
    np.testing.assert_array_equal(larger[0], plain[0])
    assert (larger[-1] > 1.002 * plain[-1]).all()


def test_the_slack_of_memory() -> None:
    n = np.array([1.0, 1e3, 1e6])
    np.testing.assert_allclose((memory_slack(n) - 1.0) * 2.0**53, 4.04 * (n + 4.0), rtol=0.2)
    assert (memory_slack(n) > 1.0).all()
