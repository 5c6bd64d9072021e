"""Functions of released values that a run calls, and runs round by round.

Released values cost no further ε, so metrics, early stopping and steps are post-processing. If a stop depends on
released values, the ε of the plan, for all rounds, holds. The ε of the rounds so far requires a number of rounds that
is fixed in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.engines.protocol import Snapshot
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import Row, metric_words
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# Channel → (m, ·) last released values.
Released: TypeAlias = Mapping[str, Array]
R = TypeVar("R")
NO_METRICS: Mapping[str, Callable[[Released], float]] = MappingProxyType({})


class Step(NamedTuple):
    """State of a run after a round, from released values and public facts.

    Attributes:
        round: number of completed rounds; 0 at the start.
        released: channel → last released values (m, ·), read-only.
        epsilon: ε that the worst agent has spent on all releases so far. It holds if the round is fixed in advance; if
            the run stops because of released values, the ε of the plan holds.
        bits: number of bits that all agents have sent so far; 0 with a trusted coordinator.
    """

    round: int
    released: Released
    epsilon: float
    bits: int


class Watch(NamedTuple):
    """Functions of released values that a run calls.

    Args:
        metrics: name → function whose value is a metric of evaluated rounds, default none.
        stop: function that ends the run after an evaluated round if it returns True; None (the default) never stops.
        visit: function of a round in `rounds` and its released values, default None.
        rounds: rounds in which `visit` is called.
    """

    metrics: Mapping[str, Callable[[Released], float]] = NO_METRICS
    stop: Callable[[Released], bool] | None = None
    visit: Callable[[int, Released], None] | None = None
    rounds: Sequence[int] = ()

    def rows(self, s: Snapshot, names: set[str]) -> list[Row]:
        """Return the metrics of a snapshot.

        Args:
            s: snapshot of a round.
            names: names of the other metrics.

        Raises:
            InputError: a custom problem has a metric of this name.
            UserCodeError: a function raises.
        """
        for name in names & self.metrics.keys():
            raise InputError(f"metrics: {name!r} is the name of a metric of this run. Fix: use another name.")
        values = read_only(s.released)
        return [(s.round, "mean", name, _number(name, f, s.round, values)) for name, f in self.metrics.items()]

    def stops(self, s: Snapshot) -> bool:
        """Return whether the run ends after a snapshot. Raises UserCodeError if the function raises."""
        return (
            self.stop is not None and s.round > 0 and bool(_number("stop", self.stop, s.round, read_only(s.released)))
        )


def check_watch(watch: Watch, job: PlannedJob) -> None:
    """Refuse names of other metrics, and a stop or steps for a job whose ε holds for fixed rounds only.

    Raises:
        InputError: only the final models are published, whose ε assumes a fixed number of rounds, or a metric has the
            name of another metric.
    """
    refuse((watch, job), _WATCHED)


_WATCHED: tuple[Refusal[tuple[Watch, PlannedJob]], ...] = (
    Refusal(
        lambda run: next((repr(name) for name in run[0].metrics if metric_words(name) is not None), ""),
        "metrics",
        '{it} is a name in "decentral-dp list measures"',
        "use another name",
    ),
    Refusal(
        lambda run: (
            run[1].scenario.privacy.adversary != "all_messages"
            and ("stop" if run[0].stop is not None else "steps" if run[0].visit is not None else "")
        ),
        "{it}",
        'privacy.adversary = "{of[1].scenario.privacy.adversary}" requires a fixed number of rounds, since stopping '
        "early would reveal more than the published models",
        'use privacy.adversary = "all_messages"',
    ),
)


def _number(name: str, function: Callable[[Released], Any], t: int, values: Released) -> float:
    try:
        return float(function(values))
    except USER_ERRORS as error:
        raise UserCodeError(f"{name}: fails after round {t}: {blame(error)}. Fix: correct its code.") from error


def read_only(values: Released) -> Released:
    """Return a read-only copy, so that no function changes a run."""
    copies = {channel: np.array(value) for channel, value in values.items()}
    for value in copies.values():
        value.flags.writeable = False
    return copies


def iterate(run: Callable[[Callable[[int, Released], None]], R]) -> Generator[tuple[int, Released], None, R]:
    """Run in a thread and yield the visited rounds.

    The run waits while the caller processes a round. If the caller stops, the run is interrupted there.

    Args:
        run: function that runs with a function to visit rounds, and returns the result.

    Returns:
        The result of the run.
    """
    arrivals: SimpleQueue[Any] = SimpleQueue()
    continues: SimpleQueue[bool] = SimpleQueue()

    def visit(t: int, values: Released) -> None:
        arrivals.put((t, values))
        if not continues.get():
            raise KeyboardInterrupt

    def work() -> None:
        try:
            arrivals.put([run(visit)])
        except BaseException as error:  # noqa: BLE001 # raised in the thread of the caller
            arrivals.put(error)

    thread = Thread(target=copy_context().run, args=(work,), daemon=True)
    thread.start()
    try:
        while isinstance(arrival := arrivals.get(), tuple):
            yield arrival
            continues.put(True)
    finally:
        # Without a round to continue, the thread has ended.
        continues.put(False)
        thread.join()
    if isinstance(arrival, BaseException):
        raise arrival
    results: list[R] = arrival
    return results[0]
