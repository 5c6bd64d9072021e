"""Compiles the C parts of the package into its wheel; without a compiler the wheel is made without, and is slower."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

MODULES = ("decentral_dp.privacy._variates", "decentral_dp.models._linear")


class CompiledPart(BuildHookInterface[Any]):
    """Extension modules for every CPython from 3.11 on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            built = _compiled(Path(self.root))
        except Exception as error:  # noqa: BLE001  # compilers fail in many ways, and none of them is needed
            self.app.display_warning(
                f"decentral_dp is built without its compiled parts, which make rounds faster ({error})."
            )
            return
        build_data["artifacts"].extend(built)
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{next(platform_tags())}"


def _compiled(root: Path) -> list[str]:
    """Write every compiled module next to its source, and return the paths below the root."""
    import numpy
    from setuptools import Distribution

    # numpy ships its distributions as a library to be linked in.
    library = Path(numpy.__file__).parent / "random" / "lib"
    places = {"include_dirs": [numpy.get_include()], "library_dirs": [str(library)]}
    extensions = [_extension(name, root, places) for name in MODULES]
    command = Distribution({"name": "decentral_dp", "ext_modules": extensions}).get_command_obj("build_ext")
    built = []
    with TemporaryDirectory() as work:
        command.build_lib, command.build_temp = work, work
        command.ensure_finalized()
        command.run()
        for name in MODULES:
            made = Path(command.get_ext_fullpath(name))
            target = Path(*name.split(".")).with_name(made.name)
            (root / target).write_bytes(made.read_bytes())
            built.append(target.as_posix())
    return built


def _extension(name: str, root: Path, places: dict[str, list[str]]) -> Any:
    from setuptools import Extension

    windows = sys.platform == "win32"
    return Extension(
        name,
        [str(root / Path(*name.split(".")).with_suffix(".c"))],
        libraries=["npyrandom"] if windows else ["npyrandom", "m"],
        # No product and sum in one rounding: numpy rounds twice. Without traps for floating-point exceptions several
        # numbers are rounded at once.
        extra_compile_args=["/O2"] if windows else ["-O3", "-ffp-contract=off", "-fno-trapping-math"],
        py_limited_api=True,
        **places,
    )
