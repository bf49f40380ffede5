"""Read pickles without running code: plain values, and a record of each call in the pickle.

Python's own unpickler trusts its file: it allocates as much memory as a number in the file says,
and hashes keys of any depth. Here the file's size and a limit on the number of instructions bound
memory and time. `pickletools` decodes the instructions.
"""

import pickletools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

MAX_INSTRUCTIONS = 1 << 20  # each makes at most one object of about a hundred bytes
_MAX_KEY_LENGTH = 1 << 10  # characters
_MAX_NAME_LENGTH = 100  # characters in a message
_MAX_INTEGER_KEY = 1 << 60  # many larger integers share one hash

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
    """A pickle names a function or class that is not admitted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it asks for {name}")
        self.name = name


@dataclass(frozen=True)
class Name:
    """A function or class that a pickle names."""

    name: str


@dataclass(eq=False)
class Call:
    """A call in a pickle, and the state that the pickle gives to its result; it is never run."""

    name: str
    arguments: tuple[Any, ...]
    state: object = None


def _refuse_reference(reference: object) -> object:
    raise ValueError("a reference to something elsewhere")


def read_pickle(
    file: BinaryIO,
    *,
    admitted: Collection[str],
    resolve: Callable[[Any], object] = _refuse_reference,
) -> Any:
    """The next pickle of a file: plain values, `Name` and `Call`; an OrderedDict becomes a dict.

    A damaged pickle may raise almost any exception.

    Args:
        admitted: module.name of the functions and classes that the pickle may name.
        resolve: gives the value for a reference to an object outside the pickle.
    """
    machine = _Machine(admitted, resolve)
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "STOP":
            [value] = machine.stack
            return value
        machine.execute(opcode.name, argument)
    raise ValueError("no end")


class _Machine:
    """The stack machine that executes a pickle's instructions."""

    def __init__(self, admitted: Collection[str], resolve: Callable[[Any], object]) -> None:
        self.admitted = admitted
        self.resolve = resolve
        self.left = MAX_INSTRUCTIONS
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []  # the stacks below each mark
        self.memo: dict[int, object] = {}

    def execute(self, name: str, argument: Any) -> None:
        """Execute one instruction."""
        self._spend(1)
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _SHORT_TUPLES:
            self.stack.append(tuple(self._pop_values(_SHORT_TUPLES[name])))
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "GLOBAL":
            self._push_name(*argument.split(" ", 1))
        elif name not in ("PROTO", "FRAME"):
            # An instruction without a method below, such as one for sets, raises AttributeError.
            getattr(self, f"_{name.lower()}")()

    def _spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise ValueError(f"more than {MAX_INSTRUCTIONS:,} instructions")

    def _pop_values(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("too few values")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def _pop_to_mark(self) -> list[Any]:
        values, self.stack = self.stack, self.marked.pop()
        return values

    def _push_name(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name that is no text")
        if f"{module}.{name}" not in self.admitted:
            raise RefusedName(f"{module}.{name}"[:_MAX_NAME_LENGTH])
        self.stack.append(Name(f"{module}.{name}"))

    def _stack_global(self) -> None:
        self._push_name(*self._pop_values(2))

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
        values = self._pop_to_mark()
        self.stack.append(tuple(values))

    def _list(self) -> None:
        values = self._pop_to_mark()
        self.stack.append(values)

    def _dict(self) -> None:
        values = self._pop_to_mark()
        self.stack.append({})
        self._set_items(values)

    def _append(self) -> None:
        self._extend(self._pop_values(1))

    def _appends(self) -> None:
        self._extend(self._pop_to_mark())

    def _extend(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError("values added to something that is no list")
        self.stack[-1].extend(values)

    def _setitem(self) -> None:
        self._set_items(self._pop_values(2))

    def _setitems(self) -> None:
        self._set_items(self._pop_to_mark())

    def _set_items(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise TypeError("items set in something that is no dict")
        self.stack[-1].update(_dict_of(zip(values[::2], values[1::2], strict=True)))

    def _reduce(self) -> None:
        called, arguments = self._pop_values(2)
        if type(called) is not Name or type(arguments) is not tuple:
            raise TypeError("a call of something that is no function")
        if called.name == "collections.OrderedDict":
            pairs = arguments[0] if arguments else []  # Python 2 writes the pairs as an argument
            self._spend(len(pairs))  # many calls may share one long list
            self.stack.append(_dict_of(pairs))
        else:
            self.stack.append(Call(called.name, arguments))

    _newobj = _reduce

    def _build(self) -> None:
        [state] = self._pop_values(1)
        if type(self.stack[-1]) is Call:
            self.stack[-1].state = state
        elif type(self.stack[-1]) is not dict:  # an OrderedDict's attributes are ignored
            raise TypeError("a state for something that is no object")

    def _binpersid(self) -> None:
        [reference] = self._pop_values(1)
        self.stack.append(self.resolve(reference))


def _dict_of(pairs: Iterable[Any]) -> dict[object, object]:
    """A dict whose keys are quick to hash."""
    items = {}
    for key, value in pairs:
        short = isinstance(key, str | bytes) and len(key) <= _MAX_KEY_LENGTH
        if not short and not (isinstance(key, int) and abs(key) < _MAX_INTEGER_KEY):
            raise TypeError("a key that is neither a short text nor a number")
        items[key] = value
    return items
