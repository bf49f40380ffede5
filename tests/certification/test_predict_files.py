import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from macer.certification.certificate import Certificate
from macer.certification.fixed_radius import sample_and_certify_at
from macer.certification.largest_radius import Kind, certify, sample_and_certify
from macer.certification.predict_files import Prediction, predict_files
from macer.cli.app import main
from macer.data.sets import classes_of, load
from macer.recipes import TrainRecipe
from macer.runs.model_file import ModelCard
from macer.runs.run import Run
from macer.runs.trained_model import load_model, save_model
from macer.smoothing.sampling import Sampler
from macer.system.errors import Mistake
from macer.training.loop import train

TEST = load("mnist-sample", "test")
NOT_SHOWN = "abstains\tno label shown within 0.75"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LeNet that knows some digits."""
    folder = tmp_path_factory.mktemp("prediction") / "run"
    split = load("mnist-sample", "train")
    recipe = TrainRecipe(
        sigma=0.5, k=1, loss="gaussian", epochs=4, lr=0.05, lr_schedule="triangle", clip=1.0
    )
    train(recipe, split.part(0, 1280), classes_of("mnist-sample"), folder)
    return folder


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first test images as PNG files in the current folder."""
    monkeypatch.chdir(tmp_path)
    for i in range(6):
        Image.fromarray(TEST.images[i, 0]).save(f"{i}.png")
    return [f"{i}.png" for i in range(6)]


def predicted(capsys: pytest.CaptureFixture[str], run: Path, *arguments: str) -> list[str]:
    capsys.readouterr()
    assert main(["predict", str(run), *arguments, "--n", "500", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


@pytest.mark.slow
def test_a_line_is_the_label_with_its_certified_radius_or_abstains(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = predicted(capsys, run, *digits)
    model, card = load_model(run)
    images = torch.from_numpy(TEST.images[:6])
    # Other noise, the same classifier: radii agree but for chance.
    for line, file, expected in zip(
        lines, digits, certify(model, images, sigma=card.sigma, n=500), strict=True
    ):
        name, *verdict = line.split("\t")
        assert name == file
        if verdict == ["abstains"]:
            assert expected.p_a < 0.65
        else:
            label, radius = verdict
            assert label == card.classes[expected.selected]
            assert re.fullmatch(r"radius \d\.\d{4}", radius)
            assert float(radius.split()[1]) == pytest.approx(expected.radius, abs=0.2)
    assert sum("radius" in line for line in lines) >= 3


@pytest.mark.medium
def test_at_a_radius_a_label_is_given_where_it_holds_and_after_few_samples(
    run: Path,
    digits: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The radii of n = 500 samples are far enough from 0.75 for both tests to see the same."""
    seen: list[Certificate] = []

    def watched(*arguments: Any, **settings: Any) -> list[Certificate]:
        seen.extend(certificates := sample_and_certify_at(*arguments, **settings))
        return certificates

    monkeypatch.setattr("macer.certification.predict_files.sample_and_certify_at", watched)
    at_most = [line.split("\t") for line in predicted(capsys, run, *digits)]
    for line, (file, *verdict) in zip(
        predicted(capsys, run, *digits, "--radius", "0.75"), at_most, strict=True
    ):
        radius = float(verdict[1].split()[1]) if len(verdict) > 1 else 0.0
        if abs(radius - 0.75) > 0.2:
            held = f"{verdict[0]}\tradius 0.7500" if radius > 0.75 else NOT_SHOWN
            assert line == f"{file}\t{held}"
    assert len(seen) == len(digits) and min(c.drawn for c in seen) <= 200
    assert {c.radius for c in seen} == {0.0, 0.75}


@pytest.mark.medium
def test_an_image_has_the_same_line_alone_or_among_others(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    together = predicted(capsys, run, *reversed(digits[:3]))
    alone = [line for file in digits[:3] for line in predicted(capsys, run, file)]
    assert together == alone[::-1]


@pytest.mark.medium
def test_an_image_has_the_same_verdict_under_any_name(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    copies = [shutil.copy(file, f"copy-of-{file}") for file in digits]
    lines = predicted(capsys, run, *digits, *copies)
    verdicts = [line.split("\t")[1:] for line in lines]
    assert verdicts[:6] == verdicts[6:]


def test_a_name_cannot_forge_a_line(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forged = f"{digits[0]}\t7\tradius 9.9999\n{digits[1]}\x1b[A"
    Path(digits[0]).rename(forged)
    [line] = predicted(capsys, run, forged)
    name, *verdict = line.split("\t")
    assert name == r"0.png\t7\tradius 9.9999\n1.png\x1b[A"
    assert "9.9999" not in "".join(verdict)
    assert main(["predict", str(run), "a\nb\x1b.png"]) == 2
    assert capsys.readouterr().err.startswith(r"macer: no image at a\nb\x1b.png: expected")


def test_a_class_cannot_forge_a_field(run: Path) -> None:
    _, card = load_model(run)
    names = tuple(f"{name}\tradius 9\n" for name in card.classes)
    with pytest.raises(Mistake, match="classes must be printable"):
        replace(card, classes=names)


@pytest.mark.medium
def test_a_model_file_predicts_as_its_run_does(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = predicted(capsys, run, digits[0])
    assert predicted(capsys, run / "model.safetensors", digits[0]) == expected


@pytest.mark.medium
def test_row_by_row_the_network_sees_one_row(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    asked = []

    def watching(sampler, *arguments, **settings):
        asked.append(sampler.row_by_row)
        return sample_and_certify(sampler, *arguments, **settings)

    monkeypatch.setattr("macer.certification.predict_files.sample_and_certify", watching)
    together = predicted(capsys, run, digits[0])
    assert predicted(capsys, run, digits[0], "--row-by-row") == together
    assert asked == [False, True]


@pytest.mark.medium
def test_another_seed_draws_other_noise(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {tuple(predicted(capsys, run, *digits, "--seed", str(seed))) for seed in (0, 1)}
    assert len(lines) == 2


def test_noise_alone_is_abstained_from(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With so small an alpha no image of 500 votes can be certified but a unanimous one.
    grey = tmp_path / "grey.png"
    Image.fromarray(np.full((28, 28), 128, np.uint8)).save(grey)
    [line] = predicted(capsys, run, str(grey), "--alpha", "1e-140")
    assert line == f"{grey}\tabstains"


def test_a_colour_image_is_read_as_grey_for_a_grey_model(
    run: Path, digits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Image.open(digits[0]).convert("RGB").save("colour.png")
    grey, colour = predicted(capsys, run, digits[0], "colour.png")
    assert grey.split("\t")[1:] == colour.split("\t")[1:]


CLASSES = ("dark", "bright", "neither")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_networks: None) -> Path:
    """A model of 3×8×8 images in the current folder."""
    monkeypatch.chdir(tmp_path)
    card = ModelCard("tiny", CLASSES, (3, 8, 8), (0.0,) * 3, (1.0,) * 3, 0.75, "folder")
    save_model(Path("small.safetensors"), card.build().state_dict(), card)
    return Path("small.safetensors")


def asked(
    monkeypatch: pytest.MonkeyPatch, model: Path, images: list[np.ndarray], **settings: Any
) -> tuple[list[dict[str, Any]], list[Prediction]]:
    """What CERTIFY is asked for each image, and the predictions from its answers."""
    questions: list[dict[str, Any]] = []

    certificate = Certificate(1, 0.123456, 1, 0.6, (0, 1, 0), (0, 9, 1), 10)

    def largest(sampler: Sampler, kinds: list[Kind], **given: Any) -> list[list[Certificate]]:
        questions.append(vars(sampler) | given | {"kinds": kinds})
        return [[certificate]]

    def at(sampler: Sampler, radius: float, **given: Any) -> list[Certificate]:
        questions.append(vars(sampler) | given | {"radius": radius})
        return [certificate]

    monkeypatch.setattr("macer.certification.predict_files.sample_and_certify", largest)
    monkeypatch.setattr("macer.certification.predict_files.sample_and_certify_at", at)
    paths = [Path(f"{i}.png") for i in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    usual = {"n0": 30, "n": 400, "alpha": 0.01, "seed": 7, "precision": "fp32"}
    lines = predict_files(model, paths, device=torch.device("cpu"), **usual | settings)
    return questions, list(lines)


def test_certify_is_asked_with_the_models_sigma_and_the_users_settings(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(8, 8, 3), dtype=np.uint8)
    [question], lines = asked(monkeypatch, small, [pixels])
    given = {name: question[name] for name in ("sigma", "n0", "n", "alpha", "seed")}
    assert given == {"sigma": 0.75, "n0": 30, "n": 400, "alpha": 0.01, "seed": 7}
    assert np.array_equal(question["images"].numpy(), pixels.transpose(2, 0, 1)[None])
    assert question["kinds"] == [Kind()]
    assert [line.fields() for line in lines] == [("0.png", "bright", "radius 0.1234")]  # down
    [question], [line] = asked(monkeypatch, small, [pixels], bound="runner-up")
    assert question["kinds"] == [Kind("runner-up")] and line.bound == "runner-up"
    [question], _ = asked(monkeypatch, small, [pixels], radius=0.0)
    assert question["radius"] == 0.0


@pytest.mark.parametrize("radius", [None, 0.2])
def test_at_another_sigma_the_noise_is_of_it_and_every_line_says_so(
    small: Path, radius: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    [question], [line] = asked(monkeypatch, small, [pixels], sigma=0.25, radius=radius)
    assert question["sigma"] == line.sigma == 0.25
    assert line.trained_at == 0.75
    said = "trained at σ = 0.75 and certified at σ = 0.25"
    assert line.fields() == ("0.png", "bright", "radius 0.1234", said)
    abstained = replace(line, class_name=None, asked=0.2)
    assert abstained.fields() == ("0.png", "abstains", "no label shown within 0.2", said)
    [question], [line] = asked(monkeypatch, small, [pixels], sigma=0.75)
    assert line.fields() == ("0.png", "bright", "radius 0.1234")


def test_images_that_differ_have_noise_of_their_own(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of an image is named by its pixels: by all of them, in many names."""
    images = [np.zeros((8, 8, 3), np.uint8) for _ in range(300)]
    for i, image in enumerate(images[1:]):
        image.reshape(-1)[i % 192] = 1 + i // 192
    questions, _ = asked(monkeypatch, small, [*images, images[5]])
    numbers = [question["indices"][0] for question in questions]
    assert all(len(question["indices"]) == 1 for question in questions)
    assert len(set(numbers)) == 300 and numbers[-1] == numbers[5]
    assert all(0 <= number < 2**63 for number in numbers)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"n": 5}, "n must be at least 7 to certify"), ({"alpha": 1.0}, "alpha must be between"),
     ({"seed": -1}, "seed must be in"), ({"radius": 3.0}, "radius must be below"),
     ({"radius": -1.0}, "radius must be a number ≥ 0"),
     ({"sigma": 0.0}, "sigma must be > 0, got 0.0"),
     ({"sigma": 0.1, "radius": 1.0}, "can certify at sigma 0.1 and alpha 0.01, got 1;"),
     ({"bound": "bernstein"}, "bound must be one of clopper-pearson, runner-up, got 'bernstein'"),
     ({"bound": "runner-up", "radius": 0.1}, "bound must be clopper-pearson with a radius")],
)  # fmt: skip
def test_settings_are_refused_before_files_are_looked_for(
    small: Path, settings: dict[str, Any], message: str
) -> None:
    usual = {"n0": 30, "n": 400, "alpha": 0.01, "seed": 7, "precision": "fp32"} | settings
    lines = predict_files(small, [Path("absent.png")], device=torch.device("cpu"), **usual)
    with pytest.raises(Mistake, match=message):
        next(lines)


@pytest.mark.parametrize("shape", [(8, 9), (9, 8), (4, 4)])
def test_an_image_of_another_size_is_refused(
    small: Path, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Mistake, match=r"0.png must be a 3×8×8 image for this model, got 3×"):
        asked(monkeypatch, small, [np.zeros((*shape, 3), np.uint8)])


def test_an_image_of_other_channels_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file has two."""
    _, card = load_model(small)
    two = replace(card, shape=(2, 8, 8), mean=(0.0,) * 2, std=(1.0,) * 2)
    save_model(Path("two.safetensors"), two.build().state_dict(), two)
    with pytest.raises(Mistake, match=r"0.png must be a 2×8×8 image for this model, got 3×8×8"):
        asked(monkeypatch, Path("two.safetensors"), [np.zeros((8, 8, 3), np.uint8)])


def test_an_image_of_any_size_is_one_for_a_model_of_imagenet(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for no other model."""
    model, card = load_model(small)
    large = replace(card, dataset="imagenet", shape=(3, 224, 224))
    save_model(Path("large.safetensors"), model.state_dict(), large)
    pixels = np.full((300, 260, 3), 200, np.uint8)
    [question], _ = asked(monkeypatch, Path("large.safetensors"), [pixels])
    assert question["images"].shape == (1, 3, 224, 224)
    save_model(Path("large.safetensors"), model.state_dict(), replace(large, dataset="mine"))
    with pytest.raises(Mistake, match="got 3×300×260; resize it"):
        asked(monkeypatch, Path("large.safetensors"), [pixels])


def test_files_are_read_before_the_network_is_prepared(
    run: Path, digits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("macer.certification.predict_files.prepare")
    paths = [Path(digits[0]), Path("absent.png")]
    lines = predict_files(
        run, paths, n0=10, n=100, alpha=0.001, seed=0, precision="fp32", device=torch.device("cpu")
    )
    with pytest.raises(
        ValueError, match=r"no image at absent.png: expected a PNG, JPEG, WebP, BMP or TIFF file"
    ):
        next(lines)


@pytest.mark.slow
def test_a_run_with_certificates_speaks_in_their_precision_and_with_their_weights_only(
    run: Path, digits: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified = tmp_path / "certified"
    shutil.copytree(run, certified)
    settings = ["--n0", "20", "--n", "100", "--stop", "2", "--device", "cpu"]
    assert main(["certify", str(certified), *settings]) == 0
    assert predicted(capsys, certified, *digits) == predicted(capsys, run, *digits)
    command = ["predict", str(certified), digits[0], "--device", "cpu"]
    [line] = predicted(capsys, certified, digits[0], "--sigma", "0.25")
    assert line.endswith("\ttrained at σ = 0.5 and certified at σ = 0.25")
    assert main([*command, "--precision", "bf16"]) == 2
    assert main([*command, "--precision", "bf16", "--sigma", "0.25"]) == 2
    assert capsys.readouterr().err.startswith("macer: precision must be fp32, that of the cert")
    weights, card = load_model(run)
    weights[1].fc2.bias.data[0] += 1
    sha256 = save_model(certified / "model.safetensors", weights.state_dict(), card)
    other = Run(certified)
    other.write_manifest(other.read_manifest() | {"weights_sha256": sha256})
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("macer: the model must be that of the certificates in ")
    assert "weights_sha256 is" in error
