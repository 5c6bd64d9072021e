"""Print the lowest versions of the dependencies in pyproject.toml: `python -m tests.release.lowest`.

The output is one requirement a line, in pip's format.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A name, its extras, and the lower bound; other bounds follow a comma.
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9][0-9.]*)(?:,.*)?")


def lowest(requirements: Sequence[str]) -> list[str]:
    """The lowest version of each requirement, as "name==version".

    Raises:
        ValueError: one of them has no lowest version.
    """
    bounds = [_BOUND.fullmatch(requirement.replace(" ", "")) for requirement in requirements]
    for requirement, bound in zip(requirements, bounds, strict=True):
        if bound is None:
            raise ValueError(f"{requirement!r} has no lowest version; wanted for example 'numpy>=2.0'")
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None]


def needed() -> list[str]:
    """Return the dependencies of the package without extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["project"]["dependencies"]
    return found


if __name__ == "__main__":
    print("\n".join(lowest(needed())))
