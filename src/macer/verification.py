"""The audit of a run's certificates: recompute, compare hashes, repeat a sample."""

import random
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from macer.certification import Certificate, conclude
from macer.certifying import certify_by_recipes
from macer.data import Split, fingerprint, pixels_sha256
from macer.fixed_radius import conclude_at
from macer.inference import for_inference
from macer.journal import JOURNAL, Contents, Header, Record, read_journal, table_lines
from macer.mistake import AuditFailed, Mistake
from macer.recipes import CertifyRecipe
from macer.sequential import looks
from macer.smoothing import Tally
from macer.targets import Target


def recompute(contents: Contents) -> int:
    """Draw every conclusion again from its counts; return how many there are."""
    for record in contents.records.values():
        if _concluded(contents, record) != record.certificate:
            raise AuditFailed(f"image {record.idx}: its counts do not support its certificate")
        total, drawn = sum(record.certificate.estimation), record.certificate.drawn
        if drawn not in _sample_sizes(contents.header):
            raise AuditFailed(f"image {record.idx}: {drawn} samples, of n = {contents.header['n']}")
        if contents.header["bound"] == "clopper-pearson" and total > drawn:
            raise AuditFailed(f"image {record.idx}: {total} votes of {drawn} samples")
    return len(contents.records)


def _sample_sizes(header: Header) -> list[int]:
    """How many samples may lie behind a certificate; none where only a score was wanted."""
    sizes = [header["n"]] if header["radius"] is None else looks(header["n"])
    return [*sizes, 0] if header["score"] else sizes


def _concluded(contents: Contents, record: Record) -> Certificate:
    header, evidence = contents.header, record.certificate
    selection, estimation = (
        torch.tensor([counts], dtype=torch.int64)
        for counts in (evidence.selection, evidence.estimation)
    )
    squares = torch.tensor([evidence.squares or evidence.estimation], dtype=torch.int64)
    drawn = torch.tensor([evidence.drawn])
    level = {name: header[name] for name in ("sigma", "n", "alpha", "exact")}
    if header["radius"] is not None:
        radius = header["radius"]
        [certificate] = conclude_at(selection, estimation, drawn, radius=radius, **level)
        return certificate
    [certificate] = conclude(
        Tally(selection, selection, selection),
        Tally(estimation, estimation, squares),
        bound=header["bound"],
        drawn=drawn,
        **level,
    )
    return certificate


def check_sources(contents: Contents, target: Target, split: Split) -> None:
    """The model and the data must be those that the certificates were made with."""
    for name, found in (
        ("weights_sha256", target.weights_sha256),
        ("data_sha256", fingerprint(split)),
    ):
        if contents.header[name] != found:
            raise AuditFailed(
                f"{name} is {found[:16]}…, the journal names {contents.header[name][:16]}…"
            )
    if target.architecture != contents.header["model"]:
        raise AuditFailed(
            f"the model is {target.architecture}, the journal names {contents.header['model']}"
        )
    for record in contents.records.values():
        if record.label != int(split.labels[record.idx]):
            raise AuditFailed(f"image {record.idx}: its label is not the data set's")
        [image] = np.asarray(split.images[[record.idx]])
        if record.pixels != pixels_sha256(split, image):
            raise AuditFailed(f"image {record.idx}: its pixels are not those that were certified")


def check_table(contents: Contents, path: Path) -> None:
    """The table beside the journal must be the one that the journal gives."""
    if not path.is_file():
        raise AuditFailed(f"there is no {path}; certify again to write it from its journal")
    if path.read_bytes() != "".join(table_lines(contents)).encode():
        raise AuditFailed(f"{path} is not the table of its journal; certify again to write it anew")


def resample(
    contents: Contents, target: Target, split: Split, *, images: int, device: torch.device
) -> Iterator[int]:
    """Certify random images again from their seeds; yield each that gives equal counts."""
    if contents.header["device"] != device.type:  # whose arithmetic is another
        raise Mistake(
            f"device must be {contents.header['device']}, that of the certificates, to draw their "
            f"samples again, got {device.type}"
        )
    chosen = random.SystemRandom().sample(
        sorted(contents.records), min(images, len(contents.records))
    )
    header = contents.header  # an older one may lack settings that had only one value then
    recipe = CertifyRecipe(
        **{f.name: header[f.name] for f in fields(CertifyRecipe) if f.name in header}
    )
    model = for_inference(
        target.model, shape=target.shape, precision=recipe.precision, device=device
    )
    for idx in chosen:
        [[certificate]] = certify_by_recipes(
            model,
            torch.from_numpy(np.asarray(split.images[[idx]])).to(device),
            [recipe],
            sigma=contents.header["sigma"],
            batch_size=contents.header["rows"],
            indices=[idx],
            labels=split.labels[[idx]].tolist(),
        )
        if certificate != contents.records[idx].certificate:
            raise AuditFailed(f"image {idx}: drawing its samples again gives other counts")
        yield idx


def read_certificates(folder: Path) -> Contents:
    """The journal of a folder; damaged records count as a failure."""
    contents = read_journal(folder / JOURNAL)
    if contents.dropped:
        raise AuditFailed(f"{contents.dropped} records of the journal are damaged")
    return contents
