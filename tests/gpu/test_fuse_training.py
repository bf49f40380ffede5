"""Training's kernels on a GPU in bf16, beside torch's layers; these run where there is a GPU."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from macer.attacks.noise import sphere_attack
from macer.kernels.fuse_training import for_training
from macer.kernels.layers import pool_relu
from macer.models.build import build_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def difference(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def last(shape, **like):
    return torch.randn(shape, **like).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize(
    "shape", [(37, 16, 8, 8), (5, 24, 5, 3), (64, 128, 4, 4), (300, 64, 16, 16)]
)
def test_the_norm_kernels_are_batch_norm(shape, with_shortcut, relu):
    from macer.kernels.batchnorm import NormReLU

    torch.manual_seed(0)
    like = {"device": "cuda", "dtype": torch.bfloat16}
    x = (3 * last(shape, **like) + 20).requires_grad_()  # a mean of many standard deviations
    shortcut = last(shape, **like).requires_grad_() if with_shortcut else None
    norm = nn.BatchNorm2d(shape[1]).cuda()
    norm.weight.data.uniform_(-1, 2)
    norm.bias.data.normal_()
    norm.running_mean.fill_(19.0)
    twin = copy.deepcopy(norm).double()
    dy = last(shape, **like)
    y = NormReLU.apply(x, shortcut, norm.weight, norm.bias, norm, relu)
    y.backward(dy)
    inputs = [t.detach().double().requires_grad_() for t in (x, shortcut) if t is not None]
    expected = twin(inputs[0]) + (inputs[1] if with_shortcut else 0)
    expected = expected.relu() if relu else expected
    expected.backward(dy.double())
    found = [y, x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]
    wanted = [expected, inputs[0].grad, twin.weight.grad, twin.bias.grad, twin.running_mean,
              twin.running_var]  # fmt: skip
    if with_shortcut:
        found.append(shortcut.grad)
        wanted.append(inputs[1].grad)
    for a, b in zip(found, wanted, strict=True):
        assert difference(a, b) < 6e-3


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("shape", [(37, 16, 8, 8), (5, 24, 5, 3), (300, 64, 16, 16)])
def test_the_fixed_norm_kernels_are_batch_norm_in_eval_mode(shape, with_shortcut, relu):
    from macer.kernels.batchnorm import FixedNormReLU

    torch.manual_seed(0)
    like = {"device": "cuda", "dtype": torch.bfloat16}
    x = (3 * last(shape, **like) + 1).requires_grad_()
    shortcut = last(shape, **like).requires_grad_() if with_shortcut else None
    norm = nn.BatchNorm2d(shape[1]).cuda().eval().requires_grad_(False)
    norm.weight.uniform_(-1, 2)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.1, 3)
    dy = last(shape, **like)
    y = FixedNormReLU.apply(x, shortcut, norm, relu)
    y.backward(dy)
    inputs = [t.detach().double().requires_grad_() for t in (x, shortcut) if t is not None]
    expected = copy.deepcopy(norm).double()(inputs[0]) + (inputs[1] if with_shortcut else 0)
    expected = expected.relu() if relu else expected
    expected.backward(dy.double())
    found = [y, x.grad, *([shortcut.grad] if with_shortcut else [])]
    for a, b in zip(found, (expected, *(t.grad for t in inputs)), strict=True):
        assert difference(a, b) < 6e-3


@pytest.mark.parametrize("name", ["resnet20", "resnet18"])
def test_an_attack_goes_where_it_goes_without_our_kernels(name):
    torch.manual_seed(0)
    model = build_model(name, num_classes=10, shape=(3, 32, 32)).cuda()
    images = torch.rand(64, 3, 32, 32, device="cuda")
    labels = torch.arange(64, device="cuda") % 10
    noise = 0.1 * torch.randn(64, 2, 3, 32, 32, device="cuda")
    model.train()(images)  # running averages that suit the images
    model.to(memory_format=torch.channels_last)
    network = for_training(model, (3, 32, 32))
    attack = partial(sphere_attack, step_size=0.5, steps=1)
    exact = attack(model, images, labels, noise) - noise
    with torch.autocast("cuda", torch.bfloat16):
        theirs, ours = (attack(m, images, labels, noise) - noise for m in (model, network))
    assert difference(ours, exact) < 1.3 * difference(theirs, exact)


@pytest.mark.parametrize(
    "shape", [(70, 16, 32, 32), (3, 32, 16, 16), (1, 16, 5, 6), (400, 32, 2, 2)]
)
def test_the_3x3_kernels_are_the_convolution(shape):
    from macer.kernels.conv3x3 import Conv3x3

    torch.manual_seed(0)
    x = last(shape, device="cuda", dtype=torch.bfloat16).requires_grad_()
    dy = last(shape, device="cuda", dtype=torch.bfloat16)
    for format in (torch.contiguous_format, torch.channels_last):
        weight = torch.randn(shape[1], shape[1], 3, 3, device="cuda").bfloat16().float()
        weight = weight.contiguous(memory_format=format).requires_grad_()
        x.grad = None
        y = Conv3x3.apply(x, weight)
        y.backward(dy)
        inputs = [t.detach().double().requires_grad_() for t in (x, weight)]
        expected = F.conv2d(*inputs, padding=1)
        expected.backward(dy.double())
        wanted = (expected, *(t.grad for t in inputs))
        for a, b in zip((y, x.grad, weight.grad), wanted, strict=True):
            assert difference(a, b) < 6e-3


def test_a_step_on_a_gpu_is_the_plain_one_up_to_bf16():
    torch.manual_seed(0)
    model = build_model("resnet20", num_classes=10, shape=(3, 32, 32))
    exact, plain = (copy.deepcopy(model).cuda().train() for _ in range(2))
    network = for_training(model.cuda().to(memory_format=torch.channels_last), (3, 32, 32))
    images = torch.rand(256, 3, 32, 32, device="cuda")
    labels = torch.arange(256, device="cuda") % 10
    F.cross_entropy(exact(images), labels).backward()
    with torch.autocast("cuda", torch.bfloat16):
        for part in (plain, network.train()):
            F.cross_entropy(part(images), labels).backward()
    gradients = [
        torch.cat([p.grad.flatten() for p in part.parameters()]) for part in (model, plain, exact)
    ]
    ours, theirs, wanted = gradients
    assert difference(ours, wanted) < 1.3 * difference(theirs, wanted)
    for a, b in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)  # counts of batches too


def test_the_norm_kernels_let_nan_through():
    from macer.kernels.batchnorm import NormReLU

    x = last((8, 16, 4, 4), device="cuda", dtype=torch.bfloat16)
    x[3, 5, 1, 2] = torch.nan
    norm = nn.BatchNorm2d(16).cuda()
    y = NormReLU.apply(x, None, norm.weight, norm.bias, norm, True)
    assert y[:, 5].isnan().all() and y[:, 4].isfinite().all()


@pytest.mark.parametrize("shape", [(70, 56, 8, 8), (5, 16, 4, 2), (3, 32, 24, 24)])
def test_the_pooling_kernels_are_pooling_and_relu(shape):
    torch.manual_seed(0)
    x = last(shape, device="cuda", dtype=torch.bfloat16)
    x = (4 * x).round() / 4  # many are equal: the first of the largest gets the gradient
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    twin = x.detach().clone().requires_grad_()
    y, expected = pool_relu(x), F.relu(F.max_pool2d(twin, 2))
    dy = torch.randn_like(y)
    y.backward(dy)
    expected.backward(dy)
    assert torch.equal(y, expected) and torch.equal(x.grad, twin.grad)


@pytest.mark.parametrize(
    ("channels", "size", "padding", "outputs"), [(3, 3, 1, 64), (1, 5, 0, 16), (2, 4, 1, 8)]
)
def test_a_stem_as_a_product_is_the_convolution(channels, size, padding, outputs):
    from macer.kernels.stem import stem

    torch.manual_seed(0)
    x = last((50, channels, 9, 11), device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(outputs, channels, size, size, device="cuda").bfloat16().float()
    weight.requires_grad_()
    y = stem(x, weight, padding=padding)
    dy = torch.randn_like(y)
    y.backward(dy)
    exact = weight.detach().double().requires_grad_()
    expected = F.conv2d(x.double(), exact, padding=padding)
    expected.backward(dy.double())
    assert difference(y, expected) < 6e-3 and difference(weight.grad, exact.grad) < 6e-3
