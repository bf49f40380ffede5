import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch
from examples import bytes_of
from processes import torchrun

from macer.certification.data_set import certify_data_set
from macer.certification.journal import Contents
from macer.certification.preparation import plan_certification
from macer.certification.shards import certify_together, gather, merge_journals
from macer.certification.target import find_target
from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.recipes import CertifyRecipe
from macer.reporting.logs import read_log
from macer.system.errors import Mistake
from macer.system.files import locked
from macer.system.processes import Ranks

MODEL = "zoo:mnist-0.25"
SETTINGS = ["--dataset", "mnist-sample", "--n0", "20", "--n", "200", "--device", "cpu"]


def certify(out: str, *images: str) -> int:
    return main(["certify", MODEL, *SETTINGS, "--out", out, *images])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# law


@pytest.mark.slow
def test_two_processes_make_the_table_that_one_makes(here):
    assert certify("one", "--stop", "7", "--soft-betas", "1") == 0
    done = torchrun(
        *("-m", "--", "macer", "certify", MODEL, *SETTINGS),
        *("--out", "two", "--stop", "7", "--soft-betas", "1"),
        cwd=here,
    )
    assert done.returncode == 0, done.stderr
    for table in ("certificates.tsv", "bernstein-1/certificates.tsv"):
        assert Path("two", table).read_bytes() == Path("one", table).read_bytes()
    assert not Path("two/.parts").exists()
    assert done.stdout.count("Average certified radius") == 1


@pytest.mark.medium
def test_parts_by_the_runner_up_bound_are_merged_into_the_table_of_one(here):
    by = ("--bound", "runner-up")
    for out, images in (("one", "--stop 4"), ("a", "--stop 2"), ("b", "--start 2 --stop 4")):
        assert certify(out, *images.split(), *by) == 0
    assert main(["merge", "a", "b", "--out", "merged"]) == 0
    table = Path("merged/certificates.tsv").read_bytes()
    assert table == Path("one/certificates.tsv").read_bytes() and b"\tp_b\n" in table


@dataclass(frozen=True)
class Thread(Ranks):
    """One of several threads, which talk as processes do."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    said: dict[int, bool] = field(default_factory=dict)

    def any(self, here: bool) -> bool:
        self.said[self.rank] = here
        self.barrier.wait(20)
        found = any(self.said.values())
        self.barrier.wait(20)
        return found


class Certifier:
    """Certifies digits into folders, and notes which were asked for where."""

    def __init__(self, soft_betas: tuple[float, ...] = ()) -> None:
        self.split = load("mnist-sample", "test")
        self.target = find_target(
            MODEL, sigma=None, split=self.split, classes=classes_of("mnist-sample")
        )
        self.certification = plan_certification(
            self.target, self.split, "mnist-sample", CertifyRecipe(n0=20, n=200),
            device=torch.device("cpu"), soft_betas=soft_betas,
        )  # fmt: skip
        self.asked: list[tuple[str, list[int]]] = []
        self.late: dict[str, float] = {}  # seconds that a folder's work waits

    def __call__(
        self, folder: Path, indices: Sequence[int], asked: Sequence[int] | None = None
    ) -> Contents:
        self.asked.append((str(folder), list(indices)))
        time.sleep(self.late.get(str(folder), 0))
        return certify_data_set(self.certification, indices, folder, asked=asked)


def together(certifier: Certifier, indices: Sequence[int], threads: int) -> list[Contents]:
    """What each of some threads gets that certify into the folder `run`."""

    def noted(_, indices: Sequence[int], folder: Path, **asked: Sequence[int]) -> Contents:
        return certifier(folder, indices, **asked)

    barrier, said = threading.Barrier(threads), {}
    ranks = [Thread(rank, threads, barrier, said) for rank in range(threads)]
    with (
        patch("macer.certification.shards.certify_data_set", noted),
        ThreadPoolExecutor(threads) as pool,
    ):
        done = [
            pool.submit(
                certify_together, certifier.certification, indices, Path("run"), ranks=one
            )
            for one in ranks
        ]  # fmt: skip
        return [one.result() for one in done]


def test_progress_names_the_folder_that_was_asked_for(here):
    """A part's own folder is only a number."""
    with patch("macer.certification.data_set.bar", return_value=nullcontext(Mock())) as shown:
        assert certify("one", "--stop", "1") == 0
        certifier = Certifier()
        certifier(Path("two/.parts/1"), [0, 1])
    titles = [call.args[0] for call in shown.call_args_list]
    assert titles == ["certifying one, 1 image", "certifying two, 2 images of process 1"]


@pytest.mark.medium
def test_each_takes_its_share_of_the_images_that_not_all_journals_have(here):
    """Image 0 has both certificates, image 1 the hard one alone: 1 is to be done, 0 is not."""
    Certifier((1.0,))(Path("run"), [0])
    Certifier()(Path("run"), [1])
    certifier = Certifier((1.0,))
    certifier.late["run/.parts/1"] = 0.5  # the first one waits for it
    found = together(certifier, range(7), 2)
    assert sorted(certifier.asked) == [
        ("run", []),
        ("run/.parts/0", [1, 3, 5]),
        ("run/.parts/1", [2, 4, 6]),
    ]
    Certifier((1.0,))(Path("whole"), range(7))
    for table in ("certificates.tsv", "bernstein-1/certificates.tsv"):
        assert Path("run", table).read_bytes() == Path("whole", table).read_bytes()
    assert [sorted(contents.records) for contents in found] == [list(range(7))] * 2
    assert not Path("run/.parts").exists()


@pytest.mark.medium
def test_of_hard_certificates_alone_only_their_journal_counts(here):
    Certifier((1.0,))(Path("run"), [2])
    Certifier()(Path("run"), [0])
    certifier = Certifier()
    together(certifier, [0, 1, 2, 3], 3)
    parts = [("run/.parts/0", [1]), ("run/.parts/1", [3]), ("run/.parts/2", [])]
    assert sorted(certifier.asked) == [("run", []), *parts]
    assert read_log(Path("run")).idx.tolist() == [0, 1, 2, 3]


@pytest.mark.medium
def test_what_the_folder_and_parts_have_is_shared_out_to_nobody(here):
    Certifier()(Path("run"), [0])
    Certifier()(Path("run/.parts/7"), [2])
    certifier = Certifier()
    together(certifier, [0, 1, 2, 3], 2)
    assert certifier.asked[1:] in (
        [("run/.parts/0", [1]), ("run/.parts/1", [3])],
        [("run/.parts/1", [3]), ("run/.parts/0", [1])],
    )


@pytest.mark.medium
def test_parts_of_processes_that_died_are_not_done_again(here, capsys):
    """However many there were: the images of parts 0 and 5, and those of the folder itself."""
    assert certify("whole", "--stop", "6") == 0
    assert certify("torn", "--stop", "1") == 0
    assert certify("torn/.parts/0", "--start", "1", "--stop", "3") == 0
    assert certify("torn/.parts/5", "--start", "4", "--stop", "5") == 0
    capsys.readouterr()
    assert certify("torn", "--stop", "6") == 0
    assert "4 of 6 images are certified already" in capsys.readouterr().err
    table = "certificates.tsv"
    assert Path("torn", table).read_bytes() == Path("whole", table).read_bytes()
    assert not Path("torn/.parts").exists()


@pytest.mark.medium
def test_folders_of_the_users_own_are_left_alone(here):
    assert certify("run/parts/a", "--stop", "2") == 0
    Path("run/parts/notes.txt").write_text("mine")
    assert certify("run", "--start", "2", "--stop", "3") == 0
    assert Path("run/parts/notes.txt").exists() and Path("run/parts/a/certificates.tsv").exists()
    assert len(read_log(Path("run")).idx) == 1


@pytest.mark.medium
def test_what_the_folder_has_of_an_image_stays(here, monkeypatch):
    """A GPU may give other counts when it certifies again."""
    assert certify("run", "--stop", "2") == 0
    assert certify("run/.parts/0", "--stop", "2") == 0
    before = Path("run/certificates.tsv").read_bytes()
    monkeypatch.setattr("macer.certification.shards._claim", lambda record: object())
    with pytest.raises(Mistake, match="must have the certificate it has in"):
        merge_journals([Path("run/.parts/0")], Path("run"))
    gather(Path("run"))
    assert Path("run/certificates.tsv").read_bytes() == before


@pytest.mark.medium
def test_a_report_tells_of_parts_that_are_not_in_the_table_yet(here, capsys):
    assert certify("run", "--stop", "1") == 0
    assert certify("run/.parts/1", "--start", "1", "--stop", "3") == 0
    assert main(["report", "run"]) == 0
    assert "the table of run lacks 2 certificates" in capsys.readouterr().err


@pytest.mark.medium
def test_after_a_kill_it_is_said_where_the_certificates_are(here, capsys):
    assert certify("run/.parts/1", "--stop", "3") == 0
    capsys.readouterr()
    assert main(["report", "run"]) == 2
    assert "but its journal has 3; certify again to write the table" in capsys.readouterr().err
    gather(Path("run"))
    Path("run/certificates.tsv").unlink()
    assert main(["verify", "run", "--target", MODEL]) == 1
    line = "macer: not verified: there is no run/certificates.tsv; certify again to write it"
    assert capsys.readouterr().err.startswith(line)


# refusal


class Lonely(Ranks):
    """The first of two processes, with nobody to talk to."""

    def any(self, here: bool) -> bool:
        return here


def test_other_settings_than_the_folders_are_refused_before_any_work(here, monkeypatch, capsys):
    assert certify("run", "--stop", "1") == 0
    before = bytes_of(Path("run"))
    monkeypatch.setattr("macer.cli.certify.joined", lambda _: nullcontext(Lonely(0, 2)))
    assert certify("run", "--stop", "3", "--seed", "5") == 2
    assert "seed must be 0 to continue run/certificates.journal, got 5" in capsys.readouterr().err
    assert bytes_of(Path("run")) == before


def test_parts_that_are_being_written_are_left_alone(here, capsys):
    assert certify("run/.parts/0", "--stop", "2") == 0
    before = Path("run/.parts/0/certificates.journal").read_bytes()
    with locked(Path("run/.parts/0")), pytest.raises(Mistake, match="is being written by another"):
        gather(Path("run"))
    assert Path("run/.parts/0/certificates.journal").read_bytes() == before
    gather(Path("run"))
    assert Path("run/certificates.journal").read_bytes() and not Path("run/.parts").exists()


@pytest.mark.medium
def test_parts_of_other_settings_are_refused_and_kept(here, capsys):
    assert certify("run", "--stop", "1") == 0
    assert certify("run/.parts/0", "--start", "1", "--stop", "2", "--seed", "5") == 0
    capsys.readouterr()
    assert certify("run", "--stop", "2") == 2
    assert "seed must be" in capsys.readouterr().err
    assert Path("run/.parts/0/certificates.journal").exists()
