"""Networks with channels of zeros beside the networks themselves."""

import copy

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from macer.kernels.padding import pad_channels, padded, padded_size
from macer.models.build import build_model
from macer.models.inference import for_inference

SHAPE = (1, 12, 12)
CPU = torch.device("cpu")


def layers_of_all_kinds() -> nn.Module:
    """Layers as modules, with a stride, a dropout, a convolution without bias, a mean of pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 5, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(5, 20, 3, bias=False, padding_mode="reflect", padding=1), nn.Identity(),
        nn.Conv2d(20, 33, (1, 3), stride=(2, 1)), nn.ReLU(inplace=True), nn.Dropout2d(),
        nn.AvgPool2d(2, stride=1), nn.Conv2d(33, 7, 2), nn.AdaptiveAvgPool2d((1, 2)),
        nn.Flatten(), nn.Dropout(), nn.Linear(14, 9, bias=False), nn.ReLU(), nn.Linear(9, 3),
    )  # fmt: skip


class TwoHeads(nn.Module):
    """Channels that a convolution and a linear layer read."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 5, stride=3)
        self.pixels, self.conv = nn.Linear(6 * 9, 3), nn.Conv2d(6, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        return self.pixels(torch.flatten(x, start_dim=1)) + self.conv(x).flatten(1)


def trace(model: nn.Module) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The network twice, with weights large enough that none hides."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    graph = fx.symbolic_trace(model.double().eval())
    return graph, copy.deepcopy(graph)


def sizes(model: nn.Module) -> list[tuple[int, int]]:
    weights = [
        layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    return [(weight.shape[1], weight.shape[0]) for weight in weights]


@pytest.mark.parametrize(
    ("network", "shape", "expected"),
    [
        (lambda: build_model("lenet", num_classes=10, shape=(1, 28, 28)), (1, 28, 28),
         [(1, 32), (32, 56), (896, 504), (504, 10)]),
        (layers_of_all_kinds, SHAPE, [(1, 8), (8, 32), (32, 40), (40, 8), (16, 16), (16, 3)]),
        (TwoHeads, SHAPE, [(1, 8), (72, 3), (8, 3)]),
    ],
)  # fmt: skip
def test_a_network_with_channels_of_zeros_is_the_network(network, shape, expected):
    graph, wide = trace(network())
    assert pad_channels(wide) and sizes(wide) == expected
    images = torch.rand(3, *shape, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(wide(images), graph(images), rtol=1e-9, atol=0)
    for layer in wide.modules():
        if isinstance(layer, nn.Conv2d):
            assert (layer.out_channels, layer.in_channels) == layer.weight.shape[:2]
        if isinstance(layer, nn.Linear):
            assert (layer.out_features, layer.in_features) == layer.weight.shape


def test_batch_norm_is_folded_before_channels_are_added():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 3, 3), nn.Flatten(),
        nn.Linear(3 * 8 * 8, 4),
    )  # fmt: skip
    nn.init.uniform_(model[1].bias, -1, 1)
    folded = for_inference(model, shape=SHAPE, precision="fp32", device=CPU)
    wide = padded(folded, SHAPE)
    assert sizes(wide) == [(1, 8), (8, 8), (512, 4)]
    images = torch.rand(3, *SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(wide(images), model.eval()(images), rtol=1e-3, atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["resnet20", "resnet18"])
def test_a_network_whose_channels_need_no_padding_is_left_alone(name):
    model = for_inference(
        build_model(name, num_classes=10, shape=(3, 8, 8)),
        shape=(3, 8, 8), precision="fp32", device=CPU,
    )  # fmt: skip
    assert not pad_channels(model)
    assert padded(model, (3, 8, 8)) is model


class Reads(nn.Module):
    """A convolution of six channels, and something that reads them."""

    def __init__(self, read, **parts: nn.Module) -> None:
        super().__init__()
        self.conv, self.read = nn.Conv2d(1, 6, 3), read
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.read(self, F.relu(self.conv(x)))


def hooked() -> nn.Conv2d:
    layer = nn.Conv2d(6, 8, 3)
    layer.register_forward_pre_hook(lambda layer, inputs: None)
    return layer


@pytest.mark.parametrize(
    "network",
    [
        Reads(lambda self, x: x),
        Reads(lambda self, x: x.mean((2, 3))),
        Reads(lambda self, x: self.next(x).flatten(1) + x.sum(), next=nn.Conv2d(6, 8, 3)),
        Reads(lambda self, x: self.next(x), next=nn.Conv2d(6, 12, 3, groups=2)),
        Reads(lambda self, x: self.next(x), next=hooked()),
        Reads(lambda self, x: self.next(x) + self.next(x), next=nn.Conv2d(6, 8, 3)),
        Reads(lambda self, x: self.next(x), next=nn.ConvTranspose2d(6, 8, 3)),
        Reads(lambda self, x: self.next(x), next=nn.Linear(10, 8)),
        Reads(lambda self, x: self.next(x.view(x.size(0), -1)), next=nn.Linear(600, 8)),
        Reads(lambda self, x: self.next(x.flatten(2)), next=nn.Linear(100, 8)),
        Reads(lambda self, x: self.next(torch.flatten(x, 1, 2)), next=nn.Linear(10, 8)),
        Reads(lambda self, x: self.next(self.a(x)), a=nn.Flatten(1, 2), next=nn.Linear(10, 8)),
        Reads(lambda self, x: self.norm(x), norm=nn.GroupNorm(2, 6)),
        nn.Sequential(nn.Linear(12, 6), nn.MaxPool2d(2), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(12, 6), nn.Flatten(), nn.Linear(72, 2)),
    ],
)  # fmt: skip
def test_channels_that_something_else_reads_stay_as_they_are(network):
    graph, same = trace(network)
    pad_channels(same)
    images = torch.rand(3, *SHAPE, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(same(images), graph(images), rtol=1e-9, atol=0)
    assert sizes(same)[0] == sizes(graph)[0]


def test_numbers_of_channels_are_padded_to_8_16_32_or_a_multiple_of_8():
    found = [padded_size(n) for n in (1, 8, 9, 16, 17, 20, 24, 32, 33, 50, 64, 500)]
    assert found == [8, 8, 16, 16, 32, 32, 32, 32, 40, 56, 64, 504]
