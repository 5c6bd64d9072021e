"""Every key has a description, and the reference pages are up to date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decentral_dp.config.schema import Scenario
from decentral_dp.studies.schema import Study
from tests.golden.reference import pages

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
# Keys of [algorithm] are described by phrases, as the fields of algorithms.
ELSEWHERE = ("AlgorithmTable",)


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for table, content in {"": schema, **schema.get("$defs", {})}.items():
        for key, value in content.get("properties", {}).items():
            if table not in ELSEWHERE:
                yield f"{table}.{key}", value


@pytest.mark.parametrize("root", [Scenario, Study])
def test_every_key_is_described(root: type[Scenario] | type[Study]) -> None:
    found = dict(properties(root.model_json_schema()))
    assert len(found) > 20
    assert [key for key, value in found.items() if not value.get("description")] == []
    wrong = [key for key, value in found.items() if not value["description"].endswith(".")]
    assert wrong == []


def test_reference_pages_are_up_to_date() -> None:
    made = pages()
    assert sorted(made) == sorted(path.name for path in FOLDER.glob("*.md"))
    for name, text in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, "python -m tests.golden.reference"
