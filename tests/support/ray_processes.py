"""Processes of Ray on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def ray_actors() -> list[int]:
    """Actors of clusters that this process has started, by pid: others test on this machine, too."""
    actors = [pid for pid, line in ray_processes().items() if line.startswith(("ray::Actor", "ray::ClientActor"))]
    return [pid for pid in actors if _descends(pid, os.getpid())]


def parent(pid: int) -> int:
    """The process that has started another; 0 where there is none any more."""
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        pid = parent(pid)
        if pid == ancestor:
            return True
    return False


def descendants(ancestors: Sequence[int]) -> set[int]:
    """Processes that these have started, directly or not, and that are there."""
    every = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return {pid for pid in every if any(_descends(pid, ancestor) for ancestor in ancestors)}


def ray_processes() -> dict[int, str]:
    """Ray's processes on this machine, from /proc: pid → command line."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if "raylet" in line or line.startswith("ray::") or "gcs_server" in line:
            found[int(entry.name)] = line
    return found
