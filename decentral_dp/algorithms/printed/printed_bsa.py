"""BSA as printed: the server asks as in `bsa`, agents add noise, and nobody clips.

The points are public all the same, so what is missing is a bound on one record: every answer that reads a kind of
record has an infinite price for it, by the formulas of the certified program at an infinite clip.

Reference: S. Ghadimi and M. Wang, "Approximation Methods for Bilevel Programming", arXiv:1802.02246, 2018.
"""

from __future__ import annotations

from typing import final

from decentral_dp.algorithms.gossip.bsa import Bsa


@final
class PrintedBsa(Bsa):
    """The fields and steps of `Bsa`, for answers that are not clipped."""

    protocol = "printed"
