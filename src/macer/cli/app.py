"""The command `macer`: its commands, and how each ends."""

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import TextIOWrapper
from typing import NamedTuple

from cyclopts import App, CycloptsError

from macer import __version__
from macer.cli.about import bench, data, recipes, zoo
from macer.cli.audit import attack, verify
from macer.cli.certify import certify, merge, predict
from macer.cli.compare import compare, demo
from macer.cli.gate import gate
from macer.cli.leaderboard import leaderboard
from macer.cli.loss_flags import one_value_per_flag, train_command
from macer.cli.pack import ensemble, floor, pack
from macer.cli.paper import paper
from macer.cli.plan import plan
from macer.cli.printing import print_document, silenced
from macer.cli.report import history, report
from macer.cli.rescore import rescore
from macer.cli.serve import serve
from macer.cli.train import export, train
from macer.system.commit import commit, short_hash
from macer.system.errors import AuditFailed, Mistake, OtherProcessFailed, Stopped
from macer.system.processes import is_first, is_first_of_machine, started_by_torchrun
from macer.system.progress import first_sign
from macer.system.text import one_line

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a write that fails so names no file
BUG = 70  # exit code of a bug: EX_SOFTWARE of sysexits.h


def _version() -> str:
    known = commit()
    return f"macer {__version__}" + (f" ({short_hash(known)})" if known else "")


def command_line(training: App | None = None) -> App:
    """All commands; `train` may be one with flags for the settings of a loss."""
    app = App(
        name="macer",
        help="Train and certify image classifiers that provably resist ℓ₂ attacks.",
        help_epilogue="--json: print one JSON document instead, on standard output.",
        version=_version,
        result_action="return_value",
        suppress_keyboard_interrupt=False,  # cyclopts would end without a message
    )
    app.command(demo)
    app.command(plan)
    app.command(training or train)
    app.command(certify)
    app.command(verify)
    app.command(merge)
    app.command(attack)
    app.command(predict)
    app.command(serve)
    app.command(rescore)
    app.command(report)
    app.command(gate)
    app.command(history)
    app.command(leaderboard)
    app.command(compare)
    app.command(paper)
    app.command(pack)
    app.command(ensemble)
    app.command(floor)
    app.command(export)
    app.command(zoo)
    app.command(recipes)
    app.command(data)
    app.command(bench)
    return app


app = command_line()


class Ending(NamedTuple):
    """How a command that did not succeed ended."""

    code: int
    kind: str
    line: str
    content: Mapping[str, object] = {}  # what was finished before a signal
    said: bool = False  # by the command's own document and lines


# A command that judges ends with code 1 if its result says so.
NOT_PASSED = Ending(1, "not passed", "", said=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a mistake is one line and exit code 2, a bug its traceback and 70."""
    _escape_what_has_no_code()
    os.environ.pop("MPLBACKEND", None)  # a notebook's may not be installed; macer draws into files
    given = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in _options(given)
    if as_json:
        given.remove("--json")
    command = given[0] if given and given[0] in app else None
    try:
        ending = _run(given, command, as_json)
        if ending and as_json and not ending.said:
            with _ignoring_a_full_disk():
                error = {"kind": ending.kind, "message": ending.line}
                print_document(command, {**ending.content, "error": error})
    except BrokenPipeError:  # the reader of our output has closed it
        sys.stdout = None  # so that nothing is flushed at the exit
        return 141
    return ending.code if ending else 0


def _escape_what_has_no_code() -> None:
    """Print σ as \\u03c3 where the locale's encoding lacks it, as standard error does."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _options(given: Sequence[str]) -> Sequence[str]:
    """The arguments before --; what follows it is never a flag."""
    return given[: given.index("--")] if "--" in given else given


def _run(given: Sequence[str], command: str | None, as_json: bool) -> Ending | None:
    """Run a command and print its result; help is never printed as JSON."""
    helps = not given or not {*app.help_flags, *app.version_flags}.isdisjoint(_options(given))
    try:
        _check_processes(given)
        given = one_value_per_flag(given) if command == "train" else given
        with silenced(as_json and not helps), _a_first_sign(None if helps else command):
            commands = command_line(train_command(given[1:])) if command == "train" else app
            result = commands(given, exit_on_error=False, print_error=False)
        if as_json and not helps:
            print_document(command, result)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt, Stopped) as error:
        return _ending(error, command)
    return None if helps or result.get("passed", True) else NOT_PASSED


# What commands do first; it may take seconds before they show anything.
FIRST = {
    "train": "reading the recipe and the images",
    "serve": "reading the models",
    "floor": "reading the model and the images",
    "pack": "reading the network and the images",
    "certify": "reading the model and the images",
    "predict": "reading the model",
    "verify": "reading the certificates, the model and the images",
    "attack": "reading the certificates, the model and the images",
    "plan": "building the network",
}


def _a_first_sign(command: str | None) -> AbstractContextManager[None]:
    return first_sign(FIRST[command]) if command in FIRST else nullcontext()


def _ending(error: BaseException, command: str | None) -> Ending:
    """Say how the command ended: a user's mistake in one line, a bug by its traceback."""
    if isinstance(error, OtherProcessFailed):
        return Ending(2, "mistake", str(error))
    ending = _expected(error, command)
    with _ignoring_a_full_disk():
        if ending is None:
            traceback.print_exception(error)
        elif not isinstance(error, Stopped) or is_first():
            _complain(ending, error)
    return ending or Ending(BUG, "bug", f"{type(error).__name__}: {error}")


@contextmanager
def _ignoring_a_full_disk() -> Iterator[None]:
    """Print if the disk has room; a full disk does not change how a command ended."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise


def _expected(error: BaseException, command: str | None) -> Ending | None:
    """How an exception ends a command; None for a bug."""
    match error:
        case CycloptsError():
            return Ending(2, "mistake", " ".join(str(error).split()))
        case Mistake():
            return Ending(2, "mistake", str(error))
        case AuditFailed():
            return Ending(1, "not verified", str(error))
        case OSError() if error.filename is not None or error.errno in DISK_FULL:
            what = f"cannot use {error.filename}" if error.filename else "cannot write"
            return Ending(2, "mistake", f"{what}: {error.strerror}")
        case Stopped():
            how = CONTINUED.get(command or "", "begin again")
            line = f"{error}; {how}"
            return Ending(128 + error.signal_number, "stopped", line, error.content)
        case KeyboardInterrupt() if command in KEEPING:
            return Ending(130, "stopped", f"interrupted; {KEEPING[command]}")
        case KeyboardInterrupt():
            return Ending(130, "stopped", "interrupted")
    return None


CONTINUED = {
    "train": "continue with --resume",
    "certify": "the same command continues",
    "compare": "the same command continues",
    "paper": "the same command continues",
    "predict": "the certificates that were printed hold",
}

# Commands that save each part when it is finished, and what they say after Ctrl-C.
KEEPING = {
    name: f"what was finished is saved; {CONTINUED[name]}"
    for name in ("certify", "compare", "paper")
}


def _check_processes(given: Sequence[str]) -> None:
    """Refuse several processes for commands that run in one."""
    if started_by_torchrun() and given[:1] not in (["train"], ["certify"]):
        command = given[0] if given else "macer"
        raise Mistake(f"torchrun must start train or certify, got {command}; run it in one process")


def _complain(ending: Ending, error: BaseException) -> None:
    """Print one line on standard error, by the first process or by one that says its number."""
    process = getattr(error, "__notes__", [])
    what = [ending.kind] if ending.kind == "not verified" else []
    if is_first_of_machine() or process:
        sys.stderr.write(f"macer: {one_line(': '.join([*process, *what, ending.line]))}\n")
