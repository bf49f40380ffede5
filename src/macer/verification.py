"""The audit of a run's certificates: recompute, compare hashes, repeat a sample."""

import random
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch

from macer.certification import Certificate, certify, conclude
from macer.certifying import Target
from macer.data import Split, fingerprint
from macer.journal import Contents, Record, read_journal, table_text
from macer.mistake import AuditFailed
from macer.recipes import CertifyRecipe
from macer.smoothing import Tally


def recompute(contents: Contents) -> int:
    """Draw every conclusion again from its counts; return how many there are."""
    for record in contents.records.values():
        if _concluded(contents, record) != record.certificate:
            raise AuditFailed(f"image {record.idx}: its counts do not support its certificate")
        total = sum(record.certificate.estimation)
        if contents.header["bound"] == "clopper-pearson" and total > contents.header["n"]:
            raise AuditFailed(f"image {record.idx}: {total} votes of n = {contents.header['n']}")
    return len(contents.records)


def _concluded(contents: Contents, record: Record) -> Certificate:
    header, evidence = contents.header, record.certificate
    selection, estimation = (
        torch.tensor([counts], dtype=torch.int64)
        for counts in (evidence.selection, evidence.estimation)
    )
    squares = torch.tensor([evidence.squares or evidence.estimation], dtype=torch.int64)
    [certificate] = conclude(
        Tally(selection, selection, selection),
        Tally(estimation, estimation, squares),
        sigma=header["sigma"],
        n=header["n"],
        alpha=header["alpha"],
        bound=header["bound"],
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
    for record in contents.records.values():
        if record.label != int(split.labels[record.idx]):
            raise AuditFailed(f"image {record.idx}: its label is not the data set's")


def check_table(contents: Contents, path: Path) -> None:
    """The table beside the journal must be the one that the journal gives."""
    if path.read_text(encoding="utf-8") != table_text(contents):
        raise AuditFailed(f"{path} is not the table of its journal; certify again to write it anew")


def resample(
    contents: Contents, target: Target, split: Split, *, images: int, device: torch.device
) -> Iterator[int]:
    """Certify random images again from their seeds; yield each that gives equal counts."""
    chosen = random.SystemRandom().sample(
        sorted(contents.records), min(images, len(contents.records))
    )
    recipe = CertifyRecipe(**{f.name: contents.header[f.name] for f in fields(CertifyRecipe)})
    model = target.model.to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for idx in chosen:
        [certificate] = certify(
            model,
            torch.from_numpy(split.images[[idx]]).to(device),
            sigma=contents.header["sigma"],
            batch_size=contents.header["rows"],
            indices=[idx],
            labels=split.labels[[idx]].tolist() if recipe.score else None,
            **recipe.arguments(),
        )
        if certificate != contents.records[idx].certificate:
            raise AuditFailed(f"image {idx}: drawing its samples again gives other counts")
        yield idx


def read_certificates(folder: Path) -> Contents:
    """The journal of a folder; damaged records count as a failure."""
    contents = read_journal(folder / "certificates.journal")
    if contents.dropped:
        raise AuditFailed(f"{contents.dropped} records of the journal are damaged")
    return contents
