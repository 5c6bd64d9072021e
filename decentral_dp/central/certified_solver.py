"""Deterministic solves over pooled records, with accuracies that are fixed before any record is seen.

    minimise h(y) = G(x, y) [+ F(x, y)/λ]         ‖y − y_h‖ ≤ a       whatever the records
    solve ∇²_yy G(x, y) v = b                     ‖v − v*‖ ≤ τ        whatever the records

a and τ come from public constants, counts, dimensions and the rounding of float64. The achieved residual, the number of
steps and the time depend on the records; nothing is priced by them, and they are not released.

**Why every data set gets there.** h is μ-strongly convex, so ‖∇h(y)‖ ≤ μa certifies. With κ such that
∇²h(y + v) ⪯ e^{κ‖v‖}∇²h(y) for all y, v (κ = 0 for squares, ‖a‖ for the logistic loss, √2‖a‖ for the softmax loss; at
most C_gyy/μ for any), Newton's direction p, its decrement ν² = pᵀ∇²h p and d = κ‖p‖:

- near, κν ≤ √μ/4: a full step multiplies ν by at most e^{d/2}(e^d − 1 − d)/d < 0.2;
- else the step t = ln(1 + d)/d lowers h by at least 0.3 ν²/(1 + d) ≥ 0.013 μ/κ², of at most 3 l r that there are to
  lose (Sun & Tran-Dinh, Math. Programming 2019, ν = 2), r the radius of the ball, l ≥ ‖∇h‖ at its centre;
- or a full step that halves the smallest gradient so far and stays within 2r, at most log₂(l/goal) times.

All of that holds with room for directions solved to ν/16 and for gradients with rounding errors (`feasible`). A linear
solve repeats corrections, by a Cholesky factor or by conjugate gradients, as long as they halve the true residual, and
else makes Richardson's step r/b, which surely shrinks it by 1 − μ/b: no float process is relied on.

Projection onto the ball that holds every minimiser moves no point away from it: results are clamped, and what is not
finite, which these bounds exclude, becomes the centre, so that nothing raises or goes out of bounds on any values.

**Means.** Means over pooled records run over chunks, so that what float64 loses in them is known beforehand and hardly
grows with the number of records. Nothing is clipped: the constants of a family bound every record that the public
projection lets through.

**The implicit gradient.** `implicit_mean` takes means over records at one public point, and inherits their
sensitivities:

    q = a − J H⁻¹ b        a = mean ∇_x f    b = mean ∇_y f    J = mean ∇²_xy g + ∇²_xy R    H = mean ∇²_yy g + ∇²_yy R

Between two data sets  q − q' = (a − a') − (J − J')H⁻¹b − J'(H⁻¹ − H'⁻¹)b − J'H'⁻¹(b − b'),  and with ∇²R ⪰ w₀, ‖b‖ ≤ B,
‖J‖ ≤ K each of the four is a product of norms. Where every record's Hessian is positive semidefinite, and clipped by
scaling, it stays so: H and H' lie between some H₀ ⪰ w₀ and H₀ + c, c = C_h/n, and

    ‖H⁻¹ − H'⁻¹‖ ≤ c/(w₀(w₀ + c))      ‖J H⁻¹‖ ≤ ‖J (∇²R)^{−½}‖/√w₀ for a public J.

Elsewhere H is symmetrised and its eigenvalues are raised to w₀, the projection onto a convex set, which is 1-Lipschitz
in the Frobenius norm (not in the spectral one): ‖H⁻¹ − H'⁻¹‖ ≤ 2C_h/(n w₀²).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy

from decentral_dp.bounded import MIXED, SPLITS, Array, Bounded, Sensitivity, Split
from decentral_dp.constants import ProblemConstants, round_up
from decentral_dp.errors import InputError
from decentral_dp.exchange import Value
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, Quadratic, SoftmaxHyperparameter
from decentral_dp.problems.lower_level import CHUNK, mean_hessian, mean_losses, mean_term
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.records import regulariser_matrices


class Moments(NamedTuple):
    """A mean loss that is a polynomial of degree 2 in y (q,): value + gradientᵀ y + ½ yᵀ hessian y, hessian (q, q)."""

    value: float
    gradient: Array
    hessian: Array

    def slope(self, y: Array) -> Array:
        return np.asarray(self.hessian @ y + self.gradient)

    def level(self, y: Array) -> float:
        return self.value + float(self.gradient @ y) + 0.5 * float(y @ self.hessian @ y)


class MeanLoss(NamedTuple):
    """The mean lower or upper loss over records, a function of y (q,) at one public x, (p,).

    moments: of the loss where it is a polynomial of degree 2 in y and they are known.
    """

    problem: Problem
    x: Array
    records: Any
    level: Literal["lower", "upper"]
    moments: Moments | None = None

    def gradient(self, y: Array) -> Array:
        """∇_y, (q,)."""
        if self.moments is not None:
            return self.moments.slope(y)
        return mean_term(self.problem, self.x, y, np.zeros_like(y), self.records, f"{self.level}_grad_y")

    def product(self, y: Array, v: Array) -> Array:
        """∇²_yy v, (q,): exact, or by central differences of ∇_y, which are exact enough for a direction."""
        if self.moments is not None:
            return np.asarray(self.moments.hessian @ v)
        if self._has_lower_hessian:
            return mean_term(self.problem, self.x, y, v, self.records, "lower_hvp")
        length = float(np.linalg.norm(v))
        if not length > 0.0:
            return np.zeros_like(v)
        step = 2.0**-17 * (1.0 + float(np.linalg.norm(y))) / length
        return np.asarray((self.gradient(y + step * v) - self.gradient(y - step * v)) / (2.0 * step))

    def hessian(self, y: Array) -> Array:
        """∇²_yy, (q, q)."""
        if self.moments is not None:
            return self.moments.hessian
        if self._has_lower_hessian:
            return mean_hessian(self.problem, self.x, y, self.records)
        columns = np.stack([self.product(y, unit) for unit in np.eye(self.problem.q)])
        return np.asarray(0.5 * (columns + columns.T))

    @property
    def _has_lower_hessian(self) -> bool:
        # Of these, the upper loss of a validation record has the Hessian in y that the lower loss has of it.
        shared = LogisticHyperparameter | SoftmaxHyperparameter | Quadratic | HyperCleaning
        return self.level == "lower" or isinstance(self.problem, shared)


class PenalisedObjective(NamedTuple):
    """h(y) = G(x, y) + F(x, y)/penalty at one public x, (p,); without a penalty h = G.

    lower, upper: the mean losses on train and on validation records, both of one problem at one x.
    """

    lower: MeanLoss
    upper: MeanLoss
    penalty: float | None = None

    @property
    def problem(self) -> Problem:
        return self.lower.problem

    @property
    def x(self) -> Array:
        return self.lower.x

    def gradient(self, y: Array) -> Array:
        """∇h, (q,)."""
        regulariser: Array = self.problem.regulariser(self.x[None], y[None], np.zeros_like(y)[None]).grad_y[0]
        out = regulariser + self.lower.gradient(y)
        return out if self.penalty is None else out + self.upper.gradient(y) / self.penalty

    def product(self, y: Array, v: Array) -> Array:
        """∇²h v, (q,)."""
        regulariser: Array = self.problem.regulariser(self.x[None], y[None], v[None]).hvp[0]
        out = regulariser + self.lower.product(y, v)
        return out if self.penalty is None else out + self.upper.product(y, v) / self.penalty

    def hessian(self, y: Array) -> Array:
        """∇²h, (q, q)."""
        regulariser: Array = regulariser_matrices(self.problem, self.x[None], y[None], None).hessian[0]
        out = regulariser + self.lower.hessian(y)
        return out if self.penalty is None else out + self.upper.hessian(y) / self.penalty


def mean_rounding(counts: tuple[int, ...], dimension: int) -> float:
    """Relative error of a mean over chunks of terms of inner products, in any order: Higham 2002, Section 4.2, γ_k."""
    longest = max(min(n, CHUNK) + -(-n // CHUNK) for n in counts)
    return 1.01 * (longest + dimension + 64) * 2.0**-53


def moments(problem: Problem, records: Any) -> Moments:
    """Of the squared loss, which reads no x and is the same at both levels."""
    x, y = np.zeros(problem.p), np.zeros(problem.q)
    return Moments(
        float(mean_losses(problem, x[None], y[None], records)[0]),
        mean_term(problem, x, y, y, records, "upper_grad_y"),
        mean_hessian(problem, x, y, records),
    )


def are_squared(problem: Problem) -> bool:
    """Whether both losses are the squared loss."""
    return isinstance(problem, Quadratic)


# Up to so many lower variables matrices are formed and factored; above, only products with vectors are.
DENSE_LIMIT = 1000
# Certificates ask for so many times the rounding error that float64 may be stuck at.
MARGIN = 16.0

Product = Callable[[Array], Array]


class SolveFacts(NamedTuple):
    """What is public about an objective h at its x.

    centre (q,), radius: of a ball that holds its minimisers. mu, smooth: μ ⪯ ∇²h ⪯ b. lipschitz: l ≥ ‖∇h‖ on the ball.
    record: bound on one record's gradient, weighted. relative: κ. third: Lipschitz constant of ∇²h in y.
    rounding: relative error of a mean over records, in float64.
    """

    centre: Array
    radius: float
    mu: float
    smooth: float
    lipschitz: float
    record: float
    self_concordance: float
    third: float
    rounding: float

    @property
    def reach(self) -> float:
        """How far a minimiser, and twice over an iterate that counts, can be from the origin."""
        return float(np.linalg.norm(self.centre)) + 2.0 * self.radius

    @property
    def gradient_error(self) -> float:
        """e₀: how far a computed ∇h may be from the exact one near the ball; margins alone lose rounding·b‖y‖."""
        return self.rounding * (self.record + 2.0 * self.smooth * self.reach)

    @property
    def goal(self) -> float:
        """What the computed ‖∇h‖ must not exceed."""
        return MARGIN * self.gradient_error

    @property
    def accuracy(self) -> float:
        """a ≥ ‖y − y_h‖ once it does not, projection onto the ball included."""
        return round_up((self.goal + 2.0 * self.gradient_error) / self.mu + 2.0**-50 * self.reach)

    @property
    def steps(self) -> int:
        """More than Newton's method can take, whatever the records."""
        least = max(self.goal, 1e-290)
        legs = 2.0 + math.log2(max(self.lipschitz, least) / least)
        far = 240.0 * self.lipschitz * self.radius * self.self_concordance**2 / self.mu
        return math.ceil(legs * (far + 64.0))


def facts(
    constants: ProblemConstants,
    centre: Array,
    counts: tuple[int, ...],
    self_concordance: float | None = None,
    penalty: float | None = None,
) -> SolveFacts:
    """State what is public of G, or of G + F/λ, from constants that hold on the ball of *its* minimisers.

    Args:
        constants: on that ball; the upper loss is taken to have the κ and the C_gyy of the lower one.
        centre: (q,) of the ball.
        counts: of the records that it reads.
        self_concordance: κ; by default C_gyy/μ.
        penalty: λ; None for G alone.

    Raises:
        InputError: by public numbers, where float64 is too coarse for a certificate.
    """
    c, share = constants, 0.0 if penalty is None else 1.0 / penalty
    mu = c.mu
    smooth, third = c.b_gyy + share * c.b_fyy, (1.0 + share) * c.c_gyy
    stated = SolveFacts(
        centre=np.asarray(centre, dtype=np.float64),
        radius=c.radius,
        mu=mu,
        smooth=smooth,
        lipschitz=c.l_gy + share * c.l_fy,
        # One record's gradient is the mean's, minus the regulariser's, plus a difference of records.
        record=c.l_gy + c.d_gy + c.b_gyy * c.radius + share * c.l_fy,
        self_concordance=third / mu if self_concordance is None else self_concordance,
        third=third,
        rounding=mean_rounding(counts, len(centre)),
    )
    if not feasible(stated):
        raise InputError(
            f"problem: at this x the lower level's smallest and largest curvatures are {mu:.3g} and {smooth:.3g}, and "
            f"its solutions reach {c.radius:.3g}; float64 cannot certify a solution with {max(counts)} records; raise "
            "the ridge, or narrow the domain of x."
        )
    return stated


def feasible(f: SolveFacts) -> bool:
    """Whether rounding is small enough for the proof above to go through, far from the minimiser and near it.

    Far: errors of gradients and directions, relative to ν, stay below 1/16 up to √(6 l r/μ) away, beyond which no step
    leads. Near: what κ leaves of a last step from a decrement at the rounding level is below the goal.
    """
    condition = f.smooth / f.mu
    away = f.self_concordance * math.sqrt(6.0 * f.lipschitz * f.radius / f.mu)
    far = 256.0 * f.rounding * condition * (1.0 + away + f.third * f.reach / f.smooth)
    near = 64.0 * f.self_concordance * math.sqrt(condition) * f.gradient_error / f.mu
    return max(far, near) <= 1.0


def minimise(objective: PenalisedObjective, f: SolveFacts) -> Array:
    """Compute y in the ball with ‖y − y_h‖ ≤ f.accuracy: a fixed function of x and the records.

    Args:
        objective: h.
        f: its public facts.

    Returns:
        (q,).
    """
    y = f.centre.copy()
    with np.errstate(all="ignore"):
        gradient = objective.gradient(y)
        best = math.inf
        for _ in range(f.steps):
            size = float(np.linalg.norm(gradient))
            # Not `size <= goal`: what is not a number must end, too.
            if not size > f.goal:
                break
            best = min(best, size)
            step, decrement = _direction(objective, f, y, gradient)
            there = y - step
            new = objective.gradient(there)
            near = f.self_concordance * decrement <= 0.25 * math.sqrt(f.mu)
            close = float(np.linalg.norm(there - f.centre)) <= 2.0 * f.radius
            if not near and not (close and float(np.linalg.norm(new)) <= 0.5 * best):
                length = max(f.self_concordance * float(np.linalg.norm(step)), 1e-290)
                there = y - step * (math.log1p(length) / length)
                new = objective.gradient(there)
            y, gradient = there, new
    return project_to_ball(y, f.centre, f.radius)


class Solve(NamedTuple):
    """target: bound on ‖b‖ of every data set. goal: of the computed residual. error: τ ≥ ‖v − v*‖ then."""

    target: float
    goal: float
    error: float


def solve_certificate(f: SolveFacts, target: float, target_error: float) -> Solve:
    """For ∇²_yy G v = b at a point of the ball, with ‖b‖ ≤ target in exact arithmetic, computed up to target_error.

    A computed product with ∇²G errs by rounding·(b + C_gyy‖y‖)‖v‖, and ‖v‖ ≤ 2 target/μ on the way.
    """
    return _certificate(target, f.mu, target_error + 2.0 * f.rounding * (f.smooth + f.third * f.reach) * target / f.mu)


def _certificate(target: float, mu: float, floor: float) -> Solve:
    return Solve(target, MARGIN * floor, round_up(((MARGIN + 2.0) * floor + 2.0**-50 * target) / mu))


def inverse_product(objective: PenalisedObjective, f: SolveFacts, y: Array, target: Array, s: Solve) -> Array:
    """Compute v with ‖v − (∇²h)⁻¹ target‖ ≤ s.error and ‖v‖ ≤ s.target/μ, (q,).

    Args:
        objective: h.
        f: its public facts.
        y: (q,), where the Hessian is taken.
        target: (q,).
        s: the certificate.
    """
    with np.errstate(all="ignore"):
        correction, _ = _correction(objective, y)
        return solve(lambda d: objective.product(y, d), correction, target, f.mu, f.smooth, s)


def solve(product: Product, correction: Product, target: Array, mu: float, smooth: float, s: Solve) -> Array:
    """Compute v with ‖v − H⁻¹ target‖ ≤ s.error and ‖v‖ ≤ s.target/μ, (q,).

    Args:
        product: v → H v.
        correction: residual → an approximate correction, however good or bad.
        target: (q,).
        mu, smooth: of μ ⪯ H ⪯ smooth.
        s: the certificate.
    """

    def is_solved(_: Array, residual: Array) -> bool:
        return not float(np.linalg.norm(residual)) > s.goal

    with np.errstate(all="ignore"):
        v = _refine(product, correction, target, mu, smooth, is_solved)
    return project_to_ball(v, np.zeros_like(v), s.target / mu)


def project_to_ball(point: Array, centre: Array, radius: float) -> Array:
    """The point (d,) of the ball around `centre` (d,) that is nearest to one; the centre where that is not finite."""
    with np.errstate(all="ignore"):
        away = point - centre
        length = float(np.linalg.norm(away))
        if not math.isfinite(length):
            return centre.copy()
        return point if length <= radius else np.asarray(centre + away * (radius / length))


# Linear algebra ----------------------------------------------------------------------------------------------------


def _direction(objective: PenalisedObjective, f: SolveFacts, y: Array, gradient: Array) -> tuple[Array, float]:
    """Newton's direction with a residual of at most ν/16 in the local norm, (q,), and the decrement ν."""
    correction, product = _correction(objective, y)

    def is_solved(v: Array, residual: Array) -> bool:
        return not 16.0 * float(np.linalg.norm(residual)) > math.sqrt(f.mu * max(0.0, float(v @ (gradient - residual))))

    step = _refine(product, correction, gradient, f.mu, f.smooth, is_solved)
    return step, math.sqrt(max(0.0, float(step @ gradient)))


def _correction(objective: PenalisedObjective, y: Array) -> tuple[Product, Product]:
    """Residual → an approximate correction, however good; and products with ∇²h at y."""
    if len(y) <= DENSE_LIMIT:
        hessian = objective.hessian(y)
        return cholesky_solver(hessian), lambda v: np.asarray(hessian @ v)

    def product(v: Array) -> Array:
        return objective.product(y, v)

    diagonal = objective.problem.regulariser(objective.x[None], y[None], np.ones_like(y)[None]).hvp[0]
    return lambda r: _conjugate(product, r, diagonal), product


def cholesky_solver(matrix: Array) -> Product:
    """r (q,) ↦ matrix⁻¹ r by a Cholesky factor of (q, q); r ↦ 0 without one, so that Richardson's steps remain."""
    try:
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
    except np.linalg.LinAlgError:
        return np.zeros_like
    return lambda r: np.asarray(scipy.linalg.cho_solve(factor, r, check_finite=False))


def _conjugate(product: Product, target: Array, diagonal: Array) -> Array:
    """Conjugate gradients until the residual that they track is 2⁻⁷ of the target; or what they reach in 10 q steps.

    diagonal: of the regulariser's Hessian, which may span decades; the records' part is estimated along the target.
    """
    size = max(float(target @ target), 1e-290)
    curved = (float(target @ product(target)) - float(target @ (diagonal * target))) / size
    scale = diagonal + max(curved, 0.0)
    scale = np.where(scale > 0.0, scale, 1.0)
    sparse = scipy.sparse.linalg
    operator = sparse.LinearOperator((len(target), len(target)), matvec=product, dtype=np.float64)
    scaled = sparse.LinearOperator(operator.shape, matvec=lambda residual: residual / scale, dtype=np.float64)
    solution, _ = sparse.cg(operator, target, rtol=2.0**-7, atol=0.0, maxiter=10 * len(target), M=scaled)
    return np.asarray(solution)


def _refine(
    product: Product,
    correction: Product,
    target: Array,
    mu: float,
    smooth: float,
    is_solved: Callable[[Array, Array], bool],
) -> Array:
    """v with a residual target − H v that is small enough.

    At most 64 corrections halve it before nothing of a float64 is left, and between any two of them, or after them,
    45 b/μ of Richardson's steps do so by themselves.
    """
    v, residual = np.zeros_like(target), target
    for _ in range(math.ceil(64.0 * 45.0 * smooth / mu)):
        if is_solved(v, residual):
            break
        there = v + correction(residual)
        left = target - product(there)
        if not float(np.linalg.norm(left)) <= 0.5 * float(np.linalg.norm(residual)):
            there = v + residual / smooth
            left = target - product(there)
        v, residual = there, left
    return v


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
    parts = [_Part.from_value(v) for v in (a, b, jacobian, hessian)]
    (p, q), sensitivity = (parts[0].public.size, parts[1].public.size), [part.sensitivity for part in parts]
    ridge, mixed = parts[3].public.reshape(q, q), parts[2].public.reshape(p, q)
    eigenvalues = np.linalg.eigvalsh(0.5 * (ridge + ridge.T))
    target, matrix = parts[1].projected_value(clip.z), parts[3].projected_value(np.inf).reshape(q, q)
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
        through = min(through, round_up(float(np.linalg.norm(root, 2))) / floor**0.5)
    if not positive:
        # The nearest symmetric matrix in the Frobenius norm whose eigenvalues lie between these two.
        values, vectors = np.linalg.eigh(matrix)
        matrix = np.asarray((vectors * np.clip(values, float(eigenvalues[0]), top)) @ vectors.T)
    # Products with a float64 matrix err by q^{3/2} 2⁻⁵² ‖H‖‖v‖.
    certificate = _certificate(size, floor, 2.0 * q**1.5 * 2.0**-52 * top * size / floor)
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
        unsampled = batches == {None}
        sensitivities[split] = Sensitivity(
            np.array([round_up(total) if priced else np.inf]), np.ones(1), None if unsampled else MIXED
        )
    v = solve(lambda d: np.asarray(matrix @ d), cholesky_solver(matrix), target, floor, top, certificate)
    private = parts[0].projected_value(np.inf) - parts[2].projected_value(clip.x).reshape(p, q) @ v
    return Bounded(np.zeros((1, p)), private[None], sensitivities, "l2")


class _Part(NamedTuple):
    """One mean: public, private: (d,). spread: of the private part, empty where it reads no record."""

    public: Array
    private: Array
    sensitivities: dict[Split, Sensitivity]

    @classmethod
    def from_value(cls, value: Value) -> _Part:
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

    def projected_value(self, bound: float) -> Array:
        """The mean, its private part cut to the bound: 1-Lipschitz in l2."""
        return self.public + project_to_ball(self.private, np.zeros_like(self.private), bound)


def _excess(sensitivity: float, clip: float, rate: float, q: int) -> float:
    """κ − 1 of the summation slack that the sensitivity 2Cκ/n of a mean of Hessians carries, from the n that it tells.

    Half of that sensitivity has one data set's rounding in it; a Loewner interval is about exact sums, in both.
    """
    n = 2.0 * clip / (sensitivity * rate) if sensitivity > 0.0 else 0.0
    return 4.4 * n * (n + q * q + 8.0) * 2.0**-53
