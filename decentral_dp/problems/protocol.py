"""Protocol of a bilevel problem: per-record terms, data-independent terms, and values for evaluation.

The problem is  min_x F(x) = (1/m) Σ_i f_i(x, y*(x)),  y*(x) = argmin_y (1/m) Σ_i g_i(x, y), where f_i is the mean of
the upper per-record loss h over agent i's validation records and g_i is the mean of the lower per-record loss l over
its train records plus a data-independent regulariser R(x, y). Per record the algorithms use five directions:

    lower_grad_y = ∇_y l (q)      lower_hvp = ∇²_yy l · z (q)     lower_jvp = ∇²_xy l · z (p)      train records
    upper_grad_y = ∇_y h (q)      upper_grad_x = ∇_x h (p)                                          validation records

They also use ∇_y R, ∇²_yy R · z and ∇²_xy R · z of the regulariser, which are exact and never clipped.

Problems that read features relative to a public centre x have a sixth term over train records: feature_mean (p), the
mean of the features. They have a method `feature_mean(records, clip)`, (g, n, …) → (g, p), clipped per record to
clip.x. Least squares have `statistics(records, clip, centre)`, the means of their sufficient statistics.

Algorithms that send second derivatives instead of products with a vector also need matrices:

    lower_hessian = ∇²_yy l (q, q)     lower_jacobian = ∇²_xy l (p, q)     lower_hessian_product = ∇²_yy l · Z (q, p)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.privacy.clipping import Clip

TERMS = ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x")

# Terms with a direction z, which series of the lower level multiply.
DIRECTED = ("lower_hvp", "lower_jvp")

# Matrix → term that is its product: both have the same clip, and both read records or neither does.
MATRICES = {"lower_hessian": "lower_hvp", "lower_jacobian": "lower_jvp", "lower_hessian_product": "lower_hvp"}

# ∇_x l(x, y; ξ) − ∇_x l(x, y'; ξ), of problems with `change`.
CHANGE = "lower_grad_x_change"

# Term → term that reads the same records.
READS_AS = {**MATRICES, CHANGE: "lower_jvp"}

# Term → family, which determines its clipping norm and the noise of its releases.
CLIP_OF_TERM = {
    "feature_mean": "x",
    "lower_grad_y": "y",
    "statistics": "y",
    "lower_hvp": "z",
    "upper_grad_y": "z",
    "lower_jvp": "x",
    "upper_grad_x": "x",
    CHANGE: "x",
    "lower_hessian": "z",
    "lower_hessian_product": "z",
    "lower_jacobian": "x",
}


class Terms(NamedTuple):
    """Means of clipped per-record terms of one agent. A term that reads no record is zero and given as None.

    Shape (q,): lower_grad_y ∇_y g, lower_hvp ∇²_yy g·z, upper_grad_y ∇_y f. Shape (p,): lower_jvp ∇²_xy g·z,
    upper_grad_x ∇_x f.
    """

    lower_grad_y: Array | None = None
    lower_hvp: Array | None = None
    lower_jvp: Array | None = None
    upper_grad_y: Array | None = None
    upper_grad_x: Array | None = None


# Splits of a problem whose losses do not depend on x.
LOSS_OF_Y: Mapping[str, Split] = MappingProxyType(
    {"lower_grad_y": "train", "lower_hvp": "train", "upper_grad_y": "validation"}
)


class Regulariser(NamedTuple):
    """Data-independent terms, row-wise: ∇_y R (b, q), ∇²_yy R·z (b, q), ∇²_xy R·z (b, p)."""

    grad_y: Array
    hvp: Array
    jvp: Array


class TwoVariables(Protocol):
    """Problem in x ∈ R^p and y ∈ R^q."""

    @property
    def p(self) -> int: ...

    @property
    def q(self) -> int: ...


class Problem(TwoVariables, Protocol):
    """Bilevel problem.

    `reads_records` maps every term that reads records to its split. Other terms read no record and have no privacy
    cost. `records` below is the result of `prepare`: a NamedTuple of arrays whose first axis indexes the records, so a
    prefix or a sample of it is again such a tuple.

    Optional members, all data-independent except `change`, `regression_scores` and `probabilities`:

        start                                variable → (d,) public start, added to the constants of the scenario
        place_records(records, agent)        train records of an agent, with data of their public indices
        largest_x(curvature)                 the largest coordinate of x at which ∇²_yy R has no larger eigenvalue
        project(x, y)                        the nearest allowed points (b, p) and (b, q), row by row
        public_grad_x(x, y)                  data-independent part of upper_grad_x (b, p), never clipped
        change(x, y, other, train, clip)     (p,) mean of ∇_x l(x, y) − ∇_x l(x, other), clipped per record to clip.x
        scores(x, y)                         metric → (b,)
        regression_scores(x, y, records)     "rmse", in the unit of prepared labels, and "r2" (if labels vary) → (b,)
        probabilities(x, y, records)         class probabilities (N, c) and classes (N,) of each task, of x (p,), y (q,)
    """

    @property
    def reads_records(self) -> Mapping[str, Split]: ...

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        """Prepare records from features (n, d) and labels (n,), with the norms that clipping needs."""
        ...

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        """Average the clipped per-record terms over the given records, for one agent.

        Args:
            x: upper variable, (p,).
            y: lower variable, (q,).
            z: vector of the products, (q,).
            train: train records, read by the terms of the lower level.
            validation: validation records, read by the terms of the upper level.
            clip: bounds on the per-record terms.
            term_names: names of the terms, by default all.

        Returns:
            The means, with the number of records as divisor. Terms that are not requested and would take extra time are
            None.

        Sensitivity:
            Every per-record term has norm at most its clip.

        Limits:
            A non-finite contribution counts as zero.
        """
        ...

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, matrix_names: Collection[str]
    ) -> dict[str, Array]:
        """Average the clipped per-record matrices over the given train records, for one agent.

        The default returns no matrices and is for problems whose second derivatives read no record.

        Args:
            x: upper variable, (p,).
            y: lower variable, (q,).
            matrix: matrix Z, (q, p), read only for "lower_hessian_product".
            train: train records.
            clip: bounds on each record's matrix, clip.x for "lower_jacobian" and clip.z for the others.
            matrix_names: subset of MATRICES.

        Returns:
            The mean of each matrix, with the number of records as divisor. A matrix is missing if its term reads no
            record.

        Sensitivity:
            Each record's matrix is clipped as a whole, in the entrywise ℓ1 norm or the Frobenius norm.

        Limits:
            A non-finite contribution counts as zero.
        """
        return {}

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """Evaluate exact data-independent terms at x (b, p), y (b, q) and z (b, q)."""
        ...

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> tuple[Array, Array]:
        """Average the losses over records, at each row of x and y.

        Args:
            x: upper variables, (b, p).
            y: lower variables, (b, q).
            records: N records.
            weights: non-negative weights with sum 1, (N,).

        Returns:
            The weighted means of l and of h, two arrays (b,). The regulariser value is not included.
        """
        ...

    def regulariser_value(self, x: Array, y: Array) -> Array:
        """Return R(x, y) per row, (b,)."""
        ...

    def accuracy(self, x: Array, y: Array, records: Any) -> Array | None:
        """Return the share of correctly classified records for each row of x (b, p) and y (b, q), (b,).

        The result is None if the problem does not classify.
        """
        return None


@runtime_checkable
class Stacked(Protocol):
    """Problem that evaluates the terms of many agents with equal numbers of records in one pass.

    Optional member: `joins_agents`, whether `stacked_terms` also accepts records of `problems.records.join_records`.
    """

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: Any, clip: Clip, term_names: Collection[str]
    ) -> Terms:
        """Evaluate `terms` for g agents at once. The result of an agent is bitwise independent of the others.

        Args:
            x: upper variables, (g, p).
            y: lower variables, (g, q).
            z: vectors of the products, (g, q).
            records: arrays (g, n, …) of the split that all requested terms read.
            clip: bounds on the per-record terms.
            term_names: names of the terms.

        Returns:
            The means (g, ·) over the n records of each agent.

        Limits:
            Floating-point warnings are disabled during the call.
        """
        ...


class StackedProblem(Problem, Stacked, Protocol):
    """Bilevel problem that evaluates many agents at once, and one agent as a stack of one."""

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        out = Terms()
        for split, records in (("train", train), ("validation", validation)):
            if some := [term for term in TERMS if term in term_names and self.reads_records.get(term) == split]:
                alone = type(records)(*(a[None] for a in records))
                with np.errstate(all="ignore"):
                    means = self.stacked_terms(x[None], y[None], z[None], alone, clip, some)
                out = out._replace(**{term: getattr(means, term)[0] for term in some})
        return out


@runtime_checkable
class Predictor(Protocol):
    """Problem whose y is a model, which predicts classes or numbers for new records."""

    @property
    def description(self) -> str:
        """Name of the model in sentences."""
        ...

    def predict(self, y: Array, features: Array) -> Array:
        """Predict with each of b models.

        Args:
            y: lower variables, (b, q).
            features: features that are prepared like the train records, (N, d).

        Returns:
            Class probabilities (b, N, c), or numbers (b, N) in the unit of prepared labels.
        """
        ...

    def named_weights(self, y: Array) -> dict[str, Array]:
        """Return the weights (q,) of one model by name, in the shapes of dense layers."""
        ...


def public_part(problem: Problem, term: str, x: Array, y: Array, z: Array) -> Array | None:
    """Return the data-independent part of a term, for each row of x (b, p), y and z (b, q); None if there is none."""
    if term.startswith("lower_"):
        part: Array = getattr(problem.regulariser(x, y, z), term.removeprefix("lower_"))
        return part
    return problem.public_grad_x(x, y) if term == "upper_grad_x" and hasattr(problem, "public_grad_x") else None


# Gauss-Legendre nodes and weights of [−1, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


def regulariser_change(problem: Problem, x: Array, y: Array, other_y: Array) -> Array:
    """Compute ∇_x R(x, y) − ∇_x R(x, other), (b, p), row by row for x (b, p), y and other (b, q).

    This is the integral of ∇²_xy R·(y − other) along the segment, exact to the sixth order in y.
    """
    along = y - other_y
    parts = (
        0.5 * weight * problem.regulariser(x, other_y + 0.5 * (1.0 + node) * along, along).jvp
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    )
    return np.asarray(sum(parts))


class StepFacts(NamedTuple):
    """Public facts of a model at one level, for its default learning rate and clipping norm.

    Args:
        classes: number of classes, or 0 if labels are numbers.
        curvature: largest eigenvalue L of ∇² of the mean loss and the regulariser, or its estimate at the start of
            a network. Infinite for unbounded features.
        start: root mean square of a network's random initial weights, or 0 for a linear model.
        linear: whether the model is linear.
        features: number of features d if the model supports centring, otherwise 0.
        centred_curvature: curvature L for features minus a centre with the norm of a record, infinite by default.
    """

    classes: int
    curvature: float
    start: float
    linear: bool
    features: int = 0
    centred_curvature: float = np.inf


@runtime_checkable
class PlannedTraining(Protocol):
    """Model at one level with default learning rates and clipping norms (`simulation.jobs.hyperparameters`)."""

    @property
    def p(self) -> int: ...

    @property
    def q(self) -> int: ...

    def step_facts(self) -> StepFacts:
        """Return the public facts for default hyper-parameters."""
        ...

    def with_clip(self, clip: Clip) -> Self:
        """Return the model with probabilities that account for this clipping."""
        ...

    def null_record(self, records: Any) -> Any:
        """Return one record of the same type that contributes nothing to any query."""
        ...


def term_shapes(p: int, q: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each term and matrix."""
    vectors = {term: (p,) if family == "x" else (q,) for term, family in CLIP_OF_TERM.items() if term not in MATRICES}
    matrices = {"lower_hessian": (q, q), "lower_jacobian": (p, q), "lower_hessian_product": (q, p)}
    return {**vectors, **matrices}


def split_read(term: str, reads_records: Mapping[str, Split]) -> Split:
    """Return the split that a term, a matrix or `CHANGE` reads. Raises KeyError if it reads no record."""
    return reads_records[READS_AS.get(term, term)]


def matrices_read(matrix_names: Collection[str], reads_records: Mapping[str, Split]) -> list[str]:
    """Return the requested matrices that read records."""
    return [name for name in MATRICES if name in matrix_names and MATRICES[name] in reads_records]


def as_stacked(problem: Problem) -> Stacked | None:
    """Return the problem if it evaluates many agents at once, otherwise None.

    If a class overrides `terms` but inherits `stacked_terms`, the two may be inconsistent, so the inherited method is
    not used.
    """
    if not isinstance(problem, Stacked):
        return None
    order = type(problem).__mro__
    terms, at_once = (
        next((i for i, c in enumerate(order) if name in vars(c)), -1) for name in ("terms", "stacked_terms")
    )
    return problem if at_once <= terms else None
