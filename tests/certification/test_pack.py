"""A network of one's own as a run, used from any folder without naming it again."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_models import CLASSES, tiny, tiny_split

from macer.certification.pack import pack
from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.models.networks import MODELS
from macer.runs.run import Run
from macer.runs.trained_model import load_model
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

NETS = """
import torch
from torch import nn

class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale  # not in the state_dict

    def forward(self, x):
        return self.scale * x

def net(num_classes, channels):
    layers = nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, num_classes)
    return nn.Sequential(Scaled(7.0), *layers)

def drawn(num_classes, channels):
    return nn.Sequential(Scaled(torch.rand(()).item()), net(num_classes, channels))

class Remembers(nn.Linear):
    def get_extra_state(self):
        return {"seen": 3}

    def set_extra_state(self, state):
        pass

def remembers(num_classes):
    return nn.Sequential(nn.Flatten(), Remembers(784, num_classes))
"""
SETTINGS = ["--sigma", "0.5", "--dataset", "mnist-sample"]
FEW = ["--n0", "10", "--n", "50", "--device", "cpu"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with networks, and a checkpoint of one as the field writes it."""
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    Path("ownnets.py").write_text(NETS)
    torch.manual_seed(0)
    weights = {"1.module.3.weight": torch.randn(10, 16), "1.module.3.bias": torch.zeros(10)}
    torch.save({"arch": "net", "state_dict": weights}, "w.pt")
    yield tmp_path / "desk"
    sys.modules.pop("ownnets", None)


def packed(*arguments: str) -> Run:
    weights = ["--weights", "w.pt", "--normalise", "0.25/0.5"]
    assert main(["pack", "ownnets:net", *weights, *SETTINGS, "--out", "run", *arguments]) == 0
    return Run(Path("run"))


# law


def test_a_packed_run_is_the_network_with_its_weights_normalisation_and_classes(desk, capsys):
    run = packed()
    sha256 = sha256_of_file(run.model)
    assert capsys.readouterr().out == (
        f"packed ownnets:net into run, SHA-256 {sha256}\ncertify it with: macer certify run\n"
    )
    model, card = load_model(run.folder)
    assert card.classes == classes_of("mnist-sample") and card.shape == (1, 28, 28)
    assert (card.mean, card.std, card.sigma) == ((0.25,), (0.5,), 0.5)
    assert (card.dataset, card.architecture) == ("mnist-sample", "ownnets:net")
    images = torch.rand(3, 1, 28, 28)
    weight = torch.load("w.pt")["state_dict"]["1.module.3.weight"]
    pooled = torch.nn.functional.adaptive_avg_pool2d(7 * (images - 0.25) / 0.5, 4)
    torch.testing.assert_close(model(images), pooled.flatten(1) @ weight.T)


def test_the_manifest_tells_what_was_packed(desk):
    manifest = packed().read_manifest()
    source = {"file": "w.pt", "sha256": sha256_of_file(Path("w.pt"))}
    assert manifest["packed"] == {"network": "ownnets:net", "weights": source}
    assert manifest["weights_sha256"] == sha256_of_file(Path("run/model.safetensors"))
    assert (manifest["status"], manifest["recipe"]) == ("packed", None)
    [module] = manifest["code"]["modules"]
    assert module == {
        "module": "ownnets",
        "folder": str(desk.resolve()),
        "sha256": hashlib.sha256(NETS.encode()).hexdigest(),
    }


def test_a_packed_run_is_certified_verified_attacked_predicted_and_exported_anywhere(
    desk, monkeypatch, capsys
):
    packed()
    sys.modules.pop("ownnets")
    (desk.parent / "elsewhere").mkdir()
    monkeypatch.chdir(desk.parent / "elsewhere")
    Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    run = str(desk / "run")
    assert main(["certify", run, "--stop", "2", *FEW]) == 0
    assert main(["verify", run, "--resample", "1", "--device", "cpu"]) == 0
    effort = ["--images", "1", "--restarts", "1", "--steps", "1", "--m", "2", "--n", "50"]
    assert main(["attack", run, *effort, "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["predict", run, "digit.png", *FEW]) == 0
    assert re.fullmatch(r"digit\.png\t(\d\tradius .*|abstains)\n", capsys.readouterr().out)
    assert main(["export", run, "--out", "small.safetensors"]) == 0


def test_a_network_that_macer_knows_is_packed_without_a_seal(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "tiny", tiny)
    torch.save(tiny(3, 1).state_dict(), tmp_path / "w.pt")
    settings = {"sigma": 0.5, "dataset": "tiny", "split": tiny_split(), "classes": CLASSES}
    run = pack("tiny", tmp_path / "run", weights=tmp_path / "w.pt", **settings)
    assert "code" not in run.read_manifest()
    again = pack("tiny", tmp_path / "again", weights=tmp_path / "w.pt", **settings)
    assert run.model.read_bytes() == again.model.read_bytes()


def test_a_function_with_weights_of_its_own_needs_no_file(desk):
    assert main(["pack", "ownnets:net", *SETTINGS, "--out", "run"]) == 0
    assert Run(Path("run")).read_manifest()["packed"]["weights"] is None
    assert load_model("run")[1].mean == (0.0,)


# refusal


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train demo --resume --out run", "run was packed, not trained, and cannot go on; choose"),
        ("certify run --held-out", "run was packed, not trained: it has no recipe, and nothing"),
        ("history run", "run was packed, not trained: it has no recipe, and nothing tells what"),
        (
            "compare demo.toml --held-out 90 --seeds 1 --out new",
            "run was packed, not trained: it has no recipe, and nothing tells what its network",
        ),
        (
            "pack run --sigma 1 --dataset mnist-sample --out new",
            "network must be one by its name, got run, a model that needs no packing: certify,",
        ),
        (
            "pack w.pt --sigma 1 --dataset mnist-sample --out new",
            "w.pt must be a model file written by macer train: it is no file of safetensors; for ",
        ),
        (
            "pack ownnets:net --sigma 1 --dataset mnist-sample --out run",
            "run holds a run already; choose another --out",
        ),
        (
            "pack ownnets:net --sigma 1 --dataset mnist-sample --out .",
            ". must be a new folder or a run; choose another --out",
        ),
        (
            "pack ownnets:drawn --sigma 1 --dataset mnist-sample --out new",
            "ownnets:drawn must give the same logits when it is called again and given the same",
        ),
        (
            "pack ownnets:remembers --sigma 1 --dataset mnist-sample --out new",
            "a state_dict must hold tensors alone, got 1.1._extra_state, a dict",
        ),
        (
            "pack ownnets:net --weights w.pt --sigma 1 --dataset mnist-sample --out new",
            "normalise must be given: w.pt holds ownnets:net inside another module, at '1.', ",
        ),
    ],
)
def test_what_a_packed_run_cannot_do_and_what_cannot_be_packed(desk, capsys, arguments, message):
    packed()
    Path("demo.toml").write_text(
        'dataset = "mnist-sample"\n[loss]\nname = "catrs"\nteacher = "run"\n'
    )
    before = {path: path.read_bytes() for path in Path("run").iterdir()}
    capsys.readouterr()
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"macer: {message}") and err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path("run").iterdir()} == before
    assert not Path("new").exists()


def test_a_packed_run_that_lost_its_seal_is_a_strangers(desk):
    run = packed()
    manifest = run.read_manifest()
    del manifest["code"]["seal"]
    run.manifest.write_text(json.dumps(manifest))
    with pytest.raises(Mistake, match=r"model.safetensors names code of its own, ownnets:net; "):
        load_model(run.folder)
