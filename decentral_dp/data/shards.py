"""Partition of records: test records, the records of each agent, their train and validation parts, and their scaling.

The results depend on the seed and on public facts: counts, the declared columns, and the labels if the partition reads
them. They do not depend on features. Splits are not stratified, and all indices are in file order.

A rule that reads no label ("iid", "column") gives the same parts for all records. `split_shards` then divides the shard
of each agent into train and validation records.

A rule that reads labels ("by_class", "dirichlet", a function) is public: the guarantee of a run is for neighbouring
data sets that replace the content of one record and keep its agent, split and index. The guarantee does not cover what
the partition reveals about labels, through the owners of records and their counts. For a replaced label L → L' the
following holds, and is tested:

- Splits (train, validation, test) are cut by index before the partition (`cut_roles`). Every record keeps its split,
  including the replaced one, and the counts of the splits do not change.
- With "by_class" and "dirichlet", at most 2(m − 1) other records change their agent, all in the split of the replaced
  record. The rule cuts the n records of a class, in a public order of indices, at cumulative fractions S_1 ≤ … ≤
  S_(m−1). Without one record, the cut ⌊S_j·n + 1/2⌋ moves by 0 or 1 and later records by 1, so at most one record
  crosses it. An additional record is symmetric, and L and L' are two classes with m − 1 cuts each.
- A function is called once. There is no guarantee about the owners that it returns for other records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from decentral_dp.data import scaling
from decentral_dp.data.columns import ColumnRules, Columns, encode_features, with_rules
from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, Label, public_generator, refuse_rows
from decentral_dp.data.synthetic import construct
from decentral_dp.errors import InputError

# Largest number of agents whose held-out records are scored separately.
_MOST_SITES = 256
# Per agent, the indices of its train and of its validation records: disjoint, each in file order, none empty.
AgentParts: TypeAlias = tuple[tuple[IntArray, ...], tuple[IntArray, ...]]


def select_test(
    dataset: Dataset, *, validation: float | Mapping[str, str] | None = None, test: float | None = None, seed: int
) -> IntArray:
    """Select the test records before the partition.

    Use the data's own test set if there is one. With `validation = {"column": …}`, or with a split column and neither
    fraction given, use the records that the column calls "test". Otherwise draw the fraction `test` of all records.

    Args:
        dataset: records.
        validation: validation fraction, or {"column": …}.
        test: fraction of all records, at least 0 and below 1; None means 0.2.
        seed: public seed.

    Returns:
        Indices of the test records in file order, (n,).

    Raises:
        InputError: a fraction is given although the data or a column already determine the test records.
    """
    by_column = not dataset.own_test and values_by_column(dataset, validation, test)
    if test is not None and (dataset.own_test or (by_column and test)):
        owner = "the split column selects the test records" if by_column else "the data have a test set"
        raise InputError(f"problem.test: {owner}. Fix: remove it.")
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
) -> tuple[IntArray, IntArray]:
    """Split the records in `among` into train and validation records by their indices.

    The split depends on the seed, the number of records and the split column, but not on any label.

    Args:
        dataset: records.
        among: indices of the records to split, (n,), in file order.
        validation: validation fraction of all these records, or {"column": …}, as in `split_shards`.
        test: fraction of test records, if given.
        seed: public seed.
        levels: number of levels, as in `split_shards`.
        agent: owner of the records, or None before the partition.

    Returns:
        Indices of the train records and of the validation records. Neither contains records that the column calls
        "test".

    Raises:
        InputError: a split column is missing.
    """
    if levels == 1:
        return among, among[:0]
    if values_by_column(dataset, validation, test):
        words = np.asarray(dataset.split)[among]
        return among[words == "train"], among[words == "validation"]
    share = validation if isinstance(validation, float | int) else 0.5
    is_validation = np.zeros(among.size, dtype=np.bool_)
    key = () if agent is None else (agent,)
    order = public_generator(seed, "validation", *key).permutation(among.size)
    is_validation[order[: math.floor(share * among.size + 0.5)]] = True
    return among[~is_validation], among[is_validation]


def split_shards(
    dataset: Dataset,
    shards: Sequence[IntArray],
    *,
    validation: float | Mapping[str, str] | None = None,
    test: float | None = None,
    seed: int,
    levels: int = 2,
) -> AgentParts:
    """Split the shard of every agent into train and validation records.

    Args:
        dataset: records.
        shards: indices of each agent's records.
        validation: validation fraction (default 0.5), drawn at random within each shard and rounded to whole records;
            or {"column": …}. None uses a split column if the data have one and no `test` fraction is given.
        test: fraction of test records, if given.
        seed: public seed.
        levels: number of levels, 2 (the default), or 1 if all records are train records.

    Returns:
        Train and validation records of each agent.

    Raises:
        InputError: a split column is missing, or a part is empty.
    """
    parts = []
    for i, shard in enumerate(shards):
        roles = cut_roles(dataset, np.sort(shard), validation=validation, test=test, seed=seed, levels=levels, agent=i)
        check_parts(i, *roles, levels)
        parts.append(roles)
    return tuple(train for train, _ in parts), tuple(held_out for _, held_out in parts)


def check_parts(i: int, lower: IntArray, upper: IntArray, levels: int) -> None:
    """Raise InputError for an agent without records.

    Args:
        i: number of the agent.
        lower: indices of its train records, (n_t,).
        upper: indices of its validation records, (n_v,).
        levels: 2 if both parts must contain records, or 1 if train records suffice.
    """
    if not lower.size or (levels == 2 and not upper.size):
        suffix = f" and {upper.size} validation" if levels == 2 else ""
        raise InputError(
            f"problem.partition: agent {i} has {lower.size} train{suffix} records (expected at least one). Fix: use "
            "fewer agents, a more even partition, or another validation share."
        )


def values_by_column(dataset: Dataset, validation: float | Mapping[str, str] | None, test: float | None) -> bool:
    """Return whether a column determines the held-out records. Raises InputError if this column is missing."""
    if isinstance(validation, Mapping) and dataset.split is None:
        raise InputError(
            f"problem.validation: {dataset.source!r} has no split column. Fix: use a fraction such as validation = 0.5."
        )
    return isinstance(validation, Mapping) or (validation is None and test is None and dataset.split is not None)


PARTITIONS: Mapping[str, str] = {
    "iid": "records at random; sizes differ by at most one",
    "by_class": "each class has a home agent, which gets the given share of it; the rest is spread evenly",
    "dirichlet": "shares of each class from a Dirichlet distribution; a small alpha gives each agent few classes",
    "column": "the agent of each record from a column of the data file",
}


_SCOPE = " ε assumes the same partition, and does not cover the labels that it reveals."
# Reports on records whose partition reads labels, or may read them, print one of these.
LABEL_NOTE = f"The partition reads labels and is public.{_SCOPE}"
FUNCTION_NOTE = f"The function of problem.partition may read labels, and the partition is public.{_SCOPE}"


def partition(
    dataset: Dataset,
    n_agents: int,
    spec: str | Mapping[str, Any] | Callable[..., Any] | None,
    seed: int,
    *,
    among: IntArray | None = None,
) -> list[IntArray]:
    """Assign every record of `among` to one agent.

    Args:
        dataset: records.
        n_agents: number of agents m.
        spec: rule of the partition. "iid" assigns records at random, with sizes equal up to one. {"kind": "by_class",
            "share": 0.5} assigns `share` of class k to its home agent and the rest evenly to all others. The home is
            agent k mod m. With more agents than classes c, all agents i with i mod c = k share it evenly. {"kind":
            "dirichlet", "alpha": 1.0} divides class k in proportions from Dirichlet(alpha, …, alpha). {"kind":
            "column", "name": …} uses the owner column of the data. A function with the keyword arguments labels,
            classes, agents and seed returns the owners, (n,). None means the owner column if the data have one,
            otherwise "iid".
        seed: public seed.
        among: indices of the records to assign. The default is all records.

    Returns:
        Indices of each agent's records in file order. An agent may have no records.

    Raises:
        InputError: the rule does not fit the data.
    """
    index = np.arange(dataset.n) if among is None else np.asarray(among, dtype=np.int64)
    if callable(spec):
        return _by_function(spec, dataset, n_agents, seed, index)
    return _by_rule(dataset, n_agents, spec, seed, index, index)


def reads_labels(spec: str | Mapping[str, Any] | Callable[..., Any] | None) -> bool:
    """Return whether a partition may read labels, as a custom function may."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else spec
    return callable(spec) or kind in ("by_class", "dirichlet")


def partition_roles(
    dataset: Dataset,
    n_agents: int,
    spec: str | Mapping[str, Any] | Callable[..., Any] | None,
    seed: int,
    roles: tuple[IntArray, IntArray],
    levels: int = 2,
) -> AgentParts:
    """Assign the train and the validation records to agents, separately for each split.

    Both splits use the same class shares and the same public order of indices. A function is called once, for both
    splits.

    Args:
        dataset: records.
        n_agents: number of agents.
        spec: rule of the partition, as in `partition`.
        seed: public seed.
        roles: train and validation records of all agents together.
        levels: number of levels, 1 if a problem has no validation records.

    Returns:
        Train and validation records of each agent.

    Raises:
        InputError: the rule does not fit the data, or a part is empty.
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
        places = np.arange(dataset.n)
        parts = [_by_rule(dataset, n_agents, spec, seed, role, places) for role in roles]
    for i, (lower, upper) in enumerate(zip(*parts, strict=True)):
        check_parts(i, lower, upper, levels)
    return tuple(parts[0]), tuple(parts[1])


def _by_rule(
    dataset: Dataset, n_agents: int, spec: str | Mapping[str, Any] | None, seed: int, index: IntArray, places: IntArray
) -> list[IntArray]:
    """Apply a rule to the records of `index`. The order of "iid" is drawn over `places`, which contain `index`."""
    rule = spec if spec is not None else "iid" if dataset.agent is None else "column"
    options: Mapping[str, Any] = {"kind": rule} if isinstance(rule, str) else rule
    kind = options["kind"]
    if kind == "column":
        if dataset.agent is None:
            raise InputError(
                f'problem.partition: {dataset.source!r} has no agent column. Fix: use "iid", "by_class" or "dirichlet".'
            )
        # The value is not printed: the column may contain records.
        refuse_rows(
            (dataset.agent < 0) | (dataset.agent >= n_agents),
            f"problem.partition: {dataset.source!r}",
            f"has an invalid agent number (expected 0 to {n_agents - 1}). Fix: number the agents from 0, or "
            "name them in the order of the topology, for example agents = [1, 2, 3] of the partition.",
        )
        return _shards(index, dataset.agent[index], n_agents)
    rng = public_generator(seed, f"partition {kind}")
    if kind == "iid":
        order = rng.permutation(places)
        return [np.sort(part) for part in np.array_split(order[np.isin(order, index)], n_agents)]
    if not dataset.classes:
        raise InputError(
            f"problem.partition: {kind} requires classes, but the labels of {dataset.source!r} are numeric. "
            'Fix: use "iid".'
        )
    # One order of all indices, drawn before any label is read: a changed label does not change it.
    order = rng.permutation(dataset.n)
    order = order[np.isin(order, index)]
    parts: list[list[IntArray]] = [[] for _ in range(n_agents)]
    for k in range(len(dataset.classes)):
        members = order[dataset.labels[order] == k]
        if kind == "by_class":
            shares = _home_shares(k, len(dataset.classes), n_agents, options["share"])
        else:
            # A separate key per class, so that shares do not depend on the counts of other classes.
            proportions = public_generator(seed, "partition dirichlet shares", k)
            shares = proportions.dirichlet(np.full(n_agents, options["alpha"]))
        # Rounded cumulative shares assign every record; the shift spreads the rounding over the agents.
        shift = k % n_agents
        cuts = np.floor(np.cumsum(np.roll(shares, -shift))[:-1] * members.size + 0.5).astype(np.int64)
        for place, part in enumerate(np.split(members, np.clip(cuts, 0, members.size))):
            parts[(place + shift) % n_agents].append(part)
    return [np.sort(np.concatenate(part)) for part in parts]


def _by_function(
    function: Callable[..., Any], dataset: Dataset, n_agents: int, seed: int, index: IntArray
) -> list[IntArray]:
    """Apply a custom function of labels. Raises InputError."""
    answer = function(labels=dataset.labels[index].copy(), classes=len(dataset.classes), agents=n_agents, seed=seed)
    try:
        owner = np.asarray(answer)
    except ValueError:
        # Lists of different lengths.
        owner = np.zeros(0)
    is_whole = owner.shape == index.shape and np.issubdtype(owner.dtype, np.integer)
    if not is_whole or np.any((owner < 0) | (owner >= n_agents)):
        raise InputError(
            f"problem.partition: {getattr(function, '__name__', 'the function')} returns an invalid array (got "
            f"{owner.dtype} of shape {owner.shape}, expected integers from 0 to {n_agents - 1} of shape "
            f"({index.size},)). Fix: return the agent of each record."
        )
    return _shards(index, owner, n_agents)


def _shards(index: IntArray, owner: IntArray, n_agents: int) -> list[IntArray]:
    """Return the indices of each agent in file order, by one sort, since a search per agent would take O(m²)."""
    order = np.lexsort((index, owner))
    return np.split(index[order], np.cumsum(np.bincount(owner, minlength=n_agents))[:-1])


def _home_shares(k: int, classes: int, n_agents: int, share: float) -> FloatArray:
    """Return the share of class k of each agent, (m,)."""
    period = min(classes, n_agents)
    home = np.arange(n_agents) % period == k % period
    n_others = n_agents - int(home.sum())
    if n_others == 0:
        return np.full(n_agents, 1 / n_agents)
    return np.where(home, share / home.sum(), (1 - share) / n_others).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Shards:
    """Partitioned and scaled records, together with their public description.

    Args:
        features: feature matrix, (n, d).
        labels: class indices, (n,), or numbers if `classes` is empty.
        classes, feature_names, source, image, trajectory, digest: public facts and digest, as in `Dataset`.
        train, validation: indices of each agent's records, in the order in which a stream reads them.
        test: indices of held-out records, which no agent owns.
        l1, l2: bounds on ‖a‖₁ and ‖a‖₂ of every possible record, or None.
        notes: sentences that every report on these records prints.
        exchangeable: whether the held-out records are a uniform random subset, so that train and held-out records are
            exchangeable before training.
        why_not_exchangeable: reason if they are not exchangeable.
        deal_assumption: sentence about the assumption behind a partition that reads labels, or "".
        label_range: public (low, high) of labels scaled to [−1, 1], or None.
        labels_cut: fraction of all labels that lie outside `label_range`, computed from records.
        by_owner: whether the partition uses an owner column by default.
        has_records: whether records exist. A plan of synthetic data needs none, so features and labels are zeros.
        features_cut: feature → fraction of values that lie outside its declared range, computed from records.
        placeholders: warning about ranges that are still placeholders, or "".
        bounds: range (low, high) of every feature before scaling, as in `Dataset`.
        test_parts: indices of the held-out records that the partition rule assigns to each agent, for scores per site.
            It is empty for a custom function, and for more than 256 agents.
    """

    features: FloatArray
    labels: IntArray | FloatArray
    classes: tuple[Label, ...]
    feature_names: tuple[str, ...]
    source: str
    train: tuple[IntArray, ...]
    validation: tuple[IntArray, ...]
    test: IntArray
    l1: float | None
    l2: float | None
    image: tuple[int, int, int] | None = None
    notes: tuple[str, ...] = ()
    exchangeable: bool = False
    why_not_exchangeable: str = "The choice of the held-out records is unknown."
    trajectory: tuple[int, int] | None = None
    deal_assumption: str = ""
    digest: bytes = b""
    label_range: tuple[float, float] | None = None
    labels_cut: float = 0.0
    by_owner: bool = False
    has_records: bool = True
    features_cut: Mapping[str, float] = field(default_factory=dict)
    placeholders: str = ""
    bounds: tuple[float, float] | None = None
    test_parts: tuple[IntArray, ...] = ()

    def __repr__(self) -> str:
        # Records are private.
        n, d = self.features.shape
        return f"<Shards {self.source!r}: {n} records, {d} features, {len(self.train)} agents>"

    @property
    def label_skew(self) -> float | None:
        """Mean over agents of the total variation between an agent's labels and all labels, from 0 to 1.

        It is computed from the train records, and ε does not cover it. It is None for numeric labels, for a single
        agent, or if there are no records.
        """
        # Labels of records that are with their agents are negative.
        known = self.has_records and self.classes and self.labels.size and self.labels.min() >= 0
        if not known or len(self.train) < 2:
            return None
        parts = [np.bincount(self.labels[part].astype(np.int64), minlength=len(self.classes)) for part in self.train]
        counts = np.stack([part for part in parts if part.sum()])
        shares, pooled = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
        return float(0.5 * np.abs(shares - pooled).sum(axis=1).mean())

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The sentences of `notes`, and `deal_assumption` unless it is empty."""
        return (*self.notes, *filter(None, [self.deal_assumption]))

    @property
    def label_unit(self) -> float | None:
        """Difference of original labels that corresponds to a scaled difference of 1; None for classes.

        Example:
            >>> from dataclasses import replace
            >>> none = np.zeros(0, dtype=np.int64)
            >>> one = Shards(np.ones((1, 1)), np.ones(1), (), ("a",), "synthetic", (none,), (none,), none, None, None)
            >>> one.label_unit, replace(one, label_range=(0.0, 50.0)).label_unit
            (1.0, 25.0)
        """
        if self.classes:
            return None
        return 1.0 if self.label_range is None else 0.5 * (self.label_range[1] - self.label_range[0])

    @property
    def n_agents(self) -> int:
        return len(self.train)

    def pool(self) -> Shards:
        """Return shards in which one agent has all records, in the order of their agents."""
        train, validation = (np.concatenate(parts) for parts in (self.train, self.validation))
        return replace(self, train=(train,), validation=(validation,), by_owner=False, test_parts=())

    def select(self, agents: Sequence[int]) -> Shards:
        """Return the records of some agents, together with all held-out records."""
        parts = self.train, self.validation, self.test_parts
        train, validation, test_parts = (tuple(part[k] for k in agents if part) for part in parts)
        return replace(self, train=train, validation=validation, test_parts=test_parts)

    @property
    def train_counts(self) -> IntArray:
        """Number of train records per agent, (m,)."""
        return np.array([index.size for index in self.train], dtype=np.int64)

    @property
    def validation_counts(self) -> IntArray:
        """Number of validation records per agent, (m,)."""
        return np.array([index.size for index in self.validation], dtype=np.int64)


def make_shards(
    dataset: Dataset,
    n_agents: int,
    *,
    seed: int,
    partition_spec: str | Mapping[str, Any] | Callable[..., Any] | None = None,
    validation: float | Mapping[str, str] | None = None,
    test: float | None = None,
    scale_spec: scaling.ScaleSpec = "none",
    normalisation: scaling.Normalisation = "none",
    levels: int = 2,
    construction: Mapping[str, Any] | None = None,
    label_range: Sequence[float] | None = None,
    parts_key: str = "topology.agents",
) -> Shards:
    """Hold out test records and construct derived labels, then partition, split, scale and normalise the records.

    If the partition reads labels, records are first split into train and validation records. No label can then change
    the split of a record (see `partition_roles`).

    Args:
        dataset: the records as loaded.
        n_agents: number of agents.
        seed: public seed.
        partition_spec: rule of the partition, `spec` of `partition`.
        validation: validation fraction or column, as in `split_shards`.
        test: test fraction, as in `select_test`.
        scale_spec: scale specification, `spec` of `scale`.
        normalisation: kind of normalisation, `kind` of `normalise`.
        levels: number of levels, 1 if a problem has no validation records.
        construction: construction of labels, `table` of `construct`, or None.
        label_range: public (low, high) of numeric labels, which are scaled to [−1, 1], or None.
        parts_key: key that sets the number of agents, for error messages.

    Returns:
        The shards of all agents.

    Raises:
        InputError: one of these steps fails.
    """
    if dataset.trajectory is not None and (scale_spec, normalisation) != ("none", "none"):
        key = "normalise" if scale_spec == "none" else "scale"
        raise InputError(
            f"problem.{key}: the records of {dataset.source!r} are trajectories, and scaling would change "
            "their rewards. Fix: remove it, and scale the observations in the file by public constants."
        )
    digest = dataset.digest
    test_index = select_test(dataset, validation=validation, test=test, seed=seed)
    among = kept = np.setdiff1d(np.arange(dataset.n), test_index, assume_unique=True)
    if construction is not None:
        dataset, kept = construct(dataset, construction, among, seed=seed)
    if n_agents > kept.size:
        # Before a list of shards is created.
        raise InputError(
            f"{parts_key}: too large for {kept.size} records (got {n_agents}). Fix: decrease it, or use more data."
        )
    why_not = _why_not_exchangeable(
        dataset, test_index, values_by_column(dataset, validation, test), kept.size < among.size
    )
    is_thinned, by_label = kept.size < among.size, reads_labels(partition_spec)
    if by_label or (is_thinned and levels == 2):
        role_indices = cut_roles(dataset, among, validation=validation, test=test, seed=seed, levels=levels)
        roles = (role_indices[0][np.isin(role_indices[0], kept)], role_indices[1][np.isin(role_indices[1], kept)])
        train_parts, validation_parts = partition_roles(dataset, n_agents, partition_spec, seed, roles, levels)
    else:
        shards = partition(dataset, n_agents, partition_spec, seed, among=kept)
        train_parts, validation_parts = split_shards(
            dataset, shards, validation=validation, test=test, seed=seed, levels=levels
        )
    test_parts: list[IntArray] = []
    if not callable(partition_spec) and test_index.size and n_agents <= _MOST_SITES:
        test_parts = _by_rule(dataset, n_agents, partition_spec, seed, test_index, np.arange(dataset.n))
    labels_cut = 0.0
    if label_range is not None:
        raw, dataset = dataset.labels, scaling.scale_labels(dataset, label_range)
        labels_cut = float(np.mean((raw < label_range[0]) | (raw > label_range[1])))
    scaled_dataset = scaling.scale(dataset, scale_spec)
    # Without records, only bounds are needed.
    final = bound_norms(
        scaled_dataset.features if dataset.has_records else scaled_dataset.features[:1],
        scaled_dataset.bounds,
        normalisation,
    )
    return Shards(
        final.features if dataset.has_records else dataset.features,
        dataset.labels,
        dataset.classes,
        dataset.feature_names,
        dataset.source,
        train_parts,
        validation_parts,
        test_index,
        final.l1,
        final.l2,
        dataset.image,
        dataset.notes,
        not why_not,
        why_not,
        dataset.trajectory,
        (FUNCTION_NOTE if callable(partition_spec) else LABEL_NOTE) if by_label else "",
        digest,
        None if label_range is None else (float(label_range[0]), float(label_range[1])),
        labels_cut,
        by_owner=partition_spec is None and dataset.agent is not None,
        features_cut=scaling.shares_cut(dataset, scale_spec),
        placeholders=scaling.placeholder_sentence(scale_spec, label_range),
        has_records=dataset.has_records,
        bounds=dataset.bounds,
        test_parts=tuple(test_parts),
    )


def features_for_model(
    columns: Columns,
    names: Sequence[str],
    rules: ColumnRules | None = None,
    scale_spec: scaling.ScaleSpec = "none",
    normalisation: scaling.Normalisation = "none",
    *,
    bounds: tuple[float, float] | None = None,
    source: str = "the table",
    location: str = "",
) -> tuple[FloatArray, dict[str, float]]:
    """Convert raw records to the features of a model by rules, then scale and normalise them as in `make_shards`.

    Args:
        columns: column → cells, (n,). The label column and dropped columns may be missing.
        names: features in the order of the model.
        rules: rules of [problem.columns].
        scale_spec: scale specification, as in `scale`.
        normalisation: kind of normalisation, as in `normalise`.
        bounds: bounds of the training data, to which values are clipped.
        source: name of the bundled data if scale_spec is "public_ranges".
        location: name of the records in messages, by default `source`.

    Returns:
        The features, (n, d), and a map feature → fraction of values outside its declared range.

    Raises:
        InputError: a column is missing, or a cell is invalid.
    """
    features = encode_features(columns, names, rules, location or source)
    features = features if bounds is None else np.clip(features, *bounds)
    raw = with_rules(Dataset(features, np.zeros(len(features)), (), tuple(names), source, bounds=bounds), rules)
    scaled_dataset = scaling.scale(raw, scale_spec)
    return bound_norms(scaled_dataset.features, scaled_dataset.bounds, normalisation).features, scaling.shares_cut(
        raw, scale_spec
    )


def bound_norms(
    features: FloatArray, bounds: tuple[float, float] | None, normalisation: scaling.Normalisation
) -> scaling.Normalised:
    """Normalise scaled records. With "none", declared bounds on the features bound their norms."""
    final = scaling.normalise(features, normalisation)
    if normalisation != "none" or bounds is None:
        return final
    d, largest = features.shape[1], max(map(abs, bounds))
    return scaling.Normalised(final.features, d * largest, math.sqrt(d) * largest)


def _why_not_exchangeable(dataset: Dataset, aside: IntArray, by_columns: bool, is_thinned: bool) -> str:
    """Return the reason why train and held-out records are not exchangeable, or "" if they are."""
    if not aside.size:
        return "No record is held out."
    if dataset.own_test:
        return "The held-out records are the test set of the data, and may have another distribution."
    if by_columns and not dataset.test_is_independent:
        return "A column selects the held-out records, which need not be random."
    if is_thinned:
        return "The construction thins the classes of train records only."
    return ""
