"""Prices of shared noise by another road: the exact information in all that an observer holds.

Independent derivation. Let p be all independent draws, one for each agent and one for each edge, in every round.
The messages of T rounds are Ap + Uθ, with U the victim's contributions u_t on its own messages and θ ∈ {0, 1} the
choice of its record. Messages being released, everything else in them is known to who sees them; it drops out of any
comparison. Colluders add Bp, their own draws and those of their edges. (Ap + Uθ, Bp) is one Gaussian vector with
covariance Σ = (A; B)(A; B)ᵀ, singular where colluders know a message's noise. So the two data sets are as far apart as
a Gaussian pair with μ² = (U; 0)ᵀ Σ⁺ (U; 0), the Fisher information of θ, for (U; 0) is in the range of Σ where the
victim does not collude. That is exact if contributions are fixed. If u_t is chosen by what was released before, write
the density as a product over rounds: given the past, round t is Gaussian with a covariance that no contribution moves
and means that differ by what is left of u_t after the earlier u are regressed out. The sum of squares of the whitened
differences is the same quadratic form along every path, so that its largest value bounds the cost; it is not reached
in general, for a path fixes only one choice of signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import decentral_dp
from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import epsilon_of, gaussian_epsilon
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.pair_noise import effective_scale


def shared(seed: int, agents: int) -> tuple[Array, Array, list[tuple[int, int]]]:
    """Own scales, a symmetric matrix of pair scales, and its edges; sparse graphs fall apart now and then."""
    rng = np.random.default_rng([17, seed])
    own = rng.uniform(0.3, 2.0, agents)
    edges = [edge for edge in combinations(range(agents), 2) if rng.random() < 0.55]
    pair = np.zeros((agents, agents))
    for i, j in edges:
        pair[i, j] = pair[j, i] = 10.0 ** rng.uniform(-1.0, 1.5)
    return own, pair, edges


def noise_maps(own: Array, pair: Array, edges: list[tuple[int, int]], known: tuple[int, ...]) -> tuple[Array, Array]:
    """A and B of one round: draws of unit variance → noise of the messages, and what colluders know of the draws."""
    agents = own.size
    sent = np.zeros((agents, agents + len(edges)))
    sent[:, :agents] = np.diag(own)
    for column, (i, j) in enumerate(edges, start=agents):
        sent[i, column], sent[j, column] = pair[i, j], -pair[i, j]
    told = [k for k in range(agents) if k in known]
    told += [k for k, edge in enumerate(edges, start=agents) if set(edge) & set(known)]
    return sent, np.eye(agents + len(edges))[told]


def information(sent: Array, told: Array, mixed: Array, moved: Array) -> float:
    """(U; 0)ᵀ Σ⁺ (U; 0) of T rounds.

    Args:
        sent: A of a round.
        colluding: B of a round.
        mixed: (T, T), noise of the rounds from white noise of the rounds.
        moved: (T, m), U.
    """
    every = np.vstack([np.kron(mixed, sent), np.kron(np.eye(len(mixed)), told)])
    where = np.concatenate([moved.ravel(), np.zeros(len(every) - moved.size)])
    solved = np.linalg.lstsq(every @ every.T, where, rcond=1e-13)[0]
    assert every @ (every.T @ solved) == pytest.approx(where, abs=1e-6)
    return float(where @ solved)


@pytest.mark.parametrize("seed", range(6))
def test_one_round_by_all_that_colluders_hold(seed: int) -> None:
    own, pair, edges = shared(seed, 5)
    for q in range(4):
        scale = effective_scale(own, csr_matrix(pair), q)
        for v in range(5):
            others = [i for i in range(5) if i != v]
            sets = [noise_maps(own, pair, edges, known) for known in combinations(others, q)]
            worst = max(information(*maps, np.eye(1), np.eye(5)[[v]]) for maps in sets)
            assert worst == pytest.approx(scale[v] ** -2.0, rel=1e-7)


TO_AND_FRO = "to and fro"
POLICIES: dict[str, Callable[[Array], Array]] = {
    TO_AND_FRO: lambda seen: np.full(seen.shape[1], (-1.0) ** len(seen)),
    "the sign of the sum so far": lambda seen: np.where(seen.sum(axis=(0, 2)) > 0.0, 1.0, -1.0),
    "where the victim's message was loud": lambda seen: np.where(np.abs(seen[-1, :, 0]) > 0.5, 1.0, -1.0),
    "less where a neighbour was high": lambda seen: 1.0 / (1.0 + np.exp(seen[-1, :, 1])),
}


def test_rounds_are_priced_together() -> None:
    """5000 rounds of clipped gradients, replaced, in the pair noise by which DECOR prints 3 on the complete graph."""
    rounds, own, pair = 5000, 63.7, 149.1
    scale = effective_scale(np.full(16, own), csr_matrix(pair * (1.0 - np.eye(16))), 0)
    ones = np.ones((rounds, 1))
    line = ChannelLedger(
        "y", GAUSSIAN, 1, np.zeros(16, dtype=np.int64), np.arange(1, rounds + 1), scale[:1] * ones,
        {"train": 2.0 * ones}, {"train": ones},
    )  # fmt: skip
    exact = np.linalg.inv(own**2 * np.eye(16) + pair**2 * (16.0 * np.eye(16) - np.ones((16, 16))))[0, 0]
    wanted = float(gaussian_epsilon(2.0 * math.sqrt(rounds * exact), 1e-5))
    assert epsilon_of(Ledger(16, (line,)), 1e-5) == pytest.approx(np.full(16, wanted), rel=5e-3)
    assert wanted == pytest.approx(2.45, rel=5e-3)


SIZES = (4, 2, 3, 6, 2, 5)
# The adjacency, and the sensitivity of a sum over n records in clips.
UNITS: list[tuple[dict[str, Any], Callable[[Array], Array]]] = [
    ({}, lambda n: np.full(n.shape, 2.0)),
    ({"neighbours": "zero_out"}, np.ones_like),
    ({"unit": 3}, lambda n: 2.0 * np.minimum(n, 3.0)),
    ({"unit": "agent"}, lambda n: 2.0 * n),
]


@pytest.mark.parametrize(
    ("between_agents", "colluders"),
    [*product(["pairwise", "zero_sum"], range(4)), ("optimised", 0), ("optimised", 1)],
)
def test_a_mean_of_features_and_the_steps_after_it_are_priced_together(between_agents: str, colluders: int) -> None:
    """Four agents who all know each other, and two in a row behind one of them, of whom one colluder isolates the last.

    The view is one Gaussian vector: the messages of all rounds, their mean, and the coalition's knowledge.
    """
    unit, clips = UNITS[colluders]
    m, rounds, step, held = len(SIZES), 9, 0.5, np.array(SIZES, dtype=np.float64)
    clip, noise = {"x": 0.7, "y": 0.3}, {"x": 0.9, "y": 0.11}
    graph, draw = nx.lollipop_graph(4, 2), np.random.default_rng(0)
    frame = pd.DataFrame(draw.uniform(-1.0, 1.0, (sum(SIZES), 2)), columns=["a", "b"])
    frame = frame.assign(label=np.arange(len(frame)) % 2, agent=np.repeat(np.arange(m), SIZES), split="train")
    ratio = {} if between_agents == "optimised" else {"ratio": 3.0}
    ranges = {"a": [-1, 1], "b": [-1, 1]}
    content = {
        "problem": {"kind": "classification", "label": "label", "classes": [0, 1], "scale": ranges},
        "algorithm": {"kind": "dp_dsgd", "rounds": rounds, "learning_rate": {"scale": step}, "centring": True},
        "privacy": {
            "mechanism": "gaussian",
            "delta": 1e-5,
            "clip": clip,
            **{channel: {"scale": scale} for channel, scale in noise.items()},
            "correlation": {"between_agents": between_agents, **ratio},
            "colluders": colluders,
            **unit,
        },
    }
    job: Any = decentral_dp.build(content, data=frame, topology=graph).simulation()
    own, pair = np.ones(m), np.full((m, m), 3.0)
    if between_agents == "optimised":
        own, pair = job.pairs.own_deviation, job.pairs.ratio
    edges = list(combinations(range(m), 2)) if between_agents == "zero_sum" else sorted(map(sorted, graph.edges))
    for v in range(m):
        moved, size = np.zeros((rounds + 1, m)), float(clips(held)[v]) / SIZES[v]
        moved[:, v] = [size * clip["x"] / noise["x"], *[step * size * clip["y"] / noise["y"]] * rounds]
        sets = combinations([i for i in range(m) if i != v], colluders)
        shown = max(information(*noise_maps(own, pair, edges, known), np.eye(rounds + 1), moved) for known in sets)
        wanted = float(gaussian_epsilon(math.sqrt(shown), 1e-5))
        assert wanted * (1.0 - 1e-6) <= job.budget.epsilon[v] <= wanted * (1.0 + 2e-3)
