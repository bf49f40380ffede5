"""The list of the zoo: each model, and the ACR of the certificates that come with it."""

from dataclasses import dataclass
from pathlib import Path

import torch

from macer.certification.conclusions import conclude
from macer.certification.journal import Contents, read_journal
from macer.reporting.logs import read_log
from macer.reporting.tables import RADII, ScoreRow, tabulate
from macer.reporting.texts import images_text, setting, thousands, with_error
from macer.runs.names import JOURNAL
from macer.runs.trained_model import load_model, model_file
from macer.runs.zoo import PREFIX, shipped_certificates, zoo_names
from macer.smoothing.bounds import READINGS
from macer.smoothing.tally import Tally
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

OTHER = "runner-up"  # the other reading of the counts
HEADER = ("name", "network", "data set", "σ", "parameters", "ACR", OTHER, "images", "n", "α")
NOTE = (
    "ACR is by Clopper and Pearson's bound, and beside it by the runner-up's, from the same "
    "counts. † That bound was chosen after they were drawn: not at level α, and no certificate."
)


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
    other_acr: float | None  # by the bound OTHER
    other_fixed: bool | None  # before the counts were drawn

    def cells(self) -> tuple[str, ...]:
        """The cells of HEADER; those of the certificates are empty where there are none."""
        size = f"{self.parameters:,}"
        about = (self.name, self.network, self.dataset, setting(self.sigma), size)
        if self.scores is None:
            return (*about, *[""] * (len(HEADER) - len(about)))
        row = self.scores
        images = images_text(row.images, row.which, row.asked)
        acr = with_error(row.acr, row.standard_error)
        return (*about, acr, self._other(), images, thousands(row.n), setting(row.alpha))

    def _other(self) -> str:
        if self.other_acr is None:
            return ""
        return f"{self.other_acr:.3f}" + ("" if self.other_fixed else " †")


def catalogue() -> list[ZooModel]:
    """The models of the zoo."""
    return [_model(PREFIX + name) for name in zoo_names()]


def _model(target: str) -> ZooModel:
    model, card = load_model(target)
    folder = shipped_certificates(target)
    contents = _of_radii(folder, target) if folder.is_dir() else None
    return ZooModel(
        name=target,
        network=card.architecture,
        dataset=card.dataset,
        sigma=card.sigma,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        bytes=model_file(target).stat().st_size,
        scores=tabulate([read_log(folder)], RADII).rows[0] if contents else None,
        other_acr=_other_acr(contents) if contents else None,
        other_fixed=contents.header.fixed(OTHER, contents.header.alpha) if contents else None,
    )


def _of_radii(folder: Path, target: str) -> Contents | None:
    """The journal of the certificates, if they are of largest radii, not of a given radius.

    Certificates of another model are refused.
    """
    contents = read_journal(folder / JOURNAL)
    sha256 = sha256_of_file(model_file(target))
    if contents.header.weights_sha256 != sha256:
        raise Mistake(
            f"the certificates in {folder} must be of {target}, SHA-256 {sha256[:16]}…, "
            f"got {contents.header.weights_sha256[:16]}…; certify it again"
        )
    return contents if contents.header.radius is None else None


def _other_acr(contents: Contents) -> float | None:
    """The ACR that the same counts give by the bound OTHER; None if they are no votes of n."""
    header, records = contents.header, list(contents.records.values())
    if header.bound not in READINGS:
        return None
    evidence = [record.certificate for record in records]
    tallies = (
        Tally(votes, votes, votes)
        for votes in (
            torch.tensor([each.selection for each in evidence]),
            torch.tensor([each.estimation for each in evidence]),
        )
    )
    certificates = conclude(
        *tallies,
        bound=OTHER,
        sigma=header.sigma,
        n=header.n,
        alpha=header.alpha,
    )
    right = [
        certificate.radius * (certificate.label == record.label)
        for certificate, record in zip(certificates, records, strict=True)
    ]
    return sum(right) / len(right)
