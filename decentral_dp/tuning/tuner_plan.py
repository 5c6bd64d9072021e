"""What a tuning run may spend, fixed before it starts.

A release of round t may cost a train record μ_t and a validation record μ'_t (or pure ε_t, ε'_t), whatever was released
before; its noise follows from these prices and from its sensitivity, which may depend on what was released. Prices that
the transcript cannot touch compose as if the releases were independent, so the plan is the guarantee.

A plan is a ledger with every scale 1: there the grid is coarsest in proportion to the noise, so a release that was
given the plan's price at scale 1 costs at most as much at its own.
"""

from __future__ import annotations

import math

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.privacy.accountants import epsilon_of
from decentral_dp.privacy.bounded import Array, Split
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import mechanism_of

# Of a train record's μ²: what the last minimiser takes, which is the model.
MODEL_SHARE = 0.25
# A plan spends between (1 − this) and all of its target.
_TIGHTNESS = 1e-4
_STEPS = 60


def gaussian_plan(second: str, width: int, steps: int, d: int, epsilon: float, delta: float) -> Ledger:
    """Rounds 1 … steps release a minimiser, and on the channel `second` what moves the weight; one more the model.

    width: coordinates of one release on `second`. A train record is in both releases of a round, at equal prices; a
    validation record in the second only, which may therefore cost it more. Raises InputError for a target that no
    noise on these releases meets.
    """
    each = math.sqrt(0.5 * (1.0 - MODEL_SHARE) / steps)
    model = np.append(np.full(steps, each), math.sqrt(MODEL_SHARE))
    moves = {"train": np.full(steps, each), "validation": np.full(steps, math.sqrt(1.0 / steps))}

    def at(mu: float) -> Ledger:
        minimisers = _channel("model", "gaussian", d, np.arange(1, steps + 2), {"train": mu * model})
        return Ledger(
            1,
            (
                minimisers,
                _channel(
                    second,
                    "gaussian",
                    width,
                    np.arange(1, steps + 1),
                    {"train": mu * moves["train"], "validation": mu * moves["validation"]},
                ),
            ),
        )

    low, high = 0.0, max(4.0 * epsilon, 1.0)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        spent = float(epsilon_of(at(middle), delta)[0])
        low, high = (middle, high) if spent <= epsilon else (low, middle)
        if (1.0 - _TIGHTNESS) * epsilon <= spent <= epsilon:
            break
    if low == 0.0:
        raise InputError(
            f"tune: no noise brings {2 * steps + 1} releases of {d} coordinates to epsilon = {epsilon:g} at delta = "
            f"{delta:g}; raise epsilon or delta, or take fewer steps."
        )
    return at(low)


def pure_plan(d: int, epsilon: float) -> Ledger:
    """One choice of the weight, then a model with Laplace noise: half of ε each for a train record.

    A validation record is in the choice only, which may therefore cost it all of ε.
    """
    # The price of a Laplace release on its grid, and its numerical slack, exceed Δ/b by less than this.
    usable = epsilon * (1.0 - 2.0**-19) - 4e-15 * d
    if not usable > 0.0:
        raise InputError(f"tune: epsilon = {epsilon:g} is too small for float64 noise in {d} coordinates; raise it.")
    half = np.array([0.5 * usable])
    return Ledger(
        1,
        (
            _channel("weight", "exponential", 1, np.array([1]), {"train": half, "validation": 2.0 * half}),
            _channel("model", "laplace", d, np.array([2]), {"train": half}),
        ),
    )


def _channel(name: str, mechanism: str, d: int, rounds: IntArray, sensitivity: dict[Split, Array]) -> ChannelLedger:
    return ChannelLedger(
        name,
        mechanism_of(mechanism),
        d,
        np.zeros(1, dtype=np.int64),
        rounds,
        np.ones((rounds.size, 1)),
        {k: s[:, None] for k, s in sensitivity.items()},
        {k: np.ones((s.size, 1)) for k, s in sensitivity.items()},
    )
