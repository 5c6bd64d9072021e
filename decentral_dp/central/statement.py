"""Privacy statement of a trusted coordinator, made from public facts."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import CHANNELS, Array
from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.jobs import (
    CoordinatorBilevelJob,
    CoordinatorMinimaxJob,
    build_coordinator_job,
    make_bilevel_context,
    make_minimax_context,
)
from decentral_dp.central.vocabulary import Calibrated
from decentral_dp.privacy.ledger import ChannelLedger
from decentral_dp.privacy.mechanisms import NO_NOISE
from decentral_dp.problems.protocol import CLIP_OF_TERM
from decentral_dp.simulation.job_statement import statement
from decentral_dp.simulation.statement import PaperClaim, PrivacyStatement, ReleasePrice
from decentral_dp.simulation.summary import Setting

CoordinatorJob: TypeAlias = CoordinatorBilevelJob | CoordinatorMinimaxJob


def privacy_statement(job: CoordinatorJob) -> PrivacyStatement:
    """State the privacy guarantee of a trusted coordinator's job."""
    algorithm, noisy, channels = job.algorithm, job.mechanism != NO_NOISE, job.ledger.charged_channels
    return statement(
        job,
        job.ledger,
        is_central=True,
        claimed=coordinator_claim(job),
        mechanisms=tuple(sorted({c.mechanism.name for c in channels})),
        protocol=algorithm.protocol,
        queries=tuple(term for term in algorithm.queries if job.context.reads(term)),
        releases={c.channel: (int(c.rounds.size), c.dimension) for c in job.ledger.channels},
        pools_records=algorithm.needs_records,
        constants=constants(job),
        prices=tuple(map(_price, channels)) if noisy else (),
        clip=clip(job),
        at_infinity=None,
        uncertified={c.channel: c.reason for c in channels if not c.mechanism.proven and c.reason},
    )


def clip(job: CoordinatorJob) -> dict[str, Any] | None:
    """Return the norm and the clipping norms of queried terms that read records, or None if nothing is clipped."""
    context = job.context
    channels = {"x", "y"}
    if not isinstance(context, MinimaxContext):
        terms = [t for t in job.algorithm.queries if context.reads(t)]
        channels = {CLIP_OF_TERM[t] for t in terms}
    bounds = {c: context.clip.bound(c) for c in CHANNELS if c in channels and np.isfinite(context.clip.bound(c))}
    return {"norm": context.clip.norm, **bounds} if bounds else None


def constants(job: CoordinatorJob) -> str | None:
    """Return "analytic" if theorems give the problem's constants, or None if they are unknown."""
    if isinstance(job.context, MinimaxContext) or job.context.family is None:
        # Custom code may compute the start. A run that such code ended has no start.
        return None
    return None if job.context.constants_at(_begin(job)["x"]) is None else "analytic"


def _price(c: ChannelLedger) -> ReleasePrice:
    per_split = {kind: sensitivity[:, 0] / c.scale[:, 0] for kind, sensitivity in c.sensitivity.items()}
    return ReleasePrice(
        channel=c.channel,
        mechanism=c.mechanism.name,
        unit=c.mechanism.unit,
        price={kind: (float(p.min()), float(p.max())) for kind, p in per_split.items()},
        rate={kind: float(r.min()) for kind, r in c.rate.items() if r.size and r.min() < 1.0},
    )


def hyperparameters(job: CoordinatorJob) -> dict[str, Any]:
    """Return the hyper-parameters of the run, the starts of the variables, and the keys with default values."""
    program, present = job.program, job.components.keys
    keys = {o.key for o in job.components.algorithm.keys}
    names = [f.name for f in fields(program) if f.name in keys]
    values = {name: value for name in names if (value := getattr(program, name)) is not None}
    sizes = {k: v.to_dict() for k, v in values.items() if isinstance(v, StepSize)}
    return {
        "kind": job.scenario.algorithm.kind,
        "settled": values | sizes,
        "left_out": [name for name in values if name not in present],
        # The common value of all coordinates, or None.
        "start": {name: float(v.flat[0]) if (v == v.flat[0]).all() else None for name, v in _begin(job).items()},
        "domain": present["domain"].model_dump(exclude_none=True) if "domain" in present else None,
    }


def _begin(job: CoordinatorJob) -> dict[str, Array]:
    """Return the public values before the first release."""
    start = job.algorithm.published(job.algorithm.init(job.context))
    return {"x": job.context.start("x", {}), **start}


def coordinator_claim(job: CoordinatorJob) -> PaperClaim | None:
    """Return the paper's claim about its noise, for comparison only."""
    table = job.scenario.privacy
    if table.guarantee != "as_published" or table.epsilon is None:
        return None
    pure = all(c.mechanism.pure for c in job.ledger.charged_channels)
    source = cast(Calibrated, job.algorithm).claim
    return PaperClaim(table.epsilon, None, (table.epsilon,) * job.n_agents, source, 0.0 if pure else table.delta)


BILEVEL = Setting(
    partial(build_coordinator_job, CoordinatorBilevelJob, make_bilevel_context),
    privacy_statement,
    coordinator_claim,
    hyperparameters,
)
MINIMAX = BILEVEL._replace(build=partial(build_coordinator_job, CoordinatorMinimaxJob, make_minimax_context))
