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
from functools import partial
from hashlib import blake2b
from typing import Any, Unpack, cast

from decentral_dp.algorithms.protocol import Algorithm, Checked, Counts
from decentral_dp.bounded import Norm, Split
from decentral_dp.config.components import Components, Objects, components_of
from decentral_dp.config.loading import Source, nearest_of
from decentral_dp.config.missing_keys import all_at_once
from decentral_dp.config.scenario_components import (
    algorithm_of,
    check_device,
    check_levels,
    check_sizes,
    deal,
    minimax_of,
    problem_of,
    stream_of,
)
from decentral_dp.config.schema import by_channel, put
from decentral_dp.data import COLLECTIONS, FILED, Shards
from decentral_dp.data.agent_shards import AgentShards
from decentral_dp.engines import cores
from decentral_dp.errors import InputError, needing, quoted
from decentral_dp.participants.agents import Network
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, NO_NOISE, Mechanism
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.mechanisms.releasers import NoiseSchedule
from decentral_dp.privacy.randomness import Root, secret_root, seeded_root
from decentral_dp.problems.protocol import TERMS
from decentral_dp.reporting.words import MEASURES
from decentral_dp.simulation.jobs.agent_records import RecordsElsewhere, held_out, records_in
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
    check_guarantee,
    checked_unit,
    clips,
    plan,
    require_calibrated,
    schedules,
)
from decentral_dp.simulation.jobs.job import CoordinatorBilevelJob, CoordinatorMinimaxJob, GossipJob, Job
from decentral_dp.simulation.jobs.settings import settings_note, with_settings
from decentral_dp.simulation.probing.probe import probe
from decentral_dp.simulation.statements.statement import Setting

# Another version redraws every seeded run: folders say which one theirs was.
VERSION = 2


def noise_root(c: Components, shards: Shards, mechanism: Mechanism) -> Root:
    """The root of every keyed draw of a job.

    Equal noise on other records or at other scales would cancel in a difference, so it depends on all that decides
    what is released: the scenario as written, the files it names, the records as loaded, the sources of components
    from outside. It depends on nothing that this package derives, and on no default: another processor, or a version
    that knows one more key, draws the same noise.

    Args:
        c: what the scenario names.
        shards: its records, whose digest was taken before any arithmetic.
        mechanism: the law of noise.

    Returns:
        32 bytes; secret ones of the operating system where the scenario has no seed.
    """
    s = c.scenario
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
    for place, path in c.files.items():
        put(content, place, digest_of_file(path))
    if s.problem.manifest is not None:
        # All that it says is in the digest of the records, wherever it and the files of agents are.
        content["problem"].update(data="", manifest="")
    # Images are told by their contents and by which of them are for testing, wherever their files are.
    content["problem"].pop("files", None)
    given = c.digests
    if s.run_graph is not None and table_digest(content["topology"]) == s.run_graph.digest:
        # The graph of a run that had it as an object: the noise of that run is drawn again.
        content["topology"] = json.loads(s.run_graph.table)
        given["topology"] = s.run_graph.given
    filed = s.problem.data in (*COLLECTIONS, *FILED)
    content["root"] = {
        "version": VERSION,
        "given": given,
        "algorithm": c.algorithm.source,
        "mechanism": f"{mechanism.options} {mechanism.source}" if isinstance(mechanism, OutsideMechanism) else "",
        "records": shards.digest.hex(),
        "test": blake2b(shards.test.tobytes()).hexdigest() if filed else "",
    }
    return seeded_root(s.seed, json.dumps(content, sort_keys=True).encode())


def topology_table(c: Components) -> dict[str, Any]:
    """The table [topology] as the root has it: with the digest of a file in the place of its name."""
    table = c.scenario.topology.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    content: dict[str, Any] = {"topology": table}
    for place, path in c.files.items():
        if place[0] == "topology":
            put(content, place, digest_of_file(path))
    return table


def table_digest(table: Mapping[str, Any]) -> str:
    """A digest of a table as the root has it."""
    return blake2b(json.dumps(table, sort_keys=True).encode(), digest_size=16).hexdigest()


def build(scenario: Source | Components, **objects: Unpack[Objects]) -> Job:
    """Build everything that a scenario names, and plan and price its releases.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or what one names.
        **objects: in place of what it names.

    Returns:
        A `GossipJob`, `CoordinatorBilevelJob` or `CoordinatorMinimaxJob`; its `budget` is what a run would cost.

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    c = scenario if isinstance(scenario, Components) else components_of(scenario, **objects)
    job = assemble(c)
    probe(job)
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
    settled = job.scenario.model_copy(update={"run": table.model_copy(update={"agents_per_actor": each})})
    return replace(job, components=replace(job.components, scenario=settled))


def assemble(c: Components) -> Job:
    """The job of a scenario, planned and priced, of which nothing was tried yet: `build` is for whatever will run.

    Raises InputError for whatever does not fit.
    """
    try:
        check_device(c)
        check_sizes(c)
        _check_measures(c)
        with needing(f"problem.kind = {quoted(c.scenario.problem.kind)}"):
            return _BUILDERS[c.algorithm.setting](c)
    except InputError as error:
        raise all_at_once(error, c.scenario.model_dump(exclude_unset=True), sorted(c.objects)) from None


def _check_measures(c: Components) -> None:
    """Refuse the name of a measure that nothing has; a problem of one's own may have any."""
    for name in c.scenario.run.measures or ():
        if name not in MEASURES and not c.problem.is_outside:
            raise InputError(f"run.measures: no measure {quoted(name)}{nearest_of(name, list(MEASURES))}.")


def _gossip(c: Components) -> GossipJob:
    s, privacy, guarantee = c.scenario, c.scenario.privacy, c.scenario.privacy.guarantee
    check_guarantee(s)
    topology = c.topology.make()
    shards, elsewhere = deal(c, topology.n_agents)
    problem = problem_of(c, shards)
    # What agents average is planned as one noise; who has no neighbour has that of its own alone.
    averaged = topology.n_agents if topology.edges.size else 1
    c = with_settings(c, problem, shards, averaged)
    s, privacy = c.scenario, c.scenario.privacy
    algorithm = cast(Algorithm, algorithm_of(c))
    if isinstance(algorithm, Checked):
        algorithm.check(problem.p, problem.q)
    if algorithm.central and topology.n_agents > 1 and not topology.edges.size:
        raise InputError(
            f'topology.kind: "isolated" has agents learn alone, and those of {s.algorithm.kind} answer a server. Take '
            'a connected kind, or an algorithm of neighbours such as "dp_dsgd".'
        )
    channels = algorithm.releases(problem.p, problem.q)
    check_levels(c, [term for channel in channels.values() for term in channel.terms])
    check_domain(s, channels, algorithm.central)
    clip = clips(s, channels, problem, c.mechanism)
    constants = problem.constants(by_channel(privacy.box), shards.l1) if guarantee == "as_printed" else None
    stream = stream_of(s)
    counts: Counts = {"train": shards.train_counts, "validation": shards.validation_counts}
    mechanism = NO_NOISE if guarantee == "none" else c.mechanism

    unit = checked_unit(c, algorithm, problem)
    network = Network(topology.mixing, s.public_seed)

    def planned(noise: Mapping[str, NoiseSchedule], rounds: int, final: bool = True) -> Ledger:
        facts = (counts, stream, topology.neighbour_weight, clip, constants)
        return plan(algorithm, problem, *facts, rounds, mechanism, noise, final, network, unit)

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
    if said := settings_note(problem, algorithm, averaged, clip.y, rounds, noise):
        shards = replace(shards, notes=(*shards.notes, said))
    status, reason = "ok", None
    if privacy.cap is not None:
        rounds, status, reason = capped(ledger, privacy.cap, privacy.delta, rounds)
        ledger = planned(noise, rounds)
    return GossipJob(
        components=c,
        topology=topology,
        shards=shards,
        records=_records(problem, shards, elsewhere, clip.norm),
        test=held_out(problem, shards, clip.norm),
        stream=stream,
        clip=clip,
        mechanism=mechanism,
        rounds=rounds,
        ledger=ledger,
        budget=price(ledger, privacy.delta),
        status=status,
        reason=reason,
        root=noise_root(c, shards, mechanism),
        problem=problem,
        algorithm=algorithm,
        constants=constants,
        noise=noise,
    )


def _records(
    problem: Any, shards: Shards, elsewhere: AgentShards | None, norm: Norm
) -> Mapping[Split, tuple[Any, ...]]:
    if elsewhere is not None:
        return RecordsElsewhere(elsewhere)
    return records_in(problem, shards, norm) if shards.drawn else {}


def _coordinated(
    job: type[CoordinatorBilevelJob | CoordinatorMinimaxJob],
    problem_of: Callable[..., Any],
    context_of: Callable[..., Any],
    c: Components,
) -> CoordinatorBilevelJob | CoordinatorMinimaxJob:
    """A job of a trusted coordinator, with the problem and the context of its setting."""
    s = c.scenario
    check_levels(c, TERMS)
    program = check_coordinated(c)
    topology = c.topology.make()
    shards, elsewhere = deal(c, topology.n_agents)
    problem = problem_of(c, shards)
    algorithm, context = program.resolve_defaults(context_of(c, shards, problem, program))
    if shards.elsewhere:
        require_answers(s, algorithm)
    ledger = plan_of(s, algorithm, context)
    shards = replace(shards, labels=bounded_labels(s, shards.labels))
    mechanism = NO_NOISE if s.privacy.guarantee == "none" else GAUSSIAN
    return job(
        components=c,
        topology=topology,
        shards=shards,
        records=_records(problem, shards, elsewhere, context.clip.norm),
        test=held_out(problem, shards, "l2"),
        stream=stream_of(s),
        clip=context.clip,
        mechanism=mechanism,
        rounds=s.algorithm.rounds,
        ledger=ledger,
        budget=price(ledger, s.privacy.delta),
        root=noise_root(c, shards, mechanism),
        problem=problem,
        algorithm=algorithm,
        context=context,
    )


_BUILDERS: Mapping[Setting, Callable[[Components], Job]] = {
    "gossip": _gossip,
    "coordinator_bilevel": partial(_coordinated, CoordinatorBilevelJob, problem_of, context_of),
    "coordinator_minimax": partial(_coordinated, CoordinatorMinimaxJob, minimax_of, minimax_context),
}
