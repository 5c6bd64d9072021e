"""Small networks that embed records, with per-record gradients from one backward pass; everything in float64.

A network has weights x (p,) and maps records (n, d) to embeddings φ (n, e). `forward` keeps on a tape what `clipped`
needs: given cotangents c (n, e) it returns Σ_k clip(∇_x ⟨φ_k, c_k⟩) over the records. In a convolution a record's
weight gradient is a product of two matrices, which the plain batch gradient computes as well, only all at once: the
rows are formed, their norm is taken over all layers, and clipping costs one pass over them.

No operation mixes two records (hence group and not batch normalisation), so a record moves nothing but its own row.
Callers turn floating-point warnings off: what overflows becomes a row that is not finite, and counts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.linear_terms import clip_columns, feature_norms, with_intercept
from decentral_dp.models.protocol import Weighted
from decentral_dp.privacy.clipping import clipped_sum

Image = tuple[int, int, int]

LARGEST_DEPTH = 4
CHANNELS_PER_GROUP = 4
VARIANCE_FLOOR = 1e-5


class Network(Weighted, Protocol):
    """A network whose outputs a lower level reads as features. embedding: e."""

    @property
    def embedding(self) -> int: ...

    def start(self, draw: np.random.Generator) -> Array:
        """Random weights, (p,)."""
        ...

    def arrange(self, features: Array) -> Array:
        """Records as the network reads them: (n, d) → (n, d), once and for all."""
        ...

    def forward(self, x: Array, records: Array, keep: bool = True) -> tuple[Array, Any]:
        """φ (n, e), and the tape if `keep`."""
        ...

    def rows(self, x: Array, tape: Any, cotangents: Array) -> Array:
        """∇_x ⟨φ_k, c_k⟩ per record, (n, p)."""
        ...

    def clipped_sum(self, x: Array, tape: Any, cotangents: Array, bound: float, norm: Norm) -> Array:
        """Sum the clipped gradients of the records, Σ_k clip(∇_x ⟨φ_k, c_k⟩).

        Args:
            x: (p,) weights.
            tape: of `forward` at x.
            cotangents: c (n, e).
            bound: the largest norm of a record's gradient; one that is not finite counts as zero.
            norm: "l1" or "l2".

        Returns:
            (p,) the sum.
        """
        ...


class Block(NamedTuple):
    """The weights of one block: kernel (o, 9c), bias (o,), and the scale (o,) and shift (o,) after normalising."""

    kernel: Array
    bias: Array
    scale: Array
    shift: Array


class BlockTape(NamedTuple):
    """What the backward pass of one block reads.

    shape: (n, h, w, c) of the input. patches: (n, h·w, 9c). unit: (n, h·w, o) normalised. spread: (n, o) what it was
    divided by, inverted. pool_input: (n, h, w, o) into the pooling. pool_output: (n, h/2, w/2, o) out of it.
    """

    shape: tuple[int, ...]
    patches: Array
    unit: Array
    spread: Array
    pool_input: Array
    pool_output: Array


@dataclass(frozen=True)
class Convolutional:
    """Blocks of 3 × 3 convolution, group normalisation, ReLU and 2 × 2 max-pooling.

    image: (height, width, channels) → as many blocks as the shorter side can be halved, at most 4; an odd last row or
    column is not pooled. channels → per block; they are normalised in groups of about 4.

    Reference: Finn, Abbeel & Levine, ICML 2017 (appendix A.1), with batch normalisation replaced by group normalisation
    (Wu & He, ECCV 2018).
    """

    image: Image
    channels: int

    @cached_property
    def depth(self) -> int:
        return min(LARGEST_DEPTH, int(math.log2(min(self.image[:2]))))

    @cached_property
    def groups(self) -> int:
        return group_count(self.channels)

    @property
    def p(self) -> int:
        return sum(math.prod(s) for s in self._shapes())

    @property
    def embedding(self) -> int:
        height, width, _ = self.image
        return (height >> self.depth) * (width >> self.depth) * self.channels

    @property
    def cells(self) -> int:
        height, width, c = self.image
        total = self.p
        for k in range(self.depth):
            total += (height >> k) * (width >> k) * (9 * c + 4 * self.channels)
            c = self.channels
        return total

    def _shapes(self) -> list[tuple[int, ...]]:
        out: list[tuple[int, ...]] = []
        c, o = self.image[2], self.channels
        for _ in range(self.depth):
            out += [(o, 9 * c), (o,), (o,), (o,)]
            c = o
        return out

    def _blocks(self, x: Array) -> list[Block]:
        parts, done = [], 0
        for shape in self._shapes():
            parts.append(x[done : done + math.prod(shape)].reshape(shape))
            done += math.prod(shape)
        return [Block(*parts[k : k + 4]) for k in range(0, len(parts), 4)]

    def start(self, draw: np.random.Generator) -> Array:
        """(p,) kernels N(0, 2/fan-in), scales 1, biases and shifts 0."""
        x = np.zeros(self.p)
        for block in self._blocks(x):
            block.kernel[:] = draw.normal(size=block.kernel.shape) * math.sqrt(2.0 / block.kernel.shape[1])
            block.scale[:] = 1.0
        return x

    def arrange(self, features: Array) -> Array:
        """(n, d) from channels first to channels last, so that a patch is three runs of memory."""
        height, width, c = self.image
        return np.ascontiguousarray(
            features.reshape(-1, c, height, width).transpose(0, 2, 3, 1).reshape(len(features), -1)
        )

    def forward(self, x: Array, records: Array, keep: bool = True) -> tuple[Array, list[BlockTape]]:
        tape, h = [], records.reshape(-1, *self.image)
        for block in self._blocks(x):
            n, height, width, _ = h.shape
            patches, o = patches_of(h), len(block.bias)
            unit = (patches.reshape(n * height * width, -1) @ block.kernel.T).reshape(n, height * width, o)
            unit += block.bias
            size = height * width * (o // self.groups)
            unit -= self._of_group(unit.sum(axis=1), size)[:, None]
            variance = self._of_group(np.einsum("kio,kio->ko", unit, unit), size)
            spread = 1.0 / np.sqrt(variance + VARIANCE_FLOOR)
            unit *= spread[:, None]
            before = (unit * block.scale + block.shift).reshape(n, height, width, o)
            after = pool(before)
            if keep:
                tape.append(BlockTape(h.shape, patches, unit, spread, before, after))
            h = np.maximum(after, 0.0)
        return h.reshape(len(h), -1), tape

    def rows(self, x: Array, tape: Sequence[BlockTape], cotangents: Array) -> Array:
        n, blocks = len(cotangents), self._blocks(x)
        out, end = np.empty((n, self.p)), self.p
        back = cotangents.reshape(tape[-1].pool_output.shape)
        for k in reversed(range(self.depth)):
            block, taped = blocks[k], tape[k]
            _, height, width, _ = taped.shape
            o = len(block.bias)
            slope = pooling_slopes(back, taped.pool_input.copy(), taped.pool_output).reshape(n, height * width, o)
            by_shift, by_scale = slope.sum(axis=1), np.einsum("kio,kio->ko", slope, taped.unit)
            # Through the normalisation: dv = (v̂' − mean v̂' − v̂·mean(v̂'·v̂))/spread, the means over a group.
            size = height * width * (o // self.groups)
            slope *= block.scale
            slope -= self._of_group(by_shift * block.scale, size)[:, None]
            slope -= taped.unit * self._of_group(by_scale * block.scale, size)[:, None]
            slope *= taped.spread[:, None]
            by_kernel = np.matmul(slope.swapaxes(1, 2), taped.patches).reshape(n, -1)
            for rows in (by_shift, by_scale, slope.sum(axis=1), by_kernel):
                out[:, end - rows.shape[1] : end] = rows
                end -= rows.shape[1]
            if k:
                back = sum_patches(slope.reshape(n * height * width, o) @ block.kernel, taped.shape)
        return out

    def clipped_sum(self, x: Array, tape: Sequence[BlockTape], cotangents: Array, bound: float, norm: Norm) -> Array:
        return clipped_sum(self.rows(x, tape, cotangents), bound, norm)

    def _of_group(self, sums: Array, size: int) -> Array:
        """(n, o) sums per channel → (n, o) means over the channel's group of `size` numbers."""
        per_group = sums.reshape(len(sums), self.groups, -1).sum(axis=2) / size
        return np.repeat(per_group, self.channels // self.groups, axis=1)


class Layer(NamedTuple):
    """inputs: (n, d + 1), the last column ones. open: (n, width) where the ReLU lets through."""

    inputs: Array
    open: NDArray[np.bool_]


@dataclass(frozen=True)
class Dense:
    """One hidden layer of `width` ReLU units, for records that are no images: φ = max(0, A·(a, 1)).

    A record's gradient is an outer product (c∘1[φ>0])·(a, 1)ᵀ, so its norm is the product of two norms.
    """

    n_features: int
    width: int

    @property
    def p(self) -> int:
        return self.width * (self.n_features + 1)

    @property
    def embedding(self) -> int:
        return self.width

    @property
    def cells(self) -> int:
        return self.p

    def start(self, draw: np.random.Generator) -> Array:
        """(p,) weights N(0, 2/fan-in), biases 0."""
        x = np.zeros((self.width, self.n_features + 1))
        x[:, :-1] = draw.normal(size=(self.width, self.n_features)) * math.sqrt(2.0 / self.n_features)
        return x.ravel()

    def arrange(self, features: Array) -> Array:
        return features

    def forward(self, x: Array, records: Array, keep: bool = True) -> tuple[Array, Layer]:
        inputs = with_intercept(records)
        hidden = inputs @ x.reshape(self.width, -1).T
        return np.maximum(hidden, 0.0), Layer(inputs, hidden > 0.0)

    def rows(self, x: Array, tape: Layer, cotangents: Array) -> Array:
        outer = (cotangents * tape.open)[:, :, None] * tape.inputs[:, None, :]
        return np.asarray(outer.reshape(len(cotangents), -1))

    def clipped_sum(self, x: Array, tape: Layer, cotangents: Array, bound: float, norm: Norm) -> Array:
        norms = feature_norms(tape.inputs)[0 if norm == "l1" else 1]
        # Zero times infinity is NaN: inputs that are not finite have to go before the product.
        inputs = tape.inputs if np.isfinite(norms).all() else np.where(np.isfinite(norms)[:, None], tape.inputs, 0.0)
        slope = np.ascontiguousarray((cotangents * tape.open).T)
        return np.asarray((clip_columns(slope, norms, norm, bound) @ inputs).ravel())


def group_count(channels: int) -> int:
    """How many groups channels are normalised in: equal ones of about `CHANNELS_PER_GROUP`, and no smaller."""
    most = max(1, channels // CHANNELS_PER_GROUP)
    return max(g for g in range(1, most + 1) if channels % g == 0)


def patches_of(h: Array) -> Array:
    """The 3 × 3 neighbourhood of every pixel, zero beyond the edge: (n, h, w, c) → (n, h·w, 9c)."""
    n, height, width, c = h.shape
    padded = np.zeros((n, height + 2, width + 2, c))
    padded[:, 1:-1, 1:-1] = h
    per_record, per_line, per_pixel, per_number = padded.strides
    view = as_strided(
        padded, (n, height, width, 3, 3 * c), (per_record, per_line, per_pixel, per_line, per_number), writeable=False
    )
    return view.reshape(n, height * width, 9 * c)


def sum_patches(patches: Array, shape: tuple[int, ...]) -> Array:
    """Adjoint of `patches_of`: (n, h·w, 9c) → the shape (n, h, w, c), each pixel the sum of its copies."""
    n, height, width, c = shape
    parts = patches.reshape(n, height, width, 3, 3, c)
    padded = np.zeros((n, height + 2, width + 2, c))
    for i in range(3):
        for j in range(3):
            padded[:, i : i + height, j : j + width] += parts[:, :, :, i, j]
    return padded[:, 1:-1, 1:-1]


def corners_of(height: int, width: int) -> list[tuple[slice, ...]]:
    """The four corners of all 2 × 2 windows."""
    down, right = height // 2 * 2, width // 2 * 2
    return [(slice(None), slice(i, down, 2), slice(j, right, 2)) for i in (0, 1) for j in (0, 1)]


def pool(values: Array) -> Array:
    """The largest of each window of 2 × 2: (n, h, w, c) → (n, ⌊h/2⌋, ⌊w/2⌋, c)."""
    one, two, three, four = (values[corner] for corner in corners_of(*values.shape[1:3]))
    return np.maximum(np.maximum(one, two), np.maximum(three, four))


def pooling_slopes(back: Array, before: Array, after: Array) -> Array:
    """Slopes of what goes into pooling and ReLU: to the first largest of each window of 2 × 2, else 0.

    Args:
        back: (n, ⌊h/2⌋, ⌊w/2⌋, c) slopes of what comes out.
        before: (n, h, w, c) what went in; overwritten by the slopes, which are returned.
        after: (n, ⌊h/2⌋, ⌊w/2⌋, c) the largest of each window.
    """
    height, width = before.shape[1:3]
    slope = back * (after > 0.0)
    free = np.ones(after.shape, dtype=bool)
    for corner in corners_of(height, width):
        largest = (before[corner] == after) & free
        free ^= largest
        np.multiply(slope, largest, out=before[corner])
    before[:, height // 2 * 2 :] = 0.0
    before[:, :, width // 2 * 2 :] = 0.0
    return before
