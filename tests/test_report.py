import io
import math
import re
import subprocess
import sys
from csv import DictReader
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from macer.logs import CertificateLog, read_log, select
from macer.mistake import Mistake
from macer.report import (
    average_certified_radius,
    cells,
    certified_accuracy,
    conditions,
    csv,
    curve,
    latex,
    markdown,
    outcomes,
    paired_difference,
    plot,
    standard_error,
    tabulate,
    terminal,
    usual_radii,
    write_file,
)

DATA = Path(__file__).parent / "data"


def log_of(
    predict: list[int], radius: list[float], *, name: str = "some", start: int = 0
) -> CertificateLog:
    """A log whose images all have the label 0."""
    label = np.zeros(len(predict), np.int64)
    predicted = np.array(predict, np.int64)
    idx = np.arange(start, start + len(predict))
    return CertificateLog(name, idx, label, predicted, np.array(radius), predicted == label)


def random_log(seed: int, images: int = 200) -> CertificateLog:
    random = np.random.default_rng(seed)
    predict = random.integers(-1, 2, images)
    radius = np.where(predict == -1, 0.0, random.integers(0, 60, images) / 64)
    return log_of(predict.tolist(), radius.tolist(), name=f"random{seed}")


@pytest.fixture(scope="module")
def macer() -> list[CertificateLog]:
    return [read_log(DATA / f"macer_sigma{sigma}.tsv.gz") for sigma in ("0.25", "0.5", "1.0")]


def test_certified_accuracy_equals_its_definition() -> None:
    log = random_log(0)
    radii = [0.0, 0.1, 0.25, 0.5, 59 / 64, 1.0]
    for r, accuracy in zip(radii, certified_accuracy(log, radii), strict=True):
        certified = [p == 0 and s >= r for p, s in zip(log.predict, log.radius, strict=True)]
        assert accuracy == sum(certified) / len(certified)


@pytest.mark.parametrize("seed", range(5))
def test_acr_is_the_area_under_the_certified_accuracy_curve(seed: int) -> None:
    log = random_log(seed)
    x, y = curve(log)
    assert math.isclose(np.sum(np.diff(x) * y[1:]), average_certified_radius(log), rel_tol=1e-12)


def test_the_curve_is_the_certified_accuracy_between_its_knots() -> None:
    log = random_log(1)
    x, y = curve(log)
    middles = (x[:-2] + x[1:-1]) / 2
    assert np.array_equal(certified_accuracy(log, middles), y[1:-1])
    assert np.array_equal(certified_accuracy(log, x[:-1]), y[:-1])
    assert (x[0], y[0], y[-1]) == (0, np.mean(log.correct), 0)


def test_a_wrong_prediction_contributes_0_though_its_radius_is_positive() -> None:
    assert average_certified_radius(log_of([0, 1], [0.5, 3.0])) == 0.25


def test_an_abstention_contributes_0() -> None:
    assert average_certified_radius(log_of([0, -1], [0.5, 0.0])) == 0.25


def test_accuracy_at_radius_0_is_the_share_of_correct_predictions() -> None:
    assert certified_accuracy(log_of([0, 0, 1, -1], [0.0, 0.3, 0.7, 0.0]), [0]).tolist() == [0.5]


def test_an_image_certified_at_exactly_r_counts_at_r() -> None:
    accuracies = certified_accuracy(log_of([0], [0.25]), [0.25, 0.25 + 1e-12])
    assert accuracies.tolist() == [1, 0]


def test_the_standard_error_is_the_deviation_over_the_root_of_the_images() -> None:
    log = log_of([0, 0, 1, -1], [1.0, 2.0, 9.0, 0.0])
    mean = 3 / 4
    variance = ((1 - mean) ** 2 + (2 - mean) ** 2 + 2 * mean**2) / 3
    assert math.isclose(standard_error(log), math.sqrt(variance / 4))
    assert math.isnan(standard_error(log_of([0], [1.0])))


def test_a_log_does_not_differ_from_itself() -> None:
    log = random_log(2)
    assert paired_difference(log, log) == (0, 0, 200)


def test_a_paired_difference_is_antisymmetric_and_the_difference_of_acrs() -> None:
    a, b = random_log(3), random_log(4)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert math.isclose(there.difference, average_certified_radius(a) - average_certified_radius(b))
    assert (there.difference, there.standard_error) == (-back.difference, back.standard_error)


def test_a_paired_difference_is_over_the_common_images() -> None:
    a = log_of([0, 0, 0, 0], [9.0, 0.5, 0.75, 0.5])
    b = log_of([0, 1, 0, 0], [0.25, 0.5, 0.25, 9.0], start=1)
    # Images 1, 2, 3 gain 1/4, 3/4 (b is wrong), 1/4: mean 5/12, variance 1/12.
    assert paired_difference(a, b) == pytest.approx((5 / 12, math.sqrt(1 / 12 / 3), 3))


def test_a_constant_gain_has_no_standard_error() -> None:
    a, b = log_of([0, 0, 0], [0.5, 1.0, 1.5]), log_of([0, 0, 0], [0.25, 0.75, 1.25])
    assert paired_difference(a, b) == (0.25, 0, 3)


@pytest.mark.parametrize(
    ("largest", "radii"),
    [
        (0.0, (0,)),
        (0.953, (0, 0.25, 0.5, 0.75)),
        (1.0, (0, 0.25, 0.5, 0.75, 1)),
        (2.49, tuple(i / 4 for i in range(10))),
        (3.81, (0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)),
        (7.6, (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_radii_go_up_to_the_largest_certified_one(largest: float, radii: tuple[float]) -> None:
    # The wrong prediction's radius is not certified.
    assert usual_radii([log_of([0, 1], [largest, 99.0]), log_of([0], [0.0])]) == radii


def test_outcomes_add_up_to_the_images() -> None:
    counts = outcomes(log_of([0, 0, 1, -1, -1, -1], [0.1] * 6))
    assert counts == {"correct": 2, "wrong": 1, "abstained": 3}


def test_published_logs_give_published_acrs(macer: list[CertificateLog]) -> None:
    assert [f"{average_certified_radius(log):.3f}" for log in macer] == ["0.531", "0.691", "0.744"]


def test_images_500_to_999_give_the_papers_acrs(macer: list[CertificateLog]) -> None:
    windows = [select(log, 500, 1000) for log in macer]
    acrs = [average_certified_radius(log) for log in windows]
    assert [f"{acr:.3f}" for acr in acrs] == ["0.555", "0.725", "0.793"]
    # [Zhai+20, Tab. 1]: the same models certified with other noise
    assert acrs == pytest.approx([0.556, 0.726, 0.792], abs=0.0015)


def test_standard_errors_of_500_images_are_known(macer: list[CertificateLog]) -> None:
    errors = [standard_error(select(log, 500, 1000)) for log in macer]
    assert [f"{error:.3f}" for error in errors] == ["0.017", "0.031", "0.051"]


def test_images_500_to_999_give_the_papers_accuracies(macer: list[CertificateLog]) -> None:
    # [Zhai+20, Tab. 1], the rows of MACER: two decimals, certified with other noise
    published = [
        [0.81, 0.71, 0.59, 0.43, 0, 0, 0, 0, 0, 0],
        [0.66, 0.60, 0.53, 0.46, 0.38, 0.29, 0.19, 0.12, 0, 0],
        [0.45, 0.41, 0.38, 0.35, 0.32, 0.29, 0.25, 0.22, 0.18, 0.16],
    ]
    for log, row in zip(macer, published, strict=True):
        accuracies = certified_accuracy(select(log, 500, 1000), np.arange(10) / 4)
        assert accuracies.tolist() == pytest.approx(row, abs=0.01)


def test_a_table_prints_images_n_and_alpha_beside_every_acr() -> None:
    known = replace(random_log(0), sigma=0.25, n0=100, n=100_000, alpha=0.001)
    header, (row,) = cells(tabulate([known], [0, 0.5]))
    assert header == ["name", "σ", "0.00", "0.50", "ACR", "images", "n", "α"]
    assert row[:2] == ["random0", "0.25"]
    assert row[-3:] == ["0…199 (200)", "100,000", "0.001"]


def test_unknown_settings_print_a_question_mark() -> None:
    _, (row,) = cells(tabulate([random_log(0)], [0]))
    assert (row[1], *row[-2:]) == ("?", "?", "?")


def test_acr_is_printed_with_three_decimals(macer: list[CertificateLog]) -> None:
    assert "| 0.531 ± 0.004 | 0…9999 (10,000) | ? | ? |" in markdown(tabulate(macer[:1]))


def test_no_certified_image_prints_0_and_few_print_decimals() -> None:
    log = log_of([0] + [1] * 9999, [0.3] * 10_000)
    _, (row,) = cells(tabulate([log], [0.25, 0.5]))
    assert row[2:4] == ["0.000", "0"]


def test_the_note_tells_the_expected_false_certificates() -> None:
    log = replace(random_log(0), alpha=0.001)
    note = "α is per image: over m images at most αm false certificates are expected "
    assert tabulate([log]).notes[0].startswith(f"{note}(0.001 · 200 = 0.2).")
    assert tabulate([random_log(0)]).notes[0].startswith(f"{note}(α is not recorded here).")
    both = tabulate([log, random_log(0)]).notes[0]
    assert both.startswith(f"{note}(0.001 · 200 = 0.2; α is not recorded in every log).")


def test_each_log_is_compared_with_the_first() -> None:
    table = tabulate([random_log(i) for i in range(3)])
    first, second, third = (row.difference for row in table.rows)
    assert first is None
    assert second == paired_difference(random_log(1), random_log(0))
    assert third == paired_difference(random_log(2), random_log(0))
    assert "over 200 images common with the first" in table.notes[1]


def test_logs_that_cannot_be_compared_are_tabulated_and_the_table_says_why() -> None:
    table = tabulate([log_of([0, 0], [1.0, 1.0]), log_of([0, 0], [1.0, 1.0], start=5)])
    assert [row.difference for row in table.rows] == [None, None]
    assert any(note.startswith("Not compared: some and some must have") for note in table.notes)
    assert cells(table)[1][1][-4] == "—"


def test_rows_over_different_images_or_n_carry_a_warning() -> None:
    a = replace(random_log(0), n=100)
    table = tabulate([a, select(replace(a, n=1000), 0, 50)])
    assert any("The rows differ in images and n, on which ACR" in note for note in table.notes)


def test_markdown_has_as_many_cells_in_every_line() -> None:
    table = tabulate([replace(random_log(0), name="a|b\n*c*"), random_log(1)])
    lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"a\|b \*c\*" in lines[2]


def test_latex_has_booktabs_rules_and_escapes_special_characters() -> None:
    name = r"a_b&c%d$e#f{g}h~i^j\k"
    text = latex(tabulate([replace(random_log(0), name=name), random_log(1)], [0]))
    escaped = r"a\_b\&c\%d\$e\#f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k"
    assert escaped in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"$\sigma$"):
        assert text.count(rule) >= 1
    assert not set("…±−·≥≤σαℓ₂") & set(text)
    assert len({line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")}) == 1


def test_csv_holds_full_precision_and_leaves_the_unknown_empty() -> None:
    logs = [replace(random_log(0), name='a,"b"', n=1000), random_log(1)]
    first, second = DictReader(io.StringIO(csv(tabulate(logs, [0, 0.125]))))
    assert (first["name"], first["n"], second["n"], first["alpha"]) == ('a,"b"', "1000", "", "")
    assert float(first["acr"]) == average_certified_radius(logs[0])
    accuracies = [float(first[f"certified_accuracy_{r}"]) for r in ("0.00", "0.125")]
    assert accuracies == certified_accuracy(logs[0], [0, 0.125]).tolist()
    assert first["difference"] == ""
    assert float(second["difference"]) == paired_difference(logs[1], logs[0]).difference
    assert (first["images"], first["which"], second["common_images"]) == ("200", "0…199", "200")


def test_a_terminal_of_80_columns_shows_every_figure(macer: list[CertificateLog]) -> None:
    table = tabulate([replace(log, n=100_000, alpha=0.001) for log in macer])
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(terminal(table))
    shown = console.export_text()
    for row in cells(table)[1]:
        assert all(word in shown for cell in row for word in cell.split())


def test_names_are_no_markup_for_the_terminal() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(terminal(tabulate([replace(random_log(0), name="[red]a[/x]")])))
    assert "[red]a[/x]" in console.export_text()


def test_conditions_tell_what_the_logs_share() -> None:
    log = replace(random_log(0), n=100_000)
    assert conditions([log, log]) == "images 0…199 (200) · n = 100,000 · α not recorded"
    other = replace(select(log, 3), n=None, alpha=0.5)
    assert conditions([log, other]) == "images differ · n differs · α differs"


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_the_same_logs_give_the_same_picture(tmp_path: Path, suffix: str, magic: bytes) -> None:
    logs = [replace(random_log(i), name=f"_{i} $x$") for i in range(3)]
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        plot(logs, file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith(magic)
    assert b"Date" not in first
    assert sorted(tmp_path.iterdir()) == files


def test_a_log_without_any_certificate_can_be_drawn(tmp_path: Path) -> None:
    plot([log_of([1, -1], [0.5, 0.0])], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_importing_the_report_loads_neither_torch_nor_matplotlib() -> None:
    heavy = "{'torch', 'matplotlib', 'jinja2', 'rich'} & set(sys.modules)"
    program = f"import sys, macer.report, macer.page; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_logs_that_do_not_belong_together_are_refused() -> None:
    a, b = log_of([0, 0], [1.0, 1.0], name="a"), log_of([0, 0], [1.0, 1.0], name="b", start=2)
    message = "a and b must have images in common, got 0…1 and 2…3: certify the same images"
    with pytest.raises(Mistake, match=message):
        paired_difference(a, b)
    other = replace(a, name="b", label=np.array([0, 7]), predict=np.array([0, 7]))
    message = "a and b must have the same labels, got different ones for 1 of 2 images, first idx 1"
    with pytest.raises(Mistake, match=message):
        paired_difference(a, other)


def test_a_table_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="logs must hold at least one log, got none"):
        tabulate([])
    with pytest.raises(Mistake, match="logs must hold at least one log, got none"):
        plot([], tmp_path / "a.png")
    with pytest.raises(Mistake, match=r"radii must be finite and ≥ 0, got 0, -0.25"):
        tabulate([random_log(0)], [0, -0.25])


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_pictures_other_than_png_and_pdf_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Mistake, match=r"path of a plot must end in .png or .pdf, got '.*"):
        plot([random_log(0)], tmp_path / name)


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    write_file(file, b"old")

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_file(file, b"new")
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"old", [file])


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"no folder .*none to write a.png into: make it first"):
        write_file(tmp_path / "none" / "a.png", b"")
    with pytest.raises(Mistake, match="path must be a file to write, got the folder"):
        write_file(tmp_path, b"")
