"""Opening: a reference -> a pretrained network with its processor, from a folder or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.config import to_json
from saccade.core import Pretrained
from saccade.pretrained.config_json import read_config
from saccade.pretrained.gguf import read_gguf
from saccade.pretrained.links import check_links
from saccade.pretrained.references import resolve
from saccade.pretrained.weights import LoadedNetwork, SafetensorsFiles, load_network


def open_pretrained(ref: str) -> Pretrained:
    """Open a folder, a .gguf file, a name of the catalogue, or owner/name on the hub."""
    return _open(resolve(ref))[0]


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


def _open(path: Path) -> tuple[Pretrained, tuple[str, ...]]:
    """Return a pretrained model and the names of the tensors that it does not use."""
    return read_folder(path) if path.is_dir() else read_gguf(path)


def read_folder(folder: Path) -> tuple[Pretrained, tuple[str, ...]]:
    """Read a folder as transformers writes it; return the model and the names of the tensors that it does not use."""
    check_links(folder)
    family, fields, values = read_config(folder)
    processor = family.read_processor(folder, values)
    loaded = load_network(folder / "config.json", family, fields, SafetensorsFiles(folder))
    return Pretrained(loaded.network, loaded.config, processor, family, loaded.task), loaded.unused


def read_network(folder: Path) -> LoadedNetwork:
    """Read a folder that may have no tokenizer."""
    check_links(folder)
    family, fields, _ = read_config(folder)
    return load_network(folder / "config.json", family, fields, SafetensorsFiles(folder))
