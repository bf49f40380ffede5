"""CERTIFY and PREDICT behind the class that the field uses."""

from typing import Any

from torch import Tensor, nn

from macer.certification.certificate import ABSTAIN
from macer.certification.largest_radius import Kind, sample_and_certify, sample_and_predict
from macer.certification.settings import ImageArray, are_images, as_inputs, as_tensor
from macer.data.value_range import IMAGE_RANGE, ValueRange, checked_range
from macer.kernels.graph import tensors_of
from macer.models.callables import CallableNetwork, Classifier, as_network
from macer.models.inference import for_inference, resolve_precision
from macer.models.modes import remembered, unchanged, values_of
from macer.smoothing.bounds import check_reading
from macer.smoothing.sampling import Sampler
from macer.system.errors import Mistake


class Smooth:
    """`certify` and `predict` with one image per call.                    [Cohen+19, core.py's API]

    The classifier that answers is the one that `macer certify` certifies: the base classifier as
    `for_inference` prepares it, on the image's device. It is prepared at the first call with a
    shape, and again after the base classifier has changed. Each call draws fresh noise, so that
    its result is independent of earlier calls: call i uses the noise of image i.

    For inputs that are no images in [0, 1], and for a base classifier that is another callable
    than an nn.Module, it is the base classifier as it is, which `certify` certifies.

    Args:
        precision: "fp32", "bf16", or "auto" for bf16 on a GPU and fp32 on a CPU. A base classifier
            that is used as it is has its own precision.
        exact, value_range, row_by_row: as for `certify`.
        bound: of hard votes, "clopper-pearson" or "runner-up"; `predict` does not use it.
    """

    ABSTAIN = ABSTAIN

    def __init__(
        self,
        base_classifier: Classifier,
        num_classes: int,
        sigma: float,
        *,
        seed: int = 0,
        precision: str = "auto",
        exact: bool | None = None,
        value_range: ValueRange = IMAGE_RANGE,
        row_by_row: bool = False,
        bound: str = "clopper-pearson",
    ) -> None:
        as_network(base_classifier, num_classes)  # which refuses what is no classifier
        check_reading(bound)
        self.base_classifier = base_classifier
        self.num_classes = num_classes
        self.sigma = sigma
        self.seed = seed
        self.precision = precision
        self.exact = exact
        self.value_range = checked_range(value_range)
        self.row_by_row = row_by_row
        self.bound = bound
        self.calls = 0
        self._prepared: dict[tuple[object, ...], nn.Module] = {}
        self._state: list[Any] = []  # the base classifier's when `_prepared` was filled
        self._called: CallableNetwork | None = None  # the base classifier if it is a callable

    def certify(
        self, x: ImageArray, n0: int, n: int, alpha: float, batch_size: int | None = None
    ) -> tuple[int, float]:
        """The label and radius at x, (channels, height, width) or other, or (ABSTAIN, 0.0)."""
        sampler = self._sampler(x, batch_size)
        [[certificate]] = sample_and_certify(sampler, [Kind(self.bound)], n0=n0, n=n, alpha=alpha)
        return certificate.label, certificate.radius

    def predict(self, x: ImageArray, n: int, alpha: float, batch_size: int | None = None) -> int:
        """The label at x, (channels, height, width) or other, or ABSTAIN."""
        [label] = sample_and_predict(self._sampler(x, batch_size), n=n, alpha=alpha)
        return label

    def _sampler(self, x: ImageArray, batch_size: int | None) -> Sampler:
        """The sampler of the next call."""
        images = as_inputs(
            as_tensor(x)[None], sigma=self.sigma, exact=self.exact, value_range=self.value_range
        )
        sampler = Sampler(
            model=self._network(images), images=images, sigma=self.sigma, seed=self.seed,
            indices=[self.calls], batch_size=batch_size, row_by_row=self.row_by_row,
            num_classes=self.num_classes,
        )  # fmt: skip
        self.calls += 1
        return sampler

    def _network(self, images: Tensor) -> nn.Module:
        """The base classifier as it is now, prepared for images of this shape."""
        model = self.base_classifier
        if not isinstance(model, nn.Module) or not are_images(images, self.value_range):
            return self._unprepared()
        if not unchanged(self._state, _state(model)):
            self._prepared.clear()
            self._state = remembered(_state(model))
        _, channels, height, width = images.shape
        shape, device = (channels, height, width), images.device
        precision = resolve_precision(self.precision, device)
        key = (shape, device, precision)
        if key not in self._prepared:
            self._prepared[key] = for_inference(
                model, shape=shape, precision=precision, device=device
            )
        return self._prepared[key]

    def _unprepared(self) -> nn.Module:
        """The base classifier as it is; one network for all calls, so that it is probed once."""
        if self.precision not in ("auto", "fp32"):
            raise Mistake(
                "precision must be auto or fp32 for a callable or for inputs that are no images, "
                f"got {self.precision}"
            )
        if isinstance(self.base_classifier, nn.Module):
            return self.base_classifier
        if self._called is None or self._called.function is not self.base_classifier:
            self._called = CallableNetwork(self.base_classifier, self.num_classes)
        return self._called


def _state(model: nn.Module) -> list[Any]:
    """What decides a network's function: the types of its parts, their values and tensors.

    The values themselves are compared. A tensor's version counter would be quicker, but it misses
    changes through `.data`, and averages of weights are often written so.
    """
    return [*values_of(model), *tensors_of(model)]
