"""Tracing: one training step on tensors that have shapes but no values, to count its FLOPs and its memory.

The parameters are fake tensors (`torch._subclasses.fake_tensor`): nothing is allocated for them or computed from them.
A batch keeps its values, and so does what is computed from the batch alone, since shapes can depend on it: the tokens
that are selected by a mask. Every operator that reaches a device is recorded with its inputs, and every storage is
followed from its allocation to its release, so that the peak is that of the real step, backward pass, optimizer and
temporary tensors included.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.errors import UsageError
from saccade.planning.flops import operator_flops

MAX_VALUES = 1 << 20  # a larger tensor that depends on no input, such as random numbers of dropout, has no values
aten = torch.ops.aten
NEW = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "new_zeros", "zeros_like", "zeros")
"""operators that create tensors to be written to"""
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)


@dataclass(frozen=True)
class TensorSpec:
    """Shape, strides and type of a tensor without values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


@dataclass(frozen=True)
class Operation:
    """One call of an operator; tensors without values are specs, those with values are themselves."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    flops: int

    @property
    def key(self) -> str:
        """The same for two calls that take the same time."""
        leaves, structure = pytree.tree_flatten((self.args, self.kwargs))
        specs = (TensorSpec.of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        return f"{self.operator} {structure} {list(specs)}"


@dataclass
class Trace:
    """What was recorded of a step."""

    operations: list[Operation] = field(default_factory=list)
    live: int = 0
    """bytes of all storages that were allocated during the trace and are still in use"""
    peak: int = 0
    """highest value of `live`"""
    excluded: int = 0
    """bytes of `live` that are gradients of parameters"""
    working: int = 0
    """highest value of `live` without `excluded`"""

    @property
    def flops(self) -> int:
        return sum(operation.flops for operation in self.operations)


class Tracer(TorchDispatchMode):
    """Records the operators of the calls inside it and follows the storages of their results."""

    def __init__(self, fake: FakeTensorMode, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake, self.device, self.trace = fake, device, Trace()
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._excluded: dict[int, int] = {}
        self._overwritten: set[int] = set()  # storages of real tensors into which numbers without values were written

    def ignore(self, tensors: Any) -> None:
        """Do not count the storages of these tensors: parameters, buffers, the batch."""
        for leaf in pytree.tree_leaves(tensors):
            if isinstance(leaf, Tensor):
                self._follow(leaf, counted=False)

    def exclude(self, tensor: Tensor) -> None:
        """Do not count the storage of a tensor as working memory from now on."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._storages and storage._cdata not in self._excluded:
            self._excluded[storage._cdata] = storage.nbytes()
            self.trace.excluded += storage.nbytes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in INDEXING:
            args = (args[0], _integer_indices(args[1]), *args[2:])
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(map(self._unknown, leaves)):
            result = self._without_values(func, args, kwargs)
            if func._schema.is_mutable and isinstance(args[0], Tensor) and not isinstance(args[0], FakeTensor):
                self._overwritten.add(args[0].untyped_storage()._cdata)
                result = args[0]
        elif not leaves or func.overloadpacket.__name__ in NEW:
            result = self._create(func, args, kwargs)
        else:
            result = self._with_values(func, args, kwargs)
        if not func.is_view:
            self._record(func, args, kwargs, result)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._follow(leaf, counted=True)
        return result

    def _create(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a new tensor: small whole numbers have values, others may be written to by a network."""
        result = self._without_values(func, args, kwargs)
        small = isinstance(result, Tensor) and result.numel() <= MAX_VALUES and not result.is_floating_point()
        return self._with_values(func, args, kwargs) if small else result

    def _with_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return func(*args, **kwargs)

    def _without_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        fake_args, fake_kwargs = pytree.tree_map(self._fake_tensor, (args, kwargs))
        try:
            with self.fake:
                return func(*fake_args, **fake_kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException, RuntimeError) as error:
            return self._with_zeros(func, args, kwargs, error)

    def _with_zeros(self, func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
        """Compute an operator on zeros: the shape of its result depends on values of the batch, or it is sparse."""
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        unknown = [leaf for leaf in leaves if self._unknown(leaf)]
        if len(unknown) == len(leaves) or not all(leaf.is_floating_point() for leaf in unknown):
            raise UsageError(f"its step depends on values that are computed by a network ({func})") from error
        with unset_fake_temporarily():
            args, kwargs = pytree.tree_map(_zeros, (args, kwargs))
            result = func(*args, **kwargs)

        def without_values(value: Any) -> Any:
            dense = isinstance(value, Tensor) and value.layout == torch.strided and value.is_floating_point()
            return self._fake_tensor(value) if dense else value

        return pytree.tree_map(without_values, result)

    def _fake_tensor(self, value: Any) -> Any:
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
            return self.fake.from_tensor(value if value.device == self.device else value.to(self.device))
        return value

    def _unknown(self, tensor: Tensor) -> bool:
        """Whether the values of a tensor are not known."""
        if isinstance(tensor, FakeTensor):
            return True
        return tensor.layout == torch.strided and tensor.untyped_storage()._cdata in self._overwritten

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        spec = _to_spec
        arguments, keywords = pytree.tree_map(spec, args), pytree.tree_map(spec, kwargs)
        flops = operator_flops(func, args, kwargs, result)
        self.trace.operations.append(Operation(func, arguments, keywords, flops))

    def _follow(self, tensor: Tensor, *, counted: bool) -> None:
        """Count a storage until it is released."""
        if tensor.layout != torch.strided:  # its parts are tensors that are followed themselves
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        size = storage.nbytes() if counted else 0
        self.trace.live += size
        self.trace.peak = max(self.trace.peak, self.trace.live)
        self.trace.working = max(self.trace.working, self.trace.live - self.trace.excluded)
        self._storages[key] = weakref.ref(storage, lambda _: self._released(key, size))

    def _released(self, key: int, size: int) -> None:
        self._storages.pop(key, None)
        self._overwritten.discard(key)
        self.trace.live -= size
        self.trace.excluded -= self._excluded.pop(key, 0)


def _zeros(value: Any) -> Any:
    """Return zeros in place of a tensor without values."""
    return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, FakeTensor) else value


def _to_spec(value: Any) -> Any:
    return TensorSpec.of(value) if isinstance(value, FakeTensor) else value


def _integer_indices(indices: Any) -> list[Any]:
    """Return indices with masks that have values replaced by the positions they select."""
    result: list[Any] = []
    for index in indices:
        mask = isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)
        if mask and not isinstance(index, FakeTensor):
            with unset_fake_temporarily():
                result.extend(index.nonzero().unbind(1))
        else:
            result.append(index)
    return result


def fake_network(network: nn.Module, fake: FakeTensorMode, device: torch.device) -> None:
    """Replace parameters and floating buffers of a network, on any device or on meta, by fake ones on `device`."""
    replaced: dict[int, Tensor] = {}
    for module in network.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in replaced:
                    values = _fake(parameter, fake, device)
                    replaced[id(parameter)] = nn.Parameter(values, requires_grad=parameter.requires_grad)
                module._parameters[name] = replaced[id(parameter)]  # type: ignore[assignment]
        for name, buffer in module._buffers.items():
            if buffer is not None and (buffer.is_meta or buffer.is_floating_point()):
                module._buffers[name] = _fake(buffer, fake, device)


def _fake(tensor: Tensor, fake: FakeTensorMode, device: torch.device) -> Tensor:
    with fake:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
