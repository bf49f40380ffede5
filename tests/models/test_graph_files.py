"""Files that hold a whole network: ONNX graphs and TorchScript programs."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx_file import field, number, onnx_of
from torch import nn

from macer.certification.journal import read_journal
from macer.certification.pack import pack
from macer.certification.target import find_target
from macer.cli.app import main
from macer.data.sets import load
from macer.models.graph_files import TORCHSCRIPT, graph_kind, network_of
from macer.models.onnx_files import OnnxNetwork, check_onnx
from macer.runs.trained_model import open_model
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

pytest.importorskip("onnxruntime")

SHAPE = (1, 28, 28)
NINE = Path(__file__).parents[2] / "docs/pictures/nine.png"


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10)).eval()


def write_onnx(path: Path) -> Path:
    path.write_bytes(onnx_of(network(), shape=SHAPE))
    return path


def write_script(path: Path, module: nn.Module | None = None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module or network()).save(str(path))
    return path


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(7, *SHAPE, generator=torch.Generator().manual_seed(0))


def test_a_graph_and_a_program_are_the_network_they_were_made_from(tmp_path: Path, images) -> None:
    for path in (write_onnx(tmp_path / "net.onnx"), write_script(tmp_path / "net.pt")):
        kind = graph_kind(path)
        loaded = network_of(kind, path.read_bytes(), name="net", code=[TORCHSCRIPT])
        with torch.inference_mode():
            torch.testing.assert_close(loaded(images), network()(images))


def test_a_graph_for_one_image_gets_one_at_a_time(images) -> None:
    one = OnnxNetwork(onnx_of(network(), shape=SHAPE, rows=1), "net")
    with torch.inference_mode():
        torch.testing.assert_close(one(images), network()(images))


def test_the_kind_of_a_file_is_in_its_content(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pt")
    (tmp_path / "text.pt").write_text("no archive")
    assert graph_kind(write_script(tmp_path / "net")) == "torchscript"
    assert graph_kind(write_onnx(tmp_path / "NET.ONNX")) == "onnx"
    for name in ("weights.pt", "text.pt", "nothing.onnx", "."):
        assert graph_kind(tmp_path / name) is None


@pytest.mark.medium
@pytest.mark.parametrize("form", ["net.onnx", "net.pt"])
def test_a_packed_file_is_certified_and_verified_as_the_file_is(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACER_HOME", str(tmp_path / "home"))
    file = (write_onnx if form == "net.onnx" else write_script)(tmp_path / form)
    code = "" if form == "net.onnx" else " --code torchscript"
    run, alone = tmp_path / "run", tmp_path / "alone"
    few = "--n 100 --skip 500 --threads 1"
    _run(f"pack {file} --sigma 0.5 --dataset mnist-sample --out {run}{code}")
    _run(f"certify {run} {few}")
    _run(f"certify {file} --sigma 0.5 --dataset mnist-sample --out {alone} {few}{code}")
    rows = [(folder / "certificates.tsv").read_text().splitlines() for folder in (run, alone)]
    assert _without_times(rows[0]) == _without_times(rows[1])
    assert read_journal(alone / "certificates.journal").header.weights_sha256 == sha256_of_file(
        file
    )
    _run(f"verify {run} --resample 1 --threads 1")
    _run(f"verify {alone} --target {file} --resample 1 --threads 1{code}")
    _run(f"predict {run} {NINE} --n 100 --threads 1")
    assert "nine.png" in capsys.readouterr().out.splitlines()[-1]


def _run(line: str) -> None:
    assert main(line.split()) == 0


def _without_times(lines: list[str]) -> list[list[str]]:
    names = next(line for line in lines if not line.startswith("#")).split("\t")
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [
        [value for name, value in zip(names, row, strict=True) if name != "time"] for row in rows
    ]


def test_a_changed_graph_is_another_model(tmp_path: Path) -> None:
    file = write_onnx(tmp_path / "net.onnx")
    split = load("mnist-sample", "test")
    first = find_target(str(file), sigma=0.5, split=split, classes=split.classes)
    file.write_bytes(file.read_bytes() + number(5, 1))  # model_version
    other = find_target(str(file), sigma=0.5, split=split, classes=split.classes)
    assert first.weights_sha256 != other.weights_sha256


class Writes(nn.Module):
    """A program that writes a file whenever it is called."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, self.path)
        return x.flatten(1)[:, :10]


def test_a_program_is_not_loaded_before_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "written"
    file = write_script(tmp_path / "net.pt", Writes(str(written)))
    split = load("mnist-sample", "test")
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(Mistake, match=r"net.pt is a TorchScript program.*add --code torchscript"):
        find_target(str(file), sigma=0.5, split=split, classes=split.classes)
    monkeypatch.undo()
    find_target(str(file), sigma=0.5, split=split, classes=split.classes, code=[TORCHSCRIPT])
    assert written.exists()  # such a program can indeed do what the message says


def test_a_stranger_must_admit_the_program_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACER_HOME", str(tmp_path / "home"))
    file, split = write_script(tmp_path / "net.pt"), load("mnist-sample", "test")
    pack(
        str(file), tmp_path / "run", sigma=0.5, dataset="mnist-sample", split=split,
        classes=split.classes, code=[TORCHSCRIPT],
    )  # fmt: skip
    open_model(tmp_path / "run")  # by the seal
    monkeypatch.setenv("MACER_HOME", str(tmp_path / "stranger"))
    with pytest.raises(Mistake, match="TorchScript program"):
        open_model(tmp_path / "run")
    open_model(tmp_path / "run", code=[TORCHSCRIPT])


EXTERNAL = number(14, 1)
LOCATION = field(13, field(1, b"location") + field(2, b"/etc/passwd"))


@pytest.mark.parametrize("tensor", [EXTERNAL, LOCATION])
@pytest.mark.parametrize("place", ["initializer", "sparse", "attribute", "subgraph", "function"])
def test_tensors_in_other_files_are_refused_wherever_they_stand(tensor: bytes, place: str) -> None:
    attribute = field(5, field(5, tensor))
    extra = {
        "initializer": field(7, field(5, tensor)),
        "sparse": field(7, field(15, field(1, tensor))),
        "attribute": field(7, field(1, attribute)),
        "subgraph": field(7, field(1, field(5, field(6, field(5, tensor))))),
        "function": field(25, field(7, attribute)),
    }[place]
    content = onnx_of(network(), shape=SHAPE)
    check_onnx(content, "net.onnx")
    with pytest.raises(Mistake, match=r"net.onnx must hold all of its tensors"):
        check_onnx(content + extra, "net.onnx")


@pytest.mark.parametrize(
    "extra",
    [field(8, field(1, b"com.microsoft")), field(7, field(1, field(7, b"mine")))],
    ids=["imported", "of a node"],
)
def test_operators_of_others_are_refused(extra: bytes) -> None:
    with pytest.raises(Mistake, match="must use the standard's operators alone, got some of"):
        check_onnx(onnx_of(network(), shape=SHAPE) + extra, "net.onnx")


def test_damaged_files_are_refused_in_one_line() -> None:
    content = onnx_of(network(), shape=SHAPE)
    nested = b""
    for _ in range(200):
        nested = field(1, field(5, field(6, nested)))
    cut = [content[:size] for size in np.linspace(0, len(content) - 1, 40, dtype=int)]
    for wrong in (*cut, b"no graph", content + b"\x0b", field(7, nested), b"\xff" * 30):
        with pytest.raises(Mistake, match=r"^net.onnx must be an ONNX file: [^\n]*$"):
            OnnxNetwork(wrong, "net.onnx")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    file, split = write_onnx(tmp_path / "net.onnx"), load("mnist-sample", "test")
    with pytest.raises(Mistake, match=r"weights must be left out for .*net\.onnx"):
        find_target(str(file), sigma=0.5, split=split, classes=split.classes, weights=file)
    with pytest.raises(Mistake, match="make a run of it: macer pack"):
        open_model(file)
    with pytest.raises(Mistake, match="got a graph for 1×28×28"):
        OnnxNetwork(file.read_bytes(), "net")(torch.zeros(2, 3, 32, 32))
    with pytest.raises(Mistake, match="any number of images at once, or one, got 4"):
        OnnxNetwork(onnx_of(network(), shape=SHAPE, rows=4), "net")
