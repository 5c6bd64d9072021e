"""Algorithms as their papers publish them: components for comparison, never a certificate.

One final class per published form: the certified program with what its paper does otherwise, be it only the noise or
`init` and `step` as well. A scenario names one as `kind = "papers.published:PublishedLdpDsbo"`, with
`guarantee = "as_published"`. The claim of the paper is then stated next to what is certified, often ε = ∞.

    PYTHONPATH=. decentral-dp plan papers/scenarios/paper_boxed.toml
"""

from __future__ import annotations

from papers.published.bilevel import (
    PublishedDpBilevel,
    PublishedExponentialMechanism,
    PublishedGradientNormMechanism,
    PublishedRegularisedExponentialMechanism,
    PublishedSecondOrder,
    PublishedWarmStart,
)
from papers.published.bilevel import (
    PublishedGridWalk as PublishedGridWalk,
)
from papers.published.gossip import (
    PublishedBsa,
    PublishedDpDsgd,
    PublishedDsboJhip,
    PublishedGbdsbo,
    PublishedLdpDsbo,
    PublishedLdpSingleLevel,
    PublishedMaDsbo,
    PublishedSpdb,
    PublishedVrdsbo,
)
from papers.published.minimax import (
    PublishedDoubleSpider,
    PublishedDpSgda,
    PublishedDpSgdDual,
    PublishedDpSpider,
    PublishedPrivateDiff,
    PublishedRecursiveSpider,
)

# Certified algorithm → its published form. Other algorithms were not published, or without a noise scale.
FORMS: dict[str, type] = {
    "ldp_dsbo": PublishedLdpDsbo,
    "ma_dsbo": PublishedMaDsbo,
    "dsbo_jhip": PublishedDsboJhip,
    "gbdsbo": PublishedGbdsbo,
    "ldp_single_level": PublishedLdpSingleLevel,
    "dp_dsgd": PublishedDpDsgd,
    "vrdsbo": PublishedVrdsbo,
    "spdb": PublishedSpdb,
    "bsa": PublishedBsa,
    "second_order_dp_bilevel": PublishedSecondOrder,
    "dp_bilevel": PublishedDpBilevel,
    "dp_sgda": PublishedDpSgda,
    "privatediff": PublishedPrivateDiff,
    "double_spider": PublishedDoubleSpider,
    "recursive_spider": PublishedRecursiveSpider,
    "dp_spider": PublishedDpSpider,
    "dp_sgd_dual": PublishedDpSgdDual,
    "exponential_mechanism": PublishedExponentialMechanism,
    "regularised_exponential_mechanism": PublishedRegularisedExponentialMechanism,
    "gradient_norm_exponential_mechanism": PublishedGradientNormMechanism,
    "warm_start": PublishedWarmStart,
}


def published_kind(kind: str) -> str:
    """Return the published form of an algorithm as a scenario names it.

    Example:
        >>> published_kind("ldp_dsbo")
        'papers.published:PublishedLdpDsbo'
    """
    return f"{__name__}:{FORMS[kind].__name__}"
