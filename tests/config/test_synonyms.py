"""Names of other libraries are refused with our name."""

from __future__ import annotations

from typing import Any

import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config import loading
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.topology import GENERATORS


@pytest.mark.parametrize(
    ("changes", "ours"),
    [
        ({"algorithm.lr": 0.1}, "algorithm.y"),
        ({"privacy.max_grad_norm": 1.0}, "privacy.clip"),
        ({"privacy.target_epsilon": 1.0}, "privacy.epsilon"),
        ({"algorithm.epochs": 3}, "algorithm.rounds"),
        ({"problem.partition": {"kind": "column", "column": "site"}}, "problem.partition.name"),
        ({"problem.class_weight": "balanced"}, "no class weights"),
        ({"algorithm.kind": "FedAvg"}, "'federated'"),
        ({"algorithm.kind": "dp-sgd"}, "'central'"),
    ],
    ids=str,
)
def test_a_name_of_another_library_is_refused_with_ours(changes: dict[str, Any], ours: str) -> None:
    with pytest.raises(InputError, match=ours):
        decentral_dp.plan("classification", set=changes)


def test_synonyms_name_what_exists_and_are_no_names_of_ours() -> None:
    assert set(loading.ALGORITHM_KINDS.values()) <= set(ALGORITHMS)
    assert not set(loading.ALGORITHM_KINDS) & set(ALGORITHMS)
    assert set(loading.GRAPH_KINDS.values()) <= set(GENERATORS)
    assert not set(loading.GRAPH_KINDS) & set(GENERATORS)
    known = set(loading._key_paths(Scenario))
    assert "privacy.clip" in known
    assert not (set(loading.OTHER_KEYS) | set(loading.KEYS_NOT_OFFERED)) & {path for path in known if "." not in path}
