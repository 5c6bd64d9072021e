"""What `decentral_dp.tune` is given: checks, the projection of records into bounds, and the guarantee in words.

Nothing here fails on a value of a record, or reads two records together: only shapes, which are public, are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from decentral_dp.bounded import Array, Split
from decentral_dp.data.scaling import normalise
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import Budget
from decentral_dp.privacy.clipping import row_norms

LossName: TypeAlias = Literal["logistic", "squared"]
Method: TypeAlias = Literal["ppift", "penalty", "em"]

# Larger ones would need more than a Hessian that fits in memory and a Cholesky factor of it.
MOST_FEATURES = 2000


class Arguments(NamedTuple):
    """The numbers and words of one call, as `decentral_dp.tune` names them."""

    epsilon: float
    delta: float
    weight_range: tuple[float, float]
    loss: LossName
    radius: float
    label_bound: float
    method: Method
    steps: int
    lam: float
    seed: int | None


def check_arguments(given: Arguments) -> Arguments:
    """The arguments as Python's own numbers. Raises InputError for what cannot be used."""
    low, high = _checked_range(given.weight_range)
    for name, known in (("loss", get_args(LossName)), ("method", get_args(Method))):
        value = getattr(given, name)
        if value not in known:
            raise InputError(f"tune: {name} is {value!r}, but one of {', '.join(known)} is wanted.")
    for name in ("epsilon", "radius", "label_bound", "lam"):
        value = getattr(given, name)
        if not _is_number(value) or not 0.0 < value < math.inf:
            raise InputError(f"tune: {name} is {value!r}, but a finite number above 0 is wanted.")
    if not _is_number(given.delta) or not 0.0 <= given.delta < 1.0:
        raise InputError(f"tune: delta is {given.delta!r}, but a number from 0 up to, but below, 1 is wanted.")
    if given.delta == 0.0 and given.method != "em":
        raise InputError(
            f'tune: method "{given.method}" adds Gaussian noise, which has no guarantee at delta = 0; take a delta '
            'above 0, for example 1e-6, or method "em".'
        )
    if not _is_whole(given.steps) or not 1 <= given.steps <= 10_000:
        raise InputError(f"tune: steps is {given.steps!r}, but a whole number from 1 to 10000 is wanted.")
    if given.seed is not None and not _is_whole(given.seed):
        raise InputError(f"tune: seed is {given.seed!r}, but a whole number, or None for secret noise, is wanted.")
    return Arguments(
        epsilon=float(given.epsilon),
        delta=float(given.delta),
        weight_range=(low, high),
        loss=given.loss,
        radius=float(given.radius),
        label_bound=float(given.label_bound),
        method=given.method,
        steps=int(given.steps),
        lam=float(given.lam),
        seed=None if given.seed is None else int(given.seed),
    )


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def pair(role: Any, name: Split) -> tuple[Array, Array]:
    """(features (n, d), labels (n,)) of one role, as float64. Raises InputError for shapes that cannot be used."""
    if not isinstance(role, tuple | list) or len(role) != 2:
        raise InputError(f"tune: {name} must be a pair (features, labels), got {type(role).__name__}.")
    a, b = _numbers(role[0], f"{name} features"), _numbers(role[1], f"{name} labels")
    if a.ndim != 2 or b.shape != a.shape[:1]:
        raise InputError(
            f"tune: {name} has features of shape {a.shape} and labels of shape {b.shape}, but (n, d) and (n,) are "
            "wanted; give one row and one label per record."
        )
    if not a.shape[0]:
        raise InputError(f"tune: {name} has no records, but at least one is wanted; move some there.")
    if not 1 <= a.shape[1] <= MOST_FEATURES:
        raise InputError(f"tune: {name} has {a.shape[1]} features, but 1 to {MOST_FEATURES} are wanted; drop some.")
    return a, b


def _numbers(values: ArrayLike, what: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"tune: {what} are not an array of numbers; convert them first.") from error


def project(features: Array, labels: Array, loss: LossName, radius: float, label_bound: float) -> tuple[Array, Array]:
    """Bring every record by itself into ‖a‖₂ ≤ R and |b| ≤ B (or b = ±1: a label above 0 is +1, any other −1).

    A record with a value that is not finite becomes one of zeros, which moves nothing. Longer features are shortened
    to R, shorter ones stay; the bound holds for the real norm of the float64 result.

    Args:
        features: (n, d).
        labels: (n,).
        loss: "logistic" for b = ±1, or "squared" for |b| ≤ B.
        radius: R.
        label_bound: B, of "squared".

    Returns:
        a, (n, d), and b, (n,).
    """
    finite = np.isfinite(features).all(axis=1) & np.isfinite(labels)
    a = np.where(finite[:, None], features, 0.0)
    # normalise leaves room for the rounding of norms, and so must the comparison.
    inside = row_norms(a, "l2") <= radius * (1.0 - (a.shape[1] + 8) * 2.0**-52)
    a = np.ascontiguousarray(np.where(inside[:, None], a, normalise(a, "l2", radius).features))
    b = np.where(finite, labels, 0.0)
    return a, np.where(b > 0.0, 1.0, -1.0) if loss == "logistic" else np.clip(b, -label_bound, label_bound)


def content(given: Arguments, roles: tuple[tuple[Array, Array], ...]) -> bytes:
    """What decides a run: the arguments and every record. Equal noise on other data would cancel in a difference."""
    digests = [(a.shape, blake2b(np.ascontiguousarray(a).tobytes()).hexdigest()) for role in roles for a in role]
    return repr((tuple(given), digests)).encode()


def statement(given: Arguments, budget: Budget, counts: Mapping[Split, int]) -> str:
    """The guarantee of one call in words."""
    low, high = given.weight_range
    whole = f"epsilon = {_rounded_up(float(budget.epsilon[0]))}, delta = {budget.delta:g}"
    parts = [
        f"Weight, model and path are ({whole})-differentially private for replacing one of {counts['train']} train or "
        f"one of {counts['validation']} validation records, which keeps its role; the counts, the range {low:g} to "
        f"{high:g} and the method {given.method} are public.",
        "Records were projected one by one, and every constant is analytic.",
    ]
    if given.method == "em":
        parts.append(
            "The weight was drawn exactly, at pure epsilon; the model's Laplace noise is pure but for "
            f"delta = {budget.slack_delta:.1g} of float64."
        )
    if given.seed is not None:
        parts.append(
            "The seed makes the noise reproducible, so this is a simulation: whoever knows it can take the noise off."
        )
    return " ".join(parts)


def _rounded_up(value: float) -> str:
    return f"{math.ceil(value * 1e4) / 1e4:.4f}" if math.isfinite(value) else "inf"
