"""Effects of an error ζ in the exponent of the grid walk on distance, conductance and steps, by exact chains."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from papers import grid_walk_chains
from papers.draws import generator
from papers.findings import Check, Row, exactly, values
from papers.published.grid_walk import acceptance

PARTS = {
    "distance": "distance over its bound",
    "conductance": "conductance",
    "steps": "mixing time",
    "last": "acceptance of the last step",
}
ZETAS = (0.0, 0.1, 0.25, 0.5)
XI = 0.125
_SIGNS = 24


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    return [*_distances(seed, quick), *_conductances(seed, quick), *_steps(seed, quick), *_last_steps()]


def _exponent(dimension: int, cells: int, steepness: float) -> Array:
    """Compute α|x − c|₁ at the centres of `cells` cells along each axis of the unit cube, (cells, …)."""
    x = (np.arange(cells) + 0.5) / cells
    axes = np.meshgrid(*[steepness * np.abs(x - 0.4)] * dimension, indexing="ij")
    return np.asarray(sum(axes))


def _distances(seed: int, quick: bool) -> list[Row]:
    """Compute the ratio of Dist_∞ of the output to its bound, for random and worst signs of the errors.

    The distance is to the target distribution ∝ e^{−exponent} over all candidates.
    """
    rows, inside = [], 5
    for dimension, cells in ((1, 40 if quick else 160), (2, 8 if quick else 20)):
        alpha = 0.5 * cells
        offsets = (np.arange(inside) - inside // 2) / (inside * cells)
        for zeta in [z for z in ZETAS if z < 0.25] + [0.2]:
            for trial in range(3 if quick else 10):
                rng = generator("e6", seed, dimension, int(100 * zeta), trial)
                centres = _exponent(dimension, cells, alpha).reshape(-1)
                fine = centres[:, None] + alpha * offsets * rng.choice([-1.0, 1.0], (centres.size, 1))
                error = zeta * (rng.choice([-1.0, 1.0], fine.shape) if trial else np.sign(fine - fine.mean() + 1e-9))
                chain = grid_walk_chains.walk((centres + error[:, inside // 2]).reshape([cells] * dimension))
                taken = grid_walk_chains.mixing_time(chain, XI)
                start = np.linalg.matrix_power(chain.matrix, taken)[int(rng.integers(centres.size))]
                ideal = np.exp(fine.min() - fine)
                output = grid_walk_chains.output_distribution(start, centres + error[:, inside // 2], fine + error)
                distance = grid_walk_chains.distance(output, ideal / ideal.sum())
                name = f"{dimension} dimensions" if dimension > 1 else "1 dimension"
                bound = 2.0 * zeta + 2.0 * XI
                rows.append(Row(PARTS["distance"], name, "ζ", zeta, "Dist∞ / (2ζ + 2ξ)", trial, distance / bound))
    return rows


def _conductances(seed: int, quick: bool) -> list[Row]:
    """Compute the smallest relative conductance with errors ±ζ, the bound e^{−2ζ}, and the published e^{−6ζ}."""
    rows = []
    for zeta in (*ZETAS[1:], 1.0):
        rng = generator("e6", seed, 7, int(100 * zeta))
        worst, n = math.inf, 6 if quick else 10
        for base in (np.zeros(n), _exponent(1, n, 4.0)):
            whole = grid_walk_chains.conductance(grid_walk_chains.walk(base))
            split = np.where(np.arange(n) < n // 2, 1.0, -1.0)
            # The worst signs reduce the masses of the two middle states.
            bridge = np.where(np.abs(np.arange(n) - (n - 1) / 2) < 1.0, 1.0, -1.0)
            signs = [split, bridge, *rng.choice([-1.0, 1.0], (_SIGNS if quick else 10 * _SIGNS, n))]
            for sign in signs:
                worst = min(worst, grid_walk_chains.conductance(grid_walk_chains.walk(base + zeta * sign)) / whole)
        for series, value in (
            ("smallest", worst),
            ("e^(−2ζ)", math.exp(-2.0 * zeta)),
            ("e^(−6ζ), as published", math.exp(-6.0 * zeta)),
        ):
            rows.append(Row(PARTS["conductance"], series, "ζ", zeta, "relative conductance", 0, value))
    return rows


def _steps(seed: int, quick: bool) -> list[Row]:
    """Compute exact mixing times with errors ±ζ relative to those without."""
    rows = []
    for dimension, cells in ((1, 40 if quick else 80), (2, 6 if quick else 20)):
        exponent = _exponent(dimension, cells, 0.5 * cells)
        exact = grid_walk_chains.mixing_time(grid_walk_chains.walk(exponent), XI)
        for zeta in ZETAS[1:]:
            rng = generator("e6", seed, 8, dimension, int(100 * zeta))
            ratios = []
            for _ in range(2 if quick else 5):
                inexact = exponent + zeta * rng.choice([-1.0, 1.0], exponent.shape)
                ratios.append(grid_walk_chains.mixing_time(grid_walk_chains.walk(inexact), XI) / exact)
            name = f"{dimension} dimensions" if dimension > 1 else "1 dimension"
            rows.append(Row(PARTS["steps"], name, "ζ", zeta, "T(ζ)/T(0)", 0, max(ratios)))
            rows.append(Row(PARTS["steps"], "e^(4ζ)", "ζ", zeta, "T(ζ)/T(0)", 0, math.exp(4.0 * zeta)))
            rows.append(Row(PARTS["steps"], "e^(12ζ), as published", "ζ", zeta, "T(ζ)/T(0)", 0, math.exp(12.0 * zeta)))
    return rows


def _last_steps() -> list[Row]:
    """Compute the largest acceptance of the last step by enumeration, with the paper's largest cells γ = 1/(2α)."""
    rows, alpha = [], 40.0
    gamma = 1.0 / (2.0 * alpha)
    offsets = np.linspace(-0.5, 0.5, 101) * gamma
    for zeta in (*ZETAS, 0.375, 0.45):
        # The exponent has slope α along the cell, an error of ζ at the centre, and of −ζ elsewhere.
        largest = float(np.exp((0.0 + zeta) - (alpha * offsets - zeta) - 1.0).max())
        rows.append(Row(PARTS["last"], "largest acceptance", "ζ", zeta, "acceptance", 0, largest))
        rows.append(
            Row(
                PARTS["last"],
                "by formula",
                "ζ",
                zeta,
                "acceptance",
                0,
                acceptance(alpha, gamma, zeta),
            )
        )
    return rows


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    part = rows[rows["panel"] == PARTS["distance"]]
    share = float(part["value"].max())
    kept = values(rows, PARTS["conductance"], "smallest")
    bound = values(rows, PARTS["conductance"], "e^(−2ζ)")
    published = values(rows, PARTS["conductance"], "e^(−6ζ), as published")
    slower = rows[(rows["panel"] == PARTS["steps"]) & rows["series"].str.contains("dimension")]
    longest = float((slower["value"] / np.exp(4.0 * slower["point"])).max())
    last = rows[(rows["panel"] == PARTS["last"]) & (rows["series"] == "largest acceptance")]
    broken = last["value"] > 1.0 + 1e-9
    # γ = 1/(2α): the condition αγ/2 + 2ζ > 1 is ζ > 3/8.
    agree = float((broken == (0.25 + 2.0 * last["point"] > 1.0 + 1e-9)).mean())
    formula = values(rows, PARTS["last"], "by formula")
    distance = float(np.abs(formula - last["value"].to_numpy()).max())
    checks = [
        Check("distance of the output over 2ζ + 2ξ: largest ratio", exactly(share), (0.0, 1.0)),
        Check("conductance over e^(−2ζ): smallest ratio", exactly(float((kept / bound).min())), (1.0, 1.5)),
        Check(
            "conductance over the published e^(−6ζ) at ζ = 1", exactly(float((kept / published)[-1])), (10.0, math.inf)
        ),
        Check("mixing time over e^(4ζ): largest ratio", exactly(longest), (0.0, 1.0)),
        Check("acceptance at most 1 only if αγ/2 + 2ζ ≤ 1: fraction of cases", exactly(agree), (1.0, 1.0)),
        Check("largest acceptance: difference from the formula", exactly(distance), (0.0, 1e-9)),
    ]
    return checks, [
        "A walk within ξ of its target distribution increases ε by at most 4ζ + 4ξ. e^(4ζ) can replace the published "
        "e^(12ζ).",
        f"With cells of the published size, the acceptance reaches {last['value'].max():.3g} at "
        f"ζ = {last['point'].max():g}, which is not a probability.",
    ]
