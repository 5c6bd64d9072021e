"""Mechanisms as objects: the prices they charged as functions of a name, and checks that find a wrong one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE, MECHANISMS, mechanism_of, noise_of
from decentral_dp.privacy.randomness import Streams
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from tests.support.mechanism_checks import deviation_complaints, price_complaints


def test_names_are_those_of_ledgers_on_disk() -> None:
    assert set(MECHANISMS) == {"laplace", "gaussian", "pure", "exponential", "none", "uncertified", "free"}
    for name, mechanism in MECHANISMS.items():
        assert mechanism_of(name) is mechanism
        assert mechanism_of(mechanism) is mechanism
        assert copy.deepcopy(mechanism) == mechanism
    assert [name for name, m in MECHANISMS.items() if not m.charged] == ["free"]
    with pytest.raises(ValueError, match="adds no noise"):
        noise_of(MECHANISMS["exponential"], "y")


@pytest.mark.parametrize("mechanism", [LAPLACE, GAUSSIAN], ids=lambda m: m.name)
@pytest.mark.parametrize("width", [1, 9])
def test_what_is_drawn_has_the_stated_deviation_and_price(mechanism: Any, width: int) -> None:
    assert deviation_complaints(mechanism) == []
    assert price_complaints(mechanism, width=width) == []


@pytest.mark.parametrize(("mechanism", "norm"), [("laplace", "l2"), ("gaussian", "l1")])
def test_a_value_bounded_in_another_norm_is_refused(mechanism: str, norm: Any) -> None:
    schedule = NoiseSchedule(np.ones(1), np.zeros(1))
    releaser = ScheduledReleaser(mechanism, {"y": schedule}, Streams(bytes(32), "noise", [0]))
    value = Bounded(np.zeros((1, 2)), np.zeros((1, 2)), {"train": Sensitivity(np.ones(1), np.ones(1), None)}, norm)
    with pytest.raises(ValueError, match="needs a value bounded in"):
        releaser.release(1, {"y": value})
