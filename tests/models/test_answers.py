"""Networks that answer with an object that has `.logits`, and networks of TorchScript."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from macer.certification.largest_radius import certify
from macer.certification.smooth import Smooth
from macer.models.build import build_model
from macer.models.inference import for_inference

CPU = torch.device("cpu")
QUICK = {"sigma": 0.5, "n0": 50, "n": 500}


def by_smooth(model, images):
    smooth = Smooth(model, 3, 0.25)
    return [smooth.certify(x, 50, 500, 0.001) for x in images]


# An answer with `.logits`


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


class OutputTuple(NamedTuple):
    logits: Tensor


class OutputDict(dict):
    """A dictionary whose keys are attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


FORMS = [Output, OutputTuple, lambda logits: OutputDict(logits=logits)]
SHAPE = (1, 8, 8)


class Answering(nn.Module):
    """A convolution with batch-norm whose answer has a form."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.layers = nn.Sequential(*layers, nn.Linear(144, 3))
        self.form = form

    def forward(self, images):
        return self.form(self.layers(images))


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_with_logits_is_its_logits(form):
    model, plain = Answering(form), Answering(lambda logits: logits)
    images = torch.rand(2, *SHAPE)
    assert certify(model, images, **QUICK) == certify(plain, images, **QUICK)
    ours = [by_smooth(m, images) for m in (model, plain)]
    np.testing.assert_allclose(*ours, atol=0.02)  # one may have its batch-norm folded
    for precision in ("fp32", "bf16"):
        for_inference(model, shape=SHAPE, precision=precision, device=CPU)


def test_a_network_of_ones_own_may_answer_with_logits(tmp_path, monkeypatch):
    (tmp_path / "own_answers.py").write_text(
        "from types import SimpleNamespace\nfrom torch import nn\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n\n"
        "    def forward(self, images):\n"
        "        return SimpleNamespace(logits=self.layers(images))\n\n\n"
        "def net():\n    return Net()\n"
    )
    monkeypatch.chdir(tmp_path)
    model = build_model("own_answers:net", num_classes=3, shape=SHAPE)
    assert model(torch.zeros(2, *SHAPE)).shape == (2, 3)
    assert "1.layers.1.weight" in model.state_dict()
    prepared = for_inference(model, shape=SHAPE, precision="fp32", device=CPU)
    images = torch.rand(2, *SHAPE)
    torch.testing.assert_close(prepared(images), model(images).detach())


# TorchScript


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["scripted", "traced", "frozen"])
def test_a_module_of_torchscript_is_the_network_that_it_was_made_of(kind):
    plain = Answering(lambda logits: logits).layers.eval()
    images = torch.rand(2, *SHAPE)
    script = torch.jit.trace(plain, images) if kind == "traced" else torch.jit.script(plain)
    script = torch.jit.freeze(script) if kind == "frozen" else script
    for ours, theirs in zip(
        certify(script, images, **QUICK), certify(plain, images, **QUICK), strict=True
    ):
        assert abs(ours.estimation[0] - theirs.estimation[0]) <= 2
    before = by_smooth(script, images)
    smooth = Smooth(script, 3, 0.25)
    assert [smooth.certify(x, 50, 500, 0.001) for x in images] == before
    for label in range(3 if kind != "frozen" else 0):  # whose weights are constants
        with torch.no_grad():
            list(script.parameters())[-1].copy_(50 * torch.eye(3)[label])
        assert smooth.predict(images[0], 100, 0.001) == label
