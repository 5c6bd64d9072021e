"""Settings of training that follow from public numbers: the rule, its refusals, and what is learnt with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms.gossip.centring import Centring
from decentral_dp.bounded import Array, Bounded, Sensitivity
from decentral_dp.privacy.accounting.accountants import largest_mu
from decentral_dp.problems import ProblemFacts
from decentral_dp.problems.protocol import StepFacts
from decentral_dp.problems.training import classification
from decentral_dp.simulation.jobs.hyperparameters import (
    TrainingFacts,
    default_hyperparameters,
    share_of_centre,
    stable_momentum,
)
from tests.support.training import changed, training

AGENTS, RECORDS = 5, 800
TWO = TrainingFacts(classes=2, records=640, agents=5, mu=1.0, rounds=1000, momentum=0.9, curvature=0.2525)


def _scenario(**tables: Any) -> dict[str, Any]:
    content = training(topology={"agents": 5}, privacy={"clip": None}) | {"seed": 1}
    del content["algorithm"], content["run"]
    return changed(content, **tables)


# The rule.


@pytest.mark.parametrize("classes", [0, 2, 7])
@pytest.mark.parametrize("mu", [0.05, 0.27, 2.0, 50.0])
@pytest.mark.parametrize("records", [50, 640, 10_000])
def test_a_step_is_stable_and_noise_is_bounded(classes: int, mu: float, records: int) -> None:
    facts = TWO._replace(classes=classes, mu=mu, records=records)
    step, clip, noise = default_hyperparameters(facts)
    assert 0.0 < step <= 1.5 / facts.curvature * (1.0 + 1e-12)
    assert clip <= (0.25 if classes else 0.5)
    assert noise <= 8.0 * (1.0 + 1e-9)
    time = facts.rounds * step / (1.0 - facts.momentum)
    assert math.isclose(noise, clip * time * 2.0 / (records * mu * math.sqrt(5)), rel_tol=1e-9)


@pytest.mark.parametrize(
    ("graph", "kind", "beta"),
    # Least eigenvalues of Metropolis weights: -1/3, -0.6, -0.5; 0.9 dies out above -1/2.8.
    [
        ({"kind": "ring", "agents": 16}, "dp_dsgd", 0.9),
        ({"kind": "torus", "agents": 16}, "dp_dsgd", 0.0),
        ({"kind": "hypercube", "agents": 8}, "dp_dsgd", 0.0),
        ({"kind": "torus", "agents": 16}, "federated", 0.9),
        ({"kind": "ring", "agents": 16, "drop": 0.1}, "dp_dsgd", 0.0),
    ],
)
def test_default_momentum_is_stable_on_the_graph(graph: dict[str, Any], kind: str, beta: float) -> None:
    job = decentral_dp.build(_scenario(topology=graph, algorithm={"kind": kind})).simulation()
    assert stable_momentum(job.topology, kind) == beta


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("dp_dsgd", "D-SGD"),
        ("ldp_single_level", "D-SGD, combine then adapt"),
        ("federated", "DP-FedAvg with noise of each agent"),
        ("central", "DP-SGD on the records of all"),
        ("alone", "DP-SGD of each agent by itself"),
        ("random_walk", "random-walk SGD"),
        ("push_sum", "push-sum SGD"),
        ("choco", "CHOCO-SGD"),
        ("exact_diffusion", "exact diffusion"),
        ("gradient_tracking", "gradient tracking"),
    ],
)
def test_a_baseline_is_the_algorithm_of_its_name_unless_a_key_asks_for_more(kind: str, name: str) -> None:
    """Steps and clips may be planned; momentum, averages, centred features and second moments never are."""
    table = {"kind": kind, "rounds": 20, **({} if kind != "choco" else {"learning_rate": {"scale": 1.0}})}
    graph = {"compression": {"kind": "sign"}} if kind == "choco" else {}
    run = decentral_dp.run(_scenario(algorithm=table, topology=graph, run={"measures": ["test_loss"]}))
    job = run.simulation()
    assert run.result.method == decentral_dp.plan(job.scenario).method == name
    assert not isinstance(job.algorithm, Centring)
    assert not getattr(job.algorithm, "momentum", 0.0)
    assert job.problem.p == 0
    assert not any(name.endswith("_last") for name in run.result.metrics)
    assert all(np.array_equal(run.released[channel], value) for channel, value in run.published.items())


def test_the_learning_rate_and_the_clip_bound_each_other() -> None:
    """A wide clip shortens steps and long steps narrow the clip, so that noise stays where the rule has it."""
    wide_step, wide_clip, wide_noise = default_hyperparameters(TWO._replace(clip=2.0))
    long_step, long_clip, long_noise = default_hyperparameters(TWO._replace(step=5.0, mu=0.1))
    assert wide_clip == 2.0
    assert wide_step < default_hyperparameters(TWO)[0]
    assert long_step == 5.0
    assert long_clip < 0.03
    assert wide_noise == pytest.approx(6.0)
    assert long_noise == pytest.approx(6.0)
    assert default_hyperparameters(TWO._replace(step=0.2, mu=math.inf))[:2] == (0.2, math.inf)


@pytest.mark.parametrize("kind", [None, "pairwise", "optimised"])
def test_the_hyperparameters_text_has_the_accumulated_noise(kind: str | None) -> None:
    """From the noise that the job draws: the deviation of a sum of all rounds' noise, averaged over agents."""
    tables = _scenario(
        topology={"kind": "path", "agents": 9}, privacy={"correlation": kind and {"between_agents": kind}}
    )
    job = decentral_dp.build(tables).simulation()
    (node,) = job.nodes()
    releaser, ones, zero = node.make_releaser(), np.ones(9), np.zeros((9, job.problem.q))
    nothing = Bounded(zero, zero, {"train": Sensitivity(ones, ones, None)}, "l2")
    squares = [np.square(releaser.release(k, {"y": nothing})["y"].mean(axis=0)).mean() for k in range(1, 301)]
    moved = math.sqrt(np.mean(squares) * job.rounds) / (1.0 - job.algorithm.momentum)
    text = job.hyperparameters_text
    assert f"Learning rate {job.algorithm.learning_rate.scale:g}" in text
    assert float(text.rstrip(".").rpartition(" ")[2]) == pytest.approx(moved, rel=0.05)


# Networks.


@pytest.mark.parametrize("model", [{"kind": "mlp", "hidden": [40]}, {"kind": "cnn", "channels": [4]}])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_noise_of_a_network_is_bounded_by_its_start_and_steps_by_its_curvature(
    model: dict[str, Any], epsilon: float
) -> None:
    problem = {"kind": "classification", "data": "digits", "scale": "public_ranges", "model": model}
    job = decentral_dp.build(_scenario(problem=problem, privacy={"epsilon": epsilon})).simulation()
    start = job.problem.start["y"]
    noise = job.noise["y"].scale.max() * math.sqrt(job.rounds / AGENTS)
    assert noise <= 1.4 * start[start != 0.0].std() * 1.15
    assert job.algorithm.learning_rate.scale <= 1.5 / job.problem.curvature * 1.005
    assert 0.3 <= job.clip.y <= 1.0


def test_the_curvature_of_a_network_is_the_trace_at_its_start_and_bounds_the_largest_eigenvalue() -> None:
    """If the last layer starts at 0, the Hessian of the mean loss is that of a linear model of the hidden units."""
    model = {"kind": "mlp", "hidden": [40]}
    job = decentral_dp.build(_scenario(problem={"model": model}, privacy={"guarantee": "none"})).simulation()
    draw, weights = np.random.default_rng(3), job.problem.start["y"][: 40 * 30].reshape(40, 30)
    units = np.maximum(draw.uniform(-1.0, 1.0, (4000, 30)) @ weights.T, 0.0)
    rows = np.column_stack([units, np.ones(4000)])
    hessian = 0.25 * rows.T @ rows / 4000
    assert job.problem.curvature == pytest.approx(np.trace(hessian), rel=0.25)
    assert np.linalg.eigvalsh(hessian)[-1] < job.problem.curvature


# Privately centred features.


@pytest.mark.parametrize("records", [20, 200, 20_000])
@pytest.mark.parametrize("mu", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("features", [1, 10, 300])
def test_the_share_of_the_mean_of_features_is_bounded(features: int, mu: float, records: int) -> None:
    noise = 2.0 / (records * mu)
    share = share_of_centre(features, noise)
    length = math.sqrt(features) * noise
    assert share == 0.0 or 0.02 <= share <= 0.05
    assert share == 0.0 or length / math.sqrt(share) <= 0.5 * (1.0 + 1e-9)
    assert share > 0.0 or length / math.sqrt(0.05) > 0.5


@pytest.mark.parametrize(
    ("tables", "centred"),
    [
        ({}, True),
        ({"algorithm": {"kind": "central"}}, True),
        ({"privacy": {"share": {"y": 1.0}}}, False),
        ({"privacy": {"clip": 0.1}}, True),
        ({"privacy": {"epsilon": 0.1}}, False),
        (
            {
                "privacy": {"epsilon": None, "y": {"scale": 0.1}, "clip": 0.1},
                "algorithm": {"learning_rate": {"scale": 0.1}},
            },
            False,
        ),
        ({"privacy": {"unit": "agent"}}, False),
        ({"privacy": {"guarantee": "none"}}, True),
        ({"privacy": {"guarantee": "none", "share": {"y": 1.0}}}, False),
        ({"problem": {"model": {"kind": "mlp", "hidden": [8]}}}, False),
        ({"problem": {"sampling": {"kind": "fixed_batch", "batch_size": 8}}}, True),
        ({"problem": {"sampling": {"kind": "streaming", "batch_size": 8}}}, False),
        ({"privacy": {"correlation": {"between_agents": "pairwise", "ratio": 4.0}}}, True),
        ({"privacy": {"correlation": {"over_rounds": 2}}}, False),
        ({"topology": {"drop": 0.1}}, False),
        ({"algorithm": {"kind": "federated"}}, True),
    ],
)
def test_features_are_centred_if_a_key_asks_for_it(tables: dict[str, Any], centred: bool) -> None:
    asked = {"kind": "dp_dsgd", "centring": True} | tables.get("algorithm", {})
    job = decentral_dp.build(_scenario(**{**tables, "algorithm": asked})).simulation()
    assert job.problem.p == (30 if centred else 0)
    assert any("Features are not centred: " in text for text in job.setting_warnings) is not centred
    # The run folder has the value.
    assert job.scenario.algorithm.own_keys()["centring"] is centred
    # A server receives the mean with the steps; neighbours send it as x.
    assert any(c.channel in ("x", "m") for c in job.ledger.charged_channels) is centred


# Defaults of scenarios.


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"problem": {"scale": None}},
            "algorithm.learning_rate: missing. It is planned if features have declared ranges",
        ),
        (
            {"privacy": {"mechanism": "laplace"}},
            "algorithm.learning_rate: missing. It is planned for Gaussian noise with a target",
        ),
        (
            {"privacy": {"epsilon": None}},
            "privacy.epsilon: missing, and there is no noise_multiplier or scale. Fix: set one of them",
        ),
        (
            {"privacy": {"delta": 0.0}},
            "privacy.delta: Gaussian noise needs a delta above 0 (got 0). Fix: use a delta such as 1e-5",
        ),
        ({"problem": {"validation": 0.5}}, "problem.validation: not supported by classification. Fix: remove it."),
        ({"problem": {"loss": "huber"}}, 'problem.loss: unknown loss "huber"'),
        (
            {"problem": {"model": {"kind": "mlp", "hidden": [8]}, "scale": None}},
            "algorithm.learning_rate: missing. It is planned if features have declared ranges",
        ),
        (
            {"privacy": {"unit": "agent"}, "algorithm": {"kind": "dp_dsgd", "local_steps": 2}},
            "local steps of an agent are clipped as one. Fix: set algorithm.learning_rate and privacy.clip",
        ),
        ({"algorithm": {"kind": "ldp_dsbo", **{c: {"scale": 1.0} for c in "xyz"}}}, "requires a bilevel problem"),
    ],
)
def test_refusals(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        decentral_dp.plan(_scenario(**tables))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


# Scores on tables that were not used to choose the rule.


def _table(kind: str) -> tuple[Array, Array, int]:
    """Features in [−1, 1], labels and the number of classes: 0 where they are numbers."""
    draw = np.random.default_rng([2026, sum(map(ord, kind))])
    n = AGENTS * RECORDS
    if kind == "correlated":
        mixed = draw.normal(size=(n, 4)) @ draw.normal(size=(4, 12)) + 0.3 * draw.normal(size=(n, 12))
        logit = 1.5 * mixed[:, 0] / mixed[:, 0].std() - mixed[:, 5] / mixed[:, 5].std()
        return mixed / np.abs(mixed).max(), (logit + draw.logistic(size=n) > 0).astype(float), 2
    if kind == "columns of 0 and 1":
        # The mean of the records is larger than their spread, and the mean label is far from 0.
        bits = (draw.random((n, 8)) < draw.uniform(0.1, 0.7, size=8)).astype(float)
        score = bits @ draw.normal(size=8)
        number = 0.15 * (score - score.mean()) / score.std() - 0.5 + 0.1 * draw.normal(size=n)
        return bits, np.clip(number, -1.0, 1.0), 0
    if kind == "counts":
        # Skewed: the median is far below the mean, and noise of a record is most of it.
        features = np.clip(0.3 * draw.normal(size=(n, 8)) + 0.1, -1.0, 1.0)
        score = features @ draw.normal(size=8)
        size = np.exp(0.8 + 0.4 * (score - score.mean()) / score.std())
        return features, np.minimum(draw.negative_binomial(0.8, 0.8 / (0.8 + size)), 40) / 20.0 - 1.0, 0
    features = np.clip(draw.standard_t(4, size=(n, 8)) / 8.0, -1.0, 1.0)
    number = features @ draw.normal(size=8) * 4.0 + draw.normal(size=n)
    return features, np.clip(number / 10.0, -1.0, 1.0), 0


def _trained(features: Array, labels: Array, classes: int, epsilon: float, model: Any = "linear") -> Any:
    """A run with planned settings, and the places of train and held-out records."""
    frame = pd.DataFrame(features, columns=[f"f{k}" for k in range(features.shape[1])])
    frame["label"] = labels.astype(int) if classes else labels
    kind = {"kind": "classification", "classes": list(range(classes))} if classes else {"kind": "regression"}
    problem = {"data": "frame", "label": "label", "scale": {"*": [-1.0, 1.0]}, "test": 0.2, "model": model, **kind}
    problem |= {} if classes else {"label_range": [-1.0, 1.0]}
    scenario = {
        "seed": 7,
        "problem": problem,
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"momentum": 0.9, "centring": model == "linear"},
        "privacy": {"mechanism": "gaussian", "epsilon": epsilon, "delta": 1e-5},
        "run": {"evaluate_every": 1000, "average": 0.5 if model == "linear" else 0.2},
    }
    run = decentral_dp.run(scenario, data=frame)
    held = run.simulation().shards.test
    return run, np.setdiff1d(np.arange(len(labels)), held), held


def _learnt(features: Array, labels: Array, classes: int, epsilon: float, model: Any = "linear") -> tuple[float, float]:
    """The score of the mean agent, and that of scikit-learn on the train records of all: AUC or R²."""
    run, train, held = _trained(features, labels, classes, epsilon, model)
    name = "test_auc" if classes else "test_r2"
    last = run.metrics[(run.metrics["round"] == 1000) & (run.metrics["agent"] == "mean")].set_index("name")["value"]
    if not classes:
        return float(last[name]), float(
            LinearRegression().fit(features[train], labels[train]).score(features[held], labels[held])
        )
    fitted = LogisticRegression(C=100.0, max_iter=2000).fit(features[train], labels[train])
    return float(last[name]), float(roc_auc_score(labels[held], fitted.decision_function(features[held])))


# Scores of networks.


def test_a_network_with_default_hyperparameters_learns_products_of_features() -> None:
    draw, n = np.random.default_rng(11), AGENTS * RECORDS
    features = draw.uniform(-1.0, 1.0, (n, 9))
    label = (features[:, 1] * features[:, 4] - features[:, 7] * features[:, 2] > 0.0).astype(float)
    line, at_eight = (_learnt(features, label, 2, 8.0, model)[0] for model in ("linear", _NETWORK))
    assert line < 0.6
    assert at_eight > 0.93


_NETWORK = {"kind": "mlp", "hidden": [64]}

# How much worse it may be at ε = 8 and at ε = 1.
GAPS = {
    "correlated": (0.03, 0.06),
    "numbers": (0.02, 0.05),
    "columns of 0 and 1": (0.02, 0.06),
    # A clip far below the errors learns the median, whose R² is below 0 at every ε.
    "counts": (0.02, 0.05),
}


@pytest.mark.parametrize("kind", GAPS)
def test_default_hyperparameters_come_close_to_scikit_learn(kind: str) -> None:
    features, labels, classes = _table(kind)
    for epsilon, gap in zip((8.0, 1.0), GAPS[kind], strict=True):
        got, reference_score = _learnt(features, labels, classes, epsilon)
        assert got >= reference_score - gap, f"{kind} at ε = {epsilon}: {got:.3f}, scikit-learn {reference_score:.3f}"


# Custom problems.


class CustomProblem:
    """A whole problem that hands on what a linear model computes, and states what its steps can be planned by."""

    p, reads_records = 0, {"lower_grad_y": "train"}

    def __init__(self, inner: Any, facts: StepFacts) -> None:
        self.inner, self.facts, self.q, self.clips = inner, facts, inner.q, list[Any]()

    def __getattr__(self, name: str) -> Any:
        if name in ("prepare", "regulariser", "regulariser_value", "losses", "accuracy", "matrices", "null_record"):
            return getattr(self.inner, name)
        raise AttributeError(name)

    def terms(self, *arguments: Any) -> Any:
        return self.inner.terms(*arguments)

    def constants(self, *_: Any) -> None:
        return None

    def step_facts(self) -> StepFacts:
        return self.facts

    def with_clip(self, clip: Any) -> CustomProblem:
        self.clips.append(clip)
        return self


def test_a_custom_problem_with_step_facts_has_default_hyperparameters() -> None:
    inner = classification(ProblemFacts(30, 2, l2=1.0))
    mu = largest_mu(4.0, 1e-5)
    for curvature in (4.0, 0.2525):
        problem = CustomProblem(inner, StepFacts(2, curvature, 0.0, linear=True))
        job = decentral_dp.build(_scenario(), problem=problem).simulation()
        fewest, momentum = int(job.shards.train_counts.min()), job.algorithm.momentum
        step, clip, _ = default_hyperparameters(TrainingFacts(2, fewest, AGENTS, mu, job.rounds, momentum, curvature))
        assert (job.algorithm.learning_rate.scale, job.clip.y) == pytest.approx((step, clip), rel=5e-3)
        assert problem.clips == [job.clip]


# Adversaries that receive published models only.


def _published(adversary: str, epsilon: float = 0.06, more: dict[str, Any] | None = None, **tables: Any) -> Any:
    """Plan digits, whose features and ten classes need several outputs."""
    problem = {"data": "digits"}
    tables = {"algorithm": {"kind": "dp_dsgd", "rounds": 60}, "topology": {"agents": 9}} | tables
    privacy = {"adversary": adversary, "epsilon": epsilon, **(more or {})}
    return decentral_dp.build(_scenario(problem=problem, privacy=privacy, **tables)).simulation()


def test_settings_for_an_average_have_the_noise_of_a_trusted_server_and_envelopes() -> None:
    job, every = _published("final_average"), _published("all_messages")
    fewest = int(job.shards.train_counts.min())
    facts = TrainingFacts(10, fewest, 9**2, largest_mu(0.06, 1e-5), 60, 0.0, job.problem.curvature)
    step, clip, _ = default_hyperparameters(facts)
    assert (job.algorithm.learning_rate.scale, job.clip.y) == pytest.approx((step, clip), rel=5e-3)
    assert job.clip.envelope
    assert job.clip.at(3).divide(2.0).envelope
    assert not every.clip.envelope
    step_of_agents, clip_of_agents, _ = default_hyperparameters(facts._replace(agents=9))
    assert step_of_agents * clip_of_agents < 0.9 * step * clip


def test_few_rounds_for_the_graph_are_in_the_warnings() -> None:
    gap = _published("final_models", 1.0).topology.spectral_gap
    for rounds, is_few in ((math.ceil(5.0 / gap) - 1, True), (math.ceil(5.0 / gap), False)):
        for adversary in ("final_models", "all_messages"):
            job = _published(adversary, 1.0, algorithm={"kind": "dp_dsgd", "rounds": rounds})
            warned = any(f"Fix: algorithm.rounds = {math.ceil(5.0 / gap)}" in text for text in job.setting_warnings)
            assert warned == (is_few and adversary == "final_models")


@pytest.mark.parametrize(
    ("epsilon", "privacy"), [(0.02, {}), (0.06, {"correlation": {"between_agents": "pairwise", "ratio": 10.0}})]
)
def test_a_target_below_the_cost_of_rounding_has_the_noise_for_all_messages(
    epsilon: float, privacy: dict[str, Any]
) -> None:
    job = _published("final_average", epsilon, privacy)
    assert 0.99 * epsilon < job.published.max() <= job.budget.epsilon.max() <= epsilon
    less_noise = _published("final_average", 2.0)
    assert less_noise.budget.epsilon.max() > 1.5 * less_noise.published.max()
