"""Where a Python file of the user's own defines something: read from its text, and nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

# Classes that hold values and are no component.
_VALUES = ("NamedTuple", "TypedDict", "Enum")
_PARSED_ANEW = 5


def definitions(path: Path) -> dict[str, int]:
    """Name → line of the public classes and functions at the top of a file; without named tuples, classes first."""
    names: list[ast.ClassDef | ast.FunctionDef] = []
    for statement in _statements(path):
        if isinstance(statement, ast.ClassDef) and not any(_name(base) in _VALUES for base in statement.bases):
            names.append(statement)
        if isinstance(statement, ast.FunctionDef):
            names.append(statement)
    names.sort(key=lambda s: isinstance(s, ast.FunctionDef))
    return {s.name: s.lineno for s in names if not s.name.startswith("_")}


def line_at_top(path: Path, name: str) -> int | None:
    """The line at the top of a file that defines a name, or sets it last; None where it is not known."""
    lines = [statement.lineno for statement in _statements(path) if name in _names_set(statement)]
    return lines[-1] if lines else None


def line_in_class(path: Path, name: str, attribute: str, text: str | None = None) -> int | None:
    """The line of a file at which a class sets or defines an attribute.

    Args:
        path: the file.
        name: of the class, at the top of the file.
        attribute: a field, a plain value or a method.
        text: a literal in its value, whose line is wanted where it is there.

    Returns:
        The line; None where it is not known.
    """
    for statement in _statements(path):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            for part in statement.body:
                if attribute in _names_set(part):
                    literals = (n for n in ast.walk(part) if isinstance(n, ast.Constant))
                    return next((n.lineno for n in literals if text is not None and n.value == text), part.lineno)
    return None


def class_at(path: Path, line: int) -> str | None:
    """The class at the top of a file that this line is of, its decorators included."""
    for statement in _statements(path):
        if isinstance(statement, ast.ClassDef):
            first = min([statement.lineno, *(d.lineno for d in statement.decorator_list)])
            if first <= line <= (statement.end_lineno or first):
                return statement.name
    return None


def place_in_class(cls: type, attribute: str, text: str | None = None) -> str:
    """The place of a class's attribute as ", in line 3 of file.py"; "" where it is not known.

    Args:
        cls: a class; the code of its methods names the file.
        attribute, text: as of `line_in_class`. Where the class has no such attribute, its own line is given.
    """
    members: Mapping[str, object] = vars(cls)
    files = [getattr(getattr(member, "__code__", None), "co_filename", "") for member in members.values()]
    for file in dict.fromkeys(f for f in files if f.endswith(".py")):
        line = line_in_class(Path(file), cls.__name__, attribute, text) or definitions(Path(file)).get(cls.__name__)
        if line is not None:
            return f", in line {line} of {file}"
    return ""


def place_of(component: object) -> str:
    """The place of a class, or of a function, as ", in line 3 of file.py"; "" where it is not known."""
    if isinstance(component, type):
        return place_in_class(component, "")
    code = getattr(component, "__code__", None)
    return "" if code is None else f", in line {code.co_firstlineno} of {code.co_filename}"


def _statements(path: Path) -> Iterator[ast.stmt]:
    """The statements at the top of a file; none where it cannot be read, which others report."""
    for _ in range(_PARSED_ANEW):
        try:
            yield from ast.parse(path.read_bytes()).body
        except SystemError:
            # In Python 3.11 two threads that parse at once disturb each other; Ray's formats tracebacks, which parses.
            continue
        except (OSError, SyntaxError, ValueError):
            pass
        return


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _names_set(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        parts = (t.elts if isinstance(t, ast.Tuple) else [t] for t in statement.targets)
        return [_name(target) for some in parts for target in some]
    if isinstance(statement, ast.AnnAssign):
        return [_name(statement.target)]
    return [statement.name] if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
