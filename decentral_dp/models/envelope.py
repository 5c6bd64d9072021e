"""Clipping of cross-entropy by its Pasch–Hausdorff envelope, under which no step moves two models farther apart.

The envelope of a convex loss f with curvature at most L is min_y f(y) + C ‖x − y‖. It is convex, its gradient has norm
at most C and curvature at most L, and equals ∇f(x) where ‖∇f(x)‖ ≤ C. So x ↦ x − η∇ is 1-Lipschitz for ηL ≤ 2.
Gradients that are scaled to the norm C lack this property: one step may increase a distance by the factor (1 −
ηL/4)^(−1/2) (docs/proofs/38). For one output, both clips are equal.

For cross-entropy of the outputs z = A a of a record with label b, let c = C/‖a‖. The slope is p − e_b, where p is the
distribution nearest to softmax(z) in KL divergence with ‖p − e_b‖ ≤ c. Outside the ball, for numbers θ > 0 and λ,

    log p_k + θ (p_k − 1[k = b]) = z_k − λ,     Σ p = 1,     ‖p − e_b‖ = c.

Newton's method solves for log p, θ and λ together, with two linear equations for a step of (θ, λ). The derivative of p
in z is at most p/(1 + θp) ≤ 1/(1 + θ), so an error r of the first equation moves p by at most ‖r‖/(1 + θ). For c
slightly above 1 the root is ill-conditioned, and such a record gets the smaller radius 1.

References:
    Bauschke & Combettes, Convex Analysis and Monotone Operator Theory, 2nd ed., chapter 12.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import wrightomega

from decentral_dp.bounded import Array

# Bound on the l2 error of a slope, and the largest residual at which Newton's method ends.
SLOPE_ERROR, _RESIDUAL = 1e-9, 1e-12
# Scaled slopes of a shorter radius are nearer to the solution than `SLOPE_ERROR`.
_LEAST_RADIUS = 4e-10
_NEWTON_STEPS, _BISECTIONS = 16, 80


def envelope_slopes(slopes: Array, outputs: Array, labels: NDArray[np.int64], radius: Array) -> Array:
    """Return the slopes of the envelopes of cross-entropy.

    Args:
        slopes: slopes softmax(z) − e_b, (…, c).
        outputs: outputs z, (…, c).
        labels: labels b, (…).
        radius: radius C/‖a‖, (…).

    Returns:
        The slopes (…, c), whose l2 norms are at most `radius` up to rounding, with errors within `SLOPE_ERROR`. NaN
        slopes are unchanged.

    Limits:
        Call it with floating-point warnings disabled.
    """
    radius = np.minimum(radius, 1.0)
    norms = np.sqrt(np.einsum("...k,...k->...", slopes, slopes))
    outside = norms > radius
    if not outside.any():
        return slopes
    out, c, norms = slopes.copy(), radius[outside], norms[outside]
    # Classes come first, so that sums over them are sums of rows.
    clipped = slopes[outside].T * (c / norms)
    solved = c > _LEAST_RADIUS
    chosen = np.eye(slopes.shape[-1])[:, labels[outside][solved]]
    margins = outputs[outside][solved].T
    margins = margins - _sum(margins * chosen)
    p, c = _solve(margins, chosen, clipped[:, solved], c[solved]) * (1.0 - chosen), c[solved]
    s = p - _sum(p) * chosen
    clipped[:, solved] = s * np.minimum(1.0, c / np.sqrt(_sum(s * s)))
    out[outside] = clipped.T
    return out


def _solve(z: Array, chosen: Array, start: Array, c: Array) -> Array:
    """Return p, (classes, n), with one column for each record outside the ball.

    Args:
        z: outputs minus the output of the label, (classes, n).
        chosen: unit vectors e_b, (classes, n).
        start: slopes scaled to the norm c, (classes, n).
        c: radii, (n,).
    """
    out, columns = np.empty_like(z), np.arange(c.size)
    u, theta, shift = _start(z, chosen, start)
    for _ in range(_NEWTON_STEPS):
        p = np.exp(u)
        s, w = p - chosen, p / (1.0 + theta * p)
        residual = u + theta * s + shift - z
        excess, square = _sum(p) - 1.0, _sum(s * s) - c * c
        error = np.maximum(np.abs(residual).max(axis=0) / (1.0 + theta), np.abs(square) / c)
        going = ~(np.maximum(error, np.abs(excess)) <= _RESIDUAL)
        if not going.all():
            out[:, columns[~going]] = p.compress(~going, axis=1)
            if not going.any():
                return out
        ws = w * s
        first, second = excess - _sum(w * residual), 0.5 * square - _sum(ws * residual)
        a, b, d = _sum(w), _sum(ws), _sum(ws * s)
        longer = np.clip(theta + (a * second - b * first) / (a * d - b * b), 0.25 * theta, 4.0 * theta)
        by_theta = longer - theta
        # The shift that keeps the sum of p, given the step of θ.
        by_shift = (first - b * by_theta) / a
        u -= np.maximum((residual + by_theta * s + by_shift) / (1.0 + theta * p), -2.0)
        theta, shift = longer, shift + by_shift
        if not going.all():
            columns, c, theta, shift = columns[going], c[going], theta[going], shift[going]
            u, z, chosen = (part.compress(going, axis=1) for part in (u, z, chosen))
    out[:, columns] = _bisect(z, chosen, c)
    return out


def _start(z: Array, chosen: Array, start: Array) -> tuple[Array, Array, Array]:
    """Return log p, θ and λ near the scaled slopes, exact for two classes. For arguments see `_solve`."""
    others, largest = start * (1.0 - chosen), z.max(axis=0)
    rest = _sum(others)
    kept = np.log1p(-rest)
    log_odds = largest + np.log(_sum(np.exp(z - largest) * (1.0 - chosen)))
    theta = np.maximum((log_odds + kept - np.log(rest)) / (_sum(others * others) / rest + rest), 1e-300)
    shift, log_theta = theta * rest - kept, np.log(theta)
    x = z + theta * chosen + (log_theta - shift)
    return x - wrightomega(x) - log_theta, theta, shift


def _bisect(z: Array, chosen: Array, c: Array) -> Array:
    """Return p by bisection on θ, and on λ for each θ. For arguments see `_solve`."""
    classes = len(z)
    # θ (p_k + 1 − p_b) = z_k + log(p_b/p_k), at the k ≠ b with the largest p_k.
    low, high = np.zeros_like(c), np.sqrt(2.0) * (np.maximum(z.max(axis=0), 0.0) + np.log(1.5 * classes / c)) / c
    for _ in range(_BISECTIONS):
        theta = 0.5 * (low + high)
        outside = _sum(np.square(_distribution(z, chosen, theta) - chosen)) > c * c
        low, high = np.where(outside, theta, low), np.where(outside, high, theta)
    return _distribution(z, chosen, high)


def _distribution(z: Array, chosen: Array, theta: Array) -> Array:
    """Return p for θ. For arguments see `_solve`."""
    x = z + theta * chosen
    # Σ p ≥ 1 at the first bound, and p ≤ 1/classes at the second one.
    low, high = x.max(axis=0) - theta, x.max(axis=0) + np.log(len(z)) - theta / len(z)
    for _ in range(_BISECTIONS):
        shift = 0.5 * (low + high)
        above = _sum(wrightomega(x - shift + np.log(theta))) > theta
        low, high = np.where(above, shift, low), np.where(above, high, shift)
    return np.asarray(wrightomega(x - high + np.log(theta)) / theta)


def _sum(rows: Array) -> Array:
    """Add the rows one by one, so that the bits of a column do not depend on the number of columns."""
    return reduce(np.add, rows)
