"""Transformer: encoder and decoder stacks, from one config.

Attention Is All You Need (https://arxiv.org/abs/1706.03762). Shapes: B rows, T tokens, S memory tokens, D width.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from saccade.nn.attention import Attention, Cosine, Dot, Heads, QKNorm
from saccade.nn.cache import KVCache
from saccade.nn.layers import Activation, FeedForward, Residual, make_norm
from saccade.nn.listeners import emit, listening
from saccade.nn.masks import KernelMask, Mask, Window, combine
from saccade.nn.positions import Learned, Rotary, Sinusoidal

Score = Literal["scaled_dot", "cosine", "qk_norm", "learned_qk_norm"]


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of one stack; masks and memory are chosen by the model that uses it."""

    dim: int = 128
    """width of the residual stream"""
    depth: int = 4
    """number of layers"""
    heads: int = 4
    """query heads; dim must be a multiple of it"""
    head_dim: int = 0
    """width of a head; 0: dim / heads"""
    kv_heads: int = 0
    """key/value heads (grouped-query attention); 0: as many as heads"""
    hidden: int = 512
    """inner width of the feed-forward layers"""
    activation: Activation = "squared_relu"
    """activation of the feed-forward layers; swiglu, geglu, geglu_tanh, reglu: gated, by SiLU, GELU or ReLU"""
    norm: Literal["layer", "rms", "plain_rms"] = "plain_rms"
    """layer: LayerNorm; rms: RMSNorm; plain_rms: RMSNorm without a learned gain"""
    epsilon: float | None = None
    """epsilon of the norms; null: 1e-5 for layer, 1e-6 for rms and plain_rms"""
    norm_first: bool = True
    """pre-norm (stable at any depth); false: post-norm, as published in 2017"""
    position: Literal["rotary", "learned", "sinusoidal", "none"] = "rotary"
    """positional encoding"""
    max_positions: int = 256
    """longest sequence for learned positions; context size of a language model"""
    rotary_base: float = 10000.0
    """base of the rotary wavelengths (theta)"""
    score: Score = "cosine"
    """similarity of query and key; cosine: 10 times their cosine; qk_norm: scaled dot product of normalized queries
    and keys; learned_qk_norm: the same with learned gains"""
    window: int = 0
    """sliding window: a token sees only tokens less than this many positions away; 0: all"""
    bias: bool = False
    """biases in linear layers and norms"""
    dropout: float = 0.0
    """dropout probability before each residual connection"""
    inner_dropout: bool = True
    """dropout also inside the feed-forward layers, unlike most published models"""
    attention_dropout: float = 0.0
    """dropout probability of attention weights; slow on a CPU, whose fused kernel has no dropout"""

    def __post_init__(self) -> None:
        least = dict.fromkeys(("dim", "heads", "hidden", "max_positions"), 1)
        least |= dict.fromkeys(("depth", "head_dim", "kv_heads", "window"), 0)
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{name} must be at least {limit}, but is {getattr(self, name)}")
        if self.epsilon is not None and not 0 <= self.epsilon < 1:
            raise ValueError(f"epsilon must be at least 0 and below 1, but is {self.epsilon}")
        if self.rotary_base <= 1:
            raise ValueError(f"rotary_base must be above 1, but is {self.rotary_base}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but is {getattr(self, name)}")
        if not self.head_dim and self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, but {self.dim} is not a multiple of {self.heads}")
        if self.position == "rotary" and self.head_width % 2:
            name = "head_dim" if self.head_dim else "dim / heads"
            raise ValueError(f"{name} must be even for rotary positions, but is {self.head_width}")
        if self.position == "sinusoidal" and self.dim % 2:
            raise ValueError(f"dim must be even for sinusoidal positions, but is {self.dim}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(
                f"heads must be a multiple of kv_heads, but {self.heads} is not a multiple of {self.kv_heads}"
            )

    @property
    def head_width(self) -> int:
        """Features of a head."""
        return self.head_dim or self.dim // self.heads


def make_score(config: TransformerConfig, scale: float | None = None) -> Dot:
    """Return the score of a config, with its own scale or another one."""
    if config.score == "scaled_dot":
        return Dot(scale)
    if config.score == "cosine":
        return Cosine(scale)
    epsilon = 1e-6 if config.epsilon is None else config.epsilon
    return QKNorm(config.head_width, gain=config.score == "learned_qk_norm", epsilon=epsilon, scale=scale)


def make_residual(config: TransformerConfig) -> Residual:
    """Return the residual connection of a config, with a norm of its own."""
    norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
    return Residual(norm, norm_first=config.norm_first, dropout=config.dropout)


class Layer(nn.Module):
    """Self-attention, cross-attention if there is a memory, then feed-forward; each with its residual connection."""

    def __init__(self, config: TransformerConfig, memory_dim: int | None = None) -> None:
        super().__init__()
        self.window = config.window
        self.self = self._attention(config, None)
        self.self_residual = make_residual(config)
        self.cross: Attention | None = None
        if memory_dim is not None:
            self.cross = self._attention(config, memory_dim)
            self.cross_residual = make_residual(config)
        inner = config.dropout if config.inner_dropout else 0.0
        self.feed = FeedForward(config.dim, config.hidden, config.activation, bias=config.bias, dropout=inner)
        self.feed_residual = make_residual(config)

    @staticmethod
    def _attention(config: TransformerConfig, memory_dim: int | None) -> Attention:
        rotary = config.position == "rotary" and memory_dim is None
        return Attention(
            config.dim,
            Heads(config.heads, config.kv_heads, config.head_width),
            memory_dim=memory_dim,
            score=make_score(config),
            rotate=Rotary(config.head_width, config.rotary_base) if rotary else None,
            bias=config.bias,
            dropout=config.attention_dropout,
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: KernelMask | None,
        memory_mask: KernelMask | None,
        cache: KVCache | None,
        name: str,
        queries: int | None = None,
    ) -> Tensor:
        """Return the output (B, T, D); with `queries` only that of the first tokens."""
        self_cache = cache.layer(f"{name}.self") if cache else None
        x = self.self_residual(x, lambda y: self.self(y, mask=mask, cache=self_cache, queries=queries))
        if self.cross is not None:
            cross, cross_cache = self.cross, cache.layer(f"{name}.cross") if cache else None
            x = self.cross_residual(x, lambda y: cross(y, memory, mask=memory_mask, cache=cross_cache))
        result: Tensor = self.feed_residual(x, self.feed)
        emit(self, result)
        return result


class StackInput(NamedTuple):
    """What goes into a stack; every tensor is (B or 1, T, D)."""

    x: Tensor  # the embeddings
    position: Tensor | None  # what is added to them


class StackOutput(NamedTuple):
    """What comes out of a stack."""

    result: Tensor  # (B, T, D): the output of the last layer, after the final norm


@contextmanager
def layer_outputs(stack: Any, wanted: bool) -> Iterator[list[Tensor]]:
    """Collect the output of each layer of a stack (B, T, D), after the stack's final norm, while the block runs."""
    outputs: list[Tensor] = []
    layers = [layer for layer in stack.children() if isinstance(layer, Layer)] if wanted else []
    with listening(layers, lambda out: outputs.append(stack.norm(out))):
        yield outputs


def additive_position(config: TransformerConfig) -> Learned | Sinusoidal | None:
    """Return the positional encoding that is added to the input of a stack; None: rotary, or none at all."""
    if config.position == "learned":
        return Learned(config.max_positions, config.dim)
    return Sinusoidal(config.dim) if config.position == "sinusoidal" else None


def final_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm after the last layer, which only a pre-norm stack needs."""
    if not config.norm_first:
        return nn.Identity()
    return make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)


def lower_masks(
    x: Tensor,
    memory: Tensor | None,
    mask: Mask | None,
    memory_mask: Mask | None,
    cache: KVCache | None,
    layers: Iterable[Layer],
) -> tuple[dict[int, KernelMask | None], KernelMask | None]:
    """Return the masks of self-attention by the sliding window of a layer (0: none), and that of cross-attention."""
    start, tokens = cache.start if cache else 0, x.shape[1]
    keys = tokens + (cache.longest if cache else 0)
    lowered: dict[int, KernelMask | None] = {}
    for window in {layer.window for layer in layers}:
        combined = combine(mask, Window(window) if window else None)
        lowered[window] = combined.lower(tokens, keys, start, x.device) if combined else None
    lowered_memory = None
    if memory_mask is not None and memory is not None:
        lowered_memory = memory_mask.lower(tokens, memory.shape[1], start, x.device)
    return lowered, lowered_memory


class Transformer(nn.Module):
    """A stack of layers over (B, T, D); with `memory_dim` each layer also attends to a memory (B, S, memory_dim)."""

    def __init__(
        self,
        config: TransformerConfig,
        memory_dim: int | None = None,
        *,
        depth: int | None = None,
        make_layer: Callable[[int], Layer] | None = None,
    ) -> None:
        """Make `depth` layers (default: that of the config) from the config, or by `make_layer` from their number."""
        super().__init__()
        self.config, self.depth = config, config.depth if depth is None else depth
        self.position = additive_position(config)
        for index in range(self.depth):  # named "0", "1", ...: a map is called decoder.3.self
            self.add_module(str(index), make_layer(index) if make_layer else Layer(config, memory_dim))
        self.norm = final_norm(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: KVCache | None = None,
        count: Tensor | None = None,
        states: list[Tensor] | None = None,
        outputs: int | None = None,
    ) -> Tensor:
        """Apply all layers to x (B, T, D).

        `count` (B,): number of real tokens per row, where the rows of a cached call have different lengths.
        `states` is filled with the input of the first layer and the output of each, the last one after the norm.
        `outputs`: return only the first tokens, the others of which the last layer need not compute, without a mask.
        """
        tokens, position = x.shape[1], None
        if self.position is not None:
            position = self.position(cache.start if cache else 0, tokens, x.device).to(x.dtype)
        emit(self, StackInput(x, position))
        x = x if position is None else x + position
        layers = [layer for layer in self.children() if isinstance(layer, Layer)]
        lowered, lowered_memory = lower_masks(x, memory, mask, memory_mask, cache, layers)
        for index, layer in enumerate(layers):
            if states is not None:
                states.append(x)
            few = outputs if index == len(layers) - 1 and lowered[layer.window] is None else None
            x = layer(x, memory, lowered[layer.window], lowered_memory, cache, str(index), few)
        if cache is not None:
            cache.advance(tokens if count is None else count)
        result: Tensor = self.norm(x if outputs is None else x[:, :outputs])
        emit(self, StackOutput(result))
        if states is not None:
            states.append(result)
        return result
