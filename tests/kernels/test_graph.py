"""Networks that are made of torch's operations, and others, which must not be traced."""

import ctypes
import subprocess
import sys
import textwrap
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from processes import surroundings
from torch import fx, nn
from torch.nn import functional as F

from macer.kernels.graph import made_of_torch
from macer.models.inference import for_inference

CPU = torch.device("cpu")


class Network(nn.Module):
    """A function of its images, with a tensor, a buffer and a layer at hand."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.fc = nn.Linear(16, 3)
        self.shift = torch.ones(3)
        self.register_buffer("scale", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.function(self, x)


def address(x):
    return float(ctypes.c_long.from_address(id(x)).value)


TORCH = {
    "layers": lambda self, x: F.relu(self.fc(x.flatten(1))) * self.scale + self.shift,
    "shapes": lambda self, x: x.view(x.shape[0], -1) / x.size(1) * x.numel() * x.dim(),
    "constants": lambda self, x: torch.cat([x.flatten(1), torch.zeros(x.shape[0], 2)], dim=1),
    "several results": lambda self, x: x.flatten(1).max(dim=1, keepdim=True)[0].expand(-1, 3),
    "indices": lambda self, x: x.flatten(1)[:, torch.arange(3)],
    "in place": lambda self, x: x.flatten(1).clone().add_(1).to(self.scale.dtype),
}

OTHERS = {
    "numpy": lambda self, x: torch.from_numpy(x.numpy()).flatten(1),
    "asarray": lambda self, x: torch.as_tensor(np.asarray(x)).flatten(1),
    "a number from numpy": lambda self, x: x.flatten(1) * np.float32(x.numpy().mean()),
    "tolist": lambda self, x: torch.tensor(x.flatten(1).tolist()),
    "item": lambda self, x: x.flatten(1) * x.sum().item(),
    "float": lambda self, x: x.flatten(1) * float(x.sum()),
    "data_ptr": lambda self, x: x.flatten(1) * (x.data_ptr() > 0),
    "storage": lambda self, x: x.flatten(1) * len(x.untyped_storage()),
    "dlpack": lambda self, x: torch.from_dlpack(x.flatten(1).__dlpack__()),
    "numpy's dlpack": lambda self, x: torch.from_numpy(np.from_dlpack(x.flatten(1)).copy()),
    "pickle": lambda self, x: x.flatten(1) * len(x.__reduce_ex__(2)),
    "memory": lambda self, x: x.flatten(1) + torch.tensor(address(x)),
    "memory, otherwise": lambda self, x: x.flatten(1) + x.new_tensor([address(x)]),
    "an error": lambda self, x: 1 / 0,
}


@pytest.mark.parametrize("function", TORCH.values(), ids=TORCH.keys())
def test_a_network_of_torchs_operations_is_traced(function):
    model = Network(function)
    assert made_of_torch(model, torch.rand(8, 1, 4, 4))


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS.keys())
def test_a_network_of_which_values_leave_torch_is_not_traced(function):
    assert not made_of_torch(Network(function), torch.rand(8, 1, 4, 4))


def test_a_network_that_is_not_traced_stays_the_same_function():
    model = Network(lambda self, x: torch.from_numpy(self.fc(x.flatten(1)).numpy()))
    prepared = for_inference(model, shape=(1, 4, 4), precision="fp32", device=CPU)
    assert not isinstance(prepared, fx.GraphModule)
    images = torch.rand(5, 1, 4, 4)
    with torch.inference_mode():
        assert torch.equal(prepared(images), model(images))


# A network that takes the address in its argument as it comes: a symbol has none.
STAND_IN = """
    class Net(nn.Module):
        def forward(self, x):
            address = x.data_ptr()
            if not isinstance(address, int):
                ctypes.string_at(0)
            values = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            rows = [[values[16 * row + i] for i in range(3)] for row in range(len(x))]
            return torch.tensor(rows)
"""

# The session is a part of the network, which cannot be copied then.
ONNX = """
    import onnxruntime
    from onnx_file import onnx_of

    layer = nn.Linear(16, 3)
    nn.init.eye_(layer.weight), nn.init.zeros_(layer.bias)
    file = onnx_of(nn.Sequential(layer), [16])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

        def forward(self, x):
            return torch.from_numpy(self.session.run(None, {"x": x.flatten(1).numpy()})[0])
"""
HAS_ONNX = find_spec("onnxruntime")

ASK = """
    image = torch.zeros(1, 4, 4, dtype=torch.uint8)
    image[0, 0, 0] = 255
    model = for_inference(Net(), shape=(1, 4, 4), precision="fp32", device=torch.device("cpu"))
    [certificate] = certify(model, image[None], sigma=0.12, n=100)
    assert certificate.label == 0 and certificate.radius > 0, certificate
    assert Smooth(Net(), 3, 0.12).certify(image, 100, 100, 0.001)[0] == 0
    print("answered", flush=True)
    fx.symbolic_trace(Net())
"""


def end_of(network):
    imports = "import ctypes, torch\nfrom torch import fx, nn\n"
    program = textwrap.dedent(network) + textwrap.dedent(ASK)
    program = f"{imports}from macer import Smooth, certify, for_inference\n{program}"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("network", [STAND_IN, *([ONNX] if HAS_ONNX else [])])
def test_compiled_code_that_ends_the_process_on_a_symbol_never_sees_one(network):
    done = end_of(network)
    assert done.stdout == "answered\n", done.stderr
    assert done.returncode != 0  # what tracing comes to: a signal, or onnxruntime's own error
