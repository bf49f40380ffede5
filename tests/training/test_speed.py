import pytest
import torch
from tiny_models import CLASSES, tiny, tiny_recipe, tiny_split

from macer.runs.model_file import ModelCard
from macer.training import speed as module
from macer.training.speed import (
    count_passes,
    epoch_seconds,
    operations_of_sample,
    trained_line,
    training_speed,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CARD = ModelCard("tiny_models:tiny", CLASSES, (1, 8, 8), (0.0,), (1.0,), 0.25, "tiny")
FORWARD = 2 * (16 * 8 + 8 * 3)  # operations of `tiny` for one image

# The objectives, what an image's copies are seen, and what that costs in forward passes: 3 for a
# pass that trains, 2 for one of an attack, 1 for a teacher's.
COSTS = [
    ({"loss": "gaussian", "k": 1}, 1, 3),
    ({"loss": "macer", "k": 16}, 16, 16 * 3),
    ({"loss": "macer-consistency", "k": 8}, 8, 8 * 3),
    ({"loss": "stability", "k": 1}, 2, 2 * 3),
    ({"loss": "consistency", "k": 2}, 2, 2 * 3),
    ({"loss": "smoothadv", "k": 4, "steps": 10}, 44, 40 * 2 + 4 * 3),
    ({"loss": "smoothadv", "k": 4, "steps": 2, "attack": "ddn"}, 16, 8 * 2 + 4 + 4 * 3),
    ({"loss": "smoothmix", "k": 4, "steps": 4}, 24, 16 * 2 + 8 * 3),
    ({"loss": "catrs", "k": 4, "steps": 4, "teacher": "run"}, 28, 4 + 16 * 2 + 8 * 3),
    ({"loss": "macer", "k": 2, "labelled": 32}, 2, 2 * 3),
]


def lines(*speeds):
    """Metrics of epochs of 4 steps."""
    return [
        {"epoch": epoch, "step": 4 * epoch, "samples_per_second": speed}
        for epoch, speed in enumerate(speeds, start=1)
    ]


@pytest.fixture
def a_gpu(monkeypatch):
    """The place of a GPU whose matrix rate is a million operations a second."""
    monkeypatch.setattr(module, "matrix_rate", lambda _: 1e6)


# law


@pytest.mark.parametrize(("changes", "images", "forwards"), COSTS)
def test_passes_are_counted_with_what_they_cost(changes, images, forwards):
    teacher = tiny(3, 1).eval().requires_grad_(False) if "teacher" in changes else None
    assert count_passes(tiny_recipe(**changes), tiny_split(8), tiny(3, 1), teacher) == (
        images,
        forwards,
    )


@pytest.mark.parametrize(("changes", "forwards"), [(c, f) for c, _, f in COSTS])
def test_a_little_network_is_called_as_often_as_the_real_one(changes, forwards):
    recipe = tiny_recipe(**changes)
    assert operations_of_sample(recipe, CARD) == forwards / recipe.k * FORWARD


def test_images_that_are_voted_on_now_and_then_cost_a_forward_pass_each():
    """100 + 16 votes of each image at the beginning of epoch 2, 16 of them again at epoch 4."""
    recipe = tiny_recipe(loss="gaussian", k=1, epochs=6, drop_epoch=2, reweight_every=2)
    passes = count_passes(recipe, tiny_split(8), tiny(3, 1), None)
    assert passes == pytest.approx((1 + 132 / 6, 3 + 132 / 6))


def test_the_seconds_of_an_epoch_are_its_samples_over_its_speed():
    recipe = tiny_recipe()  # 4 steps of 16 images × 4 copies
    assert epoch_seconds(lines(256, 128, 512), recipe) == [1.0, 2.0, 0.5]


def test_training_took_the_seconds_of_its_epochs():
    speed = training_speed(tiny_recipe(), CARD, lines(256, 128, 512), CPU)
    assert speed == {"seconds": 3.5, "samples_per_second": pytest.approx(3 * 256 / 3.5)}


def test_epochs_that_were_not_recorded_count_like_the_others():
    speed = training_speed(tiny_recipe(epochs=6), CARD, lines(256, 128, 512), CPU)
    assert speed == {"seconds": 7.0, "samples_per_second": pytest.approx(3 * 256 / 3.5)}
    assert training_speed(tiny_recipe(), CARD, [], CPU) == {}


def test_on_a_gpu_the_share_is_that_of_the_networks_operations(a_gpu):
    recipe = tiny_recipe(loss="smoothadv", k=4, steps=10)
    speed = training_speed(recipe, CARD, lines(64, 64, 64), GPU)
    each_image = (40 * 2 + 4 * 3) * FORWARD
    assert speed["matrix_rate"] == 1e6
    assert speed["matrix_share"] == pytest.approx(64 / 4 * each_image / 1e6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpus_share_is_below_one():
    assert 0 < training_speed(tiny_recipe(), CARD, lines(64), GPU)["matrix_share"] < 1


def test_an_objective_of_the_users_own_has_no_share(a_gpu):
    recipe = tiny_recipe(loss="mine:loss")
    assert "matrix_share" not in training_speed(recipe, CARD, lines(64), GPU)


# known value


@pytest.mark.parametrize(
    ("speed", "line"),
    [
        ({}, "trained runs/a"),
        (
            {"seconds": 178.4, "samples_per_second": 95012.3},
            "trained runs/a in 178 s: 95,012 samples/s",
        ),
        (
            {"seconds": 0.46, "samples_per_second": 7.0},
            "trained runs/a in 0.5 s: 7 samples/s",
        ),
        (
            {
                "seconds": 12345.0,
                "samples_per_second": 95000.0,
                "matrix_rate": 7.88e14,
                "matrix_share": 0.4017,
            },
            "trained runs/a in 12,345 s: 95,000 samples/s, 40.2% of the 788 TFLOP/s of a bf16 "
            "matrix product",
        ),
    ],
)
def test_the_line_says_seconds_samples_and_on_a_gpu_the_share(speed, line):
    assert trained_line("runs/a", speed) == line
