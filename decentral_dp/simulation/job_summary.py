"""What results say of a job: its title, graph, problem and records, and the scores of who knows nothing."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.bounded import SPLITS, Split
from decentral_dp.config import outside_components as outside
from decentral_dp.config.algorithm_components import entry_of
from decentral_dp.data.stand_in import STANDING_IN
from decentral_dp.reporting.text import article, topology_name
from decentral_dp.topology import GENERATORS, Topology
from decentral_dp.user_code import in_file, own_name

if TYPE_CHECKING:
    from decentral_dp.config.schema import Scenario
    from decentral_dp.simulation.jobs import Job


def baselines(job: Job) -> dict[str, float]:
    """Scores of who knows nothing of a record but its kind.

    Returns:
        test_accuracy: the share of held-out records in the class that is commonest among the agents' records.
        test_rmse, test_r2: of labels that are numbers, of always predicting the mean label of the agents' records.
        Nothing without held-out records.
    """
    shards = job.shards
    if not shards.test.size:
        return {}
    known = shards.labels[np.concatenate([*shards.train, *shards.validation])]
    if (unit := shards.label_unit) is not None:
        held_out = shards.labels[shards.test]
        with np.errstate(all="ignore"):
            squared = float(np.mean(np.square(held_out - known.mean())))
            explained = {"test_r2": 1.0 - squared / float(np.var(held_out))} if np.ptp(held_out) > 0.0 else {}
        found = {"test_rmse": math.sqrt(squared) * unit, **explained}
        return {name: value for name, value in found.items() if math.isfinite(value)}
    known = known.astype(np.int64)
    commonest = int(np.argmax(np.bincount(known, minlength=len(shards.classes))))
    return {"test_accuracy": float(np.mean(shards.labels[shards.test] == commonest))}


def title_of(job: Job) -> str:
    """The scenario's title, with what stands in for the records that it names, and the graph where it is another."""
    source = job.shards.source
    title = title_here(job.scenario, job.topology, trusted=entry_of(job.scenario).trusted or job.central)
    return f"{title} ({source})".strip() if STANDING_IN in source else title


def title_here(s: Scenario, topology: Topology, trusted: bool) -> str:
    """The scenario's title; where its algorithm or its graph was replaced, with that which is run.

    trusted: nobody has neighbours.
    """
    replaced = s._replaced | s._given
    m = topology.n_agents
    graph = article(topology_name({"kind": topology.name, "agents": m}))
    others = [own_name(s.algorithm.kind)] if "algorithm" in replaced else []
    others += [f"{m} agents" if trusted or m == 1 else graph] if "topology" in replaced else []
    return f"{s.title} (here {', '.join(others)})" if s.title and others else s.title


def topology_summary(job: Job) -> dict[str, Any]:
    """The graph and its numbers."""
    t = job.topology
    return {
        "kind": t.name,
        "agents": t.n_agents,
        "edges": t.edges.tolist(),
        "rho": t.rho,
        "spectral_gap": t.spectral_gap,
        "neighbour_weight": t.neighbour_weight.tolist(),
        "weights": t.weights,
        "labels": list(t.labels),
        # A generator's are no better than those that a picture finds; a map is another matter.
        **({} if t.positions is None or t.name in GENERATORS else {"positions": t.positions.tolist()}),
        "notes": list(t.notes),
        "central": job.central,
    }


def problem_summary(job: Job) -> dict[str, Any]:
    """The problem, its size, and the public record counts."""
    counts: dict[Split, Any] = {k: job.counts[k].tolist() for k in SPLITS}
    return {
        "kind": own_name(job.scenario.problem.kind),
        "solves": job.solves,
        # What is noted about the records says that they are others than those that were named.
        "data": job.shards.source
        if job.shards.notes or outside.is_given(job.scenario, "data")
        else _data_name(job.scenario),
        "notes": list(job.shards.all_notes),
        **({"x_names": names} if (names := _names_of_x(job)) else {}),
        "p": job.problem.p,
        "q": job.problem.q,
        "records": {**counts, "test": int(job.shards.test.size)},
    }


def _data_name(s: Scenario) -> str:
    """What the records are called; of a file its name, for its folders say who ran this."""
    named = ("problem", "data") in s.files() or s.problem.manifest is not None
    return Path(s.problem.data).name if named and in_file(s.problem.data) is None else own_name(s.problem.data)


# Problems of which x has a coordinate for each feature.
_BY_FEATURE = ("logistic_hyperparameter", "ridge_hyperparameter", "softmax_hyperparameter")
# Names that say no more than a number: of features that have none.
_NUMBERED = re.compile(r"(x|feature_?|pixel_?)\d+")


def _names_of_x(job: Job) -> list[str]:
    """What the coordinates of x stand for; empty where nothing names them."""
    names, p = list(job.shards.feature_names), job.problem.p
    if job.scenario.problem.kind not in _BY_FEATURE or outside.is_given(job.scenario, "problem"):
        return []
    if not 0 <= p - len(names) <= 1 or all(_NUMBERED.fullmatch(name) for name in names):
        return []
    return [*names, "intercept"][:p]
