"""The public names of `macer`."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import macer


def test_every_public_name_resolves() -> None:
    assert sorted(macer.__all__) == macer.__all__
    for name in macer.__all__:
        assert getattr(macer, name) is not None
    assert macer.ABSTAIN == -1
    assert callable(macer.certify) and issubclass(macer.Mistake, ValueError)


def test_a_recipe_is_made_with_a_loss_and_its_settings() -> None:
    recipe = macer.TrainRecipe(loss=macer.Loss("macer", lam=4.0))
    assert recipe.loss.name == "macer"
    assert recipe.to_dict()["loss"] == {"name": "macer", "lam": 4.0}


def test_import_does_not_wait_for_torch() -> None:
    code = "import macer, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_completion_finds_names_that_were_not_used_yet() -> None:
    code = "import macer, sys; sys.exit(not {*macer.__all__, '__version__'} <= {*dir(macer)})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'macer' has no attribute 'certfy'"):
        macer.certfy  # noqa: B018


@pytest.mark.parametrize(
    ("value", "range_"), [(1.5, "[1.5, 1.5]"), (-0.1, "[-0.1, -0.1]"), (np.nan, "[nan, nan]")]
)
def test_images_outside_0_to_1_are_refused(value: float, range_: str) -> None:
    images = torch.full((1, 1, 2, 2), value)
    message = re.escape(f"values in [0, 1], got {range_}; scale")
    with pytest.raises(macer.Mistake, match=message):
        macer.certify(torch.nn.Flatten(), images, sigma=0.5)
