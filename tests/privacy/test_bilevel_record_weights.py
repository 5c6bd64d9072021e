"""Weights of records at two levels: plans, neighbouring records of both splits, pooled solutions, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.bounded import SPLITS, Array, Bounded, Sensitivity, Split, memory_slack, split_rounding
from decentral_dp.config.loading import load_scenario
from decentral_dp.data import Sampling
from decentral_dp.errors import InputError
from decentral_dp.participants import LocalDataset, other_weight, record_weights
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.simulation.jobs.build import build_job
from tests.support.algorithm_keys import KEYS
from tests.support.naive import Crossed
from tests.support.replay import network_replay

# The splits have other proportions at every agent.
COUNTS: Mapping[Split, tuple[int, ...]] = {"train": (12, 6, 3, 2, 1), "validation": (2, 1, 8, 1, 4)}
AGENTS, D, CLASSES = 5, 3, 3
CLIP = {"x": 0.4, "y": 0.5, "z": 0.3}
BATCH = 3
FULL = Sampling("full")
FIXED = {"kind": "fixed_batch", "batch_size": BATCH}
ALONE = ("spdb", "vrdsbo")
KINDS = ("adasdbo", "bsa", "dsbo_jhip", "dsoba", "f2sa", "gbdsbo", "ldp_dsbo", "ma_dsbo")
CASES = (*((kind, {}) for kind in KINDS), ("ldp_dsbo", {"protocol": "private"}))
NAMES = (*KINDS, "private")


def frame(seed: int = 5) -> pd.DataFrame:
    draw, sizes = np.random.default_rng(seed), [n for counts in COUNTS.values() for n in counts]
    agent = np.repeat([*range(AGENTS)] * 2, sizes)
    features = draw.uniform(-1.0, 1.0, (agent.size, D))
    label = np.where(agent == 0, 2, draw.integers(CLASSES, size=agent.size))
    split = np.repeat(SPLITS, [sum(COUNTS[k]) for k in SPLITS])
    return pd.DataFrame(features, columns=list("abc")).assign(label=label, agent=agent, split=split)


def content(
    kind: str, problem: str = "hyper_cleaning", sampling: Any = "full", weights: str = "records", **keys: Any
) -> dict[str, Any]:
    required = {o.key: KEYS[o.key] for o in ALGORITHMS[kind].keys if o.required}
    return {
        "seed": 3,
        "problem": {"kind": problem, "label": "label", "classes": [0, 1, 2], "scale": {"*": [-1, 1]}}
        | {"sampling": sampling, "weights": weights},
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": kind, "rounds": 3, **required, **keys},
        "privacy": {"mechanism": "gaussian", "delta": 1e-6, "clip": CLIP, **{c: {"scale": 0.3} for c in "xyz"}},
    }


def built(source: Mapping[str, Any]) -> Any:
    return build_job(dict(source), data=frame())


def test_every_bilevel_algorithm_has_weights_or_a_refusal() -> None:
    two_levels = {
        kind
        for kind, e in ALGORITHMS.items()
        if e.solves == "bilevel" and not e.trusts_coordinator and {"x", "y"} <= {option.key for option in e.keys}
    }
    assert two_levels <= {*KINDS, *ALONE}
    for kind in ALONE:
        with pytest.raises(InputError, match=rf"problem\.weights: {kind} inverts the Hessian of each agent"):
            built(content(kind))


@pytest.mark.parametrize("sampling", ["full", FIXED], ids=("full", "fixed"))
@pytest.mark.parametrize(("kind", "keys"), CASES, ids=NAMES)
def test_planned_is_recorded(kind: str, keys: dict[str, Any], sampling: Any) -> None:
    """With all records, every agent has the sensitivity 2Cm/N of its split."""
    source = content(kind, sampling=sampling, **keys)
    job = built(source)
    # The plan does not depend on blocks of agents.
    run = decentral_dp.run(source | {"run": {"blocks": 3}}, data=frame())
    assert run.result.status == "ok"
    assert run.records.same_releases(job.ledger)
    equal = built(content(kind, sampling=sampling, weights="sites", **keys)).ledger
    assert not run.records.same_releases(equal)
    if sampling == "full":
        for c, unweighted in zip(job.ledger.charged_channels, equal.charged_channels, strict=True):
            for split, bound in c.sensitivity.items():
                weights = np.array(COUNTS[split]) * AGENTS / sum(COUNTS[split])
                expected = weights * unweighted.sensitivity[split][:, unweighted.group]
                np.testing.assert_allclose(bound[:, c.group], expected, rtol=1e-12)
                np.testing.assert_allclose(expected, expected[:, :1] * np.ones(AGENTS), rtol=1e-9)


def test_network_dp_is_not_derived_for_weights() -> None:
    with pytest.raises(InputError, match=r"problem\.weights: network DP is not derived for weights of records"):
        decentral_dp.network_view(load_scenario("network_view", ["problem.weights='records'"]))


def test_zeroed_records_and_training_at_a_constant_x() -> None:
    for source in (content("ldp_dsbo"), content("dsoba", "softmax_hyperparameter")):
        source["privacy"]["neighbours"] = "zero_out"
        run = decentral_dp.run(source, data=frame())
        assert run.records.same_releases(built(source).ledger)
        for c in run.records.charged_channels:
            for split, bound in c.sensitivity.items():
                replaced = built(source | {"privacy": {**source["privacy"], "neighbours": "replace"}}).ledger
                other = next(o for o in replaced.charged_channels if o.channel == c.channel)
                np.testing.assert_allclose(2.0 * bound[:, c.group], other.sensitivity[split][:, other.group])
    source = content("dp_dsgd", "quadratic", {"kind": "poisson", "rate": 0.5})
    source["problem"] |= {"label_range": [0, 2], "classes": []}
    source["privacy"]["clip"] = 0.5
    assert decentral_dp.run(source, data=frame()).records.same_releases(built(source).ledger)


# Neighbouring data sets -----------------------------------------------------------------------------------------------

# Both have the same features up to their sign, so that gradients, products and Jacobians are opposite in one pair.
FIRST, SECOND = 1e3 * np.eye(D)[:2]
PAIRS = (
    (FIRST + 1e-3 * SECOND, -FIRST + 1e-3 * SECOND),
    (SECOND, -SECOND),
    (FIRST, SECOND),
)
# z, of classes times features: orthogonal to the first feature.
ALONG = np.outer([1.0, -1.0, 0.0], np.eye(D)[1]).reshape(-1)


def with_record(job: Any, split: Split, agent: int, features: Array) -> Any:
    """Replace the first record of one agent, of class 0."""
    records = job.records[split][agent]
    changed = {name: getattr(records, name).copy() for name in ("features", "label", "l1", "l2")}
    changed["features"][0], changed["label"][0] = features, 0
    changed["l1"][0], changed["l2"][0] = np.abs(features).sum(), np.linalg.norm(features)
    parts = [records._replace(**changed) if k == agent else r for k, r in enumerate(job.records[split])]
    return replace(job, records={**job.records, split: parts})


def transcript(job: Any) -> list[dict[str, Array]]:
    """Released values: x = y = 0, and the direction of Hessian-vector products."""
    p, q = job.problem.p, job.problem.q
    values = {c: np.zeros((AGENTS, channel.width)) for c, channel in job.algorithm.releases(p, q).items()}
    values |= {c: np.tile(ALONG, (AGENTS, 1)) for c in ("z", "d", "v", "uz") if c in values}
    values |= {"D": np.tile(np.repeat(ALONG, p), (AGENTS, 1))} if "D" in values else {}
    return [values] * (job.rounds * job.algorithm.releases_per_round + 1)


def shares(job: Any, split: Split, agent: int, pair: tuple[Array, Array]) -> dict[str, float]:
    """Return channel → largest change of the agent's releases over the planned sensitivity."""
    said = transcript(job)
    one, other = (network_replay(with_record(job, split, agent, row), said).wanted for row in pair)
    out: dict[str, float] = {}
    for c in job.ledger.charged_channels:
        for row, index in enumerate(c.rounds):
            first, second = one[index][c.channel], other[index][c.channel]
            np.testing.assert_array_equal(first.public, second.public)
            moved = np.linalg.norm(first.private - second.private, axis=1)
            assert not np.delete(moved, agent).any()
            allowed = c.sensitivity[split][row, c.group[agent]] if split in c.sensitivity else 0.0
            assert moved[agent] <= allowed * (1.0 + 1e-12), (c.channel, index, split, agent)
            if allowed:
                out[c.channel] = max(out.get(c.channel, 0.0), float(moved[agent] / allowed))
    return out


@pytest.mark.parametrize("sampling", ["full", FIXED], ids=("full", "fixed"))
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("kind", "keys"), CASES, ids=NAMES)
def test_neighbours_reach_the_planned_sensitivity_and_not_more(
    kind: str, keys: dict[str, Any], split: Split, sampling: Any
) -> None:
    job = built(content(kind, sampling=sampling, **keys))
    for agent in range(AGENTS):
        found: dict[str, float] = {}
        for pair in PAIRS:
            for channel, share in shares(job, split, agent, pair).items():
                found[channel] = max(found.get(channel, 0.0), share)
        expected = {c.channel for c in job.ledger.charged_channels if np.any(c.sensitivity.get(split, 0.0))}
        assert found.keys() == expected
        # Two positive semidefinite Hessians of norm C are at most √2 C apart.
        reached = {c: 0.7 if c.startswith("v") and kind == "gbdsbo" else 0.99 for c in found}
        is_read = sampling == "full" or COUNTS[split][agent] <= BATCH
        assert not is_read or all(found[c] >= reached[c] for c in found), (agent, found)


# Terms ----------------------------------------------------------------------------------------------------------------


def dataset(weights: Mapping[Split, Array], sampling: Sampling = FULL) -> Any:
    """All five terms of the problem, and its difference of gradients, read records."""
    draw, problem = np.random.default_rng(2), Crossed(D)
    records = {
        k: [problem.prepare(draw.normal(size=(n, D)), draw.choice([-1.0, 1.0], n), "l2") for n in counts]
        for k, counts in COUNTS.items()
    }
    places, streams = np.arange(AGENTS), Streams(seeded_root(1, b"weights"), "batch", range(AGENTS))
    clip = Clip("l2", CLIP["x"], CLIP["y"], CLIP["z"])
    return LocalDataset(places, problem, records, np.zeros(AGENTS), sampling, clip, streams, weights=weights)


def test_every_term_has_the_weight_of_its_split() -> None:
    """Values and sensitivities of single terms."""
    weights = record_weights({k: np.array(n) for k, n in COUNTS.items()})
    x, y, z = np.random.default_rng(3).normal(size=(3, AGENTS, D))
    means = []
    for data in (dataset(weights), dataset({})):
        batch = data.batch(0)
        means.append([*batch.directions(x, y, z), batch.lower_grad_x_change(x, y, z), batch.upper_grad_x(x, y)])
    for weighted, plain in zip(*means, strict=True):
        (split,) = plain.sensitivities
        w = weights[split]
        np.testing.assert_array_equal(weighted.public, plain.public)
        np.testing.assert_allclose(weighted.private, w[:, None] * plain.private, rtol=1e-14)
        exact = w * plain.sensitivities[split].sensitivity
        np.testing.assert_allclose(weighted.sensitivities[split].sensitivity, exact, rtol=1e-15)
    # A term at a private point has the weight of its split, and no bound.
    private = replace(means[0][0], private=y, public=np.zeros_like(y))
    batch = dataset(weights).batch(0)
    moved = batch.upper_grad_y(x, private).value, batch.upper_grad_y(x, y).value
    np.testing.assert_array_equal(*moved)


@pytest.mark.parametrize("share", [1.0, 0.5], ids=["full", "poisson"])
def test_sums_of_both_splits_round_by_the_other_part_in_any_order(share: float) -> None:
    """The sensitivity to a split has 16·2⁻⁵³ of the largest norm of the other split, however the sum is computed."""
    sampling = FULL if share == 1.0 else Sampling("poisson", share=share)
    weights = record_weights({k: np.array(n) for k, n in COUNTS.items()})
    batch = dataset(weights, sampling).batch(0)
    x, y, z = np.random.default_rng(3).normal(size=(3, AGENTS, D))
    a, b, v = batch.lower_grad_y(x, y), batch.lower_hvp(x, y, z), batch.upper_grad_y(x, y)
    big = 1e9
    sums = (
        (a + big * v) + b,
        a + (big * v + b),
        (b + a) - (-big) * v,
        -(0.5 * (2.0 * (big * v) + 2.0 * a) + b),
        (a + 0.5 * big * v) + (b + 0.5 * big * v),
        (0.0 * v + a) + (big * v + b),
    )
    norms = {"train": CLIP["y"] + CLIP["z"], "validation": big * CLIP["z"]}
    reads: dict[Split, tuple[Any, ...]] = {"train": (a, b), "validation": (big * v,)}
    for split, other in (SPLITS, SPLITS[::-1]):
        own = sum(part.sensitivities[split].sensitivity for part in reads[split])
        expected = own + split_rounding(weights[other] * norms[other] / share)
        for total in sums:
            np.testing.assert_allclose(total.sensitivities[split].sensitivity, expected, rtol=1e-14)


@pytest.mark.parametrize("weights", ["sites", "records"])
@pytest.mark.parametrize(("penalty", "split"), [(1e8, "validation"), (1e-8, "train")])
def test_a_mean_with_a_small_factor_changes_by_the_rounding_of_the_other(
    penalty: float, split: Split, weights: str
) -> None:
    """In f2sa, y = … − β ∇_y g − (β/λ) ∇_y f: the larger mean rounds the smaller one."""
    source = content("f2sa", weights=weights, penalty=penalty)
    job = built(source)
    said, agent = [m | {"y": np.full_like(m["y"], 0.1)} for m in transcript(job)], 4
    (channel,) = (c for c in job.ledger.charged_channels if c.channel == "y")
    found: list[float] = []
    for seed in range(20):
        row = 1e3 * np.random.default_rng(seed).normal(size=D)
        one, other = (network_replay(with_record(job, split, agent, r), said).wanted for r in (row, -row))
        for place, index in enumerate(channel.rounds):
            moved = np.linalg.norm((one[index]["y"].private - other[index]["y"].private)[agent])
            found.append(moved / channel.sensitivity[split][place, channel.group[agent]])
    assert 0.9 < max(found) <= 1.0
    assert decentral_dp.run(source, data=frame()).records.same_releases(job.ledger)


def test_a_state_that_sums_both_splits_rounds_by_the_larger_weight() -> None:
    weights = record_weights({k: np.array(n) for k, n in COUNTS.items()})
    one = Sensitivity(np.ones(AGENTS), np.ones(AGENTS), None)
    state = Bounded(np.zeros((AGENTS, D)), np.ones((AGENTS, D)), dict.fromkeys(SPLITS, one), "l2")
    job = built(content("ldp_dsbo", protocol="private"))
    kept = job.nodes([AGENTS])[0].dataset.remembered_state(1, state)
    for split in SPLITS:
        ratio = other_weight(weights, split)
        assert np.max(ratio) > 1.0
        slack = memory_slack(np.array(COUNTS[split]) * np.maximum(1.0, ratio))
        np.testing.assert_array_equal(kept.sensitivities[split].sensitivity, slack)
    training: Mapping[Split, Array] = {"train": weights["train"]}
    assert other_weight(training, "train") == other_weight(training, "validation") == other_weight({}, "train") == 0.0


# Solutions ------------------------------------------------------------------------------------------------------------

RIDGE = 0.5
SERIES = {"inner": 3, "inverse": 15}
SLOW, FAST = {"scale": 0.3, "decay": 0.4}, {"scale": 0.9, "decay": 0.3}
# Steps along own gradients end at a distance of the order of the step.
SOLVED: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("dsoba", {"rounds": 1500, "x": 0.3, "y": 0.5, "z": 0.5}, 1e-6),
    ("f2sa", {"rounds": 3000, "x": 0.1, "y": 0.3, "z": 0.3, "penalty": 30.0}, 1e-6),
    ("bsa", {"rounds": 500, "x": 0.9, "y": 0.5, "smoothness": 1.5, **SERIES}, 1e-6),
    ("adasdbo", {"rounds": 2000}, 0.1),
    ("ldp_dsbo", {"rounds": 3000, "x": SLOW, "y": SLOW, "z": SLOW}, 0.1),
    ("ma_dsbo", {"rounds": 500, "x": FAST, "y": SLOW, "z": 0.3, **SERIES}, 0.1),
    ("dsbo_jhip", {"rounds": 500, "x": FAST, "y": SLOW, "z": 0.3, **SERIES}, 0.1),
    ("gbdsbo", {"rounds": 1000, "x": FAST, "y": SLOW, "averaging": SLOW, "inverse": 8, "smoothness": 1.5}, 0.1),
)


def least_squares(kind: str, problem: str, weights: str = "records", **keys: Any) -> dict[str, Any]:
    source = content(kind, problem, weights=weights, **keys)
    source["problem"] |= {"label_range": [0, 2], "classes": []}
    return source | {"privacy": {"guarantee": "none"}, "topology": {"kind": "complete", "agents": AGENTS}}


def pooled(job: Any, weights: str, split: Split) -> tuple[Array, Array]:
    """Return all records, with the square root of their weight in the objective on each row."""
    parts = []
    for records in job.records[split]:
        share = 1.0 / sum(COUNTS[split]) if weights == "records" else 1.0 / (AGENTS * len(records.label))
        parts.append(np.sqrt(share) * np.column_stack([records.features, records.label]))
    rows = np.concatenate(parts)
    return rows[:, :-1], rows[:, -1]


def toward(job: Any, weights: str) -> Array:
    """Return the x with which ridge regression toward x on train records is least squares on validation records."""
    (a, b), (v, w) = pooled(job, weights, "train"), pooled(job, weights, "validation")
    y = np.linalg.lstsq(v, w, rcond=None)[0]
    return np.asarray(y + a.T @ (a @ y - b) / RIDGE)


@pytest.mark.parametrize(("kind", "keys", "distance"), SOLVED, ids=[case[0] for case in SOLVED])
def test_the_solution_is_that_of_all_records(kind: str, keys: dict[str, Any], distance: float) -> None:
    steps = {c: {"scale": keys[c]} for c in "xyz" if isinstance(keys.get(c), float)}
    source = least_squares(kind, "quadratic", "records", **{**keys, **steps})
    source["problem"]["ridge"] = RIDGE
    source["run"] = {"measures": ["distance_to_solution"], "evaluate_every": keys["rounds"]}
    run = decentral_dp.run(source, data=frame())
    job = run.simulation()
    x = run.published["x"].mean(axis=0)
    exact = toward(job, "records")
    assert np.linalg.norm(x - exact) <= distance
    assert np.linalg.norm(x - toward(job, "sites")) > 1.0
    assert run.result.metrics["distance_to_solution"] == pytest.approx(np.linalg.norm(x - exact), abs=1e-6)


@pytest.mark.parametrize("weights", ["records", "sites"])
def test_scores_are_those_of_the_weighted_objective(weights: str) -> None:
    """Compare the metrics of the strength of a ridge regression with least squares on all rows."""
    source = least_squares("dsoba", "ridge_regularisation", weights, rounds=20, **{c: {"scale": 0.2} for c in "xyz"})
    source["run"] = {"measures": ["value_function", "stationarity", "upper_loss", "lower_loss"], "evaluate_every": 20}
    run = decentral_dp.run(source, data=frame())
    job = run.simulation()
    (a, b), (v, w) = pooled(job, weights, "train"), pooled(job, weights, "validation")

    def value(x: float) -> float:
        y = np.linalg.solve(a.T @ a + np.exp(x) * np.eye(D), a.T @ b)
        return float(0.5 * np.square(v @ y - w).sum())

    published, last = run.published, run.result.metrics
    x = float(published["x"].mean())
    assert last["value_function"] == pytest.approx(value(x), rel=1e-9)
    assert last["stationarity"] == pytest.approx(((value(x + 1e-5) - value(x - 1e-5)) / 2e-5) ** 2, rel=1e-5)
    upper = [0.5 * np.square(v @ y - w).sum() for y in published["y"]]
    assert last["upper_loss"] == pytest.approx(float(np.mean(upper)), rel=1e-9)
    lower = [
        0.5 * np.square(a @ y - b).sum() + 0.5 * np.exp(x[0]) * y @ y
        for x, y in zip(published["x"], published["y"], strict=True)
    ]
    assert last["lower_loss"] == pytest.approx(float(np.mean(lower)), rel=1e-9)
    text = str(decentral_dp.plan(source, data=frame()))
    assert (", mean over all records" in " ".join(text.split())) == (weights == "records")
