"""Held-out accuracy and radius during training: read, listed and drawn."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from scipy.stats import norm
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.cli.app import main
from macer.reporting import history
from macer.reporting.history import History, Look, csv, notes, plot, read_history, rows
from macer.runs.run import Run, begin_run
from macer.system.errors import Mistake
from macer.training.loop import train
from macer.training.speed import epoch_seconds
from macer.training.validation import Validation


def written(folder: Path, *lines: dict[str, float], **changes: object) -> Path:
    """A run that has these metrics; a step is 16 images of 4 copies, an epoch three steps."""
    run = begin_run(folder, tiny_recipe(held_out=16, **changes), "", resume=False)
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def line(epoch: int, rate: float = 192.0, radius: float | None = None, **more: float):
    looked = {"validation_accuracy": 0.5, "validation_radius": radius, "validation_samples": 32}
    found = {} if radius is None else looked
    return {"epoch": epoch, "step": 3 * epoch, "samples_per_second": rate} | found | more


def of(name: str, *looks: Look, votes: int | None = 32) -> History:
    return History(name, 0.25, 16, votes, looks)


# law


def test_a_trainings_history_is_what_its_watcher_saw(tmp_path):
    seen = []
    recipe = tiny_recipe(epochs=5, held_out=20)
    validation = Validation(every=2, samples=48)
    train(recipe, tiny_split(), CLASSES, tmp_path, validation=validation, watch=seen.append)
    found = read_history(tmp_path)
    assert (found.sigma, found.images, found.votes) == (0.25, 20, 48)
    assert [look.epoch for look in found.looks] == [2, 4, 5]
    looked = [line for line in seen if line["epoch"] in (2, 4, 5)]
    assert [look.radius for look in found.looks] == [m["validation_radius"] for m in looked]
    assert [look.accuracy for look in found.looks] == [m["validation_accuracy"] for m in looked]
    spent = epoch_seconds(Run(tmp_path).read_metrics(), recipe)
    assert found.looks[0].seconds == pytest.approx(sum(spent[:2]))
    assert found.looks[-1].seconds == pytest.approx(sum(spent))


def test_seconds_are_those_of_the_epochs_before_and_a_lost_one_counts_as_the_mean(tmp_path):
    """192 samples an epoch; the second epoch, of twice the speed, is the last before the loss."""
    run = written(tmp_path, line(1, radius=0.1), line(2, 384), line(4, 192, radius=0.2))
    first, last = read_history(run).looks
    assert first.seconds == pytest.approx(1)
    mean = (1 + 0.5 + 1) / 3
    assert last.seconds == pytest.approx(1 + 0.5 + mean + 1)


@pytest.mark.parametrize("looks", [1, 5, 12, 13, 24, 25, 100])
def test_a_table_has_few_looks_and_always_the_last_and_csv_has_all(looks):
    long = of("a", *(Look(epoch, epoch / 2, 0.5, 0.25) for epoch in range(1, looks + 1)))
    epochs = [int(row[2]) for row in rows([long])]
    assert epochs[-1] == looks and len(epochs) == len(set(epochs)) <= 12
    assert len({after - before for before, after in pairwise(epochs)}) <= 1
    assert len(epochs) > min(looks, 12) // 2
    assert len(csv([long]).splitlines()) == looks + 1


# known value


def test_the_cells_of_a_look():
    look = Look(7, 1234.56, 0.98765, 0.12345)
    assert rows([of("a", look)]) == [["a", "0.25", "7", "1,234.6", "0.988", "0.123"]]
    assert csv([of("a", look, votes=None)]) == (
        "run,sigma,images,votes,epoch,seconds,accuracy,radius\na,0.25,16,,7,1234.56,0.98765,0.12345\n"
    )


def test_the_notes_say_what_was_looked_at_and_the_largest_radius_it_can_show():
    look = Look(1, 1.0, 0.5, 0.1)
    _, first, second = notes([of("a", look), of("b", look, votes=None)])
    most = 0.25 * norm.ppf(1 - 1 / 64)
    assert first == f"a: 16 images, 32 votes each, so no radius above {most:.3f}"
    assert second == "b: 16 images, votes not recorded"


def test_the_picture_has_each_look_over_epochs_and_over_seconds(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(history, "save_picture", lambda figure, path: figures.append(figure))
    looks = [Look(1, 10.0, 0.5, 0.1), Look(3, 30.0, 0.6, 0.2)]
    other = replace(of("other", *looks[:1], votes=8), images=9)
    plot([of("one", *looks), other], tmp_path / "a.png")
    left, right = figures[0].axes
    assert [line.get_xydata().tolist() for line in left.lines] == [[[1, 0.1], [3, 0.2]], [[1, 0.1]]]
    assert right.lines[0].get_xydata().tolist() == [[10, 0.1], [30, 0.2]]
    (legend,) = figures[0].legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["one: 0.200 after 30 s", "other: 0.100 after 10 s"]
    assert left.get_title(loc="left") == "held-out images differ · votes differ"


def test_runs_without_looks_are_named_and_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(Path("a"), line(1, radius=0.1))
    written(Path("b"), line(1))
    left_out = "b: left out, since it has looked at no held-out images; train with --held-out N\n"
    assert main(["history", "b", "a"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith(left_out) and err == ""
    assert main(["history", "b", "a", "--csv"]) == 0
    assert capsys.readouterr().err == left_out
    assert main(["history", "b", "b"]) == 2
    assert "b must have looked at held-out images, got none in" in capsys.readouterr().err


def test_the_command_prints_the_table_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(Path("a"), line(1, radius=0.1), line(2, radius=0.2))
    assert main(["history", "a", "--plot", "a.png"]) == 0
    out = capsys.readouterr().out
    assert " a    0.25      2      2.0              0.500            0.200" in out
    assert out.endswith("curves: a.png\n")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert main(["history", "a", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "a,0.25,16,32,1,1.0,0.5,0.1"


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("a/seed-0", "b/seed-0", "b/seed-1"):
        written(Path(folder), line(1, radius=0.1))
        Path(folder, "certificates.tsv").write_text(
            "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0\n"
        )
    for command in ("history", "report"):
        assert main([command, "a/seed-0", "b/seed-0", "b/seed-1", "--csv"]) == 0
        _, *lines = capsys.readouterr().out.splitlines()
        assert [line.split(",")[0] for line in lines] == ["a/seed-0", "b/seed-0", "seed-1"]


# refusal


def test_a_run_that_held_nothing_out_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"must have looked at held-out images, got none in .*jsonl"):
        read_history(written(tmp_path / "run", line(1)))
    with pytest.raises(Mistake, match="must have looked at held-out images"):
        read_history(written(tmp_path / "new"))


def test_looks_of_before_metrics_told_their_votes_are_shown(tmp_path):
    old = line(1, radius=0.1)
    del old["validation_samples"]
    assert read_history(written(tmp_path, old, line(2, radius=0.2))).votes is None


def test_looks_of_different_numbers_of_votes_are_refused(tmp_path):
    run = written(tmp_path, line(1, radius=0.1), line(2, radius=0.2, validation_samples=64))
    with pytest.raises(
        Mistake, match=r"must have one number of votes, got (32 and 64|64 and 32); "
    ):
        read_history(run)


def test_a_recipe_that_this_macer_does_not_know_is_refused(tmp_path):
    run = Run(written(tmp_path, line(1, radius=0.1)))
    manifest = run.read_manifest()
    run.write_manifest(manifest | {"recipe": manifest["recipe"] | {"newer": 1}})
    with pytest.raises(Mistake, match=r"must have a recipe that this macer knows: .*'newer'"):
        read_history(tmp_path)
