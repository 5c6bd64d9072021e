"""The root of a job's keyed noise: secret, or a digest of what was given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from decentral_dp.config import outside_components as outside
from decentral_dp.config.algorithm_components import outside_source
from decentral_dp.config.schema import Scenario, put
from decentral_dp.data import COLLECTIONS, FILED, Shards
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.mechanisms import Mechanism
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.randomness import Root, secret_root, seeded_root

# Another version redraws every seeded run: folders say which one theirs was.
VERSION = 2


def noise_root(s: Scenario, shards: Shards, mechanism: Mechanism) -> Root:
    """The root of every keyed draw of a job.

    Equal noise on other records or at other scales would cancel in a difference, so it depends on all that decides
    what is released: the scenario as written, the files it names, the records as loaded, the sources of components
    from outside. It depends on nothing that this package derives, and on no default: another processor, or a version
    that knows one more key, draws the same noise.

    Args:
        s: the scenario.
        shards: its records, whose digest was taken before any arithmetic.
        mechanism: the law of noise.

    Returns:
        32 bytes; secret ones of the operating system where the scenario has no seed.
    """
    if s.seed is None:
        return secret_root()
    content = s.model_dump(
        mode="json",
        exclude={"run", "title", "description", "versions", "objects", "run_graph"},
        exclude_none=True,
        exclude_defaults=True,
    )
    if s.run.device != "cpu":
        # Another device rounds otherwise.
        content["device"] = s.run.device
    # The same file is the same scenario, from wherever it is named.
    for place, path in s.files().items():
        put(content, place, digest_of_file(path))
    if s.problem.manifest is not None:
        # All that it says is in the digest of the records, wherever it and the files of agents are.
        content["problem"].update(data="", manifest="")
    # Images are told by their contents and by which of them are for testing, wherever their files are.
    content["problem"].pop("files", None)
    given = outside.fingerprints(s)
    if s.run_graph is not None and table_digest(content["topology"]) == s.run_graph.digest:
        # The graph of a run that had it as an object: the noise of that run is drawn again.
        content["topology"] = json.loads(s.run_graph.table)
        given["topology"] = s.run_graph.given
    filed = s.problem.data in (*COLLECTIONS, *FILED)
    content["root"] = {
        "version": VERSION,
        "given": given,
        "algorithm": outside_source(s),
        "mechanism": f"{mechanism.options} {mechanism.source}" if isinstance(mechanism, OutsideMechanism) else "",
        "records": shards.digest.hex(),
        "test": blake2b(shards.test.tobytes()).hexdigest() if filed else "",
    }
    return seeded_root(s.seed, json.dumps(content, sort_keys=True).encode())


def topology_table(s: Scenario) -> dict[str, Any]:
    """The table [topology] as the root has it: with the digest of a file in the place of its name."""
    content = {"topology": s.topology.model_dump(mode="json", exclude_none=True, exclude_defaults=True)}
    for place, path in s.files().items():
        if place[0] == "topology":
            put(content, place, digest_of_file(path))
    return content["topology"]


def table_digest(table: Mapping[str, Any]) -> str:
    """A digest of a table as the root has it."""
    return blake2b(json.dumps(table, sort_keys=True).encode(), digest_size=16).hexdigest()
