"""Lines for a terminal: they break between words, never inside a number."""

from rich.console import Console

from macer.cli import printing

LINE = "at least 1 d 11 h of one H200, or 37 s; 0.094 ± 0.007 lower than MACER at n = 100,000"
NUMBERS = ("1 d 11 h", "37 s", "0.094 ± 0.007", "n = 100,000")


def printed(monkeypatch, capsys, width: int, *fields: str) -> list[str]:
    console = Console(width=width, force_terminal=True)
    monkeypatch.setattr(printing, "_console", lambda: console)
    printing.print_line(*fields)
    return capsys.readouterr().out.splitlines()


def test_at_every_width_a_line_breaks_between_words_and_in_no_number(monkeypatch, capsys):
    for width in range(15, 90):
        lines = printed(monkeypatch, capsys, width, LINE)
        assert " ".join(lines) == LINE
        assert max(map(len, lines)) <= width
        assert all(any(number in line for line in lines) for number in NUMBERS)


def test_a_line_of_several_fields_is_left_whole(monkeypatch, capsys):
    assert printed(monkeypatch, capsys, 20, LINE, "9") == [f"{LINE}\t9"]
