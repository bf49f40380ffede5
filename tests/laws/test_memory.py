"""Memory while certifying does not grow with the number of images certified."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import surroundings
from torch import nn

from macer.certification.data_set import certify_data_set
from macer.certification.preparation import plan_certification
from macer.certification.target import Target, weights_digest
from macer.data.sets import Split
from macer.recipes import CertifyRecipe

IMAGES, WARM_UP = 10_000, (500, 1000)
RECIPE = CertifyRecipe(n0=100, n=1000)


def measure(folder: Path) -> None:
    """Certify and print the memory after the warm-up, begun and continued once, and at the end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    pixels = np.random.default_rng(0).integers(256, size=(IMAGES, 1, 4, 4), dtype=np.uint8)
    split = Split(pixels, np.zeros(IMAGES, np.int64))
    target = Target(model, "net", "net", 0.25, (1, 4, 4), 10, weights_digest(model))
    certification = plan_certification(target, split, "noise", RECIPE, device=torch.device("cpu"))
    for images in (*WARM_UP, IMAGES):
        certify_data_set(certification, range(images), folder)
        sys.stdout.write("{images} {VmRSS} {VmHWM}\n".format(images=images, **kibibytes()))


def kibibytes() -> dict[str, int]:
    """The resident memory of this process, and the most that it ever was."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return {name: int(size) for name, size in re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status)}


SCRIPT = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from test_memory import measure
measure(Path(sys.argv[2]))
"""


# law


@pytest.mark.slow
def test_memory_grows_by_less_than_a_hundredth_over_ten_thousand_images(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(tmp_path)],
        stdout=subprocess.PIPE, check=True, text=True,
        env=surroundings(),
    )  # fmt: skip
    _, warm, end = ([int(word) for word in line.split()] for line in result.stdout.splitlines())
    assert (warm[0], end[0]) == (1000, IMAGES)
    assert len((tmp_path / "certificates.tsv").read_text().splitlines()) == IMAGES + 1
    assert end[1] < 1.01 * warm[1], "what is held has grown"
    assert end[2] < 1.01 * warm[2], "the peak has grown"
