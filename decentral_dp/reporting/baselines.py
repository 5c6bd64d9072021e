"""What a run is worth: its scores beside those of a guess, of agents alone, of a trusted server, and without noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from decentral_dp.files.regular import own
from decentral_dp.formatting import delta_text, epsilon_text, score_text
from decentral_dp.reporting.measures import JUDGES
from decentral_dp.reporting.notes import judge_of
from decentral_dp.reporting.tables import TextTable
from decentral_dp.simulation.result import BASELINES_FOLDER, RunResult, is_complete, read_result

# The runs that a run is judged by, and their names in tables.
BASELINES = {"alone": "each agent alone", "central": "a trusted server", "none": "this network without noise"}
# Two standard errors, beyond which one run each tells two scores apart.
_ERRORS = 2.0


class BaselineComparison(NamedTuple):
    """What a run is worth.

    Args:
        table: a row for the guess, the run and each baseline; its scores and ε.
        sentence: what collaboration gains and what distrust costs; "" where no score judges.
        price: what reading the records again costs.
    """

    table: TextTable
    sentence: str
    price: str


def baselines_in(folder: Path) -> dict[str, RunResult]:
    """Baseline → its result, of those that a run folder holds and that are complete."""
    places = {name: own(folder / BASELINES_FOLDER / name, folder, str(folder)) for name in BASELINES}
    return {name: read_result(place) for name, place in places.items() if place.is_dir() and is_complete(place)}


def compare_with_baselines(result: RunResult, baselines: Mapping[str, RunResult]) -> BaselineComparison | None:
    """Set a run beside its baselines; None where there are none.

    Args:
        result: of the run.
        baselines: "alone", "central", "none" → result.
    """
    if not baselines:
        return None
    return BaselineComparison(
        baseline_table(result, baselines), _sentence(result, baselines), _price(result, baselines)
    )


def baseline_table(result: RunResult, baselines: Mapping[str, RunResult]) -> TextTable:
    """A row for the guess, the run and each baseline; its scores and ε."""
    rows = {"this run": result, **{BASELINES[name]: baselines[name] for name in BASELINES if name in baselines}}
    names = [name for name in (*JUDGES, "test_loss") if result.score(name) is not None]
    known = {"test_auc": 0.5} | dict(result.baselines)
    guess = [_text(known.get(name)) for name in names]
    cells = [["the guess", *guess, ""]] if any(text != "–" for text in guess) else []
    cells += [
        [words, *(_text(one.score(name)) for name in names), epsilon_text(one.privacy.epsilon_max)]
        for words, one in rows.items()
    ]
    heads = [("", ""), *((JUDGES.get(name, ("loss",))[0], "") for name in names), ("ε", "")]
    return TextTable(heads, [False] + [True] * (len(names) + 1), cells)


def _text(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else score_text(round(value, 4))


def _sentence(result: RunResult, baselines: Mapping[str, RunResult]) -> str:
    judge = judge_of(result)
    if judge is None:
        return ""
    mine, word, width = result.score(judge) or 0.0, JUDGES[judge][0], _width(judge, result)
    parts = []
    for name, of, better, worse in (
        ("alone", "over each agent alone at the same ε", "Collaboration gains", "Collaboration loses"),
        ("central", "against a trusted server at the same ε", "Distrust gains", "Distrust costs"),
        ("none", "against the same network without noise", "Noise gains", "Noise costs"),
    ):
        other = None if name not in baselines else baselines[name].score(judge)
        if other is not None and math.isfinite(other):
            chance = ", which chance explains" if abs(mine - other) < width else ""
            parts.append(f"{better if mine >= other else worse} {abs(mine - other):.3f} in {word} {of}{chance}")
    if not parts:
        return ""
    chance = f", where differences below {width:.2g} may be chance" if width else ""
    return f"{'; '.join([parts[0], *(part[0].lower() + part[1:] for part in parts[1:])])}. One run each{chance}."


def _width(judge: str, result: RunResult) -> float:
    """Two standard errors of the difference of two scores on the same number of held-out records, at most.

    An accuracy p of n records has the variance p(1 − p)/n; an AUC of value a at most a(1 − a)/k, k the fewer of the
    two classes. R² has none that its value bounds: 0.
    """
    records, share = (result.problem.get("records") or {}).get("test"), result.score(judge)
    guess = result.baselines.get("test_accuracy")
    if judge == "test_r2" or not records or share is None or not 0.0 <= share <= 1.0:
        return 0.0
    count = float(records)
    if judge == "test_auc" and guess is not None:
        count *= min(guess, 1.0 - guess)
    return _ERRORS * math.sqrt(2.0 * share * (1.0 - share) / count) if count > 0.0 else 0.0


def _price(result: RunResult, baselines: Mapping[str, RunResult]) -> str:
    noised = [result, *(one for name, one in baselines.items() if name != "none")]
    spent = [(one.privacy.epsilon_max, one.privacy.delta) for one in noised]
    # What is not known is not 0.
    epsilon, delta = (sum(math.inf if cost is None else cost for cost in costs) for costs in zip(*spent, strict=True))
    text = "All of these read the same records, and scores are of the same held-out ones."
    if len(noised) > 1 and result.privacy.is_noisy and math.isfinite(epsilon):
        text += f" Whoever sees what those with noise released has seen ε = {epsilon_text(epsilon)} at most, at "
        text += f"δ = {delta_text(delta)}."
    if result.privacy.shared is not None:
        some = f"{result.privacy.colluders} colluder{'s' * (result.privacy.colluders != 1)}"
        text += f" ε of this run holds against {some} (privacy.colluders), elsewhere against any number."
    if "none" in baselines:
        text += " What the run without noise released protects nobody: keep it, and its scores, to yourself."
    return text
