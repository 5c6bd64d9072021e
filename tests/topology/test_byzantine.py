"""Attacks and robust aggregation: against loops over coordinates, and in whole runs."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import decentral_dp
from decentral_dp.problems.records import concatenate
from decentral_dp.simulation.jobs.build import run_digest
from decentral_dp.topology.byzantine import Aggregation, Attack

RULES: dict[str, dict[str, Any]] = {
    "clipped_gossip": {"radius": 0.7},
    "self_centred_clipping": {"trim": 1},
    "trimmed_mean": {"trim": 1},
    "median": {},
}


def _aggregate(kind: str, own: np.ndarray, near: list[np.ndarray], share: list[float]) -> np.ndarray:
    """Aggregate for one agent, from the definitions, coordinate by coordinate."""
    if kind == "median":
        return np.array([statistics.median([own[k], *(v[k] for v in near)]) for k in range(own.size)])
    if kind == "trimmed_mean":
        means = []
        for k in range(own.size):
            values = sorted(v[k] for v in near)
            if len(values) > 2:
                values = values[1:-1]
            means.append(statistics.fmean([own[k], *values]))
        return np.array(means)
    lengths = [float(np.linalg.norm(v - own)) for v in near]
    radius = 0.7 if kind == "clipped_gossip" else sorted(lengths, reverse=True)[min(1, len(near) - 1)]
    out = own.copy()
    for value, length, weight in zip(near, lengths, share, strict=True):
        out += weight * (value - own) * (min(1.0, radius / length) if length else 1.0)
    return out


@pytest.mark.parametrize("kind", RULES)
def test_aggregation_is_its_definition(kind: str) -> None:
    rng = np.random.default_rng(3)
    weights = np.array([[0, 0.2, 0.3, 0.1], [0.2, 0, 0, 0.3], [0.3, 0, 0, 0], [0.1, 0.3, 0, 0]])
    own, messages = rng.normal(size=(2, 4, 3))
    got = Aggregation(kind, **RULES[kind])(own, messages, sp.csr_array(weights))
    for i in range(4):
        near = [int(j) for j in np.flatnonzero(weights[i])]
        wanted = _aggregate(kind, own[i], [messages[j] for j in near], [weights[i, j] for j in near])
        np.testing.assert_allclose(got[i], wanted, atol=1e-14)


def test_attackers_replace_their_messages_only() -> None:
    released = np.random.default_rng(1).normal(size=(5, 4))
    honest = released[[0, 2, 4]]
    wanted = {
        "sign_flip": -2.0 * released[[1, 3]],
        "alie": np.tile(honest.mean(axis=0) - 2.0 * honest.std(axis=0), (2, 1)),
        "ipm": np.tile(-2.0 * honest.mean(axis=0), (2, 1)),
    }
    for kind, values in wanted.items():
        got = Attack((1, 3), kind, 2.0)(released, index=7)
        np.testing.assert_allclose(got[[1, 3]], values)
        np.testing.assert_array_equal(got[[0, 2, 4]], honest)
    noise = Attack((1,), "noise", 3.0, seed=2)
    draws = np.stack([noise(released, index)[1] - released[1] for index in range(500)])
    assert abs(draws.std() - 3.0) < 0.3
    np.testing.assert_array_equal(noise(released, 4), noise(released, 4))


TRAINING: dict[str, Any] = {
    "topology.kind": "complete",
    "topology.agents": 6,
    "algorithm.rounds": 60,
    "algorithm.momentum": 0.0,
    "algorithm.centring": False,
    "algorithm.learning_rate": 1.0,
    "privacy.guarantee": "none",
    "run.average": 1,
    "run.evaluate_every": 60,
}
SIGN_FLIP = {"attack": {"agents": [1], "kind": "sign_flip", "strength": 5.0}}


@pytest.mark.parametrize("kind", RULES)
def test_rules_resist_an_attack_that_ruins_weighted_sums(kind: str) -> None:
    radius = {"radius": 0.1} if kind == "clipped_gossip" else RULES[kind]
    rule = {"topology.aggregation": {"kind": kind, **radius}}
    runs = [decentral_dp.run("dp_dsgd", set=TRAINING | more) for more in ({}, SIGN_FLIP, SIGN_FLIP | rule)]
    plain, ruined, robust = (run.result.metrics["test_accuracy"] or np.nan for run in runs)
    assert ruined < 0.5 < plain - 0.2
    assert robust > plain - 0.05


def test_metrics_are_those_of_honest_agents() -> None:
    """Their values, and for losses their records."""
    changes = TRAINING | SIGN_FLIP | {"run.measures": ["lower_loss", "test_accuracy"], "problem.l2": 0.1}
    run = decentral_dp.run("dp_dsgd", set=changes)
    scored = set(run.metrics["agent"]) - {"mean"}
    assert scored == {"0", "2", "3", "4", "5"}
    job, y = run.simulation(), run.published["y"]
    x = np.zeros((1, 0))
    losses = [
        np.mean(
            [
                job.problem.losses(x, y[[a]], records, np.full(len(records[0]), 1 / len(records[0])))[0][0]
                for b, records in enumerate(job.records["train"])
                if b != 1
            ]
        )
        for a in (0, 2, 3, 4, 5)
    ]
    ends = run.result.metrics["lower_loss"]
    assert ends == pytest.approx(np.mean(losses) + 0.05 * np.square(y[[0, 2, 3, 4, 5]]).sum(axis=1).mean(), rel=1e-9)


def test_the_model_is_the_mean_of_honest_agents(tmp_path: Path) -> None:
    run = decentral_dp.run("dp_dsgd", set=TRAINING | SIGN_FLIP, out=tmp_path / "run")
    y = run.published["y"]
    honest = y[[0, 2, 3, 4, 5]].mean(axis=0)
    assert not np.allclose(honest, y.mean(axis=0), rtol=1e-3)
    for model in (run.model, decentral_dp.load_model(tmp_path / "run")):
        values = np.concatenate([part.ravel() for part in model.weights.values()])
        np.testing.assert_allclose(np.sort(values), np.sort(_weights_of(run, honest)), rtol=1e-12)
        assert "mean of 5 honest agents" in repr(model)
    attacker = np.concatenate([part.ravel() for part in run.model.of_agent(1).weights.values()])
    np.testing.assert_allclose(np.sort(attacker), np.sort(_weights_of(run, y[1])), rtol=1e-12)


def _weights_of(run: decentral_dp.Run, y: np.ndarray) -> np.ndarray:
    parts = run.simulation().problem.named_weights(y)
    return np.concatenate([part.ravel() for part in parts.values()])


def test_metrics_of_minimax_problems_are_those_of_honest_agents() -> None:
    changes = {"algorithm.rounds": 4, "run.evaluate_every": 4, **SIGN_FLIP}
    run = decentral_dp.run("gossip_sgda", set=changes)
    job, published = run.simulation(), run.published
    honest = [agent for agent in range(job.n_agents) if agent != 1]
    train = concatenate([job.records["train"][agent] for agent in honest])
    ends = run.metrics[(run.metrics["name"] == "primal") & (run.metrics["round"] == 4)].set_index("agent")["value"]
    assert set(ends.index) == {"mean", *map(str, honest)}
    for agent in honest:
        scores = job.posed_problem.scores(published["x"][agent], published["y"][agent], train, None)
        assert ends[str(agent)] == pytest.approx(scores["primal"], rel=1e-12)


def test_epsilon_and_ledger_do_not_depend_on_attacks() -> None:
    private = TRAINING | {"privacy.guarantee": "certified", "algorithm.rounds": 10, "topology.offline": 0.2}
    rule = {"topology.aggregation": {"kind": "trimmed_mean", "trim": 1}}
    plain, attacked = (decentral_dp.run("dp_dsgd", set=private | more) for more in ({}, SIGN_FLIP | rule))
    assert attacked.records.same_releases(plain.records)
    assert attacked.result.privacy.epsilon_max == plain.result.privacy.epsilon_max
    assert not np.array_equal(attacked.released["y"], plain.released["y"])


def test_transcripts_under_attack_show_at_most_the_certified_epsilon() -> None:
    changes = {"algorithm.rounds": 3, "topology.agents": 4, "topology.kind": "complete", "privacy.epsilon": 2.0}
    changes |= {"attack": {"agents": [0], "kind": "ipm"}, "topology.aggregation": {"kind": "median"}}
    result = decentral_dp.audit("ring_breast_cancer", set=changes, runs=80)
    assert result.status == "ok"
    assert 0.1 < result.shown <= result.certified


def test_baselines_have_no_attack() -> None:
    run = decentral_dp.run("dp_dsgd", set=TRAINING | SIGN_FLIP | {"privacy.guarantee": "certified"}, baselines=True)
    attacked = [name for name, baseline in run.baselines.items() if baseline.scenario.attack is not None]
    assert attacked == ["none"] != list(run.baselines)


# Custom attacks and rules -------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "byzantine.md"
MIMIC: dict[str, Any] = {"attack": {"agents": [1], "kind": "mine:Mimic", "agent": 2, "factor": 3.0}}
NEAREST: dict[str, Any] = {"topology.aggregation": {"kind": "mine:nearest"}}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the page's attack and rule, and return their file."""
    (code,) = re.findall(r"^```python mine.py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


@pytest.mark.usefixtures("page")
def test_a_custom_attack_replaces_the_messages_of_the_attackers() -> None:
    job: Any = decentral_dp.build("dp_dsgd", set=TRAINING | MIMIC).simulation()
    messages = np.random.default_rng(4).normal(size=(6, 3))
    arriving = job.attack(messages, 1)
    np.testing.assert_array_equal(arriving[1], 3.0 * messages[2])
    np.testing.assert_array_equal(np.delete(arriving, 1, axis=0), np.delete(messages, 1, axis=0))


@pytest.mark.usefixtures("page")
def test_a_custom_rule_aggregates_own_and_neighbours_values() -> None:
    job: Any = decentral_dp.build("dp_dsgd", set=TRAINING | NEAREST).simulation()
    weights = sp.csr_array(np.array([[0.0, 0.5, 0.25], [0.5, 0.0, 0.0], [0.25, 0.0, 0.0]]))
    values = np.array([[0.0], [3.0], [-1.0]])
    assert job.aggregation(values, values, weights)[:, 0].tolist() == [-0.5, 1.5, -0.5]


def test_the_noise_key_depends_on_a_custom_attack_and_rule(page: Path) -> None:
    code = page.read_text(encoding="utf-8")
    digests = set()
    for old, new in (("", ""), ("0.5 * (own", "0.25 * (own"), ("self.factor *", "-self.factor *")):
        page.write_text(code.replace(old, new), encoding="utf-8")
        job: Any = decentral_dp.build("dp_dsgd", set=TRAINING | MIMIC | NEAREST).simulation()
        digests.add(run_digest(job))
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"attack": {"agents": [1], "kind": "flip"}}, '"noise", "alie", "ipm" or "module:Name"'),
        ({"attack": {"agents": [1], "kind": "alie", "agent": 2}}, 'attack: agent does not apply to "alie" attack'),
        ({"attack": {"agents": [1], "kind": "mine:Mimic"}}, "attack.agent: missing"),
        ({"attack": {"agents": [1], "kind": "mine:Mimic", "agent": 9}}, "attack.kind: mine:Mimic fails: IndexError"),
        ({"attack": {"agents": [1], "kind": "mine:wrong"}}, "attack.kind: mine:wrong: wrong shape (got (6,"),
        ({"attack": {"agents": [1], "kind": "mine:LIMIT"}}, "attack: mine:LIMIT is not callable"),
        ({"topology.aggregation": {"kind": "krum"}}, '"trimmed_mean", "median" or "module:Name"'),
        ({"topology.aggregation": {"kind": "median", "trim": 2}}, "trim does not apply"),
        ({"topology.aggregation": {"kind": "mine:nearest", "n": 2}}, "topology.aggregation.n: mine:nearest"),
        ({"topology.aggregation": {"kind": "mine:wrong"}}, "topology.aggregation: mine:wrong: wrong shape (got ("),
    ],
)
def test_wrong_attacks_and_rules_are_refused(page: Path, changes: dict[str, Any], told: str) -> None:
    more = "\n\nLIMIT = 3\n\n\ndef wrong(values, *_):\n    return np.atleast_2d(values)\n"
    page.write_text(page.read_text(encoding="utf-8") + more, encoding="utf-8")
    with pytest.raises(decentral_dp.InputError, match=re.escape(told)):
        decentral_dp.run("dp_dsgd", set=TRAINING | changes)
