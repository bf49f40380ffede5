"""Pickles read without running anything: plain values, and a record of each call they ask for.

Python's own unpickler trusts its file: it sets aside memory for whatever number a file names, and
hashes keys of any depth. This one takes no more memory and time than the file's bytes and a limit
of its instructions allow. The instructions are those of `pickletools`.
"""

import pickletools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

MOST_INSTRUCTIONS = 1 << 20  # each makes at most an object of about a hundred bytes
_LONGEST_KEY = 1 << 10  # characters
_LONGEST_NAME = 100  # that is told
_LARGEST_KEY = 1 << 60  # of larger ones many have the same hash

_CONSTANTS: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class RefusedName(ValueError):
    """A pickle asks for a function or class that is not among those admitted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it asks for {name}")
        self.name = name


@dataclass(frozen=True)
class Name:
    """A function or class that a pickle names."""

    name: str


@dataclass(eq=False)
class Call:
    """A call that a pickle asks for, and the state that it gives to the result; none is made."""

    name: str
    arguments: tuple[Any, ...]
    state: object = None


def _nothing_elsewhere(what: object) -> object:
    raise ValueError("a reference to something elsewhere")


def read_pickle(
    file: BinaryIO,
    *,
    admitted: Collection[str],
    refer: Callable[[Any], object] = _nothing_elsewhere,
) -> Any:
    """The next pickle of a file: plain values, `Name` and `Call`; an OrderedDict becomes a dict.

    A damaged one raises nearly anything.

    Args:
        admitted: module.name of the functions and classes that may be named.
        refer: what stands for an object of which the pickle says only where it lies.
    """
    machine = _Machine(admitted, refer)
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "STOP":
            [value] = machine.stack
            return value
        machine.do(opcode.name, argument)
    raise ValueError("no end")


class _Machine:
    """The stack that a pickle's instructions work on."""

    def __init__(self, admitted: Collection[str], refer: Callable[[Any], object]) -> None:
        self.admitted = admitted
        self.refer = refer
        self.left = MOST_INSTRUCTIONS
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []  # stacks that were left at a mark
        self.memo: dict[int, object] = {}

    def do(self, name: str, argument: Any) -> None:
        """Carry out an instruction."""
        self._spend(1)
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _SHORT_TUPLES:
            self.stack.append(tuple(self._last(_SHORT_TUPLES[name])))
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "GLOBAL":
            self._name(*argument.split(" ", 1))
        elif name not in ("PROTO", "FRAME"):
            # Others, such as those of sets and of the copyreg module, are refused.
            getattr(self, f"_{name.lower()}")()

    def _spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise ValueError(f"more than {MOST_INSTRUCTIONS:,} instructions")

    def _last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("too few values")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def _since_mark(self) -> list[Any]:
        values, self.stack = self.stack, self.marked.pop()
        return values

    def _name(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name that is no text")
        if f"{module}.{name}" not in self.admitted:
            raise RefusedName(f"{module}.{name}"[:_LONGEST_NAME])
        self.stack.append(Name(f"{module}.{name}"))

    def _stack_global(self) -> None:
        self._name(*self._last(2))

    def _mark(self) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def _memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _pop(self) -> None:
        self.stack.pop()

    def _dup(self) -> None:
        self.stack.append(self.stack[-1])

    def _tuple(self) -> None:
        values = self._since_mark()
        self.stack.append(tuple(values))

    def _list(self) -> None:
        values = self._since_mark()
        self.stack.append(values)

    def _dict(self) -> None:
        values = self._since_mark()
        self.stack.append({})
        self._set_items(values)

    def _append(self) -> None:
        self._extend(self._last(1))

    def _appends(self) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError("values added to what is no list")
        self.stack[-1].extend(values)

    def _setitem(self) -> None:
        self._set_items(self._last(2))

    def _setitems(self) -> None:
        self._set_items(self._since_mark())

    def _set_items(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise TypeError("items set in what is no dict")
        self.stack[-1].update(_checked(zip(values[::2], values[1::2], strict=True)))

    def _reduce(self) -> None:
        called, arguments = self._last(2)
        if type(called) is not Name or type(arguments) is not tuple:
            raise TypeError("a call of what is no function")
        if called.name == "collections.OrderedDict":
            pairs = arguments[0] if arguments else []  # as Python 2 gives them
            self._spend(len(pairs))  # a list may be given to many
            self.stack.append(_checked(pairs))
        else:
            self.stack.append(Call(called.name, arguments))

    _newobj = _reduce

    def _build(self) -> None:
        [state] = self._last(1)
        if type(self.stack[-1]) is Call:
            self.stack[-1].state = state
        elif type(self.stack[-1]) is not dict:  # an OrderedDict's attributes, which nobody needs
            raise TypeError("a state for what is no object")

    def _binpersid(self) -> None:
        [what] = self._last(1)
        self.stack.append(self.refer(what))


def _checked(pairs: Iterable[Any]) -> dict[object, object]:
    """A dict whose keys are quick to hash."""
    made = {}
    for key, value in pairs:
        short = isinstance(key, str | bytes) and len(key) <= _LONGEST_KEY
        if not short and not (isinstance(key, int) and abs(key) < _LARGEST_KEY):
            raise TypeError("a key that is neither a short text nor a number")
        made[key] = value
    return made
