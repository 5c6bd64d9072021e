"""An adversary against constants and sensitivities: it looks for public records that break them.

A found ratio above 1 refutes a bound. None found proves nothing: what is declared is then merely unrefuted. Only the
public domain of records is searched, never anyone's data, and everything is computed through the problem's own oracles,
without the formulas that led to the bounds.

Random instances come first, among them those that are worst in the proofs: all records pull one way, the replaced one
the other. Then come small random changes of the best, kept where they help. Deterministic by the seed.

Two neighbouring small data sets are evaluated unclipped: everything that releases are made of.
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
    """Two neighbouring datasets, and points at which to compare them.

    Args:
        problem: the bilevel problem.
        x: (p,) first point.
        x2: (p,) second point.
        centre: (q,) centre of the ball of minimisers.
        y: (q,) first point in the ball.
        y2: (q,) second point in the ball.
        sides: (train, validation) records of each of the two neighbours.
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
        role: Split,
    ) -> NeighbourPair:
        """Make two neighbours from records.

        Args:
            problem: the bilevel problem.
            points: x and x2, (p,) each.
            states: centre, y and y2, (q,) each.
            records: the replaced record and its replacement, other train records, other validation records; (features,
                labels) each.
            counts: numbers of train and validation records; the other records are repeated up to these numbers.
            role: the kind of the replaced record.
        """
        pair, *others = records
        sides = []
        for which in range(2):
            built = []
            for split, n, (a, b) in zip(SPLITS, counts, others, strict=True):
                index = np.arange(n) % len(a)
                a, b = a[index], b[index]
                if split == role:
                    a[0], b[0] = pair[0][which], pair[1][which]
                built.append(_prepared(problem, a, b, split))
            sides.append((built[0], built[1]))
        return cls(problem, *points, *states, (sides[0], sides[1]))

    def terms(self, x: Array, y: Array, side: int, wanted: str, clip: Clip = _UNCLIPPED) -> Array:
        """Return one mean term over the records of one of the two data sets.

        Args:
            x: (p,).
            y: (q,).
            side: 0 or 1, which data set.
            wanted: the term.
            clip: clipping norm of each record's contribution; by default none.

        Returns:
            (p,) or (q,); zero where it reads no record.
        """
        out: Terms = self.problem.terms(x, y, np.zeros_like(y), *self.sides[side], clip, (wanted,))
        value = getattr(out, wanted)
        return np.zeros(self.problem.p if wanted.endswith("x") else self.problem.q) if value is None else value

    def matrices(self, x: Array, y: Array, side: int, clip: Clip = _UNCLIPPED) -> tuple[Array, Array]:
        """Return the means over train records of ∇²_yy l and ∇²_xy l.

        Args:
            x: (p,).
            y: (q,).
            side: 0 or 1, which data set.
            clip: clipping norm of each record's contribution; by default none.

        Returns:
            (q, q) and (p, q); zero where they read no record.
        """
        names = ("lower_hessian", "lower_jacobian")
        out = self.problem.matrices(x, y, None, self.sides[side][0], clip, names)
        p, q = self.problem.p, self.problem.q
        return out.get(names[0], np.zeros((q, q))), out.get(names[1], np.zeros((p, q)))

    def regulariser(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ∇²_yy R and ∇²_xy R."""
        whole = regulariser_matrices(self.problem, x[None], y[None], None)
        return whole.hessian[0], whole.jacobian[0]

    def second(self, x: Array, y: Array, side: int) -> tuple[Array, Array]:
        """Return ∇²_yy G and ∇²_xy G."""
        of_records, common = self.matrices(x, y, side), self.regulariser(x, y)
        return of_records[0] + common[0], of_records[1] + common[1]

    def lower_gradient(self, x: Array, y: Array, side: int) -> Array:
        """Return ∇_y G, (q,)."""
        common = self.problem.regulariser(x[None], y[None], y[None]).grad_y[0]
        return np.asarray(self.terms(x, y, side, "lower_grad_y") + common)


def norm(value: Array) -> float:
    """Return the l2 norm of a vector, the spectral norm of a matrix.

    Args:
        value: (n,) or (n, k).

    Example:
        >>> norm(np.array([3.0, 4.0])), norm(np.diag([1.0, 2.0]))
        (5.0, 2.0)
    """
    return float(np.linalg.norm(value, 2))


def minimiser(pair: NeighbourPair, x: Array, side: int) -> Array:
    """Compute argmin_y G(x, y), (q,).

    Args:
        pair: pair of neighbouring data sets.
        x: (p,).
        side: data set of the pair, 0 or 1.
    """
    return _newton(
        lambda y: pair.lower_gradient(x, y, side), lambda y: pair.second(x, y, side)[0], np.zeros(pair.problem.q)
    )


def penalised(pair: NeighbourPair, lam: float, side: int) -> Array:
    """Compute argmin_y G + F/λ, (q,), at the first x; the Hessian of F by differences.

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
        pair: the two data sets and their problem.
        x: (p,).
        y: (q,).
        side: 0 or 1, which data set.

    Returns:
        (p,).
    """
    hessian, jacobian = pair.second(x, y, side)
    solved = np.linalg.solve(hessian, pair.terms(x, y, side, "upper_grad_y"))
    return np.asarray(pair.terms(x, y, side, "upper_grad_x") - jacobian @ solved)


def implicit(pair: NeighbourPair, clips: Clips, side: int) -> Array:
    """Compute a − J H⁻¹ b, (p,), at the first (x, y), every record's part clipped.

    Args:
        pair: pair of neighbouring data sets.
        clips: clipping norms of the parts.
        side: data set of the pair, 0 or 1.
    """
    x, y = pair.x, pair.y
    a = pair.terms(x, y, side, "upper_grad_x", Clip("l2", x=clips.a))
    b = pair.terms(x, y, side, "upper_grad_y", Clip("l2", z=clips.b))
    hessian, jacobian = pair.matrices(x, y, side, Clip("l2", x=clips.j, z=clips.h))
    common = pair.regulariser(x, y)
    return np.asarray(a - (jacobian + common[1]) @ np.linalg.solve(hessian + common[0], b))


def score(pair: NeighbourPair, x: Array, side: int) -> float:
    """Compute Φ(x) = F(x, y_Z(x)).

    Args:
        pair: pair of neighbouring data sets.
        x: (p,).
        side: data set of the pair, 0 or 1.
    """
    validation = pair.sides[side][1]
    n = len(validation[0])
    y = minimiser(pair, x, side)
    return float(pair.problem.losses(x[None], y[None], validation, np.full(n, 1.0 / n))[1][0])


def _prepared(problem: Problem, features: Array, labels: Array, split: Split) -> Any:
    """Records as the oracle reads them; where it matters who holds them, agents hold about as many each, in order."""
    records = problem.prepare(features, labels, "l2")
    if split == "validation" or not hasattr(problem, "place_records"):
        return records
    agents = int(getattr(problem, "agents", 1))
    shards = [take(records, part) for part in np.array_split(np.arange(len(labels)), agents)]
    placed = [problem.place_records(shard, agent) for agent, shard in enumerate(shards) if len(shard[0])]
    return type(placed[0])(*(np.concatenate(column) for column in zip(*placed, strict=True)))


def _newton(gradient: Callable[[Array], Array], hessian: Callable[[Array], Array], start: Array) -> Array:
    """Find the zero of the gradient of a strongly convex function; steps are halved until the gradient shrinks."""
    y, slope = start, gradient(start)
    enough = _TOLERANCE * max(norm(slope), 1.0)
    for _ in range(_NEWTON_STEPS):
        if norm(slope) <= enough:
            break
        step = np.linalg.solve(hessian(y), slope)
        for halving in range(_HALVINGS):
            there = y - 0.5**halving * step
            sensitivity = gradient(there)
            if norm(sensitivity) < norm(slope):
                break
        else:
            break
        y, slope = there, sensitivity
    return y


# Return the float64 error of a change that is 0.
_NOTHING = 1e-9
# Distinct records besides the replaced one; every other is a copy of one of them.
_OTHERS = 2


class Pair(NamedTuple):
    """The largest change that was found, relative to its bound, and that bound.

    Example:
        >>> Pair(found=0.5, bound=2.0).ratio
        0.25
    """

    found: float
    bound: float

    @property
    def ratio(self) -> float:
        """found/bound; 0 where both vanish, infinite where only the bound does."""
        if self.found <= _NOTHING:
            return 0.0
        return self.found / self.bound if self.bound > 0.0 else math.inf


@dataclass(frozen=True)
class SearchSpace:
    """Public facts: the family, the domain of its records, the box of x, and the number of records.

    Args:
        family: family with the constants that the search tries to refute.
        n_features: d of a record.
        radius: bound on ‖a‖₂.
        low: (p,) of x.
        high: (p,) of x.
        classes: the labels, or none where labels are numbers in [−label_bound, label_bound].
        label_bound: default 1.
        n_train: train records, default 3.
        n_validation: validation records, default 3.
        lam: λ of g + f/λ, default 1.
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
        """The number of parameters of a pair of neighbours."""
        problem, record = self.family.problem, self.n_features + 1
        return 2 * problem.p + 2 * problem.q + (2 + 2 * _OTHERS) * record

    def pair(self, parameters: Array, role: Split) -> NeighbourPair:
        """Make two neighbours from parameters.

        Args:
            parameters: (size,) any numbers; what is too large is brought back to the edge of its domain.
            role: the kind of the replaced record.
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
        return NeighbourPair.of(problem, (x, x2), (centre, y, y2), records, (self.n_train, self.n_validation), role)

    def _records(self, parameters: Array) -> tuple[Array, Array]:
        a, b = parameters[:, :-1], np.clip(parameters[:, -1], -1.0, 1.0)
        a = self.radius * a / np.maximum(1.0, np.linalg.norm(a, axis=1))[:, None]
        if not self.classes:
            return a, self.label_bound * b
        index = np.minimum((0.5 * (b + 1.0) * len(self.classes)).astype(np.int64), len(self.classes) - 1)
        return a, np.array(self.classes, dtype=np.float64)[index]

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw parameters of a random instance.

        All records lie along one axis, more or less, and the replaced one against it.
        """
        problem, d = self.family.problem, self.n_features
        axis = rng.normal(size=d)
        axis /= norm(axis)
        noise = rng.choice([0.0, 0.1, 1.0])
        rows = np.outer(rng.choice([-1.0, 0.0, 1.0], size=2 + 2 * _OTHERS), axis)
        rows[2:] = axis
        rows += noise * rng.normal(size=rows.shape)
        rows[:2] += rng.choice([0.0, 1.0]) * rng.normal(size=(2, d))
        # Short records let a minimiser far out, long ones hold it back.
        rows[:2] *= rng.choice([0.3, 1.0, 3.0])
        rows[2:] *= 10.0 ** rng.uniform(-1.5, 0.5)
        if rng.random() < 0.7:
            # The replaced record against itself with another label, its opposite, or a mirror image.
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
    """‖f(Z) − f(Z')‖."""
    return lambda space, pair: norm(f(space, pair, 0) - f(space, pair, 1))


def _score_varies(space: SearchSpace, pair: NeighbourPair) -> float:
    """|q(x) − q(x')| for q = Φ_Z − Φ_Z'."""
    here, there = (score(pair, x, 0) - score(pair, x, 1) for x in (pair.x, pair.x2))
    return abs(here - there)


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
    """No less than the constants: half of what two records differ by where a Hessian is not known to be positive."""
    c = space.constants(pair)
    return Clips(c.l_fx, c.l_fy, 0.5 * c.d_hxy, c.d_hyy)


def _implicit_bound(space: SearchSpace, pair: NeighbourPair) -> Mapping[Split, float]:
    clips = _clips(space, pair)
    hessian, jacobian = pair.regulariser(pair.x, pair.y)
    floor, whole = float(np.linalg.eigvalsh(hessian)[0]), norm(jacobian) + clips.j
    return implicit_sensitivity(clips, floor, whole, space.n_train, space.n_validation)


class Target(NamedTuple):
    """The change by one replaced record, and its bound."""

    change: Change
    bound: Bound


TARGETS: Mapping[str, Target] = {
    "minimiser": Target(_sensitivity(lambda a, w, i: minimiser(w, w.x, i)), _minimiser_bound),
    "pulled": Target(_sensitivity(lambda a, w, i: penalised(w, a.lam, i)), _penalised_bound),
    "hypergradient": Target(
        _sensitivity(lambda a, w, i: estimate(w, w.x, minimiser(w, w.x, i), i)), _hypergradient_bound
    ),
    "score": Target(_score_varies, _score_bound),
    "implicit": Target(_sensitivity(lambda a, w, i: implicit(w, _clips(a, w), i)), _implicit_bound),
}


def search(
    space: SearchSpace, target: str, role: Split, seed: int, tries: int = 200, bound: Bound | None = None
) -> Pair:
    """Search for the neighbours that come nearest to one sensitivity.

    Args:
        space: the public domain.
        target: a name in `TARGETS`.
        role: the kind of the replaced record.
        seed: seed of the random instances; the same seed finds the same pair.
        tries: data sets and changes, default 200.
        bound: replaces the target's bound.

    Returns:
        The largest change found and its bound. A ratio above 1 refutes the bound; none found proves nothing.

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
        raise InputError(f"refute: there is no sensitivity {target!r}; wanted is one of {', '.join(TARGETS)}.")
    change, own = TARGETS[target]

    def tried(parameters: Array) -> Pair:
        pair = space.pair(parameters, role)
        return Pair(change(space, pair), (bound or own)(space, pair)[role])

    return climb(tried, space, [seed, list(TARGETS).index(target), SPLITS.index(role)], tries)


def climb(tried: Callable[[Array], Pair], space: SearchSpace, key: Any, tries: int) -> Pair:
    """Try pairs of neighbours: a third of the tries on random instances, the rest near the best so far.

    Args:
        tried: parameters of a pair → the change found, and its bound.
        space: space of the parameters.
        key: key of the random instances.
        tries: number of instances.

    Returns:
        The pair of the largest ratio.
    """
    rng = np.random.default_rng(key)
    at = space.draw(rng)
    best = tried(at)
    for k in range(1, tries):
        parameters = space.draw(rng) if 3 * k < tries else _changed(at, rng)
        pair = tried(parameters)
        if pair.ratio > best.ratio:
            best, at = pair, parameters
    return best


def _changed(parameters: Array, rng: np.random.Generator) -> Array:
    """Some numbers moved, by little or by much."""
    chosen = rng.random(parameters.size) < rng.choice([0.1, 0.3, 1.0])
    return np.where(chosen, parameters + rng.choice([0.01, 0.1, 0.5]) * rng.normal(size=parameters.size), parameters)
