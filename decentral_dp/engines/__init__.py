"""Engines, which perform exchanges. `ENGINES` names them; each is imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from decentral_dp.engines.protocol import Engine, Recovery
from decentral_dp.errors import needing


def _local(address: str | None, place: str | None, recovery: Mapping[str, Any], gpus: float) -> Engine:
    from decentral_dp.engines.local import LocalEngine

    return LocalEngine()


def _ray(address: str | None, place: str | None, recovery: Mapping[str, Any], gpus: float) -> Engine:
    with needing('run.engine = "ray"'):
        from decentral_dp.engines.ray import RayEngine

    return RayEngine(address, place, Recovery(**recovery), gpus)


def cores(address: str | None) -> int:
    """Count the cores of the Ray cluster at an address, or of the one that would be started here.

    Args:
        address: "auto" or "host:port"; None for a Ray on this machine.

    Raises:
        InputError: no Ray is reachable there, or Ray is not installed.
    """
    with needing('run.engine = "ray"'):
        from decentral_dp.engines import ray_cluster

    return ray_cluster.cores(address)


ENGINES: dict[str, Callable[[str | None, str | None, Mapping[str, Any], float], Engine]] = {
    "local": _local,
    "ray": _ray,
}

__all__ = ["ENGINES", "Recovery", "cores"]
