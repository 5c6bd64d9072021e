"""Methods of a custom objective that are not per record: an error is refused before the run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from decentral_dp.central.problems.composite import make_custom_problem
from decentral_dp.errors import InputError
from decentral_dp.problems import ProblemFacts


class Objective:
    """f = ½(o − b)² + y·o, r = ½‖y‖²."""

    def sizes(self, n_classes: int) -> tuple[int, int]:
        return 1, 2

    def loss(self, outputs: Any, y: Any, labels: Any) -> Any:
        return 0.5 * (outputs[:, 0] - labels) ** 2 + y.sum() * outputs[:, 0]

    def slopes(self, outputs: Any, y: Any, labels: Any) -> Any:
        return outputs - labels[:, None] + y.sum(), np.repeat(outputs, 2, axis=1)

    def project_y(self, y: Any) -> Any:
        return np.clip(y, -1.0, 1.0)

    def start_y(self) -> Any:
        return np.zeros(2)

    def regulariser(self, y: Any) -> Any:
        return 0.5 * y @ y

    def regulariser_grad(self, y: Any) -> Any:
        return y

    def radius_y(self) -> float:
        return 3.0

    def best_y(self, outputs: Any, labels: Any) -> Any:
        return np.full(2, outputs.mean())

    def predict(self, outputs: Any) -> Any:
        return (outputs[:, 0] > 0).astype(float)


def test_accepts_a_valid_objective() -> None:
    assert make_custom_problem(Objective(), ProblemFacts(3, 2), "mine", None).q == 2


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda self: self.value, "start_y fails: AttributeError"),
        (lambda self: np.zeros(5), "got (5,)"),
    ],
)
def test_refuses_a_wrong_start(start: Any, words: str) -> None:
    broken = type("Broken", (Objective,), {"start_y": start})()
    with pytest.raises(InputError, match=f"^mine: .*{re.escape(words)}"):
        make_custom_problem(broken, ProblemFacts(3, 2), "mine", None)


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, np.nan])
def test_refuses_an_invalid_radius(radius: float) -> None:
    """Records are projected to it, so that every sensitivity depends on it."""
    broken = type("Broken", (Objective,), {"radius_y": lambda self: radius})()
    objective = make_custom_problem(broken, ProblemFacts(3, 2), "mine", None).objective
    with pytest.raises(InputError, match="radius_y out of range"):
        objective.public_ball("grad_y", np.zeros(0), np.zeros(2))
