"""Build models by name: normalisation, then a network from `MODELS` or from the user's code."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from macer.kernels.agreement import logits_of
from macer.models.denoisers import with_denoiser
from macer.models.networks import MODELS, Normalize
from macer.system.errors import Mistake
from macer.system.text import inputs_text
from macer.system.user_code import first_line, import_function, names_a_function, nearest

Shape = tuple[int, ...]  # (channels, height, width) of an image, any of another input


class Logits(nn.Sequential):
    """Layers in sequence; the last one returns an object with `.logits`."""

    def forward(self, images: Tensor) -> Tensor:
        """The logits (images, classes) alone."""
        logits: Tensor = logits_of(super().forward(images))  # type: ignore[no-untyped-call]
        return logits


def build_model(
    name: str,
    *,
    num_classes: int,
    shape: Shape,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    denoiser: str = "none",
    folder: str | None = None,
) -> nn.Sequential:
    """Normalisation and network on the CPU, tried once on zeros of the given shape.

    Initial weights come from torch's global generator, which the caller seeds.

    Args:
        name: a key of `MODELS`, or `package.module:function` for a function that returns an
            nn.Module; the function gets num_classes and channels if it takes them.
        shape: (channels, height, width), or that of another input, whose first size counts as
            its channels.
        mean: (channels,), 0 by default; empty for inputs that are no images, which go in as they
            are
        std: (channels,), 1 by default; empty too
        denoiser: a key of `DENOISERS`, for a network that stands between the two.
        folder: where the function's module is; by default the current folder is searched first.
    """
    channels = shape[0]
    if name in MODELS:
        network = MODELS[name](num_classes=num_classes, channels=channels)
    else:
        check_model(name)
        network = _user_network(name, num_classes=num_classes, channels=channels, folder=folder)
    network = with_denoiser(denoiser, network, channels)
    return normalised(network, name, num_classes=num_classes, shape=shape, mean=mean, std=std)


def check_model(name: str) -> None:
    """Refuse what names neither a network that macer knows nor a function; nothing is imported."""
    if name not in MODELS and not names_a_function(name):
        raise Mistake(
            f"unknown model {name!r}{nearest(name, MODELS)}; choose from {', '.join(MODELS)}, "
            "or name a function of your own as package.module:function"
        )


def normalised(
    network: nn.Module,
    name: str,
    *,
    num_classes: int,
    shape: Shape,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Sequential:
    """Normalisation and a network that there is already, tried as `build_model` does.

    Args:
        name: of the network, for messages.
    """
    normalize: nn.Module = nn.Identity()
    if mean is None or len(mean):
        normalize = Normalize(
            _per_channel("mean", mean, shape[0], default=0.0),
            _per_channel("std", std, shape[0], default=1.0),
        )
    model = nn.Sequential(normalize, network).cpu()
    output = _output_of_zeros(name, model, shape)
    _check_logits(name, logits_of(output), num_classes)
    return model if isinstance(output, Tensor) else Logits(*model)


def _per_channel(
    name: str, values: Sequence[float] | None, channels: int, *, default: float
) -> Sequence[float]:
    if values is None:
        return (default,) * channels
    if len(values) != channels:
        raise Mistake(f"{name} must have {channels} values, one per channel, got {tuple(values)}")
    return values


def _user_network(name: str, *, num_classes: int, channels: int, folder: str | None) -> nn.Module:
    function = import_function(name, folder)
    if isinstance(function, nn.Module):  # it is callable too, but with images
        raise Mistake(f"model {name!r} must be a function that returns an nn.Module, got a network")
    arguments = _accepted(function, num_classes=num_classes, channels=channels)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise Mistake(
            f"model {name!r} must need no arguments but num_classes and channels: {error}; "
            "give the others defaults"
        ) from error
    network = function(**arguments)
    if not isinstance(network, nn.Module):
        raise Mistake(f"model {name!r} must return an nn.Module, got {type(network).__name__}")
    return network


def _accepted(
    function: Callable[..., object], *, num_classes: int, channels: int
) -> dict[str, Any]:
    """The arguments that the function takes.

    A function with **kwargs gets num_classes only, since torchvision's functions pass kwargs to a
    class that takes num_classes but not channels.
    """
    parameters = inspect.signature(function).parameters
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {key for key, value in parameters.items() if value.kind in by_keyword}
    if any(value.kind is inspect.Parameter.VAR_KEYWORD for value in parameters.values()):
        names.add("num_classes")
    arguments = {"num_classes": num_classes, "channels": channels}
    return {key: value for key, value in arguments.items() if key in names}


def _output_of_zeros(name: str, model: nn.Module, shape: Shape) -> object:
    """Run the model once in eval mode; modes, statistics and the generator stay as they were."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return model.eval()(torch.zeros(2, *shape, device="cpu"))
    except Mistake:
        raise
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        reason = _last_line(error) if isinstance(error, torch.jit.Error) else first_line(error)
        raise Mistake(
            f"model {name!r} does not take {inputs_text(shape)}: {reason}; "
            "choose another model or another data set"
        ) from error
    finally:
        for module, training in modes:
            module.training = training


def _last_line(error: Exception) -> str:
    """The reason that TorchScript's interpreter gives at the end, below its trace."""
    return str(error).strip().splitlines()[-1].removeprefix("RuntimeError: ")


def _check_logits(name: str, logits: object, num_classes: int) -> None:
    got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != (2, num_classes):
        raise Mistake(
            f"model {name!r} must return logits of shape (2, {num_classes}) for 2 images, "
            f"got {got}; let its function take num_classes"
        )
