"""From a scenario to a job: data, problem, topology, algorithm and noise, with the ledger planned and priced.

Whatever leaks around the ledger is refused here under `certified`: scaling fitted on the data, classes discovered from
labels, missing clips.

The root of a job's keyed noise: secret, or a digest of what was given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from decentral_dp.algorithms.messages import Checked
from decentral_dp.algorithms.protocol import Algorithm, Counts
from decentral_dp.bounded import Norm, Split
from decentral_dp.config import outside as outside
from decentral_dp.config.algorithm_components import algorithm_of, is_coordinated, outside_source, with_algorithm
from decentral_dp.config.loading import load_with_records
from decentral_dp.config.missing_keys import all_at_once
from decentral_dp.config.problem_components import check_device, is_minimax, minimax_of, problem_of
from decentral_dp.config.scenario_components import (
    check_sizes,
    mechanism_of_scenario,
    shards_of,
    stream_of,
    topology_of,
    with_mechanism,
)
from decentral_dp.config.schema import Scenario, by_channel, put
from decentral_dp.config.shard_components import agent_shards_of
from decentral_dp.data import COLLECTIONS, FILED, Shards
from decentral_dp.engines import cores
from decentral_dp.errors import InputError, needing, quoted
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE, NO_NOISE, Mechanism
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.mechanisms.scheduled_releaser import NoiseSchedule
from decentral_dp.privacy.randomness import Root, secret_root, seeded_root
from decentral_dp.problems.protocol import Problem
from decentral_dp.simulation.jobs.agent_records import RecordsElsewhere, held_out, noted, records_in
from decentral_dp.simulation.jobs.coordinator_plan import (
    bounded_labels,
    check_coordinated,
    context_of,
    minimax_context,
    plan_of,
    require_answers,
)
from decentral_dp.simulation.jobs.gossip_plan import (
    calibrated_schedules,
    calibration_rounds,
    capped,
    charged_channels,
    check_domain,
    clips,
    plan,
    require_calibrated,
    schedules,
)
from decentral_dp.simulation.jobs.job import CoordinatorBilevelJob, CoordinatorMinimaxJob, GossipJob, Job
from decentral_dp.simulation.probing.rehearsal import needs_rehearsal, rehearse, try_rows
from decentral_dp.simulation.statements.statement import Setting

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


def build(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    problem: Problem | None = None,
    algorithm: Any = None,
    mechanism: Any = None,
    topology: Any = None,
    data: Any = None,
    partition: Any = None,
) -> Job:
    """Build everything that a scenario names, and plan and price its releases.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        problem: used instead of the one that the scenario names: one made with `from_losses`, or an instance of a class
            as docs/add_a_problem.md describes it.
        algorithm: used instead of the one that the scenario names: a dataclass with its fields filled in.
        mechanism: used instead of privacy.mechanism: an object of your own (see `docs/add_a_mechanism.md`).
        topology: used instead of the one that the scenario names: a `networkx.Graph`, a `Topology`, or pairs of agents.
        data: used instead of what the scenario names: (features, labels), a table of columns, a pandas `DataFrame`
            whose label column is problem.label, or a `Dataset`.
        partition: used instead of the one that the scenario names: a function, as in a file.

    Returns:
        A `GossipJob`, `CoordinatorBilevelJob` or `CoordinatorMinimaxJob`; its `budget` is what a run would cost.

    Raises:
        InputError: one sentence about whatever does not fit.

    Example:
        >>> import decentral_dp
        >>> job = decentral_dp.build("quadratic")
        >>> job.setting, job.n_agents
        ('gossip', 8)
    """
    s = scenario if isinstance(scenario, Scenario) else load_with_records(scenario, (), data, topology)
    given = outside.GivenComponents(problem, topology, data, partition)
    handed = {**vars(given), "algorithm": algorithm, "mechanism": mechanism}
    s = outside.require_objects(s, [what for what, part in handed.items() if part is not None])
    s = outside.with_given(s, given)
    s = s if algorithm is None else with_algorithm(s, algorithm)
    s, chosen = (s, None) if mechanism is None else with_mechanism(s, mechanism)
    job = assembled(s, chosen)
    try_rows(job)
    if needs_rehearsal(job):
        rehearse(job, lambda shards: records_of(job, shards))
    return job


def hosted(job: Job) -> Job:
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
    each = 1 if table.place is not None else math.ceil(job.n_agents / cores(table.address))
    settled = table.model_copy(update={"agents_per_actor": each})
    return replace(job, scenario=job.scenario.model_copy(update={"run": settled}))


def records_of(job: Job, shards: Shards) -> dict[Split, tuple[Any, ...]]:
    """Records of other shards, as the job's problem reads them."""
    return records_in(job.problem, shards, job.clip.norm)


def assembled(s: Scenario, chosen: Mechanism | None = None) -> Job:
    """The job of a scenario, planned and priced, of which nothing was tried yet: `build` is for whatever will run.

    Raises InputError for whatever does not fit.
    """
    try:
        return _assembled(s, chosen)
    except InputError as error:
        raise all_at_once(error, s.model_dump(exclude_unset=True), sorted(s._given)) from None


def _assembled(s: Scenario, chosen: Mechanism | None) -> Job:
    setting = setting_of(s)
    check_device(s)
    check_sizes(s)
    with needing(f"problem.kind = {quoted(s.problem.kind)}"):
        match setting:
            case "gossip":
                return _gossip(s, chosen)
            case "coordinator_bilevel":
                return _coordinated(s, CoordinatorBilevelJob, problem_of, context_of)
            case "coordinator_minimax":
                return _coordinated(s, CoordinatorMinimaxJob, minimax_of, minimax_context)


def setting_of(s: Scenario) -> Setting:
    """Who trusts whom, and what is solved. Raises InputError where no such algorithm is known."""
    if not is_coordinated(s):
        return "gossip"
    return "coordinator_minimax" if is_minimax(s) else "coordinator_bilevel"


def _gossip(s: Scenario, given: Mechanism | None) -> GossipJob:
    _check_guarantee(s)
    topology = topology_of(s)
    shards = noted(s, shards_of(s, topology.n_agents))
    problem = problem_of(s, shards)
    privacy, guarantee = s.privacy, s.privacy.guarantee
    algorithm = cast(Algorithm, algorithm_of(s))
    if isinstance(algorithm, Checked):
        algorithm.check(problem.p, problem.q)
    channels = algorithm.releases(problem.p, problem.q)
    check_domain(s, channels, algorithm.central)
    chosen: Mechanism = given or mechanism_of_scenario(s)
    clip = clips(s, channels, problem, chosen)
    constants = problem.constants(by_channel(privacy.box), shards.l1) if guarantee == "as_printed" else None
    stream = stream_of(s)
    counts: Counts = {"train": shards.train_counts, "validation": shards.validation_counts}
    mechanism = NO_NOISE if guarantee == "none" else chosen

    def planned(noise: Mapping[str, NoiseSchedule], rounds: int, final: bool = True) -> Ledger:
        weight = topology.neighbour_weight
        return plan(algorithm, problem, counts, stream, weight, clip, constants, rounds, mechanism, noise, final)

    rounds = s.algorithm.rounds
    charged = charged_channels(channels, problem)
    first = calibration_rounds(s)
    noise = {} if mechanism == NO_NOISE else schedules(s, charged, topology.n_agents)
    if privacy.epsilon is not None and mechanism != NO_NOISE:
        target = planned(noise, first, final=False)
        noise = calibrated_schedules(s, charged, noise, target, mechanism)
        if first < rounds:
            require_calibrated(planned(noise, rounds, final=False), target)
    ledger = planned(noise, rounds)
    status, reason = "ok", None
    if privacy.cap is not None:
        rounds, status, reason = capped(ledger, privacy.cap, privacy.delta, rounds)
        ledger = planned(noise, rounds)
    return GossipJob(
        scenario=s,
        topology=topology,
        shards=shards,
        records=_records(s, problem, shards, clip.norm),
        test=held_out(problem, shards, clip.norm),
        stream=stream,
        clip=clip,
        mechanism=mechanism,
        rounds=rounds,
        ledger=ledger,
        budget=price(ledger, privacy.delta),
        status=status,
        reason=reason,
        root=noise_root(s, shards, mechanism),
        problem=problem,
        algorithm=algorithm,
        constants=constants,
        noise=noise,
    )


def _records(s: Scenario, problem: Problem, shards: Shards, norm: Norm) -> Mapping[Split, tuple[Any, ...]]:
    if not shards.drawn:
        return {}
    elsewhere = agent_shards_of(s, shards.n_agents) if shards.elsewhere else None
    if elsewhere is None:
        return records_in(problem, shards, norm)
    if elsewhere.manifest.digest != shards.digest:
        raise InputError("problem.manifest: it was changed while it was read. Run again when nobody writes it.")
    return RecordsElsewhere(elsewhere)


def _coordinated(
    s: Scenario,
    job: type[CoordinatorBilevelJob | CoordinatorMinimaxJob],
    problem_of: Callable[..., Any],
    context_of: Callable[..., Any],
) -> CoordinatorBilevelJob | CoordinatorMinimaxJob:
    """A job of a trusted coordinator, with the problem and the context of its setting."""
    program = check_coordinated(s)
    topology = topology_of(s)
    shards = noted(s, shards_of(s, topology.n_agents))
    problem = problem_of(s, shards)
    algorithm, context = program.resolve_defaults(context_of(s, shards, problem, program))
    if shards.elsewhere:
        require_answers(s, algorithm)
    ledger = plan_of(s, algorithm, context)
    shards = replace(shards, labels=bounded_labels(s, shards.labels))
    mechanism = NO_NOISE if s.privacy.guarantee == "none" else GAUSSIAN
    return job(
        scenario=s,
        topology=topology,
        shards=shards,
        records=_records(s, problem, shards, context.clip.norm),
        test=held_out(problem, shards, "l2"),
        stream=stream_of(s),
        clip=context.clip,
        mechanism=mechanism,
        rounds=s.algorithm.rounds,
        ledger=ledger,
        budget=price(ledger, s.privacy.delta),
        root=noise_root(s, shards, mechanism),
        problem=problem,
        algorithm=algorithm,
        context=context,
    )


def _check_guarantee(s: Scenario) -> None:
    privacy, guarantee = s.privacy, s.privacy.guarantee
    if s.problem.label_bound is not None:
        raise InputError(
            f"problem.label_bound: {s.algorithm.kind} clips contributions and cuts no labels. Leave it out."
        )
    if privacy.constants is not None:
        raise InputError(
            f"privacy.constants: {s.algorithm.kind} clips contributions and takes no constants. Leave them out."
        )
    if guarantee == "as_printed":
        if privacy.mechanism_kind != LAPLACE.name:
            raise InputError(
                'privacy.mechanism: the paper\'s protocol uses Laplace noise; "as_printed" takes "laplace" only.'
            )
        if privacy.epsilon is not None:
            raise InputError(
                'privacy.epsilon: "as_printed" cannot be calibrated, its certified budget is infinite in general. '
                'Give scales (privacy.x, y and z), or use guarantee = "certified".'
            )
        if privacy.clip:
            raise InputError('privacy.clip: the paper\'s protocol does not clip. Use guarantee = "certified" to clip.')
        if s.algorithm.protocol == "private":
            raise InputError('algorithm.protocol: "private" is a certified protocol; leave it out for "as_printed".')
