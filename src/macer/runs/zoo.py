"""Trained models that come with macer, named as zoo:NAME."""

from pathlib import Path

from macer.runs.names import JOURNAL, TABLE
from macer.system.errors import Mistake
from macer.system.user_code import nearest

PREFIX = "zoo:"

# NAME.safetensors is a model file, NAME/ a folder with its certificates, if any come with it.
# SHA256SUMS has a line for each model file, as `sha256sum` writes it.
FOLDER = Path(__file__).parents[1] / "assets" / "zoo"


def zoo_names() -> list[str]:
    """The names of the models that come with the package, without the prefix."""
    return sorted(file.stem for file in FOLDER.glob("*.safetensors"))


def in_zoo(target: Path | str) -> bool:
    """Whether a target has the form zoo:NAME; such a model need not exist."""
    return str(target).startswith(PREFIX)


def zoo_file(target: Path | str) -> Path:
    """The model file of zoo:NAME."""
    name, names = _name(target), zoo_names()
    if name not in names:
        known = f"choose from {', '.join(names)}" if names else "the zoo is empty"
        raise Mistake(f"unknown zoo model {name!r}{nearest(name, names)}; {known}")
    return FOLDER / f"{name}.safetensors"


def nearest_model(name: Path | str) -> str:
    """The question whether a model of the zoo was meant, for the end of a message; may be empty."""
    return nearest(str(name), [PREFIX + known for known in zoo_names()])


def check_zoo_file(file: Path, sha256: str) -> None:
    """Refuse a model file that is not the one that came with macer."""
    lines = (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    known = {name: expected for expected, name in map(str.split, lines)}
    if sha256 != known.get(file.name):
        raise Mistake(
            f"{file} must have the SHA-256 that came with macer, "
            f"{known.get(file.name, 'none')[:16]}…; the file is damaged: install macer again"
        )


def shipped_certificates(target: Path | str) -> Path:
    """The folder of the certificates that come with zoo:NAME; it need not exist."""
    return zoo_file(target).with_suffix("")


def user_folder(target: Path | str) -> Path:
    """The folder for what a user makes with zoo:NAME: never one of the installed package."""
    zoo_file(target)  # refuses an unknown name
    return Path("runs") / f"zoo-{_name(target)}"


def certificates_folder(target: Path | str) -> Path:
    """The folder with a target's certificates; for zoo:NAME the user's, else the shipped ones."""
    if not in_zoo(target):
        return Path(target)
    own, shipped = user_folder(target), shipped_certificates(target)
    return shipped if shipped.is_dir() and not _certified(own) else own


def passed_over(target: Path | str) -> str | None:
    """A line that says which of two folders of certificates counts, where zoo:NAME has two."""
    if not in_zoo(target):
        return None
    own, shipped = user_folder(target), shipped_certificates(target)
    if not (shipped.is_dir() and _certified(own)):
        return None
    return (
        f"{target}: your certificates in {own} are used, not those that come with macer, in "
        f"{shipped}; move {own} away to use these"
    )


def _certified(folder: Path) -> bool:
    """Whether a folder has a certificate; one that was given up before the first has none."""
    journal, table = folder / JOURNAL, folder / TABLE
    if journal.is_file():
        with journal.open("rb") as lines:
            return any(b'"certificate":' in line for line in lines)
    return table.is_file()


def _name(target: Path | str) -> str:
    return str(target).removeprefix(PREFIX)
