"""What tests of kernels share that Triton's interpreter runs on a CPU: `make kernels`.

They are in float32, since the interpreter's bfloat16 products are wrong; tests/gpu has bfloat16.
"""

import os

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
