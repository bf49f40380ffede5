import pytest

from macer.system.text import NO_BREAK, duration, one_line, rate_text, shape_text, unbroken


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb", r"a\nb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("abc\u202edef", r"abc\u202edef"),
        ("σ = ½ \\n", "σ = ½ \\n"),
        ("", ""),
    ],
)
def test_a_line_is_printable_and_what_is_printable_stays(text, line):
    assert one_line(text) == line
    assert one_line(line) == line and line.isprintable()


def test_a_shape_is_its_sizes_with_times_signs():
    assert shape_text((3, 32, 32)) == "3×32×32"
    assert shape_text([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.04, "0.0 s"),
        (1.25, "1.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (750, "12 min 30 s"),
        (3599.6, "1 h"),
        (3600, "1 h"),
        (7230, "2 h"),
        (7231, "2 h 1 min"),
        (86_399, "1 d"),
        (2 * 86_400 + 3 * 3600 + 59, "2 d 3 h"),
        (1e9, "11,574 d 2 h"),
    ],
)
def test_a_duration_is_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    "number",
    [
        *("0.572 ± 0.009", "−0.005 ± 0.005", "0.100 ± ?", "0.575 †", "405 s", "61.6 h", "3.5 GiB"),
        *(duration(seconds) for seconds in (37, 587, 126_000, 1e9)),
        *("n = 100,000", "α = 0.001", "σ 0.25", "σ .5", "**0.925** ± .001"),
    ],
)
def test_a_number_has_no_space_at_which_a_line_may_end(number):
    text = unbroken(f"it is {number}, as told")
    assert text == f"it is {number.replace(' ', NO_BREAK)}, as told"


@pytest.mark.parametrize("text", ["90 for 440", "0.5 such images", "2 days", "a = b", "‡ 5"])
def test_a_line_may_end_after_a_number_without_a_unit(text):
    assert unbroken(text) == text


def test_a_slow_rate_is_not_0():
    assert [rate_text(rate) for rate in (12345.6, 10, 9.96, 0.173)] == [
        "12,346",
        "10",
        "10",
        "0.17",
    ]
