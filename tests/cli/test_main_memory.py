"""A lack of memory is one sentence, whichever library ran into it."""

from __future__ import annotations

from typing import Any

import pytest

from decentral_dp.cli import main as inside


@pytest.mark.parametrize(
    "error",
    [MemoryError("no room"), SystemError("error return without exception set"), ImportError("failed to map segment")],
)
def test_a_lack_of_memory_is_a_sentence(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app(**_: Any) -> None:
        raise error

    monkeypatch.setattr(inside, "app", app)
    monkeypatch.setattr(inside.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        inside.main()
    assert ended.value.code == 1
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "not enough memory" in written
    assert str(error) in written


def test_a_module_that_is_missing_is_another_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def app(**_: Any) -> None:
        raise ModuleNotFoundError("No module named 'nothing'")

    monkeypatch.setattr(inside, "app", app)
    monkeypatch.setattr(inside.signal, "signal", lambda *_: None)
    with pytest.raises(ModuleNotFoundError):
        inside.main()
