"""What came out: metrics and curves, and the network they came from."""

from __future__ import annotations

import re
from pathlib import Path

from decentral_dp.formatting import graph_text
from decentral_dp.reporting.folder import published_x
from decentral_dp.reporting.page import trusted
from decentral_dp.reporting.page import trusted as trusted_facts
from decentral_dp.reporting.page.markup import Html, Part, figures, tag
from decentral_dp.reporting.words import WORDS, article, capitalised, cut_text, power_text, score_text, topology_name
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import number

METRIC_NAMES = {
    "upper_loss": "Upper loss (validation records)",
    "lower_loss": "Lower loss (train records, regulariser included)",
    "test_loss": "Test loss (held-out records)",
    "test_auc": "Test AUC (held-out records)",
    "test_accuracy": "Test accuracy (held-out records)",
    "test_f1": "Test F1 (held-out records)",
    "test_rmse": "RMSE, in the label's unit (held-out records)",
    "test_r2": "R², variance explained (held-out records)",
    "test_worst_class_accuracy": "Test accuracy on the worst class (held-out records)",
    "test_robust_loss": "Test robust loss (held-out records)",
    "test_mspbe": "Test MSPBE (held-out trajectories)",
    "test_return_error": "Test error of predicted returns (held-out trajectories)",
    "test_critic_auc": "AUC of a critic trained afresh on held-out records; 0.5 is best",
    "test_distance": "Distance of generated to held-out records; 0 is best",
    "test_mean_gap": "Distance of their means",
    "test_spread": "Spread of generated over that of held-out records; 1 is best",
    "primal": "Φ(x): F at the best y (train records)",
    "objective": "F at the published x and y (train records)",
    "best_strength": "Best λ (train records)",
    "robust_loss": "Robust loss (train records)",
    "loss": "Loss (train records)",
    "estimate": "The published critic's own estimate (train records)",
    "gradient_norm": "Norm of the gradient of Φ (train records)",
    "auc": "AUC (train records)",
    "hypergradient_norm": "Hypergradient norm",
    "hypergradient_gap": "Distance to the hypergradient on held-out records",
    "consensus_x": "Distance to the average, x",
    "consensus_y": "Distance to the average, y",
    "consensus_z": "Distance to the average, z",
}


# Where x is not tuned there is no upper level, and agents never differ in x.
_OF_X = ("upper_loss", "consensus_x", "hypergradient_")


def score_table(result: RunResult) -> Html | None:
    """The last metrics, a row each; None where there are none. A budget is no metric: it has a table of its own."""
    metrics, words = result.metrics, WORDS[result.setting]
    rows = []
    plain = [n for n in metrics if not re.search(r"_(min|max)(_last|_unreleased)?$", n) and n != "epsilon_spent"]
    if not result.tunes_x:
        plain = [n for n in plain if not n.startswith(_OF_X)]
    order = [*METRIC_NAMES]
    for name in sorted(plain, key=lambda n: next((i for i, o in enumerate(order) if n.startswith(o)), len(order))):
        value = metrics[name]
        ending = next((e for e in words.endings if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        label = METRIC_NAMES.get(stem, stem.replace("_", " ")) + words.endings.get(ending, "")
        band = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        cells = [number(v) for v in (value, *band)[: len(words.columns) - 1]]
        shown = ["" if v is None else score_text(v) if abs(v) >= 1e3 else power_text(v, pad=True) for v in cells]
        rows.append(tag("tr", tag("th", label, scope="row"), *(tag("td", s, class_="number") for s in shown)))
    heads = [tag("th", text, scope="col") for text in words.columns]
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)) if rows else None


def guess_text(result: RunResult) -> str:
    """The scores of who always says the same, a sentence with a space after it; "" where none are known."""
    accuracy, error, explained = (
        number(result.baselines.get(name)) for name in ("test_accuracy", "test_rmse", "test_r2")
    )
    if accuracy is not None:
        return f"Who always says the commonest class has an accuracy of {accuracy:.3f} on held-out records. "
    said = [] if error is None else [f"a root mean squared error of {score_text(error)}"]
    # R² of a mean over the train records is 0 but for chance; + 0.0 leaves no sign on it.
    said += [] if explained is None else [f"an R² of {round(explained, 3) + 0.0:.3f}"]
    return f"Who always says the mean label has {' and '.join(said)} on held-out records. " if said else ""


def outcome_section(folder: Path, result: RunResult) -> list[Html]:
    """A table of the last metrics, and the curves."""
    table = score_table(result)
    where = f"Evaluated on: {result.evaluated_on}. " if result.evaluated_on else ""
    if result.has_diverged:
        where += "The last evaluation before the run diverged. "
    where += guess_text(result)
    if result.labels_cut:
        where += f"{result.labels_cut:.1%} of the labels lie outside problem.label_range, and scores know them as cut. "
    if told := cut_text(result.features_cut):
        where += f"{told} "
    if result.clipped:
        shares = ", ".join(f"{channel} {number(share) or 0.0:.0%}" for channel, share in result.clipped.items())
        where += " ".join([f"Records that a clip cuts at these values: {shares}.", *result.clip_advice, ""])
    where += f"{result.unmeasured} " if result.unmeasured else ""
    drawn = ("accuracy", "explained", "losses", "primal", "gradient", "upper_variable", "hypergradient", "consensus")
    curves = figures(folder, *drawn, captions=trusted.captions(result))
    return [
        tag("h2", "What came out"),
        *(trusted_facts.published_text(published_x(folder), result) if result.privacy.is_trusted else []),
        tag("p", f"{where}These numbers and curves read private data: they are the simulator's view.", class_="small"),
        *([] if table is None else [tag("div", table, class_="wide", tabindex="0")]),
        *change_advice(result),
        *(curves or [tag("p", "No curves: the run kept no metrics.")]),
    ]


def change_advice(result: RunResult) -> list[Html]:
    """A paragraph on what to change; nothing where the run learned."""
    return [tag("p", tag("strong", "What to change. "), " ".join(result.learning))] if result.learning else []


def topology_section(folder: Path, result: RunResult) -> list[Html]:
    """The graph in words and as a drawing."""
    graph = result.topology
    if not graph:
        return []
    if result.privacy.is_trusted:
        return [tag("h2", "Topology"), tag("p", trusted.topology_text(result))]
    if graph.get("agents") == 1:
        return [tag("h2", "Topology"), tag("p", "One agent, who talks to nobody.")]
    if graph.get("central"):
        return [tag("h2", "Topology"), tag("p", "A server asks every agent; the scenario's graph plays no part.")]
    rho, gap = number(graph.get("rho")), number(graph.get("spectral_gap"))
    drawing = figures(folder, "topology")
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
