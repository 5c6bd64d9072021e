"""Signal-to-noise ratios, from learning rates, clips and noise of the scenario."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.reporting.privacy import list_warnings


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_step_of_the_clip_beside_the_noise(scenario: Callable[..., dict[str, Any]], mechanism: str) -> None:
    """One release has at most λ(t)·C for any number of records, under the noise of the ledger."""
    plan = decentral_dp.plan(scenario(privacy={"mechanism": mechanism}, algorithm={"rounds": 9}))
    ledger, width, m = plan.ledger, 30, 5
    deviation = math.sqrt(2.0) if mechanism == "laplace" else 1.0
    for channel, step, terms, decay in (("y", 1.0, 1, 0.4), ("z", 0.5, 2, 0.3)):
        one, drift, noise = [], 0.0, 0.0
        for t in range(9):
            rows = ledger[(ledger["channel"] == channel) & (ledger["round"] == t + 1)].groupby("agent")["scale"].first()
            moved, sigma = step * (t + 1) ** -decay * terms, deviation * rows.to_numpy()
            one.append(moved / (sigma * math.sqrt(width)))
            drift += moved
            noise += width * np.mean(sigma**2) / m
        found = plan.privacy.signal[channel]
        assert found.one_release == pytest.approx(np.median(np.min(one, axis=1)), rel=1e-9)
        assert found.all_releases == pytest.approx(drift / math.sqrt(noise), rel=1e-9)
    assert set(plan.privacy.signal) == {"y", "z"}


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_sample_carries_one_clip(rate: float) -> None:
    """DP-SGDA: q·n records add at most C/(qn) each, and a cost of μ is noise of 2C/(qn)/μ on each coordinate."""
    run = decentral_dp.run(load("dp_sgda", [f"algorithm.rate={rate}", "algorithm.rounds=1"]))
    (price,) = (p for p in run.result.privacy.prices if p.channel == "gx")
    records, clip = sum(run.result.problem["records"]["train"]), 0.7
    (mu, _), width = price.price["train"], run.result.privacy.releases["gx"][1]
    noise = 2.0 * clip / (rate * records) / mu * math.sqrt(width)
    assert run.result.privacy.signal["gx"].one_release == pytest.approx(clip / noise, rel=1e-6)


def test_what_noise_swamps_is_said_before_and_after_a_run(scenario: Callable[..., dict[str, Any]]) -> None:
    content = scenario(privacy={"epsilon": 0.05})
    plan = decentral_dp.plan(content)
    ratio = plan.privacy.signal["y"].all_releases
    assert ratio is not None
    assert ratio < 1.0
    (warning,) = list_warnings(plan.privacy)
    assert warning.startswith("Noise swamps the steps: over all rounds it moves the average of 5 agents")
    assert f"y {1.0 / ratio:.2g} times" in warning
    assert "Noise swamps the steps" in " ".join(str(plan).split())
    assert not list_warnings(decentral_dp.plan(scenario(privacy={"epsilon": 16.0})).privacy)


@pytest.mark.parametrize(("delta", "is_large"), [(0.02, True), (0.002, True), (0.0001, False)])
def test_a_delta_that_is_not_far_below_one_over_the_records_is_noted(delta: float, is_large: bool) -> None:
    plan = decentral_dp.plan("classification", set={"algorithm.rounds": 20, "privacy.delta": delta})
    published = f"probability {1.0 - (1.0 - delta) ** plan.privacy.most_records:.2g} a mechanism that satisfies it may"
    for words in (published, "choose δ far below 1/"):
        assert any(words in warning for warning in list_warnings(plan.privacy)) == is_large
