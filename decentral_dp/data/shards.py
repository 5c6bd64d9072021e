"""A scenario's records, dealt out: the data that a run works on, and their public description."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from decentral_dp.data import scaling
from decentral_dp.data.columns import ColumnRules, Columns, encode_features, with_rules
from decentral_dp.data.dataset import Dataset, FloatArray, IntArray, Label
from decentral_dp.data.partition import (
    DEAL_NOTE,
    FUNCTION_NOTE,
    Roles,
    cut_roles,
    deals_by_label,
    partition,
    partition_roles,
    select_test,
    split_shards,
    values_by_column,
)
from decentral_dp.data.synthetic import construct
from decentral_dp.errors import InputError


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
        roles = Roles(*(role[np.isin(role, dealt)] for role in cut))
        parts = partition_roles(dataset, n_agents, partition_spec, seed, roles, levels)
    else:
        shards = partition(dataset, n_agents, partition_spec, seed, among=dealt)
        parts = split_shards(dataset, shards, validation=validation, test=test, seed=seed, levels=levels)
    labels_cut = 0.0
    if label_range is not None:
        raw, dataset = dataset.labels, scaling.scale_labels(dataset, label_range)
        labels_cut = float(np.mean((raw < label_range[0]) | (raw > label_range[1])))
    scaled = scaling.scale(dataset, scale_spec)
    # Of records that are not drawn the bounds are all that counts.
    final = bound_norms(scaled if dataset.has_records else scaled.head(1), normalisation)
    return Shards(
        final.features if dataset.has_records else dataset.features,
        dataset.labels,
        dataset.classes,
        dataset.feature_names,
        dataset.source,
        parts.train,
        parts.validation,
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
    scaled = bound_norms(scaling.scale(raw, scale_spec), normalisation).features
    return scaled, scaling.shares_cut(raw, scale_spec)


def bound_norms(scaled: Dataset, normalisation: scaling.Normalisation) -> scaling.Normalised:
    """Normalise scaled records, each by itself; where that is "none", declared bounds on features bound their norms."""
    final = scaling.normalise(scaled.features, normalisation)
    if normalisation != "none" or scaled.bounds is None:
        return final
    d, largest = scaled.features.shape[1], max(abs(bound) for bound in scaled.bounds)
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
