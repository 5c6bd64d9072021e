"""Words for measured names, as figures and tables print them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

METRIC_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "agents": "agents",
        "claimed": "ε claimed by the printed formula",
        "claimed_endless": "ε claimed by the printed formula for T → ∞",
        "consensus_x": "distance of x to the network average (ℓ2)",
        "consensus_y": "distance of y to the network average (ℓ2)",
        "consensus_z": "distance of z to the network average (ℓ2)",
        "endless_stream": "ε of the worst agent on an endless stream",
        "epsilon_max": "ε of the worst agent",
        "epsilon_pure_max": "pure ε of the worst agent",
        "epsilon_spent": "ε spent by the worst agent",
        "finite_data": "ε of the worst agent for T → ∞ on these data",
        "hypergradient_norm": "‖∇F‖₂ at the average x",
        "network_epsilon_max": "largest ε towards one other agent",
        "network_epsilon_mean": "mean ε towards one other agent",
        "neighbour_weight": "smallest total weight of an agent's neighbours",
        "spectral_gap": "spectral gap 1 − ρ",
        "test_accuracy": "accuracy on held-out records",
        "test_auc": "AUC on held-out records",
        "test_rmse": "root mean squared error on held-out records",
        "test_r2": "R² on held-out records",
        "test_loss": "loss on held-out records",
        "lower_loss": "lower loss (train)",
        "upper_loss": "upper loss (validation)",
        "primal": "value that is minimised",
        "gradient_norm": "norm of its gradient",
    }
)
_ENDINGS = {
    "_min": ", lowest agent",
    "_max": ", highest agent",
    "_last": ", last released values",
    "_unreleased": ", unreleased state",
}


def metric_words(name: str) -> str | None:
    """What a measured name is; None where nothing is known of it.

    Example:
        >>> metric_words("upper_loss"), metric_words("test_loss_max"), metric_words("mine")
        ('upper loss (validation)', 'loss on held-out records, highest agent', None)
        >>> metric_words("network_epsilon_distance_2")
        'largest ε towards an agent 2 links away'
    """
    if name in METRIC_WORDS:
        return METRIC_WORDS[name]
    links = name.removeprefix("network_epsilon_distance_")
    if links != name and links.isdecimal():
        return f"largest ε towards an agent {links} {'link' if links == '1' else 'links'} away"
    stem, ending = next(((name.removesuffix(e), words) for e, words in _ENDINGS.items() if name.endswith(e)), ("", ""))
    return METRIC_WORDS[stem] + ending if stem in METRIC_WORDS else None
