"""Records of agents: which are for testing, who holds which, their train and validation parts, and their scaling.

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
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from decentral_dp.data import scaling
from decentral_dp.data.columns import ColumnRules, Columns, encode_features, with_rules
from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, Label, public_generator, refuse_rows
from decentral_dp.data.synthetic import construct
from decentral_dp.errors import InputError

# Per agent, the indices of its train and of its validation records: disjoint, each in file order, none empty.
AgentParts: TypeAlias = tuple[tuple[IntArray, ...], tuple[IntArray, ...]]


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
) -> tuple[IntArray, IntArray]:
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
        return among, among[:0]
    if values_by_column(dataset, validation, test):
        words = np.asarray(dataset.split)[among]
        return among[words == "train"], among[words == "validation"]
    share = validation if isinstance(validation, float | int) else 0.5
    chosen = np.zeros(among.size, dtype=np.bool_)
    key = () if agent is None else (agent,)
    order = public_generator(seed, "validation", *key).permutation(among.size)
    chosen[order[: math.floor(share * among.size + 0.5)]] = True
    return among[~chosen], among[chosen]


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
    return tuple(train for train, _ in parts), tuple(held for _, held in parts)


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
    return _by_rule(dataset, n_agents, spec, seed, index, index)


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
    roles: tuple[IntArray, IntArray],
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
        places = np.arange(dataset.n)
        parts = [_by_rule(dataset, n_agents, spec, seed, role, places) for role in roles]
    for i, (lower, upper) in enumerate(zip(*parts, strict=True)):
        check_parts(i, lower, upper, levels)
    return tuple(parts[0]), tuple(parts[1])


def _by_rule(
    dataset: Dataset, n_agents: int, spec: str | Mapping[str, Any] | None, seed: int, index: IntArray, places: IntArray
) -> list[IntArray]:
    """Per agent, its records of `index`. places: what the public order of "iid" is drawn of; it has all of `index`."""
    rule = spec if spec is not None else "iid" if dataset.agent is None else "column"
    options: Mapping[str, Any] = {"kind": rule} if isinstance(rule, str) else rule
    kind = options["kind"]
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


@dataclass(frozen=True, eq=False)
class Shards:
    """Records after scaling, and who holds which.

    features: (n, d). labels: (n,) class indices, or numbers where `classes` is empty. train, validation: per agent, the
    indices of its records in the order in which a stream reads them. test: held-out indices, nobody's.
    l1, l2: bounds on ‖a‖₁ and ‖a‖₂ of every possible record; None where nothing bounds them.
    image: (height, width, channels) where records are pictures, channel by channel as in `Dataset`. notes: sentences
    that belong beside every result on these records.
    exchangeable: whether which records are held out was drawn evenly at random from all, so that a held-out record and
    a train record are alike before anything is trained; else why_not_exchangeable says in a sentence why.
    trajectory: (L, d) where records are trajectories, laid out as in `Dataset`. deal_assumption: a sentence on what of
    the deal the guarantee takes as given, where labels decided on it; else "". digest: of the records as loaded, as in
    `Dataset`. label_range: the public (low, high) that labels are scaled from, to [−1, 1]; None where nothing is
    scaled. labels_cut: the share of all records whose labels lie outside it; it reads records. by_owner: whether the
    data's own column says who holds what, though nobody asked for it. is_elsewhere: whether the records are with their
    agents, and features and labels of the right shapes are not numbers. has_records: whether there are records at all:
    a plan of made-up ones needs none, and features and labels are zeros of the right shapes. features_cut: feature →
    share of its values in all records that lie outside the declared ranges, where there are any; it reads records.
    bounds: (low, high) of every feature before it was scaled, where that is declared as in `Dataset`.
    placeholders: a sentence on ranges that are still to be filled in; else "".
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
    why_not_exchangeable: str = "Nothing says how the held-out records were chosen."
    trajectory: tuple[int, int] | None = None
    deal_assumption: str = ""
    digest: bytes = b""
    label_range: tuple[float, float] | None = None
    labels_cut: float = 0.0
    by_owner: bool = False
    is_elsewhere: bool = False
    has_records: bool = True
    features_cut: Mapping[str, float] = field(default_factory=dict)
    placeholders: str = ""
    bounds: tuple[float, float] | None = None

    def __repr__(self) -> str:
        # Records are private, and many.
        n, d = self.features.shape
        return f"<Shards {self.source!r}: {n} records, {d} features, {len(self.train)} agents>"

    @property
    def all_notes(self) -> tuple[str, ...]:
        """`notes`, `deal_assumption` and `placeholders` where there is something to say."""
        return (*self.notes, *(said for said in (self.deal_assumption, self.placeholders) if said))

    @property
    def label_unit(self) -> float | None:
        """What a difference of 1 between scaled labels is in their own unit; None where labels are classes.

        Example:
            >>> from dataclasses import replace
            >>> none = np.zeros(0, dtype=np.int64)
            >>> one = Shards(np.ones((1, 1)), np.ones(1), (), ("a",), "made up", (none,), (none,), none, None, None)
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
        """All records with one agent, in the order of those that held them."""
        train, validation = (np.concatenate(parts) for parts in (self.train, self.validation))
        return replace(self, train=(train,), validation=(validation,), by_owner=False)

    @property
    def train_counts(self) -> IntArray:
        """(m,) train records per agent."""
        return np.array([index.size for index in self.train], dtype=np.int64)

    @property
    def validation_counts(self) -> IntArray:
        """(m,) validation records per agent."""
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
) -> Shards:
    """Hold out test records, make others of the rest, deal them, divide train from validation, scale and normalise.

    Where labels decide who holds which record, train is divided from validation first, so that no label changes the
    role of another record (see `partition`).

    Args:
        dataset: the records as loaded.
        n_agents: how many agents there are.
        seed: the public one.
        partition_spec: `spec` of `partition`; default the owner column where the data have one, else "iid".
        validation: as of `split_shards`.
        test: as of `select_test`.
        scale_spec: `spec` of `scale`; default "none".
        normalisation: `kind` of `normalise`; default "none".
        levels: 1 where a problem has no validation records; default 2.
        construction: `table` of `construct`; None for the records as they are.
        label_range: public (low, high) of labels that are numbers, which become [−1, 1]; None leaves them as they are.

    Returns:
        The data that a run works on, and their public description.

    Raises:
        InputError: whatever one of these steps refuses.
    """
    if dataset.trajectory is not None and (scale_spec, normalisation) != ("none", "none"):
        key = "normalise" if scale_spec == "none" else "scale"
        raise InputError(
            f"problem.{key}: the records of {dataset.source!r} are trajectories, whose rewards it would change. "
            "Fix: leave it out, and scale the observations of a file beforehand, by public constants."
        )
    digest = dataset.digest
    aside = select_test(dataset, validation=validation, test=test, seed=seed)
    among = dealt = np.setdiff1d(np.arange(dataset.n), aside, assume_unique=True)
    if construction is not None:
        dataset, dealt = construct(dataset, construction, among, seed=seed)
    if n_agents > dealt.size:
        # Before lists of so many shards are made.
        raise InputError(
            f"topology.agents: {n_agents} agents cannot share {dealt.size} records. Fix: use fewer agents or more data."
        )
    why_not = _why_not_exchangeable(
        dataset, aside, values_by_column(dataset, validation, test), dealt.size < among.size
    )
    thinned, by_label = dealt.size < among.size, deals_by_label(partition_spec)
    if by_label or (thinned and levels == 2):
        cut = cut_roles(dataset, among, validation=validation, test=test, seed=seed, levels=levels)
        roles = cut[0][np.isin(cut[0], dealt)], cut[1][np.isin(cut[1], dealt)]
        train, held = partition_roles(dataset, n_agents, partition_spec, seed, roles, levels)
    else:
        shards = partition(dataset, n_agents, partition_spec, seed, among=dealt)
        train, held = split_shards(dataset, shards, validation=validation, test=test, seed=seed, levels=levels)
    labels_cut = 0.0
    if label_range is not None:
        raw, dataset = dataset.labels, scaling.scale_labels(dataset, label_range)
        labels_cut = float(np.mean((raw < label_range[0]) | (raw > label_range[1])))
    scaled = scaling.scale(dataset, scale_spec)
    # Of records that are not drawn the bounds are all that counts.
    final = bound_norms(scaled.features if dataset.has_records else scaled.features[:1], scaled.bounds, normalisation)
    return Shards(
        final.features if dataset.has_records else dataset.features,
        dataset.labels,
        dataset.classes,
        dataset.feature_names,
        dataset.source,
        train,
        held,
        aside,
        final.l1,
        final.l2,
        dataset.image,
        dataset.notes,
        not why_not,
        why_not,
        dataset.trajectory,
        (FUNCTION_NOTE if callable(partition_spec) else DEAL_NOTE) if by_label else "",
        digest,
        None if label_range is None else (float(label_range[0]), float(label_range[1])),
        labels_cut,
        by_owner=partition_spec is None and dataset.agent is not None,
        features_cut=scaling.shares_cut(dataset, scale_spec),
        placeholders=scaling.placeholder_sentence(scale_spec, label_range),
        has_records=dataset.has_records,
        bounds=dataset.bounds,
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
    where: str = "",
) -> tuple[FloatArray, dict[str, float]]:
    """The features of raw records as a model reads them: by rules, scaled and normalised as in `make_shards`.

    Args:
        columns: column → its cells, (n,), as `columns.cells_of` takes them of a DataFrame; labels and dropped columns
            need not be there.
        names: of the features, in the model's order.
        rules: [problem.columns].
        scale_spec: as of `scale`.
        normalisation: as of `normalise`.
        bounds: as of the `Dataset` that the model was trained on; what lies outside is cut.
        source: the name of the bundled data where scale_spec is "public_ranges".
        where: what messages call the records; `source` if left out.

    Returns:
        The features (n, d), each record by itself, and feature → the share of its values outside its declared range.

    Raises:
        InputError: a column is missing, or holds what no rule makes a number of.
    """
    features = encode_features(columns, names, rules, where or source)
    features = features if bounds is None else np.clip(features, *bounds)
    raw = with_rules(Dataset(features, np.zeros(len(features)), (), tuple(names), source, bounds=bounds), rules)
    scaled = scaling.scale(raw, scale_spec)
    return bound_norms(scaled.features, scaled.bounds, normalisation).features, scaling.shares_cut(raw, scale_spec)


def bound_norms(
    features: FloatArray, bounds: tuple[float, float] | None, normalisation: scaling.Normalisation
) -> scaling.Normalised:
    """Normalise scaled records, each by itself; where that is "none", declared bounds on features bound their norms."""
    final = scaling.normalise(features, normalisation)
    if normalisation != "none" or bounds is None:
        return final
    d, largest = features.shape[1], max(map(abs, bounds))
    return scaling.Normalised(final.features, d * largest, math.sqrt(d) * largest)


def _why_not_exchangeable(dataset: Dataset, aside: IntArray, by_columns: bool, thinned: bool) -> str:
    """Why held-out records and train records can be distinguished by more than chance; "" where they are not."""
    if not aside.size:
        return "No record is held out."
    if dataset.own_test:
        return "The held-out records are the data's own test set, and need not be drawn as the train records are."
    if by_columns and not dataset.test_is_independent:
        return "A column says which records are held out, and need not have been drawn at random."
    if thinned:
        return "The construction thins the classes of the train records and not those of the held-out ones."
    return ""
