"""Parts of a network that a training leaves as they are, and rates of their own for new parts."""

import pytest
import torch
from loss_batches import in_place_of
from tiny_models import tiny_recipe, tiny_split

from macer.losses import LOSSES
from macer.losses.macer import macer
from macer.models.build import build_model
from macer.system.errors import Mistake
from macer.training.step import Trainer

NETWORK = "tiny_models:tiny_with_batch_norm"
CONV, NORM, FC = ["1.0.weight", "1.0.bias"], ["1.1.weight", "1.1.bias"], ["1.5.weight", "1.5.bias"]
STATISTICS = ["1.1.running_mean", "1.1.running_var", "1.1.num_batches_tracked"]


def trainer_of(*, new=(), model=None, **changes):
    recipe = tiny_recipe(**{"model": NETWORK, "ema": 0.9, "crop": 1} | changes)
    torch.manual_seed(0)
    model = model or build_model(NETWORK, num_classes=3, shape=(1, 8, 8))
    return Trainer(recipe, model, tiny_split(), torch.device("cpu"), new=new)


def copied(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def trained(trainer, epochs=2):
    while trainer.epoch < epochs:
        for _ in trainer.rest_of_epoch():
            pass
    return trainer


# law


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize(
    ("changes", "frozen"),
    [
        ({"freeze": ("1",)}, NORM + STATISTICS),
        ({"freeze": ("0", "1")}, CONV + NORM + STATISTICS),
        ({"freeze": ("[01]",)}, CONV + NORM + STATISTICS),
        ({"freeze": ("0.weight",)}, ["1.0.weight"]),
        ({"freeze": ("*.bias",)}, ["1.0.bias", "1.1.bias", "1.5.bias"]),
        ({"freeze_all_but": ("5",)}, CONV + NORM + STATISTICS),
        ({"freeze_all_but": ("5.weight",)}, [*CONV, *NORM, *STATISTICS, "1.5.bias"]),
    ],
)
def test_frozen_parts_are_the_same_bit_for_bit_and_all_others_move(changes, frozen, ema, optimizer):
    trainer = trainer_of(ema=ema, optimizer=optimizer, weight_decay=0.1, **changes)
    before = copied(trainer.model.state_dict())
    trained(trainer)
    for kind, after in (("model", trainer.model.state_dict()), ("kept", trainer.weights())):
        constants = {"0.mean", "0.std"}
        same = {name for name in after if torch.equal(after[name], before[name])} - constants
        assert same == set(frozen), kind


def test_frozen_parameters_have_no_state_in_the_optimiser():
    trainer = trained(trainer_of(freeze=("0", "1")))
    parameters = dict(trainer.model.named_parameters())
    assert {name for name, p in parameters.items() if p in trainer.optimizer.state} == set(FC)
    tensors, _ = trainer.state()
    assert {name for name in tensors if name.startswith("momentum.")} == {
        f"momentum.{name}" for name in FC
    }
    assert all(parameters[name].grad is None for name in CONV + NORM)


@pytest.mark.parametrize(
    ("changes", "modes"),
    [
        ({"freeze": ("1",)}, [True, False, True]),
        ({"freeze_all_but": ("1",)}, [False, True, False]),
        ({}, [True, True, True]),
    ],
)
def test_frozen_parts_are_in_eval_mode_and_others_in_training_mode(changes, modes, monkeypatch):
    seen = []

    def watched(batch, **settings):
        network = batch.network[1]
        assert batch.network.training and network.training
        seen.append([network[i].training for i in (0, 1, 5)])
        return macer(batch, **settings)

    monkeypatch.setitem(LOSSES, "macer", in_place_of(macer, watched))
    trained(trainer_of(**changes), epochs=1)
    assert seen == [modes] * len(seen) and seen


def test_a_network_that_freezes_nothing_trains_as_before():
    plain, named = trained(trainer_of()), trained(trainer_of(new=FC, new_lr_factor=1.0))
    for name, tensor in plain.model.state_dict().items():
        torch.testing.assert_close(named.model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_a_new_layer_moves_as_many_times_faster_as_the_factor_says(optimizer):
    moves = {}
    for factor in (1.0, 4.0):
        changes = {"momentum": 0.0, "weight_decay": 0.0, "optimizer": optimizer}
        trainer = trainer_of(new=FC, new_lr_factor=factor, **changes)
        before = copied(trainer.model.state_dict())
        next(trainer.rest_of_epoch())
        after = trainer.model.state_dict()
        moves[factor] = {name: after[name] - before[name] for name in CONV + NORM + FC}
    for name, move in moves[1.0].items():
        assert move.abs().max() > 0
        expected = 4 * move if name in FC else move
        torch.testing.assert_close(moves[4.0][name], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("schedule", ["cosine", "triangle", "step"])
def test_the_factor_is_the_same_at_every_step_of_a_schedule(schedule, optimizer):
    trainer = trainer_of(new=FC, new_lr_factor=8.0, lr_schedule=schedule, optimizer=optimizer)
    old, new = (group["lr"] for group in trainer.optimizer.param_groups)
    rates = []
    for _ in range(3):
        for _ in trainer.rest_of_epoch():
            assert float(new) == pytest.approx(8 * float(old))
            rates.append(float(old))
    assert len(set(rates)) > 1 or schedule == "step"


# refusal


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"freeze": ("layer1",)},
            "freeze must name parts of the network, got layer1; it has 0, 1, 2, 3, 4, 5",
        ),
        (
            {"freeze_all_but": ("5.weigth",)},
            "freeze_all_but must name parts of the network, got 5.weigth, did you mean "
            "'5.weight'?; it has 0, 1, 2, 3, 4, 5",
        ),
        ({"freeze": ("*",)}, "freeze must leave something to train, got *"),
        ({"freeze_all_but": ("2",)}, "freeze_all_but must leave something to train, got 2"),
        ({"freeze": ("0", "")}, "freeze must name parts of the network, got ; it has 0, 1, "),
        (
            {"freeze": ("0",), "freeze_all_but": ("5",)},
            "freeze must be left out with freeze_all_but, got ['0']",
        ),
        (
            {"freeze": ("0",), "denoiser": "dncnn"},
            "freeze must be left out with a denoiser, which alone is trained, got ['0']",
        ),
        (
            {"optimizer": "muon", "denoiser": "dncnn"},
            "optimizer must be sgd with a denoiser, got 'muon'",
        ),
        ({"new_lr_factor": 0.0}, "new_lr_factor must be > 0, got 0.0"),
    ],
)
def test_what_cannot_be_frozen_is_refused(changes, line):
    with pytest.raises(Mistake) as caught:
        trainer_of(**changes)
    assert str(caught.value).startswith(line)
