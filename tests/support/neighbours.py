"""How far a replaced record moves what a job releases, over what its releases are charged with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from decentral_dp.bounded import Bounded
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Scripted, scripted


def widest(job: Job, tries: int = 24, seed: int = 0) -> dict[str, float]:
    """Channel → the largest ratio found. Both data sets get the same answers, so that they ask the same questions.

    The job reads all records. Replacements are of either class, from small to huge, along the first record and at
    random; pairs are each against the record that was there, and against each other.
    """
    heard = Scripted()
    scripted(job, heard)
    answers = {
        key: value.value + 0.1 * np.random.default_rng([key[0], *key[1].encode()]).normal(size=value.value.shape)
        for key, value in heard.wanted.items()
        if isinstance(value, Bounded)
    }
    rng = np.random.default_rng(seed)
    neighbours = [_releases(job, answers)]
    for k in range(tries):
        direction = rng.normal(size=job.shards.features.shape[1])
        size = 10.0 ** rng.uniform(-1.0, 3.0)
        inputs = size * direction / np.linalg.norm(direction) * (-1.0 if k % 2 else 1.0)
        neighbours.append(_releases(_replaced(job, inputs, float(k // 2 % 2)), answers))
    out: dict[str, float] = {}
    for i, one in enumerate(neighbours):
        for other in neighbours[i + 1 :]:
            for (index, channel), value in one.items():
                allowed = float(value.sensitivities["train"].sensitivity[0])
                sensitivity = float(np.linalg.norm(value.value - other[index, channel].value))
                assert allowed == float(other[index, channel].sensitivities["train"].sensitivity[0])
                if allowed > 0.0:
                    out[channel] = max(out.get(channel, 0.0), sensitivity / allowed)
                else:
                    assert sensitivity == 0.0
    return out


def exceeded(ratios: dict[str, float]) -> bool:
    return any(ratio > 1.0 for ratio in ratios.values())


def _releases(job: Job, answers: dict[Any, Any]) -> dict[tuple[int, str], Bounded]:
    releaser = Scripted(answers=answers)
    scripted(job, releaser)
    return {key: value for key, value in releaser.wanted.items() if isinstance(value, Bounded)}


def _replaced(job: Job, inputs: np.ndarray, label: float) -> Job:
    """Replace the first agent's first record."""
    first, *others = job.records["train"]
    changed = first._replace(inputs=first.inputs.copy(), labels=first.labels.copy())
    changed.inputs[0], changed.labels[0] = inputs, label
    return replace(job, records={**job.records, "train": (changed, *others)})
