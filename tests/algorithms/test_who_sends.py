"""Custom algorithms in which only some agents send, or that read every neighbour's value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.exchange import Senders
from decentral_dp.privacy.accounting.accountants import epsilon_of, gaussian_epsilon
from decentral_dp.privacy.releasers import UserCodeError

TEXT = """
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.algorithms.options import option
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip


class State(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Walk:
    '''Random walk: the holder of a token takes a gradient step and sends it; other agents send nothing.'''

    learning_rate: StepSize = option("λ, of y along the lower gradient")

    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "learning_rate"}}

    def init(self, dataset, x, y):
        return State(x, y)

    def senders(self, network):
        holder, t = 0, 0
        while True:
            yield [holder]
            near = network.neighbours(holder)
            holder = int(near[network.public_rng(t).integers(near.size)])
            t += 1

    def step(self, t, dataset, s):
        own, near, received = yield Gossip(y=s.y, each=True)
        token = own.y.copy()
        token[received.rows] = received.values.y
        return State(s.x, token - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, token))


@dataclass(frozen=True)
class Pairs:
    '''Pairwise gossip on a public matching per round; unmatched agents send nothing.'''

    learning_rate: StepSize = option("λ, of y along the lower gradient")

    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "learning_rate"}}

    def init(self, dataset, x, y):
        return State(x, y)

    def matching(self, network, t):
        partner = np.full(network.n_agents, -1)
        for i in network.public_rng(t).permutation(network.n_agents):
            free = [j for j in network.neighbours(int(i)) if partner[j] < 0]
            if partner[i] < 0 and free:
                partner[i], partner[free[0]] = free[0], i
        return partner

    def senders(self, network):
        t = 0
        while True:
            yield self.matching(network, t) >= 0
            t += 1

    def step(self, t, dataset, s):
        own, near, received = yield Gossip(y=s.y, each=True)
        partner = self.matching(dataset.network, t)[dataset.agents]
        theirs = received.select(received.agents == partner[received.rows])
        y = own.y.copy()
        y[theirs.rows] = 0.5 * (own.y[theirs.rows] + theirs.values.y)
        return State(s.x, y - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, y))


@dataclass(frozen=True)
class Trimmed:
    '''Coordinate-wise median of the own and the received values.'''

    learning_rate: StepSize = option("λ, of y along the lower gradient")

    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "learning_rate"}}

    def init(self, dataset, x, y):
        return State(x, y)

    def step(self, t, dataset, s):
        own, near, received = yield Gossip(y=s.y, each=True)
        assert np.allclose(near.y[0], received.of_agent(0).weights @ received.of_agent(0).values.y)
        middle = [np.median([y, *received.of_agent(row).values.y], axis=0) for row, y in enumerate(own.y)]
        y = np.array(middle)
        return State(s.x, y - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, y))


@dataclass(frozen=True)
class OnePerRound:
    '''Gossip averaging from y = 1 in which agent t mod m sends in round t; no gradient moves a value.'''

    channels = ("x", "y")
    RELEASES = {"y": {}}

    def init(self, dataset, x, y):
        return State(x, np.ones_like(y))

    def senders(self, network):
        t = 0
        while True:
            yield [t % network.n_agents]
            t += 1

    def step(self, t, dataset, s):
        own, near = yield Gossip(y=s.y)
        return State(s.x, (1.0 - dataset.neighbour_weight) * own.y + near.y)
"""
NAMES = ("Walk", "Pairs", "Trimmed")
M, ROUNDS, CLIP, STEP, SIGMA = 7, 6, 0.8, 0.4, 0.3


@pytest.fixture
def scenario(tmp_path: Path) -> Any:
    (tmp_path / "sending.py").write_text(TEXT)

    def of(name: str, **changes: Any) -> dict[str, Any]:
        return {
            "seed": 5,
            "topology": {"kind": "small_world", "agents": M},
            "problem": {
                "kind": "logistic_hyperparameter",
                "data": "synthetic_classification",
                "synthetic": {"dimension": 4, "records": 20, "test_records": 20},
            },
            "code_folders": [str(tmp_path)],
            "algorithm": {"kind": f"sending:{name}", "learning_rate": {"scale": STEP}, "rounds": ROUNDS},
            "privacy": {"mechanism": "gaussian", "delta": 1e-5, "clip": CLIP, "y": {"scale": SIGMA}},
        } | changes

    return of


def built(scenario: dict[str, Any]) -> Any:
    """The job, whose rehearsal finds that what is sent and recorded is what is planned."""
    try:
        return build(scenario)
    except decentral_dp.InputError as error:
        pytest.fail(str(error))


def build(given: Any) -> Any:
    """The job that is run."""
    return decentral_dp.build(given).simulation()


def masks(job: Any) -> np.ndarray:
    """(T + 1, m) who sends."""
    if job.algorithm.senders(job.public_network) is None:
        return np.ones((job.rounds + 1, job.n_agents), dtype=bool)
    senders = Senders(job.algorithm, job.public_network)
    return np.array([senders.mask_of_round(t) for t in range(job.rounds + 1)])


@pytest.mark.parametrize("name", NAMES)
def test_the_price_is_as_derived_by_hand(name: str, scenario: Any) -> None:
    """Gaussian releases compose by Σμ²; one record moves agent i's release by λ·2C/N_i, and what is not sent by 0."""
    job = built(scenario(name))
    sent = masks(job)[1:]
    mu = STEP * 2.0 * CLIP / job.counts["train"] / SIGMA
    by_hand = gaussian_epsilon(mu * np.sqrt(sent.sum(axis=0)), 1e-5)
    # The grid adds √d·2⁻¹⁶ to a release's μ at most.
    np.testing.assert_allclose(epsilon_of(job.ledger, 1e-5), by_hand, rtol=2e-3, atol=1e-12)
    assert (epsilon_of(job.ledger, 1e-5) >= by_hand).all()
    if name == "Walk":
        assert (sent.sum(axis=1) == 1).all()
        assert 0 < np.count_nonzero(by_hand) < M


@pytest.mark.parametrize("name", NAMES)
def test_what_is_recorded_is_planned_and_lists_who_sent(name: str, scenario: Any) -> None:
    job = build(scenario(name))
    recorded, sent = decentral_dp.run(scenario(name)).records, masks(job)
    assert recorded.same_releases(job.ledger)
    table = recorded.to_frame()
    lines = table[(table.channel == "y") & (table["records"] == "train")]
    listed = {(int(t), int(i)) for t, i in zip(lines["release"], lines["agent"], strict=True)}
    assert listed == {(t, i) for t in range(1, ROUNDS + 1) for i in range(M) if sent[t, i]}
    assert np.isfinite(lines["scale"]).all()


def released(scenario: dict[str, Any], **run: Any) -> Any:
    done = decentral_dp.run({**scenario, "run": run})
    assert done.result.status == "ok"
    return done.released["y"], done.result.privacy.epsilon_max


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_any_size_are_the_same_to_the_bit(name: str, scenario: Any) -> None:
    whole, price = released(scenario(name))
    for run in ({"blocks": 2}, {"blocks": 3}, {"blocks": M}):
        values, again = released(scenario(name), **run)
        np.testing.assert_array_equal(values, whole)
        assert again == price


@pytest.mark.parametrize("blocks", [1, 3, M])
def test_the_weights_of_silent_neighbours_do_not_count(blocks: int, scenario: Any) -> None:
    """Expect an average of equal values to be that value, for every set of senders."""
    silent = {"privacy": {"guarantee": "none"}, "run": {"blocks": blocks}}
    silent["algorithm"] = {"kind": "sending:OnePerRound", "rounds": 3 * M}
    job = build(scenario("OnePerRound", **silent))
    done = decentral_dp.run(scenario("OnePerRound", **silent))
    assert done.result.status == "ok"
    assert (masks(job).sum(axis=1) == 1).all()
    np.testing.assert_allclose(done.released["y"], 1.0, rtol=1e-12)


def test_what_is_not_sent_does_not_leave(scenario: Any) -> None:
    """An agent that never sent publishes its start, for any records; others publish their last message."""
    job = built(scenario("Walk"))
    values, sent = decentral_dp.run(scenario("Walk")).released["y"], masks(job)
    never = ~sent[1:].any(axis=0)
    assert never.any()
    assert not values[never].any()
    assert values[~never].all()
    seen: list[np.ndarray] = []
    LocalEngine().run(job.nodes(), job.rounds, RunControl(range(ROUNDS + 1), lambda s: seen.append(s.released["y"])))
    for t in range(1, ROUNDS + 1):
        np.testing.assert_array_equal(seen[t][~sent[t]], seen[t - 1][~sent[t]])
        assert (seen[t][sent[t]] != seen[t - 1][sent[t]]).all()


def with_local_rounds(condition: str) -> str:
    """Return the file whose `Trimmed` sends in rounds t with this condition only."""
    sends = f"def sends(self, t):\n        return {condition}\n\n    def step(self, t, dataset, s):\n"
    before, name, after = TEXT.partition("class Trimmed")
    return before + name + after.replace("def step(self, t, dataset, s):\n", sends, 1)


@pytest.mark.parametrize("is_attacked", [False, True], ids=["local rounds", "attack"])
def test_single_messages_are_those_in_the_sums(is_attacked: bool, scenario: Any, tmp_path: Path) -> None:
    """`Trimmed` compares them: a local round has neither, and attackers replace both."""
    plain, attack = released(scenario("Trimmed"))[0], {}
    if is_attacked:
        attack = {"attack": {"agents": [1], "kind": "sign_flip", "strength": 5.0}}
    else:
        (tmp_path / "sending.py").write_text(with_local_rounds("t % 2 == 1"), encoding="utf-8")
    assert (released(scenario("Trimmed", **attack))[0] != plain).any()


def test_an_error_of_sends_is_refused(scenario: Any, tmp_path: Path) -> None:
    given = scenario("Trimmed")
    (tmp_path / "sending.py").write_text(with_local_rounds("t % 0 == 1"), encoding="utf-8")
    with pytest.raises(decentral_dp.InputError, match=r"sends of Trimmed fails: ZeroDivisionError.*in line"):
        decentral_dp.plan(given)


def test_a_releaser_gives_nothing_of_those_who_do_not_send(scenario: Any) -> None:
    releaser: Any = build(scenario("Walk")).nodes()[0].make_releaser()
    moved: Any = {"train": Sensitivity(np.ones(M), np.ones(M), None)}
    mean, sends = Bounded(np.ones((M, 4)), np.ones((M, 4)), moved, "l2"), np.arange(M) < 2
    out = releaser.release(1, {"y": mean, "x": np.ones((M, 1))}, sends)
    for channel in ("x", "y"):
        assert out[channel][sends].all()
        assert not out[channel][~sends].any()


def test_who_sends_more_than_planned_is_stopped(scenario: Any, tmp_path: Path) -> None:
    """From round 4 on, which no rehearsal meets."""
    given = scenario("Walk")
    (tmp_path / "sending.py").write_text(
        TEXT.replace("token - self.learning_rate(t)", "token - (1.0 + (t > 2)) * self.learning_rate(t)")
    )
    with pytest.raises(UserCodeError, match=r"round 4.* may move y by 0.128, planned 0.064"):
        decentral_dp.run(given)


def test_one_record_moves_what_is_sent_by_what_is_planned_and_nothing_else(scenario: Any) -> None:
    """Searched with the noise left out: extreme records of one agent against each other, the same releases before."""
    job = build(scenario("Pairs", privacy={"guarantee": "none"}))
    sent, planned = masks(job), build(scenario("Pairs")).ledger.channels
    line = next(c for c in planned if c.channel == "y")
    stated = line.sensitivity["train"][:, line.group]
    assert ((stated > 0.0) == sent[1:]).all()
    certified = build(scenario("Pairs"))
    worst = 0.0
    for agent in range(M):
        first = certified.records["train"][agent]
        for sign in (1.0, -1.0):
            record = type(first)(*(sign * 1e3 * np.ones_like(part[:1]) for part in first))
            there, here = (
                _queries(certified.with_record("train", agent, other))
                for other in (record, type(first)(*(-part for part in record)))
            )
            # Before the first release that differs, all of the run is the same.
            moved = np.linalg.norm(there[0] - here[0], axis=1)
            assert not moved[np.arange(M) != agent].any()
            assert moved[agent] <= np.where(sent[1], stated[0], np.inf)[agent]
            worst = max(worst, moved[agent] / max(stated[0, agent], 1e-300)) if sent[1, agent] else worst
    assert worst > 0.9


def _queries(job: Any) -> list[np.ndarray]:
    """Return the values before noise at index 1."""
    found: list[np.ndarray] = []

    class Listening:
        def __init__(self, make: Any) -> None:
            self.real = make()
            self.recorder, self.mechanism = self.real.recorder, self.real.mechanism

        def release(self, index: int, values: Any, sends: Any) -> Any:
            if index == 1:
                found.append(values["y"].private)
            return self.real.release(index, values, sends)

    nodes = [n._replace(make_releaser=lambda n=n: Listening(n.make_releaser)) for n in job.nodes()]
    LocalEngine().run(nodes, 1)
    return found


@pytest.mark.parametrize(
    ("yielded", "told"),
    [
        ("[7]", "expected a mask of 7 agents"),
        ("[0.5]", "expected a mask of 7 agents"),
        ("np.ones(3, dtype=bool)", "expected a mask of 7 agents"),
        ("[0]\n            if t == 2: return", "senders of Walk stops after 3 rounds"),
        ("[[0], [1, 2]]", "senders of Walk fails: ValueError"),
        ("[network.nodes]", r"senders of Walk fails: AttributeError.*line \d+ of .*sending\.py"),
    ],
)
def test_who_sends_is_told_apart_from_what_is_no_agent(yielded: str, told: str, scenario: Any, tmp_path: Path) -> None:
    given = scenario("Walk")
    (tmp_path / "sending.py").write_text(TEXT.replace("yield [holder]", f"yield {yielded}"))
    with pytest.raises(decentral_dp.InputError, match=told):
        build(given)
