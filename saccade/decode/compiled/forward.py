"""The forward pass of a language model over new tokens of many rows, as one compiled function run by all threads.

Tokens of one row and of different rows are computed alike: each gets the same bits in any batch.

Shapes: N tokens, D width, H heads, G key/value heads, E head width, F inner width, L layers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float32, njit
from numpy.typing import NDArray

from saccade.decode.compiled import CACHED
from saccade.decode.compiled.attention import attend
from saccade.decode.compiled.barrier import wait
from saccade.decode.compiled.functions import activate, normalize, quantize, root_mean_square
from saccade.decode.compiled.products import product

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

QKV, OUT, UP, DOWN = range(4)  # matrices of a layer
ATTENTION_NORM, FEED_NORM, ATTENTION_UPDATE_NORM, FEED_UPDATE_NORM = range(4)  # norms of a layer


class Shape(NamedTuple):
    """Numbers of the architecture."""

    depth: int
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    norm: int
    """0: LayerNorm, 1: RMSNorm"""
    activation: int
    gated: int
    qk_norm: int
    """0: none, 1: RMSNorm of queries and keys, 2: with gains"""
    update_norm: int
    epsilon: float
    qk_epsilon: float
    scale: float
    """of the scores"""


class Weights(NamedTuple):
    """Weights, vectors stacked over layers; matrices by their addresses (see `products.product`)."""

    matrices: Integers  # (4 L + 1, 8): of each layer QKV, OUT, UP, DOWN; the output layer
    biases: Floats  # (L, 4, widest output), 0 where there is none
    gains: Floats  # (4 L + 1, D), the norms of each layer and the final one
    norm_biases: Floats  # (4 L + 1, D)
    qk_gains: Floats  # (L, 2, E)
    rotations: Floats  # (kinds, positions, E / 2, 2): cosine and sine
    rotation: Integers  # (L,): kind of each layer, -1: no positions
    windows: Integers  # (L,): 0: all tokens are visible


class Buffers(NamedTuple):
    """Memory of one call."""

    x: Floats  # (N, D), the residual stream
    floats: Floats  # (N, widest input), the input of a product
    integers: NDArray[np.int16]  # the same in 16 bits
    scales: Floats  # (N,), of the rows of `integers`
    sums: Floats  # (N, widest input / 32), sums of groups of `integers`
    y: Floats  # (N, widest output), the output of a product
    q: Floats  # (1 or L, N, H, E): of the layer that is computed, or of all
    scores: Floats  # (threads, positions)
    state: Integers  # of the barrier


class Batch(NamedTuple):
    """New tokens, whose embeddings are in `Buffers.x`, and the cache that they extend."""

    tokens: Integers  # (N, 2): row of the cache and position of each
    outputs: Integers  # the tokens whose logits are wanted, ascending
    logits: Floats  # (outputs, V)
    keys: Floats  # (rows, L, G, blocks, E, 16): 16 positions beside each other
    values: Floats  # (rows, L, G, positions, E)


@njit(nogil=True, error_model="numpy")
def _prepare(buffers, row, width, kind):
    """Make a row of `floats` the input of a product."""
    if kind >= 2:
        quantize(buffers.floats[row], width, row, buffers.integers, buffers.scales, buffers.sums)


@njit(nogil=True, error_model="numpy")
def _multiply(weights, buffers, matrix, y, rows, thread, threads):
    """Compute the share of one thread of a product."""
    fields = weights.matrices[matrix]
    integer = fields[0] >= 2
    x = buffers.integers.ctypes.data if integer else buffers.floats.ctypes.data
    stride = buffers.integers.strides[0] if integer else buffers.floats.strides[0]
    scales, sums = buffers.scales.ctypes.data, buffers.sums
    rows_of_x = (x, stride, scales, sums.ctypes.data, sums.strides[0])
    product(fields, rows_of_x, (y.ctypes.data, y.strides[0]), rows, thread, threads)


@njit(nogil=True, error_model="numpy")
def _add_update(shape, weights, buffers, layer, matrix, update_norm, row):
    """Add the output of a product, with its bias, to the residual stream."""
    x, y, dim = buffers.x[row], buffers.y[row], shape.dim
    bias = weights.biases[layer, matrix]
    for i in range(dim):
        y[i] += bias[i]
    if shape.update_norm:
        at = 4 * layer + update_norm
        normalize(y[:dim], weights.gains[at], weights.norm_biases[at], shape.norm, shape.epsilon, y[:dim])
    for i in range(dim):
        x[i] += y[i]


@njit(nogil=True, error_model="numpy")
def _norm_row(shape, weights, buffers, at, row, kind):
    """Normalize a row of the residual stream as the input of a product."""
    dim = shape.dim
    y = buffers.floats[row]
    normalize(buffers.x[row], weights.gains[at], weights.norm_biases[at], shape.norm, shape.epsilon, y[:dim])
    _prepare(buffers, row, dim, kind)


@njit(nogil=True, error_model="numpy")
def _rotate(x, angles):
    for i in range(len(x) // 2):
        a, b = x[2 * i], x[2 * i + 1]
        x[2 * i] = a * angles[i, 0] - b * angles[i, 1]
        x[2 * i + 1] = a * angles[i, 1] + b * angles[i, 0]


@njit(nogil=True, error_model="numpy")
def _split_heads(shape, weights, buffers, batch, layer, row):
    """Add the bias to q, k and v of a token, prepare and rotate q and k, and cache k and v."""
    width, heads, kv_heads = shape.head_dim, shape.heads, shape.kv_heads
    cache, position = batch.tokens[row, 0], batch.tokens[row, 1]
    keys, values = batch.keys[cache, layer], batch.values[cache, layer]
    y, bias = buffers.y[row], weights.biases[layer, QKV]
    for i in range((heads + 2 * kv_heads) * width):
        y[i] += bias[i]
    kind, queries = weights.rotation[layer], buffers.q[layer % len(buffers.q)]
    for head in range(heads + kv_heads):
        x = y[head * width : (head + 1) * width]
        if shape.qk_norm:
            root_mean_square(x, shape.qk_epsilon, x)
            if shape.qk_norm == 2:
                gain = weights.qk_gains[layer, 0 if head < heads else 1]
                for i in range(width):
                    x[i] *= gain[i]
        if kind >= 0:
            _rotate(x, weights.rotations[kind, position])
        if head < heads:
            for i in range(width):
                queries[row, head, i] = x[i]
        else:
            for i in range(width):
                keys[head - heads, position // 16, i, position % 16] = x[i]
    for head in range(kv_heads):
        start = (heads + kv_heads + head) * width
        for i in range(width):
            values[head, position, i] = y[start + i]


@njit(nogil=True, error_model="numpy")
def _attend_heads(shape, weights, buffers, batch, layer, thread, threads):
    """Compute the share of one thread of the heads of all tokens; the result is the input of the next product."""
    heads, width, window = shape.heads, shape.head_dim, weights.windows[layer]
    tokens, keys, values = batch.tokens, batch.keys, batch.values
    items, group, scale = len(tokens) * heads, heads // shape.kv_heads, float32(shape.scale)
    queries, scores = buffers.q[layer % len(buffers.q)], buffers.scores[thread]
    padded = queries.shape[2]
    result = len(scores) - padded
    for item in range(items * thread // threads, items * (thread + 1) // threads):
        row, head = item // heads, item % heads
        cache, kv_head, last = tokens[row, 0], head // group, tokens[row, 1] + 1
        first = max(0, last - window) if window else 0
        key = keys.ctypes.data + cache * keys.strides[0] + layer * keys.strides[1] + kv_head * keys.strides[2]
        value = values.ctypes.data + cache * values.strides[0] + layer * values.strides[1] + kv_head * values.strides[2]
        q = queries.ctypes.data + row * queries.strides[0] + head * queries.strides[1]
        inverse = float32(1.0) / attend(q, key, value, padded, first, last, scale, scores)
        for i in range(width):
            buffers.floats[row, head * width + i] = scores[result + i] * inverse


@njit(nogil=True, error_model="numpy")
def _feed(shape, weights, buffers, layer, row, kind):
    """Apply bias and activation to the inner layer, gated or not, as the input of the next product."""
    hidden, y, bias = shape.hidden, buffers.y[row], weights.biases[layer, UP]
    for i in range(hidden * (2 if shape.gated else 1)):
        y[i] += bias[i]
    activate(y[:hidden], shape.activation)
    inner = buffers.floats[row]
    if shape.gated:
        for i in range(hidden):
            inner[i] = y[i] * y[hidden + i]
    else:
        for i in range(hidden):
            inner[i] = y[i]
    _prepare(buffers, row, hidden, kind)


@njit(nogil=True, error_model="numpy", cache=CACHED)
def forward(shape, weights, buffers, batch, thread, threads):
    """Compute the logits of some tokens and cache them; run by all threads at once."""
    count, state = len(batch.tokens), buffers.state.ctypes.data
    first, last = count * thread // threads, count * (thread + 1) // threads
    for layer in range(shape.depth):
        base = 4 * layer
        kinds = weights.matrices[base : base + 4, 0]
        for row in range(first, last):
            _norm_row(shape, weights, buffers, base + ATTENTION_NORM, row, kinds[QKV])
        wait(state, threads)
        _multiply(weights, buffers, base + QKV, buffers.y, count, thread, threads)
        wait(state, threads)
        for row in range(first, last):
            _split_heads(shape, weights, buffers, batch, layer, row)
        wait(state, threads)
        _attend_heads(shape, weights, buffers, batch, layer, thread, threads)
        wait(state, threads)
        for row in range(first, last):
            _prepare(buffers, row, shape.heads * shape.head_dim, kinds[OUT])
        wait(state, threads)
        _multiply(weights, buffers, base + OUT, buffers.y, count, thread, threads)
        wait(state, threads)
        for row in range(first, last):
            _add_update(shape, weights, buffers, layer, OUT, ATTENTION_UPDATE_NORM, row)
            _norm_row(shape, weights, buffers, base + FEED_NORM, row, kinds[UP])
        wait(state, threads)
        _multiply(weights, buffers, base + UP, buffers.y, count, thread, threads)
        wait(state, threads)
        for row in range(first, last):
            _feed(shape, weights, buffers, layer, row, kinds[DOWN])
        wait(state, threads)
        _multiply(weights, buffers, base + DOWN, buffers.y, count, thread, threads)
        wait(state, threads)
        for row in range(first, last):
            _add_update(shape, weights, buffers, layer, DOWN, FEED_UPDATE_NORM, row)
    _output(shape, weights, buffers, batch, thread, threads)


@njit(nogil=True, error_model="numpy")
def _output(shape, weights, buffers, batch, thread, threads):
    """Write the logits of the tokens that are wanted."""
    outputs, logits, state, head = batch.outputs, batch.logits, buffers.state.ctypes.data, 4 * shape.depth
    kind = weights.matrices[head, 0]
    wait(state, threads)
    if thread == 0:
        for index in range(len(outputs)):  # a row is read before a later one is moved to its place
            if outputs[index] != index:
                buffers.x[index] = buffers.x[outputs[index]]
            _norm_row(shape, weights, buffers, head, index, kind)
    wait(state, threads)
    _multiply(weights, buffers, head, logits, len(outputs), thread, threads)
    wait(state, threads)
