"""Prepare a certification: settings checked, the model in its precision, a header per journal."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from macer import __version__
from macer.certification.anytime import ANYTIME, check_seconds
from macer.certification.data_set import Certification
from macer.certification.header import Header
from macer.certification.settings import check_settings
from macer.certification.target import Target, prepare
from macer.data.fingerprint import fingerprint
from macer.data.sets import Split
from macer.models.inference import resolve_precision
from macer.recipes import CertifyRecipe
from macer.smoothing.bounds import READINGS
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import network_rows
from macer.smoothing.sequential import check_radius
from macer.system.errors import Mistake
from macer.system.processor import instruction_set
from macer.system.text import inputs_text, shape_text


def plan_certification(
    target: Target,
    split: Split,
    dataset: str,
    recipe: CertifyRecipe,
    *,
    device: torch.device,
    batch_size: int | None = None,
    soft_betas: Sequence[float] = (),
    part: str = "test",
    family: int | None = None,
    seconds: float | None = None,
) -> Certification:
    """Check settings and prepare the model.

    Args:
        dataset: the name of the data set that the split is of.
        batch_size: noisy images that the network sees at once.
        soft_betas: certify by Bernstein at these β too, from the same samples.
        part: of the data set, test or train.
        family: how many images share the level α, if they do.
        seconds: go on to the next image after so much time; with the bound anytime.
    """
    _check_time(seconds, recipe.bound, soft_betas)
    precision = _precision(recipe, split, device)
    recipe = replace(recipe, precision=precision)  # type: ignore[arg-type]
    recipes = [recipe, *_soft_recipes(recipe, soft_betas)]
    for each in recipes:
        _check(target, split, dataset, each, batch_size)
    model = prepare(target, precision=precision, row_by_row=recipe.row_by_row, device=device)
    entries: dict[str, Any] = {
        "macer": __version__,
        "torch": torch.__version__,
        "model": target.architecture,
        "weights_sha256": target.weights_sha256,
        "dataset": dataset,
        "data_sha256": fingerprint(split),
        "split": part,
        "sigma": target.sigma,
        "chunk": CHUNK,
        "rows": network_rows(device, batch_size, target.shape, row_by_row=recipe.row_by_row),
        "device": device.type,
        "cpu": instruction_set(device),
        "tf32": device.type == "cuda" and torch.backends.cudnn.allow_tf32,
        "family": family,
        "outputs": model.outputs,
        "value_range": None if split.value_range is None else list(split.value_range),
    }
    headers = tuple(
        Header(**entries, **asdict(each), also=other_readings(each)) for each in recipes
    )
    return Certification(model, split, tuple(recipes), headers, seconds)


def _precision(recipe: CertifyRecipe, split: Split, device: torch.device) -> str:
    """That of the recipe; inputs that are no images have neither bf16 nor exact noise."""
    if split.are_images:
        return resolve_precision(recipe.precision, device)
    what = f"for inputs of the value_range {split.value_range}, which are no images"
    if recipe.exact:
        raise Mistake(f"exact must be False {what}, got True; leave exact out")
    if recipe.precision == "bf16":
        raise Mistake(f"precision must be auto or fp32 {what}, got bf16")
    return "fp32"


def other_readings(recipe: CertifyRecipe) -> list[str]:
    """The other bounds that may read the same counts at level α, fixed before any is drawn.

    A journal of one radius has none: how many samples it draws depends on the votes.
    """
    if recipe.radius is not None or recipe.bound not in READINGS:
        return []
    return [name for name in READINGS if name != recipe.bound]


def _soft_recipes(recipe: CertifyRecipe, betas: Sequence[float]) -> list[CertifyRecipe]:
    if betas and recipe.radius is not None:
        raise Mistake(f"soft_betas must be left out with a radius, got {list(betas)}")
    if len(set(betas)) < len(betas):
        raise Mistake(f"soft_betas must differ, got {list(betas)}")
    return [replace(recipe, bound="bernstein", beta=beta) for beta in betas]


def _check_time(seconds: float | None, bound: str, soft_betas: Sequence[float]) -> None:
    check_seconds(seconds)
    if seconds is not None and bound != ANYTIME:
        raise Mistake(
            f"seconds must be left out with the {bound} bound, which needs all n samples, got "
            f"{seconds:g}; add --bound {ANYTIME}"
        )
    if seconds is not None and soft_betas:
        raise Mistake(f"soft_betas must be left out with seconds, got {list(soft_betas)}")


def _check(
    target: Target, split: Split, dataset: str, recipe: CertifyRecipe, batch_size: int | None
) -> None:
    if batch_size is not None and batch_size < 1:
        raise Mistake(f"batch_size must be at least 1, got {batch_size}")
    check_settings(
        sigma=target.sigma,
        n0=recipe.n0,
        n=recipe.n,
        alpha=recipe.alpha,
        bound=recipe.bound,
        beta=recipe.beta,
    )
    if recipe.radius is not None:
        check_radius(recipe.radius, sigma=target.sigma, alpha=recipe.alpha, n_max=recipe.n)
    shape = tuple(split.images.shape[1:])
    if shape != target.shape:
        raise Mistake(
            f"{target.name} takes {inputs_text(target.shape)}, those of {dataset} are "
            f"{shape_text(shape)}"
        )
