"""Custom algorithms: linearised ADMM, local steps, and per-agent clips, with their ε."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip
from tests.support.replay import network_replay
from tests.support.training import training

CLIP, ROUNDS = 0.5, 6


class State(NamedTuple):
    """x, y: the variables. z: what else a program keeps: a public dual variable."""

    x: Any
    y: Any
    z: Any


def mixed(dataset: Any, own: Any, near: Any) -> Any:
    return (1.0 - dataset.neighbour_weight) * own + near


@dataclass(frozen=True)
class Admm:
    """y ← ỹ − λ (g(ỹ) + a + ỹ − W ỹ), a ← a + ỹ − W ỹ: linearised ADMM, whose duals follow from releases."""

    learning_rate: StepSize
    channels = ("x", "y")
    RELEASES: ClassVar[Mapping[str, Any]] = {"y": {"lower_grad_y": "learning_rate"}}

    def init(self, dataset: Any, x: Any, y: Any) -> State:
        return State(x, y, dataset.public(0.0, dataset.q))

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y)
        apart = own.y - mixed(dataset, own.y, near.y)
        dual = s.z + apart
        return State(
            s.x, own.y - self.learning_rate(t) * (dataset.batch(t).lower_grad_y(s.x, own.y) + dual + apart), dual
        )


@dataclass(frozen=True)
class LocalSteps:
    """Decentralised SGD that mixes in every third round."""

    learning_rate: StepSize
    channels = ("x", "y")
    RELEASES: ClassVar[Mapping[str, Any]] = {"y": {"lower_grad_y": "learning_rate"}}

    def init(self, dataset: Any, x: Any, y: Any) -> State:
        return State(x, y, None)

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y)
        at = mixed(dataset, own.y, near.y) if t % 3 == 0 else own.y
        return State(s.x, at - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, at), None)


def content(**privacy: Any) -> dict[str, Any]:
    return training(algorithm={"rounds": ROUNDS}, privacy={"clip": CLIP, **privacy})


@pytest.mark.parametrize(
    ("program", "channel", "factor"),
    [
        (Admm, "y", np.full(4, 0.5)),
        (LocalSteps, "y", np.full(4, 0.5)),
    ],
)
def test_it_is_priced_for_one_mean_a_release(program: Any, channel: str, factor: np.ndarray) -> None:
    """2C/N times what the author states, agent by agent, and as recorded."""
    run = decentral_dp.run(content(epsilon=4.0), algorithm=program(StepSize(0.5)))
    ledger = run.simulation().ledger
    (charged,) = ledger.charged_channels
    assert charged.channel == channel
    counts = run.simulation().counts["train"]
    np.testing.assert_allclose(charged.sensitivity["train"][0, charged.group], factor * 2 * CLIP / counts, rtol=1e-6)
    assert run.records.same_releases(ledger)
    assert 3.9 < run.result["privacy"]["epsilon_max"] <= 4.0


class Kept(LocalSteps):
    """Adds the mean of the previous round from a noiseless state."""

    RELEASES: ClassVar[Mapping[str, Any]] = {"y": {"lower_grad_y": "both"}}

    def both(self, t: int) -> float:
        return self.learning_rate(t) * (1.0 + (t > 0))

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y)
        at = mixed(dataset, own.y, near.y)
        gradient = dataset.batch(t).lower_grad_y(s.x, at)
        return State(s.x, at - self.learning_rate(t) * (gradient if t == 0 else gradient + s.z), gradient)


class Hidden(Kept):
    """Plan only the mean of its round."""

    def both(self, t: int) -> float:
        return self.learning_rate(t)


@pytest.mark.parametrize("records", [1, 3, "agent"])
@pytest.mark.parametrize("program", [Admm, Kept])
def test_groups_of_records_move_a_release_as_far_as_planned_and_no_further(program: Any, records: Any) -> None:
    """Search over groups, points and messages on one transcript; a noiseless state counts in the sensitivity."""
    unit = {} if records == 1 else {"unit": records}
    job: Any = decentral_dp.build(content(epsilon=4.0, **unit), algorithm=program(StepSize(0.5))).simulation()
    line, m, q = next(c for c in job.ledger.channels if c.channel == "y"), job.n_agents, job.problem.q
    planned = line.sensitivity["train"][:, line.group]
    most = 0.0
    for seed in range(8):
        rng, victim = np.random.default_rng(seed), seed % m
        shard = job.records["train"][victim]
        size = len(shard[0])
        members = np.arange(size) if records == "agent" else rng.choice(size, records, replace=False)
        # Long features, of which those of the group have one label and then the other.
        said = [{"x": np.zeros((m, job.problem.p)), "y": rng.normal(size=(m, q)) * 1e-3} for _ in range(ROUNDS + 1)]
        wanted = []
        for label in (0.0, 1.0):
            features, labels = np.array(shard[0]), np.array(shard[1])
            features[members] = 1e3
            labels[members] = label
            train = list(job.records["train"])
            train[victim] = type(shard)(features, labels, *shard[2:])
            wanted.append(network_replay(replace(job, records={**job.records, "train": train}), said).wanted)
        for t in range(ROUNDS):
            one, other = (script[t + 1]["y"] for script in wanted)
            np.testing.assert_array_equal(one.public, other.public)
            moved = np.linalg.norm(one.private - other.private, axis=1)
            assert not moved[np.arange(m) != victim].any()
            assert moved[victim] <= planned[t, victim] * (1.0 + 1e-9)
            most = max(most, moved[victim] / planned[t, victim])
    assert most > 0.9


@pytest.mark.parametrize("keys", [{"unit": 3}, {"unit": "agent"}, {}])
def test_what_keeps_more_than_it_plans_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"round 2: .* one train record may move y by .*, planned "):
        decentral_dp.run(content(epsilon=4.0, **keys), algorithm=Hidden(StepSize(0.5)))


class Averaging(DpDsgd):
    """FedAvg over a graph: K steps without noise and one release of the clipped difference; it plans for itself."""

    def planned_releases(self, public: Any) -> Any:
        sent, free = dp.plan_block(public, indices := np.arange(1, public.rounds + 1), "lower_grad_y"), indices[-1:]
        return {"x": dp.free_release(public, free), "y": sent}

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own, near = yield Gossip(y=s.y)
        at = mixed(dataset, own.y, near.y)
        return s._replace(y=at + dataset.local_steps(t, s.x, at, 5, self.learning_rate(t)))


def test_steps_without_noise_between_two_releases_protect_agents() -> None:
    run = decentral_dp.run(content(epsilon=4.0, unit="agent"), algorithm=Averaging(StepSize(0.5)))
    (charged,) = run.simulation().ledger.charged_channels
    np.testing.assert_allclose(charged.sensitivity["train"], 2.0 * CLIP, rtol=1e-9)
    assert run.records.same_releases(run.simulation().ledger)
    # The same plan as that of `DpDsgd`.
    plain = [
        decentral_dp.plan(content(epsilon=4.0, unit="agent"), algorithm=program).ledger
        for program in (Averaging(StepSize(0.5)), DpDsgd(StepSize(0.5), local_steps=5))
    ]
    assert plain[0]["scale"].equals(plain[1]["scale"])
    with pytest.raises(InputError, match="the sensitivity of channel 'y' is unbounded"):
        decentral_dp.build(content(epsilon=4.0), algorithm=Averaging(StepSize(0.5)))
