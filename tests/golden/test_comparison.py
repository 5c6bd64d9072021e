"""The gate sees what it is there to see."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from . import measure, record
from .compare import EXACT, array_differences, differences

NAME = "ring_breast_cancer"


def test_a_changed_epsilon_is_seen() -> None:
    recorded = record.load(record.DATA, NAME)["plan"]
    changed = copy.deepcopy(recorded)
    assert not differences(changed, recorded)
    changed["epsilon"][3] *= 1 + 1e-10
    (said,) = differences(changed, recorded)
    assert said.startswith("epsilon.3: ")


def test_one_bit_is_seen() -> None:
    value = np.random.default_rng(0).uniform(size=(4, 30))
    changed = value.copy()
    changed.view(np.uint64)[2, 7] ^= 1
    assert differences(measure.bits({"x": changed}), measure.bits({"x": value}))
    assert not array_differences(measure.array(changed), measure.array(value), EXACT, "x")


def test_a_scenario_without_golden_data_names_the_command() -> None:
    with pytest.raises(AssertionError, match=r"python -m tests\.golden\.record a_new_one"):
        record.load(record.DATA, "a_new_one")
