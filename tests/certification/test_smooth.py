"""The field's class answers as the network that is certified does."""

import numpy as np
import pytest
import torch
from tiny_models import tiny_split, tiny_with_batch_norm
from torch import fx, nn

from macer.certification.largest_radius import certify
from macer.certification.smooth import Smooth
from macer.models.inference import for_inference
from macer.smoothing.sampling import Sampler
from macer.system.errors import Mistake

CPU = torch.device("cpu")
SHAPE = (1, 8, 8)
IMAGES = torch.from_numpy(tiny_split(6).images)


def network(seed=0):
    torch.manual_seed(seed)
    model = tiny_with_batch_norm(3, 1)
    with torch.no_grad():
        model[1].running_mean.normal_(0, 0.2)
        model[1].running_var.uniform_(0.5, 2)
        model[-1].weight.mul_(4)
    return model


def answers(smooth, images=IMAGES):
    return [smooth.certify(image, 50, 500, 0.001) for image in images]


def certified(model, precision="fp32", images=IMAGES, **settings):
    prepared = for_inference(model, shape=SHAPE, precision=precision, device=CPU)
    certificates = certify(prepared, images, sigma=0.25, n0=50, n=500, **settings)
    return [(c.label, c.radius) for c in certificates]


@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16"])
def test_its_answers_are_those_of_certification_in_the_same_precision(precision, monkeypatch):
    asked, draw = [], Sampler.draw

    def watching(sampler, *arguments, **more):
        asked.append(sampler.model)
        return draw(sampler, *arguments, **more)

    smooth = Smooth(network(), 3, 0.25, seed=5, precision=precision)
    expected = certified(network(), "bf16" if precision == "bf16" else "fp32", seed=5)
    monkeypatch.setattr(Sampler, "draw", watching)
    assert answers(smooth) == expected
    assert len({id(model) for model in asked}) == 1  # prepared once
    assert isinstance(asked[0], fx.GraphModule)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in asked[0].modules())


def test_by_the_runner_up_bound_its_answers_are_those_of_certification():
    smooth = Smooth(network(), 3, 0.25, bound="runner-up")
    assert answers(smooth) == certified(network(), bound="runner-up") != certified(network())


@pytest.mark.medium
def test_arrays_floats_and_bytes_of_an_image_have_the_same_answer():
    smooth = [answers(Smooth(network(), 3, 0.25), images) for images in
              (IMAGES, IMAGES / 255, IMAGES.numpy(), np.asarray(IMAGES / 255))]  # fmt: skip
    assert smooth[0] == smooth[1] == smooth[2] == smooth[3]
    ordinary = answers(Smooth(network(), 3, 0.25, exact=False))
    assert ordinary == certified(network(), exact=False) != smooth[0]


def by_data(model):
    model[-1].bias.data += torch.tensor([0.0, 9.0, 0.0])


def by_optimizer(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    model.eval()(IMAGES / 255)[:, 2].sum().backward()
    optimizer.step()


def by_buffer(model):
    model[1].running_mean.copy_(-3 * torch.ones(4))


def by_file(model):
    model.load_state_dict(network(seed=3).state_dict())


def by_layer(model):
    model[2] = nn.Tanh()


def by_number(model):
    model[1].eps = 5.0


class Held(nn.Module):
    """The logits of a network, shifted by what it holds in a list, an array or a set."""

    def __init__(self, model):
        super().__init__()
        self.heads = nn.ModuleList([model, network(seed=3)])
        self.active = self.heads[0]
        self.shift, self.array, self.held = {"by": [0.0, 0.0, 0.0]}, np.zeros(3), set()

    def forward(self, x):
        logits = self.active(x) + x.new_tensor(self.shift["by"]) + x.new_tensor(self.array)
        return logits.flip(1) if "flip" in self.held else logits


def by_list(model):
    model.shift["by"][1] = 9.0


def by_array(model):
    model.array[1] = 9.0


def by_set(model):
    model.held.add("flip")


def by_choice(model):
    model.active = model.heads[1]


def by_hook(model):
    model.register_forward_hook(lambda part, inputs, logits: logits.flip(1))


def by_forward(model):
    model.forward = lambda x: model.heads[0](x).flip(1)


@pytest.mark.parametrize(
    "change", [by_list, by_array, by_set, by_choice, by_hook, by_forward], ids=lambda c: c.__name__
)
def test_a_base_classifier_that_holds_other_values_is_prepared_again(change):
    model = Held(network()).eval()
    smooth = Smooth(model, 3, 0.25)
    before, first = answers(smooth), list(smooth._prepared.values())
    smooth.calls = 0
    assert answers(smooth) == before
    assert list(smooth._prepared.values()) == first  # unchanged, it is not prepared again
    change(model)
    smooth.calls = 0
    after = answers(smooth)
    assert after == certified(model)
    assert after != before


@pytest.mark.parametrize("change", [by_data, by_optimizer, by_buffer, by_file, by_layer, by_number])
def test_a_changed_base_classifier_is_prepared_again(change):
    model = network()
    smooth = Smooth(model, 3, 0.25)
    before = answers(smooth)
    change(model)
    smooth.calls = 0
    after = answers(smooth)
    assert after == certified(model)
    assert after != before


@pytest.mark.medium
def test_another_base_classifier_or_precision_or_shape_has_a_copy_of_its_own():
    smooth = Smooth(network(), 3, 0.25)
    answers(smooth)
    smooth.base_classifier, smooth.calls = network(seed=3), 0
    assert answers(smooth) == certified(network(seed=3))
    smooth.precision, smooth.calls = "bf16", 0
    assert answers(smooth) == certified(network(seed=3), "bf16")
    label, _ = smooth.certify(torch.zeros(1, 12, 12), 50, 500, 0.001)
    assert label in (-1, 0, 1, 2)


def test_the_base_classifier_is_left_alone():
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    answers(Smooth(model, 3, 0.25, precision="bf16"))
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.medium
def test_a_network_for_several_gpus_is_taken_out_of_its_wrapping():
    inner = network()
    for wrapped in (
        nn.DataParallel(inner),
        nn.Sequential(nn.Identity(), nn.DataParallel(inner)),
        nn.DataParallel(nn.DataParallel(inner)),
    ):
        prepared = for_inference(wrapped, shape=SHAPE, precision="fp32", device=CPU)
        kinds = {type(part) for part in prepared.modules()}
        assert not {nn.DataParallel, nn.BatchNorm2d} & kinds
        assert answers(Smooth(wrapped, 3, 0.25)) == certified(inner)


class Brightness(nn.Module):
    """Class 1 where the mean of a 4 × 4 image is above ½; its radius is 4 times the difference."""

    def forward(self, x):
        margin = 4 * (x.flatten(1).mean(dim=1) - 0.5)
        return torch.stack([-margin, margin], dim=1)


def test_it_is_the_fields_class():
    smooth = Smooth(Brightness(), 2, 0.25)
    bright = torch.full((1, 4, 4), 0.575)
    label, radius = smooth.certify(bright, 100, 10_000, 0.001, 1000)
    assert (type(label), type(radius)) == (int, float)
    assert label == 1 and 0.27 < radius < 0.3
    assert smooth.predict(bright, 100, 0.001, 100) == 1
    assert Smooth.ABSTAIN == -1


def test_each_call_draws_fresh_noise():
    smooth = Smooth(Brightness(), 2, 0.25)
    bright = torch.full((1, 4, 4), 0.525)
    assert len({smooth.certify(bright, 10, 1000, 0.001)[1] for _ in range(4)}) > 1


# refusal


def test_a_wrong_number_of_classes_is_refused():
    with pytest.raises(Mistake, match="num_classes must be the network's number of outputs, 2"):
        Smooth(Brightness(), 10, 0.25).certify(torch.zeros(1, 4, 4), 10, 100, 0.001)
    with pytest.raises(Mistake, match="num_classes must be the network's number of outputs, 2"):
        Smooth(Brightness(), 10, 0.25).predict(torch.zeros(1, 4, 4), 100, 0.001)


def test_a_soft_bound_is_refused():
    with pytest.raises(Mistake, match=r"^bound must be one of clopper-pearson, runner-up, got 'be"):
        Smooth(network(), 3, 0.25, bound="bernstein")


def test_what_is_no_image_or_no_model_is_refused():
    smooth = Smooth(network(), 3, 0.25)
    with pytest.raises(Mistake, match=r"^images must be a tensor or a NumPy array, got list"):
        smooth.predict([[0.0]], 100, 0.001)
    line = r"^inputs must be floats, unless .*, got uint8 of the shape \(1, 6, 1, 8, 8\); convert"
    with pytest.raises(Mistake, match=line):
        smooth.certify(IMAGES, 100, 100, 0.001)
    with pytest.raises(
        Mistake, match=r"^the model must be an nn.Module or a callable .*, got str$"
    ):
        Smooth("resnet", 3, 0.25)
    with pytest.raises(Mistake, match=r"^precision must be one of fp32, bf16, got half$"):
        Smooth(network(), 3, 0.25, precision="half").predict(IMAGES[0], 100, 0.001)
