"""Compiles the C part of the package into its wheel; without a compiler the wheel is made without it, and is slower."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

MODULE, SOURCE = "decentral_dp.privacy._variates", "decentral_dp/privacy/_variates.c"


class CompiledPart(BuildHookInterface[Any]):
    """One extension module, for every CPython from 3.11 on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            built = _compile(Path(self.root))
        except Exception as error:  # noqa: BLE001  # compilers fail in many ways, and none of them is needed
            self.app.display_warning(
                f"decentral_dp is built without its compiled part ({error}); the rest is the same."
            )
            return
        relative = str(built.relative_to(self.root))
        build_data["artifacts"].append(relative)
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{next(platform_tags())}"


def _compile(root: Path) -> Path:
    import numpy
    from setuptools import Distribution, Extension

    library = Path(numpy.__file__).parent / "random" / "lib"
    windows = sys.platform == "win32"
    extension = Extension(
        MODULE,
        [str(root / SOURCE)],
        include_dirs=[numpy.get_include()],
        library_dirs=[str(library)],
        libraries=["npyrandom"] if windows else ["npyrandom", "m"],
        extra_compile_args=["/O2"] if windows else ["-O3", "-ffp-contract=off"],
        py_limited_api=True,
    )
    distribution = Distribution({"name": "decentral_dp", "ext_modules": [extension]})
    command = distribution.get_command_obj("build_ext")
    with TemporaryDirectory() as work:
        command.build_lib, command.build_temp = work, work
        command.ensure_finalized()
        command.run()
        made = Path(command.get_ext_fullpath(MODULE))
        target = root / Path(SOURCE).parent / made.name
        target.write_bytes(made.read_bytes())
    return target
