"""A component is checked on neighbouring synthetic data: honest ones pass, and each kind of cheat is caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.auditing.check import CheckResult, CheckRow, _check_networks, find_target
from decentral_dp.auditing.check import try_component as check
from decentral_dp.auditing.component_runs import searched_pairs
from decentral_dp.auditing.terminal import print_check
from decentral_dp.cli.main import app
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.pages import EXAMPLES, write_files

STATED, FREE = '{"y": {"lower_grad_y": "learning_rate"}}', '{"y": {"lower_grad_y": "learning_rate"}, "u": {}}'
SENT = "yield Gossip(y=s.y)"
NETWORKS = ["absent agents", "compressed messages"]
NAMES = ["conformance", "row locality", "neighbours", "search", *NETWORKS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_files(tmp_path, EXAMPLES)


def changed(folder: Path, name: str, *changes: tuple[str, str]) -> str:
    """Write the page's example with some of its text replaced, and return its name."""
    text = EXAMPLES["momentum.py"]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text, encoding="utf-8")
    return f"{name.removesuffix('.py')}:Momentum"


def verdicts(found: CheckResult) -> dict[str, str]:
    return {row.name: row.verdict for row in found.rows}


def why(found: CheckResult, name: str) -> str:
    return next(row.why for row in found.rows if row.name == name)


@pytest.mark.parametrize("what", ["momentum:Momentum", "averaged:Averaged", "momentum.toml"])
def test_the_pages_examples_pass(folder: Path, what: str) -> None:
    found = check(what, pairs=24)
    assert found.passed
    # Agents of `averaged.py` answer a server.
    untried = ["row locality", *(NETWORKS if what.startswith("averaged") else [])]
    assert verdicts(found) == dict.fromkeys(NAMES, "checked") | dict.fromkeys(untried, "not tried")
    assert found.rounds == found.of_rounds > 2
    search = found.rows[NAMES.index("search")]
    assert 24 <= search.pairs <= 48
    assert search.ratio is not None
    assert 0.9 < search.ratio <= 1.0 + 1e-9


def test_the_search_attains_the_sensitivity(folder: Path) -> None:
    """Unbounded records against a clip: two contributions of the largest norm, in opposite directions."""
    toml = EXAMPLES["momentum.toml"].replace('normalise = "l2"\n', "").replace('scale = "public_ranges"\n', "")
    (folder / "far.toml").write_text(toml, encoding="utf-8")
    found = check("far.toml", pairs=24)
    ratio = found.rows[NAMES.index("search")].ratio
    assert found.passed
    assert ratio is not None
    assert 0.99 < ratio <= 1.0 + 1e-9


LINEAR = ("momentum.toml", 'kind = "logistic_hyperparameter"', 'kind = "classification"')


@pytest.mark.parametrize("scenario", ["linear.toml", "hypergradient.toml", "kgt"])
def test_the_search_reaches_the_sensitivity_of_bounded_records(folder: Path, scenario: str) -> None:
    """Records of norm 1, whose gradients do not attain the clip, or only at a large released value."""
    (folder / "linear.toml").write_text(EXAMPLES[LINEAR[0]].replace(*LINEAR[1:]), encoding="utf-8")
    found = check(scenario, rounds=6)
    assert found.passed, found.to_dict()
    shares = [int(share) for share in re.findall(r"(\d+) % \(", why(found, "search"))]
    assert len(shares) == (3 if scenario == "hypergradient.toml" else 1)
    assert min(shares) >= 90, shares
    assert "weak" not in why(found, "search")


def test_a_weak_search_says_so(folder: Path) -> None:
    """Without pairs of a search, one far record reaches a quarter of the sensitivity or less."""
    (folder / "linear.toml").write_text(EXAMPLES[LINEAR[0]].replace(*LINEAR[1:]), encoding="utf-8")
    found = check("linear.toml", pairs=0, rounds=2)
    assert found.passed
    search = found.rows[NAMES.index("search")]
    assert search.ratio is not None
    assert 0.0 < search.ratio < 0.5
    assert f"planned too low by a factor below {1.0 / search.ratio:.3g} passes" in search.why


@pytest.mark.parametrize(
    ("source", "value", "problem"),
    [
        ("momentum", "moved - self.learning_rate(t) * gradient", "logistic_hyperparameter"),
        ("momentum", "moved - self.learning_rate(t) * gradient", "classification"),
        ("hypergradient", "z - self.z(t) * (d.lower_hvp - d.upper_grad_y)", "logistic_hyperparameter"),
    ],
)
def test_a_plan_that_is_too_low_by_a_factor_of_1_15_is_detected(
    folder: Path, source: str, value: str, problem: str
) -> None:
    code, toml = EXAMPLES[f"{source}.py"], EXAMPLES[f"{source}.toml"]
    assert value in code
    moved = f"(lambda b: replace(b, private=1.15 * b.private))({value})"
    code = code.replace(value, moved).replace("import dataclass", "import dataclass, replace")
    (folder / "low.py").write_text(code, encoding="utf-8")
    toml = toml.replace(f"{source}:", "low:").replace("logistic_hyperparameter", problem)
    (folder / "low.toml").write_text(toml, encoding="utf-8")
    found = check("low.toml")
    assert verdicts(found)["search"] == "failed", found.to_dict()
    ratio = found.rows[NAMES.index("search")].ratio
    assert ratio is not None
    assert 1.0 < ratio <= 1.15 * (1.0 + 1e-9)


def test_leaks_by_extreme_records_are_detected(folder: Path) -> None:
    """Detect a flag that only a huge record raises, although the first rehearsals have none."""
    largest = "max(np.abs(r[0]).max() for r in dataset._records['train'])"
    flag = f"yield Gossip(y=s.y, u=0.0 * s.last + float({largest} > 1e100))"
    name = changed(folder, "flag.py", (STATED, FREE), (SENT, flag), ("from typing", "import numpy as np\nfrom typing"))
    toml = EXAMPLES["momentum.toml"].replace('normalise = "l2"\n', "").replace('scale = "public_ranges"\n', "")
    (folder / "flag.toml").write_text(toml.replace("momentum:Momentum", name), encoding="utf-8")
    build("flag.toml")
    assert verdicts(check("flag.toml", pairs=32))["neighbours"] == "failed"


@pytest.mark.parametrize(
    "ends",
    [
        f"if HUGE:\n            {SENT}\n        own, near = {SENT}",
        f"if HUGE:\n            raise ArithmeticError('too large')\n        own, near = {SENT}",
    ],
    ids=["one exchange more", "a run that ends"],
)
def test_a_sequence_that_depends_on_records_is_detected(folder: Path, ends: str) -> None:
    """The number of exchanges, and whether the run continues, leave without noise."""
    huge = "any(np.abs(r[0]).max() > 1e100 for r in dataset._records['train'])"
    step = (f"own, near = {SENT}", ends.replace("HUGE", huge))
    name = changed(folder, "ends.py", step, ("from typing", "import numpy as np\nfrom typing"))
    toml = EXAMPLES["momentum.toml"].replace('normalise = "l2"\n', "").replace('scale = "public_ranges"\n', "")
    (folder / "ends.toml").write_text(toml.replace("momentum:Momentum", name), encoding="utf-8")
    build("ends.toml")
    found = check("ends.toml", pairs=32)
    assert not found.passed
    assert verdicts(found)["neighbours"] == "failed"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (STATED, '{"y": {"lower_grad_y": 0.5}}', "moves y in round 1 by up to"),
        (
            f"        own, near = {SENT}",
            f"        {SENT}\n        own, near = {SENT}",
            "exchanges",
        ),
    ],
)
def test_unplanned_releases_are_detected(folder: Path, old: str, new: str, told: str) -> None:
    found = check(changed(folder, "fewer.py", (old, new)), pairs=4)
    assert not found.passed
    assert verdicts(found)["conformance"] == "failed"
    assert told in why(found, "conformance")


def test_a_release_without_a_bound_is_not_reported_as_searched(folder: Path) -> None:
    """A gradient at an unreleased state is planned as bounded."""
    found = check(changed(folder, "open.py", ("lower_grad_y(s.x, own.y)", "lower_grad_y(s.x, s.y)")), pairs=4)
    assert (verdicts(found)["conformance"], verdicts(found)["search"]) == ("failed", "not tried")
    assert found.rows[NAMES.index("search")].ratio is None
    assert "y in round 2 states no finite sensitivity" in why(found, "search")
    assert "only noiseless values were compared" in why(found, "absent agents")


LATE = {
    # A noiseless mean on a free channel, or inside a message, and a release that exceeds its sensitivity.
    "free channel": (
        "neighbours",
        [
            (STATED, FREE),
            (SENT, "yield Gossip(y=s.y, u=s.y.value if t >= 5 else 0.0 * s.last)"),
        ],
    ),
    "private part": (
        "neighbours",
        [
            (
                "moved - self.learning_rate(t) * gradient,",
                "moved - self.learning_rate(t) * gradient + (0.1 * gradient.private if t >= 5 else 0.0),",
            )
        ],
    ),
    "unclipped": (
        "search",
        [
            ("import dataclass", "import dataclass, replace"),
            (
                "moved - self.learning_rate(t) * gradient,",
                "(lambda b: replace(b, private=(3.0 if t >= 5 else 1.0) * b.private))"
                "(moved - self.learning_rate(t) * gradient),",
            ),
        ],
    ),
}


@pytest.mark.parametrize("leak", LATE)
def test_a_leak_in_a_late_round_is_detected(folder: Path, leak: str) -> None:
    """The leak begins in round 5, so two rounds do not find it."""
    row, changes = LATE[leak]
    name = changed(folder, "late.py", *changes)
    toml = EXAMPLES["momentum.toml"].replace("momentum:Momentum", name).replace("rounds = 6", "rounds = 8")
    # Contributions of the full clip.
    toml = toml.replace('normalise = "l2"\n', "").replace('scale = "public_ranges"\n', "")
    (folder / "late.toml").write_text(toml, encoding="utf-8")
    build("late.toml")
    found = check("late.toml", pairs=8)
    assert (found.rounds, found.of_rounds) == (8, 8)
    assert verdicts(found)[row] == "failed", found.to_dict()
    assert re.search("in round [567]", why(found, row))
    early = check("late.toml", pairs=8, rounds=2)
    assert early.passed
    assert "first 2 of 8 rounds" in early.label


def test_randomness_is_not_reported_as_a_leak(folder: Path) -> None:
    drawn = "moved - self.learning_rate(t) * gradient + RANDOM.normal(size=s.y.shape if t == 0 else own.y.shape),"
    changes = [("moved - self.learning_rate(t) * gradient,", drawn), ("from typing", "import numpy as np\nfrom typing")]
    chance = [(old, new.replace("RANDOM", "np.random")) for old, new in changes]
    found = check(changed(folder, "chance.py", *chance), pairs=4, rounds=2)
    assert verdicts(found)["conformance"] == "failed"
    assert "y in round 1 differs between two runs on the same records" in why(found, "conformance")
    assert verdicts(found)["neighbours"] == verdicts(found)["search"] == "not tried"
    keyed = [(old, new.replace("RANDOM", "np.random.default_rng((7, t))")) for old, new in changes]
    assert check(changed(folder, "keyed.py", *keyed), pairs=4, rounds=2).passed


PARTS = """
import numpy as np
from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    name, norm, deviation = "mine", "l2", 1.0
    unit = "μ"

    def cost(self, sensitivity, scale, width):
        return FACTOR * (sensitivity / scale + width * 2.0**-19)

    def sample(self, generator, query, grid, scale):
        return grid * (np.rint(query / grid) + np.rint(DRAWS.normal(0.0, scale / grid, query.size)))


def deal(labels, agents):
    return np.arange(len(labels)) % agents


def graph(agents):
    return [(k, (k + 1) % agents) for k in range(agents)]
"""


def with_parts(folder: Path, factor: str = "1.0", draws: str = "generator", **files: str) -> str:
    """Write the page's scenario with a custom mechanism, partition and graph."""
    (folder / "parts.py").write_text(PARTS.replace("FACTOR", factor).replace("DRAWS", draws), encoding="utf-8")
    (folder / "graph.py").write_text(PARTS[PARTS.index("def graph") :], encoding="utf-8")
    toml = EXAMPLES["momentum.toml"]
    for old, new in (
        ('mechanism = "gaussian"', 'mechanism = "parts:Noise"'),
        ('kind = "ring"', 'kind = "graph:graph"'),
        ("[topology]", 'partition = "parts:deal"\n\n[topology]'),
    ):
        assert old in toml
        toml = toml.replace(old, new)
    (folder / "parts.toml").write_text(toml, encoding="utf-8")
    return "parts.toml"


def test_mechanism_and_partition_have_rows(folder: Path) -> None:
    found = check(with_parts(folder), pairs=2)
    assert found.passed
    assert {verdicts(found)[name] for name in ("mechanism", "partition")} == {"checked"}


@pytest.mark.parametrize(
    ("factor", "draws", "told"),
    [
        ("0.5", "generator", "its cost is too low"),
        ("1.0", "np.random.default_rng(generator.integers(20000))", "the same noise for agent"),
    ],
)
def test_a_wrong_mechanism_is_detected(folder: Path, factor: str, draws: str, told: str) -> None:
    """Half its cost, or one noise for all keys: only the row of the mechanism fails."""
    found = check(with_parts(folder, factor, draws), pairs=2, rounds=2)
    assert not found.passed
    assert [name for name, verdict in verdicts(found).items() if verdict == "failed"] == ["mechanism"]
    assert told in why(found, "mechanism")


UNCLIPPED = """
from dataclasses import dataclass

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter


class Whole(LogisticHyperparameter):
    def terms(self, x, y, z, train, validation, clip):
        return super().terms(x, y, z, train, validation, Clip(clip.norm))

    def stacked_terms(self, x, y, z, records, clip, wanted):
        return super().stacked_terms(x, y, z, records, Clip(clip.norm), wanted)


@dataclass(frozen=True)
class Problem:
    def terms(self):
        pass

    prepare = terms

    def for_data(self, facts):
        return Whole(facts.n_features, (0.0, 1.0))
"""


def test_a_problem_without_clipping_fails_the_search(folder: Path) -> None:
    (folder / "unclipped.py").write_text(UNCLIPPED, encoding="utf-8")
    found = check("unclipped:Problem", pairs=16)
    search = found.rows[NAMES.index("search")]
    assert search.verdict == "failed"
    assert search.ratio is not None
    assert search.ratio > 100.0
    assert "but one" in search.why
    # The same with its clip is fine.
    (folder / "clipped.py").write_text(UNCLIPPED.replace("Clip(clip.norm)", "clip"), encoding="utf-8")
    assert check("clipped:Problem", pairs=16).passed


def test_pairs_are_seeded_and_differ_in_one_record() -> None:
    shards = build("ldp_dsbo").shards
    first, second = (list(searched_pairs(shards, 20, 3)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.second.features, other.second.features)
        moved = (one.first.features != one.second.features).any(axis=1) | (one.first.labels != one.second.labels)
        assert set(np.flatnonzero(moved)) <= {one.record}
        assert one.replacement is not None
        held = getattr(shards, one.replacement.split)[one.replacement.agent]
        assert one.record in held
        assert np.isfinite(one.first.features).all()
        # As loading would have it.
        assert np.linalg.norm(one.first.features[one.record]) <= shards.l2 * (1.0 + 1e-12)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", *arguments])


def test_a_check_that_passed_verifies_nothing(folder: Path) -> None:
    """The code of a file may differ in rounds and on records that no check tries: its ε stays unverified."""
    before = decentral_dp.plan(str(folder / "momentum.toml")).privacy
    assert invoke("momentum:Momentum", "--pairs", "2").exit_code == 0
    after = decentral_dp.plan(str(folder / "momentum.toml")).privacy
    assert after.rests_on_unverified
    assert after.unverified == before.unverified
    assert {path.suffix for path in folder.iterdir()} == {".py", ".toml"}


MECHANISM = """
class Logistic:
    def cost(self, sensitivity, scale, width):
        return sensitivity / scale

    def sample(self, generator, query, grid, scale):
        return query
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("ldp_dsbow", '"ldp_dsbo"'),
        ("missing:Name", "no module missing"),
        ("momentum:No", "defines no No"),
        ("missing.toml", "is not a file"),
        ("stair:Logistic", "a scenario that uses it"),
        (np.zeros((2, 2)), "a scenario that uses it"),
    ],
    ids=str,
)
def test_other_objects_are_refused(folder: Path, what: Any, told: str) -> None:
    (folder / "stair.py").write_text(MECHANISM, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(told)):
        check(what)


GOSSIP = sorted(kind for kind, entry in ALGORITHMS.items() if entry.setting == "gossip")
# Algorithms that must not be refused, by network.
RUN = {"absent agents": {"push_sum", "dp_dsgd"}, "compressed messages": {"choco", "dp_dsgd"}}


@pytest.mark.parametrize("kind", GOSSIP)
def test_no_algorithm_fails(kind: str) -> None:
    for row in _check_networks(find_target(kind)[0], pairs=4, seed=0, rounds=4):
        assert row.verdict == "checked" or (row.verdict == "not tried" and kind not in RUN[row.name]), row


def test_centred_features_pass() -> None:
    """A mean of features: pairs of data sets in which all other records are 0 are among those tried."""
    content = {
        "seed": 1,
        "problem": {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges"},
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "dp_dsgd", "rounds": 8, "learning_rate": {"scale": 0.5}, "centring": True},
        "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 0.1}, "share": {"x": 0.1, "y": 0.9}},
    }
    result = check(content, pairs=4, rounds=3)
    assert result.passed
    search = next(row for row in result.rows if row.name == "search")
    assert search.ratio == pytest.approx(1.0, rel=1e-6)


def test_the_table_has_whole_words_and_each_reason_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    requirements = {
        "search": "moved / sensitivity is at most 1",
        "compressed messages": "topology.compression: as search",
    }
    rows = tuple(CheckRow(name, text, 12, "not tried", why="It does not run.") for name, text in requirements.items())
    print_check(CheckResult("momentum", rows, 24, 0, 2, 2))
    printed = capsys.readouterr().out
    assert "– search, compressed messages: It does not run.\n" in printed
    assert printed.count("It does not run.") == 1
    words = {word for line in printed.splitlines() for word in line.split()}
    assert {word for text in requirements.values() for word in text.split()} <= words
