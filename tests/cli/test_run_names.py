"""Names of run folders: what is changed, within what a file system takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from decentral_dp.cli.run import run_name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "a b"),
        (["privacy.epsilon=2.0"], "a b-epsilon=2.0"),
        (["privacy.epsilon=2.0", "privacy.epsilon=3.0"], "a b-epsilon=3.0"),
        (["topology.kind=star", "problem.kind=quadratic"], "a b-topology.kind=star-problem.kind=quadratic"),
        (["topology={kind='random_regular', agents=6, degree=3}"], "a b-topology=random_regular,agents=6,degree=3"),
        (["privacy.clip={y=1.0}", "run.average=null"], "a b-clip=y=1.0-average=null"),
        (["problem.classes=['no', 'yes']", "problem.intercept=true"], "a b-classes=no,yes-intercept=true"),
        # Nothing leaves the folder of runs, and nothing needs quotation marks.
        (["problem.data=../../etc/passwd"], "a b-data=.._.._etc_passwd"),
        (['title="x y/ö"'], "a b-title=x_y_ö"),
    ],
)
def test_a_run_is_named_by_what_it_changes(overrides: list[str], name: str) -> None:
    assert run_name("a b", overrides) == name


def test_long_names_are_cut_and_stay_apart(tmp_path: Path) -> None:
    names = [run_name("ring", [f"title='{'ε' * 300}'", f"seed={seed}"]) for seed in (1, 2)]
    assert names[0] != names[1]
    for name in names:
        assert len(name.encode()) <= 160
        assert name.startswith("ring-title=εεε")
        (tmp_path / f"{name}-2").mkdir()
