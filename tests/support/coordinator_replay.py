"""A trusted coordinator with known noise or prescribed answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from decentral_dp.bounded import Bounded
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import Outcome, RunControl
from decentral_dp.exchange import Bundle, Released
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.job import PlannedJob as Job

Say = Callable[[int, str, np.ndarray, np.ndarray], np.ndarray]
SCALE = 0.07


def loud(index: int, channel: str, width: int) -> np.ndarray:
    """Noise that anyone can compute."""
    return 0.1 * np.random.default_rng([index, *channel.encode()]).normal(size=width)


class Scripted:
    """A curator with known noise, or known answers by index and channel; keeps what was wanted, charges nothing."""

    def __init__(self, noise: Callable[[int, str, int], np.ndarray] = loud, answers: Mapping[Any, Any] | None = None):
        self.wanted: dict[tuple[int, str], Any] = {}
        self._noise, self._answers = noise, answers

    def release(self, index: int, values: Mapping[str, Any]) -> Released:
        out, scale = {}, {}
        for channel, wanted in values.items():
            self.wanted[index, channel] = wanted
            charged = isinstance(wanted, Bounded)
            out[channel] = wanted.value + self._noise(index, channel, wanted.value.shape[1]) if charged else wanted
            if charged and self._answers is not None:
                out[channel] = self._answers[index, channel]
            if charged:
                scale[channel] = SCALE
        return Released(Bundle(out), scale)

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        return Ledger(1, (), releases_per_round)


class Listening:
    """A job's own curator; keeps what was wanted."""

    def __init__(self, job: Job) -> None:
        self.wanted: dict[tuple[int, str], Any] = {}
        self._real = job.coordinator_node().make_releaser()

    def release(self, index: int, values: Mapping[str, Any]) -> Released:
        self.wanted |= {(index, channel): wanted for channel, wanted in values.items()}
        return self._real.release(index, values)

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        return self._real.ledger(releases_per_round)


def performed(coordinator_node: Any, rounds: int, every: int = 1) -> tuple[Outcome, list[Mapping[str, np.ndarray]]]:
    """The outcome, and what was published after every round."""
    seen: list[Mapping[str, np.ndarray]] = []

    def look(snapshot: Any) -> bool:
        seen.append(snapshot.published)
        return False

    return LocalEngine().coordinate(coordinator_node, rounds, RunControl(range(0, rounds + 1, every), look)), seen


def scripted(job: Job, releaser: Scripted | Listening, client_blocks: Any = None) -> list[Mapping[str, np.ndarray]]:
    coordinator_node = job.coordinator_node()._replace(make_releaser=lambda: releaser)
    if client_blocks is not None:
        coordinator_node = coordinator_node._replace(client_blocks=client_blocks)
    return performed(coordinator_node, job.rounds)[1]


def keyed(job: Job, scale: Callable[[int, str], float]) -> Say:
    """Recompute the curator's releases from the keyed stream: grid, rounded query, rounded normal noise."""
    streams = Streams(job.root, "noise", [0])

    def say(index: int, channel: str, public: np.ndarray, private: np.ndarray) -> np.ndarray:
        s = scale(index, channel)
        g = 2.0 ** (math.floor(math.log2(s)) - 16)
        normal = streams.generator(0, index, tag(channel)).standard_normal(private.size)
        return public + g * (np.rint(private / g) + np.rint(normal * (s / g)))

    return say


def with_noise(index: int, channel: str, public: np.ndarray, private: np.ndarray) -> np.ndarray:
    return public + private + loud(index, channel, private.size)


def without(index: int, channel: str, public: np.ndarray, private: np.ndarray) -> np.ndarray:
    return public + private
