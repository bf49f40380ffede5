"""Settings shared by all tests."""

import torch

# Worker processes of pytest-xdist share the cores; one thread each keeps results repeatable.
torch.set_num_threads(1)
