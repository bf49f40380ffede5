"""The paper's claim in miniature: Gaussian training against MACER on the embedded data."""

from pathlib import Path
from typing import NamedTuple

import torch

from macer.certification.data_set import certify_data_set
from macer.certification.preparation import plan_certification
from macer.certification.target import find_target
from macer.data.selection import Selection
from macer.data.sets import classes_of, load
from macer.recipes import CertifyRecipe, named_recipe
from macer.reporting.curves import plot
from macer.reporting.logs import CertificateLog, read_log
from macer.reporting.page import write_page
from macer.reporting.provenance import provenance
from macer.reporting.scores import paired_difference
from macer.system.errors import Mistake
from macer.system.progress import note
from macer.training.loop import train

# Enough images for a clear difference, few enough for a minute on two cores.
CERTIFY = CertifyRecipe(n0=100, n=2000)
SKIP = 10
COMPARED = {"Gaussian": "demo-gaussian", "MACER": "demo"}


class Made(NamedTuple):
    """The demo's certificates of both models, and the files that show them."""

    logs: tuple[CertificateLog, CertificateLog]
    plot: Path
    html: Path

    def line(self) -> str:
        """The difference of the two ACRs in words."""
        gaussian, macer = self.logs
        difference, error, images = paired_difference(macer, gaussian)
        errors = f", {difference / error:.1f} standard errors" if error else ""
        return (
            f"MACER − Gaussian: {difference:+.3f} ± {error:.3f} in ACR over the same {images} "
            f"images{errors}"
        )


def run_demo(out: Path, device: torch.device) -> Made:
    """Train both models, certify them on the same test images, and draw curves and a page."""
    if out.exists():
        raise Mistake(f"{out} exists already; choose another --out or remove it")
    for name, recipe_name in COMPARED.items():
        recipe = named_recipe(recipe_name)
        note(f"{name}: macer train {recipe_name}")
        split = load(recipe.dataset, "train")
        train(recipe, split, classes_of(recipe.dataset), out / name, device=device)
    gaussian, macer = (_certified(out / name, device) for name in COMPARED)
    made = Made((gaussian, macer), out / "curves.png", out / "report.html")
    plot(made.logs, made.plot)
    models = [model for name in COMPARED if (model := provenance(out / name, name))]
    title = "macer demo: Gaussian training against MACER"
    write_page(made.logs, made.html, title=title, models=models)
    return made


def _certified(folder: Path, device: torch.device) -> CertificateLog:
    split = load("mnist-sample", "test")
    target = find_target(str(folder), sigma=None, split=split, classes=classes_of("mnist-sample"))
    indices = Selection(skip=SKIP).among(len(split.images))
    certification = plan_certification(target, split, "mnist-sample", CERTIFY, device=device)
    certify_data_set(certification, indices, folder)
    return read_log(folder)
