"""Certificates that come with macer beside the paper's rows: each has some, or a reason."""

import shutil
from pathlib import Path

import pytest

from macer.cli.app import main
from macer.data.selection import Selection
from macer.experiments import paper_logs, paper_tables
from macer.experiments.paper import item_names, papers_images, read_item
from macer.experiments.paper_logs import results_folder, shipped_logs, sources, why_not
from macer.experiments.paper_runs import Reproduction, find
from macer.reporting.logs import read_log, select
from macer.reporting.scores import average_certified_radius
from macer.system.errors import Mistake

NOWHERE = Path("no-runs")
RUNS = {row.run(): row for name in item_names() for row in read_item(name).rows}


def row_of(name: str, item: str) -> Reproduction:
    return next(one for one in find(read_item(item), NOWHERE) if one.row.name == name)


# law


@pytest.mark.medium
@pytest.mark.parametrize("name", [name for name in item_names() if read_item(name).rows])
def test_every_row_of_every_item_says_why_it_was_not_trained_as_the_paper_has_it(name):
    item = read_item(name)
    entries = find(item, NOWHERE)
    assert all(entry.why for entry in entries)
    if item.shows != "settings":
        told = " ".join(paper_tables.notes(item, entries))
        assert all(entry.row.name in told and entry.why in told for entry in entries)


@pytest.mark.slow
def test_every_log_is_there_and_stands_beside_a_row_of_its_own_sigma():
    folder = results_folder()
    for source in sources():
        row = RUNS[source.run]
        log = read_log(folder / source.file)
        assert log.sigma in (None, row.train_recipe().sigma), source
        if recipe := source.train_recipe():
            assert (recipe.sigma, recipe.dataset) == (
                row.train_recipe().sigma, row.train_recipe().dataset,
            )  # fmt: skip


@pytest.mark.medium
def test_a_model_of_ours_that_was_trained_otherwise_says_so_in_its_row():
    for source in sources():
        for item in map(read_item, source.items or ("table-1", "table-6")):
            for one in shipped_logs(item, RUNS[source.run], Selection(500, 1000), papers=True):
                assert one.differs and one.about


@pytest.mark.medium
def test_an_acr_is_that_of_its_file_on_the_images_that_stand_beside_it():
    [gaussian] = row_of("Cohen-0.50", "table-6").shipped
    whole = read_log(results_folder() / "mnist-0.50-gaussian.tsv.gz")
    expected = average_certified_radius(select(whole, papers_images("mnist")))
    assert average_certified_radius(gaussian.log) == expected
    authors, fast, record = row_of("MACER-0.50", "table-1").shipped
    assert authors.log.idx.tolist() == list(range(500, 1000))
    assert fast.log.idx.tolist() == record.log.idx.tolist() == list(range(0, 10_000, 5))
    whole = read_log(results_folder() / "published/macer_sigma0.5.tsv.gz")
    same = average_certified_radius(select(whole, Selection(skip=5)))
    assert fast.gain.difference == pytest.approx(average_certified_radius(fast.log) - same)
    header, lines = paper_tables.cells(read_item("table-1"), find(read_item("table-1"), NOWHERE))
    cells = [dict(zip(header, line, strict=True)) for line in lines]
    line = next(one for one in cells if (one["model"], one["of"]) == ("MACER-0.50", "fast"))
    assert line["images"] == "0…9995, every 5th (2,000)"
    assert line["what differs"].startswith("model wide14 for resnet110, epochs 180 for 440")


def test_beside_every_acr_of_ours_stands_that_by_the_runner_ups_bound():
    item = read_item("table-1")
    entries = find(item, NOWHERE)
    header, lines = paper_tables.cells(item, entries)
    place = header.index("runner-up †")
    assert header[place - 1] == "ACR"
    readings = {(line[0], line[2]): line[place] for line in lines}
    assert readings["MACER-0.50", "record"] == "0.792 †"
    assert {of for (_, of), reading in readings.items() if reading} == {"fast", "record"}
    assert any("chosen after they were drawn" in note for note in paper_tables.notes(item, entries))
    published = read_item("table-12")  # of which nothing comes with macer but others' logs
    header, _ = paper_tables.cells(published, find(published, NOWHERE))
    assert "runner-up †" not in header
    few = shipped_logs(item, RUNS["paper-cifar10-0.50"], Selection(0, 100), papers=False)
    assert {one.of: one.runner_up and len(one.runner_up.idx) for one in few} == {
        "authors": None, "fast": 20, "record": 20,
    }  # fmt: skip


def test_below_a_table_stands_what_a_smaller_n_does_to_radii():
    for name, told in (("table-7", True), ("table-6", False)):
        item = read_item(name)
        notes = paper_tables.notes(item, find(item, NOWHERE))
        line = (
            "ACR grows with n, and the paper's is of n = 100,000: no radius is above 3.20 σ at "
            "n = 10,000, 3.82 σ at n = 100,000 (α = 0.001)."
        )
        assert (line in notes) == told


def test_below_each_hard_certificate_of_figure_4_stand_its_soft_ones():
    item = read_item("figure-4")
    entries = find(item, NOWHERE)
    header, lines = paper_tables.cells(item, entries)
    of, acr = header.index("of"), header.index("ACR")
    radii = [(line[of], float(line[acr].split()[0])) for line in lines if line[0] == "MACER-0.50"]
    softs = [f"soft β = {beta}" for beta in (1, 4, 16)]
    names = ["fast", *(f"fast, {soft}" for soft in softs), "record"]
    assert [name for name, _ in radii[1:6]] == names
    assert radii[2][1] < radii[3][1] < radii[4][1] < radii[1][1]
    assert any("soft: by Bernstein's bound" in note for note in paper_tables.notes(item, entries))


def test_of_several_seeds_a_row_has_the_first_and_tells_the_mean(tmp_path, monkeypatch):
    record = results_folder() / "cifar10-0.50-record.tsv.gz"
    [source] = [one for one in sources() if one.file == record.name]
    for name in (source.file, "cifar10-0.50-record-seed-1.tsv.gz"):
        shutil.copy(record, tmp_path / name)
    monkeypatch.setattr(paper_logs, "results_folder", lambda: tmp_path)
    monkeypatch.setattr(paper_logs, "sources", lambda: [source])
    [one] = shipped_logs(read_item("table-1"), RUNS[source.run], Selection(skip=5), papers=False)
    assert "seed 0 of 2 seeds, the mean of whose ACRs is 0.784 ± 0.017" in one.about


def test_a_run_of_the_users_own_takes_the_place_of_what_comes_with_macer(tmp_path):
    item = read_item("table-1")
    folder = tmp_path / "paper-cifar10-0.25"
    folder.mkdir()
    content = (results_folder() / "published/macer_sigma0.25.tsv.gz").read_bytes()
    (folder / "certificates.tsv").write_bytes(content)
    one = next(entry for entry in find(item, tmp_path) if entry.row.name == "MACER-0.25")
    assert one.log is not None and one.shipped == () and one.why == ""


def test_other_images_than_the_papers_are_taken_from_the_logs():
    row = RUNS["paper-mnist-0.25"]
    [few] = shipped_logs(read_item("table-6"), row, Selection(0, 10), papers=False)
    assert few.log.idx.tolist() == list(range(10))
    assert shipped_logs(read_item("table-6"), row, Selection(20_000, 20_001), papers=False) == ()


# known value


def test_the_cost_of_a_row_is_computed_from_its_recipe():
    """150 epochs × 50,000 images × 16 copies / 48,798 samples a second = 2,459 s."""
    why = why_not(RUNS["paper-cifar10-0.25-150-epochs"])
    assert "at least 40 min 59 s of one H200, computed from 48,798 noisy samples/s" in why
    attacked = why_not(RUNS["smoothadv-cifar10-0.25"])  # 8 copies, 10 steps of attack and one more
    assert "at least 3 h 45 min" in attacked
    assert "ImageNet's files were not at hand" in why_not(RUNS["paper-imagenet-0.25"])


@pytest.mark.slow
def test_all_figures_are_drawn_by_one_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "--figures", "figures"]) == 0
    drawn = sorted(file.name for file in Path("figures").iterdir())
    assert drawn == [f"figure-{number}.svg" for number in (1, 2, 3, 4)]
    assert "MACER-0.50 fast: 0.704 (2,000 images)" in Path("figures/figure-1.svg").read_text()


# refusal


def test_without_the_folder_of_results_only_what_was_published_is_shown(monkeypatch):
    monkeypatch.setattr(paper_logs, "results_folder", lambda: None)
    monkeypatch.setattr(paper_logs, "_content", dict)
    item = read_item("table-6")
    assert all(one.shipped == () and one.why == "" for one in find(item, NOWHERE))


def test_a_log_of_another_sigma_is_refused(monkeypatch):
    [source] = [one for one in sources() if one.file == "mnist-0.50-gaussian.tsv.gz"]
    other = type(source)(**{**vars(source), "run": "paper-mnist-gaussian-0.25"})
    monkeypatch.setattr(paper_logs, "sources", lambda: [other])
    with pytest.raises(Mistake, match=r"must be of σ = 0\.25, got 0\.5"):
        find(read_item("table-6"), NOWHERE)


def test_figures_is_a_folder_for_all_of_them(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["paper", "--figures", str(tmp_path / "file")]) == 2
    assert "figures must be a folder, got the file" in capsys.readouterr().err
    assert main(["paper", "figure-1", "--figures", str(tmp_path)]) == 2
    assert "item must be left out with --figures" in capsys.readouterr().err
