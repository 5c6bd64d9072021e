"""Runs and plans in notebooks: a sentence, the facts, the budgets, the scores, and two figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decentral_dp.formatting import agent_names, graph_text
from decentral_dp.reporting.facts import facts
from decentral_dp.reporting.page.budgets import budget_table
from decentral_dp.reporting.page.guarantee import verdict
from decentral_dp.reporting.page.markup import Html, image, join, tag
from decentral_dp.reporting.page.opening import fact_list, lead
from decentral_dp.reporting.page.outcome import beside_scores, score_table
from decentral_dp.reporting.words import capitalised, topology_name, words_of
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement


def run_view(result: RunResult, pictures: Iterable[bytes] = ()) -> str:
    """Markup of a run.

    Args:
        result: its numbers.
        pictures: PNGs.
    """
    known = [(fact.name, fact.text) for fact in facts(result) if fact.about != "scores"]
    return tag(
        "div",
        tag("h4", result.title or "Run"),
        tag("p", lead(result)),
        fact_list(known),
        *_budgets(result.privacy, result.topology),
        *score_table(result),
        *beside_scores(result),
        *(image(picture, width="420") for picture in pictures),
    ).markup


def plan_view(title: str, privacy: PrivacyStatement, graph: Mapping[str, Any]) -> str:
    """Markup of a plan; graph: as in `result.json`."""
    notes = [tag("li", note) for note in privacy.notes]
    return tag(
        "div",
        tag("h4", title or "Plan"),
        verdict(privacy, graph),
        *_graph(privacy, graph),
        *_budgets(privacy, graph),
        *([tag("ul", join(notes))] if notes else []),
    ).markup


def _graph(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> list[Html]:
    if words_of(privacy, graph).network or graph.get("agents") == 1:
        return []
    network = f"{capitalised(topology_name(graph))}, {graph['weights']} weights: {graph_text(graph)}."
    return [tag("p", network, *(f" {capitalised(str(note))}." for note in graph.get("notes") or []))]


def _budgets(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> list[Html]:
    return [budget_table(privacy, agent_names(graph.get("labels")))] if privacy.is_noisy and privacy.agents else []
