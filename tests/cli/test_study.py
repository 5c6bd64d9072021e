"""Tables of a study on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from decentral_dp.reporting.tables import TextTable
from decentral_dp.studies.report import draw_means

HEADS = [("variant", ""), ("data", ""), ("epsilon", "target, δ = 1e-5"), ("rounds_to_test_accuracy_0.7", "")]
ROWS = [
    ["matching of the 4-regular", "breast_cancer", "1.0", "83.3 ± 51", "1.000"],
    ["4-regular anew", "digits", "4.0", "200 ± 39 (n = 8)", "4.00"],
]


@pytest.mark.parametrize("width", range(77, 140, 3))
def test_words_are_wrapped_and_numbers_are_whole(width: int) -> None:
    table = TextTable([*HEADS, ("epsilon_max", "certified, δ = 1e-5")], [False, False, False, True, True], ROWS)
    out = io.StringIO()
    (drawn,) = draw_means(table, width)
    Console(file=out, width=width).print(drawn)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for number in ("83.3 ± 51 ", "200 ± 39 (n = 8) ", " 1.000", " 4.00", "epsilon_max"):
        assert number in out.getvalue().replace("\u00a0", " "), f"{number!r} in\n{out.getvalue()}"


def test_columns_that_do_not_fit_are_in_a_table_of_their_own() -> None:
    table = TextTable([*HEADS, ("epsilon_max", "")], [False, False, False, True, True], ROWS)
    first, second = draw_means(table, 60)
    assert [column.header.plain.split()[0] for column in first.columns[3:]] == ["rounds_to_test_accuracy_0.7"]  # type: ignore[union-attr]  # a Text
    assert len(first.columns) == len(second.columns) == 4
