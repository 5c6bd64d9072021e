"""Every wrong name, value and number of agents gets one sentence that says how to mend it."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.topology import build, from_edges, graphs
from decentral_dp.topology.graphs import GENERATORS, generate
from tests.support.topology_oracle import THIRD, graph_of, naive, svd_rho


def test_constant_weights_on_five_regular_graphs() -> None:
    seen = []
    for seed in range(60):
        with pytest.raises(InputError) as caught:
            build("random_regular", 10, {"degree": 5}, THIRD, seed)
        text = str(caught.value)
        assert text.startswith("topology.weights: constant 0.3 on this 5-regular graph gives ρ = ")
        rho, bound = float(text.split("ρ = ")[1].split(",")[0]), float(text.split("a value below ")[1].rstrip("."))
        seen.append(rho)
        edges = build("random_regular", 10, {"degree": 5}, seed=seed)
        assert rho == pytest.approx(svd_rho(naive(edges, "constant", 0.3)), abs=5.1e-3)
        # The named bound is 2/λ_max, rounded down: below it all is well, and 1 % more is too much.
        assert build("random_regular", 10, {"degree": 5}, {"kind": "constant", "value": bound * 0.9999}, seed).rho < 1
        with pytest.raises(InputError):
            build("random_regular", 10, {"degree": 5}, {"kind": "constant", "value": bound * 1.01}, seed)
        assert bound == pytest.approx(2 / ((1 + rho) / 0.3), rel=1e-2)
    # Rare graphs reach 1.17; K5,5 has 2, and no 5-regular graph more.
    assert min(seen) >= 1.17
    assert max(seen) <= 2.0
    assert 1.35 < float(np.median(seen)) < 1.5
    assert 1.47 in seen


@pytest.mark.parametrize(("kind", "params"), [("random_regular", {"degree": 8}), ("star", {}), ("complete", {})])
def test_constant_weights_refused_at_two(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r'gives ρ = 2\.00, .* Use "metropolis", or a value below 0\.2\.$'):
        build(kind, 10, params, THIRD)


def test_the_boundary_is_refused() -> None:
    with pytest.raises(InputError, match=r"ρ = 1\.00, .* below 0\.5\.$"):
        build("ring", 10, weights={"kind": "constant", "value": 0.5})
    assert build("ring", 10, weights={"kind": "constant", "value": 0.499}).rho < 1


REFUSED: list[tuple[str, Any, dict[str, Any], Any, str]] = [
    ("rign", 10, {}, "metropolis", 'topology.kind: got "rign", .* did you mean "ring"'),
    ("ring", 1, {}, "metropolis", 'needs at least 2 agents, got 1; .*kind = "complete" for one agent alone'),
    ("ring", 0, {}, "metropolis", "at least 2 agents, got 0"),
    ("complete", -3, {}, "metropolis", "at least 1 agents, got -3"),
    ("ring", 10.0, {}, "metropolis", "topology.agents: got 10.0, wanted a whole number"),
    ("ring", True, {}, "metropolis", "topology.agents: got True"),
    (
        "ring",
        10,
        {"degree": 3},
        "metropolis",
        "topology.degree: ring takes no such key; it takes agents, weights, seed",
    ),
    ("ring", 10, {"agent": 3}, "metropolis", 'topology.agent: ring takes no such key; did you mean "agents"'),
    (
        "star",
        10,
        {"wieghts": 3},
        "metropolis",
        r'"weights".* replace the whole table: topology = {kind = "star", agents',
    ),
    ("random_regular", 10, {"degre": 3}, "metropolis", 'topology.degre: .* did you mean "degree"'),
    ("random_regular", 10, {}, "metropolis", "degree is missing; give a whole number"),
    ("random_regular", 10, {"degree": "3"}, "metropolis", "degree = '3', wanted a whole number"),
    ("random_regular", 10, {"degree": 0}, "metropolis", "degree = 0, wanted a whole number of at least 1"),
    ("random_regular", 10, {"degree": 10}, "metropolis", "use a degree of at most 9"),
    ("random_regular", 10, {"degree": 1}, "metropolis", "a degree of at least 2"),
    ("random_regular", 9, {"degree": 3}, "metropolis", "even number .* got 9; use 8 or 10"),
    ("hypercube", 10, {}, "metropolis", "power of two agents, got 10; use 8 or 16"),
    ("grid", 7, {}, "metropolis", "got 7; use 8"),
    ("torus", 10, {}, "metropolis", "got 10; use 12"),
    ("grid", 12, {"rows": 5}, "metropolis", "5 × 2 for 12 agents"),
    ("grid", 12, {"rows": 30}, "metropolis", "30 × 0 for 12 agents"),
    ("torus", 12, {"rows": 2}, "metropolis", "2 × 6 for 12 agents, wanted sides of at least 3"),
    ("circular_ladder", 9, {}, "metropolis", "even number of agents, got 9; use 8 or 10"),
    ("small_world", 10, {"degree": 3}, "metropolis", "wanted a whole number of at least 2 and divisible by 2"),
    ("small_world", 4, {"degree": 4}, "metropolis", "more than degree = 4 agents, got 4"),
    ("small_world", 10, {"rewire": 1.5}, "metropolis", "rewire = 1.5, wanted a number of at least 0 and of at most 1"),
    ("geometric", 40, {"radius": 0.05}, "metropolis", r"all disconnected; use a radius above 0\.304"),
    ("bipartite", 4, {"left": 4}, "metropolis", "more than left = 4 agents, got 4"),
    ("preferential_attachment", 4, {"attach": 4}, "metropolis", "more than attach = 4 agents"),
    ("erdos_renyi", 10, {"probability": math.nan}, "metropolis", "probability = nan, wanted"),
    (
        "erdos_renyi",
        40,
        {"probability": 0.02},
        "metropolis",
        r"all disconnected; use a probability well above .* 0\.0922",
    ),
    ("complete", 100_000, {}, "metropolis", r"about 5e\+09 edges"),
    ("erdos_renyi", 100_000, {"probability": 0.5}, "metropolis", r"about 2.5e\+09 edges"),
    ("ring", 10, {}, "metroplis", 'topology.weights: got "metroplis", .* did you mean "metropolis"'),
    ("ring", 10, {}, {}, r'topology.weights: got \{\}, wanted a name or a table with kind = "'),
    ("ring", 10, {}, "constant", r"value is missing; give a number above 0, as in weights = \{ kind = \"const"),
    (
        "ring",
        10,
        {"value": 0.3},
        "metropolis",
        r"topology.value: no parameter of ring; it belongs to the weights: weig",
    ),
    ("karate_club", 10, {}, "metropolis", 'replace kind and agents by file = "karate_club"'),
    ("ring", 10, {}, {"kind": "constant", "value": 0.0}, "value = 0.0, wanted"),
    ("ring", 10, {}, {"kind": "constant", "value": -0.1}, "value = -0.1, wanted"),
    ("ring", 10, {}, {"kind": "constant", "value": math.inf}, "value = inf, wanted"),
    ("ring", 10, {}, {"kind": "constant", "valeu": 0.1}, 'got "valeu", .* did you mean "value"'),
    ("ring", 10, {}, {"value": 0.1}, "wanted a name or a table"),
    ("ring", 10, {}, {"kind": "metropolis", "value": 0.1}, 'got "value", which is not known; remove it'),
    ("ring", 10, {}, "file", '"file" needs a file'),
    ("ring", 300, {}, "optimised", "feasible up to 200 agents, got 300"),
]


@pytest.mark.parametrize(("kind", "agents", "params", "weights", "message"), REFUSED)
def test_refusals(kind: str, agents: Any, params: dict[str, Any], weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build(kind, agents, params, weights)
    assert "\n" not in str(caught.value)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed: got -1"):
        build("expander", 10, seed=-1)


def test_half_of_the_two_regular_samples_fall_apart_and_none_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "TRIES", 1)
    for seed in range(20):
        topology = build("random_regular", 10, {"degree": 2}, seed=seed)
        assert nx.is_isomorphic(graph_of(topology), nx.cycle_graph(10))


def test_agents_that_are_fractions_are_refused() -> None:
    """(0, 1.5) ran as (0, 1)."""
    with pytest.raises(InputError, match="no whole numbers"):
        from_edges(np.array([[0, 1.5], [1, 2]]))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_more_agents_than_edges_that_are_built_are_refused_at_once(kind: str) -> None:
    with pytest.raises(InputError, match=r"^topology"):
        generate(kind, 2**31 + 2, {}, seed=0)
