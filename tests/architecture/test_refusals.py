"""Every row of every table of refusals is triggered by the input that is listed here for it, in the order of the table.

An input is a scenario with changes, or a call."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import Budget, InputError
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.auditing.audit import plan_audit
from decentral_dp.auditing.membership import require_attackable
from decentral_dp.central import jobs as coordinator_jobs
from decentral_dp.central.context import Domain
from decentral_dp.central.selection import Box, Density, candidates, count_per_axis
from decentral_dp.config.loading import load_scenario
from decentral_dp.errors import Refusal, refuse
from decentral_dp.models.build import ModelTable
from decentral_dp.privacy.mechanisms import UNCERTIFIED
from decentral_dp.problems import SOLVED, ProblemFacts
from decentral_dp.simulation.baselines import baseline_jobs
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.steps import Watch, check_watch
from tests.conftest import BASE
from tests.support.coordinator_scenarios import GOSSIP_RANKING, RANKING
from tests.support.coordinator_scenarios import content as coordinator
from tests.support.published import as_published, scenario_file
from tests.support.shards import write_shards
from tests.support.training import training

PACKAGE = Path(decentral_dp.__file__).parent

TRAINING = training(algorithm={"rounds": 4}, run={"evaluate_every": 4, "average": None})
"""Decentralised training of a linear model."""

PUBLISHED = (
    "classification",
    *(f"{key}=null" for key in ("algorithm.momentum", "algorithm.centring", "privacy.epsilon", "run.average")),
    "privacy.noise_multiplier=2.0",
    "privacy.clip=0.1",
    "privacy.adversary='final_models'",
    "algorithm.rounds=5",
    "algorithm.learning_rate={scale=0.5}",
)
"""ε of the final models only."""

PERTURBED = (
    "dp_bilevel",
    "algorithm.solver='output_perturbation'",
    "algorithm.inner=null",
    "algorithm.smoothness=null",
)
"""Lower solutions with noise."""

BAND, PAIRS = "privacy.correlation={over_rounds=2}", "privacy.correlation={between_agents='pairwise', ratio=2.0}"
RELEASED = "problem.positive_share='released'"
RECORDS = np.linspace(-1.0, 1.0, 80).reshape(40, 2), np.arange(40) % 2
CYCLIC = "problem.sampling={kind='cyclic', batch_size=30}"
FIXED, POISSON = (
    "problem.sampling={kind='fixed_batch', batch_size=20}",
    "problem.sampling={kind='poisson', rate=0.2}",
)
OPTIMISED = "privacy.correlation={between_agents='optimised'}"
MANIFEST, FILES = "problem.manifest='manifest.toml'", "problem.data='agent-{agent}.npz'"

Input = tuple[Any, ...] | Callable[[], Any]


def build(base: Any, *changes: str, **objects: Any) -> Any:
    return build_job(load_scenario(base, changes), **objects)


def audit(base: Any, *changes: str, **options: Any) -> Callable[[], Any]:
    arguments = {"runs": 20, "adversary": "all_messages", **options}
    return lambda: plan_audit(base, overrides=changes, **arguments)


def membership(base: Any, *changes: str) -> Callable[[], Any]:
    return lambda: require_attackable(build(base, *changes))


def network(*changes: str) -> Callable[[], Any]:
    return lambda: decentral_dp.network_view(load_scenario("network_view", ["algorithm.rounds=2", *changes]))


def tune(**changes: Any) -> Callable[[], Any]:
    records = np.ones((4, 2)), np.ones(4)
    options = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.01, 1.0), **changes}
    return lambda: decentral_dp.tune(train=records, validation=records, **options)


def plan_baselines(job: Any) -> None:
    baseline_jobs(job.components, job)


def with_shards(base: Any, *changes: str, then: Callable[[Any], None] = lambda job: None) -> Callable[[], Any]:
    def trigger() -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_shards(load_scenario(base), folder)
            then(build(Path(folder) / "scenario.toml", *changes))

    return trigger


def density(is_convex: bool) -> Callable[[], Any]:
    box = Box(-np.ones(30), np.ones(30))
    return Density(box, {"train": 0.01}, 0.1, np.zeros(30), 1.0, 20.0, 0.0, 0.0, is_convex, 0.1, 600.0).check


def with_kind(name: str, model: str | None = None, **facts: Any) -> Callable[[], Any]:
    keys: dict[str, Any] = {"discount": 0.9} if name == "mspbe" else {"latent": 2, "generator": [4], "penalty": 0.3}
    keys |= {} if model is None else {"model": ModelTable(kind=model)}
    return lambda: SOLVED["minimax"][name].build(keys, ProblemFacts(10, 0, **facts))


INPUTS: dict[str, tuple[Input, ...]] = {
    "auditing.audit._REFUSALS": (
        audit(TRAINING, runs=19),
        audit(TRAINING, confidence=1.0),
        audit(TRAINING, POISSON),
        audit("ring_breast_cancer", "privacy.neighbours='zero_out'"),
        audit(TRAINING, adversary="agent:9"),
        audit(TRAINING, "algorithm.rounds=1000000"),
    ),
    "auditing.membership._REFUSALS": (
        membership(TRAINING, "privacy.unit='agent'"),
        membership(TRAINING, "problem.test=0.0"),
        membership(RANKING, "problem.construction={share=0.1}", "problem.positive_share=0.1"),
        membership(RANKING, "problem.kind='wgan'", "problem.positive_share=null", "privacy.clip={x=1.0, y=1.0}"),
        membership("quadratic"),
        membership(GOSSIP_RANKING, "problem.partition={kind='dirichlet', alpha=5.0}"),
    ),
    "auditing.network_view._REFUSALS": (
        network("algorithm.kind='push_sum'"),
        network("algorithm.kind='dp_dsgd'", "algorithm.momentum=0.9"),
        network("topology.drop=0.1"),
        network("topology.kind='isolated'"),
        network(
            "problem.kind='classification'",
            "problem.ridge=null",
            "problem.validation=null",
            "problem.model={kind='mlp', hidden=[4]}",
        ),
        network("problem.kind='quadratic'"),
        network("privacy.guarantee='none'"),
        network("privacy.mechanism='laplace'"),
        network("privacy.delta=0.0", "privacy.epsilon=null", "privacy.noise_multiplier=2.0"),
        network("problem.sampling={kind='fixed_batch', batch_size=3}"),
    ),
    "central.bilevel.dp_bilevel._NO_DEFAULT": (
        ("dp_bilevel", "problem.normalise='none'", "algorithm.penalty=null"),
        ("dp_bilevel", "algorithm.x=null", "algorithm.domain=null"),
        ("dp_bilevel", "algorithm.penalty=null", "privacy.guarantee='none'", "privacy.epsilon=null"),
    ),
    "central.bilevel.dp_bilevel._REFUSED": (
        ("dp_bilevel", "problem.kind='meta_learning'", "problem.width=2"),
        (*PERTURBED, "algorithm.rate=0.5"),
    ),
    "central.bilevel.exponential_mechanism._REFUSED": (("exponential_mechanism", "algorithm.rounds=2"),),
    "central.bilevel.lower_solvers._PERTURBED": (
        (*PERTURBED, "algorithm.inner=3"),
        (*PERTURBED, "algorithm.smoothness=2.0"),
        (*PERTURBED, "problem.kind='mean_lower_bound'"),
    ),
    "central.bilevel.regularisation_tuner._REFUSED": (
        ("regularisation_tuner", "algorithm.method='em'", "algorithm.rounds=1", "algorithm.penalty=2.0"),
        ("regularisation_tuner", "algorithm.candidates=5"),
        ("regularisation_tuner", "problem.kind='logistic_hyperparameter'"),
        ("regularisation_tuner", "algorithm.method='em'", "algorithm.rounds=2"),
    ),
    "central.bilevel.second_order_dp_bilevel._REFUSED": (("warm_start", "algorithm.rounds=1"),),
    "central.jobs._COORDINATED": (
        (as_published({**RANKING, "privacy": {"guarantee": "as_published", "clip": {"x": 0.2, "y": 1.0}}}), RELEASED),
        (coordinator("pp_ift"), "problem.sampling={kind='streaming', batch_size=5}"),
        (coordinator("pp_ift"), "problem.weights='records'"),
        (coordinator("pp_ift"), "run.average=3"),
        *((coordinator("pp_ift"), f"privacy.{channel}={{scale=1.0}}") for channel in "xyz"),
        (coordinator("pp_ift"), "privacy.unit='agent'"),
        (coordinator("pp_ift"), "privacy.neighbours='zero_out'"),
        (coordinator("pp_ift"), PAIRS),
        (coordinator("pp_ift"), "privacy.colluders=1"),
        (coordinator("pp_ift"), "privacy.box={x=1.0}"),
        (coordinator("pp_ift"), "privacy.share={x=1.0}"),
        (coordinator("pp_ift"), "privacy.noise_multiplier=1.0"),
        (coordinator("pp_ift"), "topology.kind='pooled'"),
        (coordinator("pp_ift"), "privacy.epsilon=null"),
        (coordinator("pp_ift"), "algorithm.rounds=1000000000000"),
        (RANKING, "privacy.clip={x={scale=1.0, decay=0.5}}"),
        (coordinator("second_order_dp_bilevel"), "privacy.clip={y=1.0}"),
        (coordinator("second_order_dp_bilevel"), "privacy.delta=0.0"),
        (coordinator("second_order_dp_bilevel"), "problem.normalise='none'", "problem.scale='none'"),
        (coordinator("pp_ift"), "algorithm.init={x=9.0}"),
    ),
    "central.jobs._ELSEWHERE": (
        with_shards("second_order_dp_bilevel"),
        with_shards("dp_bilevel_breast_cancer", "run.agent_scores=true"),
    ),
    "central.jobs._MINIMAX": (
        ("recursive_spider", "problem.kind='dro'", "problem.divergence='chi2'", "problem.radius=null"),
        (RANKING, "algorithm.rate=1e-4"),
        (RANKING, "algorithm.init={z=1.0}"),
        # Only algorithms for bilevel problems have the key.
        lambda: refuse(
            SimpleNamespace(s=load_scenario(RANKING), components=SimpleNamespace(keys={"domain": Domain()})),
            TABLES["central.jobs._MINIMAX"][3:],
        ),
        (RANKING, "privacy.clip={x=1.0, z=1.0}"),
    ),
    "central.jobs._UNPLANNED": (
        (coordinator("second_order_dp_bilevel"), "privacy.mechanism='laplace'"),
        lambda: refuse((load_scenario(RANKING), {UNCERTIFIED.name}), TABLES["central.jobs._UNPLANNED"]),
    ),
    "central.jobs._OUT_OF_REACH": (tune(delta=1e-22), tune(method="em", epsilon=1e-16)),
    "central.minimax.spider._ONE_CLIP": (("dp_sgd_dual", "privacy.clip={x=0.2, y=0.2}"),),
    "central.minimax.steps._SMOOTHNESS": (
        ("privatediff", "algorithm.period=2", "algorithm.smoothness=null"),
        ("privatediff", "algorithm.period=1", "algorithm.smoothness=1.0"),
    ),
    "central.problems.mspbe._REFUSED": (with_kind("mspbe", "resnet", trajectory=(2, 2)), with_kind("mspbe")),
    "central.problems.wgan._REFUSED": (with_kind("wgan", "resnet"), with_kind("wgan")),
    "central.selection._WRONG_GRID": (
        partial(count_per_axis, 4),
        partial(candidates, Domain(low=0.0, high=1.0), 1, 1),
    ),
    "central.selection._UNSOUND": (density(is_convex=False), density(is_convex=True)),
    "central.tuner._REFUSED": (tune(weight_range=(1.0, 0.5)), tune(delta=0.0)),
    "central.vocabulary.MAXIMISER_RULES": (
        (RANKING, "algorithm.solver='closed_form'"),
        ("privatediff", "algorithm.solver='closed_form'", "algorithm.inner=2"),
        (RANKING, "algorithm.solver='ascent'", "algorithm.y=null"),
    ),
    "config.scenario_components._RECORDS": (
        lambda: build(TRAINING, MANIFEST, data=RECORDS),
        (TRAINING, FILES),
        (TRAINING, MANIFEST),
        (TRAINING, MANIFEST, FILES, "problem.partition='iid'"),
        (TRAINING, MANIFEST, FILES, "problem.validation=0.5", "problem.test=null"),
    ),
    "config.scenario_components._ALGORITHM": (
        (BASE, "algorithm.z=null"),
        (
            scenario_file("figure_2_as_published"),
            "algorithm={kind='dp_dsgd', rounds=3, learning_rate={scale=1.0}, centring=true}",
            "problem={kind='classification', data='breast_cancer', scale='public_ranges'}",
        ),
        (scenario_file("figure_2_as_published"), "algorithm.x={scale=1.0, points=[[0, 1.0], [5, 0.5]]}"),
    ),
    "simulation.baselines._REFUSALS": (
        lambda: plan_baselines(build(scenario_file("figure_2_as_published"))),
        with_shards("ring_breast_cancer", then=plan_baselines),
    ),
    "simulation.budget._ARGUMENTS": (partial(Budget, 0.0, 1e-5), partial(Budget, 1.0, 1.0)),
    "simulation.jobs.gossip_setup._BEFORE_RECORDS": (
        (scenario_file("figure_2_as_published"), "privacy.mechanism='gaussian'"),
        (scenario_file("figure_2_as_published"), "privacy.unit='agent'"),
        (GOSSIP_RANKING, "problem.weights='records'"),
        (TRAINING, "privacy.colluders=4"),
        lambda: build(TRAINING, "privacy.neighbours='zero_out'", algorithm=Custom(StepSize(0.5))),
        (TRAINING, FIXED, "privacy.neighbours='zero_out'"),
        (TRAINING, POISSON, "privacy.mechanism='laplace'"),
        (TRAINING, CYCLIC),
        (TRAINING, PAIRS, "privacy.mechanism='laplace'"),
        (TRAINING, BAND, FIXED),
        (TRAINING, "privacy.correlation={over_rounds=[[1.0]]}"),
        (
            TRAINING,
            CYCLIC,
            "privacy.correlation={between_agents='pairwise', ratio=2.0, over_rounds=2}",
            "topology.over_time='matching'",
        ),
        with_shards(TRAINING, PAIRS),
        (TRAINING, PAIRS, "topology.kind='isolated'"),
        (TRAINING, PAIRS, "privacy.epsilon=null", "privacy.y={scale=[1.0, 1.0, 1.0, 1.0]}"),
        (TRAINING, OPTIMISED, "privacy.colluders=2"),
        (TRAINING, "privacy.correlation={between_agents='pairwise'}", "topology.over_time='matching'"),
        (TRAINING, "topology.kind='pooled'", "topology.drop=0.1"),
        ("random_walk", "topology.delay=2"),
        (TRAINING, "algorithm.kind='central'", "privacy.unit='agent'"),
        (GOSSIP_RANKING, "run.agent_scores=true"),
        (GOSSIP_RANKING, RELEASED),
        (GOSSIP_RANKING, "privacy.mechanism='laplace'"),
        (TRAINING, "privacy.box={y=0.0}"),
    ),
    "simulation.jobs.gossip_setup._REFUSALS": (
        ("f2sa", "problem.kind='meta_learning'", "problem.data='digits'", "problem.width=2"),
        (TRAINING, "algorithm.local_steps=2"),
        ("adassp", "problem.loss='huber'"),
        ("bsa", "topology.drop=0.1"),
        ("push_sum", "privacy.box={y=1.0}"),
        ("push_sum", "algorithm.kind='dp_dsgd'"),
        (TRAINING, "topology.compression={kind='sign'}", "topology.drop=0.1"),
        (TRAINING, "topology.aggregation={kind='median'}", "topology.delay=1"),
        ("push_sum", "topology.aggregation={kind='median'}"),
        (TRAINING, "attack={agents=[4], kind='alie'}"),
        (TRAINING, "attack={agents=[0, 1, 2, 3], kind='alie'}"),
        ("kgt", "topology.delay=1"),
        ("ma_dsbo", "privacy.unit='agent'"),
        ("own_losses", "privacy.unit='agent'"),
        ("ldp_dsbo", "privacy.unit=2"),
        ("ldp_dsbo", "privacy.mechanism='gaussian'", POISSON),
        ("ring_breast_cancer", "privacy.mechanism='gaussian'", "algorithm.protocol='private'", PAIRS),
        (TRAINING, PAIRS, "algorithm.kind='random_walk'"),
        (TRAINING, BAND, CYCLIC, "topology.offline=0.2"),
        (TRAINING, "privacy.box={z=1.0}"),
        (BASE, "privacy.clip={y=1.0}"),
        (TRAINING, "privacy.noise_multiplier=1.0"),
        (BASE, "privacy.y={scale=1.0}"),
        (TRAINING, "privacy.epsilon=null", "privacy.y={scale=[1.0, 2.0]}"),
        (TRAINING, "privacy.delta=0.0"),
    ),
    "simulation.jobs.published._REFUSALS": (
        (*PUBLISHED, "algorithm.kind='push_sum'"),
        (*PUBLISHED, "privacy.mechanism='laplace'"),
        (*PUBLISHED, "privacy.delta=0.0"),
        (*PUBLISHED, "problem.model={kind='mlp', hidden=[4]}"),
        (*PUBLISHED, "algorithm.momentum=0.9"),
        (*PUBLISHED, "privacy.unit='agent'"),
        (*PUBLISHED, POISSON),
        (*PUBLISHED, PAIRS, "topology.drop=0.1"),
        (*PUBLISHED, "privacy.colluders=1"),
        (*PUBLISHED, "privacy.colluders=9", "topology.drop=0.1", "topology.agents=24"),
        (*PUBLISHED, "topology.delay=1"),
        (*PUBLISHED, "privacy.box={y=1.0}"),
        (*PUBLISHED, "run.average=3"),
        (
            *PUBLISHED,
            "topology.agents=2001",
            "problem.data='synthetic_classification'",
            "problem.synthetic={dimension=2, records=5, test_records=2}",
            "problem.scale={'*'=[-1.0, 1.0]}",
        ),
    ),
    "simulation.steps._WATCHED": (
        lambda: check_watch(Watch(metrics={"epsilon_spent": len}), build(TRAINING)),
        lambda: check_watch(Watch(stop=bool), build(*PUBLISHED)),
    ),
}


class Custom(DpDsgd):
    """A custom algorithm."""


def find_tables() -> Iterator[tuple[str, tuple[Refusal[Any], ...]]]:
    """Yield the tables at the top of all modules of the package, each once, with their names."""
    seen = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if "Refusal" not in path.read_text(encoding="utf-8"):
            continue
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for name, value in vars(importlib.import_module(module)).items():
            is_table = isinstance(value, tuple) and value and all(isinstance(row, Refusal) for row in value)
            if is_table and id(value) not in seen:
                seen.add(id(value))
                yield f"{module.removeprefix('decentral_dp.')}.{name}", value


TABLES: dict[str, tuple[Refusal[Any], ...]] = dict(find_tables())
ROWS = [(name, k) for name, table in TABLES.items() for k in range(len(table))]


def test_inputs_are_listed_for_every_row() -> None:
    assert {name: len(rows) for name, rows in INPUTS.items()} == {name: len(rows) for name, rows in TABLES.items()}


@pytest.mark.parametrize(("table", "k"), ROWS, ids=[f"{name}[{k}] {TABLES[name][k].key}" for name, k in ROWS])
def test_every_row_is_triggered(table: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row, trigger = TABLES[table][k], INPUTS[table][k]
    if table == "central.jobs._COORDINATED":
        monkeypatch.setattr(coordinator_jobs, "deal", lambda *a: pytest.fail("records were read before the refusal"))
    text = re.escape(f"{row.key}: {row.problem}. Fix: {row.fix}.")
    try:
        trigger() if callable(trigger) else build(*trigger)
    except InputError as error:
        if not re.fullmatch(re.sub(r"\\\{.*?\\\}", ".*", text), str(error)):
            raise
    else:
        pytest.fail(f"no error of {row.key}: {row.problem}")
