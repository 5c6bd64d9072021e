"""Deterministic solves over pooled records, with accuracies fixed before any record is read.

    minimise h(y) = G(x, y) [+ F(x, y)/λ]         ‖y − y_h‖ ≤ a       for every dataset
    solve ∇²_yy G(x, y) v = b                     ‖v − v*‖ ≤ τ        for every dataset

a and τ follow from public constants, counts, dimensions and the rounding of float64. The achieved residual, the number
of steps and the running time depend on the records. They do not affect sensitivities and are not released.

**Convergence for every dataset.** h is μ-strongly convex, so ‖∇h(y)‖ ≤ μa certifies. Let κ satisfy
∇²h(y + v) ⪯ e^{κ‖v‖}∇²h(y) for all y, v (κ = 0 for squares, ‖a‖ for the logistic loss, √2‖a‖ for the softmax loss; at
most C_gyy/μ for any loss). Let p be Newton's direction, ν² = pᵀ∇²h p its decrement and d = κ‖p‖:

- near, κν ≤ √μ/4: a full step multiplies ν by at most e^{d/2}(e^d − 1 − d)/d < 0.2;
- otherwise the step t = ln(1 + d)/d lowers h by at least 0.3 ν²/(1 + d) ≥ 0.013 μ/κ², of at most 3 l r in total (Sun &
  Tran-Dinh, Math. Programming 2019, ν = 2), r the radius of the ball, l ≥ ‖∇h‖ at its centre;
- or a full step that halves the smallest gradient so far and stays within 2r, at most log₂(l/goal) times.

These bounds allow for directions with residuals up to ν/16 and for rounding errors in gradients (`is_feasible`). A
linear solve repeats corrections, by a Cholesky factor or by conjugate gradients, while they halve the true residual.
Otherwise it takes Richardson's step r/b, which reduces the residual by the factor 1 − μ/b.

Projection on the ball that contains every minimiser moves no point away from it. Results are projected. The bounds
exclude a result that is not finite; it would become the centre. So no value raises an error or leaves the ball.

**Means.** Means over pooled records run over chunks, so their float64 error is known in advance and hardly grows with
the number of records. Nothing is clipped: the constants of a family bound every record after the public projection.

**The implicit gradient.** `implicit_mean` takes means over records at one public point, with their sensitivities:

    q = a − J H⁻¹ b        a = mean ∇_x f    b = mean ∇_y f    J = mean ∇²_xy g + ∇²_xy R    H = mean ∇²_yy g + ∇²_yy R

For two datasets  q − q' = (a − a') − (J − J')H⁻¹b − J'(H⁻¹ − H'⁻¹)b − J'H'⁻¹(b − b'),  and with ∇²R ⪰ w₀, ‖b‖ ≤ B,
‖J‖ ≤ K each of the four terms is a product of norms. If every record's Hessian is positive semidefinite, it stays so
when clipped by scaling. Then H and H' lie between some H₀ ⪰ w₀ and H₀ + c, c = C_h/n, and

    ‖H⁻¹ − H'⁻¹‖ ≤ c/(w₀(w₀ + c))      ‖J H⁻¹‖ ≤ ‖J (∇²R)^{−½}‖/√w₀ for a public J.

Otherwise H is symmetrised and its eigenvalues are raised to w₀, the projection onto a convex set, which is 1-Lipschitz
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
    """A mean loss that is quadratic in y (q,): value + gradientᵀ y + ½ yᵀ hessian y.

    Args:
        value: constant term.
        gradient: gradient at 0, (q,).
        hessian: Hessian, (q, q).
    """

    value: float
    gradient: Array
    hessian: Array

    def slope(self, y: Array) -> Array:
        """Compute the gradient at y, (q,)."""
        return np.asarray(self.hessian @ y + self.gradient)

    def level(self, y: Array) -> float:
        """Compute the value at y."""
        return self.value + float(self.gradient @ y) + 0.5 * float(y @ self.hessian @ y)


class MeanLoss(NamedTuple):
    """The mean lower or upper loss over records, a function of y (q,) at one public x, (p,).

    Args:
        problem: bilevel problem.
        x: public x, (p,).
        records: records of one split.
        level: level of the loss, "lower" or "upper".
        moments: moments of a loss that is quadratic in y, if known.
    """

    problem: Problem
    x: Array
    records: Any
    level: Literal["lower", "upper"]
    moments: Moments | None = None

    def gradient(self, y: Array) -> Array:
        """Compute ∇_y, (q,)."""
        if self.moments is not None:
            return self.moments.slope(y)
        return mean_term(self.problem, self.x, y, np.zeros_like(y), self.records, f"{self.level}_grad_y")

    def product(self, y: Array, v: Array) -> Array:
        """Compute ∇²_yy v, (q,), exactly or by central differences of ∇_y, which suffice for a direction."""
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
        """Compute ∇²_yy, (q, q)."""
        if self.moments is not None:
            return self.moments.hessian
        if self._has_lower_hessian:
            return mean_hessian(self.problem, self.x, y, self.records)
        columns = np.stack([self.product(y, unit) for unit in np.eye(self.problem.q)])
        return np.asarray(0.5 * (columns + columns.T))

    @property
    def _has_lower_hessian(self) -> bool:
        # In these problems the upper and the lower loss of a record have the same Hessian in y.
        problem_types = LogisticHyperparameter | SoftmaxHyperparameter | Quadratic | HyperCleaning
        return self.level == "lower" or isinstance(self.problem, problem_types)


class PenalisedObjective(NamedTuple):
    """Objective h(y) = G(x, y) + F(x, y)/penalty at one public x, (p,), or h = G without a penalty.

    Args:
        lower: mean loss on train records.
        upper: mean loss on validation records, of the same problem at the same x.
        penalty: λ, or None.
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
        """Compute ∇h, (q,)."""
        regulariser: Array = self.problem.regulariser(self.x[None], y[None], np.zeros_like(y)[None]).grad_y[0]
        out = regulariser + self.lower.gradient(y)
        return out if self.penalty is None else out + self.upper.gradient(y) / self.penalty

    def product(self, y: Array, v: Array) -> Array:
        """Compute ∇²h v, (q,)."""
        regulariser: Array = self.problem.regulariser(self.x[None], y[None], v[None]).hvp[0]
        out = regulariser + self.lower.product(y, v)
        return out if self.penalty is None else out + self.upper.product(y, v) / self.penalty

    def hessian(self, y: Array) -> Array:
        """Compute ∇²h, (q, q)."""
        regulariser: Array = regulariser_matrices(self.problem, self.x[None], y[None], None).hessian[0]
        out = regulariser + self.lower.hessian(y)
        return out if self.penalty is None else out + self.upper.hessian(y) / self.penalty


def mean_rounding(counts: tuple[int, ...], dimension: int) -> float:
    """Bound the relative error of a mean over chunks of inner products in any order (Higham 2002, Section 4.2)."""
    longest = max(min(n, CHUNK) + -(-n // CHUNK) for n in counts)
    return 1.01 * (longest + dimension + 64) * 2.0**-53


def moments(problem: Problem, records: Any) -> Moments:
    """Compute the moments of the squared loss, which reads no x and is the same at both levels."""
    x, y = np.zeros(problem.p), np.zeros(problem.q)
    return Moments(
        float(mean_losses(problem, x[None], y[None], records)[0]),
        mean_term(problem, x, y, y, records, "upper_grad_y"),
        mean_hessian(problem, x, y, records),
    )


# Largest number of lower variables for which matrices are formed and factored.
DENSE_LIMIT = 1000
# Goal of a certificate, in multiples of the largest float64 rounding error.
MARGIN = 16.0

Product = Callable[[Array], Array]


class SolveFacts(NamedTuple):
    """Public facts of an objective h at its x.

    Args:
        centre: centre of a ball that contains its minimisers, (q,).
        radius: radius of that ball.
        mu: μ with μ ⪯ ∇²h.
        smooth: b with ∇²h ⪯ b.
        lipschitz: l with l ≥ ‖∇h‖ on the ball.
        record: bound on one record's weighted gradient.
        self_concordance: self-concordance constant κ.
        third: Lipschitz constant of ∇²h in y.
        rounding: relative float64 error of a mean over records.
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
        """Bound on the norm of a minimiser. Twice this bound holds for an iterate."""
        return float(np.linalg.norm(self.centre)) + 2.0 * self.radius

    @property
    def gradient_error(self) -> float:
        """Bound e₀ on the error of a computed ∇h near the ball; margins without it lose rounding·b‖y‖."""
        return self.rounding * (self.record + 2.0 * self.smooth * self.reach)

    @property
    def goal(self) -> float:
        """Bound that the computed ‖∇h‖ must reach."""
        return MARGIN * self.gradient_error

    @property
    def accuracy(self) -> float:
        """Bound a ≥ ‖y − y_h‖ once the goal is reached, after projection on the ball."""
        return round_up((self.goal + 2.0 * self.gradient_error) / self.mu + 2.0**-50 * self.reach)

    @property
    def steps(self) -> int:
        """Bound on the number of steps of Newton's method for every dataset."""
        goal = max(self.goal, 1e-290)
        legs = 2.0 + math.log2(max(self.lipschitz, goal) / goal)
        far = 240.0 * self.lipschitz * self.radius * self.self_concordance**2 / self.mu
        return math.ceil(legs * (far + 64.0))


def facts(
    constants: ProblemConstants,
    centre: Array,
    counts: tuple[int, ...],
    self_concordance: float | None = None,
    penalty: float | None = None,
) -> SolveFacts:
    """Return the public facts of G, or of G + F/λ, from constants on the ball of its minimisers.

    Args:
        constants: constants on that ball; the upper loss has the κ and the C_gyy of the lower loss.
        centre: centre of the ball, (q,).
        counts: numbers of records that the objective reads.
        self_concordance: κ, default C_gyy/μ.
        penalty: λ, or None for G.

    Raises:
        InputError: float64 rounding prevents a certificate. This depends on public numbers only.
    """
    c, share = constants, 0.0 if penalty is None else 1.0 / penalty
    mu = c.mu
    smooth, third = c.b_gyy + share * c.b_fyy, (1.0 + share) * c.c_gyy
    out = SolveFacts(
        centre=np.asarray(centre, dtype=np.float64),
        radius=c.radius,
        mu=mu,
        smooth=smooth,
        lipschitz=c.l_gy + share * c.l_fy,
        # One record's gradient is the mean gradient, minus the regulariser's, plus a difference of records.
        record=c.l_gy + c.d_gy + c.b_gyy * c.radius + share * c.l_fy,
        self_concordance=third / mu if self_concordance is None else self_concordance,
        third=third,
        rounding=mean_rounding(counts, len(centre)),
    )
    if not is_feasible(out):
        raise InputError(
            f"problem: float64 cannot certify a solution with {max(counts)} records (the lower level's curvatures at "
            f"this x are {mu:.3g} to {smooth:.3g}, the norms of its solutions up to {c.radius:.3g}). Fix: raise the "
            "ridge, or narrow the domain of x."
        )
    return out


def is_feasible(f: SolveFacts) -> bool:
    """Return whether rounding is small enough for the proof above, far from the minimiser and near it.

    Far: errors of gradients and directions, relative to ν, stay below 1/16 within a distance of √(6 l r/μ), beyond
    which no step leads. Near: the last step from a decrement at the rounding level ends below the goal.
    """
    condition = f.smooth / f.mu
    away = f.self_concordance * math.sqrt(6.0 * f.lipschitz * f.radius / f.mu)
    far = 256.0 * f.rounding * condition * (1.0 + away + f.third * f.reach / f.smooth)
    near = 64.0 * f.self_concordance * math.sqrt(condition) * f.gradient_error / f.mu
    return max(far, near) <= 1.0


def minimise(objective: PenalisedObjective, f: SolveFacts) -> Array:
    """Compute y (q,) in the ball with ‖y − y_h‖ ≤ f.accuracy, as a deterministic function of x and the records.

    Args:
        objective: objective h.
        f: public facts of the objective.
    """
    y = f.centre.copy()
    with np.errstate(all="ignore"):
        gradient = objective.gradient(y)
        smallest = math.inf
        for _ in range(f.steps):
            size = float(np.linalg.norm(gradient))
            # Not `size <= goal`: NaN must end the loop, too.
            if not size > f.goal:
                break
            smallest = min(smallest, size)
            step, decrement = _direction(objective, f, y, gradient)
            next_y = y - step
            next_gradient = objective.gradient(next_y)
            near = f.self_concordance * decrement <= 0.25 * math.sqrt(f.mu)
            close = float(np.linalg.norm(next_y - f.centre)) <= 2.0 * f.radius
            if not near and not (close and float(np.linalg.norm(next_gradient)) <= 0.5 * smallest):
                length = max(f.self_concordance * float(np.linalg.norm(step)), 1e-290)
                next_y = y - step * (math.log1p(length) / length)
                next_gradient = objective.gradient(next_y)
            y, gradient = next_y, next_gradient
    return project_to_ball(y, f.centre, f.radius)


class Solve(NamedTuple):
    """The certificate of a linear solve.

    Args:
        target: bound on ‖b‖ for every dataset.
        goal: bound that the computed residual must reach.
        error: bound τ ≥ ‖v − v*‖ once the goal is reached.
    """

    target: float
    goal: float
    error: float


def solve_certificate(f: SolveFacts, target: float, target_error: float) -> Solve:
    """Return the certificate of ∇²_yy G v = b at a point of the ball.

    A computed product with ∇²G has an error of at most rounding·(b + C_gyy‖y‖)‖v‖, and ‖v‖ ≤ 2 target/μ.

    Args:
        f: public facts of the objective.
        target: bound on the exact ‖b‖.
        target_error: bound on the error of the computed b.
    """
    return _certificate(target, f.mu, target_error + 2.0 * f.rounding * (f.smooth + f.third * f.reach) * target / f.mu)


def _certificate(target: float, mu: float, floor: float) -> Solve:
    return Solve(target, MARGIN * floor, round_up(((MARGIN + 2.0) * floor + 2.0**-50 * target) / mu))


def inverse_product(objective: PenalisedObjective, f: SolveFacts, y: Array, target: Array, s: Solve) -> Array:
    """Compute v with ‖v − (∇²h)⁻¹ target‖ ≤ s.error and ‖v‖ ≤ s.target/μ, (q,).

    Args:
        objective: objective h.
        f: public facts of the objective.
        y: point of the Hessian, (q,).
        target: right-hand side, (q,).
        s: certificate of the solve.
    """
    with np.errstate(all="ignore"):
        correction, _ = _correction(objective, y)
        return solve(lambda d: objective.product(y, d), correction, target, f.mu, f.smooth, s)


def solve(product: Product, correction: Product, target: Array, mu: float, smooth: float, s: Solve) -> Array:
    """Compute v with ‖v − H⁻¹ target‖ ≤ s.error and ‖v‖ ≤ s.target/μ, (q,).

    Args:
        product: function that maps v to H v.
        correction: function that maps a residual to an approximate correction of any accuracy.
        target: right-hand side, (q,).
        mu, smooth: bounds with μ ⪯ H ⪯ smooth.
        s: certificate of the solve.
    """

    def is_solved(_: Array, residual: Array) -> bool:
        return not float(np.linalg.norm(residual)) > s.goal

    with np.errstate(all="ignore"):
        v = _refine(product, correction, target, mu, smooth, is_solved)
    return project_to_ball(v, np.zeros_like(v), s.target / mu)


def project_to_ball(point: Array, centre: Array, radius: float) -> Array:
    """Return the point of the ball nearest to a point, (d,), or the centre if the distance is not finite."""
    with np.errstate(all="ignore"):
        away = point - centre
        length = float(np.linalg.norm(away))
        if not math.isfinite(length):
            return centre.copy()
        return point if length <= radius else np.asarray(centre + away * (radius / length))


# Linear algebra ----------------------------------------------------------------------------------------------------


def _direction(objective: PenalisedObjective, f: SolveFacts, y: Array, gradient: Array) -> tuple[Array, float]:
    """Compute Newton's direction, (q,), with a residual of at most ν/16 in the local norm, and the decrement ν."""
    correction, product = _correction(objective, y)

    def is_solved(v: Array, residual: Array) -> bool:
        return not 16.0 * float(np.linalg.norm(residual)) > math.sqrt(f.mu * max(0.0, float(v @ (gradient - residual))))

    step = _refine(product, correction, gradient, f.mu, f.smooth, is_solved)
    return step, math.sqrt(max(0.0, float(step @ gradient)))


def _correction(objective: PenalisedObjective, y: Array) -> tuple[Product, Product]:
    """Return the map residual → approximate correction, and the product with ∇²h at y."""
    if len(y) <= DENSE_LIMIT:
        hessian = objective.hessian(y)
        return cholesky_solver(hessian), lambda v: np.asarray(hessian @ v)

    def product(v: Array) -> Array:
        return objective.product(y, v)

    diagonal = objective.problem.regulariser(objective.x[None], y[None], np.ones_like(y)[None]).hvp[0]
    return lambda r: _conjugate(product, r, diagonal), product


def cholesky_solver(matrix: Array) -> Product:
    """Return the map r (q,) ↦ matrix⁻¹ r from a Cholesky factor, or r ↦ 0 (Richardson steps only) if there is none."""
    try:
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
    except np.linalg.LinAlgError:
        return np.zeros_like
    return lambda r: np.asarray(scipy.linalg.cho_solve(factor, r, check_finite=False))


def _conjugate(product: Product, target: Array, diagonal: Array) -> Array:
    """Run conjugate gradients until their residual is 2⁻⁷ of the target, for at most 10 q steps.

    The argument `diagonal` is the diagonal of the regulariser's Hessian, which may span decades. The records' part is
    estimated along the target.
    """
    size = max(float(target @ target), 1e-290)
    curvature = (float(target @ product(target)) - float(target @ (diagonal * target))) / size
    scale = diagonal + max(curvature, 0.0)
    scale = np.where(scale > 0.0, scale, 1.0)
    sparse = scipy.sparse.linalg
    operator = sparse.LinearOperator((len(target), len(target)), matvec=product, dtype=np.float64)
    scaled_operator = sparse.LinearOperator(operator.shape, matvec=lambda residual: residual / scale, dtype=np.float64)
    solution, _ = sparse.cg(operator, target, rtol=2.0**-7, atol=0.0, maxiter=10 * len(target), M=scaled_operator)
    return np.asarray(solution)


def _refine(
    product: Product,
    correction: Product,
    target: Array,
    mu: float,
    smooth: float,
    is_solved: Callable[[Array, Array], bool],
) -> Array:
    """Compute v with a small enough residual target − H v.

    At most 64 corrections halve it before the precision of float64 is exhausted. Between any two corrections, or after
    them, 45 b/μ of Richardson's steps halve it.
    """
    v, residual = np.zeros_like(target), target
    for _ in range(math.ceil(64.0 * 45.0 * smooth / mu)):
        if is_solved(v, residual):
            break
        next_v = v + correction(residual)
        next_residual = target - product(next_v)
        if not float(np.linalg.norm(next_residual)) <= 0.5 * float(np.linalg.norm(residual)):
            next_v = v + residual / smooth
            next_residual = target - product(next_v)
        v, residual = next_v, next_residual
    return v


def implicit_mean(a: Value, b: Value, jacobian: Value, hessian: Value, clip: Clip, *, positive: bool = True) -> Bounded:
    """Compute q = a − J H⁻¹ b, (1, p), with its sensitivity.

    A mean over records is a `Bounded` in l2. Its public part, if any, is the part of R (`answer.h + regulariser`),
    without which H may be singular. A mean that reads no record is an array. Sampling gives no amplification, because q
    is not a sum.

    Args:
        a: mean of ∇_x f, (1, p).
        b: mean of ∇_y f, (1, q).
        jacobian: J, (1, p·q), row by row.
        hessian: H, (1, q·q), row by row.
        clip: clipping norms of each record's ∇_y f and ∇²_yy g (z) and ∇²_xy g (x). b and J are projected to them
            again, which does not change a mean of clipped records.
        positive: whether every record's ∇²_yy g is positive semidefinite, default True.

    Raises:
        InputError: ∇²R is not positive definite.
    """
    parts = [_Part.from_value(v) for v in (a, b, jacobian, hessian)]
    (p, q), sensitivity = (parts[0].public.size, parts[1].public.size), [part.sensitivity for part in parts]
    ridge, cross_hessian = parts[3].public.reshape(q, q), parts[2].public.reshape(p, q)
    eigenvalues = np.linalg.eigvalsh(0.5 * (ridge + ridge.T))
    target, matrix = parts[1].projected_value(clip.z), parts[3].projected_value(np.inf).reshape(q, q)
    matrix = 0.5 * (matrix + matrix.T)
    top = float(eigenvalues[-1]) + (clip.z / parts[3].rate if parts[3].sensitivities else 0.0)
    size = float(np.linalg.norm(parts[1].public)) + (clip.z if parts[1].sensitivities else 0.0)
    jacobian_bound = float(np.linalg.norm(cross_hessian, 2)) + (clip.x if parts[2].sensitivities else 0.0)
    is_bounded = bool(np.isfinite([size, jacobian_bound, top]).all())
    if not is_bounded:
        # Without clipping nothing is certified, and the means replace their bounds.
        size, top = float(np.linalg.norm(target)), float(eigenvalues[-1]) + float(np.linalg.norm(matrix))
    rounding = 2.0**-48 * q**1.5 * top
    floor = float(eigenvalues[0]) - rounding
    if not floor > 0.0:
        raise InputError(
            f"problem: the implicit gradient requires a regulariser with a curvature above rounding (got "
            f"{eigenvalues[0]:.3g}, the largest is {top:.3g}). Fix: raise the ridge."
        )
    through = jacobian_bound / floor
    if positive and not parts[2].sensitivities:
        # Rows of J (∇²R)^{−½}.
        root = np.linalg.solve(np.linalg.cholesky(0.5 * (ridge + ridge.T)), cross_hessian.T)
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
            # s_h = 2Cκ/n, κ the summation slack. Half of it includes the rounding of one dataset; a Loewner interval
            # requires exact sums of both.
            n = 2.0 * clip.z / (s_h * parts[3].rate) if s_h > 0.0 else 0.0
            share = 0.5 * s_h * (1.0 + 2.0 * 4.4 * n * (n + q * q + 8.0) * 2.0**-53)
            distance = share / (floor * (floor + share))
        else:
            share = s_h + 2.0 * rounding
            distance = share / floor**2
        rotation = size * min(jacobian_bound * distance, through * share / floor)
        total = s_a + s_j * size / floor + rotation + through * s_b + 2.0 * jacobian_bound * certificate.error
        # Rounding of the last subtraction and product.
        total += 2.0**-50 * ((clip.x if parts[0].sensitivities else 0.0) + q * jacobian_bound * size / floor)
        batches = {part.sensitivities[split].batch for part in parts if split in part.sensitivities}
        is_full_batch = batches == {None}
        sensitivities[split] = Sensitivity(
            np.array([round_up(total) if is_bounded else np.inf]), np.ones(1), None if is_full_batch else MIXED
        )
    v = solve(lambda d: np.asarray(matrix @ d), cholesky_solver(matrix), target, floor, top, certificate)
    private = parts[0].projected_value(np.inf) - parts[2].projected_value(clip.x).reshape(p, q) @ v
    return Bounded(np.zeros((1, p)), private[None], sensitivities, "l2")


class _Part(NamedTuple):
    """A mean.

    Args:
        public: data-independent part, (d,).
        private: part that reads records, (d,).
        sensitivities: sensitivities of the private part; empty if it reads no record.
    """

    public: Array
    private: Array
    sensitivities: dict[Split, Sensitivity]

    @classmethod
    def from_value(cls, value: Value) -> _Part:
        if isinstance(value, Bounded):
            if value.norm != "l2":
                raise ValueError(f"the means of an implicit gradient are bounded in l2 (got one in {value.norm})")
            return cls(value.public.reshape(-1), value.private.reshape(-1), dict(value.sensitivities))
        flat = np.asarray(value, dtype=np.float64).reshape(-1)
        return cls(flat, np.zeros_like(flat), {})

    @property
    def sensitivity(self) -> dict[Split, float]:
        return {split: float(s.sensitivity[0]) for split, s in self.sensitivities.items()}

    @property
    def rate(self) -> float:
        """Smallest sampling rate; a mean over a Poisson sample may have 1/rate of a record's bound."""
        return min((float(s.rate[0]) for s in self.sensitivities.values()), default=1.0)

    def projected_value(self, bound: float) -> Array:
        """Return the mean with its private part projected to the bound, which is 1-Lipschitz in l2."""
        return self.public + project_to_ball(self.private, np.zeros_like(self.private), bound)
