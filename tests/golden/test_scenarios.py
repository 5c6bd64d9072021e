"""Every shipped scenario gives the plan and the releases that were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.checks import checked

from . import measure, record
from .cases import ON_RAY, SEARCHED, is_planned_only, scenario_names
from .compare import CALIBRATED, ELSEWHERE, EXACT, FROM_VALUES, array_differences, differences

ELSEWHERE_REASON = "this processor or its libraries round otherwise than those of the record: last bits differ"


def _recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = record.load(record.DATA, name)
    return found


def _same_processor(recorded: dict[str, Any]) -> bool:
    return bool(recorded["canary"] == measure.canary())


@pytest.fixture(scope="module", params=scenario_names())
def name(request: pytest.FixtureRequest) -> str:
    """Return a scenario's name; module scope lets all tests of a scenario share its plan and its run."""
    return str(request.param)


def _is_run(name: str) -> None:
    if is_planned_only(name):
        pytest.skip("its records are OpenML's: it is planned, and not run")


def test_plan(name: str) -> None:
    job = measure.planned(name)
    assert job.rounds == job.scenario.algorithm.rounds
    tolerance = EXACT if job.scenario.privacy.epsilon is None else CALIBRATED
    assert not differences(measure.plan(name), _recorded(name)["plan"], tolerance)


def test_seeded_releases_to_the_bit(name: str) -> None:
    _is_run(name)
    recorded = _recorded(name)
    if not _same_processor(recorded):
        pytest.skip(ELSEWHERE_REASON)
    assert not differences(measure.seeded(name), recorded["seeded"])


def test_a_short_run_is_what_every_run_is(name: str) -> None:
    _is_run(name)
    run = measure.performed(name, noise=True)
    assert run.result["engine"] == "local"
    checked(run, min(2, measure.planned(name).scenario.algorithm.rounds))


def test_releases_without_noise(name: str) -> None:
    _is_run(name)
    recorded = _recorded(name)
    elsewhere = FROM_VALUES if name in SEARCHED else ELSEWHERE
    tolerance = EXACT if _same_processor(recorded) else elsewhere
    found, wanted = measure.noise_free(name), recorded["noise_free"]
    assert found["status"] == wanted["status"]
    assert not differences(found["ledger"], wanted["ledger"], tolerance)
    assert found["released"].keys() == wanted["released"].keys()
    for channel, value in found["released"].items():
        assert not array_differences(value, wanted["released"][channel], tolerance, channel)


def test_ray_gives_the_same(name: str, request: pytest.FixtureRequest) -> None:
    _is_run(name)
    if name not in ON_RAY and not request.config.getoption("--all-on-ray"):
        pytest.skip("one scenario of each kind is run on Ray; --all-on-ray runs every one")
    request.getfixturevalue("ray_cluster")
    recorded = _recorded(name)
    local, remote = measure.finished(name).released, measure.finished_on_ray(name).released
    assert remote.keys() == local.keys()
    for channel, value in local.items():
        largest = np.abs(value).max(initial=0.0)
        np.testing.assert_allclose(remote[channel], value, rtol=0, atol=ELSEWHERE * largest, err_msg=channel)
    if not _same_processor(recorded):
        pytest.skip(ELSEWHERE_REASON)
    assert not differences(measure.bits(remote), recorded["ray"])
