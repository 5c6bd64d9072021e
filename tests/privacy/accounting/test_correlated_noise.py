"""Pairwise correlated noise: costs by hand, Fisher information, and searches that must not exceed the bound."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from decentral_dp.errors import InputError
from decentral_dp.privacy import pair_noise
from decentral_dp.privacy.pair_noise import effective_scale
from decentral_dp.privacy.time_factors import banded_square_root, factor_of


def scales(graph: nx.Graph, c: float) -> csr_matrix:
    return csr_matrix(c * nx.to_numpy_array(graph, nodelist=range(len(graph)), weight=None))


def price(graph: nx.Graph, c: float, own: float = 1.0, colluders: int = 0) -> Any:
    """[Σ⁻¹]_vv."""
    return effective_scale(np.full(len(graph), own), scales(graph, c), colluders) ** -2.0


def information(own: Any, pair: Any, victim: int, colluders: Any) -> float:
    """Information on a shift of v's message in every message, with the draws of Q as further outcomes."""
    m = len(own)
    edges = [(i, j) for i in range(m) for j in range(i) if pair[i, j] > 0.0]
    sources = np.zeros((m, m + len(edges)))
    sources[:, :m] = np.diag(own)
    for e, (i, j) in enumerate(edges):
        sources[i, m + e], sources[j, m + e] = pair[i, j], -pair[i, j]
    told = [*colluders, *(m + e for e, ends in enumerate(edges) if set(ends) & set(colluders))]
    outcomes = np.concatenate([sources, np.eye(m + len(edges))[told]])
    shift = np.zeros(len(outcomes))
    shift[victim] = 1.0
    return float(shift @ np.linalg.pinv(outcomes @ outcomes.T, rcond=1e-12) @ shift)


def random_case(seed: int, agents: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    pair = np.triu(rng.uniform(0.2, 6.0, (agents, agents)) * (rng.random((agents, agents)) < 0.5), 1)
    return rng.uniform(0.5, 2.0, agents), pair + pair.T


def test_known_prices() -> None:
    """Numbers from two independent implementations."""
    assert price(nx.path_graph(2), 4.0)[0] == pytest.approx(17 / 33, abs=1e-12)
    assert price(nx.cycle_graph(16), 4.0)[0] == pytest.approx(0.128712, abs=6e-7)
    star = nx.star_graph(5)
    assert price(star, 4.0).tolist() == pytest.approx([17 / 97, *[0.214069] * 5], abs=6e-7)
    assert price(nx.complete_graph(16), 2.1, 1.3)[0] == pytest.approx(0.049958, abs=6e-7)
    assert price(nx.cycle_graph(16), 2.1, 1.3)[0] == pytest.approx(0.174981, abs=6e-7)
    assert price(nx.cycle_graph(400), 2.1, 1.3)[0] == pytest.approx(0.174961, abs=6e-7)
    assert price(star, 2.1, 1.3)[0] == pytest.approx(0.128223, abs=6e-7)
    # The more is shared, the nearer to one draw of all.
    for graph in (nx.complete_graph(16), nx.cycle_graph(16)):
        assert price(graph, 1e4, 1.3)[0] == pytest.approx(1.0 / (16.0 * 1.69), rel=1e-5)
    # The centre may collude with its leaf.
    assert price(star, 4.0, colluders=1)[1] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_the_information_of_all_that_is_known(seed: int) -> None:
    own, pair = random_case(seed)
    found = effective_scale(own, csr_matrix(pair), 0)
    for v in range(6):
        assert found[v] ** -2.0 == pytest.approx(information(own, pair, v, ()), rel=1e-9)
        assert found[v] ** -2.0 >= information(own, pair, v, ()) * (1.0 - 1e-13)
    for q in (1, 2, 3):
        fewer = effective_scale(own, csr_matrix(pair), q)
        assert (fewer <= 1.002 * found).all()
        found = fewer
        for v in range(6):
            others = [i for i in range(6) if i != v]
            worst = max(information(own, pair, v, known) for known in combinations(others, q))
            assert worst * (1.0 - 1e-9) <= fewer[v] ** -2.0 <= min(1.003 * worst, own[v] ** -2.0 * (1.0 + 1e-12))


@pytest.mark.parametrize("colluders", range(5))
def test_where_all_share_any_colluders_are_alike(colluders: int) -> None:
    """Agents of one scale, the last of which shares nothing: by the inverse of what is left."""
    pair = np.zeros((5, 5))
    pair[:4, :4] = 2.1 * (1.0 - np.eye(4))
    left = max(4 - colluders, 1)
    covariance = 1.69 * np.eye(left) + 4.41 * (left * np.eye(left) - 1.0)
    wanted = np.repeat([np.linalg.inv(covariance)[0, 0] ** -0.5, 1.3], [4, 1])
    found = effective_scale(np.full(5, 1.3), csr_matrix(pair), colluders)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert (found <= wanted).all()


@pytest.mark.parametrize(
    ("graph", "colluders"),
    [
        (nx.cycle_graph(16), 1),
        (nx.complete_graph(16), 3),
        (nx.hypercube_graph(4), 3),
        (nx.grid_2d_graph(6, 6, periodic=True), 3),
    ],
)
def test_many_equal_sets_of_colluders_are_no_obstacle(graph: Any, colluders: int) -> None:
    """Neighbours are the worst here, and any are as bad."""
    known = nx.convert_node_labels_to_integers(graph)
    found = price(known, 4.0, colluders=colluders)
    for k in list(known[0])[:colluders]:
        known.remove_edges_from(list(known.edges(k)))
    assert found == pytest.approx([price(known, 4.0)[0]] * len(found), rel=2e-3)


def test_a_search_that_is_cut_short_still_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    own, pair = random_case(5, 8)
    most = [effective_scale(own, csr_matrix(pair), 2) ** -2.0]
    for branches in (4, 1, 0):
        monkeypatch.setattr(pair_noise, "_BRANCHES", branches)
        most.append(effective_scale(own, csr_matrix(pair), 2) ** -2.0)
    for less, more in pairwise(most):
        assert (less <= 1.002 * more).all()
    assert (most[0] < most[-1]).any()


def joint_information(inverse: Any, own: Any, pair: Any, victim: int, colluders: Any) -> Any:
    """(T, T), of shifts of the victim's messages in all rounds, of noise that C⁻¹ carries on."""
    m, rounds = len(own), len(inverse)
    edges = [(i, j) for i in range(m) for j in range(i) if pair[i, j] > 0.0]
    sources = np.concatenate([np.diag(own), np.zeros((m, len(edges)))], axis=1)
    for e, (i, j) in enumerate(edges):
        sources[i, m + e], sources[j, m + e] = pair[i, j], -pair[i, j]
    told = [*colluders, *(m + e for e, ends in enumerate(edges) if set(ends) & set(colluders))]
    seen = np.concatenate([np.kron(inverse, sources), np.kron(np.eye(rounds), np.eye(m + len(edges))[told])])
    shifts = np.zeros((len(seen), rounds))
    shifts[np.arange(rounds) * m + victim, np.arange(rounds)] = 1.0
    return shifts.T @ np.linalg.pinv(seen @ seen.T, rcond=1e-12) @ shifts


@pytest.mark.parametrize("kind", ["banded square root", "own"])
@pytest.mark.parametrize("seed", range(3))
def test_no_choice_of_colluders_and_signs_exceeds_the_price(kind: str, seed: int) -> None:
    """Hill climbing over sets of two colluders, signs and sizes of contributions, with the joint law written out."""
    rng = np.random.default_rng(seed)
    rounds, (own, pair) = 5, random_case(seed + 20)
    if kind == "own":
        inverse = np.eye(rounds) + np.tril(rng.uniform(-0.8, 0.8, (rounds, rounds)), -1)
        factor = factor_of(inverse)
    else:
        factor = banded_square_root(rounds, 3)
        c = enumerate(factor.noise_weights, 1)
        inverse = np.linalg.inv(np.eye(rounds) + sum(weight * np.eye(rounds, k=-j) for j, weight in c))
    victim = int(np.argmax(np.count_nonzero(pair, axis=1)))
    priced = np.sqrt(np.square(factor.row_sums).sum()) / effective_scale(own, csr_matrix(pair), 2)[victim]
    others = [i for i in range(len(own)) if i != victim]
    largest = 0.0
    for colluders in combinations(others, 2):
        information_of_all = joint_information(inverse, own, pair, victim, colluders)
        moved = rng.uniform(-1.0, 1.0, rounds)
        for _ in range(120):
            trial = moved.copy()
            trial[rng.integers(rounds)] = rng.choice([-1.0, 1.0, rng.uniform(-1.0, 1.0)])
            if trial @ information_of_all @ trial >= moved @ information_of_all @ moved:
                moved = trial
        largest = max(largest, float(np.sqrt(moved @ information_of_all @ moved)))
    assert largest <= priced * (1.0 + 1e-9)
    assert largest >= (0.7 if kind == "own" else 0.998) * priced


@pytest.mark.parametrize("graph", [nx.path_graph(5), nx.star_graph(4)])
@pytest.mark.parametrize("c", [0.01, 4.0, 3e3, 2.0**14])
def test_float64_never_leads_below(graph: nx.Graph, c: float) -> None:
    """Against exact fractions, up to draws for which Σ is singular except for the last bits."""
    m, square = len(graph), Fraction(c) ** 2
    rows = [[Fraction(int(i == j)) for j in range(m)] for i in range(m)]
    for i, j in graph.edges:
        for k, other in ((i, j), (j, i)):
            rows[k][k] += square
            rows[k][other] -= square
    found = price(graph, c)
    for v in range(m):
        # Everybody else is eliminated.
        left = [row[:] for row in rows]
        for k in (k for k in range(m) if k != v):
            for i in range(m):
                if i != k and left[i][k]:
                    factor = left[i][k] / left[k][k]
                    left[i] = [a - factor * b for a, b in zip(left[i], left[k], strict=True)]
        assert float(1 / left[v][v]) * (1.0 - 1e-15) <= found[v] <= float(1 / left[v][v]) * (1.0 + 1e-4)


def test_draws_used_again_protect_nothing() -> None:
    """Two rounds with one draw: opposite contributions cost √2, as without the edges; those of one sign do not."""
    for graph, same in ((nx.path_graph(2), None), (nx.cycle_graph(16), 0.445309)):
        m, shared = len(graph), nx.laplacian_matrix(graph).toarray()
        inverse = np.linalg.inv(np.eye(2 * m) + 16.0 * np.kron(np.ones((2, 2)), shared))[::m, ::m]
        assert np.sqrt(np.abs(inverse).sum()) == pytest.approx(2.0**0.5, abs=1e-12)
        assert same is None or np.sqrt(inverse.sum()) == pytest.approx(same, abs=6e-7)
    # Priced as if they were fresh.
    assert np.sqrt(2.0) / effective_scale(np.ones(2), scales(nx.path_graph(2), 4.0), 0)[0] < 1.02


@pytest.mark.parametrize(
    ("own", "pair", "colluders", "said"),
    [
        (np.array([0.0, 1.0]), np.zeros((2, 2)), 0, "above 0"),
        (np.ones(2), np.array([[0.0, 1.0], [2.0, 0.0]]), 0, "both ends"),
        (np.ones(2), np.eye(2), 0, "both ends"),
        (np.ones(2), np.zeros((2, 2)), -1, "-1 colluders"),
        (np.ones(2), np.array([[0.0, np.inf], [np.inf, 0.0]]), 0, "finite"),
    ],
)
def test_scales_that_mean_nothing_are_refused(own: Any, pair: Any, colluders: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        effective_scale(own, csr_matrix(pair), colluders)
