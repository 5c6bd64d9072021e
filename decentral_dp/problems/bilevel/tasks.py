"""Classification tasks that are subsets of the classes: who belongs to which, and the softmax head of each.

With T tasks of w classes each, Y_τ (w, e + 1) the last layer of task τ and φ̃ = (φ, 1) a record's embedding, a record of
class b has the loss  l = Σ_τ s_bτ·CE(softmax(Y_τ φ̃), place of b in τ),  s_bτ = 1/(number of tasks with b) or 0.
Everything per record stands in columns, (T·w, n): y is Y_1, …, Y_T row after row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError

USUAL_WAYS = 5


@dataclass(frozen=True)
class Tasks:
    """members: per task, its classes in increasing order; all tasks have equally many. n_classes: of the data."""

    members: tuple[tuple[int, ...], ...]
    n_classes: int

    @property
    def ways(self) -> int:
        return len(self.members[0])

    @cached_property
    def share(self) -> Array:
        """s (n_classes, T)."""
        belongs = np.array([[c in task for task in self.members] for c in range(self.n_classes)], dtype=np.float64)
        return np.asarray(belongs / np.maximum(belongs.sum(axis=1, keepdims=True), 1.0))

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Place of each class in each task, (n_classes, T), 0 where it is not in it."""
        return np.array([[t.index(c) if c in t else 0 for t in self.members] for c in range(self.n_classes)])

    def per_task(self, columns: Array) -> Array:
        """(T·w, n) → (T, w, n)."""
        return columns.reshape(len(self.members), self.ways, -1)

    def residual(self, scores: Array, label: NDArray[np.int64]) -> tuple[Array, Array]:
        """(softmax, s_bτ·(softmax − unit vector of the place)), both (T, w, n), from scores (T·w, n)."""
        chances = _softmax(self.per_task(scores))
        residual = chances.copy()
        task, record = np.ogrid[: len(self.members), : len(label)]
        residual[task, self.place[label].T, record] -= 1.0
        residual *= self.share[label].T[:, None]
        return chances, residual

    def slope(self, chances: Array, along: Array, label: NDArray[np.int64]) -> Array:
        """s_bτ·(diag(p) − ppᵀ)·u per task, (T, w, n), for chances p (T, w, n) and u (T·w, n)."""
        slope = self.per_task(along) * chances
        slope -= chances * slope.sum(axis=1, keepdims=True)
        slope *= self.share[label].T[:, None]
        return np.asarray(slope)

    def curvature(self, scores: Array, label: NDArray[np.int64]) -> Array:
        """s_bτ·(diag(p) − ppᵀ) in blocks along the diagonal, (T·w, T·w, n)."""
        chances, w = _softmax(self.per_task(scores)), self.ways
        out = np.zeros((len(scores), len(scores), scores.shape[1]))
        for task, p in enumerate(chances):
            block = -p[:, None] * p
            diagonal = np.arange(w)
            # Rows sum to zero: p − p² would cancel near 1.
            block[diagonal, diagonal] = 0.0
            block[diagonal, diagonal] = -block.sum(axis=1)
            out[task * w : task * w + w, task * w : task * w + w] = block * self.share[label, task]
        return out

    def loss(self, scores: Array, label: NDArray[np.int64]) -> Array:
        """l per record, (n,)."""
        s = self.per_task(scores)
        s = s - s.max(axis=1, keepdims=True)
        task, record = np.ogrid[: len(self.members), : len(label)]
        entropy = np.log(np.exp(s).sum(axis=1)) - s[task, self.place[label].T, record]
        share = self.share[label].T
        # A record is not asked about a task without its class, whatever happens there.
        return np.asarray(np.where(share > 0.0, entropy * share, 0.0).sum(axis=0))

    def right(self, scores: Array, label: NDArray[np.int64]) -> Array:
        """Whether the record's class has the largest score of its task, (T, n): 1/k where k tie, 0 if in no task."""
        s = self.per_task(scores)
        best = s == s.max(axis=1, keepdims=True)
        task, record = np.ogrid[: len(self.members), : len(label)]
        # Scores that are not numbers have no largest one; the 1 keeps their 0/0 out.
        hit = best[task, self.place[label].T, record] / np.maximum(best.sum(axis=1), 1)
        return np.asarray(hit * (self.share[label].T > 0.0))


def _softmax(scores: Array) -> Array:
    """Along the second axis of (T, w, n). The largest score is taken off first: exp never overflows."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return np.asarray(chances)


def make_tasks(tasks: int | Sequence[Sequence[int]] | None, ways: int | None, n_classes: int, seed: int) -> Tasks:
    """Choose the tasks of a scenario, from public numbers only.

    Drawn tasks go pass after pass through the classes in random order, so that counts of tasks per class differ by at
    most one.

    Args:
        tasks: lists of classes (numbers from 0, in the order in which the data declare them), or how many tasks to
            draw; None for as many as cover all classes.
        ways: classes of each drawn task; None for 5, or all classes if there are fewer.
        n_classes: how many classes there are.
        seed: the public one, from which tasks are drawn.

    Returns:
        The tasks.

    Raises:
        InputError: tasks or ways that these classes do not allow.
    """
    if tasks is not None and not isinstance(tasks, int):
        return _given(tasks, ways, n_classes)
    w = min(USUAL_WAYS, n_classes) if ways is None else ways
    if not 2 <= w <= n_classes:
        raise InputError(f"problem.ways: got {w}; a task wants 2 to {n_classes} of the {n_classes} classes.")
    count = -(-n_classes // w) if tasks is None else tasks
    draw, members, rest = public_generator(seed, "tasks"), [], np.zeros(0, dtype=np.int64)
    for _ in range(count):
        task, rest = rest[:w], rest[w:]
        if len(task) < w:
            fresh = draw.permutation(n_classes)
            # What this task already has waits until the end of the new pass.
            fresh = np.concatenate([fresh[~np.isin(fresh, task)], fresh[np.isin(fresh, task)]])
            missing = w - len(task)
            task, rest = np.concatenate([task, fresh[:missing]]), fresh[missing:]
        members.append(tuple(int(c) for c in np.sort(task)))
    return Tasks(tuple(members), n_classes)


def _given(tasks: Sequence[Sequence[int]], ways: int | None, n_classes: int) -> Tasks:
    members = [tuple(sorted(int(c) for c in task)) for task in tasks]
    if not members:
        raise InputError("problem.tasks: got no task; give lists of classes, a number of tasks, or leave it out.")
    w = len(members[0]) if ways is None else ways
    for number, task in enumerate(members, start=1):
        if len(set(task)) != len(task) or len(task) < 2 or task[0] < 0 or task[-1] >= n_classes:
            raise InputError(
                f"problem.tasks: task {number} is {list(task)}; wanted two or more distinct classes, each a number "
                f"from 0 to {n_classes - 1} in the order in which the data declare them."
            )
        if len(task) != w:
            raise InputError(
                f"problem.tasks: task {number} has {len(task)} classes, wanted {w}. Give all tasks equally many, and "
                "leave problem.ways out."
            )
    return Tasks(tuple(members), n_classes)
