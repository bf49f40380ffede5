"""Several trained models as one run: a model whose logits are the mean of theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from macer.models.ensembles import ENSEMBLE
from macer.models.networks import MODELS
from macer.models.weights import Tensors
from macer.runs.model_file import SHARED, ModelCard, model_bytes
from macer.runs.packed import packed_run
from macer.runs.run import Run
from macer.runs.trained_model import fill, read_model
from macer.system.errors import Mistake


def ensemble(targets: Sequence[str], folder: Path) -> Run:
    """Make a run of the mean of several models' logits.                        [Horvath+22]

    Its model file has the weights of all members and their cards, so that it is complete without
    them. The manifest has their names and the SHA-256 of their files.

    Args:
        targets: each a run folder, a model file or zoo:NAME.
    """
    if len(targets) < 2:
        raise Mistake(f"members must be two models or more, got {', '.join(targets) or 'none'}")
    cards: dict[str, ModelCard] = {}
    hashes: dict[str, str] = {}
    tensors: Tensors = {}
    for i, target in enumerate(targets):
        card, own, file, sha256 = read_model(target)
        _check_member(target, card)
        if sha256 in hashes.values():
            raise Mistake(f"members must be different models, got {target} twice")
        fill(card.build(), card, own, file)
        cards[target], hashes[target] = card, sha256
        tensors |= {f"1.members.{i}.{name}": tensor for name, tensor in own.items()}
    card = _card(cards)
    whole = card.build()
    # Of the outer normalisation, which leaves the inputs as they are.
    tensors |= {name: t for name, t in whole.state_dict().items() if name.startswith("0.")}
    fill(whole, card, tensors, folder)
    return packed_run(folder, model_bytes(tensors, card), {"members": hashes})


def _check_member(target: str, card: ModelCard) -> None:
    if card.members:
        raise Mistake(f"members must be single models, got the ensemble {target}; name its members")
    if card.architecture not in MODELS:
        raise Mistake(
            f"members must be networks that macer knows, got {target}, a {card.architecture}; make "
            "the mean in a function of your own and pack that"
        )


def _card(cards: Mapping[str, ModelCard]) -> ModelCard:
    """The card of the whole, if its members agree in all but network and normalisation."""
    (first, card), *others = cards.items()
    for name in SHARED:
        required = getattr(card, name)
        for target, other in others:
            if (got := getattr(other, name)) != required:
                raise Mistake(
                    f"{name} must be that of {first}, {_text(required)}, got {_text(got)} in "
                    f"{target}; members must agree"
                )
    channels = len(card.mean)
    return replace(
        card,
        architecture=ENSEMBLE,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        denoiser="none",
        members=tuple(cards.values()),
    )


def _text(value: object) -> str:
    """A value of a card; of classes, as many as a line has room for."""
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
