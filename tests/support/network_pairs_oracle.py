"""μ between agents of a network, by covariances written out in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve


class Case(NamedTuple):
    """W, c (T, m), g (T, m), s (T, m), arrivals (T, m)."""

    mixing: Any
    shrink: Any
    moves: Any
    noise: Any
    arrives: Any


def responses(case: Case) -> Any:
    """(T, m, T, m): what a unit push of agent i in round t does to the release of agent j in round u ≥ t."""
    rounds, m = case.moves.shape
    out = np.zeros((rounds, m, rounds, m))
    for t in range(rounds):
        value = np.eye(m)
        out[t, :, t] = value
        for u in range(t + 1, rounds):
            value = value + case.mixing @ value - case.shrink[u][:, None] * value
            out[u, :, t] = value
    return out


def written_out(case: Case, members: Sequence[int], victim: int, arrival: int) -> float:
    """μ by the covariance of all messages of all neighbours, (T·n, T·n), formed and factored."""
    response = responses(case)
    rounds, m = case.moves.shape
    outside = [i for i in range(m) if i not in members]
    seen = [j for j in outside if any(case.mixing[i, j] != 0.0 for i in members)]
    sent = response[:, seen].reshape(rounds * len(seen), rounds, m)
    spread = (sent[:, :, outside] * case.noise[:, outside]).reshape(len(sent), -1)
    sensitivity = sent[:, arrival:, victim] @ case.moves[arrival:, victim]
    return float(np.sqrt(sensitivity @ cho_solve(cho_factor(spread @ spread.T), sensitivity)))


def worst_written_out(case: Case, members: Sequence[int], victim: int) -> float:
    return max(written_out(case, members, victim, int(t)) for t in np.flatnonzero(case.arrives[:, victim]))
