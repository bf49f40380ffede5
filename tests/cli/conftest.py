"""One certified run that the tests of the command share."""

import shutil
from pathlib import Path

import pytest
from desk import fill_desk


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certified run and the files that a user may name by mistake."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MACER_DATA", "small")
        fill_desk()
    return folder


@pytest.fixture
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("MACER_DATA", "small")
    return desk


@pytest.fixture
def copied_run(desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run that a test may change, named `run` in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACER_DATA", str(desk / "small"))
    shutil.copytree(desk / "run", tmp_path / "run")
    return Path("run")
