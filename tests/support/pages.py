"""Code blocks of the documentation as files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```\w+(?:\n#)? (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def code_blocks(*pages: str) -> dict[str, str]:
    """Return file name → text of the code blocks of pages."""
    texts = [(DOCS / f"{page}.md").read_text(encoding="utf-8") for page in pages]
    return dict(block for text in texts for block in _BLOCK.findall(text))


EXAMPLES = code_blocks("add_an_algorithm")


def write_files(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files into a folder, and return the folder."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def write_algorithm(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """Write an algorithm of its page with some of its text replaced, and return the path of its scenario."""
    text = EXAMPLES[f"{name}.py"]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    write_files(folder, {f"{name}.py": text, f"{name}.toml": EXAMPLES[f"{name}.toml"]})
    return folder / f"{name}.toml"
