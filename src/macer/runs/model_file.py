"""Model files: tensors, and a card that rebuilds their network; what a file says is checked first.

A file of safetensors whose metadata have one text, `macer`: the card in JSON, and with it `digest`,
the SHA-256 of card and tensors, which files of old versions lack.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from macer.data.value_range import IMAGE_RANGE, ValueRange, checked_range
from macer.models.build import build_model, normalised
from macer.models.ensembles import ENSEMBLE, Ensemble
from macer.models.networks import MODELS
from macer.models.tensor_files import read_safetensors
from macer.models.weights import Tensors
from macer.system.errors import Mistake

# Limits of what a card may ask for: more is a mistake or an attack, not a model to certify.
MOST_CLASSES = 65_536
MOST_VALUES = 2**21  # per image: two such images in ResNet-18 take 2 GB
MOST_SIZES = 16  # in a shape
MOST_TEXT = 300  # characters of a name
MOST_MEMBERS = 16  # of an ensemble

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # controls, halves of characters


# What a file does not name if it is so.
_OPTIONAL = {"denoiser": "none", "value_range": IMAGE_RANGE, "members": ()}

# In what the members of an ensemble agree with it; each has a normalisation of its own.
SHARED = ("sigma", "dataset", "shape", "classes", "value_range")


@dataclass(frozen=True)
class ModelCard:
    """What a model file says of itself, enough to rebuild and to certify it."""

    architecture: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # (channels, height, width) of images
    mean: tuple[float, ...]  # one per channel; none for inputs that are no images
    std: tuple[float, ...]
    sigma: float
    dataset: str
    denoiser: str = "none"  # before the network; files without one do not name it
    value_range: ValueRange = IMAGE_RANGE  # of the inputs; files of images do not name it
    members: tuple["ModelCard", ...] = ()  # of an ensemble; files of one network do not name them

    def __post_init__(self) -> None:
        checked_range(self.value_range)
        images, count = self.value_range == IMAGE_RANGE, len(self.classes)
        if not self.shape or (images and len(self.shape) != 3):
            raise Mistake(f"shape must be three whole numbers, got {_shortened(self.shape)}")
        _require("shape", len(self.shape) <= MOST_SIZES, f"at most {MOST_SIZES} sizes", self.shape)
        channels = self.shape[0] if images else 0
        for name in ("architecture", "dataset", "denoiser"):
            _check_text(name, getattr(self, name))
        _require("classes", 1 <= count <= MOST_CLASSES, f"1 to {MOST_CLASSES:,} names", count)
        for text in self.classes:
            _check_text("classes", text)
        right = min(self.shape) >= 1 and math.prod(self.shape) <= MOST_VALUES
        _require("shape", right, f"of 1 to {MOST_VALUES:,} values", self.shape)
        right = len(self.mean) == channels and all(map(_is_finite, self.mean))
        _require("mean", right, f"{channels} finite numbers, one per channel", self.mean)
        right = len(self.std) == channels and all(map(_is_positive, self.std))
        _require("std", right, f"{channels} finite numbers > 0, one per channel", self.std)
        _require("sigma", _is_positive(self.sigma), "finite and > 0", self.sigma)
        if self.members or self.architecture == ENSEMBLE:
            self._check_members()

    def _check_members(self) -> None:
        """Refuse what is no ensemble of networks that macer knows, or does not agree with them."""
        count, name = len(self.members), self.architecture
        _require("architecture", name == ENSEMBLE, f"{ENSEMBLE} with members", name)
        _require("denoiser", self.denoiser == "none", "none with members", self.denoiser)
        _require("members", 2 <= count <= MOST_MEMBERS, f"2 to {MOST_MEMBERS} models", count)
        classes = count * len(self.classes)  # each member has a layer of them
        _require("members", classes <= MOST_CLASSES, f"of {MOST_CLASSES:,} classes in all", classes)
        for member in self.members:
            known = member.architecture in MODELS
            _require("members", known, "networks that macer knows", member.architecture)
            for name in SHARED:
                values = [getattr(card, name) for card in (self, member)]
                _require("members", values[0] == values[1], f"of one {name}", values)

    @classmethod
    def from_fields(cls, values: object) -> "ModelCard":
        """The card that `asdict` and JSON made; a Mistake says what is wrong with another."""
        names = [field.name for field in fields(cls) if field.default is MISSING]
        if not isinstance(values, dict) or {*values} - {*_OPTIONAL} != {*names}:
            raise Mistake(f"its card must have the fields {', '.join(names)}")
        return cls(
            architecture=_text("architecture", values["architecture"]),
            classes=tuple(_text("classes", name) for name in _list("classes", values["classes"])),
            shape=_sizes(values["shape"]),
            mean=tuple(_number("mean", number) for number in _list("mean", values["mean"])),
            std=tuple(_number("std", number) for number in _list("std", values["std"])),
            sigma=_number("sigma", values["sigma"]),
            dataset=_text("dataset", values["dataset"]),
            denoiser=_text("denoiser", values.get("denoiser", "none")),
            value_range=_range(values.get("value_range", list(IMAGE_RANGE))),
            members=tuple(map(cls.from_fields, _list("members", values.get("members", [])))),
        )

    def to_dict(self) -> dict[str, object]:
        """The card as a file has it."""
        values = asdict(self) | {"members": tuple(member.to_dict() for member in self.members)}
        return {
            name: value
            for name, value in values.items()
            if name not in _OPTIONAL or value != _OPTIONAL[name]
        }

    def require_images(self, name: str) -> None:
        """Refuse what can be done only with a model of images.

        Args:
            name: of the model, for the message.
        """
        if self.value_range != IMAGE_RANGE:
            raise Mistake(
                f"{name} must be a model of images, got one of inputs of the value_range "
                f"{self.value_range}; macer.open_run(RUN).certify takes those, in Python"
            )

    def build(self, folder: str | None = None) -> nn.Sequential:
        """The network with fresh weights.

        Args:
            folder: where the module of a user's own network must be found.
        """
        if self.members:
            return normalised(
                Ensemble([member.build() for member in self.members]),
                self.architecture,
                num_classes=len(self.classes),
                shape=self.shape,
                mean=self.mean,
                std=self.std,
            )
        return build_model(
            self.architecture,
            num_classes=len(self.classes),
            shape=self.shape,
            mean=self.mean,
            std=self.std,
            denoiser=self.denoiser,
            folder=folder,
        )


def _require(name: str, ok: bool, requirement: str, value: object) -> None:
    if not ok:
        raise Mistake(f"{name} must be {requirement}, got {_shortened(value)}")


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _check_text(name: str, text: str) -> None:
    right = len(text) <= MOST_TEXT and not UNPRINTABLE.search(text)
    _require(name, right, f"printable, of at most {MOST_TEXT} characters", repr(text))


def _is_finite(value: float) -> bool:
    """In the network's arithmetic too, which has fewer bits."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(value)))


def _is_positive(value: float) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        return 0 < float(np.float32(value)) < math.inf


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise Mistake(f"{name} must be text, got {_shortened(value)}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Mistake(f"{name} must be a number, got {_shortened(value)}")
    try:
        return float(value)
    except OverflowError:  # of a whole number
        return math.inf


def _list(name: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise Mistake(f"{name} must be a list, got {_shortened(value)}")
    return value


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(size, int) for size in value):
        raise Mistake(f"shape must be three whole numbers, got {_shortened(value)}")
    return tuple(value)


def _range(value: object) -> ValueRange:
    match value:
        case None:
            return None
        case [int() | float() as low, int() | float() as high]:
            return _number("value_range", low), _number("value_range", high)
    raise Mistake(f"value_range must be null or two numbers, got {_shortened(value)}")


def model_bytes(tensors: Tensors, card: ModelCard) -> bytes:
    """The content of a model file."""
    plain, fields = plain_tensors(tensors), card.to_dict()
    # One text: safetensors writes several in any order, and the same model is the same bytes.
    text = json.dumps({**fields, "digest": _digest(plain, fields)})
    return save_tensors(plain, {"macer": text})


def plain_tensors(tensors: Tensors) -> Tensors:
    """Contiguous copies on the CPU: what safetensors takes."""
    return {
        name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()
    }


def digest_of_tensors(tensors: Mapping[str, object]) -> str:
    """The SHA-256 of tensors: names, shapes, types and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise Mistake(f"a state_dict must hold tensors alone, got {name}, a {kind}")
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _digest(tensors: Mapping[str, Tensor], fields: Mapping[str, object]) -> str:
    text = digest_of_tensors(tensors) + json.dumps(fields)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_model(content: bytes, file: Path) -> tuple[ModelCard, Tensors]:
    """The card and the tensors in a model file's content; nothing that it names is imported.

    Args:
        file: for messages.
    """
    try:
        tensors, metadata = read_safetensors(content)
        values = json.loads(metadata["macer"])
        digest = values.pop("digest", None) if isinstance(values, dict) else None
        card = ModelCard.from_fields(values)
    except (
        SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise Mistake(
            f"{file} must be a model file written by macer train: {error}; for other weights name "
            "their network and add --weights FILE"
        ) from error
    if digest is not None and digest != _digest(tensors, values):
        raise Mistake(
            f"{file} must hold the weights and the card that its digest is of; the file is "
            "damaged or was changed"
        )
    return card, tensors
