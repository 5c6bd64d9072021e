"""Lines of a user's file are found in its text; two threads that parse at once in Python 3.11 are no reason to fail."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from decentral_dp.files.source_lines import definitions, place_in_class
from decentral_dp.user_code import run_file

TEXT = '''"""A class."""


def helper():
    return 1


class Mine:
    name, norm = "mine", "l1"
    scale: float = 1.0

    def cost(self):
        return 0
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("attribute", "line"), [("name", 9), ("norm", 9), ("scale", 10), ("cost", 12), ("missing", 8), ("", 8)]
)
def test_an_attribute_is_at_its_line_and_a_missing_one_at_that_of_the_class(
    file: Path, attribute: str, line: int
) -> None:
    found = run_file(file, "wanted").Mine
    assert place_in_class(found, attribute) == f", in line {line} of {file}"


@pytest.mark.parametrize("failures", [1, 4])
def test_a_parser_that_another_thread_disturbed_is_called_again(
    file: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    parse, calls = ast.parse, 0

    def disturbed(source: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise SystemError("AST constructor recursion depth mismatch (before=171, after=47)")
        return parse(source)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert definitions(file) == {"Mine": 8, "helper": 4}
    assert calls == failures + 1


def test_what_cannot_be_parsed_has_no_lines(file: Path) -> None:
    file.write_text("def broken(:\n", encoding="utf-8")
    assert definitions(file) == {}
    assert definitions(file.parent / "nowhere.py") == {}
