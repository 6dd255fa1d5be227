"""Emitter: LLVM vector instructions of the inner loops of matrix products, which Numba compiles for this processor.

Shapes: M rows, I inputs, O outputs; a block is 16 outputs, whose sums are the lanes of one vector.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import config

from saccade.nn.quantized import GROUP


def _features() -> set[str]:
    """Return the instruction sets that Numba compiles for: those of its settings, or all there are."""
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        return {name for name, present in binding.get_host_cpu_features().items() if present}
    return {name[1:] for name in (config.CPU_FEATURES or "").split(",") if name.startswith("+")}


FEATURES = _features()
REQUIRED = ("avx2", "fma", "f16c") if platform.machine() in ("x86_64", "AMD64") else ()
LANES = 16  # outputs of a block
# Integer sums of few rows that do not wait for each other; without AVX-512 the chain is an addition of one cycle.
CHAINS = 4 if "avx512bw" in FEATURES else 1
FLUSH = 1024  # inputs whose integer products are summed in 32 bits before they become floating-point numbers
AHEAD = 4096  # bytes before they are needed, weights are brought into the cache where many rows are multiplied
# The same of integer weights where few rows are; 0: the processor itself is ahead.
AHEAD_OF_FEW = 0 if "avx512f" in FEATURES else 1024

I8, I16, I32, I64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
SUMS, FLOATS = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES)
PAIRS = ir.VectorType(I16, 2 * LANES)  # two adjacent inputs of each of 16 outputs


def missing_instructions() -> str:
    """Return which instructions the processor does not have; empty: all that compiled code needs."""
    missing = [name.upper() for name in REQUIRED if name not in FEATURES]
    return f"code for a processor without {', '.join(missing)}" if missing else ""


class Emitter:
    """Emits loops over vectors of 16 numbers; the arguments are addresses, by name, and whole numbers."""

    def __init__(self, builder: Any, arguments: Mapping[str, Any]) -> None:
        self.builder, self.arguments = builder, arguments

    def number(self, value: int) -> Any:
        return ir.Constant(I64, value)

    def number_vector(self, value: float) -> Any:
        return ir.Constant(FLOATS, [value] * LANES)

    def times(self, value: Any, factor: int) -> Any:
        return self.builder.mul(value, self.number(factor))

    def pointer(self, name: str, offset: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(self.arguments[name], offset), ir.PointerType())

    def load(self, kind: Any, name: str, offset: Any) -> Any:
        return self.builder.load(self.pointer(name, offset), typ=kind, align=1)

    def store(self, value: Any, name: str, offset: Any) -> None:
        self.builder.store(value, self.pointer(name, offset), align=1)

    def splat(self, value: Any, kind: Any) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count)
        return self.builder.shuffle_vector(first, undefined, zeros)

    def intrinsic(self, name: str, result: Any, *arguments: Any) -> Any:
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, [argument.type for argument in arguments]), name)
        return self.builder.call(function, arguments)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self.intrinsic("llvm.fma.v16f32", FLOATS, a, b, c)

    def loop(
        self, last: Any, step: int, values: list[Any], body: Callable[[Any, list[Any]], list[Any]], first: Any = None
    ) -> list[Any]:
        """Emit `for at in range(first, last, step)` over values that the body returns anew; at least one iteration."""
        builder = self.builder
        before, inside, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(inside)
        builder.position_at_end(inside)
        at = builder.phi(I64)
        at.add_incoming(self.number(0) if first is None else first, before)
        phis = [builder.phi(value.type) for value in values]
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, before)
        results = body(at, list(phis))
        following = builder.add(at, self.number(step))
        at.add_incoming(following, builder.block)
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, last), inside, after)
        builder.position_at_end(after)
        return results


class ProductEmitter(Emitter):
    """Emits the product of a tile: a few rows of x with adjacent blocks of outputs.

    The arguments: weights `w`, their `scales`, the number of `inputs`; the rows `x` with `x_stride` in bytes, their
    `x_scales`, and the sums of groups of x with `sums_stride`; the result `y` with `y_stride`.
    """

    NAMES = ("w", "scales", "inputs", "x", "x_stride", "x_scales", "sums", "sums_stride", "y", "y_stride")

    def __init__(self, builder: Any, arguments: Sequence[Any], rows: int, blocks: int) -> None:
        super().__init__(builder, dict(zip(self.NAMES, arguments, strict=True)))
        self.rows, self.blocks = rows, blocks
        self.tiles = [(row, block) for row in range(rows) for block in range(blocks)]

    def prefetch(self, name: str, offset: Any, of_few: int = 0) -> None:
        """Bring what is read a little later into the processor's cache, while it multiplies."""
        distance = AHEAD if self.rows > 2 else of_few
        if not distance:
            return
        module, kinds = self.builder.module, [ir.PointerType(), I32, I32, I32]
        function = module.globals.get("llvm.prefetch.p0")
        if function is None:
            function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0")
        constants = [ir.Constant(I32, value) for value in (0, 3, 1)]  # read, keep, data
        ahead = self.builder.add(offset, self.number(distance))
        self.builder.call(function, [self.pointer(name, ahead), *constants])

    def x_offset(self, row: int, at: Any, size: int) -> Any:
        start = self.builder.mul(self.number(row), self.arguments["x_stride"])
        return self.builder.add(start, self.times(at, size))

    def zeros(self, kind: Any) -> list[Any]:
        return [ir.Constant(kind, [0] * LANES) for _ in self.tiles]

    # Integers

    def x_pairs(self, row: int, at: Any) -> Any:
        """Return two 16-bit inputs of a row, from `at` on, repeated for every output."""
        pair = self.load(I32, "x", self.x_offset(row, at, 2))
        return self.builder.bitcast(self.splat(pair, SUMS), PAIRS)

    def add_products(self, sums: Any, x: Any, weights: Any) -> Any:
        """Add the products of pairs of 16-bit integers to sums (16); LLVM joins both instructions where it can."""
        builder = self.builder
        if "avx512bw" in FEATURES:
            return builder.add(sums, self.intrinsic("llvm.x86.avx512.pmaddw.d.512", SUMS, x, weights))
        if "avx2" in FEATURES:
            half = ir.VectorType(I32, LANES // 2)
            parts = [
                self.intrinsic("llvm.x86.avx2.pmadd.wd", half, self._half(x, at), self._half(weights, at))
                for at in (0, 1)
            ]
            order = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
            return builder.add(sums, builder.shuffle_vector(*parts, order))
        wide = ir.VectorType(I32, 2 * LANES)
        product = builder.mul(builder.sext(x, wide), builder.sext(weights, wide))
        for parity in (0, 1):
            order = ir.Constant(ir.VectorType(I32, LANES), list(range(parity, 2 * LANES, 2)))
            sums = builder.add(sums, builder.shuffle_vector(product, ir.Constant(wide, ir.Undefined), order))
        return sums

    def _half(self, pairs: Any, at: int) -> Any:
        order = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES * at, LANES * at + LANES)))
        return self.builder.shuffle_vector(pairs, ir.Constant(PAIRS, ir.Undefined), order)

    def write(self, totals: list[Any], *, scaled: bool) -> None:
        """Store the totals of all tiles, times the scales of rows and outputs."""
        for (row, block), total in zip(self.tiles, totals, strict=True):
            if scaled:
                factor = self.splat(self.load(F32, "x_scales", self.number(4 * row)), FLOATS)
                total = self.builder.fmul(total, factor)
            offset = self.builder.mul(self.number(row), self.arguments["y_stride"])
            offset = self.builder.add(offset, self.number(4 * LANES * block))
            self.store(total, "y", offset)

    @property
    def chains(self) -> int:
        """Sums of each tile that are independent of each other, so that few rows do not wait for their products."""
        return max(1, CHAINS // len(self.tiles))

    def _joined(self, parts: list[list[Any]]) -> list[Any]:
        """Return the sums of all chains, which are integers: their order does not matter."""
        while len(parts) > 1:
            first, second, *rest = parts
            parts = [*rest, [self.builder.add(a, b) for a, b in zip(first, second, strict=True)]]
        return parts[0]

    def int8(self) -> None:
        """Weights (block, I / 2, 16, 2) int8, a scale for each output."""
        builder, inputs = self.builder, self.arguments["inputs"]
        block_size = self.times(inputs, LANES)
        chains, count = min(2, self.chains), len(self.tiles)

        def products(at: Any, values: list[Any]) -> list[Any]:
            parts = [values[chain * count : (chain + 1) * count] for chain in range(chains)]
            for pair in range(2):  # unrolled
                sums = parts[pair % chains]
                place = builder.add(at, self.number(2 * pair))
                x = [self.x_pairs(row, place) for row in range(self.rows)]
                for block in range(self.blocks):
                    offset = builder.add(builder.mul(self.number(block), block_size), self.times(place, LANES))
                    if pair == 0:
                        self.prefetch("w", offset, AHEAD_OF_FEW)
                    w = builder.sext(self.load(ir.VectorType(I8, 2 * LANES), "w", offset), PAIRS)
                    for row in range(self.rows):
                        index = self.tiles.index((row, block))
                        sums[index] = self.add_products(sums[index], x[row], w)
            return [value for sums in parts for value in sums]

        def flush(at: Any, totals: list[Any]) -> list[Any]:
            end = builder.add(at, self.number(FLUSH))
            last = builder.select(builder.icmp_signed("<", end, inputs), end, inputs)
            values = self.loop(last, 4, self.zeros(SUMS) * chains, products, at)
            sums = self._joined([values[chain * count : (chain + 1) * count] for chain in range(chains)])
            return [builder.fadd(total, builder.sitofp(part, FLOATS)) for total, part in zip(totals, sums, strict=True)]

        totals = self.loop(inputs, FLUSH, self.zeros(FLOATS), flush)
        scales = [self.load(FLOATS, "scales", self.number(4 * LANES * block)) for block in range(self.blocks)]
        self.write(
            [builder.fmul(total, scales[block]) for (_, block), total in zip(self.tiles, totals, strict=True)],
            scaled=True,
        )

    def int4(self) -> None:
        """Weights (block, I / 8, 16, 2) of 16 bits: four inputs of one parity in 4 bits each, from 0 to 15.

        So shifts and masks alone give pairs of 16-bit integers. Scales and offsets (block, I / 32, 2, 16) are the upper
        halves of floating-point numbers. The sum of a group is scale sum(w x) + offset sum(x).
        """
        builder, inputs = self.builder, self.arguments["inputs"]
        low = ir.Constant(PAIRS, [15] * 2 * LANES)

        def group(at: Any, totals: list[Any]) -> list[Any]:
            parts = [self.zeros(SUMS) for _ in range(self.chains)]
            for octet in range(GROUP // 8):
                place = builder.add(at, self.number(8 * octet))
                x = [
                    [self.x_pairs(row, builder.add(place, self.number(2 * pair))) for pair in range(4)]
                    for row in range(self.rows)
                ]
                for block in range(self.blocks):
                    start = self.times(builder.mul(self.number(block), inputs), LANES // 2)
                    offset = builder.add(start, self.times(place, LANES // 2))
                    self.prefetch("w", offset, AHEAD_OF_FEW)
                    packed = self.load(PAIRS, "w", offset)
                    shifted = [builder.lshr(packed, ir.Constant(PAIRS, [4 * pair] * 2 * LANES)) for pair in range(4)]
                    weights = [*(builder.and_(part, low) for part in shifted[:3]), shifted[3]]
                    for row in range(self.rows):
                        index = self.tiles.index((row, block))
                        for pair in range(4):
                            sums = parts[pair % self.chains]
                            sums[index] = self.add_products(sums[index], x[row][pair], weights[pair])
            sums = self._joined(parts)
            scales = [[self._group_scales(block, at, number) for number in (0, 1)] for block in range(self.blocks)]
            x_sums = [self._group_sum(row, at) for row in range(self.rows)]
            for index, (row, block) in enumerate(self.tiles):
                scale, offset = scales[block]
                total = self.multiply_add(builder.sitofp(sums[index], FLOATS), scale, totals[index])
                totals[index] = self.multiply_add(x_sums[row], offset, total)
            return totals

        self.write(self.loop(inputs, GROUP, self.zeros(FLOATS), group), scaled=True)

    def _group_scales(self, block: int, at: Any, number: int) -> Any:
        """Return the scales (number 0) or the offsets (1) of a group."""
        builder, size = self.builder, 4 * LANES // GROUP  # bytes for each input
        start = self.times(builder.mul(self.number(block), self.arguments["inputs"]), size)
        offset = builder.add(builder.add(start, self.times(at, size)), self.number(2 * LANES * number))
        bits = builder.zext(self.load(ir.VectorType(I16, LANES), "scales", offset), SUMS)
        return builder.bitcast(builder.shl(bits, ir.Constant(SUMS, [16] * LANES)), FLOATS)

    def _group_sum(self, row: int, at: Any) -> Any:
        """Return the sum of the inputs of a group, repeated for every output."""
        start = self.builder.mul(self.number(row), self.arguments["sums_stride"])
        place = self.builder.add(start, self.builder.lshr(at, self.number(3)))  # 4 bytes for 32 inputs
        return self.splat(self.load(F32, "sums", place), FLOATS)

    # Floating-point numbers

    def float16(self) -> None:
        """Weights (block, I, 16) float16; x is float32."""
        builder, inputs = self.builder, self.arguments["inputs"]
        halves = ir.VectorType(ir.HalfType(), LANES)

        def products(at: Any, totals: list[Any]) -> list[Any]:
            for step in range(2):  # unrolled
                place = builder.add(at, self.number(step))
                x = [self.splat(self.load(F32, "x", self.x_offset(row, place, 4)), FLOATS) for row in range(self.rows)]
                for block in range(self.blocks):
                    start = self.times(builder.mul(self.number(block), inputs), 2 * LANES)
                    offset = builder.add(start, self.times(place, 2 * LANES))
                    if step == 0:
                        self.prefetch("w", offset)
                    w = builder.fpext(self.load(halves, "w", offset), FLOATS)
                    for row in range(self.rows):
                        index = self.tiles.index((row, block))
                        totals[index] = self.multiply_add(x[row], w, totals[index])
            return totals

        self.write(self.loop(inputs, 2, self.zeros(FLOATS), products), scaled=False)

    def float32(self) -> None:
        """Weights (O, I) float32 as a linear layer has them: a block is one output, the lanes are 16 inputs."""
        builder, inputs = self.builder, self.arguments["inputs"]

        def products(at: Any, totals: list[Any]) -> list[Any]:
            x = [self.load(FLOATS, "x", self.x_offset(row, at, 4)) for row in range(self.rows)]
            for block in range(self.blocks):
                start = self.times(builder.mul(self.number(block), inputs), 4)
                offset = builder.add(start, self.times(at, 4))
                self.prefetch("w", offset)
                w = self.load(FLOATS, "w", offset)
                for row in range(self.rows):
                    index = self.tiles.index((row, block))
                    totals[index] = self.multiply_add(x[row], w, totals[index])
            return totals

        totals = self.loop(inputs, LANES, self.zeros(FLOATS), products)
        together = LANES // self.blocks  # rows whose sums fit into one vector
        for first in range(0, self.rows, together):
            rows = range(first, min(first + together, self.rows))
            sums = self._sums([totals[self.tiles.index((row, block))] for row in rows for block in range(self.blocks)])
            for row in rows:
                lanes = [(row - first) * self.blocks + block for block in range(self.blocks)]
                part = self.builder.shuffle_vector(sums, sums, ir.Constant(ir.VectorType(I32, self.blocks), lanes))
                self.store(part, "y", self.builder.mul(self.number(row), self.arguments["y_stride"]))

    def _sums(self, values: list[Any]) -> Any:
        """Return a vector with the sum of the lanes of each value.

        Halves are added to each other, in an order that is always the same; the halves of two vectors at once.
        """
        for size in (16, 8, 4, 2):  # lanes of a vector that belong to one sum
            pairs = [(values[at], values[min(at + 1, len(values) - 1)]) for at in range(0, len(values), 2)]
            halves = [
                [start + lane for start in range(half, 2 * LANES, size) for lane in range(size // 2)]
                for half in (0, size // 2)
            ]
            orders = [ir.Constant(ir.VectorType(I32, LANES), order) for order in halves]
            values = [
                self.builder.fadd(*(self.builder.shuffle_vector(*pair, order) for order in orders)) for pair in pairs
            ]
        return values[0]
