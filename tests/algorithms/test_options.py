"""Fields of algorithms as keys of the scenario: one declaration, from which everything else follows."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from typing import Any, Literal

import jsonschema
import pytest
from annotated_types import Ge

from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS, DpDsgd
from decentral_dp.algorithms.options import constraint, internal, option, options_of
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.schema import Scenario, table_of
from decentral_dp.files.package import shipped_folder

KEYS = [(name, o) for name, entry in ALGORITHMS.items() for o in entry.keys]


@pytest.mark.parametrize(("kind", "given"), KEYS, ids=[f"{name}-{o.key}" for name, o in KEYS])
def test_every_key_is_described_and_its_example_is_valid(kind: str, given: Any) -> None:
    assert given.description
    example = tomllib.loads(f"value = {given.example}")["value"]
    table_of(ALGORITHMS[kind]).model_validate({"kind": kind, "rounds": 1, given.key: example})


def test_shipped_scenarios_fit_the_schema() -> None:
    check = jsonschema.Draft202012Validator(Scenario.model_json_schema())
    for path in sorted(shipped_folder("scenarios").glob("*.toml")):
        content = json.loads(json.dumps(tomllib.loads(path.read_text(encoding="utf-8"))))
        assert not list(check.iter_errors(content)), path.name


@dataclass(frozen=True)
class Example:
    """Declare one field of every type."""

    x: StepSize
    count: int = option("how many", unit="rounds", at_least=1)
    share: float | None = option("a share", default=None, above=0, at_most=1)
    way: Literal["up", "down"] = "up"
    settled: dict[str, float] = internal(default_factory=dict)
    start: dict[str, float] = field(default_factory=dict)


def test_fields_are_keys() -> None:
    x, count, share, way = options_of(Example)
    assert (x.key, x.required, x.example) == ("x", True, "{ scale = 0.1, decay = 0.5 }")
    assert (count.required, count.unit, count.bounds) == (True, "rounds", (Ge(1),))
    assert (share.required, share.default, share.type) == (False, None, float)
    assert constraint(share) == "a number above 0 and of at most 1"
    assert constraint(way) == '"up" or "down"'


def test_a_field_of_another_type_is_refused() -> None:
    @dataclass(frozen=True)
    class Wrong:
        weights: dict[str, float]

    with pytest.raises(InputError, match="unsupported type"):
        options_of(Wrong)


def test_a_step_size_may_have_a_default() -> None:
    @dataclass(frozen=True)
    class Mixing:
        weight: StepSize = option("share", default=StepSize(1.0, 0.2))

    (weight,) = options_of(Mixing)
    assert (weight.required, weight.default) == (False, StepSize(1.0, 0.2))

    @dataclass(frozen=True)
    class Wrong:
        weight: StepSize = option("share", default=0.5)

    with pytest.raises(InputError, match=r"default is 0.5, expected a StepSize. Fix: write StepSize\(0.5\)"):
        options_of(Wrong)


def test_a_number_is_a_constant_learning_rate() -> None:
    assert DpDsgd(learning_rate=1) == DpDsgd(learning_rate=StepSize(1.0))


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": "0.5"},
        {"learning_rate": -1},
        {"learning_rate": True},
        {"learning_rate": {"scale": 0.5}},
        {"momentum": "0.9"},
        {"momentum": 1.0},
        {"local_steps": 2.5},
    ],
    ids=str,
)
def test_values_of_another_type_are_refused_at_once(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InputError, match=rf"^DpDsgd\.{name}: got "):
        DpDsgd(**{"learning_rate": 0.5} | options)
