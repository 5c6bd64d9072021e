"""The single-level algorithms against naive loops, adversarial neighbours, and their fixed points."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.conformance.gossip import GossipConformance, Shares, Told, halved, largest, with_fields_of
from tests.support.naive import Loop, finished, ledgers, made, misheard
from tests.support.single_level import base, moments, only_y, table

NAMES = ("ldp_single_level", "dp_dsgd")


# Naive loops ---------------------------------------------------------------------------------------------------------


class Naive(Loop):
    """All messages: y only; x is constant and public."""

    def run(self) -> Told:
        y, printed = self.start("y"), self.printed
        x = self.start("x")
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, printed or t > 0)
            own = y if printed else said
            mixed = [self.toward(i, own[i], said) for i in range(self.m)]
            at = mixed if self.algorithm_name == "dp_dsgd" else own
            if t < self.job.rounds:
                step = 0.3 / (t + 1) ** 0.2
                y = [mixed[i] - step * self.mean("lower_grad_y", t, i, x[i], at[i], at[i]) for i in range(self.m)]
        self.say(self.job.rounds, "x", x, False)
        return self.told


# Planted bugs --------------------------------------------------------------------------------------------------------


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


# Conformance ---------------------------------------------------------------------------------------------------------


class SingleLevel(GossipConformance):
    name: str
    kind: type
    kinds = ("logistic_hyperparameter", "quadratic", "from_losses")
    hosted = ("crossed",)
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

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        assert all(set(one) == {"y"} for one in every)
        assert kind == "validation" or largest(every, "y").min() > 0.99


class TestLdpSingleLevel(SingleLevel):
    name, kind = "ldp_single_level", LdpSingleLevel
    table = table(name)
    bugs = (Half, Hidden)
    refused = (
        ("x", {"scale": 0.1}, "algorithm.x: not supported by ldp_single_level"),
        ("inner", 2, "algorithm.inner: not supported by ldp_single_level"),
        ("learning_rate", None, "algorithm.learning_rate: missing"),
        ("protocol", "private", "only by ldp_dsbo"),
    )


class TestDpDsgd(SingleLevel):
    name, kind = "dp_dsgd", DpDsgd
    table = table(name)


# Limits --------------------------------------------------------------------------------------------------------------


def smooth(name: str, **changes: Any) -> Job:
    content = base(name, "none", **changes)
    content["problem"]["normalise"] = "l2"
    return made("quadratic", content)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_step_ends_at_its_fixed_point(name: str) -> None:
    """The fixed point of Y ← P Y − λ(H Y − c), or of Y ← P Y − λ(H P Y − c), is not the minimiser."""
    step = 0.4
    job = smooth(name, algorithm={"rounds": 300, "learning_rate": {"scale": step}})
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


# Momentum ------------------------------------------------------------------------------------------------------------


def heavy(beta: float, *guarantee: str) -> dict[str, Any]:
    """Small scenario with momentum."""
    return base("dp_dsgd", *guarantee, algorithm={"momentum": beta})


def test_momentum_is_the_one_of_the_formula() -> None:
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
            seen = job.sampling.averaged_counts(t, job.counts["train"])[i]
            records = type(job.records["train"][i])(*(part[:seen] for part in job.records["train"][i]))
            mean = job.problem.terms(x, at, at, records, records, clip, ("lower_grad_y",)).lower_grad_y
            slopes.append(mean + job.problem.regulariser(x[None], at[None], at[None]).grad_y[0])
        y, before = c + beta * (c - before) - 0.3 / (t + 1) ** 0.2 * np.array(slopes), c
    np.testing.assert_allclose(got, y, atol=1e-12)


def test_momentum_costs_nothing() -> None:
    """It is one of released values: every release moves by as much as without it, in the plan and in the run."""
    plain, heavier = (made("quadratic", heavy(beta), priced=True) for beta in (0.0, 0.9))
    assert heavier.ledger.same_releases(plain.ledger)
    assert finished(heavier).ledger.same_releases(plain.ledger)


class Unreleased(DpDsgd):
    """Moves on by what it did before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own, near = yield next(super().step(t, dataset, s))
        mixed = (1.0 - dataset.neighbour_weight) * own.y + near.y
        ahead = mixed + self.momentum * (s.y - s.last_mixed)
        return s._replace(y=ahead - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, mixed), last_mixed=mixed)


def test_momentum_of_values_before_noise_is_refused() -> None:
    job = made("quadratic", heavy(0.9))
    planned, recorded = ledgers(job, with_fields_of(Unreleased, job.algorithm))
    assert not recorded.same_releases(planned)


@pytest.mark.parametrize(("key", "value"), [("momentum", 0.5), ("local_steps", 2), ("centring", True)])
def test_the_published_form_has_no_such_part(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^algorithm\.{key}"):
        made("quadratic", base("dp_dsgd", "as_published", algorithm={key: value}))
