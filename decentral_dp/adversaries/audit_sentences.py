"""What an audit found, and sentences about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from decentral_dp.adversaries.audit_plan import AuditPlan
from decentral_dp.adversaries.audit_result import Method, Status
from decentral_dp.adversaries.neighbouring_worlds import Worlds
from decentral_dp.adversaries.one_run import Shown, gaussian_throughout
from decentral_dp.adversaries.sampled_releases import amplified
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text

# Of runs in which movements are compared, and their noise measured, before the law of the ratio is taken as known.
COMPARED = 6
# Of the most that counting can show; from there on more runs would show more.
_NEARLY = 0.9


@dataclass(frozen=True)
class LowerBound:
    """A lower bound, how it was found, and the same of two equal worlds."""

    method: Method
    epsilon: float
    null: float
    confidence: float
    runs: int
    noise: tuple[float, float] | None
    contradicted: str = ""
    one_run: Shown | None = None


def sentences_of(
    plan: AuditPlan, worlds: Worlds, bound: LowerBound, status: Status, certified: float, claimed: float | None
) -> list[str]:
    """Say what the numbers of an audit mean.

    Args:
        plan: what was asked.
        worlds: the two that were told apart.
        bound: what was found.
        status: of the audit.
        certified: ε of the agent whose record is replaced.
        claimed: ε of the paper's theorem; None where there is none.

    Returns:
        One sentence or two each.
    """
    at = f"at δ = {delta_text(plan.job.scenario.privacy.delta)}"
    percent = f"{100.0 * bound.confidence:g} %"
    out = []
    if status == "broken":
        out.append(
            f"Broken: two equal worlds are told apart ({_shown(bound.null)}), so nothing else here can be believed."
        )
    elif status == "refuted":
        out.append(
            f"Refuted: {_shown(bound.epsilon)} {at}, and {epsilon_text(certified)} is certified. A bug, or a broken "
            "guarantee."
        )
    elif math.isinf(certified):
        out.append("No finite ε is certified here, so nothing that is shown contradicts the certificate.")
    elif _is_saturated(plan, bound, certified):
        # Some room, for not every run is told apart.
        more = plan.runs_to_show(certified / _NEARLY)
        mend = f"repeat with --runs {more}" if more is not None else "no number of runs that can be made shows so much"
        out.append(
            f"Not refuted, and it could not be: what is shown is about the most that {bound.runs} runs can show, ε = "
            f"{epsilon_text(plan.most_shown)}, and {epsilon_text(certified)} is certified {at}; {mend}."
        )
    else:
        out.append(f"Not refuted: no more is shown than the certified ε = {epsilon_text(certified)} {at}.")
    if claimed is not None and status != "broken":
        above = bound.epsilon > claimed
        out.append(f"{'Refuted' if above else 'Not refuted'} is the claim, ε = {epsilon_text(claimed)}.")
    if bound.one_run is not None:
        return [*out, *_of_canaries(plan, bound.one_run, percent), *_last(status)]
    replaced = f"the first {worlds.split} record of agent {worlds.victim} is replaced"
    if worlds.copies:
        replaced += ", and all its others are copies of one of the two"
    how = {
        "exact": f"The two worlds are equally far apart on each of {COMPARED} transcripts of both, and if they are on "
        "all, what is shown is exact for these two records.",
        "likelihood": f"From exact likelihood ratios of {bound.runs} runs of each world, with confidence {percent}.",
        "counting": f"By counting {bound.runs} runs of each world, with confidence {percent}: so many can show at most "
        f"{epsilon_text(plan.most_shown)}.",
        "difference": "No noise hides the record: the same coins give other values in the other world."
        if bound.epsilon
        else "No noise hides the record, but what is seen from here does not depend on it.",
    }[bound.method]
    out.append(f"In two worlds {replaced}. {how}")
    if bound.method in ("exact", "likelihood") and amplified(plan.job):
        out.append("It is taken as known how all other records were drawn, as the certificate allows.")
    if bound.noise is not None and not bound.noise[0] <= 1.0 <= bound.noise[1]:
        out.append(
            f"The noise that was drawn is {bound.noise[0]:.3g} to {bound.noise[1]:.3g} times as large as stated."
        )
    if bound.contradicted:
        out.append(bound.contradicted)
    return [*out, *_last(status)]


def _is_saturated(plan: AuditPlan, bound: LowerBound, certified: float) -> bool:
    """Whether counting shows about all that so many runs can, and that is less than would refute the certificate."""
    most = plan.most_shown
    return bound.method == "counting" and most < certified and bound.epsilon >= _NEARLY * most


def _shown(epsilon: float) -> str:
    return "no finite ε holds" if math.isinf(epsilon) else f"ε is at least {at_least_text(epsilon).removeprefix('≥ ')}"


def _of_canaries(plan: AuditPlan, shown: Shown, percent: str) -> list[str]:
    told = (
        f"In one run {plan.canaries} records were replaced by canaries, whose labels are coins: {shown.right} of "
        f"these were guessed from what was published, with confidence {percent}."
    )
    if not gaussian_throughout(plan.job):
        return [told]
    return [
        told,
        "What is shown takes the curve of one record to be that of Gaussian noise, as in the ledger, of unknown size; "
        f"without that, it shows ε {at_least_text(shown.plain)} with the same confidence.",
    ]


def _last(status: str) -> list[str]:
    same = ["The same game between two equal worlds shows nothing, as it must."] if status != "broken" else []
    return [*same, "What is shown is a lower bound by one attack, and a small one certifies nothing."]
