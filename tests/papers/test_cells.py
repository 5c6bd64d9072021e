"""Exact draws from a box by cells: distribution, envelope, and public bound on the acceptance (proof 21)."""

from __future__ import annotations

from math import exp, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.central.selection import Box, score_unit, units
from papers import cells
from papers.cells import GibbsTarget, refine
from papers.draws import pure_rate
from tests.support.exact_laws import rejected

UNIT = Box(np.array([-1.0]), np.array([1.0]))


def acceptance(target: GibbsTarget) -> float:
    """Bound the probability that a proposal is accepted from below, publicly."""
    dimension = len(target.box.low)
    surely = min(cells.DEPTH, 1 + int(log2(cells._MOST_CELLS / (2**dimension + 1)) / dimension))
    reached = 2.0 * float(target.rate) * target.unit * target.slack(surely)
    return 0.9 * exp(-min(max(target.tightness(), reached) + 1.0 / 16.0, 700.0))


def rough(dimension: int, seed: int, lipschitz: float) -> Any:
    """A maximum of minima of cones: as steep as declared, not convex."""
    rng = np.random.default_rng(seed)
    tips, heights = rng.uniform(-1, 1, (5, dimension)), rng.uniform(0, lipschitz, 5)

    def score(points: np.ndarray) -> np.ndarray:
        cones = heights + lipschitz * np.linalg.norm(points[:, None, :] - tips, axis=2)
        return np.asarray(np.maximum(cones[:, :4].min(axis=1), -cones[:, 4]))

    return score


def positions(box: Box, depth: int) -> np.ndarray:
    d = len(box.low)
    numbers = np.stack(np.meshgrid(*[np.arange(2**depth)] * d, indexing="ij"), axis=-1).reshape(-1, d)
    return box.centres(numbers, depth)


@settings(max_examples=25)
@given(st.sampled_from([(1, 9), (2, 5), (3, 3)]), st.integers(0, 10**6), st.floats(0.1, 300.0), st.booleans())
def test_cells_cover_the_box_below_the_score_and_keep_the_public_acceptance(
    size: tuple[int, int], seed: int, rate: float, wavy: bool
) -> None:
    """Exactness needs two things of an envelope: each position in one cell, whose floor is no higher than its score."""
    (dimension, depth), lipschitz = size, 1.5
    box = Box(-np.ones(dimension), np.linspace(0.5, 2.0, dimension))
    inexact = 0.01 if wavy else 0.0
    ideal = rough(dimension, seed, lipschitz)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "DEPTH", depth)

        def score(points: np.ndarray) -> np.ndarray:
            return np.asarray(ideal(points) + inexact * np.sin(1e5 * points.sum(axis=1)))

        target = GibbsTarget(
            score, box, pure_rate(1.0, 1.0 / rate, inexact), score_unit(1.0 / rate), lipschitz, inexact
        )
        envelope = refine(target)
        scores = units(score(positions(box, depth)), target.unit).reshape([2**depth] * dimension)
        covered = np.zeros(scores.shape, dtype=np.int64)
        floors = np.zeros(scores.shape, dtype=np.int64)
        for cell, at, gap in zip(envelope.cells, envelope.depths, envelope.weights.gaps, strict=True):
            block = tuple(slice(int(c) << (depth - at), int(c + 1) << (depth - at)) for c in cell)
            covered[block] += 1
            floors[block] = gap + envelope.floor
        assert (covered == 1).all()
        assert (floors <= scores).all()
        c = float(target.rate) * target.unit
        accepted = np.exp(-c * (scores - floors.min())).sum() / np.exp(-c * (floors - floors.min())).sum()
        assert accepted * np.exp(-1 / 16) >= acceptance(target) * 0.999


def test_a_lipschitz_constant_too_small_would_show() -> None:
    """The check above can fail: halve the declared constant."""
    target = GibbsTarget(rough(1, 3, 1.5), UNIT, pure_rate(1.0, 0.02, 0.0), score_unit(0.02), 0.75, 0.0)
    envelope = refine(target)
    inside = UNIT.centres(envelope.cells, 1)[:0]
    for cell, at, gap in zip(envelope.cells, envelope.depths, envelope.weights.gaps, strict=True):
        ends = UNIT.low + UNIT.sides * ((cell + np.array([[0.01], [0.99]])) * 2.0 ** -float(at))
        low = units(target.score(ends), target.unit) < gap + envelope.floor
        inside = np.concatenate([inside, ends[low]])
    assert len(inside)


@pytest.mark.parametrize(("dimension", "depth"), [(1, 4), (2, 2), (3, 1)])
def test_points_follow_the_distribution_on_the_grid(
    dimension: int, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "DEPTH", depth)
    box, rng, score = Box(-np.ones(dimension), np.ones(dimension)), np.random.default_rng(31), rough(dimension, 4, 1.0)
    target = GibbsTarget(score, box, pure_rate(1.5, 1.0, 0.0), score_unit(1.0), 1.0, 0.0)
    envelope, grid = refine(target), positions(box, depth)
    samples = np.array([cells.sample(rng, target, envelope) for _ in range(8_000)])
    nearest = np.abs(samples[:, None, :] - grid).sum(axis=2).argmin(axis=1)
    counts, law = np.bincount(nearest, minlength=len(grid)), np.exp(-1.5 * score(grid))
    assert not rejected(counts, law)
    assert rejected(counts, law * np.where(law > np.median(law), 1.25, 1.0))
