"""DGD and gradient tracking without noise, as other simulators of decentralised optimisation write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import decentral_dp

M, N, D, ROUNDS, STEP = 5, 12, 3, 30, 0.2
# Constant feature of the intercept; other features are divided by √d.
GAMMA = 0.2
RNG = np.random.default_rng(8)
FEATURES = RNG.uniform(-1.0, 1.0, (M, N, D))
LABELS = np.clip(FEATURES @ np.array([0.5, -0.3, 0.2]) + 0.1 * RNG.normal(size=(M, N)), -1.0, 1.0)
# Metropolis weights of a ring.
W = (np.eye(M) + np.roll(np.eye(M), 1, axis=0) + np.roll(np.eye(M), -1, axis=0)) / 3.0


def gradients(x: np.ndarray) -> np.ndarray:
    """Return the gradient of each agent's mean of ½ (aᵀx − b)², (m, d)."""
    features = np.concatenate([FEATURES * D**-0.5, np.full((M, N, 1), GAMMA)], axis=2)
    residuals = np.einsum("ind,id->in", features, x) - LABELS
    return np.einsum("in,ind->id", residuals, features) / N


def dgd(x: np.ndarray) -> np.ndarray:
    """x ← W x − ρ ∇f(x)."""
    for _ in range(ROUNDS):
        x = W @ x - STEP * gradients(x)
    return x


def tracking(x: np.ndarray) -> np.ndarray:
    """x⁺ = W (x − ρ s), s⁺ = W s + ∇f(x⁺) − ∇f(x), with s = ∇f(x) at the start (NEXT, SONATA)."""
    s = gradients(x)
    for _ in range(ROUNDS):
        moved = W @ (x - STEP * s)
        s = W @ s + gradients(moved) - gradients(x)
        x = moved
    return x


# Round 0 of gradient_tracking only reads the first gradient.
@pytest.mark.parametrize(
    ("kind", "update", "extra"), [("ldp_single_level", dgd, 0), ("gradient_tracking", tracking, 1)]
)
def test_noiseless_updates_are_those_of_the_literature(
    kind: str, update: Callable[[np.ndarray], np.ndarray], extra: int
) -> None:
    run = decentral_dp.run(
        X=list(FEATURES),
        y=list(LABELS),
        label_range=(-1.0, 1.0),
        rounds=ROUNDS + extra,
        topology=decentral_dp.graphs.ring(M),
        set={"algorithm.kind": kind, "algorithm.learning_rate": STEP, "privacy.guarantee": "none", "problem.test": 0.0},
    )
    np.testing.assert_allclose(run.released["y"], update(np.zeros((M, D + 1))), rtol=0.0, atol=1e-10)
