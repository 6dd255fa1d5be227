"""Encoder task: base class of all tasks with BERT: its encoder, batched inference, attention and explanations.

Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.config import from_json, to_json
from saccade.core.attention import AttentionMap, AttentionMaps
from saccade.core.axes import Role, TokenAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.outputs import TextOutput
from saccade.core.prediction import Prediction
from saccade.core.pretrained import Pretrained
from saccade.core.task import InputLength, Task
from saccade.data.batching import length_groups
from saccade.data.text.axes import token_axis
from saccade.data.text.templates import InputTemplate
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.decode.kernels import attends_to_segments, attention_kernel
from saccade.errors import ModelFileError, UsageError
from saccade.models.text.bert import Bert, BertConfig, BertForPreTraining, EncoderInputs
from saccade.nn.packed import pack, packing_pays
from saccade.nn.probe import RecordedRow, watch
from saccade.pretrained.adapters import add_lora
from saccade.pretrained.families import FAMILIES
from saccade.pretrained.families.heads import Head
from saccade.pretrained.processors import TextProcessor
from saccade.tasks._encoder.inputs import EncodedText, check_outputs, encode_texts, join_texts, pad_texts, to_device
from saccade.tasks._encoder.layers import combine
from saccade.tasks._parallel import parallel_map
from saccade.tasks._pretrained import cannot_run

BATCH_ROWS = 64  # rows of a batch at inference
BATCH_POSITIONS = {"cpu": 1 << 10}  # and positions, padding included: fits into the cache of a core
LAST_PARTS = (2, 2, 4, 4)  # into how many parts the last batches are divided on a CPU
MANY_POSITIONS = 1 << 15  # on any other device
MIN_PACKED = 1 << 14  # tokens of a call from which it pays to pack the network
PREDICT_ROWS = 512  # examples of `predict` that are sorted by length together
TOKENIZER, ENCODER, WEIGHTS = "tokenizer.json", "encoder.json", "base.safetensors"
MIN_LENGTH = 8  # tokens
POOLER = {f"dense.{part}": f"bert.pooler.{part}" for part in ("weight", "bias")}  # a head starts from a pooler

Result = TypeVar("Result")
Compute = Callable[[Any, EncoderInputs, list[int]], Iterable[Result]]


@dataclass(frozen=True)
class EncoderConfig:
    """The encoder and how it is trained."""

    base: str = ""
    """pretrained encoder: a run, a folder, a name of `saccade models list` or owner/name; empty: from scratch"""
    tune: Literal["all", "lora", "head"] = "all"
    """trained weights of a pretrained encoder: all, low-rank adapters (LoRA), or only the new head"""
    rank: int = 8
    """rank of the adapters of tune=lora"""
    model: BertConfig = field(default_factory=lambda: BertConfig(dim=256, hidden=768))
    """shape of an encoder trained from scratch"""
    vocabulary_size: int = 8000
    """number of word pieces of an encoder trained from scratch"""
    lowercase: bool = True
    """ignore case and accents; for an encoder trained from scratch"""
    max_length: int = 128
    """maximum number of tokens of a row; longer texts are truncated"""
    batch_tokens: int = 1000
    """positions per step, padding included"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same"""

    def __post_init__(self) -> None:
        least = {"rank": 1, "max_length": MIN_LENGTH, "batch_tokens": 1, "micro_batches": 1, "vocabulary_size": 1}
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} must be at least {minimum}, but is {getattr(self, name)}")
        if self.tune != "all" and not self.base:
            raise ValueError(f"tune must be all without a base, but is {self.tune}")


class EncoderTask(Task):
    """A task whose network has an encoder named `bert`."""

    model: Any
    config: Any
    family: Any = None
    """family of the pretrained network that the task was opened or trained from"""

    def __init__(self, config: Any, tokenizer: Tokenizer, shape: BertConfig) -> None:
        self.config, self.tokenizer, self.shape = config, tokenizer, shape
        max_length = config.max_length
        if shape.position == "learned":
            max_length = min(max_length, shape.max_positions)
        self.template = InputTemplate.of(tokenizer, max_length)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    # Preparation

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return a small learning rate and few epochs for a pretrained encoder."""
        if not config.base:
            return []
        overrides = {
            "kind": "adamw",
            "lr": {"all": "5e-5", "lora": "1e-3", "head": "1e-3"}[config.tune],
            "schedule": "linear",
            "warmup": "50",
            "weight_decay": "0.01",
            "clip": "1",
            "beta2": "0.999",
            "new_head_lr": "1e-3",  # a head that starts at 0 would hardly learn at the rate of the encoder
        }
        return ["train.epochs=3", *(f"train.optim.{name}={value}" for name, value in overrides.items())]

    @classmethod
    def write_encoder(cls, config: Any, texts: Iterable[str], assets: Path, base: Pretrained | None) -> list[str]:
        """Write tokenizer and shape of the encoder to the assets, and the weights of a pretrained one."""
        if base is None:
            tokenizer = train_tokenizer("wordpiece", texts, config.vocabulary_size, lowercase=config.lowercase)
            tokenizer.save(assets / TOKENIZER)
            write_json(assets / ENCODER, {"config": to_json(config.model)})
            return [f"vocabulary: {tokenizer.size:,} word pieces"]
        kind = base.task if base.family is None else base.family.name
        bert = getattr(base.network, "bert", None)
        if not isinstance(bert, Bert):
            raise UsageError(f"base must be an encoder such as BERT, but {config.base} is a {kind}")
        base.processor.tokenizer.save(assets / TOKENIZER)
        family = None if base.family is None else base.family.name
        write_json(assets / ENCODER, {"config": to_json(base.config), "family": family})
        weights = _trimmed_weights(base.network, base.processor.tokenizer.size)
        if base.task != cls.task_name():  # the outputs of another task
            weights = {name: value for name, value in weights.items() if not name.startswith("head.")}
        save_file(weights, assets / WEIGHTS)
        count = sum(value.numel() for value in bert.parameters())
        return [f"base: {config.base}, {kind}, {count / 1e6:.1f} M parameters"]

    @staticmethod
    def read_encoder(assets: Path) -> tuple[Tokenizer, BertConfig]:
        """Return the tokenizer and the shape that `write_encoder` wrote."""
        shape = from_json(BertConfig, read_json(assets / ENCODER)["config"])
        return Tokenizer.load(assets / TOKENIZER), shape

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        task = cls(config, *cls.read_encoder(assets), *cls.read_labels(assets))
        task.family = FAMILIES.get(read_json(assets / ENCODER).get("family") or "")
        task.load_base(assets)
        return task

    @classmethod
    def read_labels(cls, assets: Path) -> tuple[Any, ...]:
        """Return further arguments of the constructor, for tasks with labels."""
        return ()

    def load_base(self, assets: Path) -> None:
        """Copy the weights of a pretrained base into the network, and freeze those that are not trained."""
        if not self.config.base:
            return
        if not next(self.model.parameters()).is_meta:
            weights = load_file(assets / WEIGHTS)
            with torch.no_grad():
                for name, value in self.model.named_parameters():
                    saved = weights.get(name, weights.get(POOLER.get(name, "")))
                    if saved is not None and (saved.shape == value.shape or not name.startswith("head.")):
                        value.copy_(saved)
        if self.config.tune == "lora":
            add_lora(self.model.bert, self.config.rank)
        elif self.config.tune == "head":
            self.model.bert.requires_grad_(False)

    # Inference

    def encode(self, first: str, second: str | None = None, *, parse_special: bool = False) -> EncodedText:
        """Encode one text or a pair; `parse_special`: [MASK] in a text is the special token."""
        texts = {"text": first} if second is None else {"text": first, "second": second}
        ids = [self.tokenizer.encode(text, parse_special=parse_special) for text in texts.values()]
        return encode_texts(self.template, texts, ids)

    def encode_all(self, name: str, texts: Sequence[str]) -> list[EncodedText]:
        """Encode the texts of one input, whose name is that of a note on a truncated text."""
        rows = self.tokenizer.encode_batch(texts)
        return [encode_texts(self.template, {name: text}, [ids]) for text, ids in zip(texts, rows, strict=True)]

    def pool(self, tokens: Tensor) -> Tensor:
        """Return the vector of a text from the vectors (T, D) of its tokens: (D,)."""
        return tokens.mean(0)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens around it."""
        return len(self.tokenizer.encode(text))

    def input_lengths(self, inputs: Mapping[str, Any], options: Any) -> list[InputLength]:
        """Return the length of all texts as one sequence, special tokens included."""
        texts = {field.name: inputs[field.name] for field in self.inputs if inputs.get(field.name)}
        tokens = self.template.special_count(len(texts)) + sum(map(self.count_tokens, texts.values()))
        return [InputLength(" and ".join(texts), tokens, self.template.max_length)]

    def run_batched(
        self, encoded: Sequence[EncodedText], compute: Compute[Result], *, by_token: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Yield (row, result) for every encoded text, in batches of similar length on all cores, shortest first.

        `compute` takes the network, packed where that pays, a batch and the indices of its rows, and returns a result
        for each of them; it runs without gradients, in a worker thread. `by_token`: it can take several texts as one
        row (`EncoderInputs.lengths`), which saves the padding.
        """
        device, lengths = self.device(), [len(text.ids) for text in encoded]
        packs = device.type == "cpu" and sum(lengths) >= MIN_PACKED and packing_pays()
        kernel = attention_kernel() if packs else None
        model = pack(self.model, BATCH_POSITIONS["cpu"], kernel) if packs else self.model
        bert: Bert = self.model.bert
        joins = by_token and kernel is not None and bert.position is not None
        joins = joins and attends_to_segments(bert.config, max(lengths))

        def run(rows: list[int]) -> list[tuple[int, Result]]:
            with torch.no_grad():
                inputs = to_device((join_texts if joins else pad_texts)([encoded[row] for row in rows]), device)
                return list(zip(rows, compute(model, inputs, rows), strict=True))

        groups = list(length_groups(lengths, BATCH_ROWS, BATCH_POSITIONS.get(device.type, MANY_POSITIONS)))
        if device.type == "cpu" and len(groups) >= 4 * len(LAST_PARTS):  # no core waits long for the last of another
            first, last = groups[: -len(LAST_PARTS)], zip(groups[-len(LAST_PARTS) :], LAST_PARTS, strict=True)
            groups = [*first, *(group[at::parts] for group, parts in last for at in range(parts) if group[at::parts])]
        for results in parallel_map(run, groups) if device.type == "cpu" else map(run, groups):
            yield from results

    def run_all(
        self,
        encoded: Sequence[EncodedText],
        compute: Compute[Result],
        progress: Progress = ignore_progress,
    ) -> list[Result]:
        """Return the results of `run_batched` in the order of the texts."""
        results: dict[int, Result] = {}
        for row, result in self.run_batched(encoded, compute):
            results[row] = result
            if len(results) % 100 == 0:
                progress(len(results) / len(encoded))
        return [results[row] for row in range(len(encoded))]

    def features(
        self,
        encoded: Sequence[EncodedText],
        layers: Sequence[str] = ("last",),
        pool: Callable[[Tensor], Tensor] | None = None,
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield (row, vectors (T, D) of its tokens) in batches of similar length, shortest first.

        `layers` are names of `LAYERS`; the vectors of several are concatenated. `pool` maps the vectors of a text to
        one; it runs in the worker thread, since the cores are taken.
        """

        def compute(model: Any, inputs: EncoderInputs, rows: list[int]) -> list[Tensor]:
            states: list[Tensor] = []
            model.bert(*inputs, states=states)
            vectors = check_outputs(torch.cat([combine(states, name) for name in layers], dim=-1))
            if inputs.lengths is None:
                tokens = [vectors[at, : len(encoded[row].ids)] for at, row in enumerate(rows)]
            else:
                tokens = list(vectors[0].split(inputs.lengths.tolist()))
            return tokens if pool is None else list(map(pool, tokens))

        return self.run_batched(encoded, compute, by_token=True)

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        """Yield the predictions in order, computed in batches of similar length.

        A text of more than `max_length` tokens is truncated, and a note of the prediction says so.
        """
        for first in range(0, len(inputs), PREDICT_ROWS):
            yield from self.predict_rows(inputs[first : first + PREDICT_ROWS], options)

    @abc.abstractmethod
    def predict_rows(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterable[Prediction]:
        """Return the predictions for examples that fit into memory together."""

    # Attention and explanations

    def attention(self, text: EncodedText) -> AttentionMaps:
        """Return all attention maps of the encoder for one text."""
        inputs = to_device(pad_texts([text]), self.device())
        axis = token_axis(Role.TEXT, self.tokenizer, text.ids, text.second)
        with torch.no_grad(), watch(self.model) as recorder:
            self.model.bert(*inputs)
        return AttentionMaps(
            AttentionMap(name, RecordedRow(record, 0), axis, axis) for name, record in recorder.items()
        )

    def snapshot(self, inputs: Mapping[str, Any], text: EncodedText) -> Prediction:
        """Return the attention of one example, without an output."""
        return Prediction(inputs, TextOutput(""), attention=self.attention(text))

    def trace(
        self, text: EncodedText, to_logits: Callable[[Tensor], Tensor], *, layers: bool
    ) -> tuple[Tensor, TokenAxis, tuple[tuple[str, Tensor], ...]]:
        """Compute logits from the vectors (T, D) of one text, with gradients where enabled.

        Returns the logits, the axis of the text and, with `layers`, the logits from the output of each layer.
        """
        inputs, bert = to_device(pad_texts([text]), self.device()), self.model.bert
        states: list[Tensor] | None = [] if layers else None
        logits = to_logits(bert(*inputs, states=states)[0])
        outputs = [] if states is None else [*map(bert.encoder.norm, states[1:-1]), states[-1]]
        by_layer = tuple((f"bert.encoder.{layer}", to_logits(x[0])) for layer, x in enumerate(outputs))
        return logits, token_axis(Role.TEXT, self.tokenizer, text.ids, text.second), by_layer

    # Exchange

    @classmethod
    def check_pretrained(cls, pretrained: Pretrained, *, mlm: bool) -> BertForPreTraining:
        """Return the network if this task can run it without fine-tuning; `mlm`: it needs a masked LM head."""
        network = pretrained.network
        if isinstance(network, BertForPreTraining) and not (mlm and network.mlm is None):
            return network
        raise cannot_run(pretrained, cls.task_name())

    @classmethod
    def pretrained_head(cls, pretrained: Pretrained) -> Head:
        """Return the head of a pretrained network if it is one of this task."""
        if isinstance(pretrained.head, Head) and pretrained.head.task == cls.task_name():
            return pretrained.head
        raise cannot_run(pretrained, cls.task_name())

    @classmethod
    def from_head(cls, pretrained: Pretrained, config: Any, *labels: Any) -> Self:
        """Return the task of a pretrained network with a head; `labels` as the constructor takes them."""
        with torch.device("meta"):  # the network exists already
            task = cls(config, pretrained.processor.tokenizer, pretrained.config, *labels)
        task.model, task.family = pretrained.network, pretrained.family
        return task

    @classmethod
    def task_name(cls) -> str:
        """Return the name of the task, which is that of its file."""
        return cls.__module__.rpartition(".")[2]

    def head(self) -> Any:
        """Return the head of the network for other tools; None: it has none."""
        return None

    def to_pretrained(self) -> Pretrained:
        return Pretrained(
            network=self.model,
            config=self.model.bert.config,
            processor=TextProcessor(self.tokenizer, max_length=self.template.max_length),
            family=self.family,
            task=self.task_name(),
            head=self.head(),
            base=self.config.base,
        )


def pretrained_length(pretrained: Pretrained) -> int:
    """Return the maximum number of tokens of a text: that of the tokenizer or of the encoder's positions."""
    length = min(pretrained.config.max_positions, pretrained.processor.max_length or pretrained.config.max_positions)
    if length < MIN_LENGTH:
        raise ModelFileError(
            f"the model must read at least {MIN_LENGTH} tokens, but reads {length} by its "
            "config.json, tokenizer_config.json or sentence_bert_config.json; such a model is not supported"
        )
    return int(length)


def _trimmed_weights(network: nn.Module, vocabulary: int) -> dict[str, Tensor]:
    """Return the weights without the padding rows that some models have beyond the vocabulary."""
    by_token = ("bert.embedding.weight", "mlm.head.weight", "mlm.head.bias")
    return {
        name: value[:vocabulary].contiguous() if name in by_token else value
        for name, value in network.named_parameters()
    }
