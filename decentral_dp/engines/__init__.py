"""Engines, which perform exchanges. `ENGINES` names them; each is imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from decentral_dp.engines.protocol import Engine, Recovery
from decentral_dp.errors import needing


def _local(place: str | None, recovery: Mapping[str, Any], gpus: float) -> Engine:
    from decentral_dp.engines.local import LocalEngine

    return LocalEngine()


def _ray(place: str | None, recovery: Mapping[str, Any], gpus: float) -> Engine:
    with needing('run.engine = "ray"'):
        from decentral_dp.engines.ray import RayEngine
        from decentral_dp.engines.ray_cluster import user_address

    return RayEngine(user_address(), place, Recovery(**recovery), gpus)


def cores() -> int:
    """Count the cores of the Ray cluster at RAY_ADDRESS, or of the one that would be started here.

    Raises:
        InputError: no Ray is reachable there, or Ray is not installed.
    """
    with needing('run.engine = "ray"'):
        from decentral_dp.engines import ray_cluster

    return ray_cluster.cores(ray_cluster.user_address())


ENGINES: dict[str, Callable[[str | None, Mapping[str, Any], float], Engine]] = {
    "local": _local,
    "ray": _ray,
}

__all__ = ["ENGINES", "Recovery", "cores"]
