"""Tables of scores: what stands beside every ACR, in every form."""

import io
import re
from csv import DictReader
from dataclasses import replace

import numpy as np
import pytest
from examples import log_of, published_logs, random_log, with_classes
from rich.console import Console

from macer.cli.printing import print_report
from macer.data.selection import Selection
from macer.reporting.intervals import Interval, acr_interval, interval_text, share_intervals
from macer.reporting.logs import CertificateLog, select
from macer.reporting.scores import average_certified_radius, certified_accuracy, paired_difference
from macer.reporting.tables import cells, csv, latex, markdown, tabulate, terminal
from macer.system.errors import Mistake


@pytest.fixture(scope="module")
def macer() -> list[CertificateLog]:
    return published_logs()


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


def test_a_note_tells_which_classes_are_given_up() -> None:
    classes = np.repeat([0, 1, 2, 3], 50)
    log = with_classes(random_log(0), classes, np.repeat([0, 0, 2, 0], 50))
    [_, note] = tabulate([log]).notes
    assert note == (
        "random0 gives up classes 1 (0 of 50 correct), 3 (0 of 50 correct): "
        "its ACR may be the higher for it."
    )
    one = with_classes(log, classes, np.repeat([0, 0, 2, 3], 50))
    assert tabulate([one]).notes[1].startswith("random0 gives up class 1 (0 of 50 correct): its")
    named = replace(one, class_names=("ant", "bee", "cat", "dog"))
    assert "gives up class 1 (bee, 0 of 50 correct): its" in tabulate([named]).notes[1]
    assert len(tabulate([with_classes(log, classes, classes)]).notes) == 1


def test_each_log_is_compared_with_the_first() -> None:
    table = tabulate([random_log(i) for i in range(3)])
    first, second, third = (row.difference for row in table.rows)
    assert first is None
    assert second == paired_difference(random_log(1), random_log(0))
    assert third == paired_difference(random_log(2), random_log(0))
    assert "over 200 images common with the first" in table.notes[1]


def test_the_note_counts_the_images_in_common() -> None:
    first = random_log(0)
    table = tabulate(
        [first, select(random_log(1), Selection(50)), select(random_log(2), Selection(50))]
    )
    assert "are paired, over 150 images common with the first" in table.notes[1]
    table = tabulate([select(first, Selection(0, 60)), random_log(1)])
    assert "are paired, over 60 images common with the first" in table.notes[1]
    table = tabulate([first, select(random_log(1), Selection(50)), random_log(2)])
    assert "are paired, over different numbers of images common" in table.notes[1]


def test_the_first_row_has_no_difference_and_an_equal_one_gains_nothing() -> None:
    a, b = random_log(0), replace(random_log(0), name="again")
    worse = replace(random_log(0), radius=random_log(0).radius / 2)
    header, rows = cells(tabulate([a, b, worse], [0]))
    place = header.index("ACR − first's")
    assert [row[place][:6] for row in rows] == ["", "+0.000", "−" + rows[2][place][1:6]]
    assert "ACR − first's" not in cells(tabulate([a], [0]))[0]
    assert "ACR − first's" not in cells(tabulate([a, b], [0]), compared=False)[0]


def test_every_alpha_and_number_of_images_has_its_expectation() -> None:
    a = replace(random_log(0), alpha=0.001)
    note = tabulate([a, replace(a, alpha=0.01), select(a, Selection(0, 50))]).notes[0]
    assert "(0.001 · 200 = 0.2; 0.01 · 200 = 2; 0.001 · 50 = 0.05)" in note


def test_logs_that_cannot_be_compared_are_tabulated_and_the_table_says_why() -> None:
    table = tabulate([log_of([0, 0], [1.0, 1.0]), log_of([0, 0], [1.0, 1.0], start=5)])
    assert [row.difference for row in table.rows] == [None, None]
    assert any(note.startswith("Not compared: some and some must have") for note in table.notes)
    assert cells(table)[1][1][-4] == "—"


def test_rows_over_different_images_or_n_carry_a_warning() -> None:
    a = replace(random_log(0), n=100)
    table = tabulate([a, select(replace(a, n=1000), Selection(0, 50))])
    assert any("The rows differ in images and n, on which ACR" in note for note in table.notes)
    table = tabulate([replace(a, alpha=0.001), replace(a, alpha=0.01)])
    assert any("The rows differ in α, on which ACR depends" in note for note in table.notes)
    assert not any("differ" in note for note in tabulate([a, a]).notes[2:])


def test_a_log_that_does_not_record_n_is_not_said_to_differ_in_it() -> None:
    known, unknown = replace(random_log(0), n=100), replace(random_log(0), n=None)
    notes = tabulate([known, unknown]).notes
    assert any(note.startswith("Not every row records n, on which ACR depends") for note in notes)
    assert not any("differ in" in note for note in notes)
    both = tabulate([known, replace(unknown, alpha=0.01), replace(known, alpha=0.001)]).notes
    assert any("The rows differ in α, on" in note for note in both)
    assert any("Not every row records n, on" in note for note in both)


def test_markdown_has_as_many_cells_in_every_line() -> None:
    table = tabulate([replace(random_log(0), name="a|b\n*c*"), random_log(1)])
    lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"a\|b\\n\*c\*" in lines[2]


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


@pytest.mark.parametrize("largest", [0.0, 0.1, 1.0, 9.0])
def test_the_columns_for_programs_do_not_depend_on_the_logs(
    largest: float, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report([log_of([0, 0], [0.0, largest])], "csv")
    [row] = DictReader(io.StringIO(capsys.readouterr().out))
    columns = [f"certified_accuracy_{i / 4:.2f}" for i in range(17)]
    names = list(row)
    assert names[2:19] == columns
    assert names[19:34] == [
        *("acr", "standard_error", "difference", "difference_standard_error", "common_images"),
        *("images", "which", "n0", "n", "alpha", "bound", "asked", "noise"),
        *("rescored", "level"),
    ]
    assert names[34:] == [f"{name}_{end}" for name in (*columns, "acr") for end in ("low", "high")]
    expected = [1.0] + [0.5 if i / 4 <= largest else 0.0 for i in range(1, 17)]
    assert [float(row[column]) for column in columns] == expected


def test_csv_has_the_ends_of_every_interval() -> None:
    known = replace(random_log(0), sigma=0.5, n=1000, alpha=0.001)
    first, second = DictReader(io.StringIO(csv(tabulate([known, random_log(1)], [0, 0.5]))))
    for name, interval in (
        ("certified_accuracy_0.00", accuracy_interval(known, 0)),
        ("certified_accuracy_0.50", accuracy_interval(known, 0.5)),
        ("acr", acr_interval(known)),
    ):
        assert (float(first[f"{name}_low"]), float(first[f"{name}_high"])) == interval
    assert (second["acr_low"], second["acr_high"]) == ("", "")


def accuracy_interval(log: CertificateLog, radius: float) -> Interval:
    return share_intervals([round(certified_accuracy(log, radius) * 200)], 200)[0]


def test_intervals_are_in_tables_that_are_asked_for_them_and_only_there() -> None:
    known = replace(random_log(0), sigma=0.5, n=1000, alpha=0.001)
    table = tabulate([known, random_log(1)], [0])
    _, (first, second) = cells(table, intervals=True)
    [end], [accuracy] = table.rows[0].accuracy_intervals, table.rows[0].accuracies
    assert first[2] == f"{accuracy:.3f} ({interval_text(end)})"
    assert first[3].endswith(f" ({interval_text(acr_interval(known))})")
    assert second[3].endswith(" (?)")
    for written in (markdown, latex):
        assert "95" in written(table, intervals=True) and "95" not in written(table)
    assert cells(table) == cells(tabulate([known, random_log(1)], [0]), intervals=False)


def test_intervals_fit_into_80_columns(macer: list[CertificateLog]) -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(terminal(tabulate(macer, [0, 0.25, 0.5, 0.75]), intervals=True))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for row in tabulate(macer, [0, 0.25, 0.5, 0.75]).rows:
        for interval in row.accuracy_intervals:
            assert f"({interval_text(interval)})" in text


def test_every_class_with_images_has_its_scores() -> None:
    label = np.repeat([0, 2], 100)
    log = with_classes(random_log(0), label, label)
    zero, two = tabulate([replace(log, class_names=("a", "b", "c"))], [0, 0.5]).rows[0].classes
    assert [(one.label, one.name, one.images) for one in (zero, two)] == [
        (0, "a", 100),
        (2, "c", 100),
    ]
    own = replace(
        log,
        **{
            key: getattr(log, key)[100:] for key in ("idx", "label", "predict", "radius", "correct")
        },
    )
    assert two.acr == average_certified_radius(own)
    assert list(two.accuracies) == certified_accuracy(own, [0, 0.5]).tolist()
    assert two.accuracy_intervals == tabulate([own], [0, 0.5]).rows[0].accuracy_intervals


def test_radii_that_are_asked_for_are_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for form, of in (("csv", "certified_accuracy_"), ("markdown", "")):
        table = print_report([random_log(0)], form, (0.1, 0.125))
        header = capsys.readouterr().out.splitlines()[0]
        assert f"{of}0.10" in header and f"{of}0.125" in header and "0.25" not in header
        assert table.radii == (0.1, 0.125)


def unfinished(seed: int = 0) -> CertificateLog:
    """124 of 180 images: 0 … 123 are there, 0 … 179 were asked for, by ordinary noise."""
    return replace(random_log(seed, 124), asked=np.arange(180), noise="ordinary", alpha=0.001)


def test_a_log_that_is_not_finished_says_so_in_every_form() -> None:
    table = tabulate([unfinished()], [0])
    for form in (markdown, latex):
        assert form(table).replace(r"\,\ldots\,", "…").count("124 of 180") == 2
    note = "random0 is not finished: 124 of 180 images are certified, and its figures are of "
    assert any(text.startswith(note) for text in table.notes)
    [row] = DictReader(io.StringIO(csv(table)))
    assert (row["images"], row["asked"], row["noise"]) == ("124", "180", "ordinary")
    assert cells(table)[1][0][-3] == "0…123 (124 of 180)"
    gaps = select(replace(unfinished(), idx=np.arange(124) ** 2), Selection(0, None, 1))
    assert cells(tabulate([gaps], [0]))[1][0][-3] == "124 of 290 images within 0…15129"


def test_a_finished_log_and_one_that_does_not_know_say_nothing() -> None:
    whole = replace(random_log(0), asked=np.arange(200))
    for log in (whole, random_log(0), replace(random_log(0), asked=np.arange(20))):
        table = tabulate([log])
        assert cells(table)[1][0][-3] == "0…199 (200)"
        assert not any(" of " in note and "finished" in note for note in table.notes)


def test_a_piece_of_a_log_was_asked_for_in_the_same_piece() -> None:
    piece = select(unfinished(), Selection(100, 160, 2))
    assert piece.asked is not None and piece.asked.tolist() == list(range(100, 160, 2))
    assert cells(tabulate([piece], [0]))[1][0][-3] == "100…122, every 2nd (12 of 30)"
    assert select(random_log(0), Selection(100)).asked is None


def test_ordinary_noise_is_a_note_that_names_its_logs() -> None:
    words = "these certificates hold for real arithmetic, not for floating point."
    assert f"Ordinary noise: {words}" in tabulate([unfinished()]).notes
    both = tabulate([unfinished(), random_log(1)]).notes
    assert f"Ordinary noise (random0): {words}" in both
    assert not any("rdinary noise" in note for note in tabulate([random_log(1)]).notes)


def test_a_terminal_of_80_columns_shows_every_figure(macer: list[CertificateLog]) -> None:
    table = tabulate([replace(log, n=100_000, alpha=0.001) for log in macer])
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(terminal(table))
    shown = console.export_text()
    for row in cells(table)[1]:
        assert all(word in shown for cell in row for word in cell.split())


def test_a_terminal_shows_accuracies_by_themselves() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(terminal(tabulate([random_log(0), random_log(1)], [0, 0.5])))
    heads = [s.split() for s in console.export_text().splitlines() if s.startswith(" name")]
    assert heads[0][:3] == ["name", "σ", "ACR"] and "0.50" not in heads[0]
    assert heads[1] == ["name", "0.00", "0.50"]


def test_names_are_no_markup_for_the_terminal() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(terminal(tabulate([replace(random_log(0), name="[red]a[/x]")])))
    assert "[red]a[/x]" in console.export_text()


def test_a_name_neither_ends_a_line_nor_moves_the_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = replace(random_log(0), name="a\n\x1b[2J\u202eb", bound="\x9bc")
    for form in ("terminal", "markdown", "latex", "csv"):
        print_report([log, random_log(1)], form)
        out = capsys.readouterr().out.replace(r"\textbackslash{}", "\\").replace("\\\\", "\\")
        assert r"a\n\x1b" in out and all(line.isprintable() for line in out.split("\n"))


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(Mistake, match="logs must hold at least one log, got none"):
        tabulate([])
    with pytest.raises(Mistake, match=r"radii must be finite and ≥ 0, got 0, -0.25"):
        tabulate([random_log(0)], [0, -0.25])
    with pytest.raises(Mistake, match=r"radii must differ in six digits, got 0.25, 0.25"):
        tabulate([random_log(0)], [0.25, 0.25])
