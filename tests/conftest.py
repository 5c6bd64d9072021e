"""Small scenarios that many tests share."""

from __future__ import annotations

import copy
import gc
import importlib.util
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from decentral_dp.errors import InputError
from tests import slow_tests
from tests.support.published import as_published

# The duration of an example depends on the machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

BASE: dict[str, Any] = {
    "seed": 3,
    "problem": {
        "kind": "logistic_hyperparameter",
        "data": "breast_cancer",
        "scale": "public_ranges",
        "normalise": "l1",
        "test": 0.2,
    },
    "topology": {"kind": "ring", "agents": 5},
    "algorithm": {
        "kind": "ldp_dsbo",
        "rounds": 6,
        "x": {"scale": 0.2, "decay": 0.5},
        "y": {"scale": 1.0, "decay": 0.4},
        "z": {"scale": 0.5, "decay": 0.3},
        "init": {"x": -2.0},
    },
    "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
    "run": {"evaluate_every": 3},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-on-ray", action="store_true", help="run every golden scenario on Ray, not one of each kind")
    choices = ["all", "none", "record", *map(str, range(slow_tests.PARTS))]
    parser.addoption("--slow", choices=choices, help="which slow tests to run: all, none, or one of 24 parts, from 0")


def pytest_configure(config: pytest.Config) -> None:
    slow_tests.configure(config)


# Missing optional packages.
ABSENT = [name for name in ("torch", "gymnasium") if importlib.util.find_spec(name) is None]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect tests without searching for garbage, which takes a third of it. Modules and tests stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip a test that needs an extra which is not installed."""
    try:
        return (yield)
    except InputError as error:
        for name in ABSENT:
            if re.search(rf"\b{name}\b.*is not installed", str(error)):
                pytest.skip(f"{name} is not installed")
        raise


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests write nothing to the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(base)
    for key, value in change.items():
        inner = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merge(out[key], value) if inner else copy.deepcopy(value)
    return out


@pytest.fixture
def scenario() -> Callable[..., dict[str, Any]]:
    """A small certified scenario; keyword tables change it: scenario(algorithm={"rounds": 2})."""

    def make(**changes: Any) -> dict[str, Any]:
        return as_published(_merge(BASE, changes))

    return make


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Any]:
    """The command line in this process and an empty folder, 100 columns wide."""
    from tests.support.commands import entry_point

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    with entry_point(monkeypatch, capsys) as call:
        yield call


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write run folders without figures, which are slow, for tests of something else."""
    monkeypatch.setattr("decentral_dp.reporting.plots.write_plots", lambda *_, **_named: [])


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """Start one small Ray cluster for all tests of a file. Later files must not be connected."""
    import ray

    with pytest.MonkeyPatch.context() as patched:
        # A thread of Ray would log unhandled errors of actors into another test.
        patched.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()
