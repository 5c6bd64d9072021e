"""Export of a scenario's records: one file for each agent, a public manifest, and a scenario that reads them."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from decentral_dp.config.components import Components, load_components
from decentral_dp.config.scenario_components import NOT_BESIDE, deal
from decentral_dp.config.schema import Scenario, set_file
from decentral_dp.data import Dataset, Shards, declared_ranges
from decentral_dp.data.agent_shards import AGENT, SECRET, Manifest, ShardEntry, digest_of_shard
from decentral_dp.files.durable import write_synced

FILES = f"agent-{AGENT}.npz"
MANIFEST, SCENARIO = "manifest.toml", "scenario.toml"
# Keys of the scenario that the files say instead.
_KEYS_IN_FILES = ("label", "validation", "synthetic", "columns", *NOT_BESIDE)


def write_shards(
    scenario: str | Path | Mapping[str, Any] | Scenario, out: str | Path, overrides: Sequence[str] = ()
) -> list[Path]:
    """Write one file per agent with its records, partitioned by the scenario and not scaled.

    Every file has 32 random bytes. With them its digest does not reveal whether a guess of the records is right, and
    secret noise is drawn with them. Test records are assigned to agents in turn.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario with its records.
        out: new or empty folder.
        overrides: "table.key=value" with a TOML value.

    Returns:
        The paths of the files of agents, the manifest, and a scenario that names them. Only the owner can read the
        files of agents.
    """
    c, out = load_components(scenario, overrides), Path(out)
    s = c.scenario
    n_agents = c.topology.make().n_agents
    as_loaded = {"scale": "none", "normalise": "none", "label_range": None}
    unscaled_scenario = s.model_copy(update={"problem": s.problem.model_copy(update=as_loaded)})
    shards = deal(replace(c, scenario=unscaled_scenario), n_agents)[0]
    dataset = c.data.make(n_agents, False)
    out.mkdir(parents=True, exist_ok=True)
    entries, paths = [], []
    for agent in range(n_agents):
        path = out / FILES.replace(AGENT, str(agent))
        parts = {
            "train": shards.train[agent],
            "validation": shards.validation[agent],
            "test": shards.test[agent::n_agents],
        }
        write_synced(path, _archive(shards, parts), mode=0o600)
        counts = {name: part.size for name, part in parts.items()}
        entries.append(ShardEntry(**counts, sha256=digest_of_shard(path)))
        paths.append(path)
    manifest = Manifest(
        source=shards.source,
        features=shards.feature_names,
        classes=shards.classes,
        range=dataset.bounds,
        image=shards.image,
        notes=shards.all_notes,
        agents=tuple(entries),
    )
    write_synced(out / MANIFEST, tomli_w.dumps(manifest.model_dump(mode="json", exclude_none=True)).encode())
    write_synced(out / SCENARIO, _scenario(c, dataset).encode())
    return [*paths, out / MANIFEST, out / SCENARIO]


def _archive(shards: Shards, parts: dict[str, Any]) -> bytes:
    index = np.concatenate(list(parts.values()))
    labels = shards.labels[index]
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {
        "X": shards.features[index],
        "y": np.array(shards.classes)[labels.astype(np.int64)] if shards.classes else labels,
        "split": np.repeat(list(parts), [part.size for part in parts.values()]),
        SECRET: np.frombuffer(os.urandom(32), dtype=np.uint8),
    }
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _scenario(c: Components, dataset: Dataset) -> str:
    """Return the text of the scenario with the files of agents as its data."""
    content = c.scenario.model_dump(exclude_unset=True, exclude_none=True)
    for place, path in c.files.items():
        if place != ("problem", "data"):
            set_file(content, place, str(path))
    if folders := [str(path.parent) for path in c.scenario.code_files().values()]:
        content["code_folders"] = list(dict.fromkeys(folders))
    problem = {key: value for key, value in content["problem"].items() if key not in _KEYS_IN_FILES}
    if c.scenario.problem.columns is not None and problem.get("scale", "none") != "none":
        # Derived features have other ranges than the columns.
        limits = declared_ranges(dataset, c.scenario.problem.scale)
        rows = zip(dataset.feature_names, *(part.tolist() for part in limits), strict=True)
        problem["scale"] = {name: {"low": low, "high": high, "log": log} for name, low, high, log in rows}
    return tomli_w.dumps(content | {"problem": problem | {"data": FILES, "manifest": MANIFEST}})
