"""Run folders written by hand, as `decentral-dp run` writes them, and their pages read back.

No part of a run is needed to draw or to describe one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from decentral_dp.files.durable import digest
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.releasers import FREE
from decentral_dp.reporting.page import write_report
from decentral_dp.reporting.plots import FIGURES
from decentral_dp.reporting.report import read_report
from decentral_dp.simulation.folder.journal_lines import next_line
from decentral_dp.simulation.result import FORMAT, seal, sha256_of_file, text_of

ALL_FIGURES = {
    "accuracy",
    "consensus",
    "epsilon",
    "losses",
    "stationarity",
    "topology",
    "upper_variable",
    "utility",
}
SCENARIO = """title = "{title}"
description = "It is a test.\\n\\nNothing more."
seed = 7

[problem]
kind = "logistic_hyperparameter"
data = "breast_cancer"
sampling = "full"

[topology]
kind = "ring"
agents = 10

[algorithm]
kind = "ldp_dsbo"
rounds = 20
x = {{ scale = 0.05, decay = 0.95 }}
y = {{ scale = 0.05, decay = 0.87 }}
z = {{ scale = 0.02, decay = 0.75 }}
init = {{ x = -3.0 }}

[privacy]
guarantee = "certified"
mechanism = "gaussian"
epsilon = 4.0
delta = 1e-5
"""


def inf_to_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: inf_to_text(v) for k, v in value.items()}
    if isinstance(value, list):
        return [inf_to_text(v) for v in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


# A statement of privacy in which every field has its plainest value.
STATEMENT: dict[str, Any] = {
    "setting": "gossip",
    "guarantee": "certified",
    "mechanisms": ["gaussian"],
    "protocol": "released",
    "queries": [],
    "releases": {},
    "pools_records": False,
    "constants": None,
    "prices": [],
    "exchanges": 1,
    "clip": None,
    "delta": 1e-5,
    "epsilon_max": 4.0,
    "epsilon_pure_max": "inf",
    "view": "all_messages",
    "epsilon_published": None,
    "target": None,
    "agents": [],
    "at_infinity": None,
    "claimed": None,
    "free_channels": {},
    "noise": "",
    "numerical_slack": None,
    "colluders": 0,
    "shared": None,
    "over_rounds": False,
    "unit_records": 1,
    "most_records": 45,
    "neighbours": "replace",
    "signal": {},
    "unverified": {},
    "uncertified": {},
    "bundles": 0,
    "has_pure_only": False,
}


def write_run(
    folder: Path,
    agents: int = 10,
    rounds: int = 20,
    guarantee: str = "certified",
    title: str = "Regularisation tuning over a ring",
    metrics: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder as `decentral-dp run` writes one; `changes` replaces top-level keys of result.json."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([agents, rounds])
    proven = guarantee == "certified"
    epsilon = np.round(3.2 + 0.8 * np.arange(1, agents + 1) / agents, 6) if proven else np.full(agents, np.inf)
    metrics_of = _metrics(rounds, agents, rng, float(epsilon.max()))
    (metrics_of if metrics else metrics_of[:0]).to_parquet(folder / "metrics.parquet")
    _ledger(agents, rounds, guarantee).to_frame().to_parquet(folder / "ledger.parquet")
    if metrics:
        np.savez(folder / "state.npz", published_x=rng.normal(-2.9, 0.1, (agents, 30)))
    (folder / "scenario.toml").write_text(SCENARIO.format(title=title), encoding="utf-8")
    final = metrics_of[metrics_of["round"] == rounds].set_index("name")["value"].to_dict()
    claimed = {
        "epsilon_max": 320.61,
        "epsilon_max_at_infinity": 3550.2,
        "agents": [300.0 + 20.61 * i / max(1, agents - 1) for i in range(agents)],
        "source": "Theorem 4.5 of Chen & Wang (2024), as published",
    }
    per_agent = [
        {
            "agent": i,
            "epsilon_pure": math.inf,
            "epsilon": float(e),
            "channels": {
                c: {"epsilon": share * float(e), "epsilon_pure": math.inf} for c, share in (("y", 0.6), ("z", 0.7))
            },
            "records": {"train": float(e), "validation": 0.7 * float(e)},
        }
        for i, e in enumerate(epsilon)
    ]
    result = {
        "format": FORMAT,
        "title": title,
        "status": "ok",
        "reason": None,
        "engine": "local",
        "rounds": rounds,
        "rounds_planned": rounds,
        "seconds": 3.21,
        "metrics": {name: value for name, value in final.items() if name != "epsilon_spent"} if metrics else {},
        "evaluated_on": "released_values",
        "averaged": 10,
        "privacy": {
            **STATEMENT,
            "guarantee": guarantee,
            "mechanisms": [] if guarantee == "none" else ["gaussian"],
            "delta": 1e-5,
            "epsilon_max": float(epsilon.max()),
            "epsilon_pure_max": math.inf,
            "view": "all_messages",
            "epsilon_published": None,
            "agents": per_agent,
            "at_infinity": {"finite_data": math.inf, "endless_stream": 2.1399 if proven else None},
            "claimed": claimed if guarantee == "as_published" else None,
            "free_channels": {"x": FREE} if proven else {},
            "noise": "reproducible",
            "numerical_slack": {"epsilon": 1e-12, "delta": 1e-15},
        },
        "topology": {
            "kind": "ring",
            "agents": agents,
            "labels": [str(k) for k in range(agents)],
            "notes": [],
            "has_server": False,
            "edges": [[i, (i + 1) % agents] for i in range(agents)] if agents > 2 else [],
            "rho": 0.8727,
            "spectral_gap": 0.1273,
            "neighbour_weight": [2 / 3] * agents,
            "weights": "metropolis",
        },
        "problem": {
            "kind": "logistic_hyperparameter",
            "solves": "bilevel",
            "data": "breast_cancer",
            "notes": [],
            "warnings": [],
            "p": 30,
            "q": 30,
            "records": {"train": [23] * (agents - 1) + [22], "validation": [22] * agents, "test": 113},
        },
        "versions": {"decentral_dp": "0.1.0", "numpy": np.__version__},
        **(changes or {}),
    }
    rewrite_result(folder, inf_to_text(result))
    return folder


def smallest_letters(figure: str) -> float:
    """Return the size in pixels of the smallest letters of an SVG figure on a screen of 390 pixels."""
    width = float(re.findall(r'viewBox="0 0 (\S+)', figure)[0])
    sizes = re.findall(r"font(?:-size)?: (?:\w+ )?([\d.]+)px", figure)
    return min(map(float, sizes)) * 364 / width


def rewrite_result(folder: Path, content: Mapping[str, Any] | None = None) -> None:
    """Write a result.json with the digests of its text and of the other files of the folder.

    Args:
        folder: of a run.
        content: by default what is there.
    """
    path = folder / "result.json"
    known = json.loads(path.read_text(encoding="utf-8")) if content is None else content
    names = ("metrics.parquet", "ledger.parquet", "state.npz", "scenario.toml")
    digests = {name: sha256_of_file(folder / name) for name in names if (folder / name).is_file()}
    path.write_text(text_of(seal({"format": FORMAT, **known, "files": digests})), encoding="utf-8")


def _metrics(rounds: int, agents: int, rng: np.random.Generator, epsilon: float) -> pd.DataFrame:
    t = np.unique(np.linspace(0, rounds, min(rounds, 60) + 1).astype(int))
    fall = np.exp(-4 * t / max(rounds, 1))
    shapes = {
        "upper_loss": 0.32 + 0.37 * fall,
        "lower_loss": 0.30 + 0.40 * fall,
        "test_loss": 0.34 + 0.36 * fall,
        "test_accuracy": 0.90 - 0.35 * fall,
        "test_accuracy_last": 0.87 - 0.32 * fall,
        "stationarity": 0.01 + 0.2 * fall,
        "consensus_x": 0.02 * (1 - fall),
        "consensus_y": 1.4 * (1 - fall) + 0.01 * rng.random(t.size),
        "consensus_z": 0.6 * (1 - fall) ** 2,
    }
    rows = []
    for name, values in shapes.items():
        spread = 0.0 if agents == 1 else 0.12 * np.abs(values)
        stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
        for side, band in (("", values), ("_min", values - spread), ("_max", values + 0.6 * spread)):
            rows.append(pd.DataFrame({"round": t, "agent": "mean", "name": stem + side + last, "value": band}))
    spent = pd.DataFrame({"round": t, "agent": "mean", "name": "epsilon_spent", "value": 0.0})
    grown = epsilon if math.isinf(epsilon) else epsilon * np.sqrt(t[1:] / max(rounds, 1))
    spent.loc[1:, "value"] = grown
    return pd.concat([*rows, spent], ignore_index=True)


def _ledger(agents: int, rounds: int, guarantee: str) -> Ledger:
    t = np.arange(1, rounds + 1)
    shape = (rounds, 2)
    bound = {"y": {"train": 0.05}, "z": {"train": 0.02, "validation": 0.03}}
    channels = [
        ChannelLedger(
            channel=c,
            mechanism={"none": "none"}.get(guarantee, "gaussian"),
            dimension=30,
            group=np.arange(agents) % 2,
            rounds=t,
            scale=np.broadcast_to((0.0 if guarantee == "none" else 0.4) / (t[:, None] + 1.0) ** 0.3, shape),
            sensitivity={
                kind: np.broadcast_to((s if guarantee == "certified" else np.inf) / t[:, None] ** 0.8, shape)
                * [1.0, 1.3]
                for kind, s in kinds.items()
            },
            rate={kind: np.ones(shape) for kind in kinds},
        )
        for c, kinds in bound.items()
    ]
    zero = np.zeros((rounds, 1))
    free = ChannelLedger("x", "free", 30, np.zeros(agents, dtype=np.int64), t, zero, {}, {}, FREE)
    return Ledger(agents, (*channels, free))


def privacy_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """The privacy entry of a certified run, changed."""
    known = json.loads((write_run(folder) / "result.json").read_text(encoding="utf-8"))["privacy"]
    return {**known, **changes}


VOID = {"source", "meta", "link", "img", "br", "wbr"}
# Pages whose figures do not matter need not draw them.
DOT = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><rect width="1" height="1"/></svg>'


class Page(HTMLParser):
    """Checks that elements nest, and keeps text, resources and table rows."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.resources: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.resources += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "action", "data", "poster")]
        assert not [k for k, _ in attrs if k.startswith("on")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        if ("role", "img") in attrs:
            self.labels.append(dict(attrs).get("aria-label") or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        # As a browser shows it, blanks and ends of lines are one blank, except in a block of code.
        if "pre" not in self.open:
            data = re.sub(r"[ \n\t]+", " ", data)
            data = data.lstrip() if self.text[-1:] in ("", " ") else data
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, head: str) -> list[str]:
        return next(row[1:] for row in self.rows if row and row[0] == head)


def figure_of(name: str, folder: Path) -> Any | None:
    """A figure; None where it is left out."""
    from matplotlib.figure import Figure

    figure = Figure()
    return figure if FIGURES[name](figure, read_report(folder)) else None


def axes_of(name: str, folder: Path) -> list[Any]:
    figure = figure_of(name, folder)
    assert figure is not None
    axes: list[Any] = figure.axes
    return axes


def read_page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def page_of(folder: Path, **options: Any) -> Page:
    """The page of a run whose figures are not drawn."""
    write_run(folder, **options)
    (folder / "plots").mkdir()
    (folder / "plots" / "topology.svg").write_bytes(DOT)
    return read_page(write_report(folder))


def rewrite_journal(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]] = lambda entry: entry) -> None:
    """Rewrite the journal of an unfinished run for the current scenario and noise key.

    Args:
        folder: of the run.
        change: entry → new entry.
    """
    place, chain, lines = folder / "in_progress", "", []
    bound = {
        "scenario": digest((folder / "scenario.toml").read_bytes()),
        "noise_key": digest((place / "noise_root.json").read_bytes()),
    }
    for line in (place / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        entry = {key: value for key, value in json.loads(line).items() if key != "chain"}
        made, chain = next_line(chain, change(entry | (bound if "format" in entry else {})))
        lines.append(made)
    (place / "journal.jsonl").write_bytes(b"".join(lines))
