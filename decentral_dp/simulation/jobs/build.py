"""From a scenario to a job: data, problem, topology, algorithm and noise, with the ledger planned and priced.

Whatever leaks around the ledger is refused here under `certified`: scaling fitted on the data, classes discovered from
labels, missing clips.

The root of a job's keyed noise: secret, or of the seed; and a digest of all that an interrupted run is resumed on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Unpack

import numpy as np

from decentral_dp.config.components import Components, Objects, load_components
from decentral_dp.config.loading import Source, nearest_of
from decentral_dp.config.scenario_components import check_run_device, check_sizes
from decentral_dp.config.schema import set_file
from decentral_dp.engines import ray_cores
from decentral_dp.errors import InputError, needing, quoted
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.randomness import Root, secret_root, seeded_root
from decentral_dp.problems.class_measures import CLASS_MEASURES, OF_TWO_CLASSES
from decentral_dp.problems.protocol import Classifying
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import MEASURES
from decentral_dp.simulation.summary import setting_of


def noise_root(seed: int | None) -> Root:
    """Return the root of every keyed draw of a job.

    With a seed it depends on the seed only: draws of the same agent, channel and release are identical in every
    scenario, so that runs differ by their algorithms and graphs and not by their noise. Whoever knows the seed can
    subtract the noise, and whoever has two such runs can cancel it: they are simulations. Without a seed no two jobs
    share a root.

    Args:
        seed: of the scenario; None for secret noise.

    Returns:
        32 bytes of the seed; secret ones of the operating system without a seed.
    """
    return secret_root() if seed is None else seeded_root(seed, b"run")


def run_digest(job: PlannedJob) -> str:
    """Return a digest of all that decides what a job releases, by which an interrupted run is resumed on the same.

    Equal noise on other records or at other scales would cancel in a difference: the scenario as written, the files it
    names, the records as loaded, the sources of components from outside. It depends on nothing that this package
    derives, and on no default.
    """
    c, shards, mechanism = job.components, job.shards, job.mechanism
    s = c.scenario
    content = s.model_dump(
        mode="json",
        exclude={"seed", "run", "title", "description", "code_folders", "versions", "objects"},
        exclude_none=True,
        exclude_defaults=True,
    )
    # pydantic does not know the defaults of a problem's own keys.
    for key in () if c.problem_entry is None else c.problem_entry.keys:
        if key.name in content["problem"] and content["problem"][key.name] == key.default:
            del content["problem"][key.name]
    if s.run.device != "cpu":
        # Another device rounds otherwise.
        content["device"] = s.run.device
    # The same file is the same scenario, from wherever it is named.
    for place, path in c.files.items():
        set_file(content, place, digest_of_file(path))
    if s.problem.manifest is not None:
        # All that it says is in the digest of the records, wherever it and the files of agents are.
        content["problem"].update(data="", manifest="")
    content["given"] = {
        "seed": s.seed,
        "given": c.digests,
        "algorithm": c.algorithm.source,
        "mechanism": f"{mechanism.options} {mechanism.source}" if isinstance(mechanism, OutsideMechanism) else "",
        "records": shards.digest.hex(),
    }
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=32).hexdigest()


def build_job(scenario: Source, **objects: Unpack[Objects]) -> PlannedJob:
    """Load a scenario, and plan its job.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        **objects: Python objects in place of the components that it names.

    Raises:
        InputError: as of `load_components` and `plan_job`.
    """
    return plan_job(load_components(scenario, **objects))


def plan_job(c: Components) -> PlannedJob:
    """Make every object that a scenario names, plan all releases, and compute their ε.

    Args:
        c: the names of the scenario, looked up.

    Returns:
        The job, of the class of its setting, with its noise key. Its `budget` is the privacy cost of a run.

    Raises:
        InputError: the scenario does not fit its components, or has no proof.
    """
    check_run_device(c)
    check_sizes(c)
    asked = c.scenario.run.measures
    unknown = next((name for name in asked or () if name not in MEASURES and not c.problem.is_outside), None)
    if unknown is not None:
        raise InputError(f"run.measures: no measure {quoted(unknown)}{nearest_of(unknown, list(MEASURES))}.")
    # One-level training has all measures of probabilities by default.
    of_classes = tuple(CLASS_MEASURES) if asked is None and c.one_level else measures_of_classes(asked or ())
    with needing(f"problem.kind = {quoted(c.scenario.problem.kind)}"):
        job = replace(setting_of(c.algorithm.setting).build(c), of_classes=of_classes)
    _check_probabilities(job)
    return job.with_root(noise_root(c.scenario.seed))


def with_blocks(job: PlannedJob) -> PlannedJob:
    """Put a number in the place of `run.agents_per_actor = "auto"`.

    It is the least at which no core has two actors, ⌈m / cores⌉; 1 where agents have machines of their own
    (`run.place`). The folder of a run keeps the number: `resume` hosts the agents alike on any cluster. What is
    released does not depend on it.

    Raises:
        InputError: the cluster is not there.
    """
    table = job.scenario.run
    if table.engine != "ray" or table.agents_per_actor != "auto":
        return job
    each = 1 if table.place is not None else math.ceil(job.n_agents / ray_cores())
    settled = job.scenario.model_copy(update={"run": table.model_copy(update={"agents_per_actor": each})})
    return replace(job, components=replace(job.components, scenario=settled))


def measures_of_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Choose of `CLASS_MEASURES` those that measured names say, whatever else a name says.

    Example:
        >>> measures_of_classes(["rounds_to_test_auc_0.9", "test_brier_min", "auc"])
        ('auc', 'brier')
    """
    text = " ".join(names)
    return tuple(name for name in CLASS_MEASURES if f"test_{name}" in text)


def _check_probabilities(job: PlannedJob) -> None:
    """Refuse measures of probabilities that are asked for if the problem has none; no record is read."""
    if not job.of_classes or job.scenario.run.measures is None or job.solves != "bilevel":
        return
    problem, classes = job.problem, 0
    has_probabilities = isinstance(problem, Classifying)
    if has_probabilities and not job.shards.is_elsewhere:
        synthetic = problem.prepare(np.zeros((1, job.shards.features.shape[1])), np.zeros(1), job.clip.norm)
        tasks = problem.probabilities(np.zeros(problem.p), np.zeros(problem.q), synthetic)
        classes = tasks[0][0].shape[1] if tasks else 0
    missing = [name for name in job.of_classes if not classes or (classes > 2 and name in OF_TWO_CLASSES)]
    if missing:
        where = ", whose records are with their agents," if job.shards.is_elsewhere else ""
        raise InputError(
            f'run.measures: "test_{missing[0]}" needs probabilities of {"two " if classes else ""}classes, and '
            f"{job.components.problem.name}{where} has {classes or 'none'}. Fix: take "
            f'"test_{"balanced_accuracy" if classes else "loss"}".'
        )
