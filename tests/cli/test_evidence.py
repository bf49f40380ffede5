"""The reviewer's way: a page, evidence, a signature, and `macer verify` of all of it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from journals import rewrite

from macer.cli.app import main

VERIFY = ["verify", "run", "--resample", "0", "--device", "cpu", "--evidence", "evidence.json"]
SIGNED = [*VERIFY, "--signature", "evidence.json.sig", "--signers", "signers"]

needs_ssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"
)


@pytest.fixture
def signed(copied_run: Path) -> Path:
    """A run with evidence that is signed."""
    assert main(["report", "run", "--radius", "0.1", "--evidence", "evidence.json"]) == 0
    for words in (
        "-q -t ed25519 -N  -f key",
        "-q -Y sign -f key -n macer evidence.json",
    ):
        subprocess.run(["ssh-keygen", *words.split(" ")], check=True, capture_output=True)
    Path("signers").write_text(f"ann {Path('key.pub').read_text()}")
    return copied_run


@needs_ssh
def test_signed_evidence_of_a_run_is_verified(
    signed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(SIGNED) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "evidence.json is signed by ann",
        "evidence.json is of this run: hashes and figures are equal",
    ]
    assert "6 certificates follow from their counts" in lines


@needs_ssh
def test_evidence_that_was_changed_after_signing_is_not_verified(
    signed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("evidence.json").read_text()
    Path("evidence.json").write_text(text.replace('"confidence": 0.95', '"confidence": 0.99'))
    capsys.readouterr()
    assert main(SIGNED) == 1
    assert capsys.readouterr().err.startswith(
        "macer: not verified: evidence.json.sig is not a signature of this evidence by ann: "
    )
    assert main(VERIFY) == 1
    assert capsys.readouterr().err == (
        "macer: not verified: the evidence is not of this run: verdict.confidence is 0.99, the run "
        "gives 0.95\n"
    )


@needs_ssh
def test_a_signature_binds_the_journal(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(signed, lambda record: record if record.idx else None, asked=range(1, 6))
    capsys.readouterr()
    assert main(["verify", "run", "--resample", "0", "--device", "cpu"]) == 0
    assert main(SIGNED) == 1
    assert "not of this run: hashes.journal is " in capsys.readouterr().err


@pytest.mark.medium
def test_the_stated_command_makes_the_same_certificates(copied_run: Path) -> None:
    assert main(["report", "run", "--evidence", "evidence.json"]) == 0
    command = json.loads(Path("evidence.json").read_text())["commands"]["certify"]
    words = command.replace("RUN", "run").replace("--data DATA ", "").replace("NEW", "new")
    assert main([*words.split()[1:], "--device", "cpu"]) == 0
    made, again = (Path(folder, "certificates.tsv") for folder in ("run", "new"))
    assert made.read_bytes() == again.read_bytes()


def test_the_verdict_is_printed_with_a_radius(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "run", "--radius", "0.1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(("run: With 95% confidence, at least ", "run: These certificates show"))


@pytest.mark.medium
def test_the_page_has_pictures_of_the_runs_own_images(at_desk: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    assert main(["report", "run", "--html", str(page), "--data", "small"]) == 0
    text = page.read_text("utf-8")
    assert text.count('<img src="data:image/png;base64,') == text.count("<img ") > 3
    assert "img-src data:" in text and "src=" in text
    assert main(["report", "run", "--html", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "<img" not in text and "img-src" not in text
    assert "There are no pictures of the images here" in text


@pytest.mark.medium
def test_the_page_shows_an_attack_and_what_is_answered_then(at_desk: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    flags = ["--radius", "0.01", "--html", str(page), "--data", "small", "--attack"]
    assert main(["report", "run", *flags]) == 0
    text = page.read_text("utf-8")
    rows = text.count('<div class="pictures">')
    captions = re.findall(r"<figcaption>an attack of ℓ₂ length 0.01: (.+?)</figcaption>", text)
    assert len(captions) == rows > 0 and text.count("<img ") == 5 * rows
    known = ("the answer stays", "no answer", "the answer becomes ")
    assert all(caption.startswith(known) for caption in captions)
    assert "the last picture is an attack" in text and "not attacks" not in text


@pytest.mark.slow
def test_a_report_with_evidence_does_not_import_torch(at_desk: Path, tmp_path: Path) -> None:
    import sys

    code = (
        "import sys; from macer.cli.app import main; "
        f"code = main(['report', 'run', '--html', {str(tmp_path / 'a.html')!r}, '--evidence', "
        f"{str(tmp_path / 'a.json')!r}, '--data', 'small']); "
        "sys.exit(code or int('torch' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
