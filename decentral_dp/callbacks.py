"""Callbacks that write the progress of a run to TensorBoard, MLflow or JSON lines.

A callback is a function of a `Progress`. The logged loss reads records and is not covered by ε: protect logs as you
protect the records.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from decentral_dp.errors import Stopped, needing
from decentral_dp.reporting.privacy import summary_text
from decentral_dp.reporting.report import reason_text
from decentral_dp.simulation.events import Callbacks, Progress
from decentral_dp.simulation.result import plain

if TYPE_CHECKING:
    from decentral_dp.simulation.run import Run

_EXPERIMENT = "decentral_dp"


class TensorBoard:
    """Callback that writes TensorBoard scalars.

    Args:
        folder: folder of the event files, created at the first event.
    """

    def __init__(self, folder: str | Path) -> None:
        with needing("callbacks: TensorBoard"):
            import tensorboardX
        self._open = tensorboardX.SummaryWriter
        self._folder, self._writer = folder, None

    def __call__(self, progress: Progress) -> None:
        self._writer = writer = self._writer or self._open(str(self._folder))
        for name, value in _scalars(progress).items():
            writer.add_scalar(name, value, progress.done)
        writer.flush()


class MLflow:
    """Callback that writes MLflow metrics, in a run of the experiment `decentral_dp` at MLFLOW_TRACKING_URI.

    Leaving the `with` block ends that run as finished, killed or failed.

    Args:
        name: name of the run.
        tags: tags of the run; default none.
    """

    def __init__(self, name: str, tags: dict[str, str] | None = None) -> None:
        with needing("callbacks: MLflow"):
            import mlflow
        self._client = client = mlflow.MlflowClient()
        experiment = client.get_experiment_by_name(_EXPERIMENT)
        number = client.create_experiment(_EXPERIMENT) if experiment is None else experiment.experiment_id
        self._run = client.create_run(number, run_name=name, tags=tags or {}).info.run_id

    def __call__(self, progress: Progress) -> None:
        for name, value in _scalars(progress).items():
            self._client.log_metric(self._run, name, value, step=progress.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_interrupt = isinstance(error, KeyboardInterrupt | Stopped)
        try:
            self._client.set_terminated(self._run, "KILLED" if is_interrupt else "FAILED" if error else "FINISHED")
        except Exception as failure:  # noqa: BLE001 # one warning, as for any callback
            Callbacks([]).warn(self, failure)


class RunLog:
    """Callback that writes JSON lines and flushes each of them, so that readers see only complete lines."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __call__(self, progress: Progress) -> None:
        """Write one evaluation."""
        values = {"round": progress.done, "rounds": progress.total, "loss": progress.loss, "epsilon": progress.epsilon}
        speed = {"rounds_per_second": progress.per_second, "seconds_left": progress.seconds_left}
        self._write("progress", values | speed)

    def write_end(self, run: Run) -> None:
        """Write the end of a run."""
        result, folder = run.result, None if run.folder is None else str(run.folder)
        privacy = result.privacy
        spending = {"round": result.rounds, "epsilon": privacy.epsilon_max, "delta": privacy.delta}
        if privacy.epsilon_published is not None:
            spending["epsilon_published"] = privacy.epsilon_published
        tags = {"reason": reason_text(result) or None, "privacy": summary_text(privacy), "folder": folder}
        self._write("end", {"status": result.status, **spending, **tags})

    def write_failure(self, error: BaseException) -> None:
        """Write that a run was interrupted or failed."""
        is_interrupt = isinstance(error, KeyboardInterrupt | Stopped)
        reason = " ".join(str(error).split()) or type(error).__name__
        self._write("end", {"status": "interrupted" if is_interrupt else "failed", "reason": reason})

    def _write(self, event: str, content: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps(plain({"event": event, "time": now, **content}), allow_nan=False), file=self._file, flush=True)


def _scalars(progress: Progress) -> dict[str, float]:
    """Return the finite values of a progress."""
    scalars = {"loss": progress.loss, "epsilon": progress.epsilon, "rounds_per_second": progress.per_second}
    return {name: value for name, value in scalars.items() if value is not None and math.isfinite(value)}
