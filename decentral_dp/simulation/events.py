"""How far something long is: one form of progress, for a callback, a bar, lines of text, or a log.

`run.log`: the progress of a run for TensorBoard, MLflow and Prometheus, by round: loss, ε spent so far, rounds a
second. TensorBoard's files are in the folder `tensorboard` of the run; MLflow gets a run of its own, wherever
MLFLOW_TRACKING_URI says; Prometheus reads the metrics of the Ray cluster that the run is on. The loss reads records,
and no budget covers it: such a log is to be kept as the records are.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from decentral_dp.errors import InputError, Stopped
from decentral_dp.formatting import epsilon_text


class Progress(NamedTuple):
    """How far something long is, as `progress=` of every function is told.

    done: so many, of the unit. total: in all. unit: "rounds" of a run, "cells" of a study, "runs" of an audit or an
    attack, "audits" of a table of them, "pairs" of a check, "observers" of a network's view, "steps" of a tuner.
    loss: of a run, at an evaluation, the upper loss, or the lower one where x is not tuned; it reads records, and is
    NaN where it was not measured. epsilon: of a run, spent by the worst agent so far. failed: of a study, cells that
    failed. per_second: done since the first call; None at it. seconds_left: at that speed; None at the first call.
    note: a sentence that is to be said once; mostly "".

    Example:
        >>> import decentral_dp
        >>> seen = []
        >>> done = decentral_dp.run("quadratic", set={"algorithm.rounds": 2}, progress=seen.append)
        >>> isinstance(seen[-1], decentral_dp.Progress), seen[-1].done, seen[-1].total, seen[-1].unit
        (True, 2, 2, 'rounds')
    """

    done: int
    total: int
    unit: str
    loss: float = math.nan
    epsilon: float = math.nan
    failed: int = 0
    per_second: float | None = None
    seconds_left: float | None = None
    note: str = ""

    @property
    def description(self) -> str:
        """What a bar says beside its numbers."""
        words = [f"loss {self.loss:.4f}"] if self.unit == "rounds" else []
        words += [] if math.isnan(self.epsilon) else [f"ε spent {epsilon_text(self.epsilon)}"]
        return ", ".join([*words, *([f"{self.failed} failed"] if self.failed else [])])


class ProgressCallback(Protocol):
    """Called with every progress."""

    def __call__(self, progress: Progress, /) -> None: ...


class Reporter:
    """Says how far something is, with its speed.

    Args:
        callback: that is called, or None.
        unit: as of `Progress`.
        clock: seconds; by default those of this machine, which no change of its time moves.

    Example:
        >>> seconds, seen = iter([0.0, 2.0]), []
        >>> report = Reporter(seen.append, "rounds", clock=lambda: next(seconds))
        >>> report(10, 40, loss=0.7, epsilon=0.5); report(20, 40, loss=0.6, epsilon=1.0)
        >>> seen[1].per_second, seen[1].seconds_left
        (5.0, 4.0)
    """

    def __init__(
        self, callback: ProgressCallback | None, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._callback, self._unit, self._clock = callback, unit, clock
        self._first: tuple[int, float] | None = None
        self._spent = math.nan

    def __call__(
        self,
        done: int,
        total: int,
        *,
        loss: float = math.nan,
        epsilon: float = math.nan,
        failed: int = 0,
        note: str = "",
    ) -> None:
        """Call the callback; arguments as of `Progress`."""
        if self._callback is None:
            return
        now = self._clock()
        # A run that goes on does not begin at round 0.
        first, at = self._first = self._first or (done, now)
        # ε is not priced at every round; the last known one stays.
        self._spent = self._spent if math.isnan(epsilon) else epsilon
        speed = (done - first) / (now - at) if now > at and done > first else None
        left = None if speed is None else (total - done) / speed
        self._callback(Progress(done, total, self._unit, loss, self._spent, failed, speed, left, note))


def combine_callbacks(*callbacks: ProgressCallback) -> ProgressCallback:
    """One callback that calls all of these, in their order."""

    def call_all(progress: Progress) -> None:
        for callback in callbacks:
            callback(progress)

    return call_all


# What TensorBoard reads, in the folder of the run.
TENSORBOARD = "tensorboard"
_EXPERIMENT = "decentral_dp"


@contextmanager
def _tensorboard(folder: Path, title: str) -> Iterator[ProgressCallback]:
    """Scalars in a folder that TensorBoard reads."""
    writer: Any = importlib.import_module("tensorboardX").SummaryWriter(str(folder / TENSORBOARD))

    def write(progress: Progress) -> None:
        for name, value in _scalars(progress).items():
            writer.add_scalar(name, value, progress.done)
        writer.flush()

    try:
        yield write
    finally:
        writer.close()


@contextmanager
def _mlflow(folder: Path, title: str) -> Iterator[ProgressCallback]:
    """Metrics of a run of the experiment `decentral_dp`."""
    client: Any = importlib.import_module("mlflow").MlflowClient()
    known = client.get_experiment_by_name(_EXPERIMENT)
    number = client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
    tags = {"folder": str(folder), "title": title}
    run, status = client.create_run(number, run_name=folder.name, tags=tags).info.run_id, "FAILED"

    def write(progress: Progress) -> None:
        for name, value in _scalars(progress).items():
            client.log_metric(run, name, value, step=progress.done)

    try:
        yield write
        status = "FINISHED"
    except (KeyboardInterrupt, Stopped):
        status = "KILLED"
        raise
    finally:
        client.set_terminated(run, status)


@contextmanager
def _prometheus(folder: Path, title: str) -> Iterator[ProgressCallback]:
    """Gauges `decentral_dp_…` of the Ray cluster that the driver has joined, with the run's folder as the tag `run`."""
    gauges: dict[str, Any] = {}

    def write(progress: Progress) -> None:
        metrics = importlib.import_module("ray.util.metrics")
        for name, value in {"rounds": float(progress.done), **_scalars(progress)}.items():
            if name not in gauges:
                gauges[name] = metrics.Gauge(f"decentral_dp_{name}", tag_keys=("run",))
            gauges[name].set(value, {"run": folder.name})

    yield write


class Writer(NamedTuple):
    """What writes the progress of a run to where somebody looks at it.

    open: of the run's folder and title. module, package: that it needs, and what installs that.
    """

    open: Callable[[Path, str], AbstractContextManager[ProgressCallback]]
    module: str
    package: str


WRITERS = {
    "tensorboard": Writer(_tensorboard, "tensorboardX", "decentral_dp[tensorboard]"),
    "mlflow": Writer(_mlflow, "mlflow", "decentral_dp[mlflow]"),
    # Without it Ray takes metrics and serves none.
    "prometheus": Writer(_prometheus, "prometheus_client", "ray[default]"),
}


def check_log(names: Sequence[str], engine: str) -> None:
    """Refuse before a run what could not be written during it. Raises InputError."""
    if "prometheus" in names and engine != "ray":
        raise InputError(
            f'run.log: "prometheus" writes metrics of a Ray cluster, and the engine is {engine}. Take run.engine = '
            '"ray", or leave it out.'
        )
    for name in names:
        _, module, package = WRITERS[name]
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise InputError(
                f'run.log: "{name}" needs {module}, which is not installed; pip install "{package}" brings it. '
                "Or leave it out."
            ) from None


@contextmanager
def log_progress(
    names: Sequence[str], folder: Path, title: str, callback: ProgressCallback | None
) -> Iterator[ProgressCallback | None]:
    """Write the progress of a run inside `with`, besides whoever is told of it.

    Args:
        names: of writers.
        folder: of the run.
        title: of the run.
        callback: that is called, or None.

    Yields:
        What is to be called.
    """
    if not names:
        yield callback
        return
    with ExitStack() as opened:
        writers = [opened.enter_context(WRITERS[name].open(folder, title)) for name in names]
        yield combine_callbacks(*writers, *([] if callback is None else [callback]))


def _scalars(progress: Progress) -> dict[str, float]:
    """What is finite of a progress."""
    named = {"loss": progress.loss, "epsilon": progress.epsilon, "rounds_per_second": progress.per_second}
    return {name: value for name, value in named.items() if value is not None and math.isfinite(value)}
