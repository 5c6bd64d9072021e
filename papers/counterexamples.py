"""Searches for counterexamples to declared constants and sensitivities.

A ratio above 1 refutes a bound. A search without one proves nothing. A search covers the public domain of records and
reads no data. It computes all terms with the problem's own oracles, independently of the formulas behind the bounds.

The first instances are random. They include the worst cases of the proofs, in which the replaced record opposes all
others. The next instances are small random changes of the best one. The seed determines the search.

The terms of all releases are evaluated without clipping on two small neighbouring data sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.central.sensitivities import (
    Clips,
    hypergradient_sensitivity,
    implicit_sensitivity,
    minimiser_sensitivity,
    score_oscillation,
)
from decentral_dp.constants import Family, ProblemConstants, box_width
from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import Problem, Terms
from decentral_dp.problems.records import regulariser_matrices, take

_UNCLIPPED = Clip("l2")
_NEWTON_STEPS, _HALVINGS = 100, 40
_TOLERANCE = 1e-12
_STEP = 1e-5


@dataclass(frozen=True)
class NeighbourPair:
    """Two neighbouring data sets, and points at which to compare them.

    Args:
        problem: the bilevel problem.
        x: first upper point (p,).
        x2: second upper point (p,).
        centre: centre (q,) of the ball of minimisers.
        y: first point (q,) in the ball.
        y2: second point (q,) in the ball.
        sides: (train, validation) records of each data set.
    """

    problem: Problem
    x: Array
    x2: Array
    centre: Array
    y: Array
    y2: Array
    sides: tuple[tuple[Any, Any], tuple[Any, Any]]

    @classmethod
    def of(
        cls,
        problem: Problem,
        points: tuple[Array, Array],
        states: tuple[Array, Array, Array],
        records: Sequence[tuple[Array, Array]],
        counts: tuple[int, int],
        replaced: Split,
    ) -> NeighbourPair:
        """Build two neighbouring data sets from records.

        Args:
            problem: the bilevel problem.
            points: x and x2, (p,) each.
            states: centre, y and y2, (q,) each.
            records: the replaced record and its replacement, other train records, and other validation records, each
                as (features, labels).
            counts: numbers of train and validation records; the other records are repeated to reach them.
            replaced: split of the replaced record.
        """
        pair, *others = records
        sides = []
        for which in range(2):
            built = []
            for split, n, (a, b) in zip(SPLITS, counts, others, strict=True):
                index = np.arange(n) % len(a)
                a, b = a[index], b[index]
                if split == replaced:
                    a[0], b[0] = pair[0][which], pair[1][which]
                built.append(_prepared(problem, a, b, split))
            sides.append((built[0], built[1]))
        return cls(problem, *points, *states, (sides[0], sides[1]))

    def terms(self, x: Array, y: Array, side: int, term: str, clip: Clip = _UNCLIPPED) -> Array:
        """Return the mean of one term over the records of one data set.

        Args:
            x: upper point (p,).
            y: lower point (q,).
            side: data set of the pair, 0 or 1.
            term: name of the term.
            clip: clipping of each record's contribution, by default none.

        Returns:
            Mean (p,) or (q,), zero if the term reads no record.
        """
        out: Terms = self.problem.terms(x, y, np.zeros_like(y), *self.sides[side], clip, (term,))
        value = getattr(out, term)
        return np.zeros(self.problem.p if term.endswith("x") else self.problem.q) if value is None else value

    def matrices(self, x: Array, y: Array, side: int, clip: Clip = _UNCLIPPED) -> tuple[Array, Array]:
        """Return the means over train records of ∇²_yy l and ∇²_xy l.

        Args:
            x: upper point (p,).
            y: lower point (q,).
            side: data set of the pair, 0 or 1.
            clip: clipping of each record's contribution, by default none.

        Returns:
            Means (q, q) and (p, q), zero if they read no record.
        """
        names = ("lower_hessian", "lower_jacobian")
        out = self.problem.matrices(x, y, None, self.sides[side][0], clip, names)
        p, q = self.problem.p, self.problem.q
        return out.get(names[0], np.zeros((q, q))), out.get(names[1], np.zeros((p, q)))

    def regulariser(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ∇²_yy R and ∇²_xy R."""
        matrices = regulariser_matrices(self.problem, x[None], y[None], None)
        return matrices.hessian[0], matrices.jacobian[0]

    def second(self, x: Array, y: Array, side: int) -> tuple[Array, Array]:
        """Return ∇²_yy G and ∇²_xy G."""
        means, public = self.matrices(x, y, side), self.regulariser(x, y)
        return means[0] + public[0], means[1] + public[1]

    def lower_gradient(self, x: Array, y: Array, side: int) -> Array:
        """Return ∇_y G, (q,)."""
        public = self.problem.regulariser(x[None], y[None], y[None]).grad_y[0]
        return np.asarray(self.terms(x, y, side, "lower_grad_y") + public)


def norm(value: Array) -> float:
    """Return the l2 norm of a vector or the spectral norm of a matrix.

    Args:
        value: vector (n,) or matrix (n, k).

    Example:
        >>> norm(np.array([3.0, 4.0])), norm(np.diag([1.0, 2.0]))
        (5.0, 2.0)
    """
    return float(np.linalg.norm(value, 2))


def minimiser(pair: NeighbourPair, x: Array, side: int) -> Array:
    """Compute argmin_y G(x, y), (q,).

    Args:
        pair: pair of neighbouring data sets.
        x: upper point (p,).
        side: data set of the pair, 0 or 1.
    """
    return _newton(
        lambda y: pair.lower_gradient(x, y, side), lambda y: pair.second(x, y, side)[0], np.zeros(pair.problem.q)
    )


def penalised(pair: NeighbourPair, lam: float, side: int) -> Array:
    """Compute argmin_y G + F/λ, (q,), at the first x, with the Hessian of F by differences.

    Args:
        pair: pair of neighbouring data sets.
        lam: λ.
        side: data set of the pair, 0 or 1.
    """
    x = pair.x

    def gradient(y: Array) -> Array:
        return pair.lower_gradient(x, y, side) + pair.terms(x, y, side, "upper_grad_y") / lam

    def hessian(y: Array) -> Array:
        rows = [
            (pair.terms(x, y + e, side, "upper_grad_y") - pair.terms(x, y - e, side, "upper_grad_y")) / (2.0 * _STEP)
            for e in _STEP * np.eye(len(y))
        ]
        return pair.second(x, y, side)[0] + np.array(rows) / lam

    return _newton(gradient, hessian, np.zeros(pair.problem.q))


def estimate(pair: NeighbourPair, x: Array, y: Array, side: int) -> Array:
    """Compute ∇_x F − G_xy G_yy⁻¹ ∇_y F at y.

    Args:
        pair: pair of neighbouring data sets.
        x: upper point (p,).
        y: lower point (q,).
        side: data set of the pair, 0 or 1.

    Returns:
        Hypergradient (p,).
    """
    hessian, jacobian = pair.second(x, y, side)
    solved = np.linalg.solve(hessian, pair.terms(x, y, side, "upper_grad_y"))
    return np.asarray(pair.terms(x, y, side, "upper_grad_x") - jacobian @ solved)


def implicit(pair: NeighbourPair, clips: Clips, side: int) -> Array:
    """Compute a − J H⁻¹ b, (p,), at the first (x, y), with every record's contribution clipped.

    Args:
        pair: pair of neighbouring data sets.
        clips: clipping norms of the four terms.
        side: data set of the pair, 0 or 1.
    """
    x, y = pair.x, pair.y
    a = pair.terms(x, y, side, "upper_grad_x", Clip("l2", x=clips.a))
    b = pair.terms(x, y, side, "upper_grad_y", Clip("l2", z=clips.b))
    hessian, jacobian = pair.matrices(x, y, side, Clip("l2", x=clips.j, z=clips.h))
    public = pair.regulariser(x, y)
    return np.asarray(a - (jacobian + public[1]) @ np.linalg.solve(hessian + public[0], b))


def score(pair: NeighbourPair, x: Array, side: int) -> float:
    """Compute Φ(x) = F(x, y_Z(x)).

    Args:
        pair: pair of neighbouring data sets.
        x: upper point (p,).
        side: data set of the pair, 0 or 1.
    """
    validation = pair.sides[side][1]
    n = len(validation[0])
    y = minimiser(pair, x, side)
    return float(pair.problem.losses(x[None], y[None], validation, np.full(n, 1.0 / n))[1][0])


def _prepared(problem: Problem, features: Array, labels: Array, split: Split) -> Any:
    """Prepare records for the oracle. If the problem depends on their agents, partition them evenly in order."""
    records = problem.prepare(features, labels, "l2")
    if split == "validation" or not hasattr(problem, "place_records"):
        return records
    agents = int(getattr(problem, "agents", 1))
    shards = [take(records, part) for part in np.array_split(np.arange(len(labels)), agents)]
    placed = [problem.place_records(shard, agent) for agent, shard in enumerate(shards) if len(shard[0])]
    return type(placed[0])(*(np.concatenate(column) for column in zip(*placed, strict=True)))


def _newton(gradient: Callable[[Array], Array], hessian: Callable[[Array], Array], start: Array) -> Array:
    """Minimise a strongly convex function by Newton steps, halved until the gradient norm decreases."""
    y, current = start, gradient(start)
    tolerance = _TOLERANCE * max(norm(current), 1.0)
    for _ in range(_NEWTON_STEPS):
        if norm(current) <= tolerance:
            break
        step = np.linalg.solve(hessian(y), current)
        for halving in range(_HALVINGS):
            next_y = y - 0.5**halving * step
            next_gradient = gradient(next_y)
            if norm(next_gradient) < norm(current):
                break
        else:
            break
        y, current = next_y, next_gradient
    return y


# Changes below this are float64 rounding errors of 0.
_ROUNDING = 1e-9
# Number of distinct records in each split besides the replaced one. All others are copies of these.
_OTHERS = 2


class SearchResult(NamedTuple):
    """A change of a release, and its bound.

    Example:
        >>> SearchResult(change=0.5, bound=2.0).ratio
        0.25
    """

    change: float
    bound: float

    @property
    def ratio(self) -> float:
        """The change over its bound. 0 if both are 0, infinite if only the bound is 0."""
        if self.change <= _ROUNDING:
            return 0.0
        return self.change / self.bound if self.bound > 0.0 else math.inf


@dataclass(frozen=True)
class SearchSpace:
    """Public domain of a search: the family, its records, the box of x, and the numbers of records.

    Args:
        family: family with the constants that the search tries to refute.
        n_features: number of features of a record.
        radius: bound on ‖a‖₂.
        low: lower bound (p,) of x.
        high: upper bound (p,) of x.
        classes: labels; empty if labels are numbers in [−label_bound, label_bound].
        label_bound: bound on numeric labels.
        n_train: number of train records.
        n_validation: number of validation records.
        lam: λ of g + f/λ.
    """

    family: Family
    n_features: int
    radius: float
    low: Array
    high: Array
    classes: tuple[float, ...] = ()
    label_bound: float = 1.0
    n_train: int = 3
    n_validation: int = 3
    lam: float = 1.0

    def constants(self, pair: NeighbourPair, record_mass: float = 1.0) -> ProblemConstants:
        """Return the family's constants at the pair's x."""
        return self.family.constants(pair.x, pair.x, record_mass)

    @property
    def size(self) -> int:
        """Number of parameters of a pair of neighbouring data sets."""
        problem, record = self.family.problem, self.n_features + 1
        return 2 * problem.p + 2 * problem.q + (2 + 2 * _OTHERS) * record

    def pair(self, parameters: Array, replaced: Split) -> NeighbourPair:
        """Build two neighbouring data sets from parameters.

        Args:
            parameters: arbitrary numbers (size,), projected on the domain.
            replaced: split of the replaced record.
        """
        problem, width = self.family.problem, self.n_features + 1
        p, q = problem.p, problem.q
        cuts = np.cumsum([p, p, q, q, 2 * width, _OTHERS * width])
        x, x2, y, y2, pair, train, validation = np.split(parameters, cuts)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        x, x2 = (middle + half * np.clip(v, -1.0, 1.0) for v in (x, x2))
        c = self.family.constants(x, x)
        centre = self.family.centre(x)
        y, y2 = (centre + c.radius * v / max(1.0, norm(v)) for v in (y, y2))
        records = [self._records(part.reshape(-1, width)) for part in (pair, train, validation)]
        return NeighbourPair.of(problem, (x, x2), (centre, y, y2), records, (self.n_train, self.n_validation), replaced)

    def _records(self, parameters: Array) -> tuple[Array, Array]:
        a, b = parameters[:, :-1], np.clip(parameters[:, -1], -1.0, 1.0)
        a = self.radius * a / np.maximum(1.0, np.linalg.norm(a, axis=1))[:, None]
        if not self.classes:
            return a, self.label_bound * b
        index = np.minimum((0.5 * (b + 1.0) * len(self.classes)).astype(np.int64), len(self.classes) - 1)
        return a, np.array(self.classes, dtype=np.float64)[index]

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw the parameters of a random instance.

        All records are close to one axis, and the replaced record can oppose them.
        """
        problem, d = self.family.problem, self.n_features
        axis = rng.normal(size=d)
        axis /= norm(axis)
        noise = rng.choice([0.0, 0.1, 1.0])
        rows = np.outer(rng.choice([-1.0, 0.0, 1.0], size=2 + 2 * _OTHERS), axis)
        rows[2:] = axis
        rows += noise * rng.normal(size=rows.shape)
        rows[:2] += rng.choice([0.0, 1.0]) * rng.normal(size=(2, d))
        # Short records allow a minimiser of large norm.
        rows[:2] *= rng.choice([0.3, 1.0, 3.0])
        rows[2:] *= 10.0 ** rng.uniform(-1.5, 0.5)
        if rng.random() < 0.7:
            # The replacement has equal, opposite or mirrored features.
            mirrored = rows[0] - rng.choice([0.0, 2.0]) * (rows[0] @ axis) * axis
            rows[1] = rng.choice([-1.0, 1.0]) * mirrored
        labels = np.ones(len(rows))
        labels[:2] = rng.choice([-1.0, 1.0], size=2)
        if rng.random() < 0.4:
            labels[2:] = rng.choice([1.0, 1.0, 0.0, -1.0], size=len(rows) - 2)
        points = rng.choice([-1.0, 0.0, 1.0], size=2 * problem.p) + 0.5 * rng.normal(size=2 * problem.p)
        states = rng.normal(size=2 * problem.q)
        return np.concatenate([points, states, np.column_stack([rows, labels]).ravel()])


Change: TypeAlias = Callable[[SearchSpace, NeighbourPair], float]
Bound: TypeAlias = Callable[[SearchSpace, NeighbourPair], Mapping[Split, float]]


def _sensitivity(f: Callable[[SearchSpace, NeighbourPair, int], Array]) -> Change:
    """Return the change ‖f(Z) − f(Z')‖ as a function of the pair."""
    return lambda space, pair: norm(f(space, pair, 0) - f(space, pair, 1))


def _score_oscillation(space: SearchSpace, pair: NeighbourPair) -> float:
    """Compute |q(x) − q(x')| for q = Φ_Z − Φ_Z'."""
    first, second = (score(pair, x, 0) - score(pair, x, 1) for x in (pair.x, pair.x2))
    return abs(first - second)


def _minimiser_bound(space: SearchSpace, pair: NeighbourPair) -> Mapping[Split, float]:
    return minimiser_sensitivity(space.constants(pair), space.n_train, space.n_validation, 0.0)


def _penalised_bound(space: SearchSpace, pair: NeighbourPair) -> Mapping[Split, float]:
    c = space.constants(pair, 1.0 + 1.0 / space.lam)
    return minimiser_sensitivity(c, space.n_train, space.n_validation, 0.0, space.lam)


def _hypergradient_bound(space: SearchSpace, pair: NeighbourPair) -> Mapping[Split, float]:
    c = space.constants(pair)
    return hypergradient_sensitivity(c, space.n_train, space.n_validation, space.family.self_concordance)


def _score_bound(space: SearchSpace, pair: NeighbourPair) -> Mapping[Split, float]:
    family, box = space.family, (space.low, space.high)
    c = family.constants(*box)
    counts = space.n_train, space.n_validation
    return score_oscillation(c, *counts, box_width(*box), family.spread(*box), 0.0, family.loss_range(*box))


def _clips(space: SearchSpace, pair: NeighbourPair) -> Clips:
    """Return clips that change no record: the constants, and half the distance of two records for the Jacobian."""
    c = space.constants(pair)
    return Clips(c.l_fx, c.l_fy, 0.5 * c.d_hxy, c.d_hyy)


def _implicit_bound(space: SearchSpace, pair: NeighbourPair) -> Mapping[Split, float]:
    clips = _clips(space, pair)
    hessian, jacobian = pair.regulariser(pair.x, pair.y)
    floor, largest = float(np.linalg.eigvalsh(hessian)[0]), norm(jacobian) + clips.j
    return implicit_sensitivity(clips, floor, largest, space.n_train, space.n_validation)


class Target(NamedTuple):
    """The change of a release under one replaced record, and its bound."""

    change: Change
    bound: Bound


TARGETS: Mapping[str, Target] = {
    "minimiser": Target(_sensitivity(lambda a, w, i: minimiser(w, w.x, i)), _minimiser_bound),
    "pulled": Target(_sensitivity(lambda a, w, i: penalised(w, a.lam, i)), _penalised_bound),
    "hypergradient": Target(
        _sensitivity(lambda a, w, i: estimate(w, w.x, minimiser(w, w.x, i), i)), _hypergradient_bound
    ),
    "score": Target(_score_oscillation, _score_bound),
    "implicit": Target(_sensitivity(lambda a, w, i: implicit(w, _clips(a, w), i)), _implicit_bound),
}


def search(
    space: SearchSpace, target: str, replaced: Split, seed: int, tries: int = 200, bound: Bound | None = None
) -> SearchResult:
    """Search for neighbouring data sets with the largest change of a release relative to its sensitivity.

    Args:
        space: public domain of the search.
        target: name in `TARGETS`.
        replaced: split of the replaced record.
        seed: seed of the search.
        tries: number of pairs of data sets.
        bound: bound to test instead of the target's own.

    Returns:
        The result with the largest ratio. A ratio above 1 refutes the bound. A smaller one proves nothing.

    Raises:
        InputError: there is no such target.

    Example:
        >>> from decentral_dp.constants import family_of
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> family = family_of(MeanEstimation(2), radius=1.0)
        >>> space = SearchSpace(family, n_features=2, radius=1.0, low=-np.ones(2), high=np.ones(2))
        >>> 0.0 < search(space, "minimiser", "train", seed=0, tries=20).ratio <= 1.0
        True
    """
    if target not in TARGETS:
        raise InputError(f"target: unknown sensitivity (got {target!r}, expected one of {', '.join(TARGETS)}).")
    change, declared_bound = TARGETS[target]

    def evaluate(parameters: Array) -> SearchResult:
        pair = space.pair(parameters, replaced)
        return SearchResult(change(space, pair), (bound or declared_bound)(space, pair)[replaced])

    return climb(evaluate, space, [seed, list(TARGETS).index(target), SPLITS.index(replaced)], tries)


def climb(evaluate: Callable[[Array], SearchResult], space: SearchSpace, key: Any, tries: int) -> SearchResult:
    """Search at random: a third of the tries evaluate random instances, the others changes of the best one.

    Args:
        evaluate: function of the parameters of a pair → result.
        space: space of the parameters.
        key: key of the random instances.
        tries: number of instances.

    Returns:
        The result with the largest ratio.
    """
    rng = np.random.default_rng(key)
    best_parameters = space.draw(rng)
    best = evaluate(best_parameters)
    for k in range(1, tries):
        parameters = space.draw(rng) if 3 * k < tries else _perturb(best_parameters, rng)
        result = evaluate(parameters)
        if result.ratio > best.ratio:
            best, best_parameters = result, parameters
    return best


def _perturb(parameters: Array, rng: np.random.Generator) -> Array:
    """Add noise of a random size to a random subset of the parameters."""
    selected = rng.random(parameters.size) < rng.choice([0.1, 0.3, 1.0])
    return np.where(selected, parameters + rng.choice([0.01, 0.1, 0.5]) * rng.normal(size=parameters.size), parameters)
