"""One release of sufficient statistics: its formulas, its plan, what a record moves, and the model that follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge

import decentral_dp
from decentral_dp.algorithms.gossip.adassp import AdaSsp
from decentral_dp.bounded import Bounded
from decentral_dp.errors import InputError
from decentral_dp.estimators import DecentralisedRegressor
from decentral_dp.problems.statistics import statistics_width, unpack_statistics
from tests.conformance.gossip import halved, with_fields_of
from tests.support.naive import change_end, finished, ledgers
from tests.support.replay import conversation, loud, network_replay
from tests.support.training import changed

SIZES, D, K, ROUNDS, CLIP = (3, 5, 4, 8), 2, 5, 12, 0.1
AGENTS, WIDTH, GAMMA = len(SIZES), statistics_width(D + 1), 0.2


def frame(seed: int = 0, sizes: tuple[int, ...] = SIZES, d: int = D) -> pd.DataFrame:
    draw, n = np.random.default_rng(seed), sum(sizes)
    features = draw.uniform(-1.0, 1.0, (n, d))
    label = 5.0 + 3.0 * features @ np.linspace(1.0, -0.5, d) + draw.normal(size=n)
    table = pd.DataFrame(features, columns=[f"f{k}" for k in range(d)])
    return table.assign(label=np.clip(label, 0.0, 20.0), agent=np.repeat(np.arange(len(sizes)), sizes), split="train")


def content(**tables: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "seed": 1,
        "problem": {
            "kind": "regression",
            "label": "label",
            "classes": [],
            "label_range": [0, 20],
            "scale": {"*": [-1, 1]},
        },
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": "adassp", "rounds": ROUNDS},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": CLIP},
    }
    return changed(out, **tables)


def built(rows: pd.DataFrame | None = None, **tables: Any) -> Any:
    return decentral_dp.build(content(**tables), data=frame() if rows is None else rows).simulation()


def statistics_of(a: np.ndarray, b: float) -> np.ndarray:
    """One record's vector, entry by entry."""
    whole, q = [*a, GAMMA], a.size + 1
    entries = [
        whole[i] * whole[j] * (1.0 if i == j else 2.0**0.5) for i in range(q) for j in range(i, q) if (i, j) != (D, D)
    ]
    return np.array([*entries, *(b * v for v in whole)])


def clipped(v: np.ndarray) -> np.ndarray:
    return np.asarray(v * min(1.0, CLIP / np.linalg.norm(v)))


def solve(s: np.ndarray, job: Any, l2: float = 0.0) -> np.ndarray:
    """The ridge regression around the mean label of one agent, in the model's weights."""
    q = D + 1
    matrix = np.eye(q) * GAMMA**2
    entries = iter(s)
    for i in range(q):
        for j in range(i, q):
            if (i, j) != (D, D):
                matrix[i, j] = matrix[j, i] = next(entries) / (1.0 if i == j else 2.0**0.5)
    vector = np.array(list(entries))
    mean = np.eye(q)[D] * vector[D] / GAMMA**2
    ridge = l2 * np.eye(q)
    least = max((2 * q) ** 0.5 * job.algorithm.noise, 1e-12)
    added = max(0.0, least - np.linalg.eigvalsh(matrix)[0]) * np.eye(q)
    return np.asarray(mean + np.linalg.solve(matrix + ridge + added, vector - (matrix + ridge) @ mean))


@pytest.mark.parametrize("weights", ["sites", "records"])
def test_messages_and_models_are_those_of_a_loop(weights: str) -> None:
    job = built(problem={"weights": weights, "l2": 0.1})
    said, mixing = conversation(job, loud), np.eye(AGENTS) + job.topology.mixing.toarray()
    shares = np.array(SIZES) * AGENTS / sum(SIZES) if weights == "records" else np.ones(AGENTS)
    records = [list(zip(r.features, r.label, strict=True)) for r in job.records["train"]]

    def noised(index: int, values: list[np.ndarray]) -> np.ndarray:
        return np.array([v + loud(index, "s", i, WIDTH) for i, v in enumerate(values)])

    last = GAMMA * np.eye(WIDTH)[-1]
    labels = [0.2 * shares[i] * np.mean([clipped(b * last) for _, b in records[i]], axis=0) for i in range(AGENTS)]
    expected = [np.zeros((AGENTS, WIDTH)), noised(1, labels)]
    for k in range(K):
        expected.append(mixing @ expected[-1] / (0.2 if k == 0 else 1.0))
    centre = expected.pop()[:, -1] / GAMMA
    sums = [
        np.mean([clipped(statistics_of(a, b - c)) for a, b in r], axis=0) for r, c in zip(records, centre, strict=True)
    ]
    released = noised(K + 1, [share * s for share, s in zip(shares, sums, strict=True)])
    expected.append(released)
    uncentred = released.copy()
    for row, c, share in zip(uncentred, centre, shares, strict=True):
        row[-D - 1 :] += c * np.array([row[2] / 2**0.5 / GAMMA, row[4] / 2**0.5 / GAMMA, GAMMA * share])
    expected.append(uncentred)
    while len(expected) <= ROUNDS:
        expected.append(mixing @ expected[-1])
    for t, values in enumerate(expected):
        np.testing.assert_allclose(said[t]["s"], values, atol=1e-9, err_msg=str(t))
    own = job.algorithm.solution({"y": np.zeros((AGENTS, D + 1)), "s": expected[-1]})["y"]
    np.testing.assert_allclose(own, [solve(s, job, 0.1) for s in expected[-1]], rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_without_noise_it_is_the_regression_of_all_records(ridge: float) -> None:
    tables: dict[str, Any] = {"guarantee": "none", "epsilon": None, "delta": None, "clip": None, "mechanism": None}
    rows = frame(3, (20, 5, 30, 11))
    source = content(problem={"weights": "records", "l2": ridge}, algorithm={"rounds": 400}, privacy=tables)
    run = decentral_dp.run(source, data=rows)
    features, label = rows[["f0", "f1"]].to_numpy(), rows["label"].to_numpy()
    if ridge:
        # The penalty is on the weights of scaled features, and on the intercept over γ.
        whole = np.column_stack([features / 2**0.5, np.full(len(rows), GAMMA)])
        plain = Ridge(alpha=ridge * len(rows), fit_intercept=False).fit(whole, label / 10.0 - 1.0)
        expected = 10.0 * (1.0 + plain.predict(whole))
    else:
        expected = LinearRegression().fit(features, label).predict(features)
    np.testing.assert_allclose(run.predict(rows[["f0", "f1"]]), expected, atol=1e-8)


@pytest.mark.parametrize("pairs", [None, {"between_agents": "pairwise", "ratio": 2.0}], ids=["own", "pairwise"])
@pytest.mark.parametrize("weights", ["sites", "records"])
def test_planned_is_recorded_and_its_noise_is_that_of_the_average(weights: str, pairs: Any) -> None:
    """2C/N once, and a fifth of it for the labels."""
    rows = frame(1, (40, 40, 40, 40)) if weights == "sites" else frame()
    job = built(rows, problem={"weights": weights}, privacy={"correlation": pairs})
    (charged,) = job.ledger.charged_channels
    assert list(charged.rounds) == [1, K + 1]
    even = len(rows) / AGENTS
    expected = np.outer([0.2, 1.0], np.full(charged.sensitivity["train"].shape[1], 2.0 * CLIP / even))
    np.testing.assert_allclose(charged.sensitivity["train"], expected, rtol=1e-12)
    assert (job.budget.epsilon <= 4.0).all()
    assert (job.budget.epsilon > 3.99).all()
    own = float(job.noise["s"].scale[0]) if pairs is None else 0.0
    assert pairs or job.algorithm.noise == pytest.approx(own / AGENTS**0.5, rel=0.02)
    assert finished(job).ledger.same_releases(job.ledger)


@pytest.mark.parametrize(
    "sampling", [{"kind": "fixed_batch", "batch_size": 2}, {"kind": "poisson", "rate": 0.5}], ids=str
)
def test_batches_are_not_read(sampling: dict[str, Any]) -> None:
    job, full = built(problem={"sampling": sampling}), built()
    assert job.ledger.same_releases(full.ledger)
    assert finished(job).ledger.same_releases(job.ledger)


class Half(AdaSsp):
    """Accounts a replaced record as one that is only removed."""

    def planned_releases(self, public: Any) -> Any:
        return halved(super().planned_releases(public), "s")


class Again(AdaSsp):
    """Adds the statistics once more, where the plan has them once."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        if t != K + 1:
            return (yield from super().step(t, dataset, s))
        return (
            yield from change_end(super().step(t, dataset, s), lambda a, _: a._replace(s=a.s + dataset.statistics()))
        )


@pytest.mark.parametrize("bug", [Half, Again])
def test_a_planted_bug_is_refused_by_the_comparison_of_plan_and_record(bug: type) -> None:
    job = built()
    recorded, planned = ledgers(job, with_fields_of(bug, job.algorithm))
    assert not recorded.same_releases(planned)


@pytest.mark.parametrize("unit", [{}, {"unit": 2}, {"unit": "agent"}, {"neighbours": "zero_out"}], ids=str)
def test_extreme_records_reach_the_planned_sensitivity_and_not_more(unit: dict[str, Any]) -> None:
    """The worst pair has no features and the two ends of the label range."""
    largest = {1: 0.0, K + 1: 0.0}
    for seed in range(8):
        draw, rows = np.random.default_rng([3, seed]), frame(seed)
        victim = int(draw.integers(AGENTS))
        moved = SIZES[victim] if unit.get("unit") == "agent" else unit.get("unit", 1)
        place = np.flatnonzero(rows["agent"] == victim)[:moved]
        # The last coordinate gives the centre of the labels.
        transcript = [{"s": draw.normal(size=(AGENTS, WIDTH)) * 0.1 * (seed % 2)} for _ in range(ROUNDS + 1)]
        wanted = []
        for sign in (1.0, -1.0):
            corner = draw.choice([-1.0, 0.0, 1.0], D) * (seed % 2)
            rows.loc[place, ["f0", "f1"]] = corner
            rows.loc[place, "label"] = 10.0 + 10.0 * sign
            job = built(rows, privacy=unit)
            if job.unit.zeroed and sign < 0.0:
                nothing = job.problem.null_record(job.records["train"][victim])
                job = job.with_record("train", victim, nothing, moved)
            wanted.append(network_replay(job, transcript).wanted)
        (planned,) = job.ledger.charged_channels
        for t, (one, other) in enumerate(zip(*wanted, strict=True)):
            if not isinstance(one["s"], Bounded):
                np.testing.assert_array_equal(one["s"], other["s"])
                continue
            change = np.linalg.norm(one["s"].private - other["s"].private, axis=1)
            assert not np.delete(change, victim).any()
            (row,) = np.flatnonzero(planned.rounds == t)
            allowed = planned.sensitivity["train"][row, planned.group[victim]]
            assert one["s"].sensitivities["train"].sensitivity[victim] == pytest.approx(allowed, rel=1e-12)
            largest[t] = max(largest[t], float(change[victim] / allowed))
    for share in largest.values():
        assert 1.0 - 1e-9 < share <= 1.0


def test_a_centre_that_depends_on_records_is_refused() -> None:
    dataset = built().nodes([AGENTS])[0].dataset
    with pytest.raises(TypeError, match=r"^statistics: the centre depends on records"):
        dataset.statistics(dataset.statistics())


def test_records_that_are_not_finite_count_as_zero() -> None:
    job = built()
    records = type(job.records["train"][0])(*(part[None] for part in job.records["train"][0]))
    broken = records._replace(features=records.features.copy())
    broken.features[0, 1, 0] = np.inf
    without = records._replace(features=records.features[:, [0, 2]], label=records.label[:, [0, 2]])
    for centre in (None, np.full((1, 1), 0.3)):
        mean = job.problem.statistics(broken, job.clip, centre)
        np.testing.assert_allclose(mean, job.problem.statistics(without, job.clip, centre) * 2 / 3, atol=1e-15)


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ({"problem": {"loss": "huber"}}, "algorithm.kind: adassp is not supported here: it solves linear regression"),
        ({"problem": {"model": {"kind": "mlp", "hidden": [2]}}}, "algorithm.kind: adassp"),
        ({"privacy": {"box": {"y": 1.0}}}, "privacy.box: adassp sends numerators or statistics"),
        ({"privacy": {"epsilon": None, "y": {"scale": 1.0}}}, "algorithm.kind: adassp .* its ridge"),
        ({"privacy": {"mechanism": "laplace", "delta": None}}, "algorithm.kind: adassp .* its ridge"),
        ({"problem": {"sampling": {"kind": "streaming", "batch_size": 2}}}, "records come in a public order"),
        ({"topology": {"drop": 0.1}}, "the network changes"),
        ({"run": {"average": 3}}, "run.average"),
        ({"algorithm": {"learning_rate": {"scale": 1.0}}}, "algorithm.learning_rate"),
    ],
    ids=str,
)
def test_refusals(tables: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        built(**tables)


@pytest.mark.parametrize(("rounds", "sent"), [(1, [1]), (2, [1]), (3, [1, 2]), (4, [1, 2]), (5, [1, 3])])
def test_few_rounds_release_statistics_only_if_a_round_is_left_for_the_labels(rounds: int, sent: list[int]) -> None:
    job = built(algorithm={"rounds": rounds})
    assert list(job.ledger.charged_channels[0].rounds) == sent
    assert finished(job).ledger.same_releases(job.ledger)


def test_the_clip_has_a_default() -> None:
    assert built(privacy={"clip": None}).clip.y == 0.5


def test_an_estimator_predicts_by_the_solution_of_the_last_round() -> None:
    rows = frame(2, (300,) * AGENTS)
    features = rows[["f0", "f1"]].to_numpy()
    model = DecentralisedRegressor(
        algorithm="adassp", rounds=40, agents=AGENTS, epsilon=8.0, label_range=(0, 20), random_state=1
    ).fit(features, rows["label"].to_numpy())
    plain = LinearRegression().fit(features, rows["label"]).score(features, rows["label"])
    assert plain - 0.05 < model.score(features, rows["label"].to_numpy()) <= plain
    np.testing.assert_allclose(features @ model.coef_ + model.intercept_, model.predict(features))


def test_noise_only_shrinks_weights_toward_the_mean_label() -> None:
    """Statistics without a positive eigenvalue still give a finite model."""
    job = built()
    algorithm = replace(job.algorithm, noise=0.5)
    s = np.random.default_rng(0).normal(size=(50, WIDTH))
    weights = algorithm.solution({"y": np.zeros((50, D + 1)), "s": s})["y"]
    matrix, _ = unpack_statistics(s, D + 1, GAMMA**2)
    assert np.linalg.eigvalsh(matrix)[:, 0].min() < 0.0
    assert np.abs(weights).max() < 1e3


def test_skewed_counts_are_learnt_at_small_budgets() -> None:
    """Records of eight features at five unequal sites, of which least squares explain a sixth."""
    draw, sizes, d = np.random.default_rng(2), (3000, 1500, 900, 450, 150), 8
    features = draw.uniform(-1.0, 1.0, (7500, d))
    counts = draw.poisson(np.exp(0.6 + 0.35 * features @ draw.normal(size=d)) * draw.gamma(0.8, 1.25, 7500))
    rows = pd.DataFrame(features, columns=[f"f{k}" for k in range(d)]).assign(label=np.clip(counts, 0, 40))
    rows = rows.assign(agent=[*np.repeat(np.arange(5), sizes), *[0] * 1500], split=["train"] * 6000 + ["test"] * 1500)
    tables: dict[str, Any] = {
        "problem": {"label_range": [0, 40], "weights": "records"},
        "topology": {"agents": 5},
        "algorithm": {"rounds": 60},
        "privacy": {"epsilon": 1.0, "clip": None},
    }
    metrics = decentral_dp.run(content(**tables), data=rows).metrics
    reached = metrics[(metrics["name"] == "test_r2") & (metrics["agent"] == "mean")]["value"].iloc[-1]
    train, test = features[:6000], features[6000:]
    plain = LinearRegression().fit(train, rows["label"][:6000]).score(test, rows["label"][6000:])
    assert 0.6 * plain < reached <= plain + 0.01
