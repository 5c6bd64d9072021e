"""The page: its sections in order, in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.reporting.folder import read_scenario, scenario_text
from decentral_dp.reporting.page.budgets import budget_section
from decentral_dp.reporting.page.guarantee import audit_section, guarantee_section, signal_section, theorem_section
from decentral_dp.reporting.page.markup import Html, document, tag
from decentral_dp.reporting.page.opening import opening, what_was_run
from decentral_dp.reporting.page.outcome import outcome_section, topology_section
from decentral_dp.reporting.words import Json
from decentral_dp.simulation.result import RunResult, read_result
from decentral_dp.user_code import own_name


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
        *opening(title, result),
        *what_was_run(result, scenario),
        *guarantee_section(result),
        *budget_section(folder, result),
        *signal_section(result),
        *audit_section(result),
        *outcome_section(folder, result),
        *topology_section(folder, result),
        *theorem_section(result),
        *_scenario_and_citation(folder, result, scenario),
    ]
    path = folder / "report.html"
    path.write_text(document(title, sections), encoding="utf-8")
    return path


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
        blocks = [tag("p", f"No algorithm {own_name(kind)!r} is registered here: cite where it comes from.")]
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
