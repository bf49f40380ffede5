"""Logs that a user names stand on the leaderboard's boards, or are refused with what to certify."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from macer.data.selection import Selection
from macer.experiments.named_boards import named_boards
from macer.experiments.other_bound import by_bound
from macer.reporting.board_check import WHAT_TO_CERTIFY
from macer.reporting.leaderboard import Rank, board, boards
from macer.reporting.log_table import log_table
from macer.reporting.logs import read_log
from macer.reporting.scores import average_certified_radius, paired_difference
from macer.runs.names import TABLE
from macer.runs.zoo import shipped_certificates
from macer.system.errors import Mistake

RESULTS = Path(__file__).parents[2] / "results"
TWICE = RESULTS / "cifar10-0.50-record-consistency-5.tsv.gz"
SHORT = RESULTS / "cifar10-0.50-fast-180-epochs.tsv.gz"
MACER = RESULTS / "published/macer_sigma0.5.tsv.gz"

Edit = Callable[[dict[str, str]], object]


def yours(*paths: Path, sigma: float | None = None) -> list[Rank]:
    """The rows of logs among every 5th image."""
    [one] = named_boards(paths, sigma, "every-5th")[0]
    return [row for row in one.rows if row.yours]


def changed(folder: Path, edit: Edit, source: Path = TWICE, name: str = "own.tsv") -> Path:
    """A copy of a log; `edit` changes each row, a dict of texts by column."""
    header, *lines = gzip.decompress(source.read_bytes()).decode().splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    for row in rows:
        edit(row)
    texts = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    (folder / name).write_text("\n".join(texts))
    return folder / name


def without(*names: str) -> Edit:
    return lambda row: [row.pop(name) for name in names]


# reference: figures are those of `macer report` of the same logs


@pytest.mark.medium
def test_figures_and_the_difference_to_macers_log_are_those_of_a_report():
    table = log_table([MACER, TWICE], Selection(skip=5)).table
    [row], told = yours(TWICE), table.rows[1]
    assert (row.acr, row.standard_error) == (told.acr, told.standard_error)
    assert row.to_reference == told.difference and row.to_reference.images == 2000


@pytest.mark.medium
def test_every_method_whose_log_comes_with_macer_is_compared_image_by_image():
    _, [named] = named_boards([TWICE], None, "every-5th")
    entries = {row.method: row for row in board(0.5, "every-5th").rows}
    assert {one.method for one in named.differences} == entries.keys() - {"sun"}
    assert named.to("sun") is None
    own = read_log(TWICE)
    for method, difference in named.differences:
        load = entries[method].load
        file = (
            shipped_certificates(load) if load else RESULTS / f"published/{method}_sigma0.5.tsv.gz"
        )
        assert difference == paired_difference(own, read_log(file))


# law


@pytest.mark.medium
def test_the_other_rows_stay_as_they_are_but_for_their_ranks():
    [one], _ = named_boards([TWICE, SHORT], None, "every-5th")
    field = [row for row in one.rows if not row.yours]
    plain = board(0.5, "every-5th")
    assert [(row.method, row.acr, row.to_best) for row in field] == [
        (row.method, row.acr, row.to_best) for row in plain.rows
    ]
    assert (one.best, one.reference) == (plain.best, plain.reference)
    acrs = [round(row.acr, 3) for row in one.rows]
    assert acrs == sorted(acrs, reverse=True)
    assert [row.rank for row in one.rows] == [1 + sum(b > a for b in acrs) for a in acrs]


@pytest.mark.medium
def test_a_row_is_marked_as_the_users_and_not_as_ours():
    [row] = yours(TWICE)
    assert (row.league, row.load, row.paper, row.licence) == ("yours", None, None, None)
    assert (row.name, row.method) == (TWICE.name[:-7], f"log:{TWICE.name[:-7]}")
    assert row.source == str(TWICE)
    assert not any(row.yours for one in boards() for row in one.rows)


@pytest.mark.medium
def test_a_log_beside_itself_shares_its_rank_and_differs_by_nothing():
    [row] = yours(Path("zoo:cifar10-0.50-record"))
    assert (row.rank, row.network) == (1, "wide14")
    _, [named] = named_boards([Path("zoo:cifar10-0.50-record")], None, "every-5th")
    assert tuple(named.to("record")) == (0.0, 0.0, 2000)


@pytest.mark.medium
def test_boards_are_those_of_the_sigma_of_the_logs(tmp_path):
    quarter = RESULTS / "cifar10-0.25-fast.tsv.gz"
    found, named = named_boards([TWICE, quarter], None, "both")
    assert [(one.sigma, one.images) for one in found] == [
        (0.25, "every-5th"), (0.5, "every-5th"), (0.25, "all"), (0.5, "all"),
    ]  # fmt: skip
    assert [(one.sigma, one.images) for one in named] == [(0.25, "every-5th"), (0.5, "every-5th")]


@pytest.mark.medium
def test_a_log_of_all_images_stands_on_both_boards_of_the_sigma_that_is_given():
    found, named = named_boards([MACER], 0.5, "both")
    ranks = [next(row for row in one.rows if row.yours).rank for one in found]
    assert ranks == [next(r for r in one.rows if r.method == "macer").rank for one in found]
    assert named[0].unrecorded == ("sigma", "n0", "n", "alpha", "bound")


@pytest.mark.medium
def test_a_log_by_the_runner_ups_bound_stands_by_the_bound_of_the_board(tmp_path):
    """The board's certificates follow from its counts; its own ACR stands in the note."""
    other = by_bound(TWICE)
    lines = dict(
        zip(other.idx.tolist(), zip(other.predict, other.radius, strict=True), strict=True)
    )

    def runner_up(row: dict[str, str]) -> None:
        predict, radius = lines[int(row["idx"])]
        row |= {"predict": str(predict), "radius": str(radius), "bound": "runner-up"}
        row["correct"] = str(int(row["predict"] == row["label"]))

    file = changed(tmp_path, runner_up)
    assert average_certified_radius(read_log(file)) == average_certified_radius(other)
    [row], [plain] = yours(file), yours(TWICE)
    assert (row.acr, row.accuracies) == (plain.acr, plain.accuracies)
    assert row.runner_up is None
    assert row.note == (
        "certified by runner-up; the row is its counts by clopper-pearson; by runner-up, fixed "
        "before the counts were drawn, its ACR is 0.779 ± 0.017."
    )


@pytest.mark.medium
def test_a_log_without_counts_has_no_second_reading(tmp_path):
    [row] = yours(changed(tmp_path, without("counts", "bound")), sigma=0.5)
    assert row.runner_up is None
    assert row.note == "taken to be by clopper-pearson; its log does not record bound."


# known value: docs/log/record.md has these


@pytest.mark.medium
@pytest.mark.parametrize(
    ("file", "rank", "acr", "error", "to_macer", "accuracies"),
    [
        (TWICE, 2, 0.768, 0.017, None, [0.640, 0.583, 0.507, 0.453, 0.393, 0.334, 0.272, 0.204]),
        (SHORT, 9, 0.678, 0.015, (-0.012, 0.006),
         [0.687, 0.608, 0.509, 0.414, 0.325, 0.243, 0.163, 0.102]),
    ],
    ids=["twice", "short"],
)  # fmt: skip
def test_rows_of_known_logs(file, rank, acr, error, to_macer, accuracies):
    [row] = yours(file)
    assert (row.rank, round(row.acr, 3), round(row.standard_error, 3)) == (rank, acr, error)
    assert list(row.accuracies[:8]) == pytest.approx(accuracies, abs=5.1e-4)
    if to_macer:
        assert (round(row.to_reference[0], 3), round(row.to_reference[1], 3)) == to_macer
    assert row.to_best is None
    assert row.note == "certified by clopper-pearson."


@pytest.mark.medium
def test_the_second_reading_is_that_of_the_same_counts():
    [row] = yours(TWICE)
    assert row.runner_up.acr == average_certified_radius(by_bound(TWICE))


# refusal


@pytest.mark.medium
@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda row: row.update(sigma="0.1"), "sigma of own must be one of 0.25, 0.5, 1, got 0.1"),
        (lambda row: row.update(sigma="0.25"), "radii of own must be at most 0.9529, which sigma "),
        (lambda row: row.update(n="10000"), "n of own must be 100000, got 10000; certify "),
        (lambda row: row.update(alpha="0.01"), "alpha of own must be 0.001, got 0.01; certify "),
        (lambda row: row.update(idx=str(int(row["idx"]) + 1)), "own must have every 5th of the "),
        (lambda row: row.update(bound="anytime"), "bound of own must be clopper-pearson, got any"),
        (lambda row: row.update(bound="bernstein"), "bound of own must be clopper-pearson, got be"),
        (without("sigma"), "sigma must be given for own, which does not record it; add --sigma, o"),
        (lambda row: row.update(split="train"), "images of own must be test images, got training"),
        (
            lambda row: row.update(rescored="runner-up 0.001", level="chosen"),
            "own must have certificates at level 0.001, got clopper-pearson at 0.001, chosen after "
            "the counts were drawn; name the run, or certify cifar10 with ",
        ),
        (
            lambda row: row.update(label="0", correct=str(int(row["predict"] == "0"))),
            "own must have the labels of CIFAR-10's test images, got others for 1,821 of 2,000 im",
        ),
        (lambda row: row.update(counts="1,x"), "counts of "),
        (lambda row: row.update(counts="-1,0,0,0,0,0,0,0,0,0"), "counts of "),
        (lambda row: row.update(counts="99999,2,0,0,0,0,0,0,0,0"), "counts of "),
        (lambda row: row.update(selected="10"), "counts of "),
        (without("selected"), "counts of "),
    ],
)  # fmt: skip
def test_a_log_that_cannot_stand_on_the_board_is_refused(tmp_path, edit, line):
    with pytest.raises(Mistake) as refused:
        yours(changed(tmp_path, edit))
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)
    assert WHAT_TO_CERTIFY in str(refused.value) or line.startswith(("sigma", "counts"))


@pytest.mark.medium
def test_the_runner_ups_bound_without_counts_is_refused(tmp_path):
    def edit(row: dict[str, str]) -> None:
        row["bound"] = "runner-up"
        del row["counts"]

    with pytest.raises(Mistake, match="must be clopper-pearson, got runner-up without counts; cer"):
        yours(changed(tmp_path, edit))


def test_another_data_set_is_refused():
    with pytest.raises(
        Mistake, match=r"^data set of mnist-0.50 must be cifar10, got mnist; certify"
    ):
        yours(Path("zoo:mnist-0.50"))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("paths", "sigma", "images", "line"),
    [
        ([TWICE], 0.25, "every-5th", "must be 0.25, got 0.5; leave out --sigma, or certify with "),
        ([TWICE], 0.3, "every-5th", "^sigma must be one of 0.25, 0.5, 1, got 0.3$"),
        ([TWICE], None, "all", "must have all 10,000 test images, got 2,000; certify without --s"),
        ([TWICE, SHORT, TWICE], None, "both", "^logs must be named once each, got .* 2 times$"),
    ],
)
def test_logs_that_do_not_fit_the_call_are_refused(paths, sigma, images, line):
    with pytest.raises(Mistake, match=line):
        named_boards(paths, sigma, images)


@pytest.mark.medium
def test_table_is_read_from_a_folder_too(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / TABLE).write_bytes(gzip.decompress(TWICE.read_bytes()))
    [row] = yours(folder)
    assert (row.name, row.acr) == ("mine", yours(TWICE)[0].acr)
    assert row.runner_up == yours(TWICE)[0].runner_up
