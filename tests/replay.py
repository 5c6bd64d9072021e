"""Running one agent on a prescribed transcript: what it would have released, before noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms.protocol import Algorithm
from decentral_dp.data import Stream
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import Node
from decentral_dp.exchange import Bundle, Value
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.keys import Streams, seeded_root
from decentral_dp.privacy.ledger import Recorder
from decentral_dp.privacy.sensitivity import Array, Bounded, Constants
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.shard import Shard


class Script:
    """A releaser that says what the transcript prescribes, and keeps what the agent wanted to release."""

    def __init__(self, transcript: Sequence[Mapping[str, Array]]) -> None:
        self.recorder = Recorder(1)
        self.wanted: list[dict[str, Value]] = []
        self._transcript = transcript

    def release(self, index: int, values: Mapping[str, Value]) -> Bundle:
        self.wanted.append(dict(values))
        said = self._transcript[index]
        # A value without data in it is what it is: the adversary knows it.
        return Bundle({c: said[c] if isinstance(v, Bounded) else v for c, v in values.items()})


def replay(
    algorithm: Algorithm,
    problem: Problem,
    train: Any,
    validation: Any,
    *,
    rounds: int,
    self_weight: float,
    own: Sequence[Mapping[str, Array]],
    received: Sequence[Array],
    clip: Clip,
    stream: Stream | None = None,
    box: Mapping[str, float] | None = None,
    constants: Constants | None = None,
) -> list[dict[str, Value]]:
    """What the agent wants to release at indices 0..rounds, given what it said and what it received.

    own: per index, channel → (1, d). received: per round, (1, D) messages of one neighbour with weight self_weight.
    """
    script = Script(own)
    shard = Shard(
        np.array([0]),
        problem,
        {"train": [train], "validation": [validation]},
        np.array([self_weight]),
        stream or Stream("all"),
        clip,
        Streams(seeded_root(1, b"replay"), "batch", [0]),
        box,
        constants,
    )
    weights = sp.csr_array(np.array([[self_weight]]))
    host = Host(Node(np.array([0]), algorithm, shard, lambda: script, (0,), weights), rounds)
    host.advance()
    for message in received[:rounds]:
        host.advance(message)
    return script.wanted


def realised_change(
    a: Sequence[Mapping[str, Value]], b: Sequence[Mapping[str, Value]], norm: str = "l1"
) -> dict[str, Array]:
    """Norm of the difference of two replays, per channel and index 1..T."""
    out: dict[str, list[float]] = {}
    for first, second in zip(a[1:], b[1:], strict=True):
        for channel, value in first.items():
            if isinstance(value, Bounded):
                other = second[channel]
                difference = (value.private - other.private).ravel()  # type: ignore[union-attr]
                size = np.abs(difference).sum() if norm == "l1" else np.sqrt((difference**2).sum())
                out.setdefault(channel, []).append(float(size))
    return {c: np.array(v) for c, v in out.items()}
