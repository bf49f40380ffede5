"""What tests of kernels share that Triton's interpreter runs on a CPU: `make kernels`.

They are in float32, since the interpreter's bfloat16 products are wrong; tests/gpu has bfloat16.
"""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

needs_interpreter = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter"
)


def random_images(*shape: int) -> Tensor:
    """Normal numbers (images, channels, height, width), channels last."""
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """The two differ by the rounding of float32 sums at most."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def twins(*tensors: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors twice, each with a gradient of its own."""
    first, second = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    return first, second


def kernels_replace_torchs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let the layers of training run our kernels here; the names of those that have run."""
    from macer.kernels import batchnorm, conv3x3, layers, pooling, stem

    launched = set()

    def noted(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: launched.add(name) or function(*args, **kwargs)

    monkeypatch.setattr(layers, "kernels_apply", lambda x: True)
    for module in (conv3x3, stem):
        monkeypatch.setattr(module, "DTYPE", torch.float32)
    norms = (batchnorm.NormReLU, batchnorm.FixedNormReLU)
    for kind in (*norms, conv3x3.Conv3x3, pooling.MaxPool2x2ReLU):
        monkeypatch.setattr(kind, "forward", staticmethod(noted(kind.forward, kind.__name__)))
    monkeypatch.setattr(stem, "stem", noted(stem.stem, "stem"))
    return launched
