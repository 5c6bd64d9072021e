"""Words that the package does not use."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "decentral_dp"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Word that no identifier of the package contains → the field's term, which it does.
REPLACED = {
    "desk": "context",
    "holder": "client block",
    "house": "coordinator node",
    "lottery": "selection mechanism",
    "curator": "releaser",
    "granular": "problem constants",
    "arena": "search space",
    "genes": "parameters",
    "touches": "reads_records",
    "feeds": "reads_records",
    "looks": "evaluation_rounds",
    "tossed": "randomised_rounding",
    "teller": "ProgressReporter",
    "watcher": "ProgressCallback",
    "tails": "infinite_horizon",
    "trouble": "divergence",
    "worlds": "neighbours",
}


def words(name: str) -> set[str]:
    """The words that an identifier is made of, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@functools.cache
def identifiers(path: Path) -> set[str]:
    text = io.StringIO(path.read_text(encoding="utf-8"))
    return {token.string for token in tokenize.generate_tokens(text.readline) if token.type == tokenize.NAME}


@pytest.mark.parametrize("word", REPLACED)
def test_identifiers_are_the_fields_terms(word: str) -> None:
    for path in SOURCES:
        found = sorted(name for name in identifiers(path) if word in words(name))
        assert not found, f"{path.relative_to(PACKAGE)} has {found}; the term is {REPLACED[word]}"


def test_a_word_is_seen_inside_a_name(tmp_path: Path) -> None:
    module = tmp_path / "bad.py"
    module.write_text("class MinimaxDesk:\n    def _desk_of(self) -> None: ...\n")
    assert {name for name in identifiers(module) if "desk" in words(name)} == {"MinimaxDesk", "_desk_of"}
