"""The outcome of a run: metrics and curves, and the network they came from."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from decentral_dp.bounded import Array
from decentral_dp.formatting import graph_text
from decentral_dp.reporting.facts import facts
from decentral_dp.reporting.folder import published_x
from decentral_dp.reporting.markup import Html, Part, figure, table, tag
from decentral_dp.reporting.page.opening import domain_text, draws_x
from decentral_dp.reporting.words import MEASURES, article, capitalised, power_text, score_text, topology_name, words_of
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import number

# Beyond so many coordinates x is drawn, not listed.
LISTED_COORDINATES = 4
# Where x is not tuned there is no upper level, and agents never differ in x.
_OF_X = ("upper_loss", "consensus_x", "hypergradient_")


def score_table(result: RunResult) -> list[Html]:
    """The last metrics, a row each; nothing where there are none. A budget is no metric: it has a table of its own."""
    metrics, words = result.metrics, words_of(result.privacy, result.topology)
    rows = []
    plain = [n for n in metrics if not re.search(r"_(min|max)(_last|_unreleased)?$", n) and n != "epsilon_spent"]
    if not result.tunes_x:
        plain = [n for n in plain if not n.startswith(_OF_X)]
    labels = {name: measure.page for name, measure in MEASURES.items() if measure.page}
    order = [*labels]
    for name in sorted(plain, key=lambda n: next((i for i, o in enumerate(order) if n.startswith(o)), len(order))):
        value = metrics[name]
        ending = next((e for e in words.endings if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        label = labels.get(stem, stem.replace("_", " ")) + words.endings.get(ending, "")
        band = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        cells = [number(v) for v in (value, *band)[: len(words.columns) - 1]]
        shown = ["" if v is None else score_text(v) if abs(v) >= 1e3 else power_text(v, pad=True) for v in cells]
        rows.append((label, [tag("td", text, class_="number") for text in shown]))
    return [table(words.columns, rows)] if rows else []


def outcome_section(folder: Path, result: RunResult) -> list[Html]:
    """A table of the last metrics, what to know beside it, and the curves."""
    where = f"Evaluated on: {result.evaluated_on}. " if result.evaluated_on else ""
    if result.has_diverged:
        where += "The last evaluation before the run diverged. "
    drawn = ("accuracy", "explained", "losses", "primal", "gradient", "upper_variable", "hypergradient", "consensus")
    curves = figures(folder, result, *drawn)
    return [
        tag("h2", "What came out"),
        *_published(published_x(folder), result),
        tag("p", f"{where}These numbers and curves read private data: they are the simulator's view.", class_="small"),
        *score_table(result),
        *beside_scores(result),
        *(curves or [tag("p", "No curves: the run kept no metrics.")]),
    ]


def beside_scores(result: RunResult) -> list[Html]:
    """The facts that stand beside scores, those under one head in a paragraph."""
    notes = [(fact.name, fact.text) for fact in facts(result) if fact.about == "scores"]
    return [
        tag("p", *([tag("strong", f"{head}. ")] if head else []), " ".join(text for _, text in of))
        for head, of in groupby(notes, key=lambda fact: fact[0])
    ]


def _published(x: Array | None, result: RunResult) -> list[Html]:
    """The published x, where it is one for all, and short; (1, p)."""
    ran = result.algorithm
    if x is None or not ran or not 0 < x.size <= LISTED_COORDINATES:
        return []
    values = ", ".join(power_text(float(v)).replace("-", "−") for v in x.reshape(-1))
    start, where = number((ran.get("start") or {}).get("x")), domain_text(ran.get("domain"), x.size)
    stated = f"x = {values}" if x.size == 1 else f"x = ({values})"
    if start is not None and not draws_x(result.privacy):
        stated += f", from a start at {start:g}".replace("-", "−")
    return [tag("p", tag("strong", "Published: "), f"{stated}{f', in the {where}' if where else ''}.")]


def figures(folder: Path, result: RunResult, *names: str) -> list[Html]:
    """Those of the named figures that the folder has, side by side."""
    captions = words_of(result.privacy, result.topology).captions
    hidden = " They are those of the exact lower solution at the published x, which nobody sees."
    drawn = []
    for name in names:
        path = folder / "plots" / f"{name}.png"
        of_whom = hidden if result.solves_lower and name in ("losses", "accuracy", "explained") else ""
        if path.exists():
            drawn.append(figure(path.read_bytes(), captions[name] + of_whom))
    return [tag("div", *drawn, class_="figures")] if drawn else []


def topology_section(folder: Path, result: RunResult) -> list[Html]:
    """The graph in words and as a drawing."""
    graph = result.topology
    words = "one agent, who talks to nobody" if graph.get("agents") == 1 else ""
    if not graph:
        return []
    if words := words_of(result.privacy, graph).network or words:
        return [tag("h2", "Topology"), tag("p", f"{capitalised(words)}.")]
    rho, gap = number(graph.get("rho")), number(graph.get("spectral_gap"))
    drawing = figures(folder, result, "topology")
    parts: list[Part] = [f"{capitalised(article(topology_name(graph)))}: {graph_text(graph)}."]
    if rho is not None and gap and rho > 0:
        pace = "Each round of gossip shrinks disagreement at least by the factor"
        parts.append(f" {pace} ρ = {rho:.4f}, 1 less the spectral gap.")
    elif rho is not None:
        parts.append(" One round agrees: ρ = 0." if rho == 0 else f" ρ = {rho:.4f}.")
    parts += [f" {capitalised(str(note))}." for note in graph.get("notes") or []]
    if not drawing:
        parts.append(" The graph is too large to draw.")
    return [tag("h2", "Topology"), tag("p", *parts), *drawing]
