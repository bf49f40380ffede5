"""Random crops and flips, on the device that holds the images."""

import torch
from torch import Tensor


def augment(images: Tensor, offsets: Tensor, flips: Tensor, *, padding: int) -> Tensor:
    """Pad with zeros, crop each image to its old size at its own offset, flip some.

    Args:
        images: (images, channels, height, width)
        offsets: (images, 2) integers (down, right) in 0 … 2·padding
        flips: (images,) bool, which images are flipped
    """
    n, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding, padding, padding, padding))
    down = torch.arange(height, device=images.device)
    right = torch.arange(width, device=images.device)
    rows = offsets[:, :1] + down
    columns = offsets[:, 1:] + torch.where(flips[:, None], width - 1 - right, right)
    positions = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    positions = positions.reshape(n, 1, height * width).expand(n, channels, height * width)
    return padded.flatten(2).gather(2, positions).view(n, channels, height, width)
