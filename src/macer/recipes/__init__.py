"""Recipes: the single source of every setting's default, type, help text and flag.

A recipe is a frozen dataclass; its named instances are the TOML files under recipes/, which a user
can copy and edit. It is saved whole in the run it made.
"""

import math
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from macer.errors import Mistake
from macer.system.files import read_text
from macer.system.typed import check_types, shown, typed_fields
from macer.system.user_code import check_admitted, nearest

CODE_FIELDS = ("model", "loss")  # of a recipe, each a name that macer knows or a function


def _whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """Refuse 4.5 where an integer is asked for, rather than truncate it."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"must be a whole number, got {tokens[0].value}") from None


Whole = Annotated[int, Parameter(converter=_whole_number)]


def _require(name: str, ok: bool, requirement: str, value: object) -> None:
    if not ok:
        raise Mistake(f"{name} must be {requirement}, got {shown(value)}")


def check_seed(seed: int) -> None:
    """Refuse what is no seed of noise or of a training."""
    _require("seed", 0 <= seed < 2**63, "in [0, 2⁶³)", seed)


_LARGEST = 1e30  # of a number; float32 ends at 3.4e38
_MOST = {"k": 10**6, "batch": 10**6, "epochs": 10**6, "steps": 10**4}
_MOST_SAMPLES = 2**31  # in a step
MOST_VOTES = 10**12  # of an image

_BY_NAME = "a recipe is written into files: name it as package.module:function"
_BY_FILE = "a recipe is written into files: name a run folder, a model file or zoo:NAME"
_REMEDIES = {"model": _BY_NAME, "loss": _BY_NAME, "teacher": _BY_FILE, "pseudo": _BY_FILE}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """Everything that decides the weights of a trained model, but the data's bytes."""

    dataset: str = "mnist-sample"
    "Data set to train on; `macer data` lists them."
    model: str = "lenet"
    "Network: a name, or package.module:function."
    normalise: bool = False
    "Make the data set's mean and standard deviation the model's first layer."
    loss: str = "macer"
    "Training objective."

    sigma: float = 0.25
    "Standard deviation σ of the noise, for images in [0, 1]."
    k: Whole = 16
    "Noisy copies of each image in a step."
    lam: float = 12.0
    "Weight λ of the robustness term; 0 with k = 1 is Gaussian training."
    lam_schedule: Literal["constant", "deferred", "ramp"] = "constant"
    "λ: constant; 0 until the first learning-rate decay; or rising from 0."
    lam_ramp: float = 0.5
    "Share of the training over which λ rises, if it does."
    gamma: float = 8.0
    "Hinge γ: radii beyond γσ/2 are not pushed further."
    beta: float = 16.0
    "Inverse temperature β of the robustness term."
    cross_entropy: Literal["smoothed", "copies"] = "smoothed"
    "MACER's cross-entropy: of the copies' mean, as in Algorithm 1; or the mean of the copies'."

    eta: float = 0.5
    "Weight η: of the entropy in Consistency, of the mixed images in SmoothMix."
    consistency: float = 10.0
    "Weight of Consistency's term beside MACER's, in macer-consistency and macer-hard-noise."
    attack: Literal["pgd", "ddn"] = "pgd"
    "Attack of SmoothAdv."
    epsilon: float = 1.0
    "ℓ₂ length ε of the attack on images (SmoothAdv) or noise; sun, macer-hard-noise: all steps'."
    epsilon_ramp: Whole = 10
    "Epochs over which SmoothAdv's ε, and SmoothMix's η, rise; 0 begins with all of it."
    steps: Whole = 4
    "Steps T of the attack."
    step_size: float = 0.0
    "Length of a step; 0: 2ε/T for SmoothAdv and CAT-RS, 2σ for SmoothMix, else ε/T."
    teacher: str = ""
    "Run, model file or zoo:NAME of the teacher that CAT-RS takes its targets from."
    drop_epoch: Whole = 0
    "Epoch at which Sun drops hard images and begins to weigh the others; 0 is never."
    drop_below: float = 0.5
    "Accuracy under noise below which an image is dropped."
    reweight_every: Whole = 10
    "Epochs between two weighings of the images."
    labelled: Whole = 0
    "Train on this many labelled images and take the others as unlabelled; 0 is all labelled."
    pseudo: str = ""
    "Run, model file or zoo:NAME whose predictions label the unlabelled images."
    pseudo_weight: float = 1.0
    "Weight of an unlabelled image's loss."

    epochs: Whole = 440
    "Passes over the training images."
    batch: Whole = 64
    "Images in a step, each with k copies."
    optimizer: Literal["sgd", "muon"] = "sgd"
    "SGD; or Muon for filters of convolutions and SGD for the rest."
    filter_lr: float = 0.03
    "Muon: the largest share of their norm by which a step moves a layer's filters."
    lr: float = 0.01
    "Highest learning rate."
    lr_schedule: Literal["step", "cosine", "triangle"] = "step"
    "Learning rate: divided at lr_decays; a half cosine; or up and down in straight lines."
    lr_decays: tuple[Whole, ...] = (200, 400)
    "Epochs at which the step schedule divides the learning rate by 10."
    lr_peak: float = 0.2
    "Share of the training after which the triangle is at its highest."
    momentum: float = 0.9
    "Momentum."
    nesterov: bool = False
    "Nesterov's form of the momentum."
    weight_decay: float = 5e-4
    "Weight decay of all parameters."
    clip: float = 0.0
    "Largest norm of the gradient; 0 does not clip."
    ema: float = 0.0
    "Decay of the running average of the weights that is kept as the model; 0 keeps the weights."

    crop: Whole = 0
    "Padding of random crops; 0 does not crop."
    resized_crop: float = 0.0
    "ImageNet: least share of an image's area in a random part of it; 0 takes the middle."
    flip: bool = False
    "Random horizontal flips."
    held_out: Whole = 0
    "Last training images to keep out of training, for validation."
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    "Arithmetic of the network; auto is bf16 on a GPU and fp32 on a CPU."
    seed: Whole = 0
    "Seed of the initial weights, the order, the augmentation and the noise."

    def __post_init__(self) -> None:
        check_types(self, _REMEDIES)
        self._check_ranges()
        self._check_sizes()

    def _check_ranges(self) -> None:
        for name in ("sigma", "gamma", "beta", "lr", "filter_lr"):
            value = getattr(self, name)
            _require(name, 0 < value < math.inf, "> 0", value)
        for name in ("k", "epochs", "batch", "reweight_every"):
            value = getattr(self, name)
            _require(name, value >= 1, "at least 1", value)
        at_least_0 = (
            *("lam", "eta", "consistency", "epsilon", "epsilon_ramp", "steps", "step_size"),
            *("drop_epoch", "labelled", "pseudo_weight"),
            *("weight_decay", "clip", "crop", "held_out"),
        )
        for name in at_least_0:
            value = getattr(self, name)
            _require(name, 0 <= value < math.inf, "at least 0", value)
        for name in ("momentum", "ema"):
            value = getattr(self, name)
            _require(name, 0 <= value < 1, "in [0, 1)", value)
        _require("resized_crop", 0 <= self.resized_crop <= 1, "in [0, 1]", self.resized_crop)
        _require("drop_below", 0 <= self.drop_below <= 1, "in [0, 1]", self.drop_below)
        below = f"below epochs, which are {self.epochs}, or 0 for never"
        _require("drop_epoch", self.drop_epoch < self.epochs, below, self.drop_epoch)
        _require("labelled", not self.pseudo or self.labelled > 0, "> 0 with pseudo", self.labelled)
        _require("lam_ramp", 0 < self.lam_ramp <= 1, "in (0, 1]", self.lam_ramp)
        _require("lr_peak", 0 <= self.lr_peak <= 1, "in [0, 1]", self.lr_peak)
        check_seed(self.seed)
        _require(
            "momentum", not self.nesterov or self.momentum > 0, "> 0 with nesterov", self.momentum
        )
        decays = self.lr_decays
        _require("lr_decays", list(decays) == sorted(set(decays)), "ascending", list(decays))
        _require("lr_decays", min(decays, default=0) >= 0, "at least 0", list(decays))
        if self.lam_schedule == "deferred" and not (self.lr_schedule == "step" and decays):
            raise Mistake(
                "lam_schedule must not be deferred without a step schedule that decays, "
                f"got lr_schedule {self.lr_schedule} with lr_decays {list(decays)}"
            )

    def _check_sizes(self) -> None:
        """Refuse numbers that no training ends with, or that float32 does not hold."""
        for name, most in _MOST.items():
            value = getattr(self, name)
            _require(name, value <= most, f"at most {most:,}", value)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float):
                _require(field.name, value <= _LARGEST, f"at most {_LARGEST:g}", value)
            if isinstance(value, int):
                _require(field.name, value < 2**63, "below 2⁶³", value)
        samples = self.batch * self.k
        _require("batch · k", samples <= _MOST_SAMPLES, f"at most {_MOST_SAMPLES:,}", samples)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CertifyRecipe:
    """Everything that decides a certificate, but the model and the image."""

    n0: Whole = 100
    "Samples that select the class."
    n: Whole = 100_000
    "Other samples that bound its probability."
    alpha: float = 0.001
    "Probability α that a certificate is false, for each image."
    bound: Literal["clopper-pearson", "hoeffding", "bernstein"] = "clopper-pearson"
    "Hard votes by Clopper–Pearson, or the soft classifier by Hoeffding or Bernstein."
    beta: float = 1.0
    "Inverse temperature β of the soft classifier."
    radius: float | None = None
    "Certify this radius only, and stop sampling once it is decided; hard votes."
    exact: bool = True
    "Integer noise, for which certificates hold in floating point too; 8-bit images only."
    row_by_row: bool = False
    "Show the network one noisy image at a time, if its rows depend on one another; slow."
    seed: Whole = 0
    "Seed of the noise."
    score: bool = False
    "Abstain at once where the selected class is wrong: the same accuracy and ACR for less work."
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    "Arithmetic of the network, to which certificates belong; auto is bf16 on a GPU, else fp32."

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("n0", "n"):
            value = getattr(self, name)
            _require(name, value <= MOST_VOTES, f"at most {MOST_VOTES:,}", value)
        check_seed(self.seed)
        if self.radius is not None and self.bound != "clopper-pearson":
            raise Mistake(f"bound must be clopper-pearson with a radius, got {self.bound}")


LARGEST_RECIPE = 1 << 14  # bytes; the time that a key of many parts takes grows as their square


def recipe_names() -> list[str]:
    """The names of the recipes that come with the package, such as paper/cifar10-0.25."""
    return sorted(_walk(files("macer") / "assets" / "recipes"))


def _walk(folder: Traversable, prefix: str = "") -> list[str]:
    names = []
    for entry in folder.iterdir():
        if entry.is_dir():
            names += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            names.append(prefix + entry.name.removesuffix(".toml"))
    return names


def read_recipe(name: str) -> dict[str, Any]:
    """The fields of a named recipe or of a TOML file."""
    text = _recipe_text(name)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of TOML, of long numbers, of deep arrays
        raise Mistake(f"recipe {name} must be a TOML file: {error}") from error


def recipe_fields(name: str) -> dict[str, Any]:
    """The fields of a named recipe or of a TOML file, known ones in their types."""
    values, known = read_recipe(name), [field.name for field in fields(TrainRecipe)]
    if strangers := [field for field in values if field not in known]:
        guess = nearest(strangers[0], known)
        raise Mistake(f"recipe {name} has an unknown field {strangers[0]!r}{guess}")
    try:
        return typed_fields(TrainRecipe, values)
    except Mistake as mistake:
        raise Mistake(f"recipe {name}: {mistake}") from mistake


def named_recipe(name: str, *, code: Collection[str] = ()) -> TrainRecipe:
    """A recipe that comes with the package, or that of a TOML file, unchanged.

    Args:
        code: modules that the file may name for its model and its loss, besides those of macer.
    """
    values = recipe_fields(name)
    for field in CODE_FIELDS:
        check_admitted(str(values.get(field)), code, where=f"recipe {name}")
    return TrainRecipe(**values)


def run_name(recipe: str) -> str:
    """The folder under runs/ that a training of a named recipe or a TOML file goes to."""
    return recipe.replace("/", "-") if recipe in recipe_names() else Path(recipe).stem


def _recipe_text(name: str) -> str:
    if name in recipe_names():
        return (files("macer") / "assets" / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name)
    if path.exists() and not path.is_dir():
        return read_text(path, limit=LARGEST_RECIPE)
    raise Mistake(
        f"unknown recipe {name!r}{nearest(name, recipe_names())}; `macer recipes` lists them, "
        "or name a TOML file"
    )
