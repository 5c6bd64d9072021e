"""What notebooks show of a run or a plan: a sentence, the budgets, the scores, and two figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decentral_dp.formatting import agent_names, graph_text
from decentral_dp.reporting.page.budgets import budget_table
from decentral_dp.reporting.page.guarantee import verdict
from decentral_dp.reporting.page.markup import Html, image, join, tag
from decentral_dp.reporting.page.opening import lead
from decentral_dp.reporting.page.outcome import change_advice, guess_text, score_table
from decentral_dp.reporting.words import capitalised, topology_name
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement


def run_view(result: RunResult, pictures: Iterable[bytes] = ()) -> str:
    """Markup of a run.

    Args:
        result: its numbers.
        pictures: PNGs.
    """
    scores, images = score_table(result), [image(picture, width="420") for picture in pictures]
    parts = [tag("h4", result.title or "Run"), tag("p", lead(result))]
    if result.status != "ok":
        parts.append(tag("p", tag("b", result.status.replace("_", " ")), f": {result.reason or ''}"))
    guess = guess_text(result)
    beside = [*([tag("p", guess)] if guess else []), *change_advice(result)]
    return tag(
        "div",
        *parts,
        *_budgets(result.privacy, result.topology),
        *([] if scores is None else [scores]),
        *beside,
        *images,
    ).markup


def plan_view(title: str, privacy: PrivacyStatement, graph: Mapping[str, Any]) -> str:
    """Markup of a plan; graph: as in `result.json`."""
    notes = [tag("li", note) for note in privacy.notes]
    parts = [tag("h4", title or "Plan"), verdict(privacy), *_graph(privacy, graph), *_budgets(privacy, graph)]
    return tag("div", *parts, *([tag("ul", join(notes))] if notes else [])).markup


def _graph(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> list[Html]:
    if privacy.is_trusted or graph.get("central") or graph.get("agents") == 1:
        return []
    return [
        tag(
            "p",
            f"{capitalised(topology_name(graph))}, {graph['weights']} weights: {graph_text(graph)}.",
            *_notes(graph),
        )
    ]


def _notes(graph: Mapping[str, Any]) -> list[str]:
    return [f" {capitalised(str(note))}." for note in graph.get("notes") or []]


def _budgets(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> list[Html]:
    return [budget_table(privacy, agent_names(graph.get("labels")))] if privacy.is_noisy and privacy.agents else []
