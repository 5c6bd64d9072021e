"""Engines that perform exchanges, imported when they are used."""

from __future__ import annotations

from decentral_dp.engines import protocol
from decentral_dp.engines.protocol import Engine, Recovery
from decentral_dp.errors import needing

_RAY = 'run.engine = "ray"'


def engine_of(name: str, place: str | None) -> Engine:
    """Return the engine with the given name.

    Args:
        name: engine "local" or "ray".
        place: Ray resource of an agent's machine; None for any machine.

    Raises:
        InputError: Ray is not installed.
    """
    if name == "local":
        from decentral_dp.engines.local import LocalEngine

        return LocalEngine()
    with needing(_RAY):
        from decentral_dp.engines.ray import RayEngine, user_address

    return RayEngine(user_address(), place, protocol.RECOVERY)


def ray_cores() -> int:
    """Count the cores of the Ray cluster at RAY_ADDRESS, or of the cluster that would be started here.

    Raises:
        InputError: no Ray cluster is reachable there, or Ray is not installed.
    """
    with needing(_RAY):
        from decentral_dp.engines.ray import cluster_cores, user_address

    return cluster_cores(user_address())


__all__ = ["Recovery", "engine_of", "ray_cores"]
