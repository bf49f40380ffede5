"""Networks made of any callable: a scikit-learn classifier, an ONNX session, a remote model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macer.kernels.agreement import logits_of
from macer.system.errors import Mistake

Classifier = nn.Module | Callable[[NDArray[np.float32]], Any]


def as_network(model: Classifier, num_classes: int | None = None) -> nn.Module:
    """The model itself, or, if it is another callable than an nn.Module, a network that calls it.

    Args:
        num_classes: the number of classes, which a callable that returns labels does not tell.
    """
    if num_classes is not None and num_classes < 2:
        raise Mistake(f"num_classes must be at least 2, got {num_classes}")
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, type) or not callable(model):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise Mistake(
            "the model must be an nn.Module or a callable from a batch to logits or labels, such "
            f"as classifier.predict_proba, got {kind}"
        )
    return CallableNetwork(model, num_classes)


class CallableNetwork(nn.Module):
    """A network that calls a function with NumPy arrays, and makes logits of its answers.

    The function gets float32 arrays (rows, *shape of an input) of its own, which it may keep and
    change. It returns logits or probabilities, floats (rows, classes), or labels, integers
    (rows,), as a tensor, an array, lists, or an object with `.logits`. A label is a logit of 1
    among zeros.
    """

    def __init__(self, function: Callable[..., Any], num_classes: int | None) -> None:
        super().__init__()
        self.function = function
        self.num_classes = num_classes

    def forward(self, batch: Tensor) -> Tensor:
        """The logits (rows, classes) of a batch, on its device."""
        rows = np.array(batch.detach().cpu().numpy(), dtype=np.float32, order="C")
        answers = _as_array(logits_of(self.function(rows)))
        if answers.shape == (len(batch),) and answers.dtype.kind in "biu":
            return _one_hot(answers.astype(np.int64), self.num_classes).to(batch.device)
        is_logits = answers.ndim == 2 and len(answers) == len(batch) and answers.shape[1] >= 2
        if not is_logits or answers.dtype.kind != "f":
            raise Mistake(
                "the model must return logits, floats of the shape (rows, classes) with two "
                "classes or more, or labels, integers of the shape (rows,), got "
                f"{answers.dtype} of the shape {answers.shape} for {len(batch)} rows"
            )
        return torch.from_numpy(answers).to(batch.device)


def _as_array(answers: object) -> NDArray[Any]:
    """The answers of a callable as an array, which torch may write to."""
    if isinstance(answers, Tensor):
        floats = answers.float() if answers.dtype == torch.bfloat16 else answers
        answers = floats.detach().cpu().numpy()
    try:
        array = np.array(answers)
    except ValueError:  # lists of several lengths
        array = np.array(None)
    return array.astype(array.dtype.newbyteorder("="))


def _one_hot(labels: NDArray[np.int64], num_classes: int | None) -> Tensor:
    if num_classes is None:
        raise Mistake("num_classes must be given for a model that returns labels")
    outside = labels[(labels < 0) | (labels >= num_classes)]
    if len(outside):
        raise Mistake(
            f"labels must be integers from 0 to num_classes − 1, {num_classes - 1}, "
            f"got {outside[0]}; number the model's classes from 0"
        )
    return nn.functional.one_hot(torch.from_numpy(labels), num_classes).float()
