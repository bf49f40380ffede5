"""Networks: shapes, names and counts of published checkpoints, and what is refused."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from macer.models.build import build_model
from macer.models.networks import MODELS, Normalize
from macer.system.errors import Mistake

SHAPES = {"lenet": (1, 28, 28), "resnet50": (3, 64, 64)}
CIFAR = (3, 32, 32)
every_model = pytest.mark.parametrize("name", MODELS)


def built(name: str, *, num_classes: int = 10, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return build_model(name, num_classes=num_classes, shape=SHAPES.get(name, CIFAR))


def images(name: str, count: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, *SHAPES.get(name, CIFAR), generator=generator)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def with_random_statistics(model: nn.Sequential) -> nn.Sequential:
    """Make every batch-norm matter: fresh ones are the identity in eval mode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean):
                assert tensor is not None
                tensor.uniform_(-0.5, 1.0)
            assert module.running_var is not None
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


# Reference


def literal_lenet(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    for layer in ("conv1", "conv2"):
        x = F.relu(F.conv2d(x, weights[f"{layer}.weight"], weights[f"{layer}.bias"]))
        x = F.max_pool2d(x, 2)
    x = F.relu(F.linear(x.reshape(-1, 800), weights["fc1.weight"], weights["fc1.bias"]))
    return F.linear(x, weights["fc2.weight"], weights["fc2.bias"])


def literal_conv_bn(
    weights: dict[str, Tensor], conv: str, bn: str, x: Tensor, stride: int
) -> Tensor:
    kernel = weights[f"{conv}.weight"]
    x = F.conv2d(x, kernel, stride=stride, padding=(kernel.shape[-1] - 1) // 2)
    mean, var, scale, shift = (
        weights[f"{bn}.{key}"].view(-1, 1, 1)
        for key in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / torch.sqrt(var + 1e-5) * scale + shift


def literal_resnet(
    weights: dict[str, Tensor], x: Tensor, *, blocks: tuple[int, ...], convs: int
) -> Tensor:
    stem = weights["conv1.weight"].shape[-1]
    x = F.relu(literal_conv_bn(weights, "conv1", "bn1", x, 1 if stem == 3 else 2))
    if stem == 7:
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    for stage, count in enumerate(blocks, start=1):
        for i in range(count):
            block, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            out = x
            for c in range(1, convs + 1):
                # The stride sits in the 3×3 convolution: the first of two, the second of three.
                s = stride if c == convs - 1 else 1
                out = literal_conv_bn(weights, f"{block}.conv{c}", f"{block}.bn{c}", out, s)
                out = F.relu(out) if c < convs else out
            if f"{block}.downsample.0.weight" in weights:
                shortcut = f"{block}.downsample"
                x = literal_conv_bn(weights, f"{shortcut}.0", f"{shortcut}.1", x, stride)
            elif stride == 2:  # option A: zeros in the first and the last quarter of the channels
                x, small = torch.zeros_like(out), x[:, :, ::2, ::2]
                x[:, small.shape[1] // 2 : small.shape[1] * 3 // 2] = small
            x = F.relu(out + x)
    last = "fc" if "fc.weight" in weights else "linear"
    return F.linear(x.mean(dim=(2, 3)), weights[f"{last}.weight"], weights[f"{last}.bias"])


def test_lenet_is_relu_then_pool_with_its_gradients() -> None:
    model, x = built("lenet"), images("lenet", 4)
    weights = {key: value.detach().requires_grad_() for key, value in model[1].state_dict().items()}
    model(x).square().sum().backward()
    literal = literal_lenet(weights, x)
    torch.autograd.backward(literal.square().sum())
    torch.testing.assert_close(model(x), literal)
    for key, parameter in model[1].named_parameters():
        torch.testing.assert_close(parameter.grad, weights[key].grad)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "blocks", "convs"),
    [
        ("resnet18", (2, 2, 2, 2), 2),
        ("resnet20", (3, 3, 3), 2),
        ("resnet20a", (3, 3, 3), 2),
        ("resnet50", (3, 4, 6, 3), 3),
        ("resnet110", (18, 18, 18), 2),
        ("small12", (1, 2, 2), 2),
        ("wide14", (4, 2), 2),
    ],
)
def test_resnets_are_their_paper_layer_by_layer(
    name: str, blocks: tuple[int, ...], convs: int
) -> None:
    # float64, since random statistics make the activations of 110 layers grow.
    model, x = with_random_statistics(built(name)).double(), images(name, 2).double()
    with torch.no_grad():
        literal = literal_resnet(model[1].state_dict(), x, blocks=blocks, convs=convs)
        torch.testing.assert_close(model(x), literal)


# Laws


def products(name: str) -> int:
    """The products in the convolutions and linear layers of a network, for one image."""
    counts = []

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        counts.append(output.numel() * layer.weight[0].numel())

    model = built(name).eval()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        model(images(name, 1))
    return sum(counts)


def test_small12_is_at_least_eight_times_cheaper_than_wide14() -> None:
    assert products("small12") == pytest.approx(49.0e6, rel=0.01)
    assert products("wide14") > 8.9 * products("small12")


@pytest.mark.medium
@every_model
def test_a_model_is_normalisation_then_network(name: str) -> None:
    model, x = built(name), images(name, 2)
    assert [type(model), type(model[0])] == [nn.Sequential, Normalize]
    assert model(x).shape == (2, 10)


def test_normalisation_is_x_minus_mean_over_std() -> None:
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    x = torch.rand(2, 3, 5, 5)
    normalised = Normalize(mean, std)(x)
    for c in range(3):
        torch.testing.assert_close(normalised[:, c], (x[:, c] - mean[c]) / std[c])


def test_normalisation_gives_a_data_set_mean_0_and_std_1() -> None:
    x = torch.rand(64, 3, 8, 8)
    channels = x.transpose(0, 1).flatten(1)
    y = Normalize(channels.mean(1).tolist(), channels.std(1).tolist())(x)
    y = y.transpose(0, 1).flatten(1)
    torch.testing.assert_close(y.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.std(1), torch.ones(3))


def test_identity_normalisation_leaves_every_bit() -> None:
    x = torch.randn(2, 3, 5, 5)
    assert torch.equal(Normalize((0, 0, 0), (1, 1, 1))(x), x)


def test_statistics_are_saved_with_the_model() -> None:
    model = build_model("resnet20", num_classes=10, shape=CIFAR, mean=(0.1, 0.2, 0.3))
    weights = model.state_dict()
    assert weights["0.mean"].shape == weights["0.std"].shape == (3, 1, 1)
    torch.testing.assert_close(weights["0.mean"].flatten(), torch.tensor([0.1, 0.2, 0.3]))
    assert torch.equal(weights["0.std"], torch.ones(3, 1, 1))


@every_model
def test_rows_are_independent_in_eval_mode(name: str) -> None:
    model = with_random_statistics(built(name))
    x, others = images(name, 3), images(name, 3, seed=1)
    others[1] = x[1]
    with torch.no_grad():
        assert torch.equal(model(x)[1], model(others)[1])


@every_model
def test_channels_last_gives_the_same_logits(name: str) -> None:
    model, x = built(name).eval(), images(name, 2)
    with torch.no_grad():
        expected = model(x)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        actual = model(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@every_model
def test_the_seed_decides_the_weights(name: str) -> None:
    first, again, other = built(name), built(name), built(name, seed=1)
    for key, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[key])
    key = next(name for name, _ in first.named_parameters())
    assert not torch.equal(first.state_dict()[key], other.state_dict()[key])


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("lenet", -0.001497364, -0.038807265),
        ("resnet18", -0.050278898, 0.019653654),
        ("resnet20", 0.089562409, 0.063360229),
        ("wide14", 0.020833690, 0.060994111),
    ],
)
def test_a_seed_gives_the_weights_it_always_gave(name: str, first: float, last: float) -> None:
    parameters = list(built(name).parameters())
    assert float(parameters[0].detach().flatten()[0]) == pytest.approx(first, abs=1e-6)
    assert float(parameters[-1].detach().flatten()[-1]) == pytest.approx(last, abs=1e-6)


@pytest.mark.parametrize("name", ["lenet", "resnet20"])
def test_building_draws_what_the_network_alone_draws(name: str) -> None:
    torch.manual_seed(0)
    MODELS[name](num_classes=10, channels=SHAPES.get(name, CIFAR)[0])
    expected = torch.get_rng_state()
    built(name)
    assert torch.equal(torch.get_rng_state(), expected)


def test_building_leaves_a_model_in_training_mode_with_fresh_statistics() -> None:
    model = built("resnet20")
    assert all(module.training for module in model.modules())
    assert int(model.state_dict()["1.bn1.num_batches_tracked"]) == 0


def test_convolutions_have_he_variance() -> None:
    for key, weight in built("resnet18").named_parameters():
        if weight.dim() == 4 and weight.numel() > 100_000:
            variance = 2 / (weight.shape[0] * weight.shape[2] * weight.shape[3])
            assert float(weight.detach().var()) == pytest.approx(variance, rel=0.03), key


@pytest.mark.parametrize("name", ["lenet", "resnet20"])
def test_gradients_per_image_through_torch_func(name: str) -> None:
    model, x = built(name).eval(), images(name, 2)
    weights: dict[str, Tensor] = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor], image: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, weights, (image[None],))
        return logits.logsumexp(1).sum()

    per_image = vmap(grad(loss), in_dims=(None, 0))(weights, x)
    model(x).logsumexp(1).sum().backward()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(per_image[key].sum(0), parameter.grad, atol=1e-4, rtol=1e-3)


# Known values


@pytest.mark.parametrize(
    ("name", "num_classes", "count"),
    [
        # conv1 25·20 + 20, conv2 25·20·50 + 50, fc1 800·500 + 500, fc2 500·10 + 10
        ("lenet", 10, 520 + 25_050 + 400_500 + 5_010),
        # Stem 27·16 + 32 = 464. A block of width w has 18w² + 4w: 4,672, 18,560 and 73,984 at
        # w = 16, 32, 64; one that comes from w/2 has 9w²/2 + 9w² + 4w and a shortcut of
        # w²/2 + 2w: 14,528 and 57,728. fc 64·10 + 10 = 650. A stage has n blocks.
        ("resnet20", 10, 464 + 3 * 4_672 + 14_528 + 2 * 18_560 + 57_728 + 2 * 73_984 + 650),
        ("resnet110", 10, 464 + 18 * 4_672 + 14_528 + 17 * 18_560 + 57_728 + 17 * 73_984 + 650),
        # The same with w = 64, 128, 256, 512: stem 27·64 + 128, fc 512·10 + 10.
        (
            "resnet18",
            10,
            1_856
            + sum(18 * w**2 + 4 * w for w in (64, 64, 128, 256, 512))
            + sum(14 * w**2 + 6 * w for w in (128, 256, 512))
            + 5_130,
        ),
        # w = 128, 256, and a stem of 48·128 + 256: fc 256·10 + 10.
        (
            "wide14",
            10,
            6_400
            + 4 * (18 * 128**2 + 4 * 128)
            + (14 * 256**2 + 6 * 256)
            + (18 * 256**2 + 4 * 256)
            + 2_570,
        ),
        # w = 48, 96, 192, and a stem of 48·48 + 96: fc 192·10 + 10.
        (
            "small12",
            10,
            2_400
            + sum(18 * w**2 + 4 * w for w in (48, 96, 192))
            + sum(14 * w**2 + 6 * w for w in (96, 192))
            + 1_930,
        ),
        # Published with torchvision's weights.
        ("resnet50", 1000, 25_557_032),
    ],
)
def test_parameter_counts(name: str, num_classes: int, count: int) -> None:
    assert parameters(built(name, num_classes=num_classes)) == count


def test_published_parameter_counts() -> None:
    assert parameters(built("resnet110")) == 1_730_714
    assert parameters(built("resnet20")) == 272_474
    assert parameters(built("resnet20a")) == 269_722  # "0.27M" [He+16, table 6]
    assert parameters(built("resnet18")) == 11_173_962
    assert parameters(built("lenet")) == 431_080


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("lenet", {"conv2.weight": (50, 20, 5, 5), "fc1.weight": (500, 800), "fc2.bias": (10,)}),
        (
            "resnet110",
            {
                "conv1.weight": (16, 3, 3, 3),
                "bn1.running_mean": (16,),
                "layer1.17.conv2.weight": (16, 16, 3, 3),
                "layer2.0.downsample.0.weight": (32, 16, 1, 1),
                "layer3.0.downsample.1.running_var": (64,),
                "fc.weight": (10, 64),
            },
        ),
        (
            "resnet50",
            {
                "conv1.weight": (64, 3, 7, 7),
                "layer1.0.downsample.0.weight": (256, 64, 1, 1),
                "layer2.0.conv2.weight": (128, 128, 3, 3),
                "layer3.5.bn3.num_batches_tracked": (),
                "layer4.2.conv3.weight": (2048, 512, 1, 1),
                "fc.bias": (10,),
            },
        ),
    ],
)
def test_names_and_shapes_of_published_checkpoints(
    name: str, shapes: dict[str, tuple[int, ...]]
) -> None:
    weights = built(name)[1].state_dict()
    assert {key: tuple(weights[key].shape) for key in shapes} == shapes


def test_resnet50_has_as_many_entries_as_torchvisions() -> None:
    # 53 convolutions, 53 batch-norms of 5 entries, fc of 2
    assert len(built("resnet50")[1].state_dict()) == 53 + 53 * 5 + 2


@pytest.mark.parametrize("name", [name for name in MODELS if name != "lenet"])
def test_resnets_take_grey_images(name: str) -> None:
    model = build_model(name, num_classes=7, shape=(1, 28, 28))
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


# A user's own functions

NETS = """
import torch
from torch import nn

def both(num_classes, channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 64, num_classes))

def neither():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))

def keywords(**kwargs):
    assert set(kwargs) == {"num_classes"}
    return both(channels=3, **kwargs)

def frozen():
    network = neither()
    network[1].eval()
    return network

class Noisy(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.classes = num_classes

    def forward(self, x):
        return torch.randn(len(x), self.classes)

def recurrent():
    return nn.LSTM(8, 8)

class Pair(nn.Module):
    def forward(self, x):
        return x, x

def pair():
    return Pair()

def a_number():
    return 3

def needs_depth(num_classes, depth):
    return both(num_classes, 3)

network = neither()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users_nets.py").write_text(NETS)
    (tmp_path / "users_slip.py").write_text("def build(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "users_nets", raising=False)
    return tmp_path


def foreign(function: str, *, num_classes: int = 10) -> nn.Sequential:
    return build_model(f"users_nets:{function}", num_classes=num_classes, shape=(3, 8, 8))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("function", ["both", "neither", "keywords", "Noisy"])
def test_a_function_in_the_current_folder_is_given_what_it_takes(function: str) -> None:
    path = list(sys.path)
    assert foreign(function)(torch.zeros(5, 3, 8, 8)).shape == (5, 10)
    assert sys.path == path


@pytest.mark.usefixtures("folder")
def test_trying_a_model_keeps_its_modes_and_the_generator() -> None:
    model = foreign("frozen")
    assert [module.training for module in model[1].modules()] == [True, True, False]
    state = torch.get_rng_state()
    foreign("Noisy")
    assert torch.equal(torch.get_rng_state(), state)


# Refusals


def refusal(build: Callable[[], object]) -> str:
    with pytest.raises(Mistake) as caught:
        build()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["lenett", "", "my nets:build", ":build", ".nets:build"])
def test_an_unknown_name_is_refused_with_the_choices(name: str) -> None:
    hint = ", did you mean 'lenet'?" if name == "lenett" else ""
    assert refusal(lambda: build_model(name, num_classes=10, shape=CIFAR)) == (
        f"unknown model {name!r}{hint}; choose from lenet, mobilenetv2, "
        "mobilenetv2-same, resnet18, resnet20, resnet20a, resnet50, resnet110, "
        "small12, wide14, or name a function of your own as package.module:function"
    )


def test_lenet_refuses_images_of_another_size() -> None:
    assert refusal(lambda: build_model("lenet", num_classes=10, shape=CIFAR)) == (
        "model 'lenet' does not take 3×32×32 images: mat1 and mat2 shapes cannot be multiplied "
        "(2x1250 and 800x500); choose another model or another data set"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "users_nest:both",
            "cannot import module 'users_nest': No module named 'users_nest'; "
            "install it or run in the folder that holds it",
        ),
        ("users_slip:build", r"re:cannot import module 'users_slip': .*\(users_slip.py, line 1\)"),
        (
            "users_nets:neihter",
            "no function 'neihter' in module 'users_nets', did you mean 'neither'?",
        ),
        ("users_nets:", r"re:unknown model 'users_nets:'; choose from lenet"),
        (
            "users_nets:network",
            "model 'users_nets:network' must be a function that returns an nn.Module, "
            "got a network",
        ),
        ("users_nets:a_number", "model 'users_nets:a_number' must return an nn.Module, got int"),
        (
            "users_nets:needs_depth",
            "model 'users_nets:needs_depth' must need no arguments but num_classes and channels: "
            "missing a required argument: 'depth'; give the others defaults",
        ),
        ("users_nets:recurrent", r"re:model 'users_nets:recurrent' does not take 3×8×8 images"),
        (
            "users_nets:pair",
            "model 'users_nets:pair' must return logits of shape (2, 7) for 2 images, got tuple; "
            "let its function take num_classes",
        ),
        (
            "users_nets:neither",
            "model 'users_nets:neither' must return logits of shape (2, 7) for 2 images, "
            "got (2, 10); let its function take num_classes",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_foreign_function_that_does_not_fit_is_refused(name: str, message: str) -> None:
    actual = refusal(lambda: build_model(name, num_classes=7, shape=(3, 8, 8)))
    if message.startswith("re:"):
        assert re.match(message.removeprefix("re:"), actual)
    else:
        assert actual == message


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), None, "mean must have 3 values, one per channel, got (0.5,)"),
        (None, (1.0, 1.0), "std must have 3 values, one per channel, got (1.0, 1.0)"),
        (None, (1.0, 0.0, 1.0), "std must be finite and > 0, got (1.0, 0.0, 1.0)"),
        ((0.0, float("nan"), 0.0), None, "mean must be finite, got (0.0, nan, 0.0)"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, message: str
) -> None:
    assert message == refusal(
        lambda: build_model("resnet20", num_classes=10, shape=CIFAR, mean=mean, std=std)
    )
