"""Small jobs of the penalty method, for its tests."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import decentral_dp
from decentral_dp.bounded import Bounded
from decentral_dp.participants import ClientBlock
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Scripted, scripted
from tests.support.penalty_loop import LOSSES, Naive
from tests.support.published import as_published

BASE: dict[str, Any] = {
    "seed": 5,
    "problem": {
        "kind": "logistic_hyperparameter",
        "data": "synthetic_classification",
        "synthetic": {"dimension": 3, "records": 14, "test_records": 9},
        "partition": {"kind": "dirichlet", "alpha": 3.0},
        "validation": 0.4,
        "normalise": "l2",
    },
    "topology": {"kind": "star", "agents": 3},
    "algorithm": {
        "kind": "dp_bilevel",
        "rounds": 4,
        "x": {"scale": 0.4, "decay": 0.3},
        "penalty": 3.0,
        "inner": 3,
        "smoothness": 2.0,
        "domain": {"low": -1.5, "high": 0.2},
        "init": {"x": -0.4, "y": 0.1},
    },
    "privacy": {"epsilon": 6.0, "clip": {"x": 0.03, "y": 0.4, "z": 0.3}},
}
SPLITS = sorted(LOSSES)
# Unbounded records have no known constants and no projection.
UNKNOWN = {"biased_regularisation", "hyper_cleaning"}


def content(kind: str = "logistic_hyperparameter", drop: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    out = copy.deepcopy(BASE)
    out["problem"]["kind"] = kind
    if kind in UNKNOWN:
        out["problem"]["normalise"] = "none"
    out["problem"] |= {
        "mean_estimation": {"ridge": 0.5},
        "biased_regularisation": {"ridge": 0.5},
        "hyper_cleaning": {"ridge": 0.4, "groups": 2},
    }.get(kind, {})
    for table, values in changes.items():
        out[table] = out.get(table, {}) | values
    for key in drop:
        table, name = key.split(".")
        out[table].pop(name)
    return as_published(out)


def made(*args: Any, **changes: Any) -> Job:
    return build(decentral_dp.load(content(*args, **changes)))


def groups(kind: str) -> int:
    return 2 if kind == "hyper_cleaning" else 1


def agree(job: Job, loop: Naive, releaser: Any = None, solve: str = "descend") -> None:
    """Every value before its noise, and what is published after every round, are those of the loop."""
    releaser = releaser or Scripted()
    got, wanted = scripted(job, releaser), loop.run(solve)
    assert releaser.wanted.keys() == loop.heard.keys()
    for key, value in releaser.wanted.items():
        whole = value.value if isinstance(value, Bounded) else value
        np.testing.assert_allclose(whole[0], loop.heard[key], rtol=1e-10, atol=1e-10, err_msg=str(key))
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.keys() == other.keys()
        for channel, value in one.items():
            np.testing.assert_allclose(value[0], other[channel], rtol=1e-10, atol=1e-10, err_msg=channel)


SOLVING = {
    "dp_gd": {"inner": 2, "smoothness": 2.0},
    "output_perturbation": {},
}
OWN = ("algorithm.inner", "algorithm.smoothness")


def solved_by(solver: str, kind: str = "logistic_hyperparameter", **changes: Any) -> Job:
    table = changes.pop("algorithm", {})
    table = {"solver": solver, **SOLVING[solver], **table}
    problem = {"normalise": "l2"} | changes.pop("problem", {})
    out = content(kind, OWN, problem=problem, **changes)
    out["algorithm"] |= table
    return build(decentral_dp.load(out))


def client_blocks(job: Job, records: dict[str, list[Any]], clip: Clip | None = None) -> tuple[ClientBlock, ...]:
    """Build one block of all agents, on known records."""
    agents, coins = np.arange(job.n_agents), Streams(seeded_root(1, b"t"), "coins", np.arange(job.n_agents))
    return (ClientBlock(agents, job.problem, records, clip or job.context.clip, coins),)
