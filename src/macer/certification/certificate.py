"""What CERTIFY returns: a class with a radius, and the evidence for it. It needs no torch."""

from dataclasses import dataclass

ABSTAIN = -1


@dataclass(frozen=True)
class Certificate:
    """A class that holds within an ℓ₂ ball with confidence 1 − α, and the evidence for it."""

    label: int  # the class, or ABSTAIN
    radius: float  # 0.0 when abstaining
    selected: int  # ĉ_A, chosen on the n0 selection samples
    p_a: float  # the lower confidence bound of its probability
    selection: tuple[int, ...]  # per class: votes, or Σz for a soft certificate
    estimation: tuple[int, ...]  # the same over the other samples
    drawn: int  # the number of these other samples
    squares: tuple[int, ...] = ()  # Σz², for a soft certificate
    p_b: float | None = None  # the upper bound of every other class, if it is not 1 − p_a
    exact: bool = True  # the noise was exact; with ordinary noise, rounding is not accounted for
