"""Advice on runs that learned little, on numbers with and without a finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from decentral_dp.reporting.report import score_notes
from decentral_dp.simulation.advice import loss_trend, weak_score
from decentral_dp.simulation.result import read_result
from tests.support.run_folders import write_run


@pytest.mark.parametrize(
    ("ends", "known", "records", "little"),
    [
        ({"test_accuracy": 0.68}, {"test_accuracy": 0.65}, 100, True),
        ({"test_accuracy": 0.68}, {"test_accuracy": 0.65}, 10_000, False),
        ({"test_accuracy": 0.30}, {"test_accuracy": 0.65}, 10_000, True),
        ({"test_accuracy_unreleased": 0.66}, {"test_accuracy": 0.65}, 100, True),
        # The AUC replaces accuracy. With 100 records, 35 of them positive, the sampling error is 0.12.
        ({"test_accuracy": 0.65, "test_auc": 0.61}, {"test_accuracy": 0.65}, 100, True),
        ({"test_accuracy": 0.65, "test_auc": 0.63}, {"test_accuracy": 0.65}, 100, False),
        ({"test_auc": 0.52}, {"test_accuracy": 1.0}, 100, False),
        ({"test_auc": 0.52}, {}, 100, False),
        ({"test_accuracy": 0.65, "test_auc": 0.9}, {"test_accuracy": 0.65}, 100, False),
        ({"test_accuracy": 0.68}, {}, 100, False),
        ({"test_r2": 0.03}, {"test_r2": 0.0}, 100, True),
        ({"test_r2": 0.30}, {"test_r2": 0.0}, 100, False),
        ({"test_r2": float("nan")}, {"test_r2": 0.0}, 100, False),
    ],
)
def test_score_beside_a_guess(ends: dict[str, float], known: dict[str, float], records: int, little: bool) -> None:
    assert (weak_score(ends, known, records) is not None) == little


@pytest.mark.parametrize(
    ("course", "falls"),
    [
        (lambda t: 1.0 - 0.01 * t, True),
        (lambda t: np.exp(-t / 5.0), False),
        (lambda t: np.exp(-t / 60.0), True),
        (lambda t: 1.0 + 0.01 * t, False),
        (lambda t: np.full_like(t, 0.5), False),
    ],
)
def test_loss_still_falls(course: object, falls: bool) -> None:
    rounds = np.arange(0.0, 51.0, 2.5)
    rows = {"round": rounds, "agent": "mean", "name": "lower_loss", "value": course(rounds)}  # type: ignore[operator]
    assert (loss_trend(pd.DataFrame(rows)) is not None) == falls
    assert loss_trend(pd.DataFrame(rows).iloc[-4:]) is None


@pytest.mark.parametrize(
    ("course", "rises"),
    [
        (lambda t: 0.7 + 0.1 * t, True),
        (lambda t: np.where(t > 10.0, 5.0, 0.7), True),
        # Above its start half-way, and below at the end.
        (lambda t: 0.7 + np.sin(t / 16.0) - 0.01 * t, False),
        (lambda t: np.full_like(t, 0.7) + 0.01 * (t > 0), False),
        (lambda t: np.exp(-t / 5.0), False),
    ],
)
def test_loss_rose(course: object, rises: bool) -> None:
    rounds = np.arange(0.0, 51.0, 2.5)
    rows = {"round": rounds, "agent": "mean", "name": "lower_loss", "value": course(rounds)}  # type: ignore[operator]
    trend = loss_trend(pd.DataFrame(rows), learned_little=True)
    assert (trend is not None and trend.last > trend.first) == rises


@pytest.mark.parametrize(("rounds", "share", "warns"), [(4, 1.0, True), (4, 0.9, False), (40, 1.0, False)])
def test_a_short_run_that_clips_all_gradients_has_a_warning(
    tmp_path: Path, rounds: int, share: float, warns: bool
) -> None:
    result = read_result(write_run(tmp_path / "run", rounds=rounds, changes={"diagnostics": {"clipped": {"y": share}}}))
    text = f"All gradients are clipped after {rounds} rounds. Fix: increase algorithm.rounds."
    assert (("Warning", text) in score_notes(result)) == warns


@pytest.mark.parametrize(("share", "warns"), [(0.4, False), (0.6, True)])
def test_a_feature_that_is_mostly_outside_its_range_has_a_warning(tmp_path: Path, share: float, warns: bool) -> None:
    diagnostics = {"features_cut": {"age": share, "dose": 0.1}}
    result = read_result(write_run(tmp_path / "run", changes={"diagnostics": diagnostics}))
    text = "Most values of age lie outside problem.scale. Fix: correct problem.scale."
    assert (("Warning", text) in score_notes(result, brief=True)) == warns
