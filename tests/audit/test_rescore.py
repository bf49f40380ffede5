"""Certificates anew from stored counts: what they are, and when they hold at their level."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from journals import rewrite
from result_tables import by_both_bounds, log_of

from macer.audit.rescore import read_counts, rescored
from macer.certification.certificate import ABSTAIN
from macer.certification.conclusions import conclude
from macer.certification.header import Header
from macer.certification.journal import open_journal, read_journal
from macer.certification.table import rescored_lines
from macer.cli.app import main
from macer.reporting.logs import read_log
from macer.reporting.scores import average_certified_radius
from macer.runs.zoo import FOLDER, zoo_names
from macer.smoothing.tally import Tally

RESULTS = Path(__file__).parents[2] / "results"
NET = """
import torch
from torch import nn

def net(num_classes, channels):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784 * channels, num_classes))
"""
CERTIFY = "certify rescorenet:net --dataset mnist-sample --sigma 0.5 --n 500 --stop 12"
SOFT = ("hoeffding", "bernstein")
HARD = ("clopper-pearson", "runner-up")


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> Path:
    """Certificates of a small model from one set of samples by every bound, and of one radius."""
    folder = tmp_path_factory.mktemp("rescore")
    (folder / "rescorenet.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for bound in (*HARD, *SOFT):
            assert main([*CERTIFY.split(), "--bound", bound, "--out", bound]) == 0
        score = CERTIFY.replace("--stop 12", "--stop 60 --score --out score")
        assert main(score.split()) == 0
        assert main([*CERTIFY.split(), "--radius", "0.1", "--out", "radius"]) == 0
    return folder


@pytest.fixture
def desk(certified, tmp_path, monkeypatch) -> Path:
    shutil.copytree(certified, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(file: Path, without: int = 0) -> list[list[str]]:
    """The cells of a table, without so many of its last columns."""
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    return [line[: len(line) - without] for line in lines]


def older(folder: Path) -> None:
    """Make a journal one of those that do not say which other readings were fixed."""
    path = folder / "certificates.journal"
    contents = read_journal(path)
    records, header = list(contents.records.values()), contents.header
    entries = {name: value for name, value in header.to_json().items() if name != "also"}
    path.unlink()
    with open_journal(path, Header.from_json(entries), range(len(records))) as writer:
        writer.append(records)


# law


@pytest.mark.parametrize(("a", "b"), [HARD, HARD[::-1], SOFT, SOFT[::-1]])
def test_it_gives_the_certificates_that_the_other_bound_gives_from_the_same_samples(desk, a, b):
    assert main(["rescore", a, "--bound", b]) == 0
    assert rows(desk / a / f"rescored-{b}-0.001.tsv", 2) == rows(desk / b / "certificates.tsv")


@pytest.mark.parametrize("bound", [*HARD, *SOFT])
def test_by_its_own_bound_at_its_own_level_a_journal_gives_its_own_table(desk, bound, capsys):
    assert main(["rescore", bound]) == 0
    file = desk / bound / f"rescored-{bound}-0.001.tsv"
    assert rows(file, 2) == rows(desk / bound / "certificates.tsv")
    assert {tuple(row[-2:]) for row in rows(file)[1:]} == {(f"{bound} 0.001", "fixed")}
    assert "was fixed before the counts were drawn: certificates at level 0.001\n" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("bound", HARD)
def test_new_journals_of_votes_fix_both_bounds_at_one_level_and_no_other_level(desk, bound, capsys):
    [other] = set(HARD) - {bound}
    assert read_journal(desk / bound / "certificates.journal").header.also == [other]
    for alpha, level in (("0.001", "fixed"), ("0.01", "chosen"), ("0.0001", "chosen")):
        assert main(["rescore", bound, "--bound", other, "--alpha", alpha]) == 0
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith(f"{other} at alpha {alpha} was {level} ")
        assert ("not certificates at level" in said) == (level == "chosen")
        assert read_log(desk / bound / f"rescored-{other}-{alpha}.tsv").level == level


@pytest.mark.parametrize(("folder", "also"), [(*SOFT[:1], []), (SOFT[1], []), ("radius", [])])
def test_nothing_else_is_fixed_for_soft_outputs_and_for_one_radius(desk, folder, also):
    assert read_journal(desk / folder / "certificates.journal").header.also == also


def test_a_soft_bound_is_chosen_unless_it_is_the_journals_own(desk):
    assert main(["rescore", "bernstein", "--bound", "hoeffding"]) == 0
    assert read_log(desk / "bernstein" / "rescored-hoeffding-0.001.tsv").level == "chosen"


def test_an_older_journal_has_fixed_its_own_reading_alone(desk, capsys):
    older(desk / "clopper-pearson")
    assert main(["rescore", "clopper-pearson", "--bound", "runner-up"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == (
        "runner-up at alpha 0.001 was chosen after the counts were drawn: not certificates at "
        "level 0.001; the journal fixed clopper-pearson at 0.001"
    )
    assert " †" in out


def test_a_report_marks_what_was_chosen_and_tells_bounds_apart(desk, capsys):
    older(desk / "clopper-pearson")
    assert main(["rescore", "clopper-pearson", "--bound", "runner-up"]) == 0
    file = "clopper-pearson/rescored-runner-up-0.001.tsv"
    capsys.readouterr()
    for form, mark in (("--markdown", "†"), ("--latex", "†"), ("--csv", "chosen")):
        assert main(["report", "clopper-pearson", file, form]) == 0
        out = capsys.readouterr().out
        assert mark in out and "runner-up" in out
        marked = [line for line in out.splitlines() if "runner-up-0.001" in line]
        assert all(mark in line for line in marked) and marked
    assert main(["report", "clopper-pearson", file, "--html", "page.html"]) == 0
    out = capsys.readouterr().out
    name = "clopper-pearson/rescored-runner-up-0.001"
    assert f"† {name}: runner-up at 0.001 was chosen after the counts were drawn" in out
    assert "The rows differ in bound, on which ACR depends" in out
    assert " †" in Path("page.html").read_text()
    assert main(["report", "clopper-pearson", "clopper-pearson"]) == 0
    assert "bound" not in capsys.readouterr().out


def test_the_certificates_and_the_journal_stay_as_they_are(desk):
    before = {path: path.read_bytes() for path in desk.glob("*/certificates.*")}
    for bound in HARD:
        for folder in (*HARD, "score"):
            assert main(["rescore", folder, "--bound", bound, "--alpha", "0.01"]) == 0
    assert {path: path.read_bytes() for path in desk.glob("*/certificates.*")} == before


def test_images_that_a_score_did_not_estimate_stay_abstentions(desk):
    contents = read_counts(Path("score"))
    skipped = {i for i, record in contents.records.items() if record.certificate.drawn == 0}
    again = rescored(contents, bound="runner-up", alpha=0.1)
    assert 0 < len(skipped) < 60
    assert all(again[i].certificate.label == ABSTAIN for i in skipped)
    assert all(again[i].certificate.p_b == 1.0 for i in skipped)


def test_certificates_of_a_family_keep_their_level_and_held_out_ones_their_split(desk):
    assert main([*CERTIFY.split(), "--family", "--out", "family"]) == 0
    header = read_journal(Path("family/certificates.journal")).header
    assert header.alpha == pytest.approx(0.001 / 12) and header.also == ["runner-up"]
    assert main(["rescore", "family", "--bound", "runner-up"]) == 0
    [file] = Path("family").glob("rescored-*")
    assert read_log(file).alpha == header.alpha and read_log(file).level == "fixed"


def test_parts_of_an_older_macer_are_merged_and_promise_nothing_more(desk, capsys):
    for part, images in (("a", ["--stop", "2"]), ("b", ["--start", "2", "--stop", "4"])):
        assert main([*CERTIFY.replace("--stop 12", "").split(), *images, "--out", part]) == 0
    shutil.copytree("a", "old")
    older(Path("old"))
    assert main(["merge", "old", "b", "--out", "one"]) == 0
    assert read_journal(Path("one/certificates.journal")).header.also == []
    assert main(["merge", "b", "old", "--out", "two"]) == 2
    assert "also must be ['runner-up'] in old as in b, got []" in capsys.readouterr().err
    assert main(["merge", "a", "b", "--out", "three"]) == 0
    assert read_journal(Path("three/certificates.journal")).header.also == ["runner-up"]


# known value


ZOO = {  # ACR by Clopper and Pearson, and with the runner-up's bound
    "cifar10-0.25-cpu": (0.415, 0.418),
    "cifar10-0.50-cpu": (0.596, 0.608),
    "cifar10-1.00-cpu": (0.770, 0.803),
    "cifar10-0.25-record": (0.572, 0.575),
    "cifar10-0.50-record": (0.784, 0.792),
    "cifar10-1.00-record": (0.869, 0.888),
    "cifar10-0.25-fast": (0.543, 0.549),
    "cifar10-0.50-fast": (0.704, 0.727),
    "cifar10-1.00-fast": (0.804, 0.847),
    "mnist-0.25": (0.911, 0.910),
    "mnist-0.50": (1.638, 1.640),
    "mnist-1.00": (1.669, 1.766),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo_names())
def test_the_zoos_journals_have_these_figures_and_no_image_loses_its_certificate(name, tmp_path):
    contents = read_counts(FOLDER / name)
    before = read_log(FOLDER / name)
    records = rescored(contents, bound="runner-up", alpha=0.001)
    file = tmp_path / "a.tsv"
    file.write_text(
        "".join(rescored_lines(contents.header, records, bound="runner-up", alpha=0.001))
    )
    after = read_log(file)
    fixed = name.endswith("-cpu")  # their journals had stated both bounds beforehand
    assert after.level == ("fixed" if fixed else "chosen")
    assert after.rescored == "clopper-pearson 0.001"
    acrs = average_certified_radius(before), average_certified_radius(after)
    assert tuple(round(acr, 3) for acr in acrs) == ZOO[name]
    certified = before.predict != ABSTAIN
    assert (after.predict[certified] == before.predict[certified]).all()


# What results/README.md says: ACR by Clopper and Pearson, and with the runner-up's bound.
LOGS = {
    name: (cohens, ours)
    for name, cohens, ours in re.findall(
        r"^\| `([\w.-]+)` \| (\d\.\d{3}) \| (\d\.\d{3}) \|$",
        (RESULTS / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}


@pytest.mark.medium
@pytest.mark.parametrize("name", LOGS)
def test_the_logs_of_the_repository_have_the_figures_that_are_quoted(name):
    acrs = by_both_bounds(name)
    assert acrs is not None
    assert tuple(f"{acr:.3f}" for acr in acrs) == LOGS[name]
    assert f"{average_certified_radius(log_of(name)):.3f}" == LOGS[name][0]


def test_the_figures_of_all_recipes_are_quoted():
    assert len(LOGS) == 24 and LOGS["mnist-1.00-macer"] == ("1.592", "1.736")


# refusal


def refused(capsys, *arguments: str) -> str:
    before = sorted(map(str, Path().rglob("*")))
    assert main(["rescore", *arguments]) == 2
    assert sorted(map(str, Path().rglob("*"))) == before
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "bound", "message"),
    [
        ("clopper-pearson", "bernstein", "bound must be one of clopper-pearson, runner-up for "
         "counts of clopper-pearson, got bernstein"),
        ("bernstein", "runner-up", "bound must be one of hoeffding, bernstein for counts of "
         "bernstein, got runner-up"),
        ("radius", "runner-up", "certificates must be of largest radii, got those of radius 0.1"),
        ("radius", "clopper-pearson", "certificates must be of largest radii, got those of "),
    ],
)  # fmt: skip
def test_a_bound_that_the_counts_do_not_support_is_refused(desk, capsys, folder, bound, message):
    assert message in refused(capsys, folder, "--bound", bound)


def test_a_level_at_which_n_samples_certify_nothing_is_refused(desk, capsys):
    assert (
        "n must be at least 665 to certify anything at alpha 1e-200 with the clopper-pearson"
        in (refused(capsys, "clopper-pearson", "--alpha", "1e-200"))
    )


def test_an_unfinished_journal_is_refused(desk, capsys):
    rewrite(Path("clopper-pearson"), asked=range(20))
    assert "must have the 20 images that it was asked for, got 12; continue `macer certify`" in (
        refused(capsys, "clopper-pearson", "--bound", "runner-up")
    )


def test_counts_that_do_not_support_their_own_certificate_are_not_read_anew(desk, capsys):
    def forge(record):
        return replace(record, certificate=replace(record.certificate, radius=3.0))

    rewrite(Path("clopper-pearson"), forge)
    assert main(["rescore", "clopper-pearson", "--bound", "runner-up"]) == 1
    assert "its counts do not support its certificate" in capsys.readouterr().err
    assert not list(Path("clopper-pearson").glob("rescored-*"))


def test_the_folder_of_another_model_is_refused(desk, capsys):
    Path("other").mkdir()
    Path("other/model.safetensors").write_bytes(b"other")
    assert "out must hold the model that the certificates are of, or none, got other" in (
        refused(capsys, "clopper-pearson", "--bound", "runner-up", "--out", "other")
    )


def test_conclusions_of_one_image_are_those_of_many(desk):
    """`rescored` concludes record by record."""
    contents = read_counts(Path("clopper-pearson"))
    records = list(contents.records.values())
    selection, estimation = (
        torch.tensor([getattr(record.certificate, name) for record in records])
        for name in ("selection", "estimation")
    )
    header = contents.header
    together = conclude(
        *(Tally(votes, votes, votes) for votes in (selection, estimation)),
        sigma=header.sigma, n=header.n, alpha=0.01, bound="runner-up",
    )  # fmt: skip
    again = rescored(contents, bound="runner-up", alpha=0.01)
    assert [record.certificate for record in again.values()] == together
