"""A small residual network for images, without batch normalisation.

A convolution of `width` channels, then three stages of `depth` blocks with `width`, 2·`width` and 4·`width` channels,
of which the second and third halve height and width; the mean over pixels, and one dense layer. A block is two 3 × 3
convolutions with group normalisation in groups of 4 channels, ReLU between them, and the block's input added before the
last ReLU, by a 1 × 1 convolution where shapes differ. Weights are drawn from N(0, 2/fan-in), biases are 0.

Reference: He et al., CVPR 2016 (section 4.2), with batch normalisation replaced by group normalisation (Wu & He, ECCV
2018): no operation may mix two records.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from decentral_dp.data.dataset import public_generator
from decentral_dp.models.autodiff import quiet_torch
from decentral_dp.models.convolution import Image, group_count
from decentral_dp.models.devices import module_on
from decentral_dp.models.mlp import Mlp
from decentral_dp.models.module import TorchModel, as_model, trainable

STAGES = 3
SMALLEST_SIDE = 1 << (STAGES - 1)


class Mean(nn.Module):
    """Over all pixels."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(dim=(2, 3))


class Block(nn.Module):
    """Two convolutions, and a way past them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            _convolution(before, after, 3, stride), _norm(after), nn.ReLU(), _convolution(after, after, 3), _norm(after)
        )
        same = before == after and stride == 1
        self.past = nn.Identity() if same else nn.Sequential(_convolution(before, after, 1, stride), _norm(after))

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(self.inner(h) + self.past(h))


def residual_network(image: Image, width: int, depth: int, outputs: int, seed: int) -> nn.Module:
    """Make the residual network in float64.

    Args:
        image: (height, width, channels) of the records.
        width: channels of the first stage; twice and four times as many in the second and third.
        depth: blocks of a stage.
        outputs: of the last dense layer.
        seed: the public one, from which weights are drawn.

    Returns:
        The module.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        images=nn.Unflatten(1, (image[2], *image[:2])),
        first=_convolution(image[2], width, 3),
        norm=_norm(width),
        relu=nn.ReLU(),
    )
    before = width
    for stage in range(STAGES):
        after = width << stage
        for k in range(depth):
            layers[f"stage{stage}_{k}"] = Block(before, after, 2 if stage and not k else 1)
            before = after
    layers |= {"mean": Mean(), "last": nn.Linear(before, outputs)}
    module, draw = nn.Sequential(layers).double(), public_generator(seed, "resnet")
    for name, value in trainable(module):
        if value.dim() > 1:
            start = draw.normal(size=tuple(value.shape)) * math.sqrt(2.0 / value[0].numel())
            value.data = torch.from_numpy(start)
        else:
            value.data.fill_(1.0 if name.endswith("weight") else 0.0)
    return module


def resnet(image: Image, width: int, depth: int, outputs: int, seed: int, device: str = "cpu") -> Mlp | TorchModel:
    """A residual network for images, which starts from weights drawn by a public seed."""
    with quiet_torch():
        module = module_on(residual_network(image, width, depth, outputs, seed), device)
        return as_model(module, math.prod(image), outputs, device)


def _convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(group_count(channels), channels)
