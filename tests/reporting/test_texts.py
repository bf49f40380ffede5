"""Figures and settings as people read them."""

import pytest

from macer.reporting.texts import images_text, with_noun


@pytest.mark.parametrize(
    ("count", "which", "asked", "text"),
    [
        (200, "0…1990, every 10th", 200, "images 0…1990, every 10th (200)"),
        (2, "2 images within 0…5", None, "2 images within 0…5"),
        (2, "2 images within 0…5", 60, "2 of 60 images within 0…5"),
        (3, "training 0…2", None, "images training 0…2 (3)"),
    ],
)
def test_the_word_images_stands_once(count, which, asked, text):
    assert with_noun(images_text(count, which, asked)) == text
