import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macer.data.selection import Selection
from macer.system.errors import Mistake


@given(st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(1, 9))
def test_the_numbers_among_a_data_set_are_those_that_are_held(start, stop, skip):
    images, numbers = Selection(start, stop, skip), np.arange(30)
    held = numbers[images.holds(numbers)].tolist()
    if held:
        assert images.among(30) == held
    else:
        with pytest.raises(
            Mistake,
            match=r"^start, stop and skip must choose an image, got none of the 30 images: a ",
        ):
            images.among(30)


def test_images_are_chosen_as_the_field_counts_them() -> None:
    assert Selection(1, None, 3).among(10) == [3, 6, 9]
    assert Selection(0, 4, 1).among(10) == [0, 1, 2, 3]
    assert Selection(4, 10, 3).among(10) == [6, 9]
    assert Selection(2, None, 2).among(10, first=7) == [8]
    assert Selection(8, None, 1).among(10, first=7) == [8, 9]


def test_images_that_were_trained_on_are_never_chosen() -> None:
    assert Selection().among(100, first=97) == [97, 98, 99]
    assert Selection(98).among(100, first=97) == [98, 99]
    message = (
        "^start, stop and skip must choose an image, got none of the held-out images 97…99: a "
        "multiple of 1 from 97 to below 97$"
    )
    with pytest.raises(Mistake, match=message):
        Selection(0, 97).among(100, first=97)


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ((-1, None, 1), "start must be at least 0, got -1"),
        ((0, 11, 1), "stop must be at most the number of images, 10, got 11"),
        ((0, None, 0), "skip must be at least 1, got 0"),
        (
            (4, 6, 7),
            "start, stop and skip must choose an image, got none of the 10 images: a multiple of "
            "7 from 4 to below 6",
        ),
    ],
)
def test_a_choice_of_no_images_is_refused(piece: tuple[int, int | None, int], message: str) -> None:
    with pytest.raises(Mistake, match=f"^{message}$"):
        Selection(*piece).among(10)


def test_nothing_given_is_no_selection_and_what_is_not_given_selects_all():
    assert Selection.given(None, None, None) is None
    assert Selection.given(None, 7, None) == Selection(stop=7)
    assert Selection.given(0, None, 3) == Selection(skip=3)
