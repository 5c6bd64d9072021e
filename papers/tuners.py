"""Estimates of dF/dlog w for a ridge weight w, side by side at one budget; and whole tuning runs.

    F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²,     l the logistic loss

A step of T = 15 releases: both minimisers (penalty); a minimiser and the implicit slope at it; a minimiser, H⁻¹b at it
and nothing else (its product with wθ is public); or the slope at the exact minimiser, whose sensitivity needs third
derivatives. The printed update of the penalty method adds the slope instead of subtracting it: the negative control.
The true slope is a difference of two values of F from another solver.
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
from decentral_dp.simulation.statistics import Interval, exactly, over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of, noised
from papers.findings import Check, Row, values
from papers.population import pooled, slope_by_differences

STEP, RUNS, SIGN = (
    "error of one step",
    "excess validation loss of a run, over a random weight's",
    "the sign of the printed update",
)
TEN, HUNDRED, SECOND = "penalty, λ = 10", "penalty, λ = 100", "exact minimiser, analytic sensitivity"
PRODUCT, IMPLICIT, TRUTH = "implicit, H⁻¹b released", "implicit, slope released", "|dF/dlog w|"
RIGHT, PRINTED = "subtracts the slope", "adds it, as published"
WEIGHTS = (0.01, 0.03, 0.1, 0.3)
_D, _ROUNDS, _UPDATES = 20, 15, 8
_PROBLEM, _LOSS = logistic_regularisation(_D, (-1.0, 1.0)), logistic_loss(1.0)
_FAMILY = family_of(_PROBLEM, 1.0)

Role = tuple[Array, Array]


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


def _records(rng: np.random.Generator, n: int) -> Role:
    """Features and labels on the sphere, with logistic labels for a public direction."""
    a = rng.normal(size=(n, _D))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    star = np.cos(np.arange(_D))
    labels = np.where(rng.random(n) < expit(6.0 / np.linalg.norm(star) * (a @ star)), 1.0, -1.0)
    return a, labels


def _log(weight: float) -> Array:
    return np.array([math.log(weight)])


def _largest(value: Bounded) -> float:
    """The largest sensitivity of any kind of record."""
    return max(float(s.sensitivity[0]) for s in value.sensitivities.values())


def _steps(train: Role, validation: Role, seed: int, quick: bool) -> Iterator[Row]:
    """RMSE of every estimate at every weight; repeats replace seeds."""
    for weight in WEIGHTS[1:3] if quick else WEIGHTS:
        truth = slope_by_differences(*train, *validation, weight)
        yield Row(STEP, TRUTH, "weight w", weight, "RMSE of dF/dlog w", 0, abs(truth))
        for repeat in range(8 if quick else 10):
            rng = generator("e11", seed, 3, repeat, int(1e6 * weight))
            for name, found in _estimates(rng, train, validation, weight, 8 if quick else 20).items():
                rmse = math.sqrt(float(np.square(found - truth).mean()))
                yield Row(STEP, name, "weight w", weight, "RMSE of dF/dlog w", repeat, rmse)


def _estimates(rng: np.random.Generator, train: Role, validation: Role, weight: float, count: int) -> dict[str, Array]:
    """Name → (count,) private estimates of one of T rounds."""
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
        # H⁻¹b is the implicit gradient with the identity for ∇²_xy g.
        clips = Clips(0.0, _LOSS.gradient(float(np.linalg.norm(theta))), 0.0, _LOSS.smoothness)
        product_sensitivity = max(implicit_sensitivity(clips, weight, 1.0, *counts).values())
        product = noised(rng, _inverse_product(train, validation, weight, theta)[None], product_sensitivity / each)[0]
        out[PRODUCT][k] = -weight * float(theta @ product)
    return out


def _inverse_product(train: Role, validation: Role, weight: float, theta: Array) -> Array:
    """(mean_train ∇²l + wI)⁻¹ mean_validation ∇l at θ, (d,): neither certified nor private."""
    (a, _), (features, labels) = train, validation
    right = expit(a @ theta)
    hessian = (a * (right * (1.0 - right))[:, None]).T @ a / len(a) + weight * np.eye(theta.size)
    gradient = -(labels * expit(-labels * (features @ theta))) @ features / len(labels)
    return np.asarray(np.linalg.solve(hessian, gradient))


def _context(pool: Pooled) -> CoordinatorContext:
    return CoordinatorContext(_PROBLEM, pool.counts, 1, Clip("l2"), Domain(), _FAMILY)


def _released(rng: np.random.Generator, channel: str, exact: Bounded, each: float, count: int) -> list[Released]:
    """Releases with the privacy cost μ = each; without noise if it is infinite."""
    scale = _largest(exact) / each
    rows = noised(rng, np.tile(exact.value, (count, 1)), scale) if scale > 0.0 else np.tile(exact.value, (count, 1))
    return [Released(Bundle({channel: row[None]}), {channel: scale}) for row in rows]


def _signs(train: Role, validation: Role, seed: int, quick: bool) -> Iterator[Row]:
    """F after the printed update w ← w + ηλ(R(θ^λ) − R(θ)) and after the one with its sign corrected, over F before.

    Noise-free, so that nothing but the sign is compared, and with the noise of T rounds at λ = 10.
    """
    lam, start, pool = 10.0, 0.3, pooled(_FAMILY, train, validation)
    before = _loss(pool, start)
    for private in (False, True):
        for repeat in range((3 if quick else 10) if private else 1):
            for series, sign in ((RIGHT, -1.0), (PRINTED, 1.0)):
                rng, weight = generator("e11", seed, 4, repeat), start
                each = mu_of() / math.sqrt(2.0 * _ROUNDS) if private else math.inf
                for _ in range(_UPDATES):
                    at = _log(weight)
                    plain = _released(rng, "model", pool.minimiser(at), each, 1)[0]
                    penalised = _released(rng, "pulled", pool.minimiser(at, lam), each, 1)[0]
                    # dF/dw is that of log w over w; the same step size either way.
                    slope = penalty_slope(_context(pool), at, lam, plain, penalised)[0] / weight
                    weight = min(1.0, max(0.05, weight + sign * 0.5 * slope))
                name = f"{series}{', with noise' if private else ''}"
                change = _loss(pool, weight) / before
                yield Row(SIGN, name, "updates", _UPDATES, "F after, over F before", repeat, change)


def _loss(pool: Pooled, weight: float) -> float:
    return float(pool.scores(_log(weight)[None])[0])


def _runs(train: Role, validation: Role, seed: int, quick: bool) -> Iterator[Row]:
    """F(w) − min F of what `tune` returns, over the mean of that at random weights of the same range.

    One draw from the exponential mechanism needs a larger smallest weight, which sets its scale.
    """
    pool = pooled(_FAMILY, train, validation)
    ranges = {"ppift": (0.003, 1.0), "penalty": (0.003, 1.0), "em": (0.03, 1.0)}
    for method in ("ppift",) if quick else tuple(ranges):
        weights = np.geomspace(*ranges[method], 65)
        losses = pool.scores(np.log(weights[::-1])[:, None])[::-1]
        for repeat in range(3 if quick else 10):
            found = tune(
                train=train, validation=validation, epsilon=EPSILON, delta=DELTA, weight_range=ranges[method],
                steps=_ROUNDS, method=method, seed=seed + 1000 * repeat,  # type: ignore[arg-type] # one of the three
            )  # fmt: skip
            excess = float(np.interp(math.log(found.weight), np.log(weights), losses) - losses.min())
            share = excess / float(losses.mean() - losses.min())
            yield Row(RUNS, f"{method}, w ≥ {ranges[method][0]:g}", "ε", EPSILON, "share", repeat, share)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    at = sorted(set(rows[rows["panel"] == STEP]["at"]))
    kept = [w for w in at if w >= 0.03]
    # Ratios repetition by repetition; of several, the one closest to 1.
    rivals = [_ratio(rows, IMPLICIT, rival, w) for w in kept for rival in (TEN, HUNDRED, SECOND)]
    best = max(rivals, key=lambda ratio: ratio.high)
    louder = min((_ratio(rows, HUNDRED, TEN, w) for w in kept), key=lambda ratio: ratio.low)
    third = min((_ratio(rows, SECOND, IMPLICIT, w) for w in at), key=lambda ratio: ratio.low)
    other = [_ratio(rows, PRODUCT, IMPLICIT, w) for w in at]
    changes = {s: over_seeds(values(rows, SIGN, s)) for s in set(rows[rows["panel"] == SIGN]["series"])}
    runs = dict.fromkeys(rows[rows["panel"] == RUNS]["series"])
    checks = [
        Check("the implicit slope has the least error (largest share of another's)", best, (0.0, 1.0)),
        Check("λ = 100 is noisier than λ = 10 (least ratio)", louder, (1.0, math.inf)),
        Check("analytic sensitivity is noisier than a private point (least ratio)", third, (1.0, math.inf)),
        Check(
            "H⁻¹b released instead of the slope: error over it",
            Interval(float(np.mean([o.value for o in other])), min(o.low for o in other), max(o.high for o in other)),
            (0.5, 2.0),
        ),
        Check("subtracting the slope lowers F", exactly(changes[RIGHT].value), (0.0, 1.0)),
        Check("adding it, as published, raises F", exactly(changes[PRINTED].value), (1.0, math.inf)),
        Check("with noise, subtracting lowers F", changes[f"{RIGHT}, with noise"], (0.0, 1.0)),
        Check("with noise, adding raises F", changes[f"{PRINTED}, with noise"], (1.0, math.inf)),
        *(
            # The only claim about the penalty method is that it is noisier.
            Check(f"tune, {m}: its excess over a random weight's", over_seeds(values(rows, RUNS, m)), (-math.inf, 1.0))
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


def _ratio(rows: pd.DataFrame, one: str, other: str, weight: float) -> Interval:
    return over_seeds(values(rows, STEP, one, weight) / values(rows, STEP, other, weight))
