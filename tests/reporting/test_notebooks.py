"""Notebook views: escaped numbers of a run with figures, plans as text, and progress bars."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import rich.console
from rich.progress import Progress

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.reporting import notebook as progress
from decentral_dp.reporting import terminal
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


def test_notebooks_have_a_bar_and_others_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Bar(Progress):
        def stop(self) -> None:
            shown.extend(f"{task.completed:g} of {task.total} {task.fields['words']}" for task in self.tasks)
            super().stop()

    monkeypatch.setattr(terminal, "Columns", Bar)
    few = load("ring_breast_cancer", ["algorithm.rounds=2"])
    decentral_dp.run(few)
    assert shown == []
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    run = decentral_dp.run(few)
    loss = run.result.metrics["upper_loss"]
    assert shown == [f"2 of 2 loss {loss:.4f}, ε spent 4.00"]
    decentral_dp.study({"scenario": "quadratic", "kind": "plan", "grid": {"algorithm.rounds": [1, 2, -3]}}, workers=1)
    # An invalid cell is not started.
    assert shown[1:] == ["2 of 2 "]
    # The runs of a study have no other bar.
    of_runs = {"scenario": "quadratic", "measure": ["rounds"], "set": {"algorithm.rounds": 2}}
    decentral_dp.study(of_runs, workers=1)
    assert shown[2:] == ["1 of 1 "]
    monkeypatch.undo()
    assert not progress.in_notebook()
    monkeypatch.setattr(rich.console, "Console", lambda: SimpleNamespace(is_jupyter=True))
    monkeypatch.setitem(sys.modules, "IPython", sys)
    monkeypatch.setattr(progress, "find_spec", lambda _: True)
    assert progress.in_notebook()
    monkeypatch.setenv("TTY_INTERACTIVE", "0")
    assert not progress.in_notebook()
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(terminal, "Columns", Bar)
    # A run with callbacks has no bar.
    decentral_dp.run(few, callbacks=[lambda at: None])
    assert len(shown) == 3
