"""A loss's settings, as its function declares them, and what may be given for them."""

import functools
import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Optional

import pytest
import torch

from macer.losses import LOSSES, completed, find_objective
from macer.losses.objective import Setting, checked, settings_of
from macer.recipes import Loss, TrainRecipe
from macer.recipes.fields import FIELDS
from macer.system.errors import Mistake
from macer.system.ranges import Positive

HEAD = "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
OWN = HEAD + "    from elsewhere import Batch, Size\n\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own, written and imported anew."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Any:
        (tmp_path / "own_objective.py").write_text(OWN + text)
        sys.modules.pop("own_objective", None)
        return find_objective("own_objective:loss").loss

    yield written
    sys.modules.pop("own_objective", None)


# law


@pytest.mark.parametrize("name", LOSSES)
def test_the_settings_of_macers_losses_are_none_of_a_recipes_fields(name):
    assert not set(FIELDS).intersection(settings_of(LOSSES[name].loss, name))


def test_a_loss_is_any_callable_and_its_other_arguments_are_of_any_type(own):
    function = "def loss(batch: Batch, *, tau: float = 1, whole: int = 2): ...\n"
    assert checked(Loss("a", tau=3), own(function)) == Loss("a", tau=3.0, whole=2)
    part = function.replace("loss", "some") + "from functools import partial\n"
    assert checked(Loss("a"), own(part + "loss = partial(some, tau=5)\n"))["tau"] == 5.0
    called = "class Some:\n    def __call__(self, batch: Batch, *, tau: float = 1): ...\n"
    assert checked(Loss("a"), own(called + "loss = Some()\n")) == Loss("a", tau=1.0)


def test_a_setting_is_typed_by_its_loss():
    assert completed(TrainRecipe(loss=Loss("macer", lam=3))).loss["lam"] == 3.0
    assert type(completed(TrainRecipe(loss=Loss("macer", lam=3))).loss["lam"]) is float


# refusal


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tau: float", r"^the setting tau of the loss own must have a default, got none$"),
        (
            "name: str = 'x'",
            r"^the loss own must not have a setting name, which is the name of the loss",
        ),
        ("sigma: float = 1.0", r"^the loss own must not have a setting sigma, which is a field of"),
        (
            "tau: Size = 1",
            r"^the setting tau of the loss own must be a float, int, bool, str, ",
        ),
        (
            "tau=print",
            r"^the setting tau of the loss own must be a float, int, bool, str, ",
        ),
    ],
)
def test_a_setting_that_no_recipe_can_hold_is_refused(own, setting, message):
    loss = own(f"def loss(batch, *, {setting}): ...\n")
    with pytest.raises(Mistake, match=message):
        checked(Loss("own"), loss)


def test_a_loss_whose_name_is_no_string_is_refused():
    with pytest.raises(Mistake, match=r"^loss must be a Loss, the name of one, or a table"):
        TrainRecipe(loss=Loss(torch.relu))


def test_a_function_without_a_signature_is_refused():
    message = r"^the loss torch:relu must be a Python function, got an object of type builtin_"
    with pytest.raises(Mistake, match=message):
        completed(TrainRecipe(loss="torch:relu"))


@pytest.mark.parametrize(
    ("loss", "setting", "value", "requirement"),
    [
        ("consistency", "eta", -1.0, "at least 0"),
        ("macer-consistency", "consistency", math.nan, "at least 0"),
        ("smoothadv", "epsilon", math.inf, "at least 0"),
        ("smoothadv", "epsilon_ramp", -1, "at least 0"),
        ("smoothadv", "steps", -1, "at least 0"),
        ("smoothadv", "step_size", 0.0, "> 0"),
        ("smoothmix", "step_size", -1.0, "> 0"),
        ("sun", "attack_epoch", -1, "at least 0"),
    ],
)
def test_a_setting_out_of_range_is_refused(loss, setting, value, requirement):
    with pytest.raises(Mistake) as refusal:
        completed(TrainRecipe(loss=Loss(loss, **{setting: value})))
    assert str(refusal.value) == f"{setting} must be {requirement}, got {value}"


@pytest.mark.parametrize(
    ("loss", "setting", "value", "message"),
    [
        ("macer", "eta", 3.0, "the loss macer has no setting 'eta', did you mean 'beta'?; its "
         "settings are lam, gamma, beta, cross_entropy"),
        ("gaussian", "lam", 0.0, "the loss gaussian has no setting 'lam'; it has no settings"),
        ("macer", "lam", "12", "lam must be a number, got '12'"),
        ("macer", "cross_entropy", "both", "cross_entropy must be one of smoothed, copies, got "
         "'both'"),
        ("smoothadv", "steps", 4.5, "steps must be a whole number, got 4.5"),
        ("smoothadv", "steps", 10**9, "steps must be at most 10,000, got 1000000000"),
        ("smoothadv", "epsilon_ramp", 2**63, "epsilon_ramp must be below 2⁶³, got "
         "9223372036854775808"),
        ("smoothadv", "step_size", "x", "step_size must be a number, got 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused(loss, setting, value, message):
    with pytest.raises(Mistake) as refusal:
        completed(TrainRecipe(loss=Loss(loss, **{setting: value})))
    assert str(refusal.value) == message


@pytest.mark.parametrize("loss", ["gaussian", "smoothadv"])
def test_a_schedule_of_lam_without_lam_is_refused(loss):
    with pytest.raises(Mistake) as refusal:
        completed(TrainRecipe(loss=loss, lam_schedule="ramp"))
    assert str(refusal.value) == (
        f"lam_schedule must be constant with the loss {loss}, which has no setting lam, got ramp"
    )


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
    assert settings_of(module.own, "own") == {"a": Setting(int, 1)}
    assert settings_of(functools.partial(module.own, a=2), "own") == {"a": Setting(int, 2)}


def test_any_callable_is_a_loss() -> None:
    assert settings_of(Callables(), "own") == {"a": Setting(float, 1.0)}


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
        (max, "the loss own must be a Python function, got an object of type builtin_"),
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
