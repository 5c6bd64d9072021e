"""Whose records are compared in a run: train records, the members, with held-out test records, the others.

A ceiling of `privacy.auc_bounds.within_run` is about members and others that could have changed places. Where they
could not, an attack tells their difference as groups, of which a guarantee for records says nothing: that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.adversaries.attack.scores import bilevel_scores, class_only, minimax_scores
from decentral_dp.bounded import Array
from decentral_dp.config.problem_schema import Partition
from decentral_dp.errors import InputError
from decentral_dp.problems.minimax.protocol import Attackable
from decentral_dp.problems.protocol import Placed
from decentral_dp.problems.records import concatenated, take
from decentral_dp.simulation.jobs.agent_records import require_records
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.metrics import pooled
from decentral_dp.statistics import auc

# Scored one by one, losses of bilevel problems are slow: of more records a sample is scored.
_MOST_BILEVEL = 2000


class Attacked(NamedTuple):
    """What came out of one run: how many members and others, and attack → AUC over all their pairs."""

    members: int
    others: int
    auc: Mapping[str, float]


def attacked(job: Job, published: Mapping[str, Array]) -> Attacked:
    """Score every member and every other record by what a run of the job published, (agents, d) for each variable.

    Of several agents' values the average counts. Raises InputError as `require_attackable`, and for values that are
    not of this job.
    """
    require_attackable(job)
    wanted = {"x": job.problem.p} if job.solves == "minimax" else {"x": job.problem.p, "y": job.problem.q}
    for name, width in wanted.items():
        if name not in published:
            raise InputError(
                f"attack: {job.scenario.algorithm.kind} publishes no {name}, and without it {job.scenario.problem.kind}"
                " gives no model that could be asked about a record. Attack a run of another algorithm."
            )
        if published[name].ndim != 2 or published[name].shape[1] != width:
            raise InputError(
                f"attack: the published {name} has shape {published[name].shape}, and the scenario beside it makes "
                f"{width} numbers of it. Give a run folder as it was written, with the data as they were."
            )
    model = {name: published[name].mean(axis=0) for name in wanted}
    agents = list(zip(job.records["train"], job.records["validation"], strict=True))
    members = pooled(agents)[0]
    others = type(members)(*(job.test or ()))
    if job.solves != "minimax":
        members, others = _sample(members, others)
    records = concatenated([members, others])
    if job.solves == "minimax":
        scores = minimax_scores(job.problem, model["x"], records)
    else:
        scores = bilevel_scores(job.problem, model["x"], model["y"], records)
    n = len(members[0])
    found = {name: auc(values[:n], values[n:]) for name, values in scores.items()}
    return Attacked(n, len(others[0]), found)


def _sample(members: Any, others: Any) -> tuple[Any, Any]:
    """As many members and others as are scored, drawn by a public key: of both where there are more, half of each.

    Who is drawn depends on the numbers of both alone. A random part of groups whose members could have changed places
    is such a pair of groups again, so the ceiling holds for it, and the mean of its AUC is that of all.
    """
    counts = len(members[0]), len(others[0])
    if sum(counts) <= _MOST_BILEVEL:
        return members, others
    half = _MOST_BILEVEL // 2
    sizes = [min(n, max(half, _MOST_BILEVEL - other)) for n, other in (counts, counts[::-1])]
    key = blake2b(f"attack sample {counts[0]} {counts[1]}".encode(), digest_size=8).digest()
    draw = np.random.default_rng(int.from_bytes(key, "big"))
    chosen = [np.sort(draw.choice(n, size, replace=False)) for n, size in zip(counts, sizes, strict=True)]
    return take(members, chosen[0]), take(others, chosen[1])


def require_attackable(job: Job) -> None:
    """Refuse what cannot be attacked, or attacked fairly. Raises InputError with the reason."""
    require_records(job.records, "attack")
    kind, shards = job.scenario.problem.kind, job.shards
    if not shards.test.size:
        raise InputError(
            "attack: this scenario holds out no test records, so there is nothing to tell its train records from. "
            "Set problem.test, for example to 0.3."
        )
    if not shards.exchangeable:
        raise InputError(
            f"attack: {shards.why_not} An attack would measure how these groups differ{_apart(job)}, not membership. "
            "Hold out a random share (problem.test) of data as they are."
        )
    if job.solves == "minimax":
        if not isinstance(job.problem, Attackable):
            raise InputError(
                f"attack: what {kind} publishes is no model that could be asked about a record. Attack a run of a "
                "classifier or of a regression."
            )
        return
    if isinstance(job.problem, Placed) or job.problem.accuracy(*_zeros(job), job.test) is None:
        raise InputError(
            f"attack: {kind} has no classifier that treats train and test records alike, so their losses cannot be "
            "compared. Attack a run of a minimax problem, or of a bilevel one that classifies."
        )
    if job.setting == "gossip" and not _dealt_at_random(job):
        raise InputError(
            "attack: the records were dealt to the agents by what they hold, and each agent has a budget of its own, "
            'so a train and a test record could not have changed places. Set problem.partition = "iid".'
        )


def _dealt_at_random(job: Job) -> bool:
    """Whether agents got their records whatever those are: owners that a file names are no draw."""
    table = job.scenario.problem
    if job.components.partition.is_outside:
        return False
    if isinstance(table.partition, Partition):
        return table.partition.kind == "iid"
    named = job.shards.by_owner and table.data.lower().endswith((".csv", ".npz", ".parquet"))
    return table.partition == "iid" or (table.partition is None and not named)


def _zeros(job: Job) -> tuple[Array, Array]:
    return np.zeros((1, job.problem.p)), np.zeros((1, job.problem.q))


def _apart(job: Job) -> str:
    """How well classes alone tell the groups apart, where there are classes."""
    shards = job.shards
    if not shards.classes:
        return ""
    found = class_only(shards.labels[np.concatenate(shards.train)], shards.labels[shards.test])
    return f" (their classes alone tell them apart with an AUC of {found:.2f})"
