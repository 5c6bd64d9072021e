"""The grid walk on chains small enough to be exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.central.selection import Box, SelectionBounds
from decentral_dp.errors import InputError
from papers import grid_walk_chains
from papers.grid_walk_chains import (
    certified_steps,
    conductance,
    distance,
    output,
    steps,
    walk,
)
from papers.published.grid_walk import GridWalkSelection, acceptance
from tests.support.exact_laws import rejected

Array = np.ndarray
UNIT = Box(np.array([-1.0]), np.array([1.0]))


@settings(max_examples=30)
@given(st.sampled_from([(7,), (3, 4), (2, 3, 2)]), st.integers(0, 10**6))
def test_the_chain_is_stationary_and_reversible(shape: tuple[int, ...], seed: int) -> None:
    exponent = np.random.default_rng(seed).normal(size=shape) * 3
    chain = walk(exponent)
    assert np.allclose(chain.matrix.sum(axis=1), 1.0)
    assert (np.diag(chain.matrix) >= 0.5 - 1e-12).all()
    assert np.allclose(chain.law @ chain.matrix, chain.law, rtol=1e-12)
    flow = chain.law[:, None] * chain.matrix
    assert np.allclose(flow, flow.T, rtol=1e-12)
    assert np.log(chain.law / chain.law[0]) == pytest.approx(exponent.flat[0] - exponent.reshape(-1), abs=1e-9)
    states = np.stack(np.unravel_index(np.arange(exponent.size), shape))
    apart = np.abs(states[:, :, None] - states[:, None, :]).sum(axis=0)
    assert ((chain.matrix > 0) == (apart <= 1)).all()


def test_mixing_is_the_first_time_within_reach() -> None:
    chain = walk(np.abs(np.arange(12) - 4.0))
    for xi in (0.5, 0.05):
        count = steps(chain, xi)
        laws = [np.linalg.matrix_power(chain.matrix, t) for t in (count - 1, count)]
        goal = np.broadcast_to(chain.law, chain.matrix.shape)
        assert distance(laws[1], goal) <= xi < distance(laws[0], goal)
    relative = np.array([0.5, 0.5]) * [0.9, 1.1]
    assert distance(relative, np.array([0.5, 0.5])) == pytest.approx(-np.log(0.9))
    assert distance(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == np.inf


def test_conductance_loses_two_zeta_and_no_more() -> None:
    """ζ = 1: the worst of all signs of the error leaves .158, above e^{−2} = .135 and far above e^{−6} = .0025."""
    worst = 1.0
    for n in (4, 6, 8):
        slope = np.random.default_rng(n)
        for base in (np.zeros(n), np.abs(np.arange(n) - (n - 1) / 2), slope.normal(size=n)):
            whole = conductance(walk(base))
            for signs in itertools.product((-1.0, 1.0), repeat=n):
                worst = min(worst, conductance(walk(base + np.array(signs))) / whole)
    assert np.exp(-2.0) <= worst <= 0.17


def test_the_last_step_is_a_probability_only_for_small_cells() -> None:
    assert acceptance(1.0, 2.0) == pytest.approx(1.0)
    assert acceptance(1.0, 1.0, 0.25) == pytest.approx(1.0)
    assert acceptance(1.0, 1.0, 0.3) > 1.0
    centres = np.array([0.0, 1.0])
    fine = centres[:, None] + np.array([-1.2, 0.0, 1.2])
    with pytest.raises(InputError, match="1 or less"):
        output(np.array([0.5, 0.5]), centres, fine)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.0, 0.24), st.floats(0.01, 1.0))
def test_points_that_leave_are_within_two_zeta_and_two_xi(seed: int, zeta: float, xi: float) -> None:
    """Cells of 5 candidates, an adversarial error of ±ζ, and a chain stopped at distance ξ."""
    rng = np.random.default_rng(seed)
    x = (np.arange(8)[:, None] + (np.arange(5) - 2.0) / 5.0) * 0.9
    exact = np.abs(x - 3.0)
    off = zeta * rng.choice([-1.0, 1.0], exact.shape)
    computed = exact + off
    chain = walk(computed[:, 2])
    count = steps(chain, xi)
    start = np.linalg.matrix_power(chain.matrix, count)[int(rng.integers(8))]
    goal = np.exp(-exact) / np.exp(-exact).sum()
    left = output(start, computed[:, 2], computed)
    assert distance(left, goal) <= 2 * zeta + 2 * xi + 1e-9
    at_rest = output(chain.law, computed[:, 2], computed)
    assert distance(at_rest, goal) <= 2 * zeta + 1e-9
    assert zeta == 0.0 or distance(at_rest, goal) > 0.0


def test_certified_steps_are_infeasible() -> None:
    """Compare a billion claimed steps with a few thousand sufficient ones, in one dimension with α·τ = 40."""
    side, alpha = 1.0, 40.0
    gamma = 1.0 / (2 * alpha)
    x = (np.arange(80) + 0.5) * gamma
    true = steps(walk(alpha * np.abs(x - 0.5)), 0.125)
    needed = certified_steps(side, alpha, gamma, 1, 0.125)
    assert 1e9 < needed < 2e9
    assert 1e3 < true < 1e5
    assert certified_steps(side, alpha, gamma, 1, 0.125, 0.5) > np.exp(2.0) * needed


def test_a_walk_has_the_distribution_of_its_chain_and_no_certificate() -> None:
    """Five cells, twelve steps: draws by cell against powers of the dense matrix, not the law that it would reach."""

    def score(points: Array) -> Array:
        return np.asarray(0.8 * (points[:, 0] + 1.0))

    facts, cells, scale = SelectionBounds({"train": 0.1}, 0.0, 0.8), 5, 0.5
    selection = GridWalkSelection(facts, UNIT, score, cells, 12)
    assert selection.mechanism == "uncertified"
    assert selection.sensitivity == {"train": np.inf}
    selection.check(scale)
    centres = -1.0 + 0.4 * (np.arange(cells) + 0.5)
    exponent = score(centres[:, None]) / scale
    chain = grid_walk_chains.walk(exponent)
    reached = np.linalg.matrix_power(chain.matrix, 12)[cells // 2]
    inside = centres[:, None] + 0.4 * (np.arange(200) + 0.5)[None] / 200 - 0.2
    fine = score(inside.reshape(-1, 1)).reshape(cells, 200) / scale
    # Two halves of every cell, which the last step distinguishes.
    expected = grid_walk_chains.output(reached, exponent, fine).reshape(2 * cells, 100).sum(axis=1)
    rng = np.random.default_rng(21)
    samples = np.array([selection.draw(rng, scale)[0] for _ in range(4000)])
    counts = np.histogram(samples, np.linspace(-1.0, 1.0, 2 * cells + 1))[0]
    assert not rejected(counts, expected)
    assert rejected(counts, np.repeat(chain.law, 2)), "twelve steps are not enough"
    assert rejected(counts, np.repeat(expected.reshape(cells, 2).sum(axis=1), 2)), "points are not uniform in a cell"
    assert abs(selection.draw(rng, 0.0)[0] + 1.0) < 1e-6
