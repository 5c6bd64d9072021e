"""What comes first: what was run, by whom, at which budget, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.reporting.page import trusted
from decentral_dp.reporting.page.markup import Html, Part, join, tag
from decentral_dp.reporting.page.trusted import schedules, settings_text
from decentral_dp.reporting.words import (
    WORDS,
    Json,
    article,
    capitalised,
    graph_noun,
    power_text,
    score_text,
    topology_name,
)
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement, number
from decentral_dp.user_code import own_name

NUMERALS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")
TASKS = {
    "logistic_hyperparameter": "tuned the regularisation of a logistic regression",
    "softmax_hyperparameter": "tuned the regularisation of a softmax classifier",
    "quadratic": "solved a quadratic bilevel problem",
    "biased_regularisation": "tuned the point that a classifier is drawn to",
    "hyper_cleaning": "weighed their records against clean ones",
    "mean_estimation": "estimated a mean",
    "meta_learning": "learned a representation that their tasks share",
    "ridge_hyperparameter": "tuned the regularisation of a least-squares fit",
    "logistic_regularisation": "tuned the regularisation of a logistic regression",
    "ridge_regularisation": "tuned the regularisation of a least-squares fit",
    "mean_lower_bound": "estimated a mean through a lower level",
    "auc_maximisation": "trained a classifier by its AUC",
    "dro": "trained a model that is robust to a shift of its records",
    "kl_dro": "trained a model that is robust to a shift of its records",
    "group_dro": "trained a model for the group that it serves worst",
    "mspbe": "learned the value of a policy",
    "wgan": "trained a generator against a critic",
}


# Where x is not tuned, the lower level alone is solved.
LOWER_TASKS = {
    "logistic_hyperparameter": "trained a logistic regression",
    "softmax_hyperparameter": "trained a softmax classifier",
    "quadratic": "minimised a quadratic loss",
    "biased_regularisation": "trained a classifier that is drawn to a given point",
    "hyper_cleaning": "trained a classifier",
    "mean_estimation": "estimated a mean",
    "meta_learning": "trained heads on a given representation",
    "ridge_hyperparameter": "fitted least squares",
}


def opening(title: str, result: RunResult) -> list[Html]:
    """Title, one sentence with the outcome, whatever went wrong, and the main numbers."""
    shown = [
        tag("div", tag("dt", name), tag("dd", value), tag("small", note), class_="tile")
        for name, value, note in _tiles(result)
    ]
    return [
        tag("header", tag("h1", title), tag("p", lead(result), class_="lead")),
        *_status(result),
        tag("dl", *shown, class_="tiles"),
    ]


def lead(result: RunResult) -> str:
    """The run in one sentence: who did what, at which budget, with which score."""
    return f"{_who_did_what(result)}; {_budget(result)}{_score(result)}."


def _who_did_what(result: RunResult) -> str:
    problem, graph = result.problem, result.topology
    m, kind = int(graph.get("agents") or 0), str(problem.get("kind") or "")
    who = f"{NUMERALS[m]} {'agent' if m == 1 else 'agents'}" if 0 <= m < len(NUMERALS) else _agents(graph)
    task = TASKS.get(kind, f"solved the {problem.get('solves') or 'bilevel'} problem {kind}".rstrip())
    if not result.tunes_x:
        task = LOWER_TASKS.get(kind, f"minimised the lower loss of {kind}")
    where = f" on {article(graph_noun(graph))}" if graph and m > 1 else ""
    where = " and a server" if graph.get("central") else where
    where = WORDS[result.setting].where or where
    return f"{who}{where} {task}" + (f" ({problem['data']} data)" if problem.get("data") else "")


def _agents(graph: Json) -> str:
    m = int(graph.get("agents") or 0)
    return f"{m} agent{'' if m == 1 else 's'}"


def _budget(result: RunResult) -> str:
    privacy = result.privacy
    certified, delta = epsilon_text(privacy.epsilon_max), delta_text(privacy.delta)
    claim = privacy.claimed_epsilon
    if_true = ", if the declared constants are true" if privacy.is_declared else ""
    budget = {
        "certified": f"certified ε ≤ {certified} per agent at δ = {delta}{if_true}",
        "as_printed": f"provable ε = {certified} at δ = {delta} for the protocol as printed",
        "none": "no noise was added, so nothing is private",
    }.get(privacy.guarantee, "guarantee unknown")
    return budget + (f" (claimed by the paper, not certified: {epsilon_text(claim)})" if claim is not None else "")


def _score(result: RunResult) -> str:
    before = " before it diverged" if result.has_diverged else ""
    if result.privacy.is_trusted:
        return trusted.score(result, before)
    kind = "upper" if result.tunes_x else "lower"
    accuracy, loss = result.metric("test_accuracy"), result.metric(f"{kind}_loss")
    if accuracy is not None:
        return f"; mean held-out accuracy {accuracy:.2f}{before}"
    explained = result.metric("test_r2")
    if explained is not None:
        return f"; mean held-out R² {explained:.2f}{before}"
    return f"; {'' if before else 'final '}{kind} loss {power_text(loss)}{before}" if loss is not None else ""


def _tiles(result: RunResult) -> list[tuple[str, str, str]]:
    """The main numbers as (name, value, note)."""
    privacy = result.privacy
    claim, accuracy = privacy.claimed_epsilon, result.metric("test_accuracy")
    certified, delta = epsilon_text(privacy.epsilon_max), delta_text(privacy.delta)
    word = "Provable ε, as printed" if privacy.guarantee == "as_printed" else "Certified ε per agent"
    tiles = [(word, certified, f"at δ = {delta}, {WORDS[result.setting].whose}")]
    if privacy.is_declared and privacy.is_noisy:
        tiles = [("ε per agent, on declared constants", certified, f"at δ = {delta}, only if they are true")]
    if not privacy.is_noisy:
        tiles = [("Privacy", "none", "noise is off: ε = ∞")]
    if claim is not None:
        tiles.append(("Claimed ε, not certified", epsilon_text(claim), "by the printed formula"))
    if result.privacy.is_trusted:
        tiles += trusted.score_tile(result, result.has_diverged)
    elif accuracy is not None:
        low, high = result.metric("test_accuracy_min"), result.metric("test_accuracy_max")
        spread = f", {low:.2f} to {high:.2f}" if low is not None and high is not None and low < high else ""
        note = "at the last evaluation before it diverged" if result.has_diverged else f"mean over agents{spread}"
        tiles.append(("Held-out accuracy", f"{accuracy:.2f}", note))
    elif (explained := result.metric("test_r2")) is not None:
        error = number(result.metric("test_rmse"))
        tiles.append(
            ("Held-out R²", f"{explained:.2f}", "" if error is None else f"root mean squared error {score_text(error)}")
        )
    rounds, planned = result.rounds, result.rounds if result.rounds_planned is None else result.rounds_planned
    seconds = result.seconds
    spent = f"in {seconds:.1f} s, {result.engine} engine" if seconds is not None else ""
    return [*tiles, ("Rounds", str(rounds) if rounds == planned else f"{rounds} of {planned}", spent)]


def _status(result: RunResult) -> list[Html]:
    status = result.status
    if status == "ok":
        return []
    meaning = {
        "diverged": "This run diverged",
        "budget_reached": "This run stopped at its privacy cap",
    }.get(status, f"This run ended with status “{status}”")
    planned = "?" if result.rounds_planned is None else result.rounds_planned
    done = f" after round {result.rounds} of {planned}"
    reason = (result.reason or "").strip() or "No reason was recorded."
    reason = reason.removeprefix(f"stopped{done}: ")
    if len(reason.split()[0]) > 1:  # A single letter is a variable and stays as it is.
        reason = capitalised(reason)
    if reason[-1] not in ".!?":
        reason += "."
    if result.has_diverged and result.privacy.is_noisy:
        reason += " Budgets are those of the whole plan: the rounds that were run cost no more."
    kind = "bad" if status != "budget_reached" else "warn"
    return [tag("div", tag("strong", f"{meaning}{done}. "), reason, class_=f"note {kind}", role="alert")]


def what_was_run(result: RunResult, scenario: Json) -> list[Html]:
    """The facts of the run, then the scenario's own words about itself."""
    problem, graph = result.problem, result.topology
    algorithm, settings = scenario.get("algorithm") or {}, scenario.get("problem") or {}
    stated, privacy = scenario.get("privacy") or {}, result.privacy
    records = problem.get("records") or {}
    counts = [
        f"{_counts(records[k])} {k} records per agent" for k in ("train", "validation") if any(records.get(k) or ())
    ]
    if records.get("test"):
        counts.append(f"{records['test']} held-out test records, used by no agent")
    network = f"{topology_name(graph)}, {graph['weights']} weights" if graph.get("weights") else ""
    if graph.get("central"):
        network = f"a server, which asks {_agents(graph)}; the scenario's graph plays no part"
    stream, noisy = settings.get("stream"), privacy.is_noisy
    if result.privacy.is_trusted:
        return [*_listed(trusted.rows(result, scenario, "; ".join(counts))), *_own_words(scenario)]
    rows: list[tuple[str, Part]] = [
        ("Problem", " · ".join(str(v) for v in (problem.get("kind"), problem.get("data")) if v)),
        ("Dimensions", f"x: {problem['p']}, y and z: {problem['q']}" if "p" in problem and "q" in problem else ""),
        ("Records", "; ".join(counts)),
        ("Records in use", "all from round 0" if stream == "all" else settings_text(stream)),
        ("Topology", network),
        ("Algorithm", " · ".join(str(v) for v in (own_name(str(algorithm.get("kind") or "")), privacy.protocol) if v)),
        ("Step sizes", schedules("λ", algorithm)),
        ("Settings", settings_text({k: power_text(v) for k, v in algorithm.items() if _is_setting(k, v)})),
        ("Start", _start(algorithm)),
        ("Noise", _noise(privacy, stated) if noisy else "none"),
        (
            "Clip per record",
            settings_text(privacy.clip if "clip" in (result.get("privacy") or {}) else stated.get("clip")),
        ),
        (
            "Boxes on the arguments" if privacy.guarantee == "as_printed" else "Domain of releases",
            settings_text(stated.get("box")),
        ),
        _messages(algorithm, privacy),
        ("Evaluated on", result.evaluated_on),
        ("Versions", settings_text(result.versions)),
    ]
    return [*_listed(rows), *_own_words(scenario)]


def _listed(rows: Sequence[tuple[str, Part]]) -> list[Html]:
    lines = [join([tag("dt", name), tag("dd", value)]) for name, value in rows if value]
    return [tag("h2", "What was run"), tag("dl", *lines, class_="facts")]


def _own_words(scenario: Json) -> list[Html]:
    stated = [tag("p", part) for part in str(scenario.get("description") or "").split("\n\n") if part.strip()]
    if not stated:
        return []
    aside = tag("p", "Its author's words. Where a setting was overridden, the list above is what ran.", class_="small")
    return [tag("h3", "What the scenario says of itself"), aside, *stated]


def _is_setting(key: str, value: object) -> bool:
    """A number of the algorithm's own, as inner = 10."""
    return key != "rounds" and isinstance(value, int | float) and not isinstance(value, bool)


def _start(algorithm: Json) -> str:
    """Constants are public: where every agent begins."""
    given = algorithm.get("init")
    if not isinstance(given, Mapping) or not given:
        return "every variable 0" if algorithm else ""
    return ", ".join(f"{k} = {v}".replace("-", "−") for k, v in given.items()) + "; every other variable 0"


def _messages(algorithm: Json, privacy: PrivacyStatement) -> tuple[str, Part]:
    """What a message carries where one sentence says it; else how releases are numbered."""
    entry, each = ALGORITHMS.get(str(algorithm.get("kind"))), number(privacy.exchanges)
    if entry is not None and entry.message:
        return "Message t = 1, 2, …", entry.message
    if each is None:
        return "Messages", ""
    if each == 1:
        numbered = "One exchange a round: release t leaves in round t"
    else:
        numbered = f"{each:.0f} exchanges a round: round t sends releases {each:.0f}t to {each:.0f}t + {each - 1:.0f}"
    noised = " with the noise of index t" if privacy.is_noisy else ""
    return "Messages", f"{numbered}{noised}, t = 0, 1, …; release 0 is the start and reads no record."


def _noise(privacy: PrivacyStatement, stated: Json) -> Html:
    """The mechanism, and either the stated scales or what they were fitted to."""
    name = capitalised(privacy.mechanism.replace("_", " "))
    # A scale for what reads no record adds no noise, as a clip of it bounds nothing.
    noised = privacy.clip
    noises = schedules("σ", {k: v for k, v in stated.items() if noised is None or k in noised})
    target = privacy.target
    if noises:
        return join([f"{name}, ", noises])
    return join([name + (f", as much as ε = {power_text(target)} needs over all planned rounds" if target else "")])


def _counts(per_agent: Sequence[int]) -> str:
    low, high = min(per_agent), max(per_agent)
    return str(low) if low == high else f"{low} to {high}"
