"""Write the page that certifies in the browser alone, with all that it loads, into a folder.

python docs/scripts/browser_files.py FOLDER

The network, the thresholds of the noise and the radius of every count are made here, by Python; the
browser draws, counts and looks up. What runs the network comes from npm, into build/npm, by
`make docs`.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from jinja2 import Template
from numpy.typing import NDArray
from onnx_file import onnx_of
from torch import nn

from macer.certification.anytime import ANYTIME, first_look, look_after
from macer.models.networks import LeNet
from macer.runs.trained_model import load_model
from macer.runs.zoo import zoo_file
from macer.server.examples import example_png, examples
from macer.smoothing.bounds import bound_named
from macer.smoothing.confidence import radius_lower
from macer.smoothing.copies import CHUNK
from macer.smoothing.exact_noise import BITS, levels
from macer.smoothing.tally import Tally
from macer.system.files import sha256_of_file

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/browser"
STATIC = ROOT / "src/macer/server/static"
RUNTIME = ROOT / "build/npm/node_modules/onnxruntime-web/dist"

MODEL = "zoo:mnist-0.50"
N0, N, ALPHA = 100, 20_000, 0.001

OWN = ("live.css", "noise.js", "page.js", "radii.js", "votes.js", "worker.js")
SHARED = ("certificate.js", "drawing.js", "icon.svg", "image.js", "style.css")  # with macer serve
RUN_BY = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")  # one thread needs no more

LOW_BITS = 30  # of a threshold; the upper 32 are a word of their own


def runtime_is_here() -> bool:
    """Whether npm has fetched what runs the network."""
    return all((RUNTIME / name).exists() for name in RUN_BY)


def write_browser_files(folder: Path) -> None:
    """Write the page and its files; the folder is made."""
    (folder / "examples").mkdir(parents=True, exist_ok=True)
    for source, names in ((PAGE, OWN), (STATIC, SHARED), (RUNTIME, RUN_BY)):
        for name in names:
            shutil.copy(source / name, folder / name)
    model, card = load_model(MODEL)
    (folder / "model.onnx").write_bytes(onnx_of(layers(model), card.shape))
    noise = levels(card.sigma)
    looks = {n: radii_of_look(n, card.sigma) for n in look_sizes()}
    tables = {
        "thresholds": words(noise.thresholds),
        "guide": noise.guide.astype("<i2"),
        "floats": noise.floats.astype("<f4"),
        "radii": np.concatenate([radii for _, radii in looks.values()]).astype("<f8"),
    }
    for name, table in tables.items():
        (folder / f"{name}.bin").write_bytes(table.tobytes())
    for number in range(examples(card)):
        (folder / f"examples/{number}.png").write_bytes(example_png(number))
    settings = {
        "model": MODEL,
        "model_sha256": sha256_of_file(zoo_file(MODEL)),
        "sigma": card.sigma,
        "alpha": ALPHA,
        "n0": N0,
        "n": N,
        "rows": CHUNK,
        "shape": card.shape,
        "classes": card.classes,
        "examples": examples(card),
        "lowest": noise.lowest,
        "looks": [(n, least) for n, (least, _) in looks.items()],
    }
    (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
    (folder / "live.html").write_text(page(settings), "utf-8")


def layers(model: nn.Module) -> nn.Sequential:
    """A LeNet whose images are not normalised as layers in a row."""
    normalize, lenet = model
    assert isinstance(lenet, LeNet)
    assert normalize.mean.eq(0).all() and normalize.std.eq(1).all()
    return nn.Sequential(
        lenet.conv1, nn.MaxPool2d(2), nn.ReLU(),
        lenet.conv2, nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), lenet.fc1, nn.ReLU(), lenet.fc2,
    )  # fmt: skip


def words(thresholds: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Each threshold of 62 bits as two words, the upper 32 bits and the lower 30."""
    assert BITS - LOW_BITS == 32
    pairs = np.stack((thresholds >> LOW_BITS, thresholds & (2**LOW_BITS - 1)), axis=1)
    return pairs.astype("<u4")


def look_sizes() -> list[int]:
    """The samples at each look, as `macer.certify_anytime` has them."""
    sizes = [first_look(N, ALPHA)]
    while sizes[-1] < N:
        sizes.append(look_after(sizes[-1], N))
    assert all(size % CHUNK == 0 for size in (N0, *sizes))
    return sizes


def radii_of_look(n: int, sigma: float) -> tuple[int, NDArray[np.float64]]:
    """The least count of n votes that certifies a radius, and the radii from there to n."""
    counts = np.arange(n // 2, n + 1)  # at half of the votes there is none
    radii = radii_of_counts(counts, n, sigma)
    assert (np.diff(radii) >= 0).all()
    least = int(np.searchsorted(radii, 0.0, side="right"))
    return int(counts[least]), radii[least:]


def radii_of_counts(counts: NDArray[np.int64], n: int, sigma: float) -> NDArray[np.float64]:
    """The radius that each count of votes in n samples certifies, 0 for an abstention."""
    votes = torch.from_numpy(counts)[:, None]
    tally, first = Tally(votes, votes, votes), torch.zeros(len(counts), dtype=torch.int64)
    p_a, p_b = bound_named(ANYTIME).probabilities(tally, first, n, ALPHA)
    return radius_lower(p_a, sigma, p_b)


def page(settings: dict[str, object]) -> str:
    """The page: its frame, and two parts of the page of `macer serve`."""
    served = (STATIC / "index.html").read_text("utf-8")

    def part(place: re.Match[str]) -> str:
        [section] = re.findall(
            rf'<section aria-labelledby="{place[1]}">.*?</section>', served, re.DOTALL
        )
        return str(section)

    frame = (PAGE / "live.html").read_text("utf-8")
    size = sum((RUNTIME / name).stat().st_size for name in RUN_BY)
    text = Template(frame).render(**settings, megabytes=round(size / 1e6))
    return re.sub(r"<!-- section: ([\w-]+) -->", part, text) + "\n"


if __name__ == "__main__":
    write_browser_files(Path(sys.argv[1]))
