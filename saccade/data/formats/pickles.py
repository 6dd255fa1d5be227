"""The pickles of published datasets: dictionaries, lists, texts, numbers and arrays, parsed instruction by instruction.

A pickle is a program. This reader follows the instructions that build plain values, arrays of the allowed types and,
where the caller allows them, sparse matrices; it imports and calls nothing, and refuses all other instructions by name.
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
SPARSE = ("scipy.sparse.csr csr_matrix", "scipy.sparse._csr csr_matrix")
DEFAULT_DICT = "collections defaultdict"
BYTES = ("__builtin__ bytes", "builtins bytes")
NAMES = {*RECONSTRUCT, *FROM_BUFFER, *BYTES, "numpy ndarray", "numpy dtype", "_codecs encode"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
IGNORED = {"PROTO", "FRAME", "STOP"}


class UnsupportedPickle(Exception):
    """A pickle has an instruction or a value that its dataset does not have, or is damaged; the message says which."""


@dataclass(frozen=True)
class PickleTypes:
    """What the pickles of a dataset may hold beside plain values."""

    arrays: tuple[str, ...] = ("u1",)
    """types of the elements of arrays, as numpy abbreviates them"""
    sparse: bool = False
    """whether they may hold dictionaries with a default value and sparse matrices (scipy.sparse.csr_matrix)"""

    @property
    def names(self) -> set[str]:
        """Names that a pickle may mention; nothing of them is imported."""
        lists = ("__builtin__ list", "builtins list")
        return NAMES | ({*SPARSE, DEFAULT_DICT, *lists} if self.sparse else set())


@dataclass(frozen=True)
class SparseRows:
    """A matrix of compressed rows: those of `data` and `columns` from offsets[row] to offsets[row + 1]."""

    data: NDArray[Any]
    columns: NDArray[np.int64]
    offsets: NDArray[np.int64]
    shape: tuple[int, int]


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


def parse_pickle(data: bytes, types: PickleTypes = PickleTypes()) -> Any:
    """Return the value of a pickle: dict, list, tuple, str, bytes, int, bool, None, arrays and `SparseRows`."""
    machine = _Machine(types.names)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_VALUES:
                raise UnsupportedPickle(f"more than {MAX_VALUES:,} instructions")
            machine.run(opcode.name, argument)
        (value,) = machine.stack
        return _Resolver(types).resolve(value)
    except UnsupportedPickle:
        raise
    except RecursionError as error:
        raise UnsupportedPickle("values inside values, too deep to read") from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError, OverflowError) as error:
        reason = str(error) if isinstance(error, ValueError | EOFError) else "a value that does not fit"
        raise UnsupportedPickle(f"damaged data: {reason}") from error


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
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
            "NEWOBJ": self._new_object,
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
        if name not in self._names:
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
        elif name.name in BYTES and arguments == ():  # no bytes, as Python 3 writes them for Python 2
            self.stack.append(b"")
        elif name.name == DEFAULT_DICT:  # the default value is that of a key that is not there
            self.stack.append({})
        else:
            self.stack.append(_Call(name.name, arguments))

    def _new_object(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, _Name) or name.name not in SPARSE or arguments != ():
            raise UnsupportedPickle("an object that is no sparse matrix")
        self.stack.append(_Call(name.name))

    def _build(self) -> None:
        state, call = self.stack.pop(), self.stack[-1]
        if not isinstance(call, _Call):
            raise UnsupportedPickle("a state for something that is no array")
        call.state = state


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


class _Resolver:
    """Builds the arrays of a value; what is there several times is built once."""

    def __init__(self, types: PickleTypes) -> None:
        self._types = types
        self._built: dict[int, Any] = {}

    def resolve(self, value: Any) -> Any:
        """Return a value with its arrays and matrices."""
        if not isinstance(value, dict | list | _Call):
            return value
        if id(value) not in self._built:
            if isinstance(value, dict):
                items = self._built[id(value)] = {}
                items.update((key, self.resolve(item)) for key, item in value.items())
            elif isinstance(value, list):
                entries = self._built[id(value)] = []
                entries.extend(self.resolve(item) for item in value)
            else:
                self._built[id(value)] = self._matrix(value) if value.name in SPARSE else self._array(value)
        return self._built[id(value)]

    def _array(self, call: _Call) -> NDArray[Any]:
        if call.name in RECONSTRUCT:
            _, shape, dtype, fortran, content = call.state
        elif call.name in FROM_BUFFER:
            content, dtype, shape, order = call.arguments
            fortran = order == "F"
        else:
            raise UnsupportedPickle(f"a value of '{call.name.replace(' ', '.')}'")
        kind = self._dtype(dtype)
        data = content.encode("latin-1") if isinstance(content, str) else bytes(content)
        if math.prod(shape) * kind.itemsize != len(data):
            raise UnsupportedPickle(f"an array of {len(data):,} bytes in the shape {shape}")
        return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")

    def _dtype(self, call: Any) -> np.dtype[Any]:
        code = _text(call.arguments[0]) if isinstance(call, _Call) and call.name == "numpy dtype" else None
        if code not in self._types.arrays:
            bytes_alone = self._types.arrays == ("u1",)
            rule = "one of bytes (uint8)" if bytes_alone else f"of one of the types {', '.join(self._types.arrays)}"
            raise UnsupportedPickle(f"an array that is not {rule}")
        order: Any = _text(call.state[1]) if call.state else "|"
        dtype: np.dtype[Any] = np.dtype(code).newbyteorder(order)
        return dtype

    def _matrix(self, call: _Call) -> SparseRows:
        """Return a sparse matrix whose parts fit together."""
        state = {_text(key): self.resolve(value) for key, value in (call.state or {}).items()}
        parts: list[Any] = [state.get(name) for name in ("data", "indices", "indptr")]
        if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts):
            raise UnsupportedPickle("a sparse matrix without its data, columns or rows")
        data, columns, offsets = parts[0], parts[1].astype(np.int64), parts[2].astype(np.int64)
        shape: Any = state.get("_shape", state.get("shape"))
        rows, width = shape
        if (
            len(offsets) != rows + 1
            or offsets[0] != 0
            or (np.diff(offsets) < 0).any()
            or not offsets[-1] <= min(len(data), len(columns))
            or (len(columns) and not 0 <= columns.min() <= columns.max() < width)
        ):
            raise UnsupportedPickle(f"a sparse matrix of {rows} x {width} whose columns or rows are not within it")
        return SparseRows(data, columns, offsets, (rows, width))


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value
