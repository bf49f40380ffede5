"""A network of one's own as a run: to be certified and deployed without naming it again."""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from macer.certification.target import Target, find_target, is_trained, trained_target
from macer.data.sets import Split
from macer.models.graph_files import GRAPHS, TORCHSCRIPT, graph_kind
from macer.models.networks import Normalize
from macer.runs.model_file import ModelCard, model_bytes
from macer.runs.packed import packed_run
from macer.runs.run import Run
from macer.runs.trained_model import GRAPH
from macer.system.errors import Mistake
from macer.system.files import read_file
from macer.system.user_code import own_modules


def pack(
    name: str,
    folder: Path,
    *,
    sigma: float,
    dataset: str,
    split: Split,
    classes: Sequence[str],
    weights: Path | None = None,
    normalise: str | None = None,
    code: Collection[str] = (),
) -> Run:
    """Make a run of package.module:function, a network that macer knows, or a file with a network.

    Its model file has the weights, and a card with the network's name, the classes and the shape of
    the data set, the normalisation and σ. The manifest has the SHA-256 of that file and of the file
    that the weights came from, and a seal if the code is the user's own. There is no recipe, since
    nothing is known about the training. A file of ONNX or TorchScript is kept in the model file.

    Args:
        dataset: its name, for the card.
        split: of its images, whose shape the network must take.
        classes: the names of its classes.
        weights: see `find_target`, as `normalise` and `code`.
    """
    if weights is None and is_trained(name):
        trained_target(name, code=code)  # refuses a file that is no model of macer's
        raise Mistake(
            f"network must be one by its name, got {name}, a model that needs no packing: certify, "
            "predict and export take it as it is"
        )
    target = find_target(
        name, sigma=sigma, split=split, classes=classes, weights=weights, normalise=normalise,
        code=code,
    )  # fmt: skip
    card = _card(target, tuple(classes), dataset)
    content, own = _model_content(target, card, split), own_modules(name, dataset)
    file = weights or (Path(name) if card.architecture in GRAPHS else None)
    source = {"file": file.name, "sha256": target.weights_sha256} if file else None
    if card.architecture == TORCHSCRIPT:  # the user has said that she trusts it
        own.append({"module": TORCHSCRIPT, "folder": "", "sha256": target.weights_sha256})
    packed = {"network": name, "weights": source}
    return packed_run(folder, content, {"packed": packed}, own)


def _model_content(target: Target, card: ModelCard, split: Split) -> bytes:
    """The content of the model file: the weights, or the whole of a file with a network."""
    if card.architecture not in GRAPHS:
        _check_rebuilt(target.model, card, split)
        return model_bytes(target.model.state_dict(), card)
    content = read_file(Path(target.name))
    if hashlib.sha256(content).hexdigest() != target.weights_sha256:
        raise Mistake(f"{target.name} must not change while it is packed; pack it again")
    return model_bytes({GRAPH: torch.frombuffer(bytearray(content), dtype=torch.uint8)}, card)


def _card(target: Target, classes: tuple[str, ...], dataset: str) -> ModelCard:
    normalize = target.model.get_submodule("0")
    assert isinstance(normalize, Normalize)
    return ModelCard(
        architecture=graph_kind(target.name) or target.name,
        classes=classes,
        shape=target.shape,
        mean=tuple(normalize.mean.flatten().tolist()),
        std=tuple(normalize.std.flatten().tolist()),
        sigma=target.sigma,
        dataset=dataset,
    )


def _check_rebuilt(model: nn.Module, card: ModelCard, split: Split) -> None:
    """Refuse a function that does not build the same network again, which loading needs."""
    again = card.build()
    again.load_state_dict(model.state_dict())
    first = list(range(min(2, len(split.images))))
    images = torch.from_numpy(np.asarray(split.images[first])).float() / 255
    with torch.inference_mode():
        if not torch.equal(model.eval()(images), again.eval()(images)):
            raise Mistake(
                f"{card.architecture} must give the same logits when it is called again and given "
                "the same weights; keep what decides them in parameters, buffers or constants"
            )
