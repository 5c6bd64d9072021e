"""Divergence: label, stopping rule and public scale."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import MOST_OF_SCALE, RunControl, SavedState, Snapshot, release_scale
from decentral_dp.reporting.report import reason_text

# Fixed scales, so that fewer rounds have the same noise.
NOISE = {
    "mechanism": "gaussian",
    "delta": 1e-5,
    "clip": {"y": 1.0, "z": 1.0},
    "y": {"scale": 0.5},
    "z": {"scale": 0.5},
}


def _content(step: float, rounds: int, *, noisy: bool = False, seed: int = 1, **run: Any) -> dict[str, Any]:
    """Descent on two levels whose λ_min(W) − λL is below −1 for λ = 1 on a ring of four, where λ_min = −1/3."""
    records = {"dimension": 5, "records": 40, "test_records": 50}
    return {
        "seed": seed,
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "synthetic_classification",
            "normalise": "l2",
            "synthetic": records,
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {
            "kind": "ldp_dsbo",
            "rounds": rounds,
            "x": {"scale": 0.5},
            "y": {"scale": step},
            "z": {"scale": step},
        },
        "privacy": NOISE if noisy else {"guarantee": "none"},
        "run": {"evaluate_every": 5, **run},
    }


@cache
def _rounds_to_growth(noisy: bool) -> int:
    """The first round by which a loss is above 1000 and nothing has stopped the run."""
    run = decentral_dp.run(_content(1.0, 400, noisy=noisy, evaluate_every=1))
    means = run.metrics[(run.metrics["agent"] == "mean") & (run.metrics["name"] == "lower_loss")]
    return int(means[means["value"] > 1e3]["round"].iloc[0])


@pytest.mark.parametrize("noisy", [False, True])
def test_a_loss_a_thousand_times_its_start_labels_a_run_that_has_ended(noisy: bool, tmp_path: Path) -> None:
    rounds = _rounds_to_growth(noisy) + 10
    content = _content(1.0, rounds, noisy=noisy)
    run = decentral_dp.run(content, out=tmp_path / "run")
    assert (run.result.status, run.result.rounds, run.result.rounds_planned) == ("diverged", rounds, rounds)
    assert "by an evaluation that no ε covers" in reason_text(run.result)
    # The label reads records, and takes nothing from what was released.
    assert run.simulation().ledger.same_releases(run.records)
    assert run.model.agents or run.model.weights


@pytest.mark.parametrize("noisy", [False, True])
def test_a_release_above_a_million_public_scales_stops_a_run_wherever_its_agents_are(noisy: bool) -> None:
    done = [decentral_dp.run(_content(1.0, 400, noisy=noisy, blocks=blocks)) for blocks in (1, 3, 4)]
    first = done[0]
    assert first.result.status == "diverged"
    assert "public scale" in reason_text(first.result)
    assert first.result.rounds < 400
    # Post-processing: the round follows from what was released, and from public numbers.
    limit = MOST_OF_SCALE * first.simulation().public_scale
    assert max(float(np.linalg.norm(v, axis=1).max()) for v in first.released.values()) > limit
    assert all(np.isfinite(v).all() for v in first.released.values())
    assert {run.result.rounds for run in done} == {first.result.rounds}
    # The ledger is that of the plan up to the last round.
    recorded = first.records
    assert recorded.same_releases(first.simulation().ledger.truncate(recorded.rounds))
    assert recorded.rounds < 400


# Temporal differences on few short trajectories.
COORDINATOR = {
    "problem.synthetic.records": 20,
    "problem.synthetic.test_records": 5,
    "problem.synthetic.steps": 10,
    "algorithm.rounds": 20,
    "run.evaluate_every": 5,
}


@pytest.mark.parametrize("guarantee", ["certified", "none"])
def test_a_release_above_a_million_public_scales_stops_a_coordinator(guarantee: str, tmp_path: Path) -> None:
    steps = {"algorithm.x.scale": 1e6, "algorithm.y.scale": 1e6}
    changes = {**COORDINATOR, **steps, "privacy.guarantee": guarantee}
    if guarantee == "none":
        changes["privacy.epsilon"] = None
    done = [decentral_dp.run("dptd", set={**changes, "run.blocks": blocks}) for blocks in (1, 2)]
    first = done[0]
    assert first.result.status == "diverged"
    assert "public scale" in reason_text(first.result)
    assert first.result.rounds < 20
    assert done[1].result.rounds == first.result.rounds
    recorded = first.records
    assert recorded.rounds < 20
    assert recorded.costs_within(first.simulation().ledger.truncate(recorded.rounds))


def test_a_coordinator_that_diverges_exits_with_1_and_reads_no_record(tmp_path: Path) -> None:
    options = [f"--set={key}={value}" for key, value in COORDINATOR.items()]
    options += ["--set=algorithm.x.scale=1e6", "--set=algorithm.y.scale=1e6", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, ["run", "dptd", *options]).exit_code == 1
    changes = {**COORDINATOR, "algorithm.y.scale": 3.0}
    jobs = [decentral_dp.build("dptd", set={**changes, "seed": seed}).simulation() for seed in (1, 2)]
    nodes = [job.coordinator_node() for job in jobs]
    assert nodes[0].most_records == nodes[1].most_records == 5 * 20
    assert nodes[0].largest_step == nodes[1].largest_step == 3.0


def test_a_coordinator_resumes_with_its_public_scale() -> None:
    job = decentral_dp.build("dptd", set=COORDINATOR).simulation()
    saved: dict[int, dict[str, Any]] = {}

    def control(state: SavedState | None = None) -> RunControl:
        def observe(snapshot: Snapshot) -> bool:
            saved[snapshot.round] = dict(snapshot.save().parts[0])
            return False

        return RunControl({5, 10}, observe, saved_state=state)

    job.start(LocalEngine(), control())
    first = saved[10]["scale"]
    job.start(LocalEngine(), control(SavedState(5, (saved[5],))))
    assert saved[10]["scale"] == first > saved[5]["scale"] > 1.0


def test_the_scale_of_releases_by_hand() -> None:
    noise, sensitivity = np.array([1.0, 2.0]), np.array([0.5, math.inf])
    # Two rounds of noise on four coordinates, a clip of ten records, and one release without a clip.
    assert release_scale(noise, [sensitivity], 4, 10.0, 3.0) == pytest.approx(3.0 * 2.0 * 3.0 + 5.0 + 1.0)


def test_the_public_scale_reads_no_record() -> None:
    """Other records of the same number do not change it, and it grows with noise and clips."""
    one, other = (decentral_dp.build(_content(0.3, 50, noisy=True, seed=s)).simulation().public_scale for s in (1, 2))
    assert one == other
    wide = _content(0.3, 50, noisy=True)
    wide["privacy"] = {**NOISE, "clip": {"y": 10.0, "z": 10.0}}
    assert decentral_dp.build(wide).simulation().public_scale > 4.0 * one


def test_a_plan_names_the_largest_step_that_is_stable_on_the_graph() -> None:
    """λ_min(W) − λL against the eigenvalues of the graph and the curvature at the start of x."""
    plan = decentral_dp.plan(_content(1.0, 10))
    job = decentral_dp.build(_content(1.0, 10)).simulation()
    links = job.topology.mixing.toarray()
    np.fill_diagonal(links, 0.0)
    least = float(np.linalg.eigvalsh(links + np.diag(1.0 - links.sum(axis=1)))[0])
    assert least == pytest.approx(-1.0 / 3.0)
    largest = float(plan.setting_warnings[0].partition(" stable one is ")[2].partition(" ")[0])
    # A quarter of the square of the longest record, and the strength exp(0), shared by the coordinates.
    assert largest == pytest.approx((1.0 + least) / 1.25, rel=0.01)
    assert " ".join(plan.setting_warnings[0].split()) in " ".join(str(plan).split())
    assert decentral_dp.plan(_content(0.99 * largest, 10)).setting_warnings == ()
    assert decentral_dp.plan(_content(1.01 * largest, 10)).setting_warnings != ()
