"""Settings shared by all tests."""

import signal

import pytest
import torch
from tiny_models import tiny, tiny_with_batch_norm

from macer.models.networks import MODELS
from macer.system import progress

# Worker processes of pytest-xdist share the cores; one thread each keeps results repeatable.
torch.set_num_threads(1)

# A busy machine is slow to begin; what a command says then is tested with a clock of its own.
progress.SECONDS_TO_FIRST_SIGN = progress.SECONDS_TO_FIRST_LINE = 3600.0

# A shell that runs the tests in the background has them ignore SIGINT, which some tests raise.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """A folder for the key of the one who runs the tests, instead of her own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("home"))
        patch.setenv("MACER_HOME", folder)
        yield folder


@pytest.fixture
def tiny_networks(monkeypatch):
    """The tiny networks are among those that macer knows, so that model files may name them."""
    for network in (tiny, tiny_with_batch_norm):
        monkeypatch.setitem(MODELS, network.__name__, network)


def pytest_terminal_summary(terminalreporter):
    """Print what tests measured; none of them demands a time."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "measured" and report.when == "call":
                    terminalreporter.write_line(value)
