"""Eight of the planted errors, others every day, and the planting itself. All: `python -m tests.planted`."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from .mutations import MUTATIONS
from .planting import Copy, Mutation, judged

EIGHT = random.Random(datetime.date.today().toordinal()).sample(MUTATIONS, 8)  # any day will do


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("mutation", EIGHT, ids=lambda m: m.name)
def test_a_planted_error_is_caught(mutation: Mutation, copied: Copy) -> None:
    verdict = copied.verdict(mutation)
    assert verdict.word == "caught", verdict.evidence


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_error_has_its_place(mutation: Mutation) -> None:
    root = Path(__file__).parents[2]
    assert (root / "decentral_dp" / mutation.file).read_text(encoding="utf-8").count(mutation.old) == 1
    assert mutation.new != mutation.old
    for test in mutation.tests:
        path, _, name = test.partition("::")
        # A class may inherit the named test.
        group, _, method = name.rpartition("::")
        defined = f"class {group}(" if group else f"def {method.partition('[')[0]}"
        assert defined in (root / path).read_text(encoding="utf-8")


def test_names_are_unique() -> None:
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) >= 40


def test_surviving_and_broken_errors_have_their_own_verdicts(copied: Copy) -> None:
    test = ("tests/privacy/accounting/test_accountants.py::test_prices_at_the_edges",)
    file = "privacy/mechanisms.py"
    harmless = Mutation("harmless", file, "    # 1/g is exact ", "    # One over g is exact ", test)
    assert copied.verdict(harmless).word == "survived"
    assert copied.verdict(harmless._replace(old="no such text")).word == "broken"
    missing = harmless._replace(old="def at_the_ends(", new="def at_its_ends(")
    assert copied.verdict(missing).word == "broken"
    wrong_name = harmless._replace(old="unbounded = np.isinf(sensitivity)", new="unbounded = np.isnoinf(sensitivity)")
    assert copied.verdict(wrong_name).word == "broken"


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("AssertionError: assert 1 == 2", "caught"),
        ("assert 1 == 2", "caught"),
        ("Failed: DID NOT RAISE ValueError", "caught"),
        ("TypeError: no argument", "broken"),
        ("NameError: name 'x' is not defined", "broken"),
    ],
)
def test_only_what_a_test_asserts_counts(message: str, word: str) -> None:
    report = (
        f'<testsuites><testsuite><testcase name="t"><failure message="{message}"/></testcase></testsuite></testsuites>'
    )
    assert judged(report).word == word
    assert judged(report.replace("failure", "error")).word == "broken"
