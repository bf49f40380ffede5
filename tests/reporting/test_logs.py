import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from macer.data.selection import Selection
from macer.reporting.log_rows import clock_seconds
from macer.reporting.logs import CertificateLog, describe_images, read_log, select
from macer.system.errors import Mistake

DATA = Path(__file__).parents[1] / "support/logs"
HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime"


def log_of(idx: list[int]) -> CertificateLog:
    zeros = np.zeros(len(idx), np.int64)
    correct = np.ones(len(idx), np.bool_)
    return CertificateLog("some", np.array(idx), zeros, zeros, zeros.astype(float), correct)


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    path.write_text("".join(f"{line}\n" for line in (header, *rows)), "utf-8")
    return path


def refuses(path: Path, message: str) -> None:
    with pytest.raises(Mistake, match=re.escape(message)):
        read_log(path)


def test_a_log_is_read_column_by_column(tmp_path: Path) -> None:
    log = read_log(
        write(tmp_path / "a.tsv", "0\t3\t3\t0.502\t1\t0:00:13.126220", "1\t8\t-1\t0.0\t0\t5")
    )
    assert log.idx.tolist() == [0, 1]
    assert log.label.tolist() == [3, 8]
    assert log.predict.tolist() == [3, -1]
    assert log.radius.tolist() == [0.502, 0.0]
    assert log.correct.tolist() == [True, False]
    assert (log.sigma, log.n0, log.n, log.alpha, log.bound) == (None,) * 5


def test_columns_are_found_by_name_and_strangers_ignored(tmp_path: Path) -> None:
    header = "time\tcorrect\tcount\tradius\tpredict\tlabel\tidx\tn0\tn\talpha\tsigma\tbound"
    row = "1.5\t1\tx\t0.25\t2\t2\t7\t100\t100000\t0.001\t0.50\tclopper-pearson"
    log = read_log(write(tmp_path / "a.tsv", row, header=header))
    assert (log.idx[0], log.label[0], log.radius[0]) == (7, 2, 0.25)
    assert (log.n0, log.n, log.alpha, log.sigma) == (100, 100_000, 0.001, 0.5)
    assert log.bound == "clopper-pearson"


def test_an_empty_setting_is_not_recorded(tmp_path: Path) -> None:
    header = f"{HEADER}\tn\talpha"
    log = read_log(write(tmp_path / "a.tsv", "0\t1\t1\t0.2\t1\t0\t\t0.001", header=header))
    assert (log.n, log.alpha) == (None, 0.001)


@pytest.mark.parametrize(
    "time", ["0", "8.59", "1e-3", "0:00:08", "12:34:56.789", "1 day, 2:00:00", "3 days, 0:00:01.5"]
)
def test_time_is_seconds_or_a_clock(tmp_path: Path, time: str) -> None:
    assert len(read_log(write(tmp_path / "a.tsv", f"0\t1\t1\t0.2\t1\t{time}")).idx) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8.59", 8.59), ("0:00:08.5", 8.5), ("1:02:03", 3723), ("2 days, 1:00:01", 176_401)],
)
def test_a_clock_counts_seconds(text: str, seconds: float) -> None:
    assert clock_seconds(text) == seconds


def test_certificates_of_one_radius_are_no_log(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "0\t1\t1\t0.5\t1\t0\t0.5", header=f"{HEADER}\tasked")
    refuses(file, "must hold certificates of largest radii, got those of radius 0.5")
    assert read_log(file, one_radius=True).at == 0.5
    least = write(tmp_path / "c.tsv", "0\t1\t1\t0.0\t1\t0\t0.0", header=f"{HEADER}\tasked")
    assert read_log(least, one_radius=True).at == 0  # as of `macer certify --radius 0`
    rows = ("0\t1\t1\t0.5\t1\t0\t0.5", "1\t1\t1\t0.6\t1\t0\t0.6")
    mixed = write(tmp_path / "b.tsv", *rows, header=f"{HEADER}\tasked")
    with pytest.raises(Mistake, match=r"asked must be the same for every image, got 0.5 and 0.6"):
        read_log(mixed, one_radius=True)


def test_counts_tell_the_number_of_classes(tmp_path: Path) -> None:
    row = "0\t1\t1\t0.5\t1\t0"
    assert read_log(write(tmp_path / "a.tsv", row)).classes is None
    counted = write(tmp_path / "b.tsv", f"{row}\t5,90,5", header=f"{HEADER}\tcounts")
    assert read_log(counted).classes == 3


def test_images_of_which_samples_were_drawn_were_estimated(tmp_path: Path) -> None:
    rows = ("0\t1\t1\t0.2\t1\t0\t100", "1\t1\t-1\t0.0\t0\t0\t0", "2\t1\t-1\t0.0\t0\t0\t1")
    log = read_log(write(tmp_path / "a.tsv", *rows, header=f"{HEADER}\tdrawn"))
    assert log.estimated is not None and log.estimated.tolist() == [True, False, True]
    kept = select(log, Selection(1)).estimated
    assert kept is not None and kept.tolist() == [False, True]


def test_gzipped_or_not_a_log_is_the_same_whatever_its_suffix(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.log", "0\t1\t1\t0.2\t1\t0", "5\t1\t2\t0.3\t0\t0")
    packed = tmp_path / "b.log"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_log(plain).radius.tolist() == read_log(packed).radius.tolist() == [0.2, 0.3]


def test_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(f"\ufeff{HEADER}\r\n0\t1\t1\t0.2\t1\t0\r\n".encode())
    assert read_log(file).radius.tolist() == [0.2]


def test_images_are_in_the_order_of_idx(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "a.tsv", "9\t1\t1\t0.9\t1\t0", "2\t1\t1\t0.2\t1\t0"))
    assert log.idx.tolist() == [2, 9]
    assert log.radius.tolist() == [0.2, 0.9]


def test_a_run_folder_stands_for_its_certificates(tmp_path: Path) -> None:
    run = tmp_path / "fast-0.25"
    run.mkdir()
    write(run / "certificates.tsv", "0\t1\t1\t0.2\t1\t0")
    assert read_log(run).name == read_log(run / "certificates.tsv").name == "fast-0.25"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("macer_sigma0.25.tsv", "macer_sigma0.25"),
        ("macer_sigma0.25", "macer_sigma0.25"),
        ("a.txt", "a"),
        ("a.log", "a.log"),
        (".tsv", ".tsv"),
    ],
)
def test_a_log_is_named_after_its_file(tmp_path: Path, file: str, name: str) -> None:
    assert read_log(write(tmp_path / file, "0\t1\t1\t0.2\t1\t0")).name == name


def test_selection_keeps_start_to_stop_and_multiples_of_skip() -> None:
    log = log_of(list(range(3, 100)))
    assert select(log, Selection(10, 31, 10)).idx.tolist() == [10, 20, 30]
    assert select(log, Selection(start=95)).idx.tolist() == [95, 96, 97, 98, 99]
    assert select(log, Selection()).idx.tolist() == log.idx.tolist()


@pytest.mark.parametrize(
    ("idx", "text"),
    [
        (list(range(10_000)), "0…9999"),
        (list(range(500, 1000)), "500…999"),
        (list(range(999, 499, -1)), "500…999"),
        (list(range(0, 10_000, 5)), "0…9995, every 5th"),
        (list(range(0, 100, 2)), "0…98, every 2nd"),
        (list(range(0, 100, 3)), "0…99, every 3rd"),
        (list(range(0, 100, 11)), "0…99, every 11th"),
        (list(range(0, 100, 12)), "0…96, every 12th"),
        (list(range(0, 100, 13)), "0…91, every 13th"),
        (list(range(0, 100, 21)), "0…84, every 21st"),
        (list(range(0, 999, 111)), "0…888, every 111th"),
        (list(range(0, 999, 122)), "0…976, every 122nd"),
        ([0, 5, 10], "0…10, every 5th"),
        ([7], "7"),
        ([7, 8], "7…8"),
        ([7, 9], "2 images within 7…9"),
        ([1, 2, 5, 8], "4 images within 1…8"),
    ],
)
def test_images_are_described_by_their_pattern(idx: list[int], text: str) -> None:
    assert describe_images(log_of(idx)) == text


def test_published_logs_hold_the_whole_test_set() -> None:
    log = read_log(DATA / "macer_sigma0.25.tsv.gz")
    assert (log.name, describe_images(log)) == ("macer_sigma0.25", "0…9999")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    refuses(tmp_path, f"no certificates in {tmp_path}: expected {tmp_path}/certificates.tsv")
    refuses(tmp_path / "none", f"no log at {tmp_path}/none: expected a run folder or a log file")


def test_a_folder_of_runs_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in "dacb":
        (tmp_path / "runs" / name).mkdir(parents=True)
        write(tmp_path / "runs" / name / "certificates.tsv")
    folder = tmp_path / "runs"
    shown = ", ".join(f"{folder}/{name}" for name in "abc")
    refuses(folder, f"certificates.tsv; name the runs in it: {shown} …")
    (folder / "d" / "certificates.tsv").unlink()
    refuses(folder, f"certificates.tsv; name the runs in it: {shown}")


def test_a_log_without_certificates_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "a.tsv"
    empty.write_text("\n")
    refuses(empty, "a.tsv is empty: expected the columns idx label predict radius correct time")
    refuses(write(tmp_path / "b.tsv"), "b.tsv has a header but no certificates")


def test_a_log_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    for content in (b"\x80\x02}q", gzip.compress(HEADER.encode() * 9)[:-9], b"\x1f\x8bplain"):
        file.write_bytes(content)
        refuses(file, "a.tsv must be tab-separated text, plain or gzipped: ")


def test_a_log_that_would_fill_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macer.reporting.log_rows.MOST_BYTES", 1 << 20)
    file = tmp_path / "a.tsv.gz"
    file.write_bytes(gzip.compress(b"0" * (1 << 21)))
    refuses(file, "a.tsv.gz must hold at most 1 MiB of text, got more")
    text = f"{HEADER}\n0\t1\t1\t0.2\t1\t0\n".encode()
    monkeypatch.setattr("macer.reporting.log_rows.MOST_BYTES", len(text))
    file.write_bytes(text)
    assert len(read_log(file).idx) == 1
    file.write_bytes(text + b"\n")
    refuses(file, f"a.tsv.gz must be at most {len(text)} bytes, got {len(text) + 1}")


def test_missing_and_repeated_columns_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", header="idx\tlabel\tpredict\tcorrect")
    refuses(file, "columns idx label predict radius correct time, got no radius, time")
    file = write(tmp_path / "a.tsv", header=f"{HEADER}\tidx")
    refuses(file, "each column must appear once")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1\t1\t1\t0.2", "a row must have 6 tab-separated values, got '1\\t1\\t1\\t0.2'"),
        ("", "a row must have 6 tab-separated values, got ''"),
        ("1\t1\t1\t0.2\t1\t0\t", "a row must have 6 tab-separated values, got"),
        ("1\t\t1\t0.2\t0\t0", "label must be a whole number ≥ 0 and below 2³¹, got ''"),
        ("1\t1\t1\t0.2\t1\t", "time must be seconds or h:mm:ss, got ''"),
        ("1\t1\t1\t0.2\t1\t-1", "time must be seconds or h:mm:ss, got '-1'"),
        ("1\t1\t1\t0.2\t1\tinf", "time must be seconds or h:mm:ss, got 'inf'"),
        ("1000000000000000000\t1\t1\t0.2\t1\t0", "idx must be a whole number ≥ 0"),
        ("x\t1\t1\t0.2\t1\t0", "idx must be a whole number ≥ 0 and below 2³¹, got 'x'"),
        ("-1\t1\t1\t0.2\t1\t0", "idx must be a whole number ≥ 0 and below 2³¹, got '-1'"),
        ("1\t1.0\t1\t0.2\t1\t0", "label must be a whole number ≥ 0 and below 2³¹, got '1.0'"),
        ("1\t-1\t-1\t0.2\t1\t0", "label must be a whole number ≥ 0 and below 2³¹, got '-1'"),
        ("1\t1\t-2\t0.2\t0\t0", "predict must be a class, or -1 for an abstention, got '-2'"),
        ("1\t1\t1\tnan\t1\t0", "radius must be a finite number ≥ 0 and below 10⁶, got 'nan'"),
        ("1\t1\t1\tinf\t1\t0", "radius must be a finite number ≥ 0 and below 10⁶, got 'inf'"),
        ("1\t1\t1\t-0.1\t1\t0", "radius must be a finite number ≥ 0 and below 10⁶, got '-0.1'"),
        ("1\t1\t1\t0,2\t1\t0", "radius must be a finite number ≥ 0 and below 10⁶, got '0,2'"),
        ("1\t1\t1\t0.2\t2\t0", "correct must be 0 or 1, got '2'"),
        ("1\t1\t1\t0.2\t1\tsoon", "time must be seconds or h:mm:ss, got 'soon'"),
        ("99999999999999999999\t1\t1\t0.2\t1\t0", "idx must be a whole number ≥ 0"),
    ],
)
def test_a_malformed_row_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    file = write(tmp_path / "a.tsv", "0\t1\t1\t0.2\t1\t0", row, "2\t1\t1\t0.2\t1\t0")
    refuses(file, f"{file}, line 3: {message}")


@pytest.mark.parametrize(
    ("row", "got"),
    [
        ("0\t1\t2\t0.2\t1\t0", "got 1 for predict 2 and label 1"),
        ("0\t1\t1\t0.2\t0\t0", "got 0 for predict 1 and label 1"),
    ],
)
def test_correct_must_agree_with_prediction_and_label(tmp_path: Path, row: str, got: str) -> None:
    message = f"line 2: correct must be 1 where predict is label and 0 elsewhere, {got}"
    refuses(write(tmp_path / "a.tsv", row), message)


def test_an_image_appears_once(tmp_path: Path) -> None:
    row = "4\t1\t1\t0.2\t1\t0"
    refuses(
        write(tmp_path / "a.tsv", row, "5\t1\t1\t0.2\t1\t0", row),
        "line 4: each image must appear once, got idx 4 again (first on line 2)",
    )


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("sigma", ("0.25", "0.5"), "sigma must be the same for every image, got 0.25 and 0.5"),
        ("n", ("100", ""), "n must be the same for every image, got 100 and None"),
        ("bound", ("a", "b"), "bound must be the same for every image, got a and b"),
        ("sigma", ("0", "0"), "line 2: sigma must be a number > 0, from 10⁻⁶ to 10⁶, got '0'"),
        ("alpha", ("1", "1"), "line 2: alpha must be between 0 and 1, got '1'"),
        ("split", ("a", "a"), "line 2: split must be train, or the column left out, got 'a'"),
        ("n0", ("0", "0"), "line 2: n0 must be a whole number ≥ 1, got '0'"),
        ("n", ("0", "0"), "line 2: n must be a whole number ≥ 1, got '0'"),
        (
            "sigma",
            ("inf", "inf"),
            "line 2: sigma must be a number > 0, from 10⁻⁶ to 10⁶, got 'inf'",
        ),
        ("alpha", ("0", "0"), "line 2: alpha must be between 0 and 1, got '0'"),
        ("asked", ("-1", "-1"), "line 2: asked must be a number ≥ 0, got '-1'"),
        ("drawn", ("0", "-1"), "line 3: drawn must be a whole number ≥ 0, got '-1'"),
        ("split", ("train", ""), "split must be the same for every image, got train and None"),
        ("sigma", ("1", "1", "2"), "sigma must be the same for every image, got 1.0 and 2.0"),
    ],
)
def test_a_log_has_one_valid_value_of_each_setting(
    tmp_path: Path, name: str, values: tuple[str, ...], message: str
) -> None:
    rows = [f"{i}\t1\t1\t0.2\t1\t0\t{value}" for i, value in enumerate(values)]
    refuses(write(tmp_path / "a.tsv", *rows, header=f"{HEADER}\t{name}"), message)


def test_a_selection_of_nothing_is_refused() -> None:
    message = "no image of some is left by start 500, stop 1000, skip 1: the log has 0…9"
    with pytest.raises(Mistake, match=message):
        select(log_of(list(range(10))), Selection(500, 1000))
    with pytest.raises(Mistake, match="skip must be at least 1, got 0"):
        select(log_of([1]), Selection(skip=0))


def test_a_table_that_its_journal_does_not_give_is_refused(tmp_path):
    from journals import HEADER, record_of

    from macer.certification.journal import open_journal
    from macer.certification.table import write_table

    run = tmp_path / "run"
    with open_journal(run / "certificates.journal", HEADER, range(8)) as journal:
        journal.append(map(record_of, range(6)))
        write_table(journal.contents, run / "certificates.tsv")
    honest = (run / "certificates.tsv").read_text()
    log = read_log(run)
    assert log.asked.tolist() == list(range(8)) and len(log.idx) == 6
    assert (log.dataset, log.data_sha256) == (HEADER.dataset, HEADER.data_sha256)
    assert select(log, Selection(2, None, 2)).asked.tolist() == [2, 4, 6]
    rows = honest.splitlines(keepends=True)
    for wrong in (
        honest.replace("\t0.001\t", "\t0.01\t", 1),
        rows[0] + rows[1].replace("0\t", "7\t", 1),
        honest.replace("p_a", "x", 1),
        honest.replace("\n", "\tx\n"),
    ):
        (run / "certificates.tsv").write_text(wrong)
        with pytest.raises(Mistake, match=r"line \d: the table must say what certificates.journal"):
            read_log(run)
    (run / "certificates.tsv").write_text("".join(rows[:4]))  # as after a kill
    assert len(read_log(run).idx) == 3
