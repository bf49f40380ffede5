"""Several models as one: the mean of their logits, as it is kept, certified and rewritten."""

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny_models import CLASSES, tiny_split
from torch import Tensor, fx, nn
from torch.nn import functional as F

from macer.certification.largest_radius import certify
from macer.certification.target import trained_target
from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.kernels import layers
from macer.kernels.fuse_inference import fused
from macer.kernels.layers import ConvolutionReLU, FloatLinear
from macer.kernels.padding import find_paddings, padded
from macer.models.ensembles import Ensemble, mean_logits
from macer.models.inference import for_inference
from macer.runs.ensemble import ensemble
from macer.runs.export import export_model
from macer.runs.model_file import MOST_MEMBERS, ModelCard
from macer.runs.run import Run
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

pytestmark = pytest.mark.usefixtures("tiny_networks")
CPU = torch.device("cpu")
CARD = ModelCard(
    architecture="tiny_with_batch_norm",
    classes=CLASSES,
    shape=(1, 8, 8),
    mean=(0.25,),
    std=(0.5,),
    sigma=0.25,
    dataset="tiny",
)
# Another network and normalisation, one behind a denoiser, and one of another seed.
CARDS = (
    CARD,
    replace(CARD, architecture="tiny", mean=(0.1,), std=(2.0,)),
    replace(CARD, denoiser="dncnn-small"),
    CARD,
)


def images(count: int = 8) -> Tensor:
    return torch.from_numpy(tiny_split(count).images).float() / 255


def used(card: ModelCard, seed: int) -> nn.Sequential:
    """A model whose batch-norms have seen something."""
    torch.manual_seed(seed)
    model = card.build()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.5, 2)
    return model.eval()


def save(path: Path, card: ModelCard, seed: int = 0) -> str:
    save_model(path, used(card, seed).state_dict(), card)
    return str(path)


@pytest.fixture
def members(tmp_path: Path) -> list[str]:
    return [save(tmp_path / f"{i}.safetensors", card, i) for i, card in enumerate(CARDS)]


# law


def test_its_logits_are_the_mean_of_its_members(tmp_path: Path, members: list[str]) -> None:
    run = ensemble(members, tmp_path / "run")
    model, card = load_model(run.folder)
    with torch.no_grad():
        expected = sum(load_model(member)[0](images()) for member in members) / 4
        torch.testing.assert_close(model(images()), expected)
    assert card.members == CARDS and not model.training
    own = {name: getattr(CARD, name) for name in ("architecture", "mean", "std")}
    assert replace(card, members=(), **own) == CARD


def test_the_run_needs_its_members_no_more_and_names_them(
    tmp_path: Path, members: list[str]
) -> None:
    run = ensemble(members, tmp_path / "run")
    manifest = run.read_manifest()
    assert manifest["members"] == {member: sha256_of_file(Path(member)) for member in members}
    assert manifest["weights_sha256"] == sha256_of_file(run.model)
    assert (manifest["status"], manifest["recipe"]) == ("packed", None)
    again = ensemble(members, tmp_path / "again")
    assert again.model.read_bytes() == run.model.read_bytes()
    before = load_model(run.folder)[0](images())
    for member in members:
        Path(member).unlink()
    assert torch.equal(load_model(run.folder)[0](images()), before)


def test_what_is_certified_is_the_mean(tmp_path: Path, members: list[str]) -> None:
    run = ensemble(members[:2], tmp_path / "run")
    target, _ = trained_target(str(run.folder))
    assert (target.architecture, target.sigma) == ("ensemble", 0.25)
    both = Ensemble([load_model(member)[0] for member in members[:2]])
    settings = {"sigma": 0.25, "n0": 20, "n": 200, "exact": False}
    assert certify(target.model, images(), **settings) == certify(both, images(), **settings)


@pytest.mark.medium
def test_a_run_of_several_models_is_taken_by_every_command_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    digits = {"classes": classes_of("mnist-sample"), "shape": (1, 28, 28), "sigma": 0.5}
    for name, card in zip("ab", CARDS[:2], strict=True):
        save(Path(f"{name}.safetensors"), replace(card, dataset="mnist-sample", **digits))
    Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    few = ["--n0", "10", "--n", "50", "--device", "cpu"]
    assert main(["ensemble", "a.safetensors", "b.safetensors", "--out", "run"]) == 0
    sha256 = sha256_of_file(Path("run/model.safetensors"))
    assert capsys.readouterr().out == (
        f"made run of 2 models, SHA-256 {sha256}\ncertify it with: macer certify run\n"
    )
    assert main(["certify", "run", "--stop", "2", *few]) == 0
    assert main(["verify", "run", "--resample", "1", "--device", "cpu"]) == 0
    effort = ["--images", "1", "--restarts", "1", "--steps", "1", "--m", "2", "--n", "50"]
    assert main(["attack", "run", *effort, "--device", "cpu"]) == 0
    assert main(["predict", "run", "digit.png", *few]) == 0
    assert main(["export", "run", "--out", "small.safetensors"]) == 0
    assert main(["report", "run"]) == 0
    student = ["sample/macer-hard-noise", "--teacher", "run", "--distillation", "1"]
    short = ["--labelled", "64", "--epochs", "1", "--k", "2", "--device", "cpu"]
    assert main(["train", *student, *short, "--out", "student"]) == 0
    assert Run(Path("student")).read_manifest()["models_sha256"] == {"teacher": sha256}
    capsys.readouterr()
    for command in ("train demo --resume --out run", "history run", "certify run --held-out"):
        assert main(command.split()) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["train", "demo", "--init", "run", "--out", "new", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_its_small_file_is_as_small_as_those_of_its_members(
    tmp_path: Path, members: list[str]
) -> None:
    """Weights that a member's file has in float16 stay so."""
    small = []
    for i, member in enumerate(members):
        small.append(str(tmp_path / f"small-{i}.safetensors"))
        export_model(member, Path(small[-1]))
    of_small, whole = ensemble(small, tmp_path / "run"), ensemble(members, tmp_path / "whole")
    export_model(whole.folder, tmp_path / "exported.safetensors")
    one, other = (
        load_model(path)[0] for path in (of_small.folder, tmp_path / "exported.safetensors")
    )
    assert torch.equal(one(images()), other(images()))
    assert of_small.model.stat().st_size == (tmp_path / "exported.safetensors").stat().st_size


def test_a_card_of_one_network_does_not_name_members() -> None:
    assert "members" not in CARD.to_dict()


def prepared(model: nn.Module, precision: str) -> fx.GraphModule:
    graph = for_inference(model, shape=(1, 8, 8), precision=precision, device=CPU)
    assert isinstance(graph, fx.GraphModule)
    return graph


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_each_member_is_prepared_as_it_is_alone(precision: str) -> None:
    """Batch-norms folded, last layers in float32: the outputs are the members', bit for bit."""
    parts = [used(CARD, seed) for seed in (1, 2)]
    whole, *alone = (prepared(model, precision) for model in (Ensemble(parts), *parts))
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in whole.modules())
    ends = sum(isinstance(layer, FloatLinear) for layer in whole.modules())
    assert ends == (2 if precision == "bf16" else 0)
    x = images().to(next(whole.parameters()).dtype).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        assert whole(x).dtype == torch.float32
        assert torch.equal(whole(x), mean_logits([network(x) for network in alone]))


@pytest.mark.medium
def test_on_a_gpu_each_member_is_fused_and_padded_as_it_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With torch's functions in the place of Triton's kernels and cuDNN's."""
    for name in ("suits_conv3x3", "suits_stem"):
        monkeypatch.setattr(layers, name, lambda _: False)
    for name in ("conv3x3", "stem"):
        functions = SimpleNamespace(pair_weights=None, stem_weights=None)
        monkeypatch.setitem(sys.modules, f"macer.kernels.{name}", functions)
    monkeypatch.setattr(
        torch,
        "cudnn_convolution_relu",
        lambda x, w, b, *settings: F.relu(F.conv2d(x, w, b, *settings)),
    )
    monkeypatch.setattr(
        torch,
        "cudnn_convolution_add_relu",
        lambda x, w, shortcut, alpha, b, *settings: F.relu(F.conv2d(x, w, b, *settings) + shortcut),
    )
    shape = (3, 8, 8)
    parts = [
        used(replace(CARD, architecture=name, shape=shape, mean=(0.2,) * 3, std=(0.5,) * 3), seed)
        for seed, name in enumerate(("resnet20", "resnet20", "resnet18"))
    ]
    x = torch.rand(2, *shape).contiguous(memory_format=torch.channels_last)
    outputs, counts = [], []
    for model in (Ensemble(copy.deepcopy(parts)), *parts):
        folded = for_inference(model, shape=shape, precision="fp32", device=CPU)
        fast = fused(padded(folded, shape), shape)
        outputs.append(fast(x))
        kernels = sum(isinstance(layer, ConvolutionReLU) for layer in fast.modules())
        counts.append((kernels, len(find_paddings(folded)), len(fast.graph.nodes)))
    whole, *alone = counts
    assert whole[:2] == tuple(map(sum, zip(*alone, strict=True)))[:2] and whole[0] > 0
    # Inputs and outputs are shared, and there is one mean.
    assert whole[2] == sum(nodes for _, _, nodes in alone) - 2 * 2 + 1
    torch.testing.assert_close(outputs[0], mean_logits(outputs[1:]))


# refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.5}, "sigma must be that of FIRST, 0.25, got 0.5 in OTHER; members must agree"),
        (
            {"dataset": "mnist"},
            "dataset must be that of FIRST, tiny, got mnist in OTHER; members must agree",
        ),
        (
            {"shape": (1, 9, 9)},
            "shape must be that of FIRST, 1, 8, 8, got 1, 9, 9 in OTHER; members must agree",
        ),
        (
            {"classes": ("a", "b", "c")},
            "classes must be that of FIRST, left, middle, right, got a, b, c in OTHER; members must"
            " agree",
        ),
        (
            {"architecture": "tiny_models:tiny"},
            "members must be networks that macer knows, got OTHER, a tiny_models:tiny; make the "
            "mean in a function of your own and pack that",
        ),
        ({}, "members must be different models, got OTHER twice"),
    ],
)
def test_models_that_are_no_ensemble_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    first = save(tmp_path / "first.safetensors", CARD)
    other = save(tmp_path / "other.safetensors", replace(CARD, **changes))
    with pytest.raises(Mistake) as mistake:
        ensemble([first, other], tmp_path / "run")
    assert str(mistake.value) == message.replace("FIRST", first).replace("OTHER", other)
    assert not (tmp_path / "run").exists()


def test_one_model_and_an_ensemble_of_ensembles_are_refused(
    tmp_path: Path, members: list[str]
) -> None:
    with pytest.raises(
        Mistake, match=r"^members must be two models or more, got .*0\.safetensors$"
    ):
        ensemble(members[:1], tmp_path / "run")
    run = str(ensemble(members[:2], tmp_path / "run").folder)
    message = rf"^members must be single models, got the ensemble {run}; name its members$"
    with pytest.raises(Mistake, match=message):
        ensemble([members[2], run], tmp_path / "other")
    with pytest.raises(Mistake, match=rf"^{run} holds a run already; choose another --out$"):
        ensemble(members[:3], Path(run))


def whole_card(**changes: object) -> dict[str, object]:
    """The fields of an ensemble's card, some of them others."""
    members = [card.to_dict() for card in CARDS[:2]]
    return CARD.to_dict() | {"architecture": "ensemble", "members": members} | changes


PLAIN = CARD.to_dict()
OWN = replace(CARD, architecture="tiny_models:tiny").to_dict()
OTHER = replace(CARD, sigma=1.0).to_dict()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"members": []}, "members must be 2 to 16 models, got 0"),
        ({"members": [PLAIN]}, "members must be 2 to 16 models, got 1"),
        ({"members": [PLAIN] * (MOST_MEMBERS + 1)}, "members must be 2 to 16 models, got 17"),
        ({"classes": ["a"] * 40_000}, "members must be of 65,536 classes in all, got 80000"),
        ({"members": [PLAIN, OWN]}, "members must be networks that macer knows, got tiny_models:"),
        ({"members": [PLAIN, OTHER]}, "members must be of one sigma, got [0.25, 1.0]"),
        ({"members": [PLAIN, whole_card()]}, "members must be networks that macer knows, got ens"),
        ({"members": [PLAIN, 3]}, "its card must have the fields architecture, classes, "),
        ({"members": 3}, "members must be a list, got 3"),
        ({"architecture": "tiny"}, "architecture must be ensemble with members, got tiny"),
        ({"denoiser": "dncnn"}, "denoiser must be none with members, got dncnn"),
    ],
)
def test_a_card_whose_members_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    fields = whole_card(**changes)
    save_file({"w": torch.zeros(1)}, tmp_path / "a", {"macer": json.dumps(fields)})
    with pytest.raises(Mistake) as mistake:
        load_model(tmp_path / "a")
    assert str(mistake.value).startswith(
        f"{tmp_path / 'a'} must be a model file written by macer train: {reason}"
    )


def test_a_file_that_lacks_a_members_weight_is_refused(tmp_path: Path, members: list[str]) -> None:
    run = ensemble(members[:2], tmp_path / "run")
    model, card = load_model(run.folder)
    tensors = dict(model.state_dict())
    del tensors["1.members.1.1.2.weight"]
    save_model(tmp_path / "a", tensors, card)
    with pytest.raises(
        Mistake, match=r"a must hold the weights of ensemble: .*members\.1\.1\.2\.weight"
    ):
        load_model(tmp_path / "a")


def test_the_members_of_a_run_are_those_it_was_made_of(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "model.safetensors", CARD, seed)
        sha256 = sha256_of_file(tmp_path / name / "model.safetensors")
        manifest = {"recipe": None, "data_sha256": None, "weights_sha256": sha256}
        Run(tmp_path / name).write_manifest(manifest)
    names = [str(tmp_path / name) for name in "ab"]
    run = ensemble(names, tmp_path / "run")
    assert [str(learner.folder) for learner in run.learners()] == names
    assert Run(tmp_path / "a").learners() == [Run(tmp_path / "a")]
    Run(tmp_path / "b").write_manifest(manifest | {"weights_sha256": "0" * 64})
    with pytest.raises(Mistake, match=r"b must be the model that .*run was made of; its SHA-256 "):
        run.learners()
