"""Network DP of training: factors of steps, ε of pairs, and refusals."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.auditing import network_view
from decentral_dp.auditing.network_view import first_of_equal_pairs, observer_mu, prepare
from decentral_dp.bounded import Bounded
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, Reply
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from decentral_dp.simulation.jobs.published import compute_steps

NUMBERS = {
    "problem.kind": "regression",
    "problem.label": "label",
    "problem.classes": [],
    "problem.label_range": [-1.0, 1.0],
    "problem.scale": {name: [-1.0, 1.0] for name in "abcd"},
    "algorithm.learning_rate.scale": 1.5,
}
PROBLEMS: dict[str, dict[str, Any]] = {
    "logistic": {"problem.data": "breast_cancer"},
    "cross_entropy": {"problem.data": "wine", "algorithm.learning_rate.scale": 2.0},
    "squared": {**NUMBERS},
    "huber": {**NUMBERS, "problem.loss": "huber"},
}


def job_of(problem: str = "logistic", algorithm: str = "dp_dsgd", **more: Any) -> Job:
    loaded = scenario(problem, algorithm, **more)
    return build(loaded, data=numbers() if problem in ("squared", "huber") else None)


def scenario(problem: str = "logistic", algorithm: str = "dp_dsgd", **more: Any) -> Scenario:
    keys = {
        "algorithm.kind": algorithm,
        "algorithm.rounds": 12,
        "algorithm.learning_rate.scale": 6.0,
        "privacy.clip": 0.05,
        "topology.agents": 6,
        "problem.l2": 0.02,
        **PROBLEMS[problem],
        **more,
    }
    unset = dict.fromkeys(("algorithm.momentum", "algorithm.centring"))
    return decentral_dp.load("classification", set=unset | keys)


def numbers() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (240, 4)), columns=list("abcd"))
    return frame.assign(label=np.clip(frame @ [0.5, -0.3, 0.2, 0.1], -1.0, 1.0))


def message_of(job: Any, t: int, messages: Any) -> Any:
    """Φ_t of all agents, by the program's own step: (m, q)."""
    (node,) = job.nodes()
    changes = job.topology.over_time
    off = (job.topology.mixing if changes is None else changes.received_weights(t)).toarray()
    np.fill_diagonal(off, 0.0)
    node.dataset.neighbour_weight = off.sum(axis=1)[:, None]
    running = node.program.step(t, node.dataset, node.program.init(node.dataset)._replace(y=messages))
    next(running)
    try:
        running.send(Reply(Bundle({"y": messages}), Bundle({"y": off @ messages})))
    except StopIteration as done:
        y = done.value.y
        return y.value if isinstance(y, Bounded) else y
    raise AssertionError("one exchange a round")


@pytest.mark.parametrize("algorithm", ["dp_dsgd", "ldp_single_level"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_steps_of_the_package_keep_their_factors(problem: str, algorithm: str) -> None:
    """Messages of all sizes, near and far apart, along data and at random; some clip, some do not."""
    job: Any = job_of(problem, algorithm)
    steps = compute_steps(job)
    rng, q = np.random.default_rng(1), job.problem.q
    largest = 0.0
    for trial in range(40):
        here = rng.standard_normal((6, q)) * 10.0 ** rng.uniform(-2, 1.5)
        apart = rng.standard_normal((6, q)) * 10.0 ** rng.uniform(-3, 1)
        apart *= rng.random((6, 1)) < 0.5
        t = trial % 12
        moved = np.linalg.norm(message_of(job, t, here + apart) - message_of(job, t, here), axis=1)
        bound = steps.factors[steps.factor_index[t]] @ np.linalg.norm(apart, axis=1)
        assert (moved <= bound * (1 + 1e-9) + 1e-12).all()
        largest = max(largest, float((moved / np.maximum(bound, 1e-300)).max()))
    assert largest > 0.5


def test_training_is_between_linear_gossip_and_all_messages() -> None:
    view = prepare(job_of()).view()
    frame = view.to_frame()
    assert {"mu_linear", "epsilon_linear", "mu_certified", "mu_everything"} <= set(frame.columns)
    assert (frame["mu_linear"] <= frame["mu_certified"] * (1 + 1e-9)).all()
    assert (frame["mu_certified"] <= frame["mu_everything"] * (1 + 1e-3)).all()
    assert (frame["epsilon"] <= frame["certified"]).all()
    assert (frame["certified"] <= frame["certified_total"]).all()
    near, far = frame[frame["distance"] == 1], frame[frame["distance"] == 3]
    np.testing.assert_allclose(near["mu_certified"], near["mu_everything"], rtol=1e-3)
    # The rounding of messages is included.
    np.testing.assert_array_equal(near["certified"], near["certified_total"])
    assert far["certified"].max() < 0.6 * far["certified_total"].min()
    assert view.linear is not None
    assert "not a bound" in " ".join(view.assumptions)
    by_distance = frame.groupby("distance")["certified"].max().to_numpy()
    assert (np.diff(by_distance) < 0).all()


def test_a_loss_without_a_scalar_gradient_costs_more_than_one_with() -> None:
    """Softmax regression: factors above one, by the clip."""
    job: Any = job_of("cross_entropy", **{"problem.l2": 0.0})
    steps = compute_steps(job)
    assert steps.factors[0].sum(axis=1).min() > 1.01
    scalar: Any = job_of("logistic", **{"problem.l2": 0.0, "algorithm.learning_rate.scale": 1.0})
    assert compute_steps(scalar).factors[0].sum(axis=1).max() <= 1.0 + 1e-12
    frame = prepare(job).view().to_frame()
    assert (frame["mu_linear"] <= frame["mu_certified"] * (1 + 1e-9)).all()


def test_a_secret_batch_counts_in_every_round() -> None:
    job: Any = job_of(**{"problem.sampling": {"kind": "fixed_batch", "batch_size": 20}})
    steps = compute_steps(job)
    np.testing.assert_allclose(steps.movement[0], 6.0 * 2 * 0.05 / 20, rtol=1e-9)
    frame = prepare(job).view().to_frame()
    assert (frame["certified"] <= frame["certified_total"]).all()


def test_symmetric_pairs_have_one_mu() -> None:
    """A ring of equal agents has three, by distance; one agent of other noise leaves the reflections that keep it."""
    job: Any = job_of("squared", **{"topology.kind": "ring"})
    steps = compute_steps(job)
    assert len(set(job.counts["train"])) == 1
    each = tuple((i,) for i in range(6))
    apart = np.where(np.eye(6, dtype=bool), -1, np.stack([np.arange(36).reshape(6, 6)] * 2))
    uneven = steps._replace(noise=steps.noise * np.array([1.1, 1.0, 1.0, 1.0, 1.0, 1.0]))
    # Two numbers of records, and several: μ is convex, and almost linear.
    two, several = (
        steps._replace(movement=steps.movement * np.array(more))
        for more in ([1.0, 1.1, 1.0, 1.0, 1.1, 1.1], [1.0, 1.3, 2.0, 1.1, 1.6, 1.2])
    )
    for one, prices, bent in ((steps, 3, 1e-9), (uneven, 16, 1e-9), (two, 6, 1e-9), (several, 6, 1e-3)):
        first = first_of_equal_pairs(one, each)
        assert np.unique(first[first >= 0]).size == prices
        found, wanted = observer_mu(one, each, first), observer_mu(one, each, apart)
        assert (found >= wanted * (1.0 - 1e-9))[wanted > 0.0].all()
        np.testing.assert_allclose(found, wanted, rtol=bent)


def test_many_agents_of_different_noise_have_a_larger_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of this ring differ by one record, and so does the noise."""
    job: Any = job_of("logistic", **{"topology.kind": "ring", "topology.agents": 14})
    assert len(set(job.counts["train"])) == 2
    exact = prepare(job)
    monkeypatch.setattr("decentral_dp.auditing.network_gossip.MOST_SECONDS", 0.3)
    quick = prepare(job)
    monkeypatch.undo()
    assert (exact.has_equal_noise, quick.has_equal_noise) == (False, True)
    number, fewer = (np.unique(np.asarray(view.price_classes)).size for view in (exact, quick))
    assert fewer < 0.3 * number
    mu, larger = (view.view().pairs.mu for view in (exact, quick))
    known = ~np.eye(14, dtype=bool)
    assert (mu[known] <= larger[known] * (1.0 + 1e-9)).all()
    assert (larger[known] <= 1.05 * mu[known]).all()
    assert (larger[known] > 1.001 * mu[known]).any()
    assert "smallest noise" in quick.view().assumptions[-1]


@pytest.mark.parametrize(("kind", "agents", "most"), [("ring", 8, 4), ("torus", 16, 8), ("hypercube", 8, 7)])
def test_large_networks_have_the_symmetries_of_their_indices(
    kind: str, agents: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pair costs more by itself than with the symmetries and bounds of large networks."""
    steps = compute_steps(job_of("logistic", **{"topology.kind": kind, "topology.agents": agents}))
    uneven = steps._replace(
        noise=steps.noise * np.where(np.arange(agents) == 3, 1.2, 1.0),
        movement=steps.movement.max() + 0.0 * steps.noise,
    )
    each = tuple((i,) for i in range(agents))
    apart = np.where(np.eye(agents, dtype=bool), -1, np.stack([np.arange(agents**2).reshape(agents, agents)] * 2))
    for one in (steps._replace(noise=steps.noise[:, :1] + 0.0 * steps.noise, movement=uneven.movement), uneven):
        exact = observer_mu(one, each, apart)
        monkeypatch.setattr(network_view, "_MOST_EXACT", 0)
        first = first_of_equal_pairs(one, each)
        found = observer_mu(one, each, first)
        monkeypatch.undo()
        assert (found >= exact * (1.0 - 1e-7))[~np.isnan(exact)].all()
        np.testing.assert_allclose(found, exact, rtol=2e-3)
        if one is not uneven:
            assert np.unique(first[first >= 0]).size <= most


@pytest.mark.parametrize("algorithm", ["dp_dsgd", "ldp_single_level"])
def test_a_ridge_does_not_enlarge_messages(algorithm: str) -> None:
    """A step keeps |1 − ηm| of a message: bounds with 1 + ηm would leave the grid."""
    without, with_ridge = (
        compute_steps(job_of("huber", algorithm, **{"algorithm.rounds": 200, "problem.l2": ridge, **CONSTANT}))
        for ridge in (0.0, 0.3)
    )
    assert np.isfinite(with_ridge.rounding).all()
    assert with_ridge.rounding[-1].max() < 2.0 * without.rounding[-1].max()
    assert with_ridge.largest < without.largest


CONSTANT = {"algorithm.learning_rate.points": [[0, 1.0]]}

CHANGES: dict[str, dict[str, Any]] = {
    "matching": {"topology.over_time": "matching"},
    "one peer": {"topology.over_time": "one_peer_exponential", "topology.kind": "complete"},
    "lossy": {"topology.drop": 0.3, "topology.offline": 0.2},
}


@pytest.mark.parametrize("change", CHANGES)
def test_time_varying_networks_count_arriving_and_visible_messages(change: str) -> None:
    job: Any = job_of("logistic", **CHANGES[change])
    steps, rng = compute_steps(job), np.random.default_rng(2)
    held = 0
    for t in range(12):
        here = rng.standard_normal((6, job.problem.q))
        apart = rng.standard_normal(here.shape) * (rng.random((6, 1)) < 0.5)
        moved = np.linalg.norm(message_of(job, t, here + apart) - message_of(job, t, here), axis=1)
        # An agent that is offline in the next round does not send, and holds its last message.
        silent = ~np.broadcast_to(True if (on := job.topology.over_time.online(t + 1)) is None else on, 6)
        moved[silent] = np.linalg.norm(apart[silent], axis=1)
        held += silent.sum()
        for public in (steps.noise, steps.movement, steps.rounding):
            assert np.array_equal(public[t] == 0.0, silent)
        assert (
            moved <= steps.factors[steps.factor_index[t]] @ np.linalg.norm(apart, axis=1) * (1 + 1e-9) + 1e-12
        ).all()
    assert (held > 0) == (change == "lossy")
    # The message of round t arrives in round t + 1, or never.
    heard = [omega != 0.0 for omega in steps.mixing[1:]]
    assert all((one <= may).all() for one, may in zip(heard, steps.visible, strict=False))
    assert np.array_equal(heard, steps.visible[:11]) == (change != "lossy")
    view = prepare(job).view()
    frame = view.to_frame()
    assert (frame["certified"] <= frame["certified_total"]).all()
    assert frame["certified"].min() < 0.9 * frame["certified_total"].min()
    assert frame["mu_linear"].isna().all()
    # More received messages give no smaller μ.
    more = steps._replace(visible=tuple(v | (rng.random((6, 6)) < 0.3) for v in steps.visible))
    each = tuple((i,) for i in range(6))
    known = ~np.eye(6, dtype=bool)
    few, many = (observer_mu(one, each, first_of_equal_pairs(one, each))[known] for one in (steps, more))
    assert (few <= many * (1 + 1e-9)).all()
    assert (few < 0.99 * many).any()


def test_cyclic_graphs_and_functions_have_a_view() -> None:
    graphs = [nx.cycle_graph(6), nx.path_graph(6)]
    one, other = (decentral_dp.network_view(scenario(), topology=given) for given in (graphs, graphs[::-1]))
    assert one.certified.shape == (6, 6)
    assert not np.allclose(one.certified[0, 1:], other.certified[0, 1:], rtol=1e-6)
    given = decentral_dp.network_view(scenario(), topology=lambda t: graphs[t % 2])
    np.testing.assert_array_equal(given.certified, one.certified)


REFUSED = {
    "problem.sampling": ({"kind": "poisson", "rate": 0.1}, "problem.sampling: "),
    "algorithm.centring": (True, "algorithm.centring: "),
    "topology.delay": (2, "topology.delay: "),
}


@pytest.mark.parametrize("key", REFUSED)
def test_jobs_without_factors_are_refused(key: str) -> None:
    value, sentence = REFUSED[key]
    with pytest.raises(InputError) as caught:
        prepare(job_of(**{key: value}))
    assert str(caught.value).startswith(sentence)
