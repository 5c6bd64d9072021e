"""What a scenario of a trusted coordinator cannot say: one sentence, and before a record is read wherever it can be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.central import jobs as coordinator_jobs
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs import build
from papers.published import FORMS
from tests.support.coordinator_scenarios import content

SPLITS = ("pp_ift", "second_order_dp_bilevel", "dp_bilevel")


def refusal(kind: str, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        build.build_job(load(content(kind, **changes)))
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read."""
    monkeypatch.setattr(coordinator_jobs, "deal", lambda *a: pytest.fail("records were read before it was refused"))


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("problem.stream", {"batch": 5}, "reads all records in every round"),
        ("problem.stream", {"kind": "minibatch", "batch": 5}, "reads all records in every round"),
        ("run.average", 3, "not averages"),
        ("privacy.x", {"scale": 1.0}, "follows from privacy.epsilon and delta"),
        ("privacy.cap", 3.0, "plans its whole budget"),
        ("privacy.box", {"x": 1.0}, "plans its whole budget"),
        ("privacy.share", {"x": 1.0}, "plans its whole budget"),
        ("privacy.epsilon", None, "missing"),
        ("privacy.epsilon", -1.0, "at least"),
        ("privacy.delta", 1.0, "below 1"),
        ("algorithm.rounds", 0, "at least 1"),
        ("algorithm.rounds", 10**12, "more releases than can be accounted"),
        ("algorithm.rate", 0.0, "above 0|takes none"),
        ("algorithm.domain", {"low": 1.0, "high": 1.0}, "no interior"),
        ("algorithm.init", {"x": 9.0}, "outside the domain"),
        ("algorithm.protocol", "private", "takes none, only ldp_dsbo"),
        ("algorithm.y", {"scale": 1.0}, "takes none, only"),
        ("algorithm.inverse", 4, "takes none, only"),
        ("algorithm.method", "em", "takes none, only"),
    ],
)
@pytest.mark.parametrize("kind", SPLITS)
def test_what_no_coordinator_takes_is_refused_before_a_record_is_read(
    kind: str, place: str, value: Any, words: str
) -> None:
    extra: dict[str, Any] = {"run": {}} if place.startswith("run.") else {}
    made = {**content(kind), **extra}
    table, key = place.split(".")
    made[table].pop(key, None)
    if value is not None:
        made[table][key] = value
    with pytest.raises(InputError, match=words) as caught:
        build.build_job(load(made))
    assert str(caught.value).startswith(place)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("unread")
def test_what_single_programs_refuse_is_refused_before_a_record_is_read() -> None:
    for kind in ("pp_ift", "dp_bilevel"):
        assert refusal(kind, **{"algorithm.solver": "newton"}).startswith("algorithm.solver")
        assert "no pure guarantee" in refusal(kind, **{"privacy.delta": 0.0})
    assert "takes none, only dp_bilevel" in refusal("second_order_dp_bilevel", **{"algorithm.rate": 0.5})
    assert "clips nothing" in refusal("second_order_dp_bilevel", **{"privacy.clip": {"y": 1.0}})
    unbounded = {"problem.normalise": None, "problem.scale": None}
    assert refusal("second_order_dp_bilevel", **unbounded).startswith("problem.normalise")


def test_the_spy_sees_a_read(unread: None) -> None:
    with pytest.raises(pytest.fail.Exception, match="records were read"):
        build.build_job(load(content("pp_ift")))


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("second_order_dp_bilevel", {"privacy.delta": 0.0}, "privacy.delta: .* no pure guarantee"),
        ("second_order_dp_bilevel", {"privacy.mechanism": "laplace"}, "privacy.mechanism"),
        ("second_order_dp_bilevel", {"algorithm.domain": None}, "algorithm.domain: missing"),
        ("second_order_dp_bilevel", {"problem.kind": "ridge_regularisation", "problem.data": "NUMBERS"}, "label_range"),
        ("second_order_dp_bilevel", {"problem.kind": "meta_learning"}, "no analytic constants"),
        ("dp_bilevel", {"algorithm.rounds": 20_000_000, "algorithm.inner": 9}, "more releases than can be accounted"),
        ("pp_ift", {"privacy.guarantee": "as_published"}, "privacy.guarantee: pp_ift"),
        ("papers.published:PublishedSecondOrder", {}, "privacy.guarantee: papers.published"),
    ],
)
def test_what_takes_facts_about_the_data_is_refused_in_a_sentence(
    tmp_path: Path, kind: str, changes: dict[str, Any], words: str
) -> None:
    if changes.get("problem.data") == "NUMBERS":
        table = tmp_path / "numbers.csv"
        rng = np.random.default_rng([4, 2])
        table.write_text("a,b,target\n" + "\n".join(",".join(f"{v:.3f}" for v in row) for row in rng.random((60, 3))))
        more = {"problem.data": str(table), "problem.scale": None, "problem.label": "target", "problem.classes": []}
        changes = {**changes, **more}
    said = refusal(kind, **changes)
    assert re.search(words, said), said


@pytest.mark.parametrize("data", ["wine", "breast_cancer", "digits"])
def test_labels_of_classes_lie_within_the_bound_that_is_certified(data: str) -> None:
    """Classes are numbered from 0 on, and a regression reads their numbers."""
    made = content("second_order_dp_bilevel", **{"problem.kind": "ridge_regularisation", "problem.data": data})
    built = build.build_job(load(made))
    assert built.context is not None
    largest = max(float(np.abs(records[1]).max()) for kind in built.records.values() for records in kind)
    assert built.context.family.loss.label_bound == largest  # type: ignore[union-attr]  # of a least-squares family


def test_every_claim_belongs_to_a_program_with_a_calibration() -> None:
    own = {"regularisation_tuner": {"algorithm.rounds": 1}}
    once = ("exponential_mechanism", "regularised_exponential_mechanism", "gradient_norm_exponential_mechanism")
    own |= {kind: {"algorithm.rounds": 1} for kind in once}
    for kind in (name for name, e in ALGORITHMS.items() if e.trusts_coordinator and e.solves == "bilevel"):
        changes = {"privacy.guarantee": "as_published", **own.get(kind, {})}
        if kind == "regularised_exponential_mechanism":
            # Its published strength is below the one that keeps the upper level convex.
            assert refusal(kind, **changes).startswith("algorithm.strength")
        elif kind in FORMS:
            assert build.build_job(load(content(kind, **changes))).budget.epsilon.shape == (5,)
        else:
            assert refusal(kind, **changes).startswith("privacy.guarantee")
