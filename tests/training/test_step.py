import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from loss_batches import batch_of, in_place_of, losses_of
from tiny_models import CLASSES, tiny_recipe, tiny_split
from torch.special import ndtri

from macer.losses import LOSSES, find_objective
from macer.losses.macer import macer
from macer.models.build import build_model
from macer.recipes.schedules import learning_rate, trade_off
from macer.smoothing.streams import Purpose, fill_normal, stream
from macer.system.errors import Mistake
from macer.training.step import Trainer

BATCH_NORM = "tiny_models:tiny_with_batch_norm"


def trainer_of(recipe, split):
    torch.manual_seed(recipe.seed)
    model = build_model(
        recipe.model, num_classes=len(CLASSES), shape=split.images.shape[1:], mean=None, std=None
    )
    return Trainer(recipe, model, split, torch.device("cpu"))


def train_epoch(trainer):
    for _ in trainer.rest_of_epoch():
        pass
    return trainer.close_epoch()


def snapshot(trainer):
    tensors, _ = trainer.state()
    tensors |= {f"average.{name}": tensor for name, tensor in trainer.average.items()}
    return {name: tensor.clone() for name, tensor in tensors.items()}


def different(trainer, before):
    """The names of the tensors that are not what they were."""
    now = snapshot(trainer)
    assert now.keys() == before.keys()
    return {name for name in now if not torch.equal(now[name], before[name])}


def plain_objective(u, labels, *, sigma, lam, gamma, beta):
    """Lines 5 to 9 of Algorithm 1 in the plainest way, for autograd in float64.   [Zhai+20]"""
    total = 0.0
    for logits, y in zip(u, labels, strict=True):
        total = total - logits.softmax(1).mean(0)[y].log()
        z = (beta * logits).softmax(1).mean(0)
        if z.argmax() == y:
            xi = ndtri(z[y]) - ndtri(torch.cat([z[:y], z[y + 1 :]]).max())
            if xi.isfinite() and xi < gamma:
                total = total + lam * sigma / 2 * (gamma - xi)
    return total / len(u)


def hand_steps(recipe, split, model, steps):
    """SGD with momentum as its textbook has it, in float64; the weights and their average."""
    model = copy.deepcopy(model).double().train()
    parameters = dict(model.named_parameters())
    v = {name: torch.zeros_like(p) for name, p in parameters.items()}
    average = {name: t.clone() for name, t in model.state_dict().items()}
    per_epoch = len(split.images) // recipe.batch
    for step in range(steps):
        epoch, position = divmod(step, per_epoch)
        order = stream(recipe.seed, Purpose.ORDER, epoch).permutation(len(split.images))
        rows = order[position * recipe.batch : (position + 1) * recipe.batch]
        x = torch.from_numpy(split.images[rows] / 255)
        y = torch.from_numpy(split.labels[rows])
        channels, height, width = x.shape[1:]
        eta = torch.empty(len(x), recipe.k, height, width, channels)
        fill_normal(eta, seed=recipe.seed, purpose=Purpose.TRAINING, image=step, chunk=0)
        noisy = x[:, None] + recipe.sigma * eta.double().permute(0, 1, 4, 2, 3)
        u = model(noisy.flatten(0, 1)).view(len(x), recipe.k, -1)
        now = step / per_epoch
        loss = plain_objective(
            u, y, sigma=recipe.sigma, lam=trade_off(recipe, now),
            gamma=recipe.loss["gamma"], beta=recipe.loss["beta"],
        )  # fmt: skip
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
        scale = min(1.0, recipe.clip / norm) if recipe.clip else 1.0
        with torch.no_grad():
            for (name, p), gradient in zip(parameters.items(), gradients, strict=True):
                g = scale * gradient + recipe.weight_decay * p
                v[name] = recipe.momentum * v[name] + g
                move = g + recipe.momentum * v[name] if recipe.nesterov else v[name]
                p -= learning_rate(recipe, now) * move
        d = min(recipe.ema, (1 + step) / (10 + step))
        average = {n: d * average[n] + (1 - d) * t for n, t in model.state_dict().items()}
    return model.state_dict(), average


# reference


@pytest.mark.parametrize("model", ["tiny_models:tiny", BATCH_NORM])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nesterov": True, "weight_decay": 0.05},
        {"momentum": 0.0, "weight_decay": 0.0, "k": 1, "lam": 0.0},
        {"clip": 0.1, "weight_decay": 0.05},
        {"ema": 0.3, "lam_schedule": "ramp"},
    ],
)
def test_steps_are_those_of_algorithm_1_by_hand(model, changes):
    recipe = tiny_recipe(model=model, seed=3, **changes)
    split = tiny_split(images=50, channels=3)  # 50 = 3 · 16 + 2
    trainer = trainer_of(recipe, split)
    expected, average = hand_steps(recipe, split, trainer.model, steps=5)
    train_epoch(trainer)
    steps = trainer.rest_of_epoch()
    next(steps), next(steps)
    for name, tensor in trainer.model.state_dict().items():
        torch.testing.assert_close(tensor.double(), expected[name].double(), rtol=0, atol=2e-5)
    for name, tensor in trainer.weights().items():
        known = (average if recipe.ema else expected)[name].double()
        if "num_batches" not in name:
            torch.testing.assert_close(tensor.double(), known, rtol=0, atol=2e-5)


# law


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_the_copies_of_an_image_are_it_plus_noise_of_variance_sigma_squared(sigma):
    trainer = trainer_of(tiny_recipe(sigma=sigma, k=64), tiny_split(channels=3))
    noise = trainer._noise(16)
    assert noise.shape == (16, 64, 3, 8, 8)
    assert noise.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    spread = 5 * sigma / math.sqrt(noise.numel())
    assert abs(noise.mean().item()) < spread
    assert noise.var().item() == pytest.approx(sigma**2, rel=5 * math.sqrt(2 / noise.numel()))
    rows = noise.flatten(2).flatten(0, 1)
    correlations = np.corrcoef(rows)[~np.eye(len(rows), dtype=bool)]
    assert np.abs(correlations).max() < 0.5


def test_an_epoch_takes_each_image_at_most_once_and_each_epoch_another_order(monkeypatch):
    split = tiny_split(images=50)
    trainer = trainer_of(tiny_recipe(), split)
    seen = []
    monkeypatch.setattr(trainer, "_take_step", lambda x, *_: seen.extend((x * 255).round().long()))
    for _ in range(2):
        for _ in trainer.rest_of_epoch():
            pass
    numbers = [int((split.images == x.numpy()).all((1, 2, 3)).argmax()) for x in seen]
    first, second = numbers[:48], numbers[48:]
    assert len(set(first)) == len(set(second)) == 48
    assert first != second


def test_images_and_labels_stay_together_through_crops_and_flips(monkeypatch):
    split = tiny_split()
    split.images[:] = split.labels[:, None, None, None] * 10 + 5
    trainer = trainer_of(tiny_recipe(crop=2, flip=True), split)
    steps = []
    monkeypatch.setattr(trainer, "_take_step", lambda *batch: steps.append(batch))
    for _ in trainer.rest_of_epoch():
        pass
    for images, labels, _ in steps:
        assert torch.equal((images.amax((1, 2, 3)) * 255).round().long(), labels * 10 + 5)
    assert any((images == 0).any() for images, *_ in steps)


@pytest.mark.parametrize("crop", [0, 1, 3])
@pytest.mark.parametrize("flip", [False, True])
def test_images_are_shifted_if_crops_are_asked_for_and_mirrored_if_flips_are(
    crop, flip, monkeypatch
):
    """One without the other too; every shift from −crop to crop, other ones in each epoch."""
    split = tiny_split(images=192)
    split.images[:], split.images[:, :, 3, 4] = 0, 200
    trainer = trainer_of(tiny_recipe(crop=crop, flip=flip), split)
    seen = []
    monkeypatch.setattr(trainer, "_take_step", lambda x, *_: seen.extend(x))
    for _ in range(2):
        for _ in trainer.rest_of_epoch():
            pass
    places = [tuple(np.argwhere(x[0].numpy())[0].tolist()) for x in seen]
    shifts = range(-crop, crop + 1)
    columns = {4 + s for s in shifts} | ({3 - s for s in shifts} if flip else set())
    assert {row for row, _ in places} == {3 + s for s in shifts}
    assert {column for _, column in places} == columns
    assert (places[:192] == places[192:]) == (not crop and not flip)


def test_each_step_has_random_numbers_of_its_own_for_objectives_and_networks():
    trainer = trainer_of(tiny_recipe(), tiny_split())
    plan = trainer.plan(0).rows(0, 16)
    seen, drawn = [], []
    for step in range(3):
        trainer.step = step
        trainer._prepare(plan)
        drawn.append(torch.rand(1).item())
        seen.append(tuple(trainer._uniform(5).tolist()))
        random = stream(0, Purpose.OBJECTIVE, step).random(5, np.float32)
        assert seen[-1] == tuple(random.tolist())
    assert len(set(seen)) == len(set(drawn)) == 3


def test_an_objective_is_told_the_time_and_lam_at_its_step(monkeypatch):
    told = []

    def watched(batch, *, lam, **settings):
        told.append((batch.epoch, float(lam)))
        return macer(batch, lam=lam, **settings)

    monkeypatch.setitem(LOSSES, "macer", in_place_of(macer, watched))
    recipe = tiny_recipe(lam=2.0, lam_schedule="ramp", lam_ramp=1.0)
    trainer = trainer_of(recipe, tiny_split())
    train_epoch(trainer), train_epoch(trainer)
    times = [i / 4 for i in range(8)]
    assert [time for time, _ in told] == times
    assert [lam for _, lam in told] == pytest.approx([2 * time / 3 for time in times])


def test_a_network_is_trained_in_training_mode_whatever_it_was_left_in():
    trainer = trainer_of(tiny_recipe(model=BATCH_NORM), tiny_split())
    before = trainer.model[1][1].running_mean.clone()
    trainer.model.eval()
    next(trainer.rest_of_epoch())
    assert not torch.equal(trainer.model[1][1].running_mean, before)


def test_an_average_has_the_newest_count_of_batches():
    trainer = trainer_of(tiny_recipe(model=BATCH_NORM, ema=0.9), tiny_split())
    train_epoch(trainer)
    assert trainer.weights()["1.1.num_batches_tracked"] == 4


def bad_loss(step, kind):
    """The objective, but for one step: not finite, or its gradient is not."""
    calls = []

    def loss(batch, **settings):
        calls.append(None)
        value = macer(batch, **settings)
        if len(calls) - 1 == step:
            if kind == "loss alone":
                value = value + math.nan
            elif kind == "gradient":
                value.register_hook(lambda gradient: torch.full_like(gradient, math.inf))
            else:
                value = value * kind
        return value

    return in_place_of(macer, loss)


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("kind", [math.nan, math.inf, "gradient", "loss alone"])
@pytest.mark.parametrize(
    "changes", [{"ema": 0.9}, {"clip": 0.5}, {"momentum": 0.0}, {"optimizer": "muon"}]
)
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(monkeypatch, step, kind, changes):
    monkeypatch.setitem(LOSSES, "macer", bad_loss(step, kind))
    trainer = trainer_of(tiny_recipe(model=BATCH_NORM, **changes), tiny_split())
    before = snapshot(trainer)
    for _ in trainer.rest_of_epoch():
        changed = different(trainer, before)
        if trainer.step - 1 == step:
            assert changed == {"skipped"}
        else:
            parameters = {f"model.{name}" for name, _ in trainer.model.named_parameters()}
            assert changed >= parameters | {"loss_sum", "model.1.1.running_mean"}
        before = snapshot(trainer)
    loss_sum = float(trainer.loss_sum)
    metrics = trainer.close_epoch()
    assert metrics["skipped_steps"] == 1
    assert metrics["loss"] == loss_sum / 3


def test_each_epoch_counts_its_own_skipped_steps_and_losses(monkeypatch):
    monkeypatch.setitem(LOSSES, "macer", bad_loss(1, math.nan))
    trainer = trainer_of(tiny_recipe(), tiny_split())
    first = train_epoch(trainer)
    for _ in trainer.rest_of_epoch():
        pass
    loss_sum = float(trainer.loss_sum)
    second = trainer.close_epoch()
    assert (first["skipped_steps"], second["skipped_steps"]) == (1, 0)
    assert second["loss"] == loss_sum / 4 < 2 * first["loss"]


def test_a_restored_trainer_remembers_the_steps_it_skipped(monkeypatch):
    monkeypatch.setitem(LOSSES, "macer", bad_loss(1, math.nan))
    one, other = (trainer_of(tiny_recipe(), tiny_split()) for _ in range(2))
    steps = one.rest_of_epoch()
    next(steps), next(steps)
    other.restore(*one.state())
    assert train_epoch(other)["skipped_steps"] == 1


def test_after_a_skipped_step_training_goes_on_as_if_it_had_not_been(monkeypatch):
    """Momentum must not have begun with the unusable gradient."""
    monkeypatch.setitem(LOSSES, "macer", bad_loss(0, math.nan))
    recipe = tiny_recipe(lam=0.0, weight_decay=0.0, lr_schedule="step", k=1)
    trainer = trainer_of(recipe, tiny_split())
    steps = trainer.rest_of_epoch()
    next(steps)
    before = snapshot(trainer)
    next(steps)
    after = snapshot(trainer)
    for name, p in trainer.model.named_parameters():
        assert torch.equal(after[f"momentum.{name}"], p.grad)
        moved = before[f"model.{name}"] - recipe.lr * p.grad
        torch.testing.assert_close(after[f"model.{name}"], moved)


@pytest.mark.parametrize("nesterov", [True, False])
def test_a_step_of_muon_moves_filters_by_their_learning_rate_and_the_rest_by_theirs(nesterov):
    recipe = tiny_recipe(
        model=BATCH_NORM, optimizer="muon", lr=0.2, filter_lr=0.05, lr_schedule="step",
        lr_decays=(1,), momentum=0.5, nesterov=nesterov, weight_decay=0.0,
    )  # fmt: skip
    trainer = trainer_of(recipe, tiny_split())
    for share in (1.0, 0.1):  # the second epoch is after the decay
        before = snapshot(trainer)
        next(steps := trainer.rest_of_epoch())
        after = snapshot(trainer)
        for name, p in trainer.model.named_parameters():
            was, moved = before[f"model.{name}"], after[f"model.{name}"] - before[f"model.{name}"]
            if p.ndim == 4:
                assert float(moved.norm() / was.norm()) == pytest.approx(0.05 * share, rel=0.02)
            elif share == 1.0:  # the first step, when m = g
                u = p.grad * (1.5 if nesterov else 1.0)
                torch.testing.assert_close(moved, -0.2 * u, rtol=1e-3, atol=1e-6)
        for _ in steps:
            pass


def test_no_gradient_is_longer_than_clip():
    trainer = trainer_of(tiny_recipe(clip=0.05), tiny_split())
    for _ in trainer.rest_of_epoch():
        gradients = [p.grad.flatten() for p in trainer.model.parameters()]
        assert torch.cat(gradients).norm() == pytest.approx(0.05, rel=1e-3)


def test_a_gradient_shorter_than_clip_is_left_alone():
    clipped, free = (trainer_of(tiny_recipe(clip=c), tiny_split()) for c in (1e6, 0.0))
    assert train_epoch(clipped) == train_epoch(free)
    assert different(clipped, snapshot(free)) == set()


def test_averaged_weights_are_the_model_if_asked_for():
    trainer = trainer_of(tiny_recipe(model=BATCH_NORM, ema=0.9), tiny_split())
    train_epoch(trainer)
    averaged = trainer.averaged_model().state_dict()
    for name, tensor in trainer.weights().items():
        assert torch.equal(averaged[name], tensor)
        assert ("weight" not in name) or not torch.equal(tensor, trainer.model.state_dict()[name])


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9}, {"momentum": 0.0}, {"optimizer": "muon"}])
def test_a_restored_trainer_goes_on_bit_for_bit(changes):
    recipe = tiny_recipe(model=BATCH_NORM, crop=1, flip=True, **changes)
    one = trainer_of(recipe, tiny_split())
    steps = one.rest_of_epoch()
    for _ in range(2):
        next(steps)
    other = trainer_of(tiny_recipe(**vars(recipe) | {"seed": 5}), tiny_split())
    other.recipe = recipe
    tensors, state = one.state()
    other.restore({name: t.clone() for name, t in tensors.items()}, state)
    for _ in steps:
        pass
    assert train_epoch(other) == one.close_epoch()
    assert train_epoch(other) == train_epoch(one)
    assert different(one, snapshot(other)) <= (
        set() if recipe.ema else {name for name in snapshot(one) if name.startswith("average.")}
    )


def mislabelled_split():
    """Bands that are easy to tell, but for ten whose labels are wrong."""
    split = tiny_split(images=64)
    split.labels[:10] = (split.labels[:10] + 1) % len(CLASSES)
    return split


SUN = tiny_recipe(epochs=12, k=2, lam=0.0, lr_schedule="step", drop_epoch=6, reweight_every=3)


def test_dropped_images_are_never_seen_again_and_an_epoch_keeps_its_steps(monkeypatch):
    split = mislabelled_split()
    trainer, seen = trainer_of(SUN, split), []
    take_step = trainer._take_step

    def spy(images, *rest):
        seen[-1].extend((images * 255).round().long())
        take_step(images, *rest)

    monkeypatch.setattr(trainer, "_take_step", spy)
    for epoch in range(12):
        seen.append([])
        metrics = train_epoch(trainer)
        assert trainer.step == 4 * (epoch + 1)
        assert metrics["dropped_images"] == int((trainer.draw_weights == 0).sum())
    numbers = [
        [int((split.images == x.numpy()).all((1, 2, 3)).argmax()) for x in epoch] for epoch in seen
    ]
    assert all(sorted(epoch) == list(range(64)) for epoch in numbers[:6])
    dropped = set((trainer.draw_weights == 0).nonzero().flatten().tolist())
    assert dropped >= set(range(10))
    assert len(dropped) < 15
    for epoch in numbers[6:]:
        assert len(epoch) == 64
        assert not dropped & set(epoch)
        assert len(set(epoch)) < 64 - len(dropped)  # drawn with replacement


def test_a_trainer_restored_between_two_weighings_goes_on_bit_for_bit():
    one = trainer_of(SUN, mislabelled_split())
    for _ in range(7):
        train_epoch(one)
    steps = one.rest_of_epoch()  # of epoch 7; weights are updated at 6 and 9
    next(steps)
    other = trainer_of(SUN, mislabelled_split())
    tensors, state = one.state()
    other.restore({name: t.clone() for name, t in tensors.items()}, state)
    assert torch.equal(other.draw_weights, one.draw_weights)
    assert len(set(one.draw_weights.tolist())) > 2
    for _ in steps:
        pass
    assert train_epoch(other) == one.close_epoch()
    before = one.draw_weights.clone()
    for _ in range(3):
        assert train_epoch(other) == train_epoch(one)
    assert not torch.equal(one.draw_weights, before)
    averages = {name for name in snapshot(one) if name.startswith("average.")}
    assert different(one, snapshot(other)) <= averages


def test_draw_weights_are_not_updated_in_the_middle_of_an_epoch(monkeypatch):
    trainer = trainer_of(replace(SUN, drop_epoch=1), mislabelled_split())
    drawn = []
    monkeypatch.setattr(trainer, "_update_draw_weights", lambda: drawn.append(trainer.step))
    train_epoch(trainer)
    next(trainer.rest_of_epoch())
    other = trainer_of(replace(SUN, drop_epoch=1), mislabelled_split())
    monkeypatch.setattr(other, "_update_draw_weights", lambda: drawn.append(other.step))
    other.restore(*trainer.state())
    train_epoch(other)
    assert drawn == [4]


def test_the_loss_of_a_step_is_the_weighted_sum_over_n(monkeypatch):
    losses = []

    def recorded(batch, **settings):
        losses.append(macer(batch, **settings))
        return losses[-1]

    monkeypatch.setitem(LOSSES, "macer", in_place_of(macer, recorded))
    recipe = tiny_recipe(labelled=16, pseudo="first", pseudo_weight=0.25)
    trainer = trainer_of(recipe, tiny_split())
    order = stream(recipe.seed, Purpose.ORDER, 0).permutation(64)[:16]
    next(trainer.rest_of_epoch())
    weights = np.where(order < 16, 1.0, 0.25)
    assert 0 < (weights == 1.0).sum() < 16
    expected = (weights * losses[0].detach().double().numpy()).sum() / 16
    assert float(trainer.loss_sum) == pytest.approx(expected, rel=1e-6)


def test_images_of_weight_0_do_not_move_the_weights(monkeypatch):
    """Whatever their losses, those without a weight have no gradient."""
    recipe = tiny_recipe(labelled=16, pseudo="first", pseudo_weight=0.0)
    plain = trainer_of(recipe, tiny_split())
    train_epoch(plain)
    split = tiny_split()
    split.labels[16:] = (split.labels[16:] + 1) % len(CLASSES)
    other = trainer_of(recipe, split)
    train_epoch(other)
    assert different(plain, snapshot(other)) == set()


def test_an_objective_is_given_the_teacher(monkeypatch):
    seen = []

    def watched(batch, **settings):
        seen.append(batch.teacher)
        return macer(batch, **settings)

    monkeypatch.setitem(LOSSES, "macer", in_place_of(macer, watched))
    teacher = torch.nn.Identity()
    plain = trainer_of(tiny_recipe(), tiny_split())
    taught = Trainer(plain.recipe, plain.model, tiny_split(), plain.device, teacher=teacher)
    next(plain.rest_of_epoch()), next(taught.rest_of_epoch())
    assert seen[0] is None
    assert seen[1] is teacher


def test_training_reduces_the_loss():
    trainer = trainer_of(tiny_recipe(epochs=8), tiny_split(images=128))
    losses = [train_epoch(trainer)["loss"] for _ in range(8)]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("changes", [{}, {"drop_epoch": 1, "drop_below": 0.0}])
def test_bf16_trains_too(changes):
    trainer = trainer_of(tiny_recipe(precision="bf16", **changes), tiny_split())
    losses = [train_epoch(trainer)["loss"] for _ in range(3)]
    assert losses[-1] < losses[0]
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())


# known value


def test_the_metrics_of_an_epoch():
    trainer = trainer_of(tiny_recipe(lr_schedule="step", lr_decays=(1,), lr=0.1), tiny_split())
    first, second = train_epoch(trainer), train_epoch(trainer)
    assert (first["epoch"], first["step"], first["lr"], first["lam"]) == (1, 4, 0.1, 2.0)
    assert (second["epoch"], second["step"], second["skipped_steps"]) == (2, 8, 0)
    assert second["lr"] == pytest.approx(0.01)


# refusal


def test_an_objective_of_ones_own_that_returns_another_shape_is_refused():
    trainer = trainer_of(tiny_recipe(loss="loss_batches:one_number"), tiny_split())
    message = r"^loss 'loss_batches:one_number' must return one loss per image, of shape \(16,\)"
    with pytest.raises(Mistake, match=message):
        train_epoch(trainer)


def test_an_epoch_without_a_finite_step_is_refused(monkeypatch):
    never = in_place_of(macer, lambda batch, **settings: macer(batch, **settings) * math.nan)
    monkeypatch.setitem(LOSSES, "macer", never)
    trainer = trainer_of(tiny_recipe(), tiny_split())
    with pytest.raises(Mistake, match="loss was not finite in 4 of the 4 steps of epoch 1; lower"):
        train_epoch(trainer)


def test_an_epoch_that_takes_no_more_than_half_of_its_steps_is_refused(monkeypatch):
    trainer = trainer_of(tiny_recipe(lr=1e30, lr_schedule="step"), tiny_split())
    with pytest.raises(Mistake, match="loss was not finite in 3 of the 4 steps of epoch 1; lower"):
        train_epoch(trainer)
    calls = []

    def every_other(batch, **settings):
        calls.append(None)
        return macer(batch, **settings) * (math.nan if len(calls) % 2 else 1.0)

    monkeypatch.setitem(LOSSES, "macer", in_place_of(macer, every_other))
    with pytest.raises(Mistake, match="loss was not finite in 2 of the 4 steps of epoch 1; lower"):
        train_epoch(trainer_of(tiny_recipe(), tiny_split()))


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_weights_that_are_not_finite_are_refused(ema):
    recipe = tiny_recipe(model=BATCH_NORM, loss="stability", sigma=1e30, k=2, ema=ema)
    trainer = trainer_of(recipe, tiny_split())
    message = r"^1\.1\.running_var was not finite after epoch 1; lower lr, weight_decay or sigma$"
    with pytest.raises(Mistake, match=message):
        train_epoch(trainer)


EARLY = {
    "smoothadv": {"epsilon_ramp": 2, "epsilon": 0.5},
    "smoothmix": {"eta_ramp": 2},
    "sun": {"attack_epoch": 2},
}


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_loss_takes_no_more_from_the_epoch_than_its_phase_says(loss):
    """Else a step that a GPU has recorded would go on with an older epoch's losses."""
    denoiser = "dncnn-small" if loss == "denoising" else "none"
    recipe = tiny_recipe(loss=loss, k=2, epochs=9, denoiser=denoiser, **EARLY.get(loss, {}))
    model = build_model(recipe.model, num_classes=3, shape=(1, 8, 8), denoiser=denoiser)
    trainer = Trainer(recipe, model, tiny_split(), torch.device("cpu"))
    found = {}
    for epoch in (0.0, 0.9, 1.0, 1.5, 2.0, 3.0, 7.9):
        trainer.step = int(epoch) * trainer.steps_per_epoch
        torch.manual_seed(0)
        batch = replace(batch_of(recipe), epoch=epoch, teacher=trainer.model)
        torch.manual_seed(0)
        losses = losses_of(batch).detach()
        phase = find_objective(loss).phase(trainer.epoch, trainer.recipe.loss)
        same = torch.equal(losses, found.setdefault(phase, losses))
        assert same, f"{loss} changes by epoch {epoch} within one phase: give it one in LOSSES"
    expected = 2 if loss in EARLY else 1
    assert len(found) == expected, f"{loss} with a phase needs an entry in EARLY, others have none"
