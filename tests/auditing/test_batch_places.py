"""Batches of fixed size with rounding by position: a drawn record does not move the contributions of others.

Features of 1e19 and a point with aᵀy = 0 up to rounding: the position of a record in its batch decides the sign of its
coefficient, and so a whole clipped contribution. The distribution of a release over all batches of `draw_batch` is
enumerated, and compared with the certified ε.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.protocol import StepSize, tunes_x
from decentral_dp.bounded import MIXED, Bounded, Sensitivity, Split
from decentral_dp.data.streams import Draw, Sampling, draw_batch
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import AgentNode
from decentral_dp.models.linear_terms import forward
from decentral_dp.participants import LocalDataset, Network
from decentral_dp.privacy.accounting.loss_distributions import amplify
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import Quadratic
from decentral_dp.problems.protocol import TERMS
from tests.support.replay import Script

# Records of the agent, drawn ones, columns (more than are added up without BLAS), and the one that is replaced.
N, B, D, VICTIM = 8, 3, 40, 7
ROUNDS = 2
SIGNS = np.where(np.arange(D) % 2, -1.0, 1.0)
# adassp reads no batches.
GOSSIP = sorted(
    name for name, e in ALGORITHMS.items() if not e.trusts_coordinator and e.solves == "bilevel" and name != "adassp"
)
STEPS: Mapping[str, Any] = {"smoothness": 1.0, "recursive_momentum": 0.5, "penalty": 0.1, "inner": 1, "inverse": 2}
ONE_STEP = StepSize(0.5)


@functools.cache
def batches() -> tuple[tuple[int, ...], ...]:
    """Every batch that is ever drawn. That each is as likely as any other is tested in tests/data/test_streams."""
    rng = np.random.default_rng(5)
    return tuple(sorted({tuple(draw_batch(N, B, rng).index.tolist()) for _ in range(7000)}))


def exchanged(batch: tuple[int, ...], other: int) -> int:
    """The number of the batch without the victim, in which another record has taken the place that it leaves."""
    changed = tuple(other if k == VICTIM else k for k in batch)
    return batches().index(changed if changed in batches() else tuple(sorted(changed)))


@functools.cache
def coupled() -> tuple[Any, Any]:
    """Batches with the victim, and without it: what the proof of amplification takes for neighbours."""
    with_it = [(row, batch) for row, batch in enumerate(batches()) if VICTIM in batch]
    pairs = [(row, exchanged(batch, other)) for row, batch in with_it for other in set(range(N)) - set(batch)]
    here, there = np.array(pairs).T
    return here, there


class Rounding(Quadratic):
    """A library that rounds the last row of a batch otherwise: as far as BLAS does at 1e19, on every machine.

    Evaluate `terms`, so that agents are evaluated one after another instead of in a stack.
    """

    def terms(self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Clip, wanted: Any = TERMS) -> Any:
        apart = np.where(np.arange(B) == B - 1, 2000.0, 0.0)
        train, validation = (some._replace(label=some.label + apart) for some in (train, validation))
        return super().terms(x, y, z, train, validation, clip, wanted)


def turned(kernel: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Records whose coefficient at y = 1 is positive in the first place, and negative in the last."""
    if kernel == "stand-in":
        return np.tile(SIGNS, (count, 1)), np.full(count, -1000.0)
    rng, found = np.random.default_rng(6), []
    for _ in range(400):
        rows = 1e19 * SIGNS * rng.uniform(0.5, 1.5, size=(64, D))
        rows[:, -1] = -rows[:, :-1].sum(axis=1)
        rows = rows[rows[:, -1] * SIGNS[-1] > 0.0]
        first, last = (
            np.array([forward(np.tile(a, (1, B, 1)), np.ones((1, D)))[0][0, place] for a in rows])
            for place in (0, B - 1)
        )
        found += [(a, 0.5 * (f + g)) for a, f, g in zip(rows, first, last, strict=True) if f > g]
        if len(found) >= count:
            break
    else:
        pytest.skip("this BLAS rounds a row equally in all positions")
    return np.array([a for a, _ in found[:count]]), np.array([b for _, b in found[:count]])


def data_set(kernel: str, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """Records 0 … 4 pull one way, 5 and 6 by their position, and the last by the data set: found by a search over such
    patterns for sorted batches, which exceed their certified ε by a factor of 1.36 here."""
    features, labels = np.tile(SIGNS, (N, 1)), np.full(N, 1e6)
    features[5:7], labels[5:7] = turned(kernel, 2)
    labels[VICTIM] = -1e6 * sign
    return features, labels


class Ones:
    """A transcript with the value 1 everywhere."""

    def __init__(self, widths: Mapping[str, int]) -> None:
        self._widths = widths

    def __getitem__(self, index: int) -> Any:
        return {c: np.ones((len(batches()), width)) for c, width in self._widths.items()}


@dataclass(frozen=True)
class Rows:
    """Return the index of the calling row instead of a generator."""

    def generator(self, row: int, index: int, name: int) -> int:
        return row


def program(name: str) -> Any:
    entry = ALGORITHMS[name]
    keys = {o.key: ONE_STEP if o.type is StepSize else STEPS[o.key] for o in entry.keys if o.required}
    return entry.build(keys, {"x": 1.0, "y": 1.0}, "certified")


def wanted(algorithm: Any, kernel: str, kind: Split, sign: float) -> list[dict[str, Any]]:
    """Return the queries of agents that differ only in their batches; agent k draws batch k."""
    problem, drawn = (Rounding if kernel == "stand-in" else Quadratic)(D), batches()
    mine = problem.prepare(*data_set(kernel, sign), "l1")
    plain = problem.prepare(np.tile(SIGNS, (B, 1)), np.zeros(B), "l1")
    agents, weights = np.arange(len(drawn)), np.full(len(drawn), 0.5)
    records: dict[Any, Any] = {k: [mine if k == kind else plain] * agents.size for k in ("train", "validation")}

    def draw(split: Split, n: int, batch: int, row: Any) -> Draw:
        return Draw(np.array(drawn[row]), batch / n) if split == kind else Draw(np.arange(n), 1.0)

    clip, sampling, rows = Clip("l1", x=1.0, y=1.0, z=1.0), Sampling("fixed_batch", batch=B), Rows()
    network = Network(sp.csr_array((weights, (agents, np.roll(agents, 1)))))
    dataset = LocalDataset(agents, problem, records, weights, sampling, clip, rows, network=network)  # type: ignore[arg-type]
    widths = {c: channel.width for c, channel in algorithm.releases(problem.p, problem.q).items()}
    script = Script(Ones(widths))  # type: ignore[arg-type]
    node = AgentNode(
        agents, algorithm, dataset.with_sampler(draw), lambda: script, (0,), sp.csr_array(weights[:, None])
    )
    host = Host(node, ROUNDS)
    said = host.advance()
    for _ in range(ROUNDS * algorithm.releases_per_round):
        said = host.advance(np.ones((1, said.shape[1])))
    return script.wanted


def pure_epsilon(means: np.ndarray, others: np.ndarray, scale: float) -> float:
    """Shown far out along the signs of the records, where each batch weighs e^(±⟨signs, mean⟩/scale)."""
    signs = np.resize(SIGNS, means.shape[1])
    one, other = (np.outer([1.0, -1.0], v @ signs) / scale for v in (means, others))
    return float(np.abs(np.logaddexp.reduce(one, axis=1) - np.logaddexp.reduce(other, axis=1)).max())


def said_of(runs: list[list[dict[str, Any]]], kind: Split) -> Iterator[tuple[Any, Any, Sensitivity]]:
    """The private parts of every release of both data sets, (batches, ·), and what it states of such records."""
    for here, there in zip(*runs, strict=True):
        for channel, value in here.items():
            spread = value.sensitivities.get(kind) if isinstance(value, Bounded) else None
            if spread is not None and spread.sensitivity[0] > 0.0:
                yield value.private, there[channel].private, spread


@pytest.mark.parametrize("kernel", ["blas", "stand-in"])
@pytest.mark.parametrize("kind", ["train", "validation"])
@pytest.mark.parametrize("name", GOSSIP)
def test_coupled_batches_move_releases_by_their_sensitivity(name: str, kind: Split, kernel: str) -> None:
    """Bound the loss of the release's distribution over all batches by its cost (pure ε 2.38 on its batch)."""
    runs, (here, there), largest = [wanted(program(name), kernel, kind, sign) for sign in (1.0, -1.0)], coupled(), 0.0
    for one, other, spread in said_of(runs, kind):
        stated = float(spread.sensitivity[0])
        for first, second in ((one[here], one[there]), (other[here], other[there]), (one, other)):
            moved = float(np.abs(first - second).sum(axis=1).max()) / stated
            assert moved <= 1.0 + 1e-9
            largest = max(largest, moved)
        rate = 1.0 if spread.batch == MIXED else float(spread.rate[0])
        assert pure_epsilon(one, other, stated / 2.38) <= float(amplify(2.38, rate)) * (1.0 + 1e-9)
    assert largest > 0.999 or (kind == "validation" and not tunes_x(program(name), D, D))
