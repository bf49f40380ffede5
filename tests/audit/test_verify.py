import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from journals import rewrite
from scipy.stats import hypergeom

from macer.audit.verify import enough, power
from macer.certification.journal import journal_line, read_journal
from macer.cli.app import main
from macer.data.sets import load

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
        for bound in ("clopper-pearson", "bernstein", "runner-up", "anytime"):
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


@pytest.mark.parametrize("bound", ["clopper-pearson", "bernstein", "runner-up", "anytime"])
def test_honest_certificates_are_verified(desk, bound, capsys):
    assert verify(bound, "--resample", "3") == 0
    assert capsys.readouterr().out.splitlines() == [
        "12 of 12 images asked for: 0…11",
        "12 certificates follow from their counts",
        "model, its outputs, data, labels and table are those of the journal",
        "3 images sampled again: equal counts; if one record in a hundred were false, one of them "
        "would be found with probability 0.25",
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


@pytest.mark.parametrize("value", [0.01, None])
def test_a_bound_of_the_runner_up_that_its_counts_do_not_support_fails(desk, value, capsys):
    def forge(record):
        return replace(record, certificate=replace(record.certificate, p_b=value))

    rewrite(desk / "runner-up", forge)
    assert verify("runner-up") == 1
    assert "not verified: image 0: its counts do not support its certificate" in (
        capsys.readouterr().err
    )


def test_forged_counts_pass_the_arithmetic_and_fail_when_drawn_again(desk, capsys):
    """Every image gets the counts and the certificate of a constant classifier."""
    from macer.certification.conclusions import conclude
    from macer.smoothing.tally import Tally

    def forge(record):
        votes0, votes = (torch.zeros(1, 10, dtype=torch.int64) for _ in range(2))
        votes0[0, record.label], votes[0, record.label] = 100, 500
        [certificate] = conclude(
            Tally(votes0, votes0, votes0), Tally(votes, votes, votes),
            sigma=0.5, n=500, alpha=0.001, bound="clopper-pearson",
        )  # fmt: skip
        return replace(record, certificate=certificate)

    rewrite(desk / "clopper-pearson", forge)
    assert verify("clopper-pearson", "--resample", "0") == 0
    assert verify("clopper-pearson", "--resample", "1") == 1
    assert verify() == 1
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


def test_more_votes_than_were_drawn_fail_even_if_n_samples_could_have_them(desk, capsys):
    command = "certify auditnet:net --dataset mnist-sample --sigma 0.5 --n 500 --stop 4"
    assert main([*command.split(), "--radius", "0.05", "--out", "at"]) == 0

    def stuff(record):
        evidence = record.certificate
        votes = list(evidence.estimation)
        votes[(evidence.selected + 1) % 10] += 1
        return replace(record, certificate=replace(evidence, estimation=tuple(votes)))

    drawn = read_journal(desk / "at" / "certificates.journal").records[0].certificate.drawn
    assert drawn < 500
    rewrite(desk / "at", stuff)
    assert verify("at") == 1
    assert f"image 0: {drawn + 1} votes of {drawn} samples" in capsys.readouterr().err


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


# drawing again


@pytest.mark.parametrize("images", [1, 7, 180, 200, 2000, 10_000])
def test_enough_images_find_one_false_record_in_a_hundred(images):
    drawn, false = enough(images), -(-images // 100)
    found = [1 - hypergeom.pmf(0, images, false, some) for some in (drawn - 1, drawn)]
    assert found[0] < 0.95 <= found[1] + 1e-12
    assert power(images, drawn) == pytest.approx(found[1])
    assert power(images, 10 * images) == pytest.approx(1)


@pytest.mark.medium
def test_by_default_so_many_images_are_drawn_again(desk, capsys):
    assert verify() == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "12 images sampled again: equal counts; if one record in a hundred were false, one of them "
        "would be found with probability 1.00"
    )
    assert verify("clopper-pearson", "--resample", "0") == 0
    assert "no image sampled again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "value"), [("cpu", "AVX9 Zilog"), ("torch", "9.0"), ("device", "cuda")]
)
def test_samples_are_not_drawn_again_by_other_arithmetic(desk, entry, value, capsys):
    """An honest journal is not called false because it was made elsewhere."""
    rewrite(desk / "clopper-pearson", header={entry: value})
    assert verify("clopper-pearson", "--device", "cpu") == 0
    assert f"no image sampled again, since it cannot be done here: {entry} must be {value}" in (
        capsys.readouterr().out
    )
    assert verify("clopper-pearson", "--resample", "1", "--device", "cpu") == 2
    assert f"samples cannot be drawn again here: {entry} must be {value}, got " in (
        capsys.readouterr().err
    )


def test_an_older_journal_is_verified_for_what_it_has(desk, capsys):
    """It names neither the network's outputs nor the processor, and says so."""
    path = desk / "clopper-pearson" / "certificates.journal"
    later = ("format", "outputs", "cpu", "family", "row_by_row")
    header, *rest = [json.loads(line.partition(b" ")[2]) for line in path.read_bytes().splitlines()]
    first = journal_line(b"", {name: value for name, value in header.items() if name not in later})
    digest = first.partition(b" ")[0]
    path.write_bytes(first + b"".join(journal_line(digest, line) for line in rest))
    assert verify() == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "model, data, labels and table are those of the journal",
        "no image sampled again, since it cannot be done here: the journal does not say which cpu "
        "they were drawn on",
    ]


def test_bounds_that_differ_in_their_last_bits_follow(desk):
    def nudge(record):
        evidence = record.certificate
        changed = {name: getattr(evidence, name) * (1 - 2.0**-45) for name in ("radius", "p_a")}
        return replace(record, certificate=replace(evidence, **changed))

    rewrite(desk / "clopper-pearson", nudge)
    assert verify() == 0


@pytest.mark.parametrize("field", ["radius", "p_a"])
def test_a_bound_larger_by_a_millionth_does_not_follow(desk, field, capsys):
    def inflate(record):
        value = getattr(record.certificate, field) * (1 + 1e-6) + 1e-6
        return replace(record, certificate=replace(record.certificate, **{field: value}))

    rewrite(desk / "clopper-pearson", inflate)
    assert verify() == 1
    assert "its counts do not support its certificate" in capsys.readouterr().err


# completeness


@pytest.mark.medium
def test_the_images_that_are_demanded_must_be_there(desk, capsys):
    assert verify("clopper-pearson", "--stop", "12") == 0
    assert verify("clopper-pearson", "--stop", "12", "--skip", "3", "--start", "1") == 0
    assert verify("clopper-pearson", "--stop", "13") == 1
    assert "image 12 must be certified" in capsys.readouterr().err
    assert verify("clopper-pearson", "--skip", "0") == 2


def test_deleted_wrong_records_are_missed_and_a_report_counts_them(desk, capsys):
    def only_right(record):
        return record if record.certificate.label == record.label else None

    rewrite(desk / "clopper-pearson", only_right)
    right = len(read_journal(desk / "clopper-pearson" / "certificates.journal").records)
    capsys.readouterr()
    assert verify() == 1
    assert f"not verified: {right} of 12 images are certified" in capsys.readouterr().err
    assert verify("clopper-pearson", "--partial") == 0
    assert capsys.readouterr().out.startswith(f"{right} of 12 images asked for: 0…11\n")


# one implementation for all processors


@pytest.mark.slow
def test_journals_of_three_instruction_sets_verify_each_other(tmp_path):
    model = ["zoo:mnist-0.50", "--device", "cpu"]
    script = (
        "import json, sys; from macer.cli.app import main\n"
        "sys.exit(any(main(command) for command in json.loads(sys.argv[1])))"
    )

    def run(capability: str, *commands: list[str]) -> None:
        env = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        if not capability:
            del env["ATEN_CPU_CAPABILITY"]
        done = subprocess.run(
            [sys.executable, "-c", script, json.dumps(commands)], env=env, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    kinds = ("default", "avx2", "")
    settings = "--dataset mnist-sample --n 300 --stop 8 --soft-betas 1 --out"
    for kind in kinds:
        run(kind, ["certify", *model, *settings.split(), f"set-{kind}"])
    folders = [f"set-{kind}{part}" for kind in kinds for part in ("", "/bernstein-1")]
    for kind in kinds:
        run(kind, *(["verify", folder, "--target", *model] for folder in folders))
