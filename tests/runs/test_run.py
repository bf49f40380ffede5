import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import CLASSES, tiny_recipe

from macer import __version__
from macer.losses import completed
from macer.runs.checkpoints import save_checkpoint
from macer.runs.model_file import ModelCard
from macer.runs.names import JOURNAL
from macer.runs.run import Run, begin_run
from macer.runs.trained_model import load_model, save_model
from macer.system.commit import commit
from macer.system.errors import Mistake
from macer.system.files import locked

pytestmark = pytest.mark.usefixtures("tiny_networks")
CARD = ModelCard(
    architecture="tiny_with_batch_norm",
    classes=CLASSES,
    shape=(1, 8, 8),
    mean=(0.25,),
    std=(0.5,),
    sigma=0.25,
    dataset="tiny",
)


def some_run(folder: Path, resume: bool = False) -> Run:
    return begin_run(folder, tiny_recipe(), "data", resume=resume)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def trained(folder: Path) -> tuple[Run, torch.nn.Module]:
    """A run with a model in it, and the model."""
    run, model = some_run(folder), CARD.build()
    torch.manual_seed(0)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 1.0)
    sha256 = save_model(run.model, model.state_dict(), CARD)
    run.write_manifest(run.read_manifest() | {"weights_sha256": sha256})
    return run, model.eval()


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


# law


@pytest.mark.parametrize("by", ["folder", "file"])
def test_a_loaded_model_is_the_saved_one(tmp_path, by):
    run, model = trained(tmp_path / "run")
    loaded, card = load_model(run.folder if by == "folder" else run.model)
    images = torch.rand(5, 1, 8, 8)
    assert card == CARD
    assert not any(part.training for part in loaded.modules())
    assert torch.equal(loaded(images), model(images))


def test_weights_in_any_memory_format_can_be_saved(tmp_path):
    model = CARD.build().to(memory_format=torch.channels_last)
    save_model(tmp_path / "a", model.state_dict(), CARD)
    for name, tensor in load_model(tmp_path / "a")[0].state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_a_run_is_continued_with_the_same_recipe_and_data(tmp_path):
    run = some_run(tmp_path / "run")
    save_checkpoint(run, {"w": torch.zeros(5)}, {"step": 3})
    before = contents(run.folder)
    assert some_run(run.folder, resume=True) == run
    assert contents(run.folder) == before


def test_a_run_of_before_a_field_was_there_is_continued_with_its_default(tmp_path):
    run = some_run(tmp_path / "run")
    manifest = run.read_manifest()
    del manifest["recipe"]["nesterov"], manifest["recipe"]["loss"]["cross_entropy"]
    run.write_manifest(manifest)
    assert continued(run, tiny_recipe()) == run
    with pytest.raises(Mistake, match=r"^cross_entropy must be smoothed to resume .*, got copies$"):
        continued(run, tiny_recipe(cross_entropy="copies"))
    with pytest.raises(Mistake, match=r"^nesterov must be False to resume .*, got True$"):
        continued(run, tiny_recipe(nesterov=True))


def test_a_recorded_setting_that_this_macer_does_not_know_is_refused(tmp_path):
    run = some_run(tmp_path / "run")
    manifest = run.read_manifest()
    manifest["recipe"]["loss"]["later"] = 1.0
    run.write_manifest(manifest)
    message = r"manifest.json must have a recipe that this macer knows: .* no setting 'later'"
    with pytest.raises(Mistake, match=message):
        continued(run, tiny_recipe())


def continued(run, recipe):
    return begin_run(run.folder, recipe, "data", resume=True, complete=completed)


FLAT = {
    "lam": 2.0, "gamma": 8.0, "beta": 16.0, "cross_entropy": "smoothed", "eta": 0.5,
    "consistency": 10.0, "attack": "pgd", "epsilon": 0.6, "epsilon_ramp": 10, "steps": 3,
    "step_size": 0.0, "teacher": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        ("macer", {"lam": 2.0}),
        ("gaussian", {}),
        ("stability", {"lam": 2.0}),
        ("consistency", {"lam": 2.0, "eta": 0.5}),
        ("macer-consistency", {"lam": 2.0, "consistency": 10.0, "eta": 0.5}),
        ("macer-hard-noise", {"lam": 2.0, "steps": 3, "step_size": 0.6 / 3}),
        ("smoothadv", {"epsilon": 0.6, "epsilon_ramp": 10, "steps": 3, "step_size": None}),
        ("smoothmix", {"eta": 0.5, "eta_ramp": 10, "steps": 3, "step_size": None}),
        ("catrs", {"lam": 2.0, "epsilon": 0.6, "steps": 3, "step_size": None}),
        ("sun", {"steps": 3, "step_size": 0.6 / 3, "attack_epoch": 1}),
    ],
)
def test_a_run_whose_settings_stood_side_by_side_is_continued(tmp_path, loss, settings):
    recipe = tiny_recipe(loss=loss, drop_epoch=1, **settings)
    run = begin_run(tmp_path / "run", recipe, "data", resume=False)
    manifest = run.read_manifest()
    manifest["recipe"] |= FLAT | {"loss": loss}
    run.write_manifest(manifest)
    assert completed(run.read_recipe()) == recipe  # with the settings that came later
    assert continued(run, recipe) == run
    for setting in settings:
        if setting != "step_size":
            with pytest.raises(Mistake, match=f"^{setting} must be .* to resume"):
                continued(run, recipe.changed(**{setting: 7}))


@pytest.mark.parametrize(("name", "value"), [("epsilon", 10**400), ("epsilon", "x"), ("steps", {})])
def test_a_flat_recipe_of_strange_values_is_refused(tmp_path, name, value):
    run = begin_run(tmp_path / "run", tiny_recipe(loss="sun"), "data", resume=False)
    manifest = run.read_manifest()
    manifest["recipe"] |= FLAT | {"loss": "sun", name: value}
    run.write_manifest(manifest)
    with pytest.raises(Mistake, match=r"must have a recipe that this macer knows: "):
        run.read_recipe()


def test_a_schedule_of_lam_that_had_no_effect_on_a_flat_run_is_forgotten(tmp_path):
    recipe = tiny_recipe(loss="gaussian")
    run = begin_run(tmp_path / "run", recipe, "data", resume=False)
    manifest = run.read_manifest()
    manifest["recipe"] |= FLAT | {"loss": "gaussian", "lam_schedule": "ramp"}
    run.write_manifest(manifest)
    assert continued(run, recipe) == run


def test_damaged_metrics_are_refused(tmp_path):
    run = some_run(tmp_path / "run")
    assert run.read_metrics() == []
    whole = '{"epoch": 1, "step": 3, "samples_per_second": 5.0}\n'
    run.metrics.write_text(whole)
    assert run.read_metrics() == [{"epoch": 1, "step": 3, "samples_per_second": 5.0}]
    for torn in ('{"st', "5", '{"epoch": 1, "step": 3}'):
        run.metrics.write_text(whole + torn)
        with pytest.raises(Mistake, match=r"must have one epoch's metrics per line, .*; move "):
            run.read_metrics()


def test_a_run_can_begin_where_one_died_before_its_manifest(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / ".manifest.json.1.tmp").touch()
    assert some_run(tmp_path / "run").read_manifest()["status"] == "training"


def test_the_manifest_records_what_was_asked_for(tmp_path):
    manifest = some_run(tmp_path / "run").read_manifest()
    assert manifest["recipe"] == json.loads(json.dumps(tiny_recipe().to_dict()))
    assert (manifest["data_sha256"], manifest["status"]) == ("data", "training")
    assert (manifest["macer"], manifest["commit"]) == (__version__, commit())
    assert manifest["versions"]["torch"] == torch.__version__


# refusal


def test_a_missing_model_is_refused(tmp_path):
    run = some_run(tmp_path / "run")
    with pytest.raises(Mistake) as refusal:
        load_model(run.folder)
    line = f"no model in {run.folder}: expected {run.model}"
    assert str(refusal.value) == line
    (run.folder / JOURNAL).touch()
    with pytest.raises(Mistake) as refusal:
        load_model(run.folder)
    assert str(refusal.value) == (
        f"{line}; it has certificates alone: make a run of the network that they are of by "
        "`macer pack`, and certify that"
    )
    with pytest.raises(Mistake) as refusal:
        load_model(tmp_path / "none")
    known = f"no run or model at {tmp_path / 'none'}; name a run folder or a model file"
    assert str(refusal.value) == known


def test_weights_that_are_not_those_of_the_manifest_are_refused(tmp_path):
    run, _ = trained(tmp_path / "run")
    damage(run.model)
    with pytest.raises(Mistake, match=r"must have the SHA-256 its manifest names, [0-9a-f]{16}…;"):
        load_model(run.folder)


@pytest.mark.parametrize("content", ["nothing", "text", "cut", "no card", "strange card"])
def test_a_file_that_is_no_model_file_is_refused(tmp_path, content):
    file = tmp_path / "a.safetensors"
    save_model(file, CARD.build().state_dict(), CARD)
    if content == "no card":
        save_file({"w": torch.zeros(3)}, file)
    elif content == "strange card":
        save_file({"w": torch.zeros(3)}, file, {"macer": '{"shape": 3}'})
    else:
        whole = file.read_bytes()
        file.write_bytes({"nothing": b"", "text": b"model" * 100, "cut": whole[:-1]}[content])
    with pytest.raises(Mistake, match=r"a.safetensors must be a model file written by macer train"):
        load_model(file)


def test_weights_of_another_architecture_are_refused(tmp_path):
    other = replace(CARD, architecture="tiny")
    save_model(tmp_path / "a", CARD.build().state_dict(), other)
    with pytest.raises(Mistake, match=r"a must hold the weights of tiny: "):
        load_model(tmp_path / "a")


def test_a_run_that_exists_is_refused_and_left_alone(tmp_path):
    run, _ = trained(tmp_path / "run")
    before = contents(run.folder)
    with pytest.raises(Mistake, match=r"holds a run already; continue it with --resume or choose"):
        some_run(run.folder)
    assert contents(run.folder) == before


def test_a_run_that_failed_at_its_first_step_leaves_its_folder_to_another_recipe(tmp_path):
    run = some_run(tmp_path / "run")
    (run.folder / "events").touch()
    again = begin_run(run.folder, tiny_recipe(seed=1), "data", resume=False)
    assert again.read_recipe().seed == 1
    for made in (run.model, run.metrics, run.checkpoints / "0-0.safetensors"):
        made.touch()
        with pytest.raises(Mistake, match=r"holds a run already; continue it with --resume or"):
            some_run(run.folder)
        made.unlink()
    assert run.read_recipe().seed == 1


def test_a_run_that_is_being_trained_keeps_its_folder(tmp_path):
    run = some_run(tmp_path / "run")
    with locked(run.folder), pytest.raises(Mistake, match=r"is being written by another process"):
        some_run(run.folder)


@pytest.mark.parametrize(
    ("field", "value"), [("sigma", 0.5), ("seed", 1), ("lr_decays", (1,)), ("model", "lenet")]
)
def test_another_recipe_is_refused_by_the_name_of_its_field(tmp_path, field, value):
    run = some_run(tmp_path / "run")
    before = contents(run.folder)
    with pytest.raises(Mistake, match=rf"^{field} must be .* to resume .*run, got "):
        begin_run(run.folder, tiny_recipe(**{field: value}), "data", resume=True)
    assert contents(run.folder) == before


def test_a_run_that_another_process_began_meanwhile_is_refused_and_left_alone(
    tmp_path, monkeypatch
):
    run = Run(tmp_path / "run")

    @contextmanager
    def held_after_another(folder):
        run.manifest.write_text("theirs")
        yield

    monkeypatch.setattr("macer.runs.run.locked", held_after_another)
    with pytest.raises(Mistake, match=r"run holds a run already; choose another --out"):
        some_run(run.folder)
    assert run.manifest.read_text() == "theirs"


def test_what_is_hidden_does_not_make_a_folder_old(tmp_path):
    (tmp_path / ".DS_Store").touch()
    assert some_run(tmp_path).manifest.is_file()


def test_other_data_are_refused(tmp_path):
    run = some_run(tmp_path / "run")
    with pytest.raises(Mistake, match=r"training data must be those .* began with; their SHA-256"):
        begin_run(run.folder, tiny_recipe(), "other data", resume=True)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "thing", ["notes.txt", "model.safetensors", "checkpoints/old", "checkpoints"]
)
def test_a_folder_that_holds_other_things_is_refused_and_left_alone(tmp_path, thing, resume):
    (tmp_path / thing).parent.mkdir(exist_ok=True)
    (tmp_path / thing).write_text("mine")
    with pytest.raises(Mistake, match=r"must be a new folder or a run; choose another --out"):
        some_run(tmp_path, resume)
    assert contents(tmp_path) == {thing: b"mine"}


def test_a_file_in_the_place_of_the_run_is_refused(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(Mistake, match=r"must be a new folder or a run; choose another --out"):
        some_run(tmp_path / "run")


def test_a_manifest_that_is_missing_or_broken_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"no run in .*: expected .*manifest.json"):
        Run(tmp_path).read_manifest()
    for text in ("{", "[]", '{"recipe": {}}', ""):
        Run(tmp_path).manifest.write_text(text)
        with pytest.raises(Mistake, match=r"manifest.json must be a manifest in JSON: "):
            Run(tmp_path).read_manifest()
