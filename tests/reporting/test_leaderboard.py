"""The leaderboard's boards: their order, their figures, and what each is of."""

import math
from pathlib import Path

import pytest

from macer.data.selection import Selection
from macer.experiments.other_bound import by_bound
from macer.reporting import leaderboard
from macer.reporting.leaderboard import Score, board, boards, entries, other_leagues, ranked
from macer.reporting.logs import read_log, select
from macer.reporting.scores import average_certified_radius, certified_accuracy
from macer.reporting.tables import RADII, tabulate
from macer.runs.zoo import shipped_certificates, zoo_names
from macer.system.errors import Mistake

RESULTS = Path(__file__).parents[2] / "results"


def score(method: str, acr: float) -> Score:
    return Score(0.5, "all", method, acr, 0.01, (acr,), None)


def row_of(method: str, sigma: float, images: leaderboard.ImageSet = "every-5th"):
    return next(row for row in board(sigma, images).rows if row.method == method)


# reference: figures are those of `macer report` of the same logs


def every_5th(path: Path):
    return select(read_log(path), Selection(skip=5))


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0])
def test_figures_are_those_of_a_report_of_the_same_logs(sigma):
    macer = every_5th(RESULTS / "published" / f"macer_sigma{sigma}.tsv.gz")
    ours = read_log(shipped_certificates(f"zoo:cifar10-{sigma:.2f}-record"))
    reported = tabulate([macer, ours], RADII).rows
    row, reference = row_of("record", sigma), row_of("macer", sigma)
    for mine, told in ((row, reported[1]), (reference, reported[0])):
        assert mine.acr == pytest.approx(told.acr, abs=1e-6)
        assert mine.standard_error == pytest.approx(told.standard_error, abs=1e-6)
        assert mine.accuracies == pytest.approx(told.accuracies, abs=1e-6)
    assert row.to_reference == pytest.approx(tuple(reported[1].difference), abs=1e-6)


# law


def test_a_rank_is_one_more_than_the_number_of_larger_acrs():
    found = ranked([score(c, acr) for c, acr in zip("abcd", (0.1, 0.4, 0.2, 0.3), strict=True)], N)
    assert [(place, one.method) for place, one in found] == [(1, "b"), (2, "d"), (3, "c"), (4, "a")]


def test_acrs_that_agree_in_three_decimals_share_a_rank_and_stand_by_name():
    scores = [score("d", 0.2), score("c", 0.30049), score("b", 0.2996), score("a", 0.31)]
    found = [(place, one.method) for place, one in ranked(scores, N)]
    assert found == [(1, "a"), (2, "b"), (2, "c"), (4, "d")]


N = {c: c.upper() for c in "abcd"}


BOARDS = [(sigma, images) for images in ("every-5th", "all") for sigma in (0.25, 0.5, 1.0)]


@pytest.fixture(params=BOARDS, ids=lambda place: f"{place[0]}-{place[1]}")
def one(request):
    """Each board in turn, made in the test, so that a bug in its making fails the test."""
    [board] = boards(*request.param)
    return board


def test_every_board_falls_in_acr_and_compares_with_the_best_published(one):
    acrs = [round(row.acr, 3) for row in one.rows]
    assert acrs == sorted(acrs, reverse=True)
    assert [row.rank for row in one.rows] == [1 + sum(b > a for b in acrs) for a in acrs]
    published = [row for row in one.rows if row.load is None]
    assert one.best == max(published, key=lambda row: row.acr).method
    assert len({row.method for row in one.rows}) == len(one.rows)


def test_a_difference_is_that_of_the_acrs_on_the_same_images(one):
    """Stale figures, of logs that have been replaced, would not add up."""
    rows = {row.method: row for row in one.rows}
    for row in one.rows:
        for to, difference in ((one.reference, row.to_reference), (one.best, row.to_best)):
            if row.method == to:
                assert difference is None
                continue
            assert difference.images == one.count
            assert difference.difference == pytest.approx(row.acr - rows[to].acr, abs=3e-6)
            errors = row.standard_error, rows[to].standard_error
            assert abs(errors[0] - errors[1]) - 1e-6 <= difference.standard_error <= sum(errors)


def test_acr_lies_between_the_sums_of_its_certified_accuracies(one):
    """ACR is the area under the falling curve of accuracies, here at steps of 0.25."""
    for row in one.rows:
        below, above = 0.25 * sum(row.accuracies[1:]), 0.25 * sum(row.accuracies)
        assert below - 1e-6 <= row.acr <= above + 1e-6
        assert list(row.accuracies) == sorted(row.accuracies, reverse=True)


def test_every_model_of_cifar_10_in_the_zoo_has_a_row_if_it_has_the_fields_n():
    loads = {row.load for one in boards() for row in one.rows if row.load}
    names = {f"zoo:{name}" for name in zoo_names() if name.startswith("cifar10-")}
    assert names - loads == {f"zoo:cifar10-{sigma}-cpu" for sigma in ("0.25", "0.50", "1.00")}
    assert loads < names


def test_only_ours_have_a_second_reading_which_is_not_ranked():
    for one in boards():
        for row in one.rows:
            assert (row.runner_up is not None) == (row.load is not None)


def test_every_shipped_log_is_there_and_no_other():
    files = {file.name for file in (RESULTS / "published").glob("*.gz")}
    named = {e.log_at(s) for e in entries() for s in e.sigmas if e.shipped and not e.ours}
    assert files == named
    assert all(entry.licence for entry in entries() if entry.shipped)


def test_what_has_no_licence_is_figures_only():
    for one in boards():
        for row in one.rows:
            assert row.figures_only == (row.licence is None)
    only = {(row.method, one.sigma) for one in boards() for row in one.rows if row.figures_only}
    assert only == {("sun", 0.25), ("sun", 0.5), ("sun", 1.0), ("smoothmix", 1.0)}


# known value

ALL = {  # over all 10,000 images
    "cohen": (0.424, 0.525, 0.511),
    "stability": (0.420, 0.531, 0.515),
    "smoothadv": (0.544, 0.684, 0.790),
    "macer": (0.531, 0.691, 0.744),
    "consistency": (0.552, 0.720, 0.756),
    "smoothmix": (0.553, 0.736, 0.788),
    "cat-rs": (0.562, 0.757, 0.815),
    "sun": (0.564, 0.760, 0.844),
}


@pytest.mark.parametrize("method", ALL)
def test_published_logs_give_published_acrs(method):
    found = tuple(row_of(method, sigma, "all").acr for sigma in (0.25, 0.5, 1.0))
    assert found == pytest.approx(ALL[method], abs=6e-4)


def test_the_records_over_sun_et_al():
    found = [row_of("record", sigma).to_best for sigma in (0.25, 0.5, 1.0)]
    assert [round(one.difference, 3) for one in found] == [0.012, 0.020, 0.023]
    assert [round(one.standard_error, 3) for one in found] == [0.004, 0.006, 0.007]


def test_both_bounds_of_ours():
    record = [row_of("record", sigma) for sigma in (0.25, 0.5, 1.0)]
    assert [round(row.acr, 3) for row in record] == [0.572, 0.784, 0.869]
    assert [round(row.runner_up.acr, 3) for row in record] == [0.575, 0.792, 0.888]
    assert [row.seconds for row in record] == [405, 391, 399]
    assert row_of("macer", 0.5).seconds == pytest.approx(61.6 * 3600)


def test_what_stands_beside_other_leagues_is_computed_from_our_log_by_both_bounds():
    said = {model.name: model.beside for model in other_leagues()}
    file = shipped_certificates("zoo:cifar10-0.50-record") / "certificates.tsv"
    logs = read_log(file), by_bound(file)
    acrs = [average_certified_radius(select(log, Selection(skip=20))) for log in logs]
    assert said["Ensemble of ten ResNet-110"].endswith(
        "ACR {:.3f}, {:.3f} † by the runner-up's bound".format(*acrs)
    )
    shares = [share for log in logs for share in certified_accuracy(log, [0.5, 1.0])]
    assert said["Dual randomized smoothing"].endswith(
        "{:.3f} and {:.3f}, {:.3f} and {:.3f} †".format(*shares)
    )


def test_boards_of_one_sigma_or_kind_of_images():
    assert [(one.sigma, one.images, one.count) for one in boards(0.5)] == [
        (0.5, "every-5th", 2000),
        (0.5, "all", 10000),
    ]
    assert [one.sigma for one in boards(images="all")] == [0.25, 0.5, 1.0]
    assert {one.league for one in other_leagues()} == {
        "extra data",
        "ensemble",
        "noise that depends on the input",
    }


def test_notes_say_what_a_row_alone_would_hide():
    assert "images 500…999" in row_of("macer", 0.5).note
    assert "0.738" in row_of("smoothadv", 0.5).note
    assert row_of("cat-rs", 0.5).note is None


def test_a_pair_of_which_one_log_may_not_be_copied_may_lack_its_difference(monkeypatch):
    """As after a new entry: only who has both logs can compute it."""
    best = board(0.5, "every-5th").best
    known = {
        at: gain for at, gain in leaderboard._differences().items() if {best, "cat-rs"} != {*at[2:]}
    }
    monkeypatch.setattr(leaderboard, "_differences", lambda: known)
    row = row_of("cat-rs", 0.5)
    assert row.to_best is None and row.to_reference is not None


# refusal


@pytest.mark.parametrize("sigma", [0.3, math.nan, -0.5])
def test_an_unknown_sigma_is_refused(sigma):
    with pytest.raises(Mistake, match=r"^sigma must be one of 0\.25, 0\.5, 1, got "):
        boards(sigma)
