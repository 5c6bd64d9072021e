"""Values of the keys of every algorithm, for runs of two rounds."""

from __future__ import annotations

import tomllib
from typing import Any

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.protocol import StepSize

KEYS: dict[str, Any] = {
    option.key: {"scale": 0.2, "decay": 0.5}
    if option.type is StepSize
    else 2
    if option.type is int
    else tomllib.loads(option.line)[option.key]
    for entry in ALGORITHMS.values()
    for option in entry.keys
} | {"smoothness": 50.0, "momentum": 0.5, "penalty": 0.1}
