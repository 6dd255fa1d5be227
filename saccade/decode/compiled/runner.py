"""The compiled runner: a language model on a CPU whose whole step is one compiled function.

Shapes: R rows, N tokens, D width, E head width, L layers, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.decode.compiled.emitter import LANES, missing_instructions
from saccade.decode.compiled.forward import Batch, Buffers, Floats, Integers, Shape, Weights, forward
from saccade.decode.compiled.functions import ACTIVATIONS
from saccade.decode.compiled.packing import pack
from saccade.decode.compiled.recording import RecordedLayer, Recording
from saccade.decode.compiled.team import team
from saccade.decode.runner import Piece
from saccade.models.text.gpt import GPT
from saccade.nn.attention import Attention, Cosine, Dot, QKNorm
from saccade.nn.layers import GATES, RMSNorm
from saccade.nn.linear import is_plain
from saccade.nn.positions import Rotary
from saccade.nn.quantized import GROUP, QuantizedLinear
from saccade.nn.transformer import Layer

GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}


def unsupported(model: nn.Module) -> str:
    """Return what of a model cannot be compiled; empty: it can be."""
    if missing := missing_instructions():
        return missing
    if not isinstance(model, GPT):
        return f"a {type(model).__name__}"
    config = model.config
    if not config.norm_first:
        return "post-norm"
    if not config.depth:
        return "a network without layers"
    if config.rotary_scaling.kind == "dynamic":
        return "dynamic rotary scaling"
    weight = model.embedding.weight
    if weight.device.type != "cpu":
        return f"the device {weight.device.type}"
    if weight.dtype != torch.float32:
        return f"the type {weight.dtype}"
    layers = [layer for layer in model.decoder.children() if isinstance(layer, Layer)]
    linears = [*(linear for layer in layers for linear in _linears(layer)), model.head]
    other = [linear for linear in linears if not is_plain(linear) and not isinstance(linear, QuantizedLinear)]
    return f"a layer {type(other[0]).__name__}" if other else ""


class CompiledModel:
    """A language model packed for the compiled forward pass; it is never changed, so several runners can share it."""

    def __init__(self, model: GPT) -> None:
        self.model, config = model, model.config
        self.layers = [layer for layer in model.decoder.children() if isinstance(layer, Layer)]
        self.matrices = [pack(linear) for layer in self.layers for linear in _linears(layer)]
        self.matrices.append(pack(model.head))
        first = self.layers[0].self
        gated = config.activation in GATES
        activation = GATED[config.activation] if gated else config.activation
        score = first.score
        assert isinstance(score, Dot)
        self.shape = Shape(
            depth=len(self.layers),
            dim=config.dim,
            heads=first.heads,
            kv_heads=first.kv_heads,
            head_dim=first.head_dim,
            hidden=config.hidden,
            norm=0 if config.norm == "layer" else 1,
            activation=ACTIVATIONS.index(activation),
            gated=int(gated),
            qk_norm=0 if not isinstance(score, Cosine | QKNorm) else 2 if config.score == "learned_qk_norm" else 1,
            update_norm=int(config.update_norm),
            epsilon=_epsilon(model.decoder.norm),
            qk_epsilon=score.epsilon if isinstance(score, QKNorm) else 1e-6,
            scale=score.factor(first.head_dim),
        )

    def weights(self, positions: int) -> Weights:
        """Return the weights for texts of at most this many tokens."""
        norms = [norm for layer in self.layers for norm in _norms(layer)]
        norms.append(self.model.decoder.norm)
        rotaries = {id(layer.self.rotate): layer.self.rotate for layer in self.layers if layer.self.rotate is not None}
        tables = {_table(rotary, positions).tobytes(): rotary for rotary in rotaries.values()}  # equal ones once
        kinds = list(tables)
        angles = np.frombuffer(b"".join(kinds), np.float32).copy()
        chosen = [
            -1 if (rotate := layer.self.rotate) is None else kinds.index(_table(rotate, positions).tobytes())
            for layer in self.layers
        ]
        return Weights(
            matrices=np.array([matrix.fields for matrix in self.matrices]),
            biases=self._biases(),
            gains=np.stack([_vector(norm, "weight", self.shape.dim, 1.0) for norm in norms]),
            norm_biases=np.stack([_vector(norm, "bias", self.shape.dim, 0.0) for norm in norms]),
            qk_gains=np.stack([_qk_gains(layer.self) for layer in self.layers]),
            rotations=angles.reshape(len(kinds), positions if kinds else 0, self.shape.head_dim // 2, 2),
            rotation=np.array(chosen),
            windows=np.array([layer.window for layer in self.layers]),
        )

    def _biases(self) -> Floats:
        widest = max(matrix.outputs for matrix in self.matrices[:-1])
        biases = np.zeros((len(self.layers), 4, widest), np.float32)
        for at, layer in enumerate(self.layers):
            for number, linear in enumerate(_linears(layer)):
                if linear.bias is not None:
                    biases[at, number, : len(linear.bias)] = linear.bias.detach().numpy()
        return biases

    @property
    def nbytes(self) -> int:
        """Bytes of weights that are read for every step."""
        return sum(matrix.nbytes for matrix in self.matrices)


class CompiledRunner:
    """A cache of rows over a compiled model."""

    reuse = 1

    def __init__(self, compiled: CompiledModel, rows: int, capacity: int, threads: int | None = None) -> None:
        self.rows, self.capacity, self._compiled = rows, capacity, compiled
        shape = compiled.shape
        self._threads = threads or torch.get_num_threads()
        blocks, width = -(-capacity // LANES), -(-shape.head_dim // LANES) * LANES
        self._weights = compiled.weights(capacity)
        self._keys = np.zeros((rows, shape.depth, shape.kv_heads, blocks, width, LANES), np.float32)
        self._values = np.zeros((rows, shape.depth, shape.kv_heads, blocks * LANES, width), np.float32)
        self._recording: Recording | None = None
        self._buffers = self._allocate(rows)
        self._embedding = compiled.model.embedding.weight.detach().numpy()
        position = compiled.model.decoder.position
        table = None if position is None else position(0, capacity, torch.device("cpu"))[0].contiguous()
        self._positions = None if table is None else table.detach().numpy()

    def record(self) -> dict[str, RecordedLayer]:
        """Keep the queries of all later tokens; returns the attention weights of each layer by its name."""
        if self.rows != 1:
            raise ValueError(f"rows must be 1 to record attention, but are {self.rows}")
        compiled = self._compiled
        self._recording = Recording(compiled.shape, self._weights.windows, self._keys[0], self.capacity)
        self._buffers = self._allocate(self.rows)
        names = {id(module): name for name, module in compiled.model.named_modules()}
        return {names[id(layer.self)]: RecordedLayer(self._recording, at) for at, layer in enumerate(compiled.layers)}

    def _allocate(self, tokens: int) -> Buffers:
        shape, matrices = self._compiled.shape, self._compiled.matrices
        inputs, outputs = max(m.inputs for m in matrices), max(m.outputs for m in matrices[:-1])
        return Buffers(
            x=np.zeros((tokens, shape.dim), np.float32),
            # A cache line more than is used: rows whose distance is a power of two would displace each other.
            floats=np.zeros((tokens, inputs + LANES), np.float32),
            integers=np.zeros((tokens, inputs + 2 * LANES), np.int16),
            scales=np.zeros(tokens, np.float32),
            sums=np.zeros((tokens, -(-inputs // GROUP)), np.float32),
            y=np.zeros((tokens, outputs), np.float32),
            q=np.zeros((shape.depth if self._recording else 1, tokens, shape.heads, self._keys.shape[4]), np.float32),
            scores=np.zeros((self._threads, self._values.shape[3] + self._values.shape[4]), np.float32),
            state=np.zeros(16, np.int64),
        )

    @torch.no_grad()
    def forward(self, pieces: Sequence[Piece]) -> list[Tensor]:
        ids = np.array([token for piece in pieces for token in piece.ids])
        tokens = np.array([(piece.row, piece.start + at) for piece in pieces for at in range(len(piece.ids))])
        limits = (len(self._embedding), self.rows, self.capacity)  # beyond them is other memory
        for values, limit in zip((ids, tokens[:, 0], tokens[:, 1]), limits, strict=True):
            if values.min() < 0 or values.max() >= limit:
                raise ValueError(f"tokens, rows and positions must be from 0 to {limit - 1}, but one is not")
        counts = [len(piece.ids) if piece.every else 1 for piece in pieces]
        if len(ids) > len(self._buffers.x):
            self._buffers = self._allocate(len(ids))
        self._buffers.x[: len(ids)] = self._embed(ids, tokens[:, 1])
        outputs = _last(pieces, counts) if len(ids) > len(pieces) else np.arange(len(pieces))
        logits = torch.empty(len(outputs), self._compiled.matrices[-1].outputs)
        batch = Batch(tokens, outputs, logits.numpy(), self._keys, self._values)
        crew = team(self._threads)
        crew.run(forward, (self._compiled.shape, self._weights, self._buffers._replace(state=crew.state), batch))
        if self._recording:
            self._recording.add(self._buffers.q[:, : len(ids)], int(tokens[0, 1]))
        logits = logits[:, : self._compiled.model.head.out_features]
        if softcap := self._compiled.model.config.logit_softcap:
            logits = softcap * torch.tanh(logits / softcap)
        return list(logits.split(counts))

    def _embed(self, ids: Integers, positions: Integers) -> Floats:
        """Return the embeddings of tokens (N,) with their positions: (N, D)."""
        model, x = self._compiled.model, self._embedding[ids]
        if model.config.scale_embedding:
            x = x * math.sqrt(model.config.dim)
        if model.config.embedding_norm:
            x = model.norm(torch.from_numpy(x)).numpy()
        return x if self._positions is None else x + self._positions[positions]

    def copy(self, source: int, target: int, count: int) -> None:
        blocks = -(-count // LANES)
        self._keys[target, :, :, :blocks] = self._keys[source, :, :, :blocks]
        self._values[target, :, :, :count] = self._values[source, :, :, :count]

    def clear(self, row: int, count: int) -> None:
        self._keys[row, :, :, : -(-count // LANES)] = 0.0
        self._values[row, :, :, :count] = 0.0

    def start(self, row: int, memory: Any) -> None:
        raise ValueError("a language model has no memory")


def _last(pieces: Sequence[Piece], counts: Sequence[int]) -> Integers:
    """Return the numbers of the last `counts` tokens of each piece."""
    ends = np.cumsum([len(piece.ids) for piece in pieces])
    return np.concatenate([np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)])


def _linears(layer: Layer) -> list[Any]:
    return [layer.self.qkv, layer.self.out, layer.feed.up, layer.feed.down]


def _norms(layer: Layer) -> list[nn.Module | None]:
    attention, feed = layer.self_residual, layer.feed_residual
    return [attention.norm, feed.norm, attention.update_norm, feed.update_norm]


def _vector(norm: nn.Module | None, name: str, width: int, default: float) -> Floats:
    value = getattr(norm, name, None)
    return np.full(width, default, np.float32) if value is None else value.detach().numpy()


def _epsilon(norm: nn.Module) -> float:
    return norm.epsilon if isinstance(norm, RMSNorm) else norm.eps  # type: ignore[return-value]


def _qk_gains(attention: Attention) -> Floats:
    score = attention.score
    if not isinstance(score, QKNorm) or score.q_gain is None or score.k_gain is None:
        return np.ones((2, attention.head_dim), np.float32)
    return np.stack([score.q_gain.detach().numpy(), score.k_gain.detach().numpy()])


def _table(rotate: object, positions: int) -> Floats:
    """Return cosine and sine of the angles of every position: (positions, E / 2, 2)."""
    assert isinstance(rotate, Rotary)
    angles = rotate.angles(0, positions, torch.device("cpu"))[0, :, 0]
    return torch.view_as_real(angles.to(torch.complex64)).contiguous().numpy()
