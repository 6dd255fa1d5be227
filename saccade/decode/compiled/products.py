"""Matrix products y = x W^T of few rows, for weights of 32, 16, 8 and 4 bits.

Every sum is accumulated in the order of the inputs: a row gives the same bits whatever other rows are computed with it.
Weights of 8 and 4 bits are multiplied by activations of 16 bits, as exact integers.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from saccade.decode.compiled.emitter import FEATURES, ProductEmitter

MATRIX, ROWS, RESULT = (types.UniTuple(types.int64, count) for count in (3, 5, 2))
KINDS = ("float32", "float16", "int8", "int4")
FLOAT32, FLOAT16, INT8, INT4 = range(4)
STEP, FLOAT32_STEP = 4, 12  # blocks that share the rows of x while these are in the processor's cache
MANY, CACHE = 16, 1 << 18  # more rows than MANY share as many blocks as CACHE bytes hold
SIZES = (1, 2, 4, 8, 16)  # rows that are computed at once
# Their blocks, as many as the registers hold; of float32 a block is one output.
WIDE = "avx512f" in FEATURES
TILES = {1: 4, 2: 4, 4: 4, 8: 2, 16: 1} if WIDE else {1: 1, 2: 1, 4: 1, 8: 1, 16: 1}
INTEGER_TILES = {**TILES, 1: 1}  # one stream of weights is read faster than four
FLOAT32_TILES = {**TILES, 8: 3} if WIDE else {1: 4, 2: 4, 4: 2, 8: 1, 16: 1}
LARGEST = 16 if WIDE else 4  # rows that the registers hold; of float32, 16 rows by one output would read x too often


def _make_tile(kind: str, rows: int, blocks: int) -> Any:
    """Return the compiled product of `rows` rows with adjacent blocks of outputs."""

    @intrinsic
    def tile(context, matrix, x, y):
        def generate(context, builder, signature, arguments):
            values = [value for argument in arguments for value in cgutils.unpack_tuple(builder, argument)]
            getattr(ProductEmitter(builder, values, rows, blocks), kind)()
            return context.get_dummy_value()

        return types.void(MATRIX, ROWS, RESULT), generate

    @njit(nogil=True)
    def function(matrix, x, y):
        tile(matrix, x, y)

    return function


def _make_rows(kind: str, rows: int) -> Any:
    """Return the product of `rows` rows with the blocks first..last."""
    blocks = {"float32": FLOAT32_TILES, "float16": TILES}.get(kind, INTEGER_TILES)[rows]
    many, single = _make_tile(kind, rows, blocks), _make_tile(kind, rows, 1)

    @njit(nogil=True)
    def function(matrix, steps, first, last, x, y):
        w, scales, inputs = matrix
        at = first
        while at < last:
            block, result = (w + at * steps[0], scales + at * steps[1], inputs), (y[0] + at * steps[2], y[1])
            if at + blocks <= last:
                many(block, x, result)
                at += blocks
            else:
                single(block, x, result)
                at += 1

    return function


def _make_product(kind: str) -> Any:
    """Return the product of any number of rows with the blocks first..last."""
    one, two, four, eight, sixteen = (_make_rows(kind, rows) for rows in SIZES)
    largest = 8 if kind == "float32" else LARGEST
    smallest = FLOAT32_STEP if kind == "float32" else STEP

    @njit(nogil=True)
    def function(matrix, steps, first, last, x, y, rows):
        step = smallest if rows <= MANY else max(smallest, CACHE // steps[0])
        for at in range(first, last, step):
            end, row = min(at + step, last), 0
            while row < rows:
                inputs = (x[0] + row * x[1], x[1], x[2] + 4 * row, x[3] + row * x[4], x[4])
                result, remaining = (y[0] + row * y[1], y[1]), rows - row
                if remaining >= 16 and largest == 16:
                    sixteen(matrix, steps, at, end, inputs, result)
                    row += 16
                elif remaining >= 8 and largest >= 8:
                    eight(matrix, steps, at, end, inputs, result)
                    row += 8
                elif remaining >= 4:
                    four(matrix, steps, at, end, inputs, result)
                    row += 4
                elif remaining >= 2:
                    two(matrix, steps, at, end, inputs, result)
                    row += 2
                else:
                    one(matrix, steps, at, end, inputs, result)
                    row += 1

    return function


_float32, _float16, _int8, _int4 = (_make_product(kind) for kind in KINDS)


@njit(nogil=True)
def product(fields, x, y, rows, thread, threads):
    """Multiply the prepared rows x by a matrix, the share of one thread; the result is y.

    `fields` of the matrix: kind, weights, scales, inputs, blocks, and the bytes of a block of weights, scales and y.
    `x`: address of the rows, their distance in bytes, address of their scales, address of the sums of their groups and
    the distance of these. `y`: address and distance of the rows.
    """
    step = FLOAT32_STEP if fields[0] == FLOAT32 else STEP
    groups = (fields[4] + step - 1) // step
    first, last = groups * thread // threads * step, min(fields[4], groups * (thread + 1) // threads * step)
    matrix, steps, kind = (fields[1], fields[2], fields[3]), (fields[5], fields[6], fields[7]), fields[0]
    if kind == FLOAT32:
        _float32(matrix, steps, first, last, x, y, rows)
    elif kind == FLOAT16:
        _float16(matrix, steps, first, last, x, y, rows)
    elif kind == INT8:
        _int8(matrix, steps, first, last, x, y, rows)
    else:
        _int4(matrix, steps, first, last, x, y, rows)
