"""Planned jobs from scenarios: objects, ledger and ε, the noise key, and the digest that a resumed run must match."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Unpack

import numpy as np

from decentral_dp.config.components import Components, Objects, load_components
from decentral_dp.config.loading import Source
from decentral_dp.config.scenario_components import check_run_device, check_sizes
from decentral_dp.config.schema import set_file
from decentral_dp.engines import ray_cores
from decentral_dp.errors import InputError, nearest_of, needing, quoted
from decentral_dp.privacy.custom_mechanism import OutsideMechanism
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.randomness import secret_root, seeded_root
from decentral_dp.problems.class_measures import CLASS_MEASURES, OF_TWO_CLASSES
from decentral_dp.problems.reference import REFERENCE_MEASURES
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import MEASURES
from decentral_dp.simulation.sites import SITE_MEASURES
from decentral_dp.simulation.summary import setting_of


def run_digest(job: PlannedJob) -> str:
    """Hash everything that determines the releases of a job, so that a run is resumed on identical inputs only.

    Equal noise on different records or at different scales would cancel in a difference. The digest covers the
    scenario, the files that it names, the records as loaded, and the sources of custom components. It does not depend
    on default values.
    """
    c, shards, mechanism = job.components, job.shards, job.mechanism
    s = c.scenario
    content = s.model_dump(
        mode="json",
        exclude={"seed", "run", "title", "description", "code_folders", "versions", "objects"},
        exclude_none=True,
        exclude_defaults=True,
    )
    # Defaults of a problem's keys are outside of pydantic.
    for key in () if c.problem_entry is None else c.problem_entry.keys:
        if key.name in content["problem"] and content["problem"][key.name] == key.default:
            del content["problem"][key.name]
    if s.run.device != "cpu":
        # Devices round differently.
        content["device"] = s.run.device
    # A file counts by its content, not by its path.
    for place, path in c.files.items():
        set_file(content, place, digest_of_file(path))
    if s.problem.manifest is not None:
        # Its content is part of the digest of the records.
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
    """Load a scenario and plan its job.

    Args:
        scenario: name of a shipped scenario, path, dict of the same shape, or loaded scenario.
        **objects: Python objects that replace the components that the scenario names.

    Raises:
        InputError: `load_components` or `plan_job` refuses the scenario.
    """
    return plan_job(load_components(scenario, **objects))


def plan_job(c: Components) -> PlannedJob:
    """Build every object that a scenario names, plan all releases, and compute their ε.

    Args:
        c: components of the scenario.

    Returns:
        The job, an instance of the class of its setting, with its noise key. Its `budget` is the privacy cost of a run.

    Raises:
        InputError: the scenario does not fit its components, or has no proof.
    """
    check_run_device(c)
    check_sizes(c)
    measures = c.scenario.run.measures
    unknown = next((name for name in measures or () if name not in MEASURES and c.problem_entry), None)
    if unknown is not None:
        raise InputError(f"run.measures: unknown measure {quoted(unknown)}{nearest_of(unknown, list(MEASURES))}")
    # One-level training has all measures of probabilities by default.
    requested = tuple(CLASS_MEASURES) if measures is None and c.one_level else requested_measures(measures or ())
    with needing(f"problem.kind = {quoted(c.scenario.problem.kind)}"):
        job = replace(setting_of(c.algorithm.setting).build(c), requested=requested)
    _check_probabilities(job)
    seed = c.scenario.seed
    # A seeded key depends on the seed only: draws of one agent, channel and release are identical in every scenario. An
    # adversary that knows the seed subtracts the noise: seeded runs are simulations. Secret keys differ between jobs.
    return job.with_root(secret_root() if seed is None else seeded_root(seed, b"run"))


def with_blocks(job: PlannedJob) -> PlannedJob:
    """Replace `run.agents_per_actor = "auto"` by a number.

    The number is ⌈m / cores⌉, so that no core has two actors, or 1 if each agent has its own machine or file. The run
    folder stores it, so that `resume` makes the same blocks on any cluster. Releases do not depend on it.

    Raises:
        InputError: the cluster cannot be reached.
    """
    table = job.scenario.run
    if table.engine != "ray" or table.agents_per_actor != "auto":
        return job
    has_own = table.place is not None or job.scenario.problem.manifest is not None
    agents_per_actor = 1 if has_own else math.ceil(job.n_agents / ray_cores())
    scenario = job.scenario.model_copy(update={"run": table.model_copy(update={"agents_per_actor": agents_per_actor})})
    return replace(job, components=replace(job.components, scenario=scenario))


def requested_measures(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of metrics that are computed on request.

    Example:
        >>> requested_measures(["rounds_to_test_auc_0.9", "test_brier_min", "auc", "optimality_gap"])
        ('auc', 'brier', 'optimality_gap')
    """
    text = " ".join(names)
    of_classes = (name for name in CLASS_MEASURES if f"test_{name}" in text)
    return (*of_classes, *(name for name in (*REFERENCE_MEASURES, *SITE_MEASURES) if name in text))


def _check_probabilities(job: PlannedJob) -> None:
    """Refuse metrics of probabilities if the problem has no probabilities, without reading a record."""
    if not job.requested or job.scenario.run.measures is None or job.components.problem_type.make_evaluator:
        return
    problem, classes = job.problem, 0
    has_probabilities = hasattr(problem, "probabilities")
    if has_probabilities and job.holds_records:
        synthetic = problem.prepare(np.zeros((1, job.shards.features.shape[1])), np.zeros(1), job.clip.norm)
        tasks = problem.probabilities(np.zeros(problem.p), np.zeros(problem.q), synthetic)
        classes = tasks[0][0].shape[1] if tasks else 0
    missing = [
        name
        for name in job.requested
        if name in CLASS_MEASURES and (not classes or (classes > 2 and name in OF_TWO_CLASSES))
    ]
    if missing:
        note = "" if job.holds_records else ", whose records are with their agents,"
        raise InputError(
            f'run.measures: "test_{missing[0]}" requires probabilities of {"two " if classes else ""}classes, '
            f"but {job.components.problem.name}{note} has {classes or 'none'}. Fix: use "
            f'"test_{"balanced_accuracy" if classes else "loss"}".'
        )
