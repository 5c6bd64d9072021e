"""The ε of a channel with finitely many releases does not depend on the number of rounds."""

from __future__ import annotations

from typing import Any

import pytest

import decentral_dp


@pytest.mark.parametrize(
    "changes", [{}, {"privacy.neighbours": "zero_out"}, {"problem.stream": {"kind": "minibatch", "batch": 8}}], ids=str
)
def test_a_mean_that_is_released_once_has_one_epsilon(changes: dict[str, Any]) -> None:
    privacy = decentral_dp.plan("classification", set={"algorithm.rounds": 20} | changes).privacy
    assert privacy.at_infinity is not None
    table, limit = privacy.agents[0].channels, privacy.at_infinity.channels or {}
    assert 0.0 < (table["x"].epsilon or 0.0) < 4.0
    assert limit["x"].finite_data == table["x"].epsilon
    assert limit["y"].finite_data == float("inf")


@pytest.mark.parametrize(("delta", "noted"), [(0.02, True), (0.002, True), (0.0001, False)])
def test_a_delta_that_is_not_far_below_one_over_the_records_is_noted(delta: float, noted: bool) -> None:
    plan = decentral_dp.plan("classification", set={"algorithm.rounds": 20, "privacy.delta": delta})
    assert any("choose δ far below 1/" in caution for caution in plan.privacy.cautions) == noted
