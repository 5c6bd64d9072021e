"""Prepared records of agents: of all in this process, or of some in the process that hosts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import SPLITS, Array, Norm, Split
from decentral_dp.config.schema import Scenario
from decentral_dp.data import Shards
from decentral_dp.data.agent_shards import AgentShards
from decentral_dp.engines.protocol import AgentNode, Hosted, Receipts
from decentral_dp.errors import InputError
from decentral_dp.participants.agents import LocalDataset
from decentral_dp.privacy.randomness import Streams
from decentral_dp.problems.records import ByAgent
from decentral_dp.simulation.folder.states import STATES, AgentStates, module_of
from decentral_dp.simulation.metrics import AgentScorer


@dataclass(frozen=True)
class RecordsElsewhere(Mapping[Split, Sequence[Any]]):
    """Records that are not here: whoever asks for them is refused. shards: where they are."""

    shards: AgentShards

    def __getitem__(self, split: Split) -> Sequence[Any]:
        raise InputError(
            "problem.manifest: the records are with their agents, and what is asked for needs them here. Give "
            "problem.data whole, as a file or a data set, and leave the manifest out."
        )

    def __iter__(self) -> Iterator[Split]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)


def require_records(records: Mapping[Split, Any], command: str) -> None:
    """Refuse what reads the records of all agents in one process, where each agent has its own.

    Args:
        records: of a job.
        command: begins the refusal.

    Raises:
        InputError: they are with their agents.
    """
    if isinstance(records, RecordsElsewhere):
        raise InputError(
            f"{command}: it replaces or scores single records, and they are with their agents (problem.manifest). Try "
            "it on a stand-in of public or made-up records: give problem.data whole, and leave the manifest out."
        )


def records_in(problem: Any, shards: Shards, norm: Norm, first: int = 0) -> dict[Split, Sequence[Any]]:
    """Records as a problem reads them.

    Args:
        problem: of the job.
        shards: of the agents `first`, `first` + 1, ….
        norm: of the clips.
        first: number of the first agent of the shards; default 0.
    """
    prepared = problem.prepare(shards.features, as_numbers(shards.labels), norm)
    train = ByAgent.from_shards(prepared, shards.train)
    return {
        "train": tuple(problem.place_records(r, first + i) for i, r in enumerate(train))
        if hasattr(problem, "place_records")
        else train,
        "validation": ByAgent.from_shards(prepared, shards.validation),
    }


def records_of(
    problem: Any, shards: Shards, agent_shards: AgentShards | None, norm: Norm
) -> Mapping[Split, Sequence[Any]]:
    """The records of a job: prepared here, or with their agents; none where none were drawn."""
    if agent_shards is not None:
        return RecordsElsewhere(agent_shards)
    return records_in(problem, shards, norm) if shards.has_records else {}


def test_records(problem: Any, shards: Shards, norm: Norm) -> Any | None:
    """The test records as a problem reads them; None where there are none."""
    if not shards.test.size or not shards.has_records:
        return None
    return problem.prepare(shards.features[shards.test], as_numbers(shards.labels[shards.test]), norm)


def as_numbers(labels: Any) -> Array:
    """(n,) labels as float64."""
    return np.asarray(labels, dtype=np.float64)


def reading_node(
    node: AgentNode,
    records: RecordsElsewhere,
    problem: Any,
    s: Scenario,
    dataset_of: Callable[..., LocalDataset],
) -> AgentNode:
    """A node whose agents read their own records, where it will live.

    Where the noise is secret, it is drawn with the secrets that lie beside the records, so that whoever has the root
    alone cannot draw it.

    Args:
        node: without data; its releaser is made of a mechanism, schedules, streams, and more.
        records: where they are.
        problem: of the job.
        s: the scenario.
        dataset_of: records → the data set of these agents.
    """
    secret = s.seed is None
    make: Any = node.make_releaser
    releaser = partial(_releaser, make, records.shards, node.agents) if secret else make
    read = partial(
        _read_records, node.agents, records.shards, problem, dataset_of, s.run.agent_scores, secret, node.program
    )
    return node._replace(make_releaser=releaser, read_dataset=read)


def _states(agents: NDArray[np.int64], shards: AgentShards, program: Any, run: str, receipts: Receipts) -> AgentStates:
    first = int(agents[0])
    return AgentStates(shards.path(first).parent / STATES, f"{run}-{first}", module_of(program), receipts)


def read_shards(
    agents: NDArray[np.int64],
    shards: AgentShards,
    problem: Any,
    norm: Norm,
    scored: bool = False,
) -> tuple[dict[Split, list[Any]], list[Any | None]]:
    """Kind → the records of each agent as a problem reads them; its test records, if scored.

    Raises InputError where a file is not the manifest's.
    """
    records: dict[Split, list[Any]] = {split: [] for split in SPLITS}
    tests: list[Any | None] = []
    for agent in agents:
        mine = shards.read_agent(int(agent))
        for split, own in records_in(problem, mine, norm, int(agent)).items():
            records[split] += own
        tests.append(test_records(problem, mine, norm) if scored else None)
    return records, tests


def _releaser(make: Any, shards: AgentShards, agents: NDArray[np.int64]) -> Any:
    mechanism, schedules, streams, *more = make.args
    return make.func(mechanism, schedules, _with_secrets(streams, shards, agents), *more)


def _with_secrets(streams: Streams, shards: AgentShards, agents: NDArray[np.int64]) -> Streams:
    return streams.with_agent_secrets([shards.secret(int(agent)) for agent in agents])


def _read_records(
    agents: NDArray[np.int64],
    shards: AgentShards,
    problem: Any,
    dataset_of: Any,
    scored: bool,
    secret: bool,
    program: Any,
) -> Hosted:
    """Read the records of agents, in the process that hosts them.

    Args:
        agents: their numbers.
        shards: where their files are.
        problem: of the job.
        dataset_of: records → their data set, with the clip and the streams of minibatches.
        scored: whether the records are scored, which nothing protects.
        secret: whether minibatches are drawn with the secrets beside the records.
        program: that they run.

    Raises:
        InputError: a file cannot be read, or is not what the manifest says.
    """
    norm: Norm = dataset_of.keywords["clip"].norm
    records, tests = read_shards(agents, shards, problem, norm, scored=scored)
    batches = dataset_of.keywords["batches"]
    dataset = dataset_of(records=records, batches=_with_secrets(batches, shards, agents) if secret else batches)
    states = partial(_states, agents, shards, program)
    if not scored:
        return Hosted(dataset, states=states)
    records_of_agents = list(zip(records["train"], records["validation"], tests, strict=True))
    return Hosted(dataset, AgentScorer(problem, records_of_agents, not shards.manifest.classes), states)
