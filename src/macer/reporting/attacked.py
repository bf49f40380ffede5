"""An attack of the verdict's length on the images of a page, and what the classifier answers then.

The attack follows the gradient of the softly smoothed classifier through noisy copies
[Salman+19]. It is an illustration: one that fails proves nothing, `macer attack` tries harder.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from macer.attacks.images import pgd_on_pixels
from macer.certification.certificate import ABSTAIN
from macer.certification.largest_radius import predict
from macer.certification.target import is_onnx, trained_target
from macer.reporting.evidence import Source
from macer.system.errors import Mistake
from macer.system.progress import bar

STEPS, COPIES = 20, 16  # of the attack
JUDGES, ALPHA = 1000, 0.001  # noisy copies that decide the answer, and its level


class Attacked(NamedTuple):
    """An image after the attack."""

    pixels: NDArray[np.uint8]  # no farther from the image than the radius
    answer: int  # a class, or ABSTAIN


def attacked(
    run: Source,
    path: Path,
    images: NDArray[np.uint8],
    answers: Sequence[int],
    radius: float,
    *,
    code: Collection[str] = (),
) -> list[Attacked]:
    """Attack each image so that it loses its answer.

    Args:
        path: of the run, as it was named.
        images: (images, channels, height, width)
        answers: the class of each image that the attack is to change.
        code: modules that the model file may name.
    """
    target, _ = trained_target(str(path), code=code)
    if target.weights_sha256 != run.header.weights_sha256:
        raise Mistake(f"attack needs the model that the certificates are of, got another in {path}")
    if is_onnx(target):
        raise Mistake(f"attack must be left out for {path}, an ONNX graph without gradients")
    found = []
    with bar("attacking the pictures", len(images), "images", transient=True) as advance:
        for pixels, answer in zip(torch.from_numpy(images), answers, strict=True):
            changed = _pgd(target.model, pixels[None], answer, run.header.sigma, radius)
            [now] = predict(target.model, changed, sigma=run.header.sigma, n=JUDGES, alpha=ALPHA,
                            row_by_row=run.header.row_by_row)  # fmt: skip
            found.append(Attacked(changed[0].numpy(), now))
            advance(1)
    return found


def _pgd(
    model: torch.nn.Module, pixels: torch.Tensor, answer: int, sigma: float, radius: float
) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    noise = sigma * torch.randn((1, COPIES, *pixels.shape[1:]), generator=random)
    label = torch.tensor([answer])
    return pgd_on_pixels(model, pixels, label, noise, epsilon=radius, steps=STEPS)


def outcome(before: int, after: int, name: str) -> str:
    """What the attack did, in words.

    Args:
        name: of the class after the attack.
    """
    if after == ABSTAIN:
        return "no answer"
    return "the answer stays" if after == before else f"the answer becomes {name}"
