"""Scenarios of one-level training from arrays of features, labels and agents, without a scenario file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import refuse_masked
from decentral_dp.errors import InputError, converting, warn_caller
from decentral_dp.formatting import agent_names

# Largest number of different whole numbers for which undeclared labels are classes.
_MOST_CLASSES = 20
# Smallest ring.
_RING = 3


class PrivacyWarning(UserWarning):
    """Warning about a value that is read from the records without privacy, so that ε does not cover it."""


class ScaleWarning(UserWarning):
    """Warning about features or labels outside their range, or about features with very different scales."""


# Content of a scenario, without the keys that the caller sets, and its data: features, labels, names of the features,
# and the agent of each record if it is declared.
ArrayScenario: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


def training_scenario(
    problem: Mapping[str, Any],
    ranges: tuple[Array, Array],
    features: Any,
    labels: NDArray[Any],
    names: Sequence[str],
    owner: NDArray[np.int64] | None,
    agents: Sequence[str] = (),
) -> ArrayScenario:
    """Return the scenario of D-SGD on arrays, still without a graph and without ε.

    Args:
        problem: keys of the [problem] table.
        ranges: low and high ends of the features, (d,) each.
        features: features of the records, (n, d).
        labels: labels of the records, (n,).
        names: names of the features.
        owner: agent of each record, (n,). None partitions the records evenly.
        agents: names of the agents. By default, agents have no names.

    Warns:
        ScaleWarning: most values of a feature, or of the labels, lie outside their range.
    """
    # Text and reversed ranges raise errors when the records are read.
    with suppress(TypeError, ValueError):
        _warn_of_clipping("data_range", np.asarray(features, dtype=np.float64), ranges, names)
        low, high = problem.get("label_range", (0, 0))
        if low < high:
            _warn_of_clipping("label_range", labels.astype(np.float64)[:, None], (low, high), ["y"])
    partition: dict[str, Any] = {"partition": "iid"} if owner is None else {}
    if agent_names(agents):
        partition = {"partition": {"kind": "column", "name": "agent", "agents": list(agents)}}
    scale = {name: [float(a), float(b)] for name, a, b in zip(names, *ranges, strict=True)}
    content = {
        "title": "Training on arrays",
        "problem": {**problem, "data": "X and y", "scale": scale, **partition},
        "algorithm": {"kind": "dp_dsgd"},
        "privacy": {"mechanism": "gaussian"},
    }
    data = {"features": features, "labels": labels, "feature_names": list(names)}
    return content, data | ({} if owner is None else {"agent": owner})


def _warn_of_clipping(key: str, values: Array, limits: Sequence[Any], names: Sequence[str]) -> None:
    """Warn of the column of values (n, d) that is clipped most. The clipped fraction is not printed: it would leak."""
    share = ((values < limits[0]) | (values > limits[1])).mean(axis=0)
    if share.max(initial=0.0) > 0.5:
        warn_caller(
            f"Most values of {names[int(share.argmax())]} lie outside {key} and are clipped. Fix: set {key}=(low, "
            "high) from their meaning.",
            ScaleWarning,
        )


def scenario_of_arrays(
    X: Any,
    y: Any = None,
    agents: Any = None,
    data_range: Any = (-1.0, 1.0),
    classes: Sequence[Any] | None = None,
    label_range: Sequence[float] | None = None,
) -> ArrayScenario:
    """Return the scenario of a classification or regression task on arrays.

    Args:
        X: features, (n, d), as an array, a DataFrame, or a list of these with one entry for each agent.
        y: labels, (n,), as an array, a list of arrays with one entry for each agent, or the name of a column of X.
        agents: agent of each record, (n,), as numbers, names or the name of a column of X, or the number of agents.
        data_range: public range (low, high) of the features. Each end is one number, or one number for each feature.
        classes: allowed labels.
        label_range: public range (low, high) of numeric labels.

    Returns:
        The scenario. If neither `classes` nor `label_range` is given, they are inferred from y, with a
        `PrivacyWarning`.

    Raises:
        InputError: an argument is invalid.
    """
    if y is None:
        raise InputError("y: missing (expected labels, or the name of a column of X). Fix: pass y.")
    X, y, owners = join_agents(X, y)
    columns = [name for name in (y, agents) if isinstance(name, str)]
    for name in columns:
        if name not in getattr(X, "columns", ()):
            raise InputError(f"X: no column {name!r}. Fix: pass a DataFrame with this column.")
    y, agents = (X[part].to_numpy() if isinstance(part, str) else part for part in (y, agents))
    features = X.drop(columns=columns) if columns else X
    refuse_masked(y, "y")
    labels, shape = np.asarray(y), np.shape(features)
    if len(shape) != 2 or labels.shape != shape[:1]:
        raise InputError(
            f"X, y: wrong shapes (got {shape} and {labels.shape}, expected (n, d) and (n,)). Fix: pass a row of X and "
            "a label for each record, or lists of these, one for each agent."
        )
    if owners is not None and agents is not None:
        raise InputError("agents: cannot be combined with one array for each agent. Fix: remove it.")
    count = int(agents) if isinstance(agents, int | np.integer) else None
    owner_names: tuple[str, ...] = ()
    if owners is None and count is None and agents is not None:
        owners, owner_names = number_owners(agents, len(labels))
    names = [str(name) for name in getattr(features, "columns", [f"x{k}" for k in range(shape[1])])]
    limits = label_range
    is_undeclared = classes is None and limits is None and labels.dtype.kind in "iuf"
    # Labels with fractions or many values are numbers, not classes.
    if is_undeclared and ((labels != np.floor(labels)).any() or len(np.unique(labels)) > _MOST_CLASSES):
        limits = infer_label_range(labels)
    if limits is not None:
        problem = {"kind": "regression", "classes": [], "label_range": check_label_range(limits)}
    else:
        with converting(TypeError, lambda _: "y: mixes text and numbers. Fix: pass y.astype(str)."):
            public, _ = encode_classes(classes, labels)
        problem = {"kind": "classification", "classes": public.tolist()}
    ranges = range_of_features(data_range, shape[1])
    content, data = training_scenario(problem, ranges, features, labels, names, owners, owner_names)
    m = count if owners is None else int(owners.max(initial=0)) + 1
    graph = {} if m is None else {"topology": {"kind": "ring" if m >= _RING else "complete", "agents": m}}
    return content | graph, data


def join_agents(X: Any, y: Any) -> tuple[Any, Any, NDArray[np.int64] | None]:
    """Join lists with one array for each agent: (n, d), (n,), and the agent of each record. Keep other values.

    Raises:
        InputError: the arrays have different shapes.
    """
    parts = isinstance(X, list | tuple) and len(X) > 0 and all(np.ndim(part) == 2 for part in X)
    if not parts and not (isinstance(X, np.ndarray) and X.ndim == 3):
        return X, y, None
    counts = [len(part) for part in X]
    problem = "y: wrong lengths (expected one array of labels for each agent, as long as its X). Fix: pass y=[y_0, …]."
    with converting(TypeError, lambda _: problem):
        if isinstance(y, str) or [len(part) for part in y] != counts:
            raise InputError(problem)
    for part in y:
        refuse_masked(part, "y")
    with converting(
        ValueError,
        lambda _: "X, y: shapes differ between agents. Fix: pass X_i of shape (n_i, d) and y_i of shape (n_i,).",
    ):
        labels = np.concatenate([np.asarray(part) for part in y])
        if not hasattr(X[0], "columns"):
            features = np.concatenate([np.asarray(part) for part in X])
        else:
            import pandas as pd

            features = pd.concat(list(X), ignore_index=True)
    return features, labels, np.repeat(np.arange(len(X)), counts)


def encode_classes(
    class_list: Sequence[Any] | None, labels: NDArray[Any], binary: bool = False
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the classes, and the class index of every label.

    Args:
        class_list: allowed labels. None infers them from the data, with a `PrivacyWarning`.
        labels: labels of the records, (n,).
        binary: whether there must be exactly two classes. The default is False.

    Returns:
        The classes, (c,), sorted if inferred from the labels, and the index of each label, (n,).

    Raises:
        InputError: the number of classes is invalid, or a label is undeclared.
    """
    classes = np.unique(labels) if class_list is None else np.asarray(class_list)
    many = len(np.unique(classes)) if classes.ndim == 1 else 0
    match = labels[:, None] == classes.reshape(1, -1)
    problem = ""
    if class_list is None and many < 2:
        problem = "y has only one class (expected two or more). Fix: declare all classes, as in classes=(0, 1)."
    elif many < max(2, classes.size) or (binary and many > 2):
        expected = "two" if binary else "two or more"
        problem = f"classes: wrong number of distinct labels (got {class_list!r}, expected {expected})."
    elif not match.any(axis=1).all():
        problem = "y has a label that is not one of `classes`. Fix: declare all labels, or correct the record."
    if problem:
        raise InputError(problem)
    if class_list is None:
        warn_caller(
            "The classes were inferred from y, which ε does not cover. Fix: declare them, as in classes=(0, 1).",
            PrivacyWarning,
        )
    return classes, np.asarray(match.argmax(axis=1))


def number_owners(owners: ArrayLike, n: int, agents: int | None = None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each record's agent, (n,), and the names of the agents.

    Args:
        owners: agent of each record, (n,), numbers or names.
        n: number of records.
        agents: number of agents, or None if it is not declared.

    Raises:
        InputError: a record has no agent, or the number of agents differs from `agents`.
    """
    refuse_masked(owners, "agents")
    column, problem = np.asarray(owners), ""
    try:
        names, numbers = np.unique(column, return_inverse=True)
        gaps = bool((names != names).any())
    except TypeError:
        gaps = True
    if column.shape != (n,):
        problem = f"agents: wrong shape (got {column.shape}, expected ({n},)). Fix: pass the agent of every record."
    elif gaps:
        problem = "agents: has missing values, or mixes names and numbers. Fix: pass the agent of every record."
    elif agents is not None and agents != len(names):
        problem = (
            f"agents: differs from the number of agents in the records (got {agents}, expected {len(names)}). "
            "Fix: remove the parameter."
        )
    if problem:
        raise InputError(problem)
    return numbers.astype(np.int64), tuple(map(str, names))


def range_of_features(data_range: Any, d: int) -> tuple[Array, Array]:
    """Return the low and high ends of every feature, (d,) each. Raises InputError."""
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)) for end in data_range)
    except (TypeError, ValueError):
        low = high = np.zeros(d)
    if not (np.isfinite(high - low) & (high > low)).all():
        raise InputError(
            f"data_range: invalid (expected public (low, high) with low < high, each a number or {d} "
            "numbers). Fix: pass for example data_range=(-1, 1)."
        )
    return low, high


def infer_label_range(labels: NDArray[Any]) -> tuple[float, float]:
    """Return the range of labels (n,), with a `PrivacyWarning`."""
    low, high = float(labels.min()), float(labels.max())
    warn_caller(
        "The label range was inferred from y, which ε does not cover. Fix: declare it, as in label_range=(0, 350).",
        PrivacyWarning,
    )
    return (low, high) if high > low else (low - 1.0, low + 1.0)


def check_label_range(limits: Any) -> list[float]:
    """Return the label range as [low, high]. Raises InputError unless it consists of two numbers."""
    problem = (
        f"label_range: invalid (got {limits!r}, expected public (low, high)). Fix: pass for example "
        "label_range=(0, 350)."
    )
    with converting((TypeError, ValueError), lambda _: problem):
        low, high = (float(end) for end in limits)
    return [low, high]
