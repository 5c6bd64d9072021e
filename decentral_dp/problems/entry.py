"""Entry of a problem, at the end of its module: the registry is built from entries.

    @dataclass(frozen=True)
    class Quadratic:
        n_features: int                                   a public fact, set from the data
        ridge: Annotated[Positive, Doc("Strength of …")]  a required key of [problem]; with a default it is optional
        scale: float = 1.0                                neither: an argument for callers in Python

The parameters of a function that makes the problem are read like the fields of a dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args

from typing_extensions import Doc

from decentral_dp.bounded import Norm
from decentral_dp.errors import InputError
from decentral_dp.files.tables import DeclaredKey, declared_keys
from decentral_dp.models.build import Model, ModelTable, build_model


class ProblemType(NamedTuple):
    """Facts that hold for all problems of one type.

    Args:
        name: name in errors and results.
        methods: methods, one of which a custom problem must have.
        members: members of a custom problem that does its own clipping. The first one identifies it.
        evaluation_members: members for evaluation, which an object that is only used for a plan may lack.
        terms: terms of its releases.
        make_custom: function that builds a problem from (per-record formulas, facts, name, problem.model).
        describe: function that returns a text with the formulas of a registered problem.
        levels: number of levels: 2 if records are split between a lower and an upper level, otherwise 1.
        weights: variable whose value is the model.
        aim: aims of x and y in a sentence, or "" for two levels.
        norms: norms in which gradients are clipped.
        uses_devices: whether registered problems compute on run.device.
        make_local: function that turns (problem, its name, kind of the algorithm) into a bilevel problem for gossip.
        make_evaluator: function that builds a job's evaluator with the problem's own scores, or None if scores are sums
            over agents.
        clip_notes: comment on each clipping norm in examples.
    """

    name: str
    methods: tuple[str, ...]
    members: tuple[str, ...]
    evaluation_members: tuple[str, ...]
    terms: tuple[str, ...]
    make_custom: Callable[..., Any]
    describe: Callable[[Callable[..., Any]], str]
    levels: int = 2
    weights: str = "y"
    aim: str = ""
    norms: tuple[Norm, ...] = get_args(Norm)
    uses_devices: bool = False
    make_local: Callable[[Any, str, str], Any] = lambda problem, name, kind: problem
    make_evaluator: Callable[[Any], Any] | None = None
    clip_notes: Mapping[str, str] = MappingProxyType({})


class ProblemFacts(NamedTuple):
    """Public facts of the data, known before the problem is built.

    Args:
        n_features: number of columns d of a record.
        n_classes: number of classes c, or 0 if labels are numbers.
        image: shape (height, width, channels) of image records; `record.reshape(channels, height, width)` is an image.
        agents: number of agents m.
        seed: public seed for draws of the problem.
        device: name of the device, "cpu" or "cuda".
        module: function that maps (n_features, outputs) to a custom torch model, or None if problem.model names none.
        l2: bound on ‖a‖₂ of every possible record, or None without a bound.
        trajectory: shape (L, d) if records are trajectories, as in `Dataset`.
        clip: bound on the gradients of each variable.
    """

    n_features: int
    n_classes: int
    image: tuple[int, int, int] | None = None
    agents: int = 1
    seed: int = 0
    device: str = "cpu"
    module: Callable[..., Any] | None = None
    l2: float | None = None
    trajectory: tuple[int, int] | None = None
    clip: Mapping[str, float] = MappingProxyType({})

    @property
    def classes(self) -> tuple[float, ...]:
        """Labels 0.0, 1.0, … of the data."""
        return tuple(float(c) for c in range(self.n_classes))

    def named_in(self, make: Callable[..., Any], options: Collection[str]) -> dict[str, Any]:
        """Return the facts that are parameters of a function, except its options."""
        facts = (set(inspect.signature(make).parameters) & set(PUBLIC_FACTS)) - set(options)
        return {name: self if name == "facts" else getattr(self, name) for name in facts}

    def model(self, outputs: int, chosen: ModelTable | None) -> Model:
        """Build the model of problem.model, or a linear model if None. Raises InputError for an unsupported model."""
        return build_model(chosen, self.n_features, outputs, self.image, self.seed, self.device, self.module)


# Parameters that the facts set by name.
PUBLIC_FACTS = (*ProblemFacts._fields, "classes", "facts")


ModelChoice = Annotated[
    ModelTable,
    Doc("The model whose weights are x (for wgan the critic: y), also of a custom objective; linear if left out."),
]


class ProblemEntry(NamedTuple):
    """Registered problem.

    Args:
        kind: name in a scenario.
        make: dataclass or function. Parameters named like public facts are set from them (`facts` gets all);
            parameters annotated with `Doc` are keys of the [problem] table. Others keep their defaults.
        summary: summary in the list, one line.
        task: past-tense phrase for a sentence, such as "trained a classifier", or "" if the name suffices.
        lower_task: task of the lower level only, at a constant x.
        solves: type of problem, set by the registry.
        description: docstring with the formulas, set by the registry.
        labels: required labels: "two" classes, two or more "classes", "numbers", or "" for any.
        defaults: defaults of keys that differ from the parameter's default.
        construction_of: equivalent key of problem.construction for each key.
        trajectories: whether its records are trajectories.
        one_level: whether it has no upper level, that is, x has no coordinates and no validation record is read.
    """

    kind: str
    make: Callable[..., Any]
    summary: str
    task: str = ""
    lower_task: str = ""
    solves: str = ""
    description: str = ""
    labels: Literal["", "two", "classes", "numbers"] = ""
    defaults: Mapping[str, Any] = MappingProxyType({})
    construction_of: Mapping[str, str] = MappingProxyType({})
    trajectories: bool = False
    one_level: bool = False

    @property
    def keys(self) -> tuple[DeclaredKey, ...]:
        """Keys of the [problem] table that only this problem reads."""
        return tuple(
            key._replace(required=False) if key.name in self.defaults else key for key in declared_keys(self.make)
        )

    @property
    def options(self) -> tuple[str, ...]:
        """Names of these keys."""
        return tuple(key.name for key in self.keys)

    @property
    def required_keys(self) -> tuple[str, ...]:
        """Names of keys without a default."""
        return tuple(key.name for key in self.keys if key.required)

    def build(self, options: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """Build the problem. Raises InputError for unsupported data or options."""
        least, most = {"two": (2, 2), "classes": (2, facts.n_classes)}.get(self.labels, (0, facts.n_classes))
        if not least <= facts.n_classes <= most:
            expected = "exactly 2" if self.labels == "two" else "at least 2"
            got = facts.n_classes or "numbers"
            raise InputError(
                f"problem.kind: {self.kind} requires {expected} classes (got {got}). Fix: use another "
                "problem, declare problem.classes, or name the positive classes, as in construction = { "
                "positive = [0] }."
            )
        return self.make(**{**facts.named_in(self.make, self.options), **self.defaults, **options})
