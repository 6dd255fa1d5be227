"""Attention of one head and one token to cached keys and values, in vectors of 16.

Shapes: E head width, padded with zeros to a multiple of 16.
"""

from __future__ import annotations

from numba import float32, njit, types
from numba.extending import intrinsic

from saccade.decode.compiled.emitter import F32, FLOATS, LANES, Emitter
from saccade.decode.compiled.functions import FAST, exponential

CHAINS = 4  # sums that are accumulated independently, so that an addition need not wait for the one before


class AttentionEmitter(Emitter):
    """Emits the two products of attention."""

    def scores(self) -> None:
        """scores (16) = q (E) times a block of keys (E, 16)."""

        def products(at, sums):
            for chain in range(CHAINS):
                place = self.builder.add(at, self.number(chain))
                q = self.splat(self.load(F32, "q", self.times(place, 4)), FLOATS)
                k = self.load(FLOATS, "keys", self.times(place, 4 * LANES))
                sums[chain] = self.multiply_add(q, k, sums[chain])
            return sums

        self.store(
            self._total(self.loop(self.arguments["width"], CHAINS, self._zeros(), products)), "y", self.number(0)
        )

    def mean(self) -> None:
        """y (16 features) = weights (keys) times values (keys, E); both start at a multiple of 4 keys."""
        stride = self.times(self.arguments["width"], 4)

        def products(at, sums):
            for chain in range(CHAINS):
                place = self.builder.add(at, self.number(chain))
                weight = self.splat(self.load(F32, "weights", self.times(place, 4)), FLOATS)
                v = self.load(FLOATS, "values", self.builder.mul(place, stride))
                sums[chain] = self.multiply_add(weight, v, sums[chain])
            return sums

        first, last = self.arguments["first"], self.arguments["last"]
        self.store(self._total(self.loop(last, CHAINS, self._zeros(), products, first)), "y", self.number(0))

    def _zeros(self):
        return [self.number_vector(0.0)] * CHAINS

    def _total(self, sums):
        add = self.builder.fadd
        return add(add(sums[0], sums[1]), add(sums[2], sums[3]))


def _emitting(method, names):
    """Return the code generator of an intrinsic whose arguments have these names."""

    def generate(context, builder, signature, arguments):
        getattr(AttentionEmitter(builder, dict(zip(names, arguments, strict=True))), method)()
        return context.get_dummy_value()

    return types.void(*[types.int64] * len(names)), generate


@intrinsic
def _scores(context, q, keys, width, y):
    return _emitting("scores", ("q", "keys", "width", "y"))


@intrinsic
def _mean(context, weights, values, width, first, last, y):
    return _emitting("mean", ("weights", "values", "width", "first", "last", "y"))


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def attend(q, keys, values, width, first, last, scale, scores):
    """Attention to the keys first..last: softmax(scale q.k) v, without its denominator, which is returned.

    Addresses: q (E), keys (blocks, E, 16), 16 positions beside each other, so that one vector holds their scores, and
    values (positions, E). `scores` is memory for the positions and, at its end, for the result (E).
    """
    memory = scores.ctypes.data
    for block in range(first // LANES, (last + LANES - 1) // LANES):
        _scores(q, keys + 4 * LANES * width * block, width, memory + 4 * LANES * block)
    largest = scores[first]
    for i in range(first + 1, last):
        if scores[i] > largest:
            largest = scores[i]
    total = scores[first] - scores[first]  # 0, or nan where a score is not a number or infinite
    for i in range(first, last):
        total += scores[i] - scores[i]
    for i in range(first, last):
        weight = exponential(scale * (scores[i] - largest))
        scores[i] = weight
        total += weight
    start, end = first - first % CHAINS, last + -last % CHAINS
    for i in range(start, first):
        scores[i] = float32(0.0)
    for i in range(last, end):
        scores[i] = float32(0.0)
    result = memory + 4 * (len(scores) - width)
    for feature in range(0, width, LANES):
        _mean(memory, values + 4 * feature, width, start, end, result + 4 * feature)
    return total
