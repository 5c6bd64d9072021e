"""The penalty method on neighbouring data sets: adversarial records."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decentral_dp.bounded import Bounded
from decentral_dp.exchange import ClippedSum
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CHANGE
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Scripted, scripted
from tests.support.penalty_jobs import SPLITS, client_blocks, made, solved_by


def replace_record(job: Job, kind: str, row: np.ndarray, label: float) -> dict[str, list[Any]]:
    """Replace the first record of agent 0 in a split; its row stays the same."""
    out = {k: list(r) for k, r in job.records.items()}
    prepared, first = job.problem.prepare(row[None], np.array([label]), "l2"), out[kind][0]
    new = type(first)(*(np.concatenate([p[:1], f[1:]]) for p, f in zip(prepared, first, strict=True)))
    out[kind][0] = new._replace(group=first.group) if "group" in first._fields else new
    return out


def draw_neighbours(job: Job, kind: str, rng: np.random.Generator) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Draw two neighbours whose records have the largest norm, or exceed every clip if nothing bounds them."""
    row = rng.normal(size=job.shards.features.shape[1])
    row *= (1.0 if job.context.family is not None else 50.0) / np.linalg.norm(row)
    flip = rng.random() < 0.5
    return replace_record(job, kind, row, 1.0), replace_record(job, kind, row if flip else -row, 0.0 if flip else 1.0)


def release_both(job: Job, kind: str, seed: int, clip: Clip | None = None) -> tuple[Scripted, Scripted]:
    """Compute the values before noise of two neighbouring data sets along one transcript."""
    rng = np.random.default_rng(seed)
    spoken: dict[Any, np.ndarray] = {}

    class Drawn(dict[Any, Any]):
        def __missing__(self, key: Any) -> np.ndarray:
            width = job.problem.p if key[1] == "gx" else job.problem.q
            return spoken.setdefault(key, 0.5 * rng.normal(size=(1, width)))

    sides = Scripted(answers=Drawn()), Scripted(answers=Drawn())
    for releaser, records in zip(sides, draw_neighbours(job, kind, rng), strict=True):
        scripted(job, releaser, client_blocks(job, records, clip))
    return sides


def sensitivity_ratios(sides: tuple[Scripted, Scripted], kind: Any) -> dict[str, float]:
    """Return channel → the largest ratio of a change to the stated sensitivity."""
    out: dict[str, float] = {}
    for (index, channel), first in sides[0].wanted.items():
        second = sides[1].wanted[index, channel]
        if not isinstance(first, Bounded):
            assert (first == second).all(), f"{channel} is public and differs"
            continue
        assert (first.public == second.public).all()
        sensitivity, bound = float(np.linalg.norm(first.private - second.private)), first.sensitivities.get(kind)
        if bound is None:
            assert sensitivity == 0.0, f"{channel} moves and states nothing"
            continue
        assert bound.sensitivity[0] == second.sensitivities[kind].sensitivity[0]
        out[channel] = max(out.get(channel, 0.0), sensitivity / float(bound.sensitivity[0]))
    return out


def largest_ratios(job: Job, kind: str, seeds: int, clip: Clip | None = None) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for seed in range(seeds):
        for channel, ratio in sensitivity_ratios(release_both(job, kind, seed, clip), kind).items():
            ratios[channel] = max(ratios.get(channel, 0.0), ratio)
    return ratios


@pytest.mark.parametrize("kind", ["train", "validation"])
@pytest.mark.parametrize("problem", ["logistic_hyperparameter", "hyper_cleaning", "mean_estimation"])
@pytest.mark.parametrize("solver", ["dp_gd", "output_perturbation"])
def test_neighbours_stay_within_stated_sensitivity(solver: str, problem: str, kind: str) -> None:
    ratios = largest_ratios(solved_by(solver, problem, algorithm={"rounds": 2}), kind, 5)
    assert all(0.02 < ratio <= 1.0 + 1e-9 for ratio in ratios.values())
    if kind == "train" and (solver, problem) == ("output_perturbation", "mean_estimation"):
        # The constants omit the curvature that f adds to g + f/λ: 1.5 instead of 1.5 + 1/3.
        assert ratios["y"] > 0.999
        assert ratios["pulled"] > 0.81


@pytest.mark.parametrize("kind", ["train", "validation"])
@pytest.mark.parametrize("problem", SPLITS)
def test_clipped_means_attain_stated_sensitivity(problem: str, kind: str) -> None:
    """Records without a bound on their norm reach both extremes of the clip."""
    job = made(
        problem,
        problem={"normalise": "none", "kind": problem},
        privacy={"clip": dict.fromkeys("xyz", 1e-3)},
        algorithm={"rounds": 1, "inner": 1},
    )
    ratios = largest_ratios(job, kind, 6)
    assert all(ratio <= 1.0 + 1e-9 for ratio in ratios.values())
    assert min(ratios.values()) > 0.95


def test_change_sensitivity_uses_the_smaller_distance_bound() -> None:
    """The bound is λ D_hxy ‖ỹ^λ − ỹ‖/n instead of 2C_x/n; random records attain at least a tenth."""
    clip = {"x": 50.0, "y": 1.0, "z": 1.0}
    job = solved_by("output_perturbation", "hyper_cleaning", privacy={"clip": clip}, algorithm={"rounds": 2})
    n, best = job.context.counts["train"], 0.0
    for seed in range(10):
        sides = release_both(job, "train", seed)
        bounds = [v.sensitivities["train"].sensitivity[0] for (_, c), v in sides[0].wanted.items() if c == "gx"]
        assert max(bounds) < 0.9 * 2.0 * 50.0 / n
        best = max(best, sensitivity_ratios(sides, "train")["gx"])
    assert 0.1 < best <= 1.0


def test_distance_bound_is_not_used_for_samples_or_small_clips() -> None:
    job = solved_by("output_perturbation", "hyper_cleaning")
    x, y, other = np.zeros(6), np.full(6, 0.1), np.full(6, -0.1)
    for rate, clip, tighter in ((1.0, 50.0, True), (0.5, 50.0, False), (1.0, 1e-3, False)):
        context = replace(job.context, clip=Clip("l2", x=clip))
        query = ClippedSum(CHANGE, x, y, other, rate, times=3.0)
        answer = context.combine(1, {"g": query}, {"g": np.zeros((3, 6))}).g
        sensitivity = context.tighten(answer, query, 3.0).sensitivities["train"].sensitivity[0]
        assert (sensitivity < answer.sensitivities["train"].sensitivity[0]) == tighter
    # σ'(0) = ¼, two records of length 1 in two classes each: D_hxy = 2 · ¼ · ‖s − e_b‖.
    d = job.context.family.constants(x, x, 1.0 + 1.0 / 3.0).d_hxy
    assert 0.5 * 1.0 < d < 0.5 * math.sqrt(2.0)
    wide = replace(job.context, clip=Clip("l2", x=50.0))
    query = ClippedSum(CHANGE, x, y, other, times=3.0)
    answer = wide.combine(1, {"g": query}, {"g": np.zeros((3, 6))}).g
    sensitivity = wide.tighten(answer, query, 3.0).sensitivities["train"].sensitivity[0]
    assert sensitivity == pytest.approx(3.0 * d * 0.2 * math.sqrt(6.0) / job.context.counts["train"])


def test_zero_distance_leaves_rounding_error() -> None:
    """The exact change is 0 for every record; the bound still covers the rounding of its float64 sum."""
    job = solved_by("output_perturbation", "hyper_cleaning")
    n, x, y = job.context.counts["train"], np.zeros(6), np.full(6, 0.1)
    for clip in (50.0, 1e9):
        context = replace(job.context, clip=Clip("l2", x=clip))
        query = ClippedSum(CHANGE, x, y, y, times=3.0)
        answer = context.combine(1, {"g": query}, {"g": np.zeros((3, 6))}).g
        summed = float(answer.sensitivities["train"].sensitivity[0]) - 2.0 * clip / n
        # A loss of at least two classes is at least log 2, which cancels in the difference.
        cancelled = 3.0 * math.log(2.0) * 2.0**-46 / n
        bound = float(context.tighten(answer, query, 3.0).sensitivities["train"].sensitivity[0])
        assert summed > 0.0
        assert bound >= summed + cancelled
        assert bound < 1e-3 * 2.0 * clip / n
