"""Certified LDP-DSBO on a ring, of any size, and the arithmetic that one of its rounds cannot do without."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.benchmarks.timing import fastest


def ring_job(rounds: int, agents: int, records: int, width: int, topology: Mapping[str, Any] | None = None) -> Job:
    """Made-up records in [−1, 1]. records: of each kind, per agent. width: features. topology: another than a ring."""
    draw, n = np.random.default_rng(0), 2 * agents * records
    data = {
        "features": draw.uniform(-1.0, 1.0, (n, width)),
        "labels": np.where(draw.uniform(size=n) < 0.5, -1, 1),
        "agent": np.repeat(np.arange(agents), 2 * records),
        "split": np.tile(np.repeat(["train", "validation"], records), agents),
        "classes": [-1, 1],
    }
    step = {"scale": 0.1, "decay": 0.5}
    content = {
        "seed": 1,
        "problem": {"kind": "logistic_hyperparameter", "data": "breast_cancer", "classes": [-1, 1], "normalise": "l1"},
        "topology": {"kind": "ring", "agents": agents, **(topology or {})},
        "algorithm": {"kind": "ldp_dsbo", "rounds": rounds, "x": step, "y": step, "z": step},
        "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
        "run": {"evaluate_every": rounds},
    }
    return build(decentral_dp.load(content), data=data)


def arithmetic(agents: int, records: int, width: int) -> Callable[[], None]:
    """Six products of records with vectors, three channels of Laplace noise, one mix: no clip, no coefficients."""
    draw = np.random.default_rng(0)
    shards, points = draw.normal(size=(agents, records, width)), draw.normal(size=(agents, 3 * width))
    around = np.arange(agents)
    ends = (np.tile(around, 2), np.concatenate([(around + 1) % agents, (around - 1) % agents]))
    mix = sp.csr_array((np.full(2 * agents, 0.25), ends))

    def once() -> None:
        for _ in range(3):
            margins = np.einsum("gnd,gd->gn", shards, points[:, :width])
            np.einsum("gn,gnd->gd", margins, shards)
        mix @ (points + draw.laplace(size=points.shape))

    return once


def seconds_of(job: Job, once: Callable[[], None], rounds: int, less: Job | None = None) -> tuple[float, float]:
    """(of a run, of as many rounds of arithmetic): processor time, the least of five paired measurements each.

    less: whose time is taken off, a run of fewer rounds with the same evaluations.
    """
    runs = [job.start, less.start] if less is not None else [job.start]
    with threadpool_limits(limits=1):
        times = fastest(
            [*(lambda run=run: run(LocalEngine()) for run in runs), lambda: [once() for _ in range(rounds)]],
            5,
            time.process_time,
        )
    return times[0] - (times[1] if less is not None else 0.0), times[-1]
