"""References to pretrained models: a folder, a .gguf file, a name of the catalogue, or owner/name on the hub."""

from __future__ import annotations

import os
from pathlib import Path

from saccade.errors import UsageError, suggest
from saccade.pretrained import catalogue, hub
from saccade.pretrained.catalogue import CATALOGUE
from saccade.pretrained.sentence_transformers import MODULES


def is_pretrained(ref: str) -> bool:
    """Whether a reference names a pretrained model; owner/name does unless there is a folder called owner."""
    path = Path(ref).expanduser()
    marks = (path / "config.json", path / MODULES, path / "adapter_config.json")
    if ref in CATALOGUE or path.suffix == ".gguf" or any(map(os.path.lexists, marks)):
        return True
    return hub.is_hub_id(ref) and not path.parent.exists()


def resolve(ref: str) -> Path:
    """Return the folder or .gguf file of a reference, downloaded if necessary."""
    path = Path(ref).expanduser()
    if path.is_dir() or (path.suffix == ".gguf" and path.exists()):
        return path
    if ref in CATALOGUE:
        return catalogue.get(ref)
    if hub.is_hub_id(ref):
        return hub.download_model(ref)
    raise UsageError(
        f"no model '{ref}'{suggest(ref, list(CATALOGUE))}; name an existing folder, a .gguf file, a model of "
        "`saccade models list`, or owner/name on the hub"
    )
