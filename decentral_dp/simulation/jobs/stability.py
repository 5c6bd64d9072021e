"""The largest step of y that is stable on a graph, from public numbers.

Let P be the matrix of all weights, the own ones included, λ_min its least eigenvalue, and L a certified bound on the
curvature of every agent's objective in y. Near a minimum, along an eigenvector of P to w and of curvature h ≤ L:

- gradients at the own released point, c⁺ = w c − λ h c: stable where λ L < 1 + λ_min. Beyond it λ_min − λL < −1.
- gradients at the mixture, with momentum β, c⁺ = w((1 + β − λh) c − β c⁻). By the criterion of Jury this dies out where
  λL < 2 (1 + β) for w = 1, and for w = −u < 0 where u (1 + 2β) < 1 and λL < (1 + u)/u.

Agents without links, a server, and networks that change are judged by w = 1 alone, λL < 2 (1 + β). L holds for all
records of the declared ranges, so that a longer step may be stable on the records at hand. A clip bounds how fast
values grow, and not how far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.constants import family_of
from decentral_dp.errors import InputError
from decentral_dp.problems.protocol import PlannedTraining
from decentral_dp.topology import Topology

# Algorithms whose steps are taken at the own released point, of y and, where there is one, of z.
_AT_OWN = ("ldp_single_level", "ldp_dsbo")


def curvature_of(problem: Any, radius: float | None, start: Mapping[str, float]) -> float:
    """Return L, a bound on the curvature in y for every possible record; infinite where none is known.

    Args:
        problem: of one level or of two, where x stands at its start.
        radius: bound on ‖a‖₂ of every possible record; None where there is none.
        start: channel → constant start.
    """
    if isinstance(problem, PlannedTraining):
        known = problem.step_facts()
        # Of a network it is what is usual, and no bound.
        return known.curvature if known.linear else math.inf
    if radius is None:
        return math.inf
    x = np.full(problem.p, float(start.get("x", 0.0)))
    try:
        return float(family_of(problem, radius).constants(x, x).b_gyy)
    except (InputError, AttributeError, ValueError):
        return math.inf


def largest_stable_step(kind: str, algorithm: Any, topology: Topology, curvature: float) -> float:
    """Return the largest step of y that is stable on this graph; 0 where momentum grows by itself.

    Args:
        kind: the algorithm's name in a scenario.
        algorithm: the gossip program.
        topology: of its agents.
        curvature: L.

    Example:
        >>> from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel
        >>> from decentral_dp.algorithms.protocol import StepSize
        >>> from decentral_dp.topology import build_topology
        >>> ring = build_topology("ring", 4)
        >>> programs = {"ldp_single_level": LdpSingleLevel(y=StepSize(1.0)), "dp_dsgd": DpDsgd(y=StepSize(1.0))}
        >>> [round(largest_stable_step(kind, program, ring, 0.5), 3) for kind, program in programs.items()]
        [1.333, 4.0]
    """
    beta = float(getattr(algorithm, "heavy_ball", 0.0))
    least = 1.0 - topology.delta_max
    mixes = bool(topology.edges.size) and not algorithm.central and topology.over_time is None
    if not mixes:
        return 2.0 * (1.0 + beta) / curvature
    if kind in _AT_OWN:
        return (1.0 + least) / curvature
    if -least * (1.0 + 2.0 * beta) >= 1.0:
        return 0.0
    bound = 2.0 * (1.0 + beta)
    return (min(bound, (1.0 - least) / -least) if least < 0.0 else bound) / curvature


def stability_text(kind: str, algorithm: Any, topology: Topology, curvature: float, rounds: int) -> str:
    """Warn of a step that is not stable on this graph, and name the largest that is; "" where it is stable.

    Args:
        kind, algorithm, topology, curvature: as of `largest_stable_step`.
        rounds: T, of which the longest step counts.
    """
    sizes = {name: getattr(algorithm, name, None) for name in (("y", "z") if kind in _AT_OWN else ("y",))}
    steps = {name: float(size.series(rounds).max()) for name, size in sizes.items() if isinstance(size, StepSize)}
    if not steps or not 0.0 < curvature < math.inf:
        return ""
    longest = max(steps, key=lambda name: steps[name])
    step, least = steps[longest], 1.0 - topology.delta_max
    largest = largest_stable_step(kind, algorithm, topology, curvature)
    if step <= largest:
        return ""
    if not largest:
        return (
            f"Momentum {algorithm.heavy_ball:g} grows by itself on this graph, whose weights have the eigenvalue "
            f"{least:.3g}. Fix: algorithm.heavy_ball = 0, or another topology."
        )
    # Three digits, rounded down.
    unit = 10.0 ** (math.floor(math.log10(largest)) - 2)
    return (
        f"The step of {longest} may be unstable on this graph (λ = {step:.3g} and L = {curvature:.4g} for records of "
        f"the declared ranges). The largest stable step is {float(f'{math.floor(largest / unit) * unit:.3g}'):g}."
    )
