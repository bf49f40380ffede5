"""The settings of a loss: which it may declare, and how they are checked."""

import functools
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from macer.errors import Mistake
from macer.losses.objective import SettingOf, checked, settings_of
from macer.recipes import Loss
from macer.system.ranges import Positive


def every_type(
    batch: Any,
    *,
    a: float = 1.0,
    b: int | None = None,
    c: bool = True,
    d: Literal["x", "y"] = "x",
    e: Optional[str] = None,  # noqa: UP045  a user may write it so
    f: Positive | None = None,
    g: Literal["x", "y"] | None = None,
) -> None: ...


class Callables:
    def __call__(self, batch: Any, *, a: float = 1.0) -> None: ...


# law


def test_settings_have_the_types_that_a_file_can_give() -> None:
    values = {"a": 2.0, "b": 3, "c": False, "d": "y", "e": "z", "f": 4.0, "g": "y"}
    assert dict(checked(Loss("own", **values), every_type)) == values
    defaults = {"a": 1.0, "b": None, "c": True, "d": "x", "e": None, "f": None, "g": None}
    assert dict(checked(Loss("own"), every_type)) == defaults


def test_a_setting_without_an_annotation_has_the_type_of_its_default() -> None:
    def bare(batch, *, a=1.0, b=2, c=True, d="s"): ...  # type: ignore[no-untyped-def]

    kinds = {"a": float, "b": int, "c": bool, "d": str}
    assert {name: setting.hint for name, setting in settings_of(bare, "bare").items()} == kinds


def test_only_the_annotations_of_settings_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch and Tensor may be imported for a type checker alone."""
    text = "from __future__ import annotations\ndef own(x: Batch, *, a: int = 1) -> Tensor: ...\n"
    (tmp_path / "annotated_for_a_checker.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("annotated_for_a_checker")
    assert settings_of(module.own, "own") == {"a": SettingOf(int, 1)}
    assert settings_of(functools.partial(module.own, a=2), "own") == {"a": SettingOf(int, 2)}


def test_any_callable_is_a_loss() -> None:
    assert settings_of(Callables(), "own") == {"a": SettingOf(float, 1.0)}


# refusal


def of_type(hint: Any, default: Any = 1) -> Callable[..., None]:
    def loss(batch: Any, *, a: Any = default) -> None: ...

    loss.__annotations__["a"] = hint
    return loss


@pytest.mark.parametrize(
    ("hint", "got"),
    [
        (int | str, r"int \| str"),
        (Literal[1, 2], r"Literal\[1, 2\]"),
        (tuple[int, ...], r"tuple\[int, \.\.\.\]"),
        (None, "NoneType"),
        ("Nowhere", "'Nowhere'"),
    ],
)
def test_a_setting_of_another_type_is_refused(hint: Any, got: str) -> None:
    message = f"the setting a of the loss own must be a float, int, bool, str, .* got {got}$"
    with pytest.raises(Mistake, match=message):
        settings_of(of_type(hint), "own")


def name_of_the_loss(batch: Any, *, name: str = "x") -> None: ...
def lam_of_another_type(batch: Any, *, lam: str = "x") -> None: ...
def lam_or_none(batch: Any, *, lam: float | None = None) -> None: ...
def teacher_of_another_type(batch: Any, *, teacher: float = 1.0) -> None: ...
def without_a_batch(*, a: float = 1.0) -> None: ...


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (name_of_the_loss, "must not have a setting name, which is the name of the loss in a "),
        (lam_of_another_type, "must be a float, since it follows lam_schedule, got str; or "),
        (lam_or_none, "must be a float, since it follows lam_schedule, got float | None; or "),
        (teacher_of_another_type, "must be a str, since it names a model, got float; or choose "),
        (without_a_batch, "the loss own must take a Batch, got own(*, a: float = 1.0)"),
        (max, "the loss own must be a function in Python: no signature found for "),
    ],
)
def test_a_function_that_is_no_loss_is_refused(loss: Callable[..., Any], message: str) -> None:
    with pytest.raises(Mistake) as mistake:
        settings_of(loss, "own")
    assert message in str(mistake.value)


@pytest.mark.parametrize(
    ("setting", "value", "requirement"),
    [
        ("a", math.nan, "at least -1e+30, got nan"),
        ("a", -math.inf, "at least -1e+30, got -inf"),
        ("a", math.inf, "at most 1e+30, got inf"),
        ("b", -(2**64), "at least −2⁶³, got -18446744073709551616"),
        ("f", 0.0, "> 0, got 0.0"),
    ],
)
def test_a_number_without_a_range_is_refused_where_no_tensor_holds_it(
    setting: str, value: float, requirement: str
) -> None:
    with pytest.raises(Mistake) as mistake:
        checked(Loss("own", **{setting: value}), every_type)
    assert str(mistake.value) == f"{setting} must be {requirement}"
