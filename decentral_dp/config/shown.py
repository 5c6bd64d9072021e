"""What `show` prints of components from outside: their description and their keys."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decentral_dp.config.outside import KEYS, option_fields, parameters, problem_type
from decentral_dp.user_code import find_outside, in_file, installed

# Component → keys of its function that the scenario says elsewhere.
_PASSED = {
    "topology": ("agents", "seed"),
    "data": ("agents", "seed"),
    "partition": ("labels", "classes", "agents", "seed"),
}
_GROUPS = ("problem", "objective", "topology", "data", "partition")


def shown(name: str) -> str | None:
    """The text for a problem, topology, data set or partition in a file or of an entry point; None for others."""
    if in_file(name) is not None:
        found = find_outside("problem", name, Path.cwd(), "show")
        what = _what(found)
    else:
        what = next((group for group in _GROUPS if name in installed(group)), None)
        found = None if what is None else find_outside(what, name, Path.cwd(), "show")
    if what is None or found is None:
        return None
    what = "problem" if what == "objective" else what
    text = inspect.getdoc(found) or "No description."
    table, key = KEYS[what]
    if what == "problem":
        options = option_fields(found, name) if isinstance(found, type) else {}
        kind = f"{problem_type(found, name)} problem"
    else:
        passed = _PASSED[what]
        options = {k: v for k, v in parameters(found, f"{table}.{key}", name).items() if k not in passed}
        kind = {"data": "data set"}.get(what, what)
    lines = _lines(options)
    listed = f"\n\nKeys of [{table}]:\n{lines}" if lines else ""
    required = "".join(f", {k} = …" for k, (_, default) in options.items() if default is ...)
    agents = ", agents = 10" if what == "topology" and "agents" in inspect.signature(found).parameters else ""
    written = f'In a scenario: [{table}] {key} = "{name}"{agents}{required}'
    return f"{name} (a {kind} from outside)\n\n{text}{listed}\n\n{written}"


def _what(found: Any) -> str | None:
    """What a component is, by what it takes: only that a file defines it is known."""
    if isinstance(found, type) or not callable(found):
        methods = ("lower_grad_y", "slopes", "terms", "sums")
        return "problem" if any(hasattr(found, m) for m in methods) and not hasattr(found, "step") else None
    signature = inspect.signature(found)
    names = set(signature.parameters)
    if "labels" in names:
        return "partition"
    # Data sets have no options. A function of nothing may be either: what it says that it returns tells.
    if names == {"agents"} or names - {"agents", "seed"} or "Graph" in str(signature.return_annotation):
        return "topology"
    return "data"


def _lines(options: Mapping[str, tuple[Any, Any]]) -> str:
    def kind(annotation: Any) -> str:
        return "any value" if annotation is Any else getattr(annotation, "__name__", str(annotation))

    return "\n".join(
        f"  {key}: {kind(annotation)}; {'required' if default is ... else f'{default!r} if left out'}"
        for key, (annotation, default) in options.items()
    )
