"""A small convolutional network as a module of torch, for problems that take their models agent by agent."""

from __future__ import annotations

import math

from torch import nn

from decentral_dp.models.autodiff import quiet_torch
from decentral_dp.models.devices import module_on, tensor
from decentral_dp.models.mlp import Mlp
from decentral_dp.models.module import TorchModel, as_model
from decentral_dp.models.stacked_convolution import ConvolutionLayers


def convolutional_network(layers: ConvolutionLayers) -> nn.Module:
    """The same layers in float64, at the same start, whose `state_dict` has the names of `ConvolutionLayers.named`."""
    height, width, c = layers.image
    steps: list[nn.Module] = [nn.Unflatten(1, (c, height, width))]
    for o in layers.channels:
        steps += [nn.Conv2d(c, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        c = o
    steps += [nn.Flatten(), nn.Linear(math.prod(layers.shapes[-1]), layers.outputs)]
    module = nn.Sequential(*steps).double()
    module.load_state_dict({name: tensor(value) for name, value in layers.named_weights(layers.start).items()})
    return module


def cnn(layers: ConvolutionLayers, device: str = "cpu") -> Mlp | TorchModel:
    """Make the torch model of these layers, whose forward pass agrees with theirs, on a device.

    Raises InputError: there is no such device.
    """
    with quiet_torch():
        module = module_on(convolutional_network(layers), device)
        return as_model(module, math.prod(layers.image), layers.outputs, device)
