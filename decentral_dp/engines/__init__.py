"""Engines, which perform exchanges. `ENGINES` names them; each is imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable

from decentral_dp.engines import protocol
from decentral_dp.engines.protocol import Engine, Recovery
from decentral_dp.errors import needing


def _local(place: str | None, gpus: float) -> Engine:
    from decentral_dp.engines.local import LocalEngine

    return LocalEngine()


def _ray(place: str | None, gpus: float) -> Engine:
    with needing('run.engine = "ray"'):
        from decentral_dp.engines.ray import RayEngine
        from decentral_dp.engines.ray_cluster import user_address

    return RayEngine(user_address(), place, protocol.RECOVERY, gpus)


def ray_cores() -> int:
    """Count the cores of the Ray cluster at RAY_ADDRESS, or of the one that would be started here.

    Raises:
        InputError: no Ray is reachable there, or Ray is not installed.
    """
    with needing('run.engine = "ray"'):
        from decentral_dp.engines import ray_cluster

    return ray_cluster.cluster_cores(ray_cluster.user_address())


ENGINES: dict[str, Callable[[str | None, float], Engine]] = {
    "local": _local,
    "ray": _ray,
}

__all__ = ["ENGINES", "Recovery", "ray_cores"]
