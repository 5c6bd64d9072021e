"""Steps, start and tail average of a new scenario, from the public smoothness of its problem. No record is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.constants.families import family_of
from decentral_dp.errors import InputError
from decentral_dp.problems import PROBLEMS, Facts


class Settings(NamedTuple):
    """What is chosen for one algorithm. step: of y, and of z where it has one, times L. x: its step; None as it is."""

    step: float
    x: float | None = None
    moves_z: bool = False
    average: int | None = None
    warning: str = ""


# Of ldp_dsbo chosen on made-up records of 6 to 30 features, two classes, three classes and numbers, at ε = 1 and 4 over
# seeds 1 to 4: from 0.05/L a run learns slowly, and from 0.25/L noise at ε = 1 undoes what the larger step gains.
# Of the others on breast cancer and wine, at ε = 1, 4 and 10 over six seeds: with the steps of the scenarios of their
# names, which have thousands of records an agent, all of them diverge there, for noise on x moves exp(x).
_SETTINGS = {
    "ldp_dsbo": Settings(0.1, average=30),
    "ma_dsbo": Settings(0.1, 0.05, moves_z=True),
    "dsbo_jhip": Settings(0.2, 0.05, moves_z=True),
    "gbdsbo": Settings(0.2, 0.05),
    "vrdsbo": Settings(
        0.1,
        0.05,
        warning=(
            "vrdsbo learned nothing at ε = 4 where four agents had a hundred records each: what it sends adds up noise "
            "of all rounds. Give agents thousands of records, or take --algorithm ldp_dsbo."
        ),
    ),
}
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


def with_settings_that_learn(content: Mapping[str, Any], features: int, notes: dict[str, str]) -> dict[str, Any]:
    """Give y a step by the public smoothness of its loss, x a weak start, and publish a tail average.

    With L the smoothness of the lower level at that start, for records of length at most 1, the step of y is 0.1/L or
    0.2/L, by algorithm: the largest stable step is 2/L, and noise leaves about as much as the step is long.

    Args:
        content: of a scenario.
        features: columns of its records.
        notes: dotted key → what stands beside a value; completed.

    Returns:
        The content, changed where the algorithm has such settings and the constants of the problem are known.
    """
    problem, algorithm = content["problem"], content["algorithm"]
    chosen = _SETTINGS.get(algorithm["kind"])
    if chosen is None or problem["kind"] not in _LOG_STRENGTHS or problem.get("normalise") != "l2":
        return dict(content)
    smoothness = _smoothness(problem, features)
    if smoothness is None:
        return dict(content)
    step = {"scale": float(f"{chosen.step / smoothness:.2g}")}
    notes["algorithm.y"] = f"{chosen.step:g}/L; L = {smoothness:.2g} bounds the curvature of the lower level in y"
    notes["algorithm.init"] = "x is the logarithm of the strengths: weak ones, which noise on x leaves nearly alone"
    if chosen.warning:
        notes[WARNING] = chosen.warning
    steps = {"y": step} | ({"z": step} if chosen.moves_z else {})
    if chosen.x is not None:
        steps["x"] = {"scale": chosen.x}
        notes["algorithm.x"] = "small: with fewer records there is more noise, and noise on x moves exp(x)"
    published = content["run"]
    if chosen.average is not None:
        last = min(chosen.average, max(1, int(algorithm.get("rounds", chosen.average)) // 5))
        published = {**published, "average": last}
    return {**content, "algorithm": {**algorithm, **steps, "init": {"x": _START}}, "run": published}


def _smoothness(problem: Mapping[str, Any], features: int) -> float | None:
    """sup ‖∇²_yy G‖ where x starts; None where no constants are known."""
    facts = Facts(features, len(problem.get("classes") or ()), bool(problem.get("intercept")), None, None)
    try:
        made = PROBLEMS[problem["kind"]].build(facts)
        start = np.full(made.p, _START)
        return float(family_of(made, 1.0, 1.0).constants(start, start).b_gyy)
    except InputError:
        return None
