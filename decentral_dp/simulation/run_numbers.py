"""The numbers of a run that has ended, as `result.json` has them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.engines.protocol import Outcome
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.clipped_share import clip_advice, clipped_shares
from decentral_dp.simulation.jobs import GossipJob, Job
from decentral_dp.simulation.result import RunResult, baselines, problem_summary, title_of, topology_summary
from decentral_dp.simulation.run_folder import versions
from decentral_dp.user_code import USER_ERRORS

if TYPE_CHECKING:
    import pandas as pd


def result_of(job: Job, outcome: Outcome, metrics: pd.DataFrame, seconds: float) -> RunResult:
    """Collect the numbers of a finished run.

    Args:
        job: what was run.
        outcome: its last values.
        metrics: rows (round, agent, name, value) of all evaluations.
        seconds: it took.
    """
    divergence, ends = outcome.last.divergence, measuring.final(metrics)
    status, reason = job.status, job.reason
    if divergence is not None:
        status = "diverged"
        reason = (
            f"the released value of {divergence.channel} stopped being finite at round {divergence.round}; "
            f"metrics are kept up to the last evaluation before it. Use smaller step sizes or a start nearer to 0."
        )
    elif job.scenario.privacy.guarantee != "certified" and not math.isfinite(ends.get("primal", 0.0)):
        # A metric reads records, and what a certified run ends with follows from what it released.
        status, reason = "diverged", "what is minimised is not finite at the published x. Use smaller step sizes."
    # Of a run that ended early the last evaluation counts, and there may have been fewer releases than asked for.
    evaluated = 0 if metrics.empty else int(metrics["round"].max())
    average = min(job.scenario.run.average, max(evaluated, 1))
    statement, settings = job.statement(), job.settings()
    content = {
        "title": title_of(job),
        "status": status,
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": outcome.last.round if divergence is None else divergence.round,
        "rounds_planned": job.scenario.algorithm.rounds,
        "seconds": round(seconds, 3),
        "metrics": ends,
        # Read from records, as metrics are.
        "diagnostics": {
            "baselines": {n: v for n, v in baselines(job).items() if any(name.startswith(n) for name in ends)},
            **_clipping(job, outcome),
            **({"labels_cut": job.shards.labels_cut} if job.shards.labels_cut else {}),
        },
        "evaluated_on": job.evaluated_on(average),
        **({} if settings is None else {"algorithm": settings}),
        "privacy": statement.to_dict(),
        "theorem": job.theorem(),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return RunResult(statement, content)


def _clipping(job: Job, outcome: Outcome) -> dict[str, Any]:
    """Which records a clip cuts at the last values; of agents that send clipped steps."""
    if not isinstance(job, GossipJob) or job.scenario.privacy.guarantee != "certified":
        return {}
    if job.shards.elsewhere:
        return {}
    values, table = outcome.last.published, job.scenario.problem
    if not {"x", "y"} <= values.keys() or not all(np.isfinite(v).all() for v in values.values()):
        return {}
    try:
        shares = clipped_shares(job.problem, job.records, values, job.clip)
    except USER_ERRORS:
        # No certified run ends because of what its records are.
        return {}
    return {"clipped": shares, "clip_advice": clip_advice(shares, table.scale != "none" or table.normalise != "none")}
