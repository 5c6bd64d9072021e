"""Hyper-parameters: the fields of an algorithm's dataclass are the keys of the scenario.

    x: StepSize = option("step size of x")                               required
    rate: float = option("share of a sample", default=1.0, above=0, at_most=1)

A plain field, `x: StepSize` or `rate: float = 1.0`, is also a key, without a description. Every field of `__init__`
is a key, except those of `RESERVED` and those declared by `internal`. Functions at the end of this module declare keys
that several algorithms share.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt
from pydantic import AllowInfNan, ConfigDict, TypeAdapter, ValidationError

from decentral_dp.errors import InputError, converting
from decentral_dp.files.tables import LARGEST_COUNT, type_in_words, without_none
from decentral_dp.privacy.schedules import StepSize

# The field that the common key algorithm.init sets.
RESERVED = ("start",)
# Keys of the table that every algorithm has. No field may have one of these names.
COMMON = ("kind", "rounds", "init")
_METADATA = "decentral_dp"
_SCALARS = (StepSize, int, float, bool, str)
_STRICT = ConfigDict(strict=True)
_SCALE = Annotated[float, Ge(0.0), AllowInfNan(False)]


class Option(NamedTuple):
    """Key of the [algorithm] table.

    Args:
        key: name of the key.
        type: type of the value: StepSize, int, float, bool, str, or a Literal of strings.
        required: whether the key has no default.
        default: default value, or None if the algorithm determines the value or needs none.
        description: meaning of the key, in a phrase.
        unit: unit of a number, or "".
        example: example value in TOML.
        bounds: bounds of a number.
    """

    key: str
    type: Any
    required: bool
    default: Any
    description: str
    unit: str
    example: str
    bounds: tuple[BaseMetadata, ...] = ()

    @property
    def line(self) -> str:
        """Example line of a scenario."""
        return f"{self.key} = {self.example}"

    @property
    def pydantic_type(self) -> Any:
        """Type with its bounds, for pydantic. The tables StepSize and Mapping have no bounds."""
        finite = {int: Le(LARGEST_COUNT), float: AllowInfNan(False)}.get(self.type)
        return self.type if finite is None else Annotated[self.type, *self.bounds, finite]


def option(
    description: str,
    *,
    default: Any = MISSING,
    unit: str = "",
    example: str = "",
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> Any:
    """Declare a field of an algorithm as a key of the scenario.

    Args:
        description: meaning of the key, in a phrase.
        default: default of an optional key. A key without a default is required.
        unit: unit of a number, for example "rounds".
        example: example value in TOML, by default derived from the type or the default.
        above, at_least, below, at_most: bounds of a number.

    Returns:
        A `dataclasses.field`.
    """
    bounds = ((Gt, above), (Ge, at_least), (Lt, below), (Le, at_most))
    metadata = {"description": description, "unit": unit, "example": example}
    limits = tuple(kind(bound) for kind, bound in bounds if bound is not None)
    return dataclasses.field(default=default, metadata={_METADATA: metadata | {"bounds": limits}})


def internal(default: Any = MISSING, default_factory: Any = MISSING) -> Any:
    """Declare a field that is not a key of the scenario."""
    preset: dict[str, Any] = (
        {"default": default} if default_factory is MISSING else {"default_factory": default_factory}
    )
    return dataclasses.field(metadata={_METADATA: {"internal": True}}, **preset)


# Domain of x, passed to the coordinator; not a field.
DOMAIN = Option(
    "domain",
    Mapping,
    False,
    None,
    "where x may be: { low, high }, of every coordinate",
    "",
    "{ low = -5.0, high = 0.0 }",
)
# Wrapper of an algorithm (`gossip.centring`); not a field.
CENTRING = Option(
    "centring",
    bool,
    False,
    False,
    "whether agents first release the mean of their features, with noise, and a linear model reads features less the "
    "mean of these",
    "",
    "false",
)
NO_FIELDS = (DOMAIN.key, CENTRING.key)


@cache
def options_of(algorithm: type) -> tuple[Option, ...]:
    """Return the keys defined by the fields of a dataclass, in the order of the fields.

    Raises:
        InputError: the class is not a dataclass, or the type of a field is not supported for a key.
    """
    name = algorithm.__name__
    if not dataclasses.is_dataclass(algorithm):
        raise InputError(f"{name} is not a dataclass. Fix: write @dataclass(frozen=True) before it.")
    # The module of a custom class may be missing from `sys.modules`.
    scope: dict[str, Any] = {}
    for base in reversed([c for c in algorithm.__mro__ if dataclasses.is_dataclass(c)]):
        module = sys.modules.get(base.__module__)
        scope |= getattr(vars(base).get("__init__"), "__globals__", None) or (vars(module) if module else {})
    problem = f"{name}: the type of a field is not known"
    with converting((NameError, TypeError, SyntaxError), lambda error: f"{problem} ({error}). Fix: import it."):
        hints = get_type_hints(algorithm, scope)
    return tuple(_option(algorithm, f, hints[f.name]) for f in _keys(algorithm))


def _keys(algorithm: Any) -> Iterator[dataclasses.Field[Any]]:
    for field in dataclasses.fields(algorithm):
        if field.init and field.name not in RESERVED and not field.metadata.get(_METADATA, {}).get("internal"):
            yield field


def _option(algorithm: type, field: dataclasses.Field[Any], hint: Any) -> Option:
    name = algorithm.__name__
    metadata = field.metadata.get(_METADATA, {})
    plain: Any = without_none(hint)
    is_choice = get_origin(plain) is Literal and all(isinstance(a, str) for a in get_args(plain))
    problem = ""
    if not is_choice and plain not in _SCALARS:
        problem = (
            f"unsupported type (got {getattr(field.type, '__name__', field.type)}). Fix: use StepSize, int, float, "
            "bool, str, or a Literal of texts, or declare the field with internal()."
        )
    elif field.name in (*COMMON, CENTRING.key):
        problem = "this key exists for every algorithm. Fix: rename the field."
    if problem:
        raise InputError(f"{name}.{field.name}: {problem}")
    factory = field.default_factory
    default = field.default if factory is MISSING else factory()
    is_required = default is MISSING
    default = None if is_required else default
    example = metadata.get("example") or _example(plain, default)
    description, unit = metadata.get("description", ""), metadata.get("unit", "")
    key = Option(field.name, plain, is_required, default, description, unit, example, metadata.get("bounds", ()))
    problem = f"{name}.{field.name}: its default is {default!r}, expected"
    if plain is StepSize and default is not None and not isinstance(default, StepSize):
        raise InputError(f"{problem} a StepSize. Fix: write StepSize({default!r}).")
    with converting(ValidationError, lambda _: f"{problem} {constraint(key)}."):
        # Most options have no default to check.
        if default is not None and plain is not StepSize:
            _adapter(key.pydantic_type).validate_python(default)
    return key


def check_options(algorithm: Any) -> None:
    """Check the values of an algorithm's options, and convert numbers to constant learning rates.

    Raises:
        InputError: a value has the wrong type, or is out of range.
    """
    for key in options_of(algorithm.__class__):
        value = getattr(algorithm, key.key)
        if value is None and not key.required:
            continue
        expected = "a number of at least 0, or a StepSize" if key.type is StepSize else constraint(key)
        problem = f"{type(algorithm).__name__}.{key.key}: got {value!r}, expected {expected}."
        try:
            if key.type is not StepSize:
                _adapter(key.pydantic_type).validate_python(value)
            elif not isinstance(value, StepSize):
                constant = StepSize(_adapter(_SCALE).validate_python(value))
                object.__setattr__(algorithm, key.key, constant)
        except ValidationError:
            raise InputError(problem) from None


@cache
def _adapter(bounded_type: Any) -> TypeAdapter[Any]:
    """Return the validator of a type, cached because building it is slow and there are few types."""
    return TypeAdapter(bounded_type, config=_STRICT)


def _example(kind: Any, default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return str(default)
    if isinstance(default, str):
        return f'"{default}"'
    if get_origin(kind) is Literal:
        return f'"{get_args(kind)[0]}"'
    usual = {StepSize: "{ scale = 0.1, decay = 0.5 }", int: "5", float: "1.0", bool: "true", str: '"…"'}
    return usual[kind]


def constraint(key: Option) -> str:
    """Describe the allowed values."""
    if key.type is Mapping:
        return "a table"
    if get_origin(key.type) is Literal:
        return " or ".join(f'"{a}"' for a in get_args(key.type))
    names = {StepSize: "a number, or { scale, decay, points }", bool: "true or false", str: "text"}
    return names.get(key.type) or type_in_words(Annotated[key.type, *key.bounds] if key.bounds else key.type)


def lower_steps() -> Any:
    """Declare K, the number of inner iterations per round."""
    return option("K, iterations on y in every round", unit="iterations", at_least=1)


def inverse_iterations() -> Any:
    """Declare N, the number of iterations for the inverse of the lower Hessian."""
    return option("N, iterations on the inverse of the lower Hessian in every round", unit="iterations", at_least=1)


def neumann_terms() -> Any:
    """Declare b, the number of terms of a Neumann series."""
    return option("b, terms of the Neumann series for the inverse of the lower Hessian", unit="terms", at_least=1)


def neumann_smoothness() -> Any:
    """Declare L, the smoothness constant of a Neumann series."""
    return option("L ≥ ‖∇²_yy g‖ of the Neumann series", example="2.0", above=0)
