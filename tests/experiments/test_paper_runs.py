"""The paper's rows reproduced, their tables and their figures, with tiny trainings."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import DATA, published_logs
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.certification.budget import Pace
from macer.cli.app import main
from macer.data.selection import Selection
from macer.data.sets import Split
from macer.experiments import estimate, paper_figures, paper_logs, paper_tables
from macer.experiments import paper_runs as reproduction
from macer.experiments.paper import Item, Row, item_names, only, papers_images, read_item
from macer.experiments.paper_runs import Reproduction, count, find, reproduce
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.reporting import markup as forms
from macer.reporting.logs import CertificateLog, select
from macer.reporting.scores import average_certified_radius
from macer.runs.run import Run
from macer.system.errors import Mistake

CPU = torch.device("cpu")
FEW = Selection(0, 8, 2)


class TinyRow(Row):
    """A row of the paper with a tiny training."""

    def train_recipe(self) -> TrainRecipe:
        recipe = tiny_recipe(epochs=4, lr_schedule="step", lr_decays=(2,))
        return recipe.changed(**self.changes)


def tiny_item(**changes: object) -> Item:
    usual = TinyRow(name="usual", recipe="paper/mnist-0.25", table="some", acr=0.5,
                    accuracies=(0.9, 0.5))  # fmt: skip
    other = replace(usual, name="other", changes={"k": 2, "lam": 0.0}, accuracies=(0.8, 0.0))
    return Item(name="table-0", title="Some", rows=(usual, other), radii=(0.0, 0.25), **changes)


@pytest.fixture
def tiny_data(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    loaded: list[str] = []

    def load(name: str, split: str, folder: Path | None) -> Split:
        loaded.append(split)
        return tiny_split(seed=0 if split == "train" else 1)

    made = Pace(1000.0, 10.0, threads=1, task=5, rows=100, padded=False)
    monkeypatch.setattr(estimate, "measured_pace", lambda *_, **__: made)
    monkeypatch.setattr(estimate, "steps_per_second", lambda _: 0.1)
    monkeypatch.setattr(reproduction, "load", load)
    monkeypatch.setattr(reproduction, "classes_of", lambda name, folder: CLASSES)
    return loaded


def reproduced(item: Item, runs: Path, images: Selection = FEW, **changes: object) -> None:
    settings = {"settings": CertifyRecipe(n0=10, n=50), "share": 1.0, "data": None} | changes
    reproduce(item, runs, images=lambda _: images, device=CPU, **settings)


def found(item: Item, runs: Path, images: Selection = FEW) -> list[Reproduction]:
    return find(item, runs, lambda _: images)


def with_logs(folder: Path) -> Path:
    """The authors' certificates, where the runs of their models belong."""
    for log, name in zip(("0.25", "0.5", "1.0"), ("0.25", "0.50", "1.00"), strict=True):
        run = folder / f"paper-cifar10-{name}"
        run.mkdir(parents=True)
        content = (DATA / f"macer_sigma{log}.tsv.gz").read_bytes()
        (run / "certificates.tsv").write_bytes(content)
    return folder


# law


@pytest.mark.medium
def test_each_row_is_trained_and_certified_once(tmp_path, tiny_data):
    item = tiny_item(soft_betas=(1.0, 4.0))
    item = replace(item, rows=(*item.rows, replace(item.rows[0], name="again")))
    reproduced(item, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "paper-mnist-0.25", "paper-mnist-0.25-k-2-lam-0",
    ]  # fmt: skip
    assert tiny_data == ["test", "train"]
    usual, other, again = found(item, tmp_path)
    assert usual.log.idx.tolist() == [0, 2, 4, 6] and usual.log.n == 50
    assert np.array_equal(usual.log.radius, again.log.radius)
    assert [log.bound for log in usual.soft] == ["bernstein", "bernstein"]
    assert (usual.epochs, usual.remark, other.remark) == (4, "", "")
    assert usual.speed["seconds"] > 0
    assert Run(tmp_path / "paper-mnist-0.25-k-2-lam-0").read_recipe() == other.row.train_recipe()


@pytest.mark.medium
def test_what_is_left_and_how_long_it_takes_is_told_before_it_is_begun(tmp_path, tiny_data, capsys):
    reproduced(tiny_item(), tmp_path)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "2 models: 8 epochs of training, then 8 images to certify"
    # 4 steps of an epoch at 0.1 steps/s; 60 samples, a chunk of 100, of each image, prepared twice
    assert told[1] == "measured here, they take 5 min 20 s of training and 22 s of certification"
    reproduced(tiny_item(), tmp_path, Selection(0, 12, 2))
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "2 models: 0 epochs of training, then 4 images to certify"
    assert told[1].startswith("measured here, they take 0 s of training and 2")
    reproduced(tiny_item(), tmp_path)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "2 models: 0 epochs of training, then 0 images to certify"
    assert "measured" not in "".join(told)


def test_what_is_finished_is_not_done_again_and_more_images_are_added(tmp_path, tiny_data):
    item = only(tiny_item(), "k-2")
    reproduced(item, tmp_path)
    files = [tmp_path / item.rows[0].run() / name for name in ("metrics.jsonl", "manifest.json")]
    before = [file.read_bytes() for file in files]  # they have the seconds of the training
    reproduced(item, tmp_path, Selection(0, 12, 2))
    assert [file.read_bytes() for file in files] == before
    (one,) = found(item, tmp_path, Selection(0, 12, 2))
    assert one.log.idx.tolist() == [0, 2, 4, 6, 8, 10]


def test_a_shorter_training_says_so(tmp_path, tiny_data):
    item = only(tiny_item(), "k-2")
    reproduced(item, tmp_path, share=0.5)
    (one,) = found(item, tmp_path)
    assert one.epochs == 2
    assert one.remark == "epochs 2 for 4, lr_decays 1 for 2"
    assert f"{item.rows[0].run()}: {one.remark}." in paper_tables.notes(item, [one])


def test_another_network_says_so_and_is_kept(tmp_path, tiny_data):
    item = only(tiny_item(), "k-2")
    reproduced(item, tmp_path, model="tiny_models:tiny_with_batch_norm")
    (one,) = found(item, tmp_path)
    assert one.remark == "model tiny_models:tiny_with_batch_norm for tiny_models:tiny"
    with pytest.raises(Mistake, match=r"holds another training, got model .*--share and --model, "):
        reproduced(item, tmp_path)
    with pytest.raises(Mistake, match=r"^unknown model 'lenett', did you mean 'lenet'"):
        reproduced(item, tmp_path / "new", model="lenett")
    assert not (tmp_path / "new").exists()


@pytest.mark.medium
def test_models_are_counted_without_reading_what_comes_with_macer(tmp_path, monkeypatch):
    folder = with_logs(tmp_path)
    monkeypatch.setattr(paper_logs, "_read", None)
    counted = {name: count(read_item(name), folder) for name in ("table-1", "table-2", "table-9")}
    monkeypatch.undo()
    for name, told in counted.items():
        models = {one.row.run(): one for one in find(read_item(name), folder)}.values()
        certified = sum(model.log is not None for model in models)
        assert told == (len(models), certified, sum(bool(model.shipped) for model in models))


@pytest.mark.medium
def test_certificates_alone_count_and_are_left_alone(tmp_path, tiny_data):
    folder = with_logs(tmp_path)
    item = only(read_item("table-1"), "paper-cifar10-0.")
    before = sorted(path for path in folder.rglob("*"))
    reproduced(item, folder, papers_images("cifar10"), settings=CertifyRecipe(n=10))
    assert sorted(path for path in folder.rglob("*")) == before and tiny_data == []
    for one, log in zip(find(item, folder), published_logs(), strict=False):
        window = select(log, Selection(500, 1000))
        assert average_certified_radius(one.log) == average_certified_radius(window)
        assert one.remark == "certificates alone, without their training"


def test_certificates_of_other_images_or_another_sigma_do_not_count(tmp_path):
    folder = with_logs(tmp_path)
    item = only(read_item("table-1"), "paper-cifar10-0.25")
    (none,) = find(item, folder, lambda _: Selection(20_000, 20_001, 1))
    assert none.log is None and none.remark.startswith("no image of paper-cifar10-0.25 is left by")
    table = "idx\tlabel\tpredict\tradius\tcorrect\ttime\tsigma\n500\t1\t1\t0.5\t1\t0\t0.5\n"
    (folder / "paper-cifar10-0.25" / "certificates.tsv").write_text(table)
    (none,) = find(item, folder)
    assert none.log is None and none.remark.endswith("must be of σ = 0.25, got 0.5")


# known value


def test_the_table_has_the_authors_certificates_below_what_they_published(tmp_path):
    item = only(read_item("table-1"), "paper-cifar10-0.25")
    header, lines = paper_tables.cells(item, find(item, with_logs(tmp_path)))
    assert header[:5] == ["model", "σ", "of", "0.00", "0.25"] and header[-1] == "ACR"
    paper, here = lines
    assert paper[:5] == ["MACER-0.25", "0.25", "paper", "0.81", "0.71"] and paper[-1] == "0.556"
    assert here[:5] == ["MACER-0.25", "0.25", "here", "0.812", "0.712"]
    assert here[-1] == "0.555 ± 0.017"


@pytest.mark.medium
def test_rows_of_different_images_or_n_say_which_they_have():
    item = tiny_item()
    logs = [replace(select(published_logs()[0], Selection(0, 20)), n=n) for n in (500, 2000)]
    rows = [Reproduction(row, log) for row, log in zip(item.rows, logs, strict=True)]
    told = paper_tables.notes(item, rows)
    assert "here: images 0…19 (20) · n differs · α not recorded; ± is one standard" in told[1]
    assert told[2] == "paper-mnist-0.25: images 0…19 (20) · n = 500 · α not recorded."
    assert told[3].startswith("paper-mnist-0.25-k-2-lam-0: images 0…19 (20) · n = 2,000")


@pytest.mark.medium
def test_times_are_those_of_the_run(tmp_path):
    row = replace(tiny_item().rows[0], epoch_seconds=504.0, epochs=440, hours=61.6)
    item = replace(tiny_item(shows="time"), rows=(row,))
    log = select(published_logs()[0], Selection(0, 20))
    ours = Reproduction(row, log, epochs=4, speed={"seconds": 720.0})
    header, (paper, here) = paper_tables.cells(item, [ours])
    assert header == ["model", "data set", "of", "s/epoch", "epochs", "hours", "ACR"]
    assert paper == ["usual", "tiny", "paper", "504.0", "440", "61.60", "0.500"]
    assert here[:6] == ["usual", "tiny", "here", "180.0", "4", "0.200"]
    _, (_, here) = paper_tables.cells(item, [replace(ours, epochs=None, speed={})])
    assert here[3:6] == ["?", "?", "?"]
    scores = replace(item, shows="scores")
    header, (paper, here) = paper_tables.cells(scores, [ours])
    assert header[-2:] == ["epochs", "hours"]
    assert paper[-2:] == ["440", "61.60"] and here[-2:] == ["4", "0.200"]


def test_settings_that_mean_nothing_for_a_model_are_left_empty():
    item = read_item("table-4")
    header, lines = paper_tables.cells(item, [Reproduction(row) for row in item.rows])
    cohen, salman, _, _, _, _, _, _, macer = (
        dict(zip(header, line, strict=True)) for line in lines
    )
    assert (cohen["k"], cohen["λ"], cohen["γ"], cohen["attack"]) == ("1", "0", "", "")
    assert (salman["k"], salman["λ"], salman["attack"], salman["steps"]) == ("8", "", "pgd", "10")
    assert (macer["k"], macer["λ"], macer["λ is"], macer["γ"]) == ("16", "12", "deferred", "8")
    assert macer["run"] == "paper-cifar10-1.00"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list:
    drawn: list = []
    monkeypatch.setattr(paper_figures, "save_picture", lambda figure, path: drawn.append(figure))
    return drawn


@pytest.mark.medium
def test_a_figure_has_the_papers_points_and_our_steps_in_its_panels(tmp_path, figures):
    item = read_item("figure-1")
    paper_figures.plot(item, find(item, with_logs(tmp_path)), tmp_path / "a.png")
    panels = figures[0].axes
    assert [axes.get_title(loc="left") for axes in panels] == ["σ = 0.25", "σ = 0.5", "σ = 1"]
    cohen, salman, macer, *points = panels[0].lines
    assert cohen.get_ydata()[0] == 0.782 and salman.get_ydata()[0] == 0.734  # from results/
    assert macer.get_ydata()[0] == 0.812 and macer.get_ydata()[-1] == 0.0
    assert points[2].get_xydata().tolist() == [[0, 0.81], [0.25, 0.71], [0.5, 0.59], [0.75, 0.43]]
    assert points[2].get_color() == macer.get_color()
    texts = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert texts[1:3] == ["Salman-0.25: ACR 0.538", "MACER-0.25: ACR 0.556"]
    assert texts[3:] == [
        "Cohen-0.25 rerun: 0.440 (500 images)",
        "Salman-0.25 rerun: 0.559 (500 images)",
        "MACER-0.25 here: 0.555 (500 images)",
    ]


def test_the_effects_have_a_panel_each(figures):
    item = read_item("figure-3")
    paper_figures.plot(item, [Reproduction(row) for row in item.rows], Path("a.png"))
    titles = [axes.get_title(loc="left") for axes in figures[0].axes]
    assert titles == [f"CIFAR-10: effect of {symbol}" for symbol in "kλγβ"]
    assert len(figures[0].axes[2].get_legend().get_texts()) == 8


def soft(name: str, log: CertificateLog) -> CertificateLog:
    return replace(log, name=name, radius=log.radius * 0.9)


@pytest.mark.medium
def test_hard_and_soft_certificates_of_a_model_share_a_panel(figures):
    item = read_item("figure-4")
    log = published_logs()[0]
    softs = (soft("bernstein-1", log), soft("bernstein-16", log))
    rows = [Reproduction(item.rows[0]), Reproduction(item.rows[2], log, softs)]
    paper_figures.plot(item, rows, Path("a.png"))
    first, *others = figures[0].axes
    assert first.get_title(loc="left") == "MACER-0.25"
    assert others == []  # as many columns as panels
    texts = [text.get_text() for text in first.get_legend().get_texts()]
    assert [text.split(":")[0] for text in texts] == ["hard", "soft, β = 1", "soft, β = 16"]


@pytest.mark.slow
def test_the_command_lists_prints_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with_logs(Path("runs"))
    assert main(["paper"]) == 0
    listed = capsys.readouterr().out
    assert "table-1   CIFAR-10: certified accuracy and ACR" in listed and "figure-4" in listed
    line = next(line for line in listed.splitlines() if line.startswith(" table-1 "))
    assert line.split()[-3:] == ["9", "3", "6"]
    assert main(["paper", "figure-1", "--only", "paper-cifar10-1"]) == 0
    assert "0.793 ± 0.051" in capsys.readouterr().out
    assert not list(Path().glob("*.png"))
    assert main(["paper", "figure-1", "--only", "paper-cifar10-1", "--plot", "a.png"]) == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main(["paper", "table-1", "--only", "0.25"]) == 0
    assert "`macer paper table-1 --only 0.25 --train` makes them" in capsys.readouterr().out
    assert main(["paper", "table-8", "--markdown", "--start", "0", "--stop", "500"]) == 0
    out, err = capsys.readouterr()
    assert "| MACER-0.25, 440 epochs | 0.25 | here |" in out
    assert "in place of the paper's 500 images: --start 0 --stop 500\n" in err
    assert main(["paper", "table-8", "--latex"]) == 0
    latex = capsys.readouterr().out
    assert r"\begin{tabular}" in latex and "--train" not in latex
    assert main(["paper", "table-12", "--commands", "--only", "gamma-2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "macer train paper/cifar10-0.25 --gamma 2.0 --out runs/paper-cifar10-0.25-gamma-2"
    )


@pytest.mark.medium
def test_the_list_is_printed_in_every_form(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "--markdown"]) == 0
    assert "| table-10 | CIFAR-10: effect of k | 10 | 0 | 1 |\n" in capsys.readouterr().out
    assert main(["paper", "--latex"]) == 0
    assert r"table-10 & CIFAR-10: effect of k & 10 & 0 & 1 \\" in capsys.readouterr().out


def test_the_command_that_is_named_has_the_flags_that_were_given(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--only", "0.25-k-1", "--share", "0.02", "--model", "small12", "--runs", "my runs"]
    assert main(["paper", "table-10", *flags, "--n", "1000", "--stop", "9"]) == 0
    given = "--only 0.25-k-1 --share 0.02 --model small12 --runs 'my runs' --n 1000 --stop 9"
    told = capsys.readouterr().out
    assert f"in my runs: `macer paper table-10 {given} --train` makes them" in told
    assert main(["paper", "table-10", *flags, "--commands"]) == 0
    assert capsys.readouterr().out.startswith(
        "macer train paper/cifar10-0.25 --model small12 --k 1 --epochs 9 --lr-decays 4 "
        "--lr-decays 8 --out 'my runs/paper-cifar10-0.25-k-1'\n"
    )


def test_the_command_trains_what_is_not_there(tmp_path, monkeypatch, tiny_data, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("macer.experiments.paper.read_item", lambda name: tiny_item())
    flags = ["--n0", "10", "--n", "50", "--start", "0", "--stop", "4", "--device", "cpu"]
    assert main(["paper", "table-0", "--train", "--only", "k-2", *flags]) == 0
    assert "0…3 (4) · n = 50 · α = 0.001" in capsys.readouterr().out
    manifest = json.loads(Path("runs/paper-mnist-0.25-k-2-lam-0/manifest.json").read_text())
    assert manifest["status"] == "trained" and manifest["recipe"]["k"] == 2


# refusal


def test_a_mistake_in_the_images_or_settings_is_told_before_training(tmp_path, tiny_data):
    for images, settings, line in (
        (Selection(0, 65, 1), {}, "stop must be at most the number of images, 64, got 65"),
        (FEW, {"settings": CertifyRecipe(n=0)}, "n must be "),
        (FEW, {"share": 2.0}, "share must be "),
    ):
        with pytest.raises(Mistake, match=line):
            reproduced(tiny_item(), tmp_path, images, **settings)
    assert list(tmp_path.iterdir()) == [] and "train" not in tiny_data


def test_a_run_of_another_length_is_refused_before_any_is_trained(tmp_path, tiny_data):
    reproduced(only(tiny_item(), "k-2"), tmp_path, share=0.5)
    line = "holds another training, got epochs 4 for 2, .*; give the same --share and --model, or "
    with pytest.raises(Mistake, match=line):
        reproduced(tiny_item(), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.medium
def test_a_damaged_manifest_is_a_remark_of_its_row(tmp_path, tiny_data):
    item = tiny_item()
    reproduced(item, tmp_path)
    folder = tmp_path / item.rows[0].run()
    manifest = Run(folder).read_manifest()
    Run(folder).write_manifest(manifest | {"speed": None})
    assert found(item, tmp_path)[0].speed == {}
    manifest["recipe"]["loss"]["lam"] = "x"
    Run(folder).write_manifest(manifest)
    assert found(item, tmp_path)[0].remark == "lam must be a number, got 'x'"
    Run(folder).manifest.write_text("{")
    torn, whole = found(item, tmp_path)
    assert torn.log is None and "must be a manifest in JSON" in torn.remark
    assert whole.log is not None


@pytest.mark.parametrize("name", item_names())
def test_latex_has_no_character_that_latex_does_not_know(name):
    item = read_item(name)
    found = [Reproduction(row) for row in item.rows]
    text = forms.latex(*paper_tables.cells(item, found), paper_tables.notes(item, found))
    assert text.isascii(), {c for c in text if not c.isascii()}


@pytest.mark.parametrize(("name", "copied"), [("table-1", True), ("table-6", False)])
def test_what_the_paper_copied_is_said_where_it_did(name, copied):
    item = read_item(name)
    text = paper_tables.notes(item, [Reproduction(row) for row in item.rows])[0]
    assert ("from their own papers" in text) == copied


def test_certificates_of_other_settings_are_refused_before_any_training(tmp_path, tiny_data):
    reproduced(only(tiny_item(), "k-2"), tmp_path)
    with pytest.raises(Mistake, match=r"n must be 50, that of the certificates in .*, got 60; or"):
        reproduced(tiny_item(), tmp_path, settings=CertifyRecipe(n0=10, n=60))
    assert len(list(tmp_path.iterdir())) == 1


def test_certificates_of_one_radius_are_no_row_of_the_paper(tmp_path, tiny_data):
    item = only(tiny_item(), "k-2")
    with pytest.raises(Mistake, match="which have no ACR"):
        reproduced(item, tmp_path, settings=CertifyRecipe(n0=10, n=50, radius=0.1))
    (one,) = found(item, tmp_path)
    assert one.log is None and "must hold certificates of largest radii, got those" in one.remark


def test_certificates_of_training_images_are_no_row_of_the_paper(tmp_path, tiny_data):
    item = only(tiny_item(), "k-2")
    reproduced(item, tmp_path)
    [table] = tmp_path.glob("*/certificates.tsv")
    header, *rows = table.read_text().splitlines()
    table.write_text("\n".join([f"{header}\tsplit", *(f"{row}\ttrain" for row in rows)]) + "\n")
    table.with_name("certificates.journal").unlink()  # it would tell that the table is not its own
    (one,) = found(item, tmp_path)
    assert one.log is None and one.remark.endswith("certificates of test images, got train")


def test_soft_certificates_must_be_there_to_be_drawn():
    item = read_item("figure-4")
    with pytest.raises(Mistake, match="figure-4 must have soft certificates to draw, got none; "):
        paper_figures.plot(item, [Reproduction(row) for row in item.rows], Path("a.png"))
