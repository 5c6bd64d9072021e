"""Jobs of a trusted coordinator: its context, and the plan of what it will release at what price.

What of a coordinator's scenario can be refused before a record is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from decentral_dp.bounded import Split
from decentral_dp.central.context import CoordinatorContext, Domain, MinimaxContext
from decentral_dp.central.jobs import CoordinatorBilevelJob, CoordinatorMinimaxJob
from decentral_dp.central.minimax.released_class_prior import ClassShare
from decentral_dp.central.programs import Calibrated, Charge, Coordinated
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
from decentral_dp.constants.families import Family, family_of
from decentral_dp.data import Shards
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.formatting import least_text
from decentral_dp.privacy.accounting.accountants import TIGHTNESS, epsilon_of, largest_mu, price, smallest_factor
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, NO_MECHANISM, NO_NOISE, mechanism_of
from decentral_dp.privacy.mechanisms.releasers import FREE
from decentral_dp.problems.protocol import TERMS, Problem
from decentral_dp.problems.saddle import Minimax
from decentral_dp.simulation.jobs.job import LARGEST_PLAN, as_numbers, records_of, test_records


class _Chosen(NamedTuple):
    """s: the scenario. components: what it names. algorithm: its program."""

    s: Scenario
    components: Components
    algorithm: Coordinated


def _row(applies: Callable[[_Chosen], Any], key: str, problem: str, fix: str = "leave it out") -> Refusal[_Chosen]:
    """A row whose `{it}` is the kind of the algorithm."""
    return Refusal(lambda c: c.s.algorithm.kind if applies(c) else "", key, problem, fix)


def _is_set(key: str) -> Callable[[_Chosen], bool]:
    """Whether a key of [privacy] differs from its default."""
    return lambda c: getattr(c.s.privacy, key) != type(c.s.privacy).model_fields[key].default


def _releases_share(c: _Chosen) -> bool:
    return bool(c.s.problem.own_keys().get("positive_share") == "released")


def _starts_outside(c: _Chosen) -> bool:
    domain, x = c.components.keys.get("domain"), c.s.algorithm.init.get("x")
    return domain is not None and x is not None and not domain.low <= x <= domain.high


def _is_unbounded(c: _Chosen) -> bool:
    s = c.s
    bounded = s.problem.normalise != "none" or s.problem.scale != "none"
    return c.algorithm.needs_constants and not bounded


# Keys of [privacy] that no coordinator reads → why.
_OF_GOSSIP: Mapping[str, str] = {
    **dict.fromkeys(("x", "y", "z"), "the noise of {it} follows from privacy.epsilon and delta"),
    **dict.fromkeys(("unit", "neighbours"), "releases of {it} are priced for one replaced record alone"),
    **dict.fromkeys(("correlation", "colluders"), "the noise of {it} is its coordinator's, whom all agents trust"),
    **dict.fromkeys(("box", "share", "cap"), "{it} plans its whole budget beforehand and takes none"),
}
_UNBOUNDED = (
    "problem.normalise",
    "{it} needs records of bounded length, and nothing bounds these",
    'set normalise = "l2" (or "l1", or "box")',
)
_TOO_LONG = _row(
    lambda c: c.s.algorithm.rounds * c.algorithm.releases_per_round > LARGEST_PLAN,
    "algorithm.rounds",
    "more releases than can be priced (got {of.s.algorithm.rounds} rounds)",
    "use fewer rounds",
)
# What no trusted coordinator takes; no record has been read.
_COORDINATED = (
    _row(
        lambda c: _releases_share(c) and c.s.privacy.guarantee == "as_published",
        "problem.positive_share",
        "no paper publishes a noise for it",
        "give a public number",
    ),
    _row(
        lambda c: c.s.problem.stream != "all",
        "problem.stream",
        "{it} reads all records in every round",
        "leave it out; some algorithms draw samples by algorithm.rate",
    ),
    _row(lambda c: c.s.tail_length != 1, "run.average", "{it} publishes one value after the other, not averages"),
    *(_row(_is_set(key), f"privacy.{key}", why) for key, why in _OF_GOSSIP.items()),
    _row(lambda c: c.s.topology.pooled, "topology.pooled", "the agents of {it} trust its coordinator already"),
    _row(
        lambda c: c.s.privacy.epsilon is None and c.s.privacy.guarantee != "none",
        "privacy.epsilon",
        "missing; {it} sets its noise by a target",
        "give for example epsilon = 1.0",
    ),
    _TOO_LONG,
    _row(
        lambda c: any(isinstance(clip, Schedule) for clip in c.s.privacy.clip.values()),
        "privacy.clip",
        "{it} clips alike in every round",
        "give numbers",
    ),
    _row(
        lambda c: c.s.privacy.clip and not c.algorithm.queries,
        "privacy.clip",
        "{it} clips nothing, for what one record can do follows from the problem's constants",
    ),
    _row(
        lambda c: not c.components.algorithm.pure and c.s.privacy.delta == 0.0 and c.s.privacy.guarantee != "none",
        "privacy.delta",
        "{it} adds Gaussian noise, which gives no pure guarantee",
        "take a delta above 0, for example 1e-6",
    ),
    _row(_is_unbounded, *_UNBOUNDED),
    _row(
        _starts_outside,
        "algorithm.init.x",
        "lies outside the domain (got {of.s.algorithm.init[x]:g})",
        "start inside, or leave it out",
    ),
)
# What cannot run where the records are with their agents, of an algorithm whose defaults are resolved.
_ELSEWHERE = (
    _row(
        lambda c: c.algorithm.needs_records,
        "problem.manifest",
        "as it is set, {it} computes on the records of all agents in one place, and these are with their agents",
        "leave it out and give problem.data whole, or take an algorithm whose agents answer with sums, such as "
        "dp_bilevel, privatediff or dp_sgda",
    ),
    _row(
        lambda c: c.s.run.agent_scores,
        "run.agent_scores",
        "the agents of a trusted coordinator answer its questions, and send no scores",
    ),
)
_MINIMAX = (
    _row(
        lambda c: "domain" in c.components.keys,
        "algorithm.domain",
        "the sets of x and y belong to a minimax problem itself",
    ),
    _row(
        lambda c: "z" in c.s.privacy.clip,
        "privacy.clip.z",
        "a minimax problem has the gradients by x and by y alone",
    ),
)


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
    refuse(_Chosen(s, c, algorithm), _MINIMAX)
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
        if algorithm.needs_constants:
            raise
        family = None
    noisy = s.privacy.guarantee != "none"
    clip = clip_of(s, "l2") if noisy else Clip("l2")
    return CoordinatorContext(
        problem, counts, shards.n_agents, clip, domain, family, s.algorithm.rounds, _budget(s), noisy
    )


def _family(s: Scenario, shards: Shards, problem: Problem) -> Family:
    # Of classes the numbers from 0 on; of a range what is scaled to [−1, 1].
    label_bound = max(1.0, len(shards.classes) - 1.0)
    table: tuple[Refusal[Scenario], ...] = (
        Refusal(lambda s: shards.l2 is None and s.algorithm.kind, *_UNBOUNDED),
        Refusal(
            lambda s: not shards.classes and s.problem.label_range is None and s.algorithm.kind,
            "problem.label_range",
            "missing; {it} needs labels of bounded size",
            "give their public range",
        ),
    )
    refuse(s, table)
    return family_of(problem, cast(float, shards.l2), label_bound)


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
    charges = algorithm.planned_releases(context, rounds)
    used = {charge.mechanism for charge in charges.values()}
    if "mechanism" in privacy.model_fields_set and privacy.mechanism_kind not in used:
        raise InputError(
            f'privacy.mechanism: {s.algorithm.kind} does not use "{privacy.mechanism_kind}" noise. Fix: leave it out.'
        )
    if privacy.guarantee == "certified" and not all(mechanism_of(name).proven for name in used):
        raise InputError(
            f'privacy.guarantee: nothing is proven for {s.algorithm.kind} as it runs, so it cannot be "certified". Set '
            '"as_published" to run it all the same, at ε = ∞.'
        )
    agents, index = np.zeros(1, dtype=np.int64), np.arange(1, rounds * algorithm.releases_per_round + 1)
    free = [
        ChannelLedger(channel, NO_MECHANISM, width, agents, index, np.zeros((index.size, 1)), {}, {}, FREE)
        for channel, width in algorithm.free_channels(context).items()
    ]

    def ledger_of(channels: list[ChannelLedger]) -> Ledger:
        return Ledger(context.agents, (*free, *channels), algorithm.releases_per_round).repeat(context.agents)

    def ledger_at(factor: float) -> Ledger:
        return ledger_of([planned_line(c, charge, 1.0 / factor) for c, charge in charges.items()])

    if privacy.guarantee == "none":
        lines = [planned_line(c, charge, 1.0) for c, charge in charges.items()]
        return ledger_of([replace(line, mechanism=NO_NOISE, scale=np.zeros_like(line.scale)) for line in lines])
    target = 0.0 if privacy.epsilon is None else privacy.epsilon
    if privacy.guarantee == "as_published":
        lines = []
        published = cast(Calibrated, algorithm)
        for channel, calibration in published.calibration(context, rounds, target, privacy.delta).items():
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
    if not mechanism_of(charge.mechanism).proven:
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
    problem_options(c)
    program = cast(Coordinated, algorithm_of(c))
    if s.problem.own_keys().get("positive_share") == "released":
        program = ClassShare(program, start=program.start)
    # Whatever can be refused before a record is read is refused here.
    refuse(_Chosen(s, c, program), _COORDINATED)
    topology = c.topology.make()
    check_server(s, topology)
    shards, elsewhere = deal(c, topology.n_agents)
    problem = problem_of(c, shards)
    algorithm, context = program.resolve_defaults(context_of(c, shards, problem, program))
    # Defaults may be many steps.
    refuse(_Chosen(s, c, algorithm), (_TOO_LONG, *(_ELSEWHERE if shards.is_elsewhere else ())))
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
