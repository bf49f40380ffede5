from dataclasses import replace

import pytest
import torch
from half_space import SHAPE, SIGMA, SPLIT, HalfSpace
from journals import HEADER

from macer.certification.journal import open_journal, read_journal
from macer.certification.largest_radius import certify
from macer.certification.record import Record
from macer.certification.target import Target


@pytest.fixture(scope="module")
def target():
    return Target(HalfSpace(), "half", "half", SIGMA, SHAPE, 2, "")


@pytest.fixture
def journal(tmp_path, target):
    """Writes a journal of the half-space's certificates, changed as a test wants."""

    def write(change=lambda certificate: certificate, *, bound="clopper-pearson", beta=1.0):
        certificates = certify(
            target.model,
            torch.from_numpy(SPLIT.images),
            sigma=SIGMA,
            n=2000,
            bound=bound,
            beta=beta,
        )
        header = replace(HEADER, sigma=SIGMA, n=2000, bound=bound, beta=beta)
        path = tmp_path / "certificates.journal"
        with open_journal(path, header) as writer:
            writer.append(Record(i, 1, change(c), 0.0) for i, c in enumerate(certificates))
        return read_journal(path)

    return write
