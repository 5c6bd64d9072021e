"""Every key has a description, and the reference pages are up to date and complete."""

from __future__ import annotations

import html
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli.main import app
from decentral_dp.config.schema import Scenario
from decentral_dp.simulation.plan import plan_scenario
from decentral_dp.studies.schema import Study
from docs.reference_pages import (
    generate_pages,
    write_algorithm_page,
    write_commands_page,
    write_index_page,
)
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


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.replace("_", " ")))


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_page_of_an_algorithm_is_complete(kind: str) -> None:
    entry, page = ALGORITHMS[kind], write_algorithm_page(kind, [kind])
    for option in entry.keys:
        assert f"| `{option.key}` |" in page
    for channel in plan_scenario(kind).records.charged_channels:
        assert f"| `{channel.channel}` | {channel.mechanism.name} |" in page
    text = html.unescape(page.replace("```text", "").replace("\\", ""))
    assert words(inspect.getdoc(sys.modules[entry.algorithm.__module__]) or "") in words(text)
    assert f"[{kind}]({kind}.md) | {entry.summary} |" in write_index_page()


def test_links_of_generated_pages_have_targets() -> None:
    docs, generated = FOLDER.parent, generate_pages()
    targets = {(docs / name).resolve() for name in generated} | set(docs.rglob("*.md"))
    links = [(name, link) for name, text in generated.items() for link in re.findall(r"\]\(([^)#]+)", text)]
    assert len(links) > 100
    assert [(name, link) for name, link in links if (docs / name).parent.joinpath(link).resolve() not in targets] == []


def test_every_command_and_option_is_described() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", write_commands_page(), re.MULTILINE | re.DOTALL))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert list(sections) == list(commands)
    for name, command in commands.items():
        for parameter in command.params:
            shown = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
            assert f"<code>{shown}" in sections[name]
            assert parameter.help.split()[0] in sections[name]
    assert "| Public seed of the audit. | `0` |" in sections["audit"]
    assert "| A run folder. | required |" in sections["report"]
