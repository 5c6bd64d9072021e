"""Minimax problems by name. Each entry builds its problem from the [problem] table and public facts of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from decentral_dp.errors import InputError
from decentral_dp.problems.minimax.facts import MinimaxFacts, model_of
from decentral_dp.problems.minimax.protocol import Minimax


class MinimaxEntry(NamedTuple):
    """A registered minimax problem: how to build it, one line for the list, its description, the options it reads.

    needed: those that have no default. every_class: whether every class needs train records. trajectories: whether it
    reads trajectories, and nothing else.
    """

    build: Callable[[MinimaxFacts], Minimax]
    summary: str
    home: str
    options: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    every_class: bool = False
    trajectories: bool = False


def _auc(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax.auc import AucObjective
    from decentral_dp.problems.minimax.composite import Composite

    if facts.n_classes != 2:
        raise InputError(
            f"problem.kind: auc_maximisation needs exactly 2 classes, and the data have {facts.n_classes or 'numbers'}"
            ". Say which of the classes are positive, as in construction = { positive = [0] }."
        )
    return Composite(model_of(facts, 1), AucObjective(facts.options["positive_share"]))


def _mspbe(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax.mspbe import USUAL_RIDGE, Mspbe

    model = facts.options.get("model") or {"kind": "linear"}
    if model["kind"] not in ("linear", "mlp"):
        raise InputError(
            f"problem.model: mspbe needs second derivatives of its value function, got {model['kind']!r}. Take linear, "
            'or for example { kind = "mlp", hidden = [50] }.'
        )
    if facts.trajectory is None:
        raise InputError("problem.data: mspbe reads trajectories. Take cartpole, acrobot or pong, or a .npz file.")
    return Mspbe(
        *facts.trajectory,
        discount=facts.options["discount"],
        ridge=facts.options.get("ridge", USUAL_RIDGE),
        hidden=tuple(model.get("hidden", ())),
        seed=facts.seed,
    )


def _dro(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax.dro import build

    return build(facts)


def _kl_dro(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax.kl_dro import build

    return build(facts)


def _group_dro(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax.group_dro import build

    return build(facts)


def _wgan(facts: MinimaxFacts) -> Minimax:
    from decentral_dp.problems.minimax import wgan

    options, model = facts.options, facts.options.get("model") or {"kind": "linear"}
    if model["kind"] not in ("linear", "mlp"):
        raise InputError(
            f"problem.model: wgan differentiates its critic by what it reads as well, and cannot do so for "
            f'{model["kind"]!r}. Take linear, or for example {{ kind = "mlp", hidden = [64] }}.'
        )
    if facts.l2 is None:
        raise InputError(
            "problem.scale: wgan generates records in [-1, 1], and nothing bounds these. Set scale = "
            '"public_ranges", or another declared range.'
        )
    return wgan.Wgan(
        model_of(facts, 1),
        facts.n_features,
        tuple(model.get("hidden", ())),
        tuple(options.get("generator", wgan.USUAL_GENERATOR)),
        options.get("latent", wgan.USUAL_LATENT),
        options.get("penalty", wgan.USUAL_PENALTY),
        options.get("radius", wgan.USUAL_RADIUS),
        facts.clip.get("y", math.inf),
        facts.seed,
        facts.device,
    )


MINIMAX: dict[str, MinimaxEntry] = {
    "auc_maximisation": MinimaxEntry(
        _auc,
        "a classifier of two classes that ranks positive records first, by a least-squares surrogate of the AUC",
        "decentral_dp.problems.minimax.auc",
        ("positive_share", "model"),
        ("positive_share",),
        every_class=True,
    ),
    "dro": MinimaxEntry(
        _dro,
        "the worst mean loss over distributions near that of the records, by a ψ-divergence and its dual",
        "decentral_dp.problems.minimax.dro",
        ("divergence", "order", "level", "strength", "loss", "cap", "model"),
        ("divergence", "cap"),
    ),
    "kl_dro": MinimaxEntry(
        _kl_dro,
        "the same under the KL divergence, as a function of one mean (compositional form)",
        "decentral_dp.problems.minimax.kl_dro",
        ("strength", "radius", "loss", "cap", "model"),
        ("strength", "radius", "cap"),
    ),
    "group_dro": MinimaxEntry(
        _group_dro,
        "the worst mean loss of a group, where the groups are the classes",
        "decentral_dp.problems.minimax.group_dro",
        ("group_shares", "strength", "loss", "cap", "model"),
        ("strength", "cap"),
    ),
    "mspbe": MinimaxEntry(
        _mspbe,
        "temporal differences: a value function that predicts the rewards to come, of whole trajectories",
        "decentral_dp.problems.minimax.mspbe",
        ("discount", "ridge", "model"),
        ("discount",),
        trajectories=True,
    ),
    "wgan": MinimaxEntry(
        _wgan,
        "a generator of records like these, and a critic that tells them apart: a Wasserstein GAN",
        "decentral_dp.problems.minimax.wgan",
        ("generator", "latent", "penalty", "radius", "model"),
    ),
}
