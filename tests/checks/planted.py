"""Planted bugs: a table of models with one silent bug each, and which invariants must fail because of it, none besides.

A bug may break several invariants: a model that sees the future cannot equal itself with a cache. These consequences
are listed beside the invariant that the bug is planted for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import saccade
from saccade.nn.attention import Attention
from saccade.nn.cache import LayerCache
from saccade.nn.masks import Causal, KernelMask, positions
from saccade.training import loop
from tests.checks import foreign
from tests.tasks.battery import Trial


@dataclass
class Workshop:
    """Where bugs are planted: tiny runs, a folder, and a patch that is undone after the test."""

    tiny_run: Callable[..., Path]
    folder: Path
    patch: pytest.MonkeyPatch

    def model(self, task: str, *overrides: str) -> saccade.Model:
        """Return the model of a tiny run with random weights: after twenty steps attention hardly matters."""
        model = saccade.load(self.tiny_run(task, *overrides), device="cpu", log=lambda message: None)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for network in model.task.networks().values():
                for value in network.parameters():
                    value += 0.15 * torch.randn(value.shape, generator=generator)
        return model


@dataclass(frozen=True)
class Planted:
    """A bug, the invariant it is planted for, and others that cannot hold with it."""

    name: str
    invariant: str
    plant: Callable[[Workshop], Any]
    """returns what is checked: a model, or keyword arguments of `check`"""
    consequences: frozenset[str] = field(default_factory=frozenset)


BUGS: list[Planted] = []
CAUGHT = "planted bug caught"  # property of a test


def planted(name: str, invariant: str, *consequences: str) -> Callable[[Any], Any]:
    def add(function: Callable[[Workshop], Any]) -> Callable[[Workshop], Any]:
        BUGS.append(Planted(name, invariant, function, frozenset(consequences)))
        return function

    return add


def network_of(model: saccade.Model) -> Any:
    return next(iter(model.task.networks().values()))


def layer_of(model: saccade.Model) -> Attention:
    return next(part for part in network_of(model).modules() if isinstance(part, Attention))


def become(thing: Any, **methods: Any) -> Any:
    """Give one object other methods, and leave its class alone."""
    thing.__class__ = type(type(thing).__name__, (type(thing),), methods)
    return thing


# Batches and padding


@planted("predictions of a batch come back sorted by length", "batch")
def sorted_by_length(shop: Workshop) -> Any:
    model = shop.model("text_classification")
    parent = type(model.task)

    def predict(self: Any, inputs: Any, options: Any) -> Any:
        return parent.predict(self, sorted(inputs, key=lambda example: len(example["text"])), options)

    become(model.task, predict=predict)
    return model


class SharedMean(nn.Module):
    """Subtracts the mean of the batch, as a batch norm that is left in training mode."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - 0.5 * x.mean(0, keepdim=True))


@planted("rows are normalized by the mean of their batch", "batch", "sizes", "accumulation")
def batch_statistics(shop: Workshop) -> Any:
    model = shop.model("image_classification")
    network = network_of(model)
    network.head = SharedMean(network.head)
    return model


@planted("the encoder does not mask padding", "padding", "batch", "accumulation")
def unmasked_encoder(shop: Workshop) -> Any:
    model = shop.model("text_classification")
    bert = network_of(model).bert
    parent = type(bert)
    become(bert, forward=lambda self, ids, keep=None, *more, **states: parent.forward(self, ids, None, *more))
    return model


@planted("the decoder attends to the padding of the source", "padding", "batch", "accumulation")
def unmasked_source(shop: Workshop) -> Any:
    model = shop.model("translation")
    network = network_of(model)
    parent = type(network)

    def encode(self: Any, source: Tensor, keep: Tensor) -> Any:
        return replace(parent.encode(self, source, keep), keep=torch.ones_like(keep))

    become(network, encode=encode)
    return model


@planted("Llama of transformers ignores its attention mask", "padding")
def llama_without_mask(shop: Workshop) -> Any:
    model = foreign.llama()
    parent = type(model)

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, labels=None,
                use_cache=None, **others):  # fmt: skip
        more = {"position_ids": position_ids, "past_key_values": past_key_values, "labels": labels}
        seen = None if attention_mask is None else torch.ones_like(attention_mask)
        return parent.forward(self, input_ids=input_ids, attention_mask=seen, use_cache=use_cache, **more, **others)

    return without_saving(become(model, forward=forward), parent)


@planted("BERT of transformers ignores its attention mask", "padding", "accumulation")
def bert_without_mask(shop: Workshop) -> Any:
    model = foreign.bert()
    parent = type(model)

    def forward(self: Any, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None,
                labels: Any = None, output_attentions: Any = None) -> Any:  # fmt: skip
        more = {"labels": labels, "output_attentions": output_attentions}
        return parent.forward(self, input_ids=input_ids, position_ids=position_ids, **more)

    return without_saving(become(model, forward=forward), parent)


def without_saving(model: Any, parent: Any) -> Any:
    """Let a model of transformers be loaded with the same bug: what is planted is not the file format."""
    methods = {name: value for name, value in vars(type(model)).items() if not name.startswith("__")}

    def from_pretrained(cls: Any, folder: Any) -> Any:
        return become(parent.from_pretrained(folder), **methods)

    type(model).from_pretrained = classmethod(from_pretrained)
    return model


# Order: look-ahead, caches, beams, positions


class Peeking(Causal):
    """A causal mask that is off by one: a query also sees the next position."""

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query[..., None] + 1

    def lower(self, queries: int, keys: int, start: Any, device: Any) -> KernelMask:
        return KernelMask(self, positions(start, queries, device), torch.arange(keys))


@planted("the causal mask of a language model is off by one", "lookahead", "cache", "beams", "padding", "batch")
def peeking_gpt(shop: Workshop) -> Any:
    model = shop.model("language_model")
    network = network_of(model)
    become_peeking(network.decoder)
    return model


@planted("the causal mask of a policy is off by one", "lookahead", "batch", "sizes")
def peeking_policy(shop: Workshop) -> Any:
    model = shop.model("behaviour_cloning")
    become_peeking(network_of(model).encoder)
    return model


def become_peeking(stack: Any) -> None:
    parent = type(stack)

    def forward(self: Any, *inputs: Any, mask: Any = None, **more: Any) -> Any:
        return parent.forward(self, *inputs, mask=Peeking(), **more)

    become(stack, forward=forward)


@planted("the logits of GPT-2 know the next token", "lookahead", "cache", "beams", "padding")
def peeking_gpt2(shop: Workshop) -> Any:
    model = foreign.gpt2()
    parent = type(model)

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, labels=None,
                use_cache=None, **others):  # fmt: skip
        more = {"position_ids": position_ids, "past_key_values": past_key_values, "labels": labels}
        result = parent.forward(
            self, input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache, **more, **others
        )
        shift = torch.zeros_like(result.logits)
        shift[:, :-1] = 0.01 * input_ids[:, 1:, None]
        result.logits = result.logits + shift
        return result

    return without_saving(become(model, forward=forward), parent)


@planted("a cached token is rotated as if it were the first", "cache", "beams", "padding")
def stuck_position(shop: Workshop) -> Any:
    model = shop.model("language_model")
    rotate = layer_of(model).rotate
    parent = type(rotate)
    become(rotate, forward=lambda self, x, start: parent.forward(self, x, 0))
    return model


@planted("Llama gives every cached token position 0", "cache", "beams")
def llama_position(shop: Workshop) -> Any:
    model = foreign.llama()
    parent = type(model)

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, labels=None,
                use_cache=None, **others):  # fmt: skip
        if past_key_values is not None:
            position_ids = torch.zeros_like(input_ids)
        more = {"position_ids": position_ids, "past_key_values": past_key_values, "labels": labels}
        return parent.forward(
            self, input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache, **more, **others
        )

    return without_saving(become(model, forward=forward), parent)


@planted("keys and values do not follow the beams", "beams")
def stuck_beams(shop: Workshop) -> Any:
    shop.patch.setattr(LayerCache, "_select", lambda self, buffer, rows: buffer[torch.arange(len(rows)) % len(buffer)])
    return shop.model("language_model")


@planted("_reorder_cache of GPT-2 returns the cache as it is", "beams")
def gpt2_beams(shop: Workshop) -> Any:
    return become(foreign.gpt2(), _reorder_cache=staticmethod(lambda past, rows: past))


@planted("an attention layer of a picture knows the order of its inputs", "permutation")
def ordered_attention(shop: Workshop) -> Any:
    model = shop.model("image_classification")
    layer = layer_of(model)
    parent = type(layer)

    def project(self: Any, x: Tensor, start: Any) -> Any:
        return parent._project_self(self, x + 0.1 * torch.arange(x.shape[1], device=x.device)[None, :, None], start)

    become(layer, _project_self=project)
    return model


@planted("BERT of transformers ignores position_ids", "permutation")
def bert_positions(shop: Workshop) -> Any:
    model = foreign.bert()
    parent = type(model)

    def forward(self: Any, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None,
                labels: Any = None, output_attentions: Any = None) -> Any:  # fmt: skip
        more = {"labels": labels, "output_attentions": output_attentions}
        return parent.forward(self, input_ids=input_ids, attention_mask=attention_mask, **more)

    return without_saving(become(model, forward=forward), parent)


@planted("the order of the nodes leaks into their vectors", "nodes", "batch", "sizes", "accumulation")
def ordered_nodes(shop: Workshop) -> Any:
    model = shop.model("graph_classification")
    encoder = network_of(model).encoder
    parent = type(encoder)

    def forward(self: Any, inputs: Any, *more: Any) -> Any:
        x = parent.forward(self, inputs, *more)
        return x * (1 + 0.1 * torch.arange(x.shape[1]))[None, :, None]

    become(encoder, forward=forward)
    return model


# Attention


@planted("a query without a key gets the mean of what is hidden", "masked_rows")
def mean_of_hidden(shop: Workshop) -> Any:
    model = shop.model("text_classification")
    layer = layer_of(model)
    parent = type(layer)

    def attend(self: Any, q: Tensor, k: Tensor, v: Tensor, lowered: Any) -> Tensor:
        if lowered is not None and lowered.empty is not None:
            lowered = become(copy.copy(lowered), empty=None)
        return parent._attend(self, q, k, v, lowered)

    become(layer, _attend=attend)
    return model


@planted("the probe shows sharper weights than the layer uses", "probe")
def sharper_weights(shop: Workshop) -> Any:
    model = shop.model("text_classification")
    layer = layer_of(model)
    parent = type(layer)
    become(layer, weights=lambda self, q, k, allowed: parent.weights(self, 2 * q, k, allowed))
    return model


@planted("two heads have the same weights", "heads")
def duplicate_head(shop: Workshop) -> Any:
    model = shop.model("language_model")
    layer = layer_of(model)
    width, parts = layer.head_dim, layer.qkv.weight.data.unflatten(0, (3, layer.heads, layer.head_dim))
    parts[:, 1] = parts[:, 0]
    assert width * layer.heads * 3 == len(layer.qkv.weight)
    return model


@planted("what a head computes is never read", "heads")
def dead_head(shop: Workshop) -> Any:
    model = shop.model("translation")
    layer = layer_of(model)
    layer.out.weight.data[:, : layer.head_dim] = 0.0
    return model


@planted("two heads of GPT-2 have the same weights", "heads")
def duplicate_gpt2(shop: Workshop) -> Any:
    model = foreign.gpt2()
    attention = model.transformer.h[0].attn.c_attn
    for side in (attention.weight.data.unflatten(1, (3, 4, 6)), attention.bias.data.unflatten(0, (3, 4, 6))):
        side[..., 1, :] = side[..., 0, :]
    return model


# Training


@planted("a batch counts its rows instead of its targets", "accumulation")
def counted_rows(shop: Workshop) -> Any:
    model = shop.model("reading")
    change_batches(model.task, lambda batch: replace(batch, count=len(batch.rows)))
    return model


@planted("the loss of GPT-2 is the mean of the means of the rows", "accumulation")
def mean_of_means(shop: Workshop) -> Any:
    model = foreign.gpt2()
    parent = type(model)

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, labels=None,
                use_cache=None, **others):  # fmt: skip
        more = {"position_ids": position_ids, "past_key_values": past_key_values}
        result = parent.forward(
            self, input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache, **more, **others
        )
        if labels is not None:
            rows = zip(result.logits[:, :-1], labels[:, 1:], strict=True)
            result.loss = torch.stack([nn.functional.cross_entropy(*row, ignore_index=-100) for row in rows]).mean()
        return result

    return without_saving(become(model, forward=forward), parent)


@planted("a layer is never called", "unused")
def unused_layer(shop: Workshop) -> Any:
    model = shop.model("translation")
    network_of(model).adapter = nn.Linear(4, 4)
    return model


@planted("the optimizer misses the embedding", "untrained")
def missed_parameter(shop: Workshop) -> Any:
    build = loop.build_optimizers

    def without_embedding(config: Any, network: Any) -> Any:
        optimizers = build(config, network)
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["params"] = [value for value in group["params"] if value is not network.embedding.weight]
        return optimizers

    shop.patch.setattr(loop, "build_optimizers", without_embedding)
    return train(shop, "language_model", "train.optim.kind=adamw")


@planted("the validation data are the training data", "overlap")
def same_data(shop: Workshop) -> Any:
    return train_on_valid(shop, "text_classification")


@planted("the validation images are the training images, which training changes at random", "overlap")
def same_images(shop: Workshop) -> Any:
    return train_on_valid(shop, "image_classification")


@planted("the validation lines are the training lines, which training changes at random", "overlap")
def same_lines(shop: Workshop) -> Any:
    return train_on_valid(shop, "reading")


@planted("the validation sounds are the training sounds, which training changes at random", "overlap")
def same_sounds(shop: Workshop) -> Any:
    return train_on_valid(shop, "audio_classification", "augment.time_masks=1", "augment.frequency_masks=1")


@planted("the validation text is a part of the training text, which training masks at random", "overlap")
def same_masked_text(shop: Workshop) -> Any:
    part = shop.folder / "part.txt"
    lines = Trial.of("masked_language_model").write_data(shop.folder).read_text().splitlines(keepends=True)
    part.write_text("".join(lines[40:140]))
    return train(shop, "masked_language_model", f"data.valid={part}")


@planted("the validation text of a language model is the training text", "overlap")
def same_running_text(shop: Workshop) -> Any:
    return train_on_valid(shop, "language_model")


def train_on_valid(shop: Workshop, task: str, *overrides: str) -> Path:
    return train(shop, task, f"data.valid={Trial.of(task).write_data(shop.folder)}", *overrides)


def train(shop: Workshop, task: str, *overrides: str) -> Path:
    trial = Trial.of(task)
    steps = ["train.device=cpu", "train.precision=float32", "train.steps=6"]
    data = trial.write_data(shop.folder)
    settings = [*trial.settings, *steps, *overrides]
    run = saccade.train(data, task=task, name="planted", root=shop.folder, overrides=settings, progress=False)
    return run.path


# Tokenizers, limits, files, devices


@planted("start and end of a target are swapped", "tokenizer")
def swapped_ends(shop: Workshop) -> Any:
    model = shop.model("translation")
    special = model.task.tokenizers.special
    swapped = special._replace(target_start=special.target_end, target_end=special.target_start)
    model.task.tokenizers = replace(model.task.tokenizers, special=swapped)
    return model


@planted("bos and eos of the tokenizer of Llama are swapped", "tokenizer")
def swapped_tokenizer(shop: Workshop) -> Any:
    tokenizer = foreign.tokenizer()
    tokenizer.bos_token, tokenizer.eos_token = tokenizer.eos_token, tokenizer.bos_token
    return {"model": foreign.llama(), "tokenizer": tokenizer}


@planted("the tokenizer has more tokens than the embedding has rows", "tokenizer")
def larger_tokenizer(shop: Workshop) -> Any:
    tokenizer = foreign.tokenizer()
    tokenizer.add_tokens([f"new{number}" for number in range(20)])
    return {"model": foreign.llama(), "tokenizer": tokenizer}


@planted("padding and end are one token", "stopping")
def pad_is_end(shop: Workshop) -> Any:
    model, tokenizer = foreign.gpt2(), foreign.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = model.generation_config.pad_token_id = model.config.eos_token_id
    return {"model": model, "tokenizer": tokenizer}


@planted("the end token can never be generated", "stopping")
def no_end(shop: Workshop) -> Any:
    model = shop.model("translation")
    head, end = network_of(model).head, model.task.tokenizers.special.target_end
    parent = type(head)

    def forward(self: Any, x: Tensor) -> Tensor:
        never = torch.zeros(self.out_features)
        never[end] = -1e9
        return parent.forward(self, x) + never

    become(head, forward=forward)
    return model


@planted("labels end before the end token", "stopping")
def no_end_label(shop: Workshop) -> Any:
    model = shop.model("translation")
    end = model.task.tokenizers.special.target_end
    change_batches(model.task, lambda batch: replace(batch, labels=batch.labels.masked_fill(batch.labels == end, 3)))
    return model


def change_batches(task: Any, change: Callable[[Any], Any]) -> None:
    """Let a task return other batches."""
    parent = type(task)

    def source(self: Any, split: Any, seed: int) -> Any:
        inner = parent.source(self, split, seed)
        kind = type(inner)
        return become(inner, at=lambda self, step: [change(batch) for batch in kind.at(self, step)])

    become(task, source=source)


LEARNED = ("model.position=learned", "model.max_positions=40", "max_length=40")


@planted("there is one position less than the config says", "limits")
def missing_position(shop: Workshop) -> Any:
    model = shop.model("text_classification", *LEARNED)
    table = network_of(model).bert.position.table
    table.weight, table.num_embeddings = nn.Parameter(table.weight.data[:-1]), table.num_embeddings - 1
    return model


class Scaled(nn.Module):
    """Multiplies by a tensor that is no buffer."""

    def __init__(self, inner: nn.Module, dim: int) -> None:
        super().__init__()
        self.inner, self.factor = inner, torch.linspace(0.5, 1.5, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.factor


@planted("a tensor of the network is a plain attribute", "dtype")
def plain_tensor(shop: Workshop) -> Any:
    model = shop.model("language_model")
    network = network_of(model)
    network.norm = Scaled(network.norm, network.config.dim)
    return model


@planted("a constant is float32 whatever the weights are", "dtype")
def fixed_dtype(shop: Workshop) -> Any:
    model = shop.model("language_model")
    head = network_of(model).head
    parent = type(head)
    become(head, forward=lambda self, x: parent.forward(self, x.float()))
    return model


@planted("a weight that is not tied is left out of the file", "saving")
def lost_head(shop: Workshop) -> Any:
    model = shop.model("language_model")
    network = network_of(model)
    parent = type(network)

    def named_parameters(self: Any, *given: Any, **more: Any) -> Any:
        return ((name, value) for name, value in parent.named_parameters(self, *given, **more) if "head" not in name)

    become(network, named_parameters=named_parameters)
    return model


@planted("the output layer of GPT-2 is tied again when it is loaded", "saving")
def tied_again(shop: Workshop) -> Any:
    model = foreign.gpt2()
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    parent = type(model)

    def save_pretrained(self: Any, folder: Any) -> None:
        state = {name: value for name, value in self.state_dict().items() if name != "lm_head.weight"}
        parent.save_pretrained(self, folder, state_dict=state)

    return become(model, save_pretrained=save_pretrained)


# Sizes


@planted("the frames that pad a sound are not masked", "sizes", "batch", "accumulation")
def unmasked_sound(shop: Workshop) -> Any:
    model = shop.model("audio_classification")
    network = network_of(model)
    parent = type(network)
    become(network, classify=lambda self, vectors, keep: parent.classify(self, vectors, torch.ones_like(keep)))
    return model


@planted("the columns that pad a line of text are not masked", "sizes", "batch", "accumulation")
def unmasked_columns(shop: Workshop) -> Any:
    model = shop.model("reading")
    network = network_of(model)
    parent = type(network)

    def encode(self: Any, source: Tensor, keep: Tensor) -> Any:
        return replace(parent.encode(self, source, keep), keep=torch.ones_like(keep))

    become(network, encode=encode)
    return model
