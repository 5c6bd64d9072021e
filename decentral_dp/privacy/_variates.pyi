from typing import Any

import numpy as np
from numpy.typing import NDArray

EXPONENTIAL: int
UNIFORM: int
NORMAL: int

# filled: kinds and arrays in turn.
def fill(keys: NDArray[np.uint64], used: NDArray[np.uint64], index: int, tag: int, /, *filled: Any) -> None: ...
def fill_secret(ciphers: list[Any], used: NDArray[np.uint64], index: int, /, *filled: Any) -> None: ...
def bits() -> Any: ...
def at(bits: Any, cipher: Any, index: int, /) -> None: ...
