import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]
_Counts = NDArray[np.int64]

def forward(rows: _Array, counts: _Counts, vectors: _Array, norm: int, /) -> tuple[_Array, _Array | None]: ...
def weighted_sums(coefficients: _Array, rows: _Array, counts: _Counts, /) -> tuple[_Array, _Array]: ...
