"""Opening: a reference -> a pretrained network with its processor, from a folder or a GGUF file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from saccade.config import to_json
from saccade.core import Pretrained
from saccade.errors import ModelFileError, ResourceError, UsageError
from saccade.models.text.bert import BertForPreTraining
from saccade.pretrained.config_json import read_config
from saccade.pretrained.families import Family
from saccade.pretrained.families.heads import HEADS, Head, read_head, with_head
from saccade.pretrained.families.image_heads import CLASSES, ImageHead, read_image_head, with_image_head
from saccade.pretrained.gguf import read_gguf
from saccade.pretrained.links import check_links
from saccade.pretrained.peft_adapters import Adapter, apply_adapter, is_adapter, read_adapter
from saccade.pretrained.references import resolve
from saccade.pretrained.sentence_transformers import MODULES, SentenceModules, encoder_folder, read_modules
from saccade.pretrained.weights import LoadedNetwork, SafetensorsFiles, load_network


def open_pretrained(ref: str, base: Pretrained | None = None) -> Pretrained:
    """Open a folder, a .gguf file, a name of the catalogue, or owner/name on the hub.

    `base` is the model of an adapter of peft; None: the one that the adapter names.
    """
    path = resolve(ref)
    if base is not None and not is_adapter(path):
        raise UsageError(f"base must be given for an adapter of peft only, but {ref} is a model; leave it out")
    return _open(path, base)[0]


def describe(ref: str) -> dict[str, Any]:
    """Return a summary of a model as JSON, after all of it was read and checked."""
    path = resolve(ref)
    pretrained, unused = _open(path)
    return {
        "path": str(path),
        "family": pretrained.family.name,
        "task": pretrained.task,
        "parameters": sum(parameter.numel() for parameter in pretrained.network.parameters()),
        **pretrained.processor.describe(),
        "config": to_json(pretrained.config),
        "unused": list(unused),
    }


def _open(path: Path, base: Pretrained | None = None) -> tuple[Pretrained, tuple[str, ...]]:
    """Return a pretrained model and the names of the tensors that it does not use."""
    if is_adapter(path):
        adapter = read_adapter(path)
        return apply_adapter(adapter, _open_base(adapter) if base is None else base), ()
    return read_folder(path) if path.is_dir() else read_gguf(path)


def _open_base(adapter: Adapter) -> Pretrained:
    """Open the model that an adapter names."""
    if not adapter.base:
        raise ModelFileError(
            f"{adapter.path}: base_model_name_or_path must name the model of the adapter, but is missing; give it with "
            "--base"
        )
    try:
        path = resolve(adapter.base)
    except (UsageError, ResourceError) as error:
        raise ModelFileError(f"{adapter.path}: {error}; give the model of the adapter with --base") from error
    if is_adapter(path):
        raise ModelFileError(
            f"{adapter.path}: the base of an adapter must be a model, but {adapter.base} is an adapter"
        )
    return _open(path)[0]


def read_folder(folder: Path) -> tuple[Pretrained, tuple[str, ...]]:
    """Read a folder as transformers or sentence-transformers writes it.

    Returns the model and the names of the tensors that it does not use.
    """
    check_links(folder)
    modules, encoder = read_modules(folder), encoder_folder(folder)
    family, fields, values = read_config(encoder)
    processor = family.read_processor(encoder, values)
    head = _read_head(encoder / "config.json", family, values)
    loaded = _load(encoder, family, fields, head)
    family.prepare(loaded.network, processor)
    pretrained = Pretrained(loaded.network, loaded.config, processor, family, loaded.task, head)
    if modules is not None:
        pretrained = _as_sentence_encoder(folder, pretrained, modules)
    elif head is None and not values.get("architectures"):
        _check_unused(encoder / "config.json", loaded.unused)
    return pretrained, loaded.unused


def read_network(folder: Path) -> LoadedNetwork:
    """Read a folder that may have no tokenizer."""
    check_links(folder)
    family, fields, values = read_config(folder)
    return _load(folder, family, fields, _read_head(folder / "config.json", family, values))


def _read_head(path: Path, family: Family, values: dict[str, Any]) -> Head | ImageHead | None:
    """Return the head that a config.json describes."""
    return (read_image_head if family.name in CLASSES else read_head)(path, family, values)


def _load(folder: Path, family: Family, fields: Any, head: Head | ImageHead | None) -> LoadedNetwork:
    if head is not None:
        family = with_image_head(family, head) if isinstance(head, ImageHead) else with_head(family, head)
    return load_network(folder / "config.json", family, fields, SafetensorsFiles(folder, family.renames))


def _as_sentence_encoder(folder: Path, pretrained: Pretrained, modules: SentenceModules) -> Pretrained:
    """Return a network as the encoder of a folder of sentence-transformers, which lower-cases and cuts texts."""
    if not isinstance(pretrained.network, BertForPreTraining):
        raise ModelFileError(
            f"{folder / MODULES}: the encoder must be one of {', '.join(HEADS)} without a head, but is a "
            f"{pretrained.family.name} for {pretrained.task}; this sentence encoder is not supported"
        )
    processor = pretrained.processor
    if modules.lowercase:
        processor = replace(processor, tokenizer=processor.tokenizer.lowercased())
    if modules.max_length is not None:
        processor = replace(processor, max_length=modules.max_length)
    return replace(pretrained, processor=processor, task="sentence_vectors", head=modules)


def _check_unused(path: Path, unused: tuple[str, ...]) -> None:
    """Refuse a head that could be one of several: only the name of its class tells which."""
    head = next((name for name in unused if name.startswith(("classifier.", "pre_classifier.", "qa_outputs."))), None)
    if head is not None:
        raise ModelFileError(
            f"{path}: architectures must name the class of the head, since there is a tensor {head!r}, but is missing; "
            f'add it, such as "architectures": ["BertForSequenceClassification"]'
        )
