"""Jobs of a trusted coordinator, bilevel or minimax: it adds the noise, once, to what it publishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.declared import Wrapper
from decentral_dp.algorithms.protocol import ONE_LEVEL, StepSize
from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.context import CoordinatorContext, MinimaxContext
from decentral_dp.central.programs import Coordinated
from decentral_dp.engines.protocol import UNATTENDED, CoordinatorNode, Engine, Outcome, RunControl
from decentral_dp.participants.clients import ClientBlock
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms.releasers import PlannedReleaser
from decentral_dp.privacy.randomness import Streams
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.records import RecordPairs
from decentral_dp.problems.saddle import Minimax
from decentral_dp.simulation.jobs.job import (
    PlannedJob,
    RecordsElsewhere,
    minimax_evaluator,
    read_shards,
    unmeasured_reason,
)
from decentral_dp.simulation.metrics import Evaluator, MinimaxEvaluator, Unscored, pool
from decentral_dp.simulation.statement import Setting


@dataclass(eq=False)
class ReadingClients:
    """A block of agents that answer a trusted coordinator, and read their own records where the block is.

    Args:
        block: of the agents, without records.
        read_records: returns kind → their records, and nothing that is scored.
    """

    block: Any
    read_records: Callable[[], tuple[Mapping[Split, Any], Any]]

    @property
    def agents(self) -> NDArray[np.int64]:
        agents: NDArray[np.int64] = self.block.agents
        return agents

    @cached_property
    def _complete(self) -> Any:
        records, _ = self.read_records()
        return replace(self.block, records=records if isinstance(self.block, ClientBlock) else records["train"])

    def ready(self) -> int:
        """Read the records, and return of how many agents. Raises InputError where a file is not the manifest's."""
        return int(self._complete.agents.size)

    def answer(self, number: int, questions: Mapping[str, Any]) -> dict[str, Array]:
        """Sum the agents' clipped contributions; as of the block, (b, …) each."""
        answers: dict[str, Array] = self._complete.answer(number, questions)
        return answers

    def hand_over(self) -> list[Any]:
        """Refuse: what is with the agents stays there."""
        raise TypeError("agents whose records are their own hand over none")


def reading_coordinator(node: CoordinatorNode, records: RecordsElsewhere) -> CoordinatorNode:
    """A coordinator whose agents read their own records, where their blocks will live.

    Args:
        node: whose blocks have no records.
        records: where they are.
    """

    def reading(block: ClientBlock | MinimaxClientBlock) -> ReadingClients:
        norm: Norm = block.clip.norm if isinstance(block, ClientBlock) else "l2"
        return ReadingClients(block, partial(read_shards, block.agents, records.shards, block.problem, norm))

    return node._replace(client_blocks=tuple(map(reading, node.client_blocks)), reads=True)


@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class _Coordinated(PlannedJob, Protocol):
    """What jobs of a trusted coordinator share: it plans its whole budget beforehand, and publishes one value."""

    algorithm: Coordinated
    context: Any

    @property
    def central(self) -> bool:
        return True

    def coordinator_node(self) -> CoordinatorNode:
        """The coordinator with its agents in blocks."""
        cut = np.split(np.arange(self.n_agents), np.cumsum(self.sizes())[:-1])
        client_blocks = tuple(self._client_block(agents, Streams(self.root, "coins", agents)) for agents in cut)
        make = partial(PlannedReleaser, self.ledger, self.root, self.scenario.privacy.guarantee == "as_published")
        program: Any = self.algorithm
        while isinstance(program, Wrapper):
            program = program.program
        sizes = [value for value in vars(program).values() if isinstance(value, StepSize)]
        node = CoordinatorNode(
            self.algorithm,
            self.context,
            make,
            client_blocks,
            self.n_agents,
            most_records=max(int(counts.sum()) for counts in self.counts.values()),
            largest_step=max((float(s.series(self.rounds).max(initial=0.0)) for s in sizes), default=1.0),
        )
        if isinstance(self.records, RecordsElsewhere):
            return reading_coordinator(node, self.records)
        return node

    def _client_block(self, agents: NDArray[np.int64], coins: Streams) -> ClientBlock | MinimaxClientBlock: ...

    def start(self, engine: Engine, control: RunControl = UNATTENDED, strict: bool = True) -> Outcome:
        return engine.coordinate(self.coordinator_node(), self.rounds, control)

    def evaluated_on(self, average: int) -> str:
        # Where x alone is published, scores are those of a lower solution that nobody sees.
        published = self.algorithm.published(self.algorithm.init(self.context))
        return "published x and y" if "y" in published else "exact lower solution at the published x"

    def covers(self, recorded: Ledger) -> bool:
        # A coordinator's scales follow from what it released before; what is planned is the price.
        return recorded.costs_within(self.ledger.truncate(recorded.rounds))


@final
@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class CoordinatorBilevelJob(_Coordinated):
    """A job of a trusted coordinator on a bilevel problem. context: what it knows beforehand."""

    setting: ClassVar[Setting] = "coordinator_bilevel"
    needs_norms: ClassVar[bool] = True

    problem: Problem
    context: CoordinatorContext

    @property
    def tunes_x(self) -> bool:
        return any(query not in ONE_LEVEL for query in self.algorithm.queries) or not self.algorithm.queries

    @property
    def unmeasured(self) -> str:
        return unmeasured_reason(self.problem, self.counts) if self.tunes_x and not self.shards.is_elsewhere else ""

    def _client_block(self, agents: NDArray[np.int64], coins: Streams) -> ClientBlock:
        return ClientBlock(agents, self.problem, self._records_of(agents), self.clip, coins)

    def evaluator(self) -> Evaluator | Unscored:
        if isinstance(self.records, RecordsElsewhere):
            return Unscored()
        # A coordinator weighs records alike, whoever holds them, and publishes one value for all.
        named: dict[str, Any] = {"gap": True, "names": ("coordinator",), "reads_state": False}
        named |= {"hypergradient": self.tunes_x and not self.unmeasured, "measures": self.scenario.run.measures}
        named |= {"of_classes": self.of_classes}
        records = pool(RecordPairs(self.records["train"], self.records["validation"]))
        return Evaluator(self.problem, [records], self.test, label_unit=self.shards.label_unit, **named)


@final
@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class CoordinatorMinimaxJob(_Coordinated):
    """A job of a trusted coordinator on a minimax problem. context: what it knows beforehand."""

    setting: ClassVar[Setting] = "coordinator_minimax"

    problem: Minimax
    context: MinimaxContext

    def _client_block(self, agents: NDArray[np.int64], coins: Streams) -> MinimaxClientBlock:
        return MinimaxClientBlock(agents, self.problem, self._records_of(agents)["train"], coins)

    def evaluator(self) -> MinimaxEvaluator | Unscored:
        return minimax_evaluator(self, self.problem)
