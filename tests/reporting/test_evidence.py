"""evidence.json has the keys of its page, and the hashes of the run's files."""

import hashlib
import json
from pathlib import Path

import pytest
from evidence_run import evidence_of, source_of, write_run
from schema import SIMPLE, matches, parts_of

from macer.cli.app import command_line
from macer.data.selection import Selection
from macer.reporting.clauses import CLAUSES
from macer.reporting.evidence import check_evidence_path, source, write_evidence
from macer.reporting.logs import read_log
from macer.reporting.verdict import verdicts
from macer.runs.names import JOURNAL, MANIFEST, TABLE
from macer.system.errors import Mistake

PARTS = parts_of("evidence.md")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# law


def test_the_document_has_exactly_the_keys_of_its_page(run: Path) -> None:
    matches(PARTS, evidence_of(run), "evidence", "evidence")
    (run / MANIFEST).unlink()
    document = evidence_of(run)
    matches(PARTS, document, "evidence", "evidence")
    assert document["training"] is document["versions"]["trained"] is None


def test_every_part_of_the_page_is_used() -> None:
    kinds = {k for keys in PARTS.values() for k in keys.values()}
    used = {kind.removesuffix(" or null").removeprefix("list of ") for kind in kinds}
    assert used <= {*PARTS, *SIMPLE} and PARTS.keys() - used == {"evidence"}


def test_the_hashes_are_those_of_the_files_and_of_the_journal(run: Path) -> None:
    assert evidence_of(run)["hashes"] == {
        "journal": sha256(run / JOURNAL),
        "table": sha256(run / TABLE),
        "manifest": sha256(run / MANIFEST),
        "weights": "ab" * 32,
        "data": "cd" * 32,
        "training_data": "ef" * 32,
    }


def test_the_verdict_is_that_of_the_counted_images(run: Path) -> None:
    images = Selection(0, 40, 2)
    document = evidence_of(run, images, 0.1)
    [verdict] = verdicts([source_of(run, images).log], 0.1)
    assert document["verdict"] | {"name": "run"} == vars(verdict)
    assert document["images"]["which"] == "0…38, every 2nd"
    assert (document["images"]["counted"], document["images"]["asked"]) == (20, 60)
    assert sum(one["images"] for one in document["classes"]) == 20


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    for name in "ab":
        write_evidence(evidence_of(run), tmp_path / f"{name}.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_bytes()) == evidence_of(run)


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"family": 60, "alpha": 0.001 / 60},
        {"seed": 7, "n": 123456, "exact": False, "row_by_row": True, "score": True},
        {"split": "train", "bound": "runner-up"},
    ],
)
def test_the_command_to_certify_has_every_setting_of_the_journal(
    entries: dict[str, object], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", **entries)
    header = source_of(run).header
    words = evidence_of(run)["commands"]["certify"].split()
    _, bound, _ = command_line().parse_args(words[1:], exit_on_error=False, print_error=False)
    bound.apply_defaults()
    given = bound.arguments
    alpha = given["settings"].alpha / (60 if given["family"] else 1)
    assert vars(given["settings"]) | {"alpha": alpha} == vars(header.recipe)
    assert given["family"] == (header.family is not None)
    assert given["held_out"] == (header.split == "train")
    assert (given["start"], given["stop"], given["skip"]) == (0, 60, 1)


@pytest.mark.parametrize(
    ("value_range", "inputs"),
    [
        ([0.0, 1.0], "images with values in [0, 1]"),
        ([-8.0, 8.0], "inputs with values in [-8, 8]"),
        (None, "inputs in the units of the data set"),
    ],
)
def test_the_claim_names_the_inputs_that_the_radius_is_a_distance_of(
    tmp_path: Path, value_range: list[float] | None, inputs: str
) -> None:
    run = write_run(tmp_path / "run", value_range=value_range, exact=False, dataset="arrays")
    assert evidence_of(run)["claim"].endswith(f"Distances are of {inputs}.")


def test_the_commands_of_arrays_are_python(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", value_range=None, exact=False, dataset="arrays")
    commands = evidence_of(run)["commands"]
    assert commands["certify"].startswith(
        "macer.open_run('RUN').certify(DATA, start=0, stop=60, n0=100, n="
    )
    assert ", exact=False, " in commands["certify"]
    assert commands["verify"] == "macer.open_run('RUN').verify(DATA)"
    assert "--data" not in commands["report"]
    for command in (commands["certify"], commands["verify"]):
        compile(command, "command", "eval")
    (run / MANIFEST).unlink()
    commands = evidence_of(run)["commands"]
    assert commands["certify"].startswith("macer.open_run('MODEL').certify(DATA, ")
    assert commands["verify"] == "macer.open_run('MODEL').verify(DATA, out='RUN')"


def test_certificates_in_no_run_have_commands_that_name_the_model(run: Path) -> None:
    assert evidence_of(run)["commands"]["verify"].startswith("macer verify RUN --data DATA")
    (run / MANIFEST).unlink()
    commands = evidence_of(run, radius=0.1)["commands"]
    assert commands["certify"].startswith(
        "macer certify MODEL --sigma 0.25 --dataset mnist --data DATA"
    )
    assert commands["verify"].startswith("macer verify RUN --target MODEL --data DATA")
    assert " --radius 0.1 " in commands["report"]


def test_clauses_claim_no_conformity_and_say_what_is_left_open() -> None:
    documents = {clause.document for clause in CLAUSES}
    assert len(documents) == 3
    for clause in CLAUSES:
        assert clause.covered and clause.not_covered and clause.topic
        assert "conform" not in clause.covered and "complies" not in clause.covered
    assert len({(clause.document, clause.clause) for clause in CLAUSES}) == len(CLAUSES)


def test_a_log_file_has_no_evidence(run: Path) -> None:
    assert source(run / TABLE, read_log(run / TABLE)) is None


# refusal


def test_a_table_that_lacks_certificates_is_refused(run: Path) -> None:
    lines = (run / TABLE).read_text().splitlines(keepends=True)
    (run / TABLE).write_text("".join(lines[:-2]))
    with pytest.raises(Mistake, match="must have the certificates of its journal, got 2 fewer"):
        evidence_of(run)


def test_evidence_does_not_overwrite_other_files() -> None:
    with pytest.raises(Mistake, match=r"path of evidence must end in \.json, got"):
        check_evidence_path(Path("run/certificates.journal"))
