"""`macer leaderboard RUN …`: every form has the row, and without logs nothing is different."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from schema import matches, parts_of

from macer.cli import printing
from macer.cli.app import main
from macer.reporting import leaderboard_notes as below
from macer.reporting.leaderboard import entries
from macer.reporting.log_table import log_table

RESULTS = Path(__file__).parents[2] / "results"
LOG = RESULTS / "cifar10-0.50-record-consistency-5.tsv.gz"
NAME = "cifar10-0.50-record-consistency-5"
ACR, GAIN = "0.768 ± 0.017", "+0.078 ± 0.006"  # and its paired difference to MACER's log


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["leaderboard", *arguments]) == 0
    return capsys.readouterr().out


# law


@pytest.mark.medium
@pytest.mark.parametrize("images", ["every-5th", "both"])
def test_80_columns_hold_the_row_and_split_no_number(capsys, monkeypatch, images):
    monkeypatch.setattr(printing, "_console", lambda: Console(width=80))
    out = output(capsys, str(LOG), "--images", images)
    tables = [line for line in out.splitlines() if not re.match(r"\w.*[.:)]$|\(yours\)|[†‡]", line)]
    assert all(len(line.rstrip()) <= 80 for line in tables)
    rows = [line for line in tables if "(yours)" in line or line.startswith(" (yours)")]
    assert any(re.search(rf" 2 +{ACR} ", row) for row in rows)
    assert any(re.search(rf"MACER +{re.escape(GAIN)} *$", line) for line in tables)
    assert "0.640  0.583  0.507" in out
    assert f"\n{NAME}: certified by clopper-pearson.\n" in out
    assert (f"{NAME} has no row among all images: it lacks some." in out) == (images == "both")


@pytest.mark.medium
def test_what_may_not_be_copied_is_said_in_one_line(capsys):
    [line] = [line for line in output(capsys, str(LOG)).splitlines() if "No paired" in line]
    assert line == (
        "No paired difference to Sun et al., whose logs have no licence and do not come with macer."
    )
    other = str(RESULTS / "cifar10-1.00-fast.tsv.gz")
    [line] = [line for line in output(capsys, str(LOG), other).splitlines() if "No paired" in line]
    assert line.startswith("No paired difference to Sun et al. and SmoothMix at σ 1, whose logs ")


@pytest.mark.medium
def test_csv_has_the_row_its_bound_and_its_differences(capsys):
    plain = csv.DictReader(io.StringIO(output(capsys)))
    given = csv.DictReader(io.StringIO(output(capsys, str(LOG), "--csv")))
    lines = {line["method"]: line for line in given}
    row = lines.pop(f"log:{NAME}")
    table = log_table([RESULTS / "published/macer_sigma0.5.tsv.gz", LOG]).table
    difference = table.rows[1].difference
    assert (row["league"], row["rank"], row["bound"]) == ("yours", "2", "clopper-pearson")
    assert row["to_macer"] == row["to_reference"] == str(difference.difference)
    assert row["to_macer_standard_error"] == str(difference.standard_error)
    assert row["to_sun"] == row["to_best"] == "" and row["source"] == str(LOG)
    columns = list(given.fieldnames or [])
    assert columns[-2 * len({entry.key for entry in entries()}) - 1] == "bound"
    assert all(not line["bound"] and not line["to_macer"] for line in lines.values())
    assert not set(columns[-3:]) & set(plain.fieldnames or [])


@pytest.mark.medium
def test_json_has_the_row_and_what_the_page_says_of_logs(capsys):
    parts = parts_of("json.md")
    document = json.loads(output(capsys, str(LOG), "--json"))
    document = {key: value for key, value in document.items() if key not in parts["document"]}
    matches(parts, {"logs": document.pop("logs")}, "leaderboard_logs", "logs")
    matches(parts, document, "leaderboard", "leaderboard")
    assert "logs" not in json.loads(output(capsys, "--json"))
    [row] = [row for row in document["boards"][0]["rows"] if row["league"] == "yours"]
    assert (row["name"], row["rank"], round(row["acr"], 3)) == (NAME, 2, 0.768)


@pytest.mark.medium
@pytest.mark.parametrize(("flag", "plus"), [("--markdown", "+"), ("--latex", "+")])
def test_markdown_and_latex_have_the_row_and_its_differences(capsys, flag, plus):
    out = output(capsys, str(LOG), flag).replace(" $\\pm$ ", " ± ").replace("\u00a0", " ")
    [row, *_] = [line for line in out.splitlines() if f"{NAME} (yours)" in line]
    assert ACR in row and GAIN in row
    assert re.search(rf"MACER (\||&) {re.escape(GAIN)} ", out)
    assert flag == "--markdown" or out.isascii() or "±" in out


@pytest.mark.medium
def test_the_page_has_the_row_and_its_differences(capsys, tmp_path):
    file = tmp_path / "a.html"
    output(capsys, str(LOG), "--csv", "--html", str(file))
    text = file.read_text("utf-8").replace("\u00a0", " ")
    assert f'<tr class="yours">\n<th scope="row" data-value="{NAME}">{NAME} (yours)' in text
    assert f'<th scope="row">MACER</th><td>{GAIN}</td>' in text
    assert "No paired difference to Sun et al., whose logs" in text
    output(capsys, "--csv", "--html", str(file))
    assert "yours" not in file.read_text("utf-8")


@pytest.mark.medium
def test_a_name_from_outside_stays_in_its_place(capsys, tmp_path):
    odd = tmp_path / "a<b>\n|&\x1b[31m.tsv.gz"
    odd.write_bytes(LOG.read_bytes())
    file = tmp_path / "a.html"
    for flags in (["--csv"], ["--latex"], ["--markdown"], []):
        out = output(capsys, str(odd), *flags, "--html", str(file))
        assert "\x1b" not in out and "a<b>\n" not in out
        assert flags != ["--markdown"] or ("a<b" not in out and r"a\<b>\\n\|&\\x1b\[31m" in out)
    text = file.read_text("utf-8")
    assert "<b>" not in text and "\x1b" not in text and r"a&lt;b&gt;\n|&amp;\x1b[31m" in text


@pytest.mark.medium
def test_a_log_named_as_a_method_is_not_taken_for_it(capsys, tmp_path):
    file = tmp_path / "macer.tsv.gz"
    file.write_bytes(LOG.read_bytes())
    out = output(capsys, str(file))
    assert "− MACER" in out and re.search(rf"macer \(yours\) +2 +{ACR}", out)
    assert re.search(rf"MACER +{re.escape(GAIN)} *\n", out)


# known value


@pytest.mark.medium
def test_below_the_tables_stands_what_yours_means(capsys):
    assert below.YOURS in output(capsys, str(LOG))
    assert "yours" not in output(capsys)
