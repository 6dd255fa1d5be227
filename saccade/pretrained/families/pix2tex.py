"""pix2tex of the catalogue: pictures of formulas to LaTeX (https://github.com/lukas-blecher/LaTeX-OCR)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from saccade.data.images.formulas import MULTIPLE
from saccade.models.seq2seq.transformer import EmbeddedConfig
from saccade.models.vision.pix2tex import Pix2Tex, Pix2TexConfig
from saccade.nn.transformer import TransformerConfig
from saccade.pretrained.families.family import Family, Names
from saccade.pretrained.families.mapping import GetTensor, WeightMapping, weight_and_bias
from saccade.pretrained.formula_processor import FormulaProcessor, read_formula_processor

EPSILON = 1e-6  # of the standardized weights and the norms of the encoder
HEAD_DIM = 64  # of the decoder
DECODER_ARGS = {
    "attn_on_attn": True,
    "cross_attend": True,
    "ff_glu": True,
    "rel_pos_bias": False,
    "use_scalenorm": False,
}


@dataclass(frozen=True)
class Pix2TexFields:
    """Fields of config.json, which the catalogue writes; the names are those of pix2tex."""

    num_tokens: int = 8000
    dim: int = 256
    encoder_depth: int = 4
    num_layers: int = 4
    heads: int = 8
    backbone_layers: list[int] = field(default_factory=lambda: [2, 3, 7])
    max_height: int = 192
    max_width: int = 672
    min_height: Literal[32] = 32
    min_width: Literal[32] = 32
    max_seq_len: int = 512
    bos_token: int = 1
    eos_token: int = 2
    channels: Literal[1] = 1
    patch_size: Literal[16] = 16
    encoder_structure: Literal["hybrid"] = "hybrid"
    decoder_args: dict[str, Any] = field(default_factory=lambda: dict(DECODER_ARGS))


@dataclass(frozen=True)
class StandardizedWeight(WeightMapping):
    """The weight of a convolution with mean 0 and variance 1 for each output (https://arxiv.org/abs/1903.10520)."""

    def load(self, get: GetTensor) -> Tensor:
        weight = get(self.hf_names[0])
        variance, mean = torch.var_mean(weight, dim=(1, 2, 3), correction=0, keepdim=True)
        return (weight - mean) / (variance + EPSILON).sqrt()


@dataclass(frozen=True)
class SwappedHalves(WeightMapping):
    """A gated layer whose second half is the gate, which is our first one."""

    def load(self, get: GetTensor) -> Tensor:
        value, gate = get(self.hf_names[0]).chunk(2)
        return torch.cat((gate, value))


def read_config(fields: Pix2TexFields, _: Names) -> Pix2TexConfig:
    for name in {**DECODER_ARGS, **fields.decoder_args}:
        if name not in DECODER_ARGS or fields.decoder_args.get(name) is not DECODER_ARGS[name]:
            rule = f"decoder_args must be {DECODER_ARGS}"
            raise ValueError(f"{rule}, but {name[:80]} is {str(fields.decoder_args.get(name, 'missing'))[:80]}")
    if len(fields.backbone_layers) != 3:
        raise ValueError(f"backbone_layers must be 3 numbers of blocks, but is {str(fields.backbone_layers)[:80]}")
    for name in ("max_height", "max_width"):
        if getattr(fields, name) % MULTIPLE:
            raise ValueError(f"{name} must be a multiple of {MULTIPLE}, but is {getattr(fields, name)}")
    shape: dict[str, Any] = {"dim": fields.dim, "heads": fields.heads, "hidden": 4 * fields.dim}
    shape |= {"norm": "layer", "score": "scaled_dot", "bias": True, "dropout": 0.0, "inner_dropout": False}
    encoder = TransformerConfig(
        depth=fields.encoder_depth, activation="gelu", epsilon=EPSILON, position="none", **shape
    )
    decoder = EmbeddedConfig(
        depth=fields.num_layers,
        head_dim=HEAD_DIM,
        activation="geglu",
        position="learned",
        max_positions=fields.max_seq_len,
        embedding_dropout=0.0,
        head_bias=True,
        embedding_norm=False,
        **shape,
    )
    blocks = tuple(fields.backbone_layers)
    return Pix2TexConfig(encoder, decoder, blocks, fields.max_height, fields.max_width, fields.num_tokens)


def write_config(config: Pix2TexConfig, _: nn.Module) -> dict[str, Any]:
    raise ValueError("transformers has no pix2tex")


def build(config: Pix2TexConfig, fields: Any, _: Names) -> nn.Module:
    return Pix2Tex(config)


def body(config: Pix2TexConfig) -> list[WeightMapping]:
    return [*convolutions(config), *encoder(config), *decoder(config)]


def normalized(name: str, convolution: str, norm: str) -> list[WeightMapping]:
    """Map a convolution and its norm."""
    weight = StandardizedWeight(f"encoder.{name}.convolution.weight", (f"{convolution}.weight",))
    return [weight, *weight_and_bias(f"encoder.{name}.norm", norm)]


def convolutions(config: Pix2TexConfig) -> list[WeightMapping]:
    backbone, number = "encoder.patch_embed.backbone", 0
    mappings = normalized("stem", f"{backbone}.stem.conv", f"{backbone}.stem.norm")
    for stage, blocks in enumerate(config.blocks):
        for block in range(blocks):
            ours, theirs = f"blocks.{number}", f"{backbone}.stages.{stage}.blocks.{block}"
            for part, name in enumerate(("reduce", "transform", "expand"), start=1):
                mappings += normalized(f"{ours}.{name}", f"{theirs}.conv{part}", f"{theirs}.norm{part}")
            if not block:
                mappings += normalized(f"{ours}.shortcut", f"{theirs}.downsample.conv", f"{theirs}.downsample.norm")
            number += 1
    return mappings


def encoder(config: Pix2TexConfig) -> list[WeightMapping]:
    dim = config.encoder.dim
    mappings = [
        WeightMapping("encoder.token", ("encoder.cls_token",), shapes=((1, 1, dim), (1, dim))),
        WeightMapping("encoder.position.table", ("encoder.pos_embed",), squeeze=True),
        *weight_and_bias("encoder.project", "encoder.patch_embed.proj"),
        *weight_and_bias("encoder.encoder.norm", "encoder.norm"),
    ]
    for layer in range(config.encoder.depth):
        ours, theirs = f"encoder.encoder.{layer}", f"encoder.blocks.{layer}"
        mappings += weight_and_bias(f"{ours}.self.qkv", f"{theirs}.attn.qkv")
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.attn.proj")
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.norm1")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.mlp.fc1")
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.mlp.fc2")
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.norm2")
    return mappings


def decoder(config: Pix2TexConfig) -> list[WeightMapping]:
    net, inner = "decoder.net", config.decoder.heads * config.decoder.head_width
    mappings = [
        WeightMapping("target.weight", (f"{net}.token_emb.weight",)),
        WeightMapping("decoder.position.table.weight", (f"{net}.pos_emb.emb.weight",)),
        *weight_and_bias("decoder.norm", f"{net}.norm"),
        *weight_and_bias("head", f"{net}.to_logits"),
    ]
    for layer in range(config.decoder.depth):
        ours = f"decoder.{layer}"
        own, cross, feed = (f"{net}.attn_layers.layers.{3 * layer + part}" for part in range(3))
        qkv, kv = ([f"{name}.1.to_{part}.weight" for part in parts] for name, parts in ((own, "qkv"), (cross, "kv")))
        mappings += [
            WeightMapping(f"{ours}.self.qkv.weight", tuple(qkv), rows=(inner,) * 3),
            WeightMapping(f"{ours}.cross.q.weight", (f"{cross}.1.to_q.weight",)),
            WeightMapping(f"{ours}.cross.kv.weight", tuple(kv), rows=(inner,) * 2),
            *weight_and_bias(f"{ours}.self.out.0", f"{own}.1.to_out.0"),
            *weight_and_bias(f"{ours}.cross.out.0", f"{cross}.1.to_out.0"),
            SwappedHalves(f"{ours}.feed.up.weight", (f"{feed}.1.net.0.proj.weight",)),
            SwappedHalves(f"{ours}.feed.up.bias", (f"{feed}.1.net.0.proj.bias",)),
            *weight_and_bias(f"{ours}.feed.down", f"{feed}.1.net.2"),
        ]
        for name, sublayer in (("self", own), ("cross", cross), ("feed", feed)):
            mappings += weight_and_bias(f"{ours}.{name}_residual.norm", f"{sublayer}.0")
    return mappings


def read_processor(folder: Path, values: Mapping[str, Any]) -> FormulaProcessor:
    return read_formula_processor(folder, {**asdict(Pix2TexFields()), **values})


FAMILY = Family(
    name="pix2tex",
    fields=Pix2TexFields,
    config=Pix2TexConfig,
    task=lambda _: "reading",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(),
    prefix="",
    network_prefix="",
    architecture=lambda _: "Pix2Tex",
    read_processor=read_processor,
    write_processor=None,
)
