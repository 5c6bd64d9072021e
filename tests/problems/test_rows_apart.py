"""Every registered problem, to the bit: each summed row depends on one record only.

All arrays are compared that enter the clips, where contributions are still record by record: the same batch is
evaluated with another record in one place, and nothing of the others may move.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decentral_dp import models, problems
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models import linear_terms
from decentral_dp.models.build import ModelTable
from decentral_dp.privacy import clipping
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems import BILEVEL as PROBLEMS
from decentral_dp.problems import SOLVED, ProblemFacts
from decentral_dp.problems.protocol import MATRICES, TERMS
from decentral_dp.user_code import component

# All of them before anything is watched: they keep the names that they import.
for package in (models, problems):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)

# The axis of records. In the batches below no other axis has this length.
CLIPS = ("clipped_sum", "clip_factors", "row_norms", "clip_columns", "clip_coefficients", "bounded_columns")
SIZES = (2, 13, 211)
WIDTH, STEPS = 7, 3
SCENARIOS = Path(__file__).parents[2] / "scenarios"
MLP = ModelTable(kind="mlp", hidden=[4])
OF_MINIMAX: dict[str, tuple[dict[str, Any], tuple[str, ...], int]] = {
    "auc_maximisation": ({"positive_share": 0.3, "model": MLP}, ("grad_x", "grad_y", "joint", "dual"), 2),
    "dro": ({"divergence": "chi2", "strength": 0.5, "cap": 3.0, "model": MLP}, ("grad_x", "grad_y", "joint"), 3),
    "kl_dro": ({"strength": 0.5, "radius": 0.3, "cap": 3.0}, ("inner", "inner_x", "inner_y"), 2),
    "group_dro": (
        {"group_shares": [0.6, 0.3, 0.1], "strength": 0.5, "cap": 3.0},
        ("grad_x", "grad_y", "dual", "joint"),
        3,
    ),
    "mspbe": ({"discount": 0.9, "model": MLP}, ("grad_x", "grad_y"), 2),
    "wgan": ({"generator": [5], "latent": 2, "model": MLP}, ("grad_y",), 2),
}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, np.ndarray]]:
    """Record all inputs and outputs of clips, in order."""
    seen: list[tuple[str, np.ndarray]] = []

    def watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            seen.extend((name, np.array(a)) for a in arguments if isinstance(a, np.ndarray))
            out = original(*arguments)
            seen.append((name, np.array(out)))
            return out

        return call

    for name in CLIPS:
        original = getattr(clipping, name, None) or getattr(linear_terms, name)
        new = watch(name, original)
        for module in [m for key, m in sys.modules.items() if key.startswith("decentral_dp.")]:
            if getattr(module, name, None) is original:
                monkeypatch.setattr(module, name, new)
    return seen


def compared(watched: list[Any], evaluate: Callable[[np.ndarray], None], features: np.ndarray) -> int:
    """How many arrays over records were compared, one of the records replaced by an ordinary and an extreme one."""
    n, done = len(features), 0
    watched.clear()
    evaluate(features)
    before = list(watched)
    for place, value in ((0, 0.3), (n - 1, 1e6), (n // 2, -0.7)):
        other = features.copy()
        other[place] = value
        watched.clear()
        evaluate(other)
        assert [(name, a.shape) for name, a in before] == [(name, a.shape) for name, a in watched]
        for (name, here), (_, there) in zip(before, watched, strict=True):
            for axis in [k for k, size in enumerate(here.shape) if size == n]:
                kept = [np.delete(a, place, axis) for a in (here, there)]
                np.testing.assert_array_equal(*kept, err_msg=name)
                done += 1
    return done


def bilevel(kind: str) -> Any:
    if kind == "from_losses":
        return component("own_losses:problem", [SCENARIOS], "problem.kind")(WIDTH, 3)
    entry = PROBLEMS[kind]
    options = {"ridge": 0.1, "groups": 2, "corrupt": 0.5, "width": 5, "tasks": 2, "ways": 2}
    facts = ProblemFacts(WIDTH, {"numbers": 0, "two": 2}.get(entry.labels, 3))
    return entry.build({key: value for key, value in options.items() if key in entry.options}, facts)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", [*PROBLEMS, "from_losses"])
def test_rows_of_a_bilevel_problem(watched: Any, kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    problem = bilevel(kind)
    clip = Clip("l1" if n == 13 else "l2", 0.3, 0.5, 0.2)
    features = rng.normal(size=(n, WIDTH))
    # All of one class: a task reads only the records of its classes.
    labels = np.zeros(n) if kind == "meta_learning" else rng.integers(0, 2, n).astype(float)
    for scale in (0.1, 1.0):
        x, y, z = (scale * rng.normal(size=d) for d in (problem.p, problem.q, problem.q))

        def evaluate(a: np.ndarray, x: Any = x, y: Any = y, z: Any = z) -> None:
            with np.errstate(all="ignore"):
                records = problem.prepare(a, labels, clip.norm)
                placed = problem.place_records(records, 0) if hasattr(problem, "place_records") else records
                problem.terms(x, y, z, placed, records, clip, TERMS)
                problem.matrices(x, y, np.outer(z, x), placed, clip, tuple(MATRICES))

        count = compared(watched, evaluate, features)
    assert count > 0 or kind == "mean_lower_bound"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", SOLVED["minimax"])
def test_rows_of_a_minimax_problem(watched: Any, kind: str, n: int) -> None:
    options, terms, classes = OF_MINIMAX[kind]
    rng = np.random.default_rng(n)
    played = (STEPS, 2) if kind == "mspbe" else None
    width = (STEPS + 1) * 2 + STEPS + 1 if played else WIDTH
    limits = {"x": 0.8, "y": 0.8}
    problem = SOLVED["minimax"][kind].build(
        options, ProblemFacts(width, classes, l2=2.0, trajectory=played, clip=limits)
    )
    features = rng.normal(size=(n, width))
    labels = np.full(n, float(STEPS)) if played else rng.integers(0, classes, n).astype(float)
    x, y = (problem.start[v] + 0.1 * rng.normal(size=problem.start[v].size) for v in "xy")
    x, y = problem.project_x(x), problem.project_y(y)
    asked = [ClippedQuery(term, x, y, 0.4) for term in terms]
    asked += [ClippedQuery(term, x, y, 0.4, (0.9 * x, y)) for term in terms if term.startswith("grad")]

    def evaluate(a: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            problem.sums(problem.prepare(a, labels, "l2"), asked)

    assert compared(watched, evaluate, features) > 0


def test_a_problem_that_mixes_records_is_found(watched: Any) -> None:
    """The tests above detect one bit of another record."""

    def evaluate(a: np.ndarray) -> None:
        clipping_module = sys.modules["decentral_dp.problems.bilevel.losses"]
        clipping_module.clipped_sum(a + 1e-12 * a.mean(axis=0), 1.0, "l2")

    with pytest.raises(AssertionError):
        compared(watched, evaluate, np.random.default_rng(0).normal(size=(13, WIDTH)))
