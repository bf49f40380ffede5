"""macer: train and certify image classifiers that provably resist ℓ₂ attacks.

The names below are imported when first used: `import macer` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from macer.certificate import ABSTAIN, Certificate
    from macer.certification import (
        Kind,
        certify,
        certify_bernstein,
        certify_hoeffding,
        certify_kinds,
        predict,
    )
    from macer.fixed_radius import certify_at
    from macer.inference import for_inference
    from macer.losses import macer_loss
    from macer.mistake import Mistake
    from macer.radius import certified_radius
    from macer.recipes import CertifyRecipe, TrainRecipe
    from macer.run import load_model
    from macer.smooth import Smooth
    from macer.training import train

__all__ = [
    "ABSTAIN",
    "Certificate",
    "CertifyRecipe",
    "Kind",
    "Mistake",
    "Smooth",
    "TrainRecipe",
    "certified_radius",
    "certify",
    "certify_at",
    "certify_bernstein",
    "certify_hoeffding",
    "certify_kinds",
    "for_inference",
    "load_model",
    "macer_loss",
    "predict",
    "train",
]

_MODULES = {
    "certificate": "ABSTAIN Certificate",
    "certification": ("Kind certify certify_bernstein certify_hoeffding certify_kinds predict"),
    "fixed_radius": "certify_at",
    "inference": "for_inference",
    "losses": "macer_loss",
    "mistake": "Mistake",
    "radius": "certified_radius",
    "recipes": "CertifyRecipe TrainRecipe",
    "run": "load_model",
    "smooth": "Smooth",
    "training": "train",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'macer' has no attribute {name!r}")
    return getattr(import_module(f"macer.{_HOMES[name]}"), name)
