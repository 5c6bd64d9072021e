"""Gossip SGDA against a loop over agents and records, adversarial neighbours, planted errors, and its limit cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms.gossip.gossip_sgda import GossipSgda
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.central.problems.saddle import Saddle
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import Sampling
from decentral_dp.models.build import LinearModel
from decentral_dp.privacy.clipping import Clip
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from decentral_dp.user_code import UserCodeError
from tests.conformance.gossip import with_fields_of
from tests.support import minimax_loop as oracle
from tests.support.naive import finished
from tests.support.replay import Noise, certified_change, conversation, loud, quiet, realised_change, replay
from tests.support.shards import write_shards
from tests.support.training import changed

CLIPS = {"x": 0.2, "y": 0.3}
GRAPHS: Mapping[str, Any] = {
    "ring": {"kind": "ring", "agents": 4},
    "star": {"kind": "star", "agents": 3, "weights": "max_degree"},
}


def content(graph: str = "ring", **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "seed": 5,
        "problem": oracle.BASE["problem"],
        "topology": GRAPHS[graph],
        "algorithm": {"kind": "gossip_sgda", "rounds": 6, "x": {"scale": 0.9, "decay": 0.3}, "y": {"scale": 0.7}},
        "privacy": {"mechanism": "gaussian", "epsilon": 6.0, "delta": 1e-4, "clip": CLIPS},
        "run": {"evaluate_every": 3},
    }
    return changed(made, **changes)


def job_of(graph: str = "ring", **changes: Any) -> Job:
    return build(load(content(graph, **changes)))


# A loop over agents and records --------------------------------------------------------------------------------------


def loop(job: Job, noise: Noise, clips: Mapping[str, float]) -> list[dict[str, np.ndarray]]:
    """Compute all messages by the formulas; contributions along y are clipped around their ball's centre."""
    auc, m, weights = oracle.Auc(0.4), job.n_agents, job.topology.mixing.toarray()
    x, y = [np.zeros(6) for _ in range(m)], [np.zeros(1) for _ in range(m)]
    centre, told = np.array([2.0 * 0.4 - 1.0]), []

    def mean(term: Callable[..., np.ndarray], i: int, at: Any, middle: np.ndarray, bound: float) -> np.ndarray:
        rows, labels = job.records["train"][i]
        cut = [oracle.cut(term(*at, a, b) - middle, bound) for a, b in zip(rows, labels, strict=True)]
        return middle + sum(cut) / len(cut)

    def mixed(i: int, said: list[np.ndarray]) -> np.ndarray:
        return (1.0 - sum(weights[i, j] for j in range(m) if j != i)) * said[i] + sum(
            weights[i, j] * said[j] for j in range(m) if j != i
        )

    for t in range(job.rounds + 1):
        for i in range(m if t else 0):
            x[i], y[i] = x[i] + noise(t, "x", i, 6), y[i] + noise(t, "y", i, 1)
        told.append({"x": np.array(x), "y": np.array(y)})
        at = [(oracle.inside_x(mixed(i, x)), oracle.inside_y(mixed(i, y))) for i in range(m)]
        down, up = 0.9 / (t + 1) ** 0.3, 0.7

        def slopes(i: int, u: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
            along_y = mean(auc.grad_y, i, (u, v), centre, clips["y"]) + auc.public_y(v)
            return mean(auc.grad_x, i, (u, v), np.zeros(6), clips["x"]), along_y

        along = [slopes(i, u, v) for i, (u, v) in enumerate(at)]
        x = [u - down * d for (u, _), (d, _) in zip(at, along, strict=True)]
        y = [v + up * d for (_, v), (_, d) in zip(at, along, strict=True)]
    return told


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("noise", [quiet, loud])
@pytest.mark.parametrize("guarantee", ["none", "certified"])
def test_agents_say_what_the_formulas_say(graph: str, noise: Noise, guarantee: str) -> None:
    none = {"privacy": {"guarantee": "none", "epsilon": None, "clip": {}}} if guarantee == "none" else {}
    job = job_of(graph, **none)
    told = loop(job, noise, CLIPS if guarantee == "certified" else {"x": np.inf, "y": np.inf})
    said = conversation(job, noise)
    assert len(said) == len(told) == 7
    for ours, theirs in zip(said, told, strict=True):
        for channel in ("x", "y"):
            np.testing.assert_allclose(ours[channel], theirs[channel], rtol=0, atol=1e-12)
    # The comparison has power: every clip cuts, and every projection moves something.
    assert np.abs(told[-1]["x"]).max() > 1e-3
    if noise is loud:
        assert (told[-1]["y"] < 0.0).any() or (np.abs(told[-1]["x"][:, -2:] - 0.5) > 0.5).any()


# Problems with steps of y: as a maximiser (AUC, groups), and as a minimiser of a robust loss.
OBJECTIVES: Mapping[str, Any] = {
    "auc_maximisation": {"positive_share": 0.4},
    "dro": {"divergence": "chi2", "strength": 1.0, "cap": 3.0},
    "group_dro": {"strength": 1.0, "cap": 3.0},
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_with_one_agent_it_is_the_descent_ascent_of_a_coordinator(kind: str) -> None:
    runs = []
    for algorithm in ("gossip_sgda", "dp_sgda"):
        made = content(topology={"kind": "isolated", "agents": 1}, run={"evaluate_every": 1})
        made["problem"] = {k: v for k, v in made["problem"].items() if k != "positive_share"}
        made["problem"] |= {"kind": kind, **OBJECTIVES[kind]}
        made["algorithm"] = {"kind": algorithm, "rounds": 6, "x": {"scale": 0.9}, "y": {"scale": 0.7}}
        made["privacy"] = {"guarantee": "none"}
        runs.append(decentral_dp.run(load(made)))
    here, there = runs
    ends = here.simulation().problem.project(*(here.released[channel] for channel in ("x", "y")))
    for channel, end in zip(("x", "y"), ends, strict=True):
        np.testing.assert_allclose(end, there.released[channel], rtol=0, atol=1e-12)
        assert np.abs(end).max() > 1e-3
    # A coordinator projects before scoring; gossip scores the sent value.
    for name in ("primal", "gradient_norm") if kind == "auc_maximisation" else ():
        a, b = (r.metrics[r.metrics["name"] == name].sort_values("round")["value"].to_numpy() for r in (here, there))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


# The ledger ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling",
    ["full", {"kind": "streaming", "batch_size": 2, "warm_start": 1}, {"kind": "fixed_batch", "batch_size": 2}],
)
def test_planned_is_recorded_however_the_agents_are_hosted(sampling: Any) -> None:
    ends = []
    for blocks in (1, 3):
        job = job_of(problem={"sampling": sampling}, run={"blocks": blocks})
        outcome = finished(job)
        assert outcome.ledger.same_releases(job.ledger)
        assert not outcome.ledger.same_releases(job.ledger.rescale(1.0 + 1e-9)), "the comparison has no power"
        ends.append(outcome.last_snapshot.released)
    for channel in ("x", "y"):
        assert np.array_equal(ends[0][channel], ends[1][channel])


def test_a_release_is_charged_with_two_clips_over_the_records() -> None:
    job = job_of()
    for channel in job.ledger.channels:
        sizes = channel.sensitivity["train"][:, channel.group]
        steps = {"x": StepSize(0.9, 0.3), "y": StepSize(0.7)}[channel.channel].series(6)
        wanted = steps[:, None] * 2.0 * CLIPS[channel.channel] / job.counts["train"]
        np.testing.assert_allclose(sizes, wanted, rtol=1e-9)


# Adversaries ---------------------------------------------------------------------------------------------------------

PROBLEM = Saddle(Composite(LinearModel(2, 1), AucObjective(0.3)))
ALGORITHM = GossipSgda(x=StepSize(0.8, 0.2), y=StepSize(1.3))


def changes(seed: int, algorithm: Any = ALGORITHM, problem: Any = PROBLEM) -> tuple[Any, Any]:
    """Return (realised, certified) change of one agent's messages between neighbouring data sets, on one transcript.

    For even seeds the point, the record and its replacement are the worst case.
    """
    worst, rng = seed % 2 == 0, np.random.default_rng([11, seed])
    rows, labels = rng.normal(size=(3, 2)) * 10.0 ** rng.integers(0, 3), np.array([1.0, 0.0, 1.0])
    other, swapped = rows.copy(), labels.copy()
    if worst:
        # Opposite labels, at scores with the steepest slopes.
        rows[0] = other[0] = [1e3, 0.0] if seed % 4 else [0.0, 0.0]
        swapped[0] = 0.0
    else:
        other[0], swapped[0] = rng.normal(size=2) * 100.0, rng.integers(0, 2)

    def said() -> dict[str, np.ndarray]:
        # Weights and bias, a and b; far beyond the sets, and inside.
        x = np.concatenate([np.zeros(3) if worst else rng.normal(size=3), rng.uniform(-1.0, 2.0, size=2)])
        return {"x": x[None], "y": np.array([[rng.uniform(-3.0, 5.0)]])}

    own, received = [said() for _ in range(5)], [np.zeros((1, 6)) for _ in range(4)]
    runs = [
        replay(
            algorithm, problem, problem.prepare(f, b, "l2"), problem.prepare(f[:0], b[:0], "l2"), rounds=4,
            neighbour_weight=0.4, own=own, received=received, clip=Clip("l2", **CLIPS), sampling=Sampling("full"),
        )
        for f, b in ((rows, labels), (other, swapped))
    ]  # fmt: skip
    return realised_change(*runs, norm="l2"), certified_change(runs[0], "train")


def test_no_neighbour_exceeds_the_certificate_and_the_worst_come_near() -> None:
    largest = {"x": 0.0, "y": 0.0}
    for seed in range(60):
        realised, certified = changes(seed)
        for channel, sizes in realised.items():
            assert (sizes <= certified[channel] * (1.0 + 1e-9)).all(), (channel, seed)
            largest[channel] = max(largest[channel], float((sizes / certified[channel]).max()))
    assert min(largest.values()) > 0.95, largest


class Unprojected(GossipSgda):
    """Projects what is not released yet."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        return (yield from super().step(t, dataset, s._replace(y=dataset.project(s.x, s.y)[1])))


def test_what_depends_on_records_is_not_projected() -> None:
    with pytest.raises(UserCodeError, match="a Bounded value can be"):
        changes(0, with_fields_of(Unprojected, ALGORITHM))


# Records with their agents -------------------------------------------------------------------------------------------


def test_agents_that_keep_their_records_send_what_is_planned_and_no_scores(tmp_path: Any) -> None:
    write_shards(load(content()), tmp_path / "shards")
    run = decentral_dp.run(tmp_path / "shards" / "scenario.toml")
    assert run.simulation().covers(run.records)
    assert set(run.metrics["name"]) <= {"epsilon_spent"}
    assert any("scores of them are left out." in note for note in run.result.problem["notes"])


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "values", "words"),
    [
        ("privacy", {"clip": {"x": 1.0}}, r"privacy\.clip\.y: missing"),
        ("problem", {"validation": 0.2}, "not supported by a minimax problem"),
        ("problem", {"kind": "kl_dro", "strength": 1.0, "radius": 0.5, "cap": 3.0}, "requires grad_x as a mean"),
        ("algorithm", {"kind": "ldp_dsbo"}, r'set algorithm\.kind to "gossip_sgda"\.$'),
    ],
)
def test_refusals(table: str, values: Mapping[str, Any], words: str) -> None:
    made = content(**{table: values})
    if made["problem"]["kind"] != "auc_maximisation":
        del made["problem"]["positive_share"]
    if made["algorithm"]["kind"] == "ldp_dsbo":
        made["algorithm"]["z"] = {"scale": 0.1}
    with pytest.raises(InputError, match=words):
        build(load(made))
