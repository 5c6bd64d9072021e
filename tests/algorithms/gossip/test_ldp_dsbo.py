"""LDP-DSBO against a naive loop, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.data import Sampling
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter
from decentral_dp.problems.protocol import TERMS
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.closed_forms import QuadraticSolution
from tests.support.replay import realised_change, replay

Make = Callable[..., dict[str, Any]]


def transcript(job: decentral_dp.Job) -> list[Any]:
    """Snapshots of every index 0..T."""
    seen: list[Any] = []
    LocalEngine().run(job.nodes(), job.rounds, RunControl(range(job.rounds + 1), seen.append))
    return seen


def naive_step(job: decentral_dp.Job, t: int, released: dict, state: dict, clips: dict[str, float]) -> dict:
    """Compute one round in loops over agents and records, from the formulas of the paper and its protocol."""
    W, m = job.topology.mixing.toarray(), job.n_agents
    own = released if job.algorithm.protocol == "released" else state
    at = state if job.algorithm.protocol == "published" else released
    norm = 1 if job.mechanism.name == "laplace" else 2
    new = {c: np.zeros_like(v) for c, v in state.items()}

    def clipped(v: np.ndarray, bound: float) -> np.ndarray:
        size = np.linalg.norm(v, norm)
        return v if size <= bound else v * (bound / size)

    for i in range(m):
        x, y, z = at["x"][i], at["y"][i], at["z"][i]
        n = {k: int(job.sampling.averaged_counts(t, job.counts[k][i])) for k in ("train", "validation")}
        grad, hvp, upper = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
        for a in job.records["train"][i].signed[: n["train"]]:
            s = 1 / (1 + np.exp(a @ y))
            grad += clipped(-s * a, clips["y"]) / n["train"]
            hvp += clipped(s * (1 - s) * (a @ z) * a, clips["z"]) / n["train"]
        for a in job.records["validation"][i].signed[: n["validation"]]:
            upper += clipped(-a / (1 + np.exp(a @ y)), clips["z"]) / n["validation"]
        ex = np.exp(x)
        direction = {"x": -(ex * y * z), "y": grad + ex * y, "z": hvp + ex * z - upper}
        for c in new:
            mixed = sum(W[i, j] * released[c][j] for j in range(m) if j != i)
            step = getattr(job.algorithm, c)(t)
            new[c][i] = (1 + W[i, i]) * own[c][i] + mixed - step * direction[c]
    return new


@pytest.mark.parametrize("protocol", ["released", "private", "published"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_every_round_is_the_formula(scenario: Make, protocol: str, mechanism: str) -> None:
    if protocol == "published":
        if mechanism == "gaussian":
            pytest.skip("the paper's protocol has Laplace noise only")
        noise = {c: {"scale": 0.3, "decay": 0.2} for c in "xyz"}
        changes = {"privacy": {"guarantee": "as_published", **noise}}
        base = scenario(**changes)
        del base["privacy"]["epsilon"], base["privacy"]["clip"]
        clips = {"y": np.inf, "z": np.inf}
    else:
        base = scenario(privacy={"mechanism": mechanism, "clip": {"y": 0.3, "z": 0.05}})
        base["algorithm"]["protocol"] = protocol
        clips = {"y": 0.3, "z": 0.05}
    base["problem"]["sampling"] = {"kind": "streaming", "batch_size": 3, "warm_start": 2}
    job = build(decentral_dp.load(base))
    snaps = transcript(job)
    for t, (before, after) in enumerate(pairwise(snaps)):
        want = naive_step(job, t, dict(before.released), dict(before.state), clips)
        for c in "xyz":
            np.testing.assert_allclose(after.state[c], want[c], rtol=1e-9, atol=1e-12)
            noise_size = np.abs(after.released[c] - after.state[c]).max()
            free = c == "x" and protocol != "published"
            assert (noise_size == 0) == free


def test_planned_is_recorded(scenario: Make) -> None:
    for changes in (
        {},
        {"algorithm": {"protocol": "private"}},
        {"privacy": {"mechanism": "gaussian"}},
        {"problem": {"sampling": {"kind": "streaming", "batch_size": 4, "warm_start": 3}}},
        {"problem": {"sampling": {"kind": "fixed_batch", "batch_size": 5}}},
        {"problem": {"sampling": {"kind": "fixed_batch", "batch_size": 5}}, "algorithm": {"protocol": "private"}},
        {"problem": {"partition": {"kind": "dirichlet", "alpha": 2.0}, "seed": 1}, "run": {"blocks": 3}},
    ):
        job = build(decentral_dp.load(scenario(**changes)))
        outcome = LocalEngine().run(job.nodes(), job.rounds)
        assert outcome.ledger.same_releases(job.ledger), changes
        assert not outcome.ledger.same_releases(job.ledger.rescale(1.0 + 1e-9)), "the comparison has no power"


def test_printed_and_boxed_plan_is_recorded(scenario: Make) -> None:
    base = scenario(privacy={"guarantee": "as_published", **{c: {"scale": 0.3, "decay": 0.2} for c in "xyz"}})
    del base["privacy"]["epsilon"], base["privacy"]["clip"]
    for box in ({}, {"x": 0.0, "y": 1.0, "z": 1.0}):
        base["privacy"]["box"] = box
        job = build(decentral_dp.load(base))
        outcome = LocalEngine().run(job.nodes(), job.rounds)
        assert outcome.ledger.same_releases(job.ledger)
        assert np.isinf(job.budget.epsilon).all() == (not box)


@pytest.mark.parametrize("protocol", ["released", "private"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_no_neighbour_exceeds_the_certificate_and_the_worst_reaches_it(protocol: Any, norm: Any, split: str) -> None:
    """Exact replay of one agent on one transcript with one record replaced, over adversarial records and messages."""
    rng = np.random.default_rng([5, len(protocol), len(norm), len(split)])
    d, n, rounds, weight = 3, 4, 5, 0.6
    algorithm = LdpDsbo(StepSize(0.1, 0.9), StepSize(0.5, 0.8), StepSize(0.4, 0.7), protocol)
    problem = LogisticHyperparameter(d)
    clip = Clip(norm, y=0.2, z=0.1)
    sampling = Sampling("streaming", batch=1)
    best = {"y": 0.0, "z": 0.0}
    for trial in range(60):
        scale = 10.0 ** rng.integers(0, 4)
        data = {k: rng.normal(size=(n, d)) * scale for k in ("train", "validation")}
        other = {k: v.copy() for k, v in data.items()}
        # The worst neighbour points the other way, and is as large as the clip allows.
        other[split][0] = -data[split][0] if trial % 2 else rng.normal(size=d) * scale
        own = [{c: rng.normal(size=(1, d)) * 0.01 for c in "xyz"} for _ in range(rounds + 1)]
        for said in own:
            # A z along the record makes its Hessian-vector product as large as can be.
            said["z"] = data["train"][:1] * (50.0 if trial % 3 else 0.0)
        received = [rng.normal(size=(1, 3 * d)) for _ in range(rounds)]
        labels = np.ones(n)
        runs = []
        for data_set in (data, other):
            records = {k: problem.prepare(v, labels, norm) for k, v in data_set.items()}
            pair = (records["train"], records["validation"])
            scene = {"rounds": rounds, "neighbour_weight": weight, "own": own, "received": received}
            runs.append(replay(algorithm, problem, *pair, **scene, clip=clip, sampling=sampling))
        change = realised_change(*runs, norm=norm)
        for channel, sizes in change.items():
            for t, size in enumerate(sizes):
                spread = runs[0][t + 1][channel].sensitivities  # type: ignore[union-attr]
                allowed = spread[split].sensitivity[0] if split in spread else 0.0
                assert size <= allowed * (1 + 1e-9), (trial, channel, t)
                if allowed:
                    best[channel] = max(best[channel], size / allowed)
    touched = ["y"] if split == "train" else ["z"]
    for channel in touched:
        assert best[channel] > 0.95


def test_a_forgotten_clip_breaks_the_certificate() -> None:
    """The search above has teeth: with the clip taken out of the oracle, the stated sensitivity is exceeded."""
    problem, clip = LogisticHyperparameter(2), Clip("l1", y=0.1, z=0.1)

    class Unclipped(LogisticHyperparameter):
        def terms(self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Clip, wanted: Any = TERMS) -> Any:
            return super().terms(x, y, z, train, validation, Clip("l1"), wanted)

    def biggest(p: LogisticHyperparameter) -> float:
        own = [{c: np.zeros((1, 2)) for c in "xyz"} for _ in range(2)]
        algorithm = LdpDsbo(StepSize(0.1), StepSize(1.0), StepSize(1.0))
        runs = []
        for sign in (1.0, -1.0):
            records = problem.prepare(np.array([[sign * 3.0, 0.0]]), np.ones(1), "l1")
            runs.append(replay(algorithm, p, records, records, rounds=1, neighbour_weight=0.5, own=own,
                               received=[np.zeros((1, 6))], clip=clip))  # fmt: skip
        value = runs[0][1]["y"]
        assert isinstance(value, Bounded)
        return float(realised_change(*runs)["y"][0] / value.sensitivities["train"].sensitivity[0])

    assert biggest(problem) == pytest.approx(1.0, abs=1e-6)
    assert biggest(Unclipped(2)) > 10


def test_quadratic_reaches_its_closed_form_optimum_without_noise(scenario: Make) -> None:
    """Ground truth: noise-free LDP-DSBO with decaying steps on the quadratic problem ends at the analytic optimum."""
    base = scenario(
        problem={"kind": "quadratic", "ridge": 0.5, "data": "synthetic_classification", "scale": "none",
                 "synthetic": {"dimension": 3, "records": 40, "test_records": 40}},
        algorithm={"rounds": 8000, "init": {"x": 0.0}, "x": {"scale": 0.5, "decay": 0.4},
                   "y": {"scale": 0.3, "decay": 0.35}, "z": {"scale": 0.3, "decay": 0.3}},
        privacy={"guarantee": "none"},
        topology={"kind": "complete", "agents": 4},
    )  # fmt: skip
    del base["problem"]["test"]
    base["problem"]["normalise"] = "none"
    job = build(decentral_dp.load(base))
    last = LocalEngine().run(job.nodes(), job.rounds).last_snapshot
    optimum = QuadraticSolution(job.problem).optimum(
        list(zip(job.records["train"], job.records["validation"], strict=True))
    )
    assert np.abs(last.released["x"] - optimum.x).max() < 0.02 * max(1.0, np.abs(optimum.x).max())
