"""Loading a complete run from its folder, and resuming it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.errors import InputError

FEW: dict[str, Any] = {"algorithm.rounds": 4}
FEATURES = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 30, 3))
ARRAYS: dict[str, Any] = {"X": list(FEATURES), "y": list((FEATURES[:, :, 0] > 0).astype(int))}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> decentral_dp.Run:
    return decentral_dp.run("dp_dsgd", set=FEW, out=tmp_path_factory.mktemp("runs") / "run", baselines=True)


def test_a_loaded_run_equals_the_run(run: decentral_dp.Run) -> None:
    assert run.folder is not None
    loaded = decentral_dp.Run.load(run.folder)
    assert loaded.result.to_json() == run.result.to_json()
    assert loaded.scenario.privacy == run.scenario.privacy
    pd.testing.assert_frame_equal(loaded.metrics, run.metrics, check_dtype=False)
    pd.testing.assert_frame_equal(loaded.ledger, run.ledger, check_dtype=False, check_categorical=False)
    for part in ("released", "published"):
        mine, theirs = getattr(loaded, part), getattr(run, part)
        assert mine.keys() == theirs.keys()
        for channel, value in theirs.items():
            np.testing.assert_array_equal(mine[channel], value)
    assert loaded.baselines.keys() == run.baselines.keys()
    for name, baseline in run.baselines.items():
        assert loaded.baselines[name].result.to_json() == baseline.result.to_json()
    features = np.zeros((2, 64))
    np.testing.assert_array_equal(loaded.predict(features), run.predict(features))
    assert loaded._repr_html_().count("<svg") == run._repr_html_().count("<svg")
    assert repr(loaded) == repr(run)


def test_a_loaded_run_has_no_records_and_no_private_state(run: decentral_dp.Run) -> None:
    loaded = decentral_dp.Run.load(str(run.folder))
    for read in (loaded.simulation, lambda: loaded.state):
        with pytest.raises(InputError, match="not available in this process"):
            read()


def test_folders_without_a_complete_run_are_refused(tmp_path: Path) -> None:
    for step in decentral_dp.build("dp_dsgd", set=FEW).steps(tmp_path / "run"):
        if step.round == 2:
            break
    with pytest.raises(InputError, match="not complete"):
        decentral_dp.Run.load(tmp_path / "run")
    decentral_dp.resume(tmp_path / "run")
    (tmp_path / "run" / "metrics.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="was changed after the run wrote it"):
        decentral_dp.Run.load(tmp_path / "run")


def test_an_interrupted_run_of_arrays_resumes_with_them(tmp_path: Path) -> None:
    job = decentral_dp.build(**ARRAYS, classes=(0, 1), epsilon=4.0, delta=1e-5, rounds=4, set={"seed": 1})
    for step in job.steps(tmp_path / "run"):
        if step.round == 2:
            break
    with pytest.raises(InputError, match="was a Python object"):
        decentral_dp.resume(tmp_path / "run")
    changes: dict[str, Any] = {"epsilon": 9.0}
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        decentral_dp.resume(tmp_path / "run", classes=(0, 1), **ARRAYS, **changes)
    resumed = decentral_dp.resume(tmp_path / "run", classes=(0, 1), **ARRAYS)
    np.testing.assert_array_equal(resumed.released["y"], job.run().released["y"])
    assert decentral_dp.Run.load(tmp_path / "run").predict(FEATURES[0]).shape == (30,)
