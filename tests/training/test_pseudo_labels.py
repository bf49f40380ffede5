import re

import numpy as np
import pytest
import torch
from tiny_models import tiny_recipe, tiny_split
from torch import nn

from macer.data.sets import load
from macer.recipes import named_recipe, run_name
from macer.smoothing.streams import Purpose, fill_normal
from macer.system.errors import Mistake
from macer.training.pseudo_labels import (
    HIDDEN,
    SAMPLES,
    loss_weights,
    with_pseudo_labels,
    without_hidden_labels,
)

SEMI = tiny_recipe(labelled=20, pseudo="first", pseudo_weight=0.25, sigma=0.5, seed=3)


class Bands(nn.Module):
    """The brightest of the three bands of `tiny_split`."""

    def forward(self, x):
        return torch.stack([x[..., 3 * c : 3 * c + 2].mean((1, 2, 3)) for c in range(3)], dim=1)


# reference


def test_pseudo_labels_are_the_majority_of_votes_counted_one_by_one():
    split = tiny_split(images=52)
    split.images[20:] = 100 + split.images[20:] // 8  # faint enough for votes to differ
    eta = torch.empty(32, SAMPLES, 8, 8, 1)
    fill_normal(eta, seed=3, purpose=Purpose.PSEUDO_LABELS, image=0, chunk=0)
    expected, unanimous = [], 0
    for image, noise in zip(split.images[20:], eta, strict=True):
        votes = [0, 0, 0]
        for e in noise:
            x = image / 255 + 0.5 * e.permute(2, 0, 1).double().numpy()
            votes[int(np.argmax([x[..., 3 * c : 3 * c + 2].mean() for c in range(3)]))] += 1
        expected.append(int(np.argmax(votes)))
        unanimous += max(votes) == SAMPLES
    labels, images = torch.from_numpy(split.labels), torch.from_numpy(split.images)
    found = with_pseudo_labels(labels, images, Bands(), SEMI)
    assert found.tolist() == [*split.labels[:20], *expected]
    assert unanimous < 16


# law


def test_a_hidden_label_is_no_class_and_the_others_stay():
    split = tiny_split()
    kept = without_hidden_labels(split, SEMI)
    assert np.array_equal(kept.images, split.images)
    assert np.array_equal(kept.labels[:20], split.labels[:20])
    assert (kept.labels[20:] == HIDDEN).all()
    assert split.labels.min() >= 0  # the caller's are left alone


def test_without_a_first_model_only_labelled_images_are_left():
    split = tiny_split()
    kept = without_hidden_labels(split, tiny_recipe(labelled=20))
    assert np.array_equal(kept.images, split.images[:20])
    assert np.array_equal(kept.labels, split.labels[:20])


def test_without_a_number_of_labels_all_images_have_theirs():
    split = tiny_split()
    assert without_hidden_labels(split, tiny_recipe()) is split


# known value


def test_unlabelled_images_weigh_as_the_recipe_says():
    assert loss_weights(30, SEMI).tolist() == [1.0] * 20 + [0.25] * 10
    assert loss_weights(20, tiny_recipe(labelled=20, pseudo_weight=0.25)).tolist() == [1.0] * 20


def test_labelled_images_may_be_as_few_as_a_batch():
    assert len(without_hidden_labels(tiny_split(), tiny_recipe(labelled=16)).images) == 16


def test_all_images_weigh_the_same_without_a_first_model():
    recipe = tiny_recipe(labelled=20, pseudo_weight=0.25)
    assert loss_weights(30, recipe).tolist() == [1.0] * 30


def test_the_semi_supervised_recipe_looks_for_its_first_model_where_train_puts_it():
    first, semi = (named_recipe(f"semi/mnist-sample{end}") for end in ("-first", ""))
    assert semi.pseudo == f"runs/{run_name('semi/mnist-sample-first')}"
    differ = {name for name, value in vars(semi).items() if value != getattr(first, name)}
    assert differ == {"pseudo", "epochs", "lr_decays"}
    images = len(load("mnist-sample", "train").images)
    steps = [n // r.batch * r.epochs for n, r in ((first.labelled, first), (images, semi))]
    assert steps[0] == pytest.approx(steps[1], rel=0.05)


# refusal


@pytest.mark.parametrize("labelled", [15, 64, 65])
def test_too_few_or_too_many_labels_are_refused(labelled):
    message = (
        "labelled must be at least batch, 16, and fewer than the 64 training images, "
        f"got {labelled}"
    )
    with pytest.raises(Mistake, match=f"^{re.escape(message)}$"):
        without_hidden_labels(tiny_split(), tiny_recipe(labelled=labelled))


def test_a_first_model_without_a_number_of_labels_is_refused():
    with pytest.raises(Mistake, match=r"^labelled must be > 0 with pseudo, got 0$"):
        tiny_recipe(pseudo="first")
