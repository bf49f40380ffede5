"""2×2 max pooling by our kernels, run by Triton's interpreter, beside torch's."""

import pytest
import torch
from interpreted import needs_interpreter, random_images, twins
from torch.nn import functional as F

pytestmark = needs_interpreter


def rounded_images(*shape):
    """Many values are equal: the gradient goes to the first of the largest."""
    torch.manual_seed(0)
    return (random_images(*shape) * 2).round()


@pytest.mark.parametrize("shape", [(7, 56, 8, 8), (2, 8, 4, 6)])
def test_the_kernels_of_training_are_pooling_and_relu(shape):
    from macer.kernels.pooling import MaxPool2x2ReLU

    [ours], [theirs] = twins(rounded_images(*shape))
    y, expected = MaxPool2x2ReLU.apply(ours), F.relu(F.max_pool2d(theirs, 2))
    dy = torch.randn_like(y)
    y.backward(dy)
    expected.backward(dy)
    assert torch.equal(y, expected) and torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("shape", [(7, 56, 8, 8), (2, 8, 4, 6), (2, 8, 5, 7), (2, 12, 4, 4)])
def test_the_kernel_of_certification_is_pooling(shape):
    from macer.kernels.pooling import max_pool2x2

    x = rounded_images(*shape)
    x[0, 3, 1, 1] = torch.nan
    torch.testing.assert_close(max_pool2x2(x), F.max_pool2d(x, 2), rtol=0, atol=0, equal_nan=True)
