"""Check the wording of docs, docstrings, comments and errors, and the docstrings of the public API."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import decentral_dp

ROOT = Path(__file__).parents[2]
START = r"(?:\A\s*|[.!?]\s+|\n\s*(?:\n|[-*>]\s|\d+\.\s)\s*)"
# Banned wording → replacement.
BANNED = {
    rf"{START}(?:What|Who|Whoever|Whatever|Whose|Whom|Of|Nor|Or|And|But)\b(?![^.!?]*\?)": "a full sentence",
    rf"{START}Where\b(?![^.!?]*[?,])": "if, when",
    r"(?<![\"\[#])\balone\b(?![\"\]:])": "only, isolated",
    r"\bof\s+(?:one's|its|their|your|a\s+user's|the\s+user's)\s+own\b": "custom, separate",
    r"\b(?:who|whom)ever\b|\bnobody\b": "the adversary, no agent",
    r"\b(?:over|mis)?hear[ds]?\b(?![:(])": "receive",
    r"\b(?:tells?|told|telling)\b": "reveal, report",
    r"\bsays\b": "state, report",
    r"\b(?:un)?pric(?:e|es|ed|ing)\b(?!\s*[:=(]|\.md)": "privacy cost, accounted",
    r"\bbeside\b": "next to, in addition to",
    r"\b(?:un-?|under-?)?noised\b": "noiseless, noisy, perturbed",
    r"\b(?:coins?|toss(?:es|ed)?)\b(?!:)": "Bernoulli draw, public randomness",
    r"(?<!\")\balike\b": "identical",
    r"\bbut\s+for\b": "except",
    r"\bso\s+many\b": "the number",
    r"\bpictures?\b(?!:)": "figure, image",
    r"\bin\s+(?:the\s+)?place\s+of\b": "instead of",
    r"\b(?:goes?|went|going)\s+on\b": "continue, resume",
    r"\bcut\s+off\b": "interrupted",
    r"\bmend(?:s|ed)?\b": "fix",
    r"\bmade-?up\b": "synthetic",
    r"\b(?:dealt|dealers?)\b": "partition",
    r"\bas[\s_-]printed\b|\bprinted\s+form": "as published",
    r"\bauthor's\s+word\b": "unverified",
}
WORDINGS = [(re.compile(pattern), replacement) for pattern, replacement in BANNED.items()]
CODE = re.compile(r"`[^`\n]*\n?[^`\n]*`|^ *(?:>>>|\.\.\.).*$", re.MULTILINE)
FENCES = re.compile(r"^ *```.*?^ *```|^ *\$\$.*?\$\$", re.MULTILINE | re.DOTALL)
DOCSTRINGS = re.compile(r'"""(.*?)"""', re.DOTALL)
COMMENTS = re.compile(r"(?:^|(?<=  ))#:? .*(?:\n *# .*)*", re.MULTILINE)
ERRORS = re.compile(r"\braise \w+\((.*?)\)$", re.MULTILINE | re.DOTALL)
VERB = re.compile(
    "(?:Allow|Audit|Build|Check|Choose|Compare|Compute|Draw|Estimate|Load|Make|Predict|Read|Resume|Return|Run|Test|"
    "Write) "
)


def faults(text: str, line: int = 1) -> list[str]:
    """Return "line: wording; write replacement" for each banned wording of a text that starts at this line."""
    text = CODE.sub(blank, text)
    return [
        f"{line + text.count(chr(10), 0, match.end())}: {' '.join(match[0].split())!r}; write {replacement}"
        for wording, replacement in WORDINGS
        for match in wording.finditer(text)
    ]


def blank(match: re.Match[str]) -> str:
    """Replace a match by a mark and its line breaks."""
    return "`" + "\n" * match[0].count("\n")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the prose of a page, or of the docstrings, comments and error texts of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        # An element of HTML has a name that is banned in sentences.
        yield 1, re.sub("</?picture>", "", FENCES.sub(blank, text))
        return
    for match in DOCSTRINGS.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match[1]
    for match in COMMENTS.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, re.sub(r"^ *#:? ", "", match[0], flags=re.MULTILINE)
    for match in ERRORS.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, "".join(re.findall(r'"([^"\n]*)"', match[1]))


def sources() -> list[Path]:
    """Return the pages and modules of the repository, except pages generated from docstrings and this module."""
    folders = [ROOT / name for name in ("decentral_dp", "papers", "tests", "docs")]
    found = [path for folder in folders for kind in ("*.py", "*.md") for path in folder.rglob(kind)]
    found = [path for path in found if path.parent != ROOT / "docs" / "reference" and path != Path(__file__)]
    return sorted(ROOT.glob("*.md")) + found


def test_no_banned_wording() -> None:
    found = []
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        for line, text in prose(path):
            found += [f"{name}:{fault}" for fault in faults(text, line)]
    assert not found, "\n".join(found)


def test_each_kind_of_prose_is_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'def f() -> None:\n    """Return a coin."""\n    # The value\n    # is alike.\n'
        '    x = 1  # alone\n    raise ValueError(\n        "x: dealt twice."\n    )\n',
        encoding="utf-8",
    )
    found = [fault.split(";")[0] for line, text in prose(module) for fault in faults(text, line)]
    assert found == ["2: 'coin'", "4: 'alike'", "5: 'alone'", "6: 'dealt'"]
    page = tmp_path / "page.md"
    page.write_text("# What counts\n\n```\ncoin\n```\n\nA coin.\n", encoding="utf-8")
    assert [f.split(";")[0] for line, text in prose(page) for f in faults(text, line)] == ["7: 'coin'"]


def docstring_faults(function: Callable[..., Any]) -> list[str]:
    """Return the faults of a function's docstring: its first line, Args, Returns and Raises."""
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    first = text.partition("\n")[0]
    found = [] if VERB.match(first) else ["begins with no verb"]
    found += [] if first.endswith(".") else ["the first line does not end in a full stop"]
    if re.search(r"\bas `[\w.]+`", first):
        # The named function has the sections.
        return found
    arguments = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = ", ".join(re.findall(r"^ {4}([\w*, ]+):", arguments, re.MULTILINE))
    documented = {name.lstrip("*") for name in entries.split(", ")}
    found += [f"Args lacks {name}" for name in signature.parameters if name not in documented | {"self", "cls"}]
    returns = signature.return_annotation != "None" and not inspect.isgeneratorfunction(function)
    if returns and not first.startswith("Return ") and "\nReturns:\n" not in text:
        found.append("no Returns")
    if re.search(r"^ +raise ", inspect.getsource(function), re.MULTILINE) and "\nRaises:\n" not in text:
        found.append("no Raises")
    return found


@pytest.mark.parametrize("name", decentral_dp.__all__)
def test_docstrings_of_the_public_api_have_one_form(name: str) -> None:
    public = getattr(decentral_dp, name)
    if inspect.ismodule(public):
        return
    if not inspect.isclass(public):
        assert docstring_faults(inspect.unwrap(public)) == []
        return
    # A class is a noun, as are its properties.
    assert re.match(r"[A-Z].*\.$", (inspect.getdoc(public) or "").partition("\n")[0])
    for key, member in vars(public).items():
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function) and not key.startswith(("_", "model_")):
            assert (key, docstring_faults(function)) == (key, [])
        elif hasattr(member, "fget") or hasattr(member, "func"):
            assert re.match(r"[A-Z].*\.$", (inspect.getdoc(member) or "").partition("\n")[0]), key
