"""Errors for wrong names, values and numbers of agents."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.topology import build_topology, from_edges
from decentral_dp.topology.graphs import generate
from tests.support.topology_oracle import THIRD, naive, svd_rho


@pytest.mark.parametrize("seed", range(2))
def test_constant_weights_on_five_regular_graphs(seed: int) -> None:
    """Refused with ρ of the naive matrix, and with the factor λ_max/2 that the weights are too large by."""
    with pytest.raises(InputError, match=r"topology\.weights: constant 0\.3") as caught:
        build_topology("random_regular", 10, {"degree": 5}, THIRD, seed)
    rho, factor = (float(v) for v in re.findall(r"(?:ρ = |the factor )(\d+\.\d+)", str(caught.value)))
    edges = build_topology("random_regular", 10, {"degree": 5}, seed=seed)
    assert rho == pytest.approx(svd_rho(naive(edges, "constant", 0.3)), abs=5.1e-3)
    bound = {"kind": "constant", "value": 0.3 / factor}
    for share, fits in ((0.999, True), (1.01, False)):
        with nullcontext() if fits else pytest.raises(InputError):
            build_topology("random_regular", 10, {"degree": 5}, bound | {"value": share * bound["value"]}, seed)


def test_the_boundary_is_refused() -> None:
    with pytest.raises(InputError, match=r"ρ = 1\.00"):
        build_topology("ring", 10, weights={"kind": "constant", "value": 0.5})
    assert build_topology("ring", 10, weights={"kind": "constant", "value": 0.499}).rho < 1


# Names, values and numbers of agents, each refused in another place; weights are "metropolis" unless given.
REFUSED: list[tuple[str, Any, dict[str, Any], Any, str]] = [
    ("rign", 10, {}, None, 'topology.kind: .* did you mean "ring"'),
    ("fully_connected", 10, {}, None, 'did you mean "complete"'),
    ("ring", 1, {}, None, "at least 2 agents"),
    ("ring", 10, {"degree": 3}, None, "degree"),
    ("random_regular", 10, {}, None, "degree is missing"),
    ("random_regular", 10, {"degree": "3"}, None, "degree = '3'"),
    ("random_regular", 10, {"degree": 10}, None, "more than degree = 10"),
    ("random_regular", 9, {"degree": 3}, None, "an even number of agents"),
    ("hypercube", 10, {}, None, "power of two agents"),
    ("grid", 7, {}, None, "sides of at least 2"),
    ("torus", 12, {"rows": 2}, None, "sides of at least 3"),
    ("circular_ladder", 9, {}, None, "even number of agents"),
    ("small_world", 10, {"degree": 3}, None, "divisible by 2"),
    ("preferential_attachment", 4, {"attach": 4}, None, "more than attach = 4 agents"),
    ("erdos_renyi", 40, {"probability": 0.02}, None, "all disconnected. Fix: use a probability"),
    ("complete", 100_000, {}, None, "edges"),
    ("ring", 10, {}, "metroplis", 'topology.weights: .* did you mean "metropolis"'),
    ("ring", 10, {}, "constant", "value is missing"),
    ("ring", 10, {}, {"kind": "constant", "value": 0.0}, "value = 0.0"),
    ("ring", 10, {}, "file", "needs a file"),
]


@pytest.mark.parametrize(("kind", "agents", "params", "weights", "message"), REFUSED)
def test_refusals(kind: str, agents: Any, params: dict[str, Any], weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build_topology(kind, agents, params, "metropolis" if weights is None else weights)
    assert "\n" not in str(caught.value)


def test_agents_that_are_fractions_are_refused() -> None:
    """(0, 1.5) ran as (0, 1)."""
    with pytest.raises(InputError, match="not integers"):
        from_edges(np.array([[0, 1.5], [1, 2]]))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["ring", "random_regular", "erdos_renyi", "torus"])
def test_more_agents_than_edges_that_are_built_are_refused_at_once(kind: str) -> None:
    with pytest.raises(InputError, match=r"^topology"):
        generate(kind, 2**31 + 2, {}, seed=0)
