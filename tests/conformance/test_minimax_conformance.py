"""Test combinations of minimax components: algorithms, problems, guarantees, engines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.problems import SOLVED
from decentral_dp.simulation.jobs.build import build_job as build
from papers.published import FORMS
from tests.support.published import as_published

# A [problem] table for every registered minimax problem: a new one has to be entered here.
TABLES: dict[str, dict[str, Any]] = {
    "auc_maximisation": {"data": "breast_cancer", "positive_share": 0.6},
    "dro": {"data": "wine", "divergence": "chi2", "strength": 1.0, "cap": 3.0},
    "group_dro": {"data": "wine", "strength": 1.0, "cap": 3.0},
    "kl_dro": {"data": "wine", "strength": 1.0, "radius": 0.5, "cap": 3.0},
    "mspbe": {"data": "cartpole", "discount": 0.9, "scale": "none", "normalise": "none", "ridge": 0.1},
    "wgan": {"data": "digits", "generator": [8]},
}
# Errors of unsuitable pairs.
UNFIT = r"^algorithm\.kind: "
STEP = {"scale": 0.1, "decay": 0.2}
# Values of an algorithm's keys.
KEYS: dict[str, Any] = {"x": STEP, "y": STEP, "averaging": STEP, "smoothness": 2.0, "period": 2, "inner": 2}
# Programs that clip both gradients as one vector, to clip.x.
ONE_CLIP = [name for name, entry in ALGORITHMS.items() if getattr(entry.algorithm, "queries", ()) == ("joint",)]
PROGRAMS = sorted(name for name, entry in ALGORITHMS.items() if entry.solves == "minimax")


def guarantee_of(algorithm: str) -> str:
    """Return "certified", or the guarantee of its example."""
    return ALGORITHMS[algorithm].example.get("guarantee", "certified").strip('"')


def content(algorithm: str, problem: str, **changes: Any) -> dict[str, Any]:
    entry = ALGORITHMS[algorithm]
    # Required keys, and those of its example.
    required = {option.key for option in entry.keys if option.required}
    chosen = {key: KEYS[key] for key in KEYS if key in required or key in entry.example}
    out: dict[str, Any] = {
        "seed": 3,
        "problem": {"kind": problem, "scale": "public_ranges", "normalise": "l2", **TABLES[problem]},
        "topology": {"kind": "star" if entry.trusts_coordinator else "ring", "agents": 4},
        "algorithm": {"kind": algorithm, "rounds": 3, **chosen},
        "privacy": {"epsilon": 4.0, "delta": 1e-5, "clip": {"x": 1.0} | ({} if algorithm in ONE_CLIP else {"y": 1.0})},
        "run": {"evaluate_every": 3},
    }
    if not entry.trusts_coordinator:
        out["privacy"]["mechanism"] = "gaussian"
    optional = {"rate": 0.3, "y": STEP, "inner": 2, "smoothness": 2.0}
    settled = {o.key for o in entry.keys if not o.required}
    out["algorithm"] |= {key: value for key, value in optional.items() if key in settled}
    for place, value in changes.items():
        table, _, key = place.partition("__")
        out[table][key] = value
    return as_published(out)


def finish(made: Mapping[str, Any]) -> decentral_dp.Run:
    """Run it, and check what holds for every run."""
    run = decentral_dp.run(load(made))
    assert run.result["status"] == "ok", run.result["reason"]
    assert run.simulation().covers(run.records)
    assert set(run.released) == {"x", "y"}
    job = run.simulation()
    for name, size in (("x", job.problem.p), ("y", job.problem.q)):
        assert run.released[name].shape == (1 if job.plans_ahead else job.n_agents, size)
        assert np.isfinite(run.released[name]).all()
    privacy, guarantee = run.result["privacy"], run.scenario.privacy.guarantee
    epsilon = privacy["epsilon_max"]
    if guarantee == "certified":
        assert 0.9 * 4.0 <= epsilon <= 4.0
    if guarantee == "none":
        assert np.isinf(epsilon)
    assert (privacy["claimed"] is not None) == (guarantee == "as_published")
    # Nobody knows the best critic of a WGAN.
    wanted = {"estimate"} if run.scenario.problem.kind == "wgan" else {"primal", "gradient_norm"}
    assert wanted <= set(run.metrics["name"])
    assert any(name.startswith("test_") for name in run.metrics["name"])
    return run


def test_every_problem_has_its_entry() -> None:
    assert set(TABLES) == set(SOLVED["minimax"])


@pytest.mark.parametrize("problem", sorted(SOLVED["minimax"]))
@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_every_program_on_every_problem(algorithm: str, problem: str) -> None:
    guarantee = guarantee_of(algorithm)
    refusal = ""
    try:
        finish(content(algorithm, problem, privacy__guarantee=guarantee))
    except InputError as said:
        refusal = str(said)
    assert not refusal or re.search(UNFIT, refusal), refusal


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_without_noise_every_program_runs_and_as_published_where_it_was(algorithm: str) -> None:
    problem = _first_fit(algorithm)
    finish(content(algorithm, problem, privacy__guarantee="none"))
    published = content(algorithm, problem, privacy__guarantee="as_published")
    if algorithm in FORMS:
        finish(published)
    else:
        with pytest.raises(InputError, match=r"privacy\.(guarantee|mechanism)"):
            finish(published)


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_agents_in_blocks_answer_the_same(algorithm: str) -> None:
    problem = _first_fit(algorithm)
    guarantee = guarantee_of(algorithm)
    one, many = (
        finish(content(algorithm, problem, privacy__guarantee=guarantee, run__blocks=blocks)) for blocks in (1, 3)
    )
    for name in ("x", "y"):
        np.testing.assert_allclose(one.released[name], many.released[name], rtol=1e-9, atol=1e-12)
    assert one.records.same_releases(many.records)


def _first_fit(algorithm: str) -> str:
    """The first problem that the program fits, plain classification before others."""
    for problem in sorted(SOLVED["minimax"], key=lambda p: (p != "auc_maximisation", p != "dro", p)):
        guarantee = guarantee_of(algorithm)
        try:
            build(load(content(algorithm, problem, privacy__guarantee=guarantee)))
        except InputError:
            continue
        return problem
    raise AssertionError(f"{algorithm} fits no problem")


def test_a_bilevel_algorithm_refuses_a_minimax_problem_and_the_reverse() -> None:
    made = content("dp_sgda", "auc_maximisation")
    with pytest.raises(InputError, match=r"problem\.kind: pp_ift solves bilevel problems only"):
        build(load({**made, "algorithm": {"kind": "pp_ift", "rounds": 2}}))
    made["problem"] = {"kind": "logistic_regularisation", "data": "breast_cancer"}
    with pytest.raises(InputError, match=r"problem\.kind: dp_sgda solves minimax problems only"):
        build(load(made))
