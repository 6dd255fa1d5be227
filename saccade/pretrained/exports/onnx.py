"""The format onnx: language models, encoders and image classifiers as a graph that onnxruntime runs."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.atomic_io import new_folder
from saccade.core import Pretrained
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import UsageError
from saccade.models.text.gpt import GPT
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.exports.hf import check_new_folder
from saccade.pretrained.exports.onnx_graphs import CachedLanguageModel, cache_names, cache_shape, expressible
from saccade.pretrained.exports.parity import Parity, compare, compare_greedy, sample_ids, sample_lengths, sample_text
from saccade.pretrained.exports.signatures import Signature, signature_of
from saccade.pretrained.families.heads import Head, without_scale
from saccade.pretrained.families.image_heads import ImageHead
from saccade.pretrained.image_processors import ImageProcessor, write_image_processor
from saccade.pretrained.processors import TextProcessor, write_text_processor
from saccade.pretrained.strict_json import one_line

MODEL, OPSET = "model.onnx", 20
LARGEST_FILE = 1 << 31  # bytes of a protobuf; larger weights are stored beside it
CACHED = ((1, 1, 0), (1, 1, 1), (2, 7, 0), (2, 3, 9), (3, 33, 0))  # rows, new tokens and cached ones that are compared
SUPPORTED = "a language model, an encoder (BERT, RoBERTa, DistilBERT) or an image classifier"


@dataclass(frozen=True)
class Graph:
    """What torch exports: a module with examples of its inputs, and the names of everything."""

    module: nn.Module
    example: tuple[Any, ...]
    axes: tuple[Any, ...]
    """in the structure of the example, the sizes that may change"""
    inputs: Sequence[str]
    outputs: Sequence[str]


def export(pretrained: Pretrained, folder: Path) -> list[str]:
    """Write model.onnx with its tokenizer; return notes on what was written and the parity with onnxruntime."""
    check_new_folder(folder)
    _library("onnx"), _library("onnxscript")
    network, head = merge_lora(pretrained.network).eval(), pretrained.head
    if isinstance(head, Head):
        network = without_scale(network, head)
    signature = signature_of(network, pretrained.config, pretrained.processor)
    if signature is None:
        kind = pretrained.task if pretrained.family is None else pretrained.family.name
        raise UsageError(f"a model for ONNX must be {SUPPORTED}, but this is a {kind}; see docs/export.md")
    with new_folder(folder) as temporary:
        graph = _language_model(network) if isinstance(network, GPT) else _graph(pretrained, network)
        _write_graph(graph, temporary / MODEL, _metadata(pretrained))
        _write_processor(pretrained.processor, temporary)
        session = _library("onnxruntime").InferenceSession(str(temporary / MODEL), providers=["CPUExecutionProvider"])
        if isinstance(network, GPT):
            parity = _compare_language_model(network, pretrained.processor.tokenizer, session)
        else:
            parity = _compare(signature, session)
        line = parity.require("onnxruntime")
        (temporary / "README.md").write_text(_card(folder.name, graph, line), encoding="utf-8")
    return [f"{folder}: {MODEL}, inputs {_listed(graph.inputs)}, outputs {_listed(graph.outputs)}", line]


def _library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise UsageError(
            f"an export to ONNX needs the package {name}; install it with `pip install saccade[export]`"
        ) from error


def _listed(names: Sequence[str]) -> str:
    """Return names; of many, the first three and the last."""
    return ", ".join(names if len(names) < 6 else [*names[:3], "...", names[-1]])


def _graph(pretrained: Pretrained, network: nn.Module) -> Graph:
    """Return the graph of an encoder or an image network."""
    signature = signature_of(expressible(network), pretrained.config, pretrained.processor)
    assert signature is not None
    axes = tuple(dict(names) for names in signature.inputs.values())
    return Graph(signature.module, signature.samples()[-1], axes, list(signature.inputs), signature.outputs)


def _language_model(network: GPT) -> Graph:
    """Return the graph of a language model with its cache."""
    config, count = network.config, 2 * network.config.depth
    past = [torch.zeros(cache_shape(config, 2, 3)) for _ in range(count)]
    axes = ({0: "batch", 1: "tokens"}, [{0: "batch", 2: "past"} for _ in range(count)])
    example = (sample_ids(network.embedding.num_embeddings, 2, 5), past)
    inputs = ["input_ids", *cache_names(config, "past_key_values")]
    module = expressible(network)
    assert isinstance(module, GPT)
    return Graph(CachedLanguageModel(module).eval(), example, axes, inputs, ["logits", *cache_names(config, "present")])


def _write_graph(graph: Graph, path: Path, metadata: dict[str, str]) -> None:
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                graph.module.eval(),
                graph.example,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=graph.axes,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise UsageError(
                f"torch cannot express this network in ONNX: {one_line(error)}; export it with --to hf"
            ) from error
        assert program is not None
        program.model.metadata_props.update(metadata)
        weights = sum(value.nbytes for value in graph.module.parameters())
        program.save(path, external_data=weights > LARGEST_FILE - (1 << 28))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's warnings on packages that are not installed, and on names of axes, from the terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _metadata(pretrained: Pretrained) -> dict[str, str]:
    """Return what a graph does not say: the task, its labels, the number of positions."""
    values = {"task": pretrained.task}
    if isinstance(pretrained.head, Head | ImageHead):
        values["labels"] = json.dumps(list(pretrained.head.labels))
    if isinstance(pretrained.processor, TextProcessor):
        values["max_positions"] = str(pretrained.processor.max_length or pretrained.config.max_positions)
    return values


def _write_processor(processor: Any, folder: Path) -> None:
    """Write what turns a text or a picture into the inputs."""
    if isinstance(processor, TextProcessor):
        write_text_processor(processor, folder)
    elif isinstance(processor, ImageProcessor):
        write_image_processor(processor, folder)


def _card(name: str, graph: Graph, parity: str) -> str:
    lines = [f"# {name}", "", "Exported by Saccade for ONNX.", "", "| input | output |", "| --- | --- |"]
    lines += [f"| {_listed(graph.inputs)} | {_listed(graph.outputs)} |", "", parity]
    return "\n".join([*lines, ""])


def _run(session: Any, inputs: Sequence[str], values: Sequence[Tensor]) -> list[Tensor]:
    feed = {name: value.numpy() for name, value in zip(inputs, values, strict=True)}
    return [torch.from_numpy(output) for output in session.run(None, feed)]


@torch.no_grad()
def _compare(signature: Signature, session: Any) -> Parity:
    """Compare an encoder or an image network on batches of several sizes."""
    pairs: list[tuple[Tensor, Tensor]] = []
    for values in signature.samples():
        pairs += zip(signature.module(*values), _run(session, list(signature.inputs), values), strict=True)
    return Parity(*compare(pairs), " and ".join(signature.outputs), signature.extent)


@torch.no_grad()
def _compare_language_model(network: GPT, tokenizer: Tokenizer, session: Any) -> Parity:
    """Compare a language model on batches of several sizes, with and without cached tokens."""
    config, vocabulary = network.config, network.embedding.num_embeddings
    names = ["input_ids", *cache_names(config, "past_key_values")]
    pairs: list[tuple[Tensor, Tensor]] = []
    for rows, new, cached in CACHED:
        if new + cached > config.max_positions:
            continue
        ids = sample_ids(vocabulary, rows, cached + new)
        past = [torch.zeros(cache_shape(config, rows, 0)) for _ in names[1:]]
        if cached:
            past = _run(session, names, [ids[:, :cached], *past])[1:]
        pairs.append((network(ids)[:, cached:], _run(session, names, [ids[:, cached:], *past])[0]))
    tokens, continued = sample_lengths(config.max_positions)
    past = [torch.zeros(cache_shape(config, 1, 0)) for _ in names[1:]]

    def next_token(text: list[int]) -> int:
        nonlocal past
        logits, *past = _run(session, names, [torch.tensor([text[past[0].shape[2] :]]), *past])
        return int(logits[0, -1].argmax())

    greedy = compare_greedy(network, sample_text(tokenizer, vocabulary, tokens), continued, next_token)
    count = sum(expected.shape[0] * expected.shape[1] for expected, _ in pairs)
    return Parity(*compare(pairs), "logits", f"{count} tokens in {len(pairs)} batches", greedy)
