import pytest

from macer.system.text import one_line, shape_text


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
