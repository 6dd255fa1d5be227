"""Attention of all queries of short rows, with padding or several texts in a row.

Both products are sums over vectors of 16 in registers, and the scores of a few queries stay in the processor's first
cache. Shapes: B rows, H heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from llvmlite import ir
from numba import float32, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from saccade.decode.compiled import CACHED
from saccade.decode.compiled.emitter import F32, FLOATS, I32, LANES, SUMS, Emitter
from saccade.decode.compiled.functions import POLYNOMIAL
from saccade.nn.masks import Mask, Padding, Segments

MAX_KEYS = 512  # of more keys, blocks of torch's or oneDNN's kernels fit the cache better
QUERIES = 8  # whose scores are computed together
OPERAND = types.UniTuple(types.int64, 2)  # address, and bytes from one row to the next


class TileEmitter(Emitter):
    """Emits y = a b for a few rows of a and blocks of 16 columns of b."""

    NAMES = ("a", "a_stride", "b", "b_stride", "y", "y_stride", "inner")

    def emit(self, rows: int, blocks: int) -> None:
        builder, tiles = self.builder, [(row, block) for row in range(rows) for block in range(blocks)]
        starts = [builder.mul(self.number(row), self.arguments["a_stride"]) for row in range(rows)]

        def products(at: Any, sums: list[Any]) -> list[Any]:
            line = builder.mul(at, self.arguments["b_stride"])
            b = [self.load(FLOATS, "b", builder.add(line, self.number(4 * LANES * block))) for block in range(blocks)]
            for row in range(rows):
                a = self.splat(self.load(F32, "a", builder.add(starts[row], self.times(at, 4))), FLOATS)
                for block in range(blocks):
                    index = tiles.index((row, block))
                    sums[index] = self.multiply_add(a, b[block], sums[index])
            return sums

        zeros = [self.number_vector(0.0)] * len(tiles)
        for (row, block), total in zip(tiles, self.loop(self.arguments["inner"], 1, zeros, products), strict=True):
            line = builder.mul(self.number(row), self.arguments["y_stride"])
            self.store(total, "y", builder.add(line, self.number(4 * LANES * block)))


class SoftmaxEmitter(Emitter):
    """Emits the exponentials of blocks of 16 scores, relative to the largest, and their sum."""

    def emit(self) -> Any:
        """Replace the scores and return their sum; the arguments: address `x` and number of `blocks`."""
        builder, last = self.builder, self.times(self.arguments["blocks"], 4 * LANES)

        def maximum(at: Any, values: list[Any]) -> list[Any]:
            x = self.load(FLOATS, "x", at)
            return [builder.select(builder.fcmp_ordered(">", x, values[0]), x, values[0])]

        (largest,) = self.loop(last, 4 * LANES, [self.number_vector(-math.inf)], maximum)
        largest = self._fold(largest, lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))

        def exponentials(at: Any, values: list[Any]) -> list[Any]:
            weights = self._exponential(builder.fsub(self.load(FLOATS, "x", at), largest))
            self.store(weights, "x", at)
            return [builder.fadd(values[0], weights)]

        (total,) = self.loop(last, 4 * LANES, [self.number_vector(0.0)], exponentials)
        return builder.extract_element(self._fold(total, builder.fadd), ir.Constant(I32, 0))

    def _fold(self, values: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """Combine the lanes, in an order that is always the same; every lane of the result is the whole."""
        for size in (8, 4, 2, 1):
            order = ir.Constant(ir.VectorType(I32, LANES), [lane ^ size for lane in range(LANES)])
            values = combine(values, self.builder.shuffle_vector(values, values, order))
        return values

    def _exponential(self, x: Any) -> Any:
        """e^x for x <= 0, as `functions.exponential`."""
        builder, number = self.builder, self.number_vector
        x = builder.select(builder.fcmp_ordered("<", x, number(-87.0)), number(-87.0), x)  # nan remains nan
        n = self.intrinsic("llvm.rint.v16f32", FLOATS, builder.fmul(x, number(1.44269504)))
        r = self.multiply_add(n, number(-0.693359375), x)
        r = self.multiply_add(n, number(2.12194440e-4), r)
        p = number(POLYNOMIAL[0])
        for coefficient in POLYNOMIAL[1:]:
            p = self.multiply_add(p, r, number(coefficient))
        p = self.multiply_add(builder.fmul(p, r), r, builder.fadd(r, number(1.0)))
        bits = builder.add(builder.fptosi(n, SUMS), ir.Constant(SUMS, [127] * LANES))
        return builder.fmul(p, builder.bitcast(builder.shl(bits, ir.Constant(SUMS, [23] * LANES)), FLOATS))


@intrinsic
def _exponentials(context, x, blocks):
    """Replace blocks of 16 scores by their exponentials, relative to the largest, and return the sum of these."""

    def generate(context, builder, signature, arguments):
        return SoftmaxEmitter(builder, dict(zip(("x", "blocks"), arguments, strict=True))).emit()

    return types.float32(types.int64, types.int64), generate


class TransposeEmitter(Emitter):
    """Emits the transpose of 16 x 16 numbers, times a factor."""

    NAMES = ("x", "x_stride", "y", "y_stride")

    def emit(self, factor: Any) -> None:
        builder, strides = self.builder, [self.arguments[name] for name in ("x_stride", "y_stride")]
        factors = self.splat(factor, FLOATS)
        rows = [self.load(FLOATS, "x", builder.mul(self.number(row), strides[0])) for row in range(LANES)]
        rows = [builder.fmul(row, factors) for row in rows]
        for size in (1, 2, 4, 8):  # swap the blocks of this size off the diagonal
            for row in [row for row in range(LANES) if not row & size]:
                pair = rows[row], rows[row + size]
                for part in (0, size):
                    order = [(lane & ~size) + part + (LANES if lane & size else 0) for lane in range(LANES)]
                    indices = ir.Constant(ir.VectorType(I32, LANES), order)
                    rows[row + part] = builder.shuffle_vector(*pair, indices)
        for row in range(LANES):
            self.store(rows[row], "y", builder.mul(self.number(row), strides[1]))


@intrinsic
def _transpose(context, x, y, factor):
    """Write the transpose of 16 x 16 numbers, times a factor."""

    def generate(context, builder, signature, arguments):
        values = [value for argument in arguments[:2] for value in cgutils.unpack_tuple(builder, argument)]
        TransposeEmitter(builder, dict(zip(TransposeEmitter.NAMES, values, strict=True))).emit(arguments[2])
        return context.get_dummy_value()

    return types.void(OPERAND, OPERAND, types.float32), generate


def _make_tile(rows: int, blocks: int) -> Any:
    """Return the compiled product of `rows` rows with `blocks` blocks of columns."""

    @intrinsic
    def tile(context, a, b, y, inner):
        def generate(context, builder, signature, arguments):
            values = [value for argument in arguments[:3] for value in cgutils.unpack_tuple(builder, argument)]
            names = dict(zip(TileEmitter.NAMES, [*values, arguments[3]], strict=True))
            TileEmitter(builder, names).emit(rows, blocks)
            return context.get_dummy_value()

        return types.void(OPERAND, OPERAND, OPERAND, types.int64), generate

    @njit(nogil=True)
    def function(a, b, y, inner):
        tile(a, b, y, inner)

    return function


def _make_columns(rows: int) -> Any:
    """Return the product of `rows` rows with all blocks of columns."""
    three, two, one = (_make_tile(rows, blocks) for blocks in (3, 2, 1))

    @njit(nogil=True)
    def function(a, b, y, inner, blocks):
        at = 0
        while at < blocks:
            columns, result = (b[0] + 4 * LANES * at, b[1]), (y[0] + 4 * LANES * at, y[1])
            remaining = blocks - at
            if remaining >= 3 and remaining != 4:
                three(a, columns, result, inner)
                at += 3
            elif remaining >= 2:
                two(a, columns, result, inner)
                at += 2
            else:
                one(a, columns, result, inner)
                at += 1

    return function


_eight, _four, _two, _one = (_make_columns(rows) for rows in (8, 4, 2, 1))


@njit(nogil=True)
def _product(a, b, y, inner, blocks, rows):
    """Write y (rows, 16 blocks) = a (rows, inner) b (inner, 16 blocks)."""
    row = 0
    while row < rows:
        left, result, remaining = (a[0] + row * a[1], a[1]), (y[0] + row * y[1], y[1]), rows - row
        if remaining >= 8:
            _eight(left, b, result, inner, blocks)
            row += 8
        elif remaining >= 4:
            _four(left, b, result, inner, blocks)
            row += 4
        elif remaining >= 2:
            _two(left, b, result, inner, blocks)
            row += 2
        else:
            _one(left, b, result, inner, blocks)
            row += 1


@intrinsic
def _copy(context, x, y, blocks):
    """Copy blocks of 16 numbers."""

    def generate(context, builder, signature, arguments):
        emitter = Emitter(builder, dict(zip(("x", "y", "blocks"), arguments, strict=True)))

        def copy(at: Any, values: list[Any]) -> list[Any]:
            emitter.store(emitter.load(FLOATS, "x", at), "y", at)
            return values

        emitter.loop(emitter.times(arguments[2], 4 * LANES), 4 * LANES, [], copy)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@njit(nogil=True, error_model="numpy")
def _address(rows):
    """Return the address of a matrix and the bytes from one row to the next."""
    return rows.ctypes.data, rows.strides[0]


@njit(nogil=True, error_model="numpy")
def _gather(rows, keep, result):
    """Write the visible rows (K, E) one after the other; return their number."""
    count = 0
    for at in range(len(rows)):
        if keep[at]:
            _copy(_address(rows[at:])[0], _address(result[count:])[0], rows.shape[1] // LANES)
            count += 1
    return count


@njit(nogil=True, error_model="numpy")
def _attend_head(q, keys, values, count, scores, y):
    """Write softmax(q k) v of one head; q and y (Q, E), keys (E, K) and values (K, E) padded to a multiple of 16."""
    queries, width = q.shape
    blocks, sums = (count + LANES - 1) // LANES, np.empty(QUERIES, np.float32)
    for first in range(0, queries, QUERIES):
        some, outputs = min(QUERIES, queries - first), y[first:]
        _product(_address(q[first:]), _address(keys), _address(scores), width, blocks, some)
        scores[:some, count : blocks * LANES] = -np.inf
        for query in range(some):
            sums[query] = _exponentials(_address(scores[query:])[0], blocks)
        _product(_address(scores), _address(values), _address(outputs), count, width // LANES, some)
        for query in range(some):
            inverse = float32(1.0) / sums[query]
            for feature in range(width):
                outputs[query, feature] *= inverse


@njit(
    "void(float32[:,:,:], float32[:,:,:], float32[:,:,:], int64[::1], int64[::1], boolean[::1], float32, "
    "float32[:,:,::1])",
    nogil=True,
    error_model="numpy",
    cache=CACHED,
)
def _attend(q, k, v, query_starts, key_starts, keep, scale, y):
    """Write softmax(scale q k) v of rows that are stored one after the other; the starts end with that of the next.

    q and y (Q, H, E), k and v (K, H, E), keep (K,) of all rows.
    """
    heads, width, longest = q.shape[1], q.shape[2], np.max(key_starts[1:] - key_starts[:-1])
    padded = (longest + LANES - 1) // LANES * LANES
    gathered, values = np.zeros((padded, width), np.float32), np.zeros((padded, width), np.float32)
    keys, scores = np.empty((width, padded), np.float32), np.empty((QUERIES, padded), np.float32)
    for row in range(len(query_starts) - 1):
        first, last = key_starts[row], key_starts[row + 1]
        start, end = query_starts[row], query_starts[row + 1]
        for head in range(heads):
            count = _gather(k[first:last, head], keep[first:last], gathered)
            _gather(v[first:last, head], keep[first:last], values)
            for at in range(0, count, LANES):
                for feature in range(0, width, LANES):
                    _transpose(_address(gathered[at:, feature:]), _address(keys[feature:, at:]), scale)
            if count:
                _attend_head(q[start:end, head], keys, values, count, scores, y[start:end, head])
            else:
                y[start:end, head] = float32(0.0)


def attend_rows(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, scale: float) -> Tensor | None:
    """Return softmax(scale q k) v (B, H, Q, E), 0 for a row without visible keys.

    None where this kernel cannot be used or is not the fastest: with a mask other than padding or segments that follow
    one another, and on several threads, as it runs on that of the caller alone.
    """
    if torch.is_grad_enabled() or torch.get_num_threads() > 1:
        return None
    if len(q) != len(k) or q.shape[1] != k.shape[1] or q.shape[3] % LANES:
        return None
    if any(x.dtype != torch.float32 or x.device.type != "cpu" or x.stride(3) != 1 for x in (q, k, v)):
        return None
    starts = _starts(q.shape[2], k.shape[2], len(q), mask)
    if starts is None or int(starts[1].diff().max()) > MAX_KEYS:
        return None
    keep = mask.keep if isinstance(mask, Padding) else torch.ones(len(k), k.shape[2], dtype=torch.bool)
    y = torch.empty(len(q), q.shape[2], q.shape[1], q.shape[3])  # so that the heads of a query are one vector
    inputs = [x.transpose(1, 2).flatten(0, 1).numpy() for x in (q, k, v)]  # (B T, H, E)
    bounds = [start.numpy() for start in starts]
    _attend(*inputs, *bounds, keep.flatten().numpy(), np.float32(scale), y.flatten(0, 1).numpy())
    return y.transpose(1, 2)


def _starts(queries: int, keys: int, rows: int, mask: Mask | None) -> tuple[Tensor, Tensor] | None:
    """Return where the queries and keys of each row begin, and those after the last; None: with another mask."""
    if mask is None or isinstance(mask, Padding):
        row = torch.arange(rows + 1)
        return row * queries, row * keys
    if not isinstance(mask, Segments) or rows > 1 or queries != keys or bool((mask.segment.diff() < 0).any()):
        return None
    counts = mask.segment[0].unique_consecutive(return_counts=True)[1]
    start = F.pad(counts.cumsum(0), (1, 0))
    return start, start
