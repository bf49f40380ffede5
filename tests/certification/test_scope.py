from hypothesis import given
from hypothesis import strategies as st

from macer.certification.scope import images_of, read_scope, scope_of


@given(st.sets(st.integers(0, 200)))
def test_a_scope_holds_its_images_and_no_others(images):
    scope = scope_of(images)
    assert images_of(scope) == images
    assert read_scope([list(bounds) for bounds in scope]) == scope


def test_a_scope_of_many_pieces_is_read_at_once():
    images = [i * i for i in range(200_000)]
    assert len(scope_of(images)) >= 100_000  # a slice for each would take minutes
