"""The statement of privacy of a trusted coordinator: in words and numbers that anyone may know."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from decentral_dp.algorithms.declared import Wrapper
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import CHANNELS, Array
from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.jobs import CoordinatorBilevelJob, CoordinatorMinimaxJob
from decentral_dp.central.plan import context_of, coordinated_job, minimax_context
from decentral_dp.central.programs import Calibrated
from decentral_dp.config.scenario_components import make_problem, problem_of
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

PROTOCOLS = {
    "released": "trusted coordinator: noise once, by it; prices planned beforehand",
    "published": "trusted coordinator: noise once, by it, as the paper calibrates it",
}
# The terms of `problems.protocol` in formulas; h is the upper loss of a record, l its lower loss.
_FORMULAS = {
    "lower_grad_y": "∇_y l",
    "upper_grad_y": "∇_y h",
    "upper_grad_x": "∇_x h",
    "grad_x": "∇_x f",
    "grad_y": "∇_y f",
    "joint": "∇_x f and ∇_y f as one vector",
    "inner": "the function that the mean is of",
    "inner_x": "its gradient by x",
    "inner_y": "its derivative by y",
    "dual": "a statistic for the best y",
    "positive": "whether a record is positive",
    CHANGE: "the change of ∇_x l between two public points",
    "lower_hvp": "∇²_yy l times a public vector",
    "lower_jvp": "∇²_xy l times a public vector",
    "lower_hessian": "∇²_yy l",
    "lower_jacobian": "∇²_xy l",
    "lower_hessian_product": "∇²_yy l",
}


def privacy_statement(job: CoordinatorJob) -> PrivacyStatement:
    """The statement of a job of a trusted coordinator; its plan has an end, and no T → ∞."""
    algorithm, noisy, charged = job.algorithm, job.mechanism != NO_NOISE, job.ledger.charged_channels
    with_what = "all records" if algorithm.needs_records else "sums over every agent's records"
    return statement(
        job,
        job.ledger,
        notes(job),
        trusted=True,
        claimed=coordinator_claim(job),
        mechanisms=tuple(sorted({c.mechanism.name for c in charged})),
        protocol=PROTOCOLS[algorithm.protocol] if noisy else "trusted coordinator, without noise",
        seen=tuple(observers(job)),
        seen_briefly=f"by everybody: {_releases_text(job)}. The coordinator is trusted with {with_what}.",
        pools_records=algorithm.needs_records,
        constants=constants(job),
        prices=tuple(map(_price, charged)) if noisy else (),
        clip=clip(job),
        at_infinity=None,
    )


def observers(job: CoordinatorJob) -> list[str]:
    """Who sees what."""
    algorithm, context = job.algorithm, job.context
    out = ["The coordinator is trusted: the guarantee is against everybody who sees what it publishes, not against it."]
    if job.mechanism == NO_NOISE:
        out = ["The coordinator is trusted; without noise, what it publishes protects nobody against anybody else."]
    if algorithm.needs_records:
        out.append(HANDS_RECORDS)
    queried = list(dict.fromkeys(_FORMULAS[t] for t in algorithm.queries if context.reads(t)))
    if queried:
        letters = "f is the loss of a record"
        if job.setting == "coordinator_bilevel":
            letters = "h is the upper loss of a record, l its lower loss"
        clipped = "sums over its records, each clipped," if context.noisy else "sums over its records"
        out.append(
            f"The coordinator receives from every agent {clipped} of {join_words(queried)}, without noise; "
            f"{letters}. To the agents go published values alone."
        )
    out.append(f"Everybody sees what the coordinator publishes: {_releases_text(job)}; and whatever follows from it.")
    return out


def _releases_text(job: CoordinatorJob) -> str:
    """ "gx, 10 times, 30 numbers each; y, once, 1 number"."""
    out = []
    for c in job.ledger.channels:
        numbers = f"{c.dimension} {'number' if c.dimension == 1 else 'numbers'}"
        if c.rounds.size:
            once = c.rounds.size == 1
            out.append(
                f"{c.channel}, once, {numbers}" if once else f"{c.channel}, {c.rounds.size} times, {numbers} each"
            )
    return "; ".join(out)


def clip(job: CoordinatorJob) -> dict[str, Any] | None:
    """The norm, and the bounds of what is asked for and reads records; None where nothing is clipped."""
    context = job.context
    families = {"x", "y"}
    if not isinstance(context, MinimaxContext):
        read = [t for t in job.algorithm.queries if context.reads(t)]
        families = {CLIP_OF_TERM["upper_grad_x" if t == CHANGE else t] for t in read}
    bounds = {c: context.clip.bound(c) for c in CHANNELS if c in families and np.isfinite(context.clip.bound(c))}
    return {"norm": context.clip.norm, **bounds} if bounds else None


def constants(job: CoordinatorJob) -> str | None:
    """ "analytic": theorems about the problem; None where none are known."""
    if job.context.family is None:
        # A start may be computed by custom code, and a run that such code ended is stated without it.
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
    """Hyper-parameters as they run, where each variable starts, and the keys that were left out of the scenario."""
    table = job.scenario.algorithm
    algorithm: Any = job.algorithm
    while isinstance(algorithm, Wrapper):
        algorithm = algorithm.program
    keys, given = {o.key for o in job.components.algorithm.keys}, job.components.keys
    read = [f.name for f in fields(algorithm) if f.name in keys]
    values = {name: value for name in read if (value := getattr(algorithm, name)) is not None}
    steps = {k: v.to_dict() for k, v in values.items() if isinstance(v, StepSize)}
    return {
        "kind": table.kind,
        "settled": values | steps,
        "left_out": [name for name in values if name not in given],
        # The number that every coordinate is, or None.
        "start": {name: float(v.flat[0]) if (v == v.flat[0]).all() else None for name, v in _begin(job).items()},
        "domain": given["domain"].model_dump(exclude_none=True) if "domain" in given else None,
    }


def _begin(job: CoordinatorJob) -> dict[str, Array]:
    """What is public before the first release."""
    algorithm = job.algorithm
    context = job.context
    known = dict(algorithm.published(algorithm.init(context)))
    return {"x": context.start("x", {}), **known}


def coordinator_claim(job: CoordinatorJob) -> PaperClaim | None:
    """What the paper says that its own calibration costs: for comparison, never a certificate."""
    table = job.scenario.privacy
    if table.guarantee != "as_published" or table.epsilon is None:
        return None
    pure = all(c.mechanism.pure for c in job.ledger.charged_channels)
    source = cast(Calibrated, job.algorithm).claim
    return PaperClaim(table.epsilon, None, (table.epsilon,) * job.n_agents, source, 0.0 if pure else table.delta)


def notes(job: CoordinatorJob) -> list[str]:
    """Sentences that belong beside the numbers."""
    out = []
    claim = coordinator_claim(job)
    if claim is not None:
        out += _published_notes(job, claim)
    unproven = {c.reason for c in job.ledger.charged_channels if not c.mechanism.proven and c.reason}
    out += sorted(unproven)
    if job.mechanism != NO_NOISE and job.rounds > 1:
        out.append(
            "Prices are planned for these rounds together: more rounds are another plan, with more noise in each."
        )
    elif job.mechanism != NO_NOISE:
        out.append("The whole budget is spent in one round; running it again on the same records costs it again.")
    return out


def _published_notes(job: CoordinatorJob, claim: PaperClaim) -> list[str]:
    proven, said, delta = float(job.budget.epsilon.max()), claim.epsilon_max or 0.0, delta_text(claim.delta)
    words = f"The noise is the paper's, for its claim of ε = {epsilon_text(said)} at δ = {delta}; "
    if np.isinf(proven):
        return [f"{words}nothing can be proven of it here."]
    how = "less than" if proven < said else "more than"
    return [
        f"{words}priced by what one record can really move, it costs {epsilon_text(proven)}, {how} it claims."
        if proven != said
        else f"{words}that is what it costs."
    ]


BILEVEL = Setting(
    partial(coordinated_job, CoordinatorBilevelJob, problem_of, context_of),
    privacy_statement,
    coordinator_claim,
    settings,
)
MINIMAX = BILEVEL._replace(build=partial(coordinated_job, CoordinatorMinimaxJob, make_problem, minimax_context))
