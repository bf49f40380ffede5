"""How many rows a network sees; what it makes of them is in test_certification.py."""

import pytest
import torch

from macer.certification import certify
from macer.mistake import Mistake
from macer.smoothing import network_rows

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((1, 28, 28), 32_000), ((3, 32, 32), 8100), ((3, 64, 64), 2000), ((3, 224, 224), 1000),
     ((1, 8, 8), 32_000)],
)  # fmt: skip
def test_a_batch_has_fewer_images_the_larger_they_are(shape, rows):
    assert network_rows(GPU, None, shape) == rows
    assert network_rows(GPU, rows, shape) == rows  # as a journal's header has it


@pytest.mark.parametrize(("batch_size", "rows"), [(1, 100), (199, 100), (64_000, 64_000)])
def test_a_batch_is_whole_chunks_of_what_is_asked_for(batch_size, rows):
    assert network_rows(GPU, batch_size, (3, 224, 224)) == rows


def test_a_batch_on_a_cpu_is_one_chunk():
    assert network_rows(CPU, None, (1, 28, 28)) == network_rows(CPU, 5000, (3, 32, 32)) == 100


class Hungry(torch.nn.Module):
    """Has too little memory."""

    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.06 GiB.")


def test_a_batch_that_does_not_fit_the_memory_is_a_clear_mistake():
    with pytest.raises(Mistake, match=r"^batch_size must fit the GPU's memory, got 100 rows; "):
        certify(Hungry(), torch.zeros(1, 1, 2, 2), sigma=0.5, n=200)
