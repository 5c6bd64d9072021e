"""The gate sees what it is there to see."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import decentral_dp
from decentral_dp.simulation.jobs.build import build_job

from . import measure, record
from .compare import ELSEWHERE, EXACT, array_differences, differences

NAME = "ring_breast_cancer"


def test_a_changed_epsilon_is_seen() -> None:
    recorded = record.load(record.DATA, NAME)["plan"]
    changed = copy.deepcopy(recorded)
    assert not differences(changed, recorded)
    changed["epsilon"][3] *= 1 + 1e-10
    (said,) = differences(changed, recorded)
    assert said.startswith("epsilon.3: ")


@pytest.mark.parametrize("column", ["scale", "sensitivity", "reason", "round"])
def test_a_changed_ledger_is_seen(column: str) -> None:
    frame = build_job(decentral_dp.load(NAME)).ledger.to_frame()
    before = measure.ledger(frame)
    changed = frame.copy()
    if column == "reason":
        changed.loc[changed.index[-1], column] = "another"
    elif column == "round":
        changed.loc[changed.index[-1], column] += 1
    else:
        changed[column] *= 1 + 1e-10
    assert differences(measure.ledger(changed), before)


def test_one_bit_is_seen() -> None:
    value = np.random.default_rng(0).uniform(size=(4, 30))
    changed = value.copy()
    changed.view(np.uint64)[2, 7] ^= 1
    assert differences(measure.bits({"x": changed}), measure.bits({"x": value}))
    assert not array_differences(measure.array(changed), measure.array(value), EXACT, "x")


@pytest.mark.parametrize("size", [5, 4000])
def test_one_changed_entry_of_an_array_is_seen(size: int) -> None:
    value = np.random.default_rng(1).uniform(size=size)
    changed = value.copy()
    changed[3] += 1e-7
    assert array_differences(measure.array(changed), measure.array(value), ELSEWHERE, "x")
    changed = value * (1 + 1e-10)
    assert array_differences(measure.array(changed), measure.array(value), EXACT, "x")
    assert not array_differences(measure.array(changed), measure.array(value), ELSEWHERE, "x")
    changed[3] = np.nan
    assert array_differences(measure.array(changed), measure.array(value), ELSEWHERE, "x")


def test_a_scenario_without_golden_data_names_the_command() -> None:
    with pytest.raises(AssertionError, match=r"python -m tests\.golden\.record a_new_one"):
        record.load(record.DATA, "a_new_one")
