"""Algorithms as published: components for comparison, without a certificate.

Each final class is the certified algorithm with the differences of its paper, which are the noise, or also `init` and
`step`. A scenario selects it by `kind = "papers.published:PublishedLdpDsbo"` and `guarantee = "as_published"`. A run
then reports the paper's claim next to the certified ε, which is often ∞.

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

# Certified algorithm → its published form. Other algorithms were not published, or have no published noise scale.
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
    """Return the `kind` of an algorithm's published form in a scenario.

    Example:
        >>> published_kind("ldp_dsbo")
        'papers.published:PublishedLdpDsbo'
    """
    return f"{__name__}:{FORMS[kind].__name__}"
