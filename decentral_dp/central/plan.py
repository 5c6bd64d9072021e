"""Jobs of a trusted coordinator: its context, and the plan of what it will release at what price.

What of a coordinator's scenario can be refused before a record is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from decentral_dp.algorithms.protocol import Charge, Coordinated
from decentral_dp.bounded import Split
from decentral_dp.central.context import CoordinatorContext, Domain, MinimaxContext
from decentral_dp.central.jobs import CoordinatorBilevelJob, CoordinatorMinimaxJob
from decentral_dp.central.minimax.released_class_prior import ClassShare
from decentral_dp.central.printed.calibration import PrintedCoordinated
from decentral_dp.config.component_tables import Schedule
from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import (
    algorithm_of,
    check_levels,
    check_server,
    clip_of,
    deal,
    problem_options,
    stream_of,
)
from decentral_dp.config.schema import Scenario
from decentral_dp.constants.families import Declared, Family, family_of
from decentral_dp.data import Shards
from decentral_dp.errors import InputError
from decentral_dp.formatting import least_text
from decentral_dp.privacy.accounting.accountants import TIGHTNESS, epsilon_of, largest_mu, price, smallest_factor
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, NO_MECHANISM, NO_NOISE, mechanism_of
from decentral_dp.privacy.mechanisms.releasers import FREE
from decentral_dp.problems.protocol import TERMS, Problem
from decentral_dp.problems.saddle import Minimax
from decentral_dp.simulation.jobs.agent_records import as_numbers, records_of, test_records
from decentral_dp.simulation.jobs.job import LARGEST_PLAN

# Keys of [privacy] that no coordinator reads → why.
_OF_GOSSIP: Mapping[str, str] = {
    **dict.fromkeys(("x", "y", "z"), "the noise of {kind} follows from privacy.epsilon and delta."),
    **dict.fromkeys(
        ("unit", "neighbours"), "releases of {kind} are priced for one replaced record, and for nothing else."
    ),
    **dict.fromkeys(("correlation", "colluders"), "the noise of {kind} is its coordinator's, whom all agents trust."),
    **dict.fromkeys(("box", "share", "cap"), "{kind} plans its whole budget beforehand and takes none."),
}


def check_coordinated(c: Components) -> Coordinated:
    """The program of a trusted coordinator. Whatever can be refused before a record is read is refused here.

    Raises InputError.
    """
    s, entry = c.scenario, c.algorithm
    privacy, table, kind = s.privacy, s.algorithm, s.algorithm.kind
    problem_options(c)
    if s.problem.own_keys().get("positive_share") == "released" and privacy.guarantee == "as_printed":
        raise InputError(
            'problem.positive_share: no paper prints a noise for it. Fix: give a public number with "as_printed".'
        )
    if s.problem.stream != "all":
        samples = "rate" in entry.optional
        mend = "for samples give algorithm.rate." if samples else "it knows no samples."
        raise InputError(f"problem.stream: {kind} reads all records in every round. Leave the stream out; {mend}")
    if s.tail_length != 1:
        raise InputError(f"run.average: {kind} publishes one value after the other, not averages. Leave it out.")
    for key, why in _OF_GOSSIP.items():
        if getattr(privacy, key) != type(privacy).model_fields[key].default:
            raise InputError(f"privacy.{key}: {why.format(kind=kind)} Leave it out.")
    if s.topology.pooled:
        raise InputError(f"topology.pooled: the agents of {kind} trust its coordinator already. Leave it out.")
    program = cast(Coordinated, algorithm_of(c))
    if s.problem.own_keys().get("positive_share") == "released":
        program = ClassShare(program, start=program.start)
    if privacy.epsilon is None and privacy.guarantee != "none":
        raise InputError(
            f"privacy.epsilon: missing. {kind} sets its noise by a target; give for example epsilon = 1.0."
        )
    if table.rounds > LARGEST_PLAN:
        raise too_long(table.rounds)
    for family, clip in privacy.clip.items():
        if isinstance(clip, Schedule):
            raise InputError(f"privacy.clip.{family}: {kind} clips alike in every round. Give a number.")
    if privacy.clip and not program.queries:
        raise InputError(
            f"privacy.clip: {kind} clips nothing, for what one record can do follows from the problem's constants. "
            "Leave it out."
        )
    if not entry.pure and privacy.delta == 0.0 and privacy.guarantee != "none":
        raise impure(kind)
    bounded = s.privacy.constants is not None or s.problem.normalise != "none" or s.problem.scale != "none"
    if program.needs_constants and not bounded:
        raise unbounded_error(kind)
    domain, x = c.keys.get("domain"), table.init.get("x")
    if domain is not None and x is not None and not domain.low <= x <= domain.high:
        raise InputError(
            f"algorithm.init.x: {x:g} lies outside the domain, which is from {domain.low:g} to {domain.high:g}. Start "
            "inside, or leave it out."
        )
    return program


def require_answers(s: Scenario, algorithm: Coordinated) -> None:
    """Refuse a coordinator that works on more than its agents' sums, where the records are with their agents.

    Args:
        s: the scenario.
        algorithm: with its defaults resolved.

    Raises:
        InputError: it holds all records, or agents are asked for scores.
    """
    kind = s.algorithm.kind
    if algorithm.needs_records:
        raise InputError(
            f"problem.manifest: as it is set, {kind} computes on the records of all agents in one place, and these are "
            "with their agents. Leave it out and give problem.data whole, or take an algorithm whose agents answer "
            "with sums, such as dp_bilevel, privatediff or dp_sgda."
        )
    if s.run.agent_scores:
        raise InputError(
            "run.agent_scores: the agents of a trusted coordinator answer its questions, and send no scores. Leave it "
            "out."
        )


def unbounded_error(kind: str) -> InputError:
    """The refusal of records of no bounded length, where a solver needs one. kind: of the algorithm."""
    return InputError(
        f"problem.normalise: {kind} needs records of bounded length, and nothing bounds these. "
        'Set normalise = "l2" (or "l1", or "box").'
    )


def impure(kind: str) -> InputError:
    """The refusal of δ = 0, where the noise is Gaussian. kind: of the algorithm."""
    return InputError(
        f"privacy.delta: {kind} adds Gaussian noise, which gives no pure guarantee. Take a delta above 0, for example "
        "1e-6."
    )


def too_long(rounds: int) -> InputError:
    """The refusal of more releases than can be priced."""
    return InputError(f"algorithm.rounds: {rounds} rounds are more releases than can be priced. Use fewer rounds.")


# A factor on all noise that leaves nothing of a price but what does not depend on it; and how far a target has to be
# from there.
_ENDLESS_NOISE, _SURELY = 1e12, 1.05


# Terms of minimax problems, for a refusal.
_TERMS = {
    "dual": "the best y in closed form",
    "joint": "both gradients as one vector",
    "inner": "an inner function, as KL-DRO in compositional form has",
}


def minimax_context(c: Components, shards: Shards, problem: Minimax, algorithm: Coordinated) -> MinimaxContext:
    """Form what the coordinator of a minimax problem knows before any record is read.

    Args:
        c: what the scenario names.
        shards: whose public counts are read.
        problem: the minimax problem.
        algorithm: of the coordinator.

    Returns:
        The context.

    Raises:
        InputError: a problem without a term that the algorithm queries, keys that a minimax problem does not take, or a
            sampling rate at which a sample mostly holds no record.
    """
    s = c.scenario
    for term in algorithm.queries:
        if term not in problem.terms:
            raise InputError(
                f"algorithm.kind: {s.algorithm.kind} needs {_TERMS.get(term, term)}, and {s.problem.kind} has none. "
                "Take another algorithm or problem."
            )
    if "domain" in c.keys:
        raise InputError("algorithm.domain: the sets of x and y belong to a minimax problem itself. Leave it out.")
    if s.privacy.constants is not None:
        raise InputError("privacy.constants: a minimax problem takes none, since it clips. Leave it out.")
    if "z" in s.privacy.clip:
        raise InputError("privacy.clip.z: a minimax problem has the gradients by x and by y alone. Leave it out.")
    noisy = s.privacy.guarantee != "none"
    clip = clip_of(s, "l2") if noisy else Clip("l2")
    counts: dict[Split, int] = {"train": int(shards.train_counts.sum()), "validation": 0}
    rate = c.keys.get("rate", 1.0)
    if rate * counts["train"] < 1.0:
        raise InputError(
            f"algorithm.rate: got {rate:g}, but then a sample of these {counts['train']} records mostly holds none. "
            f"Take at least {least_text(1.0 / counts['train'])}."
        )
    return MinimaxContext(problem, counts, shards.n_agents, clip, s.algorithm.rounds, _budget(s), noisy)


def _budget(s: Scenario) -> float:
    """μ of the Gaussian pair that the target is; inf where there is none."""
    targeted = s.privacy.epsilon is not None and s.privacy.delta > 0.0
    return largest_mu(s.privacy.epsilon or 0.0, s.privacy.delta) if targeted else math.inf


def context_of(c: Components, shards: Shards, problem: Problem, algorithm: Coordinated) -> CoordinatorContext:
    """Form what the coordinator of a bilevel problem knows before any record is read.

    Args:
        c: what the scenario names.
        shards: whose public counts, classes and bounds are read.
        problem: the bilevel problem.
        algorithm: of the coordinator.

    Returns:
        The context, without constants where they are unknown and not needed.

    Raises:
        InputError: constants that are needed or declared, and unknown or not sound.
    """
    s = c.scenario
    table = c.keys.get("domain")
    domain = Domain() if table is None else Domain(table.low, table.high)
    counts: dict[Split, int] = {
        "train": int(shards.train_counts.sum()),
        "validation": int(shards.validation_counts.sum()),
    }
    try:
        family = _family(s, shards, problem)
    except InputError:
        if algorithm.needs_constants or s.privacy.constants is not None:
            raise
        family = None
    noisy = s.privacy.guarantee != "none"
    clip = clip_of(s, "l2") if noisy else Clip("l2")
    return CoordinatorContext(
        problem, counts, shards.n_agents, clip, domain, family, s.algorithm.rounds, _budget(s), noisy
    )


def _family(s: Scenario, shards: Shards, problem: Problem) -> Family:
    if s.privacy.constants is not None:
        return Declared.from_table(problem, s.privacy.constants)
    if shards.l2 is None:
        raise unbounded_error(s.algorithm.kind)
    return family_of(problem, shards.l2, _label_bound(s, shards))


def _label_bound(s: Scenario, shards: Shards) -> float:
    if shards.classes:
        # Labels of classes are their numbers, from 0 on.
        return float(max(1, len(shards.classes) - 1))
    if s.problem.label_range is None:
        raise InputError(f"problem.label_range: missing. {s.algorithm.kind} needs the public range of the labels.")
    # Scaled to [−1, 1].
    return 1.0


def plan_of(s: Scenario, algorithm: Coordinated, context: CoordinatorContext | MinimaxContext) -> Ledger:
    """Plan every release of a trusted coordinator and its price: the target's, the paper's, or none.

    Args:
        s: the scenario; rounds, guarantee, ε and δ are read.
        algorithm: with its defaults resolved.
        context: what it knows beforehand.

    Returns:
        The ledger, the same lines for all agents.

    Raises:
        InputError: a target out of reach, a guarantee or a mechanism that the algorithm does not have, or more releases
            than can be priced.
    """
    rounds, privacy = s.algorithm.rounds, s.privacy
    if rounds * algorithm.releases_per_round > LARGEST_PLAN:
        raise too_long(rounds)
    charges = algorithm.planned_releases(context, rounds)
    _check_mechanism(s, charges)
    if privacy.guarantee == "certified" and not all(_proven(charge) for charge in charges.values()):
        raise InputError(
            f'privacy.guarantee: nothing is proven for {s.algorithm.kind} as it runs, so it cannot be "certified". Set '
            '"as_printed" to run it all the same, at ε = ∞.'
        )
    free = [
        _free(c, width, rounds * algorithm.releases_per_round) for c, width in algorithm.free_channels(context).items()
    ]

    def ledger_of(channels: list[ChannelLedger]) -> Ledger:
        return Ledger(context.agents, (*free, *channels), algorithm.releases_per_round).repeat(context.agents)

    def ledger_at(factor: float) -> Ledger:
        return ledger_of([planned_line(c, charge, 1.0 / factor) for c, charge in charges.items()])

    if privacy.guarantee == "none":
        lines = [planned_line(c, charge, 1.0) for c, charge in charges.items()]
        return ledger_of([replace(line, mechanism=NO_NOISE, scale=np.zeros_like(line.scale)) for line in lines])
    target = 0.0 if privacy.epsilon is None else privacy.epsilon
    if privacy.guarantee == "as_printed":
        lines = []
        # "as_printed" builds printed forms alone.
        printed = cast(PrintedCoordinated, algorithm)
        for channel, calibration in printed.printed_calibration(context, rounds, target, privacy.delta).items():
            charge = charges[channel]._replace(weight=calibration.sensitivity)
            lines.append(replace(planned_line(channel, charge, 1.0), scale=calibration.scale[:, None]))
        return ledger_of(lines)

    return target_plan(ledger_at, target, privacy.delta)


def target_plan(
    at: Callable[[float], Ledger], target: float, delta: float, tightness: float = 0.5 * TIGHTNESS
) -> Ledger:
    """Find the plan that costs (target, delta), or less by a share of `tightness`.

    Args:
        at: factor → plan with that many times the noise.
        target: ε, above what no noise reduces.
        delta: δ.
        tightness: the largest share of ε left unspent; default half of TIGHTNESS.

    Returns:
        The plan.

    Raises:
        InputError: there is none, because sampling in float64 and rounding cost more whatever the noise.
    """

    def price(factor: float) -> float:
        return float(epsilon_of(at(factor).select(np.zeros(1, dtype=np.int64)), delta)[0])

    # What rounding to the grid and sampling in float64 cost does not shrink with more noise.
    least = price(_ENDLESS_NOISE)
    if math.isinf(least):
        raise InputError(
            f"privacy.delta: got {delta:g}, which is less than what sampling in float64 may cost here, however "
            "much noise there is. Raise delta."
        )
    if target <= least * _SURELY:
        raise InputError(
            f"privacy.epsilon: got {target:g}, but the smallest that any noise reaches here at delta = "
            f"{delta:g} is about {least_text(least * _SURELY)}, the cost of rounding and sampling in float64. "
            "Raise epsilon, or use fewer rounds."
        )
    return at(smallest_factor(price, target, None, tightness))


def planned_line(channel: str, charge: Charge, factor: float) -> ChannelLedger:
    """Write the ledger lines of one channel at scale 1.

    Args:
        channel: its name.
        charge: its releases, with the price of each.
        factor: on every price.
    """
    releases = charge.indices.size
    sensitivity = {k: (factor * w)[:, None] for k, w in charge.weight.items()}
    if not _proven(charge):
        sensitivity = {k: np.full((releases, 1), np.inf) for k in charge.weight}
    return ChannelLedger(
        channel,
        mechanism_of(charge.mechanism),
        charge.width,
        np.zeros(1, dtype=np.int64),
        charge.indices,
        np.ones((releases, 1)),
        sensitivity,
        {k: np.full((releases, 1), charge.rate.get(k, 1.0)) for k in sensitivity},
        charge.reason,
        "poisson" if any(r < 1.0 for r in charge.rate.values()) else "fixed",
        charge.distortion,
    )


def _proven(charge: Charge) -> bool:
    return mechanism_of(charge.mechanism).proven


def _free(channel: str, width: int, releases: int) -> ChannelLedger:
    index = np.arange(1, releases + 1)
    none = np.zeros((releases, 1))
    return ChannelLedger(channel, NO_MECHANISM, width, np.zeros(1, dtype=np.int64), index, none, {}, {}, FREE)


def _check_mechanism(s: Scenario, charges: Mapping[str, Charge]) -> None:
    privacy, used = s.privacy, {c.mechanism for c in charges.values()}
    gaussian = [name for name in used if not mechanism_of(name).pure]
    if privacy.guarantee != "none" and privacy.delta == 0.0 and gaussian:
        raise impure(s.algorithm.kind)
    if "mechanism" in privacy.model_fields_set and privacy.mechanism_kind not in used:
        fits = next(iter(gaussian), None)
        mend = f'Set "{fits}", or leave it out.' if fits else "Leave it out."
        raise InputError(f'privacy.mechanism: {s.algorithm.kind} does not use "{privacy.mechanism_kind}" noise. {mend}')


def coordinated_job(
    job: type[CoordinatorBilevelJob | CoordinatorMinimaxJob],
    problem_of: Callable[..., Any],
    context_of: Callable[..., Any],
    c: Components,
) -> CoordinatorBilevelJob | CoordinatorMinimaxJob:
    """A job of a trusted coordinator, planned and priced, whose noise has no root yet.

    Args:
        job: its class.
        problem_of, context_of: the problem and the context of its setting.
        c: what the scenario names.

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    s = c.scenario
    check_levels(c, TERMS)
    program = check_coordinated(c)
    topology = c.topology.make()
    check_server(s, topology)
    shards, elsewhere = deal(c, topology.n_agents)
    problem = problem_of(c, shards)
    algorithm, context = program.resolve_defaults(context_of(c, shards, problem, program))
    if shards.is_elsewhere:
        require_answers(s, algorithm)
    ledger = plan_of(s, algorithm, context)
    shards = replace(shards, labels=as_numbers(shards.labels))
    mechanism = NO_NOISE if s.privacy.guarantee == "none" else GAUSSIAN
    return job(
        components=c,
        topology=topology,
        shards=shards,
        records=records_of(problem, shards, elsewhere, context.clip.norm),
        test=test_records(problem, shards, "l2"),
        stream=stream_of(s),
        clip=context.clip,
        mechanism=mechanism,
        rounds=s.algorithm.rounds,
        ledger=ledger,
        budget=price(ledger, s.privacy.delta),
        problem=problem,
        algorithm=algorithm,
        context=context,
    )
