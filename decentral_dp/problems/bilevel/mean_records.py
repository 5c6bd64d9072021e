"""Records that are vectors without labels, and methods of problems over them that no objective changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.linear_terms import checked_features, feature_norms
from decentral_dp.privacy.clipping import Clip


class MeanRecords(NamedTuple):
    """features: (N, d). l1, l2: (N,) their norms."""

    features: Array
    l1: Array
    l2: Array


class Sized(Protocol):
    """A problem over vectors."""

    @property
    def n_features(self) -> int: ...


def prepare_records(problem: Sized, features: Array, labels: Array, norm: Norm) -> MeanRecords:
    """`prepare`: features and both norms; the clip of a run decides which norm is read. Raises InputError."""
    rows = checked_features(features, labels, problem.n_features, intercept=False)
    return MeanRecords(rows, *feature_norms(rows))


def no_matrices(
    problem: object,
    x: Array,
    y: Array,
    matrix: Array | None,
    train: MeanRecords,
    clip: Clip,
    wanted: Collection[str],
) -> dict[str, Array]:
    """`matrices` where no second derivative of l reads a record."""
    return {}


def nothing_classified(problem: object, x: Array, y: Array, records: object) -> None:
    """`accuracy` where nothing is classified."""
    return None
