"""The network as certification runs it beside the network itself."""

import operator
import random

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from macer.certification.largest_radius import certify
from macer.kernels.agreement import agree
from macer.models.build import build_model
from macer.models.inference import for_inference, resolve_precision
from macer.models.networks import Normalize
from macer.system.errors import Mistake

CPU = torch.device("cpu")


def used(name: str, shape: tuple[int, int, int]) -> nn.Module:
    """A network whose batch-norm has seen something, in training mode."""
    torch.manual_seed(0)
    model = build_model(name, num_classes=10, shape=shape)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0, 0.2)
    return model.train()


def norms(model: nn.Module) -> int:
    return sum(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 28, 28)), ("resnet20", (3, 32, 32)), ("resnet18", (3, 32, 32))],
)
def test_the_prepared_network_is_the_same_function_without_batch_norm(name, shape):
    model = used(name, shape)
    prepared = for_inference(model, shape=shape, precision="fp32", device=CPU)
    images = torch.randn(4, *shape)
    with torch.no_grad():
        assert torch.allclose(prepared(images), model.eval()(images), rtol=1e-3, atol=1e-4)
    assert norms(prepared) == 0


def test_the_model_itself_is_left_alone():
    model = used("resnet20", (3, 32, 32))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for_inference(model, shape=(3, 32, 32), precision="bf16", device=CPU)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    assert model.training


def test_the_prepared_network_has_the_precision_asked_for():
    prepared = for_inference(
        used("lenet", (1, 28, 28)), shape=(1, 28, 28), precision="bf16", device=CPU
    )
    *others, weight = prepared.parameters()
    assert {p.dtype for p in others} == {torch.bfloat16}
    # Logits of 8 bits would tie.
    assert weight.dtype == torch.float32
    assert prepared(torch.rand(2, 1, 28, 28).bfloat16()).dtype == torch.float32
    assert not prepared.training and not any(p.requires_grad for p in prepared.parameters())


class Twice(nn.Module):
    """One convolution under two batch-norms, one of them after a second use."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(1), nn.BatchNorm2d(1)
        self.norm2.running_mean.fill_(3.0)
        self.fc = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm2(self.conv(F.relu(self.norm1(self.conv(x)))))
        return self.fc(x.flatten(1))


class Branching(nn.Module):
    """A network that cannot be traced: it looks at its input."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.flatten(1)) if x.sum() > -1e9 else x.flatten(1)[:, :2]


class Moody(nn.Module):
    """A network that a trace changes: it does something else with symbols."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.flatten(1)) * (-1 if isinstance(x, fx.Proxy) else 1)


@pytest.mark.parametrize("network", [Twice, Branching])
def test_what_cannot_be_folded_stays_the_same_function(network):
    torch.manual_seed(0)
    model = network().eval()
    prepared = for_inference(model, shape=(1, 4, 4), precision="fp32", device=CPU)
    images = torch.rand(5, 1, 4, 4)
    assert torch.equal(prepared(images), model(images))


def test_batch_norm_without_averages_is_not_folded_and_the_network_is_refused():
    """It takes the statistics of the batch in eval mode too, so that rows influence one another."""
    norm = nn.BatchNorm2d(2, track_running_stats=False)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten()).eval()
    prepared = for_inference(model, shape=(1, 4, 4), precision="fp32", device=CPU)
    assert norms(prepared) == 1
    images = torch.randint(256, (1, 1, 4, 4), dtype=torch.uint8)
    with pytest.raises(Mistake, match="the same logits in any company"):
        certify(prepared, images, sigma=0.25, n=100)


def test_chance_in_a_network_is_refused_before_a_trace_can_freeze_it():
    """torch.fx would record the number that was drawn while it traced."""

    class Shifting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1) + random.randrange(3)

    with pytest.raises(Mistake, match="the same logits in any company and at any time"):
        for_inference(Shifting(), shape=(1, 4, 4), precision="fp32", device=CPU)


def test_features_that_a_hook_notes_are_not_taken_from_an_earlier_call():
    """A trace does not run hooks: the network stays as it is, and so does its function."""
    noted = {}

    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(2, 3)
            self.conv.register_forward_hook(lambda *call: noted.update(features=call[2]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.conv(x)
            return self.head(noted["features"].mean(dim=(2, 3)))

    model = Hooked()
    model(torch.zeros(2, 1, 8, 8))  # leaves features of two images
    images = torch.rand(5, 1, 8, 8)
    prepared = for_inference(model, shape=(1, 8, 8), precision="fp32", device=CPU)
    torch.testing.assert_close(prepared(images), model(images))


def test_a_network_with_hooks_is_not_traced():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    model.register_forward_hook(lambda *_: None)
    prepared = for_inference(model, shape=(1, 4, 4), precision="fp32", device=CPU)
    assert not isinstance(prepared, fx.GraphModule)


def test_what_a_network_keeps_from_an_earlier_call_is_not_traced_as_a_constant():
    class Late(nn.Module):
        """To a symbol it shows what it was last called with."""

        kept = None

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if isinstance(x, fx.Proxy):
                return self.fc(self.kept)
            self.kept = x.flatten(1)
            return self.fc(self.kept)

    prepared = for_inference(Late(), shape=(1, 4, 4), precision="fp32", device=CPU)
    assert isinstance(prepared, Late)


def test_a_trace_that_is_another_function_is_not_used():
    prepared = for_inference(Moody(), shape=(1, 4, 4), precision="fp32", device=CPU)
    assert isinstance(prepared, Moody)


def test_auto_is_the_devices_precision():
    assert resolve_precision("auto", CPU) == "fp32"
    assert resolve_precision("auto", torch.device("cuda")) == "bf16"
    assert resolve_precision("bf16", CPU) == "bf16"


def test_an_unknown_precision_is_refused():
    with pytest.raises(Mistake, match="precision must be one of fp32, bf16, got half"):
        for_inference(nn.Flatten(), shape=(1, 4, 4), precision="half", device=CPU)


@pytest.mark.parametrize(("mean", "std", "left"), [(0.0, 1.0, 0), (0.5, 1.0, 1), (0.0, 0.25, 1)])
def test_a_normalisation_that_does_nothing_is_left_out(mean, std, left):
    torch.manual_seed(0)
    model = nn.Sequential(Normalize([mean], [std]), nn.Flatten(), nn.Linear(9, 3))
    fast = for_inference(model, shape=(1, 3, 3), precision="fp32", device=torch.device("cpu"))
    assert sum(n.target in (operator.sub, operator.truediv) for n in fast.graph.nodes) == left
    images = torch.rand(5, 1, 3, 3)
    assert torch.equal(fast(images), model(images))


def test_a_network_for_which_there_is_no_kernel_does_not_agree():
    class Refuses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("GET was unable to find an engine to execute this computation")

    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    assert agree(model, model, (1, 3, 3), tolerance=0)
    assert not agree(model, Refuses(), (1, 3, 3), tolerance=1)
