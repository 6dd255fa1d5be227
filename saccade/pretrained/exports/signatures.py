"""Signatures: the tensors that go into a network and those that come out of it, by name.

Shapes: B rows, T tokens, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.models.text.bert import Bert, BertForPreTraining, EncoderInputs
from saccade.models.text.gpt import GPT
from saccade.models.text.heads import BertForQuestionAnswering, BertForRegression, BertWithHead, SentenceEncoder
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.vit import ViT
from saccade.pretrained.exports.parity import SEED, sample_ids

BATCHES = ((1, 1), (2, 2), (1, 7), (2, 16), (3, 33))  # rows and tokens of the batches that are compared
IMAGE_ROWS = (1, 3)
Axes = Mapping[int, str]
"""names of the axes whose size may change, by number"""


@dataclass(frozen=True)
class Signature:
    """A network as a function of tensors."""

    module: nn.Module
    """takes the inputs in order and returns a tuple of the outputs"""
    inputs: Mapping[str, Axes]
    """names of the inputs, in order, with the axes whose size may change"""
    outputs: tuple[str, ...]
    samples: Callable[[], list[tuple[Tensor, ...]]]
    """inputs of several sizes"""
    extent: str
    """of all samples, such as 138 tokens in 4 batches"""


class Encoder(nn.Module):
    """An encoder with its head: ids, padding mask and token types (B, T) to outputs."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.bert: Bert = network if isinstance(network, Bert) else network.get_submodule("bert")  # type: ignore[assignment]

    @property
    def token_types(self) -> bool:
        """Whether the two texts of a pair have embeddings of their own."""
        return self.bert.config.segments > 1

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        network = self.network
        if isinstance(network, Bert):
            return ("last_hidden_state",)
        if isinstance(network, SentenceEncoder):
            return ("last_hidden_state", "sentence_embedding")
        if isinstance(network, BertForQuestionAnswering):
            return ("start_logits", "end_logits")
        if not isinstance(network, BertForPreTraining):
            return ("logits",)
        if network.mlm is None:
            return ("last_hidden_state", *(["pooler_output"] if self.bert.pooler is not None else []))
        return ("logits", *(["next_sentence_logits"] if self._follows else []))

    @property
    def _follows(self) -> bool:
        """Whether the network says if the second text of a pair follows the first."""
        return isinstance(self.network, BertForPreTraining) and self.network.next_sentence is not None

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        network, inputs = self.network, EncoderInputs(input_ids, attention_mask.bool(), token_type_ids)
        if isinstance(network, Bert):
            return (network(*inputs),)
        if isinstance(network, SentenceEncoder):
            features = network.bert(*inputs)
            return features, network.pooling(features, inputs.keep)
        if isinstance(network, BertForPreTraining):
            features = network.bert(*inputs)
            if network.mlm is None:
                return features, *([network.bert.pooled(features)] if network.bert.pooler is not None else [])
            return network.mlm(features), *([network.next_sentence_logits(features, inputs)] if self._follows else [])
        logits: Tensor = network(inputs)
        if isinstance(network, BertForQuestionAnswering):
            return logits[..., 0], logits[..., 1]
        return (logits[:, None] if isinstance(network, BertForRegression) else logits,)


class Outputs(nn.Module):
    """A network with one output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        return (self.network(inputs),)


def signature_of(network: nn.Module, config: Any, processor: Any = None) -> Signature | None:
    """Return the signature of a network; None: one of a kind that is not listed here."""
    if isinstance(network, GPT):
        return _text_model(Outputs(network), ("input_ids",), ("logits",), network.embedding, config.max_positions)
    if isinstance(network, Bert | BertWithHead | SentenceEncoder | BertForPreTraining):
        encoder = Encoder(network)
        inputs = ("input_ids", "attention_mask", *(["token_type_ids"] if encoder.token_types else []))
        limit = config.max_positions if config.position == "learned" else max(tokens for _, tokens in BATCHES)
        return _text_model(encoder, inputs, encoder.outputs, encoder.bert.embedding, limit)
    if isinstance(network, ImageClassifier):
        return _image_model(Outputs(network), _image_size(network.encoder, processor), "logits")
    if isinstance(network, VisionEncoder):
        return _image_model(Outputs(network), _image_size(network, processor), "last_hidden_state")
    return None


def _image_size(encoder: VisionEncoder, processor: Any) -> tuple[int, int]:
    """Return height and width of the images that an encoder reads."""
    if isinstance(encoder, ViT):
        return encoder.config.image_size, encoder.config.width
    sides = processor.crop or processor.resize
    if not sides:
        raise UsageError("images must have one size to be exported, but this model reads those of any size")
    return sides[0], sides[-1]


def _text_model(
    module: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...], embedding: nn.Embedding, limit: int
) -> Signature:
    batches = [(rows, tokens) for rows, tokens in BATCHES if tokens <= limit] or [(1, limit)]

    def samples() -> list[tuple[Tensor, ...]]:
        return [
            _texts(embedding.num_embeddings, rows, tokens)[: len(inputs)]
            if len(inputs) > 1
            else (sample_ids(embedding.num_embeddings, rows, tokens),)
            for rows, tokens in batches
        ]

    count = sum(rows * tokens for rows, tokens in batches)
    axes = {0: "batch", 1: "tokens"}
    return Signature(module, dict.fromkeys(inputs, axes), outputs, samples, f"{count} tokens in {len(batches)} batches")


def _texts(vocabulary: int, rows: int, tokens: int) -> tuple[Tensor, ...]:
    """Return ids, padding mask and token types; each row is shorter than the one before."""
    position, row = torch.arange(tokens), torch.arange(rows)[:, None]
    keep = position < (tokens - 3 * row).clamp(min=1)
    return sample_ids(vocabulary, rows, tokens), keep.long(), (position >= tokens // 2).long().expand(rows, -1)


def _image_model(module: nn.Module, size: tuple[int, int], output: str) -> Signature:
    height, width = size

    def samples() -> list[tuple[Tensor, ...]]:
        generator = torch.Generator().manual_seed(SEED)
        shapes = [(rows, 3, height, width) for rows in IMAGE_ROWS]
        return [(torch.randint(256, shape, generator=generator, dtype=torch.uint8),) for shape in shapes]

    extent = f"{sum(IMAGE_ROWS)} images of {height} x {width} pixels in {len(IMAGE_ROWS)} batches"
    return Signature(module, {"pixel_values": {0: "batch"}}, (output,), samples, extent)
