import re
from dataclasses import replace

import pytest
import torch
from tiny_models import CLASSES, tiny_recipe

from macer.runs.model_file import ModelCard
from macer.runs.trained_model import save_model
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.training.teachers import load_teachers

pytestmark = pytest.mark.usefixtures("tiny_networks")
CPU = torch.device("cpu")
CARD = ModelCard(
    architecture="tiny_with_batch_norm",
    classes=CLASSES,
    shape=(1, 8, 8),
    mean=(0.25,),
    std=(0.5,),
    sigma=0.25,
    dataset="tiny",
)


def model_file(path, **changes):
    card = replace(CARD, **changes)
    model = card.build()
    save_model(path, model.state_dict(), card)
    return model.eval()


# law


@pytest.mark.parametrize("field", ["teacher", "pseudo"])
def test_a_teacher_is_the_model_of_its_file_in_eval_mode_and_takes_no_gradient(tmp_path, field):
    path = tmp_path / "model.safetensors"
    model = model_file(path)
    recipe = tiny_recipe(loss="catrs", **{field: str(path)}, labelled=16)
    [(name, teacher)] = load_teachers(recipe, CARD, CPU).items()
    assert (name, teacher.sha256) == (field, sha256_of_file(path))
    assert not any(part.training for part in teacher.model.modules())
    assert not any(p.requires_grad for p in teacher.model.parameters())
    images = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(teacher.model(images), model(images))


def test_a_recipe_without_teachers_has_none():
    assert load_teachers(tiny_recipe(), CARD, CPU) == {}


# refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shape": (1, 9, 9)},
            "teacher must be a model of 1×8×8 images, got PATH, of 1×9×9 images",
        ),
        (
            {"classes": ("left", "right", "middle")},
            "teacher must have the classes left, middle, right, got PATH, with left, right, middle",
        ),
        (
            {"classes": tuple(map(str, range(12)))},
            "teacher must have the classes left, middle, right, got PATH, with 0, 1, 2, …, 11",
        ),
    ],
)
def test_a_model_of_other_images_or_classes_is_refused(tmp_path, changes, message):
    path = tmp_path / "model.safetensors"
    model_file(path, **changes)
    with pytest.raises(Mistake, match=f"^{re.escape(message.replace('PATH', str(path)))}$"):
        load_teachers(tiny_recipe(loss="catrs", teacher=str(path)), CARD, CPU)


def test_a_teacher_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"no run or model at .*none; name a run folder or a model"):
        load_teachers(tiny_recipe(loss="catrs", teacher=str(tmp_path / "none")), CARD, CPU)


def test_of_a_teacher_that_a_recipe_trains_the_recipe_is_named():
    message = (
        "no teacher at runs/gaussian-mnist-0.50 yet; train it first: macer train "
        "gaussian/mnist-0.50"
    )
    with pytest.raises(Mistake, match=f"^{message}$"):
        load_teachers(tiny_recipe(loss="catrs", teacher="runs/gaussian-mnist-0.50"), CARD, CPU)
