"""A plugin of pytest that writes which functions Triton's interpreter has run, to a file.

It is loaded by name (`-p launch_log`), before any kernel is imported.
"""

import os
from pathlib import Path

LOG = "MACER_LAUNCH_LOG"  # the environment variable that names the file

_run: set[str] = set()


def pytest_configure() -> None:
    from triton.runtime.interpreter import InterpretedFunction

    rewrite = InterpretedFunction.rewrite  # called by every launch and every call of a kernel

    def noted(function: InterpretedFunction):
        module = function.fn.__module__
        if module.startswith("macer.kernels."):
            _run.add(f"{module.rpartition('.')[2]}.{function.fn.__name__}")
        return rewrite(function)

    InterpretedFunction.rewrite = noted


def pytest_unconfigure() -> None:
    Path(os.environ[LOG]).write_text("\n".join(sorted(_run)), encoding="utf-8")
