"""A trusted coordinator at work: its program, advanced from exchange to exchange. The same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.engines.protocol import (
    UNATTENDED,
    CoordinatorNode,
    CoordinatorReleaser,
    Divergence,
    Outcome,
    ReleasedValues,
    RunControl,
    Saved,
    Snapshot,
)
from decentral_dp.exchange import Ask, ClippedQuery, ClippedSum, Pool, Release
from decentral_dp.user_code import USER_ERRORS, failed, miscounted

# Calls a method of every block of agents, and returns what they answer, in their order.
Everywhere = Callable[..., list[Any]]


def coordinate(
    coordinator_node: CoordinatorNode,
    rounds: int,
    everywhere: Everywhere,
    control: RunControl = UNATTENDED,
) -> Outcome:
    """Run a trusted coordinator's program.

    Only public values go to the agents, and only what was published is observed.

    Args:
        coordinator_node: the program, its context and its agents.
        rounds: T.
        everywhere: calls a method of every block of agents, and returns their answers in order.
        control: when the run is observed, by what, and where it goes on from.

    Returns:
        The last snapshot and the ledger of what was released, for all agents.
    """
    if coordinator_node.reads:
        # Nothing is released before every agent has its records.
        everywhere("ready")
    coordinator = _Coordinator(coordinator_node, everywhere, control.keeps_releases)
    first = 0
    if control.saved is not None:
        first = control.saved.round
        coordinator.restore(control.saved.parts[0])
    observed = control.observed(rounds)
    last = coordinator.snapshot(first)
    done = observed(first) and control.observe(last)
    for t in range(first + 1, rounds + 1):
        if done:
            break
        coordinator.round(t - 1)
        if observed(t):
            last = coordinator.snapshot(t)
            done = control.observe(last)
    return Outcome(
        last,
        coordinator.releaser.ledger(coordinator_node.program.releases_per_round).for_all(coordinator_node.n_agents),
    )


class _Coordinator:
    def __init__(self, coordinator_node: CoordinatorNode, everywhere: Everywhere, keeps_releases: bool) -> None:
        self.releaser: CoordinatorReleaser = coordinator_node.make_releaser()
        self._coordinator_node = coordinator_node
        self._everywhere = everywhere
        self._state: Any = coordinator_node.program.init(coordinator_node.context)
        self._asked = 0
        self._pool: Any = None
        self._divergence: Divergence | None = None
        self._keeps_releases = keeps_releases
        self._kept: list[ReleasedValues] = []

    def round(self, t: int) -> None:
        program = self._coordinator_node.program
        index, end = t * program.releases_per_round, (t + 1) * program.releases_per_round
        running = program.step(t, self._coordinator_node.context, self._state)
        reply: Any = None
        # Overflow is a result (see `divergence`), not a warning.
        with np.errstate(all="ignore"):
            while True:
                try:
                    request = running.send(reply)
                except StopIteration as done:
                    self._state = done.value
                    break
                except USER_ERRORS as error:
                    raise failed(error, t + 1) from error
                if isinstance(request, Release):
                    if index == end:
                        miscounted(program, t + 1, "publishes", f"{program.releases_per_round + 1} times or more")
                    index += 1
                    reply = self.releaser.release(index, request.values)
                    self._look_at(t + 1, reply.released)
                    if self._keeps_releases:
                        self._kept.append(ReleasedValues(index, dict(reply.released)))
                elif isinstance(request, Ask):
                    reply = self._ask(request)
                elif isinstance(request, Pool):
                    reply = self._pooled()
                else:
                    raise RuntimeError("a coordinator's program makes Ask, Pool and Publish, and nothing else")
        # What follows from releases may overflow where they do not.
        self._look_at(t + 1, program.published(self._state))
        if index != end:
            made = index - t * program.releases_per_round
            miscounted(program, t + 1, "publishes", f"{made} time{'s' * (made != 1)}")

    def _ask(self, request: Ask) -> Any:
        questions = request.values
        if not all(isinstance(q, ClippedSum | ClippedQuery) for q in questions.values()):
            raise RuntimeError("a coordinator asks for sums over records, and for nothing else")
        self._asked += 1
        blocks = self._everywhere("answer", self._asked, questions)
        answers = {name: np.concatenate([block[name] for block in blocks]) for name in questions}
        return self._coordinator_node.context.combined(self._asked, questions, answers)

    def _pooled(self) -> Any:
        if self._pool is None:
            handed = [records for block in self._everywhere("hand_over") for records in block]
            self._pool = self._coordinator_node.context.pooled(handed)
        return self._pool

    def _look_at(self, t: int, values: Any) -> None:
        if self._divergence is None:
            bad = next((c for c, v in values.items() if not np.isfinite(v).all()), None)
            self._divergence = None if bad is None else Divergence(t, bad)

    def snapshot(self, t: int) -> Snapshot:
        """What is public, and what the simulator sees: the same."""
        known: dict[str, Array] = {
            c: np.asarray(v)[None] for c, v in self._coordinator_node.program.published(self._state).items()
        }
        return Snapshot(t, known, known, known, self._divergence, lambda: Saved(t, (self._save(),)), self._drain)

    def _drain(self, ending: bool) -> list[ReleasedValues]:
        # Nothing of a finished round is released again.
        kept, self._kept = self._kept, []
        return kept

    def _save(self) -> dict[str, Any]:
        # Records were handed over once; after a restart they are handed over again, which is no release.
        return {
            "state": self._state,
            "asked": self._asked,
            "divergence": self._divergence,
            "recorded": self.releaser.recorder.lines(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved."""
        self._state, self._asked = saved["state"], saved["asked"]
        self._divergence = saved["divergence"]
        self.releaser.recorder.load(saved["recorded"], [c.mechanism for c in self.releaser.plan.channels])
