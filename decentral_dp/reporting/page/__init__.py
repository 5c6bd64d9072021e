"""One self-contained page about a run: what was run, what is guaranteed, what it cost, what came out.

Read from the run folder alone. Every ε is printed rounded up. Everything that is not written in this package is
escaped, by construction: see `markup`. Beside it stand the views of runs and plans in notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.errors import Stopped
from decentral_dp.files.durable import write_whole
from decentral_dp.formatting import agent_names, graph_text
from decentral_dp.reporting.baselines import baselines_in
from decentral_dp.reporting.facts import facts
from decentral_dp.reporting.folder import Drawing, read_scenario, scenario_text
from decentral_dp.reporting.markup import Html, document, image, join, tag
from decentral_dp.reporting.page import guarantee, run
from decentral_dp.reporting.words import Json, capitalise, choose_words, topology_name
from decentral_dp.simulation.result import RunResult, mode_of, read_result
from decentral_dp.simulation.statements.statement import PrivacyStatement


def write_report(folder: Path) -> Path:
    """Write `folder/report.html` and return its path; the figures are drawn if the folder has none yet.

    The page inlines `plots/*.png` and loads nothing from anywhere. Raises InputError where `folder` holds no readable
    result.json.
    """
    result, scenario = read_result(folder), read_scenario(folder)
    if not any((folder / "plots").glob("*.png")):
        # Only here: drawing imports matplotlib, and the figures of a run are usually there already.
        from decentral_dp.reporting.plots import write_plots

        write_plots(folder)
    title = str(result.title or scenario.get("title") or result.problem.get("kind") or "A run without a title")
    sections = [
        *run.opening(title, result),
        *run.what_was_run(result, scenario),
        *guarantee.guarantee_section(result),
        *guarantee.budget_section(folder, result),
        *guarantee.signal_section(result),
        *guarantee.audit_section(result),
        *run.outcome_section(folder, result),
        *run.baselines_section(result, baselines_in(folder)),
        *run.topology_section(folder, result),
        *guarantee.theorem_section(result),
        *_scenario_and_citation(folder, result, scenario),
    ]
    path = folder / "report.html"
    write_whole(path, document(title, sections).encode(), mode_of(folder))
    return path


def draw_run(folder: Path, drawing: Drawing | None = None) -> None:
    """Draw the pictures and the page of a complete run; what cannot be drawn now can be drawn later.

    Args:
        folder: of the run.
        drawing: what its pictures are drawn from; by default it is read from the folder.

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


def _scenario_and_citation(folder: Path, result: RunResult, scenario: Json) -> list[Html]:
    text, kind = scenario_text(folder), str((scenario.get("algorithm") or {}).get("kind") or "")
    summary = tag("summary", "The scenario, fully resolved")
    missing = tag("p", "The folder holds no scenario.toml.")
    objects = scenario.get("objects") or {}
    named = ", ".join(f"{what} ({kind})" for what, kind in objects.items())
    alone = f"Given as Python objects: {named}. They are in no file, so the scenario alone does not run this again."
    return [
        tag("h2", "Scenario"),
        *([tag("p", alone, class_="note")] if objects else []),
        tag("details", summary, tag("pre", text)) if text else missing,
        tag("h2", "How to cite"),
        *_citations(kind, result.privacy.guarantee),
    ]


def _citations(kind: str, guarantee: str) -> list[Html]:
    """Whom the algorithm is owed to; whose the budget is."""
    entry = ALGORITHMS.get(kind)
    cited = entry.citations if entry is not None else ()
    blocks = [tag("p", f"{c.part}: {c.work.text}") for c in cited]
    if entry is None:
        blocks = [tag("p", f"No algorithm {kind!r} is registered here: cite where it comes from.")]
    if guarantee != "none":
        word = "provable" if guarantee == "as_printed" else "certified"
        theirs = "the paper" if len(cited) == 1 else "these papers" if cited else "a paper"
        # The only one whose paper prints a number of its own.
        other = ", not the paper's Theorem 4.5" if kind == "ldp_dsbo" else ""
        own = f"The {word} number is decentral_dp's own analysis{other}. Do not cite {theirs} for it"
        blocks.append(tag("p", tag("strong", f"{own}; state the adjacency, δ and protocol given above.")))
    if cited:
        bibtex = "\n\n".join(c.work.bibtex for c in cited)
        blocks.append(tag("details", tag("summary", "BibTeX"), tag("pre", bibtex)))
    return blocks


def run_view(result: RunResult, pictures: Iterable[bytes] = (), baselines: Mapping[str, RunResult] = {}) -> str:
    """Markup of a run.

    Args:
        result: its numbers.
        pictures: PNGs.
        baselines: of the runs that it is judged by.
    """
    known = [(fact.name, fact.text) for fact in facts(result) if fact.topic != "scores"]
    return tag(
        "div",
        tag("h4", result.title or "Run"),
        tag("p", run.lead(result)),
        run.fact_list(known),
        *_budgets(result.privacy, result.topology),
        *run.score_table(result),
        *run.beside_scores(result),
        *run.baselines_section(result, baselines),
        *(image(picture, width="420") for picture in pictures),
    ).markup


def plan_view(title: str, privacy: PrivacyStatement, graph: Mapping[str, Any], settings: str, method: str) -> str:
    """Markup of a plan; graph: as in `result.json`; settings: what those of training come to, or ""; method: of it."""
    notes = [tag("li", note) for note in privacy.notes]
    return tag(
        "div",
        tag("h4", title or "Plan"),
        guarantee.verdict(privacy, graph),
        *_graph(privacy, graph),
        *([tag("p", f"Algorithm: {method}.")] if method else []),
        *([tag("p", f"Settings: {settings}")] if settings else []),
        *_budgets(privacy, graph),
        *([tag("ul", join(notes))] if notes else []),
    ).markup


def _graph(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> list[Html]:
    if choose_words(privacy, graph).network or graph.get("agents") == 1:
        return []
    network = f"{capitalise(topology_name(graph))}, {graph['weights']} weights: {graph_text(graph)}."
    return [tag("p", network, *(f" {capitalise(str(note))}." for note in graph.get("notes") or []))]


def _budgets(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> list[Html]:
    shown = privacy.is_noisy and privacy.agents
    return [guarantee.budget_table(privacy, agent_names(graph.get("labels")))] if shown else []
