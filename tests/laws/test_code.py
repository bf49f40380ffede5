"""No file runs code: what a file names is imported only at the user's word."""

import json
import re
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_models import tiny_recipe

from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.recipes import named_recipe
from macer.runs.model_file import ModelCard
from macer.runs.run import Run, begin_run
from macer.runs.seals import ensure_key, key_file
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake
from macer.system.user_code import own_modules
from macer.training.teachers import load_teachers

TRAP = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("imported").touch()

def net(num_classes, channels):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, num_classes))

def loss(batch):
    return batch.logits().mean((1, 2)) ** 2
"""
CARD = ModelCard(
    architecture="trap:net",
    classes=classes_of("mnist-sample"),
    shape=(1, 28, 28),
    mean=(0.0,),
    std=(1.0,),
    sigma=0.5,
    dataset="mnist-sample",
)
FIELDS = 'dataset = "mnist-sample"\nlabelled = 64\nbatch = 32\nepochs = 1\nk = 2\n'
TAUGHT = '[loss]\nname = "catrs"\nteacher = "{}"\n'
CPU = ["--device", "cpu"]
FEW = ["--n0", "10", "--n", "50", *CPU]
LITTLE = ["--restarts", "1", "--steps", "1", "--m", "2", "--n", "50", *CPU]


def commands(desk: str) -> dict[str, list[str]]:
    """Every way in which a file names code to a command, in a folder beside the desk."""
    run, file = f"{desk}/run", f"{desk}/file.safetensors"
    recipe = ["--dataset", "mnist-sample", "--labelled", "64", "--batch", "32", "--epochs", "1"]
    taught = ["--loss", "catrs", "--teacher", file]
    quick = ["--labelled", "9990", "--batch", "5000", "--epochs", "1", "--k", "1"]
    quick += ["--dataset", "mnist-sample", "--model", "tiny_models:tiny"]
    return {
        "certify a run": ["certify", run, "--stop", "2", "--out", "new", *FEW],
        "certify a file": ["certify", file, "--stop", "2", "--out", "new", *FEW],
        "predict a run": ["predict", run, f"{desk}/digit.png", *FEW],
        "predict a run's file": ["predict", f"{run}/model.safetensors", f"{desk}/digit.png", *FEW],
        "predict a file": ["predict", file, f"{desk}/digit.png", *FEW],
        "export a run": ["export", run, "--out", "new.safetensors"],
        "export a file": ["export", file, "--out", "new.safetensors"],
        "verify a run": ["verify", run, "--resample", "1", *CPU],
        "verify by a target": ["verify", run, "--target", run, *CPU],
        "attack a run": ["attack", run, "--images", "1", *LITTLE],
        "train by a teacher": ["train", "demo", *recipe, *taught, "--out", "new", *CPU],
        "train by labels": ["train", "demo", *quick, "--pseudo", run, "--out", "new", *CPU],
        "train a model": ["train", f"{desk}/model.toml", "--out", "new", *CPU],
        "train a loss": ["train", f"{desk}/loss.toml", "--out", "new", *CPU],
        "train a file's teacher": ["train", f"{desk}/teacher.toml", "--out", "new", *CPU],
        "compare models": ["compare", f"{desk}/model.toml", *SEEDS, "--out", "new", *FEW],
        "compare losses": ["compare", f"{desk}/loss.toml", *SEEDS, "--out", "new", *FEW],
        "compare teachers": ["compare", f"{desk}/teacher.toml", *SEEDS, "--out", "new", *FEW],
    }


SEEDS = ["--seeds", "1", "--skip", "1000"]
WAYS = sorted(commands("desk"))
OF_A_RUN = [way for way in WAYS if "a run" in way or way in ("verify by a target",)]


def forget() -> None:
    sys.modules.pop("trap", None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, home: str) -> Path:
    """A desk with code, a certified run of it, a file, recipes and an image, made by this user."""
    desk = tmp_path_factory.mktemp("made") / "desk"
    desk.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk)
        Path("trap.py").write_text(TRAP)
        settings = ["--sigma", "0.5", "--dataset", "mnist-sample", "--out", "run"]
        torch.manual_seed(0)
        assert main(["pack", "trap:net", *settings]) == 0
        assert main(["certify", "run", "--stop", "2", *FEW]) == 0
        shutil.copy("run/model.safetensors", "file.safetensors")
        Path("model.toml").write_text(FIELDS + 'model = "trap:net"\n')
        Path("loss.toml").write_text(FIELDS + '[loss]\nname = "trap:loss"\n')
        Path("teacher.toml").write_text(FIELDS + TAUGHT.format(f"{desk}/file.safetensors"))
        Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
        Path("imported").unlink()
    forget()
    return desk


@pytest.fixture
def desk(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The desk, and the current folder elsewhere; nothing of it is imported yet."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield made
    forget()
    (made / "imported").unlink(missing_ok=True)


@pytest.fixture
def strangers(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A copy of the desk as another user sees it who works there."""
    copied = tmp_path / "desk"
    shutil.copytree(made, copied)
    (copied / "teacher.toml").write_text(FIELDS + TAUGHT.format("file.safetensors"))
    monkeypatch.setenv("MACER_HOME", str(tmp_path / "other"))
    monkeypatch.chdir(copied)
    yield copied
    forget()


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], name: str = "trap") -> None:
    """One line, nothing imported, nothing written."""
    before = set(sys.modules)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    err = err.removeprefix("teacher, seed 0\n")  # what compare is about to train
    assert out == "" and err.count("\n") == 1
    line = rf"macer: .* names code of its own, {name}:\w+; if you trust the module {name}, add "
    assert re.fullmatch(rf"{line}--code {name}\n", err), err
    assert "trap" not in set(sys.modules) - before
    assert not Path("imported").exists() and not list(Path().glob("new*"))


# law: nothing runs


@pytest.mark.parametrize("way", WAYS)
def test_a_strangers_file_runs_no_code(strangers, capsys, way):
    refused(commands(".")[way], capsys)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_strangers_file_runs_the_code_of_a_module_that_the_user_names(strangers, way):
    assert main([*commands(".")[way], "--code", "os", "--code", "trap"]) == 0
    assert Path("imported").exists()


def change_manifest(run: Path, **changes: object) -> None:
    Run(run).manifest.write_text(json.dumps(Run(run).read_manifest() | changes))


def of_a_strangers_loss(run: Path) -> None:
    """Let the run's recipe name code."""
    recipe = Run(run).read_manifest()["recipe"]
    change_manifest(run, recipe=recipe | {"loss": {"name": "trap:loss"}})


@pytest.mark.medium
def test_a_strangers_run_that_is_continued_by_another_loss_runs_no_code(strangers, capsys):
    quick = ["--batch", "5000", "--epochs", "1", "--k", "1", "--model", "tiny_models:tiny"]
    arguments = ["train", "demo", "--dataset", "mnist-sample", *quick, "--out", "trained", *CPU]
    assert main(arguments) == 0
    of_a_strangers_loss(Path("trained"))
    capsys.readouterr()
    assert main([*arguments, "--resume"]) == 2
    line = "macer: loss must be trap:loss to resume trained, got macer\n"
    assert capsys.readouterr().err == line
    assert not Path("imported").exists()


@pytest.mark.medium
def test_a_strangers_run_among_those_of_the_paper_runs_no_code(strangers, capsys):
    recipe = named_recipe("paper/cifar10-0.25")
    run = begin_run(Path("runs/paper-cifar10-0.25"), recipe, "data", resume=False)
    of_a_strangers_loss(run.folder)
    table = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n500\t1\t1\t0.5\t1\t0\n"
    (run.folder / "certificates.tsv").write_text(table)
    assert main(["paper", "table-1", "--only", "cifar10-0.25", "--runs", "runs"]) == 0
    assert "paper-cifar10-0.25: loss trap:loss for macer." in capsys.readouterr().out
    settings = ["--train", *CPU]
    assert main(["paper", "table-1", "--only", "cifar10-0.25", "--runs", "runs", *settings]) == 2
    assert "got loss macer for trap:loss; give the same --share" in capsys.readouterr().err
    assert not Path("imported").exists()


@pytest.mark.parametrize("name", ["os:abort", "code:interact", "trap:exit", "this:d", "a.b.c:d"])
@pytest.mark.parametrize("command", ["certify", "predict", "export", "train"])
def test_any_module_is_refused_unless_it_is_named(strangers, capsys, name, command):
    save_model(Path("file.safetensors"), {}, replace(CARD, architecture=name))
    ways = {"train": "train by a teacher"}
    arguments = commands(".")[ways.get(command, f"{command} a file")]
    refused(arguments, capsys, name.partition(":")[0])


@pytest.mark.parametrize("field", ["model", "loss"])
def test_a_recipe_read_in_python_names_no_code_either(strangers, field):
    with pytest.raises(Mistake, match=rf"^recipe {field}.toml names code of its own, trap:"):
        named_recipe(f"{field}.toml")
    assert named_recipe(f"{field}.toml", code=["trap"]).flat()[field].startswith("trap:")
    assert not Path("imported").exists()


@pytest.mark.medium
def test_what_a_user_types_in_the_place_of_a_files_code_counts(strangers):
    assert main([*commands(".")["train a model"], "--model", "tiny_models:tiny"]) == 0
    shutil.rmtree("new")
    assert main([*commands(".")["train a loss"], "--loss", "gaussian"]) == 0
    assert not Path("imported").exists()


def test_a_typed_name_needs_no_flag(strangers):
    assert main([*commands(".")["train a model"], "--model", "trap:net"]) == 0
    assert Path("imported").exists()
    assert main(["predict", "new", "digit.png", *FEW]) == 0


# law: one's own


@pytest.mark.parametrize("way", OF_A_RUN)
def test_a_run_of_ones_own_needs_no_flag_in_any_folder(desk, way):
    assert main(commands(str(desk))[way]) == 0
    assert (desk / "imported").exists()


@pytest.mark.medium
def test_a_run_in_training_is_made_resumed_and_used_by_its_owner(desk, monkeypatch, capsys):
    monkeypatch.chdir(desk)
    arguments = ["train", "model.toml", "--loss", "trap:loss", "--out", "trained", *CPU]
    try:
        assert main([*arguments, "--code", "trap"]) == 0
        [module] = Run(Path("trained")).read_manifest()["code"]["modules"]
        assert module == own_modules("trap:net")[0] and module["folder"] == str(desk.resolve())
        assert main([*arguments, "--code", "trap", "--resume"]) == 0
        assert main([*arguments, "--resume"]) == 2
        assert "recipe model.toml names code of its own, trap:net" in capsys.readouterr().err
        forget()
        monkeypatch.chdir("/")
        assert main(["predict", str(desk / "trained"), str(desk / "digit.png"), *FEW]) == 0
    finally:
        shutil.rmtree(desk / "trained", ignore_errors=True)


@pytest.mark.medium
def test_a_comparison_by_code_of_ones_own_goes_on(strangers):
    arguments = [*commands(".")["compare losses"], "--code", "trap"]
    assert main(arguments) == 0
    assert main(arguments) == 0


def test_edited_code_is_still_the_owners_and_old_certificates_are_not_its(desk, tmp_path, capsys):
    """The seal is of the run; what was certified is told by the source's hash."""
    source = desk / "trap.py"
    source.write_text(TRAP + "\n# edited\n")
    try:
        exported = str(tmp_path / "edited.safetensors")
        assert main(["export", str(desk / "run"), "--out", exported]) == 0
        assert main(commands(str(desk))["verify a run"]) == 1
        assert "not verified: the model is trap:net, source " in capsys.readouterr().err
        assert main(commands(str(desk))["predict a run"]) == 2
        assert "must be that of the certificates in " in capsys.readouterr().err
    finally:
        source.write_text(TRAP)


def test_own_code_comes_from_its_own_folder_not_from_the_current_one(desk, monkeypatch, capsys):
    Path("trap.py").write_text("raise SystemExit('the wrong one')")
    assert main(commands(str(desk))["predict a run"]) == 0
    forget()
    source = (desk / "trap.py").rename(desk / "other.py")
    try:
        assert main(commands(str(desk))["predict a run"]) == 2
    finally:
        source.rename(desk / "trap.py")
    message = (
        f"no module 'trap' in {desk.resolve()}, where it was; put it there, or add --code trap"
    )
    assert message in capsys.readouterr().err


SEALS = {
    "without a seal": lambda code: {"modules": code["modules"]},
    "with another module": lambda code: (
        code | {"modules": [code["modules"][0], *own_modules("os:a")]}
    ),
    "from another folder": lambda code: code | {"modules": [code["modules"][0] | {"folder": "."}]},
    "with an empty seal": lambda code: code | {"seal": ""},
    "with a strange seal": lambda code: code | {"seal": "\udc80é"},
    "with a seal of numbers": lambda code: code | {"seal": [1]},
    "with modules that are none": lambda code: code | {"modules": [["trap"]]},
    "with code that is none": lambda code: [code],
}


@pytest.mark.parametrize("how", SEALS)
def test_a_run_without_a_valid_seal_is_a_strangers(strangers, monkeypatch, home, capsys, how):
    monkeypatch.setenv("MACER_HOME", home)  # our own key
    change_manifest(Path("run"), code=SEALS[how](Run(Path("run")).read_manifest()["code"]))
    refused(commands(".")["predict a run"], capsys)


def test_a_seal_is_of_the_weights_too(strangers, monkeypatch, home, capsys):
    """Else a stranger could make any function of an owner's module the network."""
    monkeypatch.setenv("MACER_HOME", home)
    sha256 = save_model(Path("run/model.safetensors"), {}, replace(CARD, architecture="trap:exit"))
    change_manifest(Path("run"), weights_sha256=sha256)
    refused(commands(".")["predict a run"], capsys)


def test_a_seal_speaks_for_no_file_beside_the_model(desk, monkeypatch, capsys):
    shutil.copytree(desk / "run", "run")
    shutil.copy("run/model.safetensors", "run/other.safetensors")
    refused(["predict", "run/other.safetensors", str(desk / "digit.png"), *FEW], capsys)


# the key


def test_the_key_is_random_private_and_outside_of_runs(tmp_path, monkeypatch):
    keys = []
    for name in ("a", "b"):
        monkeypatch.setenv("MACER_HOME", str(tmp_path / name / "home"))
        keys.append(ensure_key())
        assert key_file() == tmp_path / name / "home/key"
        assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
        assert ensure_key() == keys[-1] == key_file().read_bytes()
        assert [path.name for path in key_file().parent.iterdir()] == ["key"]
    assert len(keys[0]) == 32 and keys[0] != keys[1]


def test_without_macer_home_the_key_is_among_the_users_data(tmp_path, monkeypatch):
    monkeypatch.delenv("MACER_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert key_file() == tmp_path / "macer/key"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_file() == tmp_path / ".local/share/macer/key"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert key_file() == tmp_path / "Library/Application Support/macer/key"


def test_a_home_that_cannot_be_written_is_refused_with_what_to_set(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file/home"):
        monkeypatch.setenv("MACER_HOME", str(place))
        message = (
            "MACER_HOME must be a folder for the key that seals runs with code of your own, got "
            f"{re.escape(str(place))}, which cannot be used: [A-Z][a-z ]+; set .MACER_HOME to a "
            "folder that can be written"
        )
        with pytest.raises(Mistake, match=f"^{message}$"):
            ensure_key()


def test_reading_makes_no_key(strangers, capsys, tmp_path):
    refused(commands(".")["predict a run"], capsys)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_key_of_another_length_is_refused(strangers, tmp_path, content, capsys):
    """An empty key would make seals that anyone can make."""
    key_file().parent.mkdir()
    key_file().write_bytes(content)
    assert main(commands(".")["predict a run"]) == 2
    message = f"{key_file()} must hold a key of 32 bytes, got {len(content)}; remove it"
    assert message in capsys.readouterr().err
    with pytest.raises(Mistake, match="must hold a key of 32 bytes"):
        begin_run(tmp_path / "new", tiny_recipe(), "", resume=False, code=own_modules("os:x"))
    assert not (tmp_path / "new").exists()


# from Python


def test_python_names_modules_by_an_argument(strangers):
    with pytest.raises(Mistake, match=r"^run/model.safetensors names code of its own, trap:net"):
        load_model("run")
    recipe = tiny_recipe(loss="catrs", teacher="run")
    with pytest.raises(Mistake, match=r"names code of its own, trap:net"):
        load_teachers(recipe, CARD, torch.device("cpu"))
    assert not Path("imported").exists()
    assert load_model("run", code=("trap",))[1] == CARD
    assert set(load_teachers(recipe, CARD, torch.device("cpu"), code=("trap",))) == {"teacher"}


def test_modules_are_recorded_with_the_folder_they_are_found_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("own_package/__init__.py", "own_package/parts/nets.py", "own_module.py"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("def net(): ...\n")
    names = ["lenet", "own_package.parts.nets:net", "own_package:net", "own_module:net", "sys:exit"]
    found = {one["module"]: one["folder"] for one in own_modules(*names, "own_module:other")}
    folder = str(tmp_path.resolve())
    assert found == {
        "own_package.parts.nets": folder, "own_package": folder, "own_module": folder, "sys": "",
    }  # fmt: skip
    for name in list(sys.modules):
        if name.startswith("own_"):
            del sys.modules[name]


def test_a_manifest_of_strange_things_is_one_line(strangers, capsys):
    for text in ("[" * 100_000, '{"recipe": null, "data_sha256": 3, "weights_sha256": 5}'):
        Path("run/manifest.json").write_text(text)
        assert main(commands(".")["predict a run"]) == 2
        assert capsys.readouterr().err.count("\n") == 1
