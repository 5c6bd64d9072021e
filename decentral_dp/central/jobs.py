"""Jobs of a trusted coordinator: checks before a record is read, the context, the plan of all releases, and the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.plans import Wrapper
from decentral_dp.algorithms.protocol import ONE_LEVEL, StepSize
from decentral_dp.bounded import Split
from decentral_dp.central.clients import MinimaxClientBlock, ReadingClients
from decentral_dp.central.context import CoordinatorContext, Domain, MinimaxContext
from decentral_dp.central.minimax.released_class_prior import ClassShare
from decentral_dp.central.problems.evaluator import MinimaxEvaluator, make_evaluator
from decentral_dp.central.problems.saddle import Minimax
from decentral_dp.central.vocabulary import Calibrated, Charge, Coordinated
from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import (
    algorithm_of,
    check_server,
    check_terms,
    clip_of,
    deal,
    problem_of,
    problem_options,
    sampling_of,
)
from decentral_dp.config.schema import Scenario, Schedule
from decentral_dp.constants import Family, family_of
from decentral_dp.data import Shards
from decentral_dp.engines.protocol import UNATTENDED, CoordinatorNode, Engine, Outcome, RunControl
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.formatting import least_text
from decentral_dp.participants import ClientBlock
from decentral_dp.privacy.accounting.accountants import TIGHTNESS, account, epsilon_of, largest_mu, smallest_factor
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, NO_MECHANISM, NO_NOISE, mechanism_of
from decentral_dp.privacy.randomness import Streams
from decentral_dp.privacy.releasers import FREE, PlannedReleaser
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.records import concatenate
from decentral_dp.simulation.jobs.job import (
    LARGEST_PLAN,
    PlannedJob,
    RecordsElsewhere,
    read_shards,
    records_of,
    test_records,
)
from decentral_dp.simulation.metrics import EvaluatedOn, Evaluator

# Checks before a record is read -------------------------------------------------------------------------------------


class _Subject(NamedTuple):
    """Scenario, its components, the coordinator's program, and its problem with the number of train records."""

    s: Scenario
    components: Components
    algorithm: Coordinated
    problem: Any = None
    n: int = 0


def _row(applies: Callable[[_Subject], Any], key: str, problem: str, fix: str = "remove it") -> Refusal[_Subject]:
    """Return a row whose `{it}` is the kind of the algorithm."""
    return Refusal(lambda c: c.s.algorithm.kind if applies(c) else "", key, problem, fix)


def _is_set(key: str) -> Callable[[_Subject], bool]:
    """Return a check that a key of [privacy] differs from its default."""
    return lambda c: getattr(c.s.privacy, key) != type(c.s.privacy).model_fields[key].default


def _starts_outside(c: _Subject) -> bool:
    domain, x = c.components.keys.get("domain"), c.s.algorithm.init.get("x")
    return domain is not None and x is not None and not domain.low <= x <= domain.high


def _releases_share(s: Scenario) -> bool:
    return bool(s.problem.own_keys().get("positive_share") == "released")


# Keys of [privacy] that no coordinator supports → reason.
_GOSSIP_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("x", "y", "z"), "the noise of {it} follows from privacy.epsilon and delta"),
    **dict.fromkeys(("unit", "neighbours"), "{it} is accounted for one replaced record only"),
    **dict.fromkeys(("correlation", "colluders"), "the coordinator of {it} adds the noise, and all agents trust it"),
    **dict.fromkeys(("box", "share", "noise_multiplier"), "{it} plans its whole budget in advance"),
}
_UNBOUNDED = (
    "problem.normalise",
    "{it} requires records of bounded length",
    'set normalise = "l2" (or "l1", or "box")',
)
_TOO_LONG = _row(
    lambda c: c.s.algorithm.rounds * c.algorithm.releases_per_round > LARGEST_PLAN,
    "algorithm.rounds",
    "too many releases to account for (got {of.s.algorithm.rounds} rounds)",
    "use fewer rounds",
)
_COORDINATED = (
    _row(
        lambda c: _releases_share(c.s) and c.s.privacy.guarantee == "as_published",
        "problem.positive_share",
        "has no published noise",
        "set a public number",
    ),
    _row(
        lambda c: c.s.problem.sampling != "full",
        "problem.sampling",
        "{it} reads all records in every round",
        "remove it, or set algorithm.rate for an algorithm that has it",
    ),
    _row(lambda c: c.s.problem.weights == "records", "problem.weights", "{it} averages no gradients of agents"),
    _row(lambda c: c.s.tail_length != 1, "run.average", "{it} publishes single iterates, not averages"),
    *(_row(_is_set(key), f"privacy.{key}", why) for key, why in _GOSSIP_KEYS.items()),
    _row(lambda c: c.s.topology.pooled, "topology.kind", "not used by {it}, whose agents trust its coordinator"),
    _row(
        lambda c: c.s.privacy.epsilon is None and c.s.privacy.guarantee != "none",
        "privacy.epsilon",
        "missing; {it} calibrates its noise to a target",
        "set it, for example epsilon = 1.0",
    ),
    _TOO_LONG,
    _row(
        lambda c: any(isinstance(clip, Schedule) for clip in c.s.privacy.clips.values()),
        "privacy.clip",
        "{it} has the same clipping norm in every round",
        "set constant norms",
    ),
    _row(
        lambda c: c.s.privacy.clip and not c.algorithm.queries,
        "privacy.clip",
        "not used by {it}, whose sensitivities follow from the problem's constants",
    ),
    _row(
        lambda c: not c.components.algorithm.pure and c.s.privacy.delta == 0.0 and c.s.privacy.guarantee != "none",
        "privacy.delta",
        "{it} adds Gaussian noise, which gives no pure guarantee",
        "set a delta above 0, for example 1e-6",
    ),
    _row(
        lambda c: c.algorithm.needs_constants and c.s.problem.normalise == "none" and c.s.problem.scale == "none",
        *_UNBOUNDED,
    ),
    _row(
        _starts_outside,
        "algorithm.init.x",
        "outside the domain (got {of.s.algorithm.init[x]:g})",
        "set a value inside, or remove it",
    ),
)
# For records that are with their agents; the defaults of the algorithm are resolved.
_ELSEWHERE = (
    _row(
        lambda c: c.algorithm.needs_records,
        "problem.manifest",
        "not supported by {it} with these options, which require all records in one place",
        "remove it and set problem.data, or use an algorithm whose agents send sums, such as dp_bilevel, "
        "privatediff or dp_sgda",
    ),
    _row(
        lambda c: c.s.run.agent_scores,
        "run.agent_scores",
        "the agents of a trusted coordinator send no scores",
    ),
)
# Terms that not every minimax problem has.
_TERMS = {
    "dual": "the best y in closed form",
    "joint": "both gradients as one vector",
    "inner": "an inner function, as KL-DRO in compositional form has",
}
_MINIMAX = (
    Refusal[_Subject](
        lambda c: next((_TERMS.get(term, term) for term in c.algorithm.queries if term not in c.problem.terms), ""),
        "algorithm.kind",
        "{of.s.algorithm.kind} requires {it}, which {of.s.problem.kind} does not have",
        "use another algorithm or problem",
    ),
    Refusal[_Subject](
        lambda c: least_text(1.0 / c.n) if c.components.keys.get("rate", 1.0) * c.n < 1.0 else "",
        "algorithm.rate",
        "too small: most samples of these {of.n} records would be empty (got {of.components.keys[rate]:g}, expected "
        "at least {it})",
        "increase it",
    ),
    Refusal[_Subject](
        lambda c: next((name for name in c.s.algorithm.init if name not in ("x", "y")), ""),
        "algorithm.init.{it}",
        "a minimax problem has the variables x and y",
        "remove it",
    ),
    _row(
        lambda c: "domain" in c.components.keys,
        "algorithm.domain",
        "a minimax problem defines the sets of x and y itself",
    ),
    _row(
        lambda c: "z" in c.s.privacy.clips,
        "privacy.clip.z",
        "a minimax problem has gradients by x and y only",
    ),
)

# The context ---------------------------------------------------------------------------------------------------------


def make_minimax_context(c: Components, shards: Shards, problem: Minimax, algorithm: Coordinated) -> MinimaxContext:
    """Return the public facts of a minimax problem.

    Args:
        c: components of the scenario.
        shards: records, whose public counts are read.
        problem: minimax problem.
        algorithm: program of the coordinator.

    Raises:
        InputError: the problem lacks a queried term, a key does not apply, or most samples would be empty.
    """
    s = c.scenario
    n = int(shards.train_counts.sum())
    refuse(_Subject(s, c, algorithm, problem, n), _MINIMAX)
    counts: dict[Split, int] = {"train": n, "validation": 0}
    clip, noisy = _clip(s)
    return MinimaxContext(problem, counts, shards.n_agents, clip, s.algorithm.rounds, _budget(s), noisy)


def make_bilevel_context(c: Components, shards: Shards, problem: Problem, algorithm: Coordinated) -> CoordinatorContext:
    """Return the public facts of a bilevel problem, without constants if they are unknown and not required.

    Args:
        c: components of the scenario.
        shards: records, whose public counts, classes and bounds are read.
        problem: bilevel problem.
        algorithm: program of the coordinator.

    Raises:
        InputError: required constants are unknown.
    """
    s, table = c.scenario, c.keys.get("domain")
    domain = Domain() if table is None else Domain(table.low, table.high)
    counts: dict[Split, int] = {
        "train": int(shards.train_counts.sum()),
        "validation": int(shards.validation_counts.sum()),
    }
    missing_facts: tuple[Refusal[Scenario], ...] = (
        Refusal(lambda s: shards.l2 is None and s.algorithm.kind, *_UNBOUNDED),
        Refusal(
            lambda s: not shards.classes and s.problem.label_range is None and s.algorithm.kind,
            "problem.label_range",
            "missing, and required by {it} to bound the labels",
            "set their public range",
        ),
    )
    family: Family | None = None
    try:
        refuse(s, missing_facts)
        # Classes are numbered from 0; labels with a range are scaled to [−1, 1].
        family = family_of(problem, cast(float, shards.l2), max(1.0, len(shards.classes) - 1.0))
    except InputError:
        if algorithm.needs_constants:
            raise
    clip, noisy = _clip(s)
    return CoordinatorContext(
        problem, counts, shards.n_agents, clip, domain, family, s.algorithm.rounds, _budget(s), noisy
    )


def _clip(s: Scenario) -> tuple[Clip, bool]:
    """Return the clipping norms (none without noise), and whether noise is added."""
    noisy = s.privacy.guarantee != "none"
    return clip_of(s, "l2") if noisy else Clip("l2"), noisy


def _budget(s: Scenario) -> float:
    """Return μ of a Gaussian pair with the target (ε, δ), or inf without a target."""
    has_target = s.privacy.epsilon is not None and s.privacy.delta > 0.0
    return largest_mu(s.privacy.epsilon or 0.0, s.privacy.delta) if has_target else math.inf


# The plan ------------------------------------------------------------------------------------------------------------

# Noise factor at which only the cost of rounding and sampling remains, and least ratio of a target to that cost.
_ENDLESS_NOISE, _SURELY = 1e12, 1.05


_UNPLANNED = (
    Refusal[tuple[Scenario, set[str]]](
        lambda c: "mechanism" in c[0].privacy.model_fields_set and c[0].privacy.mechanism_kind not in c[1],
        "privacy.mechanism",
        '{of[0].algorithm.kind} does not use "{of[0].privacy.mechanism_kind}" noise',
        "remove it",
    ),
    Refusal[tuple[Scenario, set[str]]](
        lambda c: c[0].privacy.guarantee == "certified" and not all(mechanism_of(name).proven for name in c[1]),
        "privacy.guarantee",
        "nothing is proven for {of[0].algorithm.kind} with these options",
        'set "as_published" to run it without a certificate, at ε = ∞',
    ),
)
# For (ε, δ, the least ε of any noise).
_OUT_OF_REACH = (
    Refusal[tuple[float, float, float]](
        lambda c: math.isinf(c[2]),
        "privacy.delta",
        "less than the cost of sampling in float64 with any noise (got {of[1]:g})",
        "raise delta",
    ),
    Refusal[tuple[float, float, float]](
        lambda c: least_text(c[2] * _SURELY) if c[0] <= c[2] * _SURELY else "",
        "privacy.epsilon",
        "not attainable at delta = {of[1]:g} with rounding and sampling in float64 (got {of[0]:g}, expected "
        "at least about {it})",
        "raise epsilon, or use fewer rounds",
    ),
)


def plan_ledger(s: Scenario, algorithm: Coordinated, context: CoordinatorContext | MinimaxContext) -> Ledger:
    """Plan every release of a trusted coordinator, with the privacy cost set by the target or the paper, if any.

    Args:
        s: scenario, whose rounds, guarantee, ε and δ are read.
        algorithm: algorithm with its defaults resolved.
        context: public facts of the run.

    Returns:
        The ledger, whose lines are identical for all agents.

    Raises:
        InputError: the target cannot be met, or the algorithm does not support the guarantee or the mechanism.
    """
    rounds, privacy = s.algorithm.rounds, s.privacy
    charges = algorithm.planned_releases(context, rounds)
    mechanisms = {charge.mechanism for charge in charges.values()}
    refuse((s, mechanisms), _UNPLANNED)
    agents, index = np.zeros(1, dtype=np.int64), np.arange(1, rounds * algorithm.releases_per_round + 1)
    free = [
        ChannelLedger(channel, NO_MECHANISM, width, agents, index, np.zeros((index.size, 1)), {}, {}, FREE)
        for channel, width in algorithm.free_channels(context).items()
    ]

    def ledger_of(channels: list[ChannelLedger]) -> Ledger:
        return Ledger(context.agents, (*free, *channels), algorithm.releases_per_round).repeat(context.agents)

    if privacy.guarantee == "none":
        lines = [make_ledger_line(c, charge, 1.0) for c, charge in charges.items()]
        return ledger_of([replace(line, mechanism=NO_NOISE, scale=np.zeros_like(line.scale)) for line in lines])
    target = 0.0 if privacy.epsilon is None else privacy.epsilon
    if privacy.guarantee == "as_published":
        lines = []
        published = cast(Calibrated, algorithm)
        for channel, calibration in published.calibration(context, rounds, target, privacy.delta).items():
            charge = charges[channel]._replace(weight=calibration.sensitivity)
            lines.append(replace(make_ledger_line(channel, charge, 1.0), scale=calibration.scale[:, None]))
        return ledger_of(lines)
    return fit_plan(
        lambda factor: ledger_of([make_ledger_line(c, charge, 1.0 / factor) for c, charge in charges.items()]),
        target,
        privacy.delta,
    )


def fit_plan(
    plan_at: Callable[[float], Ledger], target: float, delta: float, tightness: float = 0.5 * TIGHTNESS
) -> Ledger:
    """Find a plan whose privacy cost is within (target, delta) and whose ε is at least (1 − tightness)·target.

    Args:
        plan_at: function that maps a noise factor to a plan.
        target: target ε.
        delta: target δ.
        tightness: relative tightness, default half of TIGHTNESS.

    Raises:
        InputError: the privacy cost of float64 sampling and rounding exceeds the target.
    """

    def epsilon_at(factor: float) -> float:
        return float(epsilon_of(plan_at(factor).select(np.zeros(1, dtype=np.int64)), delta)[0])

    # The cost of rounding to a grid and of sampling in float64 does not fall with more noise.
    refuse((target, delta, epsilon_at(_ENDLESS_NOISE)), _OUT_OF_REACH)
    return plan_at(smallest_factor(epsilon_at, target, None, tightness))


def make_ledger_line(channel: str, charge: Charge, factor: float) -> ChannelLedger:
    """Return the ledger lines of one channel at scale 1.

    Args:
        channel: name of the channel.
        charge: planned releases of the channel.
        factor: factor on the privacy cost of every release.
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


# The job -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class _Coordinated(PlannedJob, Protocol):
    """Base class of the jobs of a trusted coordinator."""

    algorithm: Coordinated
    context: Any

    @property
    def has_server(self) -> bool:
        return True

    @property
    def program(self) -> Any:
        """Algorithm without wrappers."""
        program: Any = self.algorithm
        while isinstance(program, Wrapper):
            program = program.program
        return program

    def coordinator_node(self) -> CoordinatorNode:
        """Return the coordinator with its agents in blocks."""
        blocks = np.split(np.arange(self.n_agents), np.cumsum(self.sizes())[:-1])
        clients: list[Any] = [self._client_block(agents, Streams(self.root, "coins", agents)) for agents in blocks]
        if isinstance(self.records, RecordsElsewhere):
            reader = partial(read_shards, shards=self.records.shards, problem=self.problem, norm=self.clip.norm)
            clients = [ReadingClients(client, partial(reader, client.agents)) for client in clients]
        sizes = [value for value in vars(self.program).values() if isinstance(value, StepSize)]
        return CoordinatorNode(
            self.algorithm,
            self.context,
            partial(PlannedReleaser, self.ledger, self.root, self.scenario.privacy.guarantee == "as_published"),
            tuple(clients),
            self.n_agents,
            reads=not self.holds_records,
            most_records=max(int(counts.sum()) for counts in self.counts.values()),
            largest_step=max((float(s.series(self.rounds).max(initial=0.0)) for s in sizes), default=1.0),
        )

    def _client_block(self, agents: NDArray[np.int64], coins: Streams) -> ClientBlock | MinimaxClientBlock: ...

    def start(self, engine: Engine, control: RunControl = UNATTENDED, strict: bool = True) -> Outcome:
        return engine.coordinate(self.coordinator_node(), self.rounds, control)

    @property
    def evaluated_on(self) -> EvaluatedOn:
        # If only x is published, the scores are those of an unpublished lower solution.
        published = self.algorithm.published(self.algorithm.init(self.context))
        return "x_and_y" if "y" in published else "lower_solution"

    def covers(self, ledger: Ledger) -> bool:
        # The scales depend on earlier releases; the privacy cost is planned.
        return ledger.costs_within(self.ledger.truncate(ledger.rounds))


@final
@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class CoordinatorBilevelJob(_Coordinated):
    """A trusted coordinator's job on a bilevel problem."""

    setting: ClassVar[str] = "coordinator_bilevel"
    needs_norms: ClassVar[bool] = True

    problem: Problem
    context: CoordinatorContext

    @property
    def tunes_x(self) -> bool:
        return any(query not in ONE_LEVEL for query in self.algorithm.queries) or not self.algorithm.queries

    def _client_block(self, agents: NDArray[np.int64], coins: Streams) -> ClientBlock:
        return ClientBlock(agents, self.problem, self._records_of(agents), self.clip, coins)

    def evaluator(self) -> Evaluator | None:
        if not self.holds_records:
            return None
        # All records have the same weight, and all agents the same published value.
        return Evaluator(
            self.problem,
            [(concatenate(self.records["train"]), concatenate(self.records["validation"]))],
            self.test,
            label_unit=self.shards.label_unit,
            names=("coordinator",),
            reads_state=False,
            measures=self.scenario.run.measures,
            requested=self.requested,
            one_level=self.components.one_level or not self.tunes_x,
            key=self.reference_key,
        )


@final
@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class CoordinatorMinimaxJob(_Coordinated):
    """A trusted coordinator's job on a minimax problem."""

    setting: ClassVar[str] = "coordinator_minimax"

    problem: Minimax
    context: MinimaxContext

    def _client_block(self, agents: NDArray[np.int64], coins: Streams) -> MinimaxClientBlock:
        return MinimaxClientBlock(agents, self.problem, self._records_of(agents)["train"], coins)

    def evaluator(self) -> MinimaxEvaluator | None:
        return make_evaluator(self)


def build_coordinator_job(
    job: type[CoordinatorBilevelJob | CoordinatorMinimaxJob],
    make_context: Callable[..., Any],
    c: Components,
) -> CoordinatorBilevelJob | CoordinatorMinimaxJob:
    """Build a planned job of a trusted coordinator, without a noise key.

    Args:
        job: class of the job.
        make_context: function that builds the context.
        c: components of the scenario.

    Raises:
        InputError: the components are incompatible.
    """
    s = c.scenario
    problem_options(c)
    program = cast(Coordinated, algorithm_of(c))
    if _releases_share(s):
        program = ClassShare(program, start=program.start)
    check_terms(c, program.queries)
    refuse(_Subject(s, c, program), _COORDINATED)
    topology = c.topology.make()
    check_server(s, topology)
    shards, elsewhere = deal(c, topology.n_agents)
    problem: Any = problem_of(c, shards)
    algorithm, context = program.resolve_defaults(make_context(c, shards, problem, program))
    # A default number of steps can be large.
    refuse(_Subject(s, c, algorithm), (_TOO_LONG, *(_ELSEWHERE if elsewhere is not None else ())))
    ledger = plan_ledger(s, algorithm, context)
    shards = replace(shards, labels=np.asarray(shards.labels, dtype=np.float64))
    return job(
        components=c,
        topology=topology,
        shards=shards,
        records=records_of(problem, shards, elsewhere, context.clip.norm),
        test=test_records(problem, shards, "l2"),
        sampling=sampling_of(s),
        clip=context.clip,
        mechanism=NO_NOISE if s.privacy.guarantee == "none" else GAUSSIAN,
        rounds=s.algorithm.rounds,
        ledger=ledger,
        budget=account(ledger, s.privacy.delta),
        problem=problem,
        algorithm=algorithm,
        context=context,
    )
