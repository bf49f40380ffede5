"""MobileNetV2: torchvision's names, and TensorFlow's padding."""

import os
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from macer.models.build import build_model
from macer.models.mobilenet import SameConv2d
from macer.models.networks import MODELS
from macer.models.weights import load_weights, read_weights

both = pytest.mark.parametrize("name", ["mobilenetv2", "mobilenetv2-same"])
WEIGHTS = Path(os.environ.get("MACER_MOBILENET", "data/mobilenet_v2-imagenet-half.pth"))


# reference


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7), (8, 5)])
def test_the_padding_is_tensorflows(height: int, width: int) -> None:
    """out = ⌈in / 2⌉; the padding is max((out − 1)·2 + 3 − in, 0), its smaller half first."""
    torch.manual_seed(0)
    layer, x = SameConv2d(2, 4, 3, stride=2, bias=False), torch.rand(1, 2, height, width)
    sides = []
    for size in (width, height):
        total = max((-(-size // 2) - 1) * 2 + 3 - size, 0)
        sides += [total // 2, total - total // 2]
    expected = F.conv2d(F.pad(x, sides), layer.weight, stride=2)
    assert torch.equal(layer(x), expected)
    assert expected.shape[2:] == (-(-height // 2), -(-width // 2))


# known value


@both
def test_parameters_have_the_published_names_shapes_and_number(name: str) -> None:
    network = MODELS[name](num_classes=1000, channels=3)
    assert sum(p.numel() for p in network.parameters()) == 3_504_872
    state = network.state_dict()
    assert len(state) == 314
    expected = {
        "features.0.0.weight": (32, 3, 3, 3),
        "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.1.conv.1.weight": (16, 32, 1, 1),
        "features.1.conv.2.running_var": (16,),
        "features.2.conv.0.0.weight": (96, 16, 1, 1),
        "features.2.conv.1.0.weight": (96, 1, 3, 3),
        "features.2.conv.2.weight": (24, 96, 1, 1),
        "features.17.conv.3.weight": (320,),
        "features.18.0.weight": (1280, 320, 1, 1),
        "classifier.1.weight": (1000, 1280),
        "classifier.1.bias": (1000,),
    }
    assert {key: tuple(state[key].shape) for key in expected} == expected


@both
@pytest.mark.parametrize("size", [32, 224])
def test_images_are_halved_five_times(name: str, size: int) -> None:
    network = MODELS[name](num_classes=5, channels=3).eval()
    with torch.no_grad():
        features = network.features(torch.rand(1, 3, size, size))  # type: ignore[operator]
    assert features.shape == (1, 1280, size // 32, size // 32)


@both
@pytest.mark.skipif(not WEIGHTS.is_file(), reason=f"no {WEIGHTS}; set MACER_MOBILENET")
def test_published_weights_load_in_half_precision(name: str) -> None:
    model = build_model(name, num_classes=1000, shape=(3, 224, 224))
    place = load_weights(model[1], read_weights(WEIGHTS), name)
    assert (place.prefix, place.new) == ("", ())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    few = build_model(name, num_classes=10, shape=(3, 224, 224))
    place = load_weights(few[1], read_weights(WEIGHTS), name, num_classes=10)
    assert place.new == ("classifier.1.weight", "classifier.1.bias")
