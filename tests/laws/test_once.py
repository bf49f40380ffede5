"""A model is found, built and hashed once for a command."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image
from walks import Call, walk

from macer.cli.app import main
from macer.data.sets import load
from macer.runs.run import Run
from macer.runs.zoo import zoo_file
from macer.system.files import sha256_of_file

CPU = ["--device", "cpu"]
COMMANDS = {
    "certify": ["certify", "run", "--dataset", "mnist-sample", "--stop", "2", "--n", "100"],
    "certify elsewhere": [
        *("certify", "run", "--dataset", "mnist-sample", "--stop", "1", "--n", "100"),
        *("--out", "new", "--soft-betas", "1", "4"),
    ],
    "verify": ["verify", "run"],
    "predict": ["predict", "run", "digit.png", "--n", "100"],
    "attack": [
        "attack",
        "run",
        "--images",
        "1",
        "--restarts",
        "1",
        "--steps",
        "1",
        "--m",
        "2",
        "--n",
        "50",
    ],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory):
    """A run with a model of the zoo and certificates, and an image."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = Run(Path("run"))
        run.folder.mkdir()
        shutil.copy(zoo_file("zoo:mnist-0.50"), run.model)
        manifest = {"recipe": None, "data_sha256": None}
        manifest["weights_sha256"] = sha256_of_file(run.model)
        run.manifest.write_text(json.dumps(manifest))
        Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
        assert main([*COMMANDS["certify"], *CPU]) == 0
        yield run.model.resolve()


def reads(calls: list[Call], model: Path) -> int:
    """How often the model's file was read, to load or to hash it."""
    return sum(
        call.name in ("read_file", "sha256_of_file") and call.path.resolve() == model
        for call in calls
        if call.file == "system/files.py"
    )


@pytest.mark.medium
@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_is_read_built_and_prepared_once(here: Path, command: str):
    shutil.rmtree("new", ignore_errors=True)
    codes: list[int] = []
    calls = walk(lambda: codes.append(main([*COMMANDS[command], *CPU])))
    assert codes == [0]
    times = Counter((call.file, call.name) for call in calls)
    assert times["models/build.py", "build_model"] == 1
    assert times["models/inference.py", "for_inference"] == 1
    assert reads(calls, here) == 1


@pytest.mark.medium
def test_certificates_below_a_run_are_told_by_a_second_hash_whose_they_are(here: Path):
    """In RUN/held-out there is no model: the run above is asked whether its weights are theirs."""
    shutil.copytree("run", "run/held-out", ignore=shutil.ignore_patterns("model*", "held-out"))
    calls = walk(lambda: main(["verify", "run/held-out", *CPU]))
    assert reads(calls, here) == 2
    assert Counter(call.name for call in calls)["build_model"] == 1
