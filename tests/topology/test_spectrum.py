"""Spectra of large graphs, compared with closed forms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.topology import from_file


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
