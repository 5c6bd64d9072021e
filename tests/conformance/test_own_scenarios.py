"""Every registered algorithm has a shipped scenario of its own name, which runs in seconds and learns something."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load, scenario_names
from decentral_dp.data.loaders import DATASETS
from decentral_dp.simulation.jobs.build import build


class Gain(NamedTuple):
    """score: a metric; by: how much it has to change from round 0 to the end, negative where less is better."""

    score: str
    by: float


# Less than the worst of the seeds tried showed, with room: noise is redrawn on other processors.
GAINS = MappingProxyType(
    {
        "ldp_dsbo": Gain("upper_loss", -0.3),
        "ma_dsbo": Gain("upper_loss", -0.12),
        "dsbo_jhip": Gain("upper_loss", -0.25),
        "gbdsbo": Gain("upper_loss", -0.2),
        "vrdsbo": Gain("upper_loss", -0.12),
        "spdb": Gain("upper_loss", -0.25),
        "bsa": Gain("upper_loss", -0.3),
        "ldp_single_level": Gain("test_accuracy", 0.65),
        "dp_dsgd": Gain("test_accuracy", 0.65),
        "regularisation_tuner": Gain("upper_loss", -0.12),
        "pp_ift": Gain("upper_loss", -0.12),
        "second_order_dp_bilevel": Gain("upper_loss_unreleased", -0.05),
        "dp_bilevel": Gain("upper_loss", -0.12),
        "dp_sgda": Gain("test_auc", 0.4),
        "privatediff": Gain("test_auc", 0.4),
        "privatediff_xy": Gain("test_auc", 0.4),
        "dptd": Gain("test_return_error", -3.5),
        "double_spider": Gain("primal", -0.3),
        "dp_spider": Gain("primal", -0.3),
        "dp_sgd_dual": Gain("primal", -0.4),
        "recursive_spider": Gain("primal", -0.3),
        "scdro": Gain("primal", -0.4),
        "exponential_mechanism": Gain("upper_loss_unreleased", -0.05),
        "regularised_exponential_mechanism": Gain("upper_loss_unreleased", -0.01),
        "gradient_norm_exponential_mechanism": Gain("hypergradient_norm", -0.05),
        "grid_walk": Gain("upper_loss_unreleased", -0.03),
        "warm_start": Gain("upper_loss_unreleased", -0.05),
    }
)
# Algorithm → (guarantee, why it cannot be "certified").
UNCERTIFIED = MappingProxyType(
    {
        "scdro": ("none", "a baseline that clips nothing and adds no noise"),
        "grid_walk": (
            "as_printed",
            "how far a walk is from its law is unknown, whatever the steps",
        ),
    }
)
# What needs no file that the package does not have.
BROUGHT = {"mnist", "fashion_mnist", "cifar10", "celeba", "pong"}


def test_the_tables_name_every_algorithm() -> None:
    assert set(GAINS) == set(ALGORITHMS)
    assert set(UNCERTIFIED) <= set(ALGORITHMS)
    assert set(ALGORITHMS) <= set(scenario_names())


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_it_learns_at_its_budget(name: str) -> None:
    scenario = load(name)
    assert scenario.algorithm.kind == name
    assert scenario.seed is not None
    assert scenario.problem.data in set(DATASETS) - BROUGHT
    assert scenario.title
    assert len(scenario.description.split(". ")) >= 2
    run = decentral_dp.run(scenario)
    assert run.result["status"] == "ok"
    privacy, epsilon = scenario.privacy, run.simulation().budget.epsilon
    if name in UNCERTIFIED:
        assert privacy.guarantee == UNCERTIFIED[name][0]
        assert np.isinf(epsilon).all()
    else:
        assert privacy.guarantee == "certified"
        assert privacy.epsilon is not None
        assert privacy.epsilon <= 8.0
        assert privacy.delta <= 1e-5
        # For every agent, and not far below what was asked for: a target that is missed would show here.
        assert epsilon.shape == (run.simulation().n_agents,)
        assert (epsilon <= privacy.epsilon).all()
        assert (epsilon > 0.99 * privacy.epsilon).all()
    score, by = GAINS[name]
    means = run.metrics[(run.metrics["agent"] == "mean") & (run.metrics["name"] == score)].set_index("round")["value"]
    gain = float(means.loc[run.simulation().rounds] - means.loc[0])
    assert math.copysign(gain, gain * by) >= abs(by), f"{score} from {means.loc[0]:.3f} to {means.iloc[-1]:.3f}"


@pytest.mark.parametrize("name", sorted(UNCERTIFIED))
def test_the_descriptions_say_what_is_not_certified(name: str) -> None:
    text = " ".join(load(name).description.split())
    assert ("no certificate" if name == "scdro" else "Nothing is certified") in text
    with pytest.raises(decentral_dp.InputError):
        build(load(name, ['privacy.guarantee="certified"', "privacy.epsilon=4.0"]))
