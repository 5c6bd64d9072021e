"""Tables of a study on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from decentral_dp.reporting.tables import TextTable
from decentral_dp.studies.terminal import _column_widths, _draw_table

HEADS = [("variant", ""), ("data", ""), ("epsilon", "target, δ = 1e-5"), ("rounds_to_test_accuracy_0.7", "")]
ROWS = [
    ["matching of the 4-regular", "breast_cancer", "1.0", "83.3 ± 51", "1.000"],
    ["4-regular anew", "digits", "4.0", "200 ± 39 (n = 8)", "4.00"],
]


@pytest.mark.parametrize("width", range(77, 140, 3))
def test_words_are_wrapped_and_numbers_are_whole(width: int) -> None:
    table = TextTable([*HEADS, ("epsilon_max", "certified, δ = 1e-5")], [False, False, False, True, True], ROWS)
    # The last column has no gap behind it.
    assert sum(_column_widths(table)) <= width + 2
    out = io.StringIO()
    Console(file=out, width=width).print(_draw_table(table, width, has_note=False))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for number in ("83.3 ± 51 ", "200 ± 39 (n = 8) ", " 1.000", " 4.00", "epsilon_max"):
        assert number in out.getvalue().replace("\u00a0", " "), f"{number!r} in\n{out.getvalue()}"
