"""Audits of jobs: lower bounds below the certified ε, planted errors, and audits of equal data sets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.auditing.audit import LowerBound, describe_audit, plan_audit, play_game
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.audits import audit
from tests.support.commands import Command
from tests.support.published import as_published

# One release of each agent: the noisy mean.
ONE = ["algorithm.rounds=1", "topology.agents=3", 'topology.kind="ring"']
LAPLACE = [*ONE, 'privacy.mechanism="laplace"']
# Movements depend on the transcript.
RING = ["algorithm.rounds=8", "topology.agents=3", "run.average=1"]
LOUD = ["algorithm.rounds=2", "topology.agents=3", 'topology.kind="ring"', "privacy.epsilon=30.0"]


@pytest.mark.parametrize("delta", [1e-5, 1e-2])
@pytest.mark.parametrize("overrides", [ONE, LAPLACE], ids=["gaussian", "laplace"])
def test_one_release_attains_the_certified_epsilon(overrides: list[str], delta: float) -> None:
    found = audit("network_view", overrides=[*overrides, f"privacy.delta={delta}"], runs=20)
    assert found.method == "exact"
    assert 0.95 * found.certified <= found.shown <= found.certified
    assert (found.status, found.null_shown) == ("ok", 0.0)


def test_pure_epsilon_of_one_laplace_release() -> None:
    found = audit("network_view", overrides=[*LAPLACE, "privacy.delta=0.0"], runs=20)
    assert 0.95 * found.certified <= found.shown <= found.certified


def test_transcripts_show_more_than_half() -> None:
    found = audit("ring_breast_cancer", overrides=RING, runs=60)
    assert found.method == "likelihood"
    assert 0.5 * found.certified <= found.shown <= found.certified
    assert found.status == "ok"


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("bsa", ["algorithm.rounds=3"]),
        ("dp_sgda", ["algorithm.rounds=4"]),
        ("dp_bilevel", ["algorithm.rounds=2", "problem.synthetic.records=200"]),
        ("exponential_mechanism", []),
        ("minibatch_torus", ["algorithm.rounds=4"]),
        ("dp_sgd_dual", ["algorithm.rounds=4"]),
    ],
)
def test_lower_bounds_are_at_most_certified(name: str, overrides: list[str]) -> None:
    found = audit(name, overrides=overrides, runs=20)
    assert found.shown <= found.certified
    assert (found.status, found.null_shown) == ("ok", 0.0)
    if name in ("bsa", "dp_sgda", "dp_bilevel"):
        assert found.shown > 0.2 * found.certified


def test_noiseless_runs_are_always_distinguished() -> None:
    found = audit("quadratic", overrides=["algorithm.rounds=2"], runs=20)
    assert (found.method, found.shown, found.certified, found.status) == ("difference", np.inf, np.inf, "ok")
    assert found.to_dict()["shown"] == "inf"


@pytest.mark.parametrize("adversary", ["published", "agent:1"])
def test_a_large_epsilon_shows_to_all_adversaries(adversary: str) -> None:
    found = audit("network_view", overrides=LOUD, runs=60, adversary=adversary)
    assert found.method == "counting"
    assert 0.0 < found.shown <= found.certified


# Planted errors -------------------------------------------------------------------------------------------------------


def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ScheduledReleaser._add_noise

    def less(self: Any, index: int, bounded: Any, widths: Any, noise: Any) -> Any:
        return whole(self, index, bounded, widths, noise._replace(ratio=noise.ratio / 2))

    monkeypatch.setattr(ScheduledReleaser, "_add_noise", less)


@pytest.mark.parametrize(
    ("name", "overrides", "runs"),
    [("network_view", ONE, 20), ("network_view", LAPLACE, 20), ("bsa", ["algorithm.rounds=4"], 30)],
)
def test_half_the_noise_is_refuted(monkeypatch: pytest.MonkeyPatch, name: str, overrides: list[str], runs: int) -> None:
    halved(monkeypatch)
    found = audit(name, overrides=overrides, runs=runs)
    assert found.shown > found.certified
    assert found.status == "refuted"
    assert any("times as large" in s for s in found.sentences)


def test_an_uncharged_channel_is_refuted() -> None:
    """Release z with noise, and omit it from the ledger."""
    overrides = ["algorithm.rounds=1", "topology.agents=3", "run.average=1", "privacy.share.z=8.0"]
    job: Any = build(load("ring_breast_cancer", overrides))
    assert audit(job, runs=20).status == "ok"
    ledger = replace(job.ledger, channels=tuple(c for c in job.ledger.channels if c.channel != "z"))
    found = audit(replace(job, ledger=ledger, budget=account(ledger, 1e-5)), runs=20)
    assert found.shown > found.certified
    assert found.status == "refuted"


# The audit of the audit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("adversary", "overrides"), [("all_messages", ONE), ("published", LOUD)])
def test_different_data_sets_in_the_control_are_detected(adversary: str, overrides: list[str]) -> None:
    plan = plan_audit("network_view", 60, adversary, overrides=overrides)
    found = play_game(plan, null=lambda neighbours: neighbours.second)
    assert found.null_shown > 0.0
    assert found.status == "broken"
    assert found.sentences[0].startswith("Broken")


def test_an_audit_at_its_limit_reports_it() -> None:
    """If every run is distinguished, the bound is 3.3 of a certified 4: nothing could be refuted."""
    plan = plan_audit("network_view", 200, "published", overrides=ONE)
    neighbours = SimpleNamespace(split="train", victim=0, copies=False)

    def first(shown: float, certified: float) -> str:
        bound = LowerBound("counting", shown, 0.0, 0.95, 200, None)
        return describe_audit(plan, neighbours, bound, "ok", certified, None)[0]

    assert first(3.28, 4.0).startswith("Not refuted, and it could not be")
    for shown, certified in ((2.0, 4.0), (3.28, 3.0)):
        assert first(shown, certified).startswith("Not refuted: the lower bound")


# Results, files and the command ---------------------------------------------------------------------------------------


def test_a_result_is_read_back(tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    found = audit("quadratic", overrides=["algorithm.rounds=2"], runs=20, out=out)
    assert json.loads(out.read_text()) == found.to_dict()
    with pytest.raises(InputError, match="files are never overwritten"):
        audit("quadratic", overrides=["algorithm.rounds=2"], runs=20, out=out)


def test_the_command_audits_a_run(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = tmp_path / "run"
    decentral_dp.run(load("network_view", ONE), out=run)
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    audited = command("audit", run, "--runs", 20)
    assert audited.code == 0
    assert ("certified ε" in audited.out, "claimed" in audited.out) == (True, False)
    written = ("audit.json", "result.json", "report.html")
    kept = {name: content for name, content in before.items() if name not in written}
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file() and p.name not in written} == kept
    content = json.loads((run / "audit.json").read_text())
    assert content["method"] == "exact"
    result = json.loads((run / "result.json").read_text())
    assert result.pop("audit") == content
    # The digest is of the whole text, of which the audit is a part.
    assert {**result, "digest": ""} == {**json.loads(before["result.json"]), "digest": ""}
    # A lower bound is rounded down: certified are 4.
    assert "≥ 3.99, with confidence 100 %" in (run / "report.html").read_text()
    halved(monkeypatch)
    sets = [part for key in ONE for part in ("--set", key)]
    assert command("audit", "network_view", "--runs", 20, *sets).code == 1


def test_an_attack_refutes_a_claim_of_published_noise() -> None:
    """The published noise of double_spider hides nothing of its claim."""
    changes = {"privacy.guarantee": "as_published", "algorithm.rounds": 5}
    scenario = as_published(decentral_dp.load("double_spider", set=changes).model_dump(exclude_unset=True))
    found = audit(scenario, runs=20)
    assert (found.claimed, found.certified, found.status) == (4.0, np.inf, "ok")
    assert found.shown > 10.0 * found.claimed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quadratic", "--out", "missing/audit.json"], "no folder"),
        (["."], "result.json"),
    ],
)
def test_wrong_input_is_refused(command: Command, arguments: list[object], words: str) -> None:
    code, _, err = command("audit", *arguments)
    assert code == 2
    assert words in err
