import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta as beta_distribution
from scipy.stats import norm

from macer.certification import data_set
from macer.certification.budget import Pace
from macer.certification.data_set import blocks_of, certify_by_recipes, sampler_by
from macer.certification.header import Header
from macer.certification.journal import open_journal, read_journal
from macer.certification.largest_radius import Kind, certify
from macer.certification.preparation import plan_certification
from macer.certification.table import write_table
from macer.certification.target import find_target, weights_digest
from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.smoothing.sampling import Sampler
from macer.system import progress, rates
from macer.system.errors import Mistake
from macer.training.loop import train

DIGITS = classes_of("mnist-sample")
SETTINGS = ["--sigma", "0.5", "--dataset", "mnist-sample", "--n0", "40", "--n", "300"]

# A network quick enough for many certificates; it can be told to be slow.
MODULE = """
import os, time, torch
from torch import nn

class Slow(nn.Identity):
    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        return x

def net(num_classes):
    torch.manual_seed(int(os.environ.get("SEED", 0)))
    flat = nn.Linear(784, num_classes)
    flat.weight.data *= 3
    return nn.Sequential(nn.Flatten(), flat, Slow())

def bright(num_classes):
    flat = nn.Linear(784, num_classes)
    flat.weight.data.zero_()[1] = 1.0
    flat.bias.data.fill_(-1e6)[:2] = torch.tensor([0.0, -0.14 * 784])
    return nn.Sequential(nn.Flatten(), flat)

class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean()

def mixing(num_classes):
    return nn.Sequential(Centred(), net(num_classes))
"""


@pytest.fixture(autouse=True)
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nets:net` in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    Path("nets.py").write_text(MODULE)


def certified(out: str, *arguments: str, net: str = "nets:net") -> list[list[str]]:
    """The table of certificates without their times, after certifying some more."""
    assert main(["certify", net, "--out", out, *SETTINGS, *arguments]) == 0
    return table(Path(out))


def table(folder: Path) -> list[list[str]]:
    rows = [line.split("\t") for line in (folder / "certificates.tsv").read_text().splitlines()]
    return [row[:5] + row[6:] for row in rows]


def test_a_certificate_of_the_command_is_that_of_the_function() -> None:
    rows = certified("a", "--start", "3", "--stop", "12", "--skip", "4", "--seed", "5")
    split = load("mnist-sample", "test")
    target = find_target("nets:net", sigma=0.5, split=split, classes=DIGITS)
    images = torch.from_numpy(split.images[[4, 8]])
    expected = certify(target.model, images, sigma=0.5, n0=40, n=300, seed=5, indices=[4, 8])
    assert [int(row[0]) for row in rows[1:]] == [4, 8]
    for row, certificate in zip(rows[1:], expected, strict=True):
        assert row[-1] == ",".join(map(str, certificate.estimation))
        assert int(row[2]) == certificate.label
        assert certificate.radius - 1e-6 <= float(row[3]) <= certificate.radius


@pytest.mark.medium
def test_certificates_do_not_depend_on_batch_size_pieces_or_order() -> None:
    whole = certified("whole", "--stop", "24")
    assert len(whole) == 25
    assert certified("sizes", "--stop", "24", "--batch-size", "1") == whole
    assert certified("large", "--stop", "24", "--batch-size", "4096") == whole
    pieces = (("12", "20", "1"), ("0", "24", "5"), ("3", "9", "2"), ("20", "24", "1"))
    for start, stop, skip in (*pieces, ("0", "12", "1")):
        rows = certified("pieces", "--start", start, "--stop", stop, "--skip", skip)
    assert rows == whole


@pytest.mark.medium
def test_certificates_made_in_parts_merge_into_the_table_of_one_run() -> None:
    whole = certified("whole", "--stop", "24")
    for rank in range(3):  # as machines would share them
        certified(f"part{rank}", "--start", str(8 * rank), "--stop", str(8 * rank + 9 - rank // 2))
    parts = [f"part{rank}" for rank in (2, 0, 1)]
    assert main(["merge", *parts, "--out", "merged"]) == 0
    assert table(Path("merged")) == whole
    assert Path("merged/certificates.tsv").read_bytes() == (
        Path("whole/certificates.tsv").read_bytes()
    )
    assert main(["merge", *parts, "whole", "--out", "merged"]) == 0
    assert table(Path("merged")) == whole
    assert read_journal(Path("merged/certificates.journal")).scope == ((0, 24, 1),)
    assert main(["verify", "merged", "--target", "nets:net"]) == 0


def test_certificates_of_other_settings_do_not_merge(capsys: pytest.CaptureFixture[str]) -> None:
    certified("one", "--stop", "2")
    certified("two", "--stop", "2", "--seed", "1")
    capsys.readouterr()
    assert main(["merge", "one", "two", "--out", "merged"]) == 2
    assert capsys.readouterr().err == "macer: seed must be 0 in two as in one, got 1\n"
    assert not Path("merged").exists()


@pytest.mark.parametrize("field", ["certificate", "label", "pixels"])
def test_two_certificates_of_one_image_do_not_merge(
    field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    certified("one", "--stop", "2")
    contents = read_journal(Path("one/certificates.journal"))
    record = contents.records[1]
    changed = {
        "certificate": replace(record.certificate, radius=9.0),
        "label": record.label + 1,
        "pixels": "ab" * 32,
    }
    other = replace(record, **{field: changed[field]})
    with open_journal(Path("two/certificates.journal"), contents.header) as journal:
        journal.append([other])
    capsys.readouterr()
    assert main(["merge", "one", "two", "--out", "merged"]) == 2
    assert capsys.readouterr().err == (
        "macer: image 1 of two must have the certificate it has in one, got another one\n"
    )
    assert not read_journal(Path("merged/certificates.journal")).records
    assert main(["merge", "two", "--out", "merged"]) == 0


def test_damaged_records_do_not_vanish_in_a_merge(capsys: pytest.CaptureFixture[str]) -> None:
    certified("one", "--stop", "3")
    path = Path("one/certificates.journal")
    path.write_bytes(path.read_bytes().replace(b'"idx":1,', b'"idx":7,'))
    capsys.readouterr()
    assert main(["merge", "one", "--out", "merged"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 certificates in merged\n")
    assert err == "the parts hold 1 damaged records, which do not count\n"


def test_a_part_of_one_radius_may_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    certified("one", "--stop", "1", "--radius", "0.25")
    path = Path("one/certificates.journal")
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    capsys.readouterr()
    assert main(["merge", "one", "--out", "merged"]) == 0
    assert capsys.readouterr().out == "0 certificates in merged\nradius 0.25: no image yet\n"


def test_other_code_under_the_same_name_and_weights_is_another_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    certified("one", "--stop", "2")
    capsys.readouterr()
    with Path("nets.py").open("a") as file:
        file.write("\n# another function\n")
    assert main(["certify", "nets:net", "--out", "one", *SETTINGS, "--stop", "3"]) == 2
    assert capsys.readouterr().err.startswith("macer: model must be nets:net, source ")
    assert main(["verify", "one", "--target", "nets:net"]) == 1
    assert capsys.readouterr().err.startswith("macer: not verified: the model is nets:net, source ")


def test_certificates_of_another_device_are_not_drawn_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    certified("one", "--stop", "2")
    contents = read_journal(Path("one/certificates.journal"))
    path = Path("two/certificates.journal")
    with open_journal(path, replace(contents.header, device="cuda"), [0, 1]) as journal:
        journal.append(contents.records.values())
    write_table(read_journal(path), Path("two/certificates.tsv"))
    capsys.readouterr()
    command = ["verify", "two", "--target", "nets:net", "--device", "cpu"]
    assert main(command) == 0
    assert main([*command, "--resample", "1"]) == 2
    assert capsys.readouterr().err.startswith(
        "macer: samples cannot be drawn again here: device must be cuda, got cpu; use --resample 0"
    )


@pytest.mark.parametrize("flags", [["--score"], ["--radius", "0.1"]])
def test_the_speed_of_certification_is_of_the_samples_drawn(
    flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[progress.Advance] = []
    monkeypatch.setattr(progress._Lines, "close", lambda bar: bars.append(bar))
    rows = certified("speed", "--stop", "40", *flags)
    drawn = rows[0].index("drawn")
    [bar] = [bar for bar in bars if bar.unit == "samples"]
    assert bars[-1] is bar  # what comes before the first sample has bars of its own
    assert all(other.done in (0, other.total) for other in bars)
    assert {"calls", "passes"} <= {other.unit for other in bars if other.done == other.total}
    assert bar.worked == sum(40 + int(row[drawn]) for row in rows[1:]) < bar.total == bar.done


@pytest.mark.medium
def test_a_score_has_the_accuracy_and_acr_of_all_certificates_and_is_verified() -> None:
    whole = certified("whole", "--stop", "40")
    score = certified("score", "--stop", "40", "--score")
    assert [row for row in score if row[4] == "1"] == [row for row in whole if row[4] == "1"]
    skipped = [row for row in score[1:] if row[-1] == ",".join(["0"] * 10)]
    assert 0 < len(skipped) < 40
    assert all(row[2:4] == ["-1", "0.0"] for row in skipped)
    assert main(["verify", "score", "--target", "nets:net", "--resample", "40"]) == 0


@pytest.mark.medium
def test_a_network_whose_rows_mix_is_certified_row_by_row_and_audited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mixing = ["certify", "nets:mixing", *SETTINGS, "--stop", "4", "--out", "rows"]
    assert main(mixing) == 2
    assert "add --row-by-row" in capsys.readouterr().err
    shutil.rmtree("rows")
    assert main([*mixing, "--row-by-row"]) == 0
    header = read_journal(Path("rows/certificates.journal")).header
    assert (header.row_by_row, header.rows) == (True, 1)
    asked = ["--target", "nets:mixing"]
    assert main(["verify", "rows", *asked, "--resample", "2"]) == 0
    attack = ["--images", "1", "--steps", "1", "--restarts", "1", "--m", "2", "--n", "50"]
    assert main(["attack", "rows", *asked, *attack]) == 0


@pytest.mark.medium
def test_certificates_from_before_row_by_row_are_continued_and_audited() -> None:
    certified("now", "--stop", "3")
    contents = read_journal(Path("now/certificates.journal"))
    later = ("row_by_row", "family", "cpu", "outputs")
    entries = contents.header.to_json() | {"format": 1}
    before = Header.from_json({k: value for k, value in entries.items() if k not in later})
    with open_journal(Path("old/certificates.journal"), before) as journal:
        journal.append(contents.records.values())
    assert certified("old", "--stop", "5") == certified("now", "--stop", "5")
    assert main(["verify", "old", "--target", "nets:net"]) == 0
    assert main(["verify", "old", "--target", "nets:net", "--resample", "2"]) == 2  # by which CPU?
    assert main(["merge", "now", "old", "--out", "both"]) == 0


def test_ordinary_noise_is_audited_as_such() -> None:
    certified("a", "--stop", "3", "--no-exact")
    records = read_journal(Path("a/certificates.journal")).records.values()
    assert [record.certificate.exact for record in records] == [False] * 3
    assert main(["verify", "a", "--target", "nets:net", "--resample", "2"]) == 0


@pytest.mark.medium
def test_a_family_shares_alpha_among_its_images() -> None:
    header = certified("family", "--stop", "20", "--family", "--alpha", "0.02")[0]
    [alone] = {row[header.index("alpha")] for row in table(Path("family"))[1:]}
    assert float(alone) == 0.02 / 20
    assert certified("each", "--stop", "20", "--alpha", "0.001") == table(Path("family"))


@pytest.mark.medium
def test_soft_certificates_come_from_the_samples_of_the_hard_ones() -> None:
    hard = certified("hard", "--stop", "12")
    both = certified("both", "--stop", "12", "--soft-betas", "0.5", "8")
    assert both == hard
    for beta in ("0.5", "8"):
        alone = certified(f"soft{beta}", "--stop", "12", "--bound", "bernstein", "--beta", beta)
        assert table(Path(f"both/bernstein-{beta}")) == alone
    command = ["verify", "both/bernstein-8", "--target", "nets:net", "--resample", "3"]
    assert main(command) == 0
    assert certified("both", "--stop", "14", "--soft-betas", "0.5") == certified(
        "hard", "--stop", "14"
    )
    journals = [Path("both", name, "certificates.journal") for name in ("", "bernstein-0.5")]
    before = [journal.read_bytes() for journal in journals]
    certified("both", "--stop", "14", "--soft-betas", "0.5", "8")
    assert len(table(Path("both/bernstein-8"))) == 15
    assert [journal.read_bytes() for journal in journals] == before  # they had all of these


@pytest.mark.medium
def test_a_radius_is_certified_by_the_command_and_audited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = certified("one", "--stop", "30", "--radius", "0.2", net="nets:bright")
    line = capsys.readouterr().out
    robust = sum(row[2] != "-1" for row in rows[1:])
    right = sum(row[4] == "1" for row in rows[1:])
    assert line.startswith(
        f"radius 0.2: {robust} of 30 images are robust, {right} of them with the right label "
        f"({right / 30:.4f}); "
    )
    assert 0 < robust < 30 and {row[3] for row in rows[1:]} == {"0.0", "0.200000"}
    drawn = rows[0].index("drawn")
    assert len({row[drawn] for row in rows[1:]}) > 1
    pieces = ("--radius", "0.2")
    certified("pieces", "--start", "17", "--stop", "30", *pieces, net="nets:bright")
    assert certified("pieces", "--stop", "30", *pieces, net="nets:bright") == rows
    assert main(["verify", "one", "--target", "nets:bright", "--resample", "30"]) == 0


def test_an_audit_notices_samples_that_no_look_has(capsys: pytest.CaptureFixture[str]) -> None:
    certified("one", "--stop", "3", "--radius", "0.05")
    contents = read_journal(Path("one/certificates.journal"))
    record = contents.records[0]
    changed = replace(record, certificate=replace(record.certificate, drawn=150))
    header = contents.header
    with open_journal(Path("two/certificates.journal"), header, [0]) as journal:
        journal.append([changed])
    write_table(read_journal(Path("two/certificates.journal")), Path("two/certificates.tsv"))
    assert main(["verify", "two", "--target", "nets:net"]) == 1
    assert "image 0: 150 samples, of n = 300" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "40 s at 40 samples/s; no image can get a larger radius than "),
        (
            ("--radius", "0.05"),
            "40 s at 40 samples/s if 300 samples decide each image, 40 s at most",
        ),
        (("--bound", "anytime"), "40 s at 40 samples/s"),
    ],
)
def test_a_long_certification_says_what_it_takes_and_is_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: Any, said: str
) -> None:
    short = certified("short", "--stop", "4", *flags)
    assert "samples/s" not in capsys.readouterr().err
    monkeypatch.setattr(data_set, "LONG", {"cpu": 4 * 340})
    made = Pace(40.0, 0.0, threads=1, task=1, rows=100, padded=False)
    monkeypatch.setattr(data_set, "sampled_pace", lambda *_: made)
    assert certified("long", "--stop", "4", *flags) == short
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.medium
def test_the_time_of_a_long_certification_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = certified("short", "--stop", "4")
    monkeypatch.setattr(data_set, "LONG", {"cpu": 1})
    monkeypatch.setattr(rates, "MEASURED_SECONDS", 0.01)
    assert certified("long", "--stop", "4") == short
    line = r"\d.* s at [\d,]+ samples/s; no image can get a larger radius than 0\.9\d*\n"
    assert re.fullmatch(line, capsys.readouterr().err)


def test_images_certified_already_are_counted_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    certified("a", "--stop", "4")
    assert capsys.readouterr().err == ""
    before = read_journal(Path("a/certificates.journal")).records
    certified("a", "--stop", "6")
    assert capsys.readouterr().err == "4 of 6 images are certified already\n"
    after = read_journal(Path("a/certificates.journal")).records
    assert {i: after[i] for i in before} == before and sorted(after) == list(range(6))


def ended_by(number: signal.Signals) -> tuple[int, str]:
    """The exit code and errors of a certification of 60 images that gets a signal early on."""
    command = [sys.executable, "-m", "macer", "certify", "nets:net", "--out", "killed"]
    journal = Path("killed/certificates.journal")
    with subprocess.Popen(
        [*command, *SETTINGS, "--stop", "60"],
        env={**os.environ, "SLOW": "0.05"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not journal.exists() or len(journal.read_bytes().splitlines()) < 3:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.slow
def test_a_stopped_certification_leaves_the_table_of_its_journal() -> None:
    """As a cluster's scheduler stops it."""
    code, errors = ended_by(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert errors.endswith(
        "macer: stopped; what was finished is saved; the same command continues\n"
    )
    done = read_journal(Path("killed/certificates.journal")).records
    assert 0 < len(done) < 60
    assert [int(row[0]) for row in table(Path("killed"))[1:]] == sorted(done)


@pytest.mark.slow
def test_a_killed_certification_goes_on_where_it_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended_by(signal.SIGKILL)[0] == -signal.SIGKILL
    done = len(read_journal(Path("killed/certificates.journal")).records)
    assert 0 < done < 60
    assert not Path("killed/certificates.tsv").exists()
    rows = certified("killed", "--stop", "60")
    assert capsys.readouterr().err == f"{done} of 60 images are certified already\n"
    assert rows == certified("whole", "--stop", "60")


def test_a_report_tells_of_a_table_behind_its_journal(capsys: pytest.CaptureFixture[str]) -> None:
    """As after a kill."""
    certified("a", "--stop", "5")
    capsys.readouterr()
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().err == ""
    path = Path("a/certificates.tsv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().err == (
        "the table of a lacks 2 certificates; certify again to write it\n"
    )


def test_a_damaged_record_is_told_and_certified_again(capsys: pytest.CaptureFixture[str]) -> None:
    rows = certified("a", "--stop", "5")
    journal = Path("a/certificates.journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"idx":2', b'"idx":9')
    journal.write_bytes(b"".join(lines))
    assert certified("a", "--stop", "5") == rows
    notes = capsys.readouterr().err.splitlines()
    assert notes == [
        "the journal holds 1 damaged records, which do not count",
        "4 of 5 images are certified already",
    ]


@pytest.mark.medium
def test_after_a_write_that_was_cut_off_the_certificates_verify_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = certified("a", "--stop", "5")
    journal = Path("a/certificates.journal")
    journal.write_bytes(journal.read_bytes()[:-40])
    assert main(["verify", "a", "--target", "nets:net"]) == 1
    capsys.readouterr()
    assert certified("a", "--stop", "5") == rows
    assert capsys.readouterr().err == "4 of 5 images are certified already\n"
    assert main(["verify", "a", "--target", "nets:net"]) == 0


def test_a_table_that_is_no_text_is_not_verified(capsys: pytest.CaptureFixture[str]) -> None:
    certified("a", "--stop", "1")
    Path("a/certificates.tsv").write_bytes(b"\xff\xfe")
    assert main(["verify", "a", "--target", "nets:net"]) == 1
    assert "a/certificates.tsv is not the table of its journal; " in capsys.readouterr().err


def test_the_fields_six_columns_come_first() -> None:
    certified("a", "--stop", "3")
    header, *rows = Path("a/certificates.tsv").read_text().splitlines()
    assert header.split("\t")[:6] == ["idx", "label", "predict", "radius", "correct", "time"]
    labels = load("mnist-sample", "test").labels
    for i, row in enumerate(rows):
        idx, label, predict, _, correct, _ = row.split("\t")[:6]
        assert (int(idx), int(label)) == (i, labels[i])
        assert correct == str(int(predict == label))


@pytest.mark.medium
def test_a_radius_in_the_table_never_exceeds_what_its_counts_support() -> None:
    header, *rows = certified("a", "--stop", "40", "--alpha", "0.01")
    abstentions = 0
    for row in (dict(zip(header, row, strict=True)) for row in rows):
        counts = [int(count) for count in row["counts"].split(",")]
        n_a, n, radius = counts[int(row["selected"])], int(row["n"]), float(row["radius"])
        assert sum(counts) == n == 300
        p_a = beta_distribution.ppf(float(row["alpha"]), n_a, n - n_a + 1) if n_a else 0.0
        abstentions += row["predict"] == "-1"
        assert (row["predict"] == "-1") == (p_a <= 0.5)
        if row["predict"] != "-1":
            assert row["predict"] == row["selected"]
            exact = float(row["sigma"]) * norm.ppf(p_a)
            assert exact - 2e-6 <= radius <= exact * (1 + 1e-12)
        else:
            assert radius == 0
    assert 0 < abstentions < 40


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein"])
def test_soft_bounds_certify_too(bound: str) -> None:
    arguments = ["--sigma", "0.1", *SETTINGS[2:], "--stop", "20", "--bound", bound, "--beta", "64"]
    assert main(["certify", "nets:net", "--out", "a", *arguments]) == 0
    header, *rows = table(Path("a"))
    assert {row[header.index("bound")] for row in rows} == {bound}
    radii = np.array([float(row[3]) for row in rows])
    assert (radii > 0).any()
    assert (radii <= 0.1 * norm.ppf(beta_distribution.ppf(0.001, 300, 1))).all()


def test_the_journals_header_binds_weights_data_and_settings() -> None:
    certified("a", "--stop", "1")
    header = read_journal(Path("a/certificates.journal")).header
    split = load("mnist-sample", "test")
    target = find_target("nets:net", sigma=0.5, split=split, classes=DIGITS)
    assert header.weights_sha256 == weights_digest(target.model)
    source = hashlib.sha256(Path("nets.py").read_bytes()).hexdigest()[:16]
    assert header.model == target.architecture == f"nets:net, source {source}"
    assert header.dataset == "mnist-sample"
    assert (header.n0, header.n, header.alpha, header.sigma) == (40, 300, 0.001, 0.5)


def test_a_digest_of_weights_changes_with_any_of_them() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    digest = weights_digest(model)
    assert weights_digest(model) == digest
    with torch.no_grad():
        model[0].bias[1] += 1e-6
    assert weights_digest(model) != digest


def test_other_weights_do_not_continue_a_journal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = certified("a", "--stop", "2")
    monkeypatch.setenv("SEED", "10")
    capsys.readouterr()
    assert main(["certify", "nets:net", "--out", "a", *SETTINGS, "--stop", "3"]) == 2
    assert capsys.readouterr().err.startswith("macer: weights_sha256 must be ")
    assert table(Path("a")) == before


@pytest.mark.parametrize("sigma", ["0", "-1", "nan", "inf"])
def test_a_function_is_not_certified_without_a_positive_sigma(
    sigma: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "nets:net", "--out", "a", "--sigma", sigma, *SETTINGS[2:]]) == 2
    assert capsys.readouterr().err == f"macer: sigma must be > 0, got {float(sigma)}\n"
    assert not Path("a").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "20", "--soft-betas", "1"], "n must be at least 37 to certify anything"),
        (["--soft-betas", "1", "-1"], "beta must be > 0, got -1"),
        (["--soft-betas", "1", "1"], "soft_betas must differ, got [1.0, 1.0]"),
        (["--radius", "0", "--soft-betas", "1"], "soft_betas must be left out with a radius"),
        (["--radius", "1.2"], "radius must be below 0.9"),
        (["--n", "9"], "n must be at least 10 to certify anything"),
        (["--bound", "bernstein", "--beta", "0"], "beta must be > 0, got 0"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused_before_anything_is_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SETTINGS[:-2] if "--n" in arguments else SETTINGS
    assert main(["certify", "nets:net", "--out", "a", *settings, "--stop", "2", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"macer: {message}")
    assert not Path("a").exists()


@pytest.mark.parametrize("radius", [None, 0.0, 0.25])
@pytest.mark.parametrize("score", [False, True])
def test_what_a_recipe_asks_for_reaches_certify(
    radius: float | None, score: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def largest(sampler: Sampler, kinds: list[Kind], **settings: Any) -> list[Any]:
        asked.update(vars(sampler), exact=sampler.exact, kinds=kinds, **settings)
        return [[]]

    def at(sampler: Sampler, radius: float, **settings: Any) -> list[Any]:
        asked.update(vars(sampler), exact=sampler.exact, radius=radius, **settings)
        return []

    monkeypatch.setattr("macer.certification.data_set.sample_and_certify", largest)
    monkeypatch.setattr("macer.certification.data_set.sample_and_certify_at", at)
    recipe = CertifyRecipe(
        n0=7,
        n=70,
        alpha=0.02,
        seed=5,
        exact=False,
        score=score,
        radius=radius,
        beta=3.0,
        row_by_row=True,
    )
    soft = replace(recipe, bound="bernstein", beta=2.0, radius=None)
    progress: list[int] = []
    model = torch.nn.Identity()
    sampler = sampler_by(
        [recipe, soft], model, torch.zeros(2, 1, 2, 2), sigma=0.75,
        indices=[8, 9], batch_size=300, progress=progress.append,
    )  # fmt: skip
    certify_by_recipes(sampler, [recipe, soft], labels=[3, 4])
    assert asked.pop("model") is model and asked.pop("images").shape == (2, 1, 2, 2)
    how = {"kinds": [Kind("clopper-pearson", 3.0), Kind("bernstein", 2.0)]}
    assert asked == {
        **{"n0": 7, "n": 70, "alpha": 0.02, "seed": 5, "exact": False, "sigma": 0.75},
        **{"row_by_row": True, "betas": (2.0,), "num_classes": None},
        **{"labels": [3, 4] if score else None, "indices": [8, 9], "batch_size": 300},
        **({"progress": progress.append} | (how if radius is None else {"radius": radius})),
    }


def test_an_image_takes_its_share_of_its_blocks_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = map(float, count(step=10))
    monkeypatch.setattr(
        "macer.certification.data_set.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    certified("a", "--stop", "4")
    records = read_journal(Path("a/certificates.journal")).records.values()
    assert [record.seconds for record in records] == [2.5] * 4


@pytest.mark.parametrize(
    ("size", "blocks"), [(0, [[4], [5], [6]]), (1, [[4], [5], [6]]), (2, [[4, 5], [6]]), (9, None)]
)
def test_a_block_has_an_image_at_least_however_many_samples_it_needs(
    size: int, blocks: list[list[int]] | None
) -> None:
    assert list(blocks_of([4, 5, 6], size)) == (blocks or [[4, 5, 6]])


def test_a_batch_size_below_1_is_refused() -> None:
    split = load("mnist-sample", "test")
    target = find_target("nets:net", sigma=0.5, split=split, classes=DIGITS)
    with pytest.raises(Mistake, match="batch_size must be at least 1, got 0"):
        plan_certification(
            target, split, "mnist-sample", CertifyRecipe(), device=torch.device("cpu"), batch_size=0
        )


@pytest.mark.medium
def test_a_family_cannot_grow_and_its_level_is_that_of_all_its_images(
    capsys: pytest.CaptureFixture[str],
) -> None:
    certified("a", "--stop", "10", "--family")
    header = read_journal(Path("a/certificates.journal")).header
    assert header.family == 10 and header.alpha == 0.001 / 10
    capsys.readouterr()
    again = ["certify", "nets:net", "--out", "a", *SETTINGS, "--start", "10", "--stop", "20"]
    assert main([*again, "--family"]) == 2
    assert capsys.readouterr().err == (
        "macer: family must be all images that share alpha, 10 in a/certificates.journal, got 20; "
        "certify all of them at once into another --out\n"
    )
    assert main([*again, "--alpha", "0.0001"]) == 2
    assert "family must be 10 to continue" in capsys.readouterr().err
    certified("b", "--start", "10", "--stop", "20", "--family")
    assert main(["merge", "a", "b", "--out", "both"]) == 2
    assert "family must be all images that share alpha" in capsys.readouterr().err
    assert main(["verify", "a", "--target", "nets:net", "--resample", "1"]) == 0


def test_a_certification_that_goes_on_verifies_as_one_that_was_not_stopped() -> None:
    certified("a", "--stop", "3")
    certified("a", "--start", "2", "--stop", "9", "--skip", "2")
    assert read_journal(Path("a/certificates.journal")).scope == ((0, 3, 1), (4, 9, 2))
    assert main(["verify", "a", "--target", "nets:net", "--resample", "2"]) == 0


@pytest.mark.medium
def test_certificates_of_ordinary_noise_say_so_wherever_they_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = certified("a", "--stop", "3", "--no-exact")
    assert rows[0][-1] == "noise" and {row[-1] for row in rows[1:]} == {"ordinary"}
    records = read_journal(Path("a/certificates.journal")).records
    assert not records[0].certificate.exact
    assert b'"exact"' not in Path("a/certificates.journal").read_bytes().splitlines()[2]
    assert main(["verify", "a", "--target", "nets:net"]) == 0
    Path("copied.tsv").write_bytes(Path("a/certificates.tsv").read_bytes())
    capsys.readouterr()
    for log in ("a", "copied.tsv"):
        assert main(["report", log]) == 0
        assert "Ordinary noise: " in capsys.readouterr().out
    assert certified("b", "--stop", "3")[0][-1] == "counts"
    assert read_journal(Path("b/certificates.journal")).records[0].certificate.exact


@pytest.mark.medium
def test_a_run_of_ones_own_arrays_needs_a_data_set_to_be_certified(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = load("mnist-sample", "train").part(0, 64)
    recipe = TrainRecipe(epochs=1, k=1, loss="gaussian")
    train(recipe, (few.images, few.labels), DIGITS, "run")
    for command in (["run"], ["run", "--held-out"], ["run/model.safetensors", "--out", "new"]):
        assert main(["certify", *command]) == 2
    first, held_out, file = capsys.readouterr().err.splitlines()[-3:]
    line = (
        "macer: dataset must be given to certify {}, which was trained on arrays of a caller's "
        "own; certify it in Python with macer.certify, or add --dataset NAME"
    )
    assert first == line.format("run")
    assert held_out.startswith("macer: held_out needs a run that held images out, got run")
    assert file == line.format("run/model.safetensors")
    assert main(["certify", "run", "--dataset", "mnist-sample", "--n", "100", "--stop", "2"]) == 0
    assert read_journal(Path("run/certificates.journal")).header.dataset == "mnist-sample"
    for command in (
        ["floor", "run", "--at-least", "0.1", "--out", "new"],
        ["train", "run", "--resume"],
    ):
        assert main(command) == 2
        assert capsys.readouterr().err == (
            "macer: dataset must be one that a command can read, got arrays, which Python was "
            "given; go on in Python, or have a function return them, as package.module:function\n"
        )


@pytest.mark.medium
def test_a_run_of_a_table_is_certified_in_python_only(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tables.py").write_text(
        "from torch import nn\n"
        "def table(num_classes, channels):\n"
        "    return nn.Linear(channels, num_classes)\n"
    )
    table = np.random.default_rng(0).normal(size=(64, 5))
    recipe = TrainRecipe(model="tables:table", epochs=1, k=1, loss="gaussian")
    train(recipe, (table, np.arange(64) % 3), ["a", "b", "c"], "run", value_range=None)
    for dataset in ([], ["--dataset", "mnist-sample"]):
        assert main(["certify", "run", *dataset]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            "macer: run must be a model of images, got one of inputs of the value_range None; "
            "macer.open_run(RUN).certify takes those, in Python"
        )
