"""Algorithms as their papers print them: for comparison, never a certificate.

One final class per printed form: the certified program with what its paper does otherwise, be it the noise alone or
`init` and `step` as well. Certified modules import nothing from here; the registry pairs both by `PRINTED`, and a
scenario with guarantee = "as_printed" runs the printed one.
"""

from __future__ import annotations

from typing import NamedTuple

from decentral_dp.algorithms.printed.coordinator_bilevel import (
    PrintedDpBilevel,
    PrintedExponentialMechanism,
    PrintedGradientNormMechanism,
    PrintedGridWalk,
    PrintedRegularisedExponentialMechanism,
    PrintedSecondOrder,
    PrintedWarmStart,
)
from decentral_dp.algorithms.printed.coordinator_minimax import (
    PrintedDoubleSpider,
    PrintedDpSgda,
    PrintedDpSgdDual,
    PrintedDpSpider,
    PrintedPrivateDiff,
    PrintedRecursiveSpider,
)
from decentral_dp.algorithms.printed.gossip import (
    PrintedBsa,
    PrintedDpDsgd,
    PrintedDsboJhip,
    PrintedGbdsbo,
    PrintedLdpDsbo,
    PrintedLdpSingleLevel,
    PrintedMaDsbo,
    PrintedSpdb,
    PrintedVrdsbo,
)

__all__ = ["PRINTED"]


class Printed(NamedTuple):
    """What "as_printed" runs, and where the paper states the budget of its calibration; "" where it states none."""

    form: type
    claim: str = ""


# Name of the algorithm → its printed form. What is absent was not printed, or not with a noise that is known.
PRINTED: dict[str, Printed] = {
    "ldp_dsbo": Printed(PrintedLdpDsbo),
    "ma_dsbo": Printed(PrintedMaDsbo),
    "dsbo_jhip": Printed(PrintedDsboJhip),
    "gbdsbo": Printed(PrintedGbdsbo),
    "ldp_single_level": Printed(PrintedLdpSingleLevel),
    "dp_dsgd": Printed(PrintedDpDsgd),
    "vrdsbo": Printed(PrintedVrdsbo),
    "spdb": Printed(PrintedSpdb),
    "bsa": Printed(PrintedBsa),
    "second_order_dp_bilevel": Printed(PrintedSecondOrder, "Theorem 4.2 of Lowy & Liu (2025), as printed"),
    "dp_bilevel": Printed(PrintedDpBilevel, "Theorems 4 and 11 of Kornowski (2024), as printed"),
    "dp_sgda": Printed(PrintedDpSgda, "Theorem 1 and the explicit values after it, as printed"),
    "privatediff": Printed(PrintedPrivateDiff, "Theorem 5 and Remark 5.1 of Zhang et al. (2025), as printed"),
    "double_spider": Printed(PrintedDoubleSpider, "Theorem 6 of Xu et al. (2025), as printed, its constant taken as 1"),
    "recursive_spider": Printed(
        PrintedRecursiveSpider, "Theorem 8 of Xu et al. (2025), as printed, its constant taken as 1"
    ),
    "dp_spider": Printed(PrintedDpSpider, "the calibration of Arora et al. (2023), its constant taken as 1"),
    "dp_sgd_dual": Printed(PrintedDpSgdDual, "Theorem 5 of Xu et al. (2025), as printed, its constant taken as 1"),
    "exponential_mechanism": Printed(PrintedExponentialMechanism, "Equation 4 of Lowy & Liu (2025), as printed"),
    "regularised_exponential_mechanism": Printed(
        PrintedRegularisedExponentialMechanism, "Equation 5 and Lemma B.6 of Lowy & Liu (2025), as printed"
    ),
    "gradient_norm_exponential_mechanism": Printed(
        PrintedGradientNormMechanism, "Appendix C.3 of Lowy & Liu (2025), as printed"
    ),
    "grid_walk": Printed(PrintedGridWalk, "Theorem B.15 of Lowy & Liu (2025), as printed"),
    "warm_start": Printed(PrintedWarmStart, "Theorem 4.3 of Lowy & Liu (2025), as printed"),
}
