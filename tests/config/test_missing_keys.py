"""A scenario that lacks several keys is refused once, with all of them, and what is proposed is accepted."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import assign, find, load, parse_change, read_toml, shipped_names
from decentral_dp.config.missing_keys import missing_keys
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build

LOGISTIC = {"kind": "logistic_hyperparameter", "data": "synthetic_classification"}
STEPS = {key: {"scale": 0.1} for key in "xyz"}
RING = {"kind": "ring", "agents": 3}
REGULAR = {"kind": "random_regular", "agents": 4}


def refusal(content: dict[str, Any], **objects: Any) -> str:
    with pytest.raises(InputError) as refused:
        build(load(content), **objects)
    return str(refused.value)


def mended(content: dict[str, Any]) -> dict[str, Any]:
    for key, value in missing_keys(content).items():
        content = assign(content, *parse_change(f"{key}={value or 2}"))
    return content


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (
            {},
            "problem.kind problem.data problem.scale topology.kind topology.agents algorithm.kind algorithm.rounds "
            "privacy.mechanism privacy.epsilon",
        ),
        ({"problem": LOGISTIC, "topology": RING}, "algorithm.kind algorithm.rounds"),
        (
            {
                "problem": LOGISTIC,
                "topology": {},
                "algorithm": {"kind": "ldp_dsbo", **STEPS},
                "privacy": {"epsilon": 1.0},
            },
            "topology.kind topology.agents algorithm.rounds privacy.clip.y privacy.clip.z",
        ),
        # The last layer: found while the run is planned.
        (
            {
                "problem": LOGISTIC,
                "topology": RING,
                "algorithm": {"kind": "ma_dsbo", "rounds": 2},
            },
            "algorithm.x algorithm.y algorithm.z algorithm.inner algorithm.inverse privacy.epsilon privacy.clip.y "
            "privacy.clip.z",
        ),
        (
            {
                "problem": LOGISTIC,
                "topology": REGULAR,
                "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": {"scale": 0.1}, "y": {"scale": 0.1}},
                "privacy": {"guarantee": "none"},
            },
            "topology.degree algorithm.z",
        ),
    ],
)
def test_all_missing_keys_are_named_at_once(content: dict[str, Any], keys: str) -> None:
    assert list(missing_keys(content)) == keys.split()
    said = refusal(content)
    assert said.startswith(f"scenario: {len(keys.split())} keys are missing; ")
    assert all(f" {key}" in said for key in keys.split())
    assert "\n" not in said


@pytest.mark.parametrize("content", [{}, {"topology": RING}, {"algorithm": {"kind": "dp_dsgd", "rounds": 2}}])
def test_who_names_no_problem_is_told_to_train(content: dict[str, Any]) -> None:
    whole = mended(content)
    assert whole["problem"]["kind"] == "classification"
    assert max(decentral_dp.plan(whole).epsilon) <= 4.0
    assert 'algorithm.kind = "dp_dsgd"' in refusal({})


def test_one_missing_key_is_refused_where_it_is_read() -> None:
    content = {"problem": LOGISTIC, "topology": RING, "privacy": {"guarantee": "none"}}
    content["algorithm"] = {"kind": "ldp_dsbo", "rounds": 2, "x": {"scale": 0.1}, "y": {"scale": 0.1}}
    assert refusal(content).startswith("algorithm.z: missing. ldp_dsbo needs it")
    assert refusal({**content, "algorithm": {**STEPS, "kind": "ldp_dsbo"}}).startswith("algorithm.rounds: missing")


def test_another_mistake_comes_first() -> None:
    assert refusal({"problem": {"knd": "quadratic"}}).startswith("problem.knd: unknown key")
    assert refusal({"problem": 3}).startswith("problem: got 3")
    assert refusal({"problem": {**LOGISTIC, "test": 2.0}}).startswith("problem.test: got 2.0")


def test_what_is_handed_over_needs_no_keys() -> None:
    content = {
        "problem": LOGISTIC,
        "topology": {"kind": "random_regular", "agents": 3},
        "privacy": {"guarantee": "none"},
    }
    content["algorithm"] = {"kind": "ldp_dsbo", "rounds": 2}
    said = refusal(content, topology=nx.cycle_graph(3))
    assert said.startswith("scenario: 3 keys are missing; ")
    assert "degree" not in said


@pytest.mark.parametrize("kind", [kind for kind, entry in ALGORITHMS.items() if not entry.trusts_coordinator])
def test_what_is_proposed_is_accepted(kind: str) -> None:
    minimax = {**LOGISTIC, "kind": "auc_maximisation", "positive_share": 0.6}
    solves_minimax = ALGORITHMS[kind].solves == "minimax"
    bare = {
        "problem": minimax if solves_minimax else LOGISTIC,
        "algorithm": {"kind": kind, "rounds": 2},
        "topology": RING,
    }
    # Minimax problems clip in l2, and Laplace noise, which is the default, wants l1.
    bare |= {"privacy": {"mechanism": "gaussian"}} if solves_minimax else {}
    assert missing_keys(bare)
    whole = mended(bare)
    assert missing_keys(whole) == {}
    assert max(decentral_dp.plan(whole).epsilon) <= 4.0 + 1e-9


def test_no_shipped_scenario_lacks_a_key() -> None:
    assert {name: missing_keys(read_toml(find(name))) for name in shipped_names("scenario")} == {
        n: {} for n in shipped_names("scenario")
    }


@pytest.mark.parametrize("missing", ["privacy.clip", "privacy.epsilon", "algorithm.y"])
@pytest.mark.parametrize("key", ["problem.kind", "problem", "algorithm.kind", "topology.kind", "problem.data"])
@pytest.mark.parametrize("value", [["a"], {}, [[]], 3, None], ids=str)
def test_a_kind_that_is_no_text_is_refused_where_keys_are_missing(key: str, value: Any, missing: str) -> None:
    content = read_toml(find("ring_breast_cancer"))
    table, _, name = missing.partition(".")
    del content[table][name]
    with pytest.raises(InputError):
        build(load(assign(content, key.split("."), value)))
