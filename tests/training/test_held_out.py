import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small_mnist import write_mnist
from tiny_models import tiny_recipe, tiny_split

from macer.certification.journal import read_journal
from macer.certification.largest_radius import certify
from macer.cli.app import main
from macer.data.sets import Split, load
from macer.recipes import Loss, TrainRecipe
from macer.reporting.logs import describe_images, read_log
from macer.runs.ensemble import ensemble
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake
from macer.training.held_out import check_held_out, check_teachers, first_held_out, hold_out

TRAIN = ["train", "sample/gaussian", "--dataset", "mnist", "--labelled", "0", "--epochs", "2"]
TRAIN += ["--device", "cpu"]
CERTIFY = ["--n0", "20", "--n", "200", "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run`, which held 30 images out, and `all`, which held none out."""
    folder = tmp_path_factory.mktemp("held out")
    write_mnist(folder / "data", train=1280, t10k=40)
    for name, held_out in (("run", ["--held-out", "30"]), ("all", [])):
        where = ["--data", str(folder / "data"), "--out", str(folder / name)]
        assert main([*TRAIN, *held_out, *where]) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("MACER_DATA", str(tmp_path / "here/data"))
    return tmp_path / "here"


def test_the_last_images_are_held_out_and_a_batch_is_left_at_least() -> None:
    split = tiny_split(images=40)
    training, held_out = hold_out(split, tiny_recipe(held_out=24, batch=16))
    assert np.array_equal(training.images, split.images[:16]) and held_out is not None
    assert np.array_equal(training.labels, split.labels[:16])
    assert np.array_equal(held_out.images, split.images[16:])
    assert np.array_equal(held_out.labels, split.labels[16:])
    assert hold_out(split, tiny_recipe(batch=40))[1] is None
    for held_out_, batch in ((25, 16), (0, 41)):
        with pytest.raises(
            Mistake, match=r"must not exceed the 40 training .*; lower one of them$"
        ):
            hold_out(split, tiny_recipe(held_out=held_out_, batch=batch))


@pytest.mark.slow
def test_held_out_images_are_certified_and_no_others(here: Path) -> None:
    assert main(["certify", "run", "--held-out", *CERTIFY]) == 0
    split = load("mnist", "train")
    count = len(split.images)
    log = read_log(Path("run/held-out"))
    np.testing.assert_array_equal(log.idx, np.arange(count - 30, count))
    np.testing.assert_array_equal(log.label, split.labels[-30:])
    assert log.split == "train"
    assert not Path("run/certificates.tsv").exists()

    images = torch.from_numpy(np.asarray(split.images[-30:]))
    again = certify(load_model("run")[0], images, sigma=0.5, n0=20, n=200, indices=log.idx.tolist())
    assert log.predict.tolist() == [certificate.label for certificate in again]
    assert log.radius == pytest.approx([certificate.radius for certificate in again], abs=1e-6)


@pytest.mark.slow
def test_their_certificates_are_told_from_those_of_test_images(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where only the table is left, and image numbers and labels happen to agree."""
    held_out, test = Path("run/held-out"), Path("run")
    assert main(["certify", "run", "--held-out", *CERTIFY]) == 0
    assert main(["certify", "run", "--stop", "30", *CERTIFY]) == 0
    assert "split" not in (test / "certificates.tsv").read_text()
    assert "split" not in read_journal(test / "certificates.journal").header.to_json()
    assert read_journal(held_out / "certificates.journal").header.split == "train"
    capsys.readouterr()

    table = (held_out / "certificates.tsv").read_text().splitlines()
    Path("copied.tsv").write_text("\n".join(table) + "\n")
    usual = [line.rpartition("\t")[0] for line in table]
    Path("usual.tsv").write_text("\n".join(usual) + "\n")
    assert main(["report", "copied.tsv", "usual.tsv"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    numbers = describe_images(read_log(Path("usual.tsv")))
    assert f"training {numbers} (30)" in out
    assert "Not compared: usual and copied must have images in common" in out
    assert "The rows differ in images" in out


@pytest.mark.medium
def test_their_certificates_stand_an_audit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "run", "--held-out", "--skip", "10", *CERTIFY]) == 0
    assert main(["verify", "run/held-out", "--device", "cpu", "--resample", "2"]) == 0
    assert "3 certificates follow from their counts" in capsys.readouterr().out
    attack = ["attack", "run/held-out", "--steps", "1", "--n", "100"]
    assert main([*attack, "--images", "1", "--device", "cpu"]) == 0


@pytest.mark.medium
def test_certificates_in_a_run_are_audited_by_its_model_and_no_other(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--held-out", "--skip", "10", "--soft-betas", "1", *CERTIFY]
    assert main(["certify", "run", *chosen]) == 0
    assert main(["verify", "run/held-out/bernstein-1"]) == 0
    monkeypatch.chdir("run/held-out")
    assert main(["verify", "."]) == 0
    monkeypatch.chdir(here)
    shutil.copytree("run/held-out", "all/others")
    assert main(["verify", "all/others"]) == 2
    assert "target must be given where no model lies beside the cert" in capsys.readouterr().err
    shutil.copytree("run/held-out", "run/nested")
    shutil.copy("all/model.safetensors", "run/nested")
    shutil.copy("all/manifest.json", "run/nested")
    assert main(["verify", "run/nested"]) == 1  # the model beside them, which is not theirs


@pytest.mark.medium
def test_they_do_not_lie_where_certificates_of_test_images_do(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--held-out", "--skip", "10", *CERTIFY]
    line = "macer: out must not be a run's own folder for held-out images, got run; choose run/held"
    assert main(["certify", "run", "--out", "run", *chosen]) == 2
    assert capsys.readouterr().err.startswith(line)
    assert main(["certify", "run", "--stop", "1", "--out", "all", *CERTIFY]) == 2  # another model
    assert "out must hold the model that the certificates are of" in capsys.readouterr().err
    assert main(["certify", "run", "--out", "part", *chosen]) == 0
    capsys.readouterr()
    assert main(["merge", "part", "--out", "run"]) == 2
    assert capsys.readouterr().err.startswith(line)
    assert main(["merge", "part", "--out", "all"]) == 2
    line = "macer: out must hold the model that the certificates are of, or none, got all; choose "
    assert capsys.readouterr().err.startswith(line)
    assert not Path("run/certificates.tsv").exists() and not Path("all/certificates.tsv").exists()
    assert main(["merge", "part", "--out", "run/held-out"]) == 0
    assert "run/held-out" in capsys.readouterr().out


@pytest.mark.medium
def test_a_journal_of_test_images_is_not_continued_with_held_out_ones(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "run", "--stop", "1", "--out", "test", *CERTIFY]) == 0
    capsys.readouterr()
    assert main(["certify", "run", "--held-out", "--out", "test", *CERTIFY]) == 2
    line = "macer: split must be test to continue test/certificates.journal, got train; "
    assert capsys.readouterr().err.startswith(line)


def taught(teacher: str, *, held_out: int) -> TrainRecipe:
    return TrainRecipe(held_out=held_out, loss=Loss("catrs", teacher=teacher))


def test_a_teacher_that_saw_the_images_is_refused(here: Path) -> None:
    check_teachers(taught("run", held_out=30))
    check_teachers(taught("all", held_out=30), fields=["pseudo"])
    for recipe in (
        taught("run", held_out=31),
        TrainRecipe(held_out=30, pseudo="all", labelled=1),
        taught("zoo:mnist-0.50", held_out=30),
    ):
        with pytest.raises(Mistake, match=r"(teacher|pseudo) must be a run that held out at least"):
            check_teachers(recipe)


def test_a_teachers_teacher_that_saw_the_images_is_refused(here: Path) -> None:
    """By the run's own name too, in `certify --held-out`."""
    manifest = json.loads(Path("run/manifest.json").read_text())
    manifest["recipe"]["loss"] = {"name": "catrs", "teacher": "all"}
    Path("run/manifest.json").write_text(json.dumps(manifest))
    message = "teacher must be a run that held out at least 30 images too, got all; "
    with pytest.raises(Mistake, match=message):
        check_held_out("run")
    with pytest.raises(Mistake, match=message):
        check_teachers(taught("run", held_out=30))


def another(name: str, of: str) -> None:
    """A run that differs from another in its weights alone."""
    shutil.copytree(of, name)
    model, card = load_model(of)
    tensors = {key: 1.01 * tensor for key, tensor in model.state_dict().items()}
    manifest = json.loads(Path(name, "manifest.json").read_text())
    manifest["weights_sha256"] = save_model(Path(name, "model.safetensors"), tensors, card)
    Path(name, "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.medium
def test_an_ensemble_held_out_what_all_of_its_members_did(here: Path) -> None:
    another("other", of="run")
    ensemble(["run", "other"], Path("both"))
    split = load("mnist", "train")
    assert check_held_out("both") == 30
    assert first_held_out("both", split) == len(split.images) - 30
    assert main(["certify", "both", "--held-out", "--skip", "10", *CERTIFY]) == 0
    assert len(read_log(Path("both/held-out")).idx) == 3
    check_teachers(taught("both", held_out=30))
    with pytest.raises(Mistake, match=r"teacher must be a run that held out at least 31 images"):
        check_teachers(taught("both", held_out=31))

    ensemble(["run", "all"], Path("mixed"))
    with pytest.raises(Mistake, match=r"^held_out needs a run that held images out, got all; "):
        check_held_out("mixed")
    with pytest.raises(Mistake, match=r"teacher must be a run that held out at least 30 images"):
        check_teachers(taught("mixed", held_out=30))
    ensemble(["run", "zoo:mnist-0.50"], Path("foreign"))
    with pytest.raises(Mistake, match=r"^no run in zoo:mnist-0.50: expected "):
        check_held_out("foreign")


@pytest.mark.medium
def test_offsets_may_have_been_chosen_by_the_images_that_a_run_held_out(here: Path) -> None:
    for name, flags in (("floored", []), ("by-them", ["--held-out"])):
        assert main(["floor", "run", "--at-least", "0.01", "--out", name, *flags]) == 0
        message = (
            f"held_out needs a model that no held-out image has changed, got {name}, whose "
            "offsets training images have chosen; name the run that it was made of"
        )
        with pytest.raises(Mistake, match=message):
            check_held_out(name)
        with pytest.raises(Mistake, match=message):
            check_teachers(taught(name, held_out=30))
        ensemble(["all", name], Path(f"{name}-too"))
        with pytest.raises(Mistake, match=message):
            check_held_out(f"{name}-too")


def test_of_an_ensemble_that_is_a_teacher_the_teachers_of_its_members_count(here: Path) -> None:
    another("other", of="run")
    ensemble(["run", "other"], Path("both"))
    manifest = json.loads(Path("other/manifest.json").read_text())
    manifest["recipe"]["loss"] = {"name": "catrs", "teacher": "all"}
    Path("other/manifest.json").write_text(json.dumps(manifest))
    message = "teacher must be a run that held out at least 30 images too, got all; "
    with pytest.raises(Mistake, match=message):
        check_teachers(taught("both", held_out=30))
    with pytest.raises(Mistake, match=message):
        check_held_out("both")


@pytest.mark.medium
def test_a_copied_table_of_one_radius_is_no_usual_log(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "run", "--stop", "3", "--radius", "0.1", "--out", "at", *CERTIFY]) == 0
    capsys.readouterr()
    shutil.copy("at/certificates.tsv", "copied.tsv")
    assert main(["report", "copied.tsv"]) == 2
    line = "must hold certificates of largest radii, got those of radius 0.1, "
    assert capsys.readouterr().err.startswith(f"macer: copied.tsv {line}")
    older = [row.rpartition("\t")[0] for row in Path("copied.tsv").read_text().splitlines()]
    Path("at/certificates.tsv").write_text("\n".join(older) + "\n")  # without the column
    assert main(["report", "at"]) == 2
    assert capsys.readouterr().err.startswith(
        "macer: at/certificates.tsv, line 2: the table must say what certificates.journal beside it"
    )


def test_other_images_than_those_of_the_training_are_refused(here: Path) -> None:
    """Among them could be some that the model was trained on."""
    split = load("mnist", "train")
    assert first_held_out("run", split) == len(split.images) - 30
    turned = Split(np.ascontiguousarray(split.images[::-1]), split.labels[::-1].copy())
    with pytest.raises(Mistake, match=r"^held_out needs the training images of run, of SHA-256 "):
        first_held_out("run", turned)


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (
            "lenet --weights all/model.safetensors --sigma 0.5",
            "held_out needs a run folder, which says what it held out, got all/model.safetensors;",
        ),
        ("all", "held_out needs a run that held images out, got all; train it with --held-out N\n"),
        ("zoo:mnist-0.50", "held_out needs a run folder, which says what it held out, got zoo:"),
        ("run/model.safetensors", "held_out needs a run folder, which says what it held out, got"),
    ],
)
def test_a_model_that_held_nothing_out_is_refused(
    target: str, line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("run", "lenet")  # a folder of a network's name
    known = ["--dataset", "mnist", "--out", "new", *CERTIFY]
    assert main(["certify", *target.split(), "--held-out", *known]) == 2
    assert capsys.readouterr().err.startswith(f"macer: {line}")
    assert not Path("new").exists()


def test_a_teacher_that_learnt_from_itself_is_refused(tmp_path: Path) -> None:
    """Forged manifests may name each other; the search must end."""
    from macer.runs.run import begin_run
    from macer.training.held_out import check_teachers

    names = [str(tmp_path / name) for name in "ab"]
    for name, other in zip(names, reversed(names), strict=True):
        recipe = taught(other, held_out=5)
        begin_run(Path(name), recipe, "0" * 64, resume=False)
    with pytest.raises(Mistake, match="teacher must not learn from itself, got "):
        check_teachers(taught(names[0], held_out=5))
