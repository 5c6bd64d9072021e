"""Synthetic records of agents with known distributions, and data sets with derived labels.

The first three families are those of Chen & Wang (ICML 2024), Section 5.1 and Appendix A.2.4, with agents i = 1..m
(here i = agent + 1). The paper gives the label as aᵀω + 0.1ε with a vector ε. Here ε is a standard normal number, the
label is the sign, and one ω_true ~ N(0, I) is common to all agents.

`construct` derives other records from a data set by their labels:

    positive   these classes become class 1, all others class 0
    share      keeps all negative train records and ⌊share/(1 − share) · negatives⌋ of the positive ones, drawn at
               random: MNIST with 0.1 and the positive digits 5 to 9 has 30596 + 3399 records (imbalanced data of
               Zhang et al. 2025; MNIST-ST of Xu et al. 2025)
    keep       keeps this number of train records of each named class, the last ones in the file (with 100 for each of
               the classes 0 to 4: CIFAR10-ST of Xu et al. 2025)
    tail       keeps the fraction tail^(k/(K−1)) of the train records of the k-th of K classes, from 0, drawn at random
               and rounded down (the papers name heavy tails without a rule; this is the rule of Cui et al. 2019)

At most one of share, keep and tail is allowed. keep and tail count classes before `positive` merges them. Test records
are held out first and keep their classes. The public seed determines all random draws.

A construction reads the labels of all train records, and its selection is public, like a partition by label. The
guarantee of a run covers the selected records, whose number is public, with the given partition. For a replaced label
of one record the following holds:

- `positive` changes no other record.
- The split of every record is decided by its index beforehand.
- Random choices are the first indices of one public order. `keep` and `tail` change the choice of at most 2 other
  records, one of the old class and one of the new. `share` changes the choice of at most 1 + ⌈share/(1 − share)⌉, since
  one negative record takes share/(1 − share) positive records with it.
- Counts in `keep` are met exactly, or InputError is raised before any release. No error prints a count of records.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, Label, label_key, public_generator
from decentral_dp.errors import InputError

# (generator, i = 1..m, records, d) → (records, d)
Features: TypeAlias = Callable[[np.random.Generator, int, int, int], FloatArray]


# Copies of all records in a run: as drawn, joined, scaled, partitioned, and in the problem.
_COPIES = 5
CLASSES_APART, CENSUS = "synthetic_classification", "synthetic_census"
FAMILIES: dict[str, Features] = {
    "synthetic_normal": lambda rng, i, n, d: rng.standard_normal((n, d)) * i,
    "synthetic_chi2": lambda rng, i, n, d: rng.chisquare(i, (n, d)),
    "synthetic_mixed": lambda rng, i, n, d: FAMILIES[f"synthetic_{'chi2' if i % 2 else 'normal'}"](rng, i, n, d),
}
USUAL_SIZES = {"d": 200, "records": 200, "test_records": 2000}
SYNTHETIC = (*FAMILIES, CLASSES_APART, CENSUS)
# Categories of each attribute of a9a, where numbers are binned.
CATEGORIES = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)


def heterogeneous(name: str, *, n_agents: int, seed: int, d: int, records: int, test_records: int) -> Dataset:
    """Draw records for agents with different distributions.

    The features of agent i are N(0, i²), χ²(i), or (mixed) N(0, i²) for even i and χ²(i) for odd i.

    Args:
        name: name of the family, "synthetic_normal", "synthetic_chi2" or "synthetic_mixed".
        n_agents: number of agents.
        seed: public seed. The records of agent i depend on (seed, i, d, records) only.
        d: number of features.
        records: number of records per agent, which are train and validation records in alternation.
        test_records: total number of test records, which are drawn from the agents' distributions in turn.

    Returns:
        The records of one agent after another, followed by the test records, with `agent` and `split` columns.

    Example:
        >>> made = heterogeneous("synthetic_normal", n_agents=2, seed=0, d=3, records=4, test_records=2)
        >>> made.features.shape, made.agent.tolist()
        ((10, 3), [0, 0, 0, 0, 1, 1, 1, 1, 0, 1])
    """
    draw = FAMILIES[name]
    require_memory(n_agents, records, test_records, d)
    truth = public_generator(seed, f"{name} truth").standard_normal(d)
    parts, margins = [], []
    for i in range(n_agents):
        rng = public_generator(seed, f"{name} records", i)
        parts.append(draw(rng, i + 1, records, d))
        margins.append(parts[-1] @ truth + 0.1 * rng.standard_normal(records))
    test, margin = np.empty((test_records, d)), np.empty(test_records)
    for i in range(n_agents):
        rng = public_generator(seed, f"{name} test", i)
        rows = slice(i, None, n_agents)
        test[rows] = draw(rng, i + 1, len(range(i, test_records, n_agents)), d)
        margin[rows] = test[rows] @ truth + 0.1 * rng.standard_normal(test[rows].shape[0])
    labels = (np.concatenate([*margins, margin]) >= 0).astype(np.int64)
    return _dataset(name, np.concatenate([*parts, test]), labels, n_agents, records)


def gaussian_classes(
    *, n_agents: int, seed: int, d: int, records: int, test_records: int, separation: float, relevant: int | None = None
) -> Dataset:
    """Draw two Gaussian classes N(±(separation/2)·u, I), where the random unit vector u is identical for all agents.

    Args:
        n_agents: number of agents.
        seed: public seed.
        d: number of features.
        records: number of records per agent, as in `heterogeneous`.
        test_records: total number of test records, as in `heterogeneous`.
        separation: distance between the class means, at least 0. The best possible accuracy is Φ(separation/2).
        relevant: number of non-zero coordinates of u, chosen at random; None means all.

    Returns:
        Records with the columns of `heterogeneous`.

    Example:
        >>> made = gaussian_classes(n_agents=2, seed=0, d=3, records=4, test_records=2, separation=2.0)
        >>> made.split[:4].tolist()
        ['train', 'validation', 'train', 'validation']
    """
    require_memory(n_agents, records, test_records, d)
    n = n_agents * records + test_records
    coins = public_generator(seed, "synthetic_classification truth")
    direction = coins.standard_normal(d)
    if relevant is not None:
        direction[coins.permutation(d)[relevant:]] = 0.0
    rng = public_generator(seed, "synthetic_classification records")
    labels = rng.integers(0, 2, n)
    features = rng.standard_normal((n, d))
    features += np.outer((labels - 0.5) * separation, direction / np.linalg.norm(direction))
    return replace(
        _dataset(CLASSES_APART, features, labels.astype(np.int64), n_agents, records), test_is_independent=True
    )


def census(*, n_agents: int, seed: int, d: int, records: int, test_records: int) -> Dataset:
    """Draw sparse records with the shape of a9a: 14 attributes with 2 to 41 categories each, as 123 binary features.

    The k-th category of an attribute has probability proportional to 1/k. The log-odds of class 1 are a sum of one N(0,
    1) effect per category, shifted so that 24 % of all records are above 0.

    Args:
        n_agents: number of agents.
        seed: public seed.
        d: number of features, 123 for a9a. Attributes have its sizes in turn, and the last one is truncated at d.
        records: number of records per agent, as in `heterogeneous`.
        test_records: total number of test records, as in `heterogeneous`.

    Returns:
        Records with the columns of `heterogeneous`.

    Example:
        >>> made = census(n_agents=2, seed=0, d=123, records=4, test_records=2)
        >>> made.features.shape, made.features.sum(axis=1).tolist()
        ((10, 123), [14.0, 14.0, 14.0, 14.0, 14.0, 14.0, 14.0, 14.0, 14.0, 14.0])
    """
    require_memory(n_agents, records, test_records, d)
    n = n_agents * records + test_records
    effects = public_generator(seed, f"{CENSUS} truth").standard_normal(d)
    rng = public_generator(seed, f"{CENSUS} records")
    features = np.zeros((n, d))
    first = 0
    for size in itertools.cycle(CATEGORIES):
        shares = 1.0 / np.arange(1, min(size, d - first) + 1)
        features[np.arange(n), first + rng.choice(shares.size, n, p=shares / shares.sum())] = 1.0
        first += size
        if first >= d:
            break
    log_odds = features @ effects
    log_odds -= np.quantile(log_odds, 0.76)
    labels = (log_odds + rng.logistic(size=n) > 0).astype(np.int64)
    return replace(_dataset(CENSUS, features, labels, n_agents, records), test_is_independent=True)


def outline(name: str, *, n_agents: int, d: int, records: int, test_records: int) -> Dataset:
    """Return the public description of a synthetic data set without drawing any records.

    Args:
        name: name of the family.
        n_agents, d, records, test_records: numbers of agents, features and records, as in `heterogeneous`.

    Returns:
        The data set with features and labels of zeros that take no memory.
    """
    n = n_agents * records + test_records
    features, labels = np.broadcast_to(np.zeros(1), (n, d)), np.broadcast_to(np.int64(0), (n,))
    dataset = _dataset(name, features, labels, n_agents, records)
    return replace(dataset, test_is_independent=name not in FAMILIES, has_records=False)


def require_memory(n_agents: int, records: int, test_records: int, d: int) -> None:
    """Raise InputError if the copies of all records in a run would exceed the memory of this machine."""
    n_bytes = 8.0 * (n_agents * records + test_records) * (d + 3)
    try:
        memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return
    if n_bytes * _COPIES > memory:
        raise InputError(
            f"problem.synthetic: {n_agents} agents with {records} records of {d} features each, and "
            f"{test_records} to test, take {n_bytes / 1e9:.3g} GB, which a run copies about "
            f"{_COPIES} times, and this machine has {memory / 1e9:.3g} GB. Fix: use fewer records, "
            "features or agents."
        )


def _dataset(name: str, features: FloatArray, labels: IntArray, n_agents: int, records: int) -> Dataset:
    """Return records agent by agent, then test records, which agents own in turn."""
    words = np.resize(np.array(["train", "validation"]), records)
    test = np.full(features.shape[0] - n_agents * records, "test")
    owners = np.concatenate([np.repeat(np.arange(n_agents), records), np.arange(test.size) % n_agents])
    return Dataset(
        features=features,
        labels=labels,
        classes=(-1, 1),
        feature_names=tuple(f"x{k}" for k in range(features.shape[1])),
        source=name,
        agent=owners.astype(np.int64),
        split=np.concatenate([np.tile(words, n_agents), test]),
        is_simulated=True,
    )


def construct(dataset: Dataset, table: Mapping[str, Any], train: IntArray, *, seed: int) -> tuple[Dataset, IntArray]:
    """Derive a new data set from these records by their labels.

    Args:
        dataset: records.
        table: table with the keys positive, share, keep and tail, or None.
        train: indices of the records that are not held out, (n,), in file order.
        seed: public seed of random choices.

    Returns:
        The data set with new labels and a note, and the indices of the train records that are kept, (n,), in file
        order.

    Raises:
        InputError: the declared classes or the records do not suffice.
    """
    options = {key: value for key, value in table.items() if value is not None}
    positive = _codes(dataset, options["positive"], "positive") if "positive" in options else None
    n_classes = len(dataset.classes) if positive is None else 2
    if n_classes < 2 or ("share" in options and n_classes > 2):
        raise InputError(
            f"problem.construction: {dataset.source!r} has {n_classes} classes (expected at least two, and two for "
            "share). Fix: name the positive ones, for example positive = [5, 6, 7, 8, 9]."
        )
    labels, counts = dataset.labels, dict[int, int]()
    if "keep" in options:
        counts = dict(
            zip(_codes(dataset, list(options["keep"]), "keep").tolist(), options["keep"].values(), strict=True)
        )
    elif "tail" in options:
        last = len(dataset.classes) - 1
        sizes = [int((labels[train] == k).sum()) for k in range(last + 1)]
        counts = {k: _round_down(size * float(options["tail"]) ** (k / last)) for k, size in enumerate(sizes)}
    if positive is not None:
        dataset = replace(dataset, labels=np.isin(labels, positive).astype(np.int64), classes=(0, 1))
    if "share" in options:
        labels, share = dataset.labels, float(options["share"])
        counts = {1: _round_down(int((labels[train] == 0).sum()) * share / (1.0 - share))}
    parts = [train[~np.isin(labels[train], list(counts))]]
    for k, count in counts.items():
        members = train[labels[train] == k]
        if "keep" not in options:
            # One public order of all indices: a record that enters or leaves the class moves no other record.
            order = public_generator(seed, "construction", k).permutation(dataset.n)
            members = order[np.isin(order, members)][::-1]
        if not 1 <= count <= members.size:
            key = next(key for key in ("keep", "tail", "share") if key in options)
            raise InputError(
                f"problem.construction.{key}: too few train records of one class in {dataset.source!r}. Fix: "
                "use another value."
            )
        parts.append(members[members.size - count :])
    kept_index = np.sort(np.concatenate(parts))
    return replace(dataset, notes=(*dataset.notes, _note(options, kept_index.size, train.size))), kept_index


def _codes(dataset: Dataset, labels: Sequence[Label], key: str) -> IntArray:
    """Return the indices of the named classes, each once and not all. Raises InputError."""
    code_of = {label_key(label): k for k, label in enumerate(dataset.classes)}
    codes = [code_of.get(label_key(label), -1) for label in labels]
    if -1 in codes or len(set(codes)) < len(codes) or (key == "positive" and len(codes) == len(code_of)):
        raise InputError(
            f"problem.construction.{key}: unknown or repeated classes (got {list(labels)}, expected some of "
            f"{list(dataset.classes)}). Fix: use classes of the data, each once."
        )
    return np.array(codes, dtype=np.int64)


def _round_down(count: float) -> int:
    """Round down, tolerating the rounding error of float64."""
    return math.floor(round(count, 9))


def _note(options: Mapping[str, Any], n_kept: int, n_train: int) -> str:
    parts = []
    if "positive" in options:
        parts.append(f"the classes {', '.join(str(label) for label in options['positive'])} are positive")
    if "share" in options:
        parts.append(f"positive train records are kept to a share of {options['share']:g} of all")
    if "keep" in options:
        parts.append(f"only the last are kept of class {', '.join(f'{k} ({n})' for k, n in options['keep'].items())}")
    if "tail" in options:
        parts.append(f"classes are kept to shares that fall from 1 to {options['tail']:g}")
    note = f"These records are derived by a construction: {', and '.join(parts)}."
    if n_kept == n_train:
        return note
    return (
        f"{note} It keeps {n_kept} of {n_train} train records and all held-out ones. It reads labels, and its choice "
        "is public: the guarantee is for the records that it keeps."
    )
