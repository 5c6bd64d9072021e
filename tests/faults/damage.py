"""Scenarios that are changed at random."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import decentral_dp
from decentral_dp.errors import InputError

from .kills import Tally

# A refusal takes at most this number of seconds.
LIMIT = 20
_NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 200, 2**31, 2**63, 2**127, -(2**70), 9 * 10**18, 0.0, -0.0, 0.5, 1e-320, 1e-60, 1e30, 1e300, 1e308,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
ODD: tuple[Any, ...] = (
    *_NUMBERS, "", "x", "ring", "../..", "\x1b[31m", "a" * 5000, True, False, [], [0], [1, "a"], {}, {"a": 1},
    {"kind": "ring"},
)  # fmt: skip


def mutate(times: int, seed: int, place: Path) -> Tally:
    """Change random keys of shipped scenarios, and plan them: a refusal or an ε, within `LIMIT` seconds.

    Args:
        times: scenarios.
        seed: of which and how.
        place: an empty folder.
    """
    from tests.golden.cases import SCENARIOS, is_planned_only, scenario_names

    names = [n for n in scenario_names() if not is_planned_only(n)]
    draw, planned, refused, wrong = random.Random(seed), 0, 0, list[str]()
    for k in range(times):
        name = draw.choice(names)
        content = decentral_dp.load(str(SCENARIOS[name])).model_dump(exclude_none=True, exclude_defaults=True)
        content["algorithm"]["rounds"] = min(content["algorithm"]["rounds"], 5)
        table, key = draw.choice(list(places(content)))
        action = draw.random()
        if action < 0.15:
            del table[key]
        elif action < 0.25:
            table[draw.choice(["kind", "scale", "unknown", "epsilon"])] = draw.choice(ODD)
        elif type(table[key]) in (int, float) and draw.random() < 0.8:
            table[key] = draw.choice([*_NUMBERS, *(type(table[key])(table[key] * 10.0**e) for e in range(-6, 7))])
        else:
            table[key] = draw.choice(ODD)
        outcome = _within(content)
        if outcome == "refused":
            refused += 1
        elif outcome == "planned":
            planned += 1
        else:
            wrong.append(f"{k}: {name}: {key} = {str(table.get(key))[:60]}: {outcome}")
    return Tally(times, planned, refused, wrong)


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield content, key
            yield from places(value)


class TooLongError(Exception):
    pass


def late(*_: Any) -> None:
    raise TooLongError


def _within(content: dict[str, Any]) -> str:
    """ "planned", "refused", or what went wrong."""
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    started = time.monotonic()
    try:
        tomli_w.dumps(content)
        plan = decentral_dp.plan(content)
    except (InputError, MemoryError):
        # The command line reports a lack of memory in one line.
        return "refused"
    except TooLongError:
        return f"still at work after {time.monotonic() - started:.0f} s"
    except Exception as error:  # noqa: BLE001 # any other error is wrong
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    epsilon = np.asarray(plan.epsilon)
    bad = np.isnan(epsilon) | (epsilon < 0.0)
    return f"a budget of {epsilon[bad][0]}" if bad.any() else "planned"


if not hasattr(os, "fork"):
    raise ImportError("alarms are of POSIX systems")
