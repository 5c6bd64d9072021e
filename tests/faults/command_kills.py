"""Studies whose command is killed at random moments, and resumed by their folder."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

from .kills import SCENARIO, Tally


def kill_studies(times: int, seed: int, place: Path) -> Tally:
    """Kill a study of twelve cells at random moments, and resume it by its folder, until it is complete.

    Args:
        times: kills in all.
        seed: of the moments.
        place: an empty folder.
    """
    (place / "base.toml").write_text(tomli_w.dumps(SCENARIO), encoding="utf-8")
    grid = {"algorithm.rounds": [40, 60, 80, 100], "privacy.epsilon": [10.0, 20.0, 40.0]}
    (place / "study.toml").write_text(tomli_w.dumps({"scenario": "base.toml", "grid": grid}), encoding="utf-8")

    def content(out: Path) -> Any:
        frame = pd.read_parquet(out / "results.parquet")
        left = sorted(p.name for p in out.iterdir()), len(list((out / "cells").iterdir()))
        return frame[frame["name"] != "seconds"].to_json(double_precision=15), left

    words = ["study", place / "study.toml", "--jobs", 2]

    def command(out: Path, kill_after: float | None) -> bool:
        """Begin or go on. Returns whether it came to its end."""
        if (out / "study.toml").is_file() and not (out / "begun.json").exists():
            # Killed when everything was written.
            return True
        for order in ([["resume", out]] if out.exists() else []) + [[*words, "--out", out]]:
            running = subprocess.Popen(
                [sys.executable, "-m", "decentral_dp.cli.main", *map(str, order)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            try:
                _, said = running.communicate(timeout=kill_after)
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()
                return False
            # Killed between the folder and the record of what is asked in it: it is begun again.
            if running.returncode == 0 or b"does not say which study" not in said:
                break
        if running.returncode:
            raise RuntimeError(f"what is in {out} failed by itself: {said.decode()}")
        return True

    draw, kills, resumed, wrong = random.Random(seed), 0, 0, list[str]()
    whole = place / "whole"
    started = time.monotonic()
    command(whole, None)
    length = time.monotonic() - started
    while kills < times:
        out = place / f"out-{resumed}"
        while not command(out, draw.uniform(0.0, length) if kills < times else None):
            kills += 1
        resumed += 1
        wrong += [] if content(out) == content(whole) else [f"{out.name} differs"]
    return Tally(kills, resumed, 0, wrong)
