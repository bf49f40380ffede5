"""What identifies a certified network besides its weights: its outputs, and the hash of its code.

The hash of a file covers weights, and the hash of a source covers code. Neither covers a tensor
that is kept as a plain attribute, a file behind a wrapper, a hook or a global that the source
reads. The network's outputs on fixed noisy images do, and a journal has them.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from macer.certification.header import Outputs
from macer.models.modes import evaluating, network_dtype
from macer.system.files import sha256_of_file
from macer.system.user_code import names_a_function, source_of

IMAGES = 16  # fixed images whose outputs are compared
MOST_OUTPUTS = 16  # numbers kept per image; the logits of more classes are mixed into this many


def outputs_of(
    model: nn.Module,
    *,
    shape: Sequence[int],
    sigma: float,
    device: torch.device,
    row_by_row: bool = False,
) -> Outputs:
    """The outputs of a prepared network on fixed noisy images, to six digits.

    One number per class. With more than MOST_OUTPUTS classes: that many sums of all logits, with
    fixed random signs.

    Args:
        model: as certification runs it, in one precision on the device.
    """
    images = probe_images(shape, sigma).to(device, network_dtype(model))
    with torch.inference_mode(), evaluating(model):
        if len(shape) == 3:
            images = images.contiguous(memory_format=torch.channels_last)
        batches = torch.split(images, 1 if row_by_row else IMAGES)
        logits = torch.cat([model(batch) for batch in batches]).double().cpu()
    if logits.shape[1] > MOST_OUTPUTS:
        signs = np.random.Generator(np.random.Philox(2)).choice(
            [-1.0, 1.0], size=(logits.shape[1], MOST_OUTPUTS)
        )
        logits = logits @ torch.from_numpy(signs) / logits.shape[1] ** 0.5
    return [[_rounded(value) for value in row] for row in logits.tolist()]


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def probe_images(shape: Sequence[int], sigma: float) -> Tensor:
    """Fixed noisy images (IMAGES, *shape): half of independent pixels, half of large patches.

    Those of another shape than an image's are all of independent numbers.
    """
    random = np.random.Generator(np.random.Philox(1))
    pixels = random.random((IMAGES, *shape))
    if len(shape) == 3:
        patches = random.random((IMAGES, shape[0], 4, 4))
        rows, columns = (np.arange(size) * 4 // size for size in shape[1:])
        pixels[1::2] = patches[1::2][:, :, rows][:, :, :, columns]
    noisy = pixels + sigma * random.standard_normal(pixels.shape)
    return torch.from_numpy(noisy.astype(np.float32))


def with_code(architecture: str) -> str:
    """A network's name; for a user's own network with the hash of the file that defines it."""
    file = source_of(architecture) if names_a_function(architecture) else None
    return f"{architecture}, source {sha256_of_file(file)[:16]}" if file else architecture
