"""Push-sum: formulas on directed graphs, limits with losses, sensitivities, planted errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.push_sum import PushSum, PushSumState
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip
from decentral_dp.privacy.clipping import Clip
from tests.conformance.gossip import GossipConformance, Shares, Told, largest
from tests.support import naive
from tests.support.naive import CLIPS, Loop, finished
from tests.support.training import gradient_of, training

TABLE = {"kind": "push_sum", "rounds": 5, "learning_rate": {"scale": 0.3, "decay": 0.2}}
FALL = 0.1
# Out-degrees differ, so weights differ between receivers of the same messages.
GRAPH = {"kind": "preferential_attachment", "agents": 4, "attach": 1, "directed": True}


class Naive(Loop):
    """All messages: numerators and weights; x is constant and public."""

    def run(self) -> Told:
        u, w, x = self.start("y"), [np.ones(1) for _ in range(self.m)], self.start("x")
        share = self.weights + np.eye(self.m)
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", u, t > 0)
            self.say(t, "w", w, False)
            if t == self.job.rounds:
                break
            mixed = [sum(share[i, j] * said[j] for j in range(self.m)) for i in range(self.m)]
            w = [sum(share[i, j] * w[j] for j in range(self.m)) for i in range(self.m)]
            fall = (t + 1) ** -FALL
            step, clips = 0.3 / (t + 1) ** 0.2, self.clips
            self.clips = {**clips, "y": clips["y"] * fall}
            z = [mixed[i] / w[i] for i in range(self.m)]
            u = [mixed[i] - step * self.mean("lower_grad_y", t, i, x[i], z[i], z[i]) for i in range(self.m)]
            self.clips = clips
        self.say(self.job.rounds, "x", x, False)
        return self.told


def gossip(s: PushSumState) -> Gossip:
    return Gossip(y=s.y, w=s.w)


class TestPushSum(GossipConformance):
    loop = Naive
    table = TABLE
    kinds = ("logistic_hyperparameter", "quadratic", "from_losses")
    hosted = ("crossed",)
    rounds, seeds = 4, 12
    moved = MappingProxyType({"train": {"y"}, "validation": set()})
    # Nobody sends x, and no paper's form is registered.
    test_protocols_differ_only_by_noise = None
    test_printed_has_its_noise_where_the_paper_has_it = None

    def content(self, *guarantee: Any, **tables: Any) -> dict[str, Any]:
        content = super().content(*guarantee, **tables)
        privacy = {key: value for key, value in content["privacy"].items() if key not in ("x", "z")}
        privacy |= {"clip": {"scale": CLIPS["y"], "decay": FALL}} if "clip" in privacy else {}
        return content | {"privacy": privacy, "topology": GRAPH}

    def free(self, kind: str) -> set[str]:
        return {"x", "w"}

    def certified(self) -> Any:
        return PushSum(StepSize(0.5, 0.3), start={"x": 1.0})

    def published(self, said: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return {**said, "y": said["y"] / said["w"]}

    def scene(self, worst: bool) -> Any:
        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            heard = np.concatenate([rng.normal(size=(1, 2)) * 5, rng.uniform(0.05, 2.0, (1, 1))], axis=1)
            return {"y": rng.normal(size=(1, 2)) * 5}, heard

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        assert all(set(one) == {"y"} for one in every)
        assert kind == "validation" or largest(every, "y").min() > 0.99


# A loop that shares no code ------------------------------------------------------------------------------------------

ARCS = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3), (3, 1)])
NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "arcs": (ARCS, {}),
    "arcs in turn": ([nx.DiGraph([(0, 1), (2, 3)]), nx.DiGraph([(1, 2), (3, 0), (3, 1)])], {}),
    "lossy arcs": (ARCS, {"topology.drop": 0.3}),
    "late arcs": (ARCS, {"topology.delay": 2}),
    "late arcs in turn": (
        [nx.DiGraph([(0, 1), (2, 3)]), nx.DiGraph([(1, 2), (3, 0), (3, 1)])],
        {"topology.delay": 2, "topology.drop": 0.2},
    ),
    "a lossy ring": (nx.cycle_graph(5), {"topology.drop": 0.3}),
    "late arcs to absent agents": (ARCS, {"topology.delay": 2, "topology.offline": 0.3, "topology.drop": 0.1}),
    "absent agents": (ARCS, {"topology.offline": 0.3, "topology.drop": 0.1}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_without_noise_it_is_a_loop_over_messages(name: str) -> None:
    """Oracle: shares of networkx's arcs, sent one by one, those that never arrive kept by their senders."""
    graph, changes = NETWORKS[name]
    rounds, step = 15, 0.5
    content = training(algorithm={"kind": "push_sum", "rounds": rounds, "learning_rate": {"scale": step}})
    content["privacy"] = {"guarantee": "none"}
    del content["topology"]
    run = decentral_dp.run(content, set=changes, topology=graph)
    job = run.simulation()
    over_time, m = job.topology.over_time, job.n_agents
    gradient, d = gradient_of(job), job.shards.features.shape[1]
    several = [one.to_directed() for one in (graph if isinstance(graph, list) else [graph])]
    late = changes.get("topology.delay", 0)
    u, w, mail = np.zeros((m, d + 1)), np.ones(m), []
    mixed, published = u.copy(), (u.copy(), w.copy())

    def sent(t: int, arrival: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Messages of round t by round of arrival, and their sum per sender."""
        arcs = several[t % len(several)]
        # Without losses, all arcs deliver.
        weights = None if over_time is None else over_time.received_weights(arrival).toarray()
        to_u, to_w, of_u, of_w = np.zeros_like(u), np.zeros(m), np.zeros_like(u), np.zeros(m)
        for j, i in arcs.edges:
            if weights is None or weights[i, j] > 0:
                share = 1.0 / (1.0 + arcs.out_degree(j))
                for there, agent in () if over_time is None else ((t, j), (arrival, i)):
                    online = over_time.online(there)
                    assert online is None or online[agent]
                to_u[i] += share * u[j]
                to_w[i] += share * w[j]
                of_u[j] += share * u[j]
                of_w[j] += share * w[j]
        return to_u, to_w, of_u, of_w

    # Before anything sent in round t has arrived, what round 0 sends.
    early = [sent(0, t)[:2] for t in range(late)]
    for t in range(rounds):
        to_u, to_w, of_u, of_w = sent(t, t + late)
        mail.append((to_u, to_w))
        came = early[t] if t < late else mail[t - late]
        new_u, new_w = u - of_u + came[0], w - of_w + came[1]
        online = None if over_time is None else over_time.online(t)
        for i in range(m):
            if online is not None and not online[i]:
                new_u[i], new_w[i] = mixed[i], w[i]
            else:
                published[0][i], published[1][i] = u[i], w[i]
        w, mixed = new_w, new_u
        # Messages in flight, including those before the first arrival.
        under_way = sum(mail[t - k][1].sum() if t >= k else early[t - k][1].sum() for k in range(late))
        assert w.sum() + under_way == pytest.approx(m + sum(one[1].sum() for one in early), rel=1e-12)
        u = np.stack([new_u[i] - step * gradient(i, new_u[i] / w[i]) for i in range(m)])
    online = None if over_time is None else over_time.online(rounds)
    for i in range(m):
        if online is None or online[i]:
            published[0][i], published[1][i] = u[i], w[i]
    last_u, last_w = published
    assert np.abs(last_w - 1.0).max() > 0.01 or name == "late arcs"
    np.testing.assert_allclose(run.released["w"][:, 0], last_w, rtol=1e-12)
    np.testing.assert_allclose(run.released["y"], last_u / last_w[:, None], rtol=0, atol=1e-12)


# Limits --------------------------------------------------------------------------------------------------------------


class Apart(PushSum):
    """Every agent starts at its own number."""

    def init(self, dataset: Any) -> PushSumState:
        start = super().init(dataset)
        own = np.broadcast_to(dataset.agents[:, None] ** 2.0, start.last_mixed.shape).copy()
        return start._replace(y=own, last_mixed=own)


class Faded(Apart):
    """The share of what is lost is kept by the receiver, as gossip on graphs with links both ways does."""

    def step(self, t: int, dataset: Any, s: PushSumState) -> Any:
        released, near = yield gossip(s)
        u, w = ((1.0 - dataset.neighbour_weight) * released[c] + near[c] for c in ("y", "w"))
        return s._replace(y=u, w=w)


class Forgetful(Apart):
    """An offline agent continues from its last release."""

    def step(self, t: int, dataset: Any, s: PushSumState) -> Any:
        released, near = yield gossip(s)
        u, w = (dataset.kept_weight * released[c] + near[c] for c in ("y", "w"))
        return s._replace(y=u, w=w)


def ends(kind: type[PushSum], **lost: float) -> tuple[np.ndarray, np.ndarray]:
    """z and w of agents that take no steps, and are all there at the end."""
    content = naive.base({**TABLE, "rounds": 300}, "none", topology={"kind": "ring", "agents": 5, **lost})
    job = replace(naive.made("quadratic", content), algorithm=kind(StepSize(0.0)))
    last = finished(job).last_snapshot.released
    return last["y"][:, 0], last["w"][:, 0]


@pytest.mark.parametrize(("lost", "wrong"), [({"drop": 0.33}, Faded), ({"offline": 0.33}, Forgetful)])
def test_what_is_lost_moves_no_mean(lost: dict[str, float], wrong: type[PushSum]) -> None:
    """The mean of 0, 1, 4, 9, 16 is 6, to rounding, with a third of all messages lost or agents away."""
    z, w = ends(Apart, **lost)
    np.testing.assert_allclose(z, 6.0, rtol=1e-12)
    # The weight of an agent that is offline at the end includes its last release.
    assert w.sum() == pytest.approx(5.0, abs=1e-12 if "drop" in lost else 2.5)
    # The test has power.
    z, w = ends(wrong, **lost)
    assert np.ptp(z) < 1e-9
    assert abs(z[0] - 6.0) > 0.05


class Unweighted(PushSum):
    """Takes gradients at the numerators."""

    def step(self, t: int, dataset: Any, s: PushSumState) -> Any:
        released, near = yield gossip(s)
        u, w = (dataset.kept_weight * released[c] + near[c] for c in ("y", "w"))
        return s._replace(y=u - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, u), w=w)


def test_falling_steps_reach_the_minimiser_of_all_on_a_lossy_directed_graph() -> None:
    """All agents' records have equal weight on any graph; with gradients at the numerators they do not."""
    algorithm = {"kind": "push_sum", "rounds": 4000, "learning_rate": {"scale": 1.0, "decay": 0.7}}
    content = naive.base(algorithm, "none", topology={**GRAPH, "drop": 0.2})
    content["problem"]["normalise"] = "l2"
    job = naive.made("quadratic", content)
    parts = naive.squares(job)
    best = np.linalg.solve(sum(s.hessian for s in parts), sum(s.linear + 0.5 * 0.7 for s in parts))
    start = np.abs(best + 0.4).max()
    last = finished(job).last_snapshot.released["y"]
    assert np.abs(last - best).max() < 0.01 * start
    wrong = finished(replace(job, algorithm=Unweighted(StepSize(1.0, 0.7)))).last_snapshot.released["y"]
    assert np.abs(wrong - best).max() > 0.05 * start


# Sensitivity ---------------------------------------------------------------------------------------------------------


def test_no_pair_of_records_moves_more_than_is_planned_and_some_pair_moves_as_much() -> None:
    """A search over records, messages and weights, one round: what is released moves by at most λ_t·2C_t/N."""
    algorithm, most = PushSum(StepSize(0.7, 0.4)), 0.0
    clip = replace(Clip("l2", y=0.5), shares=(("y", StepSize(1.0, 0.3, ((0, 1.0), (2, 1.4)))),))
    public = naive.public_of(3, naive.READ[0], naive.SMALL.problem)._replace(clip=clip)
    planned = algorithm.planned_releases(public)["y"].sensitivity["train"][:, 0]
    found = TestPushSum()
    for trial in range(60):
        rng = np.random.default_rng([7, 2 * trial])
        pair = naive.SMALL.neighbours(rng, "train", True)
        runs = naive.data_sets(
            algorithm, naive.SMALL.problem, 3, found.scene(True), pair, "l2", naive.READ[0], rng, clip=clip
        )
        for t, (one, other) in enumerate(zip(runs[0][1:4], runs[1][1:4], strict=True)):
            np.testing.assert_array_equal(one["w"], other["w"])
            moved = float(np.linalg.norm(one["y"].private - other["y"].private))
            assert moved <= planned[t] * (1.0 + 1e-9)
            most = max(most, moved / planned[t])
    assert most > 0.999


def test_steps_that_fall_have_a_price_for_ever() -> None:
    """Σ λ_t² converges, and with it ε; of a clip that falls as well none is derived."""
    plans = []
    for decay in (0.0, 0.3):
        table = {"kind": "push_sum", "rounds": 50, "learning_rate": {"scale": 0.1, "decay": 0.8}}
        clip = {"scale": 0.5, "decay": decay} if decay else 0.5
        privacy = {"mechanism": "gaussian", "y": {"scale": 1.0}, "clip": clip, "delta": 1e-5}
        content = naive.base(table) | {"privacy": privacy}
        plans.append(decentral_dp.plan(content).privacy)
    assert plans[0].at_infinity.finite_data > plans[0].epsilon_max
    assert plans[1].at_infinity.finite_data is None
