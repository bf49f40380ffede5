"""The fields of a recipe: their defaults, types and ranges."""

import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from macer.losses import completed
from macer.recipes import (
    CertifyRecipe,
    Loss,
    TrainRecipe,
)
from macer.system.errors import Mistake

PAPER = {
    "k": 16, "gamma": 8.0, "beta": 16.0, "epochs": 440, "batch": 64, "lr": 0.01,
    "lr_schedule": "step", "lr_decays": (200, 400), "momentum": 0.9, "nesterov": False,
    "optimizer": "sgd",
    "weight_decay": 5e-4, "normalise": "none", "clip": 0.0, "ema": 0.0, "held_out": 0,
    "loss": "macer", "lam_schedule": "constant",
}  # fmt: skip

# known value


def test_the_defaults_are_the_papers():
    default = completed(TrainRecipe()).flat()
    assert {field: default[field] for field in PAPER} == PAPER


# refusal


@pytest.mark.parametrize(
    ("field", "values", "requirement"),
    [
        *((name, (0, -0.25, math.inf, math.nan), "> 0") for name in
          ("sigma", "gamma", "beta", "lr", "filter_lr")),
        *((name, (0, -3), "at least 1") for name in ("k", "epochs", "batch", "reweight_every")),
        *((name, (-1, math.inf, math.nan), "at least 0") for name in
          ("lam", "weight_decay", "clip", "pseudo_weight")),
        *((name, (-1,), "at least 0") for name in ("drop_epoch", "crop", "held_out", "labelled")),
        *((name, (-0.1, 1.1, math.nan), "in [0, 1]") for name in ("drop_below", "resized_crop")),
        *((name, (-0.1, 1, math.nan), "in [0, 1)") for name in ("momentum", "ema")),
        ("lam_ramp", (0, 1.1, math.nan), "in (0, 1]"),
        ("lr_peak", (-0.1, 1.1, math.nan), "in [0, 1]"),
        ("seed", (-1, 2**63), "in [0, 2⁶³)"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused(field, values, requirement):
    for value in map(type(completed(TrainRecipe()).flat()[field]), values):
        with pytest.raises(Mistake) as refusal:
            completed(TrainRecipe().changed(**{field: value}))
        assert str(refusal.value) == f"{field} must be {requirement}, got {value}"


class Network:
    def __repr__(self):
        return "Network(\n  (0): Layer()\n)"


BY_NAME = "a recipe is written into files: name it as package.module:function"
BY_FILE = "a recipe is written into files: name a run folder, a model file or zoo:NAME"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model", Network(), f"model must be a string, got an object of type Network; {BY_NAME}"),
        ("loss", max, "loss must be a Loss, the name of one, or a table with a name and settings, "
         f"got an object of type builtin_function_or_method; {BY_NAME}"),
        ("pseudo", Network(), f"pseudo must be a string, got an object of type Network; {BY_FILE}"),
        ("dataset", 3, "dataset must be a string, got 3"),
        ("dataset", None, "dataset must be a string, got None"),
        ("sigma", "0.5", "sigma must be a number, got '0.5'"),
        ("sigma", True, "sigma must be a number, got True"),
        ("sigma", np.ones(1), "sigma must be a number, got an object of type ndarray"),
        ("lr", 10**400, f"lr must be a number that a float holds, got 1{'0' * 56}…"),
        ("lr", -(10**5000), "lr must be a number that a float holds, got a number of thousands of "
         "digits"),
        ("k", 1.5, "k must be a whole number, got 1.5"),
        ("k", np.float64(16), "k must be a whole number, got 16.0"),
        ("k", 10**5000, "k must be at most 1,000,000, got a number of thousands of digits"),
        ("flip", "yes", "flip must be True or False, got 'yes'"),
        ("flip", 1, "flip must be True or False, got 1"),
        ("optimizer", "adam", "optimizer must be one of sgd, muon, got 'adam'"),
        ("lr_decays", {1, 2}, "lr_decays must be a list, got an object of type set"),
        ("lr_decays", "12", "lr_decays must be a list, got '12'"),
        ("lr_decays", (1, "2"), "each of lr_decays must be a whole number, got '2'"),
        ("crop", 2**63, "crop must be below 2⁶³, got 9223372036854775808"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_refused(field, value, message):
    with pytest.raises(Mistake) as refusal:
        TrainRecipe(**{field: value})
    assert str(refusal.value) == message


@pytest.mark.parametrize("kind", [TrainRecipe, CertifyRecipe])
def test_every_field_has_a_type_that_is_checked(kind):
    for field in fields(kind):
        with pytest.raises(Mistake, match=f"^{field.name} must be .*, got an object of type Net"):
            kind(**{field.name: Network()})


def test_a_recipe_is_the_same_from_numbers_of_numpy_lists_and_paths():
    plain = TrainRecipe(
        sigma=0.5, k=3, flip=True, lr_decays=(1, 2), pseudo="c", labelled=3,
        loss=Loss("catrs", lam=2.0, teacher="a/b"),
    )  # fmt: skip
    other = TrainRecipe(
        sigma=np.float32(0.5), k=np.int64(3), flip=np.bool_(True), lr_decays=[np.int8(1), 2],
        pseudo=Path("c"), labelled=3,
        loss={"name": "catrs", "lam": np.int64(2), "teacher": Path("a/b")},
    )  # fmt: skip
    plain, other = completed(plain), completed(other)
    assert other == plain and hash(other) == hash(plain)
    assert repr(other) == repr(plain)
    assert json.dumps(other.to_dict()) == json.dumps(plain.to_dict())


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(Mistake, match=r"momentum must be > 0 with nesterov, got 0.0"):
        TrainRecipe(nesterov=True, momentum=0.0)


@pytest.mark.parametrize("decays", [(400, 200), (200, 200)])
def test_decays_out_of_order_are_refused(decays):
    with pytest.raises(Mistake) as refusal:
        TrainRecipe(lr_decays=decays)
    assert str(refusal.value) == f"lr_decays must be ascending, got {list(decays)}"


@pytest.mark.parametrize("without", [{"lr_schedule": "cosine"}, {"lr_decays": ()}])
def test_a_lam_deferred_to_a_decay_that_never_comes_is_refused(without):
    with pytest.raises(Mistake, match="lam_schedule must not be deferred without a step schedule"):
        TrainRecipe(lam_schedule="deferred", **without)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_of_certification_out_of_range_is_refused(seed):
    with pytest.raises(Mistake) as refusal:
        CertifyRecipe(seed=seed)
    assert str(refusal.value) == f"seed must be in [0, 2⁶³), got {seed}"


@pytest.mark.parametrize("field", ["n0", "n"])
def test_more_samples_than_any_chip_draws_are_refused(field):
    with pytest.raises(Mistake) as refusal:
        CertifyRecipe(**{field: 10**13})
    assert str(refusal.value) == f"{field} must be at most 1,000,000,000,000, got 10000000000000"
