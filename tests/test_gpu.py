"""The GPU's noise beside the CPU's; these run where there is a GPU."""

import pytest
import torch
from scipy.stats import kstest, norm

from macer.certification import certify
from macer.noise import Purpose
from macer.noisy import CHUNK, Chunk, NoisyCopies

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
