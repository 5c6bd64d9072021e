"""Replay one agent on a prescribed transcript, or all agents with known noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms.protocol import Algorithm
from decentral_dp.bounded import Array, Bounded, Split
from decentral_dp.data import Sampling
from decentral_dp.engines.host import Host
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import AgentNode
from decentral_dp.exchange import Bundle, Value
from decentral_dp.participants import LocalDataset
from decentral_dp.privacy.clipping import RECORD, Clip, Unit
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.problems.bilevel.losses import LossRecords, from_losses
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem, Regulariser, Terms


class Script:
    """Release the transcript's values, and store the agent's values before noise."""

    def __init__(self, transcript: Sequence[Mapping[str, Array]]) -> None:
        self.recorder = Recorder(1)
        self.wanted: list[dict[str, Value]] = []
        self.sends: list[Any] = []
        self._transcript = transcript

    def release(self, index: int, values: Mapping[str, Value], sends: Any = None) -> Bundle:
        self.wanted.append(dict(values))
        self.sends.append(sends)
        said = self._transcript[index]
        # The adversary knows values that do not depend on records.
        return Bundle({c: said[c] if isinstance(v, Bounded) else v for c, v in values.items()})


def replay(
    algorithm: Algorithm,
    problem: Problem,
    train: Any,
    validation: Any,
    *,
    rounds: int,
    neighbour_weight: float,
    own: Sequence[Mapping[str, Array]],
    received: Sequence[Array],
    clip: Clip,
    sampling: Sampling | None = None,
    unit: Unit = RECORD,
) -> list[dict[str, Value]]:
    """Return the agent's values before noise at indices 0..rounds·exchanges, given its own and the received messages.

    own: per index, channel → (1, d). received: per exchange, (1, D) of one neighbour, with weight neighbour_weight.
    """
    script = Script(own)
    dataset = LocalDataset(
        np.array([0]),
        problem,
        {"train": [train], "validation": [validation]},
        np.array([neighbour_weight]),
        sampling or Sampling("full"),
        clip,
        Streams(seeded_root(1, b"replay"), "batch", [0]),
        unit=unit,
    )
    weights = sp.csr_array(np.array([[neighbour_weight]]))
    host = Host(AgentNode(np.array([0]), algorithm, dataset, lambda: script, (0,), weights), rounds)
    host.advance()
    for message in received[: rounds * algorithm.releases_per_round]:
        host.advance(message)
    return script.wanted


def realised_change(
    a: Sequence[Mapping[str, Value]], b: Sequence[Mapping[str, Value]], norm: str = "l1"
) -> dict[str, Array]:
    """Norm of the difference of two replays, per channel and release, ascending from index 1.

    Raises ValueError where they differ in what is sent as public, or at index 0: neither is charged.
    """
    out: dict[str, list[float]] = {}
    for index, (first, second) in enumerate(zip(a, b, strict=True)):
        for channel, value in first.items():
            other = second[channel]
            charged = isinstance(value, Bounded) and isinstance(other, Bounded)
            public = (value.public, other.public) if charged else (value, other)
            if not np.array_equal(*public, equal_nan=True):
                raise ValueError(f"{channel} at index {index} differs between neighbours in what counts as public")
            if charged:
                difference = (value.private - other.private).ravel()
                size = np.abs(difference).sum() if norm == "l1" else np.sqrt((difference**2).sum())
                if index > 0:
                    out.setdefault(channel, []).append(float(size))
                elif size:
                    raise ValueError(f"{channel} at index 0 differs between neighbours")
    return {c: np.array(v) for c, v in out.items()}


def certified_change(run: Sequence[Mapping[str, Value]], split: Split) -> dict[str, Array]:
    """The sensitivities that these releases state for one record of this kind, as `realised_change` lists them."""
    out: dict[str, list[float]] = {}
    for values in run[1:]:
        for channel, value in values.items():
            if isinstance(value, Bounded):
                spread = value.sensitivities.get(split)
                out.setdefault(channel, []).append(float(spread.sensitivity[0]) if spread else 0.0)
    return {c: np.array(v) for c, v in out.items()}


Noise = Callable[[int, str, int, int], Array]


def quiet(index: int, channel: str, agent: int, width: int) -> Array:
    """Return zero noise."""
    return np.zeros(width)


def loud(index: int, channel: str, agent: int, width: int) -> Array:
    """Draw public noise of this release, this channel and this agent."""
    return 0.3 * np.random.default_rng([index, *channel.encode(), agent]).normal(size=width)


class Scripted:
    """Release with known noise, store the released values, and record no cost."""

    def __init__(self, agents: Array, noise: Noise) -> None:
        self.recorder = Recorder(agents.size)
        self.said: list[dict[str, Array]] = []
        self._agents = agents
        self._noise = noise

    def release(self, index: int, values: Mapping[str, Value], sends: Any = None) -> Bundle:
        out = {}
        for c, v in values.items():
            out[c] = v
            if isinstance(v, Bounded):
                out[c] = v.value + np.stack([self._noise(index, c, int(i), v.value.shape[1]) for i in self._agents])
        self.said.append(out)
        return Bundle(out)


def conversation(job: Any, noise: Noise = quiet) -> list[dict[str, Array]]:
    """Return all messages of all agents, per index: channel → (m, d), with this noise."""
    scripts: list[Scripted] = []

    def make(agents: Array) -> Scripted:
        scripts.append(Scripted(agents, noise))
        return scripts[-1]

    nodes = [n._replace(make_releaser=lambda n=n: make(n.agents)) for n in job.nodes()]
    LocalEngine().run(nodes, job.rounds)
    return [
        {c: np.concatenate([said[c] for said in parts]) for c in parts[0]}
        for parts in zip(*(s.said for s in scripts), strict=True)
    ]


def network_replay(job: Any, transcript: Sequence[Mapping[str, Array]]) -> Script:
    """All agents of a job on one transcript, per index: channel → (m, d)."""
    script = Script(transcript)
    (node,) = job.nodes()
    LocalEngine().run([node._replace(make_releaser=lambda: script)], job.rounds)
    return script


# A problem whose five terms all read records, and all change sign with the label:
#     l = b ((aᵀy)(aᵀx) + ½ (aᵀy)²),     h = b (aᵀy)(aᵀx),     R = ½‖y‖² + 0.3 xᵀy
CROSSED: dict[str, Callable[..., Array]] = {
    "lower_grad_y": lambda x, y, z, a, b: b * (a @ x + a @ y) * a,
    "lower_hvp": lambda x, y, z, a, b: b * (a @ z) * a,
    "lower_jvp": lambda x, y, z, a, b: b * (a @ z) * a,
    "upper_grad_y": lambda x, y, z, a, b: b * (a @ x) * a,
    "upper_grad_x": lambda x, y, z, a, b: b * (a @ y) * a,
}
CROSSED_PENALTY: dict[str, Callable[..., Array]] = {
    "lower_grad_y": lambda x, y, z: y + 0.3 * x,
    "lower_hvp": lambda x, y, z: z,
    "lower_jvp": lambda x, y, z: 0.3 * z,
}


class Crossed:
    """The problem above, p = q = d, by hand; `crossed` is the same from its losses."""

    reads_records: ClassVar[dict[str, Split]] = {t: "train" if t.startswith("lower") else "validation" for t in CROSSED}

    def __init__(self, d: int) -> None:
        self.p = self.q = d

    def prepare(self, features: Array, labels: Array, norm: str) -> LossRecords:
        return LossRecords(np.asarray(features, dtype=np.float64), np.asarray(labels, dtype=np.float64))

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return Regulariser(*(CROSSED_PENALTY[t](x, y, z) for t in ("lower_grad_y", "lower_hvp", "lower_jvp")))

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        means = {}
        for term in wanted:
            rows, labels = train if term.startswith("lower") else validation
            along = {"lower_grad_y": x + y, "upper_grad_y": x, "upper_grad_x": y}.get(term, z)
            ones = (labels * (rows @ along))[:, None] * rows
            sizes = np.linalg.norm(ones, 1 if clip.norm == "l1" else 2, axis=1)
            with np.errstate(divide="ignore"):
                means[term] = np.minimum(1.0, clip.bound(CLIP_OF_TERM[term]) / sizes) @ ones / len(labels)
        return Terms(**means)

    def change(self, x: Array, y: Array, other: Array, train: Any, clip: Clip) -> Array | None:
        """∇_x l is linear in y."""
        return self.terms(x, y, y - other, train, train, clip, ("lower_jvp",)).lower_jvp


@cache
def crossed(d: int) -> Problem:
    """The same from its losses; traced and tried once."""

    def lower(x: Any, y: Any, a: Any, b: Any) -> Any:
        return b * ((a @ y) * (a @ x) + 0.5 * (a @ y) ** 2)

    def upper(x: Any, y: Any, a: Any, b: Any) -> Any:
        return b * (a @ y) * (a @ x)

    def penalty(x: Any, y: Any) -> Any:
        return 0.5 * (y @ y) + 0.3 * (x @ y)

    return from_losses(upper, lower, p=d, q=d, n_features=d, regulariser=penalty)
