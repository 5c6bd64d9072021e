"""What a problem offers: per-record terms, data-independent terms, and values to evaluate.

The problem is  min_x F(x) = (1/m) Σ_i f_i(x, y*(x)),  y*(x) = argmin_y (1/m) Σ_i g_i(x, y), where f_i is the mean of
the upper per-record loss h over agent i's validation records and g_i is the mean of the lower per-record loss l over
its train records plus a data-independent regulariser R(x, y). Per record the algorithms need five directions:

    lower_grad_y = ∇_y l (q)      lower_hvp = ∇²_yy l · z (q)     lower_jvp = ∇²_xy l · z (p)      train records
    upper_grad_y = ∇_y h (q)      upper_grad_x = ∇_x h (p)                                          validation records

and of the regulariser  ∇_y R,  ∇²_yy R · z,  ∇²_xy R · z, which are exact and never clipped.

Problems that read features from a public centre x have a sixth, which reads train records: feature_mean (p), the mean
of the features. They have a method `feature_mean(records, clip)`, (g, n, …) → (g, p), each record's clipped to clip.x.

Algorithms that send second derivatives instead of products with a vector need matrices as well:

    lower_hessian = ∇²_yy l (q, q)     lower_jacobian = ∇²_xy l (p, q)     lower_hessian_product = ∇²_yy l · Z (q, p)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.privacy.clipping import Clip

TERMS = ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x")

# Terms that take a direction z, by which the series of the lower level are multiplied.
DIRECTED = ("lower_hvp", "lower_jvp")

# Each matrix and the term that it is the whole of: both read records or neither does, and both obey the same clip.
MATRICES = {"lower_hessian": "lower_hvp", "lower_jacobian": "lower_jvp", "lower_hessian_product": "lower_hvp"}

# ∇_x l(x, y; ξ) − ∇_x l(x, y'; ξ), of problems with `change`; it reads records wherever ∇²_xy l does.
CHANGE = "lower_grad_x_change"

# The family that a term belongs to, and with it the clip that bounds it and the noise that its releases follow.
CLIP_OF_TERM = {
    "feature_mean": "x",
    "lower_grad_y": "y",
    "lower_hvp": "z",
    "upper_grad_y": "z",
    "lower_jvp": "x",
    "upper_grad_x": "x",
    "lower_hessian": "z",
    "lower_hessian_product": "z",
    "lower_jacobian": "x",
}


class Terms(NamedTuple):
    """Clipped per-record means of one agent; None where the term touches no record (it is identically zero).

    (q,): lower_grad_y ∇_y g, lower_hvp ∇²_yy g·z, upper_grad_y ∇_y f. (p,): lower_jvp ∇²_xy g·z, upper_grad_x ∇_x f.
    """

    lower_grad_y: Array | None = None
    lower_hvp: Array | None = None
    lower_jvp: Array | None = None
    upper_grad_y: Array | None = None
    upper_grad_x: Array | None = None


# What a problem reads whose losses are of y alone, and whose ∇_x h is 0.
LOSS_OF_Y: Mapping[str, Split] = MappingProxyType(
    {"lower_grad_y": "train", "lower_hvp": "train", "upper_grad_y": "validation"}
)


class Regulariser(NamedTuple):
    """Data-independent terms, row-wise: ∇_y R (b, q), ∇²_yy R·z (b, q), ∇²_xy R·z (b, p)."""

    grad_y: Array
    hvp: Array
    jvp: Array


class TwoVariables(Protocol):
    """A problem in x of R^p and y of R^q."""

    @property
    def p(self) -> int: ...

    @property
    def q(self) -> int: ...


class Problem(TwoVariables, Protocol):
    """A bilevel problem.

    `reads_records` names, for every term that reads records, the split it reads; a term
    that is not listed reads no record and is free. `records` below is whatever `prepare` returned: a NamedTuple of
    arrays whose first axis is the records, so that a prefix or a sample of it is again such a tuple.

    Optional members, all data-independent except `change` and `regression_scores`:

        start                                variable → (d,) public start, added to the constants of the scenario
        place_records(records, agent)        train records of an agent, with what their places add; places are public
        largest_x(curvature)                 the largest coordinate of x at which ∇²_yy R has no larger eigenvalue
        project(x, y)                        the nearest allowed points (b, p) and (b, q), row by row
        public_grad_x(x, y)                  data-independent part of upper_grad_x (b, p), never clipped
        change(x, y, other, train, clip)     (p,) mean of ∇_x l(x, y) − ∇_x l(x, other), each record's clipped to clip.x
        scores(x, y)                         metric → (b,)
        regression_scores(x, y, records)     "rmse", in the unit of prepared labels, and "r2" (if labels vary) → (b,)
    """

    @property
    def reads_records(self) -> Mapping[str, Split]: ...

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        """Records of features (n, d) and labels (n,) as the oracle reads them, with the norms that its clips need."""
        ...

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        """Average the clipped per-record terms over the given records, for one agent.

        Args:
            x: (p,).
            y: (q,).
            z: (q,).
            train: train records, read by the terms of the lower level.
            validation: validation records, read by the terms of the upper level.
            clip: bounds on the per-record terms.
            wanted: which terms; default all.

        Returns:
            The means; the divisor is the number of records given. Of the terms that are not wanted, whichever would
            cost extra are left out (None).

        Sensitivity:
            Every per-record term has norm at most its clip.

        Limits:
            A non-finite contribution counts as zero.
        """
        ...

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """Average the clipped per-record matrices over the given train records, for one agent.

        Args:
            x: (p,).
            y: (q,).
            matrix: Z (q, p), read for "lower_hessian_product" only.
            train: the records.
            clip: clip.z bounds each record's matrix, clip.x that of "lower_jacobian".
            wanted: a subset of MATRICES.

        Returns:
            Matrix → mean; the divisor is the number of records given. A matrix is left out where the term that it is
            the whole of touches no record.

        Sensitivity:
            Each record's matrix is clipped as a whole, in the entrywise ℓ1 norm or the Frobenius norm.

        Limits:
            A non-finite contribution counts as zero.
        """
        ...

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """Exact data-independent terms; x: (b, p), y and z: (b, q)."""
        ...

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> tuple[Array, Array]:
        """Average the losses over records, at each row of x and y.

        Args:
            x: (b, p).
            y: (b, q).
            records: N of them.
            weights: (N,) non-negative, summing to one.

        Returns:
            The weighted means of l and of h, two (b,) arrays. The regulariser value is not included.
        """
        ...

    def regulariser_value(self, x: Array, y: Array) -> Array:
        """R(x, y) per row, (b,)."""
        ...

    def accuracy(self, x: Array, y: Array, records: Any) -> Array | None:
        """Share of records classified rightly by each row of x (b, p) and y (b, q), (b,).

        None where the problem classifies nothing.
        """
        return None


@runtime_checkable
class Stacked(Protocol):
    """A problem whose terms of many agents with equally many records are one pass over stacked arrays."""

    def stacked_terms(self, x: Array, y: Array, z: Array, records: Any, clip: Clip, wanted: Collection[str]) -> Terms:
        """Evaluate what `terms` gives, for g agents at once and to the bit, whoever else is in the stack.

        Args:
            x: (g, p).
            y: (g, q).
            z: (g, q).
            records: arrays (g, n, …), of the one kind that all wanted terms read.
            clip: bounds on the per-record terms.
            wanted: which terms.

        Returns:
            The means (g, ·) over the n records of each agent.

        Limits:
            It is called with floating-point warnings off.
        """
        ...


class StackedProblem(Problem, Stacked, Protocol):
    """A bilevel problem that evaluates many agents at once, and one as a stack of one."""

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        out = Terms()
        for split, records in (("train", train), ("validation", validation)):
            if some := [term for term in TERMS if term in wanted and self.reads_records.get(term) == split]:
                alone = type(records)(*(a[None] for a in records))
                with np.errstate(all="ignore"):
                    means = self.stacked_terms(x[None], y[None], z[None], alone, clip, some)
                out = out._replace(**{term: getattr(means, term)[0] for term in some})
        return out


@runtime_checkable
class Predictor(Protocol):
    """A problem whose y is a model: it says of records that it has not seen which class they are of, or a number."""

    @property
    def description(self) -> str:
        """How sentences call the model."""
        ...

    def predict(self, y: Array, features: Array) -> Array:
        """What models say of records.

        Args:
            y: (b, q).
            features: (N, d), prepared as the train records were.

        Returns:
            (b, N, c) probabilities of the classes that add up to 1, or (b, N) numbers in the unit of prepared labels.
        """
        ...

    def named_weights(self, y: Array) -> dict[str, Array]:
        """The weights (q,) of one model by name, in shape, as a dense layer multiplies prepared features by them."""
        ...


@runtime_checkable
class Classifying(Protocol):
    """A problem that may have probabilities of classes."""

    def probabilities(self, x: Array, y: Array, records: Any) -> Sequence[tuple[Array, NDArray[np.int64]]]:
        """What one model says of N records, and what they are.

        Args:
            x: (p,).
            y: (q,).
            records: N of them.

        Returns:
            (N, c) probabilities of the classes, and (N,) the position of each record's class among them; of several
            tasks those of each, on its own records. Nothing where the problem has no probabilities.
        """
        ...


def public_part(problem: Problem, term: str, x: Array, y: Array, z: Array) -> Array | None:
    """What is data-independent of a term, row by row as x (b, p), y and z (b, q); None where nothing is."""
    if term.startswith("lower_"):
        part: Array = getattr(problem.regulariser(x, y, z), term.removeprefix("lower_"))
        return part
    # Far cheaper than asking for the protocol, which is asked for every round.
    return problem.public_grad_x(x, y) if term == "upper_grad_x" and hasattr(problem, "public_grad_x") else None


class StepFacts(NamedTuple):
    """What is public of a model at one level, by which its steps and its clip are planned.

    Args:
        classes: how many; 0 where labels are numbers.
        curvature: L, the largest eigenvalue of ∇² of the mean loss and the regulariser, or what is usual of it where a
            network starts; infinite where features are not bounded.
        start: root mean square of the random weights that a network starts from; 0 of a linear model.
        linear: whether the model is.
        features: d of a model that can read features from a centre; 0 of others.
    """

    classes: int
    curvature: float
    start: float
    linear: bool
    features: int = 0


@runtime_checkable
class PlannedTraining(Protocol):
    """A model at one level whose steps and clip may be left to be planned, in `simulation.jobs.settings`."""

    @property
    def p(self) -> int: ...

    @property
    def q(self) -> int: ...

    def step_facts(self) -> StepFacts:
        """What a plan of steps and clip reads; public."""
        ...

    def with_clip(self, clip: Clip) -> Self:
        """The same model, whose probabilities allow for gradients that were clipped so."""
        ...

    def null_record(self, records: Any) -> Any:
        """One record that contributes nothing to any query, of the kind of these."""
        ...


def term_shapes(p: int, q: int) -> dict[str, tuple[int, ...]]:
    """Term or matrix → its shape."""
    vectors = {term: (p,) if family == "x" else (q,) for term, family in CLIP_OF_TERM.items() if term not in MATRICES}
    matrices = {"lower_hessian": (q, q), "lower_jacobian": (p, q), "lower_hessian_product": (q, p)}
    return {**vectors, **matrices, CHANGE: (p,)}


def split_read(term: str, reads_records: Mapping[str, Split]) -> Split:
    """The kind of records that a term reads, a matrix or `CHANGE` included. Raises KeyError where it reads none."""
    return reads_records["lower_jvp" if term == CHANGE else MATRICES.get(term, term)]


def matrices_read(wanted: Collection[str], reads_records: Mapping[str, Split]) -> list[str]:
    """Those of the wanted matrices that read records."""
    return [name for name in MATRICES if name in wanted and MATRICES[name] in reads_records]


def as_stacked(problem: Problem) -> Stacked | None:
    """The problem where it evaluates many agents at once, else None.

    A class that overrides `terms` and inherits `stacked_terms` has changed its mathematics in one of two places: what
    it inherits is not used.
    """
    if not isinstance(problem, Stacked):
        return None
    order = type(problem).__mro__
    terms, at_once = (
        next((i for i, c in enumerate(order) if name in vars(c)), -1) for name in ("terms", "stacked_terms")
    )
    return problem if at_once <= terms else None
