"""The format hf: a network with its processor -> a folder that transformers can open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from saccade.atomic_io import new_folder, write_json
from saccade.config import from_json
from saccade.core import Pretrained
from saccade.errors import UsageError
from saccade.nn.transformer import TransformerConfig
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.config_json import select_fields
from saccade.pretrained.exports.parity import Parity, compare
from saccade.pretrained.exports.signatures import signature_of
from saccade.pretrained.families import FAMILIES, Family, Names
from saccade.pretrained.families.heads import Head, check_exportable, head_fields, with_head, without_scale
from saccade.pretrained.families.image_heads import ImageHead, image_head_fields, with_image_head
from saccade.pretrained.families.mapping import to_checkpoint
from saccade.pretrained.opening import read_folder
from saccade.pretrained.sentence_transformers import SentenceModules, write_modules
from saccade.pretrained.weights import WEIGHTS

# Fields of our configs that do not change the outputs of a trained network, with a common value.
TRAINING_ONLY = {
    "dropout": 0.0,
    "embedding_dropout": 0.0,
    "attention_dropout": 0.0,
    "inner_dropout": None,
    "init": None,
    "pooler": None,
}


def export(pretrained: Pretrained, folder: Path) -> list[str]:
    """Write a network for transformers; return notes on what was written."""
    check_new_folder(folder)
    network, head = merge_lora(pretrained.network).eval(), pretrained.head
    family = find_family(network, pretrained.config, pretrained.family, head)
    write_processor = family.write_processor
    assert write_processor is not None
    generation = family.generation_config(pretrained.processor)
    if isinstance(head, Head):
        check_exportable(family, head)
        family, network = with_head(family, head), without_scale(network, head)
    fields = {**generation, **head_values(head)}
    with new_folder(folder) as temporary:
        write_network(network, pretrained.config, family, temporary, fields)
        write_processor(pretrained.processor, temporary)
        if isinstance(head, SentenceModules):
            write_modules(head, pretrained.config.dim, temporary)
        if generation:
            write_json(temporary / "generation_config.json", generation)
        card = (
            f"# {folder.name}\n\nA model of the {family.name} family, exported by Saccade. Open it with transformers."
        )
        (temporary / "README.md").write_text(f"{card}\n", encoding="utf-8")
        parity = _parity(replace(pretrained, network=network), temporary)
    also = " and sentence-transformers" if isinstance(head, SentenceModules) else ""
    return [f"{folder}: a {family.name} for transformers{also}", parity]


def check_new_folder(folder: Path) -> None:
    """Refuse to write into a folder that has files, or through a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} must be a new or an empty folder, but is not empty; name another one")


def _parity(pretrained: Pretrained, folder: Path) -> str:
    """Read the files back and return the line that says how much the outputs differ from those of the network."""
    return compare_networks(pretrained, read_folder(folder)[0].network, "the files read back")


@torch.no_grad()
def compare_networks(pretrained: Pretrained, restored: nn.Module, tool: str) -> str:
    """Return the line that says how much the outputs of a network that was read back differ; too much is refused."""
    ours, theirs = pretrained.network, restored
    if isinstance(pretrained.head, SentenceModules):  # pooling has no weights
        ours, theirs = ours.get_submodule("bert"), theirs.get_submodule("bert")
    expected, actual = (signature_of(network, pretrained.config, pretrained.processor) for network in (ours, theirs))
    if expected is None or actual is None:
        weights = [(value, theirs.get_parameter(name)) for name, value in ours.named_parameters()]
        return Parity(*compare(weights), "weights", f"{len(weights)} tensors").require(tool)
    pairs: list[tuple[Tensor, Tensor]] = []
    for inputs in expected.samples():
        pairs += zip(expected.module(*inputs), actual.module(*inputs), strict=True)
    return Parity(*compare(pairs), " and ".join(expected.outputs), expected.extent).require(tool)


def write_network(
    network: nn.Module, config: Any, family: Family, folder: Path, extra: dict[str, Any] | None = None
) -> None:
    """Write config.json, with `extra` fields, and model.safetensors."""
    parameters = {name: value.detach().cpu() for name, value in network.named_parameters()}
    names = Names(parameters)
    architecture = family.architecture(names)
    mappings = family.mappings(config, bare=architecture.endswith("Model"))
    unmapped = sorted(names - {mapping.name for mapping in mappings})
    if unmapped:
        raise UsageError(f"a {family.name} has no tensor for '{unmapped[0]}'; train one of its presets")
    values = config_json(network, config, family, extra or {})
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", values)
    save_file(to_checkpoint(mappings, parameters), folder / WEIGHTS, {"format": "pt"})


def config_json(network: nn.Module, config: Any, family: Family, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of a network, with `extra` fields."""
    architecture = family.architecture(Names(name for name, _ in network.named_parameters()))
    try:
        values = family.write_config(config, network)
    except ValueError as error:
        raise UsageError(f"this model cannot be written for transformers: {error}") from error
    header = {"model_type": family.name, "architectures": [architecture], "dtype": "float32"}
    return {**header, **values, **extra}


def head_values(head: Any) -> dict[str, Any]:
    """Return the fields of config.json that describe a head."""
    if isinstance(head, ImageHead):
        return image_head_fields(head)
    return head_fields(head) if isinstance(head, Head) else {}


def find_family(network: nn.Module, config: Any, preferred: Family | None = None, head: Any = None) -> Family:
    """Return the family that holds a network exactly: its config survives the round trip through config.json.

    That of an image classifier reads and writes its head too.
    """
    families = [family for family in _ordered(preferred) if family.config is type(config) and family.write_processor]
    if isinstance(head, ImageHead):
        families = [with_image_head(family, head) for family in families if family.name == "deit" or not head.distilled]
    if not families:
        raise UsageError("only language models, encoders and image networks can be written for transformers so far")
    for family in families:
        if _round_trips(family, network, config):
            return family
    raise UsageError(
        "transformers has no class for this architecture; train one of the presets gpt2-..., llama-..., bert-... or "
        "vit-..., which are published architectures, or start from a published model with --from"
    )


def _ordered(preferred: Family | None) -> Sequence[Family]:
    others = FAMILIES.values()
    return list(others) if preferred is None else [preferred, *others]


def _round_trips(family: Family, network: nn.Module, config: Any) -> bool:
    """Whether the config.json of a family describes the same network."""
    names = Names(name for name, _ in network.named_parameters())
    try:
        values = family.write_config(config, network)
        restored = family.read_config(from_json(family.fields, select_fields(family.fields, values)), names)
    except (ValueError, UsageError):  # a value that this family does not have
        return False
    return bool(_inference_config(restored) == _inference_config(config))


def _inference_config(config: Any) -> Any:
    """Return a config without the fields that do not change the outputs of a trained network."""
    nested = {name: value for name, value in vars(config).items() if isinstance(value, TransformerConfig)}
    if nested:  # of two encoders
        return replace(config, **{name: _inference_config(value) for name, value in nested.items()})
    common = {name: value for name, value in TRAINING_ONLY.items() if hasattr(config, name)}
    kv_heads = 0 if config.kv_heads == config.heads else config.kv_heads
    epsilon = config.epsilon
    if epsilon is None:
        epsilon = 1e-5 if config.norm == "layer" else 1e-6
    head_dim = 0 if config.head_width * config.heads == config.dim else config.head_dim
    return replace(config, **common, kv_heads=kv_heads, epsilon=epsilon, head_dim=head_dim)
