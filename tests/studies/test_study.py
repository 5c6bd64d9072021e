"""Studies: cells and their keys, resuming, failures, tables, verdicts and figures."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tomli_w

import decentral_dp.studies
from decentral_dp import run
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.loading import shipped_names
from decentral_dp.errors import InputError, Stopped
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.studies import runs as cell_files
from decentral_dp.studies.comparisons import ClaimVerdict, decide_claim, interval
from decentral_dp.studies.measures import epsilon_words, list_measures
from decentral_dp.studies.report import Findings
from decentral_dp.studies.runs import Task, make_task
from decentral_dp.studies.schema import Study, axes, cells, load_study
from decentral_dp.studies.study import check_study, conduct
from decentral_dp.studies.tables import Measured, study_table, summary
from decentral_dp.studies.tasks import in_processes
from tests.support.commands import Command

RINGS = [{"kind": "ring", "agents": 5}, {"kind": "complete", "agents": 5}]
Make = Callable[..., Study]


@pytest.fixture
def make(scenario: Callable[..., dict[str, Any]], tmp_path: Path) -> Make:
    """A study of a small scenario; keywords are its keys."""
    base = scenario(algorithm={"rounds": 4}, run={"evaluate_every": 2})
    base["privacy"]["mechanism"] = "gaussian"
    (tmp_path / "base.toml").write_text(tomli_w.dumps(base), encoding="utf-8")

    def study(**keys: Any) -> Study:
        return load_study({"scenario": str(tmp_path / "base.toml"), **keys})

    return study


def without_times(frame: pd.DataFrame) -> pd.DataFrame:
    kept = frame[frame["name"] != "seconds"] if "name" in frame else frame.drop(columns="seconds")
    return kept.reset_index(drop=True)


# --- the grid ---------------------------------------------------------------------------------------------------------


def test_every_combination_for_every_seed(make: Make) -> None:
    study = make(
        seeds=[4, 9],
        set={"algorithm": {"rounds": 3}, "run.average": 2},
        grid={"topology": RINGS, "privacy": {"epsilon": [1.0, 2.0, 3.0]}},
        variants=[
            {"name": "private", "set": {"privacy": {"delta": 1e-6}}},
            {"name": "open", "unset": ["privacy"], "set": {"privacy": {"guarantee": "none"}}},
        ],
    )
    assert [(a.name, a.labels) for a in axes(study)] == [
        ("variant", ("private", "open")),
        ("topology", ("ring", "complete")),
        ("privacy.epsilon", (1.0, 2.0, 3.0)),
    ]
    found = cells(study)
    assert len({(tuple(c.labels.items()), c.seed) for c in found}) == len(found) == 2 * 2 * 3 * 2
    for cell in found:
        content, variant = cell.content, cell.labels["variant"]
        assert content["seed"] == cell.seed
        assert content["topology"]["kind"] == cell.labels["topology"]
        assert content["privacy"]["epsilon"] == cell.labels["privacy.epsilon"]
        assert content["algorithm"]["rounds"] == 3
        assert content["algorithm"]["kind"] == "ldp_dsbo"
        assert content["run"] == {"evaluate_every": 2, "average": 2}
        assert content["privacy"].get("delta") == (1e-6 if variant == "private" else None)
        assert ("clip" in content["privacy"]) == (variant == "private")


SIDE = {"measure": "ok"}
PLOT = {"name": "p", "x": "topology", "y": "ok"}
OVER_ROUNDS = {"name": "p", "y": "upper_loss"}
CLAIM = {"statement": "s", "left": SIDE, "is": "less", "right": 1.0}
# Text of the refusal, and the study.
BAD: list[tuple[str, dict[str, Any]]] = [
    ('algorithm.ruonds: .*"rounds"', {"grid": {"algorithm": {"ruonds": [1]}}}),
    (
        r"grid\.epsilon: unknown key \(expected privacy\.epsilon",
        {"grid": {"epsilon": [1, 4]}, "plots": [PLOT | {"x": "privacy.epsilon"}]},
    ),
    ("privacy.epsylon", {"unset": ["privacy.epsylon"]}),
    ("grid.algorithm.rounds: got 3", {"grid": {"algorithm.rounds": 3}}),
    ("replace algorithm.rounds", {"grid": {"algorithm.rounds": [1]}, "set": {"algorithm": {"rounds": 2}}}),
    ("replace topology.seed", {"grid": {"topology": RINGS}, "variants": [{"name": "a", "set": {"topology.seed": 1}}]}),
    ('"ring" occurs twice', {"grid": {"topology": [RINGS[0], RINGS[0]]}}),
    ("is not an axis", {"grid": {"topology": RINGS}, "claims": [CLAIM | {"left": SIDE | {"best": "seed"}}]}),
    ("grid.seed", {"grid": {"seed": [1, 2]}}),
    ("seeds: invalid \\(got \\[1, 1\\]", {"seeds": [1, 1]}),
    ('"rign"', {"grid": {"topology": RINGS}, "claims": [CLAIM | {"left": SIDE | {"where": {"topology": "rign"}}}]}),
    ("topology varies too", {"rounds": "all", "grid": {"topology": RINGS}, "plots": [OVER_ROUNDS]}),
    ("plots.0.name", {"plots": [{"name": "../p", "y": "m"}]}),
    ('measure: "test_acuracy" .*"test_accuracy"', {"measure": ["ok", "test_acuracy"]}),
    ('measure: "upper_loss"', {"measure": ["upper_loss"], "kind": "plan"}),
    *(
        (f'measure: "{name}"', {"measure": [name]})
        for name in (
            "network_epsilon",
            "network_epsilon_distance_0",
            "rounds_to_test_accuracy",
            "rounds_to_nothing_0.5",
        )
    ),
    ('plots \\(p\\).x: "topologie" .*"topology"', {"grid": {"topology": RINGS}, "plots": [PLOT | {"x": "topologie"}]}),
    ("plots \\(p\\).x: no values of single rounds", {"plots": [{"name": "p", "y": "upper_loss"}]}),
    ('plots \\(p\\).y: "spectral_gap"', {"rounds": "all", "plots": [{"name": "p", "y": "spectral_gap"}]}),
    ('claims \\(s\\).measure: "test_los" .*"test_loss"', {"claims": [CLAIM | {"right": {"measure": "test_los"}}]}),
    (
        "claims \\(s\\).round: 2",
        {"rounds": [1, 4], "claims": [CLAIM | {"right": {"measure": "test_loss", "round": 2}}]},
    ),
    ('claims \\(s\\).measure: "seconds"', {"claims": [CLAIM | {"left": {"measure": "seconds", "round": 2}}]}),
]


@pytest.mark.parametrize(("words", "keys"), BAD)
def test_a_bad_study_is_refused_before_anything_is_run(
    words: str, keys: dict[str, Any], make: Make, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        conduct(make(**keys), tmp_path / "out", jobs=1)
    assert not list(tmp_path.glob("out/cells/*.json"))


# --- what is measured -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Two graphs with three weights, one of which diverges on the larger graph, in this process."""
    folder = tmp_path_factory.mktemp("study")
    return conduct(load_study(mixed_content()), folder / "out", jobs=1)


def mixed_content() -> dict[str, Any]:
    return {
        "title": "Mixed [brackets]",
        "scenario": "ring_breast_cancer",
        "seeds": 2,
        "rounds": "all",
        "set": {"algorithm": {"rounds": 4}, "run": {"evaluate_every": 2, "average": 2}},
        "grid": {
            "topology": [{"kind": "ring", "agents": 4}, {"kind": "complete", "agents": 6}],
            "topology.weights": ["metropolis", {"kind": "constant", "value": 0.4}],
        },
        "plots": [
            {"name": "over_rounds", "y": "upper_loss", "lines": "topology", "panels": "topology.weights", "log": "y"},
            {"name": "by_weights", "x": "topology.weights", "y": ["test_accuracy", "ok"], "lines": "topology"},
            {"name": "by_gap", "x": "spectral_gap", "y": "consensus_y", "lines": "topology", "log": "xy"},
            {"name": "of_nothing", "x": "topology", "y": "weight_clean", "lines": "topology.weights"},
        ],
        "claims": [
            {
                "statement": "calibrated",
                "left": {"measure": "epsilon_max"},
                "is": "within",
                "right": 4.0,
                "factor": 1.01,
            }
        ],
    }


def test_a_failed_cell_is_recorded(mixed: Findings) -> None:
    assert len(mixed.cells) == 8
    assert len(mixed.failed) == 2
    assert set(mixed.failed["topology"]) == {"complete"}
    assert set(mixed.failed["topology.weights"]) == {"constant"}
    assert set(mixed.failed["status"]) == {"refused"}
    assert mixed.failed["reason"].str.contains("diverges unless ρ < 1").all()
    ok = mixed.results[mixed.results["name"] == "ok"]
    assert ok["value"].tolist() == [1.0] * 6 + [0.0] * 2


def test_results_are_tidy_and_are_those_of_a_run(mixed: Findings) -> None:
    frame = pd.read_parquet(mixed.folder / "results.parquet")
    assert list(frame) == ["cell", "seed", "topology", "topology.weights", "round", "last", "name", "value"]
    assert not frame.duplicated(["seed", "topology", "topology.weights", "round", "last", "name"]).any()
    assert frame["value"].notna().all()
    here = frame[(frame["topology"] == "ring") & (frame["topology.weights"] == "metropolis") & (frame["seed"] == 2)]
    overrides = ["algorithm.rounds=4", "run.evaluate_every=2", "run.average=2", "seed=2", "topology.agents=4"]
    alone = run(load("ring_breast_cancer", overrides))
    last = here[here["last"]].set_index("name")["value"]
    assert last["spectral_gap"] == alone.result["topology"]["spectral_gap"]
    assert last["epsilon_max"] == alone.result["privacy"]["epsilon_max"]
    for name, value in alone.result["metrics"].items():
        assert last[name] == value
    curve = here[~here["last"] & (here["name"] == "upper_loss")]
    assert curve["round"].tolist() == [0, 2, 4]
    known = alone.metrics[(alone.metrics["name"] == "upper_loss") & (alone.metrics["agent"] == "mean")]
    assert curve["value"].tolist() == known["value"].tolist()


def test_the_summary_takes_the_seeds_together(mixed: Findings) -> None:
    frame = pd.read_parquet(mixed.folder / "summary.parquet")
    assert list(frame) == [
        *("topology", "topology.weights", "round", "last", "name"),
        *("n", "cells", "failed", "mean", "low", "high"),
    ]
    row = frame[frame["last"] & (frame["name"] == "test_loss") & (frame["topology"] == "complete")].iloc[0]
    values = mixed.results[
        mixed.results["last"] & (mixed.results["name"] == "test_loss") & (mixed.results["topology"] == "complete")
    ]["value"]
    assert row["n"] == len(values) == 2
    assert row["mean"] == pytest.approx(values.mean())
    # Intervals need three seeds.
    assert np.isnan([row["low"], row["high"]]).all()


def test_a_failed_combination_is_in_every_table(mixed: Findings) -> None:
    lost = mixed.summary[(mixed.summary["topology"] == "complete") & (mixed.summary["topology.weights"] == "constant")]
    row = lost[lost["name"] == "test_accuracy"].iloc[0]
    assert (row["n"], row["cells"], row["failed"]) == (0, 2, 2)
    assert math.isnan(row["mean"])
    pd.testing.assert_frame_equal(pd.read_csv(mixed.folder / "summary.csv"), mixed.summary, check_dtype=False)
    words = study_table(mixed.measurements)
    heads = [name for name, _ in words.heads]
    by_row = {row[:2]: dict(zip(heads, row, strict=True)) for row in map(tuple, words.rows)}
    failed = by_row["complete", "constant"]
    assert (failed["ended ok"], failed["test_accuracy"]) == ("0 of 2 (2 refused)", "failed")
    assert by_row["ring", "constant"]["ended ok"] == "2 of 2"
    assert "Intervals need 3 seeds." in words[-1]
    # Refused cells have no algorithm.
    assert words[-1].endswith("Algorithms: LDP-DSBO (bilevel) + tail average.")
    page = (mixed.folder / "report.html").read_text()
    assert page.count("0 of 2 (2 refused)") == 1
    assert not re.search(r'src="(?!data:)|href="(?:[a-z]+:)?//', page)


def test_scores_average_successful_cells_and_privacy_all_cells() -> None:
    cells = pd.DataFrame({"cell": list("abc"), "graph": "ring", "status": ["ok", "ok", "diverged"]})
    rows = [(k, "ring", 5, last, n, v) for k in "abc" for last in (True, False) for n, v in (("upper_loss", 1.0),)]
    rows = [(k, g, r, last, n, 9.0 if k == "c" else v) for k, g, r, last, n, v in rows]
    rows += [(k, "ring", 5, True, "epsilon_max", v) for k, v in zip("abc", (2.0, 3.0, 7.0), strict=True)]
    rows += [("c", "ring", 5, True, "diverged", 1.0)]
    frame = pd.DataFrame(rows, columns=["cell", "graph", "round", "last", "name", "value"])
    found = summary(frame, ["graph"], cells).set_index(["name", "last"])
    assert found.loc[("upper_loss", True), ["n", "cells", "failed", "mean"]].tolist() == [2, 3, 1, 1.0]
    assert found.loc[("upper_loss", False), "mean"] == 1.0
    assert found.loc[("epsilon_max", True), "n"] == 3
    bounds = found.loc[("epsilon_max", True), ["mean", "low", "high"]].tolist()
    assert bounds == pytest.approx(list(interval(np.array([2.0, 3.0, 7.0]))))
    # Two cells have no interval.
    assert math.isnan(found.loc[("upper_loss", True), "low"])


@pytest.mark.parametrize("kind", ["run", "plan"])
def test_cells_have_the_measures_of_their_kind(kind: Literal["run", "plan"], make: Make) -> None:
    task = make_task(cells(make(kind=kind))[0], kind, "all")
    assert isinstance(task, Task)
    [record] = cell_files.compute([task])
    assert set(record["finals"]) <= set(list_measures(kind, over_rounds=False))
    assert set(record["curves"]) <= set(list_measures(kind, over_rounds=True))
    assert set(list_measures(kind, over_rounds=True)) <= set(list_measures(kind, over_rounds=False))


# --- what an ε is -----------------------------------------------------------------------------------------------------


def make_account(*rows: tuple[str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["guarantee", "mechanism", "delta"])


CERTIFIED, NOISELESS = ("certified", "gaussian", 1e-5), ("none", "laplace", 1e-7)


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("epsilon_max", [CERTIFIED, CERTIFIED], "certified, δ = 1e-5"),
        ("epsilon_max", [("as_published", "laplace", 1e-6)], "provable as published, δ = 1e-6"),
        ("epsilon_max", [NOISELESS], "no guarantee"),
        # Without noise there is no δ.
        ("epsilon_max", [CERTIFIED, NOISELESS], "δ = 1e-5"),
        ("endless_stream", [CERTIFIED], "certified, δ = 1e-5"),
        ("endless_stream", [("certified", "laplace", 1e-5)], "certified"),
        ("privacy.epsilon", [CERTIFIED], "target, δ = 1e-5"),
        ("claimed", [CERTIFIED], "claimed, not proved"),
    ],
)
def test_labels_of_an_epsilon(name: str, rows: list[tuple[str, str, float]], words: str) -> None:
    assert epsilon_words(name, make_account(*rows)) == words


def test_a_plan_has_an_epsilon_at_each_round(make: Make, tmp_path: Path) -> None:
    study = make(
        kind="plan",
        rounds=[2, 5, 9],
        set={"algorithm": {"rounds": 6}},
        variants=[
            {"name": "printed", "unset": ["privacy"], "set": {"privacy": PRINTED, "algorithm.kind": KIND}},
            {"name": "certified", "unset": ["privacy"], "set": {"privacy": {"clip": {"y": 1.0, "z": 1.0}, **NOISE}}},
        ],
    )
    found = conduct(study, tmp_path / "out", jobs=1)
    assert found.failed.empty
    for cell in cells(study):
        part = found.results[found.results["variant"] == cell.labels["variant"]]
        job = build(load(cell.content))
        at = part[~part["last"]].set_index(["name", "round"])["value"]
        assert sorted(at["epsilon_max"].index) == [2, 5]
        for rounds in (2, 5):
            budget = account(job.ledger.truncate(rounds), 1e-5)
            # Both are upper bounds, composed piece by piece and in one piece.
            assert at["epsilon_max", rounds] == pytest.approx(budget.epsilon.max(), rel=5e-3)
            assert at["epsilon_pure_max", rounds] == pytest.approx(budget.epsilon_pure.max(), rel=1e-9)
        last = part[part["last"]].set_index("name")["value"]
        assert last["epsilon_max"] == job.budget.epsilon.max()
        if cell.labels["variant"] == "printed":
            claims = [at["claimed", 2], at["claimed", 5], last["claimed"], last["claimed_endless"]]
            assert claims == sorted(claims)
        else:
            assert "claimed" not in last


NOISE = {c: {"scale": 1.0, "decay": 0.1} for c in "yz"}
KIND = "papers.published:PublishedLdpDsbo"
PRINTED = {"guarantee": "as_published", "box": {"x": 0.0, "y": 1.0, "z": 1.0}, **{c: {"scale": 1.0} for c in "xyz"}}


# --- claims -----------------------------------------------------------------------------------------------------------


def judged(
    make: Make,
    means: tuple[float, float, float] = (1.0, 2.0, 10.0),
    name: str = "m",
    seeds: int = 3,
    **claim: Any,
) -> ClaimVerdict:
    """A claim over two topologies × two ε with one known loss at all seeds: ring 1 and 2, complete 10 and nothing."""
    return judged_by_seed(make, [{s + 1: m for s in range(seeds)} for m in means], name, **claim)


def judged_by_seed(
    make: Make, values: list[dict[int, float]], name: str = "m", kind: str = "run", seeds: int = 3, **claim: Any
) -> ClaimVerdict:
    """The same of values at each seed."""
    study = make(
        seeds=seeds,
        kind=kind,
        grid={"topology": RINGS, "privacy.epsilon": [1.0, 2.0]},
        claims=[{"statement": "s", "left": {"measure": name}, "right": {"measure": name}, **claim}],
    )
    places = [("ring", 1.0), ("ring", 2.0), ("complete", 1.0)]
    each = [
        {"seed": seed, "topology": t, "privacy.epsilon": e, "value": value, "round": 4, "last": True, "name": name}
        for (t, e), found in zip(places, values, strict=True)
        for seed, value in found.items()
    ]
    return decide_claim(study.claims[0], study, pd.DataFrame(each), axes(study))


RING, COMPLETE = {"topology": "ring"}, {"topology": "complete"}


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ({"left": {"measure": "m", "where": RING}, "is": "less", "right": 2.5}, (True, 2, 2, 0)),
        ({"left": {"measure": "m", "where": RING}, "is": "less", "right": 2.0}, (False, 2, 1, 0)),
        ({"left": {"measure": "m", "where": RING}, "is": "greater", "right": 2.0, "factor": 0.4}, (True, 2, 2, 0)),
        # Paired by ε; the complete graph has nothing at ε = 2.
        (
            {"left": {"measure": "m", "where": RING}, "is": "less", "right": {"measure": "m", "where": COMPLETE}},
            (None, 2, 1, 1),
        ),
        (
            {
                "left": {"measure": "m", "where": {**RING, "privacy.epsilon": [1.0, 2.0]}},
                "is": "less",
                "right": {"measure": "m", "where": {**COMPLETE, "privacy.epsilon": 1.0}},
            },
            (True, 2, 2, 0),
        ),
        # The better of two ε, or the only measured one.
        (
            {"left": {"measure": "m", "where": RING, "best": "privacy.epsilon"}, "is": "less", "right": 2.0},
            (False, 1, 0, 0),
        ),
        (
            {
                "left": {"measure": "m", "where": RING, "best": "privacy.epsilon"},
                "is": "less",
                "right": {"measure": "m", "where": COMPLETE, "best": "privacy.epsilon"},
                "factor": 0.21,
            },
            (True, 1, 1, 0),
        ),
    ],
)
def test_claims(make: Make, claim: dict[str, Any], expected: tuple[bool | None, int, int, int]) -> None:
    found = judged(make, **claim)
    outcome, pairs, held, missing = expected
    assert found.outcome == {True: "holds", False: "does not hold", None: "not measured"}[outcome]
    assert (found.pairs, found.held, found.missing, found.undecided) == (pairs, held, missing, 0)


@pytest.mark.parametrize(
    ("left", "right", "compare", "factor"),
    [
        # The means are 0.234 and 0.295, first with unrelated and then with related seeds.
        ([0.123, 0.4, 0.18], [0.044, 0.79, 0.05], "less", 1.0),
        ([0.1, 0.5, 0.9], [0.2, 0.61, 1.0], "less", 1.0),
        ([0.1, 0.5, 0.9], [0.2, 0.61, 1.0], "greater", 1.0),
        ([3.0, 2.9, 3.2, 3.1], [1.0, 1.1, 1.05, 0.9], "greater", 2.0),
        ([3.0, 2.9, 3.2, 3.1], [1.0, 1.1, 1.05, 0.9], "greater", 4.0),
        ([0.80, 0.81, 0.79], [0.79, 0.82, 0.80], "within", 1.05),
        ([0.80, 0.81, 0.79], [0.79, 0.82, 0.80], "within", 1.005),
        ([0.80, 0.81, 0.79], [0.59, 0.62, 0.60], "within", 1.05),
        ([0.51, 0.55, 0.53], 0.5, "greater", 1.0),
        ([0.49, 0.55, 0.53], 0.5, "greater", 1.0),
    ],
)
def test_a_claim_is_decided_by_its_differences_seed_by_seed(
    left: list[float], right: list[float] | float, compare: str, factor: float, make: Make
) -> None:
    """Compare with scipy's confidence interval of the mean difference."""
    other = np.full(len(left), right) if isinstance(right, float) else np.array(right)
    ends = sorted([other.mean() / factor, other.mean() * factor])
    scales = [end / other.mean() for end in ends]
    slacks = {
        "less": [factor * other - left],
        "greater": [left - factor * other],
        "within": [left - scales[0] * other, scales[1] * other - left],
    }[compare]
    spans = [
        scipy.stats.t.interval(0.95, d.size - 1, loc=d.mean(), scale=scipy.stats.sem(d)) for d in map(np.array, slacks)
    ]
    expected = "undecided"
    if all(low > 0.0 for low, _ in spans):
        expected = "holds"
    if any(high < 0.0 for _, high in spans):
        expected = "does not hold"
    values = [dict(enumerate(left, 1)), {}, dict(enumerate(other, 1))]
    sides: dict[str, Any] = {"left": {"measure": "m", "where": FIRST}, "is": compare, "factor": factor}
    there = {"measure": "m", "where": {**COMPLETE, "privacy.epsilon": 1.0}}
    sides["right"] = right if isinstance(right, float) else there
    found = judged_by_seed(make, values, seeds=len(left), **sides)
    assert found.outcome == expected
    # One seed is undecided, except for plans.
    one = [{1: left[0]}, {}, {1: float(other[0])}]
    alone = judged_by_seed(make, one, seeds=1, **sides)
    assert alone.outcome == "undecided"
    assert judged_by_seed(make, one, seeds=1, kind="plan", **sides).outcome == (
        "holds" if all(d[0] > 0 for d in slacks) else "does not hold"
    )


def test_a_claim_without_a_seed_is_undecided(make: Make) -> None:
    """Refute a claim that would hold without the third seed, which the left side lacks."""
    right = {"measure": "m", "where": {**COMPLETE, "privacy.epsilon": 1.0}}
    sides: dict[str, Any] = {"left": {"measure": "m", "where": FIRST}, "right": right, "is": "less"}
    values = [{1: 0.1, 2: 0.2}, {}, {1: 0.5, 2: 0.61, 3: 0.0}]
    found = judged_by_seed(make, values, **sides)
    assert found.outcome == "undecided"
    assert found.numbers.endswith("1 of 3 seeds lack a side")
    assert judged_by_seed(make, [values[0], {}, {1: 0.5, 2: 0.61}], seeds=2, **sides).outcome == "holds"
    # Seeds that pair nothing.
    assert judged_by_seed(make, [{1: 0.1, 2: 0.2}, {}, {3: 0.5}], **sides).outcome == "undecided"


FIRST = {"topology": "ring", "privacy.epsilon": 1.0}


@pytest.mark.parametrize(
    ("left", "claim", "outcome"),
    [
        (218.0, {"is": "less", "right": 4.6, "factor": 2.0}, "does not hold"),
        (1.0, {"is": "greater", "right": 1.0}, "does not hold"),
        (1.0004, {"is": "greater", "right": 1.0003}, "holds"),
        (4.6, {"is": "within", "right": 4.6, "factor": 1.000001}, "holds"),
        (math.inf, {"is": "within", "right": {"measure": "m", "where": FIRST}}, "holds"),
        (math.inf, {"is": "less", "right": 4.0}, "does not hold"),
    ],
)
def test_equal_and_infinite_sides(make: Make, left: float, claim: dict[str, Any], outcome: str) -> None:
    assert judged(make, (left, 0.0, 0.0), left={"measure": "m", "where": FIRST}, **claim).outcome == outcome


# --- keeping, resuming, processes -------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (folder / "cells").glob("*.json")}


def test_finished_cells_are_not_computed_again(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, small = tmp_path / "out", {"grid": {"topology": RINGS}, "rounds": "all"}
    first = conduct(make(**small, seeds=2), out, jobs=1)
    before = files(out)
    assert first.computed == len(before) == 4
    monkeypatch.setattr("decentral_dp.studies.runs.compute", lambda task: pytest.fail("computed again"))
    # A new title or fewer measures need no new cells.
    again = conduct(make(**small, seeds=2, title="Another", measure=["test_loss"]), out, jobs=1)
    assert again.computed == 0
    assert files(out) == before
    kept = without_times(first.results)
    pd.testing.assert_frame_equal(
        kept[kept["name"] == "test_loss"].reset_index(drop=True), again.results.reset_index(drop=True)
    )
    monkeypatch.undo()
    assert conduct(make(**small, seeds=3), out, jobs=1).computed == 2
    damaged = sorted((out / "cells").glob("*.json"))
    text = damaged[0].read_text()
    damaged[0].write_text(text[: len(text) // 2])
    damaged[1].write_text(text.replace("1", "2"))
    damaged[2].write_bytes(b"\xff\xfe\x00")
    mended = conduct(make(**small, seeds=2), out, jobs=1)
    assert 1 <= mended.computed <= 3
    pd.testing.assert_frame_equal(without_times(mended.results), without_times(first.results))
    assert tomllib.loads((out / "study.toml").read_text())["grid"]["topology"] == RINGS
    resumed = conduct(load_study(out / "study.toml"), out, jobs=1)
    assert resumed.computed == 0


def test_keys_of_cells_depend_on_settings_files_and_package(make: Make, tmp_path: Path) -> None:
    def key(**keys: Any) -> str:
        task = make_task(cells(make(**keys))[0], "run", "last")
        assert isinstance(task, Task)
        return task.key

    edges = tmp_path / "net.txt"
    edges.write_text("0 1\n1 2\n")
    by_file = {"set": {"topology": {"file": str(edges)}}}
    before = key(**by_file)
    assert key(**by_file, title="x") == before
    edges.write_text("0 1\n1 2\n0 2\n")
    assert key(**by_file) != before
    assert key() != key(set={"algorithm": {"rounds": 3}})
    # A default that is written out is the same scenario.
    assert key() == key(set={"run": {"average": 1}})


def test_processes_compute_the_same_cells(mixed: Findings, tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    # Pictures are drawn by this process, and are those of `mixed`.
    study = load_study({**mixed_content(), "plots": []})
    parallel = conduct(study, tmp_path / "out", jobs=2, progress=lambda at: seen.append((at.done, at.total, at.failed)))
    assert seen[-1] == (8, 8, 2)
    for name in ("results", "cells"):
        pd.testing.assert_frame_equal(without_times(getattr(parallel, name)), without_times(getattr(mixed, name)))
    assert [v.numbers for v in parallel.verdicts] == [v.numbers for v in mixed.verdicts]


def test_ray_tasks_compute_the_same_cells(make: Make, ray_cluster: None, tmp_path: Path) -> None:
    study = make(grid={"topology.weights": ["metropolis", {"kind": "constant", "value": 0.7}]})
    here, remote = conduct(study, tmp_path / "here", jobs=1), conduct(study, tmp_path / "there", address="auto")
    assert remote.computed == 2
    assert remote.cells["status"].tolist() == ["ok", "refused"]
    pd.testing.assert_frame_equal(without_times(remote.results), without_times(here.results))


def test_a_killed_worker_fails_one_unsaved_cell(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The worker ends in the middle of its second cell.
    crash = tmp_path / "crash"
    crash.mkdir()
    (crash / "sitecustomize.py").write_text(
        "import os, decentral_dp.studies.runs as c\n"
        "real, done = c.compute, []\n"
        "def compute(tasks):\n"
        "    done.append(tasks)\n"
        "    return real(tasks) if len(done) != 2 else os.kill(os.getpid(), 9)\n"
        "c.compute = compute\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(crash))
    planned = [t for t in (make_task(cell, "run", "last") for cell in cells(make(seeds=3))) if isinstance(t, Task)]
    done = list(
        in_processes(
            partial(cell_files.compute_and_keep, tmp_path),
            [[task] for task in planned],
            lambda reason: [cell_files._make_record("failed", reason)],
            1,
        )
    )
    assert [r["status"] for _, [r] in done] == ["ok", "failed", "ok"]
    assert "was killed by signal 9" in done[1][1][0]["reason"]
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_finished_cells_of_an_interrupted_group_are_kept(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of a changing graph are not joined, so each is saved when it ends."""
    finish, finished = runner.collect_result, []

    def interrupted(*arguments: Any) -> Any:
        finished.append(arguments)
        if len(finished) == 3:
            raise KeyboardInterrupt
        return finish(*arguments)

    monkeypatch.setattr(runner, "collect_result", interrupted)
    with pytest.raises(Stopped, match="2 finished cells are kept"):
        conduct(make(seeds=20, set={"topology.delay": 1}), tmp_path / "out", jobs=1)


def test_cells_of_a_killed_group_are_computed_one_by_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = cells(make(seeds=8))
    planned = [t for t in (make_task(cell, "run", "last") for cell in listed) if isinstance(t, Task)]
    groups = [[task.content["seed"] for task in group] for group in cell_files._group_by_seed(planned, 2)]
    assert groups == [[1, 2], [3, 4], [5, 6], [7, 8]]
    crash = tmp_path / "crash"
    crash.mkdir()
    (crash / "sitecustomize.py").write_text(
        "import os, decentral_dp.studies.runs as c\n"
        "real = c.compute\n"
        "def compute(tasks):\n"
        "    seeds = [task.content['seed'] for task in tasks]\n"
        "    return os.kill(os.getpid(), 9) if seeds == [3, 4] or 7 in seeds else real(tasks)\n"
        "c.compute = compute\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(crash))
    done = {task.content["seed"]: record["status"] for task, record in cell_files.perform(planned, tmp_path, 2, None)}
    assert done == dict.fromkeys(range(1, 9), "ok") | {7: "failed"}


# --- command line, shipped studies ------------------------------------------------------------------------------------


def test_the_example_of_the_docstring_is_a_study() -> None:
    """The example in the docstring of the package is a valid study."""
    lines = (decentral_dp.studies.__doc__ or "").splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))
    study = load_study(tomllib.loads(text))
    _, listed = check_study(study)
    assert all(isinstance(make_task(cell, study.kind, study.rounds), Task) for cell in listed)


@pytest.mark.parametrize(
    "name", [*shipped_names("study"), *map(str, sorted(Path("papers/scenarios/studies").glob("*.toml")))]
)
def test_shipped_studies(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    _, found = check_study(study)
    tasks = [make_task(cell, study.kind, study.rounds) for cell in found]
    assert all(isinstance(task, Task) for task in tasks)
    assert study.title
    assert study.claims
    # A few rounds show whether a cell of it can be computed; what it finds is not asked here.
    first = copy.deepcopy(found[0])
    first.content["algorithm"]["rounds"] = min(5, first.content["algorithm"]["rounds"])
    task = make_task(first, study.kind, study.rounds)
    assert isinstance(task, Task)
    [record] = cell_files.compute([task])
    assert record["status"] in ("ok", "diverged"), record["reason"]


def test_different_guarantees_of_one_epsilon_are_reported(tmp_path: Path) -> None:
    """Noise that neighbours share, a trusted server and another unit are certified at the same ε, of something else."""
    changes: dict[str, dict[str, Any]] = {
        "own noise": {},
        "shared": {"privacy.correlation": {"between_agents": "pairwise"}},
        "central": {"algorithm.kind": "central"},
        "zeroed": {"privacy.neighbours": "zero_out"},
    }
    content = {
        "scenario": "classification",
        "kind": "plan",
        "set": {"algorithm.rounds": 4},
        "measure": ["epsilon_max"],
        "variants": [{"name": name, "set": changed} for name, changed in changes.items()],
        "plots": [{"name": "budget", "x": "variant", "y": "epsilon_max"}],
    }
    found = decentral_dp.study(content, out=tmp_path / "all")
    table = study_table(found.measurements)
    heads = [head for head, _ in table.heads]
    adversary, adjacency = heads.index("adversary"), heads.index("adjacency")
    said = {row[0]: (row[adversary], row[adjacency]) for row in table.rows}
    assert said == {
        "own noise": ("observes all messages", "replace one record of one agent"),
        "shared": ("observes all messages, no agent colludes", "replace one record of one agent"),
        "central": ("observes all that the trusted server publishes", "replace one record of one agent"),
        "zeroed": ("observes all messages", "zero out one record of one agent"),
    }
    page = (tmp_path / "all" / "report.html").read_text()
    assert "Different adversary: do not compare ε" in page
    assert "Different adjacency: do not compare ε" in page

    alike = decentral_dp.study({**content, "variants": content["variants"][:1]}, out=tmp_path / "one")
    assert not {"adjacency", "adversary"} & {head for head, _ in study_table(alike.measurements).heads}
    assert "do not compare ε" not in (tmp_path / "one" / "report.html").read_text()


def test_figures_and_measures_without_numbers_are_warnings(make: Make, tmp_path: Path) -> None:
    found = conduct(
        make(
            kind="plan",
            grid={"topology": RINGS},
            measure=["epsilon_max", "endless_stream"],
            plots=[
                {"name": "other", "x": "topology", "y": ["ok", "endless_stream"]},
                {"name": "over_nothing", "x": "endless_stream", "y": "ok"},
            ],
        ),
        tmp_path / "out",
        jobs=1,
    )
    files = sorted(p.suffix for p in (tmp_path / "out" / "plots").glob("other.*"))
    assert files == [".pdf", ".png", ".svg", ".txt"]
    assert [w.split(":")[0] for w in found.warnings] == ["measure", "plots (other)", "plots (over_nothing)"]


def test_an_epsilon_is_rounded_up_in_comparisons_and_tables(make: Make) -> None:
    side = {"measure": "epsilon_max", "where": FIRST}
    found = judged(make, (8.811, 0.0, 0.0), "epsilon_max", left=side, right=8.0, **{"is": "greater"})
    assert found.numbers.startswith("8.82 against 8")
    cells = pd.DataFrame({"guarantee": ["as_published"], "mechanism": "laplace", "delta": 1e-5, "status": "ok"})
    cells[["adjacency", "adversary", "method"]] = ""
    row = {"round": 1, "last": True, "n": 1, "mean": 8.811, "low": math.nan, "high": math.nan}
    study = make(measure=["claimed", "epsilon_max", "upper_loss"])
    means = pd.DataFrame([{"name": name, **row} for name in study.measure])
    assert list(study_table(Measured(study, [], means, cells)).rows[0][-3:]) == ["8.82", "8.82", "8.81"]


def test_the_command_writes_a_study_and_refuses_before_it_runs(command: Command, make: Make, tmp_path: Path) -> None:
    make()
    file = tmp_path / "study.toml"
    left = {"measure": "test_accuracy"}
    content = {
        "scenario": "base.toml",
        "measure": ["test_accuracy"],
        "grid": {"topology.weights": ["metropolis", {"kind": "constant", "value": 0.7}]},
        "claims": [{"statement": "above a low bound", "left": left, "is": "greater", "right": -10.0}],
    }
    file.write_text(tomli_w.dumps(content))
    code, out, err = command("study", file, "--jobs", 1, "--set", "algorithm.rounds=2", "--set", "seeds=2")
    assert (code, err) == (0, "")
    assert "2 of 4 cells failed" in out
    folder = tmp_path / "runs" / "study-study"
    claim = json.loads((folder / "claims.json").read_text())[0]
    assert (claim["missing"], claim["outcome"]) == (1, "not measured")
    assert pd.read_parquet(folder / "cells.parquet")["round"].max() == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    for bad in (
        ["--set", "privacy.epsilon=-1.0"],
        ["--set", "grid.algorithm.ruonds=[1]"],
        ["--out", file],
        ["--set", "seeds=0"],
        ["--out", tmp_path / "full"],
    ):
        code, out, err = command("study", file, "--jobs", 1, *bad)
        assert (code, out) == (2, "")
        assert err.startswith("Error: ")
