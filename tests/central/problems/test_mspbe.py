"""The projected Bellman error, primal and dual: derivatives, clipping, sensitivity, and the closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.central.problems.mspbe import Mspbe, Trajectories
from decentral_dp.exchange import ClippedQuery

STEPS, WIDTH, DISCOUNT = 4, 2, 0.9
LENGTHS, TERMINAL = np.array([4.0, 1.0, 3.0, 2.0, 4.0]), np.array([1.0, 1.0, 0.0, 1.0, 0.0])


def records(seed: int = 0) -> Trajectories:
    draw = np.random.default_rng(seed)
    return Trajectories(
        draw.normal(size=(5, STEPS + 1, WIDTH)), draw.normal(size=(5, STEPS)), LENGTHS.copy(), TERMINAL.copy()
    )


def problem(*hidden: int, **keys: Any) -> Mspbe:
    return Mspbe(STEPS, WIDTH, DISCOUNT, hidden=hidden, **keys)


def point(m: Mspbe, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return 0.7 * draw.normal(size=m.p), 0.7 * draw.normal(size=m.p)


# The oracle: V layer by layer in numpy, derivatives by differences, one trajectory and one step at a time ------------


def value(m: Mspbe, theta: np.ndarray, state: np.ndarray) -> float:
    offset, out = 0, state
    widths = [WIDTH, *m.hidden, 1]
    for k in range(len(widths) - 1):
        i, o = widths[k], widths[k + 1]
        out = theta[offset : offset + i * o].reshape(o, i) @ out + theta[offset + i * o : offset + i * o + o]
        offset += i * o + o
        if k < len(widths) - 2:
            out = np.tanh(out)
    return float(out[0])


def differences(f: Any, x: np.ndarray, h: float = 1e-5) -> np.ndarray:
    return np.array([(f(x + h * e) - f(x - h * e)) / (2.0 * h) for e in np.eye(x.size)])


def features(m: Mspbe, theta: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Compute Ψ(s)."""
    return differences(lambda w: value(m, w, state), theta)


def error(m: Mspbe, theta: np.ndarray, r: Trajectories, i: int, t: int) -> float:
    """Compute δ_t of trajectory i."""
    last = t + 1 == int(r.lengths[i]) and r.terminal[i] == 1.0
    after = 0.0 if last else value(m, theta, r.observations[i, t + 1])
    return float(r.rewards[i, t] + DISCOUNT * after - value(m, theta, r.observations[i, t]))


def loss(m: Mspbe, theta: np.ndarray, omega: np.ndarray, r: Trajectories, i: int) -> float:
    """Compute f of trajectory i."""
    total = 0.0
    for t in range(int(r.lengths[i])):
        # ⟨Ψ, ω⟩ is a derivative along a line.
        state, h = r.observations[i, t], 1e-6
        along = (value(m, theta + h * omega, state) - value(m, theta - h * omega, state)) / (2.0 * h)
        total += error(m, theta, r, i, t) * along - 0.5 * along**2
    return total / float(r.lengths[i])


def gradients(m: Mspbe, theta: np.ndarray, omega: np.ndarray, r: Trajectories, i: int) -> dict[str, np.ndarray]:
    return {
        "grad_x": differences(lambda w: loss(m, w, omega, r, i), theta, 1e-4),
        "grad_y": differences(lambda w: loss(m, theta, w, r, i), omega, 1e-4),
    }


def select(r: Trajectories, i: int) -> Trajectories:
    return Trajectories(*(a[i : i + 1] for a in r))


@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)])
def test_gradients_match_differences(hidden: tuple[int, ...]) -> None:
    m, r = problem(*hidden), records()
    theta, omega = point(m)
    for i in range(5):
        expected = gradients(m, theta, omega, r, i)
        for term in ("grad_x", "grad_y"):
            (actual,) = m.sums(select(r, i), [ClippedQuery(term, theta, omega, np.inf)])
            np.testing.assert_allclose(actual, expected[term], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("bound", [0.05, 0.5, 5.0])
def test_trajectories_are_clipped_as_a_whole(bound: float) -> None:
    m, r = problem(3), records()
    theta, omega = point(m)
    earlier = point(m, 2)
    expected = {name: np.zeros(m.p) for name in ("grad_x", "grad_y", "change")}
    for i in range(5):
        gradient, earlier_gradient = gradients(m, theta, omega, r, i), gradients(m, *earlier, r, i)
        for name, v in (*gradient.items(), ("change", gradient["grad_x"] - earlier_gradient["grad_x"])):
            expected[name] += v * min(1.0, bound / float(np.linalg.norm(v)))
    queries = [ClippedQuery(t, theta, omega, bound) for t in ("grad_x", "grad_y")]
    queries.append(ClippedQuery("grad_x", theta, omega, bound, earlier_point=earlier))
    for name, actual in zip(expected, m.sums(r, queries), strict=True):
        np.testing.assert_allclose(actual, expected[name], rtol=1e-4, atol=1e-5)


def test_centre_is_subtracted_before_clipping() -> None:
    m, r = problem(2), records()
    theta, omega = point(m)
    centre = np.full(m.p, 0.3)
    rows = [m.sums(select(r, i), [ClippedQuery("grad_y", theta, omega, np.inf)])[0] - centre for i in range(5)]
    (actual,) = m.sums(r, [ClippedQuery("grad_y", theta, omega, 0.4, centre=centre)])
    np.testing.assert_allclose(actual, sum(v * min(1.0, 0.4 / np.linalg.norm(v)) for v in rows), rtol=1e-12)


def test_values_after_the_end_are_not_read() -> None:
    m, r = problem(3), records()
    theta, omega = point(m)
    queries = [ClippedQuery(t, theta, omega, 1.0) for t in ("grad_x", "grad_y")]
    other = Trajectories(*(a.copy() for a in r))
    for i, length in enumerate(LENGTHS.astype(int)):
        other.observations[i, length + 1 :] = 7.0
        other.rewards[i, length:] = -9.0
        if TERMINAL[i]:
            # The value of a terminal state is 0.
            other.observations[i, length] = 5.0
    for before, after in zip(m.sums(r, queries), m.sums(other, queries), strict=True):
        np.testing.assert_array_equal(before, after)
    assert m.scores(theta, omega, r, r) == m.scores(theta, omega, other, other)


def test_overflowing_trajectory_counts_as_zero() -> None:
    m, r = problem(3), records()
    theta, omega = point(m)
    queries = [ClippedQuery(t, theta, omega, 0.2) for t in ("grad_x", "grad_y")]
    r.rewards[2] = 1e308
    r.observations[2] = 1e308
    rest = Trajectories(*(np.delete(a, 2, axis=0) for a in r))
    with np.errstate(all="ignore"):
        pairs = list(zip(m.sums(r, queries), m.sums(rest, queries), strict=True))
    for actual, expected in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_two_clips_are_attained() -> None:
    """Two trajectories with opposite rewards attain the bound."""
    m, r = problem(3), records()
    theta, omega = point(m, 3)
    other = Trajectories(*(a.copy() for a in r))
    for which, sign in ((r, 1e9), (other, -1e9)):
        which.rewards[1] = sign
        which.observations[1] = 0.5
    for term in ("grad_x", "grad_y"):
        before, after = (m.sums(which, [ClippedQuery(term, theta, omega, 0.3)])[0] for which in (r, other))
        assert np.linalg.norm(before - after) >= 2.0 * 0.3 * (1.0 - 1e-6)


# Values --------------------------------------------------------------------------------------------------------------


def moments(m: Mspbe, theta: np.ndarray, r: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """Compute b and G."""
    b, g = np.zeros(m.p), np.zeros((m.p, m.p))
    for i, length in enumerate(r.lengths.astype(int)):
        for t in range(length):
            psi = features(m, theta, r.observations[i, t])
            b += error(m, theta, r, i, t) * psi / (length * len(r.lengths))
            g += np.outer(psi, psi) / (length * len(r.lengths))
    return b, g


@pytest.mark.parametrize("hidden", [(), (3,)])
def test_primal_is_the_maximum_over_the_dual(hidden: tuple[int, ...]) -> None:
    m, r = problem(*hidden, ridge=0.05), records()
    theta, omega = point(m)
    b, g = moments(m, theta, r)
    expected = 0.5 * b @ np.linalg.solve(g + 0.05 * np.eye(m.p), b)
    scores = m.scores(theta, omega, r, records(5))
    assert scores["primal"] == pytest.approx(expected, rel=1e-6)
    solved = m.solve(theta, r)
    assert solved is not None
    best = solved[0]
    np.testing.assert_allclose(best, np.linalg.solve(g + 0.05 * np.eye(m.p), b), rtol=1e-4, atol=1e-6)
    # ∇_ω F = 0, the sum of the private and the public part.
    (slope,) = m.sums(r, [ClippedQuery("grad_y", theta, best, np.inf)])
    np.testing.assert_allclose(slope / 5 + m.public("grad_y", theta, best, 0), 0.0, atol=1e-7)
    b, g = moments(m, theta, records(5))
    assert scores["test_mspbe"] == pytest.approx(0.5 * b @ np.linalg.solve(g + 0.05 * np.eye(m.p), b), rel=1e-6)


def test_true_value_function_has_zero_error() -> None:
    """V(s) = s_1 if rewards are s_t − γ s_{t+1}, and s_t in the last step of a terminal trajectory."""
    m, r = problem(), records()
    for i, length in enumerate(LENGTHS.astype(int)):
        for t in range(length):
            last = t + 1 == length and TERMINAL[i] == 1.0
            r.rewards[i, t] = r.observations[i, t, 0] - (0.0 if last else DISCOUNT * r.observations[i, t + 1, 0])
    theta = np.array([1.0, 0.0, 0.0])
    scores = m.scores(theta, np.zeros(3), r, r)
    assert scores["primal"] == pytest.approx(0.0, abs=1e-25)
    assert scores["test_mspbe"] == pytest.approx(0.0, abs=1e-25)
    assert scores["test_return_error"] == pytest.approx(0.0, abs=1e-12)
    assert m.scores(theta + 0.1, np.zeros(3), r, r)["test_return_error"] > 0.05


def test_return_error_matches_discounted_rewards() -> None:
    m, r = problem(3), records()
    theta, omega = point(m)
    squares = []
    for i, length in enumerate(LENGTHS.astype(int)):
        of_this = []
        for t in range(length):
            to_come = sum(DISCOUNT ** (k - t) * r.rewards[i, k] for k in range(t, length))
            if not TERMINAL[i]:
                to_come += DISCOUNT ** (length - t) * value(m, theta, r.observations[i, length])
            of_this.append((value(m, theta, r.observations[i, t]) - to_come) ** 2)
        squares.append(np.mean(of_this))
    assert m.scores(theta, omega, r, r)["test_return_error"] == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-12)


def test_overflowing_scores_are_omitted() -> None:
    m = problem(3)
    assert m.scores(np.full(m.p, 1e300), np.zeros(m.p), records(), records()) == {}
