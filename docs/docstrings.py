"""Docstrings as griffe reads them: `Example:` is a section of doctests, and `a, b: text` describes two parameters.

Used only by `mkdocs build`, by the name in `mkdocs.yml`; not part of the site.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^Example:[ ]*$", re.MULTILINE)
_RETURNS = re.compile(r"^(Returns:[ ]*\n[ ]+[^:\n]+): ", re.MULTILINE)
_SEVERAL = re.compile(r"^([ ]+)(\w+(?:, \w+)+): (.*(?:\n\1[ ]+\S.*)*)$", re.MULTILINE)


def _one_each(line: re.Match[str]) -> str:
    indent, names, text = line.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))


class Docstrings(Extension):
    """Rewrites a docstring before its sections are read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of one module, class or function."""
        if obj.docstring is not None:
            text = _EXAMPLE.sub("Examples:", obj.docstring.value)
            # griffe would read the words before a colon as a type.
            text = _RETURNS.sub(r"\1 – ", text)
            obj.docstring.value = _SEVERAL.sub(_one_each, text)
