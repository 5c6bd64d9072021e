"""Engines, which perform exchanges. `ENGINES` names them; each is imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable

from decentral_dp.engines.protocol import Engine
from decentral_dp.errors import needing


def _local(address: str | None, place: str | None) -> Engine:
    from decentral_dp.engines.local import LocalEngine

    return LocalEngine()


def _ray(address: str | None, place: str | None) -> Engine:
    with needing('run.engine = "ray"'):
        from decentral_dp.engines.ray import RayEngine

    return RayEngine(address, place)


ENGINES: dict[str, Callable[[str | None, str | None], Engine]] = {"local": _local, "ray": _ray}

__all__ = ["ENGINES"]
