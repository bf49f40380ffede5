"""What the paper published, by its tables; [Zhai+20]."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import DATA

from macer.cli.app import app, command_line
from macer.cli.loss_flags import train_command
from macer.data.selection import Selection
from macer.experiments.paper import (
    commands,
    differing,
    item_names,
    only,
    papers_images,
    read_item,
)
from macer.recipes import CertifyRecipe, Loss, TrainRecipe
from macer.recipes.fields import MACER
from macer.recipes.lengths import shortened
from macer.reporting.logs import read_log, select
from macer.reporting.scores import average_certified_radius, certified_accuracy
from macer.system.errors import Mistake

TABLES = [f"table-{number}" for number in range(1, 14)]
FIGURES = [f"figure-{number}" for number in range(1, 5)]
ROWS = {
    "table-1": 9, "table-2": 9, "table-3": 6, "table-6": 6, "table-7": 4, "table-8": 6,
    "table-10": 10, "table-11": 12, "table-12": 16, "table-13": 14,
}  # fmt: skip


# law


def test_all_tables_and_figures_of_the_paper_are_there_in_its_order():
    assert item_names() == TABLES + FIGURES


@pytest.mark.parametrize(("name", "rows"), ROWS.items())
def test_each_table_has_the_papers_rows_with_an_accuracy_for_each_radius(name, rows):
    item = read_item(name)
    assert len(item.rows) == rows
    for row in item.rows:
        assert len(row.accuracies) == len(item.radii)
        assert list(row.accuracies) == sorted(row.accuracies, reverse=True)
        assert all(0 <= accuracy < 1 for accuracy in row.accuracies)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "table-3"])
def test_each_acr_is_near_the_area_under_its_published_accuracies(name):
    """Guards against slips of the pen. A curve falls, so its area lies between two sums of steps;
    the last step ends at the largest radius, and accuracies are of two decimals, and of other
    images where the paper copies them."""
    item = read_item(name)
    step = item.radii[1]
    for row in item.rows:
        highest = 3.83 * row.train_recipe().sigma  # σΦ⁻¹(α^(1/n)), n = 100,000
        least = step * sum(row.accuracies[1:])
        most = (
            step * sum(row.accuracies)
            + max(0.0, highest - step * len(item.radii)) * (row.accuracies[-1])
        )
        slack = 0.06 if row.name.startswith(("Cohen", "Salman", "SmoothAdv")) else 0.005 * highest
        assert least - slack <= row.acr <= most + slack, (row.name, least, row.acr, most)


def test_rows_that_are_one_model_have_one_figure_and_one_run():
    seen = {}
    for name in ROWS:
        for row in read_item(name).rows:
            acr, recipe = seen.setdefault(row.run(), (row.acr, row.train_recipe()))
            assert (row.acr, row.train_recipe()) == (acr, recipe), row.run()
    assert len({repr(recipe) for _, recipe in seen.values()}) == len(seen)


def test_the_settings_are_those_of_table_9():
    for name, field, values in (
        ("table-10", "k", [1, 2, 4, 8, 16]),
        ("table-11", "lam", [0, 1, 2, 4, 8, 16]),
        ("table-12", "gamma", [2, 4, 6, 8, 10, 12, 14, 16]),
        ("table-13", "beta", [1, 2, 4, 8, 16, 32, 64]),
    ):
        recipes = [row.train_recipe() for row in read_item(name).rows]
        usual = {"k": 16, "lam": 12.0, "gamma": 8.0, "beta": 16.0}
        for sigma, some in ((0.25, recipes[: len(values)]), (0.5, recipes[len(values) :])):
            assert [recipe.flat()[field] for recipe in some] == values
            assert {recipe.sigma for recipe in some} == {sigma}
            for other in usual.keys() - {field}:
                assert {recipe.flat()[other] for recipe in some} == {usual[other]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table-1", "table-8", "table-10", "table-13", "figure-4"])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_commands_ask_for_what_the_rows_ask_for(name, share):
    item = read_item(name)
    settings = CertifyRecipe(n=5000, alpha=0.01)
    for row in item.rows:
        recipe = shortened(row.train_recipe(), share)
        train, certify = commands(
            row, recipe, "my runs/x", Selection(5, 20, 3), settings,
            soft_betas=item.soft_betas, data="my data",
        )  # fmt: skip
        assert "'my data'" in train and "'my runs/x'" in certify
        words = shlex.split(train)[1:]
        line = command_line(train_command(words[1:]))
        _, bound, _ = line.parse_args(words, exit_on_error=False)
        bound.apply_defaults()
        assert bound.arguments["fields"] == replace(recipe, loss=MACER)
        assert Loss(bound.arguments["loss"], **vars(bound.arguments["settings"])) == recipe.loss
        assert bound.arguments["out"] == Path("my runs/x")
        _, bound, _ = app.parse_args(shlex.split(certify)[1:], exit_on_error=False)
        assert bound.arguments["target"] == "my runs/x"
        assert bound.arguments["settings"] == settings
        assert [bound.arguments[name] for name in ("start", "stop", "skip")] == [5, 20, 3]
        assert bound.arguments.get("soft_betas", ()) == item.soft_betas


# known value


@pytest.mark.parametrize(("place", "sigma"), [(2, "0.25"), (5, "0.5"), (8, "1.0")])
def test_the_authors_certificates_give_their_published_row(place, sigma):
    """Their accuracies have two decimals; one image of 500 is .002."""
    item = read_item("table-1")
    row = item.rows[place]
    log = select(read_log(DATA / f"macer_sigma{sigma}.tsv.gz"), papers_images("cifar10"))
    accuracies = certified_accuracy(log, item.radii)
    assert np.abs(accuracies - row.accuracies).max() < 0.0081
    assert average_certified_radius(log) == pytest.approx(row.acr, abs=0.0015)


def test_the_papers_images_are_500():
    assert len(papers_images("cifar10").among(10_000)) == 500
    assert len(papers_images("imagenet").among(50_000)) == 500


def test_figure_3_is_of_one_sigma_and_a_table_a_panel():
    item = read_item("figure-3")
    assert {row.train_recipe().sigma for row in item.rows} == {0.25}
    assert len({row.table for row in item.rows}) == 4 and len(item.rows) == 26


def test_a_runs_name_says_what_is_unusual():
    names = [row.run() for row in read_item("table-10").rows]
    assert names[0] == "paper-cifar10-0.25-k-1"
    assert names[4] == "paper-cifar10-0.25"
    assert names[5] == "paper-cifar10-0.50-lam-12-k-1"
    assert names[9] == "paper-cifar10-0.50-lam-12"


def test_recipes_differ_in_the_fields_that_differ():
    one = TrainRecipe(epochs=5, lr_decays=(1,))
    assert differing(one, one) == {}
    other = TrainRecipe(epochs=7, lr_decays=(2, 3))
    assert differing(one, other) == {"epochs": (5, 7), "lr_decays": ((1,), (2, 3))}
    gaussian = TrainRecipe(epochs=5, lr_decays=(1,), loss="gaussian")
    assert differing(one, gaussian) == {"loss": ("macer", "gaussian")}
    assert differing(one, one.changed(lam=3)) == {"lam": (12.0, 3.0)}


def test_gaussian_training_is_the_same_loss_by_either_name():
    papers = TrainRecipe(epochs=5, lr_decays=(1,), k=1, loss=Loss("macer", lam=0.0))
    gaussian = TrainRecipe(epochs=7, lr_decays=(1,), k=4, loss="gaussian")
    assert differing(gaussian, papers) == {"epochs": (7, 5), "k": (4, 1)}
    assert "loss" in differing(gaussian, papers.changed(k=4))


def test_only_some_rows():
    item = read_item("table-1")
    assert [row.name for row in only(item, "gaussian").rows] == [
        "Cohen-0.25", "Cohen-0.50", "Cohen-1.00",
    ]  # fmt: skip
    assert only(item, None) is item


# refusal


def test_an_unknown_item_is_refused():
    with pytest.raises(Mistake, match=r"unknown table or figure 'tabel-1', did you mean 'table-1'"):
        read_item("tabel-1")
