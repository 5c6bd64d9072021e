"""The page of a run, written from its folder alone, and the views of runs and plans in notebooks.

The texts are in `templates/run.html.j2`; here is what they are filled with. Every ε is rounded up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.bounded import SPLITS
from decentral_dp.errors import Stopped
from decentral_dp.files.durable import write_whole
from decentral_dp.files.regular import own
from decentral_dp.formatting import (
    agent_names,
    article,
    capitalise,
    communication_text,
    compression_text,
    delta_text,
    epsilon_text,
    graph_noun,
    graph_text,
    over_time_text,
    power_text,
    schedule_text,
    score_text,
    sentence,
    spans,
    topology_name,
)
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.baselines import baselines_in, compare_with_baselines
from decentral_dp.reporting.folder import Drawing, published_x, read_scenario, scenario_text
from decentral_dp.reporting.measures import ENDINGS, JUDGES, MEASURES
from decentral_dp.reporting.notes import judge_of, method_lines, network_text, predicts, score_notes
from decentral_dp.reporting.render import formula, render, with_formulas
from decentral_dp.simulation.result import RunResult, mode_of, read_result
from decentral_dp.simulation.statements.statement import Cost, PrivacyStatement
from decentral_dp.user_code import own_name

NUMERALS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")


def write_report(folder: Path) -> Path:
    """Write `folder/report.html` and return its path; the figures are drawn if the folder has none yet.

    The page inlines `plots/*.png` and loads nothing from anywhere.

    Raises:
        InputError: `folder` holds no readable result.json.
    """
    result, scenario = read_result(folder), read_scenario(folder)
    if not any((folder / "plots").glob("*.png")):
        # Only here: drawing imports matplotlib, and the figures of a run are usually there already.
        from decentral_dp.reporting.plots import write_plots

        write_plots(folder)
    privacy, graph = result.privacy, result.topology
    ran = result.algorithm or scenario.get("algorithm") or {}
    entry = ALGORITHMS.get(str((scenario.get("algorithm") or {}).get("kind")))
    lines = [*method_lines(result), *privacy.lines]
    stated = {text for _, text in lines}
    plots = sorted(own(path, folder, "report") for path in (folder / "plots").glob("*.png"))
    cases = (result.theorem or {}).get("cases") or []
    markup = render(
        "run",
        title=result.title or scenario.get("title") or "A run without a title",
        result=result,
        scenario=scenario,
        scenario_text=scenario_text(folder),
        lead=lead(result),
        tiles=_tiles(result),
        reason=_reason(result),
        settings=_settings(result, scenario, ran),
        lines=lines,
        notes=[(head, under) for head, under in privacy.grouped_notes if head not in stated],
        # Of one level and of minimax problems all records are of one kind.
        two_kinds=not (result.is_one_level or result.is_minimax),
        budgets=_budget_table(privacy, graph),
        price_kinds=[k for k in SPLITS if any(k in entry.price for entry in privacy.prices)],
        horizon=_horizon(privacy),
        published=_published(folder, result),
        scores=_score_tables(result),
        predicts=predicts(result),
        baselines=compare_with_baselines(result, baselines_in(folder)),
        network=network_text(result),
        graph_line=_graph_line(result),
        graph_notes=_graph_notes(graph),
        cases=cases,
        # Each condition once, for whichever case asks for it.
        conditions=list({c["condition"]: c for case in cases for c in case["conditions"]}.values()),
        pictures={path.stem: path.read_bytes() for path in plots},
        algorithm=entry,
        kind=repr(own_name(str(ran.get("kind") or ""))),
        citations=() if entry is None else entry.citations,
    )
    path = folder / "report.html"
    write_whole(path, markup.encode(), mode_of(folder))
    return path


def draw_run(folder: Path, drawing: Drawing | None = None) -> None:
    """Draw the pictures and the page of a complete run; what cannot be drawn now can be drawn later.

    Args:
        folder: of the run.
        drawing: the numbers of its pictures; by default they are read from the folder.

    Raises:
        Stopped: interrupted.
        OSError: a file cannot be written.
    """
    from decentral_dp.reporting.plots import write_plots

    later = f'The run is complete and in {folder}; "decentral-dp report {folder}" draws its plots and its page.'
    try:
        write_plots(folder, drawing=drawing)
        write_report(folder)
    except KeyboardInterrupt:
        raise Stopped(f"Interrupted. {later}") from None
    except OSError as error:
        raise OSError(f"{error}. {later}") from error


def run_view(result: RunResult, pictures: Iterable[bytes] = (), baselines: Mapping[str, RunResult] = {}) -> str:
    """Markup of a run for a notebook.

    Args:
        result: its numbers.
        pictures: PNGs.
        baselines: of the runs that it is judged by.
    """
    status = [] if result.status == "ok" else [(result.status.replace("_", " "), sentence(result.reason))]
    return render(
        "run_view",
        result=result,
        lead=lead(result),
        lines=[*status, *method_lines(result), *result.privacy.lines],
        budgets=_budget_table(result.privacy, result.topology),
        scores=_score_tables(result),
        baselines=compare_with_baselines(result, baselines),
        pictures=pictures,
    )


def plan_view(title: str, privacy: PrivacyStatement, graph: Mapping[str, Any], settings: str, method: str) -> str:
    """Markup of a plan for a notebook; graph: as in `result.json`; settings: those of training, or ""."""
    line = f"{capitalise(topology_name(graph))}, {graph['weights']} weights: {graph_text(graph)}."
    plays_a_part = not (privacy.network_text or graph["central"] or graph["agents"] == 1)
    return render(
        "plan_view",
        title=title,
        privacy=privacy,
        graph_line=" ".join([line, *(f"{capitalise(n)}." for n in graph["notes"])]) if plays_a_part else "",
        method=method,
        settings=settings,
        budgets=_budget_table(privacy, graph),
    )


def lead(result: RunResult) -> str:
    """The run in one sentence: agents, task, budget and score."""
    problem, graph, privacy = result.problem, result.topology, result.privacy
    m, kind, known = graph["agents"], problem["kind"], PROBLEMS.get(problem["kind"])
    who = f"{NUMERALS[m]} {'agent' if m == 1 else 'agents'}" if m < len(NUMERALS) else f"{m} agents"
    if privacy.is_trusted:
        who += " and a trusted coordinator"
    elif graph["central"] and not privacy.pools_records:
        who += " and a server"
    elif m > 1:
        who += f" on {article(graph_noun(graph))}"
    task = (known and known.task) or f"solved the {problem['solves']} problem {kind}"
    if not result.tunes_x:
        which = "train" if result.is_one_level else "lower"
        task = (known and known.lower_task) or f"minimised the {which} loss of {kind}"
    epsilon, delta = epsilon_text(privacy.epsilon_max), delta_text(privacy.delta)
    if_true = ", if the declared constants are true" if privacy.is_declared else ""
    budget = {
        "certified": f"certified ε ≤ {epsilon} per agent at δ = {delta}{if_true}{_simulated(privacy)}",
        "as_printed": f"provable ε = {epsilon} at δ = {delta} for the protocol as printed{_simulated(privacy)}",
        "none": "no noise was added, so nothing is private",
    }[privacy.guarantee]
    claim = privacy.claimed_epsilon
    budget += "" if claim is None else f" (claimed by the paper, not certified: {epsilon_text(claim)})"
    score, of = "", f" of the {result.evaluated_on}" if result.solves_lower else ""
    of += " before it diverged" if result.has_diverged else ""
    judge, loss = judge_of(result), "upper_loss" if result.tunes_x else "lower_loss"
    if judge is not None:
        (word, digits), mean = JUDGES[judge], "" if privacy.is_trusted else "mean "
        score = f"; {mean}held-out {word} {result.score(judge):.{digits}f}{of}"
    elif (value := result.score(loss)) is not None:
        final = "" if result.has_diverged or privacy.is_trusted else "final "
        named = "train loss" if result.is_one_level and not result.tunes_x else loss.replace("_", " ")
        score = f"; {final}{named} {power_text(value)}{of}"
    return f"{who} {task} ({problem['data']} data); {budget}{score}."


def _simulated(privacy: PrivacyStatement) -> str:
    return " (SIMULATION)" if privacy.is_simulation else ""


def _tiles(result: RunResult) -> list[tuple[str, str, str]]:
    """The main numbers as (name, value, note)."""
    privacy = result.privacy
    head, note = "Certified ε per agent", "the same for every agent" if privacy.is_trusted else "worst agent"
    if privacy.guarantee == "as_printed":
        head = "Provable ε, as printed"
    if privacy.is_declared:
        head, note = "ε per agent, on declared constants", "only if they are true"
    at = f"at δ = {delta_text(privacy.delta)}{_simulated(privacy)}, {note}"
    tiles = [(head, epsilon_text(privacy.epsilon_max), at)]
    if not privacy.is_noisy:
        tiles = [("Privacy", "none", "noise is off: ε = ∞")]
    if (claim := privacy.claimed_epsilon) is not None:
        tiles.append(("Claimed ε, not certified", epsilon_text(claim), "by the printed formula"))
    if (judge := judge_of(result)) is not None:
        word, digits = JUDGES[judge]
        low, high = result.metrics.get(f"{judge}_min"), result.metrics.get(f"{judge}_max")
        spread = f", {low:.2f} to {high:.2f}" if low is not None and high is not None and low < high else ""
        note = f"of the {result.evaluated_on}" if privacy.is_trusted else f"mean over agents{spread}"
        if result.has_diverged:
            note = "at the last evaluation before it diverged"
        elif judge == "test_r2" and (error := result.score("test_rmse")) is not None:
            note += f"; root mean squared error {score_text(error)}"
        tiles.append((f"Held-out {word}", f"{result.score(judge):.{digits}f}", note))
    rounds, planned = result.rounds, result.rounds_planned
    spent = "" if result.seconds is None else f"in {result.seconds:.1f} s, {result.engine} engine"
    return [*tiles, ("Rounds", str(rounds) if rounds == planned else f"{rounds} of {planned}", spent)]


def _reason(result: RunResult) -> str:
    """Why the run ended early, without the round, which the page prints beside it."""
    reason = sentence(result.reason).removeprefix(f"stopped after round {result.rounds} of {result.rounds_planned}: ")
    # A single letter is a variable and stays as it is.
    return capitalise(reason) if len(reason.split()[0]) > 1 else reason


_VARIABLES = {
    "centre": "x is the mean of the features, which agents released once, and which features are read from. y is the "
    "model.",
    "fixed": "x stays as it is given. y is the model, which makes the loss small at that x.",
    "minimax": "x is what makes a value F(x, y) small, y what makes it large: x is good where F is small even at the y "
    "that is worst for it.",
    "trusted": "x is what is tuned, so that the upper loss, on validation records, gets small. y is the model, which "
    "makes the lower loss small at that x.",
    "gossip": "x is what is tuned, so that the upper loss, on validation records, gets small. y is the model, which "
    "makes the lower loss small at that x. z tells how the model follows x: the inverse Hessian of the lower loss "
    "times a gradient; some algorithms find that in other ways.",
}
_MECHANISMS = {
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
    "exponential": "a random choice by an exponential mechanism",
    "uncertified": "a random choice of which nothing is proven",
}
# What a coordinator releases on a channel.
_CHANNELS = {
    "y": "what the lower loss is minimised by",
    "pulled": "what upper loss + λ · lower loss is minimised by",
    "model": "the minimiser of the lower loss",
    "slope": "the derivative by x",
    "gx": "the gradient by x",
    "gy": "the gradient by y",
    "g": "both gradients as one vector",
    "dx": "how the gradient by x changed",
    "dy": "how the gradient by y changed",
    "d": "how both gradients changed",
    "dual": "sums that the best y follows from",
    "s": "a mean that the loss is a function of",
    "x": "x itself, drawn at random",
    "x0": "a start for x, drawn at random",
}
# Where the bounds on one record come from.
_CONSTANTS = {
    "analytic": "analytic: theorems about this problem, for all records of bounded length",
    "declared": "declared: nobody has proven or checked them",
}


def _settings(result: RunResult, scenario: Mapping[str, Any], ran: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows of "What was run"; a row without a value is left out. ran: the algorithm as it ran."""
    problem, graph, privacy = result.problem, result.topology, result.privacy
    p, q, table = problem["p"], problem["q"], scenario.get("privacy") or {}
    one_level, minimax = result.is_one_level, result.is_minimax
    variables = "centre" if one_level else "minimax" if minimax else "trusted" if privacy.is_trusted else "gossip"
    variables = variables if one_level or result.tunes_x else "fixed"
    lower = "y and z" if variables in ("gossip", "fixed") and not privacy.is_trusted and not minimax else "y"
    # What a coordinator's program has settled by itself stands in the result, all else in the scenario.
    settled = ran.get("settled", ran)
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping) and "scale" in v}
    plain = {k: v for k, v in settled.items() if k not in steps and _is_setting(k, v, "settled" in ran)}
    left_out = [name for name in ran.get("left_out") or () if name in steps or name in plain]
    stream = (scenario.get("problem") or {}).get("stream")
    kinds = [(k, problem["records"][k]) for k in SPLITS if any(problem["records"].get(k) or ())]
    counts = [f"{_from_to(min(each), max(each))} {k} records per agent" for k, each in kinds]
    test = problem["records"]["test"]
    counts += [f"{test} held-out test records, used by no agent"] if test else []
    releases = [
        f"{r.channel}{f', {_CHANNELS[r.channel]}' if r.channel in _CHANNELS else ''}: {r.releases} of {r.width} "
        f"number{'s' * (r.width != 1)}"
        for r in privacy.prices
    ]
    if releases and privacy.free_channels:
        releases.append(f"{', '.join(privacy.free_channels)}: no record read")
    network = network_text(result)
    rows: list[tuple[str, str]] = [
        ("Problem", f"{problem['kind']} · {problem['data']}"),
        ("Dimensions", f"x: {p}, {'y' if one_level else lower}: {q}" if p else f"y, the weights: {q}"),
        ("Variables", _VARIABLES[variables] if p else ""),
        ("Records", "; ".join(counts)),
        ("Topology", capitalise(network) or f"{topology_name(graph)}, {graph['weights']} weights"),
        ("Algorithm", f"{result.method or own_name(str(ran.get('kind') or ''))} · {privacy.protocol}"),
        ("Step sizes", _schedules("λ", steps)),
        ("Settings", _pairs({k: v if isinstance(v, str) else power_text(v) for k, v in plain.items()})),
        ("Left out", f"{', '.join(left_out)}: by default, or from public facts" if left_out else ""),
        ("Domain of x", domain_text(ran.get("domain"), p)),
        ("Start", _start(ran, privacy)),
        ("Releases", "; ".join(releases)),
        ("Noise", _noise(privacy, table)),
        ("Clip per record", _pairs(privacy.clip)),
        (
            "Boxes on the arguments" if privacy.guarantee == "as_printed" else "Domain of releases",
            _pairs(table.get("box")),
        ),
        ("Constants", _CONSTANTS.get(str(privacy.constants), "")),
        ("Sent", "" if result.communication is None else communication_text(result.communication)),
        ("Evaluated on", result.evaluated_on),
        ("Versions", _pairs(result.versions)),
    ]
    if not privacy.is_trusted:
        rows.insert(4, ("Records in use", "all from round 0" if stream == "all" else _pairs(stream)))
        rows.insert(-3, ("Messages", with_formulas(_messages(ran, privacy))))
    return rows


def _is_setting(key: str, value: object, settled: bool) -> bool:
    """A number of the algorithm's own, as inner = 10; of what is settled all but a share of 1, which is no sample."""
    if settled:
        return (key, value) != ("rate", 1.0)
    return key != "rounds" and isinstance(value, int | float) and not isinstance(value, bool)


def _from_to(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _pairs(value: object) -> str:
    """ "norm l2, y 1.0"; bounds to four digits, for those that follow from constants have seventeen."""
    if not isinstance(value, Mapping):
        return str(value or "")
    return ", ".join(f"{k} {f'{v:.4g}' if isinstance(v, float) else v}" for k, v in value.items())


def _schedules(symbol: str, table: Mapping[str, Any]) -> Markup:
    """ "λ_x = 0.5/(t+1)^0.3, …", of everything that the table gives a scale."""
    terms = []
    for variable, entry in table.items():
        if isinstance(entry, Mapping) and isinstance(entry.get("scale"), int | float):
            faster = entry.get("decay_per_agent")
            more = f" (exponent + {faster}·i for agent i = 1, 2, …)" if faster else ""
            head, fall = formula(f"{symbol}_{variable}"), formula(schedule_text(entry))
            terms.append(head + " = " + power_text(entry["scale"]) + fall + more)
    return Markup(", ").join(terms)


def domain_text(domain: Mapping[str, Any] | None, p: int) -> str:
    """The set of x in words. p: coordinates of x."""
    if domain is None:
        return ""
    if domain["kind"] == "box":
        ends = f"{domain['low']:g} to {domain['high']:g}".replace("-", "−")
        return f"interval from {ends}" if p == 1 else f"box, every coordinate from {ends}"
    return f"ball of radius {domain['radius']:g} around 0" if domain["kind"] == "ball" else "simplex"


def _draws_x(privacy: PrivacyStatement) -> bool:
    """Whether x is itself a release, drawn at random, so that it starts nowhere."""
    return any(p.channel in ("x", "x0") for p in privacy.prices)


def _start(ran: Mapping[str, Any], privacy: PrivacyStatement) -> str:
    """ "x = −2, y = 0": constants are public."""
    start, init = ran.get("start"), ran.get("init")
    if _draws_x(privacy) or not ran:
        return ""
    if start:
        values = [f"{k} = {v:g}" if v is not None else f"{k} as the problem says" for k, v in start.items()]
        return ", ".join(values).replace("-", "−")
    if not init:
        return "every variable 0"
    return ", ".join(f"{k} = {v}".replace("-", "−") for k, v in init.items()) + "; every other variable 0"


def _noise(privacy: PrivacyStatement, table: Mapping[str, Any]) -> str:
    """The mechanism, and either the stated scales or what they were fitted to. table: [privacy] of the scenario."""
    if not privacy.is_noisy:
        return "none"
    name = capitalise(" and ".join(_MECHANISMS.get(m, m.replace("_", " ")) for m in privacy.mechanisms))
    # A scale for what reads no record adds no noise, as a clip of it bounds nothing.
    noises = _schedules("σ", {k: v for k, v in table.items() if privacy.clip is None or k in privacy.clip})
    if noises:
        return Markup("{}, {}").format(name, noises)
    if privacy.target is not None:
        return f"{name}, as much as ε = {power_text(privacy.target)} needs over all planned rounds"
    if privacy.guarantee == "as_printed" and table.get("epsilon") is not None:
        return f"{name}, as the paper calibrates it for ε = {power_text(table['epsilon'])}"
    return name


def _messages(ran: Mapping[str, Any], privacy: PrivacyStatement) -> str:
    """The content of a message if one sentence says it; else how releases are numbered."""
    entry, each = ALGORITHMS.get(str(ran.get("kind"))), privacy.exchanges
    if entry is not None and entry.message:
        return f"message t = 1, 2, … {entry.message}"
    numbered = f"{each} exchanges a round: round t sends releases {each}t to {each}t + {each - 1}"
    if each == 1:
        numbered = "One exchange a round: release t leaves in round t"
    noised = " with the noise of index t" if privacy.is_noisy else ""
    return f"{numbered}{noised}, t = 0, 1, …; release 0 is the start and reads no record."


# Beyond so many coordinates x is drawn, not listed.
_LISTED_COORDINATES = 4


def _published(folder: Path, result: RunResult) -> str:
    """The published x of a coordinator, if it is short."""
    ran, x = result.algorithm, published_x(folder)
    if x is None or not ran or not 0 < x.size <= _LISTED_COORDINATES:
        return ""
    values = ", ".join(power_text(float(v)).replace("-", "−") for v in x.reshape(-1))
    point, start, where = f"x = {values}" if x.size == 1 else f"x = ({values})", ran["start"]["x"], ran["domain"]
    if start is not None and not _draws_x(result.privacy):
        point += f", from a start at {start:g}".replace("-", "−")
    return f"{point}, in the {domain_text(where, x.size)}" if where else point


class _Scores(NamedTuple):
    """Metrics at the end: rows (label, texts), those of other states than the published one, and notes by head."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    others: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[tuple[str, Sequence[str]]]


# Where x is not tuned there is no upper level, and agents never differ in x.
_OF_X = ("upper_loss", "consensus_x", "hypergradient_")


def _score_tables(result: RunResult) -> _Scores:
    metrics, local = result.metrics, not result.privacy.is_trusted
    columns = ("Metric", "Mean over agents", "Lowest agent", "Highest agent") if local else ("Metric", "Value")
    order, rows, others = list(MEASURES), [], []
    named = []
    for name in metrics:
        ending = next((e for e in ("_last", "_unreleased") if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        if (
            stem.endswith(("_min", "_max"))
            or name == "epsilon_spent"
            or (not result.tunes_x and name.startswith(_OF_X))
        ):
            continue
        named.append((order.index(stem) if stem in order else len(order), name, stem, ending))
    for _, name, stem, ending in sorted(named, key=lambda row: row[0]):
        label = capitalise(MEASURES[stem].label if stem in MEASURES else stem.replace("_", " "))
        if stem == "lower_loss" and result.is_one_level:
            label = "Train loss (regulariser included)"
        label += ENDINGS[ending][0] if ending and local else ""
        ends = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        values = [metrics[name], *ends][: len(columns) - 1]
        texts = ["" if v is None else score_text(v) if abs(v) >= 1e3 else power_text(v, pad=True) for v in values]
        (others if ending and stem in metrics else rows).append((label, texts))
    notes = groupby(score_notes(result), key=lambda note: note[0])
    return _Scores(columns, rows, others, [(head, [text for _, text in of]) for head, of in notes])


def _graph_line(result: RunResult) -> str:
    if network := network_text(result):
        return f"{capitalise(network)}."
    if result.topology["agents"] == 1:
        return "One agent, who talks to nobody."
    return f"{capitalise(article(topology_name(result.topology)))}: {graph_text(result.topology)}."


def _graph_notes(graph: Mapping[str, Any]) -> list[str]:
    return [text for text in (over_time_text(graph), compression_text(graph), *graph["notes"]) if text]


def _horizon(privacy: PrivacyStatement) -> list[tuple[str, str]]:
    """The limit of the budget as the number of rounds grows."""
    limit, claim = privacy.at_infinity, privacy.claimed
    rows = []
    if limit is not None and limit.finite_data is not None:
        text = f"ε → {epsilon_text(limit.finite_data)}."
        if math.isinf(limit.finite_data) and math.isfinite(privacy.epsilon_max):
            text += (
                " Once all records are in use, the cost of a round falls too slowly, if at all, to add up to a finite "
            )
            text += "sum."
        rows.append(("With the records there are", text))
    elif limit is not None:
        unknown = "Unknown: for this protocol no bound is derived, and none is refuted."
        rows.append(("With the records there are", unknown))
    if limit is not None and limit.endless_stream is not None:
        pure = privacy.mechanisms == ("laplace",)
        kind = "a pure ε (δ = 0)" if pure else f"an ε at δ = {delta_text(privacy.delta)}"
        epsilon = epsilon_text(limit.endless_stream)
        text = f"ε → {epsilon}, if new records kept arriving for ever: {kind}, in exact arithmetic."
        if math.isinf(limit.endless_stream):
            text = "ε → ∞, even if new records kept arriving for ever: the cost of a round falls too slowly, if at all."
        rows.append(("With an endless stream", f"{text} Not a budget of this finite data."))
    if claim is not None and claim.epsilon_max_at_infinity is not None:
        rows.append(("Claimed, not certified", f"ε → {epsilon_text(claim.epsilon_max_at_infinity)}."))
    return rows


class _Column(NamedTuple):
    """A column of the budget table: its group, its name, and the ε of each row."""

    group: str
    name: str
    values: Sequence[float | None]
    is_claimed: bool = False


class _BudgetTable(NamedTuple):
    """ε of every agent: groups of columns with their widths, columns, and rows (agents, texts)."""

    groups: Sequence[tuple[str, int]]
    columns: Sequence[_Column]
    rows: Sequence[tuple[str, Sequence[str]]]


_LISTED_AGENTS, _WORST_AGENTS, _LONGEST_NAMES = 30, 5, 60


def _budget_table(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> _BudgetTable | None:
    """Every agent's ε by channel and kind of record; of many agents a summary and the most expensive.

    Args:
        privacy: of the run or plan; None is returned if there is no noise.
        graph: as in `result.json`, for the names of agents.
    """
    budgets, claim, names = privacy.agents, privacy.claimed, agent_names(graph.get("labels"))
    if not privacy.is_noisy or not budgets:
        return None
    # Agents that cost alike may have claims that differ.
    claims = claim.agents if claim is not None else ()
    rows = budgets[:] if claims else budgets.different
    members = [[k] for k in range(len(budgets))] if claims else budgets.members()
    at = f"ε at δ = {delta_text(privacy.delta)}"
    columns = [
        _Column("Whole run", at, [row.epsilon for row in rows]),
        _Column("Whole run", "pure ε (δ = 0)", [row.epsilon_pure for row in rows]),
    ]
    if claim is not None and claims:
        # A claim without a δ of its own is of pure ε.
        name = f"ε at δ = {delta_text(claim.delta)}" if claim.delta else "pure ε"
        columns.append(_Column("Claimed, not certified", name, claims, is_claimed=True))
    for channel in rows[0].channels:
        if channel in privacy.free_channels:
            continue
        costs = [row.channels.get(channel, Cost()) for row in rows]
        columns.append(_Column(f"Channel {channel}", "ε", [cost.epsilon for cost in costs]))
        if not claims and any(cost.epsilon_pure is not None and math.isfinite(cost.epsilon_pure) for cost in costs):
            columns.append(_Column(f"Channel {channel}", "pure ε", [cost.epsilon_pure for cost in costs]))
    # Of one kind the cost of a record is that of the whole run.
    kinds = rows[0].records if len(rows[0].records) > 1 else ()
    columns += [_Column("ε of one record", kind, [row.records.get(kind) for row in rows]) for kind in kinds]
    values = list(zip(*(column.values for column in columns), strict=True))
    merged: dict[tuple[str, ...], list[int]] = {}
    for agents, row in zip(members, values, strict=True):
        merged.setdefault(tuple(map(epsilon_text, row)), []).extend(agents)
    total = len(budgets)
    named = names or [str(agent) for agent in range(total)]
    body = [(_agents_text(sorted(of), named, bool(names)), shown) for shown, of in merged.items()]
    if len(merged) > _LISTED_AGENTS:
        each = [row for agents, row in zip(members, values, strict=True) for _ in agents]
        stacked = [[v for v in column if v is not None] or [math.nan] for column in zip(*each, strict=True)]
        body = [
            (f"{label} of {total}", tuple(epsilon_text(pick(v)) for v in stacked))
            for label, pick in (("lowest", min), ("median", statistics.median), ("highest", max))
        ]
        worst = sorted(range(len(members)), key=lambda row: [-(v or 0.0) for v in values[row]])
        worst = [(agent, row) for row in worst[:_WORST_AGENTS] for agent in members[row]][:_WORST_AGENTS]
        body += [(f"agent {named[agent]}", tuple(map(epsilon_text, values[row]))) for agent, row in worst]
    groups = [(group, len(list(of))) for group, of in groupby(column.group for column in columns)]
    return _BudgetTable(groups, columns, body)


def _agents_text(agents: Sequence[int], names: Sequence[str], named: bool) -> str:
    """ "0–3, 7", "Bern, Zug", or how many where that would be long."""
    if len(agents) == len(names) > 1:
        return f"all {len(names)}"
    listed = [names[agent] for agent in agents]
    text = ", ".join(listed if named else spans(listed))
    if len(text) <= (_LONGEST_NAMES if named else 24) or len(agents) == 1:
        return text
    return f"{len(agents)} agents{f', {listed[0]} among them' if named else ''}"
