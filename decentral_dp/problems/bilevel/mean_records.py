"""What problems with a lower variable for each column of the records share; records that are vectors without labels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.linear_terms import check_n_features, checked_features, feature_norms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.penalties import Ridge, check_ridge
from decentral_dp.problems.protocol import Problem


class MeanRecords(NamedTuple):
    """features: (N, d). l1, l2: (N,) their norms."""

    features: Array
    l1: Array
    l2: Array


class Optimum(NamedTuple):
    """x*: (p,), y*(x*): (q,), F(x*)."""

    x: Array
    y: Array
    value: float


@dataclass(frozen=True)
class VectorProblem(Problem, Protocol):
    """A problem with one lower variable for each column of the records, and one upper variable for each of these.

    Args:
        n_features: columns of the records, p = q.
        ridge: strength of the regulariser; default 1.

    Raises:
        InputError: for no columns, and a ridge that is not positive.
    """

    n_features: int
    ridge: Ridge = 1.0

    def __post_init__(self) -> None:
        check_n_features(self.n_features)
        check_ridge(self.ridge)

    @property
    def p(self) -> int:
        return self.n_features

    @property
    def q(self) -> int:
        return self.n_features


class MeanProblem(VectorProblem, Protocol):
    """A problem over vectors without labels, in which no second derivative of l reads a record."""

    def prepare(self, features: Array, labels: Array, norm: Norm) -> MeanRecords:
        """Features and both norms; the clip of a run decides which norm is read. Raises InputError."""
        rows = checked_features(features, labels, self.n_features, intercept=False)
        return MeanRecords(rows, *feature_norms(rows))

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        return {}
