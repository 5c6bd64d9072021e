"""`run.log`: what a run tells of itself, for TensorBoard and MLflow. Both are fed from the events of `--log`.

Of every evaluation the loss, ε spent so far and the rounds a second, by round. TensorBoard's files are in the folder
`tensorboard` of the run; MLflow gets a run of its own, wherever MLFLOW_TRACKING_URI says. The loss reads records, and
no budget covers it: such a log is to be kept as the records are.

What a run tells of itself while it goes: one stream of events, for a bar, lines of text, or a log.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from decentral_dp.errors import InputError, Stopped
from decentral_dp.simulation.folder.in_progress import TENSORBOARD


class RunEvent(NamedTuple):
    """A run at one of its evaluations.

    Args:
        round: that is done.
        rounds: in all.
        loss: upper loss, or the lower one where x is not tuned; it reads records. NaN where it was not measured.
        epsilon: spent by the worst agent so far.
        rounds_per_second: since the first event; None at it.
        seconds_left: at that speed; None at the first event.
    """

    round: int
    rounds: int
    loss: float
    epsilon: float
    rounds_per_second: float | None
    seconds_left: float | None


class EventSink(Protocol):
    """Told of every event."""

    def __call__(self, event: RunEvent) -> None: ...


class Events:
    """A progress callback that turns what it is told into events, the same for every sink.

    Args:
        sinks: that are told.
        clock: seconds; by default those of this machine, which no change of its time moves.

    Example:
        >>> seconds, seen = iter([0.0, 2.0]), []
        >>> events = Events([seen.append], clock=lambda: next(seconds))
        >>> events(10, 40, 0.7, 0.5); events(20, 40, 0.6, 1.0)
        >>> seen[1].rounds_per_second, seen[1].seconds_left
        (5.0, 4.0)
    """

    def __init__(self, sinks: Sequence[EventSink], clock: Callable[[], float] = time.monotonic) -> None:
        self._sinks, self._clock = sinks, clock
        self._first: tuple[int, float] | None = None
        self._spent = 0.0

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None:
        """Tell all sinks; as `ProgressCallback`."""
        now = self._clock()
        # A run that goes on does not begin at round 0.
        first, at = self._first = self._first or (done, now)
        # ε is not priced at every round; the last known one stays.
        self._spent = self._spent if math.isnan(epsilon) else epsilon
        speed = (done - first) / (now - at) if now > at and done > first else None
        left = None if speed is None else (rounds - done) / speed
        for sink in self._sinks:
            sink(RunEvent(done, rounds, loss, self._spent, speed, left))


_EXPERIMENT = "decentral_dp"
# Name → module, and the extra that installs it.
_MODULES = {"tensorboard": ("tensorboardX", "tensorboard"), "mlflow": ("mlflow", "mlflow")}


class Told(Protocol):
    """Told of progress."""

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None: ...


class EventWriter(Protocol):
    """Writes events to where somebody looks at them."""

    def __call__(self, event: RunEvent) -> None: ...

    def close(self, status: str) -> None:
        """End. status: "FINISHED", "KILLED" or "FAILED"."""
        ...


class TensorBoardWriter:
    """Scalars in a folder that TensorBoard reads."""

    def __init__(self, folder: Path, title: str) -> None:
        self._writer: Any = importlib.import_module("tensorboardX").SummaryWriter(str(folder / TENSORBOARD))

    def __call__(self, event: RunEvent) -> None:
        """Write one evaluation."""
        for name, value in _scalars(event).items():
            self._writer.add_scalar(name, value, event.round)
        self._writer.flush()

    def close(self, status: str) -> None:
        """Close the file. status: not written, for there is no place for it."""
        self._writer.close()


class MlflowWriter:
    """Metrics of a run of the experiment `decentral_dp`."""

    def __init__(self, folder: Path, title: str) -> None:
        self._client: Any = importlib.import_module("mlflow").MlflowClient()
        known = self._client.get_experiment_by_name(_EXPERIMENT)
        number = self._client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
        tags = {"folder": str(folder), "title": title}
        self._run = self._client.create_run(number, run_name=folder.name, tags=tags).info.run_id

    def __call__(self, event: RunEvent) -> None:
        """Write one evaluation."""
        for name, value in _scalars(event).items():
            self._client.log_metric(self._run, name, value, step=event.round)

    def close(self, status: str) -> None:
        """End the run. status: as MLflow calls it."""
        self._client.set_terminated(self._run, status)


WRITERS: Mapping[str, Callable[[Path, str], EventWriter]] = MappingProxyType(
    {"tensorboard": TensorBoardWriter, "mlflow": MlflowWriter}
)


def check_installed(names: Sequence[str]) -> None:
    """Refuse before a run what could not be written during it. Raises InputError."""
    for name in names:
        module, extra = _MODULES[name]
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise InputError(
                f'run.log: "{name}" needs {module}, which is not installed; pip install "decentral_dp[{extra}]" brings '
                "it. Or leave it out."
            ) from None


@contextmanager
def logged(names: Sequence[str], folder: Path, title: str, told: Told | None) -> Iterator[Told | None]:
    """Write the progress of a run inside `with`, besides whoever is told of it.

    Args:
        names: of writers.
        folder: of the run.
        title: of the run.
        told: of progress, or None.

    Yields:
        Who is told.
    """
    if not names:
        yield told
        return
    writers = [WRITERS[name](folder, title) for name in names]
    events = Events(writers)

    def both(done: int, rounds: int, loss: float, epsilon: float) -> None:
        events(done, rounds, loss, epsilon)
        if told is not None:
            told(done, rounds, loss, epsilon)

    status = "FAILED"
    try:
        yield both
        status = "FINISHED"
    except (KeyboardInterrupt, Stopped):
        status = "KILLED"
        raise
    finally:
        for writer in writers:
            writer.close(status)


def _scalars(event: RunEvent) -> dict[str, float]:
    """What is finite of an event."""
    named = {"loss": event.loss, "epsilon": event.epsilon, "rounds_per_second": event.rounds_per_second}
    return {name: value for name, value in named.items() if value is not None and math.isfinite(value)}
