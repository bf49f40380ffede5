"""The list of the zoo: what each model is, and the ACR of the certificates that come with it."""

from pathlib import Path

from macer.files import sha256_of_file
from macer.journal import JOURNAL, read_journal
from macer.logs import describe_images, read_log
from macer.mistake import Mistake
from macer.run import load_model, model_file
from macer.scores import average_certified_radius, standard_error
from macer.tables import images_text, setting, thousands, with_error
from macer.zoo import PREFIX, shipped_certificates, zoo_names

HEADER = ("name", "network", "data set", "σ", "parameters", "bytes", "ACR", "images", "n", "α")


def catalogue() -> list[tuple[str, ...]]:
    """A row for each model of the zoo, its cells those of HEADER."""
    return [_row(PREFIX + name) for name in zoo_names()]


def _row(target: str) -> tuple[str, ...]:
    model, card = load_model(target)
    return (
        target,
        card.architecture,
        card.dataset,
        setting(card.sigma),
        f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        f"{model_file(target).stat().st_size:,}",
        *_certified(target),
    )


def _certified(target: str) -> tuple[str, str, str, str]:
    """ACR, images, n and α; empty for a model that came without certificates of radii."""
    folder = shipped_certificates(target)
    if not folder.is_dir() or not _of_radii(folder, target):
        return ("", "", "", "")
    log = read_log(folder)
    return (
        with_error(average_certified_radius(log), standard_error(log)),
        images_text(len(log.idx), describe_images(log)),
        thousands(log.n),
        setting(log.alpha),
    )


def _of_radii(folder: Path, target: str) -> bool:
    """Whether the certificates are of largest radii, not of a given one; they must be its own."""
    header = read_journal(folder / JOURNAL).header
    sha256 = sha256_of_file(model_file(target))
    if header["weights_sha256"] != sha256:
        raise Mistake(
            f"the certificates in {folder} must be of {target}, SHA-256 {sha256[:16]}…, "
            f"got {header['weights_sha256'][:16]}…; certify it again"
        )
    return header["radius"] is None
