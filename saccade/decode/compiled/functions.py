"""Element-wise functions of a decoding step, written as loops that LLVM turns into vector instructions."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import float32, njit, types
from numba.extending import intrinsic

from saccade.nn.quantized import GROUP

FAST = {"reassoc", "contract", "arcp", "nsz"}
LEVELS = 16000  # of an activation in 16 bits: 1024 products with 8-bit weights fit into a sum of 32 bits
RELU, SQUARED_RELU, GELU, GELU_TANH, QUICK_GELU, SILU = range(6)
ACTIVATIONS = ("relu", "squared_relu", "gelu", "gelu_tanh", "quick_gelu", "silu")


F32, I32 = ir.FloatType(), ir.IntType(32)
# Of 2^r for |r| <= ln 2 / 2, from the highest power down (Cephes, expf).
POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def _call(builder, name, *arguments):
    """Emit a call of an LLVM function of floats, which becomes a vector instruction in a loop."""
    name = f"llvm.{name}.f32"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(F32, [F32] * len(arguments)), name)
    return builder.call(function, arguments)


@intrinsic
def _as_float(context, bits):
    """The floating-point number with these bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], F32)

    return types.float32(types.int32), generate


@intrinsic
def _round(context, x):
    """The nearest whole number, ties to even."""

    def generate(context, builder, signature, arguments):
        return _call(builder, "rint", *arguments)

    return types.float32(types.float32), generate


@intrinsic
def exponential(context, x):
    """e^x: 2^n times a polynomial of the remainder, within 2 units in the last place."""

    def generate(context, builder, signature, arguments):
        def number(value):
            return ir.Constant(F32, value)

        x = _call(builder, "maxnum", _call(builder, "minnum", arguments[0], number(88.0)), number(-87.0))
        n = _call(builder, "rint", builder.fmul(x, number(1.44269504)))
        r = _call(builder, "fma", n, number(-0.693359375), x)  # ln 2 in two parts, the first without rounding
        r = _call(builder, "fma", n, number(2.12194440e-4), r)
        p = number(POLYNOMIAL[0])
        for coefficient in POLYNOMIAL[1:]:
            p = _call(builder, "fma", p, r, number(coefficient))
        p = _call(builder, "fma", builder.fmul(p, r), r, builder.fadd(r, number(1.0)))
        bits = builder.add(builder.fptosi(n, I32), ir.Constant(I32, 127))
        return builder.fmul(p, builder.bitcast(builder.shl(bits, ir.Constant(I32, 23)), F32))

    return types.float32(types.float32), generate


@njit(nogil=True, error_model="numpy")
def _error_function(x):
    """erf(x): 1 - t e^(-x^2 + polynomial of t), with t = 1 / (1 + |x| / 2) (Numerical Recipes, 6.2.2)."""
    z = abs(x)
    t = float32(1.0) / (float32(1.0) + float32(0.5) * z)
    p = float32(0.17087277)
    p = p * t + float32(-0.82215223)
    p = p * t + float32(1.48851587)
    p = p * t + float32(-1.13520398)
    p = p * t + float32(0.27886807)
    p = p * t + float32(-0.18628806)
    p = p * t + float32(0.09678418)
    p = p * t + float32(0.37409196)
    p = p * t + float32(1.00002368)
    p = p * t + float32(-1.26551223)
    return np.copysign(float32(1.0) - t * exponential(p - z * z), x)


@njit(nogil=True, error_model="numpy")
def activate(x, kind):
    """Apply an activation to a vector in place."""
    if kind == RELU:
        for i in range(len(x)):
            x[i] = max(x[i], float32(0.0))
    elif kind == SQUARED_RELU:
        for i in range(len(x)):
            positive = max(x[i], float32(0.0))
            x[i] = positive * positive
    elif kind == GELU:
        for i in range(len(x)):
            x[i] = float32(0.5) * x[i] * (float32(1.0) + _error_function(x[i] * float32(0.70710678)))
    elif kind == GELU_TANH:
        for i in range(len(x)):
            v = x[i]
            u = float32(1.59576912) * (v + float32(0.044715) * v * v * v)
            x[i] = v / (float32(1.0) + exponential(-u))
    elif kind == QUICK_GELU:
        for i in range(len(x)):
            x[i] = x[i] / (float32(1.0) + exponential(float32(-1.702) * x[i]))
    else:
        for i in range(len(x)):
            x[i] = x[i] / (float32(1.0) + exponential(-x[i]))


@njit(nogil=True, error_model="numpy")
def quantize(x, width, row, q, scales, sums):
    """Write a row of floats as 16-bit integers with one scale, the padding as 0; and the sums of groups of integers."""
    bits, largest = x[:width].view(np.int32), 0
    for i in range(width):  # of positive numbers the bits have the same order; those of nan are the largest
        largest = max(largest, bits[i] & 0x7FFFFFFF)
    scale = _as_float(np.int32(largest)) / float32(LEVELS)
    scales[row] = scale
    inverse = float32(1.0) / scale if scale > float32(1e-30) else float32(0.0)
    for i in range(width):
        q[row, i] = np.int16(_round(x[i] * inverse))
    end = width + -width % GROUP
    for i in range(width, end):
        q[row, i] = 0
    for group in range(end // GROUP):
        total = np.int32(0)
        for i in range(GROUP * group, GROUP * group + GROUP):
            total += np.int32(q[row, i])
        sums[row, group] = float32(total)


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def root_mean_square(x, epsilon, y):
    """Write x scaled to root mean square 1."""
    total = float32(0.0)
    for i in range(len(x)):
        total += x[i] * x[i]
    inverse = float32(1.0 / np.sqrt(np.float64(total) / len(x) + epsilon))
    for i in range(len(x)):
        y[i] = x[i] * inverse


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def normalize(x, gain, bias, kind, epsilon, y):
    """Write the norm of x: LayerNorm (kind 0) or RMSNorm, times the gain, plus the bias."""
    width = len(x)
    if kind == 0:
        total = float32(0.0)
        for i in range(width):
            total += x[i]
        mean = total / float32(width)
        squares = float32(0.0)
        for i in range(width):
            squares += (x[i] - mean) * (x[i] - mean)
        inverse = float32(1.0 / np.sqrt(np.float64(squares) / width + epsilon))
        for i in range(width):
            y[i] = (x[i] - mean) * inverse * gain[i] + bias[i]
    else:
        root_mean_square(x, epsilon, y)
        for i in range(width):
            y[i] = y[i] * gain[i]
