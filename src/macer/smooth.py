"""The field's class in front of CERTIFY and PREDICT."""

from torch import Tensor, nn

from macer.certificate import ABSTAIN
from macer.certification import certify, predict
from macer.mistake import Mistake


class Smooth:
    """The field's front to the functions above: one image a call.       [Cohen+19, core.py's API]

    Each call draws fresh noise, so that its result is independent of the calls before it.
    """

    ABSTAIN = ABSTAIN

    def __init__(
        self, base_classifier: nn.Module, num_classes: int, sigma: float, *, seed: int = 0
    ) -> None:
        self.base_classifier = base_classifier
        self.num_classes = num_classes
        self.sigma = sigma
        self.seed = seed
        self.calls = 0

    def certify(
        self, x: Tensor, n0: int, n: int, alpha: float, batch_size: int | None = None
    ) -> tuple[int, float]:
        """The label and radius at x (channels, height, width), or (ABSTAIN, 0.0)."""
        [certificate] = certify(
            self.base_classifier,
            x[None],
            sigma=self.sigma,
            n0=n0,
            n=n,
            alpha=alpha,
            seed=self.seed,
            batch_size=batch_size,
            indices=[self._next_call()],
        )
        self._check_classes(len(certificate.selection))
        return certificate.label, certificate.radius

    def predict(self, x: Tensor, n: int, alpha: float, batch_size: int | None = None) -> int:
        """The label at x (channels, height, width), or ABSTAIN."""
        [label] = predict(
            self.base_classifier,
            x[None],
            sigma=self.sigma,
            n=n,
            alpha=alpha,
            seed=self.seed,
            batch_size=batch_size,
            indices=[self._next_call()],
        )
        return label

    def _check_classes(self, classes: int) -> None:
        if classes != self.num_classes:
            raise Mistake(
                f"num_classes must be the network's number of outputs, {classes}, "
                f"got {self.num_classes}"
            )

    def _next_call(self) -> int:
        self.calls += 1
        return self.calls - 1
