"""The names of classes: of a data set that macer knows, else of the model file."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from journals import HEADER, record_of
from safetensors.numpy import save_file

from macer.certification.journal import Contents, open_journal
from macer.reporting.classes import class_names, class_text
from macer.runs.names import JOURNAL, MODEL


def journal(folder: Path, dataset: str) -> Contents:
    """A journal of images of three classes."""
    folder.mkdir(exist_ok=True)
    with open_journal(folder / JOURNAL, replace(HEADER, dataset=dataset), [0]) as opened:
        opened.append([record_of(0)])
        return opened.contents


def write_model(folder: Path, card: object) -> None:
    save_file({"a": np.zeros(1)}, folder / MODEL, {"macer": json.dumps(card)})


def test_names_are_those_of_the_list_of_files_where_no_model_lies_beside(tmp_path: Path) -> None:
    contents = journal(tmp_path, "folder")
    rows = ["idx\tclass\tfile", "0\tcat\ttest/cat/a.png", "1\temu\ttest/emu/b.png"]
    (tmp_path / "files-test.tsv").write_text("\n".join(rows))
    assert class_names(tmp_path, contents) == ()  # the third class has no image
    (tmp_path / "files-test.tsv").write_text("\n".join([*rows, "2\tdog\ttest/dog/c.png"]))
    assert class_names(tmp_path, contents) == ("cat", "dog", "emu")
    write_model(tmp_path, {"classes": ["a", "b", "c"]})
    assert class_names(tmp_path, contents) == ("a", "b", "c")


def test_names_are_those_of_the_model_file_where_the_data_set_has_none(tmp_path: Path) -> None:
    contents = journal(tmp_path, "folder")
    assert class_names(tmp_path, contents) == ()
    write_model(tmp_path, {"classes": ["ant", "bee", "cat"]})
    assert class_names(tmp_path, contents) == ("ant", "bee", "cat")


def test_names_that_are_not_one_per_class_are_none(tmp_path: Path) -> None:
    assert class_names(tmp_path / "a", journal(tmp_path / "a", "mnist")) == ()
    contents = journal(tmp_path / "b", "folder")
    write_model(tmp_path / "b", {"classes": ["ant", "bee"]})
    assert class_names(tmp_path / "b", contents) == ()
    assert class_names(tmp_path / "b", None) == ()


@pytest.mark.parametrize("card", [None, [], {}, {"classes": 3}, {"classes": [1, 2, 3]}])
def test_a_model_file_without_names_gives_none(tmp_path: Path, card: object) -> None:
    contents = journal(tmp_path, "folder")
    write_model(tmp_path, card)
    assert class_names(tmp_path, contents) == ()


@pytest.mark.parametrize("content", [b"", b"no model", b"\xff" * 100])
def test_a_damaged_model_file_gives_none(tmp_path: Path, content: bytes) -> None:
    contents = journal(tmp_path, "folder")
    (tmp_path / MODEL).write_bytes(content)
    assert class_names(tmp_path, contents) == ()


def test_a_name_stands_beside_its_number_where_it_says_more() -> None:
    names = ("0", "cat")
    assert [class_text(label, names) for label in range(3)] == ["0", "1 (cat)", "2"]
