"""What stands before a network from elsewhere: told by its file, by the user, or refused."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_files import Standardise, save_as_cohen, save_as_zhai, trained
from safetensors.torch import save_file
from torch import Tensor, nn

from macer.certification.journal import read_journal
from macer.certification.largest_radius import certify
from macer.certification.target import Target, find_target
from macer.cli.app import main
from macer.data.sets import Split, classes_of, load
from macer.models.networks import lenet, resnet20
from macer.models.normalisation import (
    NORMALISATIONS,
    Normalisation,
    check_normalisation,
    named_normalisation,
)
from macer.models.weights import Placement, Weights, read_weights
from macer.system.errors import Mistake

PIXELS = np.random.default_rng(0).integers(256, size=(3, 3, 32, 32), dtype=np.uint8)
SPLIT = Split(PIXELS, np.arange(3))
CIFAR10 = NORMALISATIONS["cohen-cifar10"]
DIGITS = classes_of("mnist-sample")
SETTINGS = ["--dataset", "mnist-sample", "--sigma", "0.5", "--n0", "20", "--n", "100"]
SETTINGS += ["--stop", "4", "--device", "cpu"]

NETS = """
from torch import nn
from foreign_files import Standardise

def behind(num_classes, channels):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(784 * channels, num_classes))
    return nn.Sequential(Standardise((0.3,), (0.4,)), flat)

def flat(num_classes, channels):
    return behind(num_classes, channels)[1]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("foreignnets.py").write_text(NETS)


def written(first: nn.Module, name: str = "w.pth") -> nn.Sequential:
    """A model whose file says nothing of its first layer."""
    torch.manual_seed(0)
    model = nn.Sequential(first, resnet20(num_classes=10, channels=3))
    save_as_cohen(model, trained(model), Path(name), arch="cifar_resnet20")
    return model.eval()


def found(normalise: str | None = None, split: Split = SPLIT) -> Target:
    return find_target(
        "resnet20",
        sigma=0.25,
        split=split,
        classes=DIGITS,
        weights=Path("w.pth"),
        normalise=normalise,
    )


def refused(normalise: str | None, line: str) -> None:
    with pytest.raises(Mistake, match=f"^{re.escape(line)}$"):
        found(normalise)


# Laws


@pytest.mark.parametrize(
    ("layer", "normalise"),
    [
        (Standardise(*CIFAR10), "cohen-cifar10"),
        (Standardise(*NORMALISATIONS["cohen-imagenet"]), "cohen-imagenet"),
        (Standardise(CIFAR10.mean, (1.0, 1.0, 1.0)), "centred-cifar10"),
        (nn.Identity(), "none"),
        (Standardise((0.5,) * 3, (0.25,) * 3), "0.5/0.25"),
        (Standardise((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), "0.1,0.2,0.3/0.4,0.5,0.6"),
    ],
)
def test_with_the_right_normalisation_logits_are_those_of_the_model(
    layer: nn.Module, normalise: str
) -> None:
    model, target = written(layer), found(normalise)
    x = torch.from_numpy(PIXELS) / 255
    with torch.no_grad():
        assert torch.equal(target.model.eval()(x), model(x))


@pytest.mark.slow
def test_with_the_right_normalisation_certificates_are_those_of_the_model() -> None:
    model, target = written(Standardise(*CIFAR10)), found("cohen-cifar10")
    x = torch.from_numpy(PIXELS[:1])
    settings = {"sigma": 0.25, "n0": 10, "n": 20, "batch_size": 10}
    assert certify(target.model, x, **settings) == certify(model, x, **settings)


@pytest.mark.medium
def test_the_normalisation_matters() -> None:
    written(Standardise(*CIFAR10))
    x = torch.from_numpy(PIXELS) / 255
    names = {NORMALISATIONS[name]: name for name in NORMALISATIONS}.values()  # others are the same
    logits = [found(name).model.eval()(x) for name in ("none", *names)]
    for i, one in enumerate(logits):
        assert not any(torch.allclose(one, other, atol=1e-3) for other in logits[:i])


def test_a_network_alone_takes_images_as_they_are_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = written(nn.Identity())
    save_as_zhai(model[1], Path("w.pth"))
    x = torch.from_numpy(PIXELS) / 255
    assert torch.equal(found().model.eval()(x), model(x))
    assert capsys.readouterr().err == (
        "w.pth shows nothing before resnet20: images go in as they are, in [0, 1]; if they were "
        "normalised in training, add --normalise\n"
    )
    assert not torch.equal(found("0.5/0.5").model.eval()(x), model(x))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1), (1, 3, 1, 1)])
def test_constants_in_the_file_are_used_and_said(
    shape: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    model = written(Standardise((0.25, 0.5, 0.75), (0.5, 0.25, 0.125)))
    layer: dict[str, Tensor] = {
        "0.mean": torch.tensor([0.25, 0.5, 0.75]).view(shape),
        "0.std": torch.tensor([0.5, 0.25, 0.125]).view(shape),
    }
    save_file(model.state_dict() | layer, "w.pth")
    x = torch.from_numpy(PIXELS) / 255
    assert torch.equal(found().model.eval()(x), model(x))
    said = "w.pth normalises by mean 0.25,0.5,0.75, std 0.5,0.25,0.125\n"
    assert capsys.readouterr().err == said


def test_a_mean_alone_centres() -> None:
    model = written(Standardise((0.25,) * 3, (1.0,) * 3))
    save_file(model.state_dict() | {"0.means": torch.tensor([0.25])}, "w.pth")
    x = torch.from_numpy(PIXELS) / 255
    assert torch.equal(found().model.eval()(x), model(x))


def test_a_target_is_named_by_its_file_and_its_normalisation() -> None:
    written(Standardise(*CIFAR10))
    target = found("cohen-cifar10")
    assert target.weights_sha256 == read_weights(Path("w.pth")).sha256
    expected = "resnet20, mean 0.4914,0.4822,0.4465, std 0.2023,0.1994,0.201"
    assert target.architecture == expected
    assert found("0.4914,0.4822,0.4465/0.2023,0.1994,0.2010").architecture == expected
    assert found("none").architecture == "resnet20, mean 0,0,0, std 1,1,1"


def test_a_function_without_a_file_may_be_normalised_too() -> None:
    split = Split(PIXELS[:, :1, :28, :28], np.arange(3))
    torch.manual_seed(0)
    plain = find_target("foreignnets:flat", sigma=1.0, split=split, classes=DIGITS)
    torch.manual_seed(0)
    target = find_target(
        "foreignnets:flat", sigma=1.0, split=split, classes=DIGITS, normalise="0.5/2"
    )
    x = torch.from_numpy(split.images) / 255
    assert torch.equal(target.model(x), plain.model((x - 0.5) / 2))
    assert target.weights_sha256 != plain.weights_sha256


# Known values


def test_the_named_normalisations_are_those_of_public_code() -> None:
    assert named_normalisation("cohen-cifar10", 3) == (
        (0.4914, 0.4822, 0.4465),
        (0.2023, 0.1994, 0.2010),
    )
    assert named_normalisation("cohen-imagenet", 3) == (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    )
    assert named_normalisation("centred-cifar10", 3) == ((0.4914, 0.4822, 0.4465), (1, 1, 1))
    assert named_normalisation("none", 1) == ((0,), (1,))
    assert named_normalisation("0.5/0.25", 3) == ((0.5,) * 3, (0.25,) * 3)


# From the command line


def grey(first: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(first, lenet(num_classes=10, channels=1))
    save_as_cohen(model, trained(model, (1, 28, 28)), Path("w.pth"), arch="lenet")
    return model.eval()


@pytest.mark.medium
def test_a_file_is_certified_and_verified_as_the_model_it_came_from() -> None:
    model = grey(Standardise((0.1,), (0.3,)))
    named = ["lenet", "--weights", "w.pth", "--normalise", "0.1/0.3"]
    assert main(["certify", *named, "--out", "certs", *SETTINGS]) == 0
    contents = read_journal(Path("certs/certificates.journal"))
    images = torch.from_numpy(load("mnist-sample", "test").images[:4])
    expected = certify(model, images, sigma=0.5, n0=20, n=100)
    assert [contents.records[i].certificate for i in range(4)] == expected
    assert contents.header.weights_sha256 == read_weights(Path("w.pth")).sha256
    assert contents.header.model == "lenet, mean 0.1, std 0.3"
    verify = ["verify", "certs", "--target", *named, "--resample", "4", "--device", "cpu"]
    assert main(verify) == 0


def test_a_users_function_takes_its_file() -> None:
    import sys

    sys.modules.pop("foreignnets", None)
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    model = nn.Sequential(Standardise((0.3,), (0.4,)), inner).eval()
    torch.save(model.state_dict(), "w.pth")
    images = torch.from_numpy(load("mnist-sample", "test").images[:4])
    expected = certify(model, images, sigma=0.5, n0=20, n=100)
    for name, normalise in (("behind", []), ("flat", ["--normalise", "0.3/0.4"])):
        arguments = [f"foreignnets:{name}", "--weights", "w.pth", *normalise, "--out", name]
        assert main(["certify", *arguments, *SETTINGS]) == 0
        records = read_journal(Path(name, "certificates.journal")).records
        assert [records[i].certificate for i in range(4)] == expected


@pytest.mark.medium
def test_another_normalisation_does_not_continue_or_verify_certificates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    grey(nn.Identity())
    named = ["lenet", "--weights", "w.pth", "--normalise"]
    assert main(["certify", *named, "none", "--out", "certs", *SETTINGS]) == 0
    capsys.readouterr()
    assert main(["certify", *named, "0.5/1", "--out", "certs", *SETTINGS]) == 2
    assert capsys.readouterr().err.startswith(
        "macer: model must be lenet, mean 0, std 1 to continue certs/certificates.journal, got "
        "lenet, mean 0.5, std 1; "
    )
    assert main(["verify", "certs", "--target", *named, "0.5/1"]) == 1
    assert capsys.readouterr().err == (
        "macer: not verified: the model is lenet, mean 0.5, std 1, the journal names lenet, "
        "mean 0, std 1\n"
    )


@pytest.mark.medium
def test_a_folder_of_a_networks_name_does_not_hide_it() -> None:
    grey(nn.Identity())
    Path("lenet").mkdir()
    named = ["lenet", "--weights", "w.pth", "--normalise", "none"]
    assert main(["certify", *named, "--out", "certs", *SETTINGS]) == 0
    assert list(Path("lenet").iterdir()) == []


# Refusals


def test_a_silent_layer_is_not_guessed() -> None:
    written(Standardise(*CIFAR10))
    refused(
        None,
        "normalise must be given: w.pth holds resnet20 inside another module, at '1.', which may "
        "normalise by constants that the file lacks; add --normalise, choose from none, "
        "cohen-cifar10, cohen-imagenet, jeong-cifar100, centred-cifar10, centred-imagenet, "
        "imagenet, MEAN/STD in numbers",
    )


def test_choices_are_those_for_the_images(capsys: pytest.CaptureFixture[str]) -> None:
    grey(nn.Identity())
    assert main(["certify", "lenet", "--weights", "w.pth", "--out", "certs", *SETTINGS]) == 2
    assert capsys.readouterr().err.endswith(
        "; add --normalise, choose from none, MEAN/STD in numbers\n"
    )
    assert not Path("certs").exists()


def test_a_normalisation_beside_the_files_own_is_refused() -> None:
    model = written(nn.Identity())
    save_file(model.state_dict() | {"0.mean": torch.zeros(3), "0.std": torch.ones(3)}, "w.pth")
    refused("none", "normalise must be left out, since w.pth holds its own, got none")


def test_constants_of_other_images_are_refused() -> None:
    model = written(nn.Identity())
    save_file(model.state_dict() | {"0.mean": torch.zeros(2), "0.std": torch.ones(2)}, "w.pth")
    refused(None, "w.pth must hold a mean of 3 values, one per channel, got 2")


CHOICES = f"choose from none, {', '.join(NORMALISATIONS)}, MEAN/STD in numbers"


@pytest.mark.parametrize(
    ("normalise", "line"),
    [
        (
            "cohen-cifar",
            "unknown normalisation 'cohen-cifar', did you mean 'cohen-cifar10'?; choose from none, "
            "cohen-cifar10, cohen-imagenet, jeong-cifar100, centred-cifar10, centred-imagenet, "
            "imagenet, MEAN/STD in numbers",
        ),
        (
            "0.5",
            "unknown normalisation '0.5'; choose from none, cohen-cifar10, cohen-imagenet, "
            "jeong-cifar100, centred-cifar10, centred-imagenet, imagenet, MEAN/STD in numbers",
        ),
        (
            "0.5,0.5/1",
            "normalise must have 3 values, one per channel, got 0.5,0.5/1; choose from none, "
            "cohen-cifar10, cohen-imagenet, jeong-cifar100, centred-cifar10, centred-imagenet, "
            "imagenet, MEAN/STD in numbers",
        ),
        ("0.5/1,1", f"normalise must have 3 values, one per channel, got 0.5/1,1; {CHOICES}"),
        (
            "0.5,0.5,0.5/1,1",
            f"normalise must have 3 values, one per channel, got 0.5,0.5,0.5/1,1; {CHOICES}",
        ),
        ("cohen/cifar10", f"unknown normalisation 'cohen/cifar10'; {CHOICES}"),
        ("0.5/0", "std must be finite and > 0, got (0.0, 0.0, 0.0)"),
        ("nan/1", "mean must be finite, got (nan, nan, nan)"),
    ],
)
def test_an_unknown_normalisation_is_refused(normalise: str, line: str) -> None:
    written(nn.Identity())
    refused(normalise, line)


def test_colours_do_not_normalise_grey_images(capsys: pytest.CaptureFixture[str]) -> None:
    grey(nn.Identity())
    named = ["lenet", "--weights", "w.pth", "--normalise", "cohen-cifar10"]
    assert main(["certify", *named, "--out", "certs", *SETTINGS]) == 2
    assert capsys.readouterr().err == (
        "macer: normalise must have 1 values, one per channel, got cohen-cifar10; choose from "
        "none, MEAN/STD in numbers\n"
    )


@pytest.mark.parametrize(
    ("mean", "std", "typed"),
    [
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "imagenet"),
        ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "cohen-cifar10"),
        ((0.0,) * 3, (1.0,) * 3, "none"),
        ((0.0,), (1.0,), "none"),
        ((0.25,) * 3, (0.5, 0.5, 0.125), "0.25,0.25,0.25/0.5,0.5,0.125"),
    ],
)
def test_a_normalisation_that_has_a_name_is_asked_for_by_it(
    mean: tuple[float, ...], std: tuple[float, ...], typed: str
) -> None:
    constants = {"mean": torch.tensor(mean), "std": torch.tensor(std)}
    weights = Weights(Path("w.pth"), "", constants, None)
    given = Normalisation((0.125,) * len(mean), (1.0,) * len(mean))
    line = f"normalise must be that of w.pth, got data; add --normalise {typed}"
    with pytest.raises(Mistake, match=f"^{re.escape(line)}$"):
        check_normalisation(weights, Placement("", constants), "net", given=given, asked="data")
