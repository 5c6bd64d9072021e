"""Decentralised meta-learning: a shared embedding, and a last layer for each task.

Tasks are subsets of the classes. With T tasks of w classes each, Y_τ (w, e + 1) the last layer of task τ and
φ̃ = (φ, 1) a record's embedding, a record of class b has the loss

    l = Σ_τ s_bτ·CE(softmax(Y_τ φ̃), place of b in τ),  s_bτ = 1/(number of tasks with b) or 0.

Per-record values are columns, (T·w, n). y is Y_1, …, Y_T row after row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.files.tables import Count
from decentral_dp.models import linear_terms as linear
from decentral_dp.models.protocol import Image, Slope
from decentral_dp.privacy.clipping import Clip, clipped_sum
from decentral_dp.problems.bilevel.linear import Ridge, Ridged, class_curvature, class_shares
from decentral_dp.problems.bilevel.losses import slices
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem, Terms, matrices_read
from decentral_dp.problems.records import take

USUAL_WAYS = 5


@dataclass(frozen=True)
class Tasks:
    """Tasks of meta-learning.

    Args:
        members: classes of each task, in increasing order and equal in number.
        n_classes: number of classes of the data.
    """

    members: tuple[tuple[int, ...], ...]
    n_classes: int

    @property
    def ways(self) -> int:
        return len(self.members[0])

    @cached_property
    def share(self) -> Array:
        """Weights s, (n_classes, T)."""
        belongs = np.array([[c in task for task in self.members] for c in range(self.n_classes)], dtype=np.float64)
        return np.asarray(belongs / np.maximum(belongs.sum(axis=1, keepdims=True), 1.0))

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Index of each class in each task, (n_classes, T), or 0 if it is not in the task."""
        return np.array([[t.index(c) if c in t else 0 for t in self.members] for c in range(self.n_classes)])

    def per_task(self, columns: Array) -> Array:
        """Reshape (T·w, n) to (T, w, n)."""
        return columns.reshape(len(self.members), self.ways, -1)

    def residual(self, scores: Array, label: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return softmax and s_bτ·(softmax − unit vector of the class), both (T, w, n), from scores (T·w, n)."""
        chances = class_shares(self.per_task(scores))
        residual = chances.copy()
        task, record = np.ogrid[: len(self.members), : len(label)]
        residual[task, self.place[label].T, record] -= 1.0
        residual *= self.share[label].T[:, None]
        return chances, residual

    def slope(self, chances: Array, along: Array, label: NDArray[np.int64]) -> Array:
        """Return s_bτ·(diag(p) − ppᵀ)·u per task, (T, w, n), for probabilities p (T, w, n) and u (T·w, n)."""
        slope = self.per_task(along) * chances
        slope -= chances * slope.sum(axis=1, keepdims=True)
        slope *= self.share[label].T[:, None]
        return np.asarray(slope)

    def curvature(self, scores: Array, label: NDArray[np.int64]) -> Array:
        """Return s_bτ·(diag(p) − ppᵀ) in blocks along the diagonal, (T·w, T·w, n)."""
        out, w = np.zeros((len(scores), len(scores), scores.shape[1])), self.ways
        for task, p in enumerate(class_shares(self.per_task(scores))):
            out[task * w : task * w + w, task * w : task * w + w] = class_curvature(p) * self.share[label, task]
        return out

    def loss(self, scores: Array, label: NDArray[np.int64]) -> Array:
        """Return l per record, (n,)."""
        s = self.per_task(scores)
        s = s - s.max(axis=1, keepdims=True)
        task, record = np.ogrid[: len(self.members), : len(label)]
        entropy = np.log(np.exp(s).sum(axis=1)) - s[task, self.place[label].T, record]
        share = self.share[label].T
        # A task without the class of a record contributes 0, even if its scores are not finite.
        return np.asarray(np.where(share > 0.0, entropy * share, 0.0).sum(axis=0))

    def right(self, scores: Array, label: NDArray[np.int64]) -> Array:
        """Return 1 where the record's class has the largest score of a task, 1/k if k tie, and 0 otherwise, (T, n)."""
        s = self.per_task(scores)
        best = s == s.max(axis=1, keepdims=True)
        task, record = np.ogrid[: len(self.members), : len(label)]
        # NaN scores have no maximum; the 1 avoids 0/0.
        hit = best[task, self.place[label].T, record] / np.maximum(best.sum(axis=1), 1)
        return np.asarray(hit * (self.share[label].T > 0.0))


def draw_tasks(tasks: int | None, ways: int | None, n_classes: int, seed: int) -> Tasks:
    """Draw the tasks of a scenario, from public numbers only.

    Tasks take classes in random order, in repeated passes, so the numbers of tasks per class differ by at most one.

    Args:
        tasks: number of tasks. None means the number that covers all classes.
        ways: number of classes of each task. None means 5, or all classes if there are fewer.
        n_classes: number of classes of the data.
        seed: public seed.

    Returns:
        The tasks.

    Raises:
        InputError: the number of classes does not allow `ways`.
    """
    w = min(USUAL_WAYS, n_classes) if ways is None else ways
    if not 2 <= w <= n_classes:
        raise InputError(f"problem.ways: out of range (got {w}, expected 2 to {n_classes}, the number of classes).")
    count = -(-n_classes // w) if tasks is None else tasks
    draw, members, remainder = public_generator(seed, "tasks"), [], np.zeros(0, dtype=np.int64)
    for _ in range(count):
        task, remainder = remainder[:w], remainder[w:]
        if len(task) < w:
            fresh = draw.permutation(n_classes)
            # Classes that this task already has come last in the new pass.
            fresh = np.concatenate([fresh[~np.isin(fresh, task)], fresh[np.isin(fresh, task)]])
            missing = w - len(task)
            task, remainder = np.concatenate([task, fresh[:missing]]), fresh[missing:]
        members.append(tuple(int(c) for c in np.sort(task)))
    return Tasks(tuple(members), n_classes)


READS_RECORDS: Mapping[str, Split] = MappingProxyType(
    {term: "train" if term.startswith("lower_") else "validation" for term in TERMS}
)

USUAL_RIDGE = 0.01
USUAL_WIDTH = 8


class MetaRecords(NamedTuple):
    """Records: `features` (N, d) and class indices `label` (N,)."""

    features: Array
    label: NDArray[np.int64]


class Embedded(NamedTuple):
    """Records embedded by the network at one x, for the lower level: embedding (N, e) and label (N,)."""

    embedding: Array
    label: NDArray[np.int64]


if TYPE_CHECKING:
    # At run time torch is imported where it is used.
    from decentral_dp.models.module import TorchModel


@dataclass(frozen=True)
class MetaLearning(Ridged, Problem):
    """Meta-learning: x are all layers of a network except the last, y the last layers of T tasks of w classes each.

        lower level   y*(x) = argmin_y  mean over train records of l(x, y; a, b) + (ridge/2)‖y‖²
        upper level   min_x  mean over validation records of h(x, y*(x); a, b),       h = l
        l(x, y; a, b) = Σ_τ s_bτ·CE(Y_τ φ̃, place of b in task τ),      φ̃ = (φ_x(a), 1)

    A record belongs to all tasks that contain its class, and its loss is the mean over these tasks (s_bτ = 1/number of
    tasks). A record that belongs to none has loss 0. Means are over all of an agent's records, whose number is public.
    A mean over the records of one task would divide by a count of labels. The ridge reads no record and makes the lower
    level strongly convex. With p = softmax(Y_τ φ̃), u = Z_τ φ̃ and the unit vector e_b of the place of b, summed over τ
    with s_bτ:

        ∇_y l = (p − e_b) φ̃ᵀ,         ∇²_yy l·z = (diag(p) − ppᵀ) u φ̃ᵀ,          ∇_x h = Jᵀ Yᵀ(p − e_b),
        ∇²_xy l·z = ∇_x⟨∇_y l, z⟩ = Jᵀ(Yᵀ(diag(p) − ppᵀ)u + Zᵀ(p − e_b)),         J = ∂φ/∂x.

    So terms in y need no derivative of the network, and each term in x is one backward pass. All five terms read
    records. Each is clipped per record as a whole, over all layers and tasks.

    p = weights of the network, q = T·w·(e + 1). `start` is random and public, since from a constant start all channels
    of a layer would stay equal.

    Reference: Chen & Wang, ICML 2024, Section 5.2, Equation (13); R(y) = (ridge/2)‖y‖².
    """

    name: ClassVar[str] = "meta_learning"
    reads_records: ClassVar[Mapping[str, Split]] = READS_RECORDS

    network: TorchModel
    n_features: int
    tasks: Tasks
    ridge: float = USUAL_RIDGE

    @classmethod
    def from_dataset(
        cls,
        n_features: int,
        n_classes: int,
        image: Image | None = None,
        tasks: Annotated[Count, Doc("Number of tasks; the number that covers all classes if left out.")] | None = None,
        ways: Annotated[int, Field(ge=2), Doc("Classes of each task.")] | None = None,
        width: Annotated[
            Count, Doc("Channels of every convolutional block, or hidden units if records are no images.")
        ] = USUAL_WIDTH,
        ridge: Ridge = USUAL_RIDGE,
        seed: int = 0,
    ) -> Self:
        """Build the problem for records of this shape.

        Args:
            n_features: number of columns of the records.
            n_classes: number of classes of their labels.
            image: shape (height, width, channels) of image records. None (the default) is for other records, and gives
                one hidden layer.
            tasks, ways: numbers of tasks and of their classes, as in `draw_tasks`.
            width: number of channels per block, or of hidden units, at least 1.
            ridge: strength of R, above 0.
            seed: public seed of the start and the tasks.

        Returns:
            The problem.

        Raises:
            InputError: the number of classes does not allow `ways`.
        """
        from decentral_dp.models import networks

        if image is not None and min(image[:2]) >= 2:
            module = networks.embedding_network(image, width, seed)
        else:
            module = networks.hidden_layer(n_features, width, seed)
        network = networks.network_model(module, n_features)
        return cls(network, n_features, draw_tasks(tasks, ways, n_classes, seed), ridge)

    @property
    def p(self) -> int:
        return self.network.p

    @property
    def q(self) -> int:
        return len(self.tasks.members) * self.tasks.ways * (self.network.outputs + 1)

    @cached_property
    def start(self) -> Mapping[str, Array]:
        """Public random initial weights (d,) of each channel, which are added to the scenario's constants."""
        return {"x": self.network.start}

    def prepare(self, features: Array, labels: Array, norm: Norm) -> MetaRecords:
        """Prepare records. Raises InputError on a wrong shape or label."""
        rows = linear.as_features(features, labels, self.n_features, intercept=False)
        return MetaRecords(rows, linear.class_index(labels, range(self.tasks.n_classes)))

    def embed(self, x: Array, records: MetaRecords) -> Embedded:
        """Embed records at a fixed x (p,). `terms` accepts them instead of records, without the terms in x."""
        with np.errstate(all="ignore"):
            parts = [self.network.forward(x, records.features[part], keep=False)[0] for part in self._chunks(records)]
        return Embedded(np.concatenate(parts), records.label)

    def terms(
        self,
        x: Array,
        y: Array,
        z: Array,
        train: MetaRecords | Embedded,
        validation: MetaRecords | Embedded,
        clip: Clip,
        term_names: Collection[str] = TERMS,
    ) -> Terms:
        heads = np.stack([y, z]).reshape(2, -1, self.network.outputs + 1)
        means: dict[str, Array] = {}
        for split, prefix in ((train, "lower_"), (validation, "upper_")):
            # A split that no requested term reads has no part in the means.
            is_read = any(term.startswith(prefix) for term in term_names)
            records = split if is_read else take(split, slice(0))
            deep = term_names if isinstance(records, MetaRecords) else ()
            names = [t for t in TERMS if t.startswith(prefix) and (CLIP_OF_TERM[t] != "x" or t in deep)]
            sums = {t: np.zeros(self.p if CLIP_OF_TERM[t] == "x" else self.q) for t in names}
            with np.errstate(all="ignore"):
                for part in self._chunks(records):
                    self._add(sums, x, heads, records, part, clip)
            means |= {t: total / max(len(records.label), 1) for t, total in sums.items()}
        return Terms(**means)

    def _add(
        self, sums: dict[str, Array], x: Array, heads: Array, records: MetaRecords | Embedded, part: slice, clip: Clip
    ) -> None:
        """Add the clipped contributions of some records to the requested sums.

        `heads` has the last layers of all tasks as y and as z, (2, T·w, e + 1).
        """
        head, along = heads
        label = records.label[part]
        tape: Any = None
        if isinstance(records, Embedded):
            phi = records.embedding[part]
        else:
            phi, tape = self.network.forward(x, records.features[part], "lower_jvp" in sums or "upper_grad_x" in sums)
        phi, norms = _finite(phi, clip.norm)
        chances, residual = self.tasks.residual(head @ phi.T, label)
        residual, upstream = residual.reshape(len(head), -1), head[:, :-1]

        def add_sum(term: str, cotangents: Array, bound: float) -> None:
            if term in sums:
                sums[term] += clipped_sum(self.network.rows(Slope(tape, cotangents)), bound, clip.norm)

        add_sum("upper_grad_x", residual.T @ upstream, clip.x)
        if "lower_hvp" in sums:
            slope = self.tasks.slope(chances, along @ phi.T, label).reshape(len(head), -1)
            add_sum("lower_jvp", slope.T @ upstream + residual.T @ along[:, :-1], clip.x)
            sums["lower_hvp"] += (linear.clip_columns(slope, norms, clip.norm, clip.z) @ phi).ravel()
        # This comes last, since clipping scales the residual in place.
        term, bound = ("lower_grad_y", clip.y) if "lower_grad_y" in sums else ("upper_grad_y", clip.z)
        sums[term] += (linear.clip_columns(residual, norms, clip.norm, bound) @ phi).ravel()

    def _chunks(self, records: MetaRecords | Embedded) -> list[slice]:
        return list(slices(len(records.label), self.network.cells + self.p + self.q))

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: MetaRecords, clip: Clip, matrix_names: Collection[str]
    ) -> dict[str, Array]:
        """Average ∇²_yy l = (diag(p) − ppᵀ) ⊗ φ̃φ̃ᵀ, block by block; ∇²_xy l takes a backward pass per column.

        See `Problem.matrices` for the arguments.
        """
        names = matrices_read(matrix_names, READS_RECORDS)
        sums: dict[str, Array] = {}
        phi, norms = _finite(self.embed(x, train).embedding, clip.norm)
        head = y.reshape(-1, phi.shape[1])
        if below := [name for name in names if name != "lower_jacobian"]:
            sums = linear.curved_sums(
                phi,
                norms,
                lambda part: self.tasks.curvature(head @ phi[part].T, train.label[part]),
                matrix,
                clip,
                below,
            )
        if "lower_jacobian" in names:
            total = np.zeros((self.p, self.q))
            with np.errstate(all="ignore"):
                for part in slices(len(train.label), self.network.cells + self.p * self.q):
                    total += self._jacobian(x, head, take(train, part), clip)
            sums["lower_jacobian"] = total / len(train.label)
        return sums

    def _jacobian(self, x: Array, head: Array, records: MetaRecords, clip: Clip) -> Array:
        """Return Σ_k clip(∇²_xy l_k), (p, q)."""
        phi, tape = self.network.forward(x, records.features)
        phi, _ = _finite(phi, clip.norm)
        chances, residual = self.tasks.residual(head @ phi.T, records.label)
        residual = residual.reshape(len(head), -1)
        columns = np.empty((len(phi), self.p, self.q))
        for column in range(self.q):
            z = np.zeros((len(head), phi.shape[1]))
            z.flat[column] = 1.0
            slope = self.tasks.slope(chances, z @ phi.T, records.label).reshape(len(head), -1)
            cotangents = slope.T @ head[:, :-1] + residual.T @ z[:, :-1]
            columns[:, :, column] = self.network.rows(Slope(tape, cotangents))
        return clipped_sum(columns.reshape(len(phi), -1), clip.x, clip.norm).reshape(self.p, self.q)

    def losses(self, x: Array, y: Array, records: MetaRecords, weights: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(y))
        with np.errstate(all="ignore"):
            for row in range(len(y)):
                for part in self._chunks(records):
                    scores, label = self._scores(x[row], y[row], records, part)
                    mean[row] += self.tasks.loss(scores, label) @ weights[part]
        return mean, mean.copy()

    def accuracy(self, x: Array, y: Array, records: MetaRecords) -> Array:
        """Return the mean over tasks of the share of records whose class has the largest score within the task.

        Tasks without records are left out. The result is NaN if no task has records.

        See `Problem.accuracy` for the arguments.
        """
        asked_of = (self.tasks.share[records.label] > 0.0).sum(axis=0)
        right = np.zeros((len(y), len(asked_of)))
        with np.errstate(all="ignore"):
            for row in range(len(y)):
                for part in self._chunks(records):
                    right[row] += self.tasks.right(*self._scores(x[row], y[row], records, part)).sum(axis=1)
            some = asked_of > 0
            return np.asarray((right[:, some] / asked_of[some]).sum(axis=1) / some.sum())

    def probabilities(self, x: Array, y: Array, records: MetaRecords) -> list[tuple[Array, NDArray[np.int64]]]:
        """Return class probabilities within each task, for the records of its classes."""
        with np.errstate(all="ignore"):
            parts = [self._scores(x, y, records, part)[0] for part in self._chunks(records)]
            shares = class_shares(self.tasks.per_task(np.concatenate(parts, axis=1)))
        belongs = self.tasks.share[records.label].T > 0.0
        places = self.tasks.place[records.label].T
        return [
            (share[:, members].T, place[members]) for share, place, members in zip(shares, places, belongs, strict=True)
        ]

    def _scores(self, x: Array, y: Array, records: MetaRecords, part: slice) -> tuple[Array, NDArray[np.int64]]:
        """Return the scores of some records, (T·w, n), and their labels."""
        phi, _ = self.network.forward(x, records.features[part], keep=False)
        return y.reshape(-1, phi.shape[1] + 1) @ linear.with_intercept(phi).T, records.label[part]


def _finite(phi: Array, norm: Norm) -> tuple[Array, Array]:
    """Return φ̃ (n, e + 1) and its norms (n,). A non-finite embedding gives zeros, including the constant feature."""
    parameters = linear.with_intercept(phi)
    parameters[~np.isfinite(phi).all(axis=1)] = 0.0
    return parameters, linear.feature_norms(parameters)[0 if norm == "l1" else 1]


ENTRY = ProblemEntry(
    "meta_learning",
    MetaLearning.from_dataset,
    "a small shared network, and a last layer for each task; the classes of a task are public",
    task="learned a representation that their tasks share",
    lower_task="trained heads on a given representation",
    labels="classes",
)
