"""The audit of a run's certificates: recompute, compare with their sources, draw some again."""

import math
import random
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from macer.certification.certificate import Certificate
from macer.certification.conclusions import conclude, conclude_at
from macer.certification.data_set import certify_by_recipes, sampler_by
from macer.certification.header import Header
from macer.certification.journal import Contents, read_journal
from macer.certification.record import Record
from macer.certification.scope import describe, images_of
from macer.certification.settings import least_useful_n
from macer.certification.table import table_lines
from macer.certification.target import PreparedModel, Target, other_function, prepare
from macer.data.fingerprint import fingerprint, pixels_sha256
from macer.data.sets import Split
from macer.data.value_range import ValueRange
from macer.recipes import CertifyRecipe
from macer.runs.names import JOURNAL
from macer.smoothing.bounds import bound_named
from macer.smoothing.copies import CHUNK
from macer.smoothing.sequential import looks
from macer.smoothing.tally import SOFT_UNIT, Tally
from macer.system.errors import AuditFailed, Mistake
from macer.system.processor import instruction_set

# How far a bound or radius that is computed again may be off, relative to itself and to σ: on other
# processors libraries round the last bits differently. A table prints a million times less exactly.
_ROUNDING = 2.0**-40

# By default so many images are drawn again that a false record is found with this probability, if
# one in a hundred is false.
CONFIDENCE = 0.95


def read_certificates(folder: Path) -> Contents:
    """The journal of a folder; damaged, doubled and misplaced records count as a failure."""
    contents = read_journal(folder / JOURNAL)
    if contents.dropped:
        raise AuditFailed(f"{contents.dropped} records of the journal are damaged")
    if contents.doubled:
        raise AuditFailed(f"image {contents.doubled[0]} has two records")
    if contents.misplaced:
        raise AuditFailed(
            f"{contents.misplaced} lines of the journal do not follow the line before them: lines "
            "were removed, added or put in another order"
        )
    return contents


def check_complete(contents: Contents, expected: Iterable[int] = (), *, partial: bool) -> None:
    """The journal must have every image that it was asked for, and no other.

    Args:
        expected: images that the journal must have too, whatever it was asked for.
        partial: accept that images are missing.
    """
    header = contents.header
    if lacking := sorted(set(expected).difference(contents.records)):
        more = f", and {len(lacking) - 1} others," if len(lacking) > 1 else ""
        raise AuditFailed(f"image {lacking[0]}{more} must be certified")
    asked = images_of(contents.scope or ())
    if contents.scope is not None and (others := sorted(set(contents.records) - asked)):
        raise AuditFailed(f"image {others[0]}: the journal was not asked for it")
    count = max(len(asked), len(contents.records))
    if header.family is not None and count > header.family:
        raise AuditFailed(f"{count} images share the level of {header.family}")
    if partial:
        return
    if contents.scope is None:
        raise AuditFailed(
            "the journal does not say which images were to be certified, as older ones do not; "
            "--partial verifies those that it has"
        )
    if missing := contents.missing:
        raise AuditFailed(
            f"{len(contents.records)} of {len(asked)} images are certified, image {missing[0]} is "
            "not; continue `macer certify`, or verify those that are there with --partial"
        )


def recompute(contents: Contents) -> int:
    """Draw every conclusion again from its counts; return how many there are."""
    sizes = _sample_sizes(contents.header)
    for record in contents.records.values():
        evidence = record.certificate
        if evidence.drawn not in sizes and (evidence.drawn > 0 or not contents.header.score):
            raise AuditFailed(
                f"image {record.idx}: {evidence.drawn} samples, of n = {contents.header.n}"
            )
        _check_counts(record, contents.header)
        if not _follows(evidence, concluded(contents.header, record), contents.header.sigma):
            raise AuditFailed(f"image {record.idx}: its counts do not support its certificate")
    return len(contents.records)


def _sample_sizes(header: Header) -> Container[int]:
    """The numbers of samples that a certificate may rest on; a score may also rest on none."""
    if (bound := bound_named(header.bound)).anytime:
        return range(least_useful_n(bound, header.alpha), header.n + 1)
    return [header.n] if header.radius is None else looks(header.n)


def _check_counts(record: Record, header: Header) -> None:
    """Refuse more votes than samples, and sums that outputs of a soft classifier cannot have."""
    evidence, is_soft = record.certificate, bool(record.certificate.squares)
    if is_soft != bound_named(header.bound).soft:
        raise AuditFailed(f"image {record.idx}: its counts are not those of {header.bound}")
    unit = int(1 / SOFT_UNIT) if is_soft else 1
    for what, counts, drawn in (
        ("selection", evidence.selection, header.n0),
        ("estimation", evidence.estimation, evidence.drawn),
    ):
        if sum(counts) > drawn * unit:
            votes = "" if is_soft else f"{sum(counts)} votes of "
            raise AuditFailed(f"image {record.idx}: {votes}{drawn} samples, by {what}")
    for first, second in zip(evidence.estimation, evidence.squares, strict=False):
        # Of numbers in [0, 1]: (Σz)² ≤ n Σz² and Σz² ≤ Σz.
        if second > first * unit or first * first > second * evidence.drawn:
            raise AuditFailed(f"image {record.idx}: no outputs have these sums of squares")
    if header.score and (evidence.drawn > 0) != (evidence.selected == record.label):
        raise AuditFailed(
            f"image {record.idx}: {evidence.drawn} samples, though a score estimates right classes "
            "and no others"
        )


def _follows(recorded: Certificate, again: Certificate, sigma: float) -> bool:
    """Whether a certificate is the one that its counts give, up to rounding in the last bits."""
    if (recorded.p_b is None) != (again.p_b is None):
        return False
    rest = replace(recorded, radius=again.radius, p_a=again.p_a, p_b=again.p_b) == again
    return (
        rest
        and math.isclose(recorded.p_a, again.p_a, rel_tol=_ROUNDING)
        and math.isclose(recorded.p_b or 0.0, again.p_b or 0.0, rel_tol=_ROUNDING)
        and math.isclose(
            recorded.radius, again.radius, rel_tol=_ROUNDING, abs_tol=_ROUNDING * sigma
        )
    )


def concluded(header: Header, record: Record) -> Certificate:
    """The certificate that a record's counts give, by the header's bound and level."""
    evidence = record.certificate
    selection, estimation = (
        torch.tensor([counts], dtype=torch.int64)
        for counts in (evidence.selection, evidence.estimation)
    )
    squares = torch.tensor([evidence.squares or evidence.estimation], dtype=torch.int64)
    drawn = torch.tensor([evidence.drawn])
    if header.radius is not None:
        [certificate] = conclude_at(
            selection,
            estimation,
            drawn,
            radius=header.radius,
            sigma=header.sigma,
            n=header.n,
            alpha=header.alpha,
            exact=header.exact,
        )
        return certificate
    [certificate] = conclude(
        Tally(selection, selection, selection),
        Tally(estimation, estimation, squares),
        bound=header.bound,
        drawn=drawn,
        sigma=header.sigma,
        n=header.n,
        alpha=header.alpha,
        exact=header.exact,
    )
    return certificate


def check_data_set(contents: Contents, name: str) -> None:
    """The data set, and the size that its photographs are fitted to, must be the journal's."""
    if name != contents.header.dataset:
        raise AuditFailed(f"the data set is {name}, the journal names {contents.header.dataset}")


def check_sources(
    contents: Contents, target: Target, split: Split, device: torch.device
) -> PreparedModel:
    """The data and the model must be those that the certificates were made with.

    Returns the model as it was certified, for drawing samples again.
    """
    header = contents.header
    if header.data_sha256 != (data_sha256 := fingerprint(split)):
        raise AuditFailed(
            f"data_sha256 is {data_sha256[:16]}…, the journal names {header.data_sha256[:16]}…"
        )
    model = check_model(contents, target, split.value_range, device)
    for record in contents.records.values():
        _check_image(record, split)
    return model


def check_model(
    contents: Contents, target: Target, value_range: ValueRange, device: torch.device
) -> PreparedModel:
    """The model must be the one that the certificates are of; returns it as it was certified.

    Args:
        value_range: of the model's inputs.
    """
    header = contents.header
    if header.value_range != (None if value_range is None else list(value_range)):
        raise AuditFailed(f"value_range is {value_range}, the journal names {header.value_range}")
    if header.sigma != target.sigma:
        raise AuditFailed(f"sigma is {target.sigma:g}, the journal names {header.sigma:g}")
    model = prepare(target, precision=header.precision, row_by_row=header.row_by_row, device=device)
    if other := other_function(header, model):
        raise AuditFailed(other)
    for idx, record in contents.records.items():
        if len(record.certificate.selection) != target.num_classes:
            raise AuditFailed(f"image {idx}: its counts are not of {target.num_classes} classes")
    return model


def _check_image(record: Record, split: Split) -> None:
    if record.idx >= len(split.labels):
        raise AuditFailed(f"image {record.idx}: the data set has {len(split.labels)} images")
    if record.label != int(split.labels[record.idx]):
        raise AuditFailed(f"{split.image(record.idx)}: its label is not the data set's")
    [image] = np.asarray(split.images[[record.idx]])
    if record.pixels != pixels_sha256(split, image):
        raise AuditFailed(
            f"{split.image(record.idx)}: its pixels are not those that were certified"
        )


def check_table(contents: Contents, path: Path) -> None:
    """The table beside the journal must be the one that the journal gives."""
    if not path.is_file():
        raise AuditFailed(f"there is no {path}; certify again to write it from its journal")
    if path.read_bytes() != "".join(table_lines(contents)).encode():
        raise AuditFailed(f"{path} is not the table of its journal; certify again to write it anew")


def power(images: int, drawn: int) -> float:
    """The probability that `drawn` of so many images find a false record, if one in 100 is false.

    1 − Πᵢ (N − f − i) / (N − i),  i < drawn;  f = ⌈N/100⌉ false records among N
    """
    false = math.ceil(images / 100)
    missed = 1.0
    for i in range(min(drawn, images)):
        missed *= max(images - false - i, 0) / (images - i)
    return 1.0 - missed


def enough(images: int) -> int:
    """The fewest images to draw again that find one of a hundred false records with CONFIDENCE."""
    return next((drawn for drawn in range(images) if power(images, drawn) >= CONFIDENCE), images)


def elsewhere(header: Header, device: torch.device) -> str | None:
    """Why the samples cannot be drawn again here: other arithmetic may give other counts."""
    this_machine = {
        "device": device.type,
        "cpu": instruction_set(device),
        "torch": torch.__version__,
        "chunk": CHUNK,
    }
    for name, present in this_machine.items():
        made = getattr(header, name)
        if made is None and present is not None:
            return f"the journal does not say which {name} they were drawn on"
        if made != present:
            return f"{name} must be {made}, got {present}"
    return None


def resample(
    contents: Contents, model: PreparedModel, split: Split, *, images: int
) -> Iterator[int]:
    """Certify random images again from their seeds; yield each that gives equal counts."""
    if reason := elsewhere(contents.header, model.device):
        raise Mistake(f"samples cannot be drawn again here: {reason}; use --resample 0")
    chosen = random.SystemRandom().sample(
        sorted(contents.records), min(images, len(contents.records))
    )
    header = contents.header
    for idx in chosen:
        recorded = contents.records[idx].certificate
        recipes = [_recipe(header, recorded)]
        image = torch.from_numpy(np.asarray(split.images[[idx]])).to(model.device)
        sampler = sampler_by(
            recipes, model.network, image, sigma=header.sigma, indices=[idx],
            batch_size=header.rows, value_range=split.value_range,
        )  # fmt: skip
        labels = split.labels[[idx]].tolist()
        [[certificate]] = certify_by_recipes(sampler, recipes, labels=labels)
        if not _follows(recorded, certificate, header.sigma):
            raise AuditFailed(f"{split.image(idx)}: drawing its samples again gives other counts")
        yield idx


def _recipe(header: Header, recorded: Certificate) -> CertifyRecipe:
    """The settings that draw a certificate's samples again: as many as it rests on, if any."""
    if bound_named(header.bound).anytime and recorded.drawn:
        return replace(header.recipe, n=recorded.drawn)
    return header.recipe


def scope_line(contents: Contents) -> str:
    """How many of the images that were asked for are certified."""
    if contents.scope is None:
        return f"{len(contents.records)} images; the journal does not say which were asked for"
    asked = len(images_of(contents.scope))
    return f"{len(contents.records)} of {asked} images asked for: {describe(contents.scope)}"
