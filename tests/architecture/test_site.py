"""The documentation site: navigation, links and shown commands."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from markdown_it import MarkdownIt

from decentral_dp.cli.describe import registries
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.studies.schema import load_study
from docs.reference_pages import COMMANDS, INDEX, generate_pages
from papers import resolve_name

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
NAMES = [str(page.relative_to(ROOT)) for page in [*PAGES, ROOT / "README.md"]]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]*\bsrc=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
# Placeholders: NAME, FOLDER, NAME_OR_FILE, ….
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+|…")
FILE = re.compile(r"[\w./-]+\.(?:toml|py)(?::\w+)?|runs/[\w-]+")


class Loader(yaml.SafeLoader):
    """YAML without the Python names of mkdocs."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)  # type: ignore[no-untyped-call]


def settings() -> dict[str, Any]:
    found = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    assert isinstance(found, dict)
    return found


def entries(nav: Any) -> Iterator[str]:
    """Paths of pages, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from entries(part)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(h) for h in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))}


def broken(page: Path, text: str) -> list[str]:
    """Missing targets of relative links and images."""
    found = []
    for link, picture in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        target = link or picture
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        # The site has only docs/.
        outside = page.is_relative_to(DOCS) and not (aim.is_relative_to(DOCS) and aim.is_file())
        if outside or not aim.exists() or (anchor and anchor not in anchors(aim)):
            found.append(target)
    return found


def shown_in(text: str) -> Iterator[list[str]]:
    """The words of every `decentral-dp …` command of a page, without comments, pipes and redirections."""
    lines = [
        line
        for language, block in FENCE.findall(text)
        for line in block.replace("\\\n", " ").splitlines()
        if language == "sh" or line.startswith("decentral-dp ")
    ]
    lines += [span.replace("\n", " ") for span in CODE.findall(FENCE.sub("", text)) if span.startswith("decentral-dp ")]
    for line in lines:
        for part in line.split("&&"):
            found = re.search(r"(?:^|\s|/)decentral-dp +(\S.*)", part)
            if found:
                # Two or more spaces precede an explanation.
                words = re.split(r"\s{2,}|\s#\s|\s[|>]\s", found[1])[0]
                yield shlex.split(words)


@functools.cache
def registered() -> frozenset[str]:
    return frozenset(name for lines in registries(titles=False).values() for name in lines)


def require_known(words: list[str], text: str) -> None:
    """Raise if the command, an option, a name or a key is unknown, or a file not in the text. Nothing is run."""
    group: Any = typer.main.get_command(app)
    command = group.commands[words[0]]
    arguments = words[1:]
    if not arguments or any(PLACEHOLDER.fullmatch(word) for word in arguments):
        return
    values = command.make_context(words[0], list(arguments)).params
    overrides = values.get("override") or []
    # The first parameter is the subject of the command.
    subject = values.get(command.params[0].name)
    for name in map(str, filter(None, subject if isinstance(subject, (list, tuple)) else [subject])):
        if words[0] in ("resume", "report", "compare", "predict"):
            continue
        if FILE.fullmatch(name):
            file = Path(name.partition(":")[0])
            known = name.startswith("runs/") or (ROOT / file).is_file() or text.count(file.name) > 1
            assert known, f"{file.name} is shown nowhere else"
        elif words[0] == "study":
            load_study(name, overrides)
        elif ":" in name:
            assert f"{name.partition(':')[0]}.py" in text, name
        elif words[0] in ("list", "check"):
            assert name in registered() | {*registries(titles=False)}, name
        else:
            load(name, overrides)


def test_every_page_is_in_the_navigation_once_and_every_entry_exists() -> None:
    pages = [str(page.relative_to(DOCS)) for page in (*PAGES, *NOTEBOOKS)]
    assert sorted(entries(settings()["nav"])) == sorted([*pages, INDEX, COMMANDS])


def test_nothing_is_fetched_from_other_sites() -> None:
    found = settings()
    assert found["theme"]["font"] is False
    assert found["strict"] is True
    for key in ("extra_css", "extra_javascript"):
        for file in found.get(key, []):
            assert (DOCS / file).is_file(), file


@pytest.mark.parametrize("name", NAMES)
def test_links_and_images_have_targets(name: str) -> None:
    page = ROOT / name
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", NAMES)
def test_shown_commands_exist(name: str) -> None:
    # A page may use the files of another one.
    every = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for words in shown_in((ROOT / name).read_text(encoding="utf-8")):
        require_known(words, every)


@pytest.mark.parametrize("name", NAMES)
def test_shown_experiments_exist(name: str) -> None:
    for line in re.findall(r"python -m papers +([^`#\n]*)", (ROOT / name).read_text(encoding="utf-8")):
        for word in line.split():
            assert word.startswith("--") or word in ("NAME", "published_epsilon") or resolve_name(word)


def test_commands_and_links_are_found() -> None:
    """Otherwise a wrong pattern would pass."""
    shown = {p: list(shown_in((ROOT / p).read_text(encoding="utf-8"))) for p in NAMES}
    assert ["plan", "papers/scenarios/paper_boxed.toml"] in shown["docs/papers/ldp_dsbo.md"]
    assert ["resume", "runs/long"] in shown["docs/index.md"]
    assert ["plan", "momentum.toml"] in shown["docs/add_an_algorithm.md"]
    assert ["run", "ring_breast_cancer"] in shown["README.md"]
    assert sum(map(len, shown.values())) > 100
    assert len(LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))) > 10


@pytest.mark.parametrize("name", NAMES)
def test_no_subscript_becomes_emphasis(name: str) -> None:
    """An underscore after a sign, as in z'_t, would open emphasis: it is escaped, and emphasis has stars."""
    # Markdown counts an accent as punctuation. KaTeX renders formulas between dollars.
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"[\u0300-\u036f]_", "'_", text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    marks = [(line.map, part.markup) for line in tokens for part in line.children or () if part.type.endswith("_open")]
    assert [place for place, markup in marks if markup.startswith("_")] == []


def test_the_first_run_is_that_of_the_readme() -> None:
    """Another test compares the block of the README with a run."""
    shown = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- main job -->")[2]
    lines = FENCE.findall(shown.partition("<!-- /main job -->")[0])[0][1]
    assert len(lines.splitlines()) > 5
    assert lines in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_commands_follow_the_activation_of_their_environment(name: str) -> None:
    blocks = FENCE.findall((ROOT / name).read_text(encoding="utf-8"))
    block = next(block for _, block in blocks if "pip install" in block)
    assert ". .venv/bin/activate" in block
    assert ".venv/bin/decentral-dp" not in block


def test_the_table_of_epsilon_is_what_its_lines_print() -> None:
    page = (DOCS / "what_epsilon_means.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)[0]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "what_epsilon_means.md", "exec"), {})
    assert out.getvalue() == printed


def test_the_site_is_built(tmp_path: Path) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings", "mkdocs_jupyter")):
        pytest.skip('the site\'s tools are not installed: pip install ".[docs]"')
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (*PAGES, *(DOCS / name for name in generate_pages())):
        built = page.relative_to(DOCS).with_suffix(".html")
        file = tmp_path / "site" / (built.with_name("index.html") if page.stem == "README" else built)
        # An unknown fence would stay in the text.
        assert "```" not in file.read_text(encoding="utf-8"), built
    page = (tmp_path / "site" / "reference" / "algorithms" / "dp_dsgd.html").read_text(encoding="utf-8")
    assert "a number, or { scale, decay, points }" in page
    python = (tmp_path / "site" / "python.html").read_text(encoding="utf-8")
    assert 'id="decentral_dp.run"' in python
    notebooks = [(tmp_path / "site" / n.relative_to(DOCS).with_suffix(".html")) for n in NOTEBOOKS]
    shown = [notebook.read_text(encoding="utf-8") for notebook in notebooks]
    assert all("ε" in text and '<script type="application/vnd.jupyter.widget' not in text for text in shown)
    for text in (python, *shown):
        scripts = re.findall(r"<(?:script|link)[^>]+(?:src|href)=\"(https?:[^\"]+\.(?:js|css|woff2?))\"", text)
        assert scripts == []
