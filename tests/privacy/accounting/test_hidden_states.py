"""μ against adversaries that see published models only: closed forms, and values of another solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.hidden_states import HiddenRounds, hidden_mu


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
    members: Sequence[int] = (), weights: Any = None, most_cells: int | None = None,
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
    steps = HiddenRounds(factors[None], np.zeros(rounds, dtype=np.int64), scales, seen, np.zeros((rounds, m)), w)
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
