import pytest
import torch
from torch import nn

from macer.certification import certify, predict
from macer.mistake import Mistake
from macer.noisy import CHUNK
from macer.probe import CALLS, FEW, check_rows

IMAGES = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
LINE = "the model must give an image the same logits in any company and at any time"


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


class BatchStatistics(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0)


class AlwaysDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True)


class Counting(nn.Module):
    """Another function at each call."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class TrainingNorm(nn.BatchNorm2d):
    """A batch-norm that eval mode does not reach."""

    def train(self, mode=True):
        return super().train(True)


@pytest.mark.parametrize(
    "layer", [BatchStatistics, AlwaysDropout, Counting, lambda: TrainingNorm(1)]
)
@pytest.mark.parametrize("ask", [certify, predict])
def test_a_model_whose_rows_mix_or_vary_is_refused(ask, layer):
    with pytest.raises(Mistake, match=LINE):
        ask(network(layer()), IMAGES, sigma=0.5, n=100)


@pytest.mark.parametrize(
    "layer", [nn.Identity, nn.Dropout, lambda: nn.BatchNorm2d(1), lambda: nn.InstanceNorm2d(1)]
)
def test_a_model_that_is_a_function_of_its_image_passes(layer):
    model = network(layer()).train()  # certification evaluates in eval mode
    assert len(certify(model, IMAGES, sigma=0.5, n=100)) == 1


def test_each_model_is_tried_once_for_a_shape():
    calls = []

    class Watching(nn.Module):
        def forward(self, x):
            calls.append(tuple(x.shape))
            return x.flatten(1)

    model = Watching()
    settings = {"rows": CHUNK, "dtype": torch.float32, "device": torch.device("cpu")}
    for shape in ((1, 4, 4), (1, 4, 4), (1, 2, 2)):
        check_rows(model, shape, **settings)
    few = [FEW] * CALLS
    assert [rows for rows, *_ in calls] == [CHUNK, CHUNK, *few] * 2
    assert [shape[1:] for shape in calls[:: 2 + CALLS]] == [(1, 4, 4), (1, 2, 2)]
