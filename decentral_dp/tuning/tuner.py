"""Tuning the strength of a regulariser under differential privacy, by a coordinator that holds the records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.privacy.accountants import Budget, price
from decentral_dp.privacy.bounded import Array
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import secret_root, seeded_root
from decentral_dp.tuning import exponential, penalty, ppift
from decentral_dp.tuning.constants import Family, minimiser_sensitivity
from decentral_dp.tuning.records import LossName, Records, project, split
from decentral_dp.tuning.solver import SMALLEST_SHARE, Part, certificate, minimise
from decentral_dp.tuning.tuner_plan import gaussian_plan, pure_plan
from decentral_dp.tuning.tuner_releaser import TunerRelease, TunerReleaser, shortened

Method: TypeAlias = Literal["ppift", "penalty", "em"]

# The first step moves log w by at most this share of its range.
_FIRST_STEP = 0.6


@dataclass(frozen=True)
class Tuned:
    """What a tuning run publishes, and what it cost. All of it is covered by `budget`.

    weight: of the regulariser. model: (d,) private minimiser at this weight. ledger: the releases made. budget: what
    they were planned to cost, which bounds what they did. path: the weights in the order in which they were tried.
    statement: the guarantee in words.

    Example: see `tune`.
    """

    weight: float
    model: Array
    ledger: Ledger
    budget: Budget
    path: Array
    statement: str


@dataclass(frozen=True)
class _Task:
    """One validated call: both roles' records and the public numbers."""

    family: Family
    train: Records
    validation: Records
    low: float
    high: float
    lam: float

    @property
    def d(self) -> int:
        return int(self.train.features.shape[1])


def tune(
    train: Any,
    validation: Any,
    *,
    epsilon: float,
    delta: float,
    weight_range: tuple[float, float],
    loss: LossName = "logistic",
    radius: float = 1.0,
    label_bound: float = 1.0,
    method: Method = "ppift",
    steps: int = 15,
    lam: float = 10.0,
    seed: int | None = None,
) -> Tuned:
    """Choose w in `weight_range` to make the validation loss of the w-regularised model small, and train that model.

        minimise over w  F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²
        l = log(1 + exp(−b aᵀθ)), b = ±1     or     ½(aᵀθ − b)², |b| ≤ label_bound

    train, validation: pairs (features (n, d), labels (n,)). Every record is first brought into its bounds by itself:
    features longer than `radius` are shortened to it, labels cut at ±label_bound ("squared") or read as +1 above 0 and
    −1 otherwise ("logistic"), a record with a value that is not finite replaced by zeros. There is no intercept; append
    a constant feature for one.

    method:
    * "ppift": each step releases the minimiser at the current weight, and the slope of F by implicit differentiation
      there. (ε, δ), Gaussian noise.
    * "penalty": each step releases the minimisers of g and of g + f/λ; their norms give the slope (Kornowski,
      Differentially Private Bilevel Optimization, Section 7, whose printed update has the opposite sign). λ = `lam`
      multiplies the noise: large is not better. (ε, δ), Gaussian noise.
    * "em": one draw among 65 weights, even in log w, by the exponential mechanism; then the model, with Laplace noise.
      Pure ε, whatever δ; `steps` is not used.

    The slope v of log w with noise of deviation about τ moves it by −0.6·log(high/low)·v/((|v| + τ)√t) in step t; both
    are computed from released values. The last released minimiser is the model; for the squared loss it is shortened
    to the ball that holds every minimiser.

    Guarantee: (ε, δ)-differential privacy of everything in the result, for replacing one record of either role, which
    keeps its role; the counts of both roles and d are public, and no record is in both roles. All constants are
    analytic and the inner solver's accuracy is certified in advance, so nothing depends on the data being benign. Time,
    memory and logs are not covered. With a `seed` the noise is reproducible, and the result a simulation.

    Raises InputError, before any value is looked at, for arguments that cannot be used.

    >>> import numpy as np, decentral_dp
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=(4000, 5)) / 5
    >>> b = np.sign(a @ np.ones(5) + 0.1 * rng.normal(size=4000))
    >>> found = decentral_dp.tune(
    ...     (a[:2000], b[:2000]), (a[2000:], b[2000:]), epsilon=1.0, delta=1e-6, weight_range=(0.01, 1.0), seed=1
    ... )
    >>> 0.01 <= found.weight <= 1.0 and found.model.shape == (5,) and found.budget.epsilon[0] <= 1.0
    np.True_
    """
    low, high = _checked_range(weight_range)
    _check_numbers(epsilon, delta, loss, radius, label_bound, method, steps, lam, seed)
    first, second = split(train, "train"), split(validation, "validation")
    d = first[0].shape[1]
    if second[0].shape[1] != d:
        raise InputError(f"tune: train has {d} features and validation {second[0].shape[1]}; give both the same.")
    family = Family(loss, float(radius), float(label_bound))
    _check_solvable(family, low, 1.0 + (1.0 / lam if method == "penalty" else 0.0))
    if method == "em":
        plan = pure_plan(d, epsilon)
    elif method == "ppift":
        plan = gaussian_plan(ppift.CHANNEL, 1, steps, d, epsilon, delta)
    else:
        plan = gaussian_plan(penalty.CHANNEL, d, steps, d, epsilon, delta)
    task = _Task(
        family,
        project(*first, loss, radius, label_bound),
        project(*second, loss, radius, label_bound),
        low,
        high,
        float(lam),
    )
    call = (epsilon, delta, low, high, loss, radius, label_bound, method, steps, lam, len(first[1]), len(second[1]), d)
    root = secret_root() if seed is None else seeded_root(int(seed), repr(call).encode())
    releaser = TunerReleaser(plan, root)
    path, model = _drawn(task, releaser) if method == "em" else _descended(task, releaser, method, steps)
    budget = price(plan, delta)
    said = _statement(budget, method, (len(first[1]), len(second[1])), low, high, seed)
    return Tuned(float(path[-1]), model, releaser.ledger(), budget, path, said)


def _drawn(task: _Task, releaser: TunerReleaser) -> tuple[Array, Array]:
    weight = exponential.release_weight(releaser, task.family, task.train, task.validation, task.low, task.high)
    # ‖v‖₁ ≤ √d·‖v‖₂, and Laplace noise is scaled to l1.
    return np.array([weight]), _published(task, weight, _release_model(task, releaser, 2, weight, math.sqrt(task.d)))


def _descended(task: _Task, releaser: TunerReleaser, method: Method, steps: int) -> tuple[Array, Array]:
    """Projected descent on log w from the middle of its range; every number used here was released."""
    bottom, top = math.log(task.low), math.log(task.high)
    u = 0.5 * (bottom + top)
    path = [math.exp(u)]
    for t in range(1, steps + 1):
        slope, noise = _slope(task, releaser, method, t, path[-1])
        move = slope / (abs(slope) + noise) if noise > 0.0 else 0.0
        u = min(top, max(bottom, u - _FIRST_STEP * (top - bottom) / math.sqrt(t) * move))
        path.append(min(task.high, max(task.low, math.exp(u))))
    return np.array(path), _published(task, path[-1], _release_model(task, releaser, steps + 1, path[-1]))


def _slope(task: _Task, releaser: TunerReleaser, method: Method, t: int, weight: float) -> tuple[float, float]:
    """A private estimate of dF/dlog w, and about the standard deviation of its noise."""
    plain = _release_model(task, releaser, t, weight)
    both = task.train, task.validation
    if method == "ppift":
        theta = shortened(task.family, weight, plain.value)
        found = ppift.release_slope(releaser, t, task.family, *both, weight, theta)
        return float(found.value[0]), found.scale
    penalised = penalty.release_penalised(releaser, t, task.family, *both, weight, task.lam)
    slope = penalty.slope(weight, task.lam, plain, penalised)
    return slope, penalty.slope_noise(weight, task.lam, plain, penalised)


def _release_model(
    task: _Task, releaser: TunerReleaser, index: int, weight: float, factor: float = 1.0
) -> TunerRelease:
    """The private minimiser of g; factor: from the l2 sensitivity to that of the noise's norm."""
    count = len(task.train.labels)
    accuracy = certificate(task.family, weight, (count,), task.d).accuracy
    sensitivity = minimiser_sensitivity(task.family, weight, count, accuracy)
    exact = minimise(task.family, [Part(task.train, 1.0)], weight)
    return releaser.release(index, "model", exact, {kind: factor * s for kind, s in sensitivity.items()})


def _published(task: _Task, weight: float, model: TunerRelease) -> Array:
    """The model as it is returned: unlike the logistic, the squared loss punishes a long noisy one without bound."""
    return model.value if task.family.loss == "logistic" else shortened(task.family, weight, model.value)


def _checked_range(weight_range: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(w) for w in weight_range)
    except (TypeError, ValueError) as error:
        raise InputError(f"tune: weight_range is {weight_range!r}, but (smallest, largest) is wanted.") from error
    if not 0.0 < low < high < math.inf:
        raise InputError(
            f"tune: weight_range is ({low:g}, {high:g}), but 0 < smallest < largest is wanted: without "
            "regularisation one record may move the minimiser without bound."
        )
    return low, high


def _check_numbers(
    epsilon: float,
    delta: float,
    loss: str,
    radius: float,
    label_bound: float,
    method: str,
    steps: int,
    lam: float,
    seed: int | None,
) -> None:
    for name, given, known in (("loss", loss, get_args(LossName)), ("method", method, get_args(Method))):
        if given not in known:
            raise InputError(f"tune: {name} is {given!r}, but one of {', '.join(known)} is wanted.")
    above = {"epsilon": epsilon, "radius": radius, "label_bound": label_bound, "lam": lam}
    for name, value in above.items():
        if not _is_number(value) or not 0.0 < value < math.inf:
            raise InputError(f"tune: {name} is {value!r}, but a finite number above 0 is wanted.")
    if not _is_number(delta) or not 0.0 <= delta < 1.0:
        raise InputError(f"tune: delta is {delta!r}, but a number from 0 up to, but below, 1 is wanted.")
    if delta == 0.0 and method != "em":
        raise InputError(
            f'tune: method "{method}" adds Gaussian noise, which has no guarantee at delta = 0; take a delta above 0, '
            'for example 1e-6, or method "em".'
        )
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= 10_000:
        raise InputError(f"tune: steps is {steps!r}, but a whole number from 1 to 10000 is wanted.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
        raise InputError(f"tune: seed is {seed!r}, but a whole number, or None for secret noise, is wanted.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_solvable(family: Family, low: float, mass: float) -> None:
    """Refuse what float64 cannot solve for every data set: a condition of public numbers."""
    least = SMALLEST_SHARE * mass * family.curvature_bound
    if low < least:
        raise InputError(
            f"tune: weight_range starts at {low:g}, but {least:.3g} or more is wanted at radius {family.radius:g}, so "
            "that float64 solves every data set; raise it, or give records a smaller radius."
        )


def _statement(
    budget: Budget, method: Method, counts: tuple[int, int], low: float, high: float, seed: int | None
) -> str:
    whole = f"epsilon = {_rounded_up(float(budget.epsilon[0]))}, delta = {budget.delta:g}"
    parts = [
        f"Weight, model and path are ({whole})-differentially private for replacing one of {counts[0]} train or one of "
        f"{counts[1]} validation records, which keeps its role; the counts, the range {low:g} to {high:g} and the "
        f"method {method} are public.",
        "Records were projected one by one, and every constant is analytic.",
    ]
    if method == "em":
        parts.append(
            "The weight was drawn exactly, at pure epsilon; the model's Laplace noise is pure but for "
            f"delta = {budget.slack_delta:.1g} of float64."
        )
    if seed is not None:
        parts.append(
            "The seed makes the noise reproducible, so this is a simulation: whoever knows it can take the noise off."
        )
    return " ".join(parts)


def _rounded_up(value: float) -> str:
    return f"{math.ceil(value * 1e4) / 1e4:.4f}" if math.isfinite(value) else "inf"
