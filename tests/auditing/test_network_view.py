"""Network DP of a job: ε of pairs, refusals, and its text, files and figures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import decentral_dp
from decentral_dp.auditing.network_view import ASSUMPTIONS, NetworkView, compute_view
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.errors import InputError
from decentral_dp.formatting import epsilon_text
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.network_jobs import CLIP, LAMBDA, RIDGE, job_of
from tests.support.network_pairs_oracle import Case, worst_written_out


@pytest.fixture(scope="module")
def job() -> Job:
    return job_of()


@pytest.fixture(scope="module")
def view(job: Job) -> NetworkView:
    return compute_view(job)


def told(job: Job) -> Case:
    """The linear system, from the scenario's numbers and from the ledger."""
    rounds, m = job.rounds, job.n_agents
    t = np.arange(rounds)
    step = LAMBDA * (t + 1.0) ** -0.2
    seen = np.minimum(job.counts["train"], 1 + 2 * (t + 1)[:, None])
    ledger = job.ledger.to_frame()
    noise = ledger[ledger["channel"] == "y"].sort_values(["round", "agent"])["scale"]
    noise = noise.to_numpy().reshape(rounds, m)
    arrives = np.diff(seen, axis=0, prepend=0) > 0
    mixing = job.topology.mixing.toarray()
    shrink = np.repeat(step[:, None] * (1 + RIDGE), m, axis=1)
    return Case(mixing, shrink, step[:, None] * 2 * CLIP / seen, noise, arrives)


def test_pairs_agree_with_the_covariance_written_out(job: Job, view: NetworkView) -> None:
    case = told(job)
    for members in range(job.n_agents):
        for victim in set(range(job.n_agents)) - {members}:
            wanted = worst_written_out(case, [members], victim)
            assert view.pairs.mu[members, victim] == pytest.approx(wanted, rel=1e-9)


def gaussian_epsilon(mu: float, delta: float) -> float:
    def excess(e: float) -> float:
        return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta)

    return float(brentq(excess, 0.0, 60.0, xtol=1e-13)) if excess(0.0) > 0 else 0.0


def test_epsilon_distance_and_table(job: Job, view: NetworkView) -> None:
    graph = nx.Graph(map(tuple, job.topology.edges.tolist()))
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    frame = view.to_frame()
    assert len(frame) == job.n_agents * (job.n_agents - 1)
    for row in frame.itertuples():
        assert row.distance == hops[int(row.adversary)][row.victim]
        assert row.epsilon == pytest.approx(gaussian_epsilon(row.mu, row.delta), rel=1e-6, abs=1e-12)
        assert row.epsilon <= row.epsilon_total * (1 + 1e-9)
    assert np.isnan(np.diagonal(view.epsilon)).all()
    assert frame["epsilon"].nunique() > job.n_agents


def test_pairs_are_certified_below_all_messages(job: Job, view: NetworkView) -> None:
    """The ledger includes rounding, and the first record; both are within a percent of exact."""
    assert (view.epsilon_total <= job.budget.epsilon).all()
    np.testing.assert_allclose(view.epsilon_total, job.budget.epsilon, rtol=0.01)
    np.testing.assert_array_equal(view.certified_total, job.budget.epsilon)
    known = ~np.isnan(view.epsilon)
    assert (view.certified >= view.epsilon)[known].all()
    assert (view.certified <= view.certified_total)[known].all()
    assert np.nanmin(view.certified / view.certified_total) < 0.2


def test_coalitions_measure_from_their_nearest_member(job: Job, view: NetworkView) -> None:
    pooled = compute_view(job, [[0, 4]])
    assert pooled.pairs.observers == ((0, 4),)
    np.testing.assert_array_equal(pooled.distance[0], np.minimum(view.distance[0], view.distance[4]))
    assert (pooled.epsilon[0, 1:4] >= np.fmax(view.epsilon[0], view.epsilon[4])[1:4] - 1e-12).all()
    assert set(pooled.to_frame()["adversary"]) == {"0+4"}
    assert compute_view(job, [["4", "0"], ["2"]]).pairs.observers == ((0, 4), (2,))


@pytest.mark.parametrize("kind", ["ldp_single_level", "dp_dsgd"])
@pytest.mark.parametrize("sampling", ["full", "{ kind = 'streaming', batch_size = 2, warm_start = 1 }"])
def test_the_engine_runs_the_linear_system(kind: str, sampling: str) -> None:
    """The same noise in two data sets that differ in one record: every release moves as A_t, the clip and N_t say."""
    one = job_of(f"algorithm.kind={kind}", f"problem.sampling={sampling}", "privacy.y.scale=1e-6")
    victim, record = 3, 4
    neighbours = []
    for sign in (1.0, -1.0):
        records = one.records["train"][victim]
        features = records.features.copy()
        features[record] = 0.0
        features[record, 2] = sign * 50.0
        whole = np.full(len(features), 50.0)
        sensitivity = records._replace(
            features=features, l1=np.where(features.any(1), whole, 1.0), l2=records.l2.copy()
        )
        sensitivity.l2[record] = 50.0
        train = tuple(sensitivity if i == victim else r for i, r in enumerate(one.records["train"]))
        snaps: list[Any] = []

        def keep(snap: Any, into: list[Any] = snaps) -> bool:
            into.append(snap.released["y"])
            return False

        # The same root in both: the noise must cancel.
        side = replace(one, records={**one.records, "train": train})
        LocalEngine().run(side.nodes(), side.rounds, RunControl(range(1, side.rounds + 1), keep))
        neighbours.append(snaps)
    mixed = np.eye(one.n_agents) + one.topology.mixing.toarray()
    expected = np.zeros(one.n_agents)
    for t, (a, b) in enumerate(zip(*neighbours, strict=True)):
        step = LAMBDA * (t + 1.0) ** -0.2
        n = one.counts["train"][victim] if sampling == "full" else min(one.counts["train"][victim], 1 + 2 * (t + 1))
        combined = mixed @ expected
        expected = combined - step * (1 + RIDGE) * (expected if kind == "ldp_single_level" else combined)
        expected[victim] += step * 2 * CLIP / n * (record < n)
        np.testing.assert_allclose((a - b)[:, 2], expected, rtol=0, atol=1e-9)
        others = np.delete(np.arange(a.shape[1]), 2)
        np.testing.assert_allclose((a - b)[:, others], 0.0, atol=1e-9)
    assert expected[victim] > 1e-3


SMALL = ("--set", "topology.agents=6", "--set", "algorithm.rounds=5")


def test_the_command_prints_and_writes(command: Any, tmp_path: Path) -> None:
    asked = ("network", "network_view", "--out", tmp_path / "o", "--coalition", "0", "--coalition", " 0, 3", *SMALL)
    code, out, err = command(*asked)
    assert (code, err) == (0, "")
    frame = pd.read_parquet(tmp_path / "o" / "network.parquet")
    assert set(frame["adversary"]) == {"0", "0+3"}
    # The printed numbers are those of the table, with their assumptions.
    total = float(frame["certified_total"].max())
    line = next(line for line in out.splitlines() if line.split()[:2] == ["all", "messages"])
    assert line.split()[-4] == epsilon_text(total)
    assert " ".join(ASSUMPTIONS[0].split()) in " ".join(out.split())
    assert {p.name for p in (tmp_path / "o").iterdir()} == {"network.parquet", "distance.png"}
    for arguments, words in (
        (("--out", tmp_path / "o"), "already exists"),
        (("--coalition", "0,7"), '--coalition: invalid agents (got ["0", "7"], expected some of agents'),
        (("--set", "privacy.mechanism=laplace"), "privacy.mechanism"),
    ):
        code, out, err = command("network", "network_view", *SMALL, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err


def test_a_view_of_an_object_with_names() -> None:
    graph = nx.relabel_nodes(nx.path_graph(5), dict(enumerate(["carl", "ben", "anna", "dora", "emil"])))
    few = {"algorithm.rounds": 5}
    by_name = decentral_dp.network_view("network_view", coalitions=[["carl", "emil"], ["ben"]], set=few, topology=graph)
    by_number = decentral_dp.network_view("network_view", coalitions=[[0, 4], [1]], set=few, topology=graph)
    np.testing.assert_array_equal(by_name.certified, by_number.certified)
    on_a_path = decentral_dp.network_view(
        "network_view", coalitions=[[0, 4], [1]], set={**few, "topology.agents": 5, "topology.kind": "path"}
    )
    np.testing.assert_array_equal(by_name.certified, on_a_path.certified)
    frame = by_name.to_frame()
    assert set(frame["adversary_name"]) == {"carl+emil", "ben"}
    assert frame["victim_name"].tolist() == [by_name.labels[k] for k in frame["victim"]]
    # Oracle: distances of networkx, between names.
    for row in frame.itertuples():
        hops = min(nx.shortest_path_length(graph, one, row.victim_name) for one in row.adversary_name.split("+"))
        assert row.distance == hops
    assert by_name.at_distance() == frame.groupby("distance")["certified"].max().to_dict()
    for wrong, name in (([["gert"]], '"gert"'), (["carl"], '"carl"')):
        with pytest.raises(InputError, match=f"coalitions: .*{name}"):
            decentral_dp.network_view("network_view", coalitions=wrong, set=few, topology=graph)
