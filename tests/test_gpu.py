"""The GPU's noise beside the CPU's; these run where there is a GPU."""

import pytest
import torch
from scipy.stats import kstest, norm

from macer.building import build_model
from macer.certification import certify
from macer.inference import for_inference
from macer.losses import LOSSES
from macer.noise import Purpose
from macer.noisy import CHUNK, Chunk, NoisyCopies
from macer.probe import check_rows
from macer.trainer import Trainer
from tiny_models import tiny_recipe, tiny_split

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CHUNKS = tuple(Chunk(slot, number, CHUNK) for slot, number in ((0, 0), (3, 7), (4, 1000), (2, 1)))


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
def test_a_convolution_of_pairs_is_the_convolution(shape, with_shortcut):
    from macer.convolution import pairs_relu, pairs_weight

    channels = shape[1]
    like = {"device": "cuda", "dtype": torch.bfloat16}
    x, shortcut = (
        torch.randn(shape, **like).contiguous(memory_format=torch.channels_last) for _ in range(2)
    )
    weight, bias = torch.randn(channels, channels, 3, 3, **like), torch.randn(channels).cuda()
    found = pairs_relu(x, pairs_weight(weight), bias, shortcut if with_shortcut else None)
    expected = torch.nn.functional.conv2d(x.double(), weight.double(), bias.double(), padding=1)
    expected = (expected + (shortcut.double() if with_shortcut else 0)).relu()
    assert difference(found, expected) < 4e-3


@pytest.mark.parametrize(("channels", "outputs"), [(3, 16), (3, 64), (1, 20), (2, 7)])
def test_a_stem_is_the_convolution(channels, outputs):
    from macer.convolution import stem_relu, stem_weight

    like = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(5, channels, 9, 13, **like).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(outputs, channels, 3, 3, **like), torch.randn(outputs).cuda()
    found = stem_relu(x, *stem_weight(weight, bias), outputs=outputs)
    expected = torch.nn.functional.conv2d(x.double(), weight.double(), bias.double(), padding=1)
    assert found.shape == expected.shape and difference(found, expected.relu()) < 4e-3


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
    check_rows(fast, shape, rows=400, dtype=torch.bfloat16, device=torch.device("cuda"))


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


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_captured_training_is_the_training_step_by_step(loss):
    fields = {"loss": loss, "epochs": 3, "k": 4, "epsilon": 0.5, "crop": 1, "flip": True,
              "ema": 0.9, "clip": 1.0, "precision": "fp32", "epsilon_ramp": 2,
              "lam_schedule": "ramp"}  # fmt: skip
    recipe = tiny_recipe(model="tiny_models:tiny_with_batch_norm", **fields)
    results = []
    for captured in (True, False):
        torch.manual_seed(0)
        model, teacher = (
            build_model(recipe.model, num_classes=3, shape=(1, 8, 8)) for _ in range(2)
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
