"""Several processes: what each takes of a step, and what they make together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import TESTS, torchrun
from safetensors.torch import load_file
from tiny_models import CLASSES, tiny, tiny_recipe, tiny_split
from two_processes import NORMED, SAME, TASKS

from macer.cli.app import main
from macer.runs.run import Run
from macer.system.errors import Mistake, OtherProcessFailed
from macer.system.processes import (
    SINGLE,
    Ranks,
    is_first,
    is_first_of_machine,
    joined,
    started_by_torchrun,
)
from macer.training.batches import Streamed
from macer.training.loop import train
from macer.training.step import Trainer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two_processes.py."""
    out = tmp_path_factory.mktemp("together")
    done = torchrun(str(TESTS / "two_processes.py"), str(out))
    assert done.returncode == 0, done.stderr
    return out


# law


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_two_processes_train_the_model_that_one_trains(name, together, tmp_path):
    train(SAME[name], tiny_split(), CLASSES, tmp_path)
    one, two = (load_file(folder / "model.safetensors") for folder in (tmp_path, together / name))
    assert one.keys() == two.keys()
    for tensor in one:
        assert torch.allclose(one[tensor], two[tensor], rtol=1e-3, atol=1e-5), tensor
    alone, both = Run(tmp_path).read_metrics(), Run(together / name).read_metrics()
    assert [line["loss"] for line in both] == pytest.approx(
        [line["loss"] for line in alone], rel=1e-3
    )
    assert [line["epoch"] for line in both] == [1, 2, 3]
    assert Run(together / name).read_manifest()["processes"] == 2


@pytest.mark.slow
def test_all_stop_when_one_is_asked_to_and_go_on_to_the_same_weights(together):
    """Bit for bit: the statistics of batch-norm, which attacks see, are those of all processes."""
    told = [(together / f"stopped-{rank}").read_text() for rank in (0, 1)]
    assert told == ["stopped at step 8; the state is saved: ['000000008']"] * 2
    one, two = ((together / n / "model.safetensors").read_bytes() for n in ("normed", "resumed"))
    assert one == two
    assert len(Run(together / "resumed").read_metrics()) == NORMED.epochs


@pytest.mark.slow
def test_a_process_that_is_killed_is_started_again_and_nothing_saved_is_lost(together, tmp_path):
    """torchrun's elastic restart: bit for bit the weights of a training that nobody killed."""
    script = str(TESTS / "killed_process.py")
    done = torchrun("--max-restarts", "1", script, str(tmp_path))
    assert done.returncode == 0, done.stderr
    lives = sorted(file.name for file in tmp_path.glob("pid-*"))
    assert lives == ["pid-0-0", "pid-0-1", "pid-1-0", "pid-1-1"]
    one, two = (folder / "model.safetensors" for folder in (together / "normed", tmp_path / "run"))
    assert one.read_bytes() == two.read_bytes()
    epochs = [line["epoch"] for line in Run(tmp_path / "run").read_metrics()]
    assert epochs == list(range(1, NORMED.epochs + 1))


@pytest.mark.slow
@pytest.mark.skipif(not TASKS.is_dir(), reason="threads are counted in /proc")
def test_nothing_of_the_processes_talk_outlives_it(together):
    """A thread that lets go of a tensor while the interpreter ends aborts the process."""
    assert [(together / f"threads-{rank}").read_text() for rank in (0, 1)] == ["1", "1"]


@pytest.mark.parametrize("count", [2, 4])
def test_the_parts_of_a_step_make_up_the_step_of_one_process(count):
    recipe = tiny_recipe(crop=2, flip=True)
    split = tiny_split()
    alone = Trainer(recipe, tiny(3, 1), split, CPU)
    parts = [Trainer(recipe, tiny(3, 1), split, CPU, ranks=Ranks(r, count)) for r in range(count)]
    for trainer in (alone, *parts):
        trainer.step = 2
    assert torch.equal(torch.cat([t._noise(t.size) for t in parts]), alone._noise(alone.size))
    whole = alone._numbers(4 * alone.size)
    assert torch.equal(torch.cat([t._numbers(4 * t.size) for t in parts]), whole)
    for i, values in enumerate(alone.plan(1)):
        own = [t.plan(1)[i].split(t.size) for t in parts]
        steps = [torch.cat(step) for step in zip(*own, strict=True)]
        assert torch.equal(torch.cat(steps), values)


def test_a_network_draws_other_random_numbers_in_each_process():
    drawn = []
    for rank in (0, 1):
        trainer = Trainer(tiny_recipe(), tiny(3, 1), tiny_split(), CPU, ranks=Ranks(rank, 2))
        trainer._prepare(trainer.plan(0).rows(0, 8))
        drawn.append(torch.rand(1).item())
    assert drawn[0] != drawn[1]


def test_images_from_files_are_read_for_the_own_part_only():
    class Files:
        shape = (8, 1, 2, 2)
        read: list[int] = []  # noqa: RUF012

        def middle(self, number: int) -> np.ndarray:
            self.read.append(number)
            return np.full((1, 2, 2), number, np.uint8)

    feed = Streamed(Files(), tiny_recipe(batch=4), CPU, 2)
    seen = [feed.picked(None)[:, 0, 0, 0].tolist() for _ in feed.batches(torch.arange(4), 0)]
    assert seen == [[0, 1], [2, 3]] and sorted(Files.read) == [0, 1, 2, 3]


def test_alone_nothing_is_exchanged(monkeypatch):
    for name in ("all_reduce", "broadcast", "init_process_group"):
        monkeypatch.setattr(torch.distributed, name, None)
    value = torch.arange(3.0)
    SINGLE.average([value])
    SINGLE.copy_from_first(value)
    SINGLE.wait()
    assert value.tolist() == [0, 1, 2] and torch.equal(SINGLE.part(value), value)
    assert SINGLE.any(True) and not SINGLE.any(False)
    assert SINGLE.run_on_first(lambda: 5) == 5
    with joined(CPU) as ranks:
        assert ranks == SINGLE


def test_an_average_is_the_sum_over_the_processes_divided_by_their_number(monkeypatch):
    """Of tensors of several types and shapes, in their own places."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda values: values.mul_(4).add_(2))
    tensors = [torch.tensor([[1.0, 2.0]]), torch.tensor(3.0), torch.ones(2, dtype=torch.float64)]
    places = [tensor.data_ptr() for tensor in tensors]
    Ranks(0, 2).average(tensors)
    assert [tensor.tolist() for tensor in tensors] == [[[3.0, 5.0]], 7.0, [3.0, 3.0]]
    assert [tensor.data_ptr() for tensor in tensors] == places


def test_all_have_what_the_first_process_has(monkeypatch):
    sources = []
    monkeypatch.setattr(torch.distributed, "broadcast", lambda _, src: sources.append(src))
    for rank in (0, 1):
        Ranks(rank, 2).copy_from_first(torch.ones(1))
    assert sources == [0, 0]


def test_it_is_so_in_any_process_if_it_is_so_in_one(monkeypatch):
    for others in (0, 1, 3):
        monkeypatch.setattr(torch.distributed, "all_reduce", lambda flag, n=others: flag.add_(n))
        assert Ranks(0, 4).any(False) == (others > 0) and Ranks(0, 4).any(True)


def test_constants_stay_as_they_are_whatever_is_averaged(monkeypatch):
    """The sum of seven times the same number, divided by seven, need not be that number."""
    trainer = Trainer(tiny_recipe(batch=14), tiny(3, 1), tiny_split(), CPU, ranks=Ranks(0, 7))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda values: values.mul_(7))
    constant = torch.arange(1, 1001) / 1001
    before = {torch.float32: torch.cat([constant, torch.ones(2)])}
    after = {torch.float32: torch.cat([constant, torch.tensor([1.5, 0.5])])}
    shared = trainer._shared(after, before)[torch.float32]
    assert torch.equal(shared[:1000], constant) and not torch.equal(constant * 7 / 7, constant)
    assert shared[1000:].tolist() == pytest.approx([1.5, 0.5])


def as_process(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, str(rank))
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")


def test_the_first_process_is_the_one_that_speaks(monkeypatch, capsys):
    assert is_first() and not started_by_torchrun()
    for rank, spoken in ((0, True), (1, False)):
        as_process(rank, monkeypatch)
        assert started_by_torchrun() and is_first() == spoken
        assert main(["zoo"]) == 2
        line = "macer: torchrun must start train or certify, got zoo; run it in one process\n"
        assert capsys.readouterr().err == line * spoken


def test_the_first_of_a_machine_need_not_be_the_first_of_all(monkeypatch):
    assert is_first_of_machine()
    as_process(1, monkeypatch)
    assert not is_first_of_machine()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert is_first_of_machine() and not is_first()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert is_first() and not is_first_of_machine()


def test_one_process_that_torchrun_started_is_single(monkeypatch):
    as_process(0, monkeypatch)
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(torch.distributed, "init_process_group", None)
    assert not started_by_torchrun()
    with joined(CPU) as ranks:
        assert ranks == SINGLE


@pytest.mark.parametrize("value", ["", "x", "2"])
def test_what_other_launchers_set_means_nothing(value, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", value)
    assert is_first() and not started_by_torchrun()


@pytest.mark.parametrize("error", [Mistake("too dark"), ValueError("too dark")])
def test_another_process_says_which_it_is(error, monkeypatch, capsys):
    as_process(1, monkeypatch)
    for name, value in {"get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    monkeypatch.setattr("macer.system.processes._init_group", lambda _: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("macer.data.sets.load", fail)
    arguments = ["train", "demo", "--out", "nowhere", "--device", "cpu"]
    if isinstance(error, Mistake):
        assert main(arguments) == 2
        assert capsys.readouterr().err == "macer: process 1: too dark\n"
    else:
        assert main(arguments) == 70
        assert capsys.readouterr().err.endswith("ValueError: too dark\nprocess 1\n")


# refusal


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(Mistake, match="batch must be a multiple of the 3 processes, got 16"):
        Trainer(tiny_recipe(), tiny(3, 1), tiny_split(), CPU, ranks=Ranks(0, 3))


def test_more_processes_than_gpus_are_refused(monkeypatch):
    from macer.cli.parameters import chosen_device

    as_process(1, monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(Mistake, match="nproc-per-node must be at most the number of GPUs, 1, got"):
        chosen_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert chosen_device("auto") == torch.device("cuda", 1) == chosen[0]


@pytest.mark.slow
def test_a_mistake_is_one_line_of_all_processes(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    done = torchrun("-m", "--", "macer", "train", "demo", "--out", "run", cwd=tmp_path)
    said = [line for line in done.stderr.splitlines() if line.startswith("macer:")]
    assert said == ["macer: run must be a new folder or a run; choose another --out"]
    assert done.returncode != 0 and [f.name for f in (tmp_path / "run").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "text",
    [
        "Connection closed by peer\nand more",
        "[/a/pair.cc:5] Connection closed by peer. This is typically caused by a bug. GLHF! 🏖️",
    ],
)
def test_a_process_that_does_not_answer_is_a_mistake(monkeypatch, text):
    def broken(_: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(torch.distributed, "all_reduce", broken)
    line = (
        r"^another process has ended or does not answer \(Connection closed by peer\); start all "
        "again: certify goes on where it was, and train with --resume$"
    )
    for act in (lambda: Ranks(0, 2).wait(), lambda: Ranks(0, 2).average([torch.ones(1)])):
        with pytest.raises(Mistake, match=line):
            act()


def test_what_the_first_cannot_do_ends_all(monkeypatch):
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flag: flag.fill_(1))

    def fail() -> None:
        raise Mistake("no room")

    with pytest.raises(Mistake, match="no room"):
        Ranks(0, 2).run_on_first(fail)
    with pytest.raises(OtherProcessFailed):
        Ranks(1, 2).run_on_first(fail)
