"""Writing: our model -> a folder that transformers opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from saccade.atomic_io import write_json
from saccade.errors import UsageError
from saccade.pretrained.huggingface.family import Family
from saccade.pretrained.huggingface.parts import collect


def write(model: nn.Module, config: Any, vocabulary: int, family: Family, folder: Path, extra: dict[str, Any]) -> None:
    """config.json and model.safetensors; `extra` goes into config.json too: ids of special tokens, labels."""
    state = dict(model.named_parameters())
    names = frozenset(state)
    parts = family.parts(config, bare=not _headed(family, names))
    unknown = sorted(names - {part.ours for part in parts})
    if unknown:
        raise UsageError(f"'{unknown[0]}' has no place in a model of the {family.name} family; train a preset of it")
    try:
        described = family.describe(config, vocabulary)
    except ValueError as error:
        raise UsageError(f"this model cannot be written for transformers: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    kind = {"model_type": family.name, "architectures": [family.architecture(names)], "dtype": "float32"}
    write_json(folder / "config.json", {**kind, **described, **extra})
    save_file(collect(parts, {name: value.detach().cpu() for name, value in state.items()}), folder / SINGLE, METADATA)


SINGLE = "model.safetensors"
METADATA = {"format": "pt"}


def _headed(family: Family, names: frozenset[str]) -> bool:
    """Whether transformers' class of this model puts the body under a prefix."""
    return not family.architecture(names).endswith("Model")
