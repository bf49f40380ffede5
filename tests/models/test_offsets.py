"""Offsets of the logits, in the bias of the last layer."""

import pytest
import torch
from torch import Tensor, nn

from macer.models.build import build_model
from macer.models.ensembles import Ensemble
from macer.models.networks import Normalize
from macer.models.offsets import with_offsets
from macer.system.errors import Mistake

OFFSETS = torch.tensor([0.5, 0.0, -1.0, 2.0])


def images(shape: tuple[int, ...] = (3, 32, 32)) -> Tensor:
    return torch.rand((3, *shape), generator=torch.Generator().manual_seed(0))


def built(name: str, shape: tuple[int, int, int] = (3, 32, 32), **changes: str) -> nn.Sequential:
    torch.manual_seed(0)
    return build_model(name, num_classes=4, shape=shape, **changes).eval()


class Scaled(nn.Module):
    """Its last linear layer does not give the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * 32 * 32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.fc(x.flatten(1))


# law


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 28, 28)), ("small12", (3, 32, 32)), ("wide14", (3, 32, 32)),
     ("resnet20", (3, 32, 32)), ("mobilenetv2", (3, 64, 64))],
)  # fmt: skip
def test_every_logit_has_its_offset_more(name: str, shape: tuple[int, int, int]) -> None:
    model, x = built(name, shape), images(shape)
    with torch.no_grad():
        before = model(x)
        changed = with_offsets(model, OFFSETS, x, name=name)
        torch.testing.assert_close(changed(x), before + OFFSETS)
        assert torch.equal(model(x), before)  # the model itself stays
    other = [key for key, t in changed.state_dict().items() if not t.equal(model.state_dict()[key])]
    assert len(other) == 1 and other[0].endswith("bias")


def test_behind_a_denoiser_and_of_each_member_of_a_mean() -> None:
    x = images()
    members = [built("small12"), built("resnet20", denoiser="dncnn-small")]
    several = nn.Sequential(Normalize((0.0,) * 3, (1.0,) * 3), Ensemble(members)).eval()
    for model in (members[1], several):
        with torch.no_grad():
            changed = with_offsets(model, OFFSETS, x, name="run")
            torch.testing.assert_close(changed(x), model(x) + OFFSETS)


# refusal


@pytest.mark.parametrize(
    ("network", "got"),
    [
        (Scaled(), "one whose last linear layer does not give the logits"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3072, 4, bias=False)), "one without such a layer"),
        (nn.Sequential(nn.Conv2d(3, 4, 32), nn.Flatten()), "one without such a layer"),
    ],
)
def test_another_kind_of_last_layer_is_refused(network: nn.Module, got: str) -> None:
    model = nn.Sequential(nn.Identity(), network)
    with pytest.raises(Mistake) as refusal:
        with_offsets(model, OFFSETS, images(), name="run")
    assert str(refusal.value) == (
        "run must be a network that ends in a linear layer with a bias for each class, got "
        f"{got}; wrap it in a function of your own that adds the offsets, and pack that"
    )
