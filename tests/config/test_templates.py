"""Templates of the tables [algorithm] and [privacy] are accepted by `plan`."""

from __future__ import annotations

from typing import Any

import pytest

from decentral_dp.config.loading import assign, find, read_toml
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build


def test_missing_tables_are_named_at_once() -> None:
    with pytest.raises(InputError, match=r"^problem, topology: missing"):
        load({"algorithm": {"kind": "bsa", "rounds": 2}})


@pytest.mark.parametrize("key", ["problem.kind", "problem", "algorithm.kind", "topology.kind", "problem.data"])
@pytest.mark.parametrize("value", [["a"], {}, [[]], 3, None], ids=str)
def test_a_kind_that_is_no_text_is_refused(key: str, value: Any) -> None:
    content = read_toml(find("ring_breast_cancer"))
    with pytest.raises(InputError):
        build(load(assign(content, key.split("."), value)))
