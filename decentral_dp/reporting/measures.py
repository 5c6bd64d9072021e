"""What is measured: names, labels, units, and whether higher values are better; one plain table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Reach(NamedTuple):
    """The cells of a study in which something is measured.

    Args:
        head: the same in words.
        kinds: the kinds of study that measure it: "run", "plan".
        over_rounds: those of them that measure it in every round, too.
    """

    head: str
    kinds: tuple[str, ...]
    over_rounds: tuple[str, ...]


SCORE = Reach("Of runs, over rounds and at the end", ("run",), ("run",))
PRICE = Reach("Of plans, over rounds and at the end; of runs, at the end", ("run", "plan"), ("plan",))
OF_RUNS = Reach("Of runs, at the end", ("run",), ())
FACT = Reach("Of runs and plans, at the end", ("run", "plan"), ())
SENT = Reach("Of runs and plans, over rounds and at the end", ("run", "plan"), ("run", "plan"))
OF_PLANS = Reach("Of plans, at the end", ("plan",), ())


class Measure(NamedTuple):
    """A measured name.

    Args:
        label: on pages, in figures and in tables.
        endings: each makes one more measured name.
        reach: the cells of a study that measure it.
        better: whether higher or lower values are better.
        axis: how a figure scales it: "log", "flat" (a share, never stretched), or by its values.
        meaning: in `list measures` and the reference, if the label says less.
        of: the only problem that measures it; "" if several do.
    """

    label: str
    endings: tuple[str, ...] = ("",)
    reach: Reach = SCORE
    better: Literal["higher", "lower"] = "lower"
    axis: Literal["values", "log", "flat"] = "values"
    meaning: str = ""
    of: str = ""

    @property
    def description(self) -> str:
        """The meaning, with the only problem that measures it."""
        return f"{self.of}: {self.meaning or self.label}" if self.of else self.meaning or self.label

    @property
    def qualifiers(self) -> list[str]:
        """The parts of its endings, such as "_min" of "_last_min"."""
        return [part for part in ENDINGS if any(part in ending for ending in self.endings)]


# Ending of a name → its addition to a label, and its meaning.
ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "_min": (", lowest agent", "the lowest agent's; without an ending it is the mean over agents"),
        "_max": (", highest agent", "the highest agent's"),
        "_last": (", last released values", "of the last released values alone, where published ones are averages"),
        "_unreleased": (", unreleased state", "of the state, which nobody sees"),
    }
)
_SPREAD = ("", "_min", "_max")
# Trusted coordinators that publish x alone have losses of a state that nobody sees.
_LOSS = (*_SPREAD, *(f"_unreleased{end}" for end in _SPREAD))
_TEST = (*_LOSS, *(f"_last{end}" for end in _SPREAD))

_LOWER_LOSS = "lower loss (train), or train_loss: the loss that training at one level minimises"
_FIRST = "evaluated round at which a metric first reaches a level; any metric, any level"
_DISTANT = "largest {} towards a neighbour; …_2, …_3: that far away"
_DIVERGED = (
    "1 if the run diverged: a released value was not finite or above 10⁶ times its public scale, or the loss ended "
    "above 10³ times max(its start, 1); a mean is a share of cells"
)

# In the order of a run's page, then by name.
MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "upper_loss": Measure("upper loss (validation)", _LOSS),
        "lower_loss": Measure("lower loss (train)", _LOSS, meaning=_LOWER_LOSS),
        "test_loss": Measure("loss on held-out records", _TEST),
        "test_auc": Measure("AUC on held-out records", _TEST, better="higher", axis="flat"),
        "test_accuracy": Measure("accuracy on held-out records", _TEST, better="higher", axis="flat"),
        "test_f1": Measure("F1 on held-out records", _TEST, better="higher"),
        "test_balanced_accuracy": Measure("accuracy on held-out records, mean over classes", _TEST, better="higher"),
        "test_brier": Measure("Brier score on held-out records", _TEST),
        "test_recall": Measure("recall of the second class (probability 0.5), held out", _TEST, better="higher"),
        "test_precision": Measure(
            "precision of the second class (at probability 0.5), held out", _TEST, better="higher"
        ),
        "test_calibration": Measure("calibration error on held-out records", _TEST),
        "test_rmse": Measure("root mean squared error on held-out records", _TEST),
        "test_r2": Measure("R² on held-out records", _TEST, better="higher"),
        "test_worst_class_accuracy": Measure("accuracy on the worst class of held-out records", better="higher"),
        "test_robust_loss": Measure("robust loss on held-out records"),
        "test_mspbe": Measure("mean squared projected Bellman error, held out", of="mspbe"),
        "test_return_error": Measure("root mean squared error of predicted returns, held out", of="mspbe"),
        "test_distance": Measure("distance of generated to held-out records; 0 is best", of="wgan"),
        "primal": Measure("Φ(x), F at the best y (train)"),
        "objective": Measure("F at the published x and y (train)"),
        "best_strength": Measure("best λ (train)", of="kl_dro"),
        "robust_loss": Measure("robust loss (train)"),
        "loss": Measure("mean loss (train)"),
        "estimate": Measure("the published critic's own estimate of the distance (train)", of="wgan"),
        "gradient_norm": Measure("norm of the gradient of Φ (train)"),
        "auc": Measure("AUC (train)", better="higher"),
        "hypergradient_norm": Measure("norm of the hypergradient, ‖∇F‖₂"),
        "hypergradient_gap": Measure("‖∇F(x̄) − ∇F_P(x̄)‖₂, P the held-out records"),
        "consensus_x": Measure("distance of x to the network average (ℓ2)", _SPREAD),
        "consensus_y": Measure("distance of y to the network average (ℓ2)", _SPREAD),
        "consensus_z": Measure("distance of z to the network average (ℓ2)", _SPREAD),
        "agents": Measure("agents", reach=FACT),
        "bits": Measure("bits sent per agent", reach=SENT),
        "claimed": Measure("ε claimed by the published formula", reach=PRICE),
        "claimed_endless": Measure("ε claimed by the published formula for T → ∞", reach=OF_PLANS),
        "diverged": Measure("1 if the run diverged, else 0", reach=OF_RUNS, meaning=_DIVERGED),
        "endless_stream": Measure("ε of the worst agent on an endless stream", reach=OF_PLANS),
        "epsilon_max": Measure("ε of the worst agent", reach=PRICE),
        "epsilon_pure_max": Measure("pure ε of the worst agent", reach=PRICE),
        "epsilon_spent": Measure("ε spent by the worst agent", axis="log"),
        "finite_data": Measure("ε of the worst agent for T → ∞ on these data", reach=OF_PLANS),
        "messages": Measure("messages sent per agent", reach=SENT),
        "neighbour_weight": Measure("smallest total weight of an agent's neighbours", reach=FACT),
        "network_epsilon_distance_1": Measure(_DISTANT.format("certified ε"), reach=FACT),
        "network_linear_distance_1": Measure(_DISTANT.format("ε by the linear price (no bound)"), reach=FACT),
        "network_epsilon_max": Measure("largest ε towards one other agent", reach=FACT),
        "network_epsilon_mean": Measure("mean ε towards one other agent", reach=FACT),
        "ok": Measure("1 if the cell ended ok, else 0; a mean is a share of cells", reach=FACT),
        "rounds": Measure("rounds that were run", reach=FACT),
        "rounds_to_test_accuracy_0.9": Measure(_FIRST, reach=OF_RUNS),
        "seconds": Measure("seconds that the run took", reach=OF_RUNS),
        "spectral_gap": Measure("spectral gap 1 − ρ", reach=FACT),
        "test_worst_group_loss": Measure("loss of the worst group of held-out records"),
        "weight_clean": Measure(
            "mean weight of groups whose labels are right", _SPREAD, better="higher", of="hyper_cleaning"
        ),
        "weight_corrupted": Measure("mean weight of groups whose labels are wrong", _SPREAD, of="hyper_cleaning"),
        "worst_group_loss": Measure("loss of the worst group (train)"),
    }
)
# The held-out score that judges a run, the first that it has: its name in sentences, and its decimals.
JUDGES = {"test_auc": ("AUC", 3), "test_accuracy": ("accuracy", 2), "test_r2": ("R²", 2)}


def metric_words(name: str) -> str | None:
    """Return the label of a measured name; None if it is unknown.

    Example:
        >>> metric_words("upper_loss"), metric_words("test_loss_max"), metric_words("mine")
        ('upper loss (validation)', 'loss on held-out records, highest agent', None)
        >>> metric_words("network_epsilon_distance_2")
        'largest ε towards an agent 2 links away'
        >>> metric_words("rounds_to_test_accuracy_0.9")
        'rounds until 0.9 is reached, accuracy on held-out records'
    """
    for start, price in (
        ("network_epsilon_distance_", "ε"),
        ("network_linear_distance_", "linear ε (no bound for training)"),
    ):
        links = name.removeprefix(start)
        if links != name and links.isdecimal():
            return f"largest {price} towards an agent {links} {'link' if links == '1' else 'links'} away"
    if name.startswith("rounds_to_"):
        metric, _, level = name.removeprefix("rounds_to_").rpartition("_")
        return f"rounds until {level} is reached, {metric_label(metric)}"
    ending = next((e for e in ENDINGS if name.endswith(e) and name not in MEASURES), "")
    measure = MEASURES.get(name.removesuffix(ending))
    return None if measure is None else measure.label + (ENDINGS[ending][0] if ending else "")


def metric_label(name: str) -> str:
    """Return the label of a measured name, or the name itself."""
    return metric_words(name) or name.replace("_", " ")
