"""Three private solvers of a strongly convex problem at equal budget: errors against n and the dimension.

    output perturbation   the minimiser plus noise
    DP-GD                 κ log n noisy steps of size 1/b, projected on the public ball
    DP-Loc-GD             Kornowski, Algorithm 2: M stages of T averaged steps of size 1/(μ(t+1)), in balls of radius
                          R_m around the last average; T = n²m²/(4Md) suffices instead of the paper's n²

The budget is split over 1, K and MT releases.

The problem is the lower level of the instance at one point. Gradients of records are at most C on the ball, so clipping
at C changes nothing, and the sensitivity of their mean is 2C/n. Repetitions run in batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.central.bilevel.lower_solvers import PublicFacts, count_descent_steps
from decentral_dp.central.sensitivities import minimiser_sensitivity
from decentral_dp.constants import ProblemConstants
from papers.draws import generator, mu_of, noised
from papers.findings import Check, Row, around, slope_check
from papers.instance import Instance, make, point

RECORDS, DIMENSION = "error against n", "error against d"
OUTPUT, DESCENT, LOCALISED = "output perturbation", "DP-GD", "DP-Loc-GD"
_UPPER = 4
# γ, the probability that some ball of a solve does not contain the minimiser.
FAILURE = 0.01


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    records = (1000, 2000) if quick else (1000, 2000, 4000, 8000)
    dimensions = (10, 40) if quick else (10, 20, 40, 80)
    panels = {RECORDS: [(n, 10) for n in records], DIMENSION: [(records[1], d) for d in dimensions]}
    for repeat in range(5 if quick else 8):
        # One size is in both panels.
        errors = {size: _errors(seed, repeat, *size) for size in {size for sizes in panels.values() for size in sizes}}
        for panel, sizes in panels.items():
            for n, d in sizes:
                axis, at = ("records n", n) if panel == RECORDS else ("dimension d", d)
                for name, rmse in errors[n, d].items():
                    rows.append(Row(panel, name, axis, at, "RMSE of the minimiser", repeat, rmse))
    return rows


def _errors(seed: int, repeat: int, n: int, d: int) -> dict[str, float]:
    """Measure the RMSE of every solver over a batch of repetitions."""
    rng = generator("e8", seed, repeat, n, d)
    instance = make(rng, _UPPER, d)
    x = point(rng, _UPPER)
    exact = instance.minimiser(x)
    errors = {name: solve(rng, instance, x, n, 120) - exact for name, solve in SOLVERS.items()}
    return {name: math.sqrt(float(np.square(error).sum(axis=1).mean())) for name, error in errors.items()}


def output_perturbation(rng: np.random.Generator, instance: Instance, x: Array, n: int, count: int) -> Array:
    """Release minimisers with noise, using the whole budget for one release each.

    Args:
        rng: random bits.
        instance: problem instance.
        x: upper point (p,).
        n: number of train records.
        count: number of repetitions.

    Returns:
        Released minimisers (count, d).
    """
    sensitivity = minimiser_sensitivity(instance.constants(x), n, n, 0.0)["train"]
    return noised(rng, np.tile(instance.minimiser(x), (count, 1)), sensitivity / mu_of())


def descent(rng: np.random.Generator, instance: Instance, x: Array, n: int, count: int) -> Array:
    """Solve the lower level by noisy gradient descent.

    Args:
        rng: random bits.
        instance: problem instance.
        x: upper point (p,).
        n: number of train records.
        count: number of repetitions.

    Returns:
        Solutions (count, q).
    """
    c, centre = instance.constants(x), instance.family.centre(instance.lift @ x)
    steps = count_descent_steps(PublicFacts(c, math.inf, 0.5 * c.d_gy, n, mu_of(), centre.size))
    scale = c.d_gy * math.sqrt(steps) / (n * mu_of())
    y = np.tile(centre, (count, 1))
    for _ in range(steps):
        y = _project(y - (_gradient(instance, x, y) + scale * rng.standard_normal(y.shape)) / c.b_gyy, centre, c.radius)
    return y


def localised(rng: np.random.Generator, instance: Instance, x: Array, n: int, count: int) -> Array:
    """Solve the lower level by noisy gradient descent in shrinking balls.

    Args:
        rng, instance, x, n, count: see `descent`.

    Returns:
        Solutions (count, q).
    """
    c, centre = instance.constants(x), instance.family.centre(instance.lift @ x)
    stages = stages_of(c.mu, 0.5 * c.d_gy, n)
    steps = steps_of_stage(n, mu_of(), stages, centre.size)
    scale = c.d_gy * math.sqrt(stages * steps) / (n * mu_of())
    start, radius = np.tile(centre, (count, 1)), 2.0 * c.radius
    for _ in range(stages):
        y, total = start, np.zeros_like(start)
        for t in range(steps):
            total += y
            slope = _gradient(instance, x, y) + scale * rng.standard_normal(y.shape)
            # Gradients of records are within the clip only in the ball of minimisers.
            y = _project(_project(y - slope / (c.mu * (t + 1.0)), start, radius), centre, c.radius)
        start = total / steps
        radius = next_radius(c, centre.size, radius, scale, steps, FAILURE / stages)
    return start


def next_radius(c: ProblemConstants, dimension: int, radius: float, scale: float, steps: int, failure: float) -> float:
    """Compute the next radius R_{m+1} of localised descent (proof 33).

    Args:
        c: constants of the objective.
        dimension: q.
        radius: R_m.
        scale: standard deviation of the noise of each step.
        steps: T.
        failure: γ/M.
    """
    lipschitz = min(2.0 * radius, radius + c.l_gy / c.b_gyy) * c.b_gyy
    noise = noise_quantile(scale, dimension, steps, failure / 4.0)
    first = 2.0 * radius * scale * math.sqrt(2.0 * steps * math.log(4.0 / failure)) / steps
    second = (1.0 + math.log(steps)) / (c.mu * steps) * (lipschitz**2 + noise**2)
    return min(radius, math.sqrt(2.0 * (first + second) / c.mu))


def noise_quantile(scale: float, dimension: int, steps: int, failure: float) -> float:
    """Bound the norms of T draws of N(0, s² I) with probability 1 − γ by s(√d + √(2 log(T/γ))) (Borell).

    Args:
        scale: s, standard deviation of a coordinate.
        dimension: d.
        steps: T.
        failure: γ.
    """
    return scale * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(steps / failure)))


def stages_of(modulus: float, lipschitz: float, records: int) -> int:
    """Compute M = max{1, ⌈log₂ log(μ n/L)⌉}, the paper's number of stages with ε' = 1. lipschitz: L."""
    return max(1, math.ceil(math.log2(max(math.log(max(modulus * records / lipschitz, math.e)), 1.0))))


def steps_of_stage(records: int, mu: float, stages: int, dimension: int) -> int:
    """Compute T = max{1, ⌈n² m²/(4 M q)⌉}. More steps reduce L²/T below the noise. mu: m, μ of one solve."""
    return max(1, math.ceil((records * mu) ** 2 / (4.0 * stages * dimension)))


def _gradient(instance: Instance, x: Array, y: Array) -> Array:
    """Compute ∇_y G at points y, (count, d)."""
    shares, moments = instance.train
    return np.asarray(shares * y - moments + instance.ridge * (y - instance.lift @ x))


def _project(y: Array, centre: Array, radius: float) -> Array:
    """Project rows on the ball."""
    away = y - centre
    length = np.linalg.norm(away, axis=1, keepdims=True)
    return np.asarray(centre + away * np.minimum(1.0, radius / np.maximum(length, 1e-300)))


Solver = Callable[[np.random.Generator, Instance, Array, int, int], Array]
SOLVERS: Mapping[str, Solver] = MappingProxyType({OUTPUT: output_perturbation, DESCENT: descent, LOCALISED: localised})


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    least = float(rows[rows["panel"] == RECORDS]["point"].min())
    # √K = √log n of DP-GD and √log T of DP-Loc-GD add 1/(2 log(μ R₀ n m/C)) and 1/(1 + log T) to the exponent.
    slack = {OUTPUT: 0.0, DESCENT: 0.5 / math.log(least * mu_of() / 3.0), LOCALISED: 1.0 / (1.0 + math.log(least))}
    checks = []
    for name in SOLVERS:
        low, high = around(-1.0, -0.5)
        checks.append(slope_check(rows, f"{name}: 1/n", (RECORDS, name), (low, high + slack[name])))
        checks.append(slope_check(rows, f"{name}: √d", (DIMENSION, name), around(0.5, 0.0, 1.0)))
    last = rows[(rows["panel"] == RECORDS) & (rows["point"] == rows[rows["panel"] == RECORDS]["point"].max())]
    errors = last.groupby("series")["value"].mean()
    ratio = {name: float(errors[name] / errors[OUTPUT]) for name in SOLVERS}
    return checks, [
        f"The error of DP-GD is {ratio[DESCENT]:.2g} times that of output perturbation, and the error of DP-Loc-GD is "
        f"{ratio[LOCALISED]:.2g} times."
    ]
