"""What all estimators share: checks of records that quote none, declared labels, seeds, and what a model cost."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import missing_cells, refuse_masked
from decentral_dp.errors import InputError
from decentral_dp.privacy.ledger import Ledger

# Seeds that a generator of scikit-learn is asked for.
_SEEDS = 2**31 - 1

# scikit-learn's contract wants values that are not finite refused, so that no such record can be replaced instead.
NOT_COVERED = (
    "Not covered is what fit says by refusing a value that is not finite or a label that is not one of the classes, "
    "and by warning of columns that are not scaled: it reads the records."
)


class PrivacyWarning(UserWarning):
    """Something was read off the records that no ε covers."""


class ScaleWarning(UserWarning):
    """Columns of features that are not of comparable sizes, so that few of them decide."""


class FitCost(NamedTuple):
    """What everything that was published cost.

    Args:
        ledger: the releases that were made.
        epsilon, delta: their price, of the agent that spent most.
        statement: that in words.
    """

    ledger: Ledger
    epsilon: float
    delta: float
    statement: str


# What a statement says where there is a seed.
SIMULATED = " The seed makes the noise reproducible, so this is a simulation."
# What the labels told where nobody declared it, as a statement of privacy says it.
NAMES = "the names of the classes, which were"


class Private:
    """What all estimators here do beside scikit-learn's own."""

    random_state: Any

    def _store_cost(self, cost: FitCost, read_off: str) -> None:
        """Keep what the model cost. read_off: what the labels told, which no ε covers; "" where nothing."""
        self.ledger_, self.epsilon_, self.delta_, statement = cost
        self.statement_ = f"{f'Apart from {read_off} read off y: ' if read_off else ''}{statement} {NOT_COVERED}"

    def _column(self, k: int) -> str:
        """What a warning calls a column of X."""
        names = getattr(self, "feature_names_in_", None)
        return f"column {k}" if names is None else repr(str(names[k]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc] # the class after this one is scikit-learn's
        # Of few records noise leaves little.
        (tags.classifier_tags or tags.regressor_tags).poor_score = True
        tags.non_deterministic = self.random_state is None
        return tags


def validate_records(estimator: Any, X: ArrayLike, y: ArrayLike, numbers: bool = False) -> tuple[Array, NDArray[Any]]:
    """Return features (n, d) and labels (n,) as scikit-learn checks them, with refusals that quote no record.

    Args:
        estimator: that is fitted.
        X: (n, d) numbers.
        y: (n,) labels.
        numbers: whether labels have to be numbers; default no.

    Raises:
        InputError: a column is not numeric, a value is missing, or an array is masked.
        TypeError, ValueError: as of scikit-learn, for other shapes and types.
    """
    refuse_masked(X, "X")
    _refuse_labels(y, numbers)
    with _quoting_no_record():
        features, labels = validate_data(estimator, X, y, dtype=np.float64, order="C", y_numeric=numbers)
    return features, labels


def validate_features(estimator: Any, X: ArrayLike) -> Array:
    """Return the features (n, d) to predict, as `validate_records` does."""
    refuse_masked(X, "X")
    with _quoting_no_record():
        features: Array = validate_data(estimator, X, dtype=np.float64, order="C", reset=False)
    return features


@contextmanager
def _quoting_no_record() -> Iterator[None]:
    """Keep the first line of an error of scikit-learn. The others may print rows of X."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind, text = TypeError if isinstance(error, TypeError) else ValueError, str(error)
    else:
        return
    if text.startswith("The feature names"):
        raise kind(text) from None
    line = text.partition("\n")[0]
    if "could not convert" in line or "literal" in line:
        fix = "OneHotEncoder(categories=[[…]], sparse_output=False) with public categories"
        raise InputError(f"X holds text, expected numbers. Fix: encode words, for example by {fix}.") from None
    advice = ". Reshape your data to (records, features)" if "Reshape your data" in text else ""
    raise kind(f"{line.rstrip(':')}{advice}") from None


def _refuse_labels(y: Any, numbers: bool) -> None:
    """Refuse masked labels, gaps, and a mix of text and numbers. Raises InputError."""
    refuse_masked(y, "y")
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and labels.ndim == 1 and len(labels):
        missing = missing_cells(labels)
        if missing.any():
            raise InputError(f"y: row {int(np.argmax(missing)) + 1} holds no label (NaN). Fix: remove the record.")
        if len({isinstance(label, str) for label in labels.tolist()}) > 1:
            raise InputError("y mixes text and numbers, expected labels of one type. Fix: y.astype(str).")
    if numbers and labels.dtype.kind in "USO":
        try:
            labels.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("y holds text, expected numbers. Fix: use a classifier, or numbers.") from None


def encode_classes(
    declared: Sequence[Any] | None, labels: NDArray[Any], binary: bool = False
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Give the classes, and the place of every label among them.

    Args:
        declared: the labels that there may be; None reads them off the labels, with a `PrivacyWarning` at the call of
            `fit`.
        labels: (n,).
        binary: whether two classes are wanted, and no more; default no.

    Returns:
        (c,) classes, those that were read off sorted, and (n,) codes.

    Raises:
        InputError: too few different classes, or too many; or a label that is none of them.
    """
    classes = np.unique(labels) if declared is None else np.asarray(declared)
    if declared is None and len(classes) < 2:
        raise InputError("y has one class, expected two. Fix: declare them, as classes=(0, 1).")
    many = len(np.unique(classes)) if classes.ndim == 1 else 0
    if many < max(2, classes.size) or (binary and many > 2):
        wanted = "two" if binary else "two or more"
        raise InputError(f"classes: got {declared!r}, but {wanted} different labels are wanted.")
    match = labels[:, None] == classes[None]
    if not match.any(axis=1).all():
        raise InputError("y has a label that is not one of `classes`. Declare all of them, or mend the record.")
    if declared is None:
        warnings.warn(
            "The names of the classes were read off y, and no ε covers that. Declare them, as classes=(0, 1).",
            PrivacyWarning,
            stacklevel=3,
        )
    return classes, np.asarray(match.argmax(axis=1))


def refuse_others(estimator: str, others: Iterable[str]) -> None:
    """Raises TypeError for arguments of `fit` that no private estimator takes."""
    for name in others:
        why = ": ε is computed for records that count alike" if name == "sample_weight" else ""
        raise TypeError(f"{estimator}.fit takes no {name}{why}. Leave it out.")


def seed_of(random_state: Any) -> int | None:
    """The seed of the noise: None for a secret one. Raises InputError for what is no `random_state`.

    Example:
        >>> seed_of(None), seed_of(7), seed_of(np.random.default_rng(0)) >= 0
        (None, 7, True)
    """
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    if not isinstance(random_state, int | np.integer) or isinstance(random_state, bool) or random_state < 0:
        raise InputError(f"random_state: got {random_state!r}, but None or a whole number from 0 is wanted.")
    return int(random_state)
