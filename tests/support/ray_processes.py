"""Processes of Ray on this machine."""

from __future__ import annotations

from pathlib import Path


def ray_actors() -> list[int]:
    """Actors of ours, by pid."""
    return [pid for pid, line in ray_processes().items() if line.startswith(("ray::Actor", "ray::ClientActor"))]


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
