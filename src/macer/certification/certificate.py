"""What CERTIFY returns: a class with a radius, and the evidence for it. No torch here."""

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
    estimation: tuple[int, ...]  # the same over other samples
    drawn: int  # how many of those there were
    squares: tuple[int, ...] = ()  # Σz², for a soft certificate
    exact: bool = True  # the noise's kind: with ordinary noise, it does not hold in floating point
