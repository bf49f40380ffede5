"""What a journal of one radius says."""

from types import SimpleNamespace
from typing import Any

from macer.certification.certificate import Certificate
from macer.reporting.intervals import share_intervals
from macer.reporting.one_radius import at_radius


def test_at_a_radius_the_right_images_are_those_that_are_robust_too() -> None:
    """An image that is abstained from may have the right class selected."""
    votes = {"radius": 0.0, "p_a": 0.0, "selection": (), "estimation": ()}
    labels = ((3, 3, 3), (-1, 3, 3), (5, 5, 3), (-1, 5, 3))  # certified, selected, true
    records = {
        i: SimpleNamespace(
            label=true, certificate=Certificate(label=label, selected=selected, drawn=50, **votes)
        )
        for i, (label, selected, true) in enumerate(labels)
    }
    contents: Any = SimpleNamespace(header=SimpleNamespace(radius=0.5, n=300), records=records)
    assert at_radius(contents).line() == (
        "radius 0.5: 2 of 4 images are robust, 1 of them with the right label (0.2500); 50 samples "
        "per image, 6.0 times fewer than n = 300"
    )
    assert at_radius(contents).interval == share_intervals([1], 4)[0]
    nothing: Any = SimpleNamespace(header=contents.header, records={})
    assert at_radius(nothing).interval is None
