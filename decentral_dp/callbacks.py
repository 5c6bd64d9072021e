"""Callbacks that write the progress of a run to TensorBoard and MLflow.

A callback is any function of a `Progress`. The loss that these two write reads records, and no budget covers it.
Protect such a log as you protect the records.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from decentral_dp.errors import InputError, Stopped
from decentral_dp.simulation.events import Callbacks, Progress

_EXPERIMENT = "decentral_dp"


class TensorBoard:
    """Writes scalars for TensorBoard. folder: of its files, made at the first event."""

    def __init__(self, folder: str | Path) -> None:
        self._open = _imported("tensorboardX", "tensorboard").SummaryWriter
        self._folder, self._writer = folder, None

    def __call__(self, progress: Progress) -> None:
        self._writer = writer = self._writer or self._open(str(self._folder))
        for name, value in _scalars(progress).items():
            writer.add_scalar(name, value, progress.done)
        writer.flush()


class MLflow:
    """Logs metrics to a run of the experiment `decentral_dp`, wherever MLFLOW_TRACKING_URI says.

    `with` ends that run: as finished, killed or failed.

    Args:
        name: of the run.
        tags: of the run; default none.
    """

    def __init__(self, name: str, tags: dict[str, str] | None = None) -> None:
        self._client = client = _imported("mlflow", "mlflow").MlflowClient()
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
        killed = isinstance(error, KeyboardInterrupt | Stopped)
        try:
            self._client.set_terminated(self._run, "KILLED" if killed else "FAILED" if error else "FINISHED")
        except Exception as failure:  # noqa: BLE001 # as of any callback
            Callbacks([]).warn(self, "at the end", failure)


def _scalars(progress: Progress) -> dict[str, float]:
    """What is finite of a progress."""
    named = {"loss": progress.loss, "epsilon": progress.epsilon, "rounds_per_second": progress.per_second}
    return {name: value for name, value in named.items() if value is not None and math.isfinite(value)}


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise InputError(
            f'{module} is not installed. Fix: pip install "decentral_dp[{extra}]", or log elsewhere.'
        ) from None
