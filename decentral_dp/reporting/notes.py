"""Sentences beside a result's numbers, which the page, the terminal and the notebook share."""

from __future__ import annotations

from decentral_dp.formatting import score_text
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.measures import JUDGES
from decentral_dp.simulation.result import RunResult


def network_text(result: RunResult) -> str:
    """The trusted party or the server that agents answer; "" if agents use the graph."""
    server = "a server asks every agent; the scenario's graph plays no part"
    return result.privacy.network_text or (server if result.topology["central"] else "")


def method_lines(result: RunResult) -> list[tuple[str, str]]:
    """Notes on the records, the algorithm with every part that is on, and the settings of training."""
    settings = result.problem.get("settings")
    lines = [("Data", note) for note in result.problem["notes"]]
    lines += [("Algorithm", f"{result.method}.")] if result.method else []
    return [*lines, ("Settings", settings)] if settings else lines


def judge_of(result: RunResult) -> str | None:
    """The first of `JUDGES` that the run has; None if it has none."""
    return next((name for name in JUDGES if result.score(name) is not None), None)


def predicts(result: RunResult) -> bool:
    """Whether a run of training at one level left a model for new records."""
    kind = PROBLEMS.get(result.problem["kind"])
    return kind is not None and kind.one_level and not result.has_diverged and bool(result.problem.get("features"))


def score_notes(result: RunResult) -> list[tuple[str, str]]:
    """Scores of a guess, clipped values, failed callbacks, and advice: head and sentence of each."""
    texts = []
    for guess, names in (("commonest class", ("test_accuracy",)), ("mean label", ("test_rmse", "test_r2"))):
        # R² of a mean over the train records is 0 but for chance; + 0.0 leaves no sign on it.
        scores = [f"{n} {score_text(round(result.baselines[n], 4) + 0.0)}" for n in names if n in result.baselines]
        texts += [f"Always the {guess}: {', '.join(scores)}."] if scores else []
    if result.labels_cut:
        texts.append(
            f"{result.labels_cut:.1%} of the labels lie outside problem.label_range and were cut, as scores know them."
        )
    if result.clipped:
        shares = ", ".join(f"{channel} {share:.0%}" for channel, share in result.clipped.items())
        texts.append(f"Records that a clip cuts at these values: {shares}.")
    if features := result.features_cut:
        listed = ", ".join(
            f"{name} {f'{share:.0%}' if share >= 0.1 else f'{100.0 * share:.2g}%'}"
            for name, share in list(features.items())[:5]
        )
        more = f" and fewer of {len(features) - 5} other features" if len(features) > 5 else ""
        texts.append(f"Values outside problem.scale were cut: {listed}{more}.")
    texts += [result.unmeasured, *result.failed_callbacks]
    return [("", text) for text in texts if text] + [("What to change", advice) for advice in result.learning]
