"""Sentences on a privacy statement: its summary, threat model, mechanism and notes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from decentral_dp.errors import quoted
from decentral_dp.formatting import delta_text, epsilon_text, join_words, range_text
from decentral_dp.simulation.statement import Number, PrivacyStatement

# Headings of `privacy_lines` that the terminal prints only with --verbose.
VERBOSE_LINES = ("Correlated", "Seen")
# Heading of the unchecked assumptions on custom components.
UNVERIFIED = "Unverified:"
# δ above this times 1/N gets a warning.
_LARGE_DELTA = 0.1
_PROTOCOLS = {
    "released": "released state (gradients at points that follow from released values)",
    "private": "private state, gradients at the agent's own released point",
    "as_published": "private state and private gradient point (as published)",
}
# The points of a server are public under every protocol.
_SERVER_PROTOCOLS = {
    "released": "public points, every agent's clipped answer noised by the agent",
    "as_published": "public points, answers noised but not clipped",
}
_COORDINATOR_PROTOCOLS = {
    "released": "trusted coordinator adds noise once; privacy cost planned before the run",
    "as_published": "trusted coordinator adds noise once, as the paper calibrates it",
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
    "lower_grad_x_change": "the change of ∇_x l between two public points",
    "lower_hvp": "∇²_yy l times a public vector",
    "lower_jvp": "∇²_xy l times a public vector",
    "lower_hessian": "∇²_yy l",
    "lower_jacobian": "∇²_xy l",
    "lower_hessian_product": "∇²_yy l",
}
_BILEVEL_VARIABLES = {"x": "outer variable", "y": "inner variable", "z": "inverse Hessian times a gradient"}
# Custom component → its unchecked assumption.
_ASSUMPTIONS = {
    "problem": "{} is clipped per example, and each row of its results depends on its record only; this was tested on "
    "synthetic data.",
    "model": "{} makes a module whose outputs and gradients depend on one record only; this was tested on synthetic "
    "data.",
    "data": "{} has one record per person, and nothing in it was fitted on the records: no scale, no features, no list "
    "of classes.",
    "partition": "{} depends on its arguments only, and is deterministic.",
    "topology": "{} was chosen without records.",
    "algorithm": "{} reaches records through bounded queries only and opens no bounded value. Its releases are "
    "recorded and accounted. Only `decentral-dp check` tests the rest of its code.",
    "mechanism": "the noise of the mechanism {} has the privacy cost that it declares, in float64 too. Its releases "
    "are composed as the worst mechanism of that cost.",
}


def protected_text(p: PrivacyStatement) -> str:
    """Return the difference of neighbouring data sets, as "one record of one agent"."""
    if p.unit_records is None:
        return "all records of one agent"
    return "one record of one agent" if p.unit_records == 1 else f"any {p.unit_records} records of one agent"


def adjacency_text(p: PrivacyStatement) -> str:
    """Return the neighbouring relation: "replace one record of one agent"."""
    return f"{p.neighbours.replace('_', ' ')} {protected_text(p)}"


def adversary_text(p: PrivacyStatement) -> str:
    """Return the threat model: what the adversary observes.

    An adversary that observes published models receives nothing else, except the messages to colluding agents. If the
    noise of each agent is independent, the guarantee for all messages holds against any number of colluding agents.
    Pairwise correlated noise requires a bound on their number.
    """
    if p.publishes_all:
        return f"observes all that the trusted {'coordinator' if p.is_trusted else 'server'} publishes"
    if p.view != "all_messages":
        models = f"the {len(p.agents)} final models"
        models = f"the average of {models}" if p.view == "final_average" else models
        return f"receives {models} and {colluders_text(p)}" if p.colluders else f"receives only {models}"
    return "observes all messages" if p.shared is None else f"observes all messages, {colluders_text(p)}"


def colluders_text(p: PrivacyStatement) -> str:
    """Return the number of colluding agents as a clause."""
    return f"colludes with {p.colluders} agent{'s' * (p.colluders > 1)}" if p.colluders else "no agent colludes"


def assumptions_text(p: PrivacyStatement) -> str:
    """Return the assumption of ε of published models as a clause; "" if the adversary observes all messages."""
    if p.view == "all_messages":
        return ""
    agents = "all other agents" if p.colluders else "agents"
    return f"if {agents} follow the protocol and keep all else secret"


def stated_epsilons(p: PrivacyStatement) -> list[tuple[str, Number]]:
    """Return ε of the worst agent for each adversary, as (name in tables, ε), with all messages last."""
    if p.view == "all_messages":
        return [("ε", p.epsilon_max)]
    return [(f"ε of the {p.view.replace('_', ' ')}", p.epsilon_published), ("ε of all messages", p.epsilon_max)]


def certainty_text(p: PrivacyStatement) -> str:
    """Return the kind of guarantee: "certified", or its limits."""
    word = "certified" if p.guarantee == "certified" else "provable for the algorithm as published"
    return f"{word}, with unverified components (listed by plan --verbose)" if p.rests_on_unverified else word


def summary_text(p: PrivacyStatement) -> str:
    """Return ε of the worst agent with its context: certainty, δ, adjacency, adversary, simulation.

    This text accompanies every printed ε of a run.

    Example:
        >>> import decentral_dp
        >>> summary_text(decentral_dp.plan("ring_breast_cancer").privacy).split(". ")[1:3]
        ['Adjacency: replace one record of one agent', 'Adversary: observes all messages']
    """
    if not p.is_noisy:
        return "none: noise is off, ε = ∞."
    different = p.agents.different
    most, most_published = (
        "at most " if len(set(map(epsilon_text, values))) > 1 else ""
        for values in ([b.epsilon for b in different], [b.epsilon_published for b in different])
    )
    # Gaussian noise has no pure ε.
    pure = f" (pure ε = {epsilon_text(p.epsilon_pure_max)})" if math.isfinite(p.epsilon_pure_max) else ""
    delta = f"at δ = {delta_text(p.delta)}"
    if p.view == "all_messages":
        budget = [f"{most}ε = {epsilon_text(p.epsilon_max)} {delta} for every agent{pure}"]
    else:
        others = "agents and observers of messages"
        if p.shared is not None:
            # Agents know a part of correlated noise.
            others = f"one that observes every message, {colluders_text(p)}"
        budget = [
            f"{most_published}ε = {epsilon_text(p.epsilon_published)} {delta} for an adversary that "
            f"{adversary_text(p)}, {assumptions_text(p)}",
            f"{most.capitalize()}ε = {epsilon_text(p.epsilon_max)} for {others}",
        ]
    parts = [
        f"{certainty_text(p)}: {'. '.join(budget)}",
        f"Adjacency: {adjacency_text(p)}",
        *([f"Adversary: {adversary_text(p)}"] if p.view == "all_messages" else []),
        "SIMULATION: the recorded seed reproduces the noise" if p.is_simulation else "No seed",
    ]
    return f"{'. '.join(parts)}."


def privacy_lines(p: PrivacyStatement) -> list[tuple[str, str]]:
    """Return headings and sentences: summary, correlated noise, claim of a paper, warnings and threat model."""
    out = [("Privacy", summary_text(p))]
    if not p.is_noisy:
        return out
    if (shared := p.shared) is not None:
        agents = "every two agents" if shared.between_agents == "zero_sum" else "each two neighbours"
        mean = "on average " if shared.between_agents == "optimised" else ""
        text = (
            f"{agents} share noise that cancels, {mean}{shared.ratio:.3g} times an agent's own. Against "
            f"{shared.collusion_threshold} colluders an agent may be left with its own noise only."
        )
        out.append(("Correlated", text))
    if (claim := p.claimed) is not None:
        # A claim without δ is of pure ε.
        delta = f" at δ = {delta_text(claim.delta)}" if claim.delta else ""
        out.append(("Claimed", f"ε = {epsilon_text(claim.epsilon_max)}{delta} by {claim.source}; not certified."))
    out += [("Warning", text) for text in list_warnings(p)]
    if p.is_trusted:
        records = "all records" if p.pools_records else "sums over every agent's records"
        text = f"by the adversary: {_releases_text(p)}. The coordinator is trusted with {records}."
        out.append(("Seen", text))
    return out


def list_warnings(p: PrivacyStatement) -> list[str]:
    """Return warnings about a δ that is not far below 1/N for N records of an agent, and about a low signal."""
    out, unit, most = [], p.unit_records, p.most_records
    # Publishing one random record of an agent reveals the agent for certain.
    if p.is_noisy and unit is not None and p.delta * most >= _LARGE_DELTA * unit:
        probability = -math.expm1(most / unit * math.log1p(-p.delta))
        out.append(
            f"δ = {delta_text(p.delta)} is large: with probability {probability:.2g} a mechanism that "
            f"satisfies it may publish {'a record' if unit == 1 else f'{unit} records'} of an agent with {most} "
            f"records. Fix: choose δ far below {unit}/{most}."
        )
    low = {c: s.all_releases for c, s in p.signal.items() if s.all_releases is not None and s.all_releases < 1.0}
    if low:
        average = "" if p.is_trusted or len(p.agents) == 1 else f" the average of {len(p.agents)} agents"
        more = "more records" if p.is_trusted else "more records for each agent, more agents"
        far = ", ".join(f"{channel} {1.0 / ratio:.2g} times" for channel, ratio in low.items())
        out.append(
            f"Noise swamps the steps: over all rounds it moves{average} farther than all records together can, even if "
            f"all of them agreed ({far} as far). Use {more}, fewer coordinates or a larger ε; more rounds do not help."
        )
    return out


def notes(p: PrivacyStatement, rounds: int) -> list[str]:
    """Return sentences on the computation of ε and on its limits; empty without noise.

    Args:
        p: privacy statement.
        rounds: planned number of rounds.
    """
    if not p.is_noisy:
        return []
    out = []
    if p.bundles:
        out.append(
            f"Too many different schedules: agents were bundled by cost into {p.bundles} bundles, and each agent's "
            "ε(δ) is that of the elementwise largest releases of its bundle."
        )
    if p.has_pure_only:
        out.append(
            f"Sampling in float64 may add more than δ = {delta_text(p.delta)} to some agents' releases: for them only "
            "pure ε is stated, and it holds for ideal samplers."
        )
    claim = p.claimed
    if claim is not None and p.is_trusted:
        proven, claimed = p.epsilon_max, claim.epsilon_max or 0.0
        cost = "this is its privacy cost"
        if math.isinf(proven):
            cost = "no ε can be proven"
        elif proven != claimed:
            comparison = "less than" if proven < claimed else "more than"
            cost = "from the sensitivity to one record, its privacy cost is "
            cost += f"{epsilon_text(proven)}, {comparison} it claims"
        stated = f"ε = {epsilon_text(claimed)} at δ = {delta_text(claim.delta)}"
        out.append(f"The noise is the paper's, for its claim of {stated}; {cost}.")
    elif claim is not None:
        out += claim.remarks
    elif p.guarantee == "as_published":
        out.append("Noise on every message, and nothing is clipped: nothing bounds what one record can do, and ε = ∞.")
    out += sorted(set(p.uncertified.values()))
    if p.over_rounds:
        out.append(
            "Noise is correlated over rounds. It saves reading, not privacy: at this ε, all records in every round "
            "with independent noise have no larger error."
        )
    if p.is_trusted and rounds > 1:
        out.append("The plan composes exactly these rounds: more rounds need a new plan, with more noise in each.")
    elif p.is_trusted:
        out.append("One round spends the whole budget; a second run on the same records spends it again.")
    return out


def unverified_texts(unverified: Mapping[str, str]) -> list[str]:
    """Return the unchecked assumptions on custom components, as sentences after `UNVERIFIED`.

    Args:
        unverified: see `PrivacyStatement`.
    """
    out = [_ASSUMPTIONS[part].format(quoted(name)) for part, name in unverified.items()]
    if unverified.keys() - {"topology", "mechanism"}:
        out.append("Python code has no access to records by closures or files. Nothing tests this.")
    return out


def threat_model(p: PrivacyStatement) -> list[str]:
    """Describe the observations of a trusted coordinator, the agents and the adversary; empty without one."""
    if not p.is_trusted:
        return []
    out = ["The coordinator is trusted: the adversary observes what it publishes, not what it receives."]
    if p.pools_records:
        out.append("Every agent hands its records to the coordinator, which holds them all.")
    if formulas := list(dict.fromkeys(_FORMULAS[term] for term in p.queries)):
        letters = "f is the loss of a record"
        if p.setting == "coordinator_bilevel":
            letters = "h is the upper loss of a record, l its lower loss"
        out.append(
            f"The coordinator receives from every agent sums over its records, each clipped, of {join_words(formulas)},"
            f" without noise; {letters}. The agents receive published values only."
        )
    out.append(f"The adversary observes what the coordinator releases ({_releases_text(p)}) and all that follows.")
    return out


def _releases_text(p: PrivacyStatement) -> str:
    """Describe the releases, for example "gx, 10 times, 30 numbers each; y, once, 1 number"."""
    out = []
    for channel, (count, width) in p.releases.items():
        numbers = f"{width} {'number' if width == 1 else 'numbers'}"
        if count:
            out.append(f"{channel}, once, {numbers}" if count == 1 else f"{channel}, {count} times, {numbers} each")
    return "; ".join(out)


def protocol_text(p: PrivacyStatement, graph: Mapping[str, Any]) -> str:
    """Return the protocol in words.

    Args:
        p: privacy statement.
        graph: entry "topology" of `result.json`.
    """
    if p.is_trusted:
        return _COORDINATOR_PROTOCOLS[p.protocol] if p.is_noisy else "trusted coordinator, without noise"
    return (_SERVER_PROTOCOLS if graph["has_server"] else _PROTOCOLS)[p.protocol]


def mechanism_text(p: PrivacyStatement) -> str:
    """Return the mechanism with the clipping norms and noise multipliers of its channels; "" without noise.

    The noise multiplier z of a channel is the standard deviation of the noise over the largest contribution of one
    record to the release. A sum of clipped per-example gradients then has noise of standard deviation z·C. The
    variables of bilevel problems are explained.
    """
    if not p.is_noisy or not p.mechanisms:
        return ""
    parts = [" and ".join(p.mechanisms).capitalize()]
    norms = {c: bound for c, bound in (p.clip or {}).items() if c not in ("norm", "method")}
    clip = f"{p.clip['method']} clip" if p.clip and "method" in p.clip else "clipping norm"
    # Many algorithms have channels of other names than the norms of privacy.clip.
    is_common = len(norms) == 1 or not norms.keys() <= p.signal.keys()
    parts += [f"{clip} {_by_channel(norms, is_common)}"] if norms else []
    parts += [f"noise multiplier {text}"] if (text := noise_multipliers_text(p)) else []
    return ", ".join(parts)


def noise_multipliers_text(p: PrivacyStatement) -> str:
    """Return the noise multiplier of each channel, a range if it differs between agents."""
    levels = {c: range_text(*s.noise_multiplier, ".3g") for c, s in p.signal.items() if s.noise_multiplier}
    return _by_channel(levels, len(p.signal) == 1) if levels else ""


def _by_channel(values: Mapping[str, Any], is_common: bool) -> str:
    """Return numbers with three digits, each after its channel unless all are equal and common to the channels."""
    texts = {c: f"{v:.3g}" if isinstance(v, float) else str(v) for c, v in values.items()}
    different = set(texts.values())
    return different.pop() if is_common and len(different) == 1 else ", ".join(f"{c} {t}" for c, t in texts.items())


def variables_text(p: PrivacyStatement) -> str:
    """Return the variables that the channels of a bilevel problem release; "" for other problems."""
    # Bilevel problems have records of two splits.
    is_bilevel = any(len(budget.records) > 1 for budget in p.agents.different)
    names = [f"{c}: {_BILEVEL_VARIABLES[c]}" for c in p.signal if c in _BILEVEL_VARIABLES]
    return ", ".join(names) if is_bilevel and len(p.signal) > 1 else ""


def network_text(p: PrivacyStatement) -> str:
    """Return the trusted party that agents answer; "" if agents use the graph."""
    if p.pools_records:
        party = "coordinator" if p.is_trusted else "server"
        return f"every agent hands its records to a trusted {party}; the scenario's graph plays no part"
    if p.is_trusted:
        return "a trusted coordinator asks every agent; the scenario's graph plays no part"
    return ""
