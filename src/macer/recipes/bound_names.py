"""The names of the table BOUNDS for flags, which do not wait for torch; a test compares them."""

from typing import Literal

BoundName = Literal["clopper-pearson", "runner-up", "anytime", "hoeffding", "bernstein"]
FixedBoundName = Literal["clopper-pearson", "runner-up", "hoeffding", "bernstein"]  # n is fixed
VoteBoundName = Literal["clopper-pearson", "runner-up", "anytime"]  # of hard votes
