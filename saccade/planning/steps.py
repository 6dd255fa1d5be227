"""Steps: a training step of networks, traced without values, with or without fused attention and checkpointing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from saccade.nn.transformer import Layer
from saccade.planning.memory import optimizer_tensors, tensor_bytes
from saccade.planning.tracing import Operation, Tracer, fake_network

Losses = Callable[[Mapping[str, nn.Module]], list[Iterator[tuple[str, Tensor]]]]
"""start the losses of the micro-batches of a step"""
Context = Callable[[], AbstractContextManager[Any]]
aten = torch.ops.aten


@dataclass(frozen=True)
class StepTrace:
    """What a training step needs."""

    flops: int
    """of the products of forward pass, backward pass and optimizer"""
    activations: int
    """bytes that the forward pass keeps for the backward pass, of one micro-batch"""
    working: int
    """most bytes that are in use at once besides weights, gradients and optimizer state: activations, their gradients
    and temporary tensors"""
    peak: int
    """most bytes that are in use at once besides weights and optimizer state: gradients take the place of activations
    during the backward pass, so this is less than the sum of both"""
    operations: Sequence[Operation]


class TracedNetworks:
    """Networks without values, and their optimizers, whose training steps are traced."""

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        make_optimizers: Callable[[str, nn.Module], list[torch.optim.Optimizer]],
        device: str = "cpu",
        accelerator: torch.dtype | None = None,
    ) -> None:
        """`accelerator`: attend as a GPU does that computes with this type; None: as this machine does."""
        self.fake, self.device, self.accelerator = FakeTensorMode(), torch.device(device), accelerator
        self.networks = dict(networks)
        for network in self.networks.values():
            fake_network(network, self.fake, self.device)
            network.train()
        self.optimizers = {name: make_optimizers(name, network) for name, network in self.networks.items()}

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for network in self.networks.values() for parameter in network.parameters()]

    @property
    def weights(self) -> int:
        """Bytes of parameters and buffers."""
        buffers = [buffer for network in self.networks.values() for buffer in network.buffers()]
        return tensor_bytes([*self.parameters, *buffers])

    @property
    def gradients(self) -> int:
        return tensor_bytes([parameter for parameter in self.parameters if parameter.requires_grad])

    @property
    def optimizer_state(self) -> int:
        """Bytes of the state of the optimizers, after a step was traced."""
        return tensor_bytes(self._state())

    def _state(self) -> list[Tensor]:
        return optimizer_tensors(optimizer for optimizers in self.optimizers.values() for optimizer in optimizers)

    def trace(self, losses: Losses, *, fused: bool = True, checkpointing: bool = False) -> StepTrace:
        """Trace one step: losses and gradients of all micro-batches, then the optimizers, as the training loop does."""
        tracer = Tracer(self.fake, self.device)
        buffers = [buffer for network in self.networks.values() for buffer in network.buffers()]
        tracer.ignore([*self.parameters, *buffers, *self._state()])
        activations = 0
        with contextlib.ExitStack() as stack:
            attention = partial(_attention, self.accelerator, fused)
            stack.enter_context(attention())
            if checkpointing:
                stack.enter_context(checkpointed(self.networks.values(), attention))
            stack.enter_context(_without_gradients(self.parameters, tracer))
            stack.enter_context(tracer)
            rounds = losses(self.networks)
            while pairs := self._backward(rounds, tracer):
                name, saved = pairs
                activations = max(activations, saved)
                for optimizer in self.optimizers[name]:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        trace = tracer.trace
        return StepTrace(trace.flops, activations, trace.working, trace.peak, trace.operations)

    def _backward(self, rounds: list[Iterator[tuple[str, Tensor]]], tracer: Tracer) -> tuple[str, int] | None:
        """Add the gradients of the next network of all micro-batches; return its name and the activations."""
        name, activations = "", 0
        for losses in rounds:
            before = tracer.trace.live
            pair = next(losses, None)
            if pair is None:
                return None
            name, loss = pair
            activations = max(activations, tracer.trace.live - before)
            trained = [parameter for parameter in self.networks[name].parameters() if parameter.requires_grad]
            loss.backward(inputs=trained if len(self.networks) > 1 else None)
            del loss, pair
        return name, activations


def one_loss(name: str, compute: Callable[[nn.Module], Tensor]) -> Losses:
    """Return the losses of a step with one micro-batch and one network."""

    def losses(networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield name, compute(networks[name])

    return lambda networks: [losses(networks)]


@contextlib.contextmanager
def _without_gradients(parameters: Iterable[nn.Parameter], tracer: Tracer) -> Iterator[None]:
    """Take the gradients of parameters out of the working memory as soon as they are complete."""

    def accumulated(parameter: Tensor) -> None:
        assert parameter.grad is not None
        tracer.exclude(parameter.grad)

    trained = [parameter for parameter in parameters if parameter.requires_grad]
    hooks = [parameter.register_post_accumulate_grad_hook(accumulated) for parameter in trained]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def checkpointed(networks: Iterable[nn.Module], attention: Context) -> Iterator[None]:
    """Keep only the input of each Transformer layer, which is computed again, with `attention`, in the backward pass.

    Training Deep Nets with Sublinear Memory Cost, https://arxiv.org/abs/1604.06174.
    """
    layers = [module for network in networks for module in network.modules() if isinstance(module, Layer)]
    for layer in layers:
        layer.forward = _checkpointed(layer.forward, attention)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _checkpointed(forward: Callable[..., Tensor], attention: Context) -> Callable[..., Tensor]:
    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return contextlib.nullcontext(), attention()  # a mode for functions does not reach into a backward pass

    def call(*args: Any) -> Tensor:
        result: Tensor = checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
        return result

    return call


def _attention(accelerator: torch.dtype | None, fused: bool) -> AbstractContextManager[Any]:
    """Return the context in which attention is computed by a fused kernel of the device, or by plain operators."""
    if accelerator is not None:
        return AcceleratorAttention(accelerator, fused)
    return contextlib.nullcontext() if fused else sdpa_kernel([SDPBackend.MATH])


class AcceleratorAttention(TorchFunctionMode):
    """Replaces attention by the kernels of a GPU, which a trace without one would not choose."""

    def __init__(self, dtype: torch.dtype, fused: bool) -> None:
        super().__init__()
        self.dtype, self.fused = dtype, fused

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v = (tensor.to(self.dtype) for tensor in args)
        mask, dropout, scale = kwargs.get("attn_mask"), kwargs.get("dropout_p", 0.0), kwargs.get("scale")
        causal = kwargs.get("is_causal", False)
        if not self.fused:
            with sdpa_kernel([SDPBackend.MATH]):
                return func(q, k, v, **{**kwargs, "attn_mask": self._bias(mask)})
        if k.shape[1] != q.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        if mask is None:
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, scale=scale)[0]
        bias = self._bias(mask).expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, dropout, causal, scale=scale)[0]

    def _bias(self, mask: Any) -> Any:
        """Return a mask as numbers that are added to the scores."""
        if mask is None or mask.dtype != torch.bool:
            return None if mask is None else mask.to(self.dtype)
        return torch.zeros_like(mask, dtype=self.dtype).masked_fill(~mask, -torch.inf)
