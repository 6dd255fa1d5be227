"""The two encoders of an image-text model in the assets of a run: from scratch, pretrained, or those of a CLIP."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from saccade.atomic_io import read_json, write_json
from saccade.config import from_json, to_json
from saccade.core import Base, Pretrained
from saccade.data.images.decoded import DecodedPictures
from saccade.errors import UsageError
from saccade.models.text.bert import Bert, BertConfig
from saccade.models.vision.clip import CLIP, BertText, CLIPConfig, TextEncoder, TextTransformer
from saccade.models.vision.grid_transformer import GridTransformer
from saccade.pretrained.opening import open_pretrained
from saccade.tasks._vision.encoders import read_encoder, tune, write_encoder
from saccade.tasks._vision.texts import TOKENIZER, write_tokenizer

CLIP_CONFIG, CLIP_WEIGHTS = "clip.json", "clip.safetensors"
TEXT_CONFIG, TEXT_WEIGHTS = "text.json", "text.safetensors"


def write_towers(
    config: Any, size: int, images: DecodedPictures, captions: Iterable[str], assets: Path, base: Base
) -> list[str]:
    """Write shapes, tokenizer and the weights of pretrained encoders to the assets; returns notes for the user."""
    if base is not None and isinstance(base.network, CLIP):
        return _write_clip(config, base, assets)
    notes = write_encoder(config, config.encoder, size, images, assets, base)
    if config.text_base:
        return [*notes, *_write_text(config.text_base, open_pretrained(config.text_base), assets)]
    return [*notes, *write_tokenizer(captions, config.vocabulary_size, assets)]


def _write_clip(config: Any, base: Pretrained, assets: Path) -> list[str]:
    """Write a CLIP with its tokenizer."""
    if config.text_base:
        raise UsageError(
            f"text_base must be left out where base is a model of images and texts, but is {config.text_base}"
        )
    network, tokenizer = base.network, base.processor.text.tokenizer
    vocabulary = network.get_parameter("text.embedding.weight").shape[0]
    write_json(assets / CLIP_CONFIG, {"config": to_json(base.config), "vocabulary": vocabulary})
    _save(network, assets / CLIP_WEIGHTS)
    tokenizer.save(assets / TOKENIZER)
    return [_described("base", config.base, base, network)]


def _write_text(ref: str, base: Pretrained, assets: Path) -> list[str]:
    """Write a BERT with its tokenizer."""
    bert = getattr(base.network, "bert", None)
    if not isinstance(bert, Bert):
        kind = base.task if base.family is None else base.family.name
        raise UsageError(f"text_base must be an encoder of texts such as BERT, but {ref} is a {kind}")
    vocabulary, shape = bert.embedding.num_embeddings, to_json(bert.config)
    write_json(assets / TEXT_CONFIG, {"config": {**shape, "pooler": False}, "vocabulary": vocabulary})
    bert.pooler = None
    _save(bert, assets / TEXT_WEIGHTS)
    base.processor.tokenizer.save(assets / TOKENIZER)
    return [_described("text_base", ref, base, bert)]


def _save(network: nn.Module, path: Path) -> None:
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, path)


def _described(setting: str, ref: str, base: Pretrained, network: nn.Module) -> str:
    count = sum(value.numel() for value in network.parameters())
    kind = base.task if base.family is None else base.family.name
    return f"{setting}: {ref}, {kind}, {count / 1e6:.1f} M parameters"


def read_towers(config: Any, assets: Path, vocabulary: int) -> CLIP:
    """Return the network that `write_towers` described, with the weights of pretrained encoders."""
    if (assets / CLIP_CONFIG).exists():
        return _read_clip(config, assets)
    vision = GridTransformer(read_encoder(config, assets), config.image)
    text = _read_text(config, assets, vocabulary)
    return CLIP(vision, text, CLIPConfig(projection=config.projection, loss=config.loss))


def _read_clip(config: Any, assets: Path) -> CLIP:
    described = read_json(assets / CLIP_CONFIG)
    network = CLIP.from_config(from_json(CLIPConfig, described["config"]), described["vocabulary"])
    if not next(network.parameters()).is_meta:
        network.load_state_dict(load_file(assets / CLIP_WEIGHTS))
    for encoder in (network.vision, network.text):
        tune(encoder, config.tune, config.rank)
    return network


def _read_text(config: Any, assets: Path, vocabulary: int) -> TextEncoder:
    if not config.text_base:
        return TextTransformer(config.text, vocabulary)
    described = read_json(assets / TEXT_CONFIG)
    bert = Bert(from_json(BertConfig, described["config"]), described["vocabulary"])
    if not next(bert.parameters()).is_meta:
        bert.load_state_dict(load_file(assets / TEXT_WEIGHTS))
    return BertText(bert, dropout=config.text.dropout)
