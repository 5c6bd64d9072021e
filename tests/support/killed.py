"""A command that is killed in the middle of what it does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import decentral_dp


def killed(words: list[object], place: Path, patch: str, when: Callable[[], bool], seconds: float = 300.0) -> None:
    """Run a command in a new process, and kill it by SIGKILL as soon as a condition holds.

    Args:
        words: arguments of the command "decentral-dp".
        place: a folder for what is patched.
        patch: Python that the process runs first, so that it comes no further than the condition.
        when: the condition.
        seconds: how long it is waited for.
    """
    (place / "patched").mkdir()
    (place / "patched" / "sitecustomize.py").write_text(patch)
    path = os.pathsep.join([str(place / "patched"), str(Path(decentral_dp.__file__).parents[1])])
    command = [sys.executable, "-m", "decentral_dp.cli.main", *map(str, words)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            end = time.monotonic() + seconds
            while not when():
                assert process.poll() is None, process.stderr.read() if process.stderr else ""
                assert time.monotonic() < end, "waited in vain"
                time.sleep(0.1)
        finally:
            process.kill()
