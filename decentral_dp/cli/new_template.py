"""A scenario as a file that explains itself: every key below what it means.

Which problem a new scenario has: one for the labels that there are, and for the algorithm.

What no scenario is written for: labels and files that cannot be meant. No record is read.

Steps, start and tail average of a new scenario, from the public smoothness of its problem. No record is read.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.component_tables import AlgorithmTable, ProblemTable
from decentral_dp.config.components import resolve
from decentral_dp.config.loading import toml_key, toml_value
from decentral_dp.config.schema import PrivacyTable, RunTable, Scenario, TopologyTable
from decentral_dp.constants.families import family_of
from decentral_dp.data.columns import ColumnRules
from decentral_dp.errors import InputError, quoted, quoted_path
from decentral_dp.files.tables import Table, key_texts
from decentral_dp.problems import PROBLEMS, Facts
from decentral_dp.topology import GENERATORS

# Problems that predict classes, and those that predict numbers in the same way.
_REGRESSIONS = {
    "biased_regularisation": "quadratic",
    "classification": "regression",
    "logistic_hyperparameter": "ridge_hyperparameter",
    "logistic_regularisation": "ridge_regularisation",
    "softmax_hyperparameter": "ridge_hyperparameter",
}
# Problems of two classes, and what of the same kind tells more of them apart.
_OF_MORE_CLASSES = {
    "auc_maximisation": "group_dro",
    "logistic_hyperparameter": "softmax_hyperparameter",
    "logistic_regularisation": "softmax_hyperparameter",
}
# Algorithms that send matrices: of many strengths, whose x is a logarithm, their noise made runs at ε = 1 diverge on
# iris and wine. A point that the lower level is pulled toward moves it no further than x moves.
_OF_A_POINT = ("dsbo_jhip", "gbdsbo")
# Algorithms that tune one number, or look at all points of a grid.
_OF_ONE_STRENGTH = (
    *("exponential_mechanism", "gradient_norm_exponential_mechanism", "grid_walk", "regularisation_tuner"),
    "warm_start",
)


def problem_of_numbers(kind: str, algorithm: str | None, is_requested: bool) -> str:
    """Choose the problem whose labels are numbers to predict.

    Args:
        kind: of problem, that the algorithm's own scenario has, or that was asked for.
        algorithm: its name.
        is_requested: whether the problem was asked for, so that no other is chosen.

    Returns:
        A kind of problem.

    Raises:
        InputError: it predicts classes.

    Example:
        >>> problem_of_numbers("logistic_regularisation", "ma_dsbo", is_requested=False)
        'ridge_regularisation'
    """
    if not is_requested:
        kind = "ridge_regularisation" if algorithm in _OF_ONE_STRENGTH else _REGRESSIONS.get(kind, kind)
        kind = "quadratic" if algorithm in _OF_A_POINT else kind
    if kind in PROBLEMS and PROBLEMS[kind].labels in ("two", "classes"):
        mend = "--algorithm double_spider" if kind == "auc_maximisation" else "--problem ridge_hyperparameter"
        raise InputError(f"--label-range: {kind} predicts classes. Take {mend}, or leave the range out.")
    return kind


def problem_of_classes(kind: str, algorithm: str | None, classes: int, is_requested: bool) -> str:
    """Choose the problem that tells so many classes apart.

    Args:
        kind: of problem, that the algorithm's own scenario has, or that was asked for.
        algorithm: its name.
        classes: their number.
        is_requested: whether the problem was asked for, so that no other is chosen.

    Returns:
        A kind of problem.

    Raises:
        InputError: there is none, or the one that was asked for is of two classes.

    Example:
        >>> problem_of_classes("logistic_regularisation", "ma_dsbo", 3, is_requested=False)
        'softmax_hyperparameter'
    """
    if algorithm in _OF_ONE_STRENGTH and not is_requested:
        if classes > 2:
            raise InputError(
                f"--classes: {algorithm} looks for one strength, and no problem of {classes} classes has just one. "
                "Take --algorithm second_order_dp_bilevel, or another."
            )
        return "logistic_regularisation"
    if classes > 2 and kind in _OF_MORE_CLASSES:
        if is_requested:
            raise InputError(
                f"--classes: {kind} tells two classes apart, and got {classes}. Take --problem "
                f"{_OF_MORE_CLASSES[kind]}, or another."
            )
        return "biased_regularisation" if algorithm in _OF_A_POINT else _OF_MORE_CLASSES[kind]
    return kind


def predicts_numbers(kind: str) -> bool:
    """Whether the labels of the problem are numbers, and no classes."""
    return kind in PROBLEMS and PROBLEMS[kind].labels == "numbers"


# Columns that say who holds a record, and its part, by their names alone.
AGENT, SPLIT = "agent", "split"
# A graph is drawn up to try it; that of more agents takes a while, and is left to the plan.
_MOST_TRIED_AGENTS = 2000


def require_classes(classes: Sequence[Any], problem: str | None) -> None:
    """Refuse labels that cannot be told apart.

    Args:
        classes: that were given.
        problem: that was asked for, by its kind; None where none was.

    Raises:
        InputError: one alone, one twice, one that is not finite, or any for a problem whose labels are numbers.
    """
    if not classes:
        return
    if problem is not None and predicts_numbers(problem):
        raise InputError(
            f"--classes: {problem} predicts numbers. Give their public range as --label-range LOW:HIGH, or take "
            "another --problem."
        )
    if len(classes) == 1:
        raise InputError(f"--classes: got {quoted(classes[0])} alone, wanted at least two labels, as in no,yes.")
    for k, label in enumerate(classes):
        if isinstance(label, float) and not math.isfinite(label):
            raise InputError(f"--classes: {label} is no label. Leave it out, and mend the records that have it.")
        if label in classes[:k]:
            raise InputError(f"--classes: got {quoted(label)} more than once. Name every label once.")


def require_buildable(scenario: Scenario) -> None:
    """Refuse what the first plan would refuse, as far as no record is needed to see it.

    Args:
        scenario: as it would be written.

    Raises:
        InputError: an algorithm that is not for the problem, a graph that cannot be, or losses whose file is missing.
    """
    c = resolve(scenario)
    losses = scenario.problem.losses
    if losses is not None and not scenario.resolve(losses).is_file():
        raise InputError(
            f"--problem: from_losses reads a Python file with the two losses, and there is no {quoted_path(losses)} "
            "beside the scenario. Put it there first; docs/add_a_problem.md has one."
        )
    if (scenario.topology.agents or 0) <= _MOST_TRIED_AGENTS:
        c.topology.make()


class Settings(NamedTuple):
    """What is chosen for one algorithm.

    step: of y, and of z where it has one, times L. x: its step; None as it is. average: as in [run]; None for half of
    the rounds. inverse: exchanges, or terms, for the inverse Hessian; None as many as in the algorithm's scenario.
    share: as in [privacy]; None as it is. pulls: whether it has settings for problems whose x is a point.
    """

    step: float
    x: float | None = None
    moves_z: bool = False
    average: int | None = None
    inverse: int | None = None
    share: Mapping[str, float] | None = None
    pulls: bool = False
    warning: str = ""


_MOSTLY_Y = {"y": 8.0, "z": 1.0}
# Of ldp_dsbo chosen on made-up records of 6 to 30 features, two classes, three classes and numbers, at ε = 1 and 4 over
# seeds 1 to 4: from 0.05/L a run learns slowly, and from 0.25/L noise at ε = 1 undoes what the larger step gains.
# Of the next three steps from 0.1/L to 0.6/L on made-up records of 8 to 25 features and two to four classes, at ε = 4
# over seeds 1 to 3, and then on breast cancer, wine and iris at ε = 1, 4 and 10 over seeds 1 to 5. On seeds 11 to 20 of
# these the mean accuracy of the nine was 0.75, 0.71 and 0.71, and no run diverged. With equal shares, the last iterate,
# steps of x of 0.05 and more exchanges it was 0.69, 0.70 and 0.66, and of the latter two 1 and 3 of 90 diverged.
_SETTINGS = {
    "ldp_dsbo": Settings(0.1, average=30),
    "ma_dsbo": Settings(0.1, 0.01, moves_z=True, inverse=1, share=_MOSTLY_Y, pulls=True),
    "dsbo_jhip": Settings(0.4, 0.01, moves_z=True, inverse=1, share=_MOSTLY_Y, pulls=True),
    "gbdsbo": Settings(0.5, 0.01, inverse=1, share=_MOSTLY_Y, pulls=True),
    "vrdsbo": Settings(
        0.1,
        0.05,
        average=1,
        warning=(
            "vrdsbo learned next to nothing at ε = 4 where agents had 100 to 2000 records each: what it sends adds up "
            "noise of all rounds. To learn something, take --algorithm ldp_dsbo."
        ),
    ),
}
# Strength of the pull where x is a point: a stronger one holds y near 0, where noise decides.
_RIDGE = 0.02
_START = -6.0
# The key of a note that says that little is learned.
WARNING = "algorithm.kind"
# Problems whose x is the logarithm of a regularisation strength.
_LOG_STRENGTHS = (
    *("logistic_hyperparameter", "logistic_regularisation", "ridge_hyperparameter", "ridge_regularisation"),
    "softmax_hyperparameter",
)
# Problems whose x is a point that y is pulled toward.
_POINTS = ("biased_regularisation", "quadratic")


def with_settings_that_learn(content: Mapping[str, Any], features: int, notes: dict[str, str]) -> dict[str, Any]:
    """Give y a step by the public smoothness of its loss, x a weak start, and publish a tail average.

    With L the smoothness of the lower level at that start, for records of length at most 1, the step of y is 0.1/L to
    0.5/L, by algorithm: the largest stable step is 2/L, and noise leaves about as much as the step is long.

    Args:
        content: of a scenario.
        features: columns of its records.
        notes: dotted key → what stands beside a value; completed.

    Returns:
        The content, changed where the algorithm has such settings and the constants of the problem are known.
    """
    problem, algorithm = dict(content["problem"]), dict(content["algorithm"])
    chosen, kind = _SETTINGS.get(algorithm["kind"]), problem["kind"]
    if problem.get("normalise") != "l2":
        return dict(content)
    if chosen is None:
        return _for_numbers(content, features, notes) if predicts_numbers(kind) else dict(content)
    if kind not in _LOG_STRENGTHS and not (kind in _POINTS and chosen.pulls):
        return dict(content)
    if kind in _POINTS:
        problem["ridge"] = _RIDGE
        algorithm.pop("init", None)
    smoothness = _smoothness(problem, features, _START)
    if smoothness is None:
        return dict(content)
    algorithm = _with_smoothness(algorithm, smoothness, notes)
    step = {"scale": float(f"{chosen.step / smoothness:.2g}")}
    notes["algorithm.y"] = f"{chosen.step:g}/L; L = {smoothness:.2g} bounds the curvature of the lower level in y"
    if kind in _LOG_STRENGTHS:
        algorithm["init"] = {"x": _START}
        notes["algorithm.init"] = "x is the logarithm of the strengths: weak ones, which noise on x leaves nearly alone"
    if chosen.warning:
        notes[WARNING] = chosen.warning
    algorithm |= {"y": step} | ({"z": step} if chosen.moves_z else {})
    if chosen.x is not None:
        algorithm["x"] = {"scale": chosen.x}
        notes["algorithm.x"] = "small: with fewer records there is more noise, and noise is what moves x"
    privacy = content["privacy"]
    if chosen.inverse is not None:
        algorithm["inverse"] = chosen.inverse
        notes["algorithm.inverse"] = "few: every exchange takes budget from y, which the predictions are of"
    if chosen.share is not None and privacy.get("epsilon") is not None:
        privacy = {**privacy, "share": dict(chosen.share)}
        notes["privacy.share"] = "most of the budget for y, which the predictions are of"
    rounds = int(algorithm.get("rounds", 1))
    last = max(1, rounds // 2) if chosen.average is None else min(chosen.average, max(1, rounds // 5))
    published = {**content["run"], **({} if last == 1 and chosen.average == 1 else {"average": last})}
    return {**content, "problem": problem, "algorithm": algorithm, "privacy": privacy, "run": published}


def _for_numbers(content: Mapping[str, Any], features: int, notes: dict[str, str]) -> dict[str, Any]:
    """Give squared errors the steps that fit them, where the algorithm's own scenario has those of a logistic loss.

    A logistic loss has a quarter of the curvature along a record. With its steps y runs away, also without noise,
    where the features of most records lie near the same ends of their ranges: R² was -3 to -126.
    """
    algorithm = dict(content["algorithm"])
    start = algorithm.get("init", {})
    smoothness = _smoothness(content["problem"], features, start.get("x", 0.0) if isinstance(start, Mapping) else start)
    if smoothness is None:
        return dict(content)
    if "y" not in algorithm:
        # The coordinator's solver takes 1/smoothness as its step, and settles it where it is left out.
        algorithm.pop("smoothness", None)
        return {**content, "algorithm": algorithm}
    algorithm = _with_smoothness(algorithm, smoothness, notes)
    step = min(algorithm["y"]["scale"] / 4.0, 1.0 / smoothness)
    algorithm["y"] = {**algorithm["y"], "scale": float(f"{step:.2g}")}
    notes["algorithm.y"] = f"at most 1/L; L = {smoothness:.2g} bounds the curvature of the lower level in y"
    return {**content, "algorithm": algorithm}


def _with_smoothness(algorithm: Mapping[str, Any], smoothness: float, notes: dict[str, str]) -> dict[str, Any]:
    """With the L of the Neumann series no smaller than the curvature: the series grows from L/2 on."""
    if "smoothness" not in algorithm or algorithm["smoothness"] >= smoothness:
        return dict(algorithm)
    notes["algorithm.smoothness"] = "a bound on the curvature of the lower level in y"
    return {**algorithm, "smoothness": float(f"{1.005 * smoothness:.3g}")}


def _smoothness(problem: Mapping[str, Any], features: int, at: float) -> float | None:
    """sup ‖∇²_yy G‖ where x starts; None where no constants are known. at: every coordinate of a start of strengths."""
    entry = PROBLEMS[problem["kind"]]
    options = {key: value for key, value in problem.items() if key in {"intercept", "ridge"} & {*entry.options}}
    try:
        made = entry.build(options, Facts(features, len(problem.get("classes") or ())))
        start = np.full(made.p, at if problem["kind"] in _LOG_STRENGTHS else 0.0)
        return float(family_of(made, 1.0, 1.0).constants(start, start).b_gyy)
    except InputError:
        return None


_WIDTH = 100
_TABLES: Mapping[str, type[Table]] = {
    "problem": ProblemTable,
    "topology": TopologyTable,
    "algorithm": AlgorithmTable,
    "privacy": PrivacyTable,
    "run": RunTable,
}
_HEADS = {
    "problem": "What is optimised, over which records.",
    "topology": "Who talks to whom.",
    "algorithm": "How it is optimised.",
    "privacy": "What is guaranteed, and what it costs.",
    "run": "How it is run; nothing here changes what is guaranteed.",
}
_SEED = (
    "Without a seed the noise is secret, and what is published is private. With one, such as seed = 1, a run can be "
    "repeated, and is a simulation."
)


def scenario_text(content: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    """Write a scenario as TOML with a comment on every key.

    Args:
        content: of the scenario.
        notes: dotted key → what stands beside its value; of a table above its keys.
    """
    lines = [f"title = {toml_value(content['title'])}", "", *_comment(_SEED), ""]
    for name, head in _HEADS.items():
        table = content.get(name)
        if not table:
            continue
        described = _descriptions(name, table)
        lines += [*_comment(f"{head} {notes.get(name, '')}"), f"[{name}]"]
        # What has a table of its own comes last: keys after it would be that table's.
        own = {key: value for key, value in table.items() if f"{name}.{key}" in notes and _is_listed(value)}
        for key, value in table.items():
            if key not in own:
                lines += [*_comment(described.get(key, "")), _line(key, value, notes.get(f"{name}.{key}", ""))]
        for key, inner in own.items():
            lines += ["", *_comment(notes[f"{name}.{key}"]), f"[{name}.{key}]"]
            for k, value in inner.items():
                about = key_texts(ColumnRules)[k] if key == "columns" else ""
                lines += [*_comment(about), _line(k, value, notes.get(f"{name}.{key}.{k}", ""))]
        lines.append("")
    return "\n".join(lines)


def _is_listed(value: Any) -> bool:
    """Whether it is a table with a line for each key; one of numbers, such as { scale = 0.2 }, stays on its line."""
    return isinstance(value, Mapping) and not all(isinstance(inner, int | float) for inner in value.values())


def _line(key: str, value: Any, note: str) -> str:
    return f"{toml_key(key)} = {toml_value(value)}{f'  # {note}' if note else ''}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def _descriptions(name: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Key → what it means, of one table."""
    descriptions = dict(key_texts(_TABLES[name]))
    if name == "algorithm" and (entry := ALGORITHMS.get(str(table.get("kind")))) is not None:
        descriptions |= {option.key: option.description for option in entry.keys}
    if name == "topology" and (generator := GENERATORS.get(str(table.get("kind")))) is not None:
        descriptions |= {p.name: p.description for p in generator.parameters}
    # A Greek letter stays what it is.
    return {key: text[:1].upper() + text[1:] if text[:1].isascii() else text for key, text in descriptions.items()}
