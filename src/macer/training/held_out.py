"""Held-out training images, so that settings are chosen by them and not by test images."""

from collections.abc import Iterable
from pathlib import Path

from macer.data.fingerprint import fingerprint
from macer.data.sets import Split
from macer.recipes import TrainRecipe
from macer.runs.run import Run
from macer.runs.zoo import in_zoo
from macer.system.errors import Mistake
from macer.training.teachers import TEACHERS, models_named


def hold_out(split: Split, recipe: TrainRecipe) -> tuple[Split, Split | None]:
    """The images to train on and, if any, the last ones to validate on."""
    trained = len(split.images) - recipe.held_out
    if trained < recipe.batch:
        raise Mistake(
            f"held_out and batch must not exceed the {len(split.images)} training images together, "
            f"got {recipe.held_out} and {recipe.batch}; lower one of them"
        )
    return split.part(0, trained), split.part(trained) if recipe.held_out else None


def check_held_out(target: str, weights: Path | None = None) -> int:
    """The number of images that a run held out; other models may have seen them and are refused.

    Of an ensemble, the images that all of its members held out.
    """
    run = Run(Path(target))
    if weights is not None or in_zoo(target) or not run.folder.is_dir():
        raise Mistake(
            f"held_out needs a run folder, which says what it held out, got {weights or target}; "
            "name the run, or leave out --held-out"
        )
    recipes = _recipes(run)
    for learner, recipe in recipes.items():
        if not recipe.held_out:
            raise Mistake(
                f"held_out needs a run that held images out, got {learner}; train it with "
                "--held-out N"
            )
        check_teachers(recipe)
    return min(recipe.held_out for recipe in recipes.values())


def _recipes(run: Run) -> dict[Path, TrainRecipe]:
    """The recipe of a run, by its folder; of an ensemble, those of its members."""
    for made in (run, *run.learners()):
        if made.read_manifest().get("floor"):
            raise Mistake(
                f"held_out needs a model that no held-out image has changed, got {made.folder}, "
                "whose offsets training images have chosen; name the run that it was made of"
            )
    return {learner.folder: learner.read_recipe() for learner in run.learners()}


def check_teachers(
    recipe: TrainRecipe, fields: Iterable[str] = TEACHERS, *, pupils: frozenset[str] = frozenset()
) -> None:
    """Refuse teachers that may have learnt from the images that a recipe holds out.

    Args:
        pupils: the names of models that learnt from the recipe's own model.
    """
    named = models_named(recipe)
    for field in fields:
        if name := named.get(field):
            run = Run(Path(name))
            teachers = _recipes(run).values() if run.manifest.is_file() else []
            if min((each.held_out for each in teachers), default=-1) < recipe.held_out:
                raise Mistake(
                    f"{field} must be a run that held out at least {recipe.held_out} images too, "
                    f"got {name}; train it with --held-out {recipe.held_out}"
                )
            if name in pupils:
                raise Mistake(f"{field} must not learn from itself, got {name}; name another run")
            for each in teachers:
                check_teachers(each, pupils=pupils | {name})


def first_held_out(target: str, split: Split) -> int:
    """The number of the first training image that a run held out; all later ones are held out too.

    Args:
        split: the training images of the run; others are refused.
    """
    held_out, sha256 = check_held_out(target), fingerprint(split)
    for learner in Run(Path(target)).learners():
        expected = learner.read_manifest()["data_sha256"]
        if sha256 != expected:
            raise Mistake(
                f"held_out needs the training images of {learner.folder}, of SHA-256 "
                f"{expected[:16]}…, got {sha256[:16]}…; correct --dataset or --data"
            )
    return len(split.images) - held_out
