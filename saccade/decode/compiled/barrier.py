"""Barrier: threads of one computation wait for each other in compiled code, for a fraction of a microsecond.

A thread that waits long gives its processor to others, so that a busy machine slows a computation but never stalls it.
"""

from __future__ import annotations

import platform

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

SPINS = 4000  # looks at the other threads before the processor is given to others
I64 = ir.IntType(64)
X86 = platform.machine() in ("x86_64", "AMD64")


@intrinsic
def _atomic_add(context, address, value):
    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _pause(context):
    def generate(context, builder, signature, arguments):
        if X86:
            function = builder.module.globals.get("llvm.x86.sse2.pause") or ir.Function(
                builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
            )
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _yield_processor(context):
    def generate(context, builder, signature, arguments):
        function = builder.module.globals.get("sched_yield") or ir.Function(
            builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"
        )
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@njit(nogil=True)
def wait(state, threads):
    """Wait until all threads are here; `state` is the address of two int64 in different cache lines, at first 0."""
    if threads == 1:
        return
    turn = _atomic_add(state + 64, 0)
    if _atomic_add(state, 1) == threads - 1:
        _atomic_add(state, -threads)
        _atomic_add(state + 64, 1)
        return
    spins = 0
    while _atomic_add(state + 64, 0) == turn:
        spins += 1
        if spins < SPINS:
            _pause()
        else:
            _yield_processor()
