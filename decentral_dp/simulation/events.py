"""Progress of long computations, for progress bars and other callbacks."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from decentral_dp.errors import InputError
from decentral_dp.formatting import epsilon_text


class Progress(NamedTuple):
    """Progress of a long computation, as passed to `callbacks`.

    Attributes:
        done: number of completed units.
        total: number of units.
        unit: "rounds" of a run, "cells" of a study, "runs" of an audit, "audits" of a table of audits, "pairs" of a
            check, "adversaries" of a network view, or "steps" of a tuner.
        loss: upper loss of a run, or lower loss if x is not tuned; NaN if it is not measured. It is computed from
            records.
        epsilon: ε that the worst agent of a run has spent so far.
        failed: number of failed cells of a study.
        per_second: units per second since the first call; None at the first call.
        seconds_left: remaining seconds at that speed; None at the first call.

    Example:
        >>> import decentral_dp
        >>> seen = []
        >>> done = decentral_dp.run("quadratic", set={"algorithm.rounds": 2}, callbacks=[seen.append])
        >>> seen[-1].done, seen[-1].total, seen[-1].unit
        (2, 2, 'rounds')
    """

    done: int
    total: int
    unit: str
    loss: float = math.nan
    epsilon: float = math.nan
    failed: int = 0
    per_second: float | None = None
    seconds_left: float | None = None

    @property
    def description(self) -> str:
        """Text of a progress bar after its numbers."""
        words = [f"loss {self.loss:.4f}"] if self.unit == "rounds" else []
        words += [] if math.isnan(self.epsilon) else [f"ε spent {epsilon_text(self.epsilon)}"]
        return ", ".join([*words, *([f"{self.failed} failed"] if self.failed else [])])


# Exceptions of a callback are warnings (`Callbacks`); only an interrupt ends the computation.
Callback: TypeAlias = Callable[[Progress], object]


class Reporter:
    """Reporter of progress and speed to a callback.

    Args:
        callback: callback that receives a `Progress`, or None.
        unit: unit of `Progress`.
        clock: function that returns seconds, default a monotonic clock.

    Example:
        >>> seconds, seen = iter([0.0, 2.0]), []
        >>> report = Reporter(seen.append, "rounds", clock=lambda: next(seconds))
        >>> report(10, 40, loss=0.7, epsilon=0.5); report(20, 40, loss=0.6, epsilon=1.0)
        >>> seen[1].per_second, seen[1].seconds_left
        (5.0, 4.0)
    """

    def __init__(self, callback: Callback | None, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
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
    ) -> None:
        """Call the callback with the attributes of a `Progress`."""
        if self._callback is None:
            return
        now = self._clock()
        # A resumed run does not begin at round 0.
        first, start = self._first = self._first or (done, now)
        # ε is not computed at every round; the last value stays.
        self._spent = self._spent if math.isnan(epsilon) else epsilon
        speed = (done - first) / (now - start) if now > start and done > first else None
        remaining_s = None if speed is None else (total - done) / speed
        self._callback(Progress(done, total, self._unit, loss, self._spent, failed, speed, remaining_s))


@dataclass(frozen=True)
class CallbackFailure:
    """Record of a callback that raised.

    Args:
        callback: name of the callback.
        done: progress at which it raised; None at the end.
        error: exception in one line.
    """

    callback: str
    done: int | None
    error: str


class Callbacks:
    """Callback that calls several callbacks. A callback that raises an exception is not called again.

    Args:
        callbacks: callbacks, in the order in which they are called.

    Attributes:
        failures: failure of each callback that raised.

    Example:
        >>> seen = []
        >>> together = Callbacks([seen.append, seen.append])
        >>> together(Progress(1, 2, "runs"))
        >>> len(seen), together.failures
        (2, [])
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        self.failures: list[CallbackFailure] = []

    def __call__(self, progress: Progress) -> None:
        for callback in tuple(self._callbacks):
            try:
                callback(progress)
            except Exception as error:  # noqa: BLE001 # a run must not end because of a callback
                self._callbacks.remove(callback)
                self.warn(callback, error, progress)

    def warn(self, callback: Callback, error: Exception, progress: Progress | None = None) -> None:
        """Warn about a callback that failed.

        Args:
            callback: callback that failed.
            error: exception that it raised.
            progress: progress at which it failed; None (the default) means the end.
        """
        name = getattr(callback, "__qualname__", type(callback).__name__)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        self.failures.append(CallbackFailure(name, progress and progress.done, reason))
        moment = "the end" if progress is None else f"{progress.unit} {progress.done} of {progress.total}"
        text = f"callbacks: {name} failed at {moment} ({reason}) and is not called again. Results do not change."
        # If warnings are errors, this one is in the result only.
        with suppress(Warning):
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def join_callbacks(callbacks: Iterable[Callback]) -> Callbacks | None:
    """Join callbacks into one, or return None if there are none. A single `Callbacks` is returned unchanged.

    Raises:
        InputError: the value is not a list of functions.
    """
    is_list = isinstance(callbacks, Iterable) and not callable(callbacks)
    callback_list: list[Any] = list(callbacks) if is_list else [None]
    if not all(map(callable, callback_list)):
        raise InputError(
            "callbacks: invalid (expected a list of functions of a Progress). Fix: pass callbacks=[function]."
        )
    if len(callback_list) == 1 and isinstance(callback_list[0], Callbacks):
        return callback_list[0]
    return Callbacks(callback_list) if callback_list else None
