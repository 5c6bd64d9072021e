"""μ against adversaries that see published models only: closed forms, and values of another solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.hidden_states import HiddenRounds, add_release, hidden_mu


def metropolis(graph: Any) -> Array:
    """Weights 1/(1 + largest degree) of edges."""
    adjacency = nx.to_numpy_array(graph)
    weight = 1.0 / (1.0 + adjacency.sum(axis=1).max())
    mixed = weight * adjacency
    return np.asarray(mixed + np.diag(1.0 - mixed.sum(axis=1)))


def ring(m: int) -> Array:
    return metropolis(nx.cycle_graph(m))


def torus(k: int) -> Array:
    return metropolis(nx.grid_2d_graph(k, k, periodic=True))


def mu(
    factors: Array, rounds: int, view: str, victim: int = 0, move: Any = 1.0, noise: Any = 1.0,
    members: Sequence[int] = (), weights: Any = None, most_cells: int | None = None, covariance: Any = None,
) -> float:  # fmt: skip
    """μ of one victim; view: "all", "models", "average" or "none"."""
    m = len(factors)
    seen = np.zeros((rounds, m), dtype=bool)
    seen[:] = view == "all"
    seen[-1] |= view == "models"
    scales = np.broadcast_to(np.asarray(noise, dtype=float), (rounds, m)).copy()
    for member in members:
        seen[:, (factors[member] > 0.0) | (np.arange(m) == member)] = True
        scales[:, member] = np.inf
    w = np.zeros(m)
    if view == "average":
        w[:] = 1.0 / m if weights is None else weights
    shift = np.broadcast_to(np.asarray(move, dtype=float).reshape(-1, 1), (rounds, m))
    steps = HiddenRounds(
        factors[None], np.zeros(rounds, dtype=np.int64), scales, seen, np.zeros((rounds, m)), w, covariance
    )
    return float(hidden_mu(steps, [victim], shift, most_cells)[0])


STAR, HALVES, PATH = metropolis(nx.star_graph(4)), np.full((2, 2), 0.5), metropolis(nx.path_graph(3))
EVERY_THIRD = np.where(np.arange(30) % 3 == 0, 1.5, 0.0)
FIRST_ONLY = np.where(np.arange(60) == 0, 2.0, 0.0)
FALLING = np.minimum(1.0, 2.0 - 1.98 * np.arange(100) / 99)


@pytest.mark.parametrize(
    ("factors", "rounds", "options", "models", "average"),
    [
        (np.ones((1, 1)), 10, {}, 3.162278, 3.162278),
        (0.9 * np.ones((1, 1)), 10, {}, 3.029147, 3.029147),
        (HALVES, 2, {}, 1.354006, 1.154701),
        (PATH, 2, {}, 1.388730, 1.000000),
        (PATH, 6, {"victim": 1}, 1.775907, 1.577080),
        (STAR, 10, {}, 1.769568, 1.526883),
        (STAR, 10, {"victim": 1}, 2.812510, 2.160679),
        (np.full((4, 4), 0.25), 5, {}, 1.547494, 1.282473),
        (1.02 * np.full((4, 4), 0.25), 50, {}, 3.760310, 3.659226),
        (ring(16), 100, {}, 3.851733, 3.454539),
        (0.95 * ring(16), 100, {}, 2.606588, 1.998572),
        (torus(4), 100, {}, 2.893818, 2.623527),
        (0.99 * torus(4), 100, {}, 2.752538, 2.465423),
        (1.03 * torus(4), 100, {}, 3.199217, 2.955282),
        (ring(16), 100, {"members": [0], "victim": 8}, 3.851733, 3.497769),
        (ring(16), 100, {"members": [0], "victim": 2}, 5.602387, 5.442054),
        (
            PATH, 6,
            {"move": [1.0, 0.5, 0.0, 1.0, 2.0, 0.25], "noise": [1.0, 0.5, 2.0], "weights": [0.5, 0.3, 0.2]},
            1.950717, 1.722820,
        ),
        (ring(6), 30, {"move": EVERY_THIRD}, 1.265372, 1.236037),
        (metropolis(nx.path_graph(4)), 60, {"move": FIRST_ONLY}, 0.130744, None),
        (ring(5), 20, {}, 2.512940, 2.260165),
        (torus(4), 100, {"move": FALLING, "noise": FALLING[:, None]}, 3.368209, 3.125042),
        (torus(4) * (1.0 - 0.1 / 4.0) ** -0.5, 50, {}, None, 2.029717),
    ],
)  # fmt: skip
def test_values_of_another_solver(
    factors: Array, rounds: int, options: dict[str, Any], models: float | None, average: float | None
) -> None:
    for view, expected in (("models", models), ("average", average)):
        if expected is not None:
            assert mu(factors, rounds, view, **options) == pytest.approx(expected, abs=1.1e-6)


@pytest.mark.parametrize(("victim", "expected"), [(8, 1.771445), (2, 5.394821)])
def test_the_view_of_one_agent_has_the_value_of_another_solver(victim: int, expected: float) -> None:
    assert mu(ring(16), 100, "none", victim, members=[0]) == pytest.approx(expected, abs=1.1e-6)


def test_the_value_of_another_solver_with_a_released_mean() -> None:
    hidden = np.array([mu(ring(5), 20, "average")])
    assert add_release(hidden, np.array([1.2]))[0] == pytest.approx(2.558974, abs=1.1e-6)
    assert add_release(hidden, np.zeros(1))[0] >= hidden[0]


def tail_mu(factors: Array, rounds: int, tail: int, of_each: bool) -> tuple[float, float]:
    """Solve (P) for means over the last rounds by bounded least squares, without code of the package.

    Agents at one distance from the victim, agent 0, share k and c. The published sums are that of all agents, or one of
    each agent.

    Returns:
        A lower bound on the smallest μ, without ( )₊, and the μ of the solution.
    """
    distance = np.array([nx.shortest_path_length(nx.from_numpy_array(factors), 0, i) for i in range(len(factors))])
    member = np.eye(distance.max() + 1)[distance]
    size = member.sum(axis=0)
    quotient = (member / size).T @ factors @ member
    np.testing.assert_allclose(factors @ member, member @ quotient)
    n, sums = len(size), np.eye(len(size)) if of_each else size[None]
    # The last column is the constant.
    rows = np.eye(rounds * n + tail * (n + len(sums)) + 1)
    k, rest = rows[: rounds * n].reshape(rounds, n, -1), rows[rounds * n : -1]
    c, b = np.zeros_like(k), rest[tail * n :].reshape(tail, len(sums), -1)
    c[rounds - tail :] = rest[: tail * n].reshape(tail, n, -1)
    b[-1] = 0.0
    a = np.concatenate([np.zeros_like(k[:1]), quotient @ (k + c)[:-1]])
    a[:, 0, -1] += 1.0
    difference = b - np.concatenate([np.zeros_like(b[:1]), b[:-1]]) - sums @ (k - c)[rounds - tail :]
    shifts = (a - k + c) * np.sqrt(size)[:, None]
    whole = np.concatenate([shifts.reshape(rounds * n, -1), 1e5 * difference.reshape(tail * len(sums), -1)])
    solved = lsq_linear(whole[:, :-1], -whole[:, -1], (0.0, np.inf), method="bvls", tol=1e-14, max_iter=5000)
    x = np.append(solved.x, 1.0)
    assert np.abs(difference @ x).max() < 1e-9
    y = np.maximum((a - k) @ x, 0.0) + c @ x
    return float(np.sqrt(2.0 * solved.cost)), float(np.sqrt((np.square(y) @ size).sum()))


@pytest.mark.parametrize(
    ("factors", "rounds", "tail", "of_each", "expected"),
    [
        (torus(4), 100, 5, False, 2.910994),
        (torus(4), 100, 10, False, 3.232674),
        (torus(4), 100, 50, False, 5.139799),
        (torus(4), 100, 10, True, 4.100205),
        (torus(4), 100, 50, True, 7.369626),
        (np.ones((1, 1)), 10, 5, False, 3.162278),
        (0.9 * np.ones((1, 1)), 10, 5, False, 3.132608),
        (HALVES, 2, 2, False, 1.224745),
        (ring(5), 20, 4, False, 2.643914),
        (ring(5), 20, 4, True, 2.950881),
    ],
)
def test_means_over_rounds_cost_more_than_last_models(
    factors: Array, rounds: int, tail: int, of_each: bool, expected: float
) -> None:
    assert tail_mu(factors, rounds, tail, of_each) == pytest.approx((expected, expected), abs=1.1e-6)
    # All models of one agent that does not contract cost the same.
    last = mu(factors, rounds, "models" if of_each else "average")
    assert last < expected * (1.0 - 1e-3) or factors.tolist() == [[1.0]]


@pytest.mark.parametrize("view", ["models", "average"])
@pytest.mark.parametrize("factors", [ring(7), 0.9 * torus(3), STAR, 1.02 * HALVES])
def test_a_mean_over_one_round_is_the_last_one(factors: Array, view: str) -> None:
    expected = mu(factors, 15, view)
    assert tail_mu(factors, 15, 1, view == "models") == pytest.approx((expected, expected), rel=1e-8)


@pytest.mark.parametrize("factors", [ring(6), torus(3), PATH, metropolis(nx.erdos_renyi_graph(7, 0.5, seed=3))])
def test_all_messages_add_the_squares(factors: Array) -> None:
    move, noise = np.linspace(1.0, 2.0, 8), np.linspace(0.5, 1.5, 8)
    expected = np.sqrt(np.square(move / noise).sum())
    assert mu(factors, 8, "all", move=move, noise=noise[:, None]) == pytest.approx(expected, rel=1e-12)
    # Hidden messages never cost more.
    models = mu(factors, 8, "models", move=move, noise=noise[:, None])
    assert mu(factors, 8, "average", move=move, noise=noise[:, None]) <= models <= expected
    assert mu(factors, 8, "none", move=move, noise=noise[:, None]) < 1e-12


def test_one_agent_has_the_closed_form() -> None:
    for h, rounds in ((0.5, 7), (0.97, 40), (1.0, 12), (1.03, 30)):
        chain = h * np.ones((1, 1))
        # A step that expands hides nothing.
        gain = rounds if h >= 1.0 else (1.0 + h) / (1.0 - h) * (1.0 - h**rounds) / (1.0 + h**rounds)
        assert mu(chain, rounds, "average", move=0.3, noise=0.7) == pytest.approx(0.3 / 0.7 * gain**0.5, rel=1e-9)


def test_average_of_one_agent_is_its_model() -> None:
    seen = np.zeros((9, 5), dtype=bool)
    seen[-1, 2] = True
    rounds = HiddenRounds(
        ring(5)[None], np.zeros(9, dtype=np.int64), np.ones((9, 5)), seen, np.zeros((9, 5)), np.zeros(5)
    )
    one = np.zeros(5)
    one[2] = 0.7
    assert mu(ring(5), 9, "average", weights=one) == pytest.approx(
        hidden_mu(rounds, [0], np.ones((9, 5)))[0], rel=1e-12
    )


def test_distance_classes_give_a_larger_bound() -> None:
    factors = metropolis(nx.random_regular_graph(3, 12, seed=5))
    for view in ("models", "average"):
        exact, coarse = (mu(factors, 12, view, most_cells=most) for most in (None, 1))
        assert exact <= coarse <= mu(factors, 12, "all")


def test_observed_agents_at_a_distance_give_a_larger_bound() -> None:
    """An adversary that sees the messages of all agents beyond a radius sees no less."""
    seen = np.zeros((12, 16), dtype=bool)
    seen[:, [15, 0, 1]] = True
    noise = np.ones((12, 16))
    noise[:, 0] = np.inf
    rounds = HiddenRounds(ring(16)[None], np.zeros(12, dtype=np.int64), noise, seen, np.zeros((12, 16)), np.zeros(16))
    exact, *bounds = (
        float(hidden_mu(rounds, [4], np.ones((12, 16)), radius=radius)[0]) for radius in (None, 1, 2, 4, 8)
    )
    assert exact < bounds[2] < bounds[1] < bounds[0] <= 12.0**0.5
    assert exact * (1.0 - 1e-9) <= bounds[3] <= exact * (1.0 + 1e-4)
    assert bounds[0] > 1.5 * exact


def test_few_free_rounds_give_a_bound_that_is_little_larger() -> None:
    seen = np.zeros((60, 36), dtype=bool)
    seen[:, torus(6)[0] > 0.0] = True
    noise = np.ones((60, 36))
    noise[:, 0] = np.inf
    rounds = HiddenRounds(torus(6)[None], np.zeros(60, dtype=np.int64), noise, seen, np.zeros((60, 36)), np.zeros(36))
    victims = np.flatnonzero(~seen[0])
    exact, quick = (hidden_mu(rounds, victims, np.ones((60, 36)), radius=radius) for radius in (None, 99))
    assert (exact * (1.0 - 1e-9) <= quick).all()
    assert (quick <= 1.005 * exact).all()
    assert (quick > exact).any()


def pairwise(graph: Any, square: float) -> Array:
    """Covariance of own noise 1, and pairwise noise of this square for every edge."""
    adjacency = nx.to_numpy_array(graph)
    return np.asarray(np.eye(len(adjacency)) + square * (np.diag(adjacency.sum(axis=1)) - adjacency))


def test_pairwise_noise_has_values_of_another_solver() -> None:
    covariance = pairwise(nx.cycle_graph(8), 4.0)
    for view, expected in (("models", 1.912744), ("all", 2.244849)):
        assert mu(ring(8), 20, view, covariance=covariance) == pytest.approx(expected, abs=1.1e-6)
    assert mu(ring(8), 20, "models") == pytest.approx(2.491744, abs=1.1e-6)
    # Pairs cancel in the average, and hide earlier messages.
    assert mu(ring(8), 20, "average", covariance=covariance) < 0.9 * mu(ring(8), 20, "average")
    assert mu(ring(8), 1, "average", covariance=covariance) == pytest.approx(8.0**-0.5, rel=1e-12)
    with pytest.raises(ValueError, match="none of them is a member"):
        mu(ring(8), 20, "models", members=[4], covariance=covariance)
    # Messages of agents beyond the radius reveal pairwise noise of near agents.
    rounds = HiddenRounds(
        ring(8)[None], np.zeros(1, dtype=np.int64), np.ones((1, 8)), np.zeros((1, 8), dtype=bool), np.zeros((1, 8)),
        np.full(8, 1.0 / 8.0), covariance,
    )  # fmt: skip
    with pytest.raises(ValueError, match="observed with an average"):
        hidden_mu(rounds, [0], np.ones((1, 8)), radius=0)
    for noise in (0.0, np.nan):
        with pytest.raises(ValueError, match="all agents send in every round"):
            hidden_mu(rounds._replace(noise=np.full((1, 8), noise)), [0], np.ones((1, 8)))


def exact_mu(maps: Array, moves: Array, noise: Array, view: Array) -> float:
    """μ of a linear system: messages L(z + u) with L the product of the maps, seen through the rows of `view`.

    Args:
        maps: (T, n, n), n coordinates of all agents.
        moves: (T, n), u.
        noise: (T, n), 0 for noise that the adversary knows.
        view: (r, T n).
    """
    rounds, n, _ = maps.shape
    whole = np.zeros((rounds * n, rounds * n))
    for t in range(rounds):
        here = slice(t * n, (t + 1) * n)
        if t:
            whole[here] = maps[t] @ whole[(t - 1) * n : t * n]
        whole[here, here] += np.eye(n)
    seen = view @ whole
    moved, covariance = seen @ moves.ravel(), (seen * np.square(noise.ravel())) @ seen.T
    return float(np.sqrt(moved @ np.linalg.pinv(covariance, rcond=1e-12, hermitian=True) @ moved))


@pytest.mark.parametrize("seed", range(48))
def test_no_linear_system_shows_more(seed: int) -> None:
    """Hill climbing over linear maps within R and moves within D; agents are absent, or members, in some systems."""
    draw = np.random.default_rng(seed)
    m, rounds = int(draw.integers(1, 5)), int(draw.integers(1, 6))
    factors = np.stack([draw.uniform(0, 0.6, (m, m)) * (draw.random((m, m)) < 0.7) for _ in range(rounds)])
    factors += draw.uniform(0.1, 0.7) * np.eye(m)
    noise, move = draw.uniform(0.4, 2.0, (rounds, m)), draw.uniform(0.0, 1.5, (rounds, m))
    member = int(draw.integers(m)) if m > 1 and draw.random() < 0.4 else None
    away = draw.random((rounds, m)) < (0.3 if member is None else 0.0)
    away[0], away[-1] = False, False
    factors = np.where(away[:, :, None], np.eye(m), factors)
    noise, move = np.where(away, 0.0, noise), np.where(away, 0.0, move)
    seen, weights = draw.random((rounds, m)) < 0.15, np.zeros(m)
    seen &= ~away
    for t in range(rounds - 1):
        # A message that is seen is seen while its agent is away.
        seen[t + 1] |= seen[t] & away[t + 1]
    scales = noise.copy()
    if member is not None:
        scales[:, member] = np.inf
        seen[:, member] = True
        for t in range(rounds - 1):
            seen[t] |= factors[t + 1, member] > 0.0
    if draw.random() < 0.5:
        seen[-1] = True
    else:
        weights = draw.uniform(0.0, 1.0, m)
    victim = int(draw.choice([k for k in range(m) if k != member]))
    steps = HiddenRounds(factors, np.arange(rounds), scales, seen, np.zeros((rounds, m)), weights)
    bound = float(hidden_mu(steps, [victim], move)[0])
    rows = [np.eye(rounds * m)[t * m + i] for t in range(rounds) for i in range(m) if seen[t, i] and i != member]
    last = np.zeros(rounds * m)
    last[-m:] = np.where(seen[-1], 0.0, weights)
    view, known = np.array([*rows, last]), np.where(np.isinf(scales), 0.0, noise)

    def shown(signs: Array, signed: Array) -> float:
        moves = np.zeros((rounds, m))
        moves[:, victim] = signed * move[:, victim]
        return exact_mu(np.where(away[:, :, None], np.eye(m), signs * factors), moves, known, view)

    signs, signed = np.ones((rounds, m, m)), np.ones(rounds)
    best = shown(signs, signed)
    for _ in range(150):
        flipped, other = signs.copy(), signed.copy()
        places = draw.random(signs.shape) < 0.15
        flipped[places] = draw.uniform(-1.0, 1.0, int(places.sum()))
        if draw.random() < 0.3:
            other[int(draw.integers(rounds))] *= -1.0
        value = shown(flipped, other)
        if value > best:
            best, signs, signed = value, flipped, other
    assert best <= bound * (1.0 + 1e-6) + 1e-9
