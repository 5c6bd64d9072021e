"""Paired gains: what may be compared, what a level is called, and how many levels pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import scipy.stats
import tomli_w

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.studies.comparisons import (
    COSTS,
    FAILED,
    OPEN,
    PAYS,
    UNEQUAL,
    gain_table,
    gain_words,
)
from decentral_dp.studies.figures import study_figures
from decentral_dp.studies.schema import Study, axes, cells, load_study
from decentral_dp.studies.study import check_study, conduct
from decentral_dp.studies.tables import Measured

Make = Callable[..., Study]
PAIR = {"name": "tuned", "of": "a", "over": "b"}
GAIN = {"name": "gain", "measure": "test_accuracy", "x": "privacy.epsilon", "pairs": [PAIR]}
SHIPPED = ("tuning_pays", "when_tuning_pays")


@pytest.fixture
def make(scenario: Callable[..., dict[str, Any]], tmp_path: Path) -> Make:
    """A study of two variants, tuned and at a step of x of 0, at two ε; keywords are its keys."""
    base = scenario(algorithm={"rounds": 3}, run={"evaluate_every": 3}, privacy={"mechanism": "gaussian"})
    (tmp_path / "base.toml").write_text(tomli_w.dumps(base), encoding="utf-8")

    def study(**keys: Any) -> Study:
        usual: dict[str, Any] = {
            "scenario": str(tmp_path / "base.toml"),
            "seeds": [4, 9, 11],
            "grid": {"privacy.epsilon": [1.0, 8.0]},
            "variants": [{"name": "a"}, {"name": "b", "set": {"algorithm": {"x": {"scale": 0.0}}}}],
            "gains": [GAIN],
        }
        return load_study({**usual, **keys})

    return study


# --- pairs are fair ---------------------------------------------------------------------------------------------------


def test_gains_are_differences_seed_by_seed(make: Make, tmp_path: Path) -> None:
    found = conduct(make(), tmp_path / "out", jobs=1)
    last = found.results[found.results["last"] & (found.results["name"] == "test_accuracy")]
    for row in found.gains.to_dict("records"):
        at = last[last["privacy.epsilon"] == row["privacy.epsilon"]]
        sides = [at[at["variant"] == v].set_index("seed")["value"].sort_index() for v in "ab"]
        assert sides[0].index.tolist() == sides[1].index.tolist() == [4, 9, 11]
        each = (sides[0] - sides[1]).to_numpy()
        assert row["mean"] == pytest.approx(each.mean(), abs=1e-12)
        # Common noise may leave no spread.
        half = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem(each)
        assert (row["low"], row["high"]) == pytest.approx((each.mean() - half, each.mean() + half), abs=1e-12)
        assert (row["n"], row["pairs"], row["failed"]) == (3, 3, 0)
        assert row["epsilon_of"] == pytest.approx(row["privacy.epsilon"], rel=1e-3)
        assert row["epsilon_over"] == pytest.approx(row["privacy.epsilon"], rel=1e-3)
    assert pd.read_csv(tmp_path / "out" / "gains.csv")["pair"].tolist() == ["tuned", "tuned"]
    assert (tmp_path / "out" / "plots" / "gain.png").exists()
    assert "Gains" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"problem": {"validation": 0.3}}, "problem"),
        ({"problem": {"seed": 3}}, "problem"),
        ({"privacy": {"delta": 1e-3}}, r"privacy\.delta"),
        ({"privacy": {"guarantee": "none"}}, r"privacy\.guarantee"),
        ({"privacy": {"unit": "agent"}}, r"privacy\.unit"),
        ({"privacy": {"neighbours": "zero_out"}}, r"privacy\.neighbours"),
    ],
)
def test_a_pair_that_differs_in_other_keys_is_refused(make: Make, changed: Mapping[str, Any], named: str) -> None:
    check_study(make())
    with pytest.raises(InputError, match=rf'"a" and "b" differ in {named}'):
        check_study(make(variants=[{"name": "a"}, {"name": "b", "set": changed}]))


def test_a_pair_may_differ_in_its_network_or_algorithm(make: Make) -> None:
    def sides(**changed: Any) -> Study:
        return make(variants=[{"name": "a"}, {"name": "b", "set": changed}])

    network, other = {"topology": {"kind": "isolated", "agents": 3}}, {"algorithm": {"rounds": 9}}
    check_study(sides(**network))
    check_study(sides(**other))
    with pytest.raises(InputError, match="differ in topology and algorithm"):
        check_study(sides(**network, **other))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pairs": [PAIR | {"over": "c"}]}, '"c" is not a variant'),
        ({"measure": "test_acuracy"}, '"test_acuracy" is not measured'),
        ({"x": "variant"}, '"variant" is not an axis of the grid'),
        ({"y": "algorithm.rounds"}, r'"algorithm\.rounds" is not an axis of the grid'),
        ({"where": {"privacy.epsilon": 2.0}}, r"where\.privacy\.epsilon: 2\.0 is not a value"),
    ],
)
def test_unknown_names_of_gains_are_refused(make: Make, changed: Mapping[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_study(make(gains=[GAIN | changed]))


def test_an_unused_axis_of_a_gain_is_refused(make: Make) -> None:
    with pytest.raises(InputError, match=r"algorithm\.rounds varies too"):
        check_study(make(grid={"privacy.epsilon": [1.0, 8.0], "algorithm.rounds": [2, 3]}))


@pytest.mark.parametrize("name", SHIPPED)
def test_both_sides_of_every_shipped_pair_cost_the_same_certified_epsilon(name: str) -> None:
    study = load_study(name, ["seeds=1"])
    level = {axis.name: axis.labels[-1] for axis in axes(study) if axis.name == "privacy.epsilon"}
    level |= {axis.name: axis.labels[0] for axis in axes(study) if axis.name.endswith("records")}
    spent = {
        cell.labels["variant"]: float(build(load(cell.content, folder=cell.folder)).budget.epsilon.max())
        for cell in cells(study)
        if level.items() <= cell.labels.items()
    }
    compared = [(pair.of, pair.over) for gain in study.gains for pair in gain.pairs]
    assert compared
    target = float(level["privacy.epsilon"])
    for side in {name for pair in compared for name in pair}:
        assert 0.998 * target <= spent[side] <= target, side


# --- verdicts on a level ------------------------------------------------------------------------------------------


def measured(
    gains: Sequence[Sequence[float]], status: str = "ok", spent: float = 1.0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Results and cells of a study of `make`: gains[k] are the differences of three seeds at the k-th ε.

    The last cell of side "a" has this status, and all of side "a" have spent so much; side "b" has spent 1.
    """
    results, rows = [], []
    for epsilon, each in zip((1.0, 8.0), gains, strict=True):
        for seed, gain in zip((4, 9, 11), each, strict=True):
            for side in "ab":
                cell = f"{side}-{epsilon}-{seed}"
                ended = status if side == "a" and (epsilon, seed) == (8.0, 11) else "ok"
                score = 0.5 + gain if side == "a" else 0.5
                price = spent if side == "a" else 1.0
                at = {"cell": cell, "seed": seed, "variant": side, "privacy.epsilon": epsilon}
                rows.append(
                    at
                    | {
                        "status": ended,
                        "guarantee": "certified",
                        "mechanism": "gaussian",
                        "delta": 1e-5,
                        "adjacency": "",
                        "adversary": "",
                    }
                )
                for measure, value in (("test_accuracy", score), ("epsilon_max", price)):
                    results.append(at | {"round": 3, "last": True, "name": measure, "value": value})
    return pd.DataFrame(results), pd.DataFrame(rows)


UP, DOWN, AROUND = (0.1, 0.11, 0.12), (-0.1, -0.11, -0.12), (0.1, -0.1, 0.0)


@pytest.mark.parametrize(
    ("gains", "options", "said"),
    [
        ((UP, UP), {}, [PAYS, PAYS]),
        ((DOWN, AROUND), {}, [COSTS, OPEN]),
        ((UP, UP), {"status": "diverged"}, [PAYS, FAILED]),
        ((UP, UP), {"spent": 1.01}, [UNEQUAL, UNEQUAL]),
        ((DOWN, UP), {"spent": 0.5}, [COSTS, PAYS]),
    ],
)
def test_the_verdict_of_a_level(
    make: Make, gains: Sequence[Sequence[float]], options: Mapping[str, Any], said: Sequence[str]
) -> None:
    table = gain_table(make(), *measured(gains, **options))
    assert table["verdict"].tolist() == said
    assert table["n"].tolist() == [3, 2 if FAILED in said else 3]


@pytest.mark.parametrize(
    ("gains", "options", "paying"),
    [
        ((DOWN, AROUND), {}, "pays at 0 of 2"),
        ((AROUND, UP), {"status": "failed"}, "pays at 0 of 2"),
        ((AROUND, UP), {}, "pays at 1 of 2"),
        (((math.nan,) * 3, (math.nan,) * 3), {}, "not measured"),
    ],
)
def test_levels_that_pay_are_counted(
    make: Make, gains: Sequence[Sequence[float]], options: Mapping[str, Any], paying: str
) -> None:
    study = make()
    results, listed = measured(gains, **options)
    table = gain_table(study, results, listed)
    (sentence,) = gain_words(study.gains[0], table)
    assert paying in sentence
    drawn = [name for name, _, _ in study_figures(Measured(study, [], results, listed), table)]
    assert drawn == (["gain"] if "pays" in paying else [])
