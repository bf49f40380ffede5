"""The versions that `make` installs, and the oldest that macer admits."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
RUNS_WITH = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
NOT_INSTALLED = {"wandb"}  # extras that `make` leaves out: tests have a stand-in
ADDED = [Requirement(text) for name in EXTRAS.keys() - NOT_INSTALLED for text in EXTRAS[name]]
BUILT_WITH = [Requirement(text) for text in PROJECT["build-system"]["requires"]]


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_requirement_has_a_pin_that_it_admits() -> None:
    pinned = pins("constraints.txt")
    for requirement in RUNS_WITH + ADDED + BUILT_WITH:
        version = pinned[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, requirement
        assert "+" not in version, f"{requirement} has a build of one platform"


def test_every_lower_bound_is_a_version_that_was_tried() -> None:
    """torch's alone is not that of `make oldest`: pyproject.toml says where it was seen."""
    oldest = pins("constraints-oldest.txt")
    for requirement in RUNS_WITH + [Requirement(text) for text in EXTRAS["tensorboard"]]:
        (bound,) = requirement.specifier
        tried = oldest.get(canonicalize_name(requirement.name))
        assert bound.operator == ">="
        assert requirement.name == "torch" or Version(bound.version) == Version(tried), requirement
