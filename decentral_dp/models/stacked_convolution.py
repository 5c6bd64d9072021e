"""Small convolutional networks of many agents at once, whose per-record gradients are clipped in float64.

Blocks of 3 × 3 convolution (stride 1, zeros beyond the edge), ReLU and 2 × 2 max-pooling, then one dense layer. With
P (h·w, 9c) the patches of an image and δ (h·w, o) the slope of a convolution's outputs, a record's gradient by the
kernel is the product δᵀP (o, 9c). It is formed for a few records of a few agents at a time. The batch gradient takes
the same products, so forming it costs one pass over o·9c numbers. The norm of the dense layer's part is a product of
two norms, and that part is never formed.

The square of a kernel's norm is also Σ_{s,t} ⟨δ_s, δ_t⟩⟨P_s, P_t⟩, which forms no gradient (ghost norm). That sum
cancels: where the gradient is small beside its summands, rounding makes the norm too small and the clip too weak. The
norm is therefore taken of the gradient itself.

Products are taken agent by agent (`numpy.matmul` of stacked matrices), so that the bits of one agent's sum depend on
nobody who is hosted with it.

By torch, in float64 on one core, the same sums of 64 records an agent take longer: rows of `vmap` 1.7 to 1.9 times as
long for channels 16 and 32 on 28 × 28 and 32 × 32 × 3, and 3.7 on 8 × 8; products of unfolded patches, with slopes by
autograd, 1.2 to 1.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.models.convolution import Image, patches_of, pool, pooling_slopes, sum_patches
from decentral_dp.models.learner import Cotangents, LayerViews, layer_views
from decentral_dp.models.protocol import UNDERFLOW, sizes
from decentral_dp.privacy.clipping import clip_factors

# Float64 numbers of one tile, 4 MiB: from forward to backward pass it stays in a core's second or third cache.
_TILE = 1 << 19


class _BlockTape(NamedTuple):
    """What the backward pass of one block reads.

    shape: (n, h, w, c) of the input of all agents' records. patches: (g, n/g·h·w, 9c). pool_input: (n, h, w, o) into
    the pooling. pool_output: (n, h/2, w/2, o) out of it, before the ReLU.
    """

    shape: tuple[int, int, int, int]
    patches: Array
    pool_input: Array
    pool_output: Array


@dataclass(frozen=True)
class ConvolutionLayers:
    """Convolutions with ReLU and max-pooling, then a dense layer.

    Weights, layer by layer: the kernel (o, 3, 3, c), or the rows of the dense layer (e, h, w, c), and then the biases.

    Args:
        image: (height, width, channels); records are rows, channels first.
        channels: of each convolution, in order. Each of them is followed by a pooling that halves height and width;
            an odd last row or column is left out there.
        outputs: e.
        seed: public, of the random start.

    Raises:
        InputError: the image cannot be halved so often.
    """

    image: Image
    channels: tuple[int, ...]
    outputs: int
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.image[:2]) >> len(self.channels) < 1:
            height, width, _ = self.image
            raise InputError(
                f"problem.model.channels: got {len(self.channels)} convolutions, each of which halves an image of "
                f"{height} × {width} pixels. Give at most {int(math.log2(min(height, width)))}."
            )

    @cached_property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(h, w, c) that every convolution reads, and last that which the dense layer reads."""
        height, width, c = self.image
        return tuple((height >> k, width >> k, (c, *self.channels)[k]) for k in range(len(self.channels) + 1))

    @cached_property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """(i, o) of every layer."""
        kernels = [(9 * shape[2], o) for shape, o in zip(self.shapes, self.channels, strict=False)]
        return (*kernels, (math.prod(self.shapes[-1]), self.outputs))

    @cached_property
    def p(self) -> int:
        """Number of weights."""
        return sum(o * (i + 1) for i, o in self.widths)

    @property
    def cells(self) -> int:
        return max(h * w * (i + 2 * o) for (h, w, _), (i, o) in zip(self.shapes, self.widths, strict=True))

    @cached_property
    def _floats_per_record(self) -> int:
        """Float64 numbers of one record from the forward to the backward pass: tapes, slopes and a gradient."""
        blocks = zip(self.shapes, self.widths[:-1], strict=False)
        return sum(h * w * (i + 3 * o) + o * (i + 1) for (h, w, _), (i, o) in blocks)

    norms: ClassVar[tuple[Norm, ...]] = ("l1", "l2")

    description: ClassVar[str] = "a convolutional network"

    @cached_property
    def start(self) -> Array:
        """(p,) public start: kernels from N(0, 2/fan-in), biases 0, and a dense layer of zeros."""
        out, draw = np.zeros(self.p), public_generator(self.seed, "convolutions")
        for kernel, _ in self._layers(out[None])[:-1]:
            kernel[:] = draw.normal(size=kernel.shape) * math.sqrt(2.0 / kernel.shape[2])
        return out

    def outputs_of(self, weights: Array, inputs: Array) -> Array:
        each = np.broadcast_to(inputs, (len(weights), *inputs.shape[-2:]))
        with np.errstate(all="ignore"):
            return self._forward(self._layers(weights), each, keep=False)[0]

    def named_weights(self, weights: Array) -> dict[str, Array]:
        """ "weight" and "bias" of every layer, in torch's order of axes.

        Names are those of a `torch.nn.Sequential` of Unflatten(1, (c, h, w)), Conv2d, ReLU and MaxPool2d(2) for every
        convolution, Flatten and Linear.
        """
        layers, out = self._layers(np.asarray(weights, dtype=np.float64)[None]), {}
        for k, (by_rows, bias) in enumerate(layers):
            dense = k == len(self.channels)
            start = f"{3 * k + 1 + dense}."
            h, w, c = self.shapes[k] if dense else (3, 3, self.shapes[k][2])
            first = by_rows[0].reshape(-1, h, w, c).transpose(0, 3, 1, 2)
            out[f"{start}weight"] = first.reshape(len(first), -1) if dense else first.copy()
            out[f"{start}bias"] = bias[0].copy()
        return out

    def clipped_sums(self, weights: Array, inputs: Array, cotangents: Cotangents, bound: float, norm: Norm) -> Array:
        total, n = np.zeros((len(weights), self.p)), inputs.shape[1]
        # How an agent's records are cut depends on their number alone, and so do the bits of its sums.
        rows = max(1, _TILE // self._floats_per_record)
        together = max(1, rows // max(1, n))
        with np.errstate(all="ignore"):
            for first in range(0, len(inputs), together):
                agents = slice(first, first + together)
                layers, sums = self._layers(weights[agents]), self._layers(total[agents])
                for start in range(0, n, rows):
                    part = slice(start, min(start + rows, n))
                    outputs, tape = self._forward(layers, inputs[agents, part], keep=True)
                    self._add(sums, layers, tape, cotangents(agents, part, outputs), bound, norm)
        return total

    def _layers(self, weights: Array) -> list[LayerViews]:
        return layer_views(weights, self.widths)

    def _forward(
        self, layers: list[LayerViews], inputs: Array, keep: bool
    ) -> tuple[Array, tuple[list[_BlockTape], Array]]:
        """φ (g, n, e), and of every block what the backward pass reads, and what the dense layer reads (g, n, i)."""
        g, n, _ = inputs.shape
        height, width, c = self.image
        # Channels last, so that a patch is three runs of memory.
        a = inputs.reshape(g * n, c, height, width).transpose(0, 2, 3, 1)
        tape = []
        for by_rows, bias in layers[:-1]:
            _, height, width, c = shape = a.shape
            seen = patches_of(a).reshape(g, n * height * width, 9 * c)
            before = np.matmul(seen, by_rows.swapaxes(1, 2))
            before += bias[:, None]
            before = before.reshape(g * n, height, width, -1)
            after = pool(before)
            a = np.maximum(after, 0.0)
            if keep:
                tape.append(_BlockTape(shape, seen, before, after))
        flat = a.reshape(g, n, -1)
        out = np.matmul(flat, layers[-1].by_rows.swapaxes(1, 2))
        out += layers[-1].bias[:, None]
        return out, (tape, flat)

    def _add(
        self,
        sums: list[LayerViews],
        layers: list[LayerViews],
        taped: tuple[list[_BlockTape], Array],
        cotangents: Array,
        bound: float,
        norm: Norm,
    ) -> None:
        """Add the clipped gradients of some records to the sums. It writes into the tape."""
        tape, flat = taped
        g, n, _ = cotangents.shape
        size = sizes(cotangents, norm) * (sizes(flat, norm) + 1.0)
        back = np.matmul(cotangents, layers[-1].by_rows)
        gradients: list[tuple[Array, Array]] = []
        for k in reversed(range(len(tape))):
            (_, height, width, c), seen, before, after = tape[k]
            slope = pooling_slopes(back.reshape(after.shape), before, after).reshape(g * n, height * width, -1)
            by_rows = np.matmul(slope.swapaxes(1, 2), seen.reshape(g * n, height * width, 9 * c)).reshape(g, n, -1)
            by_bias = slope.sum(axis=1).reshape(g, n, -1)
            size += sizes(by_rows, norm) + sizes(by_bias, norm)
            gradients.append((by_rows, by_bias))
            if k:
                back = sum_patches(
                    np.matmul(slope.reshape(g, n * height * width, -1), layers[k].by_rows), tape[k].shape
                )
        factors = clip_factors((np.sqrt(size) if norm == "l2" else size) + UNDERFLOW, bound)
        counts = factors[..., None] > 0.0
        finite = bool(counts.all())
        for into, parts in zip(sums[-2::-1], gradients, strict=True):
            for total, rows in zip(into, parts, strict=True):
                # Zero times infinity is NaN: what counts as nothing has to go before the product.
                safe = rows if finite else np.where(counts, rows, 0.0)
                total += np.matmul(factors[:, None], safe).reshape(total.shape)
        clipped = cotangents * factors[..., None]
        if not finite:
            clipped, flat = np.where(counts, clipped, 0.0), np.where(counts, flat, 0.0)
        by_rows, by_bias = sums[-1]
        by_rows += np.matmul(clipped.swapaxes(1, 2), flat)
        by_bias += clipped.sum(axis=1)
