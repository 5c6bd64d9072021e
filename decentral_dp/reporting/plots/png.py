"""A PNG of an opaque picture, in half the time of an encoder that tries every filter on every row."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Eight bits for each of red, green and blue; no interlacing.
_DEPTH_AND_KIND = bytes((8, 2, 0, 0, 0))
# Filter 2 of the standard: every byte less the one above it. What figures have most of, empty rows and columns of one
# colour, becomes zeros.
_UP = 2
# Of 0 to 9. More makes files smaller by an eighth, and takes twice as long.
_COMPRESSION = 3
_INCH = 0.0254


def png(pixels: NDArray[Any], dpi: float) -> bytes:
    """Encode a picture as a PNG (ISO/IEC 15948).

    Args:
        pixels: (height, width, 3 or more) uint8: red, green, blue, and what else there is, which is left out.
        dpi: pixels in an inch.

    Returns:
        The file. Equal pictures are equal files.

    Example:
        >>> png(np.zeros((2, 3, 4), dtype=np.uint8), 72.0)[1:4]
        b'PNG'
    """
    height, width = pixels.shape[:2]
    rows = np.empty((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 0] = _UP
    colours = pixels[:, :, :3].reshape(height, -1)
    rows[0, 1:] = colours[0]
    # Bytes are subtracted modulo 256, as the filter has it.
    np.subtract(colours[1:], colours[:-1], out=rows[1:, 1:])
    per_metre = round(dpi / _INCH)
    return _SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">II", width, height) + _DEPTH_AND_KIND),
            _chunk(b"pHYs", struct.pack(">IIB", per_metre, per_metre, 1)),
            _chunk(b"IDAT", zlib.compress(rows.data, _COMPRESSION)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
