"""Loading of scenarios: refusals, overrides, suggestions, files of a resolved scenario, and fuzzing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config import loading
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.loading import shipped_names
from decentral_dp.simulation.jobs.build import build_job as build
from tests.conftest import BASE

Make = Callable[..., dict[str, Any]]

# override → a part of the sentence that refuses it.
REFUSED = {
    "algorthm.rounds=3": 'algorthm: unknown key; did you mean "algorithm"',
    "algorithm.inner=3": "algorithm.inner: not supported by ldp_dsbo, only by bsa",
    "algorithm.kind=dp_dsgd": "algorithm.x: not supported by dp_dsgd, only",
    "algorithm={kind='ma_dsbo', rounds=2, x={scale=1.0}, y={scale=1.0}, z={scale=1.0}}": "algorithm.inner: missing",
    "algorithm.z=null": "algorithm.z: missing",
    "privacy.epsilon=null": "privacy.y.scale",
    "privacy.noise_multiplier=2.0": "Fix: remove one of the two: privacy.epsilon=null removes epsilon.",
    "privcy=null": 'set: the scenario has no key "privcy"; did you mean "privacy"',
    "Ü=3": "Ü: unknown key. Valid: ",
    "problem=3": "problem: got 3, expected a table",
    "problem.kind.x=3": 'the scenario has no key "problem.kind.x"',
    "problem.kind=logistic": 'problem.kind: unknown problem "logistic"',
    "problem.data=nowhere": "problem.data: 'nowhere' is no bundled data set or path",
    "problem.data=nowhere.csv": "nowhere.csv' cannot be read: No such file",
    'problem.data="a\\u0000b.csv"': "NUL character",
    "problem.kind=softmax_hyperparametr": 'did you mean "softmax_hyperparameter"',
    "problem.data=wine": "requires exactly 2 classes (got 3)",
    "problem.classes=[0,1]": "problem.classes: 'breast_cancer' has the classes",
    "problem.validation=0": "problem.validation: got 0, expected a number above 0, or text",
    "problem.validation=a": "problem.validation: not supported by 'breast_cancer'",
    "problem.validation=0.001": "train and 0 validation records",
    "problem.partition={kind='dirichlet'}": 'problem.partition.alpha: missing, and required by "dirichlet" partition',
    "problem.partition={alpha=1.0}": "problem.partition.kind: missing",
    "problem.partition={kind='dirichlet',alpha=nan}": "problem.partition.alpha: got NaN",
    "problem.partition=dirichlet": 'problem.partition: got "dirichlet", expected "iid", or a table',
    "problem.scale=standard": "problem.scale: got 'standard'",
    "problem.scale={Age=['a','b']}": 'problem.scale.Age.0: got "a", expected a number',
    "problem.scale={'*'=[1.0,0.0]}": "low < high",
    "problem.sampling={kind='fixed_batch'}": 'problem.sampling.batch_size: missing, and required by "fixed_batch"',
    "problem.sampling.batch_size=32": 'problem.sampling.kind: missing. Fix: add kind = "fixed_batch"',
    "problem.sampling={kind=poisson,rate=0.1}": 'set: not valid TOML (got "{kind=poisson,rate=0.1}")',
    "problem.sampling={kind='full',batch_size=3}": 'problem.sampling.batch_size: does not apply to "full" sampling',
    "problem.ridge=1.0": "problem.ridge: not supported by logistic_hyperparameter, only by ",
    "problem.synthetic.records=3": "problem.synthetic.records: not supported by 'breast_cancer'",
    "problem.test=nan": "problem.test: got NaN, expected a number",
    "problem.synthetic.separation=nan": "problem.synthetic.separation: got NaN, expected a finite number",
    "topology.kind=rign": 'did you mean "ring"',
    "topology.degree=3": "topology.degree: not supported by ring, only by ",
    "topology.agents=9999": "too large for 455 records (got 9999)",
    "topology.agents=1": "at least 2",
    "topology.weights={kind='constant',value=0.9}": "gossip diverges unless ρ < 1",
    "topology.file=a.graphml": "set either kind",
    "topology={file='nowhere.graphml'}": "nowhere.graphml: the file cannot be read",
    "topology={file='abilen'}": 'did you mean "abilene"',
    "topology={file='abilene',agents=3}": "topology.agents: differs from abilene (got 3, expected 11)",
    "algorithm.rounds=1.5": "algorithm.rounds: got 1.5, expected an integer",
    "algorithm.rounds=10000000000": "that can be accounted. Fix: use fewer rounds",
    "algorithm.x.scale=nan": "algorithm.x.scale: got NaN, expected a finite number",
    "algorithm.init={w=1.0}": 'expected "x", "y" or "z"',
    "algorithm.kind=sgd": 'algorithm.kind: unknown algorithm "sgd"',
    "privacy.guarantee=certain": 'expected "certified", "as_published" or "none"',
    "privacy.guarantee=as_published": 'privacy.epsilon: guarantee = "as_published" runs',
    "privacy.clip={y=1.0}": "privacy.clip.z: missing",
    "privacy.y={scale=1.0}": "privacy.y.scale: noise must be set in exactly one way",
    "privacy.share={y=1.0}": "privacy.share.z: missing",
    "privacy.box={y=-1.0}": "privacy.box.y: the domain of the release is empty",
    "algorithm.y.scale=1e300": "cannot be added exactly in float64",
    "run.engine=spark": 'run.engine: got "spark", expected "local" or "ray"',
    "seed=1979-05-27": "expected an integer",
    "rounds": "set: invalid (got ",
    "=3": "set: invalid (got ",
    "a..b=3": "set: invalid (got ",
}


@pytest.mark.parametrize("override", REFUSED)
def test_wrong_values_are_refused_in_one_sentence(scenario: Make, override: str) -> None:
    with pytest.raises(InputError) as refused:
        build(load(scenario(), [override]))
    message = str(refused.value)
    assert REFUSED[override] in message
    assert "\n" not in message
    assert message.endswith("?" if "did you mean" in message else ".")
    assert "pydantic" not in message
    assert "Table" not in message


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "problem, topology, algorithm: missing"),
        (bytes(range(256)), "cannot be read"),
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
    for name, near in (("ring_brest_cancer", "ring_breast_cancer"), ("dsgd", "dp_dsgd"), ("dp-sgd", "central")):
        with pytest.raises(InputError, match=f'did you mean "{near}"'):
            load(name)


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


# Resolved scenarios.


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A folder with a scenario, records and a graph."""
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


# Secret noise.


# Fuzzing.

KEYS = [
    "seed", "title", "problem.kind", "problem.data", "problem.label", "problem.classes", "problem.partition",
    "problem.validation", "problem.test", "problem.scale", "problem.normalise", "problem.sampling", "problem.seed",
    "problem.synthetic.records", "topology", "topology.kind", "topology.file", "topology.agents", "topology.weights",
    "topology.degree", "algorithm.rounds", "algorithm.x", "algorithm.y.scale", "algorithm.z.decay", "algorithm.init",
    "privacy", "privacy.guarantee", "privacy.mechanism", "privacy.epsilon", "privacy.delta", "privacy.clip",
    "privacy.clip.y", "privacy.share", "privacy.box", "privacy.y.decay", "run.average", "run.blocks",
]  # fmt: skip
WORDS = [
    "ring", "random_regular", "erdos_renyi", "abilene", "metropolis", "constant", "iid", "column", "all", "fixed_batch",
    "streaming", "standard", "none", "l2", "box", "as_published", "certified", "gaussian", "laplace", "wine", "digits",
    "synthetic_normal", "quadratic", "softmax_hyperparameter", "from_losses", "x", "y", "z", "kind", "share", "alpha",
    "name", "batch", "scale", "decay", "value", "agent", "a.csv", "a.npz", "a.graphml",
]  # fmt: skip
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


# Suggestions.


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("epsilon=1", 'did you mean "privacy.epsilon"'),
        ("algorithm.epsilon=1", r'did you mean "privacy.epsilon"\?$'),
        ("privacy.epsilom=1", r'did you mean "epsilon"\?$'),
        ("seeds=5", "option --seeds with --baselines.*a study|studies"),
        *(
            (f"{table}.{key}=1", f"use {ours}")
            for keys, ours in (
                (("lr", "step_size"), "algorithm.learning_rate"),
                (("max_grad_norm", "clip_norm"), "privacy.clip"),
                (("eps", "target_epsilon"), "privacy.epsilon"),
                (("target_delta",), "privacy.delta"),
                (("num_rounds", "iterations"), "algorithm.rounds"),
                (("epochs", "max_epochs"), "algorithm.rounds: rounds = epochs × records per agent / batch size"),
                (("local_epochs",), "algorithm.local_steps"),
                (("poisson_sampling",), 'problem.sampling = { kind = "poisson"'),
                (("adjacency",), "privacy.neighbours"),
                (("alpha",), "algorithm.learning_rate.*problem.partition.alpha"),
                (("n_clients", "num_clients", "nodes", "n", "world_size"), "topology.agents"),
                (("graph",), "topology.kind"),
                (("batch_size",), 'problem.sampling = { kind = "fixed_batch"'),
                (("sigma",), "privacy.noise_multiplier"),
                (("weight_decay",), "problem.l2"),
            )
            for key in keys
            for table in ("problem", "topology", "algorithm", "privacy", "run")
        ),
        ("algorithm.noise_multiplier=1", "use privacy.noise_multiplier"),
        ("topology.noise_multiplier=1", "use privacy.noise_multiplier"),
        ("privacy.momentum=0.9", "use algorithm.momentum"),
        ("algorithm.momentum=0.9", "algorithm.momentum: not supported by"),
        ("run.momentum=0.9", "use algorithm.momentum"),
        ("algorithm.learning_rate=1", "Fix: use algorithm.x and algorithm.y and algorithm.z"),
        ("optimizer={lr=0.1,momentum=0.9}", r"\[algorithm\]; for lr: algorithm.learning_rate.*momentum: algorithm.mom"),
        ("dp.target_epsilon=1", r"\[privacy\]; for target_epsilon: privacy.epsilon"),
        ("network={kind='ring',nodes=3}", r"\[topology\]; for kind: topology.kind; for nodes: topology.agents"),
        ("topology={kind='ring',nodes=3}", "topology.nodes: unknown key. Fix: use topology.agents"),
        ("problem.class_weight=1", "no class weights"),
        ("problem.model=resnet50", '"net:build" for the function build of net.py'),
        ("algorithm.kind=fedavg", "did you mean .federated"),
        ("privacy.accountant='rdp'", "one accountant"),
        ("privacy.secure_mode=true", "a secret key"),
        ("topology=ring", 'Fix: set topology.kind = "ring"'),
        ("algorithm=dsgd", 'Fix: set algorithm.kind = "dp_dsgd"'),
        ("problem.partition=dirichlet", 'Fix: set problem.partition.kind = "dirichlet"'),
        ("algorithm.kind=FedAvg", "did you mean .federated"),
        ("algorithm.kind=dp-sgd", "did you mean .central"),
    ],
)
def test_unknown_names_are_refused_with_ours(override: str, suggestion: str) -> None:
    with pytest.raises(InputError, match=suggestion):
        build(load("ring_breast_cancer", [override]))


def test_synonyms_name_what_exists_and_are_no_names_of_ours() -> None:
    assert set(loading.ALGORITHM_KINDS.values()) <= set(ALGORITHMS)
    assert not set(loading.ALGORITHM_KINDS) & set(ALGORITHMS)
    known = set(loading._key_paths(decentral_dp.Scenario))
    assert "privacy.clip" in known
    others = {*loading.OTHER_KEYS, *loading.OTHER_TABLES, *loading.KEYS_NOT_OFFERED}
    assert not others & {path for path in known if "." not in path}
    assert set(loading.OTHER_TABLES.values()) <= known


@pytest.mark.parametrize("epsilon", ["0", "inf"])
def test_an_epsilon_out_of_range_names_runs_without_privacy(epsilon: str) -> None:
    with pytest.raises(InputError, match=r'Fix: for a run without privacy, set privacy\.guarantee = "none"'):
        load("ring_breast_cancer", [f"privacy.epsilon={epsilon}"])


@pytest.mark.parametrize(
    ("kind", "name", "command"), [("scenario", "published_models", "study"), ("study", "dp_dsgd", "run")]
)
def test_a_name_of_the_other_kind_names_its_command(kind: str, name: str, command: str) -> None:
    with pytest.raises(InputError, match=f'Fix: use "decentral-dp {command}"'):
        loading.find(name, kind)


@pytest.mark.parametrize("name", ["churn_redy.toml", "churn"])
def test_a_file_of_a_similar_name_is_suggested(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "churn_ready.toml").write_text("seed = 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r'did you mean "churn_ready\.toml"\?'):
        load(name)
    with pytest.raises(InputError, match=r'did you mean "[^"]*/churn_ready\.toml"\?'):
        load(str(tmp_path / name))


def test_a_table_of_records_in_place_of_a_scenario_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"decentral-dp new --data \S*mine\.csv"):
        load(tmp_path / "mine.csv")


@pytest.mark.parametrize("kind", [kind for kind in ALGORITHMS if kind in shipped_names("scenario")])
def test_whole_numbers_of_algorithms_fit_into_64_bits(kind: str) -> None:
    content = load(kind).model_dump(exclude_unset=True)
    options = [key for key, value in content["algorithm"].items() if isinstance(value, int) and value is not True]
    for key in options:
        changed = {**content, "algorithm": {**content["algorithm"], key: 2**63}}
        with pytest.raises(InputError, match=rf"^algorithm\.{key}: got 9223372036854775808, expected"):
            load(changed)


# Keys that are removed.


def test_a_key_is_removed_before_others_are_set() -> None:
    loaded = load("ring_breast_cancer", ["privacy.epsilon=null", "privacy.y.scale=1.0", "run=null", "run.average=7"])
    assert loaded.privacy.epsilon is None
    assert loaded.privacy.y is not None
    assert loaded.run.evaluate_every is None


@pytest.mark.usefixtures("undrawn")
def test_a_title_says_which_graph_is_run(scenario: Make, tmp_path: Path) -> None:
    short = {"algorithm.rounds": 2}
    plan = decentral_dp.plan("ring_breast_cancer", set={"topology.kind": "star", "topology.agents": 12, **short})
    assert plan.title.endswith("(here another network)")
    same = decentral_dp.plan("ring_breast_cancer", set={"topology.agents": 10, **short})
    assert same.title == load("ring_breast_cancer").title
    content = {**scenario(), "title": "Five agents on a ring"}
    run = decentral_dp.run(content, topology=nx.path_graph(5), out=tmp_path / "run")
    assert run.result.title.startswith("Five agents on a ring (here another network")
    again = decentral_dp.run(tmp_path / "run" / "scenario.toml", topology=nx.path_graph(5))
    assert again.result.title == run.result.title


# Clipping norms.


@pytest.mark.parametrize(
    ("name", "clip", "text"),
    [
        ("ldp_single_level", "a", 'privacy.clip: got "a", expected a number.'),
        ("ldp_single_level", -1, "privacy.clip: got -1, expected a number above 0."),
        ("ldp_single_level", {"q": 1}, 'privacy.clip.q: got "q", expected "x", "y" or "z".'),
        ("ldp_single_level", {"scale": 0}, "privacy.clip: clip scale out of range (got 0, expected a number above 0)."),
        ("ldp_single_level", {"y": 2.0}, "expected one norm). Fix: clip = 2.0."),
        ("dp_dsgd", {"y": {"scale": 0.5}}, "expected one norm). Fix: clip = { scale = 0.5 }."),
        ("ldp_dsbo", 1.0, "(got 1.0, expected a table). Fix: clip = { x = 1.0, y = 1.0, z = 1.0 }."),
        ("dp_sgda", 1.0, "privacy.clip: one number for an algorithm that clips"),
        ("second_order_dp_bilevel", 1.0, "whose sensitivities follow"),
    ],
)
def test_clips_of_the_other_form_are_refused(name: str, clip: Any, text: str) -> None:
    with pytest.raises(InputError) as refused:
        decentral_dp.plan(name, set={"privacy.clip": clip})
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_of_clips_is_that_of_centring() -> None:
    job = decentral_dp.build("dp_dsgd", set={"privacy.clip": {"x": 1.0, "y": 0.3}, "algorithm.rounds": 5})
    assert job.simulation().scenario.privacy.clips == {"x": 1.0, "y": 0.3}
    assert decentral_dp.load("ldp_single_level").privacy.clips == {"y": 1.0}


def test_errors_of_a_scenario_have_one_traceback(scenario: Make) -> None:
    with pytest.raises(InputError) as raised:
        load(scenario(algorithm={"rounds": "many"}))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
