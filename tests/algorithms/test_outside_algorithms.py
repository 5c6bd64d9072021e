"""Custom algorithms: those of docs/add_an_algorithm.md, by module and as objects."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.user_code import UserCodeError, run_file
from tests.support.pages import EXAMPLES, write_algorithm, write_files

NAMES = ("momentum", "hypergradient", "averaged")
CLASSES = {"momentum": "Momentum", "hypergradient": "Hypergradient", "averaged": "Averaged"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page."""
    return write_files(tmp_path, EXAMPLES)


def made(folder: Path, name: str) -> Any:
    """The page's algorithm as an object, with what its scenario gives."""
    table = tomllib.loads(EXAMPLES[f"{name}.toml"])["algorithm"]
    given = {k: StepSize(**v) if isinstance(v, dict) else v for k, v in table.items() if k not in ("kind", "rounds")}
    return getattr(run_file(folder / f"{name}.py"), CLASSES[name])(**given)


def changed(folder: Path, name: str, old: str, new: str) -> decentral_dp.Scenario:
    """The page's scenario of an algorithm in whose code something is replaced."""
    return load(write_algorithm(folder, name, (old, new)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("undrawn")
def test_by_file_it_is_planned_and_run(folder: Path, name: str) -> None:
    scenario = load(folder / f"{name}.toml")
    job = build(scenario)
    assert np.isfinite(job.budget.epsilon).all()
    run = decentral_dp.run(scenario, out=folder / "out")
    assert run.result["status"] == "ok"
    assert run.result["privacy"]["epsilon_max"] == pytest.approx(scenario.privacy.epsilon, rel=1e-2)
    assert run.result.privacy.unverified.keys() == {"algorithm"}
    # The scenario in the run folder runs again, from any directory, with the same noise.
    again = decentral_dp.run(load(folder / "out" / "scenario.toml"))
    for channel, value in run.released.items():
        np.testing.assert_array_equal(again.released[channel], value)


def test_an_object_of_ours_is_ours(scenario: Any) -> None:
    from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd

    run = decentral_dp.run(scenario(privacy={"clip": 1.0}), algorithm=DpDsgd(StepSize(0.5)))
    assert run.scenario.algorithm.kind == "dp_dsgd"
    assert not run.result.privacy.unverified


def test_hypergradients_are_those_of_the_package(folder: Path) -> None:
    """Compare the page's algorithm with LDP-DSBO, without noise and without a binding clip of x."""
    quiet = ['privacy.guarantee="none"', "privacy.epsilon=null", "privacy.mechanism=null", "algorithm.x.scale=0.01"]
    mine = decentral_dp.run(load(folder / "hypergradient.toml", quiet))
    ours = decentral_dp.run(load(folder / "hypergradient.toml", [*quiet, 'algorithm.kind="ldp_dsbo"']))
    assert np.abs(mine.released["x"]).max() > 0.0
    for channel in ("x", "y", "z"):
        np.testing.assert_allclose(mine.released[channel], ours.released[channel], rtol=1e-9, atol=1e-12)


# Replacement in the code → error.
REFUSED_CODE = {
    ("@dataclass(frozen=True)\n", "@dataclass\n"): "is a dataclass that is not frozen",
    ("    learning_rate: StepSize = option", "    learning_rate = option"): "no type annotation",
    ("friction: float", "friction: complex"): "unsupported type (got complex)",
    ("friction: float", "rounds: float"): "this key exists for every algorithm",
    ('    channels = ("x", "y")\n', ""): "is not an algorithm",
    ("    RELEASES =", "    OTHERS ="): "lacks RELEASES",
    ('"lower_grad_y": "learning_rate"', '"lower_grad": "y"'): "states the unknown term 'lower_grad'",
    ('"lower_grad_y": "learning_rate"', '"lower_grad_y": "eta"'): 'the factor "eta" in RELEASES of Momentum fails',
    ('{"y": {"lower_grad_y": "learning_rate"}}', "{}"): "no release reads a record",
    ('{"y": {"lower_grad_y": "learning_rate"}}', '{"y": "lower_grad_y"}'): "states the unknown term 'l'",
    ('{"lower_grad_y": "learning_rate"}', '{"lower_grad_y": None}'): "the factor None in RELEASES",
    ('"learning_rate"}}', '"half"}}\n    half = lambda self, t: t / 0'): "ZeroDivisionError",
    ('channels = ("x", "y")', 'channels = ("y",)'): "lack x or y, which metrics read",
    ("default=0.5", "default=1.0"): "Momentum.friction: its default is 1.0, expected a number",
    ("friction: float", 'friction: "Unknown"'): "the type of a field is not known (name 'Unknown' is not defined)",
    ("    def init", "    def __post_init__(self):\n        raise ValueError('never')\n\n    def init"): (
        "fails: ValueError: never, in line 33 of "
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED_CODE, ids=[f"{old.strip()}->{new.strip()}" for old, new in REFUSED_CODE])
def test_code_is_refused_in_one_sentence(folder: Path, change: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=re.escape(REFUSED_CODE[change])) as said:
        build(changed(folder, "momentum", *change))
    assert "\n" not in str(said.value)


def test_a_key_of_other_algorithms_is_not_suggested(folder: Path) -> None:
    with pytest.raises(InputError, match=r'^algorithm\.momentum: unknown key\. Valid: .*"friction"'):
        build(load(folder / "momentum.toml", ["algorithm.momentum=0.3"]))


# Replacement in the code → reason why the first round is not released.
UNPLANNED = {
    ('"lower_grad_y": "learning_rate"', '"lower_grad_y": 0.01'): "nothing of this round was released",
    ("moved - self.learning_rate(t)", "moved - 2.0 * self.learning_rate(t)"): "nothing of this round was released",
    ("yield Gossip(y=s.y)", "yield Gossip(y=s.y, u=s.y)"): "u",
    (
        "State(s.x, moved - self.learning_rate(t) * gradient, own.y)",
        "State(s.x, own.y[:1], own.y)",
    ): "sends y of shape (1, 30)",
    (
        "moved - self.learning_rate(t) *",
        "moved - self.learning_rate(t) / float(gradient) *",
    ): "a Bounded value can be added,",
    (
        "        mixed =",
        "        yield Gossip(y=s.y)\n        mixed =",
    ): "2 exchanges or more (expected releases_per_round = 1)",
    ("yield Gossip(y=s.y)", "yield Gossip(y=s.y.sum())"): "sends y of shape ()",
    ("def step(self, t, dataset, s)", "def step(self, t, dataset)"): "Fix: define step(self, t, dataset, s)",
    ("own, near = yield Gossip(y=s.y)", "own, near = s, s"): "step of Momentum returns State and never yields",
    ("own, near = yield Gossip(y=s.y)", "own, near = yield s.y"): "step of Momentum yields ndarray",
    ("own, near = yield Gossip(y=s.y)", "if t < 0: yield\n        return s"): "makes 0 exchanges",
    ('channels = ("x", "y")', 'channels = ("x", "y", "w")'): "init of Momentum returns no rows of its channel w",
}


@pytest.mark.parametrize("change", UNPLANNED, ids=[new for _, new in UNPLANNED])
@pytest.mark.usefixtures("undrawn")
def test_a_release_that_is_not_planned_ends_the_run(folder: Path, change: tuple[str, str]) -> None:
    """Build does not run the code: the plan binds every release when it is made."""
    scenario = changed(folder, "momentum", *change)
    assert build(scenario).budget.epsilon.max() <= 4.0
    with pytest.raises((UserCodeError, InputError), match=re.escape(UNPLANNED[change])) as said:
        decentral_dp.run(scenario, out=folder / "out")
    # Python prints the text of every cause, and a notebook an error that is its own cause twice.
    assert not isinstance(said.value.__cause__, UserCodeError)


GRADIENTS = "yield from release_gradients(t, context, self.QUERIES, s.x, s.y, self.rate)"
UNPLANNED_QUERIES = {
    "another term": (GRADIENTS.replace("self.QUERIES", '("grad_y", "joint")'), "was not planned"),
    "all records": (GRADIENTS.replace(", self.rate", ""), "at rate 1, planned 0.25"),
    "a larger sample": (GRADIENTS.replace("self.rate", "2 * self.rate"), "at rate 0.5, planned 0.25"),
}


@pytest.mark.parametrize("case", UNPLANNED_QUERIES)
@pytest.mark.usefixtures("undrawn")
def test_a_coordinators_release_that_is_not_planned_ends_the_run(folder: Path, case: str) -> None:
    """ε of a sample depends on its rate, so a larger sample needs more noise."""
    new, words = UNPLANNED_QUERIES[case]
    scenario = changed(folder, "averaged", GRADIENTS, new)
    # Afterwards the run would fail in any case, with another sentence.
    with pytest.raises(RuntimeError, match=words):
        decentral_dp.run(scenario, out=folder / "out")


@pytest.mark.parametrize(
    "shares",
    [
        '{"grad_x": 0.7, "grad_z": 0.3}',
        '{"grad_x": 0.0, "grad_y": 1.0}',
        '{"grad_y": 1.0}',
    ],
)
def test_shares_are_of_what_is_asked_for(folder: Path, shares: str) -> None:
    scenario = changed(folder, "averaged", '{"grad_x": 0.5, "grad_y": 0.5}', shares)
    with pytest.raises(InputError, match=r"SHARES of averaged:Averaged is .*set a number above 0 for each of"):
        build(scenario)


BILEVEL = """
from dataclasses import dataclass
from typing import Any, NamedTuple

from decentral_dp.central.vocabulary import release_gradients
from decentral_dp.algorithms.protocol import StepSize


class State(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Fitted:
    \"\"\"Gradient descent on the lower level at a constant x.\"\"\"

    learning_rate: StepSize
    QUERIES = ("lower_grad_y",)
    releases_per_round = 2

    def init(self, context, x, y):
        return State(x, y)

    def step(self, t, context, s):
        for _ in range(2):
            g = yield from release_gradients(t, context, self.QUERIES, s.x, s.y)
            s = State(s.x, s.y - self.learning_rate(t) * g.lower_grad_y)
        return s
"""


def test_a_coordinator_of_a_bilevel_problem(folder: Path) -> None:
    (folder / "fitted.py").write_text(BILEVEL, encoding="utf-8")
    content = tomllib.loads(EXAMPLES["momentum.toml"])
    content["algorithm"] = {"kind": "fitted:Fitted", "rounds": 3, "learning_rate": {"scale": 0.5}}
    content["privacy"]["clip"] = {"y": 1.0}
    del content["privacy"]["mechanism"]
    run = decentral_dp.run(load(content, folder=folder))
    assert run.result["privacy"]["epsilon_max"] == pytest.approx(4.0, rel=1e-2)


TRACKING = """
from dataclasses import dataclass
from typing import Any, NamedTuple

from decentral_dp.algorithms.options import option
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip


class State(NamedTuple):
    x: Any
    y: Any
    u: Any
    gradient: Any


@dataclass(frozen=True)
class Tracking:
    \"\"\"Gradient tracking with the gradient of the last minibatch.\"\"\"

    learning_rate: StepSize = option("λ")

    channels = ("x", "y", "u")
    RELEASES = {"x": {}, "y": {}, "u": {"lower_grad_y": "means"}}
    WIDTHS = {"u": "q"}
    keeps_batches = True

    def means(self, t):
        return 1.0 if t == 0 else 2.0

    def init(self, dataset, x, y):
        return State(x, y, dataset.public(0.0, dataset.q), dataset.public(0.0, dataset.q))

    def step(self, t, dataset, s):
        own, near = yield Gossip(x=s.x, y=s.y, u=s.u)
        y, u = ((1.0 - dataset.neighbour_weight) * own[c] + near[c] for c in ("y", "u"))
        y = y - self.learning_rate(t) * u
        gradient = dataset.batch(t, kept=True).lower_grad_y(s.x, y)
        return State(s.x, y, u + gradient - s.gradient, gradient)
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_kept_gradients_of_minibatches_are_accounted_without_amplification(folder: Path, keeps: bool) -> None:
    (folder / "tracking.py").write_text(TRACKING.replace("keeps_batches = True", f"keeps_batches = {keeps}"))
    content = tomllib.loads(EXAMPLES["momentum.toml"])
    content["algorithm"] = {"kind": "tracking:Tracking", "rounds": 5, "learning_rate": 0.1}
    content["problem"]["sampling"] = {"kind": "fixed_batch", "batch_size": 4}
    scenario = load(content, folder=folder)
    if not keeps:
        with pytest.raises(UserCodeError, match=r"round 1: .* u is planned with amplification by sampling"):
            decentral_dp.run(scenario)
        return
    job = build(scenario)
    plan = next(c for c in job.ledger.channels if c.channel == "u")
    clip = content["privacy"]["clip"]
    np.testing.assert_allclose(plan.sensitivity["train"][:, 0], 2.0 * clip / 4 * np.array([1, 2, 2, 2, 2]), rtol=1e-9)
    assert (plan.rate["train"] == 1.0).all()
    run = decentral_dp.run(scenario)
    assert run.result["status"] == "ok"
    assert run.records.costs_within(job.ledger)


@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "self.learning_rate(t) * gradient, own.y",
            "(3.0 if t > 3 else 1.0) * self.learning_rate(t) * gradient, own.y",
            "round 5: step of Momentum: one train record may move y by",
        ),
        (
            "yield Gossip(y=s.y)",
            "yield Gossip(y=s.y, x=dataset.batch(t).lower_grad_y(s.x, s.last)) if t == 5 else Gossip(y=s.y)",
            "round 5: step of Momentum: it releases x from records without a plan",
        ),
    ],
    ids=["dearer", "unplanned"],
)
def test_what_a_later_round_was_not_priced_for_is_not_released(
    folder: Path, request: pytest.FixtureRequest, engine: str, old: str, new: str, said: str
) -> None:
    """Rehearse two rounds, and compare later rounds with the plan during the run, before their noise."""
    if engine == "ray":
        request.getfixturevalue("ray_cluster")
    changed(folder, "momentum", old, new)
    scenario = load(folder / "momentum.toml", [f'run.engine="{engine}"'])
    with pytest.raises(UserCodeError, match=re.escape(said.replace("FILE", str(folder / "momentum.py")))) as ended:
        decentral_dp.run(scenario, out=folder / "run")
    assert "may have been released, and is on record in" in str(ended.value)
    found = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    assert found["status"] == "failed"
    # On Ray rounds are asked for ahead, and the folder knows no more than what may have been released.
    assert found["rounds"] <= 5 or engine == "ray"


# Inserted statement in a later step → error.
LATER = {
    "own error": ("if t == 4: raise type('Odd', (Exception,), {})('own')", "round 5: Odd: own, in line LINE of FILE"),
    "exit": ("if t == 4: raise SystemExit(0)", "round 5: SystemExit: 0, in line LINE of FILE"),
    "end": ("if t == 4: raise StopIteration", "round 5: RuntimeError: generator raised StopIteration, in line LINE"),
}


@pytest.mark.parametrize("case", LATER)
@pytest.mark.parametrize("name", ["momentum", "averaged"])
def test_any_error_later_ends_the_run_in_a_sentence(folder: Path, name: str, case: str) -> None:
    """Custom errors inherit from Exception only, and an exit with 0 does not end a run."""
    new, said = LATER[case]
    marker, file = {"momentum": "        mixed =", "averaged": "        a = min("}[name], folder / f"{name}.py"
    scenario = changed(folder, name, marker, f"        {new}\n{marker}")
    line = next(n for n, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if new in text)
    with pytest.raises(UserCodeError, match=re.escape(said.replace("LINE", str(line)).replace("FILE", str(file)))):
        decentral_dp.run(scenario)


AGAIN = {
    "momentum": ("        mixed =", "yield Gossip(y=s.y)", "round 5: step of Momentum makes 2 exchanges or more"),
    "averaged": ("        a = min(", GRADIENTS, "round 5: step of Averaged publishes 2 times or more"),
}


@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.usefixtures("undrawn")
def test_an_exchange_too_many_in_a_later_round_is_not_released(folder: Path, name: str) -> None:
    """With a constant step, an extra exchange would use up the ledger entry of the next round."""
    marker, again, said = AGAIN[name]
    changed(folder, name, marker, f"        if t == 4:\n            {again}\n{marker}")
    steps = {"momentum": ["algorithm.learning_rate.decay=0"], "averaged": []}[name]
    said = f"{said} (expected releases_per_round = 1). Fix: correct its code."
    with pytest.raises(UserCodeError, match=re.escape(said)):
        decentral_dp.run(load(folder / f"{name}.toml", steps), out=folder / "out")
    found = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))
    assert (found["status"], found["rounds"]) == ("failed", 5)


@pytest.mark.usefixtures("undrawn")
def test_one_that_diverges_at_once_is_cut_short_and_covered(folder: Path) -> None:
    """Send x only at the end: an interrupted run has not sent it, and its releases are those planned up to then."""
    run = decentral_dp.run(
        changed(folder, "momentum", "return State(s.x, moved", "return State(s.x, float('nan') * moved"),
        out=folder / "out",
    )
    assert run.result.has_diverged
    assert run.simulation().covers(run.records)
    assert [c.channel for c in run.records.channels] == ["y"]
