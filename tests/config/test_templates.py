"""Templates of the tables [algorithm] and [privacy] are accepted by `plan`."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import assign, find, read_toml
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.templates import algorithm_tables
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build


@pytest.mark.parametrize("kind", [kind for kind, entry in ALGORITHMS.items() if not entry.trusts_coordinator])
def test_a_template_is_accepted(kind: str) -> None:
    solves_minimax = ALGORITHMS[kind].solves == "minimax"
    problem: dict[str, Any] = {"kind": "logistic_hyperparameter", "data": "synthetic_classification"}
    problem |= {"kind": "auc_maximisation", "positive_share": 0.6} if solves_minimax else {}
    tables = tomllib.loads(algorithm_tables(ALGORITHMS[kind]))
    tables["algorithm"]["rounds"] = 2
    whole = {"problem": problem, "topology": {"kind": "ring", "agents": 3}} | tables
    assert max(decentral_dp.plan(whole).epsilon) <= 4.0 + 1e-9


def test_missing_tables_are_named_at_once() -> None:
    with pytest.raises(InputError, match=r"^problem, topology: missing"):
        load({"algorithm": {"kind": "bsa", "rounds": 2}})


@pytest.mark.parametrize("key", ["problem.kind", "problem", "algorithm.kind", "topology.kind", "problem.data"])
@pytest.mark.parametrize("value", [["a"], {}, [[]], 3, None], ids=str)
def test_a_kind_that_is_no_text_is_refused(key: str, value: Any) -> None:
    content = read_toml(find("ring_breast_cancer"))
    with pytest.raises(InputError):
        build(load(assign(content, key.split("."), value)))
