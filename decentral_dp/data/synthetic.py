"""Synthetic families: heterogeneous agents of known distribution.

The first three are those of Chen & Wang (ICML 2024), Section 5.1 and Appendix A.2.4, whose agents are numbered
i = 1..m (here i = agent + 1). The paper prints the label as aᵀω + 0.1ε with a vector ε, which is
neither a number nor a class; here ε is a standard normal number and the label is the sign, with one ω_true ~ N(0, I)
for all agents.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, public_generator
from decentral_dp.errors import InputError

# (generator, i = 1..m, records, d) → (records, d)
Features: TypeAlias = Callable[[np.random.Generator, int, int, int], FloatArray]


def _normal(rng: np.random.Generator, i: int, n: int, d: int) -> FloatArray:
    return rng.standard_normal((n, d)) * i


def _chi2(rng: np.random.Generator, i: int, n: int, d: int) -> FloatArray:
    return rng.chisquare(i, (n, d))


def _mixed(rng: np.random.Generator, i: int, n: int, d: int) -> FloatArray:
    return (_normal if i % 2 == 0 else _chi2)(rng, i, n, d)


# Of all records: as drawn, joined, scaled, dealt, and as their problem has them.
_COPIES = 5
FAMILIES: dict[str, Features] = {"synthetic_normal": _normal, "synthetic_chi2": _chi2, "synthetic_mixed": _mixed}


def heterogeneous(name: str, *, n_agents: int, seed: int, d: int, records: int, test_records: int) -> Dataset:
    """Draw records of agents whose distributions differ.

    Agent i's features are N(0, i²), χ²(i), or (mixed) N(0, i²) for even i and χ²(i) for odd i.

    Args:
        name: "synthetic_normal", "synthetic_chi2" or "synthetic_mixed".
        n_agents: their number.
        seed: public. Agent i's records depend on (seed, i, d, records) only.
        d: features.
        records: per agent, by turns train and validation.
        test_records: in all, by turns from the agents' distributions.

    Returns:
        Records agent by agent, then the test records, with `agent` and `split` columns.

    Example:
        >>> made = heterogeneous("synthetic_normal", n_agents=2, seed=0, d=3, records=4, test_records=2)
        >>> made.features.shape, made.agent.tolist()
        ((10, 3), [0, 0, 0, 0, 1, 1, 1, 1, 0, 1])
    """
    draw = FAMILIES[name]
    _require_memory(n_agents, records, test_records, d)
    truth = public_generator(seed, f"{name} truth").standard_normal(d)
    owners = [np.full(records, i) for i in range(n_agents)] + [np.arange(test_records) % n_agents]
    parts, margins = [], []
    for i in range(n_agents):
        rng = public_generator(seed, f"{name} records", i)
        parts.append(draw(rng, i + 1, records, d))
        margins.append(parts[-1] @ truth + 0.1 * rng.standard_normal(records))
    test, margin = np.empty((test_records, d)), np.empty(test_records)
    for i in range(n_agents):
        rng = public_generator(seed, f"{name} test", i)
        mine = slice(i, None, n_agents)
        test[mine] = draw(rng, i + 1, len(range(i, test_records, n_agents)), d)
        margin[mine] = test[mine] @ truth + 0.1 * rng.standard_normal(test[mine].shape[0])
    labels = (np.concatenate([*margins, margin]) >= 0).astype(np.int64)
    return _dataset(name, np.concatenate([*parts, test]), labels, np.concatenate(owners), n_agents, records)


def classification(
    *,
    n_agents: int,
    seed: int,
    d: int,
    records: int,
    test_records: int,
    separation: float,
    relevant: int | None = None,
) -> Dataset:
    """Draw two Gaussian classes: N(±(separation/2)·u, I) with a random unit vector u, the same for all agents.

    Args:
        n_agents: their number.
        seed: public.
        d: features.
        records: as in `heterogeneous`.
        test_records: as in `heterogeneous`.
        separation: distance of the means, at least 0. The best possible accuracy is Φ(separation/2).
        relevant: features in which the means differ, chosen at random: u is zero in all others. None for all.

    Returns:
        Records with the columns of `heterogeneous`.

    Raises:
        InputError: a separation that is below 0 or not finite, or more relevant features than there are.

    Example:
        >>> made = classification(n_agents=2, seed=0, d=3, records=4, test_records=2, separation=2.0)
        >>> made.split[:4].tolist()
        ['train', 'validation', 'train', 'validation']
    """
    if not 0 <= separation < np.inf:
        raise InputError(
            f"problem.synthetic.separation: got {separation}, but a finite number of at least 0 is wanted."
        )
    _require_memory(n_agents, records, test_records, d)
    n = n_agents * records + test_records
    coins = public_generator(seed, "synthetic_classification truth")
    direction = coins.standard_normal(d)
    if relevant is not None:
        if not 1 <= relevant <= d:
            raise InputError(f"problem.synthetic.relevant: got {relevant}, but a whole number from 1 to {d} is wanted.")
        direction[coins.permutation(d)[relevant:]] = 0.0
    rng = public_generator(seed, "synthetic_classification records")
    labels = rng.integers(0, 2, n)
    features = rng.standard_normal((n, d))
    features += np.outer((labels - 0.5) * separation, direction / np.linalg.norm(direction))
    owners = np.concatenate([np.repeat(np.arange(n_agents), records), np.arange(test_records) % n_agents])
    made = _dataset("synthetic_classification", features, labels.astype(np.int64), owners, n_agents, records)
    return replace(made, alike=True)


def _require_memory(n_agents: int, records: int, test_records: int, d: int) -> None:
    """Raises InputError where the records, of which a run has some copies, do not fit into this machine."""
    wanted = 8.0 * (n_agents * records + test_records) * (d + 3)
    if wanted * _COPIES > _memory():
        raise InputError(
            f"problem.synthetic: {n_agents} agents with {records} records of {d} features each, and {test_records} to "
            f"test, take {wanted / 1e9:.3g} GB, a run has some {_COPIES} copies of them, and this machine has "
            f"{_memory() / 1e9:.3g} GB. Use fewer records, features or agents."
        )


def _memory() -> float:
    """Bytes of this machine; without bound where it does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return np.inf


def _dataset(
    name: str, features: FloatArray, labels: IntArray, owners: IntArray, n_agents: int, records: int
) -> Dataset:
    words = np.resize(np.array(["train", "validation"]), records)
    test = np.full(features.shape[0] - n_agents * records, "test")
    return Dataset(
        features=features,
        labels=labels,
        classes=(-1, 1),
        feature_names=tuple(f"x{k}" for k in range(features.shape[1])),
        source=name,
        agent=owners.astype(np.int64),
        split=np.concatenate([np.tile(words, n_agents), test]),
        made_up=True,
    )
