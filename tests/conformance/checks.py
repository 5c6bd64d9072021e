"""Checks of every run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import decentral_dp
from decentral_dp.algorithms.protocol import Claiming
from decentral_dp.simulation.metrics import final
from decentral_dp.simulation.sites import SITE_MEASURES

METRICS = {"upper_loss", "lower_loss", "test_loss"}


def checked(run: decentral_dp.Run, rounds: int) -> decentral_dp.Run:
    """Check a run of this number of rounds, and return it."""
    assert run.result["status"] == "ok", run.result["reason"]
    trusted = run.simulation().setting != "gossip"
    alike = (
        run.records.costs_within(run.simulation().ledger)
        if trusted
        else run.simulation().ledger.same_releases(run.records)
    )
    assert alike, "planned and recorded releases differ"
    assert run.records.rounds == rounds
    channels = list(run.released) if trusted else run.simulation().algorithm.channels
    for channel in channels:
        job = run.simulation()
        size = job.problem.p if channel == "x" else job.problem.q
        if not trusted:
            size = job.algorithm.releases(job.problem.p, job.problem.q)[channel].width
        for values in (run.released, run.published, run.state):
            assert values[channel].shape == (1 if trusted else run.simulation().n_agents, size)
            assert np.isfinite(values[channel]).all()
    privacy = run.result["privacy"]
    budgets = np.array([agent["epsilon"] for agent in privacy["agents"]])
    assert budgets.shape == (run.simulation().n_agents,)
    assert privacy["epsilon_max"] == budgets.max()
    if run.scenario.privacy.guarantee == "none":
        # An agent that never holds the token releases nothing.
        assert np.isinf(budgets[budgets > 0.0]).all()
        assert (budgets > 0.0).all() or run.scenario.algorithm.kind == "random_walk"
    if run.scenario.privacy.guarantee == "certified":
        assert np.isfinite(budgets).all()
    if run.scenario.privacy.epsilon is not None and run.scenario.privacy.guarantee == "certified":
        stated = budgets.max() if privacy["epsilon_published"] is None else privacy["epsilon_published"]
        assert stated <= run.scenario.privacy.epsilon
    published = run.scenario.privacy.guarantee == "as_published"
    assert (privacy["claimed"] is not None) == (
        published and (trusted or isinstance(run.simulation().algorithm, Claiming))
    )
    assert bool(privacy["releases"]) == trusted
    if run.result["problem"]["solves"] == "minimax":
        # The best critic of a generator is unknown.
        own = {"estimate"} if run.scenario.problem.kind == "wgan" else {"primal", "gradient_norm"}
        assert own | {"epsilon_spent"} <= set(run.metrics["name"])
    else:
        check_metrics(run, channels)
    assert set(final(run.metrics)) == set(run.metrics["name"])
    return run


def check_metrics(run: decentral_dp.Run, channels: Sequence[str]) -> None:
    """A run on a bilevel problem has its metrics, and no unknown ones."""
    trusted = run.simulation().setting != "gossip"
    endings = ("_min", "_max", "_last", *([] if trusted else ["_unreleased"]))
    plain = {n.removesuffix("_unreleased") for n in run.metrics["name"] if not n.endswith(endings)}
    plain = {n for n in plain if not n.endswith(endings)}
    spent = set() if run.scenario.privacy.guarantee == "none" else {"epsilon_spent"}
    wanted = METRICS | spent | {f"consensus_{c}" for c in channels if not trusted}
    wanted -= set() if run.simulation().test is not None else {"test_loss"}
    own = {"weight_clean", "weight_corrupted"}
    if run.simulation().components.one_level:
        # Nothing is tuned: there is no upper level, and no x to disagree on but the centre that features may have.
        wanted -= {"upper_loss"} if run.simulation().problem.p else {"upper_loss", "consensus_x"}
        names = ("auc", "balanced_accuracy", "f1", "recall", "precision", "brier", "calibration")
        own = {f"test_{name}" for name in names}
    asked = set(run.scenario.run.measures or SITE_MEASURES)  # of agents that a column names
    assert wanted <= plain <= wanted | asked | {"test_accuracy", "epsilon_spent"} | own
