import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from macer.certification.header import outputs_agree
from macer.certification.identity import IMAGES, MOST_OUTPUTS, outputs_of, probe_images
from macer.cli.app import main
from macer.data.sets import load

CPU = torch.device("cpu")
SETTINGS = ["--dataset", "mnist-sample", "--sigma", "0.5", "--n", "100", "--device", "cpu"]

# Four networks whose function can be exchanged though weights and source stay what they are.
NETS = """
import json, pathlib
import torch
from PIL import Image
from torch import nn
import elsewhere

class Net(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(784, 10)
        self.offset = torch.zeros(10)  # neither parameter nor buffer
        self.scale = scale

    def forward(self, x):
        return self.scale * self.linear(x.flatten(1)) + self.offset

def attribute(num_classes, channels):
    net = Net()
    net.offset = torch.tensor(json.loads(pathlib.Path("offset.json").read_text()))
    return net

def session(num_classes, channels):
    return Session()

class Session(nn.Module):  # as a wrapper of a file that another library runs
    def forward(self, x):
        weights = json.loads(pathlib.Path("weights.json").read_text())
        return x.flatten(1)[:, :10] * torch.tensor(weights)

def hook(num_classes, channels):
    net = Net()
    if pathlib.Path("hooked").exists():
        net.register_forward_hook(lambda module, given, logits: logits.flip(1))
    return net

def reads_a_global(num_classes, channels):
    return Net(scale=elsewhere.SCALE)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    import sys

    monkeypatch.chdir(tmp_path)
    Path("swapnets.py").write_text(NETS)
    Path("elsewhere.py").write_text("SCALE = 1.0\n")
    Path("offset.json").write_text(json.dumps([0.0] * 10))
    Path("weights.json").write_text(json.dumps([float(i) for i in range(10)]))
    yield
    for name in ("swapnets", "elsewhere"):
        sys.modules.pop(name, None)


def exchange(name: str, monkeypatch) -> None:
    """Another function under the same weights and the same source."""
    import elsewhere

    Path("offset.json").write_text(json.dumps([0.0] * 9 + [3.0]))
    Path("weights.json").write_text(json.dumps([float(-i) for i in range(10)]))
    Path("hooked").touch()
    monkeypatch.setattr(elsewhere, "SCALE", -1.0)


@pytest.mark.parametrize("name", ["attribute", "session", "hook", "reads_a_global"])
def test_a_network_that_computes_something_else_may_not_speak(here, name, monkeypatch, capsys):
    target = f"swapnets:{name}"
    assert main(["certify", target, *SETTINGS, "--stop", "3", "--out", "certs"]) == 0
    assert main(["verify", "certs", "--target", target, "--device", "cpu"]) == 0
    before = Path("certs/certificates.journal").read_bytes()
    exchange(name, monkeypatch)
    capsys.readouterr()
    assert main(["verify", "certs", "--target", target, "--device", "cpu"]) == 1
    assert "the network computes something else than when it was certified" in (
        capsys.readouterr().err
    )
    assert main(["certify", target, *SETTINGS, "--stop", "5", "--out", "certs"]) == 2
    assert re.match("macer: outputs must be those of the network that was certified to continue",
                    capsys.readouterr().err)  # fmt: skip
    assert Path("certs/certificates.journal").read_bytes() == before


def test_outputs_are_those_of_the_whole_network_on_noisy_images():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 6, 5))
    shape, sigma = (3, 8, 6), 0.5
    rows = outputs_of(net, shape=shape, sigma=sigma, device=CPU)
    with torch.no_grad():
        expected = net(probe_images(shape, sigma))
    torch.testing.assert_close(torch.tensor(rows), expected, rtol=1e-5, atol=1e-6)
    assert probe_images(shape, sigma).std() > probe_images(shape, 0.01).std()
    assert len(rows) == IMAGES and (probe_images(shape, sigma) < 0).any()


def test_every_one_of_many_logits_counts():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 300))
    rows = outputs_of(net, shape=(1, 8, 8), sigma=0.5, device=CPU)
    assert {len(row) for row in rows} == {MOST_OUTPUTS}
    for place in (0, 150, 299):
        with torch.no_grad():
            net[1].bias[place] += 1
        again = outputs_of(net, shape=(1, 8, 8), sigma=0.5, device=CPU)
        assert not outputs_agree(rows, again, "fp32")
        rows = again


def test_rounding_agrees_and_a_tenth_does_not():
    row, other = [[1.0, -2.0, None]], [[1.0001, -2.0, None]]
    assert outputs_agree(row, other, "fp32") and outputs_agree(row, other, "bf16")
    assert not outputs_agree(row, [[1.1, -2.0, None]], "fp32")
    assert outputs_agree(row, [[1.1, -2.0, None]], "bf16")
    assert not outputs_agree(row, [[1.5, -2.0, None]], "bf16")
    assert not outputs_agree(row, [[1.0, -2.0, 0.0]], "fp32")
    assert not outputs_agree(row, [[1.0, -2.0]], "fp32")
    assert not outputs_agree(row, [*row, *row], "fp32")


@pytest.mark.parametrize("name", ["attribute", "session", "hook", "reads_a_global"])
def test_a_packed_network_that_computes_something_else_predicts_nothing(
    here, name, monkeypatch, capsys
):
    Image.fromarray(load("mnist-sample", "test").images[0, 0]).save("digit.png")
    pack = ["pack", f"swapnets:{name}", *SETTINGS[:4], "--out", "run"]
    assert main(pack) == 0
    assert main(["certify", "run", *SETTINGS[4:], "--stop", "3"]) == 0
    predict = ["predict", "run", "digit.png", "--n", "100", "--device", "cpu"]
    assert main(predict) == 0
    exchange(name, monkeypatch)
    capsys.readouterr()
    assert main(predict) == 2
    out, error = capsys.readouterr()
    assert out == "" and "the network computes something else than when it was certified" in error
    assert main(["verify", "run", "--device", "cpu"]) == 1
