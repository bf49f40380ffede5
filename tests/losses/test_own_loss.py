"""The guide's page on a loss of one's own, done as it says."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from macer.cli.app import app, main
from macer.losses import Batch, find_objective
from macer.losses.batch import one_per_image
from macer.recipes import TrainRecipe, named_recipe
from macer.runs.run import Run
from macer.system.errors import Mistake

PAGE = (Path(__file__).parents[2] / "docs/guide/own-loss.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if not kind for line in text.splitlines()]
LITTLE = ["--labelled", "64", "--batch", "32", "--epochs", "1", "--device", "cpu"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's files in it."""
    monkeypatch.chdir(tmp_path)
    for kind, name in (("python", "mylosses.py"), ("toml", "margin.toml")):
        [text] = [text for block, text in BLOCKS if block == kind]
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.medium
def test_the_pages_commands_train_and_certify(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, certify, _ = (shlex.split(command)[1:] for command in COMMANDS)
    assert main([*train, *LITTLE]) == 0
    assert Run(Path("runs/margin")).read_manifest()["recipe"]["loss"]["name"] == "mylosses:margin"
    assert main([*certify, "--stop", "20", "--device", "cpu"]) == 0
    assert "ACR" in capsys.readouterr().out


def test_the_pages_other_command_is_one(desk: Path) -> None:
    _, _, compare = (shlex.split(command)[1:] for command in COMMANDS)
    _, bound, _ = app.parse_args(compare, exit_on_error=False, print_error=False)
    assert bound.arguments["recipes"] == ("sample/gaussian", "margin.toml")


def test_the_pages_recipe_differs_from_the_samples_in_the_loss_alone(desk: Path) -> None:
    own = named_recipe("margin.toml", code=("mylosses",))
    sample = named_recipe("sample/gaussian")
    assert replace(own, loss=sample.loss, k=sample.k) == sample


def test_the_page_names_every_field_of_a_batch() -> None:
    table = PAGE.split("## What a Batch gives")[1].split("##")[0]
    for field in [*Batch.__dataclass_fields__, "logits"]:
        assert re.search(rf"`{field}[`(]", table), field


def batch(loss: str = "macer") -> Batch:
    return Batch(
        network=torch.nn.Flatten(),
        images=torch.rand(3, 1, 2, 2),
        labels=torch.tensor([0, 1, 2]),
        noise=torch.zeros(3, 2, 1, 2, 2),
        recipe=TrainRecipe(loss=loss),
        epoch=0.0,
        uniform=torch.rand,
    )


def test_the_pages_loss_is_one_value_an_image(desk: Path) -> None:
    losses = find_objective("mylosses:margin").loss(batch())
    assert losses.shape == (3,) and losses.isfinite().all()


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("batch.logits().mean()", r"\(\)"),
        ("batch.logits()", r"\(3, 2, 4\)"),
        ("0.5", "float"),
    ],
)
def test_a_loss_of_another_shape_is_refused(
    desk: Path, monkeypatch: pytest.MonkeyPatch, body: str, got: str
) -> None:
    module = f"wrong_{abs(hash(body))}"
    Path(f"{module}.py").write_text(f"def wrong(batch):\n    return {body}\n")
    message = rf"loss '{module}:wrong' must return one loss per image, of shape \(3,\), got {got}"
    given = batch(f"{module}:wrong")
    with pytest.raises(Mistake, match=message):
        one_per_image(find_objective(f"{module}:wrong").loss(given), given)
