"""Scenario files: what is refused, in which words; overrides; what a resolved scenario reproduces; secret noise."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.loading import shipped_names
from decentral_dp.privacy.randomness import SecretRoot
from decentral_dp.simulation.jobs.build import build_job as build
from tests.conftest import BASE

Make = Callable[..., dict[str, Any]]

# override → a part of the sentence that refuses it.
REFUSED = {
    "algorthm.rounds=3": 'algorthm: unknown key; did you mean "algorithm"',
    "problem.dta=3": 'problem.dta: unknown key; did you mean "data"',
    'problem."da ta"=3': 'problem."da ta": unknown key; did you mean "data"',
    "algorithm.inner=3": "algorithm.inner: ldp_dsbo takes none, only bsa",
    "algorithm.kind=dp_dsgd": "algorithm.x: dp_dsgd takes none, only",
    "algorithm={kind='ma_dsbo', rounds=2, x={scale=1.0}, y={scale=1.0}, z={scale=1.0}}": "algorithm.inner: missing",
    "algorithm.x.decy=1.0": 'algorithm.x.decy: unknown key; did you mean "decay"',
    "Ü=3": "Ü: unknown key. Valid: ",
    "problem=3": "problem: got 3, wanted a table",
    "problem.kind.x=3": "problem.kind.x has kind for a table",
    "problem.kind=logistic": "problem.kind: no problem 'logistic'",
    "problem.data=nowhere": "problem.data: 'nowhere' is no bundled data set, and no path",
    "problem.data=nowhere.csv": "nowhere.csv' cannot be read: No such file",
    'problem.data="a\\u0000b.csv"': "NUL character",
    "problem.kind=softmax_hyperparametr": "the nearest is 'softmax_hyperparameter'",
    "problem.data=wine": "needs exactly 2 classes, and the data have 3",
    "problem.classes=[0,1]": "problem.classes: 'breast_cancer' has the classes",
    "problem.validation=0": "problem.validation: got 0, wanted a number above 0, or text",
    "problem.validation=a": "problem.validation: 'breast_cancer' takes none",
    "problem.validation=0.001": "train and 0 validation records",
    "problem.test=1": "problem.test: got 1, wanted a number below 1",
    "problem.partition={kind='dirichlet'}": 'problem.partition: a "dirichlet" partition needs alpha',
    "problem.partition={kind='dirichlett'}": 'problem.partition.kind: got "dirichlett", wanted "iid", "by_class"',
    "problem.partition={alpha=1.0}": "problem.partition.kind: missing",
    "problem.partition={kind='dirichlet',alfa=1}": 'problem.partition.alfa: unknown key; did you mean "alpha"',
    "problem.partition={kind='dirichlet',alpha=0.0}": "problem.partition.alpha: got 0.0, wanted a number of at least",
    "problem.partition={kind='dirichlet',alpha=nan}": "problem.partition.alpha: got NaN",
    "problem.partition={kind='by_class',share=1.5}": "problem.partition.share: got 1.5, wanted a number of at most 1",
    "problem.partition={kind='by_class',share='half'}": 'problem.partition.share: got "half", wanted a number',
    "problem.partition=dirichlet": 'problem.partition: got "dirichlet", wanted "iid", or a table',
    "problem.scale=standard": "problem.scale: got 'standard'",
    "problem.scale=3": "problem.scale: got 3, wanted text, or a table",
    "problem.scale={Age=['a','b']}": 'problem.scale.Age.0: got "a", wanted a number',
    "problem.scale={'*'=[1.0,0.0]}": "low < high",
    "problem.normalise=l3": 'problem.normalise: got "l3", wanted "none", "l1", "l2" or "box"',
    "problem.stream={kind='minibatch'}": 'problem.stream: a "minibatch" stream needs batch',
    "problem.stream={kind='all',batch=3}": 'problem.stream: a "all" stream takes no batch',
    "problem.ridge=1.0": "problem.ridge: logistic_hyperparameter takes none, only ",
    "problem.synthetic.records=3": "problem.synthetic.records: 'breast_cancer' takes none",
    "problem.seed=-1": "problem.seed: got -1, wanted a number of at least 0",
    "problem.test=1.0": "problem.test: got 1.0, wanted a number below 1",
    "problem.test=-0.1": "problem.test: got -0.1, wanted a number of at least 0",
    "problem.test=nan": "problem.test: got NaN, wanted a number",
    "problem.validation=0.0": "problem.validation: got 0.0, wanted a number above 0",
    "problem.validation=1.0": "problem.validation: got 1.0, wanted a number below 1",
    "problem.stream={batch=0}": "problem.stream.batch: got 0, wanted a number of at least 1",
    "problem.construction={share=1.0}": "problem.construction.share: got 1.0, wanted a number below 1",
    "problem.construction={tail=0.0}": "problem.construction.tail: got 0.0, wanted a number above 0",
    "problem.synthetic.dimension=0": "problem.synthetic.dimension: got 0, wanted a number of at least 1",
    "problem.synthetic.steps=0": "problem.synthetic.steps: got 0, wanted a number of at least 1",
    "problem.synthetic.separation=nan": "problem.synthetic.separation: got NaN, wanted a finite number",
    "topology.agents=0": "topology.agents: got 0, wanted a number of at least 1",
    "topology.kind=rign": 'did you mean "ring"',
    "topology.degree=3": 'topology (kind "ring"): got "degree"',
    "topology.agents=400": "records (expected at least one)",
    "topology.agents=9999": "cannot share 455 records",
    "topology.agents=1": "at least 2",
    "topology.weights={kind='constant',value=0.9}": "gossip diverges unless ρ < 1",
    "topology.file=a.graphml": "give either kind",
    "topology={file='nowhere.graphml'}": "nowhere.graphml: the file cannot be read",
    "topology={file='abilen'}": 'did you mean "abilene"',
    "topology={file='abilene',agents=3}": "topology.agents: got 3, but abilene has 11 agents",
    "algorithm.rounds=0": "algorithm.rounds: got 0, wanted a number of at least 1",
    "algorithm.rounds=1.5": "algorithm.rounds: got 1.5, wanted a whole number",
    "algorithm.rounds=true": "algorithm.rounds: got true, wanted a whole number",
    "algorithm.rounds=10000000000": "that can be priced. Fix: use fewer rounds",
    "algorithm.x.scale=nan": "algorithm.x.scale: got NaN, wanted a finite number",
    "algorithm.x.scale=-1": "algorithm.x.scale: got -1, wanted a number of at least 0",
    "algorithm.init={w=1.0}": 'wanted "x", "y" or "z"',
    "algorithm.kind=sgd": "algorithm.kind: no algorithm 'sgd'",
    "privacy.guarantee=certain": 'wanted "certified", "as_published" or "none"',
    "privacy.guarantee=as_published": 'privacy.epsilon: guarantee = "as_published" runs',
    "privacy.epsilon=0": "privacy.epsilon: got 0, wanted a number of at least 1e-09",
    "privacy.delta=1": "privacy.delta: got 1, wanted a number below 1",
    "privacy.clip={y=1.0}": "privacy.clip.z: missing",
    "privacy.y={scale=1.0}": "privacy.y.scale: a channel that reads records has noise by its scale or by epsilon",
    "privacy.share={y=1.0}": "privacy.share.z: missing",
    "privacy.cap=1e-9": "privacy.cap: the first round alone costs more",
    "privacy.box={y=-1.0}": "privacy.box.y: the domain of the release is empty",
    "algorithm.y.scale=1e300": "cannot be added exactly in float64",
    "run.engine=spark": 'run.engine: got "spark", wanted "local" or "ray"',
    "seed=-1": "seed: got -1, wanted a number of at least 0",
    "seed=1979-05-27": "wanted a whole number",
    "rounds": "set: got ",
    "=3": "set: got ",
    "a..b=3": "set: got ",
}


@pytest.mark.parametrize("override", REFUSED)
def test_wrong_values_are_refused_in_one_sentence(scenario: Make, override: str) -> None:
    with pytest.raises(InputError) as refused:
        build(load(scenario(), [override]))
    message = str(refused.value)
    assert REFUSED[override] in message
    assert "\n" not in message
    assert message.endswith(".")
    assert "pydantic" not in message
    assert "Table" not in message


def test_a_missing_table_is_named(scenario: Make) -> None:
    content = scenario()
    del content["algorithm"]["z"]
    with pytest.raises(InputError, match=r"algorithm\.z: missing. ldp_dsbo needs it"):
        build(load(content))


def test_epsilon_or_scales_have_to_be_given(scenario: Make) -> None:
    content = scenario()
    del content["privacy"]["epsilon"]
    with pytest.raises(InputError, match=r"privacy\.y\.scale"):
        build(load(content))


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "problem, topology, algorithm: missing"),
        (bytes(range(256)), "is not text in UTF-8"),
        (b"a = = 3", "is not valid TOML"),
        (b"a = " + b"[" * 100_000, "is not valid TOML"),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, content: bytes, fragment: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=fragment):
        load(path)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "b.toml", "a\0b", "x" * 5000, ""):
        with pytest.raises(InputError, match="scenario: "):
            load(str(name))
    with pytest.raises(InputError, match='did you mean "ring_breast_cancer"'):
        load("ring_brest_cancer")


def test_overrides_reach_quoted_keys_new_tables_and_bare_words(scenario: Make) -> None:
    content = scenario()
    loaded = load(
        content,
        [
            "title = ∞ [x]",
            "problem.normalise=l2",
            "algorithm.rounds = 9",
            "privacy.x.decay=0.5",
            'topology={kind="star", agents=4}',
        ],
    )
    assert loaded.title == "∞ [x]"
    assert (loaded.problem.normalise, loaded.algorithm.rounds, loaded.topology.kind) == ("l2", 9, "star")
    assert loaded.privacy.x is not None
    assert load(content, ["privacy.x.decay=0.5", "privacy.x=null"]).privacy.x is None
    assert loaded.privacy.x.decay == 0.5
    quoted = load(content, ['problem.scale={"a.b"=[0.0, 1.0]}', 'problem.scale."c.d"=[2.0, 3.0]'])
    assert quoted.problem.scale == {"a.b": [0.0, 1.0], "c.d": [2.0, 3.0]}
    assert content == BASE, "an override changed the caller's own table"


# --- what a resolved scenario reproduces ------------------------------------------------------------------------------


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A folder with a scenario that names files beside it: records, ranges, and a graph."""
    folder = tmp_path / "mine"
    folder.mkdir()
    rng = np.random.default_rng(5)
    rows = ["a,B c,target"] + [f"{a:.4f},{b:.4f},{'yes' if a > b else 'no'}" for a, b in rng.normal(size=(60, 2))]
    (folder / "records.csv").write_text("\n".join(rows))
    (folder / "graph.csv").write_text("source,target\n0,1\n1,2\n2,0\n2,3\n")
    (folder / "mine.toml").write_text("""
seed = 11
[problem]
kind = "logistic_hyperparameter"
data = "records.csv"
label = "target"
classes = ["no", "yes"]
scale = { a = [-3, 3], "B c" = [-3, 3] }
normalise = "l1"
[topology]
file = "graph.csv"
[algorithm]
kind = "ldp_dsbo"
rounds = 4
x = { scale = 0.2 }
y = { scale = 0.5 }
z = { scale = 0.2 }
[privacy]
epsilon = 3.0
clip = { y = 1.0, z = 1.0 }
""")
    return folder


@pytest.mark.usefixtures("undrawn")
def test_a_resolved_scenario_gives_the_same_numbers_from_anywhere(
    own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = decentral_dp.run(own_data / "mine.toml", out=tmp_path / "first")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    second = decentral_dp.run(tmp_path / "first" / "scenario.toml", out=elsewhere / "second")
    for channel, value in first.released.items():
        np.testing.assert_array_equal(value, second.released[channel])
    resolved = [tomllib.loads((f / "scenario.toml").read_text()) for f in (tmp_path / "first", elsewhere / "second")]
    # Each names the same file, from where its folder lies.
    for folder, content in zip((tmp_path / "first", elsewhere / "second"), resolved, strict=True):
        assert (folder / content["problem"].pop("data")).samefile(own_data / "records.csv")
    assert resolved[0] == resolved[1]
    assert resolved[0]["privacy"]["delta"] == 1e-5, "defaults are filled in"
    assert resolved[0]["seed"] == 11


def test_files_are_found_from_where_the_command_is_given(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own_data)
    overrides = ["problem.data=records.csv", "problem.label=target", "problem.classes=['no','yes']"]
    job = build(load("ring_breast_cancer", [*overrides, "problem.scale={'*' = [-3, 3]}", "topology.agents=4"]))
    assert job.problem.p == 2


def test_code_is_found_from_where_the_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An algorithm and a mechanism of one's own in a scenario that comes along, which lies in the package."""
    (tmp_path / "mine.py").write_text(
        "from decentral_dp.algorithms.gossip.single_level import DpDsgd\n\nclass Mine(DpDsgd):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    job = build(load("classification", ["algorithm.kind=mine:Mine", "algorithm.rounds=2"]))
    assert type(job.algorithm).__name__ == "Mine"
    with pytest.raises(InputError, match="defines no Other"):
        build(load("random_walk", ["privacy.mechanism=mine:Other"]))


# --- whose noise is secret --------------------------------------------------------------------------------------------


def test_without_a_seed_noise_is_secret_and_written_nowhere(scenario: Make, tmp_path: Path) -> None:
    content = scenario(algorithm={"rounds": 2})
    del content["seed"]
    done, other = decentral_dp.run(content, out=tmp_path / "a"), decentral_dp.run(content)
    assert not np.array_equal(done.released["y"], other.released["y"])
    assert done.result["privacy"]["noise"] == "secret"
    assert "seed" not in tomllib.loads((tmp_path / "a" / "scenario.toml").read_text())
    drawn = done.simulation().root
    assert isinstance(drawn, SecretRoot)
    root = drawn.key
    assert len(root) >= 16
    assert root.hex() not in repr(done.simulation())
    for path in (tmp_path / "a").rglob("*"):
        content_of = path.read_bytes() if path.is_file() else b""
        assert root not in content_of
        assert root.hex().encode() not in content_of


def test_a_seed_reproduces_bit_for_bit_and_says_so(scenario: Make) -> None:
    first, second = (decentral_dp.run(scenario()) for _ in range(2))
    for channel, value in first.released.items():
        np.testing.assert_array_equal(value, second.released[channel])
    assert first.result.privacy.is_simulation


# --- anything at all --------------------------------------------------------------------------------------------------

KEYS = [
    ("problem", key)
    for key in ("kind", "data", "label", "classes", "partition", "validation", "test", "scale", "normalise", "stream")
] + [
    ("seed",),
    ("title",),
    ("problem", "seed"),
    ("problem", "synthetic", "records"),
    ("topology",),
    ("topology", "kind"),
    ("topology", "file"),
    ("topology", "agents"),
    ("topology", "weights"),
    ("topology", "degree"),
    ("algorithm", "rounds"),
    ("algorithm", "x"),
    ("algorithm", "y", "scale"),
    ("algorithm", "z", "decay"),
    ("algorithm", "init"),
    ("privacy",),
    ("privacy", "guarantee"),
    ("privacy", "mechanism"),
    ("privacy", "epsilon"),
    ("privacy", "delta"),
    ("privacy", "clip"),
    ("privacy", "clip", "y"),
    ("privacy", "share"),
    ("privacy", "box"),
    ("privacy", "cap"),
    ("privacy", "y", "decay"),
    ("run", "average"),
    ("run", "blocks"),
]
WORDS = [
    "ring",
    "random_regular",
    "erdos_renyi",
    "abilene",
    "metropolis",
    "constant",
    "iid",
    "column",
    "all",
    "minibatch",
    "accumulate",
    "standard",
    "none",
    "l2",
    "box",
    "as_published",
    "certified",
    "gaussian",
    "laplace",
    "wine",
    "digits",
    "synthetic_normal",
    "quadratic",
    "softmax_hyperparameter",
    "from_losses",
    "x",
    "y",
    "z",
    "kind",
    "share",
    "alpha",
    "name",
    "batch",
    "scale",
    "decay",
    "value",
    "agent",
    "a.csv",
    "a.npz",
    "a.graphml",
]
text = st.sampled_from(WORDS) | st.text(max_size=6)
plain = (
    text
    | st.integers(-3, 12)
    | st.sampled_from([1e-300, 1e300, 1e-9, 0.5, -0.5, float("nan"), float("inf"), 2**70])
    | st.floats()
    | st.booleans()
    | st.dates()
)
value = st.recursive(plain, lambda v: st.lists(v, max_size=3) | st.dictionaries(text, v, max_size=3), max_leaves=5)


NUMBERS = [0, 1, 2, 7, 0.0, 1e-300, 1e-12, 0.5, 0.999999, 1e6, 1e12, 1e200, 1.7e308, float("inf"), float("nan"), -1.0]
NUMERIC = [
    "seed",
    "problem.validation",
    "problem.test",
    "topology.agents",
    "algorithm.x.scale",
    "algorithm.x.decay",
    "algorithm.y.scale",
    "algorithm.y.decay",
    "algorithm.z.scale",
    "algorithm.z.decay",
    "algorithm.init.x",
    "algorithm.init.y",
    "privacy.epsilon",
    "privacy.delta",
    "privacy.clip.y",
    "privacy.share.y",
    "privacy.y.decay",
    "privacy.y.decay_per_agent",
    "privacy.cap",
    "run.average",
    "run.blocks",
]
WORDY = [
    "problem.kind",
    "problem.data",
    "problem.scale",
    "problem.normalise",
    "problem.partition",
    "problem.stream",
    "topology.kind",
    "topology.weights",
    "algorithm.kind",
    "algorithm.protocol",
    "privacy.guarantee",
    "privacy.mechanism",
]


# What no mechanism reads is tried under one.
@pytest.mark.parametrize(
    ("key", "mechanism"),
    [
        (k, m)
        for k in NUMERIC
        for m in ("laplace", "gaussian")
        if m == "laplace" or k.startswith(("algorithm", "privacy"))
    ],
)
def test_extreme_numbers_are_refused_or_run_or_diverge(scenario: Make, key: str, mechanism: str) -> None:
    content = scenario(algorithm={"rounds": 2}, privacy={"mechanism": mechanism, "share": {"y": 0.5, "z": 0.5}})
    for number in NUMBERS:
        with suppress(InputError):
            done = decentral_dp.run(load(content, [f"{key}={number}"]))
            assert done.result["status"] in ("ok", "diverged", "budget_reached")
            diverged = done.result["status"] == "diverged"
            finite = all(np.isfinite(v).all() for v in done.released.values())
            assert diverged or finite
            assert not diverged or re.search(r"at round \d|grew from|ended at", done.result["reason"])


@pytest.mark.parametrize("key", WORDY)
def test_words_in_the_wrong_place_are_refused_or_run(scenario: Make, key: str) -> None:
    for word in WORDS:
        with suppress(InputError):
            build(load(scenario(algorithm={"rounds": 2}), [f"{key}={word}"]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(KEYS) | st.tuples(text, text), value), min_size=1, max_size=2))
def test_garbage_is_refused_or_runs(scenario: Make, changes: list[tuple[tuple[str, ...], Any]]) -> None:
    content: Any = scenario(algorithm={"rounds": 2})
    for path, new in changes:
        table = content
        for key in path[:-1]:
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        table[path[-1]] = new
    with suppress(InputError):
        build(load(content))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30) | st.builds(lambda k, v: f"{k}={v}", text, text))
def test_garbage_overrides_are_refused_or_load(scenario: Make, override: str) -> None:
    with suppress(InputError):
        load(scenario(), [override])


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("epsilon=1", '"privacy.epsilon"'),
        ("rounds=5", '"algorithm.rounds"'),
        ("algorithm.epsilon=1", '"privacy.epsilon"'),
        ("evaluate_every=1", '"run.evaluate_every"'),
        ("privacy.epsilom=1", '"epsilon"'),
    ],
)
def test_the_last_part_of_a_key_finds_its_table(override: str, meant: str) -> None:
    with pytest.raises(InputError) as refused:
        load("ring_breast_cancer", [override])
    assert str(refused.value) == f"{override.partition('=')[0]}: unknown key; did you mean {meant}."


@pytest.mark.parametrize("kind", [kind for kind in ALGORITHMS if kind in shipped_names("scenario")])
def test_whole_numbers_of_algorithms_fit_into_64_bits(kind: str) -> None:
    content = load(kind).model_dump(exclude_unset=True)
    options = [key for key, value in content["algorithm"].items() if isinstance(value, int) and value is not True]
    assert "rounds" in options
    for key in options:
        given = {**content, "algorithm": {**content["algorithm"], key: 2**63}}
        with pytest.raises(InputError, match=rf"^algorithm\.{key}: got 9223372036854775808, wanted"):
            load(given)


@pytest.mark.parametrize("name", ["churn_redy.toml", "churn_ready", "churn"])
def test_a_name_close_to_a_file_of_the_folder_is_told_which(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "churn_ready.toml").write_text("seed = 1\n")
    (tmp_path / "churn_ready.csv").write_text("a,b\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r'did you mean "churn_ready\.toml"\?'):
        load(name)
    with pytest.raises(InputError, match=r'did you mean "[^"]*/churn_ready\.toml"\?'):
        load(str(tmp_path / name))
    with pytest.raises(InputError) as refused:
        load(str(tmp_path / "nowhere" / name))
    assert "did you mean" not in str(refused.value)


def test_numbers_of_numpy_are_numbers_in_tuples_too() -> None:
    ranges = {"x0": (np.int64(45), np.float32(130)), "x1": np.array([0, 1])}
    scenario = load("own_csv").model_dump(exclude_unset=True)
    scenario["problem"]["scale"] = ranges
    assert load(scenario).problem.scale == {"x0": [45, 130], "x1": [0, 1]}
