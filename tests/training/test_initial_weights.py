"""A training that begins with the weights of a file, a run or a model of the zoo."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from loss_batches import in_place_of
from safetensors.torch import save_file
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.certification.largest_radius import certify
from macer.data.sets import Split
from macer.losses import LOSSES
from macer.losses.macer import macer
from macer.models.build import build_model
from macer.runs.run import Run
from macer.runs.trained_model import load_model
from macer.smoothing.streams import Purpose, stream
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.training import loop
from macer.training.loop import train

NETWORK = "tiny_models:tiny_with_batch_norm"
PLAIN = tiny_recipe(model=NETWORK, epochs=2)
FOUR = (*CLASSES, "nowhere")
NEW = ["1.5.weight", "1.5.bias"]  # the layer of classes

# Everything that has a state of its own, with frozen and new parts.
FULL = tiny_recipe(
    model=NETWORK, epochs=3, crop=1, flip=True, ema=0.9, nesterov=True, clip=1.0,
    new_lr_factor=5.0, freeze=("1",),
)  # fmt: skip


class Crash(Exception):
    """What a test raises in the middle of training."""


def crash_at(step, monkeypatch):
    calls = []

    def loss(batch, **settings):
        calls.append(None)
        if len(calls) > step:
            raise Crash
        return macer(batch, **settings)

    monkeypatch.setitem(LOSSES, "macer", in_place_of(macer, loss))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run to begin with."""
    folder = tmp_path_factory.mktemp("source") / "run"
    train(PLAIN, tiny_split(), CLASSES, folder)
    return folder


@pytest.fixture
def untrained(monkeypatch):
    """A training of no steps: the model is what it began with."""
    monkeypatch.setattr(loop, "_loop", lambda *_: None)


def tensors_of(folder):
    return load_model(folder)[0].state_dict()


def network_of(folder):
    return load_model(folder)[0][1].state_dict()


def fresh(classes, recipe=PLAIN):
    """The weights with which the recipe's network begins without a file."""
    torch.manual_seed(int(stream(recipe.seed, Purpose.INITIALISATION).integers(2**63)))
    return build_model(NETWORK, num_classes=len(classes), shape=(1, 8, 8)).state_dict()


def refusal(tmp_path, recipe=PLAIN, *, classes=CLASSES, **arguments):
    with pytest.raises(Mistake) as caught:
        train(recipe, tiny_split(), classes, tmp_path / "run", **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# law


def as_torch_file(source, folder):
    torch.save({"state_dict": network_of(source)}, folder / "w.pth")
    return folder / "w.pth"


def as_parallel_torch_file(source, folder):
    wrapped = {f"module.{name}": tensor for name, tensor in network_of(source).items()}
    torch.save(wrapped, folder / "w.th")
    return folder / "w.th"


def as_safetensors(source, folder):
    save_file(network_of(source), folder / "w.safetensors")
    return folder / "w.safetensors"


def as_half(source, folder):
    halves = {k: v.half() if v.is_floating_point() else v for k, v in network_of(source).items()}
    torch.save(halves, folder / "half.pth")
    return folder / "half.pth"


@pytest.mark.parametrize(
    "form", [as_torch_file, as_parallel_torch_file, as_safetensors, lambda source, _: source]
)
def test_the_network_begins_with_the_weights_of_a_file_or_a_run(form, source, tmp_path, untrained):
    init = form(source, tmp_path)
    train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", init=init)
    found, expected = tensors_of(tmp_path / "run"), tensors_of(source)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    file = init / "model.safetensors" if init.is_dir() else init
    record = Run(tmp_path / "run").read_manifest()["init"]
    assert record == {"file": init.name, "sha256": sha256_of_file(file), "new": []}


def test_the_network_begins_with_a_model_of_the_zoo(tmp_path, untrained):
    recipe = tiny_recipe(model="lenet", epochs=1)
    images = Split(np.full((16, 1, 28, 28), 99, np.uint8), np.arange(16) % 10)
    digits = tuple("0123456789")
    train(recipe, images, digits, tmp_path / "run", init="zoo:mnist-0.25")
    found, expected = tensors_of(tmp_path / "run"), load_model("zoo:mnist-0.25")[0].state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert Run(tmp_path / "run").read_manifest()["init"]["file"] == "zoo:mnist-0.25"


def test_half_precision_becomes_float32(source, tmp_path, untrained):
    train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", init=as_half(source, tmp_path))
    found, expected = network_of(tmp_path / "run"), network_of(source)
    assert found["0.weight"].dtype == torch.float32
    assert torch.equal(found["0.weight"], expected["0.weight"].half().float())


@pytest.fixture
def folded(tmp_path):
    """A file whose batch-norm was folded into the layer before it."""
    torch.manual_seed(5)
    network = build_model(NETWORK, num_classes=3, shape=(1, 8, 8))[1]
    torch.nn.init.normal_(network[1].bias)
    torch.save(network.state_dict(), tmp_path / "folded.pth")
    return tmp_path / "folded.pth"


def test_folded_batch_norms_get_statistics_of_training_images(tmp_path, untrained, folded, capsys):
    recipe = tiny_recipe(model=NETWORK, epochs=1, held_out=16)
    train(recipe, tiny_split(), CLASSES, tmp_path / "run", init=folded)
    assert Run(tmp_path / "run").read_manifest()["init"]["unfolded"] == 1
    assert "1 batch-norms of " in capsys.readouterr().err
    network = build_model(NETWORK, num_classes=3, shape=(1, 8, 8))[1].eval()
    network.load_state_dict(torch.load(folded, weights_only=True))
    model = load_model(tmp_path / "run")[0]
    images = torch.from_numpy(tiny_split().images[:48]).float() / 255
    with torch.no_grad():
        torch.testing.assert_close(model(images), network(images), rtol=1e-4, atol=1e-5)
        x = network[0](images)
    torch.testing.assert_close(model[1][1].running_mean, x.mean((0, 2, 3)))


def test_folded_batch_norms_that_are_frozen_stay(tmp_path, untrained, folded):
    recipe = tiny_recipe(model=NETWORK, epochs=1, freeze=("1",))
    train(recipe, tiny_split(), CLASSES, tmp_path / "run", init=folded)
    assert "unfolded" not in Run(tmp_path / "run").read_manifest()["init"]
    assert not network_of(tmp_path / "run")["1.running_mean"].any()


def test_fresh_batch_norms_of_a_denoiser_are_not_folded_ones(tmp_path, untrained, folded):
    recipe = tiny_recipe(loss="denoising", model=NETWORK, denoiser="dncnn-small", epochs=1)
    train(recipe, tiny_split(), CLASSES, tmp_path / "run", init=folded)
    assert "unfolded" not in Run(tmp_path / "run").read_manifest()["init"]


def test_a_layer_of_other_classes_begins_anew_from_the_seed_and_no_other_layer(
    source, tmp_path, untrained, capsys
):
    train(PLAIN, tiny_split(), FOUR, tmp_path / "run", init=source)
    found, old, anew = tensors_of(tmp_path / "run"), tensors_of(source), fresh(FOUR)
    for name in found:
        assert torch.equal(found[name], anew[name] if name in NEW else old[name])
    assert Run(tmp_path / "run").read_manifest()["init"]["new"] == NEW
    assert "knows other classes: 5.weight, 5.bias begin anew" in capsys.readouterr().err


def test_training_goes_on_from_there(source, tmp_path):
    lines = []
    train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", init=source, watch=lines.append)
    first = [json.loads(line) for line in (source / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["loss"] < first[0]["loss"]


@pytest.mark.parametrize("step", [0, 1, 5, 9])
def test_a_killed_training_ends_in_the_same_weights_without_the_file(
    source, tmp_path, monkeypatch, step
):
    init = as_torch_file(source, tmp_path)
    arguments = {"data": tiny_split(), "classes": FOUR, "init": init}
    whole = train(FULL, folder=tmp_path / "whole", **arguments).read_bytes()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(step, patch)
        train(FULL, folder=tmp_path / "run", checkpoint_seconds=0.0, **arguments)
    init.unlink()
    found = train(FULL, folder=tmp_path / "run", resume=True, **arguments).read_bytes()
    assert found == whole


def test_a_run_resumes_and_certifies_without_the_file_and_without_naming_it(source, tmp_path):
    shutil.copytree(source, tmp_path / "copy")
    train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", init=tmp_path / "copy")
    before = tensors_of(tmp_path / "run")
    shutil.rmtree(tmp_path / "copy")
    train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", resume=True)
    model, card = load_model(tmp_path / "run")
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    images = torch.from_numpy(tiny_split().images[:4])
    certificates = certify(model, images, sigma=card.sigma, n0=10, n=20)
    assert len(certificates) == 4


def test_the_files_normalisation_must_be_the_runs(tmp_path, untrained):
    normalised = tiny_recipe(model=NETWORK, epochs=1, normalise="0.25/0.5")
    train(normalised, tiny_split(), CLASSES, tmp_path / "a")
    train(normalised, tiny_split(), CLASSES, tmp_path / "b", init=tmp_path / "a")
    assert load_model(tmp_path / "b")[1].mean == (0.25,)
    line = refusal(tmp_path, init=tmp_path / "a")
    file = tmp_path / "a/model.safetensors"
    assert line == f"normalise must be that of {file}, got none; add --normalise 0.25/0.5"


@pytest.mark.parametrize(("before", "now"), [(True, "data"), (False, "none")])
def test_a_normalisation_of_before_means_the_same(before, now):
    assert tiny_recipe(normalise=before) == tiny_recipe(normalise=now)


# refusal


@pytest.mark.medium
def test_another_mismatch_is_refused(source, tmp_path):
    assert refusal(tmp_path, tiny_recipe(), init=source).startswith(
        f"{source}/model.safetensors must hold the weights of tiny_models:tiny: it lacks "
    )
    # A run's file says which network it has.
    assert refusal(tmp_path, tiny_recipe(), init=source).endswith(
        f"; it calls its network {NETWORK}"
    )
    tensors = network_of(source)
    other = tensors | {"0.weight": torch.zeros(5, 1, 3, 3)}
    torch.save(other, tmp_path / "w.pth")
    expected = f"{tmp_path}/w.pth must hold the weights of {NETWORK}: it has 0.weight as 5×1×3×3, "
    assert refusal(tmp_path, init=tmp_path / "w.pth").startswith(expected)
    # The layer of classes, but with another number of inputs, or of one tensor only.
    for changes in (
        {"5.weight": torch.zeros(7, 60), "5.bias": torch.zeros(7)},
        {"5.bias": torch.zeros(7)},
        {"5.weight": torch.zeros(7, 64), "5.bias": torch.zeros(8)},
        {"5.weight": torch.zeros(7, 64), "5.bias": torch.zeros(())},
        {"5.weight": torch.zeros(7, 64), "5.bias": torch.zeros(7), "0.weight": torch.zeros(5, 1)},
    ):
        torch.save(tensors | changes, tmp_path / "w.pth")
        assert "must hold the weights of" in refusal(tmp_path, init=tmp_path / "w.pth")
    assert not (tmp_path / "run").exists()


def test_a_denoiser_s_classifier_must_know_the_classes(source, tmp_path):
    tensors = network_of(source)
    torch.save(
        tensors | {"5.weight": torch.zeros(7, 64), "5.bias": torch.zeros(7)}, tmp_path / "w.pth"
    )
    recipe = tiny_recipe(model=NETWORK, denoiser="dncnn-small", loss="denoising", normalise="none")
    line = refusal(tmp_path, recipe, init=tmp_path / "w.pth")
    assert line.startswith("init must know the 3 classes of the data set, since the classifier ")


def test_what_is_no_file_is_refused(tmp_path):
    assert refusal(tmp_path, init=tmp_path / "none.pth") == (
        f"no weights at {tmp_path}/none.pth: expected a file of torch.save or of safetensors"
    )
    assert refusal(tmp_path, init="zoo:none").startswith("unknown zoo model 'none'")
    assert refusal(tmp_path, init=3) == "init must be a file of weights, a run or zoo:NAME, got 3"
    assert not (tmp_path / "run").exists()


def test_a_run_whose_model_was_exchanged_is_refused(source, tmp_path):
    shutil.copytree(source, tmp_path / "copy")
    save_file(network_of(source), tmp_path / "copy/model.safetensors")
    assert "must have the SHA-256 its manifest names" in refusal(tmp_path, init=tmp_path / "copy")


def test_a_run_resumes_with_no_other_beginning(source, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(0, patch)
        train(PLAIN, tiny_split(), CLASSES, tmp_path / "run")
    assert refusal(tmp_path, init=source, resume=True) == (
        f"init must be left out to resume {tmp_path}/run, which began without one, got {source}"
    )


def test_a_run_without_a_checkpoint_needs_its_file_again(source, tmp_path, monkeypatch):
    init = as_torch_file(source, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(0, patch)
        train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", init=init)
    for checkpoint in (tmp_path / "run/checkpoints").iterdir():
        checkpoint.unlink()
    assert refusal(tmp_path, resume=True) == (
        f"init must be given to resume {tmp_path}/run, which has no checkpoint yet; add "
        "--init w.pth"
    )
    assert refusal(tmp_path, init=source, resume=True) == (
        f"init must be the file that {tmp_path}/run began with; the SHA-256 of {source} differs"
    )
    train(PLAIN, tiny_split(), CLASSES, tmp_path / "run", init=init, resume=True)


def test_a_factor_of_nothing_is_refused(source, tmp_path):
    factor = tiny_recipe(model=NETWORK, new_lr_factor=10.0)
    line = "new_lr_factor must be 1 without an init, got 10.0"
    assert refusal(tmp_path, factor) == line
    line = "new_lr_factor must be 1 with an init that gives every weight, got 10.0"
    assert refusal(tmp_path, factor, init=source) == line


def test_held_out_images_that_the_first_run_learnt_from_are_refused(source, tmp_path, capsys):
    recipe = tiny_recipe(model=NETWORK, epochs=1, held_out=16)
    assert refusal(tmp_path, recipe, init=source) == (
        f"init must be a run that held out at least 16 images too, got {source}; train it with "
        "--held-out 16"
    )
    train(recipe, tiny_split(), CLASSES, tmp_path / "held")
    train(recipe, tiny_split(), CLASSES, tmp_path / "b", init=tmp_path / "held")
    capsys.readouterr()
    file = as_torch_file(source, tmp_path)
    train(recipe, tiny_split(), CLASSES, tmp_path / "c", init=file)
    assert f"{file} may have learnt from the held-out images" in capsys.readouterr().err


def test_a_silent_normalisation_is_not_guessed(source, tmp_path):
    behind = {f"1.{name}": tensor for name, tensor in network_of(source).items()}
    torch.save(behind, tmp_path / "w.pth")
    line = refusal(tmp_path, init=tmp_path / "w.pth")
    assert line.startswith(f"normalise must be given: {tmp_path}/w.pth holds {NETWORK} inside ")
    assert line.endswith("add --normalise, choose from 0/1 for none, MEAN/STD in numbers")
    given = tiny_recipe(model=NETWORK, epochs=1, normalise="0/1")
    train(given, tiny_split(), CLASSES, Path(tmp_path / "run"), init=tmp_path / "w.pth")
