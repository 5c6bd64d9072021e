"""Spectra of large graphs, against closed forms that the code does not see, and optimised weights."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.topology import build, from_file
from decentral_dp.topology.spectrum import _lanczos
from tests.support.topology_oracle import check, example, graph_of


def write_edges(path: Path, edges: Any) -> Path:
    path.write_text("\n".join(["source,target", *(f"{a},{b}" for a, b in edges)]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("graph", "low", "high"),
    [
        (lambda: nx.cycle_graph(3000), 2 - 2 * math.cos(2 * math.pi / 3000), 4.0),
        (
            lambda: nx.grid_2d_graph(30, 40),
            2 - 2 * math.cos(math.pi / 40),
            4 + 2 * math.cos(math.pi / 40) + 2 * math.cos(math.pi / 30),
        ),
        (
            lambda: nx.grid_2d_graph(25, 40, periodic=True),
            2 - 2 * math.cos(2 * math.pi / 40),
            6 + 2 * math.cos(math.pi / 25),
        ),
        (lambda: nx.hypercube_graph(10), 2.0, 20.0),
        (lambda: nx.star_graph(999), 1.0, 1000.0),
        (lambda: nx.complete_bipartite_graph(400, 300), 300.0, 700.0),
        (lambda: nx.complete_graph(650), 650.0, 650.0),
        (lambda: nx.barbell_graph(350, 0), None, None),
    ],
)
def test_large_spectra_from_files(graph: Any, low: float | None, high: float | None, tmp_path: Path) -> None:
    """Files bring no closed form, so these are found numerically."""
    graph = nx.convert_node_labels_to_integers(graph())
    path = write_edges(tmp_path / "large.csv", graph.edges)
    value = 0.5 / max(d for _, d in graph.degree)
    topology = from_file(path, {"kind": "constant", "value": value})
    if low is None or high is None:
        values = np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))
        low, high = float(values[1]), float(values[-1])
    assert topology.delta2 / value == pytest.approx(low, rel=1e-6)
    assert topology.delta_max / value == pytest.approx(high, rel=1e-5)


def test_lanczos_keeps_the_constant_vector_out() -> None:
    """Rounding lets it in unless it is removed at every step; its eigenvalue 0 would then pass for λ₂."""
    expander = build("random_regular", 1500, {"degree": 8}, {"kind": "constant", "value": 0.05})
    values = np.linalg.eigvalsh(-expander.mixing.toarray())
    assert _lanczos(-expander.mixing) == pytest.approx((values[1], values[-1]), rel=1e-9)


# Optimised weights


@pytest.mark.parametrize("kind", ["ring", "path", "star", "grid", "complete", "erdos_renyi"])
def test_optimised_is_never_worse_than_metropolis(kind: str) -> None:
    best, plain = example(kind, "optimised"), example(kind)
    check(best)
    assert best.rho <= plain.rho
    # Exactly zero, in any order of summation.
    w = best.mixing.toarray()
    if kind != "complete":
        assert {math.fsum(row) for row in w} == {0.0}
        np.testing.assert_array_equal(w[:, ::-1].cumsum(axis=1)[:, -1], 0.0)


@pytest.mark.parametrize(("kind", "agents"), [("ring", 10), ("hypercube", 16), ("torus", 16), ("circular_ladder", 10)])
def test_optimised_on_symmetric_graphs_is_the_best_constant(kind: str, agents: int) -> None:
    """Where all links are alike the optimum is constant: w = 2/(λ₂ + λ_m), ρ = (λ_m − λ₂)/(λ_m + λ₂)."""
    values = np.linalg.eigvalsh(nx.laplacian_matrix(graph_of(build(kind, agents))).toarray().astype(float))
    constant = (values[-1] - values[1]) / (values[-1] + values[1])
    rho = build(kind, agents, weights="optimised").rho
    if kind == "circular_ladder":
        # Rungs and rings differ, so a better choice than any constant exists.
        assert rho < constant - 1e-3
    else:
        assert rho == pytest.approx(constant, abs=1e-6)


def test_optimised_leaves_out_useless_links() -> None:
    topology = from_file("karate_club", "optimised")
    check(topology)
    assert topology.rho < from_file("karate_club").rho - 0.03
    assert len(topology.edges) < 78
    assert topology.notes[1:] == (f"optimised weights leave {78 - len(topology.edges)} of 78 links unused",)


def test_optimised_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(InputError, match=r'pip install "decentral_dp\[optimise\]"'):
        build("ring", 10, weights="optimised")
