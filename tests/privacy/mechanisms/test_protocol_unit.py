"""A mechanism says in words what its price is for, and plans, results and pages say it beside ε."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.statements.statement import PrivacyStatement
from tests.support.run_folders import STATEMENT

Make = Callable[..., dict[str, Any]]
SAID = "is for one group of 5 records, as the mechanism states."


@dataclass(frozen=True)
class Group:
    """Normal noise whose μ is that of five records at once."""

    name = "group_gaussian"
    norm = "l2"
    unit = "μ"
    deviation = 1.0
    privacy_unit = "one group of 5 records"

    def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
        return 5.0 * (sensitivity / scale + np.sqrt(width) * 2.0**-19)

    def sample(self, generator: Any, query: Any, grid: float, scale: float) -> Any:
        return grid * (np.rint(query / grid) + np.rint(generator.normal(0.0, scale / grid, query.size)))


def test_it_is_said_beside_the_price(scenario: Make, tmp_path: Path) -> None:
    content = scenario(algorithm={"rounds": 2})
    run = decentral_dp.run(content, out=tmp_path / "out", mechanism=Group())
    privacy = run.result["privacy"]
    assert privacy["privacy_unit"] == Group.privacy_unit
    assert PrivacyStatement.from_dict(privacy).privacy_unit == Group.privacy_unit
    assert f"This ε {SAID}" in html.unescape((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert decentral_dp.run(content).result["privacy"]["privacy_unit"] == ""


@pytest.mark.parametrize("unit", [5, "one\nline", "x" * 81])
def test_what_is_no_short_text_is_refused(scenario: Make, unit: Any) -> None:
    made = type("Other", (Group,), {"privacy_unit": unit})
    with pytest.raises(InputError, match=r'a text of at most 80 letters such as "one group of 5 records"'):
        build(scenario(), mechanism=made())


def test_words_of_authors_are_under_one_head() -> None:
    one, two = "On the author's word: a is so.", "On the author's word: b is so."
    words = ["a is so.", "b is so."]
    content = {**STATEMENT, "authors_word": words, "notes": ["first", one, "between", two, "last"]}
    head = ("On the author's word:", ("a is so.", "b is so."))
    assert PrivacyStatement.from_dict(content).grouped_notes == [("first", ()), head, ("between", ()), ("last", ())]
    alone = PrivacyStatement.from_dict({**content, "notes": ["first", one]}).grouped_notes
    assert alone == [("first", ()), (one, ())]
