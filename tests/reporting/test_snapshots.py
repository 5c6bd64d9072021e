"""Pages and terminals have the recorded texts."""

from __future__ import annotations

import pytest

from tests.conftest import ABSENT
from tests.reporting.snapshots import TEXTS, texts


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return texts(tmp_path_factory.mktemp("snapshots"))


def test_every_text_is_recorded(shown: dict[str, str]) -> None:
    assert sorted(shown) == sorted(path.name for path in TEXTS.iterdir()), "run python -m tests.reporting.snapshots"


@pytest.mark.parametrize("name", sorted(path.name for path in TEXTS.iterdir()))
def test_text(name: str, shown: dict[str, str]) -> None:
    recorded = (TEXTS / name).read_text(encoding="utf-8")
    if ABSENT:
        # The oldest supported pandas fills the columns of a table with other blanks.
        assert [line.split() for line in shown[name].splitlines()] == [line.split() for line in recorded.splitlines()]
    else:
        assert shown[name] == recorded
