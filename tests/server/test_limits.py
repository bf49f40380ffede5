"""Keys and limits: who may ask, and how much."""

from pathlib import Path

import pytest

from macer.server.limits import Admission, Keys, Limits, Refusal, read_keys
from macer.system.errors import Mistake

KEYS = ["first-key-of-the-house", "second-key-of-the-house"]


# law


def test_each_key_is_a_client_of_its_own() -> None:
    keys = Keys(KEYS)
    clients = [keys.client(f"Bearer {key}", "1.2.3.4") for key in KEYS]
    assert clients == ["key 0", "key 1"]
    assert Keys().client(None, "1.2.3.4") == "1.2.3.4"


def test_places_are_free_again_after_a_failure() -> None:
    admission = Admission(Limits(at_once=1, queue=1, per_client=5))
    for _ in range(5):
        with pytest.raises(KeyError), admission.admitted("a"), admission.admitted("b"):
            with pytest.raises(Refusal, match="all places are taken"), admission.admitted("c"):
                pass
            raise KeyError
    assert admission.inside.total() == 0 and not admission.inside


def test_a_file_of_keys_may_have_remarks(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# those of the house\n\n{KEYS[0]}\n  {KEYS[1]}  \n")
    assert read_keys(file).client(f"Bearer {KEYS[1]}", "") == "key 1"


# refusal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# none\n", "must have at least one key, got none"),
        ("short", "must have keys of 16 to 1024 characters .* got 5 characters in key 1"),
        (KEYS[0] + "\nwith a space in the key", "got 23 characters in key 2"),
    ],
)
def test_a_file_without_usable_keys_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(Mistake, match=message):
        read_keys(file)
