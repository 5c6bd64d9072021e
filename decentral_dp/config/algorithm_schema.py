"""The [algorithm] table of a scenario: keys of every algorithm, and those that the algorithms declare.

From the fields of algorithms to the keys of the [algorithm] table: types and bounds for pydantic, descriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, Field, create_model, model_validator

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import Bounds, Option
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.files.tables import (
    LARGEST_COUNT,
    Channel,
    Count,
    Decay,
    Finite,
    NonNegative,
    Positive,
    Table,
    case_of,
    optional,
    require_keys,
)

# Type of a field → the table that it is in a scenario: a step size, a domain.
Tables = Mapping[Any, type]


def registered_fields(tables: Tables) -> dict[str, tuple[Any, Any]]:
    """Every key of every registered algorithm, all of them optional: which are read depends on the kind.

    Raises:
        TypeError: where two algorithms declare one key with different types or bounds.
    """
    takers: dict[str, list[tuple[Entry, Option]]] = {}
    for entry in ALGORITHMS.values():
        for option in entry.keys:
            takers.setdefault(option.key, []).append((entry, option))
    return {key: _merged(key, found, tables) for key, found in takers.items()}


def own_fields(options: Iterable[Option], tables: Tables) -> dict[str, tuple[Any, Any]]:
    """The keys of one algorithm, all of them optional: what is missing is refused with an example."""
    return {o.key: (_annotation(o, tables) | None, Field(None, description=_phrase(o))) for o in options}


def _merged(key: str, found: list[tuple[Entry, Option]], tables: Tables) -> tuple[Any, Any]:
    kinds = {(o.type, o.bounds) for _, o in found}
    if len(kinds) > 1:
        raise TypeError(f"{', '.join(entry.kind for entry, _ in found)} declare {key} with different types or bounds")
    by_phrase: dict[str, list[str]] = {}
    for entry, option in found:
        by_phrase.setdefault(_phrase(option), []).append(entry.kind)
    description = "; ".join(f"{', '.join(names)}: {phrase}" for phrase, names in by_phrase.items())
    return _annotation(found[0][1], tables) | None, Field(None, description=description)


def _phrase(option: Option) -> str:
    """The description with the unit and the default."""
    text = option.description or option.key
    text += f" [{option.unit}]" if option.unit else ""
    return text if option.default is None else f"{text} (default {option.default})"


def _annotation(option: Option, tables: Tables) -> Any:
    """The type that pydantic checks, with the bounds."""
    if get_origin(option.type) is tuple:
        inner = get_args(option.type)[0]
        return list[_number(inner, option.bounds)]  # type: ignore[misc] # pydantic reads it when it runs
    if option.type in tables:
        return tables[option.type]
    return option.type if get_origin(option.type) is Literal else _number(option.type, option.bounds)


def _number(kind: Any, b: Bounds) -> Any:
    limits = {"gt": b.above, "ge": b.at_least, "lt": b.below, "le": b.at_most}
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    if kind is int and not {"lt", "le"} & given.keys():
        given["le"] = LARGEST_COUNT
    if kind is float and not ({"gt", "ge"} & given.keys() and {"lt", "le"} & given.keys()):
        given["allow_inf_nan"] = False
    return Annotated[kind, Field(**given)] if given else kind


class Step(Table):
    """Step size λ_t = scale/(t+1)^decay."""

    scale: NonNegative = Field(description="λ_0, the first step.")
    decay: Decay = Field(default=0.0, description="Exponent of the decay in rounds; 0 keeps the step constant.")


class DomainTable(Table):
    """Where x may be, for algorithms of a trusted coordinator: a box, a ball around 0, or the simplex."""

    kind: Literal["box", "ball", "simplex"] = Field(
        description='"box" (low, high) in every coordinate, "ball" (radius) around 0 in l2, or "simplex".'
    )
    low: Finite | None = optional("Of box: lower end of every coordinate.")
    high: Finite | None = optional("Of box: upper end of every coordinate.")
    radius: Positive | None = optional("Of ball: radius in l2.")

    @model_validator(mode="after")
    def _needs(self) -> DomainTable:
        needed = {"box": ("low", "high"), "ball": ("radius",)}.get(self.kind, ())
        require_keys(self, "", needed, needed, ("low", "high", "radius"))
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"a box from {self.low:g} to {self.high:g} has no interior; give low < high")
        return self


class AlgorithmTable(Table):
    """Which algorithm, for how many rounds, from which constant start; and the algorithm's own keys.

    Those are the fields of its dataclass (`decentral-dp show KIND` describes them); others are refused.
    """

    kind: Annotated[
        str,
        Field(description="a registered algorithm, one of an installed package by entry point, or file.py:Name"),
    ]
    rounds: Annotated[Count, Field(description="how many rounds are run [rounds]")]
    init: dict[Channel, Finite] = Field(default={}, description="variable → the constant where it starts; 0 by default")
    protocol: Annotated[
        Literal["released", "private"],
        Field(
            description='"released": everything is computed at the own released values; "private", of ldp_dsbo: its '
            "state is kept without noise"
        ),
    ] = "released"
    sampler: Annotated[
        str | None,
        Field(description='of minimax algorithms that sample: how; "poisson", or it is refused'),
    ] = None

    def own_keys(self) -> dict[str, Any]:
        """What is given of the algorithm's own keys."""
        values = {k: getattr(self, k) for k in type(self).model_fields} | (self.model_extra or {})
        return {k: v for k, v in values.items() if k not in AlgorithmTable.model_fields and v is not None}


class OutsideAlgorithmTable(AlgorithmTable):
    """An algorithm from a file or an installed package. Its own keys are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


# Type of an algorithm's field → the table that gives it.
ALGORITHM_TABLES: dict[Any, type[Table]] = {StepSize: Step, Mapping: DomainTable}


if TYPE_CHECKING:

    class RegisteredAlgorithmTable(AlgorithmTable):
        """With the keys of all registered algorithms, as their fields declare them."""

else:
    RegisteredAlgorithmTable = create_model(
        "RegisteredAlgorithmTable", __base__=AlgorithmTable, **registered_fields(ALGORITHM_TABLES)
    )


def which_table(value: Any) -> str:
    """Which of the two tables a value is meant to be."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    outside = isinstance(value, OutsideAlgorithmTable) or (isinstance(kind, str) and is_from_outside(kind))
    return "OutsideAlgorithmTable" if outside else "RegisteredAlgorithmTable"


def is_from_outside(kind: str) -> bool:
    """Whether an algorithm is none of the registered ones: of a file, of an installed package, or of nobody.

    A name that nobody has is refused as such where the algorithm is built, and not for the keys beside it.
    """
    return kind not in ALGORITHMS


class AlgorithmSchema:
    """The JSON Schema of both tables as one: all properties; by kind those that are needed and may be given."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        found: dict[str, Any] = handler.resolve_ref_schema(schema["oneOf"][0])
        common, own = list(AlgorithmTable.model_fields), found["properties"]
        known = {"properties": {"kind": {"enum": list(ALGORITHMS)}}, "required": ["kind"]}
        merged = {k: v for k, v in found.items() if k != "additionalProperties"}
        merged["title"], merged["allOf"] = (
            "AlgorithmTable",
            [case_of(kind, common, [o.key for o in entry.keys], entry.options) for kind, entry in ALGORITHMS.items()],
        )
        # A name that is not registered may be an installed package's, whose keys are its own.
        merged["if"], merged["then"] = known, {"propertyNames": {"enum": list(own)}}
        merged["properties"]["kind"]["examples"] = list(ALGORITHMS)
        return merged
