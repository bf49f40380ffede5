from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from journals import HEADER, record_of

from macer.certification.certificate import Certificate
from macer.certification.journal import Contents, open_journal, read_journal
from macer.certification.record import Record
from macer.certification.table import (
    COLUMNS,
    rescored_lines,
    rounded_down,
    table_lines,
    write_table,
)
from macer.reporting.logs import read_log


@given(st.floats(0, 1000))
def test_a_radius_is_printed_rounded_down(radius):
    printed = Decimal(rounded_down(radius))
    assert printed <= Decimal(radius) < printed + Decimal("0.000001")


def test_the_table_is_a_log_of_the_field_and_agrees_with_the_certificates(tmp_path):
    path = tmp_path / "run" / "certificates.journal"
    with open_journal(path, HEADER) as writer:
        writer.append(map(record_of, [7, 3, 11, 5, 2, 13]))
    write_table(read_journal(path), path.with_name("certificates.tsv"))
    lines = path.with_name("certificates.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:6] == ["idx", "label", "predict", "radius", "correct", "time"]
    assert lines[0].split("\t") == list(COLUMNS)
    log = read_log(path.parent)
    assert log.idx.tolist() == [2, 3, 5, 7, 11, 13]
    assert (log.sigma, log.n0, log.n, log.alpha) == (0.25, 100, 1000, 0.001)
    for i, idx in enumerate(log.idx):
        record = record_of(int(idx))
        assert (log.label[i], log.predict[i]) == (record.label, record.certificate.label)
        assert log.correct[i] == (record.label == record.certificate.label)
        assert log.radius[i] <= record.certificate.radius < log.radius[i] + 1.01e-6


def test_a_known_row(tmp_path):
    certificate = Certificate(2, 0.2999999, 2, 0.88493032977829, (1, 0, 99), (10, 0, 990), 1000)
    record = Record(5, 2, certificate, 0.12345)
    write_table(Contents(HEADER, {5: record}, 0), tmp_path / "a.tsv")
    assert (tmp_path / "a.tsv").read_text().splitlines()[1].split("\t") == [
        "5", "2", "2", "0.299999", "1", "0.0", "100", "1000", "0.001", "0.25",
        "clopper-pearson", "2", "0.884930329778", "1000", "10,0,990",
    ]  # fmt: skip


def test_no_radius_is_printed_as_the_field_prints_it():
    assert rounded_down(0.0) == "0.0"


def test_a_bound_of_p_b_has_a_column_and_is_printed_rounded_up():
    certificate = Certificate(
        2, 0.25, 2, 0.88493032977829, (1, 0, 99), (10, 0, 990), 1000, p_b=0.0123456789012345
    )
    records = {i: Record(i, 2, certificate, 0.1) for i in (3, 5)}
    records[5] = replace(records[5], certificate=replace(certificate, p_b=None))  # forged
    header, first, second = (line.split("\t") for line in table_lines(Contents(HEADER, records, 0)))
    assert header == [*COLUMNS, "p_b\n"]
    assert (first[-1], second[-1]) == ("0.012345678902\n", "\n")


def test_a_rescored_table_says_what_it_came_from_and_whether_that_was_fixed():
    def columns(header, **reading):
        names, row = rescored_lines(header, {3: record_of(3)}, **reading)
        return dict(zip(names.split(), row.split(), strict=False)), names, row.rstrip().split("\t")

    reading = {"bound": "runner-up", "alpha": 0.001}
    for also, level in (([], "chosen"), (["runner-up"], "fixed")):
        header = replace(HEADER, also=also, exact=False)
        first, names, row = columns(header, **reading)
        assert names.split()[len(COLUMNS) :] == ["noise", "rescored", "level"]
        assert row[-3:] == ["ordinary", "clopper-pearson 0.001", level]
        assert (first["bound"], first["alpha"]) == ("runner-up", "0.001")
    first, _, row = columns(replace(HEADER, also=["runner-up"]), bound="runner-up", alpha=0.01)
    assert (first["alpha"], row[-1]) == ("0.01", "chosen")


def test_unusual_certificates_are_marked_as_such():
    def columns(header):
        return next(table_lines(Contents(header, {}, 0))).split()[len(COLUMNS) :]

    assert columns(HEADER) == []
    assert columns(replace(HEADER, radius=0.5)) == ["asked"]
    unusual = replace(HEADER, radius=0.5, split="train", exact=False)
    assert columns(unusual) == ["asked", "split", "noise"]
