"""Float64 networks in torch: convolutional and residual networks, and embeddings.

They use group normalisation with 4 channels per group instead of batch normalisation (Wu & He, ECCV 2018), which would
mix records. Records are rows, channels first. Weights are drawn from N(0, 2/fan-in) with the public seed, and biases
are 0.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from decentral_dp.data.dataset import public_generator
from decentral_dp.models.autodiff import quiet_torch
from decentral_dp.models.devices import module_on
from decentral_dp.models.module import TorchModel, as_model, trainable
from decentral_dp.models.protocol import Image

CHANNELS_PER_GROUP = 4
# Largest number of blocks of `embedding_network`.
LARGEST_DEPTH = 4
STAGES = 3


class ResidualBlock(nn.Module):
    """Two convolutions with normalisation and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            _convolution(before, after, 3, stride), _norm(after), nn.ReLU(), _convolution(after, after, 3), _norm(after)
        )
        keeps_shape = before == after and stride == 1
        self.past = (
            nn.Identity() if keeps_shape else nn.Sequential(_convolution(before, after, 1, stride), _norm(after))
        )

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(self.inner(h) + self.past(h))


def residual_network(image: Image, width: int, depth: int, outputs: int, seed: int) -> nn.Module:
    """Build a residual network.

    The network has a convolution with `width` channels, three stages of `depth` blocks with `width`, 2·`width` and
    4·`width` channels, the mean over pixels, and a dense layer. The second and third stages halve height and width. The
    input of a block is added before its last ReLU, through a 1 × 1 convolution if shapes differ.

    Reference: He et al., CVPR 2016 (section 4.2).

    Args:
        image: shape (height, width, channels) of the records.
        width: number of channels of the first stage.
        depth: number of blocks per stage.
        outputs: number of outputs of the dense layer.
        seed: public seed of the weights.
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
            layers[f"stage{stage}_{k}"] = ResidualBlock(before, after, 2 if stage and not k else 1)
            before = after
    layers |= {"mean": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "last": nn.Linear(before, outputs)}
    module = nn.Sequential(layers).double()
    _draw_weights(module, seed, "resnet")
    return module


def convolutional_network(image: Image, channels: Sequence[int], outputs: int, seed: int) -> nn.Module:
    """Build blocks of 3 × 3 convolution, ReLU and 2 × 2 max-pooling, and a dense layer that starts at 0.

    Args:
        image: shape (height, width, channels) of the records.
        channels: number of channels of each convolution. Pooling drops an odd last row or column.
        outputs: number of outputs of the dense layer.
        seed: public seed of the kernels.
    """
    height, width, before = image
    steps: list[nn.Module] = [nn.Unflatten(1, (before, height, width))]
    for after in channels:
        steps += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before = after
    last = nn.Linear((height >> len(channels)) * (width >> len(channels)) * before, outputs)
    module = nn.Sequential(*steps, nn.Flatten(), last).double()
    _draw_weights(module, seed, "convolutions")
    nn.init.zeros_(last.weight)
    return module


def embedding_network(image: Image, channels: int, seed: int) -> nn.Module:
    """Build blocks of 3 × 3 convolution, group normalisation, ReLU and 2 × 2 max-pooling.

    The number of blocks is the number of times that the shorter side can be halved, at most 4.

    Reference: Finn, Abbeel & Levine, ICML 2017 (appendix A.1).

    Args:
        image: shape (height, width, channels) of the records.
        channels: number of channels of every block.
        seed: public seed of the kernels.
    """
    height, width, before = image
    steps: list[nn.Module] = [nn.Unflatten(1, (before, height, width))]
    for _ in range(min(LARGEST_DEPTH, int(math.log2(min(height, width))))):
        steps += [nn.Conv2d(before, channels, 3, padding=1), _norm(channels), nn.ReLU(), nn.MaxPool2d(2)]
        before = channels
    module = nn.Sequential(*steps, nn.Flatten()).double()
    _draw_weights(module, seed, "network")
    return module


def hidden_layer(n_features: int, width: int, seed: int) -> nn.Module:
    """Build one layer of ReLU units, an embedding of records that are not images.

    Args:
        n_features: number of features.
        width: number of units.
        seed: public seed of the weights.
    """
    module = nn.Sequential(nn.Linear(n_features, width), nn.ReLU()).double()
    _draw_weights(module, seed, "network")
    return module


def network_model(module: nn.Module, n_features: int, device: str = "cpu") -> TorchModel:
    """Build the model of one of these networks. Raises InputError if the device is missing."""
    with quiet_torch():
        return as_model(module_on(module, device), n_features, device)


def _draw_weights(module: nn.Module, seed: int, purpose: str) -> None:
    """Draw kernels and dense layers from N(0, 2/fan-in); scales are 1, biases and shifts 0."""
    draw = public_generator(seed, purpose)
    for name, value in trainable(module):
        if value.dim() > 1:
            start = draw.normal(size=tuple(value.shape)) * math.sqrt(2.0 / value[0].numel())
            value.data = torch.from_numpy(start)
        else:
            value.data.fill_(1.0 if name.endswith("weight") else 0.0)


def _convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)


def _norm(channels: int) -> nn.GroupNorm:
    # Equal groups with at least about 4 channels each.
    limit = max(1, channels // CHANNELS_PER_GROUP)
    return nn.GroupNorm(max(g for g in range(1, limit + 1) if channels % g == 0), channels)
