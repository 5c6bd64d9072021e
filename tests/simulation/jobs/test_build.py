"""The digest on which a run is resumed: of all that decides a release, and of nothing that is derived."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.components import resolve
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import scaling
from decentral_dp.simulation.folder.layout import resolved_toml
from decentral_dp.simulation.jobs.build import build_job, run_digest
from tests.support.processor import narrow_environment

torch = pytest.importorskip("torch")
MAIN = "ring_breast_cancer"
SCENARIOS = Path(decentral_dp.__file__).parents[1] / "scenarios"


def digest(scenario: Any, *changes: str, **objects: Any) -> str:
    return run_digest(build_job(load(scenario, changes), **objects))


@pytest.mark.parametrize("name", [MAIN, "own_csv", "own_losses", "dp_sgda", "regularisation_tuner", "auc_digits"])
def test_a_run_folder_names_the_same_input(name: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(resolved_toml(resolve(load(name))), encoding="utf-8")
    assert digest(path) == digest(name)


def test_a_default_written_out_changes_nothing() -> None:
    assert digest(MAIN, "problem.intercept=false", "run.engine=local") == digest(MAIN)
    assert digest(MAIN, "seed=8") != digest(MAIN)
    assert digest(MAIN, "algorithm.rounds=41") != digest(MAIN)


def test_the_last_bits_of_scaled_records_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor rounds otherwise; the records as loaded are the same."""
    before, plain = digest(MAIN), scaling.normalise

    def elsewhere(*arguments: Any, **options: Any) -> Any:
        scaled = plain(*arguments, **options)
        return scaled._replace(features=np.nextafter(scaled.features, 2.0))

    monkeypatch.setattr(scaling, "normalise", elsewhere)
    assert build_job(load(MAIN)).shards.features.max() > 0.0
    assert digest(MAIN) == before


def test_one_bit_of_one_record_matters() -> None:
    draw = np.random.default_rng(0)
    features, labels = draw.uniform(-1.0, 1.0, (60, 30)), np.arange(60) % 2
    other = features.copy()
    other[7, 3] = np.nextafter(other[7, 3], 2.0)
    changes = ["problem.classes=[0, 1]", "problem.scale=none", "topology.agents=3"]
    digests = {
        digest(MAIN, *changes, data=(f, y)) for f, y in ((features, labels), (other, labels), (features, 1 - labels))
    }
    assert len(digests) == 3
    assert digest(MAIN, *changes, data=(features.copy(), labels.copy())) in digests


def test_the_digest_depends_on_a_files_records_and_not_on_its_path(tmp_path: Path) -> None:
    text = (SCENARIOS / "own_csv.toml").read_text(encoding="utf-8")
    rows = (SCENARIOS / "own_records.csv").read_text(encoding="utf-8")
    digests = []
    for k, change in enumerate((("", ""), ("", ""), ("0", "1"))):
        folder = tmp_path / str(k)
        folder.mkdir()
        (folder / "own_csv.toml").write_text(text, encoding="utf-8")
        lines = rows.splitlines()
        lines[-1] = lines[-1].replace(*change, 1) if change[0] else lines[-1]
        (folder / "own_records.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        digests.append(digest(folder / "own_csv.toml"))
    assert digests[0] == digests[1] != digests[2]


def problem(weight: float) -> Any:
    def loss(x: Any, y: Any, a: Any, b: Any) -> Any:
        return weight * torch.nn.functional.softplus(-b * (a @ y))

    return decentral_dp.from_losses(loss, loss, p=1, q=30, n_features=30)


def test_the_digest_is_equal_in_another_process_and_on_another_processor() -> None:
    text = """
import decentral_dp
from decentral_dp.simulation.jobs.build import build_job, run_digest
print(run_digest(build_job(decentral_dp.load("ring_breast_cancer"))))
"""
    command = [sys.executable, "-c", text]
    out = subprocess.run(command, env=narrow_environment(), capture_output=True, text=True, check=True)
    assert out.stdout.strip() == digest(MAIN)
