"""Methods of an outside objective that are not of single records: a mistake is one sentence, before anything is run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.central.problems.losses import recordwise_objective
from decentral_dp.errors import InputError

WHOLE = ("project_y", "start_y", "regulariser", "regulariser_grad", "radius_y", "best_y", "predict")


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


def test_a_sound_objective_is_taken() -> None:
    assert recordwise_objective(Objective(), 2, "mine").q == 2


@pytest.mark.parametrize("method", WHOLE)
def test_a_mistake_names_the_method_the_file_and_the_line(method: str) -> None:
    def wrong(self: Any, *given: Any) -> Any:
        return self.value

    broken = type("Broken", (Objective,), {method: wrong})()
    line = wrong.__code__.co_firstlineno + 1
    sentence = rf"^mine: {method} does not run: AttributeError: .*'value', in line {line} of {__file__}\. Mend it\.$"
    with pytest.raises(InputError, match=sentence):
        recordwise_objective(broken, 2, "mine")


@pytest.mark.parametrize("method", WHOLE)
def test_another_shape_is_refused(method: str) -> None:
    broken = type("Broken", (Objective,), {method: lambda self, *given: np.zeros(5)})()
    with pytest.raises(
        InputError, match=rf"^mine: {method} gives shape \(5,\), wanted (one number|\d+ numbers)\. Mend it"
    ):
        recordwise_objective(broken, 2, "mine")
