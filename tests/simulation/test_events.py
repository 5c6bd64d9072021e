"""Every long function reports progress in one form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.simulation.events import Progress, join_callbacks

STUDY = {"scenario": "quadratic", "kind": "plan", "measure": ["rounds"], "grid": {"algorithm.rounds": [1, 2, -3]}}


def _tune(**options: Any) -> None:
    a, b = np.eye(4)[np.arange(400) % 4], np.where(np.arange(400) % 4 < 2, 1.0, -1.0)
    decentral_dp.tune(
        train=(a, b), validation=(a, b), epsilon=1.0, delta=1e-6, weight_range=(0.1, 1.0), steps=3, seed=1, **options
    )


LONG: dict[str, tuple[Callable[..., Any], int]] = {
    "rounds": (lambda **options: decentral_dp.run("quadratic", set={"algorithm.rounds": 3}, **options), 3),
    "cells": (lambda **options: decentral_dp.study(STUDY, workers=1, **options), 2),
    "adversaries": (
        lambda **options: decentral_dp.network_view(
            "network_view", set={"topology.agents": 5, "algorithm.rounds": 2}, **options
        ),
        5,
    ),
    "steps": (_tune, 4),
}


@pytest.mark.parametrize("unit", LONG)
def test_one_form_for_all(unit: str) -> None:
    seen: list[Progress] = []
    call, total = LONG[unit]
    call(callbacks=[seen.append])
    assert {at.unit for at in seen} == {unit}
    assert {at.total for at in seen} == {total}
    assert [at.done for at in seen] == sorted(at.done for at in seen)
    assert seen[-1].done == total
    assert all(math.isnan(at.loss) == (unit != "rounds") for at in seen)


def test_a_callback_that_is_no_function_is_refused() -> None:
    with pytest.raises(InputError, match="callbacks"):
        join_callbacks([3])  # type: ignore[list-item]
