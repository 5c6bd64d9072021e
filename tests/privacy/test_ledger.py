"""Ledgers: truncation, scaling, comparison, refusals, and the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.parquet import ParquetFile

from decentral_dp.bounded import MIXED, Bounded, Sensitivity, Split
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import mechanism_of
from decentral_dp.privacy.recorder import Recorder, assemble
from decentral_dp.simulation.jobs.build import build_job as build

numbers = st.floats(0.05, 20.0)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    agents, columns, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    group = np.array(draw(st.lists(st.integers(0, columns - 1), min_size=agents, max_size=agents)))

    def table() -> np.ndarray:
        return np.array(draw(st.lists(numbers, min_size=rounds * columns, max_size=rounds * columns))).reshape(
            rounds, columns
        )

    channels = []
    for name in ("y", "z")[: draw(st.integers(1, 2))]:
        ones = np.ones((rounds, columns))
        channels.append(
            ChannelLedger(
                name,
                draw(st.sampled_from(["laplace", "gaussian"])),
                3,
                group,
                np.arange(1, rounds + 1),
                table(),
                {"train": table() / 10.0},
                {"train": ones},
            )
        )
    return Ledger(agents, tuple(channels))


@given(ledgers(), st.floats(1e-6, 1.0))
def test_spending_more_than_was_planned_is_seen(plan: Ledger, more: float) -> None:
    """Break the plan by a larger sensitivity, less noise, or a sample with more amplification than the drawn one."""

    def spent(**changes: Any) -> Ledger:
        return replace(plan, channels=(replace(plan.channels[0], **changes), *plan.channels[1:]))

    c = plan.channels[0]
    assert spent().costs_within(plan)
    assert spent(sensitivity={"train": c.sensitivity["train"] / (1.0 + more)}).costs_within(plan)
    assert not spent(sensitivity={"train": c.sensitivity["train"] * (1.0 + more)}).costs_within(plan)
    assert not spent(scale=c.scale / (1.0 + more)).costs_within(plan)
    assert not spent(sensitivity={"train": c.sensitivity["train"] * np.nan}).costs_within(plan)
    assert not spent(rounds=c.rounds + 1).costs_within(plan)
    assert not spent(sampling="poisson").costs_within(plan)
    sampled = replace(plan, channels=(replace(c, rate={"train": 0.5 * c.rate["train"]}), *plan.channels[1:]))
    assert not plan.costs_within(sampled)
    assert sampled.costs_within(plan)


@pytest.mark.parametrize("agents", [1, 3, 5000])
@pytest.mark.parametrize("alike", [False, True])
def test_releases_that_are_looked_at_together_are_listed_as_one_by_one(agents: int, alike: bool) -> None:
    """Multiples that are evaluated late, with gaps, at which a second split joins, equal plain arrays."""
    still, rounds = np.full(agents, 0.1) if alike else np.linspace(0.1, 0.2, agents), 7
    of, zeros = {"train": Sensitivity(still, np.ones(agents), None)}, np.zeros((agents, 2))
    both = of | {"validation": Sensitivity(0.3 * still, np.ones(agents), None)}
    indices, recorder = [1, 2, 3, 6, 7, 9, 10], Recorder(agents)
    for k, index in enumerate(indices):
        factor = -0.5 / (k + 1) if k != 2 else 0.0
        value = Bounded(zeros, zeros, both if k >= 4 else of, "l1").with_public(zeros, factor)
        recorder.charge(index, "y", mechanism_of("laplace"), np.full(agents, 1.0 + k), value)
        recorder.free(index, "x", 2, "touches no data")
        if k == 3:
            # A resumed run.
            lines = recorder.lines()
            recorder = Recorder(agents)
            recorder.load(lines, [])
    y, x = assemble([(np.arange(agents), recorder)], agents).channels
    factors = np.array([0.0 if k == 2 else abs(-0.5 / (k + 1)) for k in range(rounds)])
    assert y.rounds.tolist() == x.rounds.tolist() == indices
    np.testing.assert_array_equal(np.broadcast_to(y.scale, (rounds, agents)), 1.0 + np.arange(7.0)[:, None] + 0 * still)
    wanted = {"train": still * factors[:, None], "validation": 0.3 * still * (factors * (np.arange(7) >= 4))[:, None]}
    for kind, rows in wanted.items():
        np.testing.assert_array_equal(np.broadcast_to(y.sensitivity[kind], rows.shape), rows)
        assert (y.rate[kind] == 1.0).all()


# Refusals of a recorder ------------------------------------------------------------------------------------


def fresh(batch: int | None, rate: float = 0.25, split: Split = "train", sampling: Any = "fixed") -> Bounded:
    """A value of one agent that one record of a batch moves by 1."""
    moved = Sensitivity(np.ones(1), np.full(1, rate), batch, sampling)
    return Bounded(np.zeros((1, 2)), np.ones((1, 2)), {split: moved}, "l2")


# Releases (index, channel, value), the last of which cannot be listed, and why.
REFUSED: dict[str, tuple[list[tuple[int, str, Bounded]], str]] = {
    "one batch at two indices": (
        [(1, "y", fresh(7)), (2, "y", fresh(7))],
        "y: release 2 uses the train batch of round 7 a second time",
    ),
    "one batch at two indices, on two channels": (
        [(1, "y", fresh(7)), (2, "z", fresh(7))],
        "z: release 2 uses the train batch of round 7 a second time",
    ),
    "one batch later, not even sampled": (
        [(1, "y", fresh(7)), (3, "y", fresh(8)), (4, "y", fresh(7, 1.0))],
        "y: release 4 uses the train batch of round 7 a second time",
    ),
    "two batches at one index": (
        [(1, "y", fresh(7)), (1, "z", fresh(8))],
        "z: release 1 uses a second train batch of the same index",
    ),
    "kept after it was charged as forgotten": (
        [(1, "y", fresh(7)), (2, "z", fresh(MIXED, 1.0))],
        r"z: release 2 still depends on train batches that were accounted as forgotten; .*kept=True.*",
    ),
    "forgotten while others keep it": (
        [(1, "z", fresh(MIXED, 1.0)), (2, "y", fresh(7))],
        "y: release 2 amplifies a train batch that other channels may remember",
    ),
    "two ways of sampling": (
        [(1, "y", fresh(7)), (2, "y", fresh(8, sampling="poisson"))],
        "y: release 2 mixes batches of different sampling schemes",
    ),
    "a start that depends on records": (
        [(0, "y", fresh(None, 1.0))],
        "y: release 0 reads records but is not in the ledger",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_charged_too_little_is_refused(case: str) -> None:
    releases, message = REFUSED[case]
    recorder = Recorder(1)
    for index, channel, value in releases[:-1]:
        recorder.charge(index, channel, mechanism_of("gaussian"), np.ones(1), value)
    index, channel, value = releases[-1]
    with pytest.raises(ValueError, match=f"^{message}$"):
        recorder.charge(index, channel, mechanism_of("gaussian"), np.ones(1), value)


@pytest.mark.parametrize("rows", [7, 400])
@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_bilevel", "exponential_mechanism"])
def test_a_ledger_is_written_in_parts_as_it_is_in_one(name: str, rows: int, tmp_path: Path) -> None:
    """Test one agent and several agents."""
    ledger = build(name).ledger
    ledger.to_parquet(tmp_path / "parts.parquet", rows=rows)
    written = ParquetFile(tmp_path / "parts.parquet").metadata
    assert max(written.row_group(k).num_rows for k in range(written.num_row_groups)) <= rows
    ledger.to_frame().to_parquet(tmp_path / "whole.parquet", index=False)
    parts, whole = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("parts", "whole"))
    pd.testing.assert_frame_equal(parts, whole)
    assert len(whole)
