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

from decentral_dp.experiments.draws import DELTA, EPSILON, generator, mu_of, noised
from decentral_dp.experiments.findings import Check, Interval, Row, exactly, over_seeds, values
from decentral_dp.experiments.population import slope_by_differences
from decentral_dp.privacy.bounded import Array
from decentral_dp.privacy.problem_constants import Clips, hypergradient_sensitivity, implicit_sensitivity
from decentral_dp.problems.families import family_of
from decentral_dp.problems.regularised_losses import logistic_regularisation
from decentral_dp.tuning import penalty, ppift
from decentral_dp.tuning.constants import Family, minimiser_sensitivity, slope_sensitivity
from decentral_dp.tuning.exponential import candidates, score
from decentral_dp.tuning.records import Records, project
from decentral_dp.tuning.solver import Part, inverse_product, minimise, moments
from decentral_dp.tuning.tuner import tune
from decentral_dp.tuning.tuner_releaser import TunerRelease, shortened

STEP, RUNS, SIGN = (
    "error of one step",
    "excess validation loss of a run, over a random weight's",
    "the sign of the printed update",
)
TEN, HUNDRED, SECOND = "penalty, λ = 10", "penalty, λ = 100", "exact minimiser, analytic sensitivity"
PRODUCT, IMPLICIT, TRUTH = "implicit, H⁻¹b released", "implicit, slope released", "|dF/dlog w|"
RIGHT, PRINTED = "subtracts the slope", "adds it, as printed"
WEIGHTS = (0.01, 0.03, 0.1, 0.3)
_D, _ROUNDS, _UPDATES = 20, 15, 8
_FAMILY = Family("logistic", 1.0, 1.0)


def measure(seed: int, quick: bool) -> list[Row]:
    n = 20_000
    train, validation = (_records(generator("e11", seed, k), n) for k in (1, 2))
    rows = list(_steps(train, validation, seed, quick))
    return [*rows, *_signs(train, validation, seed, quick), *_runs(train, validation, seed, quick)]


def _records(rng: np.random.Generator, n: int) -> Records:
    """On the sphere, with logistic labels for a public direction."""
    a = rng.normal(size=(n, _D))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    star = np.cos(np.arange(_D))
    labels = np.where(rng.random(n) < expit(6.0 / np.linalg.norm(star) * (a @ star)), 1.0, -1.0)
    return project(a, labels, "logistic", 1.0, 1.0)


def _truth(train: Records, validation: Records, weight: float) -> float:
    return slope_by_differences(train.features, train.labels, validation.features, validation.labels, weight)


def _steps(train: Records, validation: Records, seed: int, quick: bool) -> Iterator[Row]:
    """RMSE of every estimate at every weight; repeats stand for seeds."""
    for weight in WEIGHTS[1:3] if quick else WEIGHTS:
        truth = _truth(train, validation, weight)
        yield Row(STEP, TRUTH, "weight w", weight, "RMSE of dF/dlog w", 0, abs(truth))
        for repeat in range(5 if quick else 10):
            rng = generator("e11", seed, 3, repeat, int(1e6 * weight))
            for name, found in _estimates(rng, train, validation, weight, 8 if quick else 20).items():
                rmse = math.sqrt(float(np.square(found - truth).mean()))
                yield Row(STEP, name, "weight w", weight, "RMSE of dF/dlog w", repeat, rmse)


def _estimates(
    rng: np.random.Generator, train: Records, validation: Records, weight: float, count: int
) -> dict[str, Array]:
    """Name → (count,) private estimates of one of T rounds."""
    counts = len(train.labels), len(validation.labels)
    each = mu_of() / math.sqrt(2.0 * _ROUNDS)
    exact = minimise(_FAMILY, [Part(train, 1.0)], weight)
    plain = _released(rng, exact, minimiser_sensitivity(_FAMILY, weight, counts[0], 0.0)["train"] / each, count)
    out = {}
    for name, lam in ((TEN, 10.0), (HUNDRED, 100.0)):
        target = minimise(_FAMILY, [Part(train, 1.0), Part(validation, 1.0 / lam)], weight)
        sensitivity = minimiser_sensitivity(_FAMILY, weight, counts[0], 0.0, (lam, counts[1]))
        penalised = _released(rng, target, max(sensitivity.values()) / each, count)
        pairs = zip(plain, penalised, strict=True)
        out[name] = np.array([penalty.slope(weight, lam, one, other) for one, other in pairs])
    family = family_of(logistic_regularisation(_D, (0.0, 1.0)), 1.0)
    at = np.array([math.log(weight)])
    oscillation = hypergradient_sensitivity(family.constants(at, at), *counts, family.self_concordance)
    scale = max(oscillation.values()) * math.sqrt(_ROUNDS) / mu_of()
    out[SECOND] = noised(rng, np.full((count, 1), ppift.slope(_FAMILY, train, validation, weight, exact)), scale)[:, 0]
    out[IMPLICIT], out[PRODUCT] = np.empty(count), np.empty(count)
    for k, one in enumerate(plain):
        theta = shortened(_FAMILY, weight, one.value)
        norm = float(np.linalg.norm(theta))
        sensitivity = slope_sensitivity(_FAMILY, weight, norm, *counts, 0.0)
        slope = ppift.slope(_FAMILY, train, validation, weight, theta)
        out[IMPLICIT][k] = noised(rng, np.array([[slope]]), max(sensitivity.values()) / each)[0, 0]
        # H⁻¹b is the implicit gradient with the identity for ∇²_xy g.
        clips = Clips(0.0, _FAMILY.gradient_bound(norm), 0.0, _FAMILY.curvature_bound)
        product_sensitivity = max(implicit_sensitivity(clips, weight, 1.0, *counts).values())
        b = moments(_FAMILY, validation, theta).gradient
        product = noised(rng, inverse_product(_FAMILY, train, weight, theta, b)[None], product_sensitivity / each)[0]
        out[PRODUCT][k] = -weight * float(theta @ product)
    return out


def _released(rng: np.random.Generator, exact: Array, scale: float, count: int) -> list[TunerRelease]:
    return [TunerRelease(row, scale) for row in noised(rng, np.tile(exact, (count, 1)), scale)]


def _signs(train: Records, validation: Records, seed: int, quick: bool) -> Iterator[Row]:
    """F after the printed update w ← w + ηλ(R(θ^λ) − R(θ)) and after the one with its sign corrected, over F before.

    Noise-free, so that nothing but the sign is compared, and with the noise of T rounds at λ = 10.
    """
    lam, start, counts = 10.0, 0.3, (len(train.labels), len(validation.labels))
    each = mu_of() / math.sqrt(2.0 * _ROUNDS)
    before = _loss(train, validation, start)
    for private in (False, True):
        for repeat in range((4 if quick else 10) if private else 1):
            for series, sign in ((RIGHT, -1.0), (PRINTED, 1.0)):
                rng, weight = generator("e11", seed, 4, repeat), start
                plain = np.zeros(_D)
                for _ in range(_UPDATES):
                    plain = minimise(_FAMILY, [Part(train, 1.0)], weight, plain)
                    penalised = minimise(_FAMILY, [Part(train, 1.0), Part(validation, 1.0 / lam)], weight, plain)
                    released = [TunerRelease(plain, 0.0), TunerRelease(penalised, 0.0)]
                    if private:
                        sensitivity = minimiser_sensitivity(_FAMILY, weight, counts[0], 0.0)["train"]
                        also = max(minimiser_sensitivity(_FAMILY, weight, counts[0], 0.0, (lam, counts[1])).values())
                        released = [
                            _released(rng, v, s / each, 1)[0] for v, s in ((plain, sensitivity), (penalised, also))
                        ]
                    # dF/dw is that of log w over w; the same step size either way.
                    slope = penalty.slope(weight, lam, *released) / weight
                    weight = min(1.0, max(0.05, weight + sign * 0.5 * slope))
                name = f"{series}{', with noise' if private else ''}"
                change = _loss(train, validation, weight) / before
                yield Row(SIGN, name, "updates", _UPDATES, "F after, over F before", repeat, change)


def _loss(train: Records, validation: Records, weight: float) -> float:
    return moments(_FAMILY, validation, minimise(_FAMILY, [Part(train, 1.0)], weight)).value


def _runs(train: Records, validation: Records, seed: int, quick: bool) -> Iterator[Row]:
    """F(w) − min F of what `tune` returns, over the mean of that at random weights of the same range.

    One draw from the exponential mechanism needs a larger smallest weight, which sets its scale.
    """
    roles = [(r.features, r.labels) for r in (train, validation)]
    ranges = {"ppift": (0.003, 1.0), "penalty": (0.003, 1.0), "em": (0.03, 1.0)}
    for method in ("ppift",) if quick else tuple(ranges):
        weights = candidates(*ranges[method])
        losses = score(_FAMILY, train, validation, weights)
        for repeat in range(4 if quick else 10):
            found = tune(
                *roles, epsilon=EPSILON, delta=DELTA, weight_range=ranges[method], steps=_ROUNDS,
                method=method, seed=seed + 1000 * repeat,  # type: ignore[arg-type] # one of the three
            )  # fmt: skip
            excess = float(np.interp(math.log(found.weight), np.log(weights), losses) - losses.min())
            share = excess / float(losses.mean() - losses.min())
            yield Row(RUNS, f"{method}, w ≥ {ranges[method][0]:g}", "ε", EPSILON, "share", repeat, share)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    at = sorted(set(rows[rows["panel"] == STEP]["at"]))
    error = {
        (s, w): float(values(rows, STEP, s, w).mean()) for s in (TEN, HUNDRED, SECOND, PRODUCT, IMPLICIT) for w in at
    }
    kept = [w for w in at if w >= 0.03]
    best = max(error[IMPLICIT, w] / min(error[TEN, w], error[HUNDRED, w], error[SECOND, w]) for w in kept)
    louder = min(error[HUNDRED, w] / error[TEN, w] for w in kept)
    third = min(error[SECOND, w] / error[IMPLICIT, w] for w in at)
    other = [error[PRODUCT, w] / error[IMPLICIT, w] for w in at]
    changes = {s: over_seeds(values(rows, SIGN, s)) for s in set(rows[rows["panel"] == SIGN]["series"])}
    runs = dict.fromkeys(rows[rows["panel"] == RUNS]["series"])
    checks = [
        Check("the implicit slope has the least error (largest share of the next best)", exactly(best), (0.0, 1.0)),
        Check("λ = 100 is noisier than λ = 10 (least ratio)", exactly(louder), (1.0, math.inf)),
        Check("analytic sensitivity is noisier than a private point (least ratio)", exactly(third), (1.0, math.inf)),
        Check(
            "H⁻¹b released instead of the slope: error over it",
            Interval(float(np.mean(other)), min(other), max(other)),
            (0.5, 2.0),
        ),
        Check("subtracting the slope lowers F", changes[RIGHT], (0.0, 1.0)),
        Check("adding it, as printed, raises F", changes[PRINTED], (1.0, math.inf)),
        Check("with noise, subtracting lowers F", changes[f"{RIGHT}, with noise"], (0.0, 1.0)),
        Check("with noise, adding raises F", changes[f"{PRINTED}, with noise"], (1.0, math.inf)),
        *(
            # Of the penalty method nothing is claimed but that it is noisier.
            Check(f"tune, {m}: its excess over a random weight's", over_seeds(values(rows, RUNS, m)), (-math.inf, 1.0))
            for m in runs
            if not m.startswith("penalty")
        ),
    ]
    return checks, [
        f"RMSE at w = {w:g}, where |dF/dlog w| = {values(rows, STEP, TRUTH, w)[0]:.2g}: "
        + ", ".join(f"{s} {error[s, w]:.2g}" for s in (TEN, HUNDRED, SECOND, PRODUCT, IMPLICIT))
        + "."
        for w in at
    ]
