"""Private estimates of dF/dlog w for a ridge weight w at equal budget, and complete tuning runs.

    F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²,     l the logistic loss

One of T = 15 steps releases (1) both minimisers (penalty), (2) a minimiser and the implicit derivative at it, (3) a
minimiser and H⁻¹b at it, whose product with wθ is post-processing, or (4) the derivative at the exact minimiser, whose
sensitivity needs third derivatives. As a negative control, the published update of the penalty method adds the
derivative instead of subtracting it. The true derivative is a difference of two values of F from an independent solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import expit

from decentral_dp.bounded import Array, Bounded
from decentral_dp.central.bilevel.regularisation_tuner import penalty_slope
from decentral_dp.central.context import CoordinatorContext, Domain
from decentral_dp.central.pooled import Pooled
from decentral_dp.central.sensitivities import Clips, hypergradient_sensitivity, implicit_sensitivity
from decentral_dp.central.tuner import tune
from decentral_dp.constants import family_of, logistic_loss
from decentral_dp.exchange import Bundle, Released
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import logistic_regularisation
from decentral_dp.simulation.statistics import Interval, over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of, noised
from papers.findings import Check, Row, exactly, values
from papers.population import pooled, slope_by_differences

STEP, RUNS, SIGN = (
    "error of one step",
    "excess validation loss of a run relative to random weights",
    "validation loss and the sign of the update",
)
TEN, HUNDRED, SECOND = "penalty, λ = 10", "penalty, λ = 100", "exact minimiser, analytic sensitivity"
PRODUCT, IMPLICIT, TRUTH = "implicit, H⁻¹b released", "implicit, derivative released", "|dF/dlog w|"
RIGHT, PUBLISHED = "derivative subtracted", "derivative added, as published"
WEIGHTS = (0.01, 0.03, 0.1, 0.3)
_D, _ROUNDS, _UPDATES = 20, 15, 8
_PROBLEM, _LOSS = logistic_regularisation(_D, (-1.0, 1.0)), logistic_loss(1.0)
_FAMILY = family_of(_PROBLEM, 1.0)

Records = tuple[Array, Array]


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    n = 20_000
    train, validation = (_records(generator("e11", seed, k), n) for k in (1, 2))
    rows = list(_steps(train, validation, seed, quick))
    return [*rows, *_signs(train, validation, seed, quick), *_runs(train, validation, seed, quick)]


def _records(rng: np.random.Generator, n: int) -> Records:
    """Draw features on the sphere and logistic labels for a fixed direction."""
    a = rng.normal(size=(n, _D))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    star = np.cos(np.arange(_D))
    labels = np.where(rng.random(n) < expit(6.0 / np.linalg.norm(star) * (a @ star)), 1.0, -1.0)
    return a, labels


def _log(weight: float) -> Array:
    return np.array([math.log(weight)])


def _largest(value: Bounded) -> float:
    """Return the largest sensitivity of all splits."""
    return max(float(s.sensitivity[0]) for s in value.sensitivities.values())


def _steps(train: Records, validation: Records, seed: int, quick: bool) -> Iterator[Row]:
    """Measure the RMSE of every estimate at every weight."""
    for weight in WEIGHTS[1:3] if quick else WEIGHTS:
        truth = slope_by_differences(*train, *validation, weight)
        yield Row(STEP, TRUTH, "weight w", weight, "RMSE of dF/dlog w", 0, abs(truth))
        for repeat in range(8 if quick else 10):
            rng = generator("e11", seed, 3, repeat, int(1e6 * weight))
            for name, estimates in _estimates(rng, train, validation, weight, 8 if quick else 20).items():
                rmse = math.sqrt(float(np.square(estimates - truth).mean()))
                yield Row(STEP, name, "weight w", weight, "RMSE of dF/dlog w", repeat, rmse)


def _estimates(
    rng: np.random.Generator, train: Records, validation: Records, weight: float, count: int
) -> dict[str, Array]:
    """Draw private estimates of one of T rounds. Return name → estimates (count,)."""
    pool, at, counts = pooled(_FAMILY, train, validation), _log(weight), (len(train[1]), len(validation[1]))
    context = _context(pool)
    each = mu_of() / math.sqrt(2.0 * _ROUNDS)
    plain = _released(rng, "model", pool.minimiser(at), each, count)
    out = {}
    for name, lam in ((TEN, 10.0), (HUNDRED, 100.0)):
        penalised = _released(rng, "pulled", pool.minimiser(at, lam), each, count)
        pairs = zip(plain, penalised, strict=True)
        out[name] = np.array([penalty_slope(context, at, lam, one, other)[0] for one, other in pairs])
    oscillation = hypergradient_sensitivity(_FAMILY.constants(at, at), *counts, _FAMILY.self_concordance)
    scale = max(oscillation.values()) * math.sqrt(_ROUNDS) / mu_of()
    out[SECOND] = noised(rng, np.tile(pool.gradient(at), (count, 1)), scale)[:, 0]
    out[IMPLICIT], out[PRODUCT] = np.empty(count), np.empty(count)
    for k, one in enumerate(plain):
        theta = context.project_to_minimisers(at, one.released.model[0])
        slope = pool.implicit(at, theta, pointwise=True)
        out[IMPLICIT][k] = noised(rng, slope.value, _largest(slope) / each)[0, 0]
        # H⁻¹b is the implicit gradient with ∇²_xy g = I.
        clips = Clips(0.0, _LOSS.gradient(float(np.linalg.norm(theta))), 0.0, _LOSS.smoothness)
        product_sensitivity = max(implicit_sensitivity(clips, weight, 1.0, *counts).values())
        product = noised(rng, _inverse_product(train, validation, weight, theta)[None], product_sensitivity / each)[0]
        out[PRODUCT][k] = -weight * float(theta @ product)
    return out


def _inverse_product(train: Records, validation: Records, weight: float, theta: Array) -> Array:
    """Compute (mean_train ∇²l + wI)⁻¹ mean_validation ∇l at θ, (d,), without noise."""
    (a, _), (features, labels) = train, validation
    p = expit(a @ theta)
    hessian = (a * (p * (1.0 - p))[:, None]).T @ a / len(a) + weight * np.eye(theta.size)
    gradient = -(labels * expit(-labels * (features @ theta))) @ features / len(labels)
    return np.asarray(np.linalg.solve(hessian, gradient))


def _context(pool: Pooled) -> CoordinatorContext:
    return CoordinatorContext(_PROBLEM, pool.counts, 1, Clip("l2"), Domain(), _FAMILY)


def _released(rng: np.random.Generator, channel: str, exact: Bounded, each: float, count: int) -> list[Released]:
    """Draw releases with privacy cost μ = each, without noise if μ is infinite."""
    scale = _largest(exact) / each
    rows = noised(rng, np.tile(exact.value, (count, 1)), scale) if scale > 0.0 else np.tile(exact.value, (count, 1))
    return [Released(Bundle({channel: row[None]}), {channel: scale}) for row in rows]


def _signs(train: Records, validation: Records, seed: int, quick: bool) -> Iterator[Row]:
    """Measure the ratio of F after and before updates w ← w ± ηλ(R(θ^λ) − R(θ)) with the published or corrected sign.

    The updates have no noise, or the noise of T rounds at λ = 10.
    """
    lam, start, pool = 10.0, 0.3, pooled(_FAMILY, train, validation)
    before = _loss(pool, start)
    for private in (False, True):
        for repeat in range((3 if quick else 10) if private else 1):
            for series, sign in ((RIGHT, -1.0), (PUBLISHED, 1.0)):
                rng, weight = generator("e11", seed, 4, repeat), start
                each = mu_of() / math.sqrt(2.0 * _ROUNDS) if private else math.inf
                for _ in range(_UPDATES):
                    at = _log(weight)
                    plain = _released(rng, "model", pool.minimiser(at), each, 1)[0]
                    penalised = _released(rng, "pulled", pool.minimiser(at, lam), each, 1)[0]
                    # dF/dw is dF/dlog w over w. The step size is equal for both signs.
                    slope = penalty_slope(_context(pool), at, lam, plain, penalised)[0] / weight
                    weight = min(1.0, max(0.05, weight + sign * 0.5 * slope))
                name = f"{series}{', with noise' if private else ''}"
                change = _loss(pool, weight) / before
                yield Row(SIGN, name, "updates", _UPDATES, "ratio of F after and before", repeat, change)


def _loss(pool: Pooled, weight: float) -> float:
    return float(pool.scores(_log(weight)[None])[0])


def _runs(train: Records, validation: Records, seed: int, quick: bool) -> Iterator[Row]:
    """Measure F(w) − min F of the result of `tune`, relative to its mean over random weights in the same range.

    The exponential mechanism needs a larger smallest weight, because this weight determines its scale.
    """
    pool = pooled(_FAMILY, train, validation)
    ranges = {"ppift": (0.003, 1.0), "penalty": (0.003, 1.0), "em": (0.03, 1.0)}
    for method in ("ppift",) if quick else tuple(ranges):
        weights = np.geomspace(*ranges[method], 65)
        losses = pool.scores(np.log(weights[::-1])[:, None])[::-1]
        for repeat in range(3 if quick else 10):
            result = tune(
                train=train, validation=validation, epsilon=EPSILON, delta=DELTA, weight_range=ranges[method],
                steps=_ROUNDS, method=method, seed=seed + 1000 * repeat,  # type: ignore[arg-type] # a literal
            )  # fmt: skip
            excess = float(np.interp(math.log(result.weight), np.log(weights), losses) - losses.min())
            ratio = excess / float(losses.mean() - losses.min())
            yield Row(RUNS, f"{method}, w ≥ {ranges[method][0]:g}", "ε", EPSILON, "ratio", repeat, ratio)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    at = sorted(set(rows[rows["panel"] == STEP]["point"]))
    kept = [w for w in at if w >= 0.03]
    # Ratios are computed for each repetition. The check uses the ratio closest to 1.
    rivals = [_ratio(rows, IMPLICIT, rival, w) for w in kept for rival in (TEN, HUNDRED, SECOND)]
    best = max(rivals, key=lambda ratio: ratio.high)
    penalties = min((_ratio(rows, HUNDRED, TEN, w) for w in kept), key=lambda ratio: ratio.low)
    analytic = min((_ratio(rows, SECOND, IMPLICIT, w) for w in at), key=lambda ratio: ratio.low)
    products = [_ratio(rows, PRODUCT, IMPLICIT, w) for w in at]
    changes = {s: over_seeds(values(rows, SIGN, s)) for s in set(rows[rows["panel"] == SIGN]["series"])}
    runs = dict.fromkeys(rows[rows["panel"] == RUNS]["series"])
    checks = [
        Check("error of the implicit derivative over any other: largest ratio", best, (0.0, 1.0)),
        Check("error at λ = 100 over that at λ = 10: smallest ratio", penalties, (1.0, math.inf)),
        Check(
            "error with analytic sensitivity over that at a private point: smallest ratio", analytic, (1.0, math.inf)
        ),
        Check(
            "error if H⁻¹b is released over that of the derivative",
            Interval(
                float(np.mean([p.value for p in products])), min(p.low for p in products), max(p.high for p in products)
            ),
            (0.5, 2.0),
        ),
        Check(f"{RIGHT}: ratio of F after and before", exactly(changes[RIGHT].value), (0.0, 1.0)),
        Check(f"{PUBLISHED}: ratio of F after and before", exactly(changes[PUBLISHED].value), (1.0, math.inf)),
        Check(f"{RIGHT}, with noise: ratio of F after and before", changes[f"{RIGHT}, with noise"], (0.0, 1.0)),
        Check(
            f"{PUBLISHED}, with noise: ratio of F after and before",
            changes[f"{PUBLISHED}, with noise"],
            (1.0, math.inf),
        ),
        *(
            # The penalty method only has a claim about its noise.
            Check(f"tune, {m}: excess relative to random weights", over_seeds(values(rows, RUNS, m)), (-math.inf, 1.0))
            for m in runs
            if not m.startswith("penalty")
        ),
    ]
    return checks, [
        f"RMSE at w = {w:g}, where |dF/dlog w| = {values(rows, STEP, TRUTH, w)[0]:.2g}: "
        + ", ".join(f"{s} {values(rows, STEP, s, w).mean():.2g}" for s in (TEN, HUNDRED, SECOND, PRODUCT, IMPLICIT))
        + "."
        for w in at
    ]


def _ratio(rows: pd.DataFrame, numerator: str, denominator: str, weight: float) -> Interval:
    return over_seeds(values(rows, STEP, numerator, weight) / values(rows, STEP, denominator, weight))
