"""Privacy statement of a trusted coordinator, from public facts."""

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
from decentral_dp.formatting import delta_text, epsilon_text, join_words
from decentral_dp.privacy.ledger import ChannelLedger
from decentral_dp.privacy.mechanisms import NO_NOISE
from decentral_dp.problems.protocol import CHANGE, CLIP_OF_TERM
from decentral_dp.simulation.job_statement import statement
from decentral_dp.simulation.statement import (
    HANDS_RECORDS,
    PaperClaim,
    PrivacyStatement,
    ReleasePrice,
)
from decentral_dp.simulation.summary import Setting

CoordinatorJob: TypeAlias = CoordinatorBilevelJob | CoordinatorMinimaxJob

_PROTOCOLS = {
    "released": "trusted coordinator adds noise once; privacy cost planned before the run",
    "published": "trusted coordinator adds noise once, as the paper calibrates it",
}
# Term → formula; h is the upper loss of a record, l its lower loss.
_FORMULAS = {
    "lower_grad_y": "∇_y l",
    "upper_grad_y": "∇_y h",
    "upper_grad_x": "∇_x h",
    "grad_x": "∇_x f",
    "grad_y": "∇_y f",
    "joint": "∇_x f and ∇_y f as one vector",
    "inner": "the inner function",
    "inner_x": "its Jacobian in x",
    "inner_y": "its derivative in y",
    "dual": "a statistic of the best y",
    "positive": "whether a record is positive",
    CHANGE: "the change of ∇_x l between two public points",
    "lower_hvp": "∇²_yy l times a public vector",
    "lower_jvp": "∇²_xy l times a public vector",
    "lower_hessian": "∇²_yy l",
    "lower_jacobian": "∇²_xy l",
    "lower_hessian_product": "∇²_yy l",
}


def privacy_statement(job: CoordinatorJob) -> PrivacyStatement:
    """State the guarantee of a job of a trusted coordinator."""
    algorithm, noisy, channels = job.algorithm, job.mechanism != NO_NOISE, job.ledger.charged_channels
    with_what = "all records" if algorithm.needs_records else "sums over every agent's records"
    return statement(
        job,
        job.ledger,
        notes(job),
        is_central=True,
        claimed=coordinator_claim(job),
        mechanisms=tuple(sorted({c.mechanism.name for c in channels})),
        protocol=_PROTOCOLS[algorithm.protocol] if noisy else "trusted coordinator, without noise",
        seen=tuple(observers(job)),
        seen_briefly=f"by the adversary: {_releases_text(job)}. The coordinator is trusted with {with_what}.",
        pools_records=algorithm.needs_records,
        constants=constants(job),
        prices=tuple(map(_price, channels)) if noisy else (),
        clip=clip(job),
        at_infinity=None,
    )


def observers(job: CoordinatorJob) -> list[str]:
    """Describe what the coordinator, the agents and the adversary observe."""
    algorithm, context = job.algorithm, job.context
    out = ["The coordinator is trusted: the adversary observes what it publishes, not what it receives."]
    if job.mechanism == NO_NOISE:
        out = ["The coordinator is trusted. Without noise, what it publishes has no privacy guarantee."]
    if algorithm.needs_records:
        out.append(HANDS_RECORDS)
    formulas = list(dict.fromkeys(_FORMULAS[t] for t in algorithm.queries if context.reads(t)))
    if formulas:
        letters = "f is the loss of a record"
        if job.setting == "coordinator_bilevel":
            letters = "h is the upper loss of a record, l its lower loss"
        sums_text = "sums over its records, each clipped," if context.noisy else "sums over its records"
        out.append(
            f"The coordinator receives from every agent {sums_text} of {join_words(formulas)}, without noise; "
            f"{letters}. The agents receive published values only."
        )
    out.append(f"The adversary observes what the coordinator releases ({_releases_text(job)}) and all that follows.")
    return out


def _releases_text(job: CoordinatorJob) -> str:
    """Describe the releases, for example "gx, 10 times, 30 numbers each; y, once, 1 number"."""
    out = []
    for c in job.ledger.channels:
        numbers = f"{c.dimension} {'number' if c.dimension == 1 else 'numbers'}"
        if c.rounds.size == 1:
            out.append(f"{c.channel}, once, {numbers}")
        elif c.rounds.size:
            out.append(f"{c.channel}, {c.rounds.size} times, {numbers} each")
    return "; ".join(out)


def clip(job: CoordinatorJob) -> dict[str, Any] | None:
    """Return the norm and the clipping norms of queried terms that read records; None without clipping."""
    context = job.context
    channels = {"x", "y"}
    if not isinstance(context, MinimaxContext):
        terms = [t for t in job.algorithm.queries if context.reads(t)]
        channels = {CLIP_OF_TERM["upper_grad_x" if t == CHANGE else t] for t in terms}
    bounds = {c: context.clip.bound(c) for c in CHANNELS if c in channels and np.isfinite(context.clip.bound(c))}
    return {"norm": context.clip.norm, **bounds} if bounds else None


def constants(job: CoordinatorJob) -> str | None:
    """Return "analytic" if theorems give the problem's constants; None if they are unknown."""
    if isinstance(job.context, MinimaxContext) or job.context.family is None:
        # Custom code may compute the start. A run that such code ended has no start.
        return None
    return None if job.context.constants_at(_begin(job)["x"]) is None else "analytic"


def _price(c: ChannelLedger) -> ReleasePrice:
    per_split = {kind: sensitivity[:, 0] / c.scale[:, 0] for kind, sensitivity in c.sensitivity.items()}
    return ReleasePrice(
        channel=c.channel,
        mechanism=c.mechanism.name,
        releases=int(c.rounds.size),
        width=c.dimension,
        unit=c.mechanism.unit,
        price={kind: (float(p.min()), float(p.max())) for kind, p in per_split.items()},
        rate={kind: float(r.min()) for kind, r in c.rate.items() if r.size and r.min() < 1.0},
    )


def settings(job: CoordinatorJob) -> dict[str, Any]:
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


def notes(job: CoordinatorJob) -> list[str]:
    """Return the notes on the numbers."""
    out = []
    if (claim := coordinator_claim(job)) is not None:
        proven, claim_epsilon, delta = (
            float(job.budget.epsilon.max()),
            claim.epsilon_max or 0.0,
            delta_text(claim.delta),
        )
        cost = "this is its privacy cost"
        if np.isinf(proven):
            cost = "no ε can be proven"
        elif proven != claim_epsilon:
            how = "less than" if proven < claim_epsilon else "more than"
            cost = f"from the sensitivity to one record, its privacy cost is {epsilon_text(proven)}, {how} it claims"
        out.append(
            f"The noise is the paper's, for its claim of ε = {epsilon_text(claim_epsilon)} at δ = {delta}; {cost}."
        )
    out += sorted({c.reason for c in job.ledger.charged_channels if not c.mechanism.proven and c.reason})
    if job.mechanism != NO_NOISE and job.rounds > 1:
        out.append("The plan composes exactly these rounds: more rounds need a new plan, with more noise in each.")
    elif job.mechanism != NO_NOISE:
        out.append("One round spends the whole budget; a second run on the same records spends it again.")
    return out


BILEVEL = Setting(
    partial(build_coordinator_job, CoordinatorBilevelJob, make_bilevel_context),
    privacy_statement,
    coordinator_claim,
    settings,
)
MINIMAX = BILEVEL._replace(build=partial(build_coordinator_job, CoordinatorMinimaxJob, make_minimax_context))
