"""The GPU's noise beside the CPU's; these run where there is a GPU."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import kstest, norm
from tiny_models import tiny_recipe, tiny_split
from torch.nn import functional as F

from macer.certification.largest_radius import certify
from macer.data.image_files import ImageFiles
from macer.data.sets import Split
from macer.kernels.layers import ConvolutionReLU
from macer.losses import LOSSES
from macer.models.build import build_model
from macer.models.ensembles import Ensemble, mean_logits
from macer.models.inference import for_inference
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.rows import check_rows
from macer.smoothing.streams import Purpose
from macer.training.step import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CHUNKS = Chunks(np.array([0, 3, 4, 2]), np.array([0, 7, 1000, 1]), np.full(4, CHUNK))


def copies(images, dtype=torch.float32, sigma=0.25):
    drawn = NoisyCopies(
        images,
        [0, 5, 2**40, 2**55 + 3, 9],
        sigma=sigma,
        seed=11,
        purpose=Purpose.ESTIMATION,
        rows=4 * CHUNK,
        dtype=dtype,
    )
    return drawn.draw(CHUNKS)


@pytest.mark.parametrize("sigma", [0.12, 0.25, 1.0, 3.5])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 5, 7)])
def test_exact_noise_is_bit_for_bit_the_cpus(shape, sigma):
    images = torch.randint(0, 256, (5, *shape), dtype=torch.uint8)
    on_cpu, decided = copies(images, sigma=sigma)
    on_gpu, also_decided = copies(images.cuda(), sigma=sigma)
    assert torch.equal(on_cpu, on_gpu.cpu()) and torch.equal(decided, also_decided.cpu())
    half, _ = copies(images.cuda(), torch.bfloat16, sigma)
    assert torch.equal(on_cpu.bfloat16(), half.cpu())


def test_ordinary_noise_is_normal():
    batch, _ = copies(torch.full((5, 3, 32, 32), 0.5, device="cuda"))
    z = ((batch.cpu().double() - 0.5) / 0.25).flatten().numpy()
    assert kstest(z, norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(7,), (1, 50), (2, 3, 4, 5)])
def test_inputs_of_any_shape_are_certified_by_modules_and_by_callables(shape):
    def half_space(x):
        margin = x.reshape(len(x), -1).sum(1) / len(x[0].reshape(-1)) ** 0.5
        return torch.stack([-margin, margin], dim=1)

    class HalfSpace(torch.nn.Module):
        def forward(self, x):
            assert x.is_cuda and x.shape[1:] == shape
            return half_space(x)

    inputs = torch.full((1, *shape), 0.5 / torch.Size(shape).numel() ** 0.5, device="cuda")
    for model in (HalfSpace(), lambda x: half_space(torch.from_numpy(x))):
        [certificate] = certify(model, inputs, sigma=0.5, n=10_000, value_range=None)
        assert certificate.label == 1 and not certificate.exact
        assert 0.42 < certificate.radius <= 0.5


def test_certificates_do_not_depend_on_the_batch_size():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).double().cuda()
    images = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8, device="cuda")
    small, large = (
        certify(model, images, sigma=0.5, n=2000, batch_size=size) for size in (256, 8192)
    )
    assert small == large


def noisy(model):
    """The model with batch-norm statistics that matter."""
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.5, 2)
    return model.eval()


def difference(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


@pytest.mark.parametrize(
    "shape", [(7, 16, 32, 32), (3, 32, 16, 16), (1, 16, 5, 6), (130, 32, 2, 2)]
)
@pytest.mark.parametrize("with_shortcut", [False, True])
def test_a_3x3_convolution_by_pairs_is_the_convolution(shape, with_shortcut):
    from macer.kernels.conv3x3 import conv3x3_relu, pair_weights

    channels = shape[1]
    like = {"device": "cuda", "dtype": torch.bfloat16}
    x, shortcut = (
        torch.randn(shape, **like).contiguous(memory_format=torch.channels_last) for _ in range(2)
    )
    weight, bias = torch.randn(channels, channels, 3, 3, **like), torch.randn(channels).cuda()
    matrices = pair_weights(weight, weight.dtype)
    found = conv3x3_relu(x, matrices, bias, shortcut if with_shortcut else None)
    expected = F.conv2d(x.double(), weight.double(), bias.double(), padding=1)
    expected = (expected + (shortcut.double() if with_shortcut else 0)).relu()
    assert difference(found, expected) < 4e-3


@pytest.mark.parametrize(
    ("channels", "size", "padding", "outputs", "pool", "pixels"),
    [(3, 3, 1, 16, 1, (32, 32)), (3, 3, 1, 64, 1, (9, 13)), (1, 3, 1, 20, 2, (9, 13)),
     (2, 3, 0, 7, 1, (6, 5)), (1, 5, 0, 32, 2, (28, 28)), (1, 5, 0, 24, 2, (11, 12)),
     (1, 5, 2, 20, 2, (7, 9)), (1, 5, 1, 5, 1, (5, 6)), (2, 4, 1, 8, 2, (9, 9))],
)  # fmt: skip
def test_a_stem_is_the_convolution_and_the_pooling(channels, size, padding, outputs, pool, pixels):
    from macer.kernels.stem import stem_relu, stem_weights

    like = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(5, channels, *pixels, **like).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(outputs, channels, size, size, **like), torch.randn(outputs).cuda()
    settings = {"outputs": outputs, "size": size, "padding": padding, "pool": pool}
    found = stem_relu(x, *stem_weights(weight, bias), **settings)
    expected = F.conv2d(x.double(), weight.double(), bias.double(), padding=padding)
    expected = F.max_pool2d(expected.relu(), pool)
    assert found.shape == expected.shape and difference(found, expected) < 4e-3
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "shape", [(70, 56, 8, 8), (3, 8, 5, 7), (5, 16, 3, 2), (1, 200, 2, 2), (2, 4104, 2, 2),
              (2, 12, 4, 4)]
)  # fmt: skip
def test_our_pooling_is_max_pooling(shape):
    from macer.kernels.pooling import max_pool2x2

    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    x = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(max_pool2x2(x), F.max_pool2d(x, 2))


def classifier(*after_convolution):
    """LeNet of modules, with these after its convolutions."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 20, 5), *after_convolution, torch.nn.Conv2d(20, 50, 5),
        *after_convolution, torch.nn.AdaptiveMaxPool2d(4), torch.nn.Flatten(),
        torch.nn.Linear(800, 500), torch.nn.ReLU(), torch.nn.Linear(500, 10),
    )  # fmt: skip


POOL, RELU = torch.nn.MaxPool2d(2), torch.nn.ReLU()


@pytest.mark.parametrize(
    ("model", "pools"),
    [
        (lambda: build_model("lenet", num_classes=10, shape=(1, 28, 28)), [2, 2]),
        (lambda: classifier(POOL, RELU), [2, 2]),
        (lambda: classifier(RELU, POOL), [2, 2]),
        (lambda: classifier(RELU, torch.nn.MaxPool2d(2, ceil_mode=True)), [1, 1]),
        (lambda: classifier(RELU, torch.nn.MaxPool2d(3, stride=2)), [1, 1]),
    ],
)
def test_pooling_becomes_part_of_the_convolution_before_it(model, pools):
    torch.manual_seed(0)
    model = model().eval()
    fast = for_inference(model, shape=(1, 28, 28), precision="bf16", device=torch.device("cuda"))
    layers = [layer for layer in fast.modules() if isinstance(layer, ConvolutionReLU)]
    assert [layer.pool for layer in layers] == pools
    assert [layer.stem is not None for layer in layers] == [True, False]
    assert not any(isinstance(layer, torch.nn.Conv2d) for layer in fast.modules())
    names = {name for name, layer in fast.named_modules() if type(layer) is torch.nn.MaxPool2d}
    left = [n for n in fast.graph.nodes if n.target in names or n.target is F.max_pool2d]
    assert len(left) == pools.count(1)
    images = torch.rand(64, 1, 28, 28)
    with torch.inference_mode():
        found = fast(images.cuda().bfloat16().contiguous(memory_format=torch.channels_last))
        assert difference(found.cpu(), model(images)) < 0.03


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 28, 28)), ("resnet18", (3, 32, 32)), ("resnet110", (3, 32, 32)),
     ("resnet50", (3, 64, 64))],
)  # fmt: skip
def test_the_prepared_network_is_the_network_up_to_bf16(name, shape):
    torch.manual_seed(0)
    model = noisy(build_model(name, num_classes=10, shape=shape))
    fast = for_inference(model, shape=shape, precision="bf16", device=torch.device("cuda"))
    images = torch.rand(64, *shape)
    with torch.inference_mode():
        found = fast(images.cuda().bfloat16().contiguous(memory_format=torch.channels_last))
        assert found.dtype == torch.float32
        assert difference(found.cpu(), model(images)) < 0.03
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in fast.modules())
    pixels = torch.randint(256, (8, *shape), dtype=torch.uint8, device="cuda")
    check_rows(fast, pixels, rows=400, sigma=0.25, dtype=torch.bfloat16)


def test_each_member_of_an_ensemble_is_prepared_as_it_is_alone():
    shape, device = (3, 32, 32), torch.device("cuda")
    names = ("resnet20", "resnet20", "resnet18")
    parts = [noisy(build_model(name, num_classes=10, shape=shape)) for name in names]
    whole, *alone = (
        for_inference(model, shape=shape, precision="bf16", device=device)
        for model in (Ensemble(parts), *parts)
    )
    fused, *of_members = (
        sum(isinstance(layer, ConvolutionReLU) for layer in network.modules())
        for network in (whole, *alone)
    )
    assert fused == sum(of_members) > 0
    images = torch.rand(64, *shape, device=device).bfloat16()
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        found = whole(images)
        assert found.dtype == torch.float32
        assert difference(found, mean_logits([network(images) for network in alone])) < 0.01


@pytest.mark.parametrize(("name", "shape"), [("lenet", (1, 28, 28)), ("resnet20", (3, 32, 32))])
def test_a_prepared_network_lets_nan_through_so_that_such_a_sample_votes_for_nobody(name, shape):
    model = noisy(build_model(name, num_classes=10, shape=shape))
    fast = for_inference(model, shape=shape, precision="bf16", device=torch.device("cuda"))
    images = torch.rand(4, *shape, device="cuda").bfloat16()
    images[2, 0, 3, 4] = torch.nan
    with torch.inference_mode():
        logits = fast(images.contiguous(memory_format=torch.channels_last))
    assert logits[2].isnan().all() and logits[[0, 1, 3]].isfinite().all()


def test_certificates_in_bf16_repeat_and_their_votes_are_close_to_those_in_fp32():
    torch.manual_seed(0)
    model = noisy(build_model("resnet20", num_classes=10, shape=(3, 32, 32)))
    images = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, device="cuda")
    first, again, single = (
        certify(
            for_inference(model, shape=(3, 32, 32), precision=p, device=images.device),
            images, sigma=0.25, n=4000,
        )
        for p in ("bf16", "bf16", "fp32")
    )  # fmt: skip
    assert first == again
    for a, b in zip(first, single, strict=True):
        moved = sum(abs(x - y) for x, y in zip(a.estimation, b.estimation, strict=True)) / 2
        assert moved < 0.05 * 4000


@pytest.mark.parametrize(
    ("loss", "optimizer"), [*((loss, "sgd") for loss in sorted(LOSSES)), ("macer", "muon")]
)
def test_a_captured_training_is_the_training_step_by_step(loss, optimizer):
    fields = {"loss": loss, "optimizer": optimizer, "epochs": 3, "k": 4, "crop": 1, "flip": True,
              "ema": 0.9, "clip": 1.0, "precision": "fp32"}  # fmt: skip
    recipe = tiny_recipe(model="tiny_models:tiny_with_batch_norm", **fields)
    settings = {"epsilon": 0.5, "epsilon_ramp": 2, "eta_ramp": 2, "attack_epoch": 2}
    settings |= {"teacher": "run", "distillation": 1.0}
    recipe = recipe.changed(**{name: settings[name] for name in settings if name in recipe.loss})
    recipe = recipe.changed(lam_schedule="ramp" if "lam" in recipe.loss else "constant")
    recipe = recipe.changed(denoiser="dncnn-small" if loss == "denoising" else "none")
    results = []
    for captured in (True, False):
        torch.manual_seed(0)
        model, teacher = (
            build_model(recipe.model, num_classes=3, shape=(1, 8, 8), denoiser=recipe.denoiser)
            for _ in range(2)
        )
        trainer = Trainer(
            recipe, model, tiny_split(128), torch.device("cuda"), teacher=teacher.cuda().eval()
        )
        if not captured:
            trainer._run = trainer._next_step
        metrics = [[*trainer.rest_of_epoch()] and trainer.close_epoch() for _ in range(3)]
        results.append((metrics, {name: t.cpu() for name, t in trainer.state()[0].items()}))
    (some, tensors), (others, expected) = results
    for a, b in zip(some, others, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3) and a["skipped_steps"] == 0
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-2, atol=1e-3)


def test_a_training_from_files_is_one_from_memory(tmp_path):
    recipe = tiny_recipe(epochs=2, batch=4, k=2, flip=True, precision="fp32")
    names = [f"{i}.png" for i in range(28)]
    for i, name in enumerate(names):
        pixels = np.random.default_rng(i).integers(256, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((300, 260)).save(tmp_path / name)
    files, labels = ImageFiles(tmp_path, names), np.arange(28) % 3
    results = []
    for images in (files, np.asarray(files)):
        torch.manual_seed(0)
        model = build_model(recipe.model, num_classes=3, shape=(3, 224, 224))
        trainer = Trainer(recipe, model, Split(images, labels), torch.device("cuda"))
        for _ in range(2):
            for _ in trainer.rest_of_epoch():
                pass
        results.append(trainer.model.state_dict())
    for name, tensor in results[0].items():
        torch.testing.assert_close(tensor, results[1][name], rtol=1e-3, atol=1e-4)
