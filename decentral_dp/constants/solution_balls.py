"""Where minimisers lie, how far they move and how much the loss varies there: methods that families share.

Each is a method of a `families.Family`, whose constants it reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants.boxes import UP, box_width
from decentral_dp.constants.problem_constants import solution_spread


def origin(family: Any, x: Array) -> Array:
    """`centre` of a ball that does not move with x: 0, (q,)."""
    return np.zeros(family.problem.q)


def centred_spread(family: Any, low: Array, high: Array) -> float:
    """`spread` in a ball that does not move with x."""
    return solution_spread(family.constants(low, high), box_width(low, high), centred=True)


def moving_spread(family: Any, low: Array, high: Array) -> float:
    """`spread` in a ball whose centre moves with x."""
    return solution_spread(family.constants(low, high), box_width(low, high), centred=False)


def range_in_ball(family: Any, low: Array, high: Array) -> float:
    """`loss_range` of a loss of y alone, over a ball around 0."""
    return float(UP * family.loss.loss_range(family.constants(low, high).radius))
