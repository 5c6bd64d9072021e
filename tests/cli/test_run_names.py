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
        (["topology.kind=star", "problem.kind=quadratic"], "a b-kind=star-kind=quadratic"),
        (["topology={kind='random', agents=6}"], "a b-topology=kind=random,agents=6"),
        (["problem.classes=['no', 'yes']", "run.average=null"], "a b-classes=no,yes-average=null"),
        # Nothing leaves the folder of runs, and nothing needs quotation marks.
        (["problem.data=../../etc/passwd"], "a b-data=.._.._etc_passwd"),
    ],
)
def test_a_run_is_named_by_what_it_changes(overrides: list[str], name: str) -> None:
    assert run_name("a b", overrides) == name


def test_a_long_name_fits_into_a_folder(tmp_path: Path) -> None:
    name = run_name("ring", [f"title='{'ε' * 300}'"])
    assert len(name.encode()) <= 160
    assert name.startswith("ring-title=εεε")
    (tmp_path / f"{name}-2").mkdir()
