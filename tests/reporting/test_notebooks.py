"""Notebook views: escaped numbers of a run with figures, and plans as text."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.run import Run


@pytest.fixture(scope="module")
def run() -> Run:
    return decentral_dp.run(load("ring_breast_cancer", ["algorithm.rounds=10", 'title="<b>a & b"']))


def test_a_run_shows_its_budget_its_scores_and_two_pictures(run: Run) -> None:
    markup = run._repr_html_()
    assert "&lt;b&gt;a &amp; b" in markup
    assert "<b>a" not in markup
    assert "certified ε ≤ 4.00 per agent at δ = 1e-5" in markup
    assert f"{run.result.metrics['test_accuracy']:.3f}" in re.sub(r"<[^>]*>", " ", markup)
    assert markup.count("<svg") == markup.count('role="img"') == 2


def test_jobs_records_and_ledgers_print_in_a_line_without_a_record(run: Run) -> None:
    for job in (run.simulation(), build("dp_bilevel"), build("dp_sgda")):
        for thing in (job, job.shards, job.ledger):
            assert len(repr(thing)) < 200
            assert "\n" not in repr(thing)
            assert "array" not in repr(thing)
    assert repr(run.simulation().shards) == "<Shards 'breast_cancer': 569 records, 30 features, 10 agents>"
    assert repr(run.records) == "<Ledger: 10 agents; y × 10, z × 10, x × 10>"


def test_a_plan_shows_its_text() -> None:
    plan = decentral_dp.plan("ring_breast_cancer")
    assert plan._repr_html_() == f"<pre>{html.escape(str(plan))}</pre>"


@pytest.mark.parametrize(("name", "first"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.png", b"\x89PNG")])
def test_pictures_are_saved_as_their_name_ends(run: Run, tmp_path: Path, name: str, first: bytes) -> None:
    assert run.plot("epsilon").save(tmp_path / name).read_bytes().startswith(first)


def test_a_figure_that_a_run_has_no_numbers_for_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match=r'^plot: this run has no figure "primal"'):
        run.plot("primal")
