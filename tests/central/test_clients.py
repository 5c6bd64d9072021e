"""Sampled records of clients: a contribution does not depend on the other sampled records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import null_space

from decentral_dp.central.clients import MinimaxClientBlock, block_size, record_blocks, sum_over_parts
from decentral_dp.central.problems import composite
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite, Labelled
from decentral_dp.central.problems.dro import DIVERGENCES, DroObjective
from decentral_dp.central.problems.losses import capped_loss
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import LinearModel
from decentral_dp.models.mlp import mlp
from decentral_dp.privacy.randomness import Streams, seeded_root, tag
from decentral_dp.problems.records import take

WIDTH, HIDDEN, CLIP = 30, 20, 0.1


@given(st.integers(1, 200), st.floats(0.0, 1.0), st.integers(1, 200), st.integers(0, 2**31))
def test_every_drawn_record_has_its_own_place(n: int, rate: float, size: int, seed: int) -> None:
    size = min(size, n)
    drawn = np.random.default_rng(seed).random(n) < rate
    found = []
    for block in record_blocks(drawn, size):
        assert block.rows.shape == block.is_drawn.shape == (size,)
        assert (block.rows[block.is_drawn] % size == np.flatnonzero(block.is_drawn)).all()
        assert ((block.rows >= 0) & (block.rows < n)).all()
        found += block.rows[block.is_drawn].tolist()
    assert sorted(found) == np.flatnonzero(drawn).tolist()


@pytest.mark.parametrize(("n", "rate"), [(5, 0.3), (300, 0.2), (60_000, 0.03), (60_000, 0.9)])
def test_the_size_of_a_block_is_public_and_no_larger_than_the_data(n: int, rate: float) -> None:
    few, many = block_size(n, rate, 100), block_size(n, rate, 10**6)
    assert 1 <= many <= few <= n
    assert n > 1000 or few == n


def at_a_kink() -> tuple[Composite, np.ndarray, np.ndarray]:
    """A problem, its public start, and records that every hidden unit of the start sees as zero, up to rounding."""
    loss = capped_loss("logistic", 5.0, 2)
    problem = Composite(mlp(WIDTH, [HIDDEN], 1, 0), DroObjective(loss, DIVERGENCES["chi2"], 5.0))
    x = problem.start["x"]
    unseen = null_space(x[: HIDDEN * WIDTH].reshape(HIDDEN, WIDTH))
    rows = np.random.default_rng(3).normal(size=(400, unseen.shape[1])) @ unseen.T
    return problem, x, rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("at_once", [False, True])
def test_one_more_record_moves_no_other_even_where_derivatives_jump(at_once: bool) -> None:
    """Evaluated block by block, whether blocks are added up one after the other or in one product."""
    problem, x, unseen = at_a_kink()
    asked = [ClippedQuery("grad_x", x, np.zeros(1), CLIP)]
    worst, naive = 0.0, 0.0
    for row in unseen:
        records = Labelled(np.repeat(row[None], 8, axis=0), np.ones(8))
        few, more = np.array([True, True, True, False] * 2), np.array([True, True, True, True] * 2)
        few[4:], more[4:] = False, False

        def placed(drawn: np.ndarray, records: Labelled = records, size: int = 4) -> np.ndarray:
            parts = [(take(records, b.rows), b.is_drawn) for b in record_blocks(drawn, size)]
            if at_once:
                return sum_over_parts(problem, parts, asked)[0]
            return sum(problem.sums(part[0], asked, part[1])[0] for part in parts)

        worst = max(worst, float(np.linalg.norm(placed(more) - placed(few))) / CLIP)
        side_by_side = [problem.sums(take(records, np.flatnonzero(d)), asked)[0] for d in (few, more)]
        naive = max(naive, float(np.linalg.norm(side_by_side[1] - side_by_side[0])) / CLIP)
    assert worst <= 1.0 + 1e-9
    if naive <= 1.0 + 1e-9:
        pytest.skip("on this machine products of three and of four rows round equally")


def test_a_client_block_keeps_the_positions() -> None:
    """Its sums over a sample equal those of the same records, each evaluated at its fixed row."""
    problem = Composite(mlp(4, [6], 1, 0), AucObjective(0.5))
    rng = np.random.default_rng(5)
    records = Labelled(rng.normal(size=(40, 4)), (rng.random(40) < 0.5).astype(float))
    client_block = MinimaxClientBlock(
        np.array([0]), problem, [records], Streams(seeded_root(1, b"slots"), "coins", [0])
    )
    x = problem.start["x"]
    sizes = []
    for number in range(1, 6):
        questions = {
            "gx": ClippedQuery("grad_x", x, np.zeros(1), 0.3, rate=0.4),
            "dual": ClippedQuery("dual", x, np.zeros(1), 0.5, rate=0.4),
        }
        told = client_block.answer(number, questions)
        coins = Streams(seeded_root(1, b"slots"), "coins", [0])

        drawn = np.flatnonzero(coins.generator(0, number, tag("train")).random(40) < 0.4)
        sizes.append(drawn.size)
        for name, asked in questions.items():
            alone = sum(problem.sums(take(records, np.array([k])), [asked])[0] for k in drawn)
            np.testing.assert_allclose(told[name][0], alone, rtol=1e-9, atol=1e-12)
    assert len(set(sizes)) > 1


def sampled(problem: Composite, n: int) -> list[tuple[Labelled, np.ndarray]]:
    """Return parts of a sample, one with a record that is not finite, and one without a sampled record."""
    rng = np.random.default_rng(8)
    rows = 3.0 * rng.normal(size=(n, 4))
    rows[3] = np.inf
    records = Labelled(rows, (rng.random(n) < 0.5).astype(float))
    parts = [(take(records, b.rows), b.is_drawn) for b in record_blocks(rng.random(n) < 0.4, 8)]
    return [*parts, (take(records, slice(0, 8)), np.zeros(8, dtype=bool))]


@pytest.mark.parametrize("cells", [1, 100, 1 << 24])
@pytest.mark.parametrize("kind", ["mlp", "linear"])
def test_parts_are_added_up_as_one_after_the_other(kind: str, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every way that a model adds up, terms of both variables, differences, and however few fit into memory."""
    problem = Composite(mlp(4, [6, 5], 1, 0) if kind == "mlp" else LinearModel(4, 1), AucObjective(0.5))
    parts = sampled(problem, 64)
    x, y = np.concatenate([problem.model.start, [0.6, 0.4]]), np.array([0.9])
    x = x + 0.1 * np.random.default_rng(1).normal(size=x.size)
    queries = [
        ClippedQuery("grad_x", x, y, 0.3),
        ClippedQuery("grad_x", x, y, np.inf),
        ClippedQuery("grad_x", x, y, 0.0),
        ClippedQuery("joint", x, y, 0.2, earlier_point=(0.9 * x, y)),
        ClippedQuery("grad_y", x, y, 0.5),
        ClippedQuery("dual", x, y, 0.5),
    ]
    with np.errstate(all="ignore"):
        apart = [problem.sums(part[0], queries, part[1]) for part in parts]
        monkeypatch.setattr(composite, "_CELLS", cells)
        found = sum_over_parts(problem, parts, queries)
    for k, query in enumerate(queries):
        total = np.sum([a[k] for a in apart], axis=0)
        np.testing.assert_allclose(found[k], total, rtol=1e-12, atol=1e-13)
        assert np.isfinite(found[k]).all()
        assert np.abs(found[k]).max() > 0.0 or query.bound == 0.0


def test_a_problem_that_overrides_its_sums_is_asked_for_them() -> None:
    class Doubled(Composite):
        def sums(self, records: Any, queries: Any, drawn: Any = None) -> Any:
            return [2.0 * total for total in super().sums(records, queries, drawn)]

    problem = Composite(mlp(4, [6], 1, 0), AucObjective(0.5))
    asked = [ClippedQuery("grad_x", problem.start["x"], np.zeros(1), 0.3)]
    parts = sampled(problem, 40)
    once, twice = (sum_over_parts(p, parts, asked)[0] for p in (problem, Doubled(problem.model, problem.objective)))
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-12)
    assert np.abs(once).max() > 0.0
