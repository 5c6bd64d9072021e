"""Steps, start and tail average of a new scenario, from the public smoothness of its problem. No record is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.cli.new_problems import predicts_numbers
from decentral_dp.constants.families import family_of
from decentral_dp.errors import InputError
from decentral_dp.problems import PROBLEMS, Facts


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
    "logistic_hyperparameter",
    "logistic_regularisation",
    "ridge_hyperparameter",
    "ridge_regularisation",
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
    facts = Facts(
        features, len(problem.get("classes") or ()), bool(problem.get("intercept")), problem.get("ridge"), None
    )
    try:
        made = PROBLEMS[problem["kind"]].build(facts)
        start = np.full(made.p, at if problem["kind"] in _LOG_STRENGTHS else 0.0)
        return float(family_of(made, 1.0, 1.0).constants(start, start).b_gyy)
    except InputError:
        return None
