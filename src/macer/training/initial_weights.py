"""The weights that a training begins with: of a file, a run or the zoo, unless they are fresh."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from macer.data.sets import Split
from macer.models.denoisers import Denoised
from macer.models.normalisation import Normalisation, check_normalisation
from macer.models.unfold import folded_norms, unfold
from macer.models.weights import Weights, load_weights, read_weights
from macer.recipes import TrainRecipe
from macer.runs.checkpoints import has_checkpoint
from macer.runs.model_file import ModelCard
from macer.runs.run import Run
from macer.runs.trained_model import check_source, model_file
from macer.runs.zoo import in_zoo
from macer.system.errors import Mistake
from macer.system.progress import note
from macer.system.typed import require_type
from macer.system.user_code import names_a_function
from macer.training.batches import as_floats
from macer.training.freezing import freeze

_IMAGES = 512  # that give folded batch-norms their statistics


class InitialWeights(NamedTuple):
    """The weights that a training begins with, if it does not begin with fresh ones."""

    target: Path | str  # as the user wrote it
    weights: Weights


def find_initial(init: Path | str | None, run: Run, *, resume: bool) -> InitialWeights | None:
    """Read what a training begins with; a run that has a checkpoint begins with that alone.

    Args:
        init: a file of torch.save or of safetensors, a run folder, or zoo:NAME.
    """
    require_type("init", init, Path | str | None, "a file of weights, a run or zoo:NAME")
    resumed = resume and run.manifest.is_file()
    recorded = run.read_manifest().get("init") if resumed else None
    if resumed and recorded is None and init is not None:
        raise Mistake(
            f"init must be left out to resume {run.folder}, which began without one, got {init}"
        )
    if resumed and has_checkpoint(run):
        return None
    if init is None:
        if recorded is not None:
            raise Mistake(
                f"init must be given to resume {run.folder}, which has no checkpoint yet; add "
                f"--init {recorded.get('file')}"
            )
        return None
    initial = _read(init)
    if recorded is not None and recorded.get("sha256") != initial.weights.sha256:
        raise Mistake(
            f"init must be the file that {run.folder} began with; the SHA-256 of {init} differs"
        )
    return initial


def _read(init: Path | str) -> InitialWeights:
    path = Path(init)
    file = model_file(init) if in_zoo(init) or path.is_dir() else path
    weights = read_weights(file)
    check_source(init, file, weights.sha256)
    return InitialWeights(init, weights)


def load_initial(
    model: nn.Sequential,
    initial: InitialWeights,
    recipe: TrainRecipe,
    card: ModelCard,
    split: Split,
) -> dict[str, Any]:
    """Load the initial weights into a fresh model; return what the manifest says of them.

    Args:
        split: the training images.
    """
    weights, network = initial.weights, model.get_submodule("1")
    loaded = network
    if isinstance(network, Denoised):
        loaded = network.classifier
        place = load_weights(loaded, weights, recipe.model, num_classes=len(card.classes))
        if place.new:
            raise Mistake(
                f"init must know the {len(card.classes)} classes of the data set, since the "
                f"classifier behind a denoiser stays as it is, got others in {weights.path}; train "
                "it first without a denoiser"
            )
        new = [f"1.denoiser.{name}" for name, _ in network.denoiser.named_parameters()]
    else:
        place = load_weights(network, weights, recipe.model, num_classes=len(card.classes))
        new = [f"1.{name}" for name in place.new]
        if new:
            note(f"{weights.path} knows other classes: {', '.join(place.new)} begin anew")
    given = Normalisation(card.mean, card.std)
    check_normalisation(weights, place, recipe.model, given=given, asked=recipe.normalise)
    target = initial.target
    name = str(target) if in_zoo(target) else Path(target).resolve().name
    record: dict[str, Any] = {"file": name, "sha256": weights.sha256, "new": new}
    if count := _unfold(model, loaded, recipe, split):
        note(
            f"{count} batch-norms of {weights.path} were folded into the layers before them: they "
            "get the statistics of training images, and the network's outputs stay"
        )
        record["unfolded"] = count
    return record


def _unfold(model: nn.Sequential, loaded: nn.Module, recipe: TrainRecipe, split: Split) -> int:
    """Give folded batch-norms that are to be trained the statistics of training images.

    Args:
        loaded: the part that the weights are of; fresh batch-norms look like folded ones.
    """
    norms = folded_norms(loaded, keep=freeze(model, recipe).parts)
    if not norms:
        return 0
    places = np.unique(np.linspace(0, len(split.labels) - 1, _IMAGES).astype(np.int64))
    images = as_floats(torch.from_numpy(np.asarray(split.images[places])))
    unfold(model, norms, images)
    return len(norms)


def check_initial_settings(recipe: TrainRecipe, record: dict[str, Any] | None) -> None:
    """Refuse settings that need initial weights, or that have no effect with these.

    Args:
        record: what the manifest says of the initial weights; None for fresh ones.
    """
    if recipe.loss.name == "denoising" and recipe.denoiser == "none":
        raise Mistake("denoiser must be given with the loss denoising; add --denoiser dncnn")
    if recipe.denoiser != "none" and record is None:
        raise Mistake(
            f"init must be given with a denoiser, for {recipe.model}'s weights; add --init FILE"
        )
    frozen = "freeze" if recipe.freeze else "freeze_all_but"
    # A function of one's own may return a network that has its weights already.
    if getattr(recipe, frozen) and record is None and not names_a_function(recipe.model):
        raise Mistake(
            f"init must be given with {frozen}, which would keep random weights as they are; add "
            "--init FILE"
        )
    if recipe.new_lr_factor != 1 and not (record and record["new"]):
        reason = "with an init that gives every weight" if record else "without an init"
        raise Mistake(f"new_lr_factor must be 1 {reason}, got {recipe.new_lr_factor}")


def check_unseen(initial: InitialWeights, recipe: TrainRecipe, data_sha256: str) -> None:
    """Refuse a run that learnt from the images that are held out; say if nobody knows."""
    if not recipe.held_out:
        return
    init, run = initial.target, Run(Path(initial.target))
    manifest = run.read_manifest() if run.manifest.is_file() else {"recipe": None}
    if manifest["recipe"] is None:
        note(f"{init} may have learnt from the held-out images, whose scores are then too high")
    elif manifest["data_sha256"] == data_sha256 and run.read_recipe().held_out < recipe.held_out:
        raise Mistake(
            f"init must be a run that held out at least {recipe.held_out} images too, got {init}; "
            f"train it with --held-out {recipe.held_out}"
        )
