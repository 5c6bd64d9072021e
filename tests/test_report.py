"""Figures and the page, from run folders written here by hand: no part of a run is needed to read one."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from decentral_dp.errors import InputError
from decentral_dp.plots import FIGURES, write_plots
from decentral_dp.plots.axes import change
from decentral_dp.plots.drawing import Curve, curve, read_drawing
from decentral_dp.plots.network import layout
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.report import write_report
from decentral_dp.report.markup import tag
from decentral_dp.report.text import epsilon_text, number, power_text

ALL_FIGURES = {"accuracy", "consensus", "epsilon", "hypergradient", "losses", "noise", "topology", "upper_variable"}
SCENARIO = """title = "{title}"
description = "It is a test.\\n\\nNothing more."
seed = 7

[problem]
kind = "logistic_hyperparameter"
data = "breast_cancer"
stream = "all"

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
CONDITIONS = (("2ς_x > v_x", 0.67), ("2ς_x > v_z + v_y", 0.0), ("2ς_y > v_z + v_y", -0.08), ("2ς_z > v_y", 0.35))


def inf_to_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: inf_to_text(v) for k, v in value.items()}
    if isinstance(value, list):
        return [inf_to_text(v) for v in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


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
        "source": "Theorem 4.5 of Chen & Wang (2024), as printed",
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
        "status": "ok",
        "reason": None,
        "engine": "local",
        "rounds": rounds,
        "rounds_planned": rounds,
        "seconds": 3.21,
        "metrics": {name: value for name, value in final.items() if name != "epsilon_spent"} if metrics else {},
        "evaluated_on": "average of the last 10 released values",
        "privacy": {
            "guarantee": guarantee,
            "mechanism": "gaussian",
            "delta": 1e-5,
            "protocol": "released state (P1)",
            "epsilon_max": float(epsilon.max()),
            "epsilon_pure_max": math.inf,
            "agents": per_agent,
            "at_infinity": {"finite_data": math.inf, "endless_stream": 2.1399 if proven else None},
            "claimed": claimed if guarantee == "as_printed" else None,
            "free_channels": {"x": "touches no data"} if proven else {},
            "noise": "reproducible from the recorded seed, therefore a simulation",
            "numerical_slack": {"epsilon": 1e-12, "delta": 1e-15},
            "notes": ["The first release of every channel is data-independent and free."],
        },
        "theorem": {
            "name": "Theorem 4.1 of Chen & Wang (2024)",
            "cases": [
                {
                    "case": case,
                    "holds": False,
                    "rate": "O(T^-0.05)",
                    "conditions": [{"condition": c, "holds": m > 0, "margin": m} for c, m in CONDITIONS],
                }
                for case in ("(i) strongly convex", "(ii) convex", "(iii) nonconvex")
            ],
        },
        "topology": {
            "kind": "ring",
            "agents": agents,
            "edges": [[i, (i + 1) % agents] for i in range(agents)] if agents > 2 else [],
            "rho": 0.8727,
            "spectral_gap": 0.1273,
            "self_weight": [2 / 3] * agents,
            "weights": "metropolis",
        },
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "breast_cancer",
            "p": 30,
            "q": 30,
            "records": {"train": [23] * (agents - 1) + [22], "validation": [22] * agents, "test": 113},
        },
        "versions": {"decentral_dp": "0.1.0", "numpy": np.__version__},
        **(changes or {}),
    }
    (folder / "result.json").write_text(json.dumps(inf_to_text(result)), encoding="utf-8")
    return folder


def _metrics(rounds: int, agents: int, rng: np.random.Generator, epsilon: float) -> pd.DataFrame:
    t = np.unique(np.linspace(0, rounds, min(rounds, 60) + 1).astype(int))
    fall = np.exp(-4 * t / max(rounds, 1))
    shapes = {
        "upper_loss": 0.32 + 0.37 * fall,
        "lower_loss": 0.30 + 0.40 * fall,
        "test_loss": 0.34 + 0.36 * fall,
        "test_accuracy": 0.90 - 0.35 * fall,
        "test_accuracy_last": 0.87 - 0.32 * fall,
        "hypergradient_norm": 0.01 + 0.2 * fall,
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
    free = ChannelLedger("x", "free", 30, np.zeros(agents, dtype=np.int64), t, zero, {}, {}, "touches no data")
    return Ledger(agents, (*channels, free))


# --- reading pages -------------------------------------------------------------------------------------------------

VOID = {"meta", "link", "img", "br"}
# A red dot: pages whose figures do not matter need not draw them.
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
    "18dd8db00000000049454e44ae426082"
)


class Page(HTMLParser):
    """Checks that elements nest, and keeps text, resources and table rows."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.resources: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.resources += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "action", "data", "poster")]
        assert not [k for k, _ in attrs if k.startswith("on")]
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
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, head: str) -> list[str]:
        return next(row[1:] for row in self.rows if row and row[0] == head)


def read_page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def page_of(folder: Path, **options: Any) -> Page:
    """The page of a run whose figures are not drawn."""
    write_run(folder, **options)
    (folder / "plots").mkdir()
    (folder / "plots" / "topology.png").write_bytes(DOT)
    return read_page(write_report(folder))


def privacy_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """The privacy entry of a certified run, changed."""
    known = json.loads((write_run(folder) / "result.json").read_text(encoding="utf-8"))["privacy"]
    return {**known, **changes}


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("certified"))
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def as_printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("as_printed"), guarantee="as_printed")
    write_report(folder)
    return folder


# --- numbers -------------------------------------------------------------------------------------------------------


def parsed(text: str) -> Decimal:
    """The number that a printed budget states."""
    back = text.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return Decimal(re.sub(r"·10(-?\d+)$", r"E\1", back))


@given(st.floats(min_value=1e-12, max_value=1e40))
def test_a_budget_is_never_printed_below_its_value(value: float) -> None:
    stated = parsed(epsilon_text(value))
    assert float(stated) >= value
    assert float(stated) <= value * 1.011 or float(stated) - value <= 0.01


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.0, "4.00"),
        (3.9900001, "4.00"),
        (3.99, "3.99"),
        (2.2, "2.20"),  # The float lies a little above 2.2, its shortest decimal does not.
        (320.6, "320.60"),
        (0.0012341, "0.00124"),
        (12345.678, "12345.7"),
        (2.0e30, "2.00·10³⁰"),
        (9.999e-7, "1.00·10⁻⁶"),
        (0.0, "0"),
        (math.inf, "∞"),
        (None, "–"),
    ],
)
def test_budget_texts(value: float | None, text: str) -> None:
    assert epsilon_text(value) == text


def test_numbers_of_result_json() -> None:
    assert number("inf") == math.inf
    assert number(3) == 3.0
    assert [number(v) for v in (None, True, "many", [1.0])] == [None] * 4
    assert [power_text(v) for v in (0.0, 0.35, 1e-12, 2.5e7, 1234.0, -math.inf)] == [
        "0",
        "0.35",
        "10⁻¹²",
        "2.5·10⁷",
        "1234",
        "−∞",
    ]
    assert power_text(0.35, pad=True) == "0.350"


@given(st.text())
@example('"><script>&amp;')
def test_text_cannot_leave_its_element(text: str) -> None:
    page = Page(tag("p", text, title=text).markup)
    assert page.tags == ["p"]
    assert page.text == text.replace("\r\n", "\n").replace("\r", "\n") or "\r" in text or "\x00" in text


# --- the page ------------------------------------------------------------------------------------------------------


def test_a_page_is_self_contained_and_shows_every_figure(certified: Path) -> None:
    markup = (certified / "report.html").read_text(encoding="utf-8")
    page = Page(markup)
    assert markup.startswith("<!DOCTYPE html>")
    assert {p.stem for p in (certified / "plots").iterdir()} == ALL_FIGURES
    assert page.tags.count("img") == len(ALL_FIGURES)
    assert all(r.startswith("data:") for r in page.resources)
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\(|@import", markup)
    assert len(markup) < 3_000_000


def test_the_page_says_what_was_run_and_what_is_guaranteed(certified: Path) -> None:
    text = read_page(certified / "report.html").text
    for sentence in (
        "Regularisation tuning over a ring",
        "Ten agents on a ring tuned the regularisation of a logistic regression (breast_cancer data); "
        "certified ε ≤ 4.00 per agent at δ = 1e-5; mean held-out accuracy 0.89.",
        "22 to 23 train records per agent",
        "λx = 0.05/(t+1)0.95",
        "differ in one record of one agent",
        "metrics, curves and plots, this very page",
        "This is a simulation",
        "Channel x is free: touches no data.",
        "ε → ∞. Once all records are in use",
        "ε → 2.14, if new records kept arriving for ever: an ε at δ = 1e-5, in exact arithmetic. Not a budget of this",
        "Each ε includes what float64 costs",
        "may add up to 1.00·10⁻¹² to an agent's ε and 1.00·10⁻¹⁵ to its δ",
        "It is a test.",
        "Each round of gossip shrinks disagreement at least by the factor ρ = 0.8727",
        "The first release of every channel is data-independent and free.",
        "ICML 2024, PMLR 235",
        "not the paper's Theorem 4.5",
        'title = "Regularisation tuning over a ring"',
    ):
        assert sentence in text
    assert "laimed" not in text.split("Scenario")[0]


def test_the_budget_table_rounds_up(tmp_path: Path) -> None:
    page = page_of(tmp_path / "run")
    assert page.row("0") == ["3.28", "∞", "1.97", "2.30", "3.28", "2.30"]  # 3.28, 1.968, 2.296, 3.28, 2.296
    assert page.row("9")[0] == "4.00"
    entry = {"agent": 0, "epsilon_pure": 7.0001, "epsilon": 3.9912, "channels": {}, "records": {}}
    privacy = privacy_of(tmp_path / "known", agents=[entry], epsilon_max=3.9912)
    page = page_of(tmp_path / "other", changes={"privacy": privacy})
    assert page.row("0") == ["4.00", "7.01"]
    assert "3.99" not in page.text


def test_a_claim_is_never_shown_without_its_label(as_printed: Path) -> None:
    page = read_page(as_printed / "report.html")
    assert "certified ε = ∞ at δ = 1e-5 (claimed by the paper, not certified: 320.61)" in page.text
    assert "The claimed number 320.61 (Theorem 4.5 of Chen & Wang (2024), as printed) is not a guarantee." in page.text
    assert "Nothing can be proven for this protocol" in page.text
    assert "by ε = ∞, which protects nothing" in page.text
    assert "ε → 3550.2" in page.text
    header = next(row for row in page.rows if row and row[0] == "Agent")
    assert header[-1] == "Claimed, not certified"
    assert page.row("9") == ["∞"] * 6 + ["320.61"]
    for before in (page.text[: m.start()] for m in re.finditer("320.61", page.text)):
        assert "laimed" in before[-40:] or before.endswith("∞")  # The last is the labelled column of the table.


def test_no_noise_means_no_budget(tmp_path: Path) -> None:
    privacy = privacy_of(tmp_path / "known", guarantee="none", noise="off")
    page = page_of(tmp_path / "run", guarantee="none", changes={"privacy": privacy})
    assert "no noise was added, so nothing is private" in page.text
    assert "nothing is private." in page.text
    assert "Budget of every agent" not in page.text
    assert "Covered" not in page.text
    assert "simulation:" not in page.text


def test_an_undefined_claim_is_said_to_be_undefined(tmp_path: Path) -> None:
    claim = {"epsilon_max": None, "epsilon_max_at_infinity": None, "agents": [None] * 10, "source": "Theorem 4.5"}
    privacy = privacy_of(tmp_path / "known", guarantee="as_printed", claimed=claim)
    page = page_of(tmp_path / "run", changes={"privacy": privacy})
    assert "The claimed number (Theorem 4.5) is undefined on this graph." in page.text
    assert page.row("9")[-1] == "–"
    assert "What can be proven for it is ε = 4.00 at δ = 1e-5." in page.text


def test_metrics_are_listed_with_their_range_and_without_the_budget(tmp_path: Path) -> None:
    values = {"test_accuracy_last": 0.9, "test_accuracy_last_min": 0.8, "test_accuracy_last_max": 0.95}
    values |= {"test_loss_unreleased": 0.3, "upper_loss": 0.25, "upper_loss_min": 0.2, "upper_loss_max": None}
    page = page_of(tmp_path / "run", changes={"metrics": {**values, "epsilon_spent": 3.991}})
    assert page.row("Test accuracy (held-out records), last released values") == ["0.900", "0.800", "0.950"]
    assert page.row("Test loss (held-out records), unreleased state") == ["0.300", "", ""]
    assert page.row("Upper loss (validation records)") == ["0.250", "0.200", ""]
    listed = [row[0] for row in page.rows if row]
    assert listed.index("Upper loss (validation records)") < listed.index(
        "Test loss (held-out records), unreleased state"
    )
    assert "3.99" not in page.text


def test_secret_noise_is_not_called_a_simulation(tmp_path: Path) -> None:
    privacy = privacy_of(tmp_path / "known", noise="secret")
    text = page_of(tmp_path / "run", changes={"privacy": privacy}).text
    assert "simulation:" not in text
    assert "written nowhere" in text


@pytest.mark.parametrize(
    ("status", "heading"),
    [
        ("diverged", "This run diverged after round 3 of 20."),
        ("budget_reached", "This run stopped at its privacy cap after round 3 of 20."),
        ("lost", "This run ended with status “lost” after round 3 of 20."),
    ],
)
def test_another_status_than_ok_is_shown_with_its_reason(tmp_path: Path, status: str, heading: str) -> None:
    changes = {"status": status, "reason": "y is not finite", "rounds_planned": 20}
    page = page_of(tmp_path / "run", rounds=3, changes=changes)
    assert f"{heading} y is not finite" in page.text
    assert page.text.index(heading) < page.text.index("What was run")
    assert "3 of 20" in page.text


def test_everything_from_the_user_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&amp;</details>"
    result = json.loads((write_run(tmp_path / "known") / "result.json").read_text(encoding="utf-8"))

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: poison(v) for k, v in value.items()}
        if isinstance(value, list):
            return [poison(v) for v in value]
        return evil if isinstance(value, str) and value != "inf" else value

    changes = poison(result)
    changes["privacy"]["guarantee"] = "certified"
    page = page_of(tmp_path / "run", title=evil, changes=changes)
    assert "script" not in page.tags
    assert page.text.count(evil) > 12


def test_equal_agents_share_a_row_and_many_agents_a_summary(tmp_path: Path) -> None:
    entry = {"epsilon_pure": "inf", "epsilon": 2.0, "channels": {}, "records": {}}
    same = [{"agent": i, **entry} for i in range(10)]
    page = page_of(tmp_path / "same", changes={"privacy": privacy_of(tmp_path / "known", agents=same)})
    assert page.row("all 10") == ["2.00", "∞"]
    same[3] = {**same[3], "epsilon": 2.5}
    page = page_of(tmp_path / "one", changes={"privacy": privacy_of(tmp_path / "known", agents=same)})
    assert page.row("0–2, 4–9") == ["2.00", "∞"]
    page = page_of(tmp_path / "many", agents=1000, rounds=2)
    assert page.row("lowest of 1000")[0] == "3.21"
    assert page.row("median of 1000")[0] == "3.61"
    assert page.row("highest of 1000")[0] == "4.00"
    assert page.row("agent 999")[0] == "4.00"
    assert len(page.rows) < 50
    assert "1000 agents on a ring" in page.text


def test_failing_conditions_are_named_with_their_margins(tmp_path: Path) -> None:
    page = page_of(tmp_path / "run")
    assert "(ii) convex: 2 of 4 conditions fail." in page.text
    assert page.row("2ςx > vx") == ["+0.67", *["holds"] * 3]
    assert page.row("2ςx > vz + vy") == ["0", *["fails"] * 3]
    assert page.row("2ςy > vz + vy") == ["−0.08", *["fails"] * 3]
    cases = [{"case": "(ii) convex", "holds": True, "rate": "O(T^-0.23)", "conditions": []}]
    text = page_of(tmp_path / "holds", changes={"theorem": {"name": "Theorem 4.1", "cases": cases}}).text
    assert "(ii) convex: applies: O(T−0.23)" in text


def test_a_condition_is_marked_only_in_the_cases_that_ask_for_it(tmp_path: Path) -> None:
    cases = [
        {
            "case": "(i)",
            "holds": False,
            "rate": None,
            "conditions": [{"condition": "a > b", "holds": False, "margin": -1}],
        },
        {
            "case": "(ii)",
            "holds": True,
            "rate": None,
            "conditions": [{"condition": "c > d", "holds": True, "margin": 2.5}],
        },
    ]
    page = page_of(tmp_path / "run", changes={"theorem": {"name": "Theorem 4.1", "cases": cases}})
    assert page.row("a > b") == ["−1", "fails", ""]
    assert page.row("c > d") == ["+2.5", "", "holds"]
    assert "(ii): applies." in page.text


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no result\.json"):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not JSON"):
        write_plots(tmp_path)
    (tmp_path / "result.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="wanted an object"):
        write_report(tmp_path)


def test_a_bare_result_still_makes_a_page(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"status": "diverged"}', encoding="utf-8")
    page = read_page(write_report(tmp_path))
    assert "This run diverged" in page.text
    assert "img" not in page.tags
    assert "No curves" in page.text


def test_the_limit_of_laplace_noise_is_called_pure(tmp_path: Path) -> None:
    known = privacy_of(tmp_path / "known", mechanism="laplace")
    text = page_of(tmp_path / "run", changes={"privacy": known}).text
    assert "ε → 2.14, if new records kept arriving for ever: a pure ε (δ = 0), in exact arithmetic." in text
    known["at_infinity"] = {"finite_data": "inf", "endless_stream": "inf"}
    text = page_of(tmp_path / "endless", changes={"privacy": known}).text
    assert "ε → ∞, even if new records kept arriving for ever" in text


def test_only_what_was_released_under_a_finite_budget_may_be_passed_on(certified: Path, as_printed: Path) -> None:
    text = read_page(certified / "report.html").text
    assert "To pass results on, copy the arrays released_… and published_… in state.npz" in text
    assert "only after a run whose noise is secret" in text
    assert "To pass results on" not in read_page(as_printed / "report.html").text


def test_numbers_of_a_diverged_run_are_said_to_be_older(tmp_path: Path) -> None:
    changes = {"status": "diverged", "reason": "the value of y stopped being finite", "rounds_planned": 20}
    text = page_of(tmp_path / "run", rounds=3, changes=changes).text
    assert "mean held-out accuracy 0.89 before it diverged." in text
    assert "The value of y stopped being finite. Budgets are those of the whole plan" in text
    assert "at the last evaluation before it diverged" in text
    assert "The last evaluation before the run diverged." in text


def test_the_noise_is_stated_as_scales_or_as_what_it_was_fitted_to(tmp_path: Path) -> None:
    privacy = privacy_of(tmp_path / "known", target=4.0)
    text = page_of(tmp_path / "fitted", changes={"privacy": privacy}).text
    assert "Gaussian, as much as ε = 4 needs over all planned rounds" in text
    page_of(tmp_path / "stated")
    scenario = tmp_path / "stated" / "scenario.toml"
    scenario.write_text(f"{scenario.read_text(encoding='utf-8')}y = {{ scale = 0.5, decay = 0.1 }}\n", encoding="utf-8")
    assert "Gaussian, σy = 0.5/(t+1)0.1" in read_page(write_report(tmp_path / "stated")).text


# --- figures -------------------------------------------------------------------------------------------------------


def axes_of(name: str, folder: Path) -> list[Any]:
    from matplotlib.figure import Figure

    figure = Figure()
    assert FIGURES[name](figure, read_drawing(folder))
    return figure.axes


def test_curves_and_bands_are_the_metrics(certified: Path) -> None:
    metrics = pd.read_parquet(certified / "metrics.parquet")
    lines = {line.get_label(): line.get_ydata() for line in axes_of("losses", certified)[0].lines}
    expected = metrics[metrics["name"] == "test_loss"]["value"].to_numpy()
    np.testing.assert_array_equal(lines["test loss (held out)"], expected)
    found = curve(metrics, "test_accuracy_last")
    assert found is not None
    np.testing.assert_array_equal(found.low, metrics[metrics["name"] == "test_accuracy_min_last"]["value"])
    assert curve(metrics, "test_loss_unreleased") is None
    by_agent = pd.DataFrame({"round": [0, 0, 1, 1], "agent": ["0", "1"] * 2, "name": "loss", "value": [1.0, 3, 2, 6]})
    band = curve(by_agent, "loss")
    assert band is not None
    assert [list(v) for v in (band.low, band.mean, band.high)] == [[1, 2], [2, 4], [3, 6]]


def test_titles_say_what_the_curve_does() -> None:
    def words(*values: float) -> str:
        mean = np.array(values)
        return change("Loss", Curve(np.arange(mean.size) * 5.0, mean, mean, mean, None))

    assert words(0.7, 0.5, 0.4) == "Loss falls from 0.7 to 0.4"
    assert words(0.4, 0.41, 0.7) == "Loss rises from 0.4 to 0.7"
    assert words(0.7, 0.2, 0.4) == "Loss falls from 0.7 to 0.4, through 0.2 at round 5"
    assert words(0.7, 2.0, 0.1, 0.7) == "Loss starts and ends at 0.7, through 2 at round 5 and 0.1 at round 10"
    assert words(0.7, 0.701, 0.7) == "Loss stays at 0.7"
    assert words(0.7) == "Loss at round 0: 0.7"


def test_a_single_evaluation_has_readable_axes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3, changes={"status": "diverged"})
    frame = pd.read_parquet(folder / "metrics.parquet")
    frame[frame["round"] == 0].to_parquet(folder / "metrics.parquet")
    for name in ("losses", "accuracy"):
        ax = axes_of(name, folder)[0]
        low, high = ax.get_xlim()
        assert [tick for tick in ax.get_xticks() if low <= tick <= high] == [0.0]
        assert np.ptp(ax.get_ylim()) > 5e-3
        assert "at round 0" in ax.get_title(loc="left")


def test_the_upper_variable_is_drawn_per_coordinate(tmp_path: Path) -> None:
    folder = write_run(tmp_path, agents=3)
    x = np.array([[-3.2, -2.0], [-3.0, -1.0], [-2.5, -3.0]])
    np.savez(folder / "state.npz", published_x=x)
    ax = axes_of("upper_variable", folder)[0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [-2.9, -2.0])
    np.testing.assert_allclose([s[:, 1] for s in ax.collections[0].get_segments()], [[-3.2, -2.5], [-3.0, -1.0]])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [-3.0, -3.0])
    assert ax.get_title(loc="left") == "x ends between −2.9 and −2; it started at −3"
    for bad in (np.full((3, 2), np.inf), np.zeros((3, 101))):
        np.savez(folder / "state.npz", published_x=bad)
        assert "upper_variable" not in {p.stem for p in write_plots(folder)}


@pytest.mark.parametrize(
    ("guarantee", "changes"),
    [
        ("certified", {"cap": 4.0}),
        ("certified", {"cap": 4.05}),
        ("as_printed", {"epsilon_max": "inf", "claimed": {"epsilon_max": 4.1}}),
        ("as_printed", {"epsilon_max": "inf", "claimed": {"epsilon_max": 1e6}}),
    ],
)
def test_names_of_budgets_do_not_overlap(tmp_path: Path, guarantee: str, changes: dict[str, Any]) -> None:
    privacy = privacy_of(tmp_path, guarantee=guarantee, **changes)
    folder = write_run(tmp_path, guarantee=guarantee, changes={"privacy": privacy})
    ax = axes_of("epsilon", folder)[0]
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) >= 2
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]


def test_no_figure_of_a_budget_that_nothing_spends(tmp_path: Path) -> None:
    folder = write_run(tmp_path, changes={"privacy": privacy_of(tmp_path, epsilon_max=0.0)})
    assert "epsilon" not in {p.stem for p in write_plots(folder)}


def test_certified_and_claimed_budgets_are_both_on_the_axis(tmp_path: Path) -> None:
    claimed = {"epsilon_max": 320.61, "agents": []}
    folder = write_run(tmp_path, changes={"privacy": privacy_of(tmp_path, claimed=claimed, cap=4.5)})
    ax = axes_of("epsilon", folder)[0]
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "log"
    assert low < 4.0 < 320.61 < high
    texts = " ".join(t.get_text() for t in ax.texts)
    assert "target: 4.00" in texts
    assert "cap: 4.50" in texts
    assert "claimed by the paper, not certified: 320.61" in texts


def test_the_noise_figure_shows_the_ledger(certified: Path) -> None:
    left, right = axes_of("noise", certified)
    t = np.arange(1, 21)
    assert [line.get_label() for line in right.lines] == ["y, train", "z, train", "z, validation"]
    np.testing.assert_allclose(left.lines[0].get_ydata(), 0.4 / (t + 1.0) ** 0.3)
    np.testing.assert_allclose(right.lines[2].get_ydata(), 1.15 * 0.03 / t**0.8)  # Median of factors 1 and 1.3.


def test_an_unbounded_sensitivity_is_said_and_not_drawn(as_printed: Path) -> None:
    left, right = axes_of("noise", as_printed)
    assert [line.is_dashed() for line in left.lines] == [False, True]  # The same scale twice: both can be seen.
    assert not right.lines
    assert "∞" in [t.get_text() for t in right.texts]
    assert "Nothing bounds what one record can do to y, z" in left.figure.get_suptitle().replace("\n", " ")


def test_equal_budgets_are_named_in_the_title_of_the_drawing(tmp_path: Path) -> None:
    entry = {"epsilon_pure": "inf", "epsilon": 3.999999998, "channels": {}, "records": {}}
    privacy = privacy_of(tmp_path, agents=[{"agent": i, **entry} for i in range(10)])
    folder = write_run(tmp_path, changes={"privacy": privacy})
    assert axes_of("topology", folder)[0].get_title(loc="left") == "Ring of 10 agents: ρ = 0.873; ε = 4.00 each"


def test_a_long_ledger_is_thinned_but_keeps_its_ends(tmp_path: Path) -> None:
    drawn = axes_of("noise", write_run(tmp_path, agents=2, rounds=5000))[0].lines[0].get_xdata()
    assert drawn[0] == 1
    assert drawn[-1] == 5000
    assert 50 < len(drawn) <= 120


def test_overflowing_metrics_are_drawn_up_to_their_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3, changes={"status": "diverged", "reason": "y is not finite"})
    frame = pd.read_parquet(folder / "metrics.parquet")
    late = frame["round"] == 3
    frame.loc[late & frame["name"].str.startswith(("upper_loss", "consensus_y")), "value"] = np.inf
    frame.loc[late & frame["name"].str.startswith("lower_loss"), "value"] = 1e300
    frame.loc[late & frame["name"].str.startswith("test_loss"), "value"] = np.nan
    frame.loc[frame["name"].str.startswith("hypergradient"), "value"] = np.inf
    frame.to_parquet(folder / "metrics.parquet")
    found = curve(frame, "upper_loss")
    assert found is not None
    assert found.overflow == 3
    assert "overflows at round 3" in axes_of("losses", folder)[0].get_title(loc="left")
    assert {p.stem for p in write_plots(folder)} == ALL_FIGURES


def test_missing_numbers_skip_their_figures_and_remove_old_ones(tmp_path: Path) -> None:
    folder = write_run(tmp_path, agents=1, rounds=1, guarantee="none", metrics=False)
    (folder / "plots").mkdir()
    (folder / "plots" / "losses.png").write_bytes(DOT)
    assert [p.stem for p in write_plots(folder)] == ["topology"]
    assert [p.name for p in (folder / "plots").iterdir()] == ["topology.png"]
    assert "One agent tuned" in read_page(write_report(folder)).text


def test_a_dollar_sign_or_a_strange_letter_in_a_name_is_no_formula(tmp_path: Path) -> None:
    result = json.loads((write_run(tmp_path) / "result.json").read_text(encoding="utf-8"))
    result["topology"]["kind"] = "文 $x^{$"
    result["evaluated_on"] = "$\\frac{$ values"
    (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    assert {p.stem for p in write_plots(tmp_path)} == ALL_FIGURES


def test_drawing_changes_no_setting_and_is_reproducible(certified: Path) -> None:
    import matplotlib

    matplotlib.rcParams["lines.linewidth"] = 7.5
    try:
        before = dict(matplotlib.rcParams)
        first = {p.name: p.read_bytes() for p in (certified / "plots").iterdir()}
        again = {p.name: p.read_bytes() for p in write_plots(certified)}
        assert dict(matplotlib.rcParams) == before
    finally:
        matplotlib.rcParams["lines.linewidth"] = matplotlib.rcParamsDefault["lines.linewidth"]
    assert again == first


def test_matplotlib_is_imported_only_to_draw_and_pyplot_never(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, decentral_dp.report, decentral_dp.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.write_plots(pathlib.Path(sys.argv[1]))\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    folder = write_run(tmp_path, agents=2, rounds=1, metrics=False)
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(folder)], check=True)


def ring(m: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.stack([np.arange(m), (np.arange(m) + 1) % m], axis=1)


def test_layouts_follow_hop_counts() -> None:
    at = layout(12, ring(12))
    radius = np.linalg.norm(at - at.mean(axis=0), axis=1)
    np.testing.assert_allclose(radius, radius.mean(), rtol=0.02)
    np.testing.assert_array_equal(at, layout(12, ring(12)))
    path = layout(8, ring(8)[:-1])
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    np.testing.assert_allclose(steps, 1.0, rtol=0.05)
    np.testing.assert_allclose(np.linalg.norm(path[-1] - path[0]), 7.0, rtol=0.05)
    star = layout(20, np.stack([np.zeros(19, dtype=np.int64), np.arange(1, 20)], axis=1))
    gaps = np.linalg.norm(star[:, None] - star[None], axis=2) + 9.0 * np.eye(20)
    assert gaps.min() > 0.15
    for m in (1, 2, 3):
        assert layout(m, ring(m)[: m - 1]).shape == (m, 2)
