"""The grid walk on chains small enough to be exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.central.selection import Box, SelectionBounds
from papers import grid_walk_chains
from papers.grid_walk_chains import (
    certified_steps,
    distance,
    mixing_time,
    walk,
)
from papers.published.grid_walk import GridWalkSelection
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
    assert np.allclose(chain.stationary @ chain.matrix, chain.stationary, rtol=1e-12)
    flow = chain.stationary[:, None] * chain.matrix
    assert np.allclose(flow, flow.T, rtol=1e-12)
    assert np.log(chain.stationary / chain.stationary[0]) == pytest.approx(
        exponent.flat[0] - exponent.reshape(-1), abs=1e-9
    )
    states = np.stack(np.unravel_index(np.arange(exponent.size), shape))
    apart = np.abs(states[:, :, None] - states[:, None, :]).sum(axis=0)
    assert ((chain.matrix > 0) == (apart <= 1)).all()


def test_mixing_is_the_first_time_within_reach() -> None:
    chain = walk(np.abs(np.arange(12) - 4.0))
    for xi in (0.5, 0.05):
        count = mixing_time(chain, xi)
        laws = [np.linalg.matrix_power(chain.matrix, t) for t in (count - 1, count)]
        goal = np.broadcast_to(chain.stationary, chain.matrix.shape)
        assert distance(laws[1], goal) <= xi < distance(laws[0], goal)
    relative = np.array([0.5, 0.5]) * [0.9, 1.1]
    assert distance(relative, np.array([0.5, 0.5])) == pytest.approx(-np.log(0.9))
    assert distance(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == np.inf


def test_certified_steps_are_infeasible() -> None:
    """Compare a billion claimed steps with a few thousand sufficient ones, in one dimension with α·τ = 40."""
    side, alpha = 1.0, 40.0
    gamma = 1.0 / (2 * alpha)
    x = (np.arange(80) + 0.5) * gamma
    true = mixing_time(walk(alpha * np.abs(x - 0.5)), 0.125)
    needed = certified_steps(side, alpha, gamma, 1, 0.125)
    assert 1e9 < needed < 2e9
    assert 1e3 < true < 1e5
    assert certified_steps(side, alpha, gamma, 1, 0.125, 0.5) > np.exp(2.0) * needed


def test_a_walk_has_the_distribution_of_its_chain_and_no_certificate() -> None:
    """Five cells, twelve steps: draws by cell against powers of the dense matrix, not its stationary distribution."""

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
    expected = grid_walk_chains.output_distribution(reached, exponent, fine).reshape(2 * cells, 100).sum(axis=1)
    rng = np.random.default_rng(21)
    samples = np.array([selection.draw(rng, scale)[0] for _ in range(4000)])
    counts = np.histogram(samples, np.linspace(-1.0, 1.0, 2 * cells + 1))[0]
    assert not rejected(counts, expected)
    assert rejected(counts, np.repeat(chain.stationary, 2)), "twelve steps are not enough"
    assert rejected(counts, np.repeat(expected.reshape(cells, 2).sum(axis=1), 2)), "points are not uniform in a cell"
    assert abs(selection.draw(rng, 0.0)[0] + 1.0) < 1e-6
