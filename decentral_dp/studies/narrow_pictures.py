"""The pictures of a study once more, as narrow as the screen of a telephone, for its page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from decentral_dp.studies.gain_plots import write_gain_plots
from decentral_dp.studies.grid import Axis
from decentral_dp.studies.plots import write_study_plots
from decentral_dp.studies.schema import Study

# Inches: on a screen of 390 points letters then have their own size.
_WIDTH = 3.7
# A study whose pictures are no wider has them already.
_NARROW_ENOUGH = 4.2


def narrow_pictures(
    study: Study, axes: Sequence[Axis], summary: pd.DataFrame, cells: pd.DataFrame, gains: pd.DataFrame
) -> dict[str, bytes]:
    """Draw the pictures of a study with their panels below each other.

    Args:
        study: with its plots and gains.
        axes: what varied.
        summary: means with intervals.
        cells: status of each.
        gains: of `gain_table`.

    Returns:
        Name of a picture → PNG; nothing where the pictures are narrow themselves.
    """
    if study.width is not None and study.width <= _NARROW_ENOUGH:
        return {}
    narrow = study.model_copy(update={"width": _WIDTH, "height": None, "formats": ["png"]})
    with TemporaryDirectory(prefix="decentral_dp-pictures-") as folder:
        written = write_study_plots(Path(folder), narrow, axes, summary, cells)
        written += write_gain_plots(Path(folder), narrow, gains, cells)
        return {path.stem: path.read_bytes() for path in written}
