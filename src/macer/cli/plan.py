"""`macer plan`: what a certification, and a training before it, take on this machine."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.parameters import Code, Data, Device, Precision, Size, Threads, computing_device
from macer.cli.plan_images import (
    check_left_out,
    planned_images,
    read_leniently,
    sized_data_set,
)
from macer.cli.printing import Result, print_line, print_table
from macer.recipes import TrainRecipe, Whole
from macer.recipes.bound_names import FixedBoundName
from macer.system.errors import Mistake
from macer.system.text import counted, duration, rate_text, shape_text

if TYPE_CHECKING:
    import torch

    from macer.certification.budget import PlannedCertification, RadiusBudget
    from macer.certification.target import Target


USUAL_IMAGES = 500  # the paper certifies as many


@dataclass(frozen=True)
class TrainingBudget:
    """What a training takes, validation apart."""

    recipe: str
    epochs: int
    steps: int
    samples_per_second: float
    seconds: float
    cost: float | None


def plan(
    target: str | None = None,
    /,
    *,
    radius: Annotated[tuple[float, ...], Parameter(consume_multiple=True)] = (),
    images: Whole | None = None,
    n0: Whole = 100,
    n: Whole = 100_000,
    alpha: float = 0.001,
    bound: FixedBoundName = "clopper-pearson",
    sigma: float | None = None,
    dataset: str | None = None,
    data: Data = None,
    size: Size = None,
    shape: str | None = None,
    classes: Whole | None = None,
    train: str | None = None,
    price: float | None = None,
    exact: bool = True,
    row_by_row: bool = False,
    precision: Precision = "auto",
    batch_size: Whole | None = None,
    code: Code = (),
    device: Device = "auto",
    threads: Threads = None,
) -> Result:
    """Say beforehand what a certification takes here: samples, time and cost.

    The network is prepared and tried as certify does it, then sampled for about three seconds.

    Parameters
    ----------
    target
        A run folder, a model file, zoo:NAME, package.module:function, or a network that macer
        knows, such as resnet110; weights do not matter. With train, the recipe's by default.
    radius
        Radii that images are to be certified at.
    images
        Number of images; by default the test images of photographs or of a function that the plan
        reads, else 500.
    n0
        Samples that select the class.
    n
        Other samples that bound its probability.
    alpha
        Probability that a certificate is false, for each image.
    bound
        Bound of the certificates, as for certify.
    sigma
        Noise level; needed only for a function or a network by name.
    dataset
        Data set, or package.module:function, whose shape and classes a function or a network by
        name takes; with train, the one to train on, the recipe's by default.
    shape
        Instead of a data set: channels, height and width, such as 3x32x32.
    classes
        Instead of a data set: the number of classes.
    train
        Time a few steps of this recipe on its training images too.
    price
        What an hour of this machine costs.
    exact
        Integer noise, as certify draws it for 8-bit images.
    row_by_row
        Show the network one noisy image at a time.
    batch_size
        Noisy images the network sees at once.
    """
    from macer.certification.budget import PlannedCertification
    from macer.certification.pace import measured_pace
    from macer.losses import load_recipe

    recipe = load_recipe(train, code=code) if train else None
    _check_numbers(images=images, batch_size=batch_size, classes=classes, price=price)
    dataset = sized_data_set(dataset, size, recipe)
    if recipe is not None and dataset is not None:
        recipe = replace(recipe, dataset=dataset)
    model, tested = _target(target, recipe, sigma, dataset, data, shape, classes, code)
    _check_settings(radius, sigma=model.sigma, n0=n0, n=n, alpha=alpha, bound=bound)
    processor = computing_device(device, threads)
    pace = measured_pace(
        model, device=processor, precision=precision, exact=exact, row_by_row=row_by_row,
        betas=_betas(bound), batch_size=batch_size,
    )  # fmt: skip
    planned = PlannedCertification(
        pace, images or tested or USUAL_IMAGES, model.sigma, alpha, n0, n, bound, price
    )
    training = _training(train, recipe, data, code, processor, price) if train and recipe else None
    return _print_plan(model, planned, radius, training, processor)


def _check_numbers(**numbers: float | None) -> None:
    for name, value in numbers.items():
        least = 0 if name == "price" else 1
        if value is not None and not least <= value < float("inf"):
            raise Mistake(f"{name} must be at least {least}, got {value:g}")


def _check_settings(
    radii: tuple[float, ...], *, sigma: float, n0: int, n: int, alpha: float, bound: str
) -> None:
    """Refuse what can never succeed, before anything is measured."""
    from macer.certification.reach import check_reach
    from macer.certification.settings import check_settings

    check_settings(sigma=sigma, n0=n0, n=n, alpha=alpha, bound=bound)
    for radius in radii:
        check_reach(radius, n=n, sigma=sigma, alpha=alpha, bound=bound)


def _betas(bound: str) -> tuple[float, ...]:
    """The inverse temperatures of the soft moments; only their number matters for the time."""
    from macer.certification.largest_radius import Kind, soft_betas

    return soft_betas([Kind(bound, 1.0)])


def _target(
    name: str | None,
    recipe: TrainRecipe | None,
    sigma: float | None,
    dataset: str | None,
    data: Data,
    shape: str | None,
    classes: int | None,
    code: Code,
) -> tuple["Target", int | None]:
    """The network to plan for, and the test images of a data set that was read for it.

    The network of a recipe has the recipe's σ and data set.
    """
    from macer.certification.target import is_trained, trained_target, untrained_target

    if name is None and recipe is None:
        raise Mistake("target must be given without train; name a run or a network")
    if name is not None and is_trained(name):
        known, card = trained_target(name, code=code)
        card.require_images(name)
        check_left_out(name, dataset=dataset, shape=shape, classes=classes)
        if sigma not in (None, known.sigma):
            raise Mistake(f"sigma must be {known.sigma}, that of {name}, got {sigma}")
        return known, None
    if recipe is not None:
        name, sigma = name or recipe.model, recipe.sigma if sigma is None else sigma
        dataset = dataset or (None if shape else recipe.dataset)
    assert name is not None
    _check_name(name)
    if sigma is None:
        raise Mistake(f"sigma must be given to plan for {name}; add --sigma")
    inputs = planned_images(name, dataset, data, shape, classes)
    denoiser = recipe.denoiser if recipe is not None and name == recipe.model else "none"
    untrained = untrained_target(
        name, sigma=sigma, shape=inputs.shape, num_classes=inputs.classes, denoiser=denoiser,
        code=code,
    )  # fmt: skip
    return untrained, inputs.tested


def _check_name(name: str) -> None:
    """Refuse what is neither a run nor a network, before anything else is asked of it."""
    from macer.models.graph_files import graph_kind
    from macer.models.networks import MODELS
    from macer.system.user_code import names_a_function, nearest

    if not (name in MODELS or names_a_function(name) or graph_kind(name)):
        raise Mistake(
            f"unknown model {name!r}{nearest(name, MODELS)}; name a run folder, a model file, "
            f"package.module:function, or one of {', '.join(MODELS)}"
        )


def _training(
    name: str,
    recipe: TrainRecipe,
    data: Data,
    code: Code,
    device: "torch.device",
    price: float | None,
) -> TrainingBudget:
    """Time a few steps of a recipe on its data."""
    from macer.certification.budget import cost
    from macer.data.arrays import class_names
    from macer.system.progress import bar
    from macer.training.preparation import first_trainer
    from macer.training.speed import steps_per_second

    split = read_leniently(recipe.dataset, "train", data)
    with bar("taking training steps", 1, "rounds", transient=True):
        trainer = first_trainer(recipe, split, class_names(None, split), device=device, code=code)
        rate = steps_per_second(trainer)
    steps = recipe.epochs * trainer.steps_per_epoch
    seconds = steps / rate
    return TrainingBudget(
        name, recipe.epochs, steps, rate * trainer.samples, seconds, cost(seconds, price)
    )


def _print_plan(
    model: "Target",
    planned: "PlannedCertification",
    radii: tuple[float, ...],
    training: TrainingBudget | None,
    device: "torch.device",
) -> Result:
    from macer.certification.budget import cost

    pace, asked = planned.pace, planned.size(planned.n)
    sizes, needs = planned.sizes(), [planned.radius(radius) for radius in radii]
    seconds = asked.seconds + (training.seconds if training else 0.0)
    threads = f"{pace.threads} thread{'s' if pace.threads > 1 else ''}"
    place = threads if device.type == "cpu" else device.type
    print_line(
        f"{model.name}, {shape_text(model.shape)} images, {place}: "
        f"{rate_text(pace.samples_per_second)} samples/s, ready after {duration(pace.preparation)}"
    )
    print_line(f"σ {planned.sigma:g}, α {planned.alpha:g}, n0 {planned.n0:,}, {planned.bound}")
    priced = planned.price is not None
    header = ("n", "largest radius", "per image", f"{counted(planned.images, 'image')}", "cost")
    rows = [
        (
            f"{size.n:,}", _down(size.radius), duration(size.seconds_per_image),
            duration(size.seconds), _money(size.cost),
        )
        for size in sizes
    ]  # fmt: skip
    print_table(header[: 4 + priced], [row[: 4 + priced] for row in rows])
    _print_radii(planned, needs)
    saved = planned.saved_by_score()
    print_line(f"--score saves {duration(saved)} for each image whose selected class is wrong.")
    if training:
        _print_training(training, seconds, cost(seconds, planned.price), planned)
    return {
        "target": model.name, "device": device.type, "threads": pace.threads,
        "shape": list(model.shape), "sigma": planned.sigma, "alpha": planned.alpha,
        "bound": planned.bound, "n0": planned.n0, "n": planned.n, "images": planned.images,
        "price": planned.price,
        "samples_per_second": pace.samples_per_second, "preparation_seconds": pace.preparation,
        "sizes": sizes, "radii": needs, "saved_by_score": saved, "training": training,
        "seconds": seconds, "cost": cost(seconds, planned.price),
    }  # fmt: skip


def _print_radii(planned: "PlannedCertification", needs: "list[RadiusBudget]") -> None:
    """What each radius needs, and how soon `certify --radius` decides it."""
    from macer.certification.budget import TRUE_RADII

    if not needs:
        return
    shares = [f"{share:g} R" for share in TRUE_RADII]
    rows = []
    for need in needs:
        samples = [f"{early.samples:,.0f}" for early in need.early] or ["–"] * len(shares)
        rows.append((f"{need.radius:g}", f"{need.p_a:.4f}", f"{need.least_n:,}", *samples))
    print_line("Samples by `certify --radius R` for an image whose true radius is …")
    print_table(("R", "p_A above", "least n", *shares), rows)
    for need in needs:
        if not need.early:
            print_line(f"R = {need.radius:g}: --radius needs n of at least {need.least_n_early:,}.")
            continue
        likely = dict(zip(TRUE_RADII, need.early, strict=True))[1.5]
        print_line(
            f"R = {need.radius:g}: {counted(planned.images, 'image')} robust to 1.5 R take "
            f"{duration(likely.seconds)} with it{_for(likely.cost)}."
        )


def _print_training(
    training: TrainingBudget, seconds: float, price: float | None, planned: "PlannedCertification"
) -> None:
    print_line(
        f"Training {training.recipe}, without validation: {counted(training.steps, 'step')} at "
        f"{rate_text(training.samples_per_second)} samples/s,"
    )
    print_line(f"  {duration(training.seconds)}{_for(training.cost)}.")
    print_line(f"Training, then n = {planned.n:,}: {duration(seconds)}{_for(price)}.")


def _for(cost: float | None) -> str:
    return "" if cost is None else f", cost {_money(cost)}"


def _money(cost: float | None) -> str:
    return "" if cost is None else f"{cost:,.2f}"


def _down(radius: float) -> str:
    """A radius in four digits, rounded down."""
    from macer.certification.table import rounded_down

    return rounded_down(radius, 4)
