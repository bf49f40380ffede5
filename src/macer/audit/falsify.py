"""Attack certificates from inside their balls; each point that an attack finds is judged.

The attack's result is rounded to an 8-bit image that is no farther from x. Then the certified
classifier itself judges it, with integer noise if the certificate is exact. The distance is a sum
of squared integers, so that no rounding error hides in it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from macer.attacks.geometry import norm
from macer.attacks.images import pgd_on_pixels
from macer.audit.judge import LEVEL, Trial, judge
from macer.certification.certificate import ABSTAIN
from macer.certification.journal import Contents
from macer.certification.record import Record
from macer.certification.settings import as_images
from macer.certification.target import PreparedModel, Target, is_onnx
from macer.data.sets import Split
from macer.recipes import check_seed
from macer.smoothing.bounds import bound_named
from macer.smoothing.sampling import Sampler
from macer.smoothing.streams import Purpose, fill_normal
from macer.system.errors import Mistake

# Noisy copies in one backward pass, which keeps the activations of all of them in memory.
_ROWS = 256

# The noise that judges a restart has the number image + restart · 2³²; no data set has 2³² images.
_RESTART_OFFSET = 2**32


@dataclass(frozen=True, kw_only=True)
class Search:
    """How long an attack searches, and how many samples judge its result."""

    scale: float  # ε as a multiple of the certified radius
    restarts: int  # the first starts at the image, the others at random points of the ball
    steps: int
    m: int  # noisy copies in the attack
    n: int  # fresh samples that judge a point
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise Mistake(f"scale must be > 0, got {self.scale}")
        for name in ("restarts", "steps", "m"):
            if getattr(self, name) < 1:
                raise Mistake(f"{name} must be at least 1, got {getattr(self, name)}")
        fewest = math.ceil(1 - math.log2(LEVEL))  # n votes for one class: 2 · 2⁻ⁿ ≤ LEVEL
        if self.n < fewest:
            raise Mistake(
                f"n must be at least {fewest} to confirm anything at level {LEVEL:g}, got {self.n}"
            )
        check_seed(self.seed)


def chosen_records(contents: Contents, images: int) -> list[Record]:
    """The first certified images of a journal, in the order of their numbers."""
    if images < 1:
        raise Mistake(f"images must be at least 1, got {images}")
    chosen: list[Record] = []
    for idx in sorted(contents.records):
        record = contents.records[idx]
        if record.certificate.label != ABSTAIN and record.certificate.radius > 0:
            chosen.append(record)
        if len(chosen) == images:
            break
    if not chosen:
        raise Mistake("no certificate to attack: the journal holds abstentions only")
    return chosen


def falsify(
    contents: Contents,
    records: Sequence[Record],
    model: PreparedModel,
    split: Split,
    search: Search,
) -> Iterator[Trial]:
    """Attack each certificate from every start; yield one judged trial per start."""
    if is_onnx(model.target):
        raise Mistake(
            f"the model must have gradients to be attacked, got {model.target.name}, an ONNX "
            "graph; attack the network that it was exported from"
        )
    header = contents.header
    soft = bound_named(header.bound).soft
    # The copy that was certified judges; the attack uses the original, which has gradients.
    target, device = model.target, model.device
    target.model.to(device)
    target.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = max(1, _ROWS // search.m)
    for begin in range(0, len(records), size):
        block = records[begin : begin + size]
        images = split.images[[record.idx for record in block]]
        pixels = torch.from_numpy(np.asarray(images)).to(device)
        for restart in range(search.restarts):
            attacked = attack(target, pixels, block, search, restart)
            sampler = Sampler(
                model=model.network,
                images=as_images(attacked, exact=header.exact),
                sigma=target.sigma,
                seed=search.seed,
                indices=[record.idx + restart * _RESTART_OFFSET for record in block],
                betas=(header.beta,) if soft else (),
                row_by_row=header.row_by_row,
            )
            tally = sampler.draw(search.n, Purpose.JUDGEMENT)
            totals = tally.first[:, 0] if soft else tally.votes
            distances = norm(attacked.double() - pixels.double()).flatten() / 255
            for i, record in enumerate(block):
                distance = distances[i].item()
                yield judge(record, totals[i], distance, sigma=target.sigma, n=search.n, soft=soft)


def attack(
    target: Target, pixels: Tensor, records: Sequence[Record], search: Search, restart: int
) -> Tensor:
    """8-bit images within scale · R of the given ones that the attack takes for another class."""
    draws = pixels.new_empty((len(pixels), search.m + 1, *pixels.shape[1:]), dtype=torch.float32)
    for out, record in zip(draws, records, strict=True):
        fill_normal(out, seed=search.seed, purpose=Purpose.ATTACK, image=record.idx, chunk=restart)
    certificates = [record.certificate for record in records]
    radii = torch.tensor([c.radius for c in certificates], dtype=torch.float64).to(pixels.device)
    epsilon = search.scale * radii
    start = None
    if restart > 0:  # from the surface: in many dimensions almost all of a ball is close to it
        direction = torch.nn.functional.normalize(draws[:, -1].flatten(1)).view_as(pixels)
        start = pixels.float() / 255 + epsilon.float()[:, None, None, None] * direction
    return pgd_on_pixels(
        target.model,
        pixels,
        torch.tensor([c.label for c in certificates]).to(pixels.device),
        target.sigma * draws[:, :-1],
        epsilon=epsilon,
        steps=search.steps,
        start=start,
    )
