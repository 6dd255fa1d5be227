"""Odd but legal checkpoints of image families, compared with transformers: equal to 1e-4, or refused by name.

Add a line to SHAPES to try another one. `python tests/pretrained/odd_images.py` prints the outcome of each.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from saccade.errors import ModelFileError
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.clip import CLIP
from saccade.pretrained.config_json import read_config
from saccade.pretrained.exports.hf import write_network
from saccade.pretrained.families.image_heads import image_head_fields, read_image_head, with_image_head
from saccade.pretrained.opening import read_network

VOCABULARY, TOKENS = 61, 9
GENERATOR = torch.Generator().manual_seed(3)
IDS = torch.randint(2, VOCABULARY - 1, (3, TOKENS), generator=GENERATOR)
KEEP = torch.arange(TOKENS) < torch.tensor([[TOKENS], [5], [2]])
EOS, PAD = VOCABULARY - 1, 1
VIT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "image_size": 24,
    "patch_size": 6,
}
VISION = {**VIT, "image_size": 20, "patch_size": 5}
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 18,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 30,
    "max_position_embeddings": 12,
    "eos_token_id": EOS,
    "bos_token_id": 0,
    "pad_token_id": PAD,
}
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class OddImages:
    """A checkpoint: a class of transformers with its config, and changes of the files it saves."""

    name: str
    model: str
    config: dict[str, Any]
    size: tuple[int, int] = (0, 0)
    """height and width of the pictures; (0, 0): those of the config"""
    edit: dict[str, Any] = field(default_factory=dict)
    """changes of config.json after saving, None removes a field"""
    weights: Callable[[Tensors], Tensors] | None = None
    """changes of the tensors after saving"""
    refused: str = ""
    """the message that names what is not supported; empty: must be equal"""


def _shapes(model: str, base: dict[str, Any], *cases: tuple[Any, ...]) -> list[OddImages]:
    """Return cases of one class: (name, changes of the config, picture size, edit, change of weights or message)."""
    kinds = {tuple: "size", dict: "edit", str: "refused"}
    return [
        OddImages(
            f"{model}: {name}",
            model,
            _merged(base, changes),
            **{kinds.get(type(value), "weights"): value for value in more},
        )
        for name, changes, *more in cases
    ]


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge nested configs."""
    nested = {key: {**base[key], **value} for key, value in changes.items() if isinstance(base.get(key), dict)}
    return {**base, **changes, **nested}


def _current_names(tensors: Tensors) -> Tensors:
    """Return the names that transformers gives the modules of a ViT today, which some checkpoints have."""
    changes = (
        ("encoder.layer.", "layers."),
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
    )
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in changes:
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


def _without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: value for key, value in tensors.items() if not key.endswith(name)}


ENCODER_CASES: tuple[tuple[Any, ...], ...] = (
    ("plain", {}),
    *((act, {"hidden_act": act}) for act in ("relu", "gelu_new", "silu", "gelu_pytorch_tanh", "quick_gelu")),
    ("tanh", {"hidden_act": "tanh"}, "the activation must be one of"),
    ("one layer", {"num_hidden_layers": 1}),
    ("five layers", {"num_hidden_layers": 5}),
    ("odd heads", {"hidden_size": 15, "num_attention_heads": 5}),
    ("one head", {"num_attention_heads": 1}),
    ("epsilon 0", {"layer_norm_eps": 0.0}),
    ("epsilon 0.1", {"layer_norm_eps": 0.1}),
    ("no bias of queries", {"qkv_bias": False}),
    ("patch 14", {"image_size": 42, "patch_size": 14}),
    ("patch 1", {"image_size": 4, "patch_size": 1}),
    ("one patch", {"image_size": 6}),
    ("size that is no multiple", {"image_size": 29}),
    ("non-square images", {"image_size": [24, 36]}),
    ("wide images", {"image_size": [12, 60]}),
    ("pair of equal sides", {"image_size": [24, 24], "patch_size": [6, 6]}),
    ("larger picture", {}, (36, 36)),
    ("smaller picture", {}, (12, 12)),
    ("wide picture", {}, (18, 48)),
    ("picture that is no multiple", {}, (31, 25)),
    ("as many patches in another shape", {}, (12, 48)),
    ("head width", {"head_dim": 10}),
    ("non-square patches", {"image_size": 24, "patch_size": [6, 4]}, "patch_size must be a square"),
    ("grey pictures", {"num_channels": 1}, "num_channels must be 3"),
    ("one name", {}, {"id2label": {"0": "a"}}, "at least 2 labels"),
    ("several labels", {"problem_type": "multi_label_classification"}, "problem_type must be single_label"),
    ("five labels", {"num_labels": 5}),
    ("repeated names", {"num_labels": 3}, {"id2label": {"0": "crane", "1": "cat", "2": "crane"}}),
    ("missing tensor", {}, _without("layernorm.weight"), "layernorm.weight' is missing"),
)
CLIP_CASES: tuple[tuple[Any, ...], ...] = (
    ("plain", {}),
    *(
        (f"{side} {act}", {f"{side}_config": {"hidden_act": act}})
        for side in ("text", "vision")
        for act in ("gelu", "relu", "gelu_new", "quick_gelu")
    ),
    ("one layer each", {"text_config": {"num_hidden_layers": 1}, "vision_config": {"num_hidden_layers": 1}}),
    ("epsilon", {"text_config": {"layer_norm_eps": 0.1}, "vision_config": {"layer_norm_eps": 0.01}}),
    ("patch 14", {"vision_config": {"image_size": 28, "patch_size": 14}}),
    ("odd heads", {"vision_config": {"hidden_size": 15, "num_attention_heads": 5}, "text_config": {"hidden_size": 9}}),
    ("larger picture", {}, (35, 35)),
    ("wide picture", {}, (15, 40)),
    ("tanh", {"vision_config": {"hidden_act": "tanh"}}, "the activation must be one of"),
    ("grey pictures", {"vision_config": {"num_channels": 1}}, "num_channels must be 3"),
    ("size as text", {}, {"vision_config": {**VISION, "image_size": "20"}}, "image_size must be int, but is '20'"),
    ("missing tensor", {}, _without("logit_scale"), "logit_scale' is missing"),
)
CLIP_BASE = {"text_config": TEXT, "vision_config": VISION, "projection_dim": 16}
SIGLIP_BASE = {"text_config": {**TEXT, "hidden_size": 24}, "vision_config": VISION}

SHAPES: list[OddImages] = [
    *_shapes("ViTForImageClassification", VIT, *ENCODER_CASES),
    *_shapes(
        "ViTForImageClassification",
        VIT,
        ("names of today", {}, _current_names),
        ("masked images", {}, {"architectures": ["ViTForMaskedImageModeling"]}, "but is 'ViTForMaskedImageModeling'"),
    ),
    *_shapes("ViTModel", VIT, ("plain", {}), ("names of today", {}, _current_names)),
    *_shapes("DeiTForImageClassification", VIT, *(case for case in ENCODER_CASES if "missing" not in case[0])),
    *_shapes("DeiTForImageClassificationWithTeacher", VIT, ("plain", {}), ("five labels", {"num_labels": 5})),
    *_shapes("DeiTModel", VIT, ("plain", {})),
    *_shapes(
        "CLIPModel",
        CLIP_BASE,
        *CLIP_CASES,
        ("projection 7", {"projection_dim": 7}),
        ("first checkpoints", {"text_config": {"eos_token_id": 2}}),
        ("another end", {"text_config": {"eos_token_id": 5}}),
        ("config in a dict", {}, {"text_config": {}, "text_config_dict": TEXT, "vision_config_dict": None}),
        (
            "classifier",
            {},
            {"architectures": ["CLIPForImageClassification"]},
            "architectures must be one of CLIPModel, but is 'CLIPForImageClassification'",
        ),
    ),
    *_shapes(
        "SiglipModel",
        SIGLIP_BASE,
        *(case for case in CLIP_CASES if case[0] != "odd heads"),
        ("another padding", {"text_config": {"pad_token_id": 7}}),
        (
            "odd heads",
            {"vision_config": {"hidden_size": 15, "num_attention_heads": 5}, "text_config": {"hidden_size": 15}},
        ),
        ("another text width", {"text_config": {"hidden_size": 18, "projection_size": 24}}),
        (
            "no attention pooling",
            {},
            {"vision_config": {**VISION, "vision_use_head": False}},
            "vision_use_head must be True",
        ),
    ),
]


def save(shape: OddImages, folder: Path) -> None:
    """Save a model with random weights as transformers does, then change its files."""
    kind = getattr(transformers, shape.model)
    torch.manual_seed(1)
    model = kind(kind.config_class(**shape.config)).eval()
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.normal_(std=0.3)
    model.save_pretrained(folder)
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **shape.edit}
    path.write_text(json.dumps({key: value for key, value in values.items() if shape.edit.get(key, 0) is not None}))
    if shape.weights is not None:
        tensors = shape.weights(load_file(folder / "model.safetensors"))
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def picture_size(shape: OddImages) -> tuple[int, int]:
    size = shape.size if shape.size != (0, 0) else shape.config.get("vision_config", shape.config)["image_size"]
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def pictures(shape: OddImages) -> torch.Tensor:
    """Return three pictures (3, 3, H, W)."""
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, 256, (3, 3, *picture_size(shape)), dtype=torch.uint8, generator=generator)


def texts(shape: OddImages) -> torch.Tensor:
    """Return ids (3, T) as transformers' processor gives them: with an end, and padded as the model was trained."""
    config = shape.config["text_config"]
    pad, eos = config["pad_token_id"], config["eos_token_id"]
    end = EOS if eos == 2 else eos
    ids = IDS.where(KEEP, pad)
    ids[torch.arange(3), KEEP.sum(1) - 1] = end
    if shape.model == "SiglipModel":
        ids = torch.nn.functional.pad(ids, (0, config["max_position_embeddings"] - TOKENS), value=pad)
    return ids


@torch.no_grad()
def expected_outputs(shape: OddImages, folder: Path, values: torch.Tensor) -> list[torch.Tensor]:
    """Return what transformers computes from a folder for normalized pictures."""
    model = getattr(transformers, shape.model).from_pretrained(folder).eval()
    other = {"interpolate_pos_encoding": True} if shape.size != (0, 0) else {}
    if "text_config" in shape.config:
        mask = {"attention_mask": KEEP.long()} if shape.model == "CLIPModel" else {}
        out = model(input_ids=texts(shape), pixel_values=values, **mask, **other)
        return [out.image_embeds, out.text_embeds, out.logits_per_image]
    out = model(values, output_hidden_states=True, **other)
    return [*out.hidden_states[:-1], out.last_hidden_state if "last_hidden_state" in out else out.logits]


@torch.no_grad()
def our_outputs(shape: OddImages, network: torch.nn.Module) -> list[torch.Tensor]:
    """Return the same from our network."""
    if isinstance(network, CLIP):
        images, words = network.image_vectors(pictures(shape)), network.text_vectors(texts(shape)[:, :TOKENS], KEEP)
        return [images, words, network.logits(images, words)]
    states: list[torch.Tensor] = []
    out = network(pictures(shape), states=states)
    return [*states[:-1], out]


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Return the largest difference; infinity where the outputs are not the same ones."""
    if [value.shape for value in ours] != [value.shape for value in theirs]:
        return float("inf")
    values = [float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)]
    return max(value if value == value else float("inf") for value in values)


def try_shape(shape: OddImages, folder: Path) -> tuple[str, str]:
    """Return 'equal', 'refused' or 'differs' with the largest difference or the message; both directions if equal."""
    save(shape, folder / "theirs")
    try:
        loaded = read_network(folder / "theirs")
    except ModelFileError as error:
        return "refused", str(error)
    network = loaded.network
    encoder = network.encoder if isinstance(network, ImageClassifier) else network
    values = (network.vision if isinstance(network, CLIP) else encoder).normalize(pictures(shape))
    theirs = expected_outputs(shape, folder / "theirs", values)
    largest = difference(our_outputs(shape, network), theirs)
    if largest <= 1e-4:
        family, _, content = read_config(folder / "theirs")
        head = read_image_head(folder / "theirs" / "config.json", family, content)
        extra: dict[str, Any] = {}
        if head is not None:
            family, extra = with_image_head(family, head), image_head_fields(head)
        write_network(network, loaded.config, family, folder / "ours", extra)
        largest = max(largest, difference(expected_outputs(shape, folder / "ours", values), theirs))
    return ("equal" if largest <= 1e-4 else "differs"), f"{largest:.1e}"


def main() -> int:
    """Print the outcome of every shape and a count of each."""
    counts: dict[str, int] = {}
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            outcome, detail = try_shape(shape, Path(folder))
        counts[outcome] = counts.get(outcome, 0) + 1
        unexpected = (outcome == "refused") != bool(shape.refused) or outcome == "differs"
        print(f"{outcome:8} {shape.name}: {detail[-160:]}{'  UNEXPECTED' if unexpected else ''}")
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), f"of {len(SHAPES)}")
    return 1 if counts.get("differs") else 0


if __name__ == "__main__":
    sys.exit(main())
