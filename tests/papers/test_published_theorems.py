"""The paper's statements as published: its numbers, its conditions, and that they are not certificates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from papers.published.theorems import theorem_4_1, theorem_4_5
from tests.support.schedules import RING_WEIGHT, STEPS, noise_of_all


def decays(values: tuple[float, float, float]) -> dict[str, np.ndarray]:
    return {c: np.array([v]) for c, v in zip("xyz", values, strict=True)}


@pytest.mark.parametrize(
    ("rounds", "first", "fifth", "last"),
    [
        (100, 235.610, 259.067, 292.646),
        (1000, 320.623, 365.933, 435.027),
        (10_000, 384.923, 454.532, 567.427),
        (math.inf, 586.749, 902.397, 3549.92),
    ],
)
def test_printed_budget_of_the_synthetic_experiment(rounds: float, first: float, fifth: float, last: float) -> None:
    claim = theorem_4_5(STEPS, noise_of_all(), RING_WEIGHT, rounds)
    np.testing.assert_allclose(np.array(claim.epsilon, dtype=float)[[0, 4, 9]], [first, fifth, last], rtol=3e-6)
    assert claim.epsilon_max == claim.epsilon[9]
    assert "as published" in claim.source


def test_the_papers_experiments_miss_its_own_theorem() -> None:
    theorem = theorem_4_1({c: s.decay for c, s in STEPS.items()}, {c: n.decay for c, n in noise_of_all().items()})
    failing = [{c.condition: c.margin for c in case.conditions if not c.holds} for case in theorem.cases]
    assert not any(case.holds for case in theorem.cases)
    # 2ς_x = 1.62 equals v_z + v_y, and must not pass by a rounding error.
    assert failing[0] == pytest.approx({"2ς_x > v_z + v_y": 0.0, "2ς_y > v_z + v_y": -0.08}, abs=1e-12)
    assert failing[2] == pytest.approx(
        {"2ς_x > v_z + v_y": 0.0, "2ς_y > v_z + v_y": -0.08, "2ς_y > 2v_z + 1 − v_x": -0.01}, abs=1e-12
    )
    assert theorem.cases[2].exponent == pytest.approx(0.05)
    assert all(case.rate is None for case in theorem.cases)


@pytest.mark.parametrize(
    ("case", "step", "spread", "exponent"),
    [
        (0, (0.66, 0.64, 0.43), (0.65, 0.63, 0.42), 0.4),
        (1, (0.77, 0.75, 0.5), (0.76, 0.74, 0.49), 0.23),
        (2, (0.615, 0.60375, 0.4), (0.61125, 0.6, 0.398125), 0.385),
    ],
)
def test_the_examples_of_corollary_4_3_hold(
    case: int, step: tuple[float, float, float], spread: tuple[float, float, float], exponent: float
) -> None:
    checked = theorem_4_1(dict(zip("xyz", step, strict=True)), decays(spread)).cases[case]
    assert checked.holds
    assert checked.exponent == pytest.approx(exponent)
    assert checked.rate is not None
    assert f"T^-{exponent:g}" in checked.rate
