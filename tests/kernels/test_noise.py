"""The GPU's noise on a CPU, by Triton's interpreter, beside the CPU's own."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from interpreted import needs_interpreter

from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.exact_noise import BITS, GUIDE_BITS, levels
from macer.smoothing.streams import Purpose, stream

pytestmark = needs_interpreter

SEED, PURPOSE = 11, Purpose.ESTIMATION
INDICES = [7, 2**55 + 3, 0]
CHUNKS = Chunks(np.array([1, 2]), np.array([5, 0]), np.full(2, CHUNK))


def exact_copies(sigma, change=lambda table: table):
    """Two chunks with exact noise: (copies, which rows are decided) of the CPU, of the kernel."""
    from macer.kernels.noise import GpuNoise, Table

    images = torch.randint(0, 256, (3, 1, 3, 5), dtype=torch.uint8)
    copies = NoisyCopies(
        images, INDICES, sigma=sigma, seed=SEED, purpose=PURPOSE, rows=2 * CHUNK,
        dtype=torch.float32,
    )  # fmt: skip
    copies.table = change(copies.table)
    expected, decided = copies.draw(CHUNKS)
    table = Table(copies.table.thresholds, copies.table.floats)
    noise = GpuNoise(copies.pixels, SEED, int(PURPOSE), table, rows=CHUNK)
    batch = torch.zeros(copies.shape)
    places = np.stack((CHUNKS.slots, CHUNKS.numbers, np.array(INDICES)[CHUNKS.slots]))
    flags = noise.fill(batch, torch.from_numpy(places), sigma)
    return (expected, decided), (batch.permute(0, 3, 1, 2), flags == 0)


# reference


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_exact_noise_is_bit_for_bit_the_cpus(sigma):
    (expected, decided), (found, also_decided) = exact_copies(sigma)
    assert torch.equal(found, expected)
    assert decided.all() and also_decided.all()


def test_a_draw_on_a_threshold_makes_its_row_undecided():
    """Such a draw has a probability of 2⁻⁶² or so: here a threshold is put where a draw falls."""
    raw = stream(SEED, PURPOSE, INDICES[2], 0).bit_generator.random_raw(CHUNK * 15)
    draw = np.int64(raw[15 * 3 + 4] >> np.uint64(64 - BITS))  # of the fourth row of the last chunk

    def with_threshold(table):
        thresholds = table.thresholds.copy()
        thresholds[np.searchsorted(thresholds, draw)] = draw
        guide = np.full(2**GUIDE_BITS, -1, np.int16)  # every draw is searched for
        return replace(table, thresholds=thresholds, guide=guide)

    (expected, decided), (found, also_decided) = exact_copies(0.25, with_threshold)
    assert torch.equal(found, expected)
    assert torch.equal(also_decided, decided)
    assert (~decided).nonzero().tolist() == [[CHUNK + 3]]


def test_ordinary_noise_is_box_mullers_of_the_streams_bits():
    z = ordinary_noise()
    raw = stream(SEED, PURPOSE, 9, 3).bit_generator.random_raw(z.size)
    length = np.sqrt(-2 * np.log(((raw >> np.uint64(24)) + np.uint64(1)) / 2**40))
    angle = 2 * np.pi * (raw & np.uint64(2**24 - 1)) / 2**24
    np.testing.assert_allclose(z, length * np.cos(angle), atol=2e-6)


# law


def test_ordinary_noise_is_normal():
    z = ordinary_noise()
    assert abs(z.mean()) < 0.04 and abs(z.std() - 1) < 0.03 and abs(z).max() > 3


@pytest.mark.parametrize("shape", [(100,), (4, 25), (2, 5, 5, 2)])
def test_noise_does_not_depend_on_the_shape_of_inputs(shape):
    np.testing.assert_array_equal(ordinary_noise(*shape), ordinary_noise())


def ordinary_noise(*shape):
    """The noise of chunk 3 of image 9, in units of σ; of 5 × 5 pixels with 4 channels, or other."""
    from macer.kernels.noise import GpuNoise

    batch = torch.zeros(CHUNK, *(shape or (5, 5, 4)))
    noise = GpuNoise(torch.full_like(batch[:1], 0.5), SEED, int(PURPOSE), None, rows=CHUNK)
    noise.fill(batch, torch.tensor([[0], [3], [9]]), 0.25)
    return ((batch - 0.5).double() / 0.25).flatten().numpy()


# known value


def test_the_kernel_takes_as_many_bits_as_the_thresholds_have():
    from macer.kernels import noise

    assert noise.BITS == BITS
    assert levels(0.25).thresholds.max() < 2**noise.BITS
