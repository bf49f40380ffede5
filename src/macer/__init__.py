"""macer: train and certify image classifiers that provably resist ℓ₂ attacks.

The names below are imported when first used: `import macer` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from macer.certification.anytime import certify_anytime
    from macer.certification.certificate import ABSTAIN, Certificate
    from macer.certification.fixed_radius import certify_at
    from macer.certification.largest_radius import (
        Kind,
        certify,
        certify_bernstein,
        certify_hoeffding,
        certify_kinds,
        predict,
    )
    from macer.certification.smooth import Smooth
    from macer.experiments.from_python import Certified, TrainedRun, open_run, report, train
    from macer.losses import macer_loss
    from macer.models.inference import for_inference
    from macer.recipes import CertifyRecipe, Loss, TrainRecipe
    from macer.runs.trained_model import load_model
    from macer.smoothing.radius import certified_radius
    from macer.system.errors import Mistake

__all__ = [
    "ABSTAIN",
    "Certificate",
    "Certified",
    "CertifyRecipe",
    "Kind",
    "Loss",
    "Mistake",
    "Smooth",
    "TrainRecipe",
    "TrainedRun",
    "certified_radius",
    "certify",
    "certify_anytime",
    "certify_at",
    "certify_bernstein",
    "certify_hoeffding",
    "certify_kinds",
    "for_inference",
    "load_model",
    "macer_loss",
    "open_run",
    "predict",
    "report",
    "train",
]

_MODULES = {
    "certification.certificate": "ABSTAIN Certificate",
    "certification.largest_radius": (
        "Kind certify certify_bernstein certify_hoeffding certify_kinds predict"
    ),
    "certification.fixed_radius": "certify_at",
    "certification.anytime": "certify_anytime",
    "models.inference": "for_inference",
    "losses": "macer_loss",
    "system.errors": "Mistake",
    "smoothing.radius": "certified_radius",
    "recipes": "CertifyRecipe Loss TrainRecipe",
    "runs.trained_model": "load_model",
    "certification.smooth": "Smooth",
    "experiments.from_python": "Certified TrainedRun open_run report train",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'macer' has no attribute {name!r}")
    return getattr(import_module(f"macer.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
