"""How much of their noise neighbours share: against a closed form, and against the best covariance of all."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from decentral_dp.privacy.pair_noise import LEAST, MOST, best_ratio, best_scales, effective_scale, error_weights


def linked(graph: nx.Graph) -> tuple[Any, csr_matrix]:
    """Metropolis weights of all models, the own one included, and the links."""
    m, degree = len(graph), max(dict(graph.degree).values())
    links = nx.to_numpy_array(graph, nodelist=range(m))
    mixed = links / (1.0 + degree)
    return mixed + np.diag(1.0 - mixed.sum(axis=1)), csr_matrix(links)


def error(mixed: Any, links: csr_matrix, rounds: int, ratio: float, colluders: int = 0) -> float:
    """tr(MΣ) at an effective scale of 1, by what each unit draw leaves in the models."""
    scale = effective_scale(np.ones(len(mixed)), ratio * links, colluders).min()
    starts, ends = np.nonzero(np.triu(links.toarray()))
    pairs = np.eye(len(mixed))[starts] - np.eye(len(mixed))[ends]
    draws = np.concatenate([np.eye(len(mixed)), ratio * pairs]).T / scale
    total, left = 0.0, draws
    for k in range(rounds):
        left = mixed @ left
        # The noise of round 0 is k + 1 rounds old in round k; those of later rounds as old later.
        total += (rounds - k) * float(np.square(left).sum())
    return total / (rounds * len(mixed))


def test_weights_are_the_error_of_what_is_left_in_the_models() -> None:
    mixed, links = linked(nx.path_graph(5))
    weights = error_weights(mixed, 7)
    assert np.trace(weights) == pytest.approx(error(mixed, links, 7, 0.0), rel=1e-12)


@pytest.mark.parametrize("colluders", [0, 1])
@pytest.mark.parametrize("graph", [nx.cycle_graph(16), nx.star_graph(5), nx.path_graph(6)])
def test_no_ratio_errs_less(graph: nx.Graph, colluders: int) -> None:
    mixed, links = linked(graph)
    found = error(mixed, links, 40, best_ratio(mixed, links, 40, colluders), colluders)
    tried = [error(mixed, links, 40, ratio, colluders) for ratio in np.geomspace(LEAST, MOST, 61)]
    assert found <= min(tried) * (1.0 + 1e-3)


def test_a_ring_comes_near_the_least_error_of_all() -> None:
    mixed, links = linked(nx.cycle_graph(16))
    weights = error_weights(mixed, 100)
    least = np.sqrt(np.linalg.eigvalsh(weights)).sum() ** 2 / 16
    found = error(mixed, links, 100, best_ratio(mixed, links, 100, 0))
    assert error(mixed, links, 100, 0.0) == pytest.approx(4.519992, abs=1e-6)
    assert least == pytest.approx(1.422617, abs=1e-6)
    assert least < found < 1.04 * least


@pytest.mark.parametrize("colluders", [0, 1])
@pytest.mark.parametrize(
    ("graph", "gain"),
    [(nx.cycle_graph(8), 1.0), (nx.path_graph(12), 0.78), (nx.gnp_random_graph(12, 0.4, seed=2), 1.0)],
)
def test_scales_of_each_link_err_less_where_agents_differ(graph: nx.Graph, gain: float, colluders: int) -> None:
    mixed, links = linked(graph)
    own, pair = best_scales(mixed, links, 50, colluders)
    scales = effective_scale(own, pair, colluders)
    assert scales.min() == pytest.approx(1.0, abs=1e-9)
    # Whoever is protected better than need be has noise to spare, but for a floor of its own.
    assert (scales < 1.03)[own > 0.26].all()
    assert own.min() > 0.24
    weights, shared = error_weights(mixed, 50), pair.toarray() ** 2
    spread = np.diag(own**2 + shared.sum(axis=1)) - shared
    found = float((weights * spread).sum())
    least = np.sqrt(np.maximum(np.linalg.eigvalsh(weights), 0.0)).sum() ** 2 / len(mixed)
    ratio = best_ratio(mixed, links, 50, colluders)
    assert least * (1.0 - 1e-9) <= found <= gain * 1.001 * error(mixed, links, 50, ratio, colluders)
    # No small change of scales errs less at the same price.
    rng = np.random.default_rng(0)
    for _ in range(40):
        other = own * rng.lognormal(0.0, 0.05, own.size)
        turned = csr_matrix(np.triu(pair.toarray() * rng.lognormal(0.0, 0.05, pair.shape)))
        turned = csr_matrix(turned + turned.T)
        changed = turned.toarray() ** 2
        spread = np.diag(other**2 + changed.sum(axis=1)) - changed
        assert float((weights * spread).sum()) / effective_scale(other, turned, colluders).min() ** 2 >= found * (
            1.0 - 5e-3
        )
