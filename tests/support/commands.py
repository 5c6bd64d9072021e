"""The command line in this process: what it prints, and how it exits."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import typer.main

from decentral_dp.cli import main as cli

# Typer builds all commands for every call, which takes longer than most of them.
build_commands = functools.cache(typer.main.get_command)


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@contextmanager
def entry_point(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Give what runs `decentral-dp` with arguments; handlers of signals are put back afterwards."""
    monkeypatch.setattr("typer.main.get_command", build_commands)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["decentral-dp", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Said(code, *capsys.readouterr())

    try:
        yield call
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
