"""`macer gate`: exit codes, forms, and what it refuses to judge."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from desk import CERTIFY, LOGS, refuses
from journals import rewrite

from macer.cli.app import main
from macer.reporting.gate import robust_lower
from macer.reporting.logs import read_log
from macer.runs.names import JOURNAL, TABLE

PUBLISHED = ["gate", LOGS[0], "--alpha", "0.001", "--radius", "0.5"]


def certified(path: Path, radius: float) -> tuple[int, int]:
    log = read_log(path)
    return int(np.sum(log.correct & (log.radius >= radius))), len(log.idx)


# law


@pytest.mark.medium
def test_the_exit_code_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    lower = float(robust_lower(*certified(Path(LOGS[0]), 0.5), 0.001, 1 - 0.95))
    for required, code, line in (
        (lower, 0, "the gate passes"),
        (np.nextafter(lower, 1), 1, "the gate does not pass"),
    ):
        assert main([*PUBLISHED, "--at-least", repr(float(required))]) == code
        out, err = capsys.readouterr()
        assert (out.splitlines()[-1], err) == (line, "")
        assert main([*PUBLISHED, "--at-least", repr(float(required)), "--json"]) == code
        out, err = capsys.readouterr()
        document = json.loads(out)
        assert (document["passed"], err) == (code == 0, "")
        assert document["requirements"][0]["lower"] == lower
        assert "error" not in document


@pytest.mark.medium
def test_one_requirement_that_fails_fails_the_gate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "gate.xml"
    flags = ["--at-least", "0.4", "--worst-class", "0.9", "--junit", str(file)]
    assert main([*PUBLISHED, *flags, "--baseline", LOGS[0], "--not-worse-by", "0.01"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["passes", "fails", "passes"]
    assert "class 3 with " in lines[1]
    suite = ElementTree.parse(file).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


@pytest.mark.medium
def test_a_higher_confidence_gives_a_lower_bound(capsys: pytest.CaptureFixture[str]) -> None:
    lower = []
    for confidence in ("0.5", "0.95", "0.999"):
        main([*PUBLISHED, "--at-least", "0.5", "--confidence", confidence, "--json"])
        lower.append(json.loads(capsys.readouterr().out)["requirements"][0]["lower"])
    assert lower == sorted(lower, reverse=True) and len(set(lower)) == 3


def test_a_piece_of_the_images_is_judged_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    main([*PUBLISHED, "--at-least", "0.5", "--start", "100", "--stop", "1100", "--skip", "2"])
    assert "of 500 images are certified" in capsys.readouterr().out


def test_a_run_that_is_not_finished_is_judged_only_if_partial(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(copied_run, asked=range(8))
    gate = ["gate", "run", "--radius", "0.1", "--at-least", "0"]
    line = "run must be finished, got 6 of 8 images, not 6; continue `macer certify`, or judge "
    refuses(capsys, copied_run, gate, line)
    assert main([*gate, "--partial"]) == 0
    assert "run is not finished" in capsys.readouterr().out
    assert main([*gate, "--stop", "6"]) == 0


def test_a_table_that_lacks_certificates_or_contradicts_its_journal_is_refused(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = ["gate", "run", "--radius", "0.1", "--at-least", "0"]
    table = copied_run / TABLE
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    line = "the table of run must have the certificates of its journal, got 1 fewer; continue "
    refuses(capsys, copied_run, gate, line)
    assert main([*gate, "--partial"]) == 0
    label = lines[1].split("\t")[1]
    fields = lines[1].split("\t")
    fields[2:5] = [label, "9.0", "1"]
    table.write_text("".join([lines[0], "\t".join(fields), *lines[2:]]))
    refuses(capsys, copied_run, gate, f"run/{TABLE}, line 2: the table must say what {JOURNAL}")


def test_certificates_of_one_radius_are_judged_there_and_below(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for radius in ("0.1", "0.05"):
        main(["gate", "at-0.1", "--radius", radius, "--at-least", "0", "--json"])
        found.append(json.loads(capsys.readouterr().out)["requirements"][0]["estimate"])
    assert found[0] == found[1] > 0


def test_a_radius_is_not_rounded_up(at_desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    radius = ["--radius", "0.0999999999"]
    assert main(["gate", "run", *radius, "--at-least", "0", "--worst-class", "0"]) == 0
    assert main(["gate", "run", *radius, "--baseline", "run", "--not-worse-by", "1"]) == 0
    assert main(["certify", "run", *radius, *CERTIFY, "--out", "exact"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "adius 0." in line]
    assert len(lines) == 4 and all("radius 0.0999999999" in line for line in lines)


def test_the_classes_of_a_run_have_their_names(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["gate", "run", "--radius", "0.1", "--worst-class", "0.1", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in document["classes"]] == list("0123456789")
    assert not document["passed"], "six images do not show ten classes"


def test_a_table_that_is_named_is_judged_with_the_journal_beside_it(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(copied_run, asked=range(8))
    gate = ["gate", f"run/{TABLE}", "--radius", "0.1", "--at-least", "0"]
    line = f"run/{TABLE} must be finished, got 6 of 8 images, not 6; continue `macer certify`, or "
    refuses(capsys, copied_run, gate, line)
    table = copied_run / TABLE
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    line = f"the table of run/{TABLE} must have the certificates of its journal, got 1 fewer; "
    refuses(capsys, copied_run, gate, line)


@pytest.mark.medium
def test_a_gate_does_not_import_torch() -> None:
    code = (
        "import sys; from macer.cli.app import main; main(sys.argv[1:]); "
        "sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, *PUBLISHED, "--worst-class", "0.1"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


# refusal


def test_a_bound_or_level_that_was_chosen_after_the_counts_were_drawn_is_refused(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", "run", "--alpha", "0.2"]) == 0
    assert main(["rescore", "run", "--bound", "runner-up"]) == 0
    capsys.readouterr()
    chosen, fixed = "run/rescored-clopper-pearson-0.2.tsv", "run/rescored-runner-up-0.001.tsv"
    gate = ["--radius", "0.1", "--at-least", "0"]
    line = (
        f"{chosen} must have certificates by a bound and a level that were fixed before its "
        "counts were drawn, got clopper-pearson at 0.2, chosen afterwards; "
    )
    refuses(capsys, copied_run, ["gate", chosen, *gate], line)
    against = ["--baseline", chosen, "--not-worse-by", "0.1"]
    refuses(capsys, copied_run, ["gate", fixed, *gate, *against], line)
    assert main(["gate", fixed, *gate]) == 0


def test_a_baseline_of_another_level_is_refused(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Path("other.tsv")
    log.write_text((copied_run / TABLE).read_text().replace("\t0.001\t", "\t0.01\t"))
    gate = ["gate", "run", "--radius", "0.1", "--baseline", str(log), "--not-worse-by", "0.1"]
    line = "baseline must have the level of run, α = 0.001, got 0.01 of other; certify both at one "
    refuses(capsys, copied_run, gate, line)
