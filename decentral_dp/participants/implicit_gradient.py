"""The implicit gradient from means over records at one public point, with the sensitivity that it inherits.

    q = a − J H⁻¹ b        a = mean ∇_x f    b = mean ∇_y f    J = mean ∇²_xy g + ∇²_xy R    H = mean ∇²_yy g + ∇²_yy R

Between two worlds  q − q' = (a − a') − (J − J')H⁻¹b − J'(H⁻¹ − H'⁻¹)b − J'H'⁻¹(b − b'),  and with ∇²R ⪰ w₀, ‖b‖ ≤ B,
‖J‖ ≤ K each of the four is a product of norms. Where every record's Hessian is positive semidefinite, and clipped by
scaling, it stays so: H and H' lie between some H₀ ⪰ w₀ and H₀ + c, c = C_h/n, and

    ‖H⁻¹ − H'⁻¹‖ ≤ c/(w₀(w₀ + c))      ‖J H⁻¹‖ ≤ ‖J (∇²R)^{−½}‖/√w₀ for a public J.

Elsewhere H is symmetrised and its eigenvalues are raised to w₀, the projection onto a convex set, which is 1-Lipschitz
in the Frobenius norm (not in the spectral one): ‖H⁻¹ − H'⁻¹‖ ≤ 2C_h/(n w₀²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import MIXED, SPLITS, Array, Bounded, Sensitivity, Split
from decentral_dp.constants.problem_constants import up
from decentral_dp.errors import InputError
from decentral_dp.exchange import Value
from decentral_dp.participants.certified_solver import dense_certificate, factored, inside, solved
from decentral_dp.privacy.clipping import Clip


def implicit_mean(a: Value, b: Value, jacobian: Value, hessian: Value, clip: Clip, *, positive: bool = True) -> Bounded:
    """Compute q = a − J H⁻¹ b, (1, p), with its sensitivity.

    A mean over records is a `Bounded` in l2; its public part, if any, is that of R, without which H need not be
    invertible: `answer.h + regulariser`. What reads no record is an array.

    Args:
        a: (1, p).
        b: (1, q).
        jacobian: (1, p·q), row by row.
        hessian: (1, q·q), row by row.
        clip: as each record's ∇_y f and ∇²_yy g (z) and ∇²_xy g (x) were clipped. b and J are cut to it again, which
            moves no mean that obeys it.
        positive: whether every record's ∇²_yy g is positive semidefinite; default True.

    Raises:
        InputError: ∇²R is not positive definite.

    Limits:
        Nothing is amplified by sampling: that holds for sums, which this is not.
    """
    parts = [_Part.of(v) for v in (a, b, jacobian, hessian)]
    (p, q), sensitivity = (parts[0].public.size, parts[1].public.size), [part.sensitivity for part in parts]
    ridge, mixed = parts[3].public.reshape(q, q), parts[2].public.reshape(p, q)
    eigenvalues = np.linalg.eigvalsh(0.5 * (ridge + ridge.T))
    target, matrix = parts[1].cut(clip.z), parts[3].cut(np.inf).reshape(q, q)
    matrix = 0.5 * (matrix + matrix.T)
    top = float(eigenvalues[-1]) + (clip.z / parts[3].rate if parts[3].sensitivities else 0.0)
    size = float(np.linalg.norm(parts[1].public)) + (clip.z if parts[1].sensitivities else 0.0)
    jacobian_bound = float(np.linalg.norm(mixed, 2)) + (clip.x if parts[2].sensitivities else 0.0)
    priced = bool(np.isfinite([size, jacobian_bound, top]).all())
    if not priced:
        # Without clips nothing is certified, and what the means are takes the place of bounds.
        size, top = float(np.linalg.norm(target)), float(eigenvalues[-1]) + float(np.linalg.norm(matrix))
    lost = 2.0**-48 * q**1.5 * top
    floor = float(eigenvalues[0]) - lost
    if not floor > 0.0:
        raise InputError(
            f"problem: the regulariser's smallest curvature is {eigenvalues[0]:.3g} beside a largest of {top:.3g}, and "
            "the implicit gradient needs one above rounding; raise the ridge."
        )
    through = jacobian_bound / floor
    if positive and not parts[2].sensitivities:
        # Rows of J (∇²R)^{−½}.
        root = np.linalg.solve(np.linalg.cholesky(0.5 * (ridge + ridge.T)), mixed.T)
        through = min(through, up(float(np.linalg.norm(root, 2))) / floor**0.5)
    if not positive:
        matrix = _raised(matrix, float(eigenvalues[0]), top)
    certificate = dense_certificate(q, size, floor, top)
    sensitivities: dict[Split, Sensitivity] = {}
    for split in [k for k in SPLITS if any(k in part.sensitivities for part in parts)]:
        s_a, s_b, s_j, s_h = (m.get(split, 0.0) for m in sensitivity)
        if positive:
            share = 0.5 * s_h * (1.0 + 2.0 * _excess(s_h, clip.z, parts[3].rate, q))
            distance = share / (floor * (floor + share))
        else:
            share = s_h + 2.0 * lost
            distance = share / floor**2
        turned = size * min(jacobian_bound * distance, through * share / floor)
        total = s_a + s_j * size / floor + turned + through * s_b + 2.0 * jacobian_bound * certificate.error
        # The last subtraction and product round, whichever record was replaced.
        total += 2.0**-50 * ((clip.x if parts[0].sensitivities else 0.0) + q * jacobian_bound * size / floor)
        batches = {part.sensitivities[split].batch for part in parts if split in part.sensitivities}
        whole = batches == {None}
        sensitivities[split] = Sensitivity(
            np.array([up(total) if priced else np.inf]), np.ones(1), None if whole else MIXED
        )
    v = solved(lambda d: np.asarray(matrix @ d), factored(matrix), target, floor, top, certificate)
    private = parts[0].cut(np.inf) - parts[2].cut(clip.x).reshape(p, q) @ v
    return Bounded(np.zeros((1, p)), private[None], sensitivities, "l2")


class _Part(NamedTuple):
    """One mean: public, private: (d,). spread: of the private part, empty where it reads no record."""

    public: Array
    private: Array
    sensitivities: dict[Split, Sensitivity]

    @classmethod
    def of(cls, value: Value) -> _Part:
        if isinstance(value, Bounded):
            if value.norm != "l2":
                raise ValueError(f"the implicit gradient is bounded in l2, and one of its means in {value.norm}")
            return cls(value.public.reshape(-1), value.private.reshape(-1), dict(value.sensitivities))
        flat = np.asarray(value, dtype=np.float64).reshape(-1)
        return cls(flat, np.zeros_like(flat), {})

    @property
    def sensitivity(self) -> dict[Split, float]:
        return {split: float(s.sensitivity[0]) for split, s in self.sensitivities.items()}

    @property
    def rate(self) -> float:
        """The smallest share of a Poisson sample: a mean over one may have 1/rate of a record's bound."""
        return min((float(s.rate[0]) for s in self.sensitivities.values()), default=1.0)

    def cut(self, bound: float) -> Array:
        """The mean, its private part cut to the bound: 1-Lipschitz in l2."""
        return self.public + inside(self.private, np.zeros_like(self.private), bound)


def _excess(sensitivity: float, clip: float, rate: float, q: int) -> float:
    """κ − 1 of the summation slack that the sensitivity 2Cκ/n of a mean of Hessians carries, from the n that it tells.

    Half of that sensitivity has one world's rounding in it; a Loewner interval is about exact sums, in both.
    """
    n = 2.0 * clip / (sensitivity * rate) if sensitivity > 0.0 else 0.0
    return 4.4 * n * (n + q * q + 8.0) * 2.0**-53


def _raised(matrix: Array, floor: float, top: float) -> Array:
    """The nearest symmetric matrix in the Frobenius norm whose eigenvalues lie in [floor, top]."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.clip(values, floor, top)) @ vectors.T)
