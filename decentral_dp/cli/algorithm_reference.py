"""The reference of all registered algorithms, written from their fields and entries.

python -m decentral_dp.cli.reference
"""

from __future__ import annotations

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import Option, constraint
from decentral_dp.config.algorithm_schema import AlgorithmTable

_OPENING = """# Algorithms

Written from the code by `python -m decentral_dp.cli.reference`; a change belongs there.

An algorithm is named by `algorithm.kind`. `decentral-dp show KIND` prints its derivation and the tables to start from;
[Add an algorithm](../add_an_algorithm.md) says how to bring one.
"""
_SETTINGS = {
    (False, "bilevel"): "gossip or a server, agents trust nobody; bilevel problems",
    (True, "bilevel"): "a trusted coordinator; bilevel problems",
    (True, "minimax"): "a trusted coordinator; minimax problems",
}


def algorithm_pages() -> dict[str, str]:
    """File name → text of the reference's pages on algorithms."""
    parts = [_OPENING, _common(), _readers(), *(_section(entry) for entry in ALGORITHMS.values())]
    return {"algorithms.md": "\n".join(parts)}


def _common() -> str:
    """The keys that every algorithm has."""
    rows = []
    for key, field in AlgorithmTable.model_fields.items():
        default = "required" if field.is_required() else _code(field.default)
        rows.append(f"| `{key}` | {_cell(field.description or '')} | {default} |")
    return "\n".join(["## Keys of every algorithm", "", "| key | meaning | default |", "|---|---|---|", *rows, ""])


def _readers() -> str:
    """Own keys, and which algorithms read them."""
    readers: dict[str, list[str]] = {}
    for entry in ALGORITHMS.values():
        for option in entry.keys:
            readers.setdefault(option.key, []).append(f"[{entry.kind}](#{entry.kind})")
    rows = [f"| `{key}` | {', '.join(names)} |" for key, names in sorted(readers.items())]
    return "\n".join(["## Who reads which key", "", "| key | read by |", "|---|---|", *rows, ""])


def _section(entry: Entry) -> str:
    """One algorithm: what it is, where it fits, its keys, its sources."""
    lines = [f"## {entry.kind}", "", f"{entry.summary[0].upper()}{entry.summary[1:]}.", ""]
    lines += [f"- Setting: {_SETTINGS[entry.trusted, entry.solves]}."]
    if entry.pure:
        lines.append("- Adds no Gaussian noise: δ = 0 will do.")
    if entry.private:
        lines.append('- Knows `protocol = "private"`.')
    if entry.claim:
        lines.append(f'- `guarantee = "as_printed"` runs {entry.claim}.')
    if entry.message:
        lines.append(f"- Message t {entry.message}")
    lines += [f"- {cited.part}: {cited.work.text}" for cited in entry.citations]
    lines += [f"- Module: `{entry.home}`.", ""]
    keys = entry.keys
    if keys:
        head = ["| key | meaning | unit | value | default | example |", "|---|---|---|---|---|---|"]
        lines += [*head, *(_row(option) for option in keys), ""]
    return "\n".join(lines)


def _row(o: Option) -> str:
    default = "required" if o.required else "–" if o.default is None else _code(o.default)
    return (
        f"| `{o.key}` | {_cell(o.description)} | {o.unit or '–'} | {_cell(constraint(o))} | {default} | `{o.example}` |"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: object) -> str:
    if value is None:
        return "–"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return f"`{text}`"
