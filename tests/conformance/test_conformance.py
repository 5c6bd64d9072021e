"""Test combinations of registered components: algorithms, problems, guarantees, mechanisms, topologies, scenarios."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.loading import shipped_names
from decentral_dp.files.package import shipped_folder
from decentral_dp.problems import BILEVEL as PROBLEMS
from decentral_dp.topology import GENERATORS
from papers.published import FORMS
from tests.conformance.checks import checked
from tests.golden.cases import is_planned_only
from tests.support.algorithm_keys import KEYS
from tests.support.published import as_published

Make = Callable[..., dict[str, Any]]

# A [problem] table for every registered problem: a new one has to be entered here.
TABLES: dict[str, dict[str, Any]] = {
    "biased_regularisation": {"data": "wine", "ridge": 0.5},
    "classification": {"data": "wine", "validation": None, "l2": 0.1},
    "hyper_cleaning": {"data": "wine", "groups": 2, "corrupt": 0.4},
    "regression": {"data": "breast_cancer", "validation": None, "loss": "huber"},
    "ridge_hyperparameter": {"data": "breast_cancer"},
    "logistic_hyperparameter": {"data": "breast_cancer", "intercept": True},
    "logistic_regularisation": {"data": "breast_cancer", "intercept": True},
    "mean_estimation": {"data": "wine", "ridge": 0.5},
    "mean_lower_bound": {"data": "wine", "ridge": 0.5},
    "meta_learning": {"data": "wine", "ways": 2, "width": 2},
    "quadratic": {"data": "breast_cancer", "ridge": 0.5},
    "ridge_regularisation": {"data": "breast_cancer"},
    "softmax_hyperparameter": {"data": "wine", "intercept": True},
}
# Problems whose labels are numbers.
UNCLASSIFIED = {
    "quadratic",
    "regression",
    "mean_estimation",
    "mean_lower_bound",
    "ridge_hyperparameter",
    "ridge_regularisation",
}
SCALES = {c: {"scale": 1.0, "decay": 0.1} for c in ("x", "y", "z")}
CLIPS = {"x": 1.0, "y": 1.0, "z": 1.0}
# Guarantee and protocol → the [privacy] table that fits it.
GUARANTEES: dict[tuple[str, str], dict[str, Any]] = {
    ("certified", "released"): {"clip": CLIPS, "epsilon": 4.0},
    ("certified", "private"): {"clip": CLIPS, **SCALES},
    ("as_published", "released"): {"clip": {}, **SCALES},
    ("none", "released"): {"clip": {}},
    ("none", "private"): {"clip": {}},
}
SAMPLINGS: tuple[Any, ...] = (
    "full",
    {"kind": "streaming", "batch_size": 2, "warm_start": 3},
    {"kind": "fixed_batch", "batch_size": 4},
)
TRUSTED = sorted(name for name, entry in ALGORITHMS.items() if entry.trusts_coordinator and entry.solves == "bilevel")
# Algorithms without a trusted party, except adassp, which is for linear regression only.
UNTRUSTED = sorted(
    name for name, e in ALGORITHMS.items() if not e.trusts_coordinator and e.solves == "bilevel" and name != "adassp"
)


def finish(content: Any, *overrides: str) -> decentral_dp.Run:
    """Run two rounds, or the only one, and check what holds for every run."""
    rounds = min(2, load(content, overrides).algorithm.rounds)
    run = decentral_dp.run(load(content, [f"algorithm.rounds={rounds}", "run.evaluate_every=2", *overrides]))
    return checked(run, rounds)


def content_of(scenario: Make, algorithm: str, problem: str, guarantee: tuple[str, str], mechanism: str) -> Any:
    content = scenario(problem={"kind": problem, "scale": "public_ranges", "normalise": "l1", **TABLES[problem]})
    chosen = {o.key: KEYS[o.key] for o in ALGORITHMS[algorithm].keys if o.required}
    content["algorithm"] = {"kind": algorithm, "rounds": 2, **chosen}
    if guarantee[1] == "private":
        content["algorithm"]["protocol"] = "private"
    content["privacy"] = {"guarantee": guarantee[0], "mechanism": mechanism, **GUARANTEES[guarantee]}
    if PROBLEMS[problem].one_level and "centring" in (o.key for o in ALGORITHMS[algorithm].keys):
        # A clip of x is of the mean of features.
        content["algorithm"]["centring"] = True
    elif content["privacy"].get("clip") and "learning_rate" in (o.key for o in ALGORITHMS[algorithm].keys):
        content["privacy"]["clip"] = 1.0
    return as_published(content)


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
@pytest.mark.parametrize("algorithm", UNTRUSTED)
def test_every_algorithm_on_every_problem(scenario: Make, algorithm: str, problem: str) -> None:
    content = content_of(scenario, algorithm, problem, ("certified", "released"), "gaussian")
    try:
        run = finish(content)
    except InputError as refusal:
        # Full matrices of a large problem: refused with their size, before they are allocated. A lower level that
        # reads no record: a single-level algorithm has nothing to make noise for.
        nothing = problem == "mean_lower_bound" and "reads a record" in str(refusal)
        tuned = PROBLEMS[problem].one_level and "requires a bilevel problem" in str(refusal)
        apart = algorithm == "f2sa" and "at two points of one record" in str(refusal)
        assert not (tuned and algorithm in ("dp_dsgd", "ldp_single_level"))
        if "bytes" not in str(refusal) and not nothing and not tuned and not apart:
            raise
        return
    if problem not in UNCLASSIFIED:
        assert "test_accuracy" in set(run.metrics["name"])


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("guarantee", GUARANTEES, ids="-".join)
@pytest.mark.parametrize("algorithm", UNTRUSTED)
def test_every_algorithm_under_every_guarantee(
    scenario: Make, algorithm: str, guarantee: tuple[str, str], mechanism: str
) -> None:
    # A problem with records in all that both variables move along, so that no channel is free for want of them.
    content = content_of(scenario, algorithm, "hyper_cleaning", guarantee, mechanism)
    refused = None
    if guarantee[0] == "as_published" and mechanism == "gaussian":
        refused = "Laplace noise"
    elif guarantee[0] == "as_published" and algorithm not in FORMS:
        refused = "privacy.guarantee"
    elif guarantee[1] == "private" and "protocol" not in {option.key for option in ALGORITHMS[algorithm].keys}:
        refused = "algorithm.protocol"
    if refused is None:
        finish(content)
    else:
        with pytest.raises(InputError, match=refused):
            finish(content)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["full", "streaming", "fixed_batch"])
@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_every_problem_on_every_stream(scenario: Make, problem: str, sampling: Any, mechanism: str) -> None:
    content = scenario(
        problem={"kind": problem, "sampling": sampling, **TABLES[problem]}, privacy={"mechanism": mechanism}
    )
    if PROBLEMS[problem].one_level:
        centring = sampling != SAMPLINGS[1]
        content["algorithm"] = {
            "kind": "dp_dsgd",
            "rounds": 2,
            "learning_rate": KEYS["y"],
            "momentum": 0.5,
            "centring": centring,
        }
        if not centring:
            # Records that come in a public order have no mean that is released.
            content["privacy"]["clip"] = 1.0
    finish(content)


def test_every_problem_and_topology_has_its_entry() -> None:
    assert set(TABLES) == set(PROBLEMS)


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_every_topology(scenario: Make, kind: str) -> None:
    agents, parameters = GENERATORS[kind].example
    content = scenario(topology={"kind": kind, "agents": agents, **parameters})
    if kind == "directed_exponential":
        # Weights that are the same both ways are refused there.
        content["algorithm"] = {"kind": "push_sum", "rounds": 2, "learning_rate": KEYS["y"]}
        content["privacy"]["clip"] = 1.0
    run = finish(content)
    assert run.result["topology"]["kind"] == kind
    assert 0.0 <= run.result["topology"]["rho"] <= 1.0
    assert (run.result["topology"]["rho"] < 1.0) == GENERATORS[kind].is_connected


@pytest.mark.parametrize("name", shipped_names("scenario"))
def test_every_shipped_scenario_says_what_it_is(name: str) -> None:
    """That it can be planned, and that a run of it is as every run, is tested where it is run: in tests/golden."""
    content = tomllib.loads((shipped_folder("scenarios") / f"{name}.toml").read_text(encoding="utf-8"))
    assert content["title"]
    assert content["description"].strip()
    assert load(name).run.device == content.get("run", {}).get("device", "cpu")


@pytest.mark.parametrize("name", [name for name in shipped_names("scenario") if is_planned_only(name)])
def test_every_scenario_of_full_size_runs_on_digits(name: str) -> None:
    # Two rounds of a deep network take minutes on a processor, and say no more than those of a shallow one.
    deep = load(name).problem.model.kind == "resnet"
    small = ("problem.model={kind='resnet', width=4, depth=1}",) if deep else ()
    finish(name, 'problem.data="digits"', 'run.engine="local"', 'run.device="cpu"', *small)


# Errors of a coordinator's algorithm for an unsuitable problem.
UNFIT = "no analytic constants|tunes one strength|at two points of one record|bytes|convex for every|too many points"
# Without constants there are no defaults either.
UNFIT += "|a default requires a problem with analytic constants|requires a bilevel problem"


def trusted_content(scenario: Make, algorithm: str, problem: str, **privacy: Any) -> dict[str, Any]:
    content = scenario(problem={"kind": problem, "scale": "public_ranges", "normalise": "l2", **TABLES[problem]})
    single = ALGORITHMS[algorithm].example.get("rounds") == "1"
    box = {"low": -1.5, "high": 0.0}
    keys = {o.key: KEYS[o.key] for o in ALGORITHMS[algorithm].keys if o.required and o.key != "domain"}
    content["algorithm"] = {"kind": algorithm, "rounds": 1 if single else 2, **keys, "domain": box}
    content["topology"] = {"kind": "star", "agents": 4}
    clips = {"clip": CLIPS} if keys else {}
    content["privacy"] = {"guarantee": "certified", "epsilon": 4.0, "delta": 1e-5, **clips, **privacy}
    content["run"] = {"evaluate_every": 1}
    return content


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
@pytest.mark.parametrize("algorithm", TRUSTED)
def test_every_coordinator_on_every_problem(scenario: Make, algorithm: str, problem: str) -> None:
    """It runs with only a budget, a domain and the required keys, or is refused with a reason."""
    content = trusted_content(scenario, algorithm, problem)
    content["privacy"]["guarantee"] = ALGORITHMS[algorithm].example.get("guarantee", "certified").strip('"')
    refusal = ""
    try:
        finish(content)
    except InputError as said:
        refusal = str(said)
    assert not refusal or re.search(UNFIT, refusal), refusal
