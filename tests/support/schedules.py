"""Schedules of the paper's synthetic experiment (Chen & Wang, ICML 2024, Appendix A.1), and ledgers made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.schedules import StepSize
from papers.published.lipschitz import LipschitzConstants


class AgentNoise(NamedTuple):
    scale: np.ndarray
    decay: np.ndarray


STEPS = {"x": StepSize(0.05, 0.95), "y": StepSize(0.05, 0.87), "z": StepSize(0.02, 0.75)}
FIRST_DECAY = {"x": 0.80, "y": 0.76, "z": 0.60}
RING_WEIGHT = 0.6
AGENTS = np.arange(1, 11)

# Binary logistic regression with ‖a‖₁ ≤ 1, |ω| ≤ 1, |z| ≤ 1, e^λ ≤ 1: constants for (G_x, G_y, G_z) in (x, y, z), and
# the swap of one train and one validation record. Data: σ' ≤ 1/4 and |σ''| ≤ 1/(6√3); the rest is the regulariser.
GLM = LipschitzConstants(
    data={
        "train": np.array([[0, 0, 0], [0, 0.25, 0], [0, 1 / (6 * 3**0.5), 0.25]]),
        "validation": np.array([[0, 0, 0], [0, 0, 0], [0, 0.25, 0]]),
    },
    regulariser=np.array([[1.0, 1, 1], [1, 1, 0], [1, 0, 1]]),
    swap={"train": np.array([0, 2, 0.5]), "validation": np.array([0, 0, 2.0])},
    two_point=True,
)
GLM_SWAP = {"x": 0.0, "y": 2.0, "z": 2.5}


def noise(agent: int) -> dict[str, StepSize]:
    return {c: StepSize(1.0, FIRST_DECAY[c] + 0.01 * agent) for c in FIRST_DECAY}


def noise_of_all() -> dict[str, AgentNoise]:
    return {c: AgentNoise(np.ones(AGENTS.size), FIRST_DECAY[c] + 0.01 * AGENTS) for c in FIRST_DECAY}


def steps(channel: str, rounds: int) -> np.ndarray:
    return STEPS[channel].scale * np.arange(1.0, rounds + 1) ** -STEPS[channel].decay


def deviations(channel: str, index: np.ndarray, agent: int = 1) -> np.ndarray:
    """Standard deviation of the noise on the value with that index."""
    return (index + 1.0) ** -(FIRST_DECAY[channel] + 0.01 * agent)


def laplace_scales(channel: str, index: np.ndarray, agent: int = 1) -> np.ndarray:
    return deviations(channel, index, agent) / np.sqrt(2.0)


def line(
    channel: str,
    sensitivity: Mapping[str, np.ndarray],
    scale: np.ndarray,
    mechanism: str = "laplace",
    rate: float = 1.0,
    dimension: int = 1,
    agents: int | None = None,
) -> ChannelLedger:
    """Build one channel; sensitivities and scales are (T,) for one column, or (T, g) with one agent a column."""
    wide = {k: np.asarray(s, dtype=float).reshape(len(s), -1) for k, s in sensitivity.items()}
    rounds, width = next(iter(wide.values())).shape
    scales = np.broadcast_to(np.asarray(scale, dtype=float).reshape(rounds, -1), (rounds, width))
    group = np.zeros(agents, dtype=np.int64) if agents is not None else np.arange(width)
    rates = {k: np.full((rounds, width), rate) for k in wide}
    return ChannelLedger(channel, mechanism, dimension, group, np.arange(1, rounds + 1), scales, wide, rates)


def ledger(*lines: ChannelLedger) -> Ledger:
    return Ledger(lines[0].group.size, tuple(lines))


def sampling(rounds: int, agents: Sequence[int] = (1,), mechanism: str = "laplace", clip: float = 1.0) -> Ledger:
    """Plan one record of each split a round and clipped means over all so far: train for y and z, validation for z."""
    counts = np.arange(1.0, rounds + 1)
    index = np.arange(1, rounds + 1)
    lines = []
    for c in ("y", "z"):
        sensitivity = np.repeat((steps(c, rounds) * 2 * clip / counts)[:, None], len(agents), axis=1)
        spread = np.stack([deviations(c, index, a) for a in agents], axis=1)
        scale = spread / np.sqrt(2.0) if mechanism == "laplace" else spread
        kinds = {"train": sensitivity} if c == "y" else {"train": sensitivity, "validation": sensitivity}
        lines.append(line(c, kinds, scale, mechanism))
    return ledger(*lines)


def pair_stream(
    rounds: int, agent: int = 1, weight: np.ndarray | None = None, rate: float = 1.0, finer: float = 1.0
) -> Ledger:
    """The released state with GLM swaps of a (train, validation) pair, booked as one kind of record."""
    counts = np.arange(1.0, rounds + 1) if weight is None else weight
    index = np.arange(1, rounds + 1)
    return ledger(
        *(
            line(
                c,
                {"train": steps(c, rounds) * GLM_SWAP[c] / counts},
                laplace_scales(c, index, agent) / finer,
                rate=rate,
            )
            for c in ("y", "z")
        )
    )
