"""How far a record moves a private state: the recursion against exact replays, and what goes wrong with less."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.privacy.schedules import StepSize
from papers.published.lipschitz import LipschitzConstants
from papers.published.private_state import endless_remainder, private_state
from tests.support.schedules import (
    FIRST_DECAY,
    GLM,
    RING_WEIGHT,
    STEPS,
    laplace_scales,
    noise,
)

NOTHING = np.zeros((3, 3))


def stream_counts(rounds: int) -> dict[str, np.ndarray]:
    return dict.fromkeys(("train", "validation"), np.arange(1.0, rounds + 1))


def sensitivity(rounds: int, weight: float = RING_WEIGHT, constants: LipschitzConstants = GLM) -> np.ndarray:
    """D_0, …, D_rounds of a pair, (rounds + 1, 3)."""
    return private_state(constants, STEPS, np.array([weight]), stream_counts(rounds), rounds, "pair")[:, 0]


def cost(state: np.ndarray, agent: int = 1) -> np.ndarray:
    """Pure ε after every round, (rounds + 1,), without the rounding grid."""
    index = np.arange(len(state))
    scales = np.stack([laplace_scales(c, index, agent) for c in FIRST_DECAY], axis=1)
    return np.cumsum((state / scales).sum(axis=1))


# Exact replays ------------------------------------------------------------------------------------------------------


def swapped(
    jacobian: np.ndarray, swap: np.ndarray, rounds: int, steps_of: dict[str, StepSize], keep: float
) -> np.ndarray:
    """Exact |difference| of two runs with G = jacobian·(x, y, z) + b(ξ), the first record replaced."""
    difference = np.zeros(3)
    out = [difference]
    for t in range(rounds):
        size = np.array([steps_of[c].scale * (t + 1.0) ** -steps_of[c].decay for c in FIRST_DECAY])
        gradient = jacobian @ difference - swap / (t + 1.0)
        difference = keep * difference - size * gradient
        out.append(difference)
    return np.abs(np.array(out))


def test_linear_losses_attain_the_recursion_and_outgrow_the_printed_theorem() -> None:
    """l = ξᵀy with ‖ξ‖₁ ≤ c, h = 0: exact ε = 1.42487 c at T = 100, above the printed 235.61 for c > 165."""
    for c in (1.0, 170.0):
        linear = LipschitzConstants({"train": NOTHING}, NOTHING, {"train": np.array([0, 2 * c, 0])}, two_point=False)
        state = private_state(linear, STEPS, np.array([RING_WEIGHT]), stream_counts(100), 100, "train")[:, 0]
        exact = swapped(NOTHING, np.array([0, 2 * c, 0]), 100, STEPS, 1 - RING_WEIGHT)
        np.testing.assert_allclose(state, exact, rtol=1e-12)
        assert cost(state)[-1] == pytest.approx(1.42487 * c, rel=1e-5)
    assert cost(state)[-1] > 235.611


def test_swap_constants_at_one_point_need_the_whole_lipschitz_constant() -> None:
    """l = y²/2 + xy + ξy, h = φy, |φ| ≤ 1: the swap at one point has S_x = 0, but ∇²_xy l·z moves with z."""
    lipschitz = np.array([[0.0, 0, 1], [1, 1, 0], [0, 0, 1]])
    swap = np.array([0.0, 2, 2])
    one_point = LipschitzConstants({"train": lipschitz}, NOTHING, {"train": swap}, two_point=False)
    trap = LipschitzConstants({"train": lipschitz}, NOTHING, {"train": swap}, two_point=True)
    weight, counts = np.array([RING_WEIGHT]), stream_counts(4)
    signed = np.array([[0.0, 0, -1], [1, 1, 0], [0, 0, 1]])
    exact = swapped(signed, swap, 4, STEPS, 1 - RING_WEIGHT)
    bound = private_state(one_point, STEPS, weight, counts, 4, "train")[:, 0]
    short = private_state(trap, STEPS, weight, counts, 4, "train")[:, 0]
    np.testing.assert_allclose(exact[2:, 0] / short[2:, 0], [2.0, 1.67, 1.50], atol=0.01)
    assert (exact <= bound * (1 + 1e-12)).all()


def test_radial_clipping_doubles_the_lipschitz_constant() -> None:
    """v·min(1, C/‖v‖₁) moves by twice what v moves: x = (1, 0, …), the second coordinate grows from 0."""

    def clipped(v: np.ndarray) -> np.ndarray:
        return v * min(1.0, 1.0 / np.abs(v).sum())

    v, step = np.array([1.0, 0.0]), np.array([0.0, 1e-6])
    ratio = np.abs(clipped(v + step) - clipped(v)).sum() / np.abs(step).sum()
    assert ratio == pytest.approx(2.0, abs=1e-5)
    box = np.abs(np.clip(v + step, -1, 1) - np.clip(v, -1, 1)).sum() / np.abs(step).sum()
    assert box <= 1.0
    plain = private_state(GLM, STEPS, np.array([0.6]), stream_counts(50), 50, "train")
    radial = private_state(GLM, STEPS, np.array([0.6]), stream_counts(50), 50, "train", radial_clip=True)
    doubled = LipschitzConstants({k: 2 * v for k, v in GLM.data.items()}, GLM.regulariser, GLM.swap, True)
    np.testing.assert_array_equal(
        radial, private_state(doubled, STEPS, np.array([0.6]), stream_counts(50), 50, "train")
    )
    assert (radial >= plain).all()
    assert radial[-1, 0, 1] > plain[-1, 0, 1]


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 1.9))
@settings(max_examples=40, deadline=None)
def test_random_logistic_replays_stay_below(seed: int, weight: float) -> None:
    """Scalar agents, neighbouring data, arbitrary messages: |difference| of the exact runs against the recursion."""
    rng = np.random.default_rng(seed)
    rounds, box = 12, 1.0
    fast = {c: StepSize(s.scale * 8, s.decay) for c, s in STEPS.items()}
    train = rng.choice([-1.0, 1.0], rounds) * rng.uniform(0.3, 1, rounds)
    validation = rng.choice([-1.0, 1.0], rounds) * rng.uniform(0.3, 1, rounds)
    other_train, other_validation = train.copy(), validation.copy()
    other_train[0], other_validation[0] = -train[0], -validation[0]
    messages = rng.normal(size=(rounds, 3)) * 10.0 ** rng.uniform(-1, 2)
    runs = [
        logistic_run(a, b, messages, fast, weight, box)
        for a, b in ((train, validation), (other_train, other_validation))
    ]
    bound = private_state(GLM, fast, np.array([weight]), stream_counts(rounds), rounds, "pair")[:, 0]
    assert (np.abs(runs[0] - runs[1]) <= bound * (1 + 1e-9) + 1e-12).all()


def logistic_run(
    train: np.ndarray,
    validation: np.ndarray,
    messages: np.ndarray,
    step: dict[str, StepSize],
    weight: float,
    box: float,
) -> np.ndarray:
    """l = log(1 + e^{−aω}), h likewise, regulariser e^λ ω²/2, with ω, z boxed and λ at most 0 in the gradients."""
    x = y = z = 0.0
    out = [(x, y, z)]
    for t, received in enumerate(messages):
        a, b = train[: t + 1], validation[: t + 1]
        u, w = np.clip(y, -box, box), np.clip(z, -box, box)
        scale = math.exp(min(x, 0.0))
        s, r = 1 / (1 + np.exp(a * y)), 1 / (1 + np.exp(b * y))
        grad = (-a * s).mean() + scale * u
        hessian = (a * a * s * (1 - s)).mean() * w + scale * w - (-b * r).mean()
        upper = -scale * u * w
        size = {c: v.scale * (t + 1.0) ** -v.decay for c, v in step.items()}
        keep = 1 - weight
        x, y, z = (
            keep * x + received[0] - size["x"] * upper,
            keep * y + received[1] - size["y"] * grad,
            keep * z + received[2] - size["z"] * hessian,
        )
        out.append((x, y, z))
    return np.array(out)


# Structure ----------------------------------------------------------------------------------------------------------


def test_the_bound_for_infinitely_many_rounds_is_one() -> None:
    """Continuing the recursion never passes the bound made at an earlier round, and comes near it."""
    late = sensitivity(20_000)
    spent = cost(late)
    bounds = [
        spent[r] + endless_remainder(GLM, STEPS, RING_WEIGHT, late[r], r, 1, noise(1), "pair")
        for r in (500, 5000, 20_000)
    ]
    assert bounds[0] >= bounds[1] >= bounds[2]
    assert bounds[2] == pytest.approx(4.109, abs=1e-3)
    assert spent[-1] < bounds[2]


def test_the_bound_covers_a_state_far_from_its_limit() -> None:
    """Start the rest at a large D: a bound that only knew the limit of the recursion would be passed at once."""
    swap = np.array([0.0, 2, 0])
    linear = LipschitzConstants({"train": NOTHING}, NOTHING, {"train": swap}, two_point=True)
    start, rounds = 100, 20_000
    t = np.arange(start, start + rounds)
    change = STEPS["y"].scale * (t + 1.0) ** -STEPS["y"].decay * 2 / (t + 1.0)
    state, spent = 1.0, 0.0
    for k, c in zip(t, change, strict=True):
        state = 0.4 * state + c
        spent += state / float(laplace_scales("y", np.array(k + 1.0)))
    bound = endless_remainder(linear, STEPS, 0.6, np.array([0.0, 1.0, 0.0]), start, 1, noise(1), "train")
    assert spent <= bound
    far = endless_remainder(linear, STEPS, 0.6, np.array([0.0, 0.0, 0.0]), start, 1, noise(1), "train")
    assert far < 0.1 * bound


def test_infinitely_many_rounds_may_have_no_bound() -> None:
    state = sensitivity(2000)
    as_fast = noise(1) | {"y": StepSize(1.0, STEPS["y"].decay)}
    assert endless_remainder(GLM, STEPS, 0.6, state[-1], 2000, 1, as_fast, "pair") == math.inf
    assert endless_remainder(GLM, STEPS, 2.0, state[-1], 2000, 1, noise(1), "pair") == math.inf
    large = {c: StepSize(100.0, 0.01) for c in STEPS}
    assert endless_remainder(GLM, large, 0.6, state[-1], 10, 1, noise(1), "pair") == math.inf


def test_a_growth_within_rounding_of_one_has_no_bound() -> None:
    """The growth of a state by (1 − w)((t + 2)/(t + 1)) within rounding of 1: its inverse is noise, or none."""
    plain = LipschitzConstants({"train": NOTHING}, NOTHING, {"train": np.ones(3)}, two_point=True)
    constant = {c: StepSize(1.0, 0.0) for c in STEPS}
    weight = 1.0 - 101.0 / 102.0
    for near in (-8, -1, 0, 1, 8):
        w = weight - near * 2.0**-53
        bound = endless_remainder(
            plain, constant, w, np.ones(3), 100, 1, {c: StepSize(1.0, -3.0) for c in STEPS}, "train"
        )
        assert bound == math.inf
    far = endless_remainder(plain, constant, 0.5, np.ones(3), 100, 1, {c: StepSize(1.0, -3.0) for c in STEPS}, "train")
    assert math.isfinite(far)
