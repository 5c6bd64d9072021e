"""Plans and settings depend on public facts only: no feature and no label changes them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from decentral_dp.config import components, scenario_components
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import Dataset, Shards
from decentral_dp.data.shards import reads_labels
from decentral_dp.simulation.folder.layout import resolved_toml
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.plan import Plan
from tests.golden.cases import SCENARIOS, SHIPPED, plan_overrides, scenario_names
from tests.support.leaves import differing, leaves

# Fields of a job that hold records, or a digest of them that keys the noise.
PRIVATE = {"records", "test", "root", "features", "labels", "digest", "features_cut", "labels_cut"}


def features_of(dataset: Dataset, world: int) -> Any:
    """Return features that are 0 except for one in the first data set, and large and of one sign in the second."""
    low, high = dataset.bounds or (-1e3, 1e3)
    out = np.zeros(dataset.features.shape) if world == 0 else np.linspace(0.5 * high, high, dataset.features.size)
    out = np.clip(out.reshape(dataset.features.shape), low, high)
    out[0, 0] = (low, high)[world]
    return out


def labels_of(labels: Any, classes: int, world: int) -> Any:
    """No record has the same label in both worlds, and neither have their shares and means."""
    rare = np.arange(labels.size) % 8 == 0
    if classes:
        return ((rare + world) % classes).astype(labels.dtype)
    return np.where(rare, 1.0, 0.0) if world == 0 else np.where(rare, -50.0, 30.0)


class World:
    """A data set of public sizes whose records are all others than those of another number."""

    def __init__(self, number: int, patch: pytest.MonkeyPatch) -> None:
        self.number, self.load, self.make_shards = number, components.load_dataset, scenario_components.make_shards
        self.was_loaded = 0
        patch.setattr(components, "load_dataset", self.loaded)
        patch.setattr(scenario_components, "make_shards", self.sharded)

    def loaded(self, *args: Any, seed: int, **kwargs: Any) -> Dataset:
        """Load records, with another seed for synthetic ones."""
        dataset = self.load(*args, seed=seed + self.number, **kwargs)
        self.was_loaded += 1
        return replace(dataset, features=features_of(dataset, self.number))

    def sharded(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Shards:
        """Records as agents have them: labels that decide who holds which record are replaced after that.

        Features of the first world are 0 once they have been scaled, too.
        """
        by_label = reads_labels(kwargs["partition_spec"]) or kwargs["construction"] is not None
        if not by_label:
            dataset = replace(dataset, labels=self.labels(dataset))
        shards = self.make_shards(dataset, *args, **kwargs)
        if self.number == 0:
            shards = replace(shards, features=np.zeros_like(shards.features))
        return replace(shards, labels=self.labels(shards)) if by_label else shards

    def labels(self, data: Dataset | Shards) -> Any:
        if data.trajectory is not None:
            return np.full(data.labels.size, (1, data.trajectory[0])[self.number])
        return labels_of(data.labels, len(data.classes), self.number)


def facts(job: PlannedJob) -> dict[str, Any]:
    """Return all facts that are fixed before a run."""
    plan = Plan.from_job(job)
    ledger = plan.ledger
    return {
        "text": str(plan),
        "scenario": resolved_toml(job.components, job.topology),
        **{f"ledger.{column}": ledger[column].to_numpy() for column in ledger},
        **dict(leaves(job, "job", PRIVATE)),
        **dict(leaves(plan, "plan", PRIVATE)),
    }


def require_equal(one: PlannedJob, other: PlannedJob) -> None:
    """All records of two jobs differ, and nothing else."""
    assert (np.abs(one.shards.features - other.shards.features).max(axis=1) > 0.0).all()
    assert (one.shards.labels != other.shards.labels).all()
    assert differing(facts(one), facts(other)) == []


# Kind of problem → the extra that it needs.
EXTRAS = {"mspbe": "gymnasium"} | dict.fromkeys(
    ("auc_maximisation", "dro", "kl_dro", "wgan", "own_losses:problem"), "torch"
)


@pytest.mark.parametrize("name", scenario_names())
def test_no_record_moves_a_plan_or_a_setting(name: str) -> None:
    kind = load(str(SCENARIOS[name]), plan_overrides(name)).problem.kind
    if kind in EXTRAS:
        pytest.importorskip(EXTRAS[kind])

    def job(number: int) -> PlannedJob:
        with pytest.MonkeyPatch.context() as patch:
            world = World(number, patch)
            made: PlannedJob = build_job(load(str(SCENARIOS[name]), plan_overrides(name)))
        assert world.was_loaded
        return made

    require_equal(job(0), job(1))


@pytest.mark.parametrize("kind", ["as shipped", "training"])
def test_no_cell_of_a_file_moves_a_plan_or_a_setting(kind: str, tmp_path: Path) -> None:
    """Every cell except owners and splits is changed."""
    table, file = pd.read_csv(SHIPPED / "own_records.csv"), tmp_path / "records.csv"

    def job(number: int) -> PlannedJob:
        changed = table.copy()
        for column in ("age", "weight", "pressure", "pulse"):
            changed[column] = np.linspace(90, 91, len(table)) if number else 0
        rare = np.arange(len(table)) % 8 == 0
        changed["outcome"] = np.where(rare == bool(number), "no", "yes")
        changed.to_csv(file, index=False)
        content = tomllib.loads((SHIPPED / "own_csv.toml").read_text(encoding="utf-8"))
        content["problem"]["data"] = str(file)
        if kind == "training":
            del content["problem"]["validation"]
            content["problem"]["kind"] = "classification"
            changed.assign(split=table["split"].replace("validation", "train")).to_csv(file, index=False)
            content["algorithm"] = {"kind": "dp_dsgd", "rounds": 40}
            content["privacy"] = {"mechanism": "gaussian", "epsilon": 6.0}
        made: PlannedJob = build_job(content)
        return made

    require_equal(job(0), job(1))
