import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from macer.cli import main
from macer.data import load
from macer.journal import open_journal, read_journal, write_table

NET = """
import torch
from torch import nn

def net(num_classes, channels):
    torch.manual_seed({seed})
    return nn.Sequential(nn.Flatten(), nn.Linear(784 * channels, num_classes))
"""


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> Path:
    """A folder of certificates of a small model, and a copy of its hard and soft settings."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "auditnet.py").write_text(NET.format(seed=0))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for bound in ("clopper-pearson", "bernstein"):
            command = "certify auditnet:net --dataset mnist-sample --sigma 0.5 --n 500 --stop 12"
            assert main([*command.split(), "--bound", bound, "--out", bound]) == 0
    return folder


@pytest.fixture
def desk(certified, tmp_path, monkeypatch) -> Path:
    shutil.copytree(certified, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verify(folder="clopper-pearson", *more) -> int:
    return main(["verify", folder, "--target", "auditnet:net", *more])


def rewrite(folder: Path, change) -> None:
    """Write the journal anew with changed records and right checksums, and its table."""
    path = folder / "certificates.journal"
    contents = read_journal(path)
    records = [change(record) for record in contents.records.values()]
    path.unlink()
    with open_journal(path, contents.header) as journal:
        journal.append(records)
        write_table(journal.contents, folder / "certificates.tsv")


@pytest.mark.parametrize("bound", ["clopper-pearson", "bernstein"])
def test_honest_certificates_are_verified(desk, bound, capsys):
    assert verify(bound, "--resample", "3") == 0
    assert capsys.readouterr().out.splitlines() == [
        "12 certificates follow from their counts",
        "weights, data, labels and table are those of the journal",
        "3 images sampled again: equal counts",
    ]


@pytest.mark.parametrize(
    ("field", "value"), [("radius", 3.0), ("label", 4), ("p_a", 0.99999), ("selected", 5)]
)
def test_a_conclusion_that_its_counts_do_not_support_fails(desk, field, value, capsys):
    def forge(record):
        return replace(record, certificate=replace(record.certificate, **{field: value}))

    rewrite(desk / "clopper-pearson", forge)
    assert verify() == 1
    assert "not verified: image 0: its counts do not support its certificate" in (
        capsys.readouterr().err
    )


def test_forged_counts_pass_the_arithmetic_and_fail_when_drawn_again(desk, capsys):
    """Every image gets the counts and the certificate of a constant classifier."""
    from macer.certification import conclude
    from macer.smoothing import Tally

    def forge(record):
        votes0, votes = (torch.zeros(1, 10, dtype=torch.int64) for _ in range(2))
        votes0[0, record.label], votes[0, record.label] = 100, 500
        [certificate] = conclude(
            Tally(votes0, votes0, votes0), Tally(votes, votes, votes),
            sigma=0.5, n=500, alpha=0.001, bound="clopper-pearson",
        )  # fmt: skip
        return replace(record, certificate=certificate)

    rewrite(desk / "clopper-pearson", forge)
    assert verify() == 0
    assert verify("clopper-pearson", "--resample", "1") == 1
    assert "drawing its samples again gives other counts" in capsys.readouterr().err


def test_more_votes_than_samples_fail(desk, capsys):
    def stuff(record):
        evidence = record.certificate
        other = (evidence.selected + 1) % 10
        votes = list(evidence.estimation)
        votes[other] += 1000
        return replace(record, certificate=replace(evidence, estimation=tuple(votes)))

    rewrite(desk / "clopper-pearson", stuff)
    assert verify() == 1
    assert "votes of 500 samples" in capsys.readouterr().err


def test_other_weights_fail(desk, capsys):
    (desk / "othernet.py").write_text(NET.format(seed=1))
    assert main(["verify", "clopper-pearson", "--target", "othernet:net"]) == 1
    assert "not verified: weights_sha256 is " in capsys.readouterr().err


def test_other_labels_fail(desk, capsys):
    rewrite(desk / "clopper-pearson", lambda record: replace(record, label=(record.label + 1) % 10))
    assert verify() == 1
    assert "image 0: its label is not the data set's" in capsys.readouterr().err


def test_an_edited_table_fails(desk, capsys):
    table = desk / "clopper-pearson" / "certificates.tsv"
    table.write_text(table.read_text().replace("\t0.5\t", "\t0.4\t", 1))
    assert verify() == 1
    assert "is not the table of its journal" in capsys.readouterr().err


def test_a_damaged_record_fails(desk, capsys):
    path = desk / "clopper-pearson" / "certificates.journal"
    content = bytearray(path.read_bytes())
    content[-30] ^= 1
    path.write_bytes(content)
    assert verify() == 1
    assert "1 records of the journal are damaged" in capsys.readouterr().err


def test_the_labels_verified_against_are_the_data_sets(desk):
    records = read_journal(desk / "clopper-pearson" / "certificates.journal").records
    labels = load("mnist-sample", "test").labels
    assert [records[i].label for i in range(12)] == labels[:12].tolist()


def test_a_folder_without_certificates_is_a_mistake(desk, capsys):
    (desk / "empty").mkdir()
    assert verify("empty") == 2
    assert "no certificates in empty: expected empty/certificates.journal" in (
        capsys.readouterr().err
    )
    assert verify("clopper-pearson", "--resample", "-1") == 2
    assert "resample must be at least 0, got -1" in capsys.readouterr().err
