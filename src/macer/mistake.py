"""The one exception that means: the user can mend this."""


class Mistake(ValueError):
    """A user's mistake, told in one line: name, requirement, value, what to do.

    The command line prints the line and leaves with exit code 2; any other exception is a bug
    and keeps its traceback.
    """
