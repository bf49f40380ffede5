"""A loss's settings, as its function declares them, and what may be given for them."""

import math
import sys
from typing import Any

import pytest
import torch

from macer.errors import Mistake
from macer.losses import LOSSES, completed, find_objective
from macer.losses.objective import checked, settings_of
from macer.recipes import Loss, TrainRecipe
from macer.recipes.fields import FIELDS

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


def test_a_setting_of_several_types_is_taken_as_it_is(own):
    loss = own("def loss(batch, *, tau: int | float = 1, name_of: str | None = None): ...\n")
    assert checked(Loss("a", tau=2.5), loss) == Loss("a", tau=2.5, name_of=None)


def test_a_setting_is_typed_by_its_loss():
    assert completed(TrainRecipe(loss=Loss("macer", lam=3))).loss["lam"] == 3.0
    assert type(completed(TrainRecipe(loss=Loss("macer", lam=3))).loss["lam"]) is float


# refusal


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tau: float", r"^the setting tau of the loss own must have a default, got none$"),
        ("name: str = 'x'", r"^the loss own must not have a setting name, which is the loss's own"),
        ("sigma: float = 1.0", r"^the loss own must not have a setting sigma, which is a field of"),
        ("tau: Size = 1", r"^the loss own must have settings of types that its module imports: "),
        ("tau=print", r"^tau must be numbers, strings, or lists of them, got an object of type"),
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
