"""Private states: bounds on the change of a noiseless state under one replaced record.

In Algorithms 1 and 2 of Chen & Wang (ICML 2024), an agent updates from its noiseless state, so a replaced record
affects all later states. Given the received messages, the state is a deterministic function of the records. With
D_{v,t} = sup ‖v_t − v'_t‖₁ over neighbouring records and all messages (their Definition F.1), a = |1 − |w_ii||,

    D_{v,t+1} ≤ a D_{v,t} + λ_{v,t} { Σ_u (κ_t K^data_vu + K^reg_vu) D_{u,t} + S_v/N_t },        D_{v,0} = 0,

and the release of v_t with Laplace scale ν_{v,t} costs ε = D_{v,t}/ν_{v,t}. K are l1 → l1 Lipschitz constants, S_v is
the swap sup ‖G_v(s; ξ) − G_v(s'; ξ')‖₁, and N_t is the number of averaged records.

The replaced record is evaluated at two *different* states. If S is a supremum over two points, it covers the change of
the state, and the Lipschitz constant applies only to the other N_t − 1 records: κ_t = (N_t − 1)/N_t. If S compares the
records at *one* point, the Lipschitz constant also applies to the replaced record: κ_t = 1. (Inequalities (171), (176),
(178) of the paper hold because their swap constants, such as 2c_l0, are over two points.) Radially clipped terms,
v·min(1, C/‖v‖₁), have twice the l1 Lipschitz constant of v. Clipping of coordinates does not increase it.

The recursion holds in exact arithmetic. It is exact for linear losses and increasing in every argument. The closed form
in the paper (Theorem 4.5) does not follow from it, because it does not depend on λ, S and K.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import scipy

from decentral_dp.bounded import CHANNELS, SPLITS, Array, Split
from decentral_dp.errors import InputError
from decentral_dp.privacy.schedules import StepSize
from papers.published.lipschitz import LipschitzConstants

# Distance of an eigenvalue from 1, below which the inverse of I − matrix has no correct digits.
_SMALLEST_GAP = 1e-9


class _Moves(NamedTuple):
    """Lipschitz constants (3, 3) of each split, and swaps (3,) of each split with a replaced record."""

    data: Mapping[Split, Array]
    swap: Mapping[Split, Array]


def private_state(
    constants: LipschitzConstants | None,
    steps: Mapping[str, StepSize],
    neighbour_weight: Array,
    averaged: Mapping[Split, Array],
    rounds: int,
    split: Split | Literal["pair"],
    radial_clip: bool = False,
) -> Array:
    """Bound the change of the states x, y and z under one replaced record, for each round.

    Args:
        constants: Lipschitz and swap constants.
        steps: channel → λ.
        neighbour_weight: weights |w_ii|, (g,).
        averaged: split → N_t of rounds t = 0, 1, …, (rounds,) or (rounds, g).
        rounds: T.
        split: split of the replaced record; "pair" replaces the train and the validation record of one index.
        radial_clip: whether the per-record terms are clipped by their norm.

    Returns:
        D_0, …, D_rounds for x, y and z, (rounds + 1, g, 3), +inf after an overflow.

    Raises:
        InputError: there are no constants.

    Sensitivity:
        l1 sensitivity to one replaced record of one agent, by the recursion of this module. See docs/proofs/03.
    """
    known = _require_constants(constants)
    weight = np.atleast_1d(np.asarray(neighbour_weight, dtype=np.float64))
    # The shape is (rounds, 1) or (rounds, g).
    averages = {k: np.asarray(averaged[k], dtype=np.float64).reshape(rounds, -1) for k in known.data}
    counts = {k: np.broadcast_to(n, (rounds, weight.size)) for k, n in averages.items()}
    moves = _movements(known, split, radial_clip)
    keep = np.abs(1.0 - weight)[:, None]
    decays = np.array([steps[c].decay for c in CHANNELS])
    scales = np.array([steps[c].scale for c in CHANNELS])
    state = np.zeros((rounds + 1, weight.size, 3))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(rounds):
            pull = state[t] @ known.regulariser.T
            for k, lipschitz in moves.data.items():
                n = counts[k][t][:, None]
                share = (n - 1.0) / n if known.two_point and k in moves.swap else 1.0
                pull = pull + share * (state[t] @ lipschitz.T)
            for k, swap in moves.swap.items():
                pull = pull + swap / counts[k][t][:, None]
            state[t + 1] = keep * state[t] + scales * (t + 1.0) ** -decays * pull
    # NaN comes from 0·∞ in the products above, an unbounded change.
    return np.where(np.isnan(state), np.inf, state)


def endless_remainder(
    constants: LipschitzConstants | None,
    steps: Mapping[str, StepSize],
    neighbour_weight: float,
    last: Array,
    rounds: int,
    batch: int,
    noise: Mapping[str, StepSize],
    split: Split | Literal["pair"],
) -> float:
    """Bound Σ_{t>rounds} Σ_v √2 (t+1)^{ς_v} D_{v,t}/σ_v for an infinite stream.

    If the bound D_{v,t} ≤ C_v (t+1)^{−1−v_v} holds at `rounds`, it holds for all later t, because every term of the
    recursion decreases in t. C is the smallest solution of the linear inequalities that also covers `last`.

    Args:
        constants: Lipschitz and swap constants.
        steps: channel → λ.
        neighbour_weight: weight |w_ii|.
        last: D after `rounds` rounds, (3,).
        rounds: number of rounds before the sum.
        batch: number of records that arrive in each round.
        noise: channel → (σ, ς).
        split: see `private_state`.

    Returns:
        The bound, +inf if there is no such C or if some decay v_v ≤ ς_v. See docs/proofs/03.
    """
    known = _require_constants(constants)
    moves = _movements(known, split, radial_clip=False)
    step = np.array([steps[c].scale for c in CHANNELS])
    decay = np.array([steps[c].decay for c in CHANNELS])
    beta, t1 = 1.0 + decay, rounds + 1.0
    lipschitz = known.regulariser + np.sum(list(moves.data.values()), axis=0)
    growth = ((t1 + 1.0) / t1) ** beta
    matrix = growth[:, None] * (
        abs(1.0 - neighbour_weight) * np.eye(3) + step[:, None] * lipschitz * t1 ** -decay[None, :]
    )
    if not np.isfinite(last).all() or np.abs(np.linalg.eigvals(matrix)).max() >= 1.0 - _SMALLEST_GAP:
        return np.inf
    source = growth * step * np.sum(list(moves.swap.values()), axis=0) / batch
    inverse = np.linalg.inv(np.eye(3) - matrix)
    least, lift = inverse @ source, inverse @ np.ones(3)
    bound = least + max(0.0, float(((last * t1**beta - least) / lift).max())) * lift
    total = 0.0
    zeta = scipy.special.zeta
    for c, size, v in zip(CHANNELS, bound, decay, strict=True):
        exponent = 1.0 + v - noise[c].decay
        if size > 0.0:
            total += np.inf if exponent <= 1.0 else np.sqrt(2.0) * size / noise[c].scale * zeta(exponent, t1 + 1.0)
    return float(total) * (1.0 + 1e-9)


def _movements(constants: LipschitzConstants, split: Split | Literal["pair"], radial_clip: bool) -> _Moves:
    replaced = SPLITS if split == "pair" else (split,)
    factor = 2.0 if radial_clip else 1.0
    return _Moves(
        {k: factor * np.asarray(v, dtype=np.float64) for k, v in constants.data.items()},
        {k: np.asarray(constants.swap[k], dtype=np.float64) for k in replaced if k in constants.swap},
    )


def _require_constants(constants: LipschitzConstants | None) -> LipschitzConstants:
    if constants is None:
        raise InputError(
            "The private-state protocol has no certified ε without Lipschitz constants, which this problem lacks. Fix: "
            "give boxes for x, y and z and a bound on the norm of records, or use the released-state protocol."
        )
    return constants
