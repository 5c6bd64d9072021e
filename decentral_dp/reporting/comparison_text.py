"""The tables of a comparison in words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from decentral_dp.errors import quoted
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.reporting.words import metric_words, score_text
from decentral_dp.simulation.statements.statement import PrivacyStatement

if TYPE_CHECKING:
    from decentral_dp.reporting.comparison import ComparedRun, Comparison

_GUARANTEES = {"certified": "certified", "as_printed": "provable, as printed", "none": "none: no noise"}
ABSENT = "–"
# Keys of features' ranges; so many are listed among the settings.
_RANGES, _MOST_RANGES = "problem.scale.", 3


class ComparisonTable(NamedTuple):
    """One table, with a column for each run.

    Args:
        title: of the table.
        rows: what is compared → its text in each run.
        numbers: whether texts are numbers.
        note: what has to be known of them.
        nothing: said in place of a table without rows.
        folded: whether it is on the page alone, where it is opened.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]
    numbers: bool
    note: str
    nothing: str
    folded: bool = False


def comparison_tables(found: Comparison) -> list[ComparisonTable]:
    """Put a comparison in words: budgets, last metrics, settings that differ; ranges of many features last."""
    return [_budgets(found), _metric_rows(found), *_settings(found)]


def _settings(found: Comparison) -> list[ComparisonTable]:
    table = found.settings
    rows = [(str(key), [ABSENT if value is None else quoted(value) for value in table.loc[key]]) for key in table.index]
    ranges = [row for row in rows if row[0].startswith(_RANGES)]
    title, same = "What differs in the settings", "Nothing: the settings are the same."
    if len(ranges) <= _MOST_RANGES:
        return [ComparisonTable(title, rows, False, "", same)]
    # Two sets of records have other features, whose ranges would hide all that differs besides.
    counts = [sum(texts[k] != ABSENT for _, texts in ranges) for k in range(len(found.runs))]
    counted = (f"{_RANGES}…", [f"{n} ranges" if n else ABSENT for n in counts])
    left = [row for row in rows if row not in ranges]
    note = f"Ranges of {len(ranges)} features differ, and are listed last on the page."
    return [
        ComparisonTable(title, [*left, counted], False, note, same),
        ComparisonTable("Ranges that differ", ranges, False, "", "", folded=True),
    ]


def _budgets(found: Comparison) -> ComparisonTable:
    runs = found.runs
    rows = [
        ("status", [_status(run) for run in runs]),
        ("guarantee", [_guarantee(run.result.privacy) for run in runs]),
        ("δ", [delta_text(run.result.privacy.delta) for run in runs]),
        ("ε of the worst agent", [epsilon_text(run.result.privacy.epsilon_max) for run in runs]),
        ("pure ε of the worst agent", [epsilon_text(run.result.privacy.epsilon_pure_max) for run in runs]),
    ]
    if any(run.result.privacy.claimed is not None for run in runs):
        claims = [run.result.privacy.claimed_epsilon for run in runs]
        rows.append(("claimed by a paper, not certified", [epsilon_text(claim) for claim in claims]))
    budgets = found.budgets
    for column in budgets.columns:
        if str(column).startswith("channel "):
            name = str(column).removeprefix("channel ")
            prices = [_free(run, name) or epsilon_text(value) for run, value in zip(runs, budgets[column], strict=True)]
            rows.append((f"ε of channel {name} alone", prices))
    note = "Rounded up. ε of channels is at δ, of the agent that it costs most; a run's ε composes them."
    return ComparisonTable("Budgets", rows, True, note, "")


def _status(run: ComparedRun) -> str:
    result = run.result
    planned = result.rounds_planned or result.rounds
    rounds = f"{result.rounds} rounds" if result.rounds == planned else f"{result.rounds} of {planned} rounds"
    return f"{result.status.replace('_', ' ')}, {rounds}"


def _guarantee(privacy: PrivacyStatement) -> str:
    words = _GUARANTEES.get(privacy.guarantee, privacy.guarantee)
    if privacy.is_noisy and privacy.is_declared:
        words += ", if the declared constants are true"
    if privacy.is_on_authors_word:
        words += ", on the author's word"
    return f"{words}; {'a coordinator is trusted' if privacy.is_trusted else 'nobody is trusted'}"


def _free(run: ComparedRun, channel: str) -> str:
    return "free" if channel in run.result.privacy.free_channels else ""


def _metric_rows(found: Comparison) -> ComparisonTable:
    table = found.metrics
    written: Callable[[str, float], str] = lambda name, v: (  # noqa: E731 # two lines would say no more
        epsilon_text(v) if name == "epsilon_spent" else score_text(v)
    )
    rows = [(str(n), [written(str(n), float(v)) for v in table.loc[n]]) for n in sorted(table.index)]
    if rows:
        rounds = [ABSENT if run.measured_to is None else str(run.measured_to) for run in found.runs]
        rows.insert(0, ("at round", rounds))
    note = "Means over agents, in the simulator's view. A dash: this run has not measured it."
    return ComparisonTable("Last metrics", rows, True, note, "Nothing was measured.")


def described(name: str) -> str:
    """What a measured name is, or the name itself."""
    return metric_words(name) or name.replace("_", " ")
