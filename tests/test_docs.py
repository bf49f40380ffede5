"""The documentation: its parts are made, its Python runs, its pictures are as they are drawn."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from check_site import fetched
from data_files import Columns
from draw_pictures import PICTURES, draw
from generate_site import CODE, ELSEWHERE, Site, generate
from generated_parts import PARTS
from leaderboard_tables import FILES, sortable, write_files
from pages import ROOT, blocks
from PIL import Image
from result_tables import log_of, readme_notes, readme_table
from stand_ins import write_photographs
from torch import nn

import macer
from macer.cli.app import command_line, main
from macer.data.sets import load
from macer.losses import LOSSES
from macer.models.networks import MODELS
from macer.models.weights import load_weights, read_weights
from macer.recipes.fields import FIELDS
from macer.reporting.leaderboard import boards, entries
from macer.reporting.leaderboard_page import sort_values
from macer.reporting.scores import certified_accuracy
from macer.server.answers import Answer
from macer.system.text import NO_BREAK, unbroken

DOCS = ROOT / "docs"
SIGMAS = ("0.25", "0.50", "1.00")
MARKED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
NAVIGATION = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:")[1].split("\nnot_in_nav")[0]
RUN_AS_THEY_STAND = [
    "README.md",
    *(f"docs/how/{n}.md" for n in ("smoothing", "macer", "exact-noise")),
]


# law: pages


def test_every_page_has_one_place_in_the_navigation():
    listed = re.findall(r": (\S+\.md)$", NAVIGATION, re.MULTILINE)
    assert sorted(listed) == sorted(Site().places.values())


def test_every_generated_part_stands_on_a_page():
    marked = [
        name for page in DOCS.rglob("*.md") for name in MARKED.findall(page.read_text("utf-8"))
    ]
    assert sorted(marked) == sorted(PARTS)


def headings(page: Path) -> list[tuple[str, str]]:
    """Date and subject of each entry of a page of the log."""
    written = re.findall(r"^## (.+)$", page.read_text("utf-8"), re.MULTILINE)
    entries = [re.fullmatch(r"(\d{4}-\d\d-\d\d) · (.+)", heading) for heading in written]
    wrong = [heading for heading, entry in zip(written, entries, strict=True) if not entry]
    assert not wrong, f"{page.name}: an entry is headed ## YYYY-MM-DD · SUBJECT"
    return [(entry[1], entry[2]) for entry in entries if entry]


def test_every_entry_of_the_log_is_in_its_contents_once():
    contents = (DOCS / "log/index.md").read_text("utf-8")
    pages = [page for page in sorted((DOCS / "log").glob("*.md")) if page.name != "index.md"]
    entries = [(date, subject, page.name) for page in pages for date, subject in headings(page)]
    listed = re.findall(r"^\| ([\d-]+) \| \[(.+)\]\((\w+\.md)#", contents, re.MULTILINE)
    assert len(listed) >= 40
    assert sorted(listed) == sorted(entries)
    assert [page.name for page in pages if f"]({page.name}) |" not in contents] == []


@pytest.mark.slow
def test_the_pages_of_the_site_are_whole(tmp_path: Path):
    generate(tmp_path / "site")
    pages = {p.relative_to(tmp_path / "site").as_posix(): p for p in tmp_path.rglob("*.md")}
    assert set(ELSEWHERE.values()) <= pages.keys()
    for place, page in pages.items():
        text = page.read_text("utf-8")
        assert not MARKED.search(text), place
        outside = re.sub(r"````.*?````|```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", outside):
            assert (page.parent / link).exists(), f"{place}: {link}"
    assert "def macer_loss(" in pages["source/src/macer/losses/macer.py.md"].read_text("utf-8")


@pytest.mark.slow
def test_every_command_name_loss_and_field_is_in_the_reference():
    commands = [name for name in command_line() if not name.startswith("-")]
    assert [c for c in commands if f"## macer {c}\n" not in PARTS["commands"]()] == []
    assert [n for n in macer.__all__ if f"## macer.{n}\n" not in PARTS["python"]()] == []
    assert [name for name in LOSSES if f"### {name}\n" not in PARTS["losses"]()] == []
    assert [f for f in FIELDS if f"| `{f}` |" not in PARTS["train_fields"]()] == []


@pytest.mark.medium
def test_every_flag_that_is_no_field_has_a_help_text():
    lines = re.findall(r"^\* `(.+?)`(.*)$", PARTS["commands"](), re.MULTILINE)
    assert len(lines) >= 150
    assert [flag for flag, text in lines if not text.startswith(": ")] == []


def test_the_architecture_names_every_package():
    packages = {path.parent.name for path in (ROOT / "src/macer").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/`", PARTS["packages"](), re.MULTILINE)) == packages


@pytest.mark.slow
def test_scores_are_those_of_every_log():
    logs = list((ROOT / "results").glob("*.tsv.gz"))
    text = PARTS["scores"]()
    assert len(text.splitlines()) == len(logs) + 2
    assert "| `cifar10-0.50-record` | 0.784 ± 0.017 | 0.792 † |" in text


@pytest.mark.medium
def test_the_results_of_the_readme_are_computed_from_the_certificates():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme_table() in readme, "python docs/scripts/result_tables.py"
    assert f" {readme_notes()} " in readme
    ours = {entry.key: entry for entry in entries()}
    times = [ours["record"].seconds_at(float(sigma)) for sigma in SIGMAS]
    assert "**Seven minutes of training" in readme and max(times) <= 7 * 60
    assert "`fast`, five minutes" in readme and ours["fast"].seconds_at(0.5) <= 5 * 60
    assert f"MACER's log of {ours['macer'].seconds_at(0.5) / 3600:.1f} hours" in readme


def test_the_guides_to_training_and_to_methods_name_every_loss():
    train, methods = (
        (DOCS / f"guide/{page}.md").read_text("utf-8") for page in ("train", "methods")
    )
    [listed] = re.findall(r"^`--loss` is .+$", train, re.MULTILINE)
    assert [name for name in LOSSES if f"`{name}`" not in listed] == []
    rows = re.findall(r"^\| `([\w-]+)` \|", methods, re.MULTILINE)
    assert sorted(rows) == sorted(set(LOSSES) - {"gaussian"})  # which the others add to


def test_the_guide_to_training_has_the_accuracies_of_the_records():
    guide = (DOCS / "guide/train.md").read_text("utf-8")
    small, middle, large = (
        f"{certified_accuracy(log_of(f'cifar10-{sigma}-record'), [0.0])[0]:.3f}" for sigma in SIGMAS
    )
    said = f"on {small} of the test images at σ 0.25, on {middle} at 0.5 and on {large} at 1 "
    assert said in guide


@pytest.mark.slow
def test_what_is_measured_is_computed_from_the_certificates():
    """Both bounds side by side, and what the page says of classes in words."""
    names = [f"`{key}/cifar10-{sigma}`" for key in ("record", "fast") for sigma in SIGMAS]
    assert re.findall(r"^\| (`.+?`) \| \*\*0\.\d{3} ± 0\.\d{3}\*\* \| 0\.\d{3} † \|",
                      PARTS["records"](), re.MULTILINE) == names  # fmt: skip
    rows = re.findall(r"^\| \S+ \| \S+ \| \d\.\d{3} ± \d\.\d{3} \| \d\.\d{3} † \|",
                      PARTS["objectives"](), re.MULTILINE)  # fmt: skip
    assert len(rows) == 15
    page = (DOCS / "results/measured.md").read_text("utf-8")
    right = [
        int(log.correct[(log.label == label) & (log.idx % 5 == 0)].sum())
        for label in (4, 3)
        for log in map(log_of, ("published/cat-rs_sigma1.0", "published/macer_sigma1.0"))
    ]
    said = "of CAT-RS' deer at σ 1 {} are right and of MACER's {}, of their cats {} and {}"
    assert said.format(*right) in page


# law: code


@pytest.mark.medium
@pytest.mark.parametrize("page", RUN_AS_THEY_STAND)
def test_the_python_of_a_page_runs(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What it prints is what the page says, in a comment or in the block below."""
    monkeypatch.chdir(ROOT)
    code = blocks(page, "python")
    assert code
    for block in code:
        exec(compile(block, page, "exec"), {"__name__": "page"})
        printed = capsys.readouterr().out
        for said in re.findall(r"print\(.*\)  # (.+)", block):
            assert printed.strip() == said
        if page.endswith("exact-noise.md"):
            assert printed in blocks(page, "")


@pytest.mark.slow
def test_the_python_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    split = load("mnist-sample", "train")
    names: dict[str, Any] = {"images": split.images[:64], "labels": split.labels[:64]}
    for block in blocks("docs/guide/python.md", "python"):
        exec(compile(block, "python.md", "exec"), names)
    assert Path("runs/mine/model.safetensors").exists()
    assert Path("runs/other/model.safetensors").exists()
    assert len(names["certificates"]) == 4


@pytest.mark.medium
def test_ten_of_a_thousand_classes_have_the_logits_that_they_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    whole = MODELS["mobilenetv2"](num_classes=1000, channels=3).eval()
    torch.save(whole.state_dict(), "mobilenet_v2.pth")
    [block] = [code for code in blocks("docs/guide/own-model.md", "python") if "TEN" in code]
    names: dict[str, Any] = {}
    exec(compile(block, "own-model.md", "exec"), names)
    ten = MODELS["mobilenetv2"](num_classes=10, channels=3).eval()
    load_weights(ten, read_weights(Path("ten.pth")), "mobilenetv2")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(ten(images), whole(images)[:, names["TEN"]], atol=1e-5)


@pytest.mark.slow
def test_the_python_of_the_guide_on_any_time_runs():
    names: dict[str, Any] = {"images": load("mnist-sample", "test").images[:2]}
    first, again = blocks("docs/guide/anytime.md", "python")
    exec(compile(first, "anytime.md", "exec"), names)
    assert all(certificate.drawn > 0 for certificate in names["certificates"])
    exec(compile(again.replace("seconds=5", "seconds=0.2"), "anytime.md", "exec"), names)
    assert names["certificates"][0].radius > 0


@pytest.mark.slow
def test_the_python_of_the_guide_on_own_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a tiny network, and a data set of this machine in the place of one that is fetched."""
    monkeypatch.chdir(tmp_path)
    write_photographs(Path("photos"), "RGB", train=24, test=1)
    split = load("mnist-sample", "train")
    images, labels = split.images[:64], split.labels[:64]
    pictures = [Image.fromarray(image) for image in images[:, 0]]
    columns = Columns({"image": pictures, "label": labels.tolist()}, [str(i) for i in range(10)])
    names: dict[str, Any] = {
        "macer": macer, "images": images, "labels": labels,
        "test_images": images[:4], "test_labels": labels[:4],
        "torch_dataset": list(zip(torch.tensor(images) / 255, labels, strict=True)),
        "datasets": SimpleNamespace(load_dataset=lambda name, split: columns),
    }  # fmt: skip
    for block in blocks("docs/guide/own-data.md", "python")[1:]:
        cheap = block.replace('"resnet18"', '"tiny_models:tiny"')
        exec(compile(cheap, "own-data.md", "exec"), names)
    for run in "abcd":
        assert Path("runs", run, "model.safetensors").exists()


def test_the_networks_of_the_guide_are_functions_that_macer_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """With modules of two functions in the place of timm and transformers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def network(*_: object, **__: object) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

    auto = SimpleNamespace(from_pretrained=network)
    for name, module in (
        ("timm", SimpleNamespace(create_model=network)),
        ("transformers", SimpleNamespace(AutoModelForImageClassification=auto)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    functions = [b for b in blocks("docs/guide/own-model.md", "python") if "\ndef " in b]
    code = "\n".join(functions)
    Path("mynets.py").write_text(code, "utf-8")
    monkeypatch.delitem(sys.modules, "mynets", raising=False)
    few = ["--dataset", "mnist-sample", "--n", "20", "--n0", "10", "--stop", "1", "--device", "cpu"]
    for name in ("small_vit", "swin"):
        assert main(["certify", f"mynets:{name}", "--sigma", "0.5", "--out", name, *few]) == 0


def test_the_answer_of_the_guide_has_the_fields_of_an_answer():
    [answer] = blocks("docs/guide/serve.md", "json")
    assert list(json.loads(answer)) == [field.name for field in fields(Answer)]


def test_the_script_of_the_signs_sets_whole_tracks_apart(tmp_path: Path):
    source, out = tmp_path / "gtsrb", tmp_path / "data"
    frames = [f"train/14/{track:05d}_{frame:05d}.png" for track in range(21) for frame in range(2)]
    for name in (*frames, "test/14/00007.png"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode())
    script = ROOT / "docs/guide/traffic_signs.py"
    subprocess.run([sys.executable, script, source, out], check=True)
    tracks = {
        part: {file.name.split("_")[0] for file in (out / part / "stop").iterdir()}
        for part in ("signs/train", "tracks/train", "tracks/test")
    }
    assert tracks["tracks/test"] == {"00000", "00010", "00020"}
    assert len(tracks["signs/train"]) == 18
    assert tracks["signs/train"] == tracks["tracks/train"]
    assert not tracks["signs/train"] & tracks["tracks/test"]
    assert (out / "signs/test/stop/00007.png").read_bytes() == b"test/14/00007.png"


@pytest.mark.medium
def test_the_prediction_of_the_readme_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    assert main(["predict", "zoo:mnist-0.50", "docs/pictures/nine.png", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    for page in ("README.md", "docs/start.md", "docs/guide/predict.md"):
        assert printed in blocks(page, ""), page


@pytest.mark.medium
def test_the_prediction_at_another_sigma_is_what_the_guide_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    command = "macer predict zoo:mnist-0.50 docs/pictures/nine.png --sigma 0.25\n"
    [_, *printed] = [block for block in blocks("docs/guide/predict.md", "") if "0.25" in block]
    assert command in blocks("docs/guide/predict.md", "")
    assert main([*command.split()[1:], "--device", "cpu"]) == 0
    assert printed == [capsys.readouterr().out]


# law: pictures


@pytest.mark.medium
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_its_script_draws(name: str, tmp_path: Path):
    """Every word and number in it; lines may differ in their last digits."""
    draw([name], tmp_path)
    words = re.compile(r"<text[^>]*>([^<]*)</text>")
    again = words.findall((tmp_path / f"{name}.svg").read_text("utf-8"))
    assert len(again) > 5
    assert again == words.findall((DOCS / f"pictures/{name}.svg").read_text("utf-8"))


def test_every_picture_is_drawn_or_a_screen_or_the_image_that_is_certified():
    files = {path.name for path in (DOCS / "pictures").iterdir()}
    screens = {"serve.png", "serve-narrow.png"}  # which tests/server/test_page.py makes
    screens |= {"review.png", "review-narrow.png", "review-print.png"}  # test_review_screens.py
    assert files == {*(f"{name}.svg" for name in PICTURES), "nine.png", *screens}
    with Image.open(DOCS / "pictures/nine.png") as image:
        assert image.tobytes() == load("mnist-sample", "test").images[62].tobytes()


def test_pictures_are_small():
    assert all(path.stat().st_size < 150_000 for path in (DOCS / "pictures").iterdir())


# known value


def test_the_citation_has_the_version_of_macer():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {macer.__version__}\n" in text
    families = re.findall(r"family-names: (\w+)", text)
    bibtex = blocks("README.md", "bibtex")[0]
    assert families == re.findall(r"(?:\{|and )(\w+), ", bibtex)


def test_the_site_is_built_from_pinned_packages():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "mkdocs-material" in extras["optional-dependencies"]["docs"]
    assert "\nstrict: true\n" in (ROOT / "mkdocs.yml").read_text("utf-8")


@pytest.mark.slow
def test_in_the_site_no_line_ends_within_a_number_and_code_stays_as_it_is():
    site = Site()
    for page in site.places:
        text = site.text_of(page)
        outside, inside = ("`".join(CODE.split(text)[part::2]) for part in (0, 1))
        assert unbroken(outside) == outside, page
        assert NO_BREAK not in inside, page


def test_the_leaderboard_of_the_site_has_every_row_with_values_to_sort_by(tmp_path: Path):
    page = (DOCS / "results/leaderboard.md").read_text("utf-8")
    text = sortable(page)
    values = re.findall(r'data-value="(.*?)"', text)
    expected = [value for one in boards() for row in one.rows for value in sort_values(row, one)]
    assert [unescape(value) for value in values] == list(map(str, expected))
    assert text.count("<table data-sortable>") == len(boards())
    assert text.count("| --: |") == 0 and "| :-- |" in text  # the tables of words stay
    (tmp_path / "results").mkdir()
    write_files(tmp_path)
    for name in FILES:
        assert name in text
        there = (ROOT / "src/macer/reporting" / name).read_bytes()
        assert (tmp_path / "results" / name).read_bytes() == there


# refusal


def test_a_stale_page_of_the_leaderboard_is_refused():
    page = (DOCS / "results/leaderboard.md").read_text("utf-8")
    with pytest.raises(SystemExit, match=r"must have the table of 'σ 0\.25: .*make it anew: macer"):
        sortable(page.replace("0.572", "0.573"))


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ('<a href="https://example.org">a link that a reader follows</a>', 0),
        ('<link rel="canonical" href="https://example.org">', 0),
        ('<script src="assets/bundle.js"></script>', 0),
        ('<script src="https://example.org/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//example.org/x.css">', 1),
        ('<link rel="preconnect" href="https://example.org">', 1),
        ('<img src="https://example.org/x.png" srcset="https://example.org/y.png 2x">', 2),
        ("<style>@import 'https://example.org/x.css';</style>", 1),
        ('<p style="background: url(https://example.org/x.png)">', 1),
    ],
)
def test_what_a_page_fetches_from_another_host_is_seen(page: str, count: int, tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    assert len(fetched(file)) == count


def test_a_link_to_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    site = Site()
    page = DOCS / "start.md"
    monkeypatch.setattr(Path, "read_text", lambda *_: "[x](../src/nothing.py)")
    with pytest.raises(SystemExit, match="which does not exist"):
        site.text_of(page)
