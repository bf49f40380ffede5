"""The exceptions that a command reports in one line instead of a traceback."""

from collections.abc import Mapping


class Mistake(ValueError):
    """A user's mistake in one line: name, requirement, value, what to do.

    The command line prints the line and exits with code 2; any other exception is a bug and keeps
    its traceback.
    """


class OtherProcessFailed(Mistake):
    """Another process of the same command has failed and reports the reason."""


class AuditFailed(Exception):
    """An audit did not confirm some certificates; exit code 1."""


class Stopped(BaseException):
    """A signal asked the command to stop, and finished work is saved.

    It is no `Exception`, so that code which handles errors and goes on does not catch it.

    Args:
        content: the finished part of the command's JSON document.
    """

    def __init__(
        self, signal_number: int, message: str, content: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.content = content or {}
