"""Who holds which record: test set, shards of the agents, and their train and validation parts.

Everything here depends on the seed and on what is public: counts, the declared columns, and, where records are dealt
by label, the labels. Nothing here reads a feature, no split is stratified, and the indices of every part are in file
order.

A rule that reads no label ("iid", "column") gives the same parts whatever the records are. `split_shards` then
cuts every agent's shard into train and validation records.

A rule that deals by label ("by_class", "dirichlet", a function) is different, and the deal is taken as given: the
guarantee of a run is for neighbours that replace one record's contents and keep its agent, its role and its place.
That is what agents have who hold records of their own, which such a rule imitates. What the deal itself tells is not
covered: who holds a record says something of its label, and so do the numbers of records that agents hold. For a
replaced label L → L' the following holds all the same, and is tested:

- Roles (train, validation, test) are cut by place before anything is dealt (`cut_roles`): every record keeps its
  role, the replaced one included, and so do the numbers of train, validation and test records of all agents together.
- Of "by_class" and "dirichlet", at most 2(m − 1) other records change their agent, all of the replaced record's role.
  The rule shares out the records of a class, in a public order of places, at public shares S_1 ≤ … ≤ S_(m−1) of their
  number n. One record less moves the cut ⌊S_j·n + 1/2⌋ by 0 or 1 and later records by 1, so that no more than one
  record crosses it; one record more likewise; and L and L' are two classes of m − 1 cuts each.
- A function is asked once, and where its answer puts the others is its own affair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, public_generator, refuse_rows
from decentral_dp.errors import InputError


class Roles(NamedTuple):
    """(n_t,) and (n_v,) indices of the train and validation records of all agents: disjoint, each in file order."""

    train: IntArray
    validation: IntArray


class AgentParts(NamedTuple):
    """Per agent, the indices of its train and of its validation records: disjoint, each in file order, none empty."""

    train: tuple[IntArray, ...]
    validation: tuple[IntArray, ...]


def select_test(
    dataset: Dataset, *, validation: float | Mapping[str, str] | None = None, test: float | None = None, seed: int
) -> IntArray:
    """Choose the test records, held back before anything is given to an agent.

    The data's own test set where they have one. With `validation = {"column": …}`, or with a split column and neither
    share given, those that the column calls "test". Otherwise the share `test` of all records, drawn at random.

    Args:
        dataset: the records.
        validation: share for the upper level, or {"column": …}; only read for whether the split column decides.
        test: share of all records, at least 0 and below 1; None for 0.2.
        seed: the public one.

    Returns:
        (n,) indices of the test records, in file order.

    Raises:
        InputError: a share beside a test set or split column of the data's own.
    """
    by_column = not dataset.own_test and values_by_column(dataset, validation, test)
    if test is not None and (dataset.own_test or (by_column and test)):
        owner = "the split column says which records are for testing" if by_column else "the data have a test set"
        raise InputError(f"problem.test: {owner}. Fix: leave it out.")
    if dataset.own_test:
        return np.arange(dataset.n - dataset.own_test, dataset.n)
    if by_column:
        return np.flatnonzero(dataset.split == "test")
    share = 0.2 if test is None else test
    order = public_generator(seed, "test").permutation(dataset.n)
    return np.sort(order[: math.floor(share * dataset.n + 0.5)])


def cut_roles(
    dataset: Dataset,
    among: IntArray,
    *,
    validation: float | Mapping[str, str] | None = None,
    test: float | None = None,
    seed: int,
    levels: int = 2,
    agent: int | None = None,
) -> Roles:
    """Divide the records of `among` into train and validation ones by their places.

    It reads the seed, the number of records and the split column, and no label.

    Args:
        dataset: the records.
        among: (n,) indices of the records to divide, in file order.
        validation: as of `split_shards`; the share is of all records together.
        test: as of `split_shards`.
        seed: the public one.
        levels: as of `split_shards`.
        agent: whose records they are; default those of all agents, before they are dealt.

    Returns:
        The train and the validation records. A record that the column calls "test" is in neither.

    Raises:
        InputError: a column that the data do not have.
    """
    if levels == 1:
        return Roles(among, among[:0])
    if values_by_column(dataset, validation, test):
        words = np.asarray(dataset.split)[among]
        return Roles(among[words == "train"], among[words == "validation"])
    share = validation if isinstance(validation, float | int) else 0.5
    chosen = np.zeros(among.size, dtype=np.bool_)
    key = () if agent is None else (agent,)
    order = public_generator(seed, "validation", *key).permutation(among.size)
    chosen[order[: math.floor(share * among.size + 0.5)]] = True
    return Roles(among[~chosen], among[chosen])


def split_shards(
    dataset: Dataset,
    shards: Sequence[IntArray],
    *,
    validation: float | Mapping[str, str] | None = None,
    test: float | None = None,
    seed: int,
    levels: int = 2,
) -> AgentParts:
    """Divide every agent's shard into train and validation records.

    Args:
        dataset: the records.
        shards: per agent, indices of its records.
        validation: the share for the upper level (default 0.5), drawn at random within each shard and rounded to whole
            records; or {"column": …}. None takes the split column where the data have one and no `test` share is given.
        test: share of held-out records, if one is given.
        seed: the public one.
        levels: 2, the default, or 1: then all are train records.

    Returns:
        The train and the validation records of each agent, as of `cut_roles`.

    Raises:
        InputError: as of `cut_roles`, and for an empty part.
    """
    parts = []
    for i, shard in enumerate(shards):
        roles = cut_roles(dataset, np.sort(shard), validation=validation, test=test, seed=seed, levels=levels, agent=i)
        check_parts(i, *roles, levels)
        parts.append(roles)
    return AgentParts(tuple(roles.train for roles in parts), tuple(roles.validation for roles in parts))


def check_parts(i: int, lower: IntArray, upper: IntArray, levels: int) -> None:
    """Refuse an agent without records.

    Args:
        i: the agent's number.
        lower: (n_t,) indices of its train records.
        upper: (n_v,) indices of its validation records.
        levels: 2 where both have to be there, 1 where train records alone have to.

    Raises:
        InputError: a part that is empty and must not be.
    """
    if not lower.size or (levels == 2 and not upper.size):
        both = f" and {upper.size} validation" if levels == 2 else ""
        raise InputError(
            f"problem.partition: agent {i} has {lower.size} train{both} records (expected at least one). Fix: use "
            "fewer agents, a more even partition, or another validation share."
        )


def values_by_column(dataset: Dataset, validation: float | Mapping[str, str] | None, test: float | None) -> bool:
    """Whether a column of the data says which records are held out. Raises InputError where there is none."""
    if isinstance(validation, Mapping) and dataset.split is None:
        raise InputError(
            f"problem.validation: {dataset.source!r} has no split column; give a share such as validation = 0.5."
        )
    return isinstance(validation, Mapping) or (validation is None and test is None and dataset.split is not None)


PARTITIONS: Mapping[str, str] = {
    "iid": "records at random; how many agents have differs by one at most",
    "by_class": "each class has a home agent, which gets the given share of it; the rest is dealt evenly",
    "dirichlet": "shares of each class drawn from a Dirichlet law; a small alpha gives each agent few classes",
    "column": "the agent of each record as a column of the data file says",
}


_OF_DEALS = (
    " What is said of privacy is for neighbours that keep it, with every record's agent, role and place. What the deal "
    "tells of labels is not covered: who holds a record, and how many records an agent has."
)
# Said beside every result on records that are dealt by label, or may be.
DEAL_NOTE = f"These records are dealt by label: the deal is taken as given.{_OF_DEALS}"
FUNCTION_NOTE = (
    "These records may be dealt by label: what the function of problem.partition reads was not looked into, and the "
    f"deal is taken as given.{_OF_DEALS}"
)


def partition(
    dataset: Dataset,
    n_agents: int,
    spec: str | Mapping[str, Any] | Callable[..., Any] | None,
    seed: int,
    *,
    among: IntArray | None = None,
) -> list[IntArray]:
    """Give every record of `among` to one agent.

    Args:
        dataset: the records.
        n_agents: m, how many agents there are.
        spec: the rule, with n the records of `among`:
            "iid": at random, sizes equal to within one.
            {"kind": "by_class", "share": 0.5}: `share` of class k goes to its home, the rest evenly to all others. Its
            home is agent k mod m, or, where agents outnumber the c classes, evenly all agents i with i mod c = k.
            {"kind": "dirichlet", "alpha": 1.0}: class k is shared out in proportions drawn from
            Dirichlet(alpha, …, alpha).
            {"kind": "column", "name": …}: as the data's own owner column says.
            A function of labels, classes, agents and seed, by name, of the records of `among`: (n,) their agents.
            None: the owner column where the data have one, else "iid".
        seed: the public one.
        among: indices of the records to deal; default all.

    Returns:
        Per agent, indices in file order, possibly none.

    Raises:
        InputError: a rule that does not fit the data.
    """
    index = np.arange(dataset.n) if among is None else np.asarray(among, dtype=np.int64)
    if callable(spec):
        return _by_function(spec, dataset, n_agents, seed, index)
    kind, options = _rule(dataset, spec)
    return _by_rule(dataset, n_agents, kind, options, seed, index, index)


@dataclass(frozen=True)
class NamedPartition:
    """A function of the user's own that deals records, and what messages call it."""

    function: Callable[..., Any]
    name: str

    def __call__(self, **values: Any) -> Any:
        return self.function(**values)


def deals_by_label(spec: str | Mapping[str, Any] | Callable[..., Any] | None) -> bool:
    """Whether a partition's spec reads labels. A function may, and nobody knows whether it does."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else spec
    return callable(spec) or kind in ("by_class", "dirichlet")


def partition_roles(
    dataset: Dataset,
    n_agents: int,
    spec: str | Mapping[str, Any] | Callable[..., Any] | None,
    seed: int,
    roles: Roles,
    levels: int = 2,
) -> AgentParts:
    """Give the records of each role to agents, whose train and validation parts these are.

    The shares of a class that agents get are the same in both roles, and so is the public order of places in which its
    records are shared out. A function is asked once, for the records of both roles.

    Args:
        dataset: the records.
        n_agents: how many agents there are.
        spec: as of `partition`.
        seed: the public one.
        roles: train and validation records of all agents together.
        levels: 1 where a problem has no validation records; default 2.

    Returns:
        The train and the validation records of each agent.

    Raises:
        InputError: as of `partition`, and for an empty part.
    """
    if callable(spec):
        everyone = np.sort(np.concatenate(roles))
        shards = _by_function(spec, dataset, n_agents, seed, everyone)
        parts = []
        for role in roles:
            has_role = np.zeros(dataset.n, dtype=np.bool_)
            has_role[role] = True
            parts.append([shard[has_role[shard]] for shard in shards])
    else:
        kind, options = _rule(dataset, spec)
        places = np.arange(dataset.n)
        parts = [_by_rule(dataset, n_agents, kind, options, seed, role, places) for role in roles]
    for i, (lower, upper) in enumerate(zip(*parts, strict=True)):
        check_parts(i, lower, upper, levels)
    return AgentParts(tuple(parts[0]), tuple(parts[1]))


def _rule(dataset: Dataset, spec: str | Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any]]:
    rule = spec if spec is not None else "iid" if dataset.agent is None else "column"
    return (rule, {}) if isinstance(rule, str) else (rule["kind"], rule)


def _by_rule(
    dataset: Dataset, n_agents: int, kind: str, options: Mapping[str, Any], seed: int, index: IntArray, places: IntArray
) -> list[IntArray]:
    """Per agent, its records of `index`. places: what the public order of "iid" is drawn of; it has all of `index`."""
    if kind == "column":
        if dataset.agent is None:
            raise InputError(
                f'problem.partition: {dataset.source!r} has no agent column; use "iid", by_class or dirichlet.'
            )
        # The value is not printed: the column may be any, and hold records.
        refuse_rows(
            (dataset.agent < 0) | (dataset.agent >= n_agents),
            f"problem.partition: {dataset.source!r}",
            f"has no number of an agent (expected 0 to {n_agents - 1}). Fix: number the agents from 0, or name them in "
            "the order of the topology, for example agents = [1, 2, 3] of the partition.",
        )
        return _shards(index, dataset.agent[index], n_agents)
    rng = public_generator(seed, f"partition {kind}")
    if kind == "iid":
        order = rng.permutation(places)
        return [np.sort(part) for part in np.array_split(order[np.isin(order, index)], n_agents)]
    if not dataset.classes:
        raise InputError(
            f"problem.partition: {kind} needs classes, but the labels of {dataset.source!r} are numbers; use iid."
        )
    # One order of all places, drawn before any label is read: a record that changes its class leaves it as it is.
    order = rng.permutation(dataset.n)
    order = order[np.isin(order, index)]
    parts: list[list[IntArray]] = [[] for _ in range(n_agents)]
    for k in range(len(dataset.classes)):
        members = order[dataset.labels[order] == k]
        if kind == "by_class":
            shares = _home_shares(k, len(dataset.classes), n_agents, options["share"])
        else:
            # Of its own key, so that it depends on the class alone and not on how many records others have.
            proportions = public_generator(seed, "partition dirichlet shares", k)
            shares = proportions.dirichlet(np.full(n_agents, options["alpha"]))
        # Rounded cumulative shares give every record to somebody; the shift spreads the rounding over the agents.
        shift = k % n_agents
        cuts = np.floor(np.cumsum(np.roll(shares, -shift))[:-1] * members.size + 0.5).astype(np.int64)
        for place, part in enumerate(np.split(members, np.clip(cuts, 0, members.size))):
            parts[(place + shift) % n_agents].append(part)
    return [np.sort(np.concatenate(part)) for part in parts]


def _by_function(
    function: Callable[..., Any], dataset: Dataset, n_agents: int, seed: int, index: IntArray
) -> list[IntArray]:
    """As a function of the user's own says; it sees labels and no feature. Raises InputError."""
    answer = function(labels=dataset.labels[index].copy(), classes=len(dataset.classes), agents=n_agents, seed=seed)
    try:
        owner = np.asarray(answer)
    except ValueError:
        # Lists of several lengths.
        owner = np.zeros(0)
    is_whole = owner.shape == index.shape and np.issubdtype(owner.dtype, np.integer)
    if not is_whole or np.any((owner < 0) | (owner >= n_agents)):
        raise InputError(
            f"problem.partition: {getattr(function, 'name', 'the function')} gives {owner.dtype} of shape "
            f"{owner.shape}, expected ({index.size},) whole numbers from 0 to {n_agents - 1}, the agent of each record."
        )
    return _shards(index, owner, n_agents)


def _shards(index: IntArray, owner: IntArray, n_agents: int) -> list[IntArray]:
    """Per agent, the indices that it owns, in file order, in one sort: a look at all owners for every agent is m²."""
    order = np.lexsort((index, owner))
    return np.split(index[order], np.cumsum(np.bincount(owner, minlength=n_agents))[:-1])


def _home_shares(k: int, classes: int, n_agents: int, share: float) -> FloatArray:
    """(m,) share of class k that each agent gets."""
    period = min(classes, n_agents)
    home = np.arange(n_agents) % period == k % period
    others = n_agents - int(home.sum())
    if others == 0:
        return np.full(n_agents, 1 / n_agents)
    return np.where(home, share / home.sum(), (1 - share) / others).astype(np.float64)
