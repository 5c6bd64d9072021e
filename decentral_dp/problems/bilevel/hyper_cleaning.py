"""Data hyper-cleaning: learn a weight for each group of train records."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.data.dataset import public_generator
from decentral_dp.files.tables import Count
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import Intercept, Ridge, Ridged, SoftmaxProblem, class_residual, class_shares
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.problems.protocol import Terms, matrices_read

READS_RECORDS: Mapping[str, Split] = MappingProxyType(
    {"lower_grad_y": "train", "lower_hvp": "train", "lower_jvp": "train", "upper_grad_y": "validation"}
)
NO_GROUP = -1
# Labels of a corrupted group.
Corruption = Literal["random", "shifted"]


class CleaningRecords(NamedTuple):
    """Records: `features` (N, d), class `label` (N,), norms `l1`, `l2` (N,), and index `group` (N,) or NO_GROUP."""

    features: Array
    label: NDArray[np.int64]
    l1: Array
    l2: Array
    group: NDArray[np.int64]


@dataclass(frozen=True)
class HyperCleaning(Ridged, SoftmaxProblem):
    """Lower level: weighted cross-entropy on train records; upper level: cross-entropy on clean validation records.

        l(x, y; a, b) = σ(x_g) CE(y; a, b),     h(y; a, b) = CE(y; a, b),     R(y) = ½ ridge ‖y‖²

    with CE(y; a, b) = log Σ_r exp(Y_r a) − Y_b a, Y = y as a (c, d) matrix, s = softmax(Ya), σ(t) = 1/(1 + exp(−t)):

        ∇_y l = σ(x_g)(s − e_b) aᵀ     ∇²_yy l·z = σ(x_g)(diag(s) − ssᵀ)(Za) aᵀ     ∇²_xy l·z = σ'(x_g)⟨s − e_b, Za⟩ e_g
        ∇_x l = σ'(x_g) CE(y; a, b) e_g

    A group is a block of consecutive train records of one agent: record k of the n of agent i is in group
    i·groups + ⌊k·groups/n⌋. The group depends only on the agent and index of the record. Both are public, and a
    replaced record keeps them. So x has p = agents × groups coordinates, and a record affects one of them. Validation
    and test records are in no group, and their weight is 1.

    Every label in round(corrupt·p) of the groups is replaced, by a random class ("random") or by the next class
    ("shifted"). The groups and the random labels depend only on the seed: public randomness per index, not per record.
    With ridge > 0 the lower level is strongly convex even if all weights vanish. q = c·d.

    Args:
        agents: number of agents.
        groups: number of groups of each agent.
        corrupt: share of the groups with replaced labels.
        corruption: kind of replacement.
    """

    name: ClassVar[str] = "hyper_cleaning"
    reads_records: ClassVar[Mapping[str, Split]] = READS_RECORDS

    agents: int
    groups: Annotated[Count, Doc("Groups of train records of each agent that share one weight; 1 if left out.")] = 1
    ridge: Ridge = 0.01
    corrupt: Annotated[
        float,
        Field(ge=0, le=1),
        Doc("Share of all groups whose labels are replaced at random, from 0 to 1; 0 if left out."),
    ] = 0.0
    corruption: Annotated[
        Corruption,
        Doc(
            'Labels in corrupted groups: "random", drawn at random, the default; "shifted", the class after the right '
            "one, after the last the first."
        ),
    ] = "random"
    seed: int = 0
    intercept: Intercept = False

    @property
    def p(self) -> int:
        return self.agents * self.groups

    @cached_property
    def corrupted_groups(self) -> NDArray[np.bool_]:
        """Mask of groups with replaced labels, (p,)."""
        chosen = np.zeros(self.p, dtype=np.bool_)
        order = public_generator(self.seed, "corrupted groups").permutation(self.p)
        chosen[order[: math.floor(self.corrupt * self.p + 0.5)]] = True
        return chosen

    def prepare(self, features: Array, labels: Array, norm: Norm) -> CleaningRecords:
        """Prepare validation and test records, which are in no group. Raises InputError.

        See `Problem.prepare` for the arguments.
        """
        rows = linear.as_features(features, labels, self.n_features, self.intercept)
        label = linear.class_index(labels, self.classes)
        return CleaningRecords(rows, label, *linear.feature_norms(rows), np.full(len(label), NO_GROUP, dtype=np.int64))

    def place_records(self, records: CleaningRecords, agent: int) -> CleaningRecords:
        """Return all train records of one agent in their groups, with the labels of corrupted groups replaced."""
        n = len(records.label)
        group = agent * self.groups + np.arange(n) * self.groups // max(n, 1)
        c = len(self.classes)
        if self.corruption == "shifted":
            wrong = (records.label + 1) % c
        else:
            wrong = public_generator(self.seed, "corrupted labels", agent).integers(c, size=n)
        label = np.where(self.corrupted_groups[group], wrong, records.label)
        return records._replace(label=label, group=group)

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: CleaningRecords, clip: Clip, term_names: Collection[str]
    ) -> Terms:
        if "upper_grad_y" in term_names:
            return super().stacked_terms(x, y, z, records, clip, term_names)
        c, d, g, n = len(self.classes), self.width, len(y), max(records.label.shape[1], 1)
        points = np.concatenate([y, z], axis=1).reshape(g, 2 * c, d)
        norms, member = linear.norms_of(records, clip), np.arange(g)[:, None]
        grad, hvp, jvp = np.zeros((g, c, d)), np.zeros((g, c, d)), np.zeros((g, self.p + 1))
        weight, slope = group_weights(x)
        with np.errstate(all="ignore"):
            for agents, part in linear.tiles(*records.features.shape):
                a, size, group = records.features[agents, part], norms[agents, part], records.group[agents, part]
                agent_and_group = (member[agents], group)
                products = np.matmul(points[agents], a.swapaxes(1, 2))
                share, along = class_shares(products[:, :c]), products[:, c:]
                weight_column = weight[agent_and_group][:, None]
                if not {"lower_grad_y", "lower_jvp"}.isdisjoint(term_names):
                    residual = class_residual(share, records.label[agents, part])
                if "lower_jvp" in term_names:
                    through = slope[agent_and_group] * (residual * along).sum(axis=1)
                    # The last entry is for records in no group.
                    np.add.at(jvp, agent_and_group, linear.clip_coefficients(through, np.ones(group.shape), clip.x))
                if "lower_grad_y" in term_names:
                    grad[agents] += np.matmul(linear.clip_columns(residual * weight_column, size, clip.norm, clip.y), a)
                if "lower_hvp" not in term_names:
                    continue
                scaled_direction = along * share
                scaled_direction -= share * scaled_direction.sum(axis=1, keepdims=True)
                hvp[agents] += np.matmul(
                    linear.clip_columns(scaled_direction * weight_column, size, clip.norm, clip.z), a
                )
        means = {"lower_grad_y": grad.reshape(g, -1), "lower_hvp": hvp.reshape(g, -1), "lower_jvp": jvp[:, :-1]}
        return Terms(**{name: total / n for name, total in means.items() if name in term_names})

    def change(self, x: Array, y: Array, other_y: Array, train: CleaningRecords, clip: Clip) -> Array:
        """Average ∇_x l(x, y) − ∇_x l(x, other) = σ'(x_g)(CE(y) − CE(other)) e_g, clipped per record to clip.x."""
        total, slope = np.zeros(self.p + 1), group_weights(x)[1]
        with np.errstate(all="ignore"):
            for part in linear.blocks(*train.features.shape):
                here, there = self.record_losses(np.stack([y, other_y]), train, part)
                sensitivity = slope[train.group[part]] * (here - there)
                np.add.at(
                    total, train.group[part], linear.clip_coefficients(sensitivity, np.ones(len(sensitivity)), clip.x)
                )
        return total[:-1] / max(len(train.label), 1)

    def matrices(
        self,
        x: Array,
        y: Array,
        matrix: Array | None,
        train: CleaningRecords,
        clip: Clip,
        matrix_names: Collection[str],
    ) -> dict[str, Array]:
        """Average ∇²_yy l = σ(x_g)(diag(s) − ssᵀ) ⊗ aaᵀ, and ∇²_xy l, which is σ'(x_g)(s − e_b) aᵀ in row g.

        See `Problem.matrices` for the arguments.
        """
        names, norms = matrices_read(matrix_names, READS_RECORDS), linear.norms_of(train, clip)
        rows, (weight, slope) = y.reshape(len(self.classes), -1), group_weights(x)

        def curvature(part: slice) -> Array:
            return self.curvature(y, train, part) * weight[train.group[part]]

        hessian_names = [name for name in names if name != "lower_jacobian"]
        out = linear.curved_sums(train.features, norms, curvature, matrix, clip, hessian_names)
        if "lower_jacobian" in names:
            total = np.zeros((self.p + 1, *rows.shape))
            with np.errstate(all="ignore"):
                for part in linear.blocks(*train.features.shape):
                    a, group = train.features[part], train.group[part]
                    residual = class_residual(class_shares(rows @ a.T), train.label[part])
                    residual = linear.bounded_columns(residual * slope[group], norms[part], clip.norm, clip.x)
                    unit = linear.unit_rows(a, norms[part])
                    for g in np.unique(group):
                        total[g] += residual[:, group == g] @ unit[group == g]
            out["lower_jacobian"] = total[:-1].reshape(self.p, self.q) / len(train.label)
        return out

    def losses(self, x: Array, y: Array, records: CleaningRecords, weights: Array) -> tuple[Array, Array]:
        lower, upper = np.zeros(len(y)), np.zeros(len(y))
        weight = np.concatenate([scipy.special.expit(x), np.ones((len(x), 1))], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(weights), max(self.width, y.size // self.width)):
                loss = self.record_losses(y, records, part)
                upper += loss @ weights[part]
                lower += (loss * weight[:, records.group[part]]) @ weights[part]
        return lower, upper

    def scores(self, x: Array, y: Array) -> dict[str, Array]:
        """Return weight_corrupted and weight_clean, the means of σ(x_g) over such groups, if both kinds of group exist.

        Each has shape (b,) for x (b, p) and y (b, q).
        """
        weight, bad = scipy.special.expit(x), self.corrupted_groups
        if bad.all() or not bad.any():
            return {}
        return {"weight_corrupted": weight[:, bad].mean(axis=1), "weight_clean": weight[:, ~bad].mean(axis=1)}


def group_weights(x: Array) -> tuple[Array, Array]:
    """Return σ(x_g) and σ'(x_g), (…, p + 1). The last entry is for records in no group."""
    with np.errstate(invalid="ignore"):
        weight = scipy.special.expit(x)
        last = np.ones((*x.shape[:-1], 1))
        slope = weight * scipy.special.expit(-x)
        return np.concatenate([weight, last], axis=-1), np.concatenate([slope, 0.0 * last], axis=-1)


ENTRY = ProblemEntry(
    "hyper_cleaning",
    HyperCleaning,
    "one weight per group of train records, some of which have their labels replaced",
    task="weighed their records against clean ones",
    lower_task="trained a classifier",
    labels="classes",
)
