"""The list of the zoo: each model, and the ACR of the certificates that come with it."""

from dataclasses import dataclass
from pathlib import Path

from macer.certification.journal import read_journal
from macer.reporting.logs import read_log
from macer.reporting.tables import RADII, ScoreRow, tabulate
from macer.reporting.texts import images_text, setting, thousands, with_error
from macer.runs.names import JOURNAL
from macer.runs.trained_model import load_model, model_file
from macer.runs.zoo import PREFIX, shipped_certificates, zoo_names
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

HEADER = ("name", "network", "data set", "σ", "parameters", "ACR", "images", "n", "α")


@dataclass(frozen=True)
class ZooModel:
    """A model of the zoo, and the scores of its certificates of largest radii."""

    name: str
    network: str
    dataset: str
    sigma: float
    parameters: int
    bytes: int
    scores: ScoreRow | None

    def cells(self) -> tuple[str, ...]:
        """The cells of HEADER; ACR, images, n and α are empty where there are no scores."""
        size = f"{self.parameters:,}"
        about = (self.name, self.network, self.dataset, setting(self.sigma), size)
        if self.scores is None:
            return (*about, "", "", "", "")
        row = self.scores
        images = images_text(row.images, row.which, row.asked)
        acr = with_error(row.acr, row.standard_error)
        return (*about, acr, images, thousands(row.n), setting(row.alpha))


def catalogue() -> list[ZooModel]:
    """The models of the zoo."""
    return [_model(PREFIX + name) for name in zoo_names()]


def _model(target: str) -> ZooModel:
    model, card = load_model(target)
    return ZooModel(
        name=target,
        network=card.architecture,
        dataset=card.dataset,
        sigma=card.sigma,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        bytes=model_file(target).stat().st_size,
        scores=_scores(target),
    )


def _scores(target: str) -> ScoreRow | None:
    folder = shipped_certificates(target)
    if not folder.is_dir() or not _of_radii(folder, target):
        return None
    return tabulate([read_log(folder)], RADII).rows[0]


def _of_radii(folder: Path, target: str) -> bool:
    """Whether the certificates are of largest radii, not of a given radius.

    Certificates of another model are refused.
    """
    header = read_journal(folder / JOURNAL).header
    sha256 = sha256_of_file(model_file(target))
    if header.weights_sha256 != sha256:
        raise Mistake(
            f"the certificates in {folder} must be of {target}, SHA-256 {sha256[:16]}…, "
            f"got {header.weights_sha256[:16]}…; certify it again"
        )
    return header.radius is None
