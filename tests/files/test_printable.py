"""Control characters in titles, names and files reach neither the terminal nor the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import printable
from tests.support.commands import Command
from tests.support.run_folders import rewrite_result

Make = Callable[..., dict[str, Any]]
ESCAPE = "\x1b[2J"
C1 = "\x9b2J"


def _is_plain(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t\r\u00a0" for c in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("α-ring, ε = 4 \u00a0·", "α-ring, ε = 4 \u00a0·"),
        (f"a{ESCAPE}b", "a\\x1b[2Jb"),
        (f"a{C1}b", "a\\x9b2Jb"),
        ("two\nlines\tand", "two\nlines\tand"),
        ("\u202eback\u2028", "\\u202eback\\u2028"),
        ("\x00\x07\x7f\r", "\\x00\\x07\\x7f\\r"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_title_is_shown_and_not_obeyed(command: Command, scenario: Make, tmp_path: Path) -> None:
    def printed(*words: object) -> str:
        return "".join(command(*words)[1:])

    path, out = tmp_path / "given.toml", tmp_path / f"out{ESCAPE}"
    given = scenario(algorithm={"rounds": 2}) | {"title": f"A ring{ESCAPE}{C1}"}
    path.write_text(tomli_w.dumps(given), encoding="utf-8")
    assert load(path).title == "A ring\\x1b[2J\\x9b2J"
    # A file is TOML, which writes control characters out by itself.
    assert _is_plain(printed("list", path))
    said = [printed("plan", path, "--verbose"), printed("run", path, "--out", out, "--verbose")]
    # A folder that somebody else has written is not trusted either.
    result = json.loads((out / "result.json").read_text())
    result["title"] = f"A ring{ESCAPE}"
    rewrite_result(out, result)
    said.append(printed("report", out))
    for text in (*said, (out / "report.html").read_text(encoding="utf-8")):
        assert _is_plain(text)
        assert "\\x1b[2J" in text
    assert "A ring" in (out / "report.html").read_text(encoding="utf-8")
