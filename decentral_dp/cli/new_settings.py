"""Steps, start and tail average of a new scenario, from the public smoothness of its problem. No record is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from decentral_dp.constants.families import family_of
from decentral_dp.errors import InputError
from decentral_dp.problems import PROBLEMS, Facts

# Chosen on made-up records of 6 to 30 features, two classes, three classes and numbers, at ε = 1 and 4 over seeds 1 to
# 4: from 0.05/L a run learns slowly, and from 0.25/L noise at ε = 1 undoes what the larger step gains.
_STEP, _START, _AVERAGE = 0.1, -6.0, 30
# Problems whose x is the logarithm of a regularisation strength.
_LOG_STRENGTHS = (
    "logistic_hyperparameter",
    "logistic_regularisation",
    "ridge_hyperparameter",
    "ridge_regularisation",
    "softmax_hyperparameter",
)
_ALGORITHM = "ldp_dsbo"


def with_settings_that_learn(content: Mapping[str, Any], features: int, notes: dict[str, str]) -> dict[str, Any]:
    """Give y a step by the public smoothness of its loss, x a weak start, and publish a tail average.

    With L the smoothness of the lower level at that start, for records of length at most 1, the step of y is 0.1/L: the
    largest stable step is 2/L, and noise leaves about as much as the step is long.

    Args:
        content: of a scenario.
        features: columns of its records.
        notes: dotted key → what stands beside a value; completed.

    Returns:
        The content, changed where the algorithm is ldp_dsbo and the constants of the problem are known.
    """
    problem, algorithm = content["problem"], content["algorithm"]
    if algorithm["kind"] != _ALGORITHM or problem["kind"] not in _LOG_STRENGTHS or problem.get("normalise") != "l2":
        return dict(content)
    smoothness = _smoothness(problem, features)
    if smoothness is None:
        return dict(content)
    step = float(f"{_STEP / smoothness:.2g}")
    notes["algorithm.y"] = f"a tenth of 1/L; L = {smoothness:.2g} bounds the curvature of the lower level in y"
    notes["algorithm.init"] = "x is the logarithm of the strengths: weak ones, which noise on x leaves nearly alone"
    average = min(_AVERAGE, max(1, int(algorithm.get("rounds", _AVERAGE)) // 5))
    return {
        **content,
        "algorithm": {**algorithm, "y": {"scale": step}, "init": {"x": _START}},
        "run": {**content["run"], "average": average},
    }


def _smoothness(problem: Mapping[str, Any], features: int) -> float | None:
    """sup ‖∇²_yy G‖ where x starts; None where no constants are known."""
    facts = Facts(features, len(problem.get("classes") or ()), bool(problem.get("intercept")), None, None)
    try:
        made = PROBLEMS[problem["kind"]].build(facts)
        start = np.full(made.p, _START)
        return float(family_of(made, 1.0, 1.0).constants(start, start).b_gyy)
    except InputError:
        return None
