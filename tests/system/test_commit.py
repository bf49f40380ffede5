import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import macer
import macer.cli.app
from macer.system.commit import short_hash

ROOT = Path(__file__).parents[2]
HASH = "0123456789abcdef0123456789abcdef01234567"


def git(tree: Path, *arguments: str) -> str:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(tree), *author, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def committed(tree: Path) -> str:
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "All")
    return git(tree, "rev-parse", "HEAD")


def package_in(tree: Path) -> ModuleType:
    """macer.system.commit as a module of another tree."""
    file = tree / "src/macer/system/commit.py"
    file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "src/macer/system/commit.py", file)
    spec = importlib.util.spec_from_file_location("commit_elsewhere", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# law


def test_a_source_tree_says_its_commit_and_whether_it_is_dirty(tmp_path: Path) -> None:
    module = package_in(tmp_path)
    (tmp_path / "README.md").touch()
    commit = committed(tmp_path)
    git(tmp_path, "tag", "--annotate", "v1", "--message", "A tag's name is no commit")
    assert module.commit() == commit
    (tmp_path / "notes.txt").touch()
    assert module.commit() == commit
    (tmp_path / "README.md").write_text("changed")
    assert module.commit() == f"{commit}-dirty"


def test_a_module_unknown_to_git_makes_the_tree_dirty(tmp_path: Path) -> None:
    module = package_in(tmp_path)
    commit = committed(tmp_path)
    (tmp_path / "src/macer/new.py").touch()
    assert module.commit() == f"{commit}-dirty"


def test_what_the_package_carries_goes_before_the_tree_it_lies_in(tmp_path: Path) -> None:
    module = package_in(tmp_path)
    committed(tmp_path)
    (tmp_path / "src/macer/system/commit.txt").write_text(f"{HASH}\n")
    assert module.commit() == HASH


def test_a_commit_that_nobody_knows_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = package_in(tmp_path)
    assert module.commit() is None
    git(tmp_path, "init", "--quiet")
    assert module.commit() is None  # before the first commit
    committed(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.commit() is None  # without git
    (tmp_path / "src/macer/system/commit.txt").write_bytes(b"\xff")
    assert module.commit() is None


@pytest.mark.parametrize(
    ("commit", "line"),
    [
        (HASH, f"macer {macer.__version__} (0123456789)\n"),
        (f"{HASH}-dirty", f"macer {macer.__version__} (0123456789-dirty)\n"),
        (None, f"macer {macer.__version__}\n"),
    ],
)
def test_the_version_names_the_commit(
    commit: str | None,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(macer.cli.app, "commit", lambda: commit)
    assert macer.cli.app.main(["--version"]) == 0
    assert capsys.readouterr().out == line


def test_only_the_version_asks_git(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> str:
        raise AssertionError("the commit was asked for")

    monkeypatch.setattr(macer.cli.app, "commit", asked)
    assert macer.cli.app.main(["--help"]) == 0
    assert macer.cli.app.main(["--version"]) == macer.cli.app.BUG


# The archives


def project_in(tree: Path) -> Path:
    """What a build needs, without what ours left in the package."""
    ignored = shutil.ignore_patterns("__pycache__", "commit.txt")
    for folder in ("src", "results"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    return tree


def built(tree: Path, kind: str, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", out]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (archive,) = out.iterdir()
    return archive


def package_files(tree: Path) -> set[str]:
    """The files of the package in a wheel of this tree; it has results/ among its assets."""
    places = {"src": "", "results": "macer/assets/results/"}
    return {
        place + path.relative_to(tree / folder).as_posix()
        for folder, place in places.items()
        for path in (tree / folder).rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package_and_its_commit(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    tree = project_in(tmp_path / "tree")
    commit = committed(tree)
    files = package_files(tree)
    for data in ("recipes", "zoo", "paper", "mnist-sample", "results"):
        assert any(file.startswith(f"macer/assets/{data}/") for file in files)

    with tarfile.open(built(tree, "sdist", tmp_path / "sdist")) as sdist:
        sdist.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert unpacked.name == f"torch_macer-{macer.__version__}"
    for source in (tree, unpacked):
        with zipfile.ZipFile(built(source, "wheel", tmp_path / f"of-{source.name}")) as wheel:
            assert files | {"macer/system/commit.txt"} == {
                name for name in wheel.namelist() if name.startswith("macer/")
            }
            assert wheel.read("macer/system/commit.txt").decode() == f"{commit}\n"
    assert package_files(tree) == files  # the build leaves nothing in the tree


def test_a_short_commit_keeps_its_mark() -> None:
    assert short_hash(HASH) == "0123456789"
    assert short_hash(f"{HASH}-dirty") == "0123456789-dirty"
