"""ε of published models: plans against a small computation, refusals, and the complete graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import lsq_linear

import decentral_dp
from decentral_dp.auditing.network_view import compute_view
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.simulation.jobs import published
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.published import compute_steps

DELTA, CLIP, RATE = 1e-5, 0.05, 3.0


def job_of(view: str = "final_average", **more: Any) -> Any:
    """A job of a few agents on breast_cancer, at a constant learning rate."""
    keys: dict[str, Any] = {
        "algorithm.rounds": 8,
        "algorithm.learning_rate": {"scale": RATE, "points": [[0, 1.0]]},
        "privacy.clip": CLIP,
        "privacy.noise_multiplier": 4.0,
        "privacy.adversary": view,
        "topology.agents": 5,
        **more,
    }
    unset = dict.fromkeys(("algorithm.momentum", "algorithm.centring", "privacy.epsilon", "run.average"))
    settings = {key: value for key, value in (unset | keys).items() if key in unset or value is not None}
    return build(decentral_dp.load("classification", set=settings))


def largest_growth(rate: float) -> float:
    """Search the largest norm of the step of one record whose features and intercept are clipped apart.

    Its features and the centre of features have norms of at most 1, and the intercept is 0.2.
    """
    largest = 1.0
    for share in np.linspace(0.0, 1.0, 401):
        both = np.array([2.0 * share, 0.2])
        for kept in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
            step = np.eye(2) - 0.25 * rate * np.diag(kept) @ np.outer(both, both)
            largest = max(largest, float(np.linalg.norm(step, 2)))
    return largest


def smallest_mu(job: Any, view: str, victim: int, growth: float = 0.0, rate: float = RATE) -> float:
    """Solve for the distances of hidden messages by least squares of scipy, from the numbers of the scenario.

    Args:
        job: planned.
        view: the published models.
        victim: agent.
        growth: factor of a step of dp_dsgd; default that of a model whose gradients have one clip.
        rate: learning rate.
    """
    m, rounds, changes = job.n_agents, job.rounds, job.topology.over_time
    curvature = 0.25 * job.problem.length**2
    free: dict[tuple[int, int], int] = {}
    sent = np.ones((rounds, m), dtype=bool)
    if changes is not None:
        sent = np.array([np.broadcast_to(True if (on := changes.online(t + 1)) is None else on, m)
                         for t in range(rounds)])  # fmt: skip
    last = [int(np.flatnonzero(sent[:, i])[-1]) for i in range(m)]
    for t, i in np.argwhere(sent).tolist():
        if t < rounds - 1 and not (view == "final_models" and t >= last[i]):
            free[t, i] = len(free)
    before, rows = np.zeros((m, len(free) + 1)), []
    for t in range(rounds):
        weights = (job.topology.mixing if changes is None else changes.received_weights(t)).toarray()
        own = 1.0 - weights.sum(axis=1) + np.diag(weights)
        factors = np.abs(weights) * (1.0 - np.eye(m)) + np.diag(own)
        kept = np.maximum(np.abs(own - rate * job.problem.l2), np.abs(own - rate * (job.problem.l2 + curvature)))
        whole = max(abs(1.0 - rate * job.problem.l2), abs(1.0 - rate * (job.problem.l2 + curvature)))
        if growth or type(job.algorithm).__name__ == "DpDsgd":
            factors *= growth or whole
        else:
            factors[np.arange(m), np.arange(m)] = kept
        noise = np.broadcast_to(job.noise["y"].deviations(np.array([t + 1])), (1, m))[0]
        apart = factors @ before
        apart[victim, -1] += 2.0 * rate * CLIP / job.counts["train"][victim]
        apart = np.where(sent[t][:, None], apart, before)
        kept_apart = np.where(sent[t][:, None], 0.0, apart)
        for i in range(m):
            if (t, i) in free:
                kept_apart[i, free[t, i]] = 1.0
            if sent[t, i] and (t < rounds - 1 or view == "final_models"):
                rows.append((apart[i] - kept_apart[i]) / noise[i])
        before = kept_apart
        if t == rounds - 1 and view == "final_average":
            rows.append(apart.sum(axis=0) / np.sqrt(np.square(noise[sent[t]]).sum()))
    matrix = np.array(rows)
    if not free:
        return float(np.linalg.norm(matrix[:, -1]))
    found = lsq_linear(matrix[:, :-1], -matrix[:, -1], bounds=(0.0, np.inf), tol=1e-14, method="bvls")
    return float(np.sqrt(2.0 * found.cost))


NETWORKS: dict[str, dict[str, Any]] = {
    "ring": {},
    "star": {"topology.kind": "star"},
    "matching": {"topology.over_time": "matching"},
    "offline": {
        "topology.offline": 0.4,
        "topology.kind": "star",
        "seed": 3,
        "privacy.noise_multiplier": None,
        "privacy.y.scale": 4.0 * RATE * CLIP / 91.0,
    },
}


@pytest.mark.parametrize("view", ["final_models", "final_average"])
@pytest.mark.parametrize("algorithm", ["dp_dsgd", "ldp_single_level"])
@pytest.mark.parametrize("network", NETWORKS)
def test_plans_agree_with_a_small_computation(network: str, algorithm: str, view: str) -> None:
    job = job_of(view, **{"algorithm.kind": algorithm, "problem.l2": 0.01, **NETWORKS[network]})
    exact = np.array([float(gaussian_epsilon(smallest_mu(job, view, v), DELTA)) for v in range(5)])
    assert (job.published >= exact * (1.0 - 1e-7)).all()
    np.testing.assert_allclose(job.published, np.minimum(exact, job.budget.epsilon), rtol=5e-3)
    assert (job.published < 0.95 * job.budget.epsilon).any()


SHORT = 1.5
CENTRED: dict[str, Any] = {
    "algorithm.centring": True,
    "algorithm.learning_rate": {"scale": SHORT, "points": [[0, 1.0]]},
    "privacy.clip": {"x": 1.0, "y": CLIP},
    "privacy.noise_multiplier": None,
    "privacy.x": {"scale": 0.1},
    "privacy.y": {"scale": 4.0 * SHORT * CLIP / 91.0},
}


@pytest.mark.parametrize("view", ["final_models", "final_average"])
def test_a_released_mean_adds_to_the_cost_of_models_at_any_centre(view: str) -> None:
    """The mean is seen at 2/(N s), and steps that clip features and intercept apart move models apart."""
    job = job_of(view, **CENTRED)
    assert job.algorithm.radius == pytest.approx(1.0)
    growth = largest_growth(SHORT)
    assert growth > 1.04
    hidden = np.array([smallest_mu(job, view, v, growth, SHORT) for v in range(5)])
    mean = 2.0 / (np.asarray(job.counts["train"]) * 0.1)
    exact = gaussian_epsilon(np.sqrt(np.square(hidden) + np.square(mean)), DELTA)
    assert (job.published >= np.minimum(exact, job.budget.epsilon) * (1.0 - 1e-7)).all()
    np.testing.assert_allclose(job.published, np.minimum(exact, job.budget.epsilon), rtol=5e-3)
    assert (job.published < 0.98 * job.budget.epsilon).any()


def test_no_released_mean_is_outside_the_ball_of_all_features() -> None:
    """Noise of a mean is unbounded. The mean that training reads is bounded, and agents average it."""
    run = decentral_dp.run(job_of(**{**CENTRED, "privacy.x": {"scale": 5.0}}).scenario)
    lengths = np.linalg.norm(run.published["x"], axis=1)
    assert lengths.max() <= 1.0 + 1e-12
    plain = job_of("all_messages", **{**CENTRED, "privacy.x": {"scale": 5.0}})
    assert np.linalg.norm(decentral_dp.run(plain.scenario).published["x"], axis=1).max() > 1.5


@pytest.mark.parametrize(("data", "rate", "least"), [("breast_cancer", 1.5, 1.03), ("wine", 0.8, 0.9)])
def test_no_step_at_a_centre_moves_models_farther_apart_than_its_factor(data: str, rate: float, least: float) -> None:
    """Centres in the ball, and pairs of models: two classes have clips apart, and more classes have envelopes."""
    keys = {**CENTRED, "problem.data": data, "privacy.clip": {"x": 1.0, "y": 0.5}}
    job = job_of(**keys | {"algorithm.learning_rate": {"scale": rate, "points": [[0, 1.0]]}})
    problem, records, largest, draw = job.problem, job.records["train"][0], 0.0, np.random.default_rng(2)
    factor, clip = compute_steps(job).factors.sum(axis=2).max(), job.clip.at(0)

    def gradient(x: np.ndarray, y: np.ndarray, one: Any) -> np.ndarray:
        return np.asarray(problem.stacked_terms(x, y, y, one, clip, ["lower_grad_y"]).lower_grad_y)

    for trial in range(400):
        chosen = [int(draw.integers(len(records.label)))]
        one = type(records)(records.features[None, chosen], records.label[None, chosen])
        # Far from the record in half of the trials.
        x = draw.normal(size=(1, problem.p)) if trial % 2 else -records.features[chosen]
        x /= np.linalg.norm(x)
        from_centre = (records.features[chosen] - x)[0]
        y = 10.0 ** draw.uniform(-2.0, 1.5) * draw.normal(size=(1, problem.q))
        apart = draw.normal(size=y.shape)
        if trial % 4 < 2:
            # At an output near 0, along the features and against the intercept, the most expanded direction.
            y *= 1e-3
            apart[0, : problem.p] = from_centre / np.linalg.norm(from_centre)
            apart[0, problem.p :] = -1.0
        apart *= 1e-5 / np.linalg.norm(apart)
        moved = apart - rate * (gradient(x, y + apart, one) - gradient(x, y, one))
        largest = max(largest, float(np.linalg.norm(moved) / 1e-5))
    assert largest <= factor * (1.0 + 1e-8)
    assert largest > least


def test_a_last_message_of_an_absent_agent_is_published() -> None:
    """Some agent is absent in the last round of this network, and its model is that of its last message."""
    job = job_of("final_models", **NETWORKS["offline"])
    absent = np.flatnonzero(~job.topology.over_time.online(8))
    assert absent.size
    alone = [float(gaussian_epsilon(smallest_mu(job, "final_models", v), DELTA)) for v in absent]
    assert (job.published[absent] >= np.array(alone) * (1.0 - 1e-7)).all()
    assert min(alone) > 0.1


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_a_complete_graph_hides_among_all_agents(rounds: int) -> None:
    """The average of m agents has μ = √(T/m) D/s for steps that do not contract."""
    job = job_of(**{"topology.kind": "complete", "algorithm.rounds": rounds, "problem.l2": 0.0})
    move = 2.0 * RATE * CLIP / np.asarray(job.counts["train"])
    mu = np.sqrt(rounds / 5.0) * move / float(np.max(job.noise["y"].deviations(np.array([1]))))
    np.testing.assert_allclose(job.published, gaussian_epsilon(mu, DELTA), rtol=5e-3)


def test_a_published_average_counts_the_grid() -> None:
    """One agent in one round, with noise of a few cells of its grid: the last shift is a multiple of a cell, too."""
    job = job_of(**{"topology.kind": "complete", "topology.agents": 2, "algorithm.rounds": 1})
    steps, m = compute_steps(job), 2
    scale = float(np.sqrt(np.square(steps.noise[0]).sum())) / m
    added = float(steps.rounding.max() + np.sqrt(job.problem.q) * steps.grid.max())
    mu = np.array([steps.movement[0].max() / m + added]) / scale
    assert float(job.published.max()) >= float(gaussian_epsilon(mu, DELTA)[0])


PAIRS = {"privacy.correlation": {"between_agents": "pairwise", "ratio": 2.0}, "problem.l2": 0.0}


def test_pairwise_noise_cancels_in_the_average_of_a_complete_graph() -> None:
    job = job_of(**PAIRS, **{"topology.kind": "complete"})
    move = 2.0 * RATE * CLIP / np.asarray(job.counts["train"])
    mu = np.sqrt(8.0 / 5.0) * move / float(np.max(job.noise["y"].deviations(np.array([1]))))
    np.testing.assert_allclose(job.published, gaussian_epsilon(mu, DELTA), rtol=5e-3)


def test_a_noise_multiplier_gives_all_agents_of_pairs_one_scale() -> None:
    """Agents have 114 or 113 records. Large pairwise noise cancels in the average, and only own noise hides it."""
    keys: dict[str, Any] = {"topology.kind": "ring", "topology.agents": 4, "algorithm.rounds": 2, "problem.l2": 0.0}
    keys["privacy.correlation"] = {"between_agents": "pairwise", "ratio": 900.0}
    job = job_of(**keys)
    counts = np.asarray(job.counts["train"])
    assert len(set(counts)) > 1
    scale = np.unique(job.noise["y"].deviations(np.array([1])))
    assert scale.tolist() == pytest.approx([4.0 * RATE * CLIP / counts.min()])
    # Linear gossip of equal weights.
    mu = 2.0 * (2.0 * RATE * CLIP / counts) / (np.sqrt(2.0 * 4.0) * scale)
    assert (gaussian_epsilon(mu, DELTA) <= job.published).all()


@pytest.mark.parametrize("view", ["final_models", "final_average"])
def test_published_models_with_pairwise_noise_show_at_least_linear_gossip(view: str) -> None:
    """Losses without curvature are among those that ε covers."""
    job = job_of(view, **PAIRS)
    m, rounds = 5, job.rounds
    mixing = np.eye(m) + job.topology.mixing.toarray()
    adjacency = (job.topology.mixing.toarray() != 0.0) * (1.0 - np.eye(m))
    scale = float(np.max(job.noise["y"].deviations(np.array([1]))))
    covariance = scale**2 * (np.eye(m) + 4.0 * (np.diag(adjacency.sum(axis=1)) - adjacency))
    powers = [np.linalg.matrix_power(mixing, k) for k in range(rounds)]
    rows = np.eye(m) if view == "final_models" else np.full((1, m), 1.0 / m)
    spread = rows @ sum(power @ covariance @ power.T for power in powers) @ rows.T
    moved = rows @ sum(powers) * (2.0 * RATE * CLIP / np.asarray(job.counts["train"]))
    mu = np.sqrt((moved * np.linalg.solve(spread, moved)).sum(axis=0))
    exact = gaussian_epsilon(mu, DELTA)
    assert (exact <= job.published).all()
    assert (job.published < 1.4 * exact).all()
    assert (job.published < 0.95 * job.budget.epsilon).all()


@pytest.mark.parametrize("view", ["final_models", "final_average"])
def test_a_mean_with_pairwise_noise_adds_to_the_cost_of_models(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact μ of a linear system in which the means of all agents, known to the adversary, move all messages."""
    rate, m = 0.02, 5
    keys = {**CENTRED, **PAIRS, "privacy.x": {"scale": 0.03}, "algorithm.learning_rate": rate}
    keys["privacy.y"] = {"scale": 4.0 * rate * CLIP / 91.0}
    job = job_of(view, **keys)
    mixing = np.eye(m) + job.topology.mixing.toarray()
    edges = np.argwhere(np.triu(mixing, 1))
    # Own draws, and draws of edges with opposite signs at their ends.
    draws = np.concatenate([np.eye(m), np.zeros((m, len(edges)))], axis=1)
    for column, (i, j) in enumerate(edges):
        draws[i, m + column], draws[j, m + column] = 2.0, -2.0
    moves = {"x": 2.0, "y": 2.0 * rate * CLIP}
    scale = {c: float(np.max(job.noise[c].deviations(np.array([1])))) for c in moves}
    reads_means = np.random.default_rng(0).normal(size=(m, m))
    last = np.eye(m) if view == "final_models" else np.full((1, m), 1.0 / m)
    width, counts = draws.shape[1], np.asarray(job.counts["train"])
    spread, moved = np.zeros((m, (job.rounds + 1) * width)), np.zeros((m, m))
    spread[:, :width] = scale["x"] * draws
    means, means_moved, messages, messages_moved = spread, np.diag(moves["x"] / counts), 0.0 * spread, moved
    for t in range(job.rounds):
        messages = mixing @ messages + reads_means @ means
        messages[:, (t + 1) * width : (t + 2) * width] += scale["y"] * draws
        messages_moved = mixing @ messages_moved + reads_means @ means_moved + np.diag(moves["y"] / counts)
    seen, shift = np.concatenate([means, last @ messages]), np.concatenate([means_moved, last @ messages_moved])
    exact = gaussian_epsilon(np.sqrt((shift * np.linalg.solve(seen @ seen.T, shift)).sum(axis=0)), DELTA)
    assert (exact <= job.published).all()
    assert (job.published < np.minimum(1.15 * exact, 0.99 * job.budget.epsilon)).all()
    # The variance of one mean includes the noise of its pairs, which the other means show.
    too_little = moves["x"] / counts / (scale["x"] * np.linalg.norm(draws, axis=1))
    monkeypatch.setattr(published, "_centre_mu", lambda job: too_little)
    planted: Any = published.account_published(job, lambda factor: job, view)
    assert (exact > planted.published).all()


@pytest.mark.parametrize("view", ["final_models", "final_average"])
def test_a_colluding_agent_of_a_changing_network_receives_some_messages(view: str) -> None:
    """Plans state the largest ε of `network` over all adversaries, below that of all messages."""
    matching = {"topology.over_time": "matching", "topology.kind": "complete", "algorithm.rounds": 6}
    none, one = (job_of(view, **matching, **{"privacy.colluders": q}) for q in (0, 1))
    pairs = compute_view(none)
    np.testing.assert_allclose(one.published, np.nanmax(pairs.certified, axis=0), rtol=1e-6)
    assert (none.published < one.published).all()
    assert (one.published < 0.99 * one.budget.epsilon).all()
    assert "final models" in pairs.assumptions[1]


def test_published_models_add_to_the_view_of_a_neighbour() -> None:
    """An adversary far away receives much more with all final models."""
    ring = {"topology.kind": "ring", "topology.agents": 8}
    none, average, models = (
        compute_view(job_of(view, **ring)).pairs.mu[0] for view in ("all_messages", "final_average", "final_models")
    )
    assert (none[2:7] < 0.99 * average[2:7]).all()
    assert (average[2:7] < models[2:7] * (1.0 - 1e-3)).all()
    np.testing.assert_allclose(none[[1, 7]], models[[1, 7]], rtol=1e-3)
    hidden = job_of("final_models", **ring)
    np.testing.assert_array_less(smallest_mu(hidden, "final_models", 4) * (1.0 - 1e-6), models[4])


def test_a_neighbour_without_a_bound_has_the_epsilon_of_all_messages() -> None:
    """The average shows the sum of absent agents, whose noise the bound does not count."""
    job = job_of(**NETWORKS["offline"] | {"topology.agents": 4, "algorithm.rounds": 3, "seed": 22})
    view = compute_view(job)
    infinite = np.isinf(view.pairs.mu)
    assert infinite.any()
    everywhere = np.broadcast_to(job.budget.epsilon, infinite.shape)
    np.testing.assert_array_equal(view.certified[infinite], everywhere[infinite])
    np.testing.assert_array_equal(np.isnan(view.certified), np.eye(4, dtype=bool))


def test_epsilon_is_monotone() -> None:
    def worst(view: str = "final_average", **more: Any) -> float:
        job = job_of(view, **more)
        return float((job.budget.epsilon if job.published is None else job.published).max())

    base = worst()
    assert base < worst("final_models") < worst("all_messages")
    assert worst(**{"privacy.noise_multiplier": 5.0}) < base < worst(**{"algorithm.rounds": 12})
    # An average over more agents, and steps that contract more, hide more.
    assert worst(**{"problem.l2": 0.05}) < base
    fewer, more = (worst(**{"topology.kind": "complete", "topology.agents": m}) for m in (3, 4))
    assert fewer > more


@pytest.mark.parametrize("view", ["final_models", "final_average"])
def test_the_noise_spends_the_target(view: str) -> None:
    job = job_of(view, **{"privacy.epsilon": 1.0, "privacy.noise_multiplier": None})
    assert 1.0 - 3e-6 < job.published.max() <= 1.0
    assert job.budget.epsilon.min() > 1.5


def test_steps_on_envelopes_do_not_grow_and_their_errors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(**{"problem.data": "wine", "privacy.clip": 0.1, "problem.l2": 0.0})
    steps = compute_steps(job)
    assert steps.factors.sum(axis=2).max() <= 1.0 + 1e-12
    scaled = replace(job, clip=replace(job.clip, envelope=False))
    assert compute_steps(scaled).factors.sum(axis=2).min() > 1.1
    monkeypatch.setattr(published, "SLOPE_ERROR", 1e-4)
    added = compute_steps(job).rounding - steps.rounding
    error = 2.0 * job.algorithm.learning_rate.scale * 1e-4 * job.problem.length
    assert (added >= 0.999 * error).all()
