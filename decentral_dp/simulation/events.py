"""How far something long is: one form of progress, for bars, lines of text and any other callback."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from decentral_dp.errors import InputError
from decentral_dp.formatting import epsilon_text


class Progress(NamedTuple):
    """The progress of a long computation, which `callbacks` receive.

    done: so many, of the unit. total: in all. unit: "rounds" of a run, "cells" of a study, "runs" of an audit,
    "audits" of a table of them, "pairs" of a check, "observers" of a network's view, "steps" of a tuner.
    loss: of a run, at an evaluation, the upper loss, or the lower one where x is not tuned; it reads records, and is
    NaN where it was not measured. epsilon: of a run, spent by the worst agent so far. failed: of a study, cells that
    failed. per_second: done since the first call; None at it. seconds_left: at that speed; None at the first call.

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
        """What a bar says beside its numbers."""
        words = [f"loss {self.loss:.4f}"] if self.unit == "rounds" else []
        words += [] if math.isnan(self.epsilon) else [f"ε spent {epsilon_text(self.epsilon)}"]
        return ", ".join([*words, *([f"{self.failed} failed"] if self.failed else [])])


# Called with every progress. What it raises is a warning (`Callbacks`); only an interrupt ends the work.
Callback: TypeAlias = Callable[[Progress], object]


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
        self._callback(Progress(done, total, self._unit, loss, self._spent, failed, speed, left))


class Callbacks:
    """One callback that calls several. One that raises is not called again: it must not end what it is told of.

    Args:
        callbacks: in their order.

    Attributes:
        failures: a sentence for each that raised.

    Example:
        >>> seen = []
        >>> together = Callbacks([seen.append, seen.append])
        >>> together(Progress(1, 2, "runs"))
        >>> len(seen), together.failures
        (2, [])
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        self.failures: list[str] = []

    def __call__(self, progress: Progress) -> None:
        for callback in tuple(self._callbacks):
            try:
                callback(progress)
            except Exception as error:  # noqa: BLE001 # whatever it is, noise may have been paid for
                self._callbacks.remove(callback)
                self.warn(callback, f"at {progress.unit} {progress.done} of {progress.total}", error)

    def warn(self, callback: Callback, at: str, error: Exception) -> None:
        """Say once that a callback failed. at: when, in words."""
        name = getattr(callback, "__qualname__", type(callback).__name__)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        text = f"callbacks: {name} failed {at} ({reason}) and is not called again. Everything else is as without it."
        self.failures.append(text)
        # Where warnings are errors, this one is in the result only.
        with suppress(Warning):
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def join_callbacks(callbacks: Iterable[Callback]) -> Callbacks | None:
    """Join callbacks to one; None where there is none. A single `Callbacks` stays as it is.

    Raises:
        InputError: it is no list of functions.
    """
    is_list = isinstance(callbacks, Iterable) and not callable(callbacks)
    listed: list[Any] = list(callbacks) if is_list else [None]
    if not all(map(callable, listed)):
        raise InputError("callbacks: got no list of functions of a Progress. Fix: callbacks=[function].")
    if len(listed) == 1 and isinstance(listed[0], Callbacks):
        return listed[0]
    return Callbacks(listed) if listed else None
