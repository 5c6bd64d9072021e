"""Records in the place of images that are not here, and said to be so."""

from __future__ import annotations

from dataclasses import replace

from decentral_dp.data.dataset import Dataset
from decentral_dp.data.images import COLLECTIONS, DATA_VARIABLE

# Of a source: these are others than the records that were named.
STANDING_IN = "standing in for"


def standing_in(name: str, digits: Dataset) -> Dataset:
    """scikit-learn's digits in the place of images that are not here, with a note that says so.

    Pixels times the declared constant 1/16, so that they are in [0, 1] like those of the absent images.
    """
    title, (height, width, _) = COLLECTIONS[name].title, digits.image or (8, 8, 1)
    return replace(
        digits,
        features=digits.features / 16.0,
        source=f"digits {STANDING_IN} {name}",
        bounds=(0.0, 1.0),
        notes=(
            f"{title}'s files are not here: scikit-learn's digits ({digits.n} records, {height}×{width}) stand in. "
            f"Name the files in problem.files, or put them into the folder {name} of {DATA_VARIABLE}.",
        ),
    )
