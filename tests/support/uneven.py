"""A small problem with p ≠ q whose five terms all read records, and its matrices and solutions by hand.

With ψ = M a of a record (a, b), M (3, 2), C (3, 2):

    l = b ((aᵀy)(ψᵀx) + ½ (aᵀy)²),     h = ½‖y − a‖² + b ψᵀx + ½‖x‖²,     R = ½ ridge ‖y‖² + xᵀC y
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import decentral_dp
from decentral_dp.privacy.clipping import Clip, clip_factors, row_norms
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Regulariser, Terms
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support import naive
from tests.support.naive import DataSet, Small, built
from tests.support.training import changed

M = np.array([[1.0, 0.0], [0.5, 1.0], [1.0, -2.0]])
C = np.array([[0.3, 0.0], [0.0, 0.4], [0.1, -0.2]])
READS_RECORDS = {t: "train" if t.startswith("lower") else "validation" for t in TERMS}


class Records(NamedTuple):
    features: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Uneven:
    """without: terms that are left out of it, as if no record were in them. clipped: False plants a forgotten clip."""

    without: tuple[str, ...] = ()
    ridge: float = 2.0
    clipped: bool = True
    p: int = 3
    q: int = 2
    name: str = field(default="uneven")

    @property
    def reads_records(self) -> Mapping[str, Any]:
        return {t: k for t, k in READS_RECORDS.items() if t not in self.without}

    def prepare(self, features: np.ndarray, labels: np.ndarray, norm: str) -> Records:
        return Records(np.asarray(features, dtype=float), np.asarray(labels, dtype=float))

    def _mean(self, name: str, rows: np.ndarray, clip: Clip) -> np.ndarray:
        flat = rows.reshape(len(rows), -1)
        bound = clip.bound(CLIP_OF_TERM[name]) if self.clipped else np.inf
        return (flat * clip_factors(row_norms(flat, clip.norm), bound)[:, None]).sum(axis=0) / len(rows)

    def terms(
        self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        a, b = train
        psi, slope = a @ M.T, b * (a @ z)
        v, w = validation
        rows = {
            "lower_grad_y": (b * (psi @ x + a @ y))[:, None] * a,
            "lower_hvp": slope[:, None] * a,
            "lower_jvp": slope[:, None] * psi,
            "upper_grad_y": y - v,
            "upper_grad_x": w[:, None] * (v @ M.T) + x,
        }
        return Terms(**{t: self._mean(t, r, clip) for t, r in rows.items() if t in self.reads_records})

    def matrices(self, x: Any, y: Any, matrix: Any, train: Any, clip: Clip, wanted: Collection[str]) -> dict[str, Any]:
        a, b = train
        hessians = b[:, None, None] * a[:, :, None] * a[:, None, :]
        out = {}
        if "lower_hvp" in self.reads_records and "lower_hessian" in wanted:
            out["lower_hessian"] = self._mean("lower_hessian", hessians, clip).reshape(2, 2)
        if "lower_hvp" in self.reads_records and "lower_hessian_product" in wanted:
            out["lower_hessian_product"] = self._mean("lower_hessian_product", hessians @ matrix, clip).reshape(2, 3)
        if "lower_jvp" in self.reads_records and "lower_jacobian" in wanted:
            rows = b[:, None, None] * (a @ M.T)[:, :, None] * a[:, None, :]
            out["lower_jacobian"] = self._mean("lower_jacobian", rows, clip).reshape(3, 2)
        return out

    def regulariser(self, x: Any, y: Any, z: Any) -> Regulariser:
        return Regulariser(self.ridge * y + x @ C, self.ridge * z, z @ C.T)


# The same by loops over records, with no code of the package.


def one(term: str, x: np.ndarray, y: np.ndarray, a: np.ndarray, b: float, z: Any = None) -> np.ndarray:
    """A term of one record."""
    psi = M @ a
    if term == "lower_grad_y":
        return b * (psi @ x + a @ y) * a
    if term == "upper_grad_y":
        return y - a
    if term == "upper_grad_x":
        return b * psi + x
    if term == "lower_jacobian":
        return b * np.outer(psi, a)
    return b * np.outer(a, a) if z is None else b * np.outer(a, a) @ z


def naive_mean(
    job: Job, t: int, i: int, term: str, x: np.ndarray, y: np.ndarray, clips: Mapping[str, float], z: Any = None
) -> np.ndarray:
    """Mean over what agent i has seen of the clipped term, and the regulariser's."""
    records = job.records["train" if term.startswith("lower") else "validation"][i]
    n = len(records.labels) if job.sampling.kind == "full" else min(len(records.labels), 1 + 2 * (t + 1))
    bound = clips[{"lower_grad_y": "y", "upper_grad_x": "x", "lower_jacobian": "x"}.get(term, "z")]
    shapes = {"upper_grad_x": 3, "lower_jacobian": (3, 2), "lower_hessian": (2, 2), "lower_hessian_product": (2, 3)}
    total = np.zeros(shapes.get(term, 2))
    left_out = {"lower_jacobian": "lower_jvp", "lower_hessian": "lower_hvp", "lower_hessian_product": "lower_hvp"}
    if left_out.get(term, term) in job.problem.reads_records:
        for a, b in zip(records.features[:n], records.labels[:n], strict=True):
            value = one(term, x, y, a, b, z)
            size = np.abs(value).sum() if job.mechanism.name == "laplace" else np.sqrt((value**2).sum())
            total = total + value * (bound / size if size > bound else 1.0) / n
    ridge = job.problem.ridge
    exact = {
        "lower_grad_y": ridge * y + C.T @ x,
        "lower_jacobian": C,
        "lower_hessian": ridge * np.eye(2),
        "lower_hessian_product": None if z is None else ridge * z,
    }
    return total + exact.get(term, 0.0)


def stationary(job: Job, inverse: Any) -> np.ndarray:
    """The x where mean ∇_x f = mean J · inverse(mean H) · mean ∇_y f at y*(x): all are linear in x and y."""
    parts = []
    for i in range(job.n_agents):
        (a, b), (v, w) = job.records["train"][i], job.records["validation"][i]
        hessian = sum(one("lower_hessian", None, None, r, s) for r, s in zip(a, b, strict=True)) / len(b)
        jacobian = sum(one("lower_jacobian", None, None, r, s) for r, s in zip(a, b, strict=True)) / len(b)
        parts.append((hessian, jacobian, v.mean(axis=0), (w[:, None] * (v @ M.T)).mean(axis=0)))
    hessian, jacobian, middle, slope = (np.mean(part, axis=0) for part in zip(*parts, strict=True))
    hessian, jacobian = hessian + job.problem.ridge * np.eye(2), jacobian + C
    # y*(x) = −H⁻¹ Jᵀ x, since l has no term linear in y only.
    lower = -np.linalg.solve(hessian, jacobian.T)
    direction = jacobian @ inverse(hessian)
    return np.linalg.solve(np.eye(3) - direction @ lower, -slope - direction @ middle)


def base(algorithm: Mapping[str, Any], guarantee: str = "certified", mechanism: str = "laplace", **changes: Any) -> Any:
    """Return the small scenario of `naive` with ten times the noise, records of norm 1 and no validation split."""
    content = naive.base(algorithm, guarantee, mechanism)
    content["privacy"] |= {c: {**content["privacy"][c], "scale": 3.0} for c in "xyz" if c in content["privacy"]}
    content["problem"].pop("validation")
    content["problem"]["normalise"] = "l2"
    return changed(content, **changes)


# Which terms read records: all, none of a Jacobian, only what every problem has.
PROBLEMS = {
    "all": Uneven(),
    "no Jacobian": Uneven(without=("lower_jvp",)),
    "free x": Uneven(without=("lower_jvp", "upper_grad_x")),
    "plain Hessian": Uneven(without=("lower_hvp", "lower_jvp", "upper_grad_x")),
}


def made(kind: str, content: Mapping[str, Any], *, priced: bool = False) -> Job:
    """Build a job on one of PROBLEMS, without a budget unless `priced`."""
    return built(decentral_dp.load(content), PROBLEMS[kind], priced=priced)


def turned_records(rng: np.random.Generator, kind: str, worst: bool) -> tuple[DataSet, DataSet]:
    """Three records of each kind; in the other data set the first of one kind is another, at worst its opposite."""
    rows = {k: rng.normal(size=(3, 2)) * 10.0 ** rng.integers(0, 3) for k in ("train", "validation")}
    one = {k: (r, rng.choice([-1.0, 1.0], size=3)) for k, r in rows.items()}
    if worst:
        for features, _ in one.values():
            features[0] = [1e4, 2e4]
    other = {k: (features.copy(), labels.copy()) for k, (features, labels) in one.items()}
    if worst and kind == "train":
        other[kind][1][0] *= -1
    else:
        other[kind][0][0] *= -1 if worst else rng.normal(size=2)
    return one, other


SMALL = Small(base, made, "all", Uneven(), Uneven(clipped=False), turned_records, ("train",))
