"""The command `macer`: its commands, and how a mistake ends."""

import errno
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from macer import __version__
from macer.commands.about import bench, data, recipes, zoo
from macer.commands.audit import attack, verify
from macer.commands.certify import certify, merge, predict
from macer.commands.compare import compare, demo
from macer.commands.paper import paper
from macer.commands.report import history, report
from macer.commands.train import export, fields_of_recipe, train
from macer.commit import commit, shortened
from macer.mistake import AuditFailed, Mistake
from macer.ranks import ToldElsewhere, is_first, is_first_here, started_by_torchrun
from macer.stopping import Stopped

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of which a write does not name its file


def _version() -> str:
    known = commit()
    return f"macer {__version__}" + (f" ({shortened(known)})" if known else "")


app = App(
    name="macer",
    help="Train and certify image classifiers that provably resist ℓ₂ attacks.",
    version=_version,
    result_action="return_value",
)
app.command(demo)
app.command(train, config=fields_of_recipe)
app.command(certify)
app.command(verify)
app.command(merge)
app.command(attack)
app.command(predict)
app.command(report)
app.command(history)
app.command(compare)
app.command(paper)
app.command(export)
app.command(zoo)
app.command(recipes)
app.command(data)
app.command(bench)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line and exit code 2."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _check_processes(given)
        app(given, exit_on_error=False, print_error=False)
    except ToldElsewhere:
        return 2
    except (CycloptsError, Mistake) as error:
        _complain(" ".join(str(error).split()), error)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stdout = None  # nothing to flush at the exit
        return 141
    except OSError as error:
        if error.filename is None and error.errno not in NO_ROOM:
            raise
        what = f"cannot use {error.filename}" if error.filename else "cannot write"
        _complain(f"{what}: {error.strerror}", error)
        return 2
    except AuditFailed as failure:
        _complain(f"not verified: {failure}", failure)
        return 1
    except Stopped as stop:
        how = {
            "train": "continue with --resume",
            "certify": "the same command continues",
            "compare": "the same command continues",
            "paper": "the same command continues",
        }
        if is_first():
            _complain(f"{stop}; {how.get(given[0], 'begin again')}", stop)
        return 128 + stop.signal_number
    except KeyboardInterrupt as interrupt:
        _complain("interrupted", interrupt)
        return 130
    return 0


def _check_processes(given: Sequence[str]) -> None:
    """Refuse several processes for what one alone can do."""
    if started_by_torchrun() and given[:1] not in (["train"], ["certify"]):
        command = given[0] if given else "macer"
        raise Mistake(f"torchrun must start train or certify, got {command}; run it in one process")


def _complain(line: str, error: BaseException) -> None:
    """One line on standard error; of several processes the first, or one that says which it is."""
    process = getattr(error, "__notes__", [])
    if is_first_here() or process:
        sys.stderr.write(f"macer: {': '.join([*process, line])}\n")
