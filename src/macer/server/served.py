"""The models that a service answers by, and the noise that it draws."""

import hashlib
import os
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from macer.certification.predict_files import check_certified_function, noise_number
from macer.certification.target import PreparedModel, prepare, trained_target
from macer.models.inference import resolve_precision
from macer.recipes import check_seed
from macer.runs.model_file import ModelCard
from macer.smoothing.sampling import Sampler
from macer.smoothing.streams import Purpose
from macer.system.errors import Mistake


@dataclass(frozen=True, eq=False)
class Served:
    """A model as it is asked: its name, its card, and the network that is certified."""

    name: str
    card: ModelCard
    model: PreparedModel

    def sampler(self, images: Sequence[Tensor], numbers: Sequence[int], seed: int) -> Sampler:
        """Samples of several images in one pass."""
        return Sampler(
            model=self.model.network,
            images=torch.stack(tuple(images)).to(self.model.device),
            sigma=self.card.sigma,
            seed=seed,
            indices=numbers,
            row_by_row=self.model.row_by_row,
        )


def load_served(
    names: Sequence[str],
    *,
    precision: str,
    row_by_row: bool,
    device: torch.device,
    code: Collection[str] = (),
) -> dict[str, Served]:
    """The models of run folders, model files or the zoo, by the names that requests use."""
    if not names:
        raise Mistake("models must name at least one run, model file or zoo:NAME, got none")
    precision, served = resolve_precision(precision, device), {}
    for name in names:
        target, card = trained_target(name, code=code)
        card.require_images(name)
        model = prepare(target, precision=precision, row_by_row=row_by_row, device=device)
        if os.path.isdir(name):  # noqa: PTH112  zoo:NAME is no path
            check_certified_function(Path(name), model)
        target.model.to(device)  # attacks use this one, which has gradients
        served[name] = Served(name, card, model)
        _try(served[name])
    return served


def _try(served: Served) -> None:
    """Try the network: one that cannot be certified is refused before the first request."""
    pixels = np.random.default_rng(0).integers(256, size=served.card.shape, dtype=np.uint8)
    served.sampler([torch.from_numpy(pixels)], [0], 0).draw(1, Purpose.PREDICTION)


@dataclass(frozen=True)
class Seed:
    """The seed of all noise, and how an image's noise is named.

    The same image always has the same noise, so that asking again is no second try. A secret seed
    is for images of strangers: who knows the noise beforehand can make an image for it. The name
    of an image's noise is then secret too, so that noisy copies which are shown say nothing about
    the noise of another image.
    """

    value: int
    secret: bool

    @classmethod
    def chosen(cls, seed: int | None) -> "Seed":
        """The seed that was asked for, or a secret one."""
        if seed is None:
            return cls(secrets.randbits(63), secret=True)
        check_seed(seed)
        return cls(seed, secret=False)

    @property
    def shown(self) -> int | str:
        """What an answer says of it."""
        return "secret" if self.secret else self.value

    def number(self, pixels: Tensor) -> int:
        """The number that names the noise of an image."""
        if not self.secret:
            return noise_number(pixels)
        key = self.value.to_bytes(8, "little")
        digest = hashlib.blake2b(pixels.numpy().tobytes(), key=key, digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1
