"""A denoiser before a classifier: one model that is trained, kept and certified as a whole."""

import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import CLASSES, tiny_recipe, tiny_split
from torch import Tensor, nn
from torch.nn import functional as F

from macer.certification.largest_radius import certify
from macer.certification.target import trained_target
from macer.models.build import build_model
from macer.models.denoisers import DENOISERS, Denoised, DnCNN
from macer.models.networks import Normalize
from macer.recipes import TrainRecipe
from macer.runs.export import export_model
from macer.runs.model_file import model_bytes
from macer.runs.run import Run
from macer.runs.trained_model import load_model
from macer.system.errors import Mistake
from macer.training.loop import train

NETWORK = "tiny_models:tiny_with_batch_norm"
RECIPE = tiny_recipe(
    loss="denoising", model=NETWORK, denoiser="dncnn-small", epochs=30, k=2, normalise="0.3/0.5",
    lr=0.01,
    ema=0.5, weight_decay=0.01, mse=1.0,
)  # fmt: skip


def images(count: int = 8) -> Tensor:
    return torch.from_numpy(tiny_split(count).images).float() / 255


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "run"
    train(
        tiny_recipe(model=NETWORK, sigma=0.01, normalise="0.3/0.5"), tiny_split(), CLASSES, folder
    )
    return folder


@pytest.fixture(scope="module")
def denoised(classifier: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("denoised") / "run"
    train(RECIPE, tiny_split(), CLASSES, folder, init=classifier)
    return folder


# reference


def literal_dncnn(weights: dict[str, Tensor], x: Tensor, depth: int) -> Tensor:
    """[Zhang+17, §III.A], with statistics as in eval mode."""
    y = F.relu(F.conv2d(x, weights["noise.0.weight"], weights["noise.0.bias"], padding=1))
    place = 2
    for _ in range(depth - 2):
        y = F.conv2d(y, weights[f"noise.{place}.weight"], padding=1)
        mean, var, scale, shift = (
            weights[f"noise.{place + 1}.{key}"].view(-1, 1, 1)
            for key in ("running_mean", "running_var", "weight", "bias")
        )
        y = F.relu((y - mean) / torch.sqrt(var + 1e-5) * scale + shift)
        place += 3
    return x - F.conv2d(y, weights[f"noise.{place}.weight"], padding=1)


@pytest.mark.parametrize(("name", "depth"), [("dncnn", 17), ("dncnn-small", 6)])
def test_a_denoiser_is_the_papers(name: str, depth: int) -> None:
    torch.manual_seed(0)
    denoiser = DENOISERS[name](channels=3).eval()
    for tensor in denoiser.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.1, 0.2)
    x = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        found, expected = denoiser(x), literal_dncnn(denoiser.state_dict(), x, depth)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


# law


@pytest.mark.parametrize("name", DENOISERS)
def test_a_fresh_denoiser_is_the_identity(name: str) -> None:
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(DENOISERS[name](channels=3).train()(x), x)


def test_the_names_are_those_of_the_recipe() -> None:
    hint = typing.get_type_hints(TrainRecipe)["denoiser"]
    assert typing.get_args(hint) == ("none", *DENOISERS)


@pytest.mark.slow
def test_the_classifier_stays_and_the_denoiser_helps(classifier: Path, denoised: Path) -> None:
    alone, both = load_model(classifier)[0], load_model(denoised)[0]
    network = both[1]
    assert isinstance(network, Denoised)
    for name, tensor in alone[1].state_dict().items():
        assert torch.equal(network.classifier.state_dict()[name], tensor)
    assert any(p.abs().max() > 0 for p in network.denoiser.noise[-1].parameters())  # type: ignore[index,union-attr]
    split = tiny_split(512, seed=1)
    x, y = torch.from_numpy(split.images).float() / 255, torch.from_numpy(split.labels)
    noisy = x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        errors = (network.denoiser(both[0](noisy)) - both[0](x)).square().mean()
        before = (both[0](noisy) - both[0](x)).square().mean()
        accuracies = [(model(noisy).argmax(1) == y).float().mean() for model in (alone, both)]
    assert errors < before
    assert accuracies[1] >= accuracies[0] - 0.02


@pytest.mark.medium
def test_what_is_certified_is_the_classifier_of_the_denoised_image(denoised: Path) -> None:
    target, card = trained_target(str(denoised))
    assert (card.architecture, card.denoiser) == (NETWORK, "dncnn-small")
    network = target.model.get_submodule("1")
    assert isinstance(network, Denoised)
    whole = nn.Sequential(Normalize((0.3,), (0.5,)), network.denoiser, network.classifier).eval()
    x = torch.from_numpy(tiny_split().images[:4])
    settings = {"sigma": card.sigma, "n0": 20, "n": 200}
    found = certify(target.model, x, **settings)  # type: ignore[arg-type]
    assert found == certify(whole, x, **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        nn.init.normal_(network.denoiser.noise[-1].weight)  # type: ignore[index,union-attr,arg-type]
    assert found != certify(target.model, x, **settings)  # type: ignore[arg-type]


def test_a_run_with_a_denoiser_is_complete_and_can_be_exported(
    denoised: Path, classifier: Path, tmp_path: Path
) -> None:
    export_model(denoised, tmp_path / "half.safetensors")
    model, card = load_model(tmp_path / "half.safetensors", code=["tiny_models"])
    assert card.denoiser == "dncnn-small"
    with torch.no_grad():
        found, expected = model(images()), load_model(denoised)[0](images())
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    record = Run(denoised).read_manifest()["init"]
    assert record["sha256"] == Run(classifier).read_manifest()["weights_sha256"]
    assert record["new"] and all(name.startswith("1.denoiser.") for name in record["new"])


def test_a_card_without_a_denoiser_does_not_name_it(classifier: Path, denoised: Path) -> None:
    """Model files of before and after are the same bytes."""
    for folder, named in ((classifier, False), (denoised, True)):
        model, card = load_model(folder)
        assert (b"denoiser\\" in model_bytes(model.state_dict(), card)) == named


# known value


def test_parameters_are_as_many_as_published() -> None:
    denoiser = DENOISERS["dncnn"](channels=3)
    convolutions = 3 * 9 * 64 + 64 + 15 * 64 * 64 * 9 + 64 * 9 * 3
    assert sum(p.numel() for p in denoiser.parameters()) == convolutions + 15 * 2 * 64


# refusal


def test_a_denoiser_needs_a_classifier(tmp_path: Path, classifier: Path) -> None:
    def refusal(recipe: TrainRecipe, **arguments: object) -> str:
        with pytest.raises(Mistake) as caught:
            train(recipe, tiny_split(), CLASSES, tmp_path / "run", **arguments)  # type: ignore[arg-type]
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    assert refusal(RECIPE) == (
        f"init must be given with a denoiser, for {NETWORK}'s weights; add --init FILE"
    )
    without = tiny_recipe(loss="denoising", model=NETWORK)
    assert refusal(without).startswith("denoiser must be given with the loss denoising; add ")
    split = tiny_split()
    four = np.array(split.labels)
    four[0] = 3
    with pytest.raises(Mistake, match=r"^init must know the 4 classes of the data set, since "):
        train(RECIPE, (split.images, four), (*CLASSES, "x"), tmp_path / "run", init=classifier)


def test_an_unknown_denoiser_is_refused() -> None:
    with pytest.raises(Mistake, match=r"^unknown denoiser 'dncn', did you mean 'dncnn'\?; "):
        build_model(NETWORK, num_classes=3, shape=(1, 8, 8), denoiser="dncn")
    assert isinstance(DENOISERS["dncnn"](channels=1), DnCNN)
