"""LoRA adapters in the layout of peft: read from a folder and merged into the model that they were trained on.

Shapes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.core import Pretrained
from saccade.errors import ModelFileError
from saccade.models.vision.classifier import ImageClassifier
from saccade.pretrained.families import Family
from saccade.pretrained.families.heads import HEADS, Head, build_network, read_head, with_head
from saccade.pretrained.families.image_heads import CLASSES, ImageHead, read_image_head, with_image_head
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.links import check_links
from saccade.pretrained.strict_json import read_object
from saccade.pretrained.weights import SafetensorsFiles
from saccade.tensor_files import is_finite

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
ALLOWED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal"),
}
"""values of fields that change the numbers; of a field that is neither here nor in HARMLESS: null, false or empty"""
HARMLESS = {
    *("r", "lora_alpha", "use_rslora", "base_model_name_or_path", "target_modules", "modules_to_save", "revision"),
    *(
        "task_type",
        "inference_mode",
        "lora_dropout",
        "fan_in_fan_out",
        "auto_mapping",
        "peft_version",
        "layers_pattern",
    ),
    *("layers_to_transform", "exclude_modules", "megatron_core", "ensure_weight_tying", "runtime_config"),
    *("qalora_group_size", "parent_library"),
}
"""fields that are read, or that only say where the tensors of the file came from"""


@dataclass(frozen=True)
class Update:
    """A low-rank update of a weight; the product is computed when its shape is known to fit."""

    a: Tensor  # (R, I), or a convolution (R, I, ...)
    b: Tensor  # (O, R), or a convolution (O, R, 1, ...)
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the update: (O, I), or that of the weight of a convolution."""
        return (self.b.shape[0], *self.a.shape[1:])

    def product(self) -> Tensor:
        """Return the update."""
        return (self.scale * (self.b.flatten(1) @ self.a.flatten(1))).reshape(self.shape)


@dataclass(frozen=True)
class Adapter:
    """The settings and the tensors of an adapter, by the names of transformers' modules."""

    path: Path
    base: str
    """the model that it was trained on; empty: unknown"""
    updates: Mapping[str, Update]
    """what is added to the weight of each module"""
    saved: Mapping[str, Tensor]
    """tensors that were trained as a whole, such as those of a head"""


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter(folder: Path) -> Adapter:
    """Read and check an adapter; what would change the numbers and is not supported is refused by name."""
    check_links(folder)
    path = folder / ADAPTER_CONFIG
    config = read_object(path)
    for name, value in config.items():
        allowed = ALLOWED.get(name)
        if allowed is not None and value not in allowed:
            raise _refusal(path, name, " or ".join(map(repr, allowed)), value)
        if allowed is None and name not in HARMLESS and value:
            raise _refusal(path, name, "absent or empty", value)
    if "peft_type" not in config:
        raise _refusal(path, "peft_type", "'LORA'", None)
    rank, alpha = (_number(path, config, name) for name in ("r", "lora_alpha"))
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    base = config.get("base_model_name_or_path") or ""
    if not isinstance(base, str):
        raise _refusal(path, "base_model_name_or_path", "a name", base)
    updates, saved = _tensors(folder, int(rank), scale)
    return Adapter(path, base, updates, saved)


def _number(path: Path, config: Mapping[str, Any], name: str) -> float:
    value = config.get(name, 8)
    whole = isinstance(value, int) or (name == "lora_alpha" and isinstance(value, float))
    if not whole or isinstance(value, bool) or not 0 < value < 1 << 16:
        raise _refusal(path, name, "a number above 0", value)
    return float(value)


def _tensors(folder: Path, rank: int, scale: float) -> tuple[dict[str, Update], dict[str, Tensor]]:
    """Return the updates by module, and the tensors that replace others."""
    source, path = SafetensorsFiles(folder, file=ADAPTER_WEIGHTS), folder / ADAPTER_WEIGHTS
    names = {name.removeprefix(PREFIX): name for name in source.names}
    pairs = {name.removesuffix(A) for name in names if name.endswith(A)}
    if pairs != {name.removesuffix(B) for name in names if name.endswith(B)} or not pairs:
        raise ModelFileError(f"{path}: there must be pairs of lora_A and lora_B, but one is missing; download it again")
    unknown = next((name for name in sorted(names) if "lora_" in name and not name.endswith((A, B))), None)
    if unknown is not None:
        raise ModelFileError(f"{path}: a tensor must end in {A} or {B}, but is {unknown[:80]!r}; it is not supported")
    updates = {}
    for module in sorted(pairs):
        a, b = source.get(names[module + A]), source.get(names[module + B])
        if a.dim() != b.dim() or a.dim() < 2 or a.shape[0] != rank or b.shape[1] != rank or b[0, 0].numel() != 1:
            raise ModelFileError(
                f"{path}: {module!r} must have matrices of rank {rank}, but they have the shapes {tuple(a.shape)} and "
                f"{tuple(b.shape)}; it is not supported"
            )
        updates[module] = Update(a, b, scale)
    kept = {name: source.get(stored) for name, stored in names.items() if "lora_" not in name}
    for tensor in (*kept.values(), *(part for update in updates.values() for part in (update.a, update.b))):
        if not is_finite(tensor):
            raise ModelFileError(
                f"{path}: tensors must be finite, but one has NaN or infinite values; download it again"
            )
    return updates, kept


def apply_adapter(adapter: Adapter, base: Pretrained) -> Pretrained:
    """Return a model with the updates of an adapter; the network of the base is changed."""
    base = _with_head(adapter, base)
    mappings = {name: mapping for mapping in _mappings(base) for name in mapping.hf_names}
    updates = {
        _known(adapter, f"{module}.weight", mappings, base.family): tensor for module, tensor in adapter.updates.items()
    }
    saved = {_known(adapter, name, mappings, base.family): tensor for name, tensor in adapter.saved.items()}
    parameters = dict(base.network.named_parameters())
    with torch.no_grad():
        for mapping in dict.fromkeys(mappings[name] for name in (*updates, *saved)):
            parameter = parameters.get(mapping.name)
            if parameter is None:
                raise ModelFileError(
                    f"{adapter.path}: the model has no {mapping.hf_names[0]!r}, which the adapter changes"
                )
            _change(adapter, mapping, parameter, updates, saved)
    return base


def _change(
    adapter: Adapter,
    mapping: WeightMapping,
    parameter: nn.Parameter,
    updates: Mapping[str, Update],
    saved: Mapping[str, Tensor],
) -> None:
    """Add the updates of the tensors of which a parameter is composed, or replace it."""
    stored = mapping.store(parameter)

    def changed(name: str) -> Tensor:
        update, value = updates.get(name), saved.get(name, stored[name])
        shape = value.shape if update is None else update.shape[::-1] if mapping.transpose else update.shape
        for actual in (tuple(value.shape), tuple(shape)):
            if actual != tuple(stored[name].shape):
                raise RuntimeError(f"{actual} instead of {tuple(stored[name].shape)}")
        if update is None:
            return value
        product = update.product()
        return value + (product.t() if mapping.transpose else product)

    try:
        parameter.copy_(mapping.load(changed))
    except RuntimeError as error:
        raise ModelFileError(
            f"{adapter.path}: {mapping.hf_names[0]!r} must have the shape of the model, but has another one ({error}); "
            "name the model that the adapter was trained on with --base"
        ) from error


def _known(adapter: Adapter, name: str, mappings: Mapping[str, Any], family: Family) -> str:
    """Return the name of a tensor in the mappings: adapters of a network without a head have no prefix."""
    for candidate in (name, family.prefix + name, name.removeprefix(family.prefix)):
        if candidate in mappings:
            return candidate
    raise ModelFileError(
        f"{adapter.path}: an adapter of a {family.name} must change its linear layers or its head, but {name[:80]!r} "
        "is none of them; such an adapter is not supported"
    )


def _mappings(pretrained: Pretrained) -> list[WeightMapping]:
    return family_with_head(pretrained.family, pretrained.head).mappings(pretrained.config)


def family_with_head(family: Family, head: Any) -> Family:
    """Return a family that maps the head of a network too."""
    if isinstance(head, Head):
        return with_head(family, head)
    return with_image_head(family, head) if isinstance(head, ImageHead) else family


def _with_head(adapter: Adapter, base: Pretrained) -> Pretrained:
    """Return the base with the head that a config.json beside the adapter describes, if there is one."""
    path = adapter.path.with_name("config.json")
    if not path.is_file() or base.family is None:
        return base
    read = read_image_head if base.family.name in CLASSES else read_head
    head = read(path, base.family, read_object(path))
    if head is None or head == base.head:
        return base
    if isinstance(head, Head) and base.family.name in HEADS:
        bert = base.network.get_submodule("bert")
        network = build_network(head, base.config, bert.get_parameter("embedding.weight").shape[0])
        network.get_submodule("bert").load_state_dict(bert.state_dict(), strict=False)  # without a pooler
    else:
        encoder: Any = base.network.encoder if isinstance(base.network, ImageClassifier) else base.network
        network = ImageClassifier(encoder, len(head.labels))
    task = head.task if isinstance(head, Head) else "image_classification"
    return replace(base, network=network.eval(), task=task, head=head)


def _refusal(path: Path, name: str, rule: str, value: Any) -> ModelFileError:
    shown = "missing" if value is None else f"{str(value)[:80]!r}"
    return ModelFileError(f"{path}: {name} must be {rule}, but is {shown}; such an adapter is not supported")
