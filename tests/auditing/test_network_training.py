"""Prices against neighbours in training: known numbers, another solver, systems and attacks that may not exceed it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from decentral_dp.auditing.network_gossip import pairwise
from decentral_dp.privacy.accounting.hidden_states import HiddenRounds, hidden_mu
from decentral_dp.simulation.jobs.published import step_factor


def neighbour_mu(coupled: HiddenRounds, victim: int, moved: Any) -> float:
    """Return the privacy cost μ of one victim."""
    movement = np.repeat(moved[:, None], coupled.noise.shape[1], axis=1)
    return float(hidden_mu(coupled, [victim], movement)[0])


def metropolis(graph: nx.Graph) -> Any:
    """I + W."""
    n, degree = len(graph), max(dict(graph.degree).values())
    links = nx.to_numpy_array(graph, nodelist=range(n)) / (1 + degree)
    return links + np.diag(1.0 - links.sum(axis=1))


def watched(mixed: Any, observer: int, rounds: int, factor: float = 1.0) -> HiddenRounds:
    m = len(mixed)
    seen = np.zeros((rounds, m), dtype=bool)
    seen[:, mixed[observer] != 0.0] = True
    noise = np.ones((rounds, m))
    noise[:, observer] = np.inf
    return HiddenRounds(
        factor * mixed[None], np.zeros(rounds, dtype=np.int64), noise, seen, np.zeros((rounds, m)), np.zeros(m)
    )


def with_factors(coupled: HiddenRounds, factors: Any) -> HiddenRounds:
    """Replace R of each round."""
    return coupled._replace(factors=np.stack(factors), factor_index=np.arange(len(factors)))


def each_round(coupled: HiddenRounds) -> Any:
    """R of each round."""
    return coupled.factors[coupled.factor_index]


def always(rounds: int, size: float = 1.0) -> Any:
    return np.full(rounds, size)


def once(rounds: int, size: float) -> Any:
    return np.concatenate([[size], np.zeros(rounds - 1)])


RING = metropolis(nx.cycle_graph(16))
# Numbers of two readers, by their own code.
CASES: dict[str, tuple[Any, int, int, Any, float, float]] = {
    "path of 4, read once": (metropolis(nx.path_graph(4)), 3, 0, once(60, 2.0), 0.402705, 0.398925),
    "path of 3, read once": (metropolis(nx.path_graph(3)), 2, 0, once(60, 2.0), 0.778172, 0.778172),
    "path of 5, read once": (metropolis(nx.path_graph(5)), 4, 0, once(60, 2.0), 0.251811, 0.248234),
    "star": (metropolis(nx.star_graph(5)), 2, 1, always(2, 2.0), 2 / 37**0.5, 2 / 40**0.5),
    "path of 3": (metropolis(nx.path_graph(3)), 2, 0, once(2, 2.0), 2 / 10**0.5, 2 / 10**0.5),
    "ring, 1 link": (RING, 0, 1, always(100), 10.0, 5.975672),
    "ring, 2 links": (RING, 0, 2, always(100), 5.394821, 4.769879),
    "ring, 3 links": (RING, 0, 3, always(100), 4.021001, 3.880921),
    "ring, 8 links": (RING, 0, 8, always(100), 1.771445, 1.765808),
}


def linear_mu(mixed: Any, observer: int, victim: int, moved: Any, share: Any = None) -> float:
    """share: (m,) 1 − ηh of each agent's quadratic loss, by default 1."""
    pushed = np.zeros((len(moved), len(mixed)))
    pushed[:, victim] = moved
    first = np.arange(len(moved))[:, None] == np.zeros(len(mixed))
    off, still = mixed - np.eye(len(mixed)), np.zeros(len(moved))
    kept = np.ones_like(pushed) if share is None else np.broadcast_to(share, pushed.shape)
    return float(pairwise(off, still, pushed, np.ones_like(pushed), [[observer]], first, kept).mu[0, victim])


@pytest.mark.parametrize("case", CASES)
def test_numbers_of_paths_stars_and_rings(case: str) -> None:
    mixed, observer, victim, moved, wanted, linear = CASES[case]
    assert neighbour_mu(watched(mixed, observer, len(moved)), victim, moved) == pytest.approx(wanted, abs=6e-7)
    assert linear_mu(mixed, observer, victim, moved) == pytest.approx(linear, abs=6e-7)


def by_least_squares(coupled: HiddenRounds, victim: int, moved: Any) -> float:
    """The same problem, dense, by a solver of scipy."""
    rounds, m = coupled.noise.shape
    scale = 1.0 / coupled.noise
    matrix, right = np.zeros((rounds * m, rounds * m)), np.zeros(rounds * m)
    for t in range(rounds):
        rows = slice(t * m, (t + 1) * m)
        matrix[rows, rows] = -np.diag(scale[t])
        if t:
            matrix[rows, slice((t - 1) * m, t * m)] = scale[t][:, None] * each_round(coupled)[t]
        right[t * m + victim] = scale[t, victim] * moved[t]
    free = ~coupled.observed.ravel()
    found = lsq_linear(matrix[:, free], -right, bounds=(0.0, np.inf), tol=1e-14, method="bvls")
    return float(np.sqrt(2.0 * found.cost))


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_another_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(6, 0.5, seed=seed)
    graph.add_edges_from(nx.path_graph(6).edges)
    coupled = watched(metropolis(graph), 0, 5)
    coupled = with_factors(coupled, [f * rng.uniform(0.3, 1.6) for f in each_round(coupled)])
    coupled = coupled._replace(noise=coupled.noise * rng.uniform(0.3, 3.0, coupled.noise.shape))
    moved = rng.uniform(0.0, 2.0, 5)
    for victim in range(1, 6):
        found = neighbour_mu(coupled, victim, moved)
        assert found == pytest.approx(by_least_squares(coupled, victim, moved), rel=1e-7)
        # Every d gives a bound, at most μ of all messages.
        assert found <= np.sqrt(np.square(moved / coupled.noise[:, victim]).sum()) * (1 + 1e-9)


def with_silent_agents(coupled: HiddenRounds, seed: int) -> HiddenRounds:
    """Some agents keep their last message in some rounds, without noise, and do not send it."""
    rng = np.random.default_rng(seed)
    rounds, m = coupled.noise.shape
    silent = rng.random((rounds, m)) < 0.4
    silent[np.isinf(coupled.noise)] = False
    factors = each_round(coupled).copy()
    for t in range(rounds):
        factors[t][silent[t]] = np.eye(m)[silent[t]]
        if t:
            factors[t][np.ix_(~silent[t], silent[t - 1])] *= np.eye(m)[np.ix_(~silent[t], silent[t - 1])]
    return with_factors(coupled, factors)._replace(
        noise=np.where(silent, 0.0, coupled.noise), observed=coupled.observed & ~silent
    )


def by_elimination(coupled: HiddenRounds, victim: int, moved: Any) -> float:
    """Solve the same problem in the d of noisy hidden messages: every d is affine in them."""
    rounds, m = coupled.noise.shape
    free = np.argwhere(~coupled.observed & (coupled.noise > 0.0)).tolist()
    before, rows = np.zeros((m, len(free) + 1)), []
    for t in range(rounds):
        arrives = each_round(coupled)[t] @ before
        arrives[victim, -1] += moved[t]
        before = np.where(coupled.noise[t][:, None] == 0.0, arrives, 0.0)
        for column, (when, agent) in enumerate(free):
            if when == t:
                before[agent, column] = 1.0
        noisy = (coupled.noise[t] > 0.0) & np.isfinite(coupled.noise[t])
        rows.append((arrives - before)[noisy] / coupled.noise[t][noisy, None])
    matrix = np.concatenate(rows)
    found = lsq_linear(matrix[:, :-1], -matrix[:, -1], bounds=(0.0, np.inf), tol=1e-14, method="bvls")
    return float(np.sqrt(2.0 * found.cost))


@pytest.mark.parametrize("seed", range(6))
def test_messages_without_noise_are_priced_as_what_they_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(6, 0.5, seed=seed)
    graph.add_edges_from(nx.path_graph(6).edges)
    coupled = watched(metropolis(graph), 0, 6)
    coupled = with_silent_agents(coupled._replace(noise=coupled.noise * rng.uniform(0.3, 3.0, (6, 6))), seed)
    for victim in range(1, 6):
        moved = rng.uniform(0.0, 2.0, 6) * (coupled.noise[:, victim] > 0.0)
        found, wanted = neighbour_mu(coupled, victim, moved), by_elimination(coupled, victim, moved)
        assert wanted * (1.0 - 1e-9) <= found <= wanted * (1.0 + 1e-6) + 1e-9
        assert system_mu(each_round(coupled), coupled, victim, moved) <= found * (1.0 + 1e-9)
        assert found <= np.linalg.norm(moved[moved > 0.0] / coupled.noise[moved > 0.0, victim]) * (1.0 + 1e-9)


def test_a_message_without_noise_that_is_seen_has_no_price() -> None:
    """Unless its inputs are equal: v – h – o, where h sends without noise."""
    path = watched(metropolis(nx.path_graph(3)), 2, 3)
    noise = path.noise.copy()
    noise[2, 1] = 0.0
    silent = path._replace(noise=noise)
    # The last message of v is not seen.
    assert neighbour_mu(silent, 0, np.array([0.0, 0.0, 1.0])) == 0.0
    # k = 0 in earlier rounds keeps them from it.
    assert neighbour_mu(silent, 0, always(3)) == pytest.approx(2.0**0.5)
    noise[1, 0] = 0.0
    assert neighbour_mu(silent, 0, always(3)) == np.inf


def system_mu(factors: Any, coupled: HiddenRounds, victim: int, moved: Any) -> float:
    """μ of the linear system m_t = F_t m_{t−1} + moved_t e_v + noise, by the covariance of all that is seen."""
    rounds, m = coupled.noise.shape
    own = np.where(np.isinf(coupled.noise), 0.0, coupled.noise)
    mean, means, shares = np.zeros(m), [], []
    share = np.zeros((m, 0))
    for t in range(rounds):
        mean = factors[t] @ mean + moved[t] * np.eye(m)[victim]
        share = np.concatenate([factors[t] @ share, np.diag(own[t])], axis=1)
        # The observer knows its own noise, and its messages are functions of received ones.
        told = coupled.observed[t] & ~np.isinf(coupled.noise[t])
        means.append(mean[told])
        shares.append(np.pad(share[told], ((0, 0), (0, (rounds - 1 - t) * m))))
    a, b = np.concatenate(means), np.concatenate(shares)
    return float(np.sqrt(a @ np.linalg.pinv(b @ b.T, rcond=1e-13) @ a))


def test_a_view_without_a_neighbour_would_show() -> None:
    """A linear system exceeds the bound of a view without one of its messages."""
    coupled = watched(metropolis(nx.path_graph(4)), 3, 6)
    blind = coupled.observed.copy()
    blind[:, 2] = False
    shown = system_mu(each_round(coupled), coupled, 0, always(6))
    assert shown <= neighbour_mu(coupled, 0, always(6))
    # Nothing is seen then but the observer's own messages, and no input of it may be hidden.
    with pytest.raises(ValueError, match="must see all inputs"):
        neighbour_mu(coupled._replace(observed=blind), 0, always(6))


def test_a_message_travels_on_the_graph_of_the_next_round() -> None:
    """Agents v, h, o: edge v – h in round 0, h – o in round 1, v – o never. A view shifted by a round is detected."""
    linked = [np.eye(3), np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]), np.eye(3)]
    linked += [np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])]
    # Round t mixes by the graph t, and its message travels on the graph t + 1.
    noise = np.ones((3, 3))
    noise[:, 2] = np.inf
    seen = np.array([linked[t + 1][2] != 0.0 for t in range(3)])
    coupled = HiddenRounds(np.stack(linked[:3]), np.arange(3), noise, seen, np.zeros((3, 3)), np.zeros(3))
    shown = system_mu(each_round(coupled), coupled, 0, once(3, 2.0))
    assert 0.6 < shown <= neighbour_mu(coupled, 0, once(3, 2.0))
    early = coupled._replace(observed=np.array([linked[t][2] != 0.0 for t in range(3)]))
    assert neighbour_mu(early, 0, once(3, 2.0)) < 1e-9


def test_noise_of_the_observer_hides_nothing() -> None:
    """Path v – h – o, D = 2 once, 3 rounds. If o's messages were all that it saw, and its noise hid: 0.2097."""
    coupled, moved = watched(metropolis(nx.path_graph(3)), 2, 3), once(3, 2.0)
    right = neighbour_mu(coupled, 0, moved)
    assert right == pytest.approx(0.733799, abs=6e-7)
    assert by_least_squares(coupled, 0, moved) == pytest.approx(0.733799, abs=6e-7)
    assert system_mu(each_round(coupled), coupled, 0, moved) <= right * (1.0 + 1e-9)
    blind = coupled._replace(observed=np.array([[False, False, True]] * 3))
    assert neighbour_mu(blind._replace(noise=np.ones((3, 3))), 0, moved) == pytest.approx(0.209657, abs=6e-7)
    with pytest.raises(ValueError, match="must see all inputs"):
        neighbour_mu(blind, 0, moved)


@pytest.mark.parametrize(
    ("moved", "known"), [(0.1, 1.0127), (0.5, 1.0690), (1.0, 1.1547), (1.5, 1.2649), (2.0, 1.4142)]
)
def test_no_jacobian_exceeds_the_factor_and_some_reach_it(moved: float, known: float) -> None:
    """Random M and ĝ, and the best of two dimensions, against (1 − a/4)^(−1/2)."""
    bound = step_factor(1.0, moved, 1.0, 0.0, scalar=False)
    assert float(bound) == pytest.approx(known, abs=6e-5)
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(3000):
        d = int(rng.integers(2, 5))
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        m = basis @ np.diag(moved * rng.random(d) ** rng.choice([0.1, 1.0, 10.0])) @ basis.T
        g = rng.standard_normal(d)
        clipped = np.eye(d) - np.outer(g, g) / (g @ g)
        largest = max(largest, float(np.linalg.norm(np.eye(d) - rng.random() * clipped @ m, 2)))
    assert largest <= bound
    angles = np.linspace(0.0, np.pi, 20001)
    a = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # M = a aaᵀ, ĝ = e_1: the Jacobian is I − e_2 e_2ᵀ M.
    jacobian = np.broadcast_to(np.eye(2), (len(a), 2, 2)).copy()
    jacobian[:, 1, :] -= moved * a[:, 1:] * a
    assert np.linalg.norm(jacobian, 2, axis=(1, 2)).max() == pytest.approx(float(bound), rel=1e-6)
    # One plus the step is what holds of any loss; it is far above.
    assert float(bound) < 1.0 + moved


def test_what_float64_adds_is_added() -> None:
    coupled = watched(RING, 0, 20)
    little = coupled._replace(rounding=np.full(coupled.noise.shape, 1e-3))
    without, with_it = (neighbour_mu(c, 4, always(20)) for c in (coupled, little))
    assert without < with_it <= without + 1e-3 * np.sqrt(20 * 15)
    assert neighbour_mu(coupled._replace(rounding=np.full(coupled.noise.shape, np.inf)), 4, always(20)) == np.inf
