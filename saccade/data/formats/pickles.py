"""The pickles of CIFAR: dictionaries of byte arrays, lists, texts and numbers, parsed instruction by instruction.

A pickle is a program. This reader follows the instructions that build plain values and arrays of bytes; it imports and
calls nothing, and refuses every other instruction by name.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_VALUES = 10_000_000  # instructions of one file; the largest has 600,000
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
FROM_BUFFER = ("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer")
NAMES = {*RECONSTRUCT, *FROM_BUFFER, "numpy ndarray", "numpy dtype", "_codecs encode"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
IGNORED = {"PROTO", "FRAME", "STOP"}


class UnsupportedPickle(Exception):
    """A pickle has an instruction or a value that files of CIFAR do not have, or is damaged; the message says which."""


@dataclass
class _Call:
    """A named function and its arguments, which is not called."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


@dataclass(frozen=True)
class _Name:
    """The name of a function or class, which is not imported."""

    name: str


def parse_pickle(data: bytes) -> Any:
    """Return the value of a pickle: dict, list, tuple, str, bytes, int, bool, None, and arrays of bytes (uint8)."""
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_VALUES:
                raise UnsupportedPickle(f"more than {MAX_VALUES:,} instructions")
            machine.run(opcode.name, argument)
        (value,) = machine.stack
    except UnsupportedPickle:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError, OverflowError) as error:
        raise UnsupportedPickle(f"damaged: {error}") from error
    return _resolve(value)


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []  # where the items of a list, tuple or dictionary begin
        self.memory: dict[int, Any] = {}
        self._actions: dict[str, Callable[[], None]] = {
            "MARK": lambda: self._marks.append(len(self.stack)),
            "EMPTY_DICT": lambda: self.stack.append({}),
            "EMPTY_LIST": lambda: self.stack.append([]),
            "DICT": lambda: self.stack.append(_pairs(self._items())),
            "LIST": lambda: self.stack.append(self._items()),
            "TUPLE": lambda: self.stack.append(tuple(self._items())),
            "TUPLE1": lambda: self._tuple(1),
            "TUPLE2": lambda: self._tuple(2),
            "TUPLE3": lambda: self._tuple(3),
            "APPEND": lambda: self._extend([self.stack.pop()]),
            "APPENDS": lambda: self._extend(self._items()),
            "SETITEM": lambda: self._update([self.stack.pop(-2), self.stack.pop()]),
            "SETITEMS": lambda: self._update(self._items()),
            "MEMOIZE": lambda: self.memory.__setitem__(len(self.memory), self.stack[-1]),
            "STACK_GLOBAL": lambda: self._name(f"{self.stack.pop(-2)} {self.stack.pop()}"),
            "REDUCE": self._reduce,
            "BUILD": self._build,
        }

    def run(self, name: str, argument: Any) -> None:
        """Follow one instruction."""
        if name in VALUES:
            self.stack.append(argument)
        elif name in PUTS:
            self.memory[int(argument)] = self.stack[-1]
        elif name in GETS:
            self.stack.append(self.memory[int(argument)])
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name == "GLOBAL":
            self._name(argument)
        elif name in self._actions:
            self._actions[name]()
        elif name not in IGNORED:
            raise UnsupportedPickle(f"the instruction {name}")

    def _items(self) -> list[Any]:
        """Remove and return everything above the last mark."""
        start = self._marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _tuple(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise UnsupportedPickle("items for something that is no list")
        target.extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise UnsupportedPickle("entries for something that is no dictionary")
        target.update(_pairs(items))

    def _name(self, name: str) -> None:
        if name not in NAMES:
            raise UnsupportedPickle(f"the code '{name.replace(' ', '.')}'")
        self.stack.append(_Name(name))

    def _reduce(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise UnsupportedPickle("a call of something that is no function")
        if name.name == "_codecs encode":  # bytes, as Python 3 writes them for Python 2
            text, encoding = arguments
            if encoding != "latin1":
                raise UnsupportedPickle(f"bytes in the encoding '{encoding}'")
            self.stack.append(text.encode("latin-1"))
        else:
            self.stack.append(_Call(name.name, arguments))

    def _build(self) -> None:
        state, call = self.stack.pop(), self.stack[-1]
        if not isinstance(call, _Call):
            raise UnsupportedPickle("a state for something that is no array")
        call.state = state


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _resolve(value: Any) -> Any:
    """Return a value with its arrays."""
    if isinstance(value, dict):
        return {key: _resolve(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item) for item in value]
    return _array(value) if isinstance(value, _Call) else value


def _array(call: _Call) -> NDArray[np.uint8]:
    """Return an array of bytes."""
    if call.name in RECONSTRUCT:
        _, shape, dtype, fortran, content = call.state
    elif call.name in FROM_BUFFER:
        content, dtype, shape, order = call.arguments
        fortran = order == "F"
    else:
        raise UnsupportedPickle(f"a value of '{call.name.replace(' ', '.')}'")
    if not isinstance(dtype, _Call) or dtype.name != "numpy dtype" or dtype.arguments[:1] not in (("u1",), (b"u1",)):
        raise UnsupportedPickle("an array that is not one of bytes (uint8)")
    data = content.encode("latin-1") if isinstance(content, str) else bytes(content)
    if fortran or math.prod(shape) != len(data):
        raise UnsupportedPickle(f"an array of {len(data):,} bytes in the shape {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape)
