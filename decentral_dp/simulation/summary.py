"""Summaries of a job for results and plans: privacy statement, title, algorithm, graph, problem and records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from decentral_dp import annexes
from decentral_dp.algorithms.gossip.centring import Centring, strip_centring
from decentral_dp.bounded import SPLITS, Split
from decentral_dp.config.components import Components
from decentral_dp.config.schema import Scenario
from decentral_dp.problems.protocol import Predictor
from decentral_dp.simulation.communication import compression_summary
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.statement import PaperClaim, PrivacyStatement

SETTINGS: Mapping[str, str] = {"gossip": "decentral_dp.simulation.job_statement:GOSSIP"} | dict(annexes.SETTINGS)


class Setting(NamedTuple):
    """Functions of a setting.

    Args:
        build: function components → planned job, without a noise key.
        statement: function job → privacy statement.
        claim: function job → ε that a paper claims.
        hyperparameters: function job → hyper-parameters of the run; None if the scenario sets them all.
    """

    build: Callable[[Components], PlannedJob]
    statement: Callable[[Any], PrivacyStatement]
    claim: Callable[[Any], PaperClaim | None]
    hyperparameters: Callable[[Any], dict[str, Any] | None] = lambda job: None


def setting_of(name: str) -> Setting:
    """Import a setting by its name. Raises KeyError for an unknown name."""
    setting: Setting = annexes.import_place(SETTINGS[name])
    return setting


def statement_of(job: PlannedJob) -> PrivacyStatement:
    """Build the privacy statement of a job from public facts only.

    Example:
        >>> from decentral_dp.simulation.jobs.build import build_job
        >>> statement_of(build_job("quadratic")).guarantee
        'none'
    """
    return setting_of(job.setting).statement(job)


def claim_of(job: PlannedJob) -> PaperClaim | None:
    """Return the ε that a paper claims, for comparison only."""
    return setting_of(job.setting).claim(job)


def baselines(job: PlannedJob) -> dict[str, float]:
    """Compute the scores of constant predictions on the held-out records.

    Returns:
        test_auc and test_accuracy of the majority class of the agents' records, or test_rmse and test_r2 of their mean
        label. Empty without held-out records.
    """
    shards = job.shards
    if not shards.test.size:
        return {}
    labels = shards.labels[np.concatenate([*shards.train, *shards.validation])]
    if (unit := shards.label_unit) is not None:
        held_out = shards.labels[shards.test]
        with np.errstate(all="ignore"):
            mse = float(np.mean(np.square(held_out - labels.mean())))
            r2 = {"test_r2": 1.0 - mse / float(np.var(held_out))} if np.ptp(held_out) > 0.0 else {}
        scores = {"test_rmse": math.sqrt(mse) * unit, **r2}
        return {name: value for name, value in scores.items() if math.isfinite(value)}
    labels = labels.astype(np.int64)
    commonest = int(np.argmax(np.bincount(labels, minlength=len(shards.classes))))
    return {"test_auc": 0.5, "test_accuracy": float(np.mean(shards.labels[shards.test] == commonest))}


def title_of(s: Scenario) -> str:
    """Return the scenario's title, with the tables that an override replaced."""
    replacements = s._replaced_tables | ({"topology"} & s._object_names.keys())
    changes = [s.algorithm.kind] if "algorithm" in replacements else []
    changes += ["another network"] if "topology" in replacements else []
    suffix = f" (here {', '.join(changes)})" if s.title and changes else ""
    # A run folder's scenario has it already.
    return s.title if s.title.endswith(suffix) else s.title + suffix


def method_name(job: PlannedJob) -> str:
    """Return the name of a job's algorithm with every enabled part.

    Example:
        >>> import decentral_dp
        >>> plain = {"algorithm.momentum": 0.0, "algorithm.centring": False, "run.average": 1}
        >>> [method_name(decentral_dp.build("dp_dsgd", set=keys).simulation()) for keys in (plain, {})]
        ['D-SGD', 'D-SGD + momentum 0.9, centred features, tail average']
    """
    entry, algorithm = job.components.algorithm, strip_centring(job.algorithm)
    parts = []
    if momentum := getattr(algorithm, "momentum", 0.0):
        parts.append(f"momentum {momentum:g}")
    if isinstance(job.algorithm, Centring):
        parts.append("centred features")
    if min(job.scenario.tail_length, job.rounds) > 1:
        parts.append("tail average")
    name = entry.display_name or entry.kind
    if entry.display_name and job.setting == "gossip" and job.tunes_x:
        name += f" ({job.solves})"
    return f"{name} + {', '.join(parts)}" if parts else name


def topology_summary(job: PlannedJob) -> dict[str, Any]:
    """Return the graph and its numbers."""
    t, changes = job.topology, job.topology.over_time
    over_time = {key: getattr(changes, key, None) for key in ("kind", "rate", "period")}
    over_time |= {key: value for key in ("drop", "offline", "delay") if (value := getattr(changes, key, None))}
    return {
        "kind": t.name,
        "agents": t.n_agents,
        "edges": t.edges.tolist(),
        "rho": t.rho,
        "spectral_gap": t.spectral_gap,
        "neighbour_weight": t.neighbour_weight.tolist(),
        "weights": t.weights,
        "labels": list(t.labels),
        "notes": list(t.notes),
        "has_server": job.has_server,
        **({"directed": True} if t.directed else {}),
        **({} if t.over_time is None else {"over_time": over_time}),
        **({} if (compression := compression_summary(job)) is None else {"compression": compression}),
        **({} if (aggregation := job.scenario.topology.aggregation) is None else {"aggregation": aggregation.kind}),
        **({} if (attack := job.scenario.attack) is None else {"attack": attack.model_dump(exclude_none=True)}),
    }


# Problems of which x has a coordinate for each feature.
_BY_FEATURE = ("logistic_hyperparameter", "ridge_hyperparameter", "softmax_hyperparameter")


def problem_summary(job: PlannedJob) -> dict[str, Any]:
    """Return the problem, its size, the public record counts, and the facts that predictions need."""
    c, shards, table, p = job.components, job.shards, job.scenario.problem, job.problem.p
    counts: dict[Split, Any] = {k: job.counts[k].tolist() for k in SPLITS}
    # Both objectives are the same for equal counts.
    is_weighted = table.weights == "records" or (c.one_level and not job.has_server)
    reading: dict[str, Any] = {}
    if isinstance(job.posed_problem, Predictor):
        reading = {"features": list(shards.feature_names), "classes": list(shards.classes)}
        reading |= {} if shards.image is None else {"image": list(shards.image)}
        reading |= {} if shards.bounds is None else {"bounds": list(shards.bounds)}
    x_names = []
    if c.problem_entry and table.kind in _BY_FEATURE and 0 <= p - len(shards.feature_names) <= 1:
        x_names = [*shards.feature_names, "intercept"][:p]
    sampling = job.sampling
    sampled: dict[str, Any] = {"kind": sampling.kind, **({"batch": sampling.batch} if sampling.batch else {})}
    # A coordinator's algorithm has no problem.sampling: its planned releases have the rate of their samples.
    rates = [float(rate.min(initial=1.0)) for c in job.ledger.channels for rate in c.rate.values()]
    if sampling.kind in ("full", "poisson") and (rate := min(rates, default=1.0)) < 1.0:
        sampled = {"kind": "poisson", "rate": rate}
    return {
        "kind": table.kind,
        "solves": "one-level" if c.one_level else job.solves,
        # Notes on records say that they differ from the scenario's.
        "data": (not shards.notes and c.data.label) or shards.source,
        "notes": list(shards.all_notes),
        "warnings": list(filter(None, [shards.placeholders])),
        **({"settings": job.hyperparameters_text} if job.hyperparameters_text else {}),
        **({"x_names": x_names} if x_names else {}),
        **reading,
        "p": p,
        "q": job.problem.q,
        "records": {**counts, "test": int(shards.test.size)},
        "sampling": sampled,
        **({"weights": table.weights} if is_weighted and max(map(len, map(set, counts.values()))) > 1 else {}),
    }
