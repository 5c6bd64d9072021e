"""What every measured name of a study means, as `show measures` and the reference print it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, get_args

from decentral_dp.reporting.metric_words import METRIC_WORDS
from decentral_dp.studies.measures import Split, names_of, plain_name

# What METRIC_WORDS, which figures print, has no words for, or none that stand alone.
_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "agents": "number of agents",
        "auc": "AUC on train records",
        "best_strength": "kl_dro: the best λ on train records",
        "diverged": "1 where a value stopped being finite, else 0; a mean is a share of cells",
        "estimate": "wgan: the published critic's own estimate of the distance",
        "gradient_norm": "norm of the gradient of the value that is minimised",
        "hypergradient_gap": "‖∇F(x̄) − ∇F_P(x̄)‖₂, P the held-out records; of trusted coordinators",
        "loss": "mean loss on train records",
        "network_epsilon_distance_1": "largest certified ε towards a neighbour; …_2, …_3: that far away",
        "network_epsilon_max": "certified ε of one record towards one other agent, the largest of all pairs",
        "network_epsilon_mean": "certified ε of one record towards one other agent, the mean over all pairs",
        "objective": "F at the published x and y",
        "ok": "1 where the cell ended ok, else 0; a mean is a share of cells",
        "robust_loss": "robust loss on train records",
        "rounds": "rounds that were run",
        "seconds": "time that the run took",
        "test_critic_auc": "wgan: AUC of a critic trained afresh on held-out records; 0.5 is best",
        "test_distance": "wgan: distance of generated to held-out records; 0 is best",
        "test_f1": "F1 on held-out records",
        "test_mean_gap": "wgan: ‖mean held out − mean generated‖₂",
        "test_mspbe": "mspbe: mean squared projected Bellman error on held-out trajectories",
        "test_return_error": "mspbe: root mean squared error of predicted returns, held-out trajectories",
        "test_robust_loss": "robust loss on held-out records",
        "test_spread": "wgan: spread of generated over that of held-out records; 1 is best",
        "test_worst_class_accuracy": "accuracy on the worst class of held-out records",
        "test_worst_group_loss": "loss of the worst group of held-out records",
        "weight_clean": "hyper_cleaning: mean weight of groups whose labels are right",
        "weight_corrupted": "hyper_cleaning: mean weight of groups whose labels are wrong",
        "worst_group_loss": "loss of the worst group of train records",
    }
)
ENDINGS: Mapping[str, str] = MappingProxyType(
    {
        "_min": "the lowest agent's; without an ending it is the mean over agents",
        "_max": "the highest agent's",
        "_last": "of the last released values alone, where published ones are averages",
        "_unreleased": "of the state, which nobody sees",
    }
)


class Measure(NamedTuple):
    """A measured name.

    Args:
        name: without endings.
        endings: those that it may have.
        meaning: in words.
        of: the kinds of study that measure it: "run", "plan".
        over_rounds: those of them that know it of every round, too.
    """

    name: str
    endings: tuple[str, ...]
    meaning: str
    of: tuple[str, ...]
    over_rounds: tuple[str, ...]


def measures() -> Iterator[Measure]:
    """Yield every measured name once, in alphabetical order.

    Example:
        >>> next(m for m in measures() if m.name == "epsilon_spent")[2:]
        ('ε spent by the worst agent', ('run',), ('run',))
    """
    kinds: dict[Split, list[str]] = {kind: names_of(kind, over_rounds=False) for kind in get_args(Split)}
    every = sorted({*kinds["run"], *kinds["plan"]})
    for name in (n for n in every if plain_name(n, every) == n):
        ended = [n for n in every if n != name and plain_name(n, every) == name]
        endings = tuple(e for e in ENDINGS if any(e in n.removeprefix(name) for n in ended))
        of = tuple(kind for kind, names in kinds.items() if name in names)
        over_rounds = tuple(kind for kind in kinds if name in names_of(kind, over_rounds=True))
        yield Measure(name, endings, _OTHERS.get(name) or METRIC_WORDS[name], of, over_rounds)


def grouped() -> dict[str, list[Measure]]:
    """Group the measures by who measures them, in words, those over rounds first.

    Example:
        >>> list(grouped())[0], [m.name for m in grouped()["Of plans, at the end"]][0]
        ('Of runs, over rounds and at the end', 'claimed_endless')
    """
    found: dict[str, list[Measure]] = {}
    for m in sorted(measures(), key=lambda m: (not m.over_rounds, len(m.of) < len(m.over_rounds), m.of != ("run",))):
        both = " and ".join(f"{kind}s" for kind in m.over_rounds)
        rest = " and ".join(f"{kind}s" for kind in m.of if kind not in m.over_rounds)
        parts = [f"of {both}, over rounds and at the end"] if both else []
        parts += [f"of {rest}, at the end"] if rest else []
        head = "; ".join(parts)
        found.setdefault(head[0].upper() + head[1:], []).append(m)
    return found
