"""Weights of records: gradients by loops, pooled minimisers, noise of an even partition, neighbours, plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import decentral_dp
from decentral_dp.bounded import Array, Bounded
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import GossipJob
from tests.support.units import KEYS, data_sets, replayed, with_train

SIZES = (24, 12, 6, 4, 2)
EVEN = (10, 10, 10, 9, 9)
CLIP, L2 = 0.5, 0.1
FIXED = {"kind": "fixed_batch", "batch_size": 3}
POISSON = {"kind": "poisson", "rate": 0.25}
ALGORITHMS = (
    *("dp_dsgd", "ldp_single_level", "gradient_tracking", "push_sum", "federated", "exact_diffusion", "extra"),
    *("choco", "kgt", "mr_mtl", "random_walk"),
)


def content(weights: str, kind: str = "dp_dsgd", sampling: Any = "full", **privacy: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "problem": {"kind": "classification", "data": "given", "classes": [0, 1], "normalise": "l2", "l2": L2}
        | {"test": 0.0, "sampling": sampling, "weights": weights},
        "topology": {"kind": "complete" if kind == "dp_dsgd" else "ring", "agents": len(SIZES)},
        "algorithm": {"kind": kind, "rounds": 4, "learning_rate": 0.7},
        "privacy": {"mechanism": "gaussian", "clip": CLIP, "y": {"scale": 0.5}, "delta": 1e-6, **privacy},
    }


def objects(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    draw, n = np.random.default_rng(5), sum(SIZES)
    features = draw.normal(size=(n, 3))
    labels = (features[:, 0] + draw.normal(size=n) > 0.3).astype(int)
    # The largest agent has its own distribution, so that the objectives differ.
    labels[: SIZES[0]] = draw.integers(2, size=SIZES[0])
    return {"data": (features, labels), "partition": lambda labels, agents: np.repeat(np.arange(agents), sizes)}


def built(source: Mapping[str, Any], sizes: tuple[int, ...] = SIZES) -> GossipJob:
    job = build_job(dict(source), **objects(sizes))
    assert isinstance(job, GossipJob)
    return job


def test_gradients_are_weighted_means_by_loops() -> None:
    """Compare with central differences of the loss of one record; the ridge has no weight."""
    source = content("records", guarantee="none")
    source["privacy"] = {"guarantee": "none"}
    job = built(source)
    m, q, step = job.n_agents, job.problem.q, 1e-6
    y = np.random.default_rng(1).normal(size=(m, q))
    gradient = job.nodes([m])[0].dataset.batch(0).lower_grad_y(np.zeros((m, 0)), y)
    assert isinstance(gradient, Bounded)
    for i, records in enumerate(job.records["train"]):
        n, expected = len(records.label), L2 * y[i]
        for k in range(n):
            record = type(records)(records.features[k : k + 1], records.label[k : k + 1])
            ends = np.concatenate([y[i] + step * np.eye(q), y[i] - step * np.eye(q)])
            values = job.problem.losses(np.zeros((2 * q, 0)), ends, record, np.ones(1))[0]
            expected = expected + m * n / sum(SIZES) * (values[:q] - values[q:]) / (2 * step) / n
        np.testing.assert_allclose(gradient.value[i], expected, atol=1e-8)


@pytest.mark.parametrize("kind", ["dp_dsgd", "gradient_tracking", "exact_diffusion", "extra", "federated"])
def test_the_minimiser_is_that_of_all_records(kind: str) -> None:
    source = content("records", kind)
    source["privacy"] = {"guarantee": "none"}
    source["algorithm"] = {"kind": kind, "rounds": 2500, "learning_rate": 0.3}
    source["run"] = {"measures": ["optimality_gap", "lower_loss", "heterogeneity"]}
    run = decentral_dp.run(source, **objects())
    job = run.simulation()
    published = run.model.published.mean(axis=0)
    model, rows = job.problem, [np.concatenate(part) for part in zip(*job.records["train"], strict=True)]
    pooled = type(job.records["train"][0])(*rows)

    def logits(y: Array) -> Array:
        shares = model.probabilities(np.zeros(0), y, pooled)[0][0]
        return np.asarray(np.log(shares[:, 1] / shares[:, 0]))

    design = np.stack([logits(row) for row in np.eye(model.q)], axis=1)
    n = sum(SIZES)
    oracle = LogisticRegression(C=1.0 / (n * L2), fit_intercept=False, tol=1e-12, max_iter=10_000)
    oracle.fit(design, pooled.label)
    np.testing.assert_allclose(published, oracle.coef_[0], atol=1e-6)
    losses = [
        np.logaddexp(0.0, np.where(pooled.label == 1.0, -1.0, 1.0) * (design @ y)).mean() + 0.5 * L2 * y @ y
        for y in run.model.published
    ]
    last = run.result.metrics
    assert last["lower_loss"] == pytest.approx(float(np.mean(losses)), rel=1e-9)
    assert last["optimality_gap"] == pytest.approx(0.0, abs=1e-10)
    equal = decentral_dp.run(source | {"problem": source["problem"] | {"weights": "sites"}}, **objects())
    assert np.abs(equal.model.published.mean(axis=0) - oracle.coef_[0]).max() > 1e-2


@pytest.mark.parametrize("sampling", ["full", POISSON], ids=("full", "poisson"))
@pytest.mark.parametrize("keys", [KEYS[0], KEYS[1], {"unit": 2}], ids=str)
def test_noise_is_that_of_an_even_partition(keys: Mapping[str, Any], sampling: Any) -> None:
    """Sizes 24 to 2 have the sensitivity and ε of 48 records over 5 agents, evenly: 2C·5/48."""
    clips = keys.get("unit", 1) * (1 if "neighbours" in keys else 2)
    rate = 1.0 if sampling == "full" else 0.25
    jobs = {w: built(content(w, sampling=sampling, **keys)) for w in ("records", "sites")}
    changes = {w: job.ledger.charged_channels[0] for w, job in jobs.items()}
    uneven = changes["records"].sensitivity["train"][:, changes["records"].group]
    np.testing.assert_allclose(uneven, 0.7 * clips * CLIP * 5 / (48 * rate), rtol=1e-12)
    epsilon = jobs["records"].budget.epsilon
    np.testing.assert_allclose(epsilon, epsilon[0], rtol=1e-9)
    even = built(content("records", sampling=sampling, **keys), EVEN).budget.epsilon
    np.testing.assert_allclose(epsilon, even[0], rtol=1e-9)
    # The smallest agent sets the noise of agents that count equally.
    assert jobs["sites"].budget.epsilon.max() > 2.0 * epsilon[0]
    target = content("records", sampling=sampling, **keys, epsilon=1.0)
    del target["privacy"]["y"]
    scale = built(target).noise["y"].scale
    np.testing.assert_allclose(scale, scale[0], rtol=1e-6)


# Batches do not depend on the algorithm.
SAMPLED = ((KEYS[0], "full"), (KEYS[3], POISSON), (KEYS[4], FIXED))
MORE = ((KEYS[0], FIXED), (KEYS[0], POISSON), (KEYS[3], "full"), (KEYS[4], "full"))


@pytest.mark.parametrize(
    ("kind", "keys", "sampling"),
    [*((kind, *case) for kind in ALGORITHMS for case in SAMPLED), *(("dp_dsgd", *case) for case in MORE)],
    ids=str,
)
def test_planned_is_recorded(kind: str, keys: Mapping[str, Any], sampling: Any) -> None:
    source = content("records", kind, sampling, **keys)
    job = built(source)
    run = decentral_dp.run(source, **objects())
    assert run.result.status == "ok"
    assert run.records.same_releases(job.ledger)
    equal = content("sites", kind, sampling, **keys)
    assert not run.records.same_releases(built(equal).ledger)


@pytest.mark.parametrize("kind", ["dp_dsgd", "federated"])
def test_gradients_and_features_have_one_sensitivity(kind: str) -> None:
    source = content("records", kind, epsilon=8.0, clip={"x": 1.0, "y": CLIP})
    del source["privacy"]["y"]
    source["algorithm"] |= {"rounds": 12, "centring": True}
    job = built(source)
    m, q = len(SIZES), job.problem.q
    dataset = job.nodes([m])[0].dataset
    means = [r.features.mean(axis=0) * m * len(r.label) / 48 for r in job.records["train"]]
    np.testing.assert_allclose(dataset.feature_mean().value, means, atol=1e-12)
    gradient = dataset.batch(0).lower_grad_y(np.zeros((m, job.problem.p)), np.zeros((m, q)))
    for query, bound in ((gradient, CLIP), (dataset.feature_mean(), 1.0)):
        assert isinstance(query, Bounded)
        np.testing.assert_allclose(query.sensitivities["train"].sensitivity, 2.0 * bound * m / 48, rtol=1e-12)
    planned = next(c for c in job.ledger.charged_channels if c.channel in ("x", "m"))
    np.testing.assert_allclose(planned.sensitivity["train"], 2.0 * m / 48, rtol=1e-12)
    run = decentral_dp.run(source, **objects())
    assert run.result.status == "ok"
    assert run.records.same_releases(job.ledger)


@pytest.mark.parametrize("agent", range(len(SIZES)))
@pytest.mark.parametrize("kind", ["dp_dsgd", "ldp_single_level", "gradient_tracking", "push_sum"])
def test_neighbours_reach_the_planned_sensitivity_and_not_more(kind: str, agent: int) -> None:
    job, largest = built(content("records", kind)), 0.0
    for seed in range(6):
        draw = np.random.default_rng([4, seed])
        pair = list(data_sets(job.records["train"][agent], job.unit, draw, extreme=seed % 2 == 0))
        messages = [replayed(with_train(job, agent, records)) for records in pair]
        c = job.ledger.charged_channels[0]
        for index in c.rounds:
            moved = messages[0][index - 1] - messages[1][index - 1]
            assert np.abs(np.delete(moved, agent, axis=0)).max() == 0.0
            share = float(np.linalg.norm(moved[agent])) / float(c.sensitivity["train"][index - 1, c.group[agent]])
            assert share <= 1.0 + 1e-9
            largest = max(largest, share)
    assert largest >= 0.99


def test_shared_noise_spends_the_target_of_every_agent() -> None:
    """With one scale of noise for all, agents that count equally spend less than half the target."""
    shared: dict[str, Any] = {
        "epsilon": 1.0,
        "colluders": 1,
        "correlation": {"between_agents": "pairwise", "ratio": 2.0},
    }
    plans = {}
    for weights in ("sites", "records"):
        source = content(weights, **shared)
        del source["privacy"]["y"]
        plans[weights] = decentral_dp.plan(source, **objects())
    spent = {w: [float(e or 0.0) for e in plan.epsilon] for w, plan in plans.items()}
    assert min(spent["sites"]) < 0.2
    assert min(spent["records"]) > 0.99
    assert "Agent 4 has the fewest records, 2, and sets the noise of all agents" in " ".join(
        str(plans["sites"]).replace("\n", " ").split()
    )
    assert "sets the noise of all agents" not in str(plans["records"])
    assert ", mean over agents" in str(plans["sites"])
    assert ", mean over all records" in str(plans["records"])


@pytest.mark.parametrize(
    ("weights", "privacy", "advises"),
    [
        ("sites", {"epsilon": 1.0}, True),
        ("records", {"epsilon": 1.0}, False),
        ("sites", {"epsilon": 1.0, "adversary": "final_models"}, False),
        ("sites", {"epsilon": 1.0, "guarantee": "none"}, False),
    ],
)
def test_a_plan_advises_weights_of_records_for_unequal_agents(
    weights: str, privacy: dict[str, Any], advises: bool
) -> None:
    source = content(weights, **privacy)
    del source["privacy"]["y"]
    advice = 'Small agents add more noise. Fix: set problem.weights = "records".'
    assert (advice in decentral_dp.plan(source, **objects()).setting_warnings) == advises


@pytest.mark.parametrize(
    ("kind", "sizes", "privacy"),
    [
        ("random_walk", SIZES, {}),
        ("dp_dsgd", EVEN, {"colluders": 1, "correlation": {"between_agents": "pairwise", "ratio": 8.0}}),
    ],
)
def test_other_reasons_for_a_small_epsilon_are_not_named_as_records(
    kind: str, sizes: tuple[int, ...], privacy: dict[str, Any]
) -> None:
    """Agents that a random walk never visits, or with more neighbours, do not have more records."""
    source = content("sites", kind, epsilon=1.0, **privacy)
    del source["privacy"]["y"]
    source["topology"]["kind"] = "star"
    job = built(source, sizes)
    assert job.budget.epsilon.min() < 0.5
    assert "fewest records" not in " ".join(job.setting_warnings)


def test_defaults_follow_from_the_mean_count() -> None:
    """Counts 24 to 2 have the default clip of an even partition, up to the curvature of the largest agent."""

    def clip(weights: str, sizes: tuple[int, ...]) -> float:
        source = content(weights, epsilon=2.0)
        del source["privacy"]["y"], source["privacy"]["clip"]
        source["algorithm"] = {"kind": "dp_dsgd", "rounds": 4000, "learning_rate": 0.05}
        return float(built(source, sizes).clip.y)

    assert clip("records", SIZES) == pytest.approx(clip("records", EVEN))
    assert clip("sites", SIZES) < clip("records", SIZES)
