"""Records that are vectors without labels, and what problems over them share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.linear_terms import check_n_features, checked_features, feature_norms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.penalties import check_ridge
from decentral_dp.problems.protocol import Problem


class MeanRecords(NamedTuple):
    """features: (N, d). l1, l2: (N,) their norms."""

    features: Array
    l1: Array
    l2: Array


@dataclass(frozen=True)
class MeanProblem(Problem, Protocol):
    """A problem over vectors without labels, p = q, in which no second derivative of l reads a record.

    Args:
        n_features: columns of the records.
        ridge: curvature of the lower level; default 1.
    """

    n_features: int
    ridge: float = 1.0

    def __post_init__(self) -> None:
        check_n_features(self.n_features)
        check_ridge(self.ridge)

    @property
    def p(self) -> int:
        return self.n_features

    @property
    def q(self) -> int:
        return self.n_features

    def prepare(self, features: Array, labels: Array, norm: Norm) -> MeanRecords:
        """Features and both norms; the clip of a run decides which norm is read. Raises InputError."""
        rows = checked_features(features, labels, self.n_features, intercept=False)
        return MeanRecords(rows, *feature_norms(rows))

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        return {}
