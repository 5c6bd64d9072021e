"""ψ-divergences: conjugates against suprema over grids, weights against differences, duals against primal solvers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from decentral_dp import InputError
from decentral_dp.central.problems.conjugates import DIVERGENCES, divergence_of
from decentral_dp.central.problems.dro import DroObjective
from decentral_dp.central.problems.losses import Capped, capped_loss
from tests.support.robust_oracle import CASES, Case, conjugate, penalised

cases = pytest.mark.parametrize("case", CASES, ids=str)


def end(case: Case) -> float:
    """Where ψ* ends: 1/(1 − k) of Cressie-Read below order 1."""
    k = case.parameters.get("order", 2.0)
    return 1 / (1 - k) if k < 1 else math.inf


def points(case: Case) -> np.ndarray:
    return np.array([s for s in (-7.0, -1.4, -1.0, -0.6, -0.5, -1e-3, 0.0, 0.02, 0.1, 0.24, 1.1, 1.9) if s < end(case)])


@cases
def test_conjugates_are_suprema(case: Case) -> None:
    s = points(case)
    np.testing.assert_allclose(case.made().conjugate(s), [conjugate(case, float(v)) for v in s], rtol=1e-7, atol=1e-9)


@cases
def test_weights_are_slopes_of_the_conjugate(case: Case) -> None:
    s = np.array([v for v in points(case) + 0.013 if v + 1e-6 < end(case)])
    found, h = case.made(), 1e-6
    numeric = (found.conjugate(s + h) - found.conjugate(s - h)) / (2 * h)
    np.testing.assert_allclose(found.weight(s), numeric, rtol=1e-6, atol=1e-8)


@cases
@given(s=st.floats(-50, 50), t=st.floats(0, 50), step=st.floats(1e-6, 5))
def test_fenchel_and_young(case: Case, s: float, t: float, step: float) -> None:
    """ts ≤ ψ(t) + ψ*(s), with equality at t = w(s); w does not fall; its smoothness constant holds."""
    found = case.made()
    star, w, later = (f(np.array([v]))[0] for f, v in (
        (found.conjugate, s), (found.weight, s), (found.weight, s + step)))  # fmt: skip
    assert t * s <= case.psi_anywhere(t) + star + 1e-9 * (1 + abs(t * s))
    assert later >= w >= 0
    if s < end(case) - 1e-3 and w < 1e9:
        assert w * s == pytest.approx(case.psi_anywhere(float(w)) + star, rel=1e-6, abs=1e-6)
    if math.isfinite(case.smoothness):
        assert later - w <= case.smoothness * step * (1 + 1e-9) + 1e-12


@cases
def test_smoothness_is_reached_or_infinite(case: Case) -> None:
    found = case.made()
    s = np.linspace(-40, min(40, end(case) - 1e-9), 200001)
    steepest = float(np.max(np.diff(found.weight(s)) / np.diff(s)))
    if math.isfinite(case.smoothness):
        assert 0.99 * case.smoothness <= steepest <= case.smoothness * (1 + 1e-6)
    else:
        assert steepest > 10


@cases
@given(t=st.floats(1.0, 1e6))
def test_reach_is_where_a_weight_is_met(case: Case, t: float) -> None:
    found = case.made()
    s = found.reach(t)
    if math.isinf(s):
        assert found.weight(np.array([1e8]))[0] <= t
        return
    assert found.weight(np.array([s - 1e-9 * (1 + abs(s))]))[0] <= t * (1 + 1e-6)
    if s + 1e-3 < end(case):
        assert found.weight(np.array([s + 1e-3 * (1 + abs(s))]))[0] > t * (1 - 1e-9)


@cases
def test_far_out_nothing_warns_and_nothing_is_lost(case: Case) -> None:
    found = case.made()
    far = np.array([-1e300, -1e4, -745.2, 1e4, 1e150, 1e300])
    with np.errstate(over="ignore"):
        for f in (found.conjugate, found.weight):
            assert not np.isnan(f(far)).any()
    assert np.isnan(found.weight(np.array([np.nan]))).all()
    assert np.isnan(found.conjugate(np.array([np.nan]))).all()
    if case.name != "cvar":
        small = np.array([1e-13, -1e-13])
        np.testing.assert_allclose(found.conjugate(small), small, rtol=1e-9)


def test_where_cressie_read_ends() -> None:
    """Below order 0 the conjugate is finite at 1/(1 − k), and above 0 it is not."""
    below, above = divergence_of("cressie_read", order=-1.0), divergence_of("cressie_read", order=0.5)
    s = np.array([0.5, 0.5 + 1e-9])
    np.testing.assert_array_equal(below.conjugate(s), [1.0, math.inf])
    np.testing.assert_array_equal(below.weight(s), [math.inf, math.inf])
    np.testing.assert_array_equal(above.conjugate(np.array([2.0, 2.1])), [math.inf, math.inf])


def test_families_meet() -> None:
    s = np.linspace(-0.9, 0.9, 7)
    np.testing.assert_allclose(
        divergence_of("cressie_read", order=2.0).conjugate(s), divergence_of("chi2").conjugate(s)
    )
    near = divergence_of("cressie_read", order=1.002).conjugate(s)
    np.testing.assert_allclose(near, divergence_of("kl").conjugate(s), atol=4e-3)
    # (t − 1)² at strength λ is ½(t − 1)² at strength 2λ.
    strength = 0.7
    other = strength * (0.25 * np.maximum(s / strength + 2.0, 0.0) ** 2 - 1.0)
    np.testing.assert_allclose(2 * strength * divergence_of("chi2").conjugate(s / (2 * strength)), other, atol=1e-14)


# The value of the dual ------------------------------------------------------------------------------------------------


def objective(case: Case, strength: float, cap: float) -> DroObjective:
    return DroObjective(Capped(capped_loss(None, cap, 0).loss, cap), case.made(), strength)  # type: ignore[arg-type]


@cases
@pytest.mark.parametrize("seed", range(6))
def test_strong_duality(case: Case, seed: int) -> None:
    draw = np.random.default_rng(seed)
    cap = 3.0
    losses = np.clip(draw.exponential(1.0, size=7), 0, cap)
    strength = (
        1.0 if case.name == "cvar" else float(draw.uniform(0.5, 2.0)) * (1.0 if end(case) > 9 else 4.0 / end(case))
    )
    found = objective(case, strength, cap)
    assert found.robust(losses) == pytest.approx(penalised(case, losses, strength), rel=2e-6, abs=2e-6)


@cases
def test_staying_among_the_losses_loses_nothing(case: Case) -> None:
    """The best η over a wide interval gives what the best one in [0, B] gives, and a best one lies among the losses."""
    draw, cap, strength = np.random.default_rng(5), 2.0, 1.0 if end(case) > 9 else 12.0 / end(case)
    found = objective(case, strength, cap)
    for _ in range(10):
        losses = draw.uniform(0, cap, size=9)
        best = found.best(losses)
        assert losses.min() <= best <= losses.max()
        wide = minimize_scalar(lambda eta: found.value(losses, eta), bounds=(-3, 5), method="bounded")  # noqa: B023 # called at once
        assert found.robust(losses) <= wide.fun + 1e-9


def test_the_printed_chi2_is_wrong() -> None:
    """−1 + ¼(s + 2)² lets weights be negative: its dual exceeds the primal of (t − 1)², which the right one meets."""
    losses = np.array([0.0, 0.0, 0.0, 0.0, 20.0])
    strength = 1.0

    def dual(star: object) -> float:
        def value(eta: float) -> float:
            return float(np.mean(strength * star((losses - eta) / strength)) + eta)  # type: ignore[operator]

        return float(minimize_scalar(value, bounds=(-50, 50), method="bounded", options={"xatol": 1e-10}).fun)

    truth = penalised(Case("chi2", {}, lambda t: (t - 1) ** 2), losses, strength)
    printed = dual(lambda s: -1 + (s + 2) ** 2 / 4)
    right = objective(Case("chi2", {}, lambda t: 0.0), 2 * strength, 20.0).robust(losses)
    assert right == pytest.approx(truth, rel=1e-5)
    assert printed > truth + 0.5


def test_the_printed_kl_cvar_has_no_minimum() -> None:
    """min(e^s, (1 + s + log α)/α) − 1 is the tangent everywhere, so that the dual falls without end in η."""
    level, s = 0.3, np.linspace(-30, 30, 2001)
    tangent = (1 + s + math.log(level)) / level
    np.testing.assert_array_equal(np.minimum(np.exp(s), tangent) <= np.exp(s), True)
    np.testing.assert_allclose(np.minimum(np.exp(s), tangent), tangent, atol=1e-12)

    def printed(eta: float) -> float:
        v = 1.0 - eta
        return min(math.exp(v), (1 + v + math.log(level)) / level) - 1 + eta

    assert printed(1e5) < -1e5
    found = divergence_of("kl_cvar", level=level)
    right = [float(found.conjugate(np.array([1.0 - eta]))[0]) + eta for eta in (-1e3, 1.0, 1e3)]
    assert right[1] == min(right) == pytest.approx(1.0)


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "chi"}, "problem.divergence: no divergence 'chi'; the nearest is 'chi2'."),
        ({"name": "wasserstein"}, "problem.divergence: no divergence 'wasserstein'; there are 'chi2', 'kl', "),
        ({"name": "cvar"}, "problem.level: missing. cvar needs it; give for example level = 0.1."),
        ({"name": "cressie_read"}, "problem.order: missing. cressie_read needs it; give for example order = 3.0."),
        ({"name": "kl", "level": 0.1}, "problem.level: kl takes none, only kl_cvar, cvar. Leave it out."),
        ({"name": "chi2", "order": 2.0}, "problem.order: chi2 takes none, only cressie_read. Leave it out."),
        ({"name": "cressie_read", "order": 1.0}, "problem.order: cressie_read of order 1 is a limit"),
        ({"name": "cressie_read", "order": 0.0}, "problem.order: cressie_read of order 0 is a limit"),
    ],
)
def test_refusals(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        divergence_of(**arguments)  # type: ignore[arg-type]
    assert str(error.value).startswith(sentence)


def test_every_divergence_is_tested() -> None:
    assert {c.name for c in CASES} == set(DIVERGENCES)
