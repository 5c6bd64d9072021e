"""The page, from run folders written here by hand."""

from __future__ import annotations

import json
import math
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, printable
from decentral_dp.formatting import epsilon_text
from decentral_dp.reporting.markup import tag
from decentral_dp.reporting.page import write_report
from decentral_dp.reporting.plots import write_plots
from decentral_dp.reporting.words import MEASURES, choose_words, power_text, score_text
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.statements.of_job import statement_of
from decentral_dp.simulation.statements.statement import number
from tests.support.run_folders import (
    ALL_FIGURES,
    DOT,
    STATEMENT,
    Page,
    page_of,
    privacy_of,
    read_page,
    rewrite_result,
    write_run,
)


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
    scores = (103256.419, 97097.6, 999.96, 12.34567, 0.5, 5.5e-6, 2.2e7, -1234.5, 0.0, math.nan)
    assert [score_text(v) for v in scores] == [
        "103256",
        "97098",
        "1000",
        "12.35",
        "0.5",
        "5.5·10⁻⁶",
        "2.2·10⁷",
        "-1234",
        "0",
        "–",
    ]


@given(st.text())
@example('"><script>&amp;')
def test_text_cannot_leave_its_element(text: str) -> None:
    page = Page(tag("p", text, title=text).markup)
    assert page.tags == ["p"]
    # Control characters are written out.
    assert page.text == printable(text)


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
        "certified ε ≤ 4.00 per agent at δ = 1e-5 (SIMULATION); mean held-out accuracy 0.89.",
        "22 to 23 train records per agent",
        "λx = 0.05/(t+1)0.95",
        "Neighbouring data sets: replace one record of one agent",
        "metrics, curves and plots, this very page",
        "This is a simulation",
        "any event in what is released would become at most eε times as probable, plus δ",
        "z tells how the model follows x: the inverse Hessian of the lower loss times a gradient",
        "Channel x is free: it reads no record, being a function of public and released values.",
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
    assert (
        "provable ε = ∞ at δ = 1e-5 for the protocol as printed (claimed by the paper, not certified: 320.61)"
        in page.text
    )
    assert "The claimed number 320.61 (Theorem 4.5 of Chen & Wang (2024), as printed) is not a guarantee." in page.text
    assert "Nothing can be proven for this protocol" in page.text
    assert "by ε = ∞, which protects nothing" in page.text
    assert "ε → 3550.2" in page.text
    header = next(row for row in page.rows if row and row[0] == "Agent")
    # Rows begin with ε and pure ε of the whole run; the claim stands right beside them.
    assert header[header.index("Whole run") + 1] == "Claimed, not certified"
    assert page.row("9")[:3] == ["∞", "∞", "320.61"]
    assert set(page.row("9")[3:]) == {"∞"}
    for before in (page.text[: m.start()] for m in re.finditer("320.61", page.text)):
        assert "laimed" in before[-40:] or before.endswith("∞")  # The last is the labelled column of the table.


def of_algorithm(folder: Path, kind: str, table: str = "", **options: Any) -> Page:
    """The page of a run of another algorithm, whose [algorithm] table is given beside its kind."""
    page_of(folder, **options)
    path = folder / "scenario.toml"
    text = path.read_text(encoding="utf-8")
    head, rest = text.split("[algorithm]")
    path.write_text(
        f'{head}[algorithm]\nkind = "{kind}"\n{table}\n[privacy]{rest.split("[privacy]")[1]}', encoding="utf-8"
    )
    return read_page(write_report(folder))


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_algorithm_is_credited_to_its_own_authors(tmp_path: Path, kind: str) -> None:
    entry = ALGORITHMS[kind]
    text = of_algorithm(tmp_path, kind).text
    cited = text[text.index("How to cite") :]
    works = [citation.work for citation in entry.citations]
    assert works
    assert all(work.text in cited for work in works)
    assert cited.count("@") == len(works)
    # The description of the algorithm names the first author too: an entry that cites another's paper is found.
    described = sys.modules[entry.module_name].__doc__ or ""
    assert all(work.authors.split(",")[0] in described + entry.summary for work in works), described
    others = {c.work.text for e in ALGORITHMS.values() for c in e.citations} - {work.text for work in works}
    assert not [text for text in others if text in cited]
    assert (
        ("Theorem" in cited) == any("Theorem" in citation.part for citation in entry.citations) == (kind == "ldp_dsbo")
    )
    assert "decentral_dp's own analysis" in cited
    # The sentence on steps and messages is of those that send nothing but a step.
    assert ("carries the step of round t − 1" in text) == bool(entry.message)


def test_an_algorithm_from_elsewhere_is_credited_to_nobody(tmp_path: Path) -> None:
    cited = of_algorithm(tmp_path, "mine").text.partition("How to cite")[2]
    assert "No algorithm 'mine' is registered here" in cited
    assert "Chen" not in cited
    assert "decentral_dp's own analysis" not in of_algorithm(tmp_path / "off", "bsa", guarantee="none").text


def test_all_keys_of_an_algorithm_are_listed(tmp_path: Path) -> None:
    table = """rounds = 20
    x = { scale = 0.2, decay = 0.0 }
    averaging = { scale = 0.5, decay = 0.3 }
    dual = { scale = 0.7 }
    penalty = 0.25
    smoothness = 4.0
    momentum = 2.5
    inner = 3
    inverse = 9"""
    privacy = privacy_of(tmp_path / "known", exchanges=13, clip={"norm": "l1", "y": 0.5})
    text = of_algorithm(tmp_path / "run", "spdb", table, changes={"privacy": privacy}).text
    assert "λx = 0.2, λaveraging = 0.5/(t+1)0.3, λdual = 0.7" in text
    assert "penalty 0.25, smoothness 4, momentum 2.5, inner 3, inverse 9" in text
    assert "every variable 0" in text
    assert "13 exchanges a round: round t sends releases 13t to 13t + 12 with the noise of index t" in text
    # A clip of what reads no record is not listed, and neither is noise that is never added.
    assert "norm l1, y 0.5" in text
    privacy["exchanges"] = 1
    text = of_algorithm(tmp_path / "one", "gbdsbo", table, changes={"privacy": privacy}).text
    assert "One exchange a round: release t leaves in round t with the noise of index t" in text


def test_scales_of_noise_that_nothing_takes_are_not_listed(tmp_path: Path) -> None:
    privacy = privacy_of(tmp_path / "known", clip={"norm": "l2", "y": 1.0})
    page_of(tmp_path / "run", changes={"privacy": privacy})
    scenario = tmp_path / "run" / "scenario.toml"
    text = scenario.read_text(encoding="utf-8")
    scenario.write_text(f"{text}x = {{ scale = 0.5 }}\ny = {{ scale = 0.25 }}\n", encoding="utf-8")
    shown = read_page(write_report(tmp_path / "run")).text.partition("The guarantee")[0]
    assert "σy = 0.25" in shown
    assert "σx" not in shown


def test_without_a_printed_budget_there_is_no_paper_to_refer_to(tmp_path: Path) -> None:
    privacy = privacy_of(tmp_path / "known", guarantee="as_printed", epsilon_max="inf", claimed=None)
    text = of_algorithm(tmp_path / "run", "gbdsbo", guarantee="as_printed", changes={"privacy": privacy}).text
    assert "Noise on every message, and nothing is clipped. Nothing can be proven for this protocol" in text
    assert "The paper's protocol" not in text


def test_an_unknown_limit_is_no_infinite_one(tmp_path: Path) -> None:
    privacy = privacy_of(tmp_path / "known", at_infinity={"finite_data": None, "endless_stream": None})
    text = page_of(tmp_path / "run", changes={"privacy": privacy}).text
    assert "Unknown: for this protocol no bound is derived, and none is refuted." in text
    assert "ε → ∞" not in text


def test_the_graph_is_told_in_numbers(tmp_path: Path) -> None:
    text = page_of(tmp_path / "run").text
    assert "A ring of 10 agents: 10 links, degree 2, spectral gap 0.1273, neighbours' weight 0.667." in text


def test_where_a_server_asks_nobody_gossips(tmp_path: Path) -> None:
    graph = json.loads((write_run(tmp_path / "known") / "result.json").read_text(encoding="utf-8"))["topology"]
    text = of_algorithm(tmp_path / "run", "bsa", changes={"topology": {**graph, "central": True}}).text
    assert "Ten agents and a server tuned" in text
    assert "A server asks every agent; the scenario's graph plays no part" in text
    assert "every answer to the server, at every round" in text
    assert "gossip shrinks" not in text
    assert "message to a neighbour" not in text


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
    assert page.row("9")[2] == "–"
    assert "What can be proven for it is ε = 4.00 at δ = 1e-5." in page.text


def test_metrics_are_listed_with_their_range_and_without_the_budget(tmp_path: Path) -> None:
    values = {"test_accuracy_last": 0.9, "test_accuracy_last_min": 0.8, "test_accuracy_last_max": 0.95}
    values |= {"test_loss_unreleased": 0.3, "upper_loss": 0.25, "upper_loss_min": 0.2, "upper_loss_max": None}
    page = page_of(tmp_path / "run", changes={"metrics": {**values, "epsilon_spent": 3.991}})
    assert "of what is not released" not in page.text
    assert page.row("Test accuracy (held-out records), last released values") == ["0.900", "0.800", "0.950"]
    assert page.row("Test loss (held-out records), unreleased state") == ["0.300", "", ""]
    assert page.row("Upper loss (validation records)") == ["0.250", "0.200", ""]
    listed = [row[0] for row in page.rows if row]
    assert listed.index("Upper loss (validation records)") < listed.index(
        "Test loss (held-out records), unreleased state"
    )
    assert "3.99" not in page.text


def test_metrics_of_other_values_than_published_ones_are_in_a_table_to_be_opened(tmp_path: Path) -> None:
    values = {"test_accuracy": 0.911, "test_accuracy_last": 0.712, "test_accuracy_unreleased": 0.613}
    text = page_of(tmp_path / "run", changes={"metrics": {**values, "upper_loss": 0.514}}).text
    parts = ["0.514", "0.911", "Of the last released values, and of what is not released (2)", "0.712", "0.613"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


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


@pytest.mark.parametrize("noun", ["one record of one agent", "any 3 records of one agent", "all records of one agent"])
def test_a_page_says_of_what_its_epsilon_is(tmp_path: Path, noun: str) -> None:
    """Where all that an agent holds is protected no sentence and no head speaks of the price of a record."""
    changes = {"privacy": privacy_of(tmp_path / "known", protected=noun)}
    page_of(tmp_path / "run", changes=changes)
    (tmp_path / "run" / "plots" / "noise.png").write_bytes(DOT)
    page = read_page(write_report(tmp_path / "run"))
    assert f"If {noun} changed, any event" in page.text
    assert f"knows all other records, learns about {noun} at most" in page.text
    assert f"how far a change of {noun} can move it" in page.text
    assert ("its most expensive record" in page.text) == (noun == "one record of one agent")


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no result\.json"):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not JSON"):
        write_plots(tmp_path)
    (tmp_path / "result.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not what the run wrote"):
        write_report(tmp_path)


def test_a_bare_result_still_makes_a_page(tmp_path: Path) -> None:
    rewrite_result(tmp_path, {"status": "diverged", "privacy": STATEMENT})
    page = read_page(write_report(tmp_path))
    assert "This run diverged" in page.text
    assert "img" not in page.tags
    assert "No curves" in page.text


def test_the_limit_of_laplace_noise_is_called_pure(tmp_path: Path) -> None:
    known = privacy_of(tmp_path / "known", mechanisms=["laplace"])
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
    assert "Gaussian noise, as much as ε = 4 needs over all planned rounds" in text
    page_of(tmp_path / "stated")
    scenario = tmp_path / "stated" / "scenario.toml"
    scenario.write_text(f"{scenario.read_text(encoding='utf-8')}y = {{ scale = 0.5, decay = 0.1 }}\n", encoding="utf-8")
    assert "Gaussian noise, σy = 0.5/(t+1)0.1" in read_page(write_report(tmp_path / "stated")).text


def test_the_signal_stands_beside_the_noise(tmp_path: Path) -> None:
    run = decentral_dp.run(load("ring_breast_cancer", ["algorithm.rounds=3"]), out=tmp_path / "run")
    text = Page((tmp_path / "run" / "report.html").read_text(encoding="utf-8")).text
    signal = run.result.privacy.signal
    assert set(signal) == {"y", "z"}
    after = text[text.index("Signal beside the noise") :]
    for channel in signal.values():
        assert f"{channel.one_release:.2g}" in after
        assert f"{channel.all_releases:.2g}" in after
    free = load("ring_breast_cancer_no_privacy", ["algorithm.rounds=3"])
    decentral_dp.run(free, out=tmp_path / "free")
    assert "Signal beside" not in (tmp_path / "free" / "report.html").read_text(encoding="utf-8")


def test_a_path_in_a_description_stays_in_its_box() -> None:
    style = (Path(decentral_dp.__file__).parent / "reporting" / "style.css").read_text(encoding="utf-8")
    assert "h1,h3,p,li,small,figcaption{overflow-wrap:anywhere}" in style


def test_labels_of_metrics_leave_room_for_the_numbers() -> None:
    labels = [measure.page for measure in MEASURES.values()]
    # At 1280 pixels a label of 66 letters, its ending included, leaves room for three columns of numbers.
    assert max(len(label) + len(", last released values") for label in labels if "RMSE" in label) <= 66
    assert max(len(label) for label in labels) <= 66


def test_on_a_telephone_nothing_of_a_run_moves_sideways(certified: Path) -> None:
    style = (Path(decentral_dp.__file__).parent / "reporting" / "style.css").read_text(encoding="utf-8")
    assert "figure img{width:100%;max-width:44rem;height:auto" in style
    # No later rule takes that back where the screen is narrow.
    assert "sideways" not in style
    assert not re.search(r"figure[^{]*img\{[^}]*max-width:none", style)
    markup = (certified / "report.html").read_text(encoding="utf-8")
    table = markup[markup.index('<table class="rows">') :].partition("</table>")[0]
    cells = table.partition("<tbody>")[2].count("<td")
    assert cells == table.count("<td data-head=") + len(re.findall(r"<td class=\"[a-z]+\" data-head=", table)) > 0
    assert 'data-head="Whole run: ε at δ = 1e-5"' in table
    assert ":is(.sortable,.rows) thead" in style


def test_agents_without_links_send_nothing_that_a_guarantee_would_cover() -> None:
    privacy = statement_of(build(load("alone")))
    assert "nothing is sent" in choose_words(privacy, {"kind": "isolated"}).release
    assert "message to a neighbour" in choose_words(privacy, {"kind": "ring"}).release
