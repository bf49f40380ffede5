"""Recipes: the single source of every setting's default, type, help text and flag.

A recipe is a frozen dataclass. Its named instances are the TOML files under assets/recipes/, which
a user can copy and edit. It is saved whole in the run it made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from macer.recipes.bound_names import BoundName
from macer.recipes.loss import Loss, as_loss
from macer.system.errors import Mistake
from macer.system.ranges import Decay, NonNegative, Positive, Range, Share, check_ranges
from macer.system.typed import check_types, hints_of, wrong


def whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """Refuse 4.5 where an integer is asked for, rather than truncate it."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"must be a whole number, got {tokens[0].value}") from None


Whole = Annotated[int, Parameter(converter=whole_number)]
Natural = Annotated[Whole, Range(0)]
Count = Annotated[Whole, Range(1, most=10**6)]
Steps = Annotated[Whole, Range(0, most=10**4)]
Seed = Annotated[Whole, Range(0, 2**63, text="in [0, 2⁶³)")]
Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]


def _require(name: str, ok: bool, requirement: str, value: object) -> None:
    if not ok:
        raise wrong(name, requirement, value)


MACER = Loss("macer")
_MOST_SAMPLES = 2**31  # in a step
MOST_VOTES = 10**12  # for each image

_BY_NAME = "a recipe is written into files: name it as package.module:function"
_BY_FILE = "a recipe is written into files: name a run folder, a model file or zoo:NAME"
_REMEDIES = {"model": _BY_NAME, "pseudo": _BY_FILE}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """Everything that decides the weights of a trained model, but the data's bytes."""

    dataset: str = "mnist-sample"
    "Data set to train on; `macer data` lists them. Or package.module:function."
    model: str = "lenet"
    "Network: a name, or package.module:function."
    normalise: str = "none"
    "What stands before the network: none; data, the data set's mean and std; a name; or MEAN/STD."
    denoiser: Literal["none", "dncnn", "dncnn-small"] = "none"
    "Network before the model that alone is trained, to remove noise; the model's is from --init."
    loss: Annotated[Loss, Parameter(parse=False)] = MACER
    "Training objective with its settings."

    sigma: Positive = 0.25
    "Standard deviation σ of the noise, for images in [0, 1]."
    k: Count = 16
    "Noisy copies of each image in a step."
    lam_schedule: Literal["constant", "deferred", "ramp"] = "constant"
    "λ: constant; 0 until the first learning-rate decay; or rising from 0."
    lam_ramp: Annotated[float, Range(0, 1, with_low=False, with_high=True, text="in (0, 1]")] = 0.5
    "Share of the training over which λ rises, if it does."
    drop_epoch: Natural = 0
    "Epoch at which Sun drops hard images and begins to weigh the others; 0 is never."
    drop_below: Share = 0.5
    "Accuracy under noise below which an image is dropped."
    reweight_every: Annotated[Whole, Range(1)] = 10
    "Epochs between two weighings of the images."
    labelled: Natural = 0
    "Train on this many labelled images and take the others as unlabelled; 0 is all labelled."
    pseudo: str = ""
    "Run, model file or zoo:NAME whose predictions label the unlabelled images."
    pseudo_weight: NonNegative = 1.0
    "Weight of an unlabelled image's loss."

    epochs: Count = 440
    "Passes over the training images."
    batch: Count = 64
    "Images in a step, each with k copies."
    optimizer: Literal["sgd", "muon"] = "sgd"
    "SGD; or Muon for filters of convolutions and SGD for the rest."
    filter_lr: Positive = 0.03
    "Muon: the largest share of their norm by which a step moves a layer's filters."
    lr: Positive = 0.01
    "Highest learning rate."
    lr_schedule: Literal["step", "cosine", "triangle"] = "step"
    "Learning rate: divided at lr_decays; a half cosine; or up and down in straight lines."
    lr_decays: tuple[Whole, ...] = (200, 400)
    "Epochs at which the step schedule divides the learning rate by 10."
    lr_peak: Share = 0.2
    "Share of the training after which the triangle is at its highest."
    momentum: Decay = 0.9
    "Momentum."
    nesterov: bool = False
    "Nesterov's form of the momentum."
    weight_decay: NonNegative = 5e-4
    "Weight decay of all parameters."
    new_lr_factor: Positive = 1.0
    "Factor of the learning rate of what --init did not give: a new layer of classes, a denoiser."
    freeze: Names = ()
    "Parts that stay as they are, such as layer1 or layer*.0, with all that is in them."
    freeze_all_but: Names = ()
    "The only parts that are trained, such as fc; all others stay as they are."
    clip: NonNegative = 0.0
    "Largest norm of the gradient; 0 does not clip."
    ema: Decay = 0.0
    "Decay of the running average of the weights that is kept as the model; 0 keeps the weights."

    crop: Natural = 0
    "Padding of random crops; 0 does not crop."
    resized_crop: Share = 0.0
    "ImageNet: least share of an image's area in a random part of it; 0 takes the middle."
    flip: bool = False
    "Random horizontal flips."
    held_out: Natural = 0
    "Last training images to keep out of training, for validation."
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    "Arithmetic of the network; auto is bf16 on a GPU and fp32 on a CPU."
    seed: Seed = 0
    "Seed of the initial weights, the order, the augmentation and the noise."

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_loss(self.loss))
        before = {True: "data", False: "none"}  # as recipes and runs had it before it had names
        if isinstance(vars(self)["normalise"], bool):
            object.__setattr__(self, "normalise", before[bool(self.normalise)])
        check_types(self, _REMEDIES)
        check_ranges(hints_of(TrainRecipe), vars(self))
        self._check_epochs()
        self._check_decays()
        self._check_frozen()
        _require("labelled", not self.pseudo or self.labelled > 0, "> 0 with pseudo", self.labelled)
        samples = self.batch * self.k
        _require("batch · k", samples <= _MOST_SAMPLES, f"at most {_MOST_SAMPLES:,}", samples)

    def _check_epochs(self) -> None:
        below = f"below epochs, which are {self.epochs}, or 0 for never"
        _require("drop_epoch", self.drop_epoch < self.epochs, below, self.drop_epoch)

    def _check_decays(self) -> None:
        faster = not self.nesterov or self.momentum > 0
        _require("momentum", faster, "> 0 with nesterov", self.momentum)
        decays = self.lr_decays
        _require("lr_decays", list(decays) == sorted(set(decays)), "ascending", list(decays))
        _require("lr_decays", min(decays, default=0) >= 0, "at least 0", list(decays))
        if self.lam_schedule == "deferred" and not (self.lr_schedule == "step" and decays):
            raise Mistake(
                "lam_schedule must not be deferred without a step schedule that decays, "
                f"got lr_schedule {self.lr_schedule} with lr_decays {list(decays)}"
            )

    def _check_frozen(self) -> None:
        """A denoiser alone is trained; its last filters begin at 0, and Muon keeps their norm."""
        alone = not (self.freeze and self.freeze_all_but)
        _require("freeze", alone, "left out with freeze_all_but", list(self.freeze))
        if self.denoiser != "none":
            both = list(self.freeze + self.freeze_all_but)
            _require("freeze", not both, "left out with a denoiser, which alone is trained", both)
            sgd = self.optimizer == "sgd"
            _require("optimizer", sgd, "sgd with a denoiser", self.optimizer)

    def changed(self, **values: Any) -> "TrainRecipe":
        """The recipe with other values of fields; other names are settings of its loss."""
        own = {name: value for name, value in values.items() if name in FIELDS}
        loss = as_loss(own.pop("loss", self.loss))
        settings = {name: value for name, value in values.items() if name not in FIELDS}
        return replace(self, loss=loss.changed(**settings), **own)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as a file has it, the settings of its loss under `loss`."""
        return {name: getattr(self, name) for name in FIELDS} | {"loss": self.loss.to_dict()}

    def flat(self) -> dict[str, Any]:
        """The recipe as flags have it, the settings of its loss beside the other fields."""
        own = {name: getattr(self, name) for name in FIELDS} | {"loss": self.loss.name}
        return own | dict(self.loss)


FIELDS = tuple(field.name for field in fields(TrainRecipe))


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
    bound: BoundName = "clopper-pearson"
    "Hard votes by Clopper–Pearson, with the runner-up's bound, or at any time; or soft outputs."
    beta: float = 1.0
    "Inverse temperature β of the soft classifier."
    radius: float | None = None
    "Certify this radius only, and stop sampling once it is decided; hard votes."
    exact: bool = True
    "Integer noise: certificates then hold in floating point too; 8-bit images only."
    row_by_row: bool = False
    "Show the network one noisy image at a time, if its rows depend on one another; slow."
    seed: Seed = 0
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


def check_seed(seed: int) -> None:
    """Refuse a seed that is no number in [0, 2⁶³)."""
    check_ranges(hints_of(CertifyRecipe), {"seed": seed})
