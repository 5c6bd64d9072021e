"""Files of figures and their axes."""

from __future__ import annotations

from pathlib import Path

import pytest

from decentral_dp.reporting.style import (
    Format,
    new_figure,
    package_style,
    write_figure,
)

INCHES = (5.6, 3.5)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_control_characters_are_written_out(tmp_path: Path, ending: Format) -> None:
    """A font has no control characters, and matplotlib's warning would print them."""
    with package_style():
        figure = new_figure(*INCHES)
        figure.subplots().set_xlabel("a ring\x1b[2J\nof two lines")
        write_figure(figure, tmp_path / "a", [ending])
        assert figure.axes[0].get_xlabel() == "a ring\\x1b[2J\nof two lines"
