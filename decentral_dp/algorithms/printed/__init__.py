"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form: the certified program with what its paper does otherwise, be it the noise alone or
`init` and `step` as well. Certified modules import nothing from here; the registry pairs both by `PRINTED`, and a
scenario with guarantee = "as_printed" runs the printed one.
"""

from __future__ import annotations

from decentral_dp.algorithms.printed import gossip

# Name of the algorithm → what "as_printed" runs. What is absent was not printed, or not with a noise that is known.
# Where the paper states the budget of its own calibration, the class says so in `claim`.
PRINTED: dict[str, type] = {
    "ldp_dsbo": gossip.PrintedLdpDsbo,
    "ma_dsbo": gossip.PrintedMaDsbo,
    "dsbo_jhip": gossip.PrintedDsboJhip,
    "gbdsbo": gossip.PrintedGbdsbo,
    "ldp_single_level": gossip.PrintedLdpSingleLevel,
    "dp_dsgd": gossip.PrintedDpDsgd,
    "vrdsbo": gossip.PrintedVrdsbo,
    "spdb": gossip.PrintedSpdb,
    "bsa": gossip.PrintedBsa,
}
