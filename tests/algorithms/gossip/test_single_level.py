"""The single-level algorithms against naive loops, adversarial neighbours, and their fixed points."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel, adapted_share
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.conformance.gossip import GossipConformance, Shares, Told, halved, largest, with_fields_of
from tests.support.naive import Loop, Vectors, finished, ledgers, made, misheard
from tests.support.single_level import base, moments, only_y, table

NAMES = ("ldp_single_level", "dp_dsgd")


# Naive loops --------------------------------------------------------------------------------------------------------


class Naive(Loop):
    """What all agents say of y; x is a constant, which nobody sends and which is published as it is."""

    def run(self) -> Told:
        y, printed = self.start("y"), self.printed
        x = self.start("x")
        local = getattr(self.algorithm, "steps", 1)
        self.second, ahead = [np.zeros_like(one) for one in y], y
        for t in range(self.job.rounds + 1):
            said = self.say(t * local, "y", y, printed or t > 0)
            own = y if printed else said
            mixed = [self.toward(i, own[i], said) for i in range(self.m)]
            ahead = mixed = self.adapted(t, t * local, mixed, ahead, own)
            at = mixed if self.algorithm_name == "dp_dsgd" else own
            if t < self.job.rounds:
                step = 0.3 / (t + 1) ** 0.2
                y = [mixed[i] - step * self.mean("lower_grad_y", t, i, x[i], at[i], at[i]) for i in range(self.m)]
                for k in range(1, local):
                    own = self.say(t * local + k, "y", y, True)
                    ahead = own = self.adapted(t, t * local + k, own, ahead, own)
                    y = [own[i] - step * self.mean("lower_grad_y", t, i, x[i], own[i], own[i]) for i in range(self.m)]
        self.say(self.job.rounds * local, "x", x, False)
        return self.told

    def adapted(self, t: int, count: int, to: Vectors, ahead: Vectors, own: Vectors) -> Vectors:
        """What is adapted, weight by weight, after so many steps; the noise of these tests is 0.3/(t + 1)^0.1."""
        decay = getattr(self.algorithm, "adaptive", 0.0)
        if not decay or not count:
            return to
        noise = 0.09 / (t + 1) ** 0.2 if self.job.scenario.privacy.guarantee == "certified" else 0.0
        out, seen = [one.copy() for one in to], 1.0 - decay**count
        for i in range(self.m):
            squares = []
            for k in range(own[i].size):
                taken = ahead[i][k] - own[i][k]
                self.second[i][k] = decay * self.second[i][k] + (1.0 - decay) * (taken**2 - noise)
                # The weights of an average of `count` squares of noise alone, each of variance 2 noise².
                weights = [(1.0 - decay) * decay**j / seen for j in range(count)]
                least = noise * (2.0 * sum(w * w for w in weights)) ** 0.5
                squares.append(max(self.second[i][k] / seen, least))
            for k, square in enumerate(squares):
                usual = sum(squares) / len(squares)
                out[i][k] += (1.0 - (usual / square) ** 0.5) * (ahead[i][k] - own[i][k])
        return out


# Planted bugs -------------------------------------------------------------------------------------------------------


class Half(LdpSingleLevel):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "y")


class Hidden(LdpSingleLevel):
    """Goes on from its own y before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        return misheard(
            super().step(t, dataset, s),
            lambda _, reply: reply._replace(released=type(reply.released)({"y": s.y})),
        )


# What all have in common --------------------------------------------------------------------------------------------


class SingleLevel(GossipConformance):
    name: str
    kind: type
    kinds = ("logistic_hyperparameter", "quadratic", "from_losses")
    hosted = ("crossed",)
    planned_on = ("quadratic",)
    rounds, seeds = 4, 12
    moved = MappingProxyType({"train": {"y"}, "validation": set()})
    # Nobody sends x.
    test_protocols_differ_only_by_noise = None

    def content(self, *guarantee: Any, **tables: Any) -> dict[str, Any]:
        content = super().content(*guarantee, **tables)
        return content | {"privacy": only_y(content["privacy"])}

    def told(self, job: Job, *rest: Any) -> Told:
        loop = Naive(job, *rest)
        loop.algorithm_name = self.name
        return loop.run()

    def free(self, kind: str) -> set[str]:
        return {"x"}

    def certified(self) -> Any:
        return self.kind(StepSize(0.5, 0.3), start={"x": 1.0})

    def scene(self, worst: bool) -> Any:
        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            return {"y": rng.normal(size=(1, 2)) * 5}, rng.normal(size=(1, 2)) * 5

        return say

    def reached(self, kind: str, stream: str, every: Shares) -> None:
        assert all(set(one) == {"y"} for one in every)
        assert kind == "validation" or largest(every, "y").min() > 0.99


class TestLdpSingleLevel(SingleLevel):
    name, kind = "ldp_single_level", LdpSingleLevel
    table = table(name)
    bugs = (Half, Hidden)
    refused = (
        ("x", {"scale": 0.1}, "algorithm.x: ldp_single_level takes none"),
        ("inner", 2, "algorithm.inner: ldp_single_level takes none"),
        ("y", None, "algorithm.y: missing"),
        ("protocol", "private", "takes none, only ldp_dsbo"),
    )


class TestDpDsgd(SingleLevel):
    name, kind = "dp_dsgd", DpDsgd
    table = table(name)


class Wasted(DpDsgd):
    """Prices one step of a round."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        planned = super().planned_releases(public)
        moved = planned["y"].sensitivity["train"].copy()
        moved[1 :: self.steps] = 0.0
        return {**planned, "y": planned["y"]._replace(sensitivity={"train": moved})}


class TestDpDsgdLocally(SingleLevel):
    """K steps between two exchanges, each noised."""

    name, kind = "dp_dsgd", DpDsgd
    table = table(name) | {"local_steps": 3, "rounds": 3}
    bugs = (Wasted,)
    refused = (("local_steps", 0, "algorithm.local_steps"),)
    # The papers' form has none.
    test_printed_has_its_noise_where_the_paper_has_it = None
    test_steps_of_zero_and_short_loops_are_planned = None

    def certified(self) -> Any:
        return DpDsgd(StepSize(0.5, 0.3), local_steps=3, start={"x": 1.0})


class Raw(DpDsgd):
    """Squares steps before noise, as if these were public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        hidden = s.y.private if isinstance(s.y, Bounded) else 0.0
        return (yield from super().step(t, dataset, s._replace(ahead=s.ahead + hidden)))


class TestDpDsgdAdaptively(SingleLevel):
    """Each weight's step by the second moment of what was released, one or three to a round."""

    name, kind = "dp_dsgd", DpDsgd
    table = table(name) | {"adaptive": 0.6, "rounds": 4}
    short = ({"local_steps": 3, "rounds": 3}, {"rounds": 1})
    leaks = ((Raw, "train"),)
    refused = (("adaptive", 1.0, "algorithm.adaptive"), ("adaptive", -0.1, "algorithm.adaptive"))
    # The papers' form has none.
    test_printed_has_its_noise_where_the_paper_has_it = None
    test_steps_of_zero_and_short_loops_are_planned = None

    def certified(self) -> Any:
        return DpDsgd(StepSize(0.5, 0.3), adaptive=0.6, local_steps=2, start={"x": 1.0})


@pytest.mark.parametrize("key", ["local_steps", "adaptive"])
def test_the_papers_form_takes_no_local_or_adaptive_steps(key: str) -> None:
    with pytest.raises(InputError, match=rf"algorithm\.{key}: the papers' form has none"):
        made("quadratic", base("dp_dsgd", "as_published", algorithm={key: 2 if key == "local_steps" else 0.9}))


# Limits -------------------------------------------------------------------------------------------------------------


def smooth(name: str, **changes: Any) -> Job:
    content = base(name, "none", **changes)
    content["problem"]["normalise"] = "l2"
    return made("quadratic", content)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_step_ends_at_its_fixed_point(name: str) -> None:
    """Of Y ← P Y − λ(H Y − c), or of Y ← P Y − λ(H P Y − c), solved for here; not at the minimiser."""
    step = 0.4
    job = smooth(name, algorithm={"rounds": 300, "y": {"scale": step}})
    parts, m = moments(job), job.n_agents
    mix = np.kron(np.eye(m) + job.topology.mixing.toarray(), np.eye(2))
    curve, linear = np.zeros((2 * m, 2 * m)), np.concatenate([c for _, c in parts])
    for i, (h, _) in enumerate(parts):
        curve[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = h
    at = mix if name == "dp_dsgd" else np.eye(2 * m)
    fixed = np.linalg.solve(np.eye(2 * m) - mix + step * curve @ at, step * linear).reshape(m, 2)
    last = finished(job).last_snapshot.released["y"]
    np.testing.assert_allclose(last, fixed, atol=1e-10)
    best = np.linalg.solve(sum(h for h, _ in parts), sum(c for _, c in parts))
    assert np.abs(fixed - best).max() > 1e-3


# The ledger ---------------------------------------------------------------------------------------------------------


def test_a_missing_clip_is_refused() -> None:
    content = base("dp_dsgd")
    del content["privacy"]["clip"]
    with pytest.raises(InputError, match=r"privacy\.clip\.y: missing"):
        made("quadratic", content)


# The heavy ball -----------------------------------------------------------------------------------------------------


def heavy(beta: float, *guarantee: str) -> dict[str, Any]:
    """The small scenario with a heavy ball."""
    return base("dp_dsgd", *guarantee, algorithm={"heavy_ball": beta})


def test_a_heavy_ball_is_the_one_of_the_formula() -> None:
    """c + β (c − c before) − λ ∇g(c), by a loop over matrices that shares no code with it."""
    beta, job = 0.7, made("quadratic", heavy(0.7, "none"))
    got = finished(job).last_snapshot.released["y"]
    mixing = np.eye(job.n_agents) + job.topology.mixing.toarray()
    np.testing.assert_allclose(mixing.sum(axis=1), 1.0)
    start = job.algorithm.start
    y = np.full((job.n_agents, job.problem.q), start.get("y", 0.0))
    x, before, clip = np.full(job.problem.p, start.get("x", 0.0)), y, job.clip
    for t in range(job.rounds):
        c = mixing @ y
        before = c if t == 0 else before
        slopes = []
        for i, at in enumerate(c):
            seen = job.stream.averaged_counts(t, job.counts["train"])[i]
            records = type(job.records["train"][i])(*(part[:seen] for part in job.records["train"][i]))
            mean = job.problem.terms(x, at, at, records, records, clip, ("lower_grad_y",)).lower_grad_y
            slopes.append(mean + job.problem.regulariser(x[None], at[None], at[None]).grad_y[0])
        y, before = c + beta * (c - before) - 0.3 / (t + 1) ** 0.2 * np.array(slopes), c
    np.testing.assert_allclose(got, y, atol=1e-12)


def test_a_heavy_ball_costs_nothing() -> None:
    """It is one of released values: every release moves by as much as without it, in the plan and in the run."""
    plain, heavier = (made("quadratic", heavy(beta), priced=True) for beta in (0.0, 0.9))
    assert heavier.ledger.same_releases(plain.ledger)
    assert finished(heavier).ledger.same_releases(plain.ledger)


class Unreleased(DpDsgd):
    """Moves on by what it did before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own, near = yield next(super().step(t, dataset, s))
        mixed = (1.0 - dataset.neighbour_weight) * own.y + near.y
        ahead = mixed + self.heavy_ball * (s.y - s.last_mixed)
        return s._replace(y=ahead - self.y(t) * dataset.batch(t).lower_grad_y(s.x, mixed), last_mixed=mixed)


def test_a_heavy_ball_of_values_before_noise_is_refused() -> None:
    job = made("quadratic", heavy(0.9))
    planned, recorded = ledgers(job, with_fields_of(Unreleased, job.algorithm))
    assert not recorded.same_releases(planned)


def test_the_papers_form_has_no_heavy_ball() -> None:
    with pytest.raises(InputError, match=r"^algorithm\.heavy_ball: the papers' form has none\. Leave it out\.$"):
        made("quadratic", heavy(0.5, "as_published"))


# Adaptive steps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dp_dsgd", "alone", "central", "federated"])
def test_adaptive_steps_cost_nothing(kind: str) -> None:
    """Every release moves by as much as without them, in the plan and in the run."""
    plain, adaptive = (
        made("quadratic", base("dp_dsgd", algorithm={"kind": kind, "adaptive": decay}), priced=True)
        for decay in (0.0, 0.9)
    )
    assert adaptive.ledger.same_releases(plain.ledger)
    assert finished(adaptive).ledger.same_releases(plain.ledger)


def test_where_noise_is_all_there_is_weights_have_equal_steps() -> None:
    """Shares of steps of noise alone are near 1; those of weights that move more than noise does go as 1 over it."""
    draw, decay, deviation = np.random.default_rng(5), 0.99, 3.0
    second, size = np.zeros((1, 40)), np.repeat([0.0, 6.0, 24.0], [20, 10, 10])
    for count in range(1, 1500):
        moved = size + deviation * draw.normal(size=(1, 40))
        second, share = adapted_share(second, moved, deviation**2, decay, count)
    assert share[0, 10:20].max() / share[0, 10:20].min() < 2.5
    assert share[0, 20:30].mean() / share[0, 30:].mean() == pytest.approx(4.0, rel=0.1)
    # One standard error of 199 squares of noise that are averaged: 9 √(2/199) = 0.9.
    usual = (10 * 36.0 + 10 * 576.0) / 40
    assert share[0, :20].max() == pytest.approx((usual / 0.9) ** 0.5, rel=0.1)


def test_who_was_away_adapts_nothing() -> None:
    """An agent that is always away but once has the second moment of that one step, and goes on where it was."""
    content = base("dp_dsgd", algorithm={"adaptive": 0.9, "rounds": 12}, topology={"offline": 0.4})
    job = made("quadratic", content)
    state: Any = None

    class Watched(DpDsgd):
        def step(self, t: int, dataset: Any, s: Any) -> Any:
            nonlocal state
            after = yield from super().step(t, dataset, s)
            online = dataset.network.online(t)
            if t:
                np.testing.assert_array_equal(after.second[~online], 0.9 * s.second[~online])
                assert (after.second[online] != 0.9 * s.second[online]).all()
            state = after
            return after

    nodes = [n._replace(program=with_fields_of(Watched, job.algorithm)) for n in job.nodes()]
    recorded = LocalEngine().run(nodes, job.rounds).ledger
    assert state is not None
    assert recorded.same_releases(job.ledger)


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": {"stream": {"kind": "poisson", "rate": 0.5}}},
        {"problem": {"stream": {"kind": "minibatch", "batch": 2}}},
        {"topology": {"over_time": "matching", "drop": 0.2, "delay": 1}},
        {"topology": {"compression": {"kind": "top_k", "share": 0.5}}},
        {"privacy": {"unit": "agent"}, "algorithm": {"adaptive": 0.9, "local_steps": 2, "rounds": 4}},
    ],
    ids=["poisson", "minibatch", "changing", "compressed", "agents"],
)
def test_adaptive_steps_go_with(changes: dict[str, Any]) -> None:
    tables = {"algorithm": {"adaptive": 0.9, "rounds": 4}} | changes
    content = base("dp_dsgd", "certified", "gaussian", **tables)
    job = made("quadratic", content, priced=True)
    ended = finished(job)
    assert ended.ledger.same_releases(job.ledger)
    assert np.isfinite(ended.last_snapshot.released["y"]).all()


def test_adaptive_steps_under_correlated_noise_are_refused() -> None:
    content = base("dp_dsgd", "certified", "gaussian", algorithm={"adaptive": 0.9})
    content["privacy"] |= {"delta": 1e-5, "correlation": {"across": "pairwise", "ratio": 1.0}}
    with pytest.raises(InputError, match=r"^privacy\.correlation: dp_dsgd subtracts .* steps that are not adaptive\.$"):
        made("quadratic", content)
