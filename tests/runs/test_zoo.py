"""The zoo of these tests is a folder of their own, with tiny models; the last look at macer's."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.audit.rescore import read_counts, rescored
from macer.audit.verify import check_complete, check_table, read_certificates, recompute
from macer.certification.journal import read_journal
from macer.certification.largest_radius import certify
from macer.cli.app import app, main
from macer.data.sets import classes_of, load
from macer.reporting.zoo_table import HEADER, catalogue
from macer.runs import zoo
from macer.runs.export import export_model
from macer.runs.model_file import ModelCard
from macer.runs.run import Run
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.training.loop import train

pytestmark = pytest.mark.usefixtures("tiny_networks")
DIGITS = ModelCard(
    architecture="tiny_with_batch_norm",
    classes=classes_of("mnist-sample"),
    shape=(1, 28, 28),
    mean=(0.0,),
    std=(1.0,),
    sigma=0.5,
    dataset="mnist-sample",
)
BANDS = replace(DIGITS, classes=CLASSES, shape=(1, 8, 8), sigma=0.25, dataset="tiny")
SHIPPED = zoo.FOLDER
SETTINGS = ["--n0", "20", "--n", "100", "--stop", "3", "--device", "cpu"]


def rows() -> list[tuple[str, ...]]:
    """The list as `macer zoo` prints it."""
    return [model.cells() for model in catalogue()]


@pytest.fixture(scope="module")
def shipped_rows() -> dict[str, dict[str, str]]:
    """The rows of the models that come with macer, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "FOLDER", SHIPPED)
        return {row[0]: dict(zip(HEADER, row, strict=True)) for row in rows()}


def add_model(name: str, card: ModelCard) -> Path:
    """A small model of the zoo that nearly always says class 7."""
    torch.manual_seed(0)
    model = card.build()
    with torch.no_grad():
        model[1][-1].bias[7 % len(card.classes)] += 9
    file = zoo.FOLDER / f"{name}.safetensors"
    save_model(Path("whole"), model.state_dict(), card)
    export_model(Path("whole"), file)
    list_sums()
    return file


def list_sums() -> None:
    """Bring the zoo's list of SHA-256 up to date."""
    files = sorted(zoo.FOLDER.glob("*.safetensors"))
    lines = [f"{sha256_of_file(file)}  {file.name}\n" for file in files]
    (zoo.FOLDER / "SHA256SUMS").write_text("".join(lines))


@pytest.fixture(autouse=True)
def own_zoo(tmp_path, monkeypatch):
    """An empty zoo beside the current folder, where a package would be."""
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "package")
    (tmp_path / "package").mkdir()
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")


@pytest.fixture
def digits() -> Path:
    return add_model("digits-0.50", DIGITS)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def certified(*arguments: str) -> None:
    assert main(["certify", "zoo:digits-0.50", *SETTINGS, *arguments]) == 0


def run(arguments: list[str]) -> None:
    """Run a command, its mistake as an exception."""
    app(arguments, exit_on_error=False, print_error=False)


# law


def test_a_zoo_model_is_the_model_of_its_file(digits):
    assert zoo.zoo_names() == ["digits-0.50"]
    (by_name, card), (by_file, _) = load_model("zoo:digits-0.50"), load_model(digits)
    images = torch.rand(3, 1, 28, 28)
    assert card == DIGITS
    assert torch.equal(by_name(images), by_file(images))


def test_certificates_of_a_zoo_model_bind_its_file_and_stay_out_of_the_package(digits, capsys):
    before = contents(zoo.FOLDER)
    certified()
    assert capsys.readouterr().out.endswith("\ncertificates: runs/zoo-digits-0.50\n")
    journal = read_journal(Path("runs/zoo-digits-0.50/certificates.journal"))
    assert journal.header.weights_sha256 == sha256_of_file(digits)
    assert journal.header.sigma == 0.5 and len(journal.records) == 3
    assert contents(zoo.FOLDER) == before
    certified("--out", "elsewhere")
    assert "certificates: " not in capsys.readouterr().out
    tables = [Path(f, "certificates.tsv") for f in ("elsewhere", "runs/zoo-digits-0.50")]
    assert tables[0].read_bytes() == tables[1].read_bytes()


def test_a_zoo_model_predicts_without_certificates(digits, capsys):
    Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    assert main(["predict", "zoo:digits-0.50", "digit.png", "--n", "200", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"digit\.png\t7\tradius [01]\.\d{4}\n", out) and err == ""


@pytest.mark.medium
def test_certificates_of_a_zoo_model_are_verified_attacked_and_reported_by_its_name(digits, capsys):
    certified()
    name = "zoo:digits-0.50"
    capsys.readouterr()
    assert main(["verify", name, "--resample", "2", "--device", "cpu"]) == 0
    assert "2 images sampled again: equal counts" in capsys.readouterr().out
    effort = ["--images", "2", "--restarts", "1", "--steps", "1", "--m", "2", "--n", "50"]
    assert main(["attack", name, *effort, "--device", "cpu"]) == 0
    assert "attacked 2 certified images, 0…1, " in capsys.readouterr().out
    assert main(["report", name]) == 0
    assert re.search(r"^ ?zoo-digits-0.50 ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.medium
def test_certificates_that_came_with_a_model_serve_until_the_user_has_her_own(digits):
    own, shipped = Path("runs/zoo-digits-0.50"), zoo.FOLDER / "digits-0.50"
    assert zoo.certificates_folder("zoo:digits-0.50") == own
    certified("--out", str(shipped))
    assert zoo.certificates_folder("zoo:digits-0.50") == shipped
    before = contents(zoo.FOLDER)
    assert main(["verify", "zoo:digits-0.50", "--device", "cpu"]) == 0
    assert main(["rescore", "zoo:digits-0.50", "--bound", "runner-up"]) == 0
    assert [file.name for file in own.iterdir()] == ["rescored-runner-up-0.001.tsv"]
    assert zoo.certificates_folder("zoo:digits-0.50") == shipped
    certified()
    assert zoo.certificates_folder("zoo:digits-0.50") == own
    assert contents(zoo.FOLDER) == before


def test_a_certification_given_up_before_its_first_image_hides_nothing(digits, capsys):
    own, shipped = Path("runs/zoo-digits-0.50"), zoo.FOLDER / "digits-0.50"
    certified("--out", str(shipped))
    shutil.copytree(shipped, own)
    lines = (own / "certificates.journal").read_text().splitlines(keepends=True)
    (own / "certificates.journal").write_text("".join(x for x in lines if '"idx"' not in x))
    (own / "certificates.tsv").write_text((own / "certificates.tsv").read_text().split("\n")[0])
    assert zoo.certificates_folder("zoo:digits-0.50") == shipped
    assert main(["report", "zoo:digits-0.50"]) == 0
    assert "your certificates" not in capsys.readouterr().err


@pytest.mark.medium
def test_of_two_folders_of_certificates_a_command_says_which_counts(digits, capsys):
    own, shipped = Path("runs/zoo-digits-0.50"), zoo.FOLDER / "digits-0.50"
    certified("--out", str(shipped))
    own.mkdir(parents=True)  # without certificates, it hides nothing
    commands = [["report"], ["verify", "--resample", "0"], ["attack", "--images", "1", "--m", "2"]]
    effort = {"attack": ["--restarts", "1", "--steps", "1", "--n", "50"]}
    for both in (False, True):
        capsys.readouterr()
        for command, *flags in commands:
            device = [] if command == "report" else ["--device", "cpu"]
            line = [command, "zoo:digits-0.50", *flags, *effort.get(command, []), *device]
            assert main(line) == 0
            said = f"zoo:digits-0.50: your certificates in {own} are used, not those that come "
            assert (said in capsys.readouterr().err) == both
        certified()


def test_any_other_target_has_its_certificates_in_its_own_folder():
    assert zoo.certificates_folder(Path("runs/a")) == Path("runs/a")


def test_a_zoo_model_teaches(tmp_path):
    file = add_model("bands", BANDS)
    recipe = tiny_recipe(loss="catrs", teacher="zoo:bands", epochs=1)
    train(recipe, tiny_split(), CLASSES, tmp_path / "run")
    manifest = Run(tmp_path / "run").read_manifest()
    assert manifest["models_sha256"] == {"teacher": sha256_of_file(file)}
    assert manifest["recipe"]["loss"]["teacher"] == "zoo:bands"


def test_a_module_named_zoo_does_not_take_the_place_of_a_model(digits):
    # zoo:bands could be a function bands of a module zoo.
    add_model("bands", BANDS)
    Path("zoo.py").write_text("raise SystemExit('imported')")
    with pytest.raises(Mistake, match=r"zoo:bands knows 3 classes, the data set has 10; choose"):
        run(["certify", "zoo:bands", "--dataset", "mnist-sample", *SETTINGS])


# the list


def test_the_list_tells_what_each_model_is(digits, capsys):
    add_model("bands", BANDS)
    bands, row = rows()
    assert bands[0] == "zoo:bands"
    told = dict(zip(HEADER, row, strict=True))
    assert told == {
        "name": "zoo:digits-0.50",
        "network": "tiny_with_batch_norm",
        "data set": "mnist-sample",
        "σ": "0.5",
        "parameters": "698",  # 4·9 + 4, 2·4, 64·10 + 10
        **dict.fromkeys(("ACR", "runner-up", "images", "n", "α"), ""),
    }
    assert main(["zoo"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line[0] for line in lines if line[0].startswith("zoo:")] == [bands[0], row[0]]


def test_the_list_has_the_acr_of_the_certificates_that_came_with_a_model(digits):
    certified("--out", str(zoo.FOLDER / "digits-0.50"))
    [row] = rows()
    records = read_journal(zoo.FOLDER / "digits-0.50/certificates.journal").records.values()
    acr = sum(r.certificate.radius * (r.certificate.label == r.label) for r in records) / 3
    assert acr > 0.1
    assert row[5].startswith(f"{acr:.3f} ± ")
    assert row[7:] == ("0…2 (3)", "100", "0.001")


def test_certificates_of_one_radius_have_no_acr(digits):
    certified("--radius", "0.1", "--out", str(zoo.FOLDER / "digits-0.50"))
    [row] = rows()
    assert row[5:] == ("", "", "", "", "")


def test_an_empty_zoo_says_so(capsys):
    assert main(["zoo"]) == 0
    assert capsys.readouterr().out == "no trained models come with this macer\n"


# refusal


def test_certificates_of_another_model_are_not_listed(digits):
    certified("--out", str(zoo.FOLDER / "digits-0.50"))
    model, card = load_model(digits)
    model[1][-1].bias.data[0] += 1
    save_model(digits, model.state_dict(), card)
    list_sums()
    with pytest.raises(Mistake, match=r"^the certificates in .* must be of zoo:digits-0.50, SHA"):
        catalogue()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits-0.5", "'digits-0.5', did you mean 'digits-0.50'?; choose from bands, digits-0.50"),
        ("x", "'x'; choose from bands, digits-0.50"),
        ("", "''; choose from bands, digits-0.50"),
        ("../desk/whole", "'../desk/whole'; choose from bands, digits-0.50"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(digits, name, message):
    add_model("bands", BANDS)
    with pytest.raises(Mistake, match=f"^unknown zoo model {re.escape(message)}$"):
        load_model(f"zoo:{name}")


def test_an_unknown_name_of_an_empty_zoo_is_refused():
    shutil.rmtree(zoo.FOLDER)  # a package without models has no such folder
    with pytest.raises(Mistake, match=r"^unknown zoo model 'digits'; the zoo is empty$"):
        load_model("zoo:digits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "w.pt"], "weights must be left out for zoo:digits-0.50, which has its own"),
        (["--normalise", "none"], "normalise must be left out for zoo:digits-0.50, which has its"),
        (["--sigma", "1"], "out must be a folder of its own for another sigma than the training's"),
    ],
)
def test_settings_that_a_zoo_model_has_itself_are_refused(digits, arguments, message):
    with pytest.raises(Mistake, match=f"^{re.escape(message)}"):
        run(["certify", "zoo:digits-0.50", *SETTINGS, *arguments])
    assert not Path("runs").exists()


def test_certificates_that_are_not_there_are_missed_by_their_place(digits, capsys):
    assert main(["attack", "zoo:digits-0.50", "--device", "cpu"]) == 2
    place = "runs/zoo-digits-0.50"
    line = f"macer: no certificates in {place}: expected {place}/certificates.journal\n"
    assert capsys.readouterr().err == line


def test_the_zoo_is_not_written_to_by_name(digits):
    with pytest.raises(Mistake, match=r"^out must be a file to write, got the zoo model zoo:new$"):
        export_model(digits, Path("zoo:new"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "acr"), [("mnist-0.25", 0.911), ("mnist-0.50", 1.638), ("mnist-1.00", 1.669)]
)
def test_the_models_that_come_with_macer_know_digits_and_have_their_own_certificates(
    monkeypatch, shipped_rows, name, acr
):
    monkeypatch.setattr(zoo, "FOLDER", SHIPPED)
    split = load("mnist-sample", "test")
    model, card = load_model(f"zoo:{name}")
    images = torch.from_numpy(split.images[:20])
    certificates = certify(model, images, sigma=card.sigma, n=200)
    right = sum(c.label == y for c, y in zip(certificates, split.labels[:20], strict=True))
    assert right >= 17
    shown = shipped_rows[f"zoo:{name}"]
    assert shown["data set"] == "mnist" and float(shown["σ"]) == card.sigma
    assert float(shown["ACR"].split()[0]) == acr and shown["n"] == "100,000"


@pytest.mark.parametrize(
    ("name", "acr"),
    [
        ("cifar10-0.25-cpu", 0.415),
        ("cifar10-0.50-cpu", 0.596),
        ("cifar10-1.00-cpu", 0.770),
        ("cifar10-0.25-fast", 0.543),
        ("cifar10-0.50-fast", 0.704),
        ("cifar10-1.00-fast", 0.804),
        ("cifar10-0.25-record", 0.572),
        ("cifar10-0.50-record", 0.784),
        ("cifar10-1.00-record", 0.869),
    ],
)
def test_the_models_of_cifar10_that_come_with_macer_have_their_acr(
    monkeypatch, shipped_rows, name, acr
):
    monkeypatch.setattr(zoo, "FOLDER", SHIPPED)
    shown = shipped_rows[f"zoo:{name}"]
    assert float(shown["ACR"].split()[0]) == acr
    small = name.endswith("-cpu")
    assert shown["images"] == ("0…9950, every 50th (200)" if small else "0…9995, every 5th (2,000)")
    assert (shown["n"], shown["α"]) == ("10,000" if small else "100,000", "0.001")
    model, card = load_model(f"zoo:{name}")
    with torch.inference_mode():
        assert model(torch.full((2, *card.shape), 0.5)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("cifar10-0.25-record", "0.575 †"),  # as docs/log/certificates.md has them
        ("cifar10-0.50-record", "0.792 †"),
        ("cifar10-1.00-record", "0.888 †"),
        ("cifar10-0.25-fast", "0.549 †"),
        ("cifar10-1.00-fast", "0.847 †"),
        ("cifar10-0.50-cpu", "0.608"),  # this bound was fixed beforehand
    ],
)
def test_the_list_has_the_runner_ups_bound_beside_the_other(shipped_rows, name, other):
    assert shipped_rows[f"zoo:{name}"]["runner-up"] == other


def test_the_other_acr_is_that_of_the_rescored_certificates(digits):
    certified("--out", str(zoo.FOLDER / "digits-0.50"))
    [model] = [model for model in catalogue() if model.name == "zoo:digits-0.50"]
    contents = read_counts(zoo.FOLDER / "digits-0.50")
    records = rescored(contents, bound="runner-up", alpha=0.001).values()
    radii = [r.certificate.radius * (r.certificate.label == r.label) for r in records]
    assert model.other_fixed and model.other_acr == pytest.approx(sum(radii) / 3, abs=1e-12)
    assert model.other_acr > 0


@pytest.mark.parametrize("place", [8, -1])
@pytest.mark.parametrize("command", ["predict", "certify", "export"])
def test_a_zoo_model_with_a_flipped_byte_is_refused(digits, capsys, command, place):
    content = bytearray(digits.read_bytes())
    content[place] ^= 1
    digits.write_bytes(content)
    Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    rest = {"predict": ["digit.png"], "export": ["--out", "new.safetensors"]}
    assert main([command, "zoo:digits-0.50", *rest.get(command, [])]) == 2
    line = f"macer: {digits} must have the SHA-256 that came with macer, "
    assert capsys.readouterr().err.startswith(line)


def test_a_zoo_model_that_is_not_in_the_list_is_refused(digits):
    (zoo.FOLDER / "SHA256SUMS").write_text("")
    with pytest.raises(Mistake, match=r"must have the SHA-256 that came with macer, none…; "):
        load_model("zoo:digits-0.50")


def test_the_list_of_sha256_is_complete():
    lines = (SHIPPED / "SHA256SUMS").read_text().splitlines()
    files = sorted(SHIPPED.glob("*.safetensors"))
    assert lines == [f"{sha256_of_file(file)}  {file.name}" for file in files]


def test_the_models_that_come_with_macer_are_small():
    sizes = [path.stat().st_size for path in SHIPPED.glob("*.safetensors")]
    assert len(sizes) >= 4 and max(sizes) <= 8e6
    assert sum(path.stat().st_size for path in SHIPPED.glob("cifar10-*.safetensors")) <= 50e6


@pytest.mark.medium
@pytest.mark.parametrize("folder", sorted(zoo.FOLDER.glob("*/")), ids=lambda folder: folder.name)
def test_every_certificate_that_comes_with_macer_is_there_and_follows(folder):
    contents = read_certificates(folder)
    check_complete(contents, partial=False)
    images = {"cpu": 200, "fast": 2000, "record": 2000}.get(folder.name.split("-")[-1], 100)
    assert recompute(contents) == images
    check_table(contents, folder / "certificates.tsv")
