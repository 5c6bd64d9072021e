"""An adversary against constants and sensitivities: it looks for public records that break them.

A found ratio above 1 refutes a bound. None found proves nothing: what is declared is then merely unrefuted. Only the
public domain of records is searched, never anyone's data, and everything is computed through the problem's own oracles,
without the formulas that led to the bounds.

Random worlds come first, among them those that are worst in the proofs: all records pull one way, the replaced one
the other. Then come small random changes of the best, kept where they help. Deterministic by the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.constants.boxes import box_width
from decentral_dp.constants.families import Family
from decentral_dp.constants.neighbour_pairs import (
    NeighbourPair,
    estimate,
    implicit,
    minimiser,
    norm,
    penalised,
    score,
)
from decentral_dp.constants.problem_constants import Clips, ProblemConstants
from decentral_dp.constants.record_sensitivity import (
    hypergradient_sensitivity,
    implicit_sensitivity,
    minimiser_sensitivity,
    score_oscillation,
)
from decentral_dp.errors import InputError

# What float64 leaves of a change that is 0.
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
    """What is public: the family, its records' domain, the box of x, and how many records there are.

    Args:
        family: with its constants, which the search tries to refute.
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
        """Draw parameters of a random world.

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
    """What one replaced record changes, and what bounds it."""

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
        seed: of the random worlds; the same seed finds the same pair.
        tries: worlds and changes, default 200.
        bound: in place of the target's own.

    Returns:
        The largest change found and its bound. A ratio above 1 refutes the bound; none found proves nothing.

    Raises:
        InputError: there is no such target.

    Example:
        >>> from decentral_dp.constants.families import family_of
        >>> from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation
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
    """Try pairs of neighbours: a third of the tries on random worlds, the rest near the best so far.

    Args:
        tried: parameters of a pair → the change found, and its bound.
        space: which parameters there are.
        key: of the random worlds.
        tries: their number.

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
