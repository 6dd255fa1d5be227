"""The format peft: the LoRA adapters of a fine-tuned model, without the weights of its base."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from saccade.atomic_io import new_folder, write_json
from saccade.core import Pretrained
from saccade.errors import UsageError
from saccade.pretrained.adapters import LoraLinear, merge_lora
from saccade.pretrained.catalogue import CATALOGUE
from saccade.pretrained.exports.hf import check_new_folder, compare_networks, config_json, find_family, head_values
from saccade.pretrained.families import FAMILIES, Family, Names
from saccade.pretrained.families.heads import Head, check_exportable, without_scale
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.peft_adapters import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    PREFIX,
    A,
    B,
    apply_adapter,
    family_with_head,
    read_adapter,
)

TASK_TYPES = {
    "language_model": "CAUSAL_LM",
    "text_classification": "SEQ_CLS",
    "regression": "SEQ_CLS",
    "tagging": "TOKEN_CLS",
    "question_answering": "QUESTION_ANS",
    "sentence_vectors": "FEATURE_EXTRACTION",
}
"""tasks whose adapters can be exported, with the task_type of peft. The layers of a ViT have other names in each major
version of transformers, and peft skips those that it does not find."""


def export(pretrained: Pretrained, folder: Path) -> list[str]:
    """Write an adapter folder; return notes on what was written and the parity of the adapter that is read back."""
    check_new_folder(folder)
    layers = {name: layer for name, layer in pretrained.network.named_modules() if isinstance(layer, LoraLinear)}
    if not layers:
        raise UsageError(
            "a model for peft must have LoRA adapters, but has none; fine-tune one with --from BASE and tune=lora, or "
            "export this one with --to hf"
        )
    if pretrained.task not in TASK_TYPES:
        raise UsageError(
            f"an adapter for peft must be one of a model for {', '.join(TASK_TYPES)}, but is one for "
            f"{pretrained.task}; export this model with --to hf"
        )
    if isinstance(pretrained.head, Head):
        network = without_scale(pretrained.network, pretrained.head)
        pretrained = replace(pretrained, network=network, head=replace(pretrained.head, mean=0.0, deviation=1.0))
        layers = {name: network.get_submodule(name) for name in layers}  # type: ignore[misc]
    family = _family(pretrained)
    bare = _is_bare(_architecture(family, pretrained.network))
    mappings = {mapping.name: mapping for mapping in family.mappings(pretrained.config, bare=bare)}
    tensors = {
        name: part for layer in layers for name, part in _adapter_tensors(layer, layers[layer], mappings).items()
    }
    saved = _saved_tensors(pretrained.network, mappings)
    modules = sorted({name.removeprefix(PREFIX).removesuffix(A) for name in tensors if name.endswith(A)})
    rank = next(iter(layers.values())).lora_a.shape[0]
    transposed = any(mappings[f"{name}.weight"].transpose for name in layers)
    config = _config(pretrained, rank, transposed, modules, _saved_modules(saved, family))
    with new_folder(folder) as temporary:
        save_file({**tensors, **saved}, temporary / ADAPTER_WEIGHTS, {"format": "pt"})
        write_json(temporary / ADAPTER_CONFIG, config)
        write_json(temporary / "config.json", _model_config(pretrained, family))
        assert family.write_processor is not None
        family.write_processor(pretrained.processor, temporary)
        line = _parity(pretrained, temporary)
        base = config["base_model_name_or_path"] or "its base model"
        (temporary / "README.md").write_text(
            f"# {folder.name}\n\nA LoRA adapter of {base}, exported by Saccade for peft.\n\n{line}\n", encoding="utf-8"
        )
    size = sum(value.nbytes for value in tensors.values()) / 1e6
    return [f"{folder}: a LoRA adapter of {base} for peft, {len(modules)} layers, {size:.1f} MB", line]


def _family(pretrained: Pretrained) -> Family:
    head = pretrained.head
    network = merge_lora(pretrained.network)
    family = find_family(network, pretrained.config, pretrained.family, head)
    if isinstance(head, Head):
        check_exportable(family, head)
        return family_with_head(family, head)
    return family


def _architecture(family: Family, network: nn.Module) -> str:
    return family.architecture(Names(name for name, _ in network.named_parameters() if ".lora_" not in name))


def _is_bare(architecture: str) -> bool:
    """Whether a class of transformers has no head, so that the names of its modules have no prefix."""
    return architecture.endswith("Model") and not architecture.endswith("LMHeadModel")


def _adapter_tensors(name: str, layer: LoraLinear, mappings: Mapping[str, WeightMapping]) -> dict[str, Tensor]:
    """Return the matrices of one of our layers, which may be several of transformers: these share A."""
    mapping = mappings.get(f"{name}.weight")
    if mapping is None:
        raise UsageError(f"transformers has no linear layer for '{name}', which this adapter changes")
    a, b = layer.lora_a.detach().cpu(), layer.lora_b.detach().cpu()
    rows = replace(mapping, transpose=False).store(b)
    modules = {PREFIX + hf_name.removesuffix(".weight"): part for hf_name, part in rows.items()}
    return {
        name: value for module, part in modules.items() for name, value in ((module + A, a.clone()), (module + B, part))
    }


def _saved_tensors(network: nn.Module, mappings: Mapping[str, WeightMapping]) -> dict[str, Tensor]:
    """Return the tensors that were trained as a whole, by their names in an adapter."""
    tensors: dict[str, Tensor] = {}
    for name, value in network.named_parameters():
        if value.requires_grad and ".lora_" not in name:
            if name not in mappings:
                raise UsageError(f"transformers has no tensor for '{name}', which was trained beside the adapter")
            stored = mappings[name].store(value.detach().cpu())
            tensors |= {PREFIX + hf_name: tensor for hf_name, tensor in stored.items()}
    return tensors


def _saved_modules(saved: Mapping[str, Tensor], family: Family) -> list[str] | None:
    """Return the modules of the tensors that were trained as a whole, as peft matches them."""
    names = {name.removeprefix(PREFIX).rpartition(".")[0].removeprefix(family.prefix) for name in saved}
    return sorted({"classifier" if name.startswith("classifier.") else name for name in names}) or None


def _config(
    pretrained: Pretrained, rank: int, transposed: bool, modules: list[str], saved: list[str] | None
) -> dict[str, Any]:
    base = pretrained.base
    listed = CATALOGUE.get(base)
    return {
        "peft_type": "LORA",
        "task_type": TASK_TYPES[pretrained.task],
        "base_model_name_or_path": listed.hub_id if listed is not None and listed.hub_id else base or None,
        "r": rank,
        "lora_alpha": rank,  # the update is B A, without a factor
        "lora_dropout": 0.0,
        "fan_in_fan_out": transposed,
        "bias": "none",
        "target_modules": modules,
        "modules_to_save": saved,
        "inference_mode": True,
    }


def _model_config(pretrained: Pretrained, family: Family) -> dict[str, Any]:
    """Return config.json, which has the labels of a head."""
    network = merge_lora(pretrained.network)
    return config_json(network, pretrained.config, family, head_values(pretrained.head))


def _parity(pretrained: Pretrained, folder: Path) -> str:
    """Read the adapter back, apply it to the frozen weights and compare the outputs."""
    network = copy.deepcopy(pretrained.network)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in network.parameters():
            if value.requires_grad:  # what the file does not replace would show
                value.copy_(torch.randn(value.shape, generator=generator))
        for layer in network.modules():
            if isinstance(layer, LoraLinear):
                layer.lora_b.zero_()
    base = replace(pretrained, network=merge_lora(network).eval(), family=FAMILIES[_family(pretrained).name])
    restored = apply_adapter(read_adapter(folder), base)
    expected = replace(pretrained, network=merge_lora(pretrained.network).eval())
    return compare_networks(expected, restored.network, "the adapter read back")
