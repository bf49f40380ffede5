"""The guide's page on any input and any classifier, done as it says."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_file import onnx_of
from torch import nn

import macer
from macer.data.value_range import MOST_SIGMAS

PAGE = (Path(__file__).parents[2] / "docs/guide/any-input.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def done(block: str) -> dict[str, Any]:
    """The names that a block of the page leaves behind."""
    names: dict[str, Any] = {}
    exec(compile(block, "any-input.md", "exec"), names)
    return names


def test_every_block_of_the_page_is_done_here() -> None:
    marks = ("predict_proba", "def net", "macer.train", "Conv1d", "onnxruntime", "urllib")
    assert [mark in block for mark, block in zip(marks, BLOCKS, strict=True)] == [True] * 6


def test_the_page_states_the_largest_inputs() -> None:
    assert f"above {MOST_SIGMAS:,} σ, are refused" in PAGE


@pytest.mark.medium
def test_the_page_on_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    names = done(BLOCKS[0])
    certificates, answers = names["certificates"], names["classifier"].predict(names["x"][::30])
    assert len(capsys.readouterr().out.splitlines()) == len(certificates) == 5
    assert not any(certificate.exact for certificate in certificates)
    assert [certificate.label for certificate in certificates] == answers.tolist()
    again = macer.certify(  # as the page says below
        names["classifier"].predict, names["x"][::30], sigma=0.25, n=10_000, value_range=None,
        num_classes=3,
    )  # fmt: skip
    assert again == certificates


@pytest.mark.medium
def test_the_page_trains_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    Path("mynets.py").write_text(BLOCKS[1])
    monkeypatch.delitem(sys.modules, "mynets", raising=False)
    certified = done(BLOCKS[2])["certified"]
    del sys.modules["mynets"]
    assert len(certified) == 30 and certified.accuracy() > 0.8 and certified.acr > 0.8
    said, verified = capsys.readouterr().out.splitlines()
    assert said == f"average certified radius {certified.acr:.3f}, in standard deviations"
    assert verified == "29 certificates drawn again, with equal counts"


def test_the_page_on_series() -> None:
    torch.manual_seed(0)
    certificates = done(BLOCKS[3])["certificates"]
    assert len(certificates) == 2 and len(certificates[0].selection) == 4


def test_the_page_on_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    Path("model.onnx").write_bytes(onnx_of(network, [16]))
    names = done(BLOCKS[4])
    x = names["embeddings"].astype(np.float32)
    expected = network(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(names["logits"](x), expected, rtol=1e-5, atol=1e-6)
    ours = macer.certify(network, x, sigma=0.5, n=1_000, value_range=None)
    for a, b in zip(names["certificates"], ours, strict=True):
        assert abs(a.estimation[a.selected] - b.estimation[a.selected]) <= 1  # by rounding


class Remote(BaseHTTPRequestHandler):
    """The largest of three numbers."""

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"labels": np.argmax(rows, axis=1).tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Remote) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_page_on_a_remote_model(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    names = done(BLOCKS[5].replace("localhost:8000", address))
    assert names["label"] == 2
    assert 0.4 < names["radius"] < 1.5 / np.sqrt(2)  # the distance to where another is largest
