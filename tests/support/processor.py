"""Another processor, as far as one can be had here: numpy and BLAS without AVX-512.

`python -m tests.support.processor` prints the features that `NPY_DISABLE_CPU_FEATURES` is to name: none where numpy
uses none of them.
"""

from __future__ import annotations

import os
import re

import numpy as np

_WIDE = re.compile("AVX512|X86_V4")


def wide_features() -> list[str]:
    """Return the names under which the numpy at hand uses AVX-512; numpy warns of a name that it does not know."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return [name for name in found if _WIDE.match(name)]


def narrow_environment() -> dict[str, str]:
    """Return variables of a process that rounds as a processor without AVX-512 does."""
    return {
        **os.environ,
        "NPY_DISABLE_CPU_FEATURES": " ".join(wide_features()),
        "OPENBLAS_CORETYPE": "Haswell",
    }


if __name__ == "__main__":
    print(" ".join(wide_features()))
