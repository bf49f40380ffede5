"""Certificates made within a time, through every command that takes them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from journals import rewrite
from PIL import Image
from processes import surroundings

from macer.audit.verify import recompute
from macer.certification import data_set, watch
from macer.certification.conclusions import conclude
from macer.certification.journal import read_journal
from macer.certification.record import Record
from macer.cli.app import main
from macer.data.sets import load
from macer.smoothing.tally import Tally
from macer.system.errors import AuditFailed

NET = """
import torch
from torch import nn

def timednet(num_classes, channels):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784 * channels, num_classes))
"""
SIGMA = 0.1
CERTIFY = ["certify", "timednet:timednet", "--dataset", "mnist-sample", "--sigma", str(SIGMA)]
CERTIFY += ["--bound", "anytime"]
N = 20_000  # more than any machine draws of this network in a twentieth of a second
IN_TIME = [*CERTIFY, "--n", str(N), "--seconds", "0.05"]


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> Path:
    """A folder `in-time` of certificates made within a twentieth of a second each."""
    folder = tmp_path_factory.mktemp("anytime")
    (folder / "timednet.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*IN_TIME, "--stop", "6", "--out", "in-time"]) == 0
        Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    return folder


@pytest.fixture
def desk(certified, tmp_path, monkeypatch) -> Path:
    shutil.copytree(certified, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verify(folder: str, *more: str) -> int:
    return main(["verify", folder, "--target", "timednet:timednet", *more])


def contents(folder: str):
    return read_journal(Path(folder) / "certificates.journal")


def with_counts(record: Record, votes, drawn: int) -> Record:
    """The record with other counts and what follows from them."""
    selection, estimation = (
        torch.tensor([counts]) for counts in (record.certificate.selection, votes)
    )
    [certificate] = conclude(
        Tally(selection, selection, selection), Tally(estimation, estimation, estimation),
        sigma=SIGMA, n=N, alpha=0.001, bound="anytime", drawn=torch.tensor([drawn]),
    )  # fmt: skip
    return replace(record, certificate=certificate)


# law


@pytest.mark.medium
def test_certificates_made_in_time_are_verified_by_the_samples_that_each_rests_on(desk, capsys):
    drawn = {record.certificate.drawn for record in contents("in-time").records.values()}
    assert drawn and all(200 <= one < N for one in drawn)
    assert verify("in-time", "--resample", "6") == 0
    assert "6 images sampled again: equal counts" in capsys.readouterr().out


@pytest.mark.medium
def test_seconds_are_no_part_of_the_header_and_the_journal_goes_on_without_them(desk):
    assert "seconds" not in contents("in-time").header.to_json()
    before = dict(contents("in-time").records)
    assert main([*CERTIFY, "--n", str(N), "--stop", "8", "--out", "in-time"]) == 0
    after = dict(contents("in-time").records)
    assert {idx: after[idx] for idx in before} == before
    assert [after[idx].certificate.drawn for idx in (6, 7)] == [N, N]
    assert verify("in-time", "--resample", "8") == 0


def test_each_image_has_its_own_time(desk, monkeypatch):
    blocks, looks = [], data_set.sample_anytime

    def watched(sampler, **settings):
        blocks.append((len(sampler.images), settings["seconds"]))
        return looks(sampler, **settings)

    monkeypatch.setattr(data_set, "sample_anytime", watched)
    assert main([*CERTIFY, "--n", "200", "--seconds", "3", "--stop", "4", "--out", "a"]) == 0
    assert blocks == [(1, 3.0)] * 4


@pytest.mark.medium
def test_parts_made_in_time_merge_report_and_withstand_an_attack(desk, capsys):
    assert main([*IN_TIME, "--start", "6", "--stop", "9", "--out", "more"]) == 0
    assert main(["merge", "in-time", "more", "--out", "all"]) == 0
    assert verify("all", "--resample", "9") == 0
    capsys.readouterr()
    assert main(["report", "all", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["report"]["rows"]
    assert (row["bound"], row["images"]) == ("anytime", 9)
    assert main(["attack", "all", "--target", "timednet:timednet", "--steps", "2"]) == 0


def test_a_score_made_in_time_is_verified(desk):
    assert main([*IN_TIME, "--stop", "6", "--score", "--out", "score"]) == 0
    drawn = [record.certificate.drawn for record in contents("score").records.values()]
    assert 0 in drawn
    assert verify("score", "--resample", "6") == 0


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (N + 1, f"image 0: {N + 1} samples, of n = {N}"),
        (0, f"image 0: 0 samples, of n = {N}"),
        (5, f"image 0: 5 samples, of n = {N}"),
        (199, "votes of 199 samples, by estimation"),
    ],
)
def test_a_number_of_samples_that_cannot_be_fails(desk, drawn, message):
    def forge(record):
        return replace(record, certificate=replace(record.certificate, drawn=drawn))

    rewrite(desk / "in-time", forge)
    with pytest.raises(AuditFailed, match=message):
        recompute(contents("in-time"))


def test_a_number_of_samples_that_the_bound_does_not_follow_from_fails(desk):
    def forge(record):
        certificate = record.certificate
        return replace(record, certificate=replace(certificate, drawn=certificate.drawn + 1))

    rewrite(desk / "in-time", forge)
    with pytest.raises(AuditFailed, match="its counts do not support its certificate"):
        recompute(contents("in-time"))


@pytest.mark.parametrize("extra", [50, 200])
def test_samples_that_were_left_out_or_added_fail_when_drawn_again(desk, extra, capsys):
    """The forger has concluded anew from counts of more samples, all for the class."""

    def forge(record):
        votes = list(record.certificate.estimation)
        votes[record.certificate.selected] += extra
        return with_counts(record, votes, record.certificate.drawn + extra)

    rewrite(desk / "in-time", forge)
    assert recompute(contents("in-time")) == 6
    capsys.readouterr()
    assert verify("in-time", "--resample", "6") == 1


@pytest.mark.slow
def test_a_killed_certification_goes_on_where_it_was(desk):
    command = [sys.executable, "-m", "macer", *IN_TIME[:-1], "0.2", "--stop", "30", "--out", "a"]
    with subprocess.Popen(command, env=surroundings(), stderr=subprocess.DEVNULL) as process:
        journal = Path("a/certificates.journal")
        while not (journal.exists() and journal.read_bytes().count(b"\n") > 4):
            time.sleep(0.02)
        process.kill()
    before = dict(contents("a").records)
    assert 0 < len(before) < 30
    assert main([*IN_TIME, "--stop", "30", "--out", "a"]) == 0
    after = dict(contents("a").records)
    assert len(after) == 30 and {idx: after[idx] for idx in before} == before
    assert verify("a", "--resample", "5") == 0


@pytest.mark.slow
def test_ctrl_c_ends_a_certification_in_one_line_with_what_is_kept(desk):
    command = [sys.executable, "-m", "macer", *CERTIFY, "--n", "1000000", "--out", "a"]
    with subprocess.Popen(
        command, env=surroundings(), stderr=subprocess.PIPE, text=True
    ) as process:
        while not Path("a/certificates.journal").exists():
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    *_, last = err.splitlines()  # a busy machine may say before what it is doing
    assert last == "macer: interrupted; what was finished is saved; the same command continues"


def interrupting(monkeypatch, look: int) -> None:
    """Interrupt every image after so many looks."""
    looks = watch.sample_anytime

    def interrupted(*arguments, **settings):
        for number, certificates in enumerate(looks(*arguments, **settings)):
            if number == look:
                raise KeyboardInterrupt
            yield certificates

    monkeypatch.setattr(watch, "sample_anytime", interrupted)


PREDICT = ["predict", "zoo:mnist-0.50", "digit.png", "--device", "cpu", "--n", "2000"]


@pytest.mark.medium
def test_ctrl_c_prints_the_certificate_so_far(desk, capsys, monkeypatch):
    interrupting(monkeypatch, look=2)
    assert main([*PREDICT, "--seconds", "100"]) == 130
    out, err = capsys.readouterr()
    [line] = out.splitlines()
    assert line.startswith("digit.png\t7\tradius 1.03")
    assert err.splitlines()[-1] == ("macer: interrupted; the certificates that were printed hold")
    assert main([*PREDICT, "--bound", "anytime", "--json"]) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["predictions"][0]["drawn"] == 400
    assert document["error"]["kind"] == "stopped"


def test_ctrl_c_before_the_first_look_prints_nothing(desk, capsys, monkeypatch):
    interrupting(monkeypatch, look=0)
    assert main([*PREDICT, "--seconds", "100"]) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.medium
def test_predict_shows_the_label_once_it_is_decided_and_then_the_largest_radius(desk, capsys):
    assert main([*PREDICT, "--bound", "anytime"]) == 0
    out, err = capsys.readouterr()
    [first] = err.splitlines()
    assert first.startswith("digit.png: 7, radius 0.88") and ", 200 samples, " in first
    assert out == "digit.png\t7\tradius 1.3345\n"


@pytest.mark.medium
def test_seconds_end_a_prediction(desk, capsys):
    assert main([*PREDICT[:-1], str(10**9), "--seconds", "0.5", "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["predictions"]
    assert one["bound"] == "anytime" and 200 <= one["drawn"] < 10**9
    assert one["label"] == 7
