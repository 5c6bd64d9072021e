"""Every long function says how far it is in one form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.simulation.events import Progress, join_callbacks

STUDY = {"scenario": "quadratic", "kind": "plan", "measure": ["rounds"], "grid": {"algorithm.rounds": [1, 2, -3]}}


def _tune(**options: Any) -> None:
    a, b = np.eye(4)[np.arange(400) % 4], np.where(np.arange(400) % 4 < 2, 1.0, -1.0)
    decentral_dp.tune(
        train=(a, b), validation=(a, b), epsilon=1.0, delta=1e-6, weight_range=(0.1, 1.0), steps=3, seed=1, **options
    )


LONG: dict[str, tuple[Callable[..., Any], int]] = {
    "rounds": (lambda **options: decentral_dp.run("quadratic", set={"algorithm.rounds": 3}, **options), 3),
    "cells": (lambda **options: decentral_dp.study(STUDY, workers=1, **options), 2),
    "observers": (
        lambda **options: decentral_dp.network_view(
            "network_view", set={"topology.agents": 5, "algorithm.rounds": 2}, **options
        ),
        5,
    ),
    "steps": (_tune, 4),
}


@pytest.mark.parametrize("unit", LONG)
def test_one_form_for_all(unit: str) -> None:
    seen: list[Progress] = []
    call, total = LONG[unit]
    call(callbacks=[seen.append])
    assert {at.unit for at in seen} == {unit}
    assert {at.total for at in seen} == {total}
    assert [at.done for at in seen] == sorted(at.done for at in seen)
    assert seen[-1].done == total
    assert all(math.isnan(at.loss) == (unit != "rounds") for at in seen)


@pytest.mark.parametrize(("step", "note"), [(3.0, "About 12 s for 4 more evaluations: 3.0 s each. run."), (2.4, "")])
def test_long_evaluations_are_told_after_the_first(monkeypatch: pytest.MonkeyPatch, step: float, note: str) -> None:
    seconds = itertools.count(0.0, step)
    monkeypatch.setattr("decentral_dp.simulation.run.time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    seen: list[Progress] = []
    decentral_dp.run("quadratic", set={"algorithm.rounds": 4, "run.evaluate_every": 1}, callbacks=[seen.append])
    assert [at.note[: len(note)] for at in seen] == [note, "", "", "", ""]
    assert bool(seen[0].note) == bool(note)


def test_long_evaluations_are_told_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the scores of one agent: of 5 of them, 5 evaluations at 0.5 s each."""
    seconds = itertools.count(0.0, 0.5)
    monkeypatch.setattr("decentral_dp.simulation.metrics.time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    seen: list[Progress] = []
    changed = {"algorithm.rounds": 4, "run.evaluate_every": 1, "run.average": 1}
    decentral_dp.run("classification", set=changed, callbacks=[seen.append])
    notes = [at.note for at in seen]
    assert notes[0].startswith("About 12 s for 5 evaluations: 2.5 s each.")
    assert (seen[0].done, math.isnan(seen[0].loss)) == (0, True)
    assert notes[1:] == [""] * 5


def test_callbacks_are_called_together() -> None:
    seen: list[Progress] = []
    join_callbacks([seen.append, seen.append])(Progress(1, 2, "runs"))
    assert seen == [Progress(1, 2, "runs")] * 2


def test_words_beside_the_numbers() -> None:
    assert Progress(1, 2, "rounds", 0.25, 1.0).description == "loss 0.2500, ε spent 1.00"
    assert Progress(1, 2, "cells", failed=2).description == "2 failed"
    assert Progress(1, 2, "runs").description == ""


async def _late(progress: Progress) -> None:
    raise AssertionError


class _Late:
    async def __call__(self, progress: Progress) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("callback", "said"),
    [(_late, "asynchronous"), (_Late(), "asynchronous"), (partial(_late), "asynchronous"), (3, "got int")],
)
def test_callbacks_that_would_not_be_awaited_or_called_are_refused(callback: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"callbacks: .*{said}"):
        join_callbacks([callback])
