"""Training from files and from memory."""

import threading

import numpy as np
import pytest
import torch
from data_files import refused
from small_imagenet import WNIDS, make_imagenet, recipe_of

from macer.data.sets import Split, load
from macer.models.build import build_model
from macer.training import batches as training_batches
from macer.training.batches import Resident, Streamed
from macer.training.loop import train
from macer.training.step import Trainer


@pytest.fixture
def imagenet(tmp_path):
    return make_imagenet(tmp_path)


def trainer_of(recipe, split):
    torch.manual_seed(0)
    model = build_model(recipe.model, num_classes=3, shape=split.images.shape[1:])
    return Trainer(recipe, model, split, torch.device("cpu"))


def weights_after(recipe, split, epochs=2):
    trainer = trainer_of(recipe, split)
    for _ in range(epochs):
        for _ in trainer.rest_of_epoch():
            pass
    return trainer.model.state_dict()


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


# law


def test_each_image_has_random_numbers_of_its_own():
    drawn = {}

    class Files:
        shape = (12, 3, 4, 4)

        def part(self, number, least, random):
            drawn[number] = (least, random.random())
            return np.zeros((3, 4, 4), np.uint8)

    recipe = recipe_of(resized_crop=0.3)
    list(Streamed(Files(), recipe, torch.device("cpu"), 4).batches(torch.arange(12), 1))
    assert {least for least, _ in drawn.values()} == {0.3}
    assert len({number for _, number in drawn.values()}) == len(drawn) == 12


@pytest.mark.medium
def test_training_from_files_is_training_from_memory(imagenet):
    split = load("imagenet", "train", imagenet)
    in_memory = Split(np.asarray(split.images), split.labels)
    streamed, resident = trainer_of(recipe_of(), split), trainer_of(recipe_of(), in_memory)
    assert isinstance(streamed.feed, Streamed)
    assert isinstance(resident.feed, Resident)
    assert equal(weights_after(recipe_of(), split), weights_after(recipe_of(), in_memory))


@pytest.mark.medium
def test_random_parts_depend_on_the_seed_the_image_and_the_epoch_alone(imagenet, monkeypatch):
    split = load("imagenet", "train", imagenet)
    recipe = recipe_of(resized_crop=0.08)
    weights = weights_after(recipe, split)
    monkeypatch.setattr(training_batches, "THREADS", 1)
    monkeypatch.setattr(training_batches, "AHEAD", 0)
    assert equal(weights_after(recipe, split), weights)
    assert not equal(weights_after(recipe_of(), split), weights)

    def batch(seed, epoch):
        recipe = recipe_of(resized_crop=0.08, seed=seed)
        feed = Streamed(split.images, recipe, torch.device("cpu"), recipe.batch)
        next(feed.batches(torch.tensor([7, 2, 2, 0]), epoch))
        return feed.picked(torch.tensor([])).clone()

    first = batch(0, 0)
    assert torch.equal(batch(0, 0), first)
    assert torch.equal(first[1], first[2])
    for other in (batch(1, 0), batch(0, 1)):
        assert all(not torch.equal(other[i], first[i]) for i in range(4))


def test_an_image_is_another_part_of_its_file_in_each_epoch(imagenet):
    trainer = trainer_of(recipe_of(resized_crop=0.08), load("imagenet", "train", imagenet))
    seen = []
    for epoch in range(2):
        order = trainer.plan(epoch).order.tolist()
        images = [trainer.feed.picked(order).clone() for _ in trainer.rest_of_epoch()]
        seen.append(dict(zip(order, torch.cat(images), strict=True)))
    assert all(not torch.equal(seen[0][number], seen[1][number]) for number in range(12))


@pytest.mark.parametrize("batches", [1, 4, 5, 9])
@pytest.mark.parametrize("together", [1, 3, 8])
def test_every_batch_comes_once_and_in_its_order(imagenet, monkeypatch, batches, together):
    monkeypatch.setattr(training_batches, "TOGETHER", together)
    images = load("imagenet", "train", imagenet).images
    pixels, order = np.asarray(images), np.arange(batches * 4) * 5 % 12
    feed = Streamed(images, recipe_of(), torch.device("cpu"), recipe_of().batch)
    seen = [feed.picked(order).clone() for _ in feed.batches(torch.from_numpy(order), 0)]
    assert np.array_equal(torch.cat(seen).numpy(), pixels[order])


@pytest.mark.medium
def test_a_killed_training_from_files_resumes_bit_for_bit(imagenet, tmp_path):
    split = load("imagenet", "train", imagenet)
    recipe = recipe_of(resized_crop=0.2)
    whole = trainer_of(recipe, split)
    for _ in whole.rest_of_epoch():
        pass
    steps = whole.rest_of_epoch()
    next(steps)
    tensors, state = whole.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    for _ in steps:
        pass
    resumed = trainer_of(recipe, split)
    resumed.restore(tensors, dict(state))
    for _ in resumed.rest_of_epoch():
        pass
    assert resumed.step == whole.step == 6
    assert equal(resumed.model.state_dict(), whole.model.state_dict())


def test_a_training_that_stops_leaves_no_thread(imagenet):
    before = threading.active_count()
    steps = trainer_of(recipe_of(), load("imagenet", "train", imagenet)).rest_of_epoch()
    next(steps)
    assert threading.active_count() > before
    steps.close()
    assert threading.active_count() == before


# refusal


def test_a_damaged_training_image_is_named_and_no_thread_is_left(imagenet, tmp_path):
    split = load("imagenet", "train", imagenet)
    file = split.images.folder / split.images.names[6]
    file.write_bytes(file.read_bytes()[:2000])
    before = threading.active_count()
    with refused(f"{file} must be a whole PNG, JPEG"):
        train(recipe_of(), split, WNIDS, tmp_path / "run")
    assert threading.active_count() == before
