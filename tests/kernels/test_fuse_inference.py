"""The network that certification runs on a GPU, by the interpreter, beside the network itself."""

import pytest
import torch
from interpreted import needs_interpreter
from torch.nn import functional as F

from macer.kernels.fuse_inference import fused
from macer.kernels.graph import is_max_pool2x2, is_relu
from macer.kernels.padding import padded
from macer.models.build import build_model
from macer.models.inference import for_inference

pytestmark = needs_interpreter

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cudnns_functions(monkeypatch):
    """What cuDNN computes in one kernel on a GPU."""

    def convolution_relu(x, weight, bias, stride, padding, dilation, groups):
        return F.relu(F.conv2d(x, weight, bias, stride, padding, dilation, groups))

    def convolution_add_relu(x, weight, shortcut, alpha, bias, *settings):
        return F.relu(F.conv2d(x, weight, bias, *settings) + alpha * shortcut)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", convolution_relu)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", convolution_add_relu)


@pytest.mark.parametrize(
    ("name", "shape", "stems", "pairs", "pools"),
    [
        ("lenet", (1, 28, 28), 1, 0, 2),
        ("resnet20", (3, 8, 8), 1, 11, 0),
        ("resnet18", (3, 8, 8), 1, 0, 0),
        ("wide14", (3, 8, 8), 0, 0, 0),
    ],
)
def test_the_prepared_network_is_the_network(name, shape, stems, pairs, pools):
    from macer.kernels.layers import ConvolutionReLU

    torch.manual_seed(0)
    model = build_model(name, num_classes=10, shape=shape).eval()
    folded = for_inference(model, shape=shape, precision="fp32", device=CPU)
    fast = fused(padded(folded, shape), shape)
    layers = [layer for layer in fast.modules() if isinstance(layer, ConvolutionReLU)]
    assert sum(layer.stem is not None for layer in layers) == stems
    assert sum(layer.pairs is not None for layer in layers) == pairs
    assert sum(layer.pool == 2 for layer in layers) == pools
    parts = dict(fast.named_modules())
    relus = sum(is_relu(node, parts) for node in fast.graph.nodes)
    assert relus == (name == "lenet")  # the one after its linear layer
    assert not any(is_max_pool2x2(node, parts) for node in fast.graph.nodes)
    images = torch.rand(3, *shape).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        torch.testing.assert_close(fast(images), model(images), rtol=1e-3, atol=1e-3)
