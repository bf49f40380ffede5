"""Journals bent in a thousand ways, every checksum made right again: what the audit finds.

A forger knows how checksums are made. Each way to forge is in one of three classes:

found        by `verify`, without drawing a sample
resampled    only by drawing samples again: counts that no arithmetic contradicts
disclosed    a journal that was asked for fewer images says so; whoever demands them by
             --start, --stop and --skip finds that they are not there. One that is made to look
             older, or made on another machine, is not drawn again, which `verify` says
"""

import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from macer.audit.verify import (
    check_complete,
    check_sources,
    check_table,
    read_certificates,
    recompute,
    resample,
)
from macer.certification.conclusions import conclude
from macer.certification.journal import Contents, journal_line, read_journal
from macer.certification.table import write_table
from macer.certification.target import find_target
from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.smoothing.tally import Tally
from macer.system.errors import AuditFailed, Mistake

IMAGES = 16
CPU = torch.device("cpu")
NET = """
import torch
from PIL import Image
from torch import nn

def net(num_classes, channels):
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(784 * channels, num_classes))
"""


class Desk:
    """An honest journal, its model and data, and what a forger makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "certificates.journal"
        self.honest = self.path.read_bytes()
        self.split = load("mnist-sample", "test")
        self.target = find_target(
            "forgednet:net", sigma=0.5, split=self.split, classes=classes_of("mnist-sample", None)
        )

    def lines(self) -> list[dict]:
        """The journal's objects: header, scope, records."""
        return [json.loads(line.partition(b" ")[2]) for line in self.honest.splitlines()]

    def write(self, lines: list[dict], *, numbered: bool = True) -> None:
        """Write lines with right checksums, and the table that they give."""
        header, *rest = lines
        first = journal_line(b"", header)
        digest = first.partition(b" ")[0]
        if numbered:
            rest = [{"line": 0} | line | {"line": i} for i, line in enumerate(rest, start=1)]
        self.path.write_bytes(first + b"".join(journal_line(digest, line) for line in rest))
        with suppress(Mistake):  # a forgery that is found when it is read
            write_table(read_journal(self.path), self.folder / "certificates.tsv")

    def audit(self, expected=()) -> Contents:
        contents = read_certificates(self.folder)
        check_complete(contents, expected, partial=False)
        recompute(contents)
        check_table(contents, self.folder / "certificates.tsv")
        self.model = check_sources(contents, self.target, self.split, CPU)
        return contents


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Desk:
    folder = tmp_path_factory.mktemp("forgery")
    (folder / "forgednet.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command = "certify forgednet:net --dataset mnist-sample --sigma 0.5 --n 300 --device cpu"
        assert main([*command.split(), "--stop", str(IMAGES), "--out", "certs"]) == 0
        yield Desk(folder / "certs")


def concluded(line: dict, votes: list[int], header: dict) -> dict:
    """A record's object with other votes and the certificate that follows from them."""
    selection = torch.tensor([line["certificate"]["selection"]])
    estimation = torch.tensor([votes])
    level = {name: header[name] for name in ("sigma", "n", "alpha", "bound")}
    [certificate] = conclude(
        Tally(selection, selection, selection), Tally(estimation, estimation, estimation), **level
    )
    made = {
        "label": certificate.label, "radius": certificate.radius, "p_a": certificate.p_a,
        "selected": certificate.selected, "estimation": votes,
    }  # fmt: skip
    return line | {"certificate": line["certificate"] | made}


# The ways to forge, of (lines, random) -> lines; the first two lines are header and scope.


def delete(lines, draw):
    return lines[:2] + draw.sample(lines[2:], draw.randrange(IMAGES))


def double(lines, draw):
    return [*lines, *draw.choices(lines[2:], k=draw.randint(1, 3))]


def second_record(lines, draw):
    place, other = draw.sample(range(2, len(lines)), 2)
    again = lines[other] | {"idx": lines[place]["idx"]}
    return [*lines[:place], again, *lines[place:]]


def edit(*names):
    def change(lines, draw):
        place, name = draw.randrange(2, len(lines)), draw.choice(names)
        line = json.loads(json.dumps(lines[place]))
        value = line["certificate"][name]
        if isinstance(value, list):
            value[draw.randrange(len(value))] += draw.randint(1, 9) * 10**6
        else:
            step = draw.choice([1, -1]) if name in ("label", "selected") else draw.uniform(1e-6, 1)
            line["certificate"][name] = value + step
        return [*lines[:place], line, *lines[place + 1 :]]

    return change


def other_label(lines, draw):
    place = draw.randrange(2, len(lines))
    label = (lines[place]["label"] + draw.randint(1, 9)) % 10
    return [*lines[:place], lines[place] | {"label": label}, *lines[place + 1 :]]


def other_idx(lines, draw):
    place = draw.randrange(2, len(lines))
    idx = draw.randrange(IMAGES, 10**6)
    return [*lines[:place], lines[place] | {"idx": idx}, *lines[place + 1 :]]


def header_entry(lines, draw):
    entries = {
        "sigma": draw.uniform(0.1, 2), "n": draw.randint(301, 10**6), "n0": draw.randint(1, 99),
        "alpha": draw.uniform(1e-9, 0.0009), "bound": "hoeffding", "weights_sha256": "ab" * 32,
        "data_sha256": "cd" * 32, "model": "lenet", "score": True, "radius": 0.25, "format": 7,
        "outputs": [[0.0] * 10] * 16, "family": draw.randint(1, IMAGES - 1),
    }  # fmt: skip
    name = draw.choice(list(entries))
    return [lines[0] | {name: entries[name]}, *lines[1:]]


def header_without(lines, draw):
    """As if it were older, to be spared the checks that need the entry."""
    name = draw.choice(["outputs", "cpu", "family", "row_by_row"])
    return [{key: value for key, value in lines[0].items() if key != name}, *lines[1:]]


def no_scope(lines, draw):
    return [lines[0], *lines[2:]]


def larger_scope(lines, draw):
    return [lines[0], {"images": [[0, IMAGES + draw.randint(1, 99), 1]]}, *lines[2:]]


def smaller_scope(lines, draw):
    return [lines[0], {"images": [[0, draw.randrange(1, IMAGES), 1]]}, *lines[2:]]


def garbage(lines, draw):
    junk = draw.choice(
        [
            {"idx": 3},
            {"idx": -1, "label": 0},
            {"images": "all"},
            {"images": [[0, 10**12, 1]]},
            {"images": [[3, 1]]},
            lines[2] | {"certificate": None},
            lines[2] | {"certificate": {"label": 3}},
            lines[2] | {"certificate": lines[2]["certificate"] | {"selection": [1e308]}},
            lines[2] | {"certificate": lines[2]["certificate"] | {"radius": 1.7e308}},
            lines[2] | {"seconds": "long"},
            lines[2] | {"label": 10**30},
            {"other": 1},
        ]
    )
    place = draw.randrange(2, len(lines))
    return [*lines[:place], junk, *lines[place + 1 :]]


FOUND = {
    "records deleted": delete,
    "records doubled": double,
    "a second record of an image": second_record,
    "a conclusion edited": edit("label", "radius", "p_a", "selected", "drawn"),
    "counts edited": edit("selection", "estimation"),
    "a true label edited": other_label,
    "a record of no image": other_idx,
    "a header edited": header_entry,
    "a header that lacks an entry": header_without,
    "no statement of images": no_scope,
    "more images stated": larger_scope,
    "fewer images stated": smaller_scope,
    "a line of something else": garbage,
}


def votes_for_the_label(lines, draw):
    """Every sample votes for one class; its certificate follows from that."""
    place = draw.randrange(2, len(lines))
    votes = [0] * 10
    votes[lines[place]["certificate"]["selected"]] = lines[0]["n"]
    return [*lines[:place], concluded(lines[place], votes, lines[0]), *lines[place + 1 :]]


def other_seed(lines, draw):
    return [lines[0] | {"seed": draw.randrange(1, 2**62)}, *lines[1:]]


def more_selection_samples(lines, draw):
    return [lines[0] | {"n0": draw.randint(101, 300)}, *lines[1:]]


def swapped_counts(lines, draw):
    places = [(i, j) for i in range(2, len(lines)) for j in range(2, i)
              if lines[i]["label"] == lines[j]["label"]]  # fmt: skip
    i, j = draw.choice(places)
    changed = list(lines)
    changed[i] = lines[i] | {"certificate": lines[j]["certificate"]}
    changed[j] = lines[j] | {"certificate": lines[i]["certificate"]}
    return changed


RESAMPLED = {
    "counts made up": votes_for_the_label,
    "counts of another image": swapped_counts,
    "another seed stated": other_seed,
    "more selection samples stated": more_selection_samples,
}


def test_the_honest_journal_is_verified(desk):
    desk.write(desk.lines())
    assert desk.path.read_bytes() == desk.honest
    assert len(desk.audit(range(IMAGES)).records) == IMAGES


@pytest.mark.slow
@pytest.mark.parametrize("way", FOUND)
def test_a_forgery_is_found_without_a_sample(desk, way):
    draw, lines = random.Random(way), desk.lines()
    for _ in range(80):
        desk.write(FOUND[way](lines, draw))
        with pytest.raises((AuditFailed, Mistake)):
            desk.audit()


def test_another_order_of_the_lines_is_found_without_a_sample(desk):
    draw = random.Random(0)
    for _ in range(40):
        header, *rest = desk.lines()
        desk.write([header, *draw.sample(rest, len(rest))], numbered=False)
        with pytest.raises(AuditFailed, match="do not follow the line before them"):
            desk.audit()


def test_a_record_of_a_journal_with_another_header_is_found(desk):
    """Copied as it is, its checksum does not fit; written anew, its counts do not."""
    header, _, *records = desk.lines()
    other = journal_line(
        journal_line(b"", header | {"n": 999}).partition(b" ")[0], records[0] | {"line": 18}
    )
    desk.path.write_bytes(desk.honest + other)
    with pytest.raises(AuditFailed, match="1 records of the journal are damaged"):
        desk.audit()


@pytest.mark.medium
@pytest.mark.parametrize("way", RESAMPLED)
def test_counts_that_no_arithmetic_contradicts_are_found_by_drawing_again(desk, way):
    draw, lines = random.Random(way), desk.lines()
    for _ in range(8):
        desk.write(RESAMPLED[way](lines, draw))
        contents = desk.audit()  # the class says so: not found before
        with pytest.raises(AuditFailed, match="drawing its samples again gives other counts"):
            for _ in resample(contents, desk.model, desk.split, images=IMAGES):
                pass


def test_a_journal_asked_for_fewer_images_says_so_and_is_found_by_whoever_demands_them(desk):
    header, _, *records = desk.lines()
    kept = [line for line in records if line["certificate"]["label"] == line["label"]]
    stated = {"images": [[line["idx"], line["idx"] + 1, 1] for line in kept]}
    desk.write([header, stated, *kept])
    assert len(desk.audit().records) == len(kept) < IMAGES
    with pytest.raises(AuditFailed, match=r"image \d+, and \d+ others, must be certified"):
        desk.audit(range(IMAGES))


@pytest.mark.parametrize("entry", [{"format": 1}, {"cpu": "Z80"}, {"device": "cuda"}])
def test_a_journal_that_looks_older_or_of_another_machine_is_not_drawn_again_and_says_so(
    desk, entry, capsys
):
    header, *rest = desk.lines()
    later = ("outputs", "cpu", "family", "row_by_row") if "format" in entry else ()
    kept = {key: value for key, value in header.items() if key not in later}
    desk.write([kept | entry, *rest])
    desk.audit()
    command = ["verify", str(desk.folder), "--target", "forgednet:net", "--device", "cpu"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "no image sampled again, since it cannot be done here: " in out
    assert ("model, its outputs, data" in out) == ("format" not in entry)
    assert main([*command, "--resample", "1"]) == 2


def test_what_has_no_certificate_yet_is_verified_only_if_asked_for(desk):
    desk.write(desk.lines()[:-3])
    contents = read_certificates(desk.folder)
    with pytest.raises(AuditFailed, match="13 of 16 images are certified, image 13 is not"):
        check_complete(contents, partial=False)
    check_complete(contents, partial=True)
    older = replace(contents, scope=None)
    with pytest.raises(AuditFailed, match="does not say which images were to be certified"):
        check_complete(older, partial=False)
    check_complete(older, partial=True)


# Values that no field of a header or of a record has, or that only some may have.
STRANGE = [
    None, True, 0, -1, 1, 7, 100, 1.5, 2**63, 10**30, 1e308, -1e308, float("nan"), float("inf"), "",
    "x", "\n\t\x1b[A", "ab" * 32, "bernstein", "cuda", "bf16", "train", [], [1], {}, {"a": 1},
    [[0, 10**12, 1]], [None] * 10, [10**18] * 10, [-1] * 10, [0.5] * 10, [[1.0] * 10] * 16,
]  # fmt: skip
COMMANDS = [
    "verify run --resample 0", "verify run --partial --resample 1", "report run",
    "attack run --images 1 --steps 1 --m 2 --n 50 --restarts 1", "merge run --out merged",
    "predict run digit.png --n 100", "certify run --n 100 --stop 6",
]  # fmt: skip


def strange(lines: list[dict], draw: random.Random) -> bytes:
    """A journal of which one to three fields, anywhere, have a strange value; checksums right."""
    lines = json.loads(json.dumps(lines))
    later = ["split", "family", "row_by_row", "cpu", "outputs", "format", "new"]
    for _ in range(draw.randint(1, 3)):
        line = draw.choice([lines[0], *lines])
        certificate = line.get("certificate")
        if isinstance(certificate, dict) and draw.random() < 0.5:
            line = certificate
        line[draw.choice([*line, *(later if line is lines[0] else [])])] = draw.choice(STRANGE)
    first = journal_line(b"", lines[0])
    digest = first.partition(b" ")[0]
    return first + b"".join(journal_line(digest, line) for line in lines[1:])


@pytest.mark.slow
def test_every_command_answers_a_forged_journal_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("packednet.py").write_text(NET)
    Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    assert (
        main(
            ["pack", "packednet:net", "--sigma", "0.5", "--dataset", "mnist-sample", "--out", "run"]
        )
        == 0
    )
    assert main(["certify", "run", "--n", "100", "--stop", "6", "--device", "cpu"]) == 0
    journal, table = Path("run/certificates.journal"), Path("run/certificates.tsv")
    honest = [json.loads(line.partition(b" ")[2]) for line in journal.read_bytes().splitlines()]
    kept, draw, codes = table.read_bytes(), random.Random(0), set()
    for _ in range(60):
        forged = strange(honest, draw)
        for command in COMMANDS:
            journal.write_bytes(forged)
            table.write_bytes(kept)
            shutil.rmtree("merged", ignore_errors=True)
            device = [] if command.startswith(("report", "merge")) else ["--device", "cpu"]
            capsys.readouterr()
            code = main([*command.split(), *device])
            error = capsys.readouterr().err
            assert code in (0, 1, 2) and "Traceback" not in error, (command, forged)
            assert code == 0 or error.splitlines()[-1].startswith("macer: "), command
            codes.add(code)
    assert codes == {0, 1, 2}
