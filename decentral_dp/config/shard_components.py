"""Records that are with their agents, as a scenario names them: by the place of every agent's file, and a manifest."""

from __future__ import annotations

import os
from pathlib import Path

from decentral_dp.config import outside as outside
from decentral_dp.config.problem_components import is_minimax
from decentral_dp.config.problem_schema import Column
from decentral_dp.config.schema import Scenario
from decentral_dp.data.agent_shards import AGENT, AgentShards, public_ranges, read_manifest
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.regular import is_there

# Keys of the [problem] table that say how the records of all are dealt, or read what the manifest tells.
NOT_BESIDE = {
    "partition": "every agent's file says who holds what",
    "test": "the files say which records are for testing",
    "construction": "nobody has all records",
    "limit": "nobody counts the records of all",
    "files": "every agent has one file",
    "features": "the manifest says how many",
    "classes": "the manifest lists them",
}


def place_of(s: Scenario) -> str:
    """Where the agents have their files: an absolute path with {agent}, beside the manifest's own start."""
    place = os.path.expanduser(s.problem.data)
    # Files of agents need not be there, so the manifest tells where relative paths start.
    manifest = os.path.expanduser(s.problem.manifest or "")
    return os.path.abspath((s.folder if is_there(s.folder / manifest) else Path.cwd()) / place)


def agent_shards_of(s: Scenario, n_agents: int) -> AgentShards | None:
    """Where the records are, if they are with their agents; opens the manifest alone.

    Raises:
        InputError: keys that such records do not go with, or a manifest that does not fit.
    """
    table = s.problem
    if table.manifest is None:
        if AGENT in table.data:
            raise InputError(
                f"problem.manifest: missing. Every agent has a file of its own in problem.data = {quoted(table.data)}, "
                'and a public manifest says what they hold. "decentral-dp shards" writes one.'
            )
        return None
    _check(s)
    manifest = read_manifest(s.files().get(("problem", "manifest"), Path(table.manifest)))
    if len(manifest.agents) != n_agents:
        raise InputError(
            f"problem.manifest: it lists {len(manifest.agents)} agents, and the topology has {n_agents}. Make them "
            "equally many."
        )
    scale = s.files().get(("problem", "scale"))
    spec = table.scale if scale is None else str(scale)
    given = table.label_range
    return AgentShards(
        place_of(s),
        manifest,
        table.label,
        table.validation.column if isinstance(table.validation, Column) else None,
        public_ranges(manifest, spec, s.folder),
        table.normalise,
        None if given is None else (given[0], given[1]),
        1 if is_minimax(s) else 2,
    )


def _check(s: Scenario) -> None:
    table = s.problem
    if outside.component(s, "data") is not None:
        raise InputError("problem.manifest: records that are handed over are here already. Leave one of the two out.")
    if AGENT not in table.data:
        raise InputError(
            f"problem.data: got {quoted(table.data)} beside a manifest, wanted the place of every agent's file, such "
            f'as "shards/agent-{AGENT}.npz".'
        )
    for key, why in NOT_BESIDE.items():
        if getattr(table, key) is not None:
            raise InputError(f"problem.{key}: beside problem.manifest it has no use, for {why}. Leave it out.")
    if isinstance(table.validation, float):
        raise InputError(
            "problem.validation: beside problem.manifest every agent's file says which records are for validation. "
            "Leave it out, or name that column."
        )
