"""The exceptions a command tells in one line: a user's mistake, and a failed audit."""


class Mistake(ValueError):
    """A user's mistake, told in one line: name, requirement, value, what to do.

    The command line prints the line and leaves with exit code 2; any other exception is a bug
    and keeps its traceback.
    """


class AuditFailed(Exception):
    """Certificates that an audit did not confirm; exit code 1."""
