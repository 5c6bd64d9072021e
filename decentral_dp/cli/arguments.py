"""Arguments that several commands take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="A shipped scenario's name, or a scenario file.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. algorithm.rounds=500.")
]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Take a key or a table out before others are set, e.g. algorithm.z."),
]


class PictureFormat(StrEnum):
    """What pictures can be written as."""

    png = "png"
    svg = "svg"
    pdf = "pdf"
