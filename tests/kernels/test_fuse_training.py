"""The network that training runs is the model's: its wiring, and by the interpreter its kernels."""

import copy

import pytest
import torch
from interpreted import kernels_replace_torchs, needs_interpreter
from torch import nn
from torch.nn import functional as F

from macer.kernels.fuse_training import for_training
from macer.kernels.layers import (
    Conv3x3Layer,
    NormLayer,
    PaddedLayer,
    StemLayer,
    pool_relu,
)
from macer.models.build import build_model


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "norms", "narrow", "stems"),
    [
        ("resnet20", 21, 11, 1),
        ("resnet18", 20, 0, 1),
        ("resnet110", 111, 71, 1),
        ("wide14", 14, 0, 0),
    ],
)
def test_every_norm_takes_on_its_relu_and_shortcut_and_shares_the_models_tensors(
    name, norms, narrow, stems
):
    model = build_model(name, num_classes=10, shape=(3, 32, 32))
    network = for_training(model, (3, 32, 32))
    parts = list(network.modules())
    assert sum(isinstance(part, NormLayer) for part in parts) == norms
    assert sum(isinstance(part, Conv3x3Layer) for part in parts) == narrow
    assert sum(isinstance(part, StemLayer) for part in parts) == stems
    assert not any(node.target is F.relu for node in network.graph.nodes)
    assert {id(p) for p in network.parameters()} == {id(p) for p in model.parameters()}
    assert {id(b) for b in network.buffers()} == {id(b) for b in model.buffers()}


def test_lenets_channels_are_padded_and_its_parameters_stay_its_own():
    model = build_model("lenet", num_classes=10, shape=(1, 28, 28))
    network = for_training(model, (1, 28, 28))
    assert [node.target for node in network.graph.nodes].count(pool_relu) == 2
    wide = [part for part in network.modules() if isinstance(part, PaddedLayer)]
    assert [part(torch.zeros(size)).shape[1] for part, size in zip(wide, SIZES, strict=True)] == [
        32, 56, 504, 10
    ]  # fmt: skip
    assert {id(p) for p in network.parameters()} == {id(p) for p in model.parameters()}


SIZES = ((1, 1, 28, 28), (1, 32, 12, 12), (1, 896), (1, 504))  # of what LeNet's layers read then


@pytest.mark.parametrize(("name", "shape"), [("resnet20", (3, 32, 32)), ("lenet", (1, 28, 28))])
def test_a_training_step_through_it_is_the_models(name, shape):
    torch.manual_seed(0)
    model = build_model(name, num_classes=10, shape=shape).double()
    twin = copy.deepcopy(model)
    network = for_training(model, shape).train()
    assert network is not model
    images = torch.rand(4, *shape, dtype=torch.float64)
    network(images).square().sum().backward()
    twin.train()(images).square().sum().backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=(2, 3))


class Branching(nn.Module):
    """Adds the norm to itself, reads it twice, and uses ReLU on another sum."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.mean = nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), Mean()

    def forward(self, x):
        y = self.norm(self.conv(x))
        return self.mean(F.relu(y + y) + y)


class Dropping(nn.Module):
    """What a trace makes of this is only true in training."""

    def __init__(self):
        super().__init__()
        self.conv, self.mean = nn.Conv2d(1, 16, 3), Mean()

    def forward(self, x):
        return self.mean(F.dropout(self.conv(x), 0.5, training=self.training))


class Looking(nn.Module):
    """Cannot be traced."""

    def __init__(self):
        super().__init__()
        self.conv, self.mean = nn.Conv2d(1, 16, 3), Mean()

    def forward(self, x):
        return self.mean(self.conv(x) if x.sum() > 0 else x)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 24, 3, padding=1, groups=3, bias=False),
        nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect", bias=False),
        nn.Conv2d(3, 8, 3, padding="same", bias=False),
        nn.Conv2d(3, 8, 3, stride=2, bias=False),
        nn.Conv2d(3, 8, 3, dilation=2, bias=False),
        nn.Conv2d(3, 8, (3, 1), bias=False),
        nn.Conv2d(3, 8, 3),
        nn.Conv2d(4, 8, 3, bias=False),
        nn.Conv2d(16, 16, 3, padding=1, groups=2, bias=False),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.Conv2d(16, 16, 3, bias=False),
        nn.Conv2d(16, 32, 1, stride=2, groups=2),
    ],
)
def test_a_convolution_that_no_other_way_computes_stays_torchs(layer):
    network = for_training(nn.Sequential(layer, Mean()), (layer.in_channels, 8, 8))
    assert network.get_submodule("0") is layer


def test_a_norm_that_others_read_keeps_to_itself():
    torch.manual_seed(0)
    model = Branching()
    network = for_training(model, (1, 8, 8))
    [layer] = [part for part in network.modules() if isinstance(part, NormLayer)]
    assert not layer.relu
    images = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(network.eval()(images), model.eval()(images))


@pytest.mark.parametrize("kind", [Dropping, Looking])
def test_a_model_that_a_trace_would_change_is_left_alone_and_in_its_mode(kind):
    model = kind().train()
    assert for_training(model, (1, 8, 8)) is model
    assert model.training and model.conv.training


@needs_interpreter
@pytest.mark.parametrize(("name", "shape"), [("resnet20", (3, 8, 8)), ("lenet", (1, 28, 28))])
def test_a_training_step_through_the_kernels_is_the_models(monkeypatch, name, shape):
    torch.manual_seed(0)
    model = build_model(name, num_classes=10, shape=shape).train()
    twin = copy.deepcopy(model)
    network = for_training(model, shape)
    launched = kernels_replace_torchs(monkeypatch)
    images = torch.rand(4, *shape)
    for part in (network, twin):
        F.cross_entropy(part(images), torch.arange(4)).backward()
    assert launched == ({"MaxPool2x2ReLU"} if name == "lenet" else {"NormReLU", "Conv3x3", "stem"})
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-2, atol=1e-4)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@needs_interpreter
def test_an_attack_through_the_kernels_has_the_models_gradient(monkeypatch):
    torch.manual_seed(0)
    model = build_model("resnet20", num_classes=10, shape=(3, 8, 8)).train()
    model(torch.rand(64, 3, 8, 8))  # running averages that suit the images
    network = for_training(model.requires_grad_(False), (3, 8, 8))
    launched = kernels_replace_torchs(monkeypatch)
    images = torch.rand(4, 3, 8, 8)
    gradients = []
    for part in (network.eval(), model.eval()):
        attacked = images.clone().requires_grad_()
        F.cross_entropy(part(attacked), torch.arange(4)).backward()
        gradients.append(attacked.grad)
    assert launched == {"FixedNormReLU", "Conv3x3"}
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


@needs_interpreter
def test_weights_of_a_norm_in_eval_mode_that_are_trained_get_their_gradient(monkeypatch):
    launched = kernels_replace_torchs(monkeypatch)
    norm = nn.BatchNorm2d(16)
    NormLayer(norm, relu=True).eval()(torch.rand(2, 16, 3, 3)).sum().backward()
    assert launched == set()
    assert norm.weight.grad is not None and norm.bias.grad is not None
