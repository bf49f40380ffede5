"""A network is compared with what its parts held before."""

import numpy as np
import pytest
import torch
from torch import nn

from macer.models.modes import remembered, unchanged, values_of


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.flag = False
        self.nested = {"steps": [1, (2.0, {"name"})], "none": None}
        self.array = np.zeros(3)
        self.itself = [self]
        self.itself.append(self.itself)
        self.function = torch.relu


CHANGES = {
    "flag": lambda net: setattr(net, "flag", True),
    "a number for a flag": lambda net: setattr(net, "flag", 0),
    "new value": lambda net: setattr(net, "other", None),
    "item": lambda net: net.nested["steps"].__setitem__(0, 3),
    "longer list": lambda net: net.nested["steps"].append(1),
    "set within a tuple": lambda net: net.nested["steps"][1][1].add("other"),
    "key": lambda net: net.nested.update(other=net.nested.pop("none")),
    "array": lambda net: net.array.__setitem__(0, 1),
    "function": lambda net: setattr(net, "function", torch.tanh),
    "hook": lambda net: net.fc.register_forward_hook(lambda *_: None),
    "part": lambda net: setattr(net, "fc", nn.Linear(2, 2)),
    "type of a part": lambda net: setattr(net.fc, "__class__", nn.Identity),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_what_a_part_holds_is_seen(change):
    net = Holder()
    before = remembered(values_of(net))
    assert unchanged(before, values_of(net))
    change(net)
    assert not unchanged(before, values_of(net))


def test_the_mode_and_tensors_are_left_out():
    net = Holder()
    before = remembered(values_of(net))
    net.eval()
    net.fc.weight.data += 1
    assert unchanged(before, values_of(net))


def test_a_tensor_that_is_remembered_is_compared_by_its_values_and_type():
    tensor = torch.ones(2)
    before = remembered([tensor])
    assert unchanged(before, [tensor]) and unchanged(before, [nn.Parameter(torch.ones(2))])
    assert not unchanged(before, [tensor.double()])
    tensor.data += 1
    assert not unchanged(before, [tensor])
