"""A real attack on an image, through the noise, to a given length."""

import torch
from torch import Tensor

from macer.attacks.images import pgd_on_pixels
from macer.server.served import Seed, Served
from macer.smoothing.streams import Purpose, fill_normal

STEPS = 20
COPIES = 16  # noisy copies in each step


def attacked(served: Served, pixels: Tensor, label: int, *, length: float, seed: Seed) -> Tensor:
    """The 8-bit image within `length` of the given one that PGD finds against the label.

    The noise of the attack is not the noise that judges its result.
    """
    model, device = served.model.target.model, served.model.device
    batch = pixels[None].to(device)
    noise = torch.empty((COPIES, *pixels.shape), dtype=torch.float32, device=device)
    fill_normal(noise, seed=seed.value, purpose=Purpose.ATTACK, image=seed.number(pixels), chunk=0)
    found = pgd_on_pixels(
        model,
        batch,
        torch.tensor([label], device=device),
        served.card.sigma * noise[None],
        epsilon=length,
        steps=STEPS,
    )
    return found[0].cpu()
