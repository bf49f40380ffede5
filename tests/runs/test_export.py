import hashlib
import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.certification.target import find_target
from macer.cli.app import main
from macer.models.networks import MODELS
from macer.models.weights import load_weights, read_weights
from macer.runs.export import export_model, in_float16
from macer.runs.model_file import ModelCard
from macer.runs.run import begin_run
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

pytestmark = pytest.mark.usefixtures("tiny_networks")
CARD = ModelCard(
    architecture="tiny_with_batch_norm",
    classes=CLASSES,
    shape=(1, 8, 8),
    mean=(1 / 3,),
    std=(0.1,),
    sigma=0.25,
    dataset="tiny",
)
WEIGHTS = {"1.0.weight", "1.5.weight"}  # of two or more dimensions


def model_file(path: Path, card: ModelCard = CARD) -> torch.nn.Module:
    """A model file with weights, statistics and counts of its own, and the model."""
    torch.manual_seed(0)
    model = card.build()
    for tensor in model.state_dict().values():
        tensor.add_(torch.rand(tensor.shape) if tensor.is_floating_point() else 3)
    save_model(path, model.state_dict(), card)
    return model.eval()


def header_bytes(file: Path) -> int:
    return 8 + int(struct.unpack("<Q", file.read_bytes()[:8])[0])


@pytest.fixture
def exported(tmp_path: Path) -> tuple[torch.nn.Module, Path]:
    """A model, and its file of half the size."""
    model = model_file(tmp_path / "whole")
    export_model(tmp_path / "whole", tmp_path / "small.safetensors")
    return model, tmp_path / "small.safetensors"


# law


def test_weights_are_rounded_to_float16_and_everything_else_is_kept(exported):
    model, file = exported
    own, found = model.state_dict(), load_file(file)
    assert found.keys() == own.keys() and found.keys() > WEIGHTS
    for name, tensor in found.items():
        expected = own[name].half() if name in WEIGHTS else own[name]
        assert tensor.dtype == expected.dtype and torch.equal(tensor, expected), name
    assert found["0.mean"].dtype == found["1.1.running_var"].dtype == torch.float32


def test_what_is_loaded_is_the_rounded_model_in_float32(exported):
    model, file = exported
    with torch.no_grad():
        for name in WEIGHTS:
            model.get_parameter(name).copy_(model.get_parameter(name).half())
    loaded, card = load_model(file)
    images = torch.rand(5, 1, 8, 8)
    assert card == CARD
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    assert not any(part.training for part in loaded.modules())
    assert torch.equal(loaded(images), model(images))


def test_a_target_is_bound_by_the_sha256_of_the_small_file(exported, tmp_path):
    _, file = exported
    small, whole = (
        find_target(str(path), sigma=None, split=tiny_split(), classes=CLASSES).weights_sha256
        for path in (file, tmp_path / "whole")
    )
    assert small == hashlib.sha256(file.read_bytes()).hexdigest() != whole


@pytest.mark.parametrize("architecture", ["lenet", "resnet20"])
def test_the_file_has_half_the_size_but_for_its_header_and_the_small_tensors(
    tmp_path, architecture
):
    card = replace(CARD, architecture=architecture, shape=(1, 28, 28))
    whole, small = tmp_path / "whole", tmp_path / "small.safetensors"
    model = model_file(whole, card)
    export_model(whole, small)
    kept = sum(
        t.numel() * t.element_size() for n, t in load_file(small).items() if t.dtype != torch.half
    )
    halved = sum(p.numel() for p in model.parameters() if p.dim() >= 2)
    assert small.stat().st_size == header_bytes(small) + 2 * halved + kept
    assert small.stat().st_size <= whole.stat().st_size / 2 + header_bytes(small) + kept / 2


def test_exporting_again_gives_the_same_bytes(exported, tmp_path):
    _, file = exported
    sha256 = export_model(file, tmp_path / "again.safetensors")
    assert sha256 == sha256_of_file(tmp_path / "again.safetensors") == sha256_of_file(file)


@pytest.mark.medium
def test_of_every_network_the_weights_are_rounded_and_no_other_tensor():
    for name, network in MODELS.items():
        model = network(num_classes=3, channels=3)
        for tensor_name, tensor in in_float16(model).items():
            half = tensor_name.endswith("weight") and tensor.dim() >= 2
            assert (tensor.dtype == torch.float16) == half, (name, tensor_name)


def test_weights_that_have_two_names_are_rounded_under_both():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert {name for name, t in in_float16(model).items() if t.dtype == torch.float16} == {
        "0.weight",
        "1.weight",
    }


def test_a_tensor_of_no_numbers_is_kept():
    model = torch.nn.Linear(2, 2)
    model.register_buffer("none", torch.empty(0))
    assert in_float16(model)["none"].shape == (0,)


def test_a_model_of_the_zoo_is_no_file_to_write(exported):
    with pytest.raises(Mistake, match=r"^out must be a file to write, got the zoo model zoo:a"):
        export_model(exported[1], Path("zoo:a.safetensors"))


def test_a_small_file_serves_as_weights_too(exported):
    model, file = exported
    network = CARD.build()[1]
    load_weights(network, read_weights(file), CARD.architecture)
    assert torch.equal(network[0].weight, model[1][0].weight.half().float())


def test_the_command_tells_size_and_sha256(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = begin_run(Path("run"), tiny_recipe(), "data", resume=False)
    model_file(run.model)
    assert main(["export", "run", "--out", "small.safetensors"]) == 0
    content = Path("small.safetensors").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    out, err = capsys.readouterr()
    assert (out, err) == (
        f"exported small.safetensors: {len(content):,} bytes, SHA-256 {sha256}; "
        "its certificates are those of the weights rounded to float16\n",
        "",
    )


def test_a_file_is_overwritten_when_that_is_asked_for(exported, tmp_path):
    _, file = exported
    (tmp_path / "old.safetensors").write_text("old")
    export_model(tmp_path / "whole", tmp_path / "old.safetensors", overwrite=True)
    assert (tmp_path / "old.safetensors").read_bytes() == file.read_bytes()


# refusal


def test_nothing_is_overwritten_without_being_told(exported, tmp_path):
    (tmp_path / "old.safetensors").write_text("old")
    message = (
        f"{tmp_path / 'old.safetensors'} exists already; choose another --out or add --overwrite"
    )
    with pytest.raises(Mistake, match=f"^{re.escape(message)}$"):
        export_model(tmp_path / "whole", tmp_path / "old.safetensors")
    assert (tmp_path / "old.safetensors").read_text() == "old"


@pytest.mark.parametrize("name", ["whole", "link"])
def test_a_model_is_never_written_over_itself(tmp_path, name):
    whole = tmp_path / "whole.safetensors"
    model_file(whole)
    (tmp_path / "link.safetensors").symlink_to(whole)
    before = sha256_of_file(whole)
    with pytest.raises(Mistake, match=r"^out must not be the model to be exported, got .*; choose"):
        export_model(whole, tmp_path / f"{name}.safetensors", overwrite=True)
    assert sha256_of_file(whole) == before


@pytest.mark.parametrize(
    ("tensor", "value", "message"),
    [
        ("1.0.weight", 65505.0, "1.0.weight must be within ±65504, the range of float16, to be "),
        ("1.0.weight", -1e6, "1.0.weight must be within ±65504, the range of float16, to be "),
        ("1.5.weight", float("nan"), "1.5.weight must be within ±65504, the range of float16, to "),
        ("1.5.weight", float("inf"), "1.5.weight must be within ±65504, the range of float16, to "),
        ("1.5.bias", float("nan"), "1.5.bias must be finite to be exported, got nan; train again"),
        ("1.1.running_var", float("inf"), "1.1.running_var must be finite to be exported, got inf"),
    ],
)
def test_what_float16_cannot_hold_is_refused(tmp_path, tensor, value, message):
    model = model_file(tmp_path / "whole")
    model.state_dict()[tensor].view(-1)[1] = value
    save_model(tmp_path / "whole", model.state_dict(), CARD)
    with pytest.raises(Mistake, match=f"^{re.escape(message)}"):
        export_model(tmp_path / "whole", tmp_path / "small.safetensors")
    assert not (tmp_path / "small.safetensors").exists()


def test_the_largest_float16_and_a_larger_bias_are_not_refused(tmp_path):
    model = model_file(tmp_path / "whole")
    model.state_dict()["1.0.weight"][0, 0, 0, 0] = -65504.0
    model.state_dict()["1.5.bias"][0] = 1e6
    save_model(tmp_path / "whole", model.state_dict(), CARD)
    export_model(tmp_path / "whole", tmp_path / "small.safetensors")
    loaded = load_model(tmp_path / "small.safetensors")[0].state_dict()
    assert (loaded["1.0.weight"].min(), loaded["1.5.bias"].max()) == (-65504.0, 1e6)


def test_a_run_whose_weights_are_not_its_manifest_s_is_not_exported(tmp_path):
    run = begin_run(tmp_path / "run", tiny_recipe(), "data", resume=False)
    model_file(run.model)
    manifest = json.loads(run.manifest.read_text())
    run.write_manifest(manifest | {"weights_sha256": "0" * 64})
    with pytest.raises(Mistake, match=r"must have the SHA-256 its manifest names"):
        export_model(run.folder, tmp_path / "small.safetensors")
