"""Scenarios of algorithms as their papers publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.published import FORMS, published_kind

_SCENARIOS = Path(__file__).parents[2] / "papers" / "scenarios"


def scenario_file(name: str) -> str:
    """Return the file of a scenario or study ("studies/figures") of the papers, or a shipped name unchanged."""
    path = _SCENARIOS / f"{name}.toml"
    return str(path) if path.is_file() else name


def certified_kind(kind: str) -> str:
    """Return the certified algorithm of a published form, or another name unchanged."""
    return {published_kind(name): name for name in FORMS}.get(kind, kind)


def as_published(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the published form of its algorithm, where its guarantee asks for it."""
    kind = content["algorithm"]["kind"]
    if content.get("privacy", {}).get("guarantee") != "as_published" or kind not in FORMS:
        return content
    return {**content, "algorithm": {**content["algorithm"], "kind": published_kind(kind)}}
