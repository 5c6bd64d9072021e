"""What notebooks show: the numbers of the run, escaped, with pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.simulation.runner import Run


@pytest.fixture(scope="module")
def run() -> Run:
    return decentral_dp.run(decentral_dp.load("ring_breast_cancer", ["algorithm.rounds=10", 'title="<b>a & b"']))


def test_a_run_shows_its_budget_its_scores_and_two_pictures(run: Run) -> None:
    markup = run._repr_html_()
    assert "&lt;b&gt;a &amp; b" in markup
    assert "<b>a" not in markup
    assert "certified ε ≤ 4.00 per agent at δ = 1e-5" in markup
    assert f"{run.result.metrics['test_accuracy']:.3f}" in re.sub(r"<[^>]*>", " ", markup)
    assert markup.count("data:image/png;base64,") == 2


def test_a_run_that_diverged_says_so() -> None:
    steep = ["algorithm.x.scale=1e300", "algorithm.rounds=9", 'privacy.guarantee="none"']
    diverged = decentral_dp.run(decentral_dp.load("quadratic", steep))
    assert diverged.result.has_diverged
    assert "<b>diverged</b>: the released value of x stopped being finite" in diverged._repr_html_()


def test_a_plan_shows_its_guarantee_and_notes() -> None:
    plan = decentral_dp.plan("ring_breast_cancer")
    markup = plan._repr_html_()
    assert "An adversary who sees every message ever sent" in markup
    assert all(note.split("'")[0] in markup for note in plan.privacy.notes)
    assert "nothing is private" in decentral_dp.plan("ring_breast_cancer_no_privacy")._repr_html_()


def test_pictures_are_those_of_the_folder(run: Run, tmp_path: Path) -> None:
    again = decentral_dp.run(run.scenario, out=tmp_path / "run")
    drawn = {path.stem: path.read_bytes() for path in (tmp_path / "run" / "plots").iterdir()}
    assert set(drawn) == set(again.plot.names)
    for name in ("losses", "noise"):
        assert getattr(again.plot, name)()._repr_png_() == drawn[name]


@pytest.mark.parametrize(("name", "first"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.png", b"\x89PNG")])
def test_pictures_are_saved_as_their_name_ends(run: Run, tmp_path: Path, name: str, first: bytes) -> None:
    assert run.plot.epsilon().save(tmp_path / name).read_bytes().startswith(first)


def test_what_cannot_be_drawn_or_saved_is_said(run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^plot\.primal: this run has no numbers for it; it has losses, "):
        run.plot.primal()
    with pytest.raises(InputError, match=r"a\.xyz: .*Give a name that ends in \.png, \.svg or \.pdf\.$"):
        run.plot.losses().save(tmp_path / "a.xyz")


def test_a_ledger_is_a_row_for_each_channel(run: Run) -> None:
    summary = run.records.summary().set_index("channel")
    assert sorted(summary.index) == ["x", "y", "z"]
    rows = run.ledger[run.ledger["channel"] == "y"]
    assert summary.loc["y", "releases"] == rows["release"].nunique() == 10
    assert summary.loc["y", "largest scale"] == rows["scale"].max()
    assert summary.loc["y", "least sensitivity"] == rows["sensitivity"].min()
    assert summary.loc["x", "mechanism"] == "free"
    assert "<td>gaussian</td>" in run.records._repr_html_()
