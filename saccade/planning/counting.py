"""Counting: parameters of the real modules of saccade/models, built on the meta device, plus named terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from saccade.config import from_json
from saccade.models import presets
from saccade.models.seq2seq.interface import Vocabularies
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.models.text.bert import Bert, BertConfig
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.planning.shapes import Architecture

RELATIVE = "relative-position projection of each layer"


@dataclass(frozen=True)
class Count:
    """The parameters of an architecture."""

    module: int
    """of the real module"""
    terms: dict[str, int]
    """what the real module does not have, by name"""

    @property
    def total(self) -> int:
        return self.module + sum(self.terms.values())


def build(architecture: Architecture, device: str = "meta") -> nn.Module:
    """Return the real module of an architecture, on the meta device: it takes no memory."""
    shape = {"dim": architecture.dim, "depth": architecture.depth, "heads": architecture.heads}
    shape |= {"hidden": architecture.feed_forward}
    with torch.device(device):
        if architecture.kind == "seq2seq":
            settings = presets.TRANSLATION["base"]["model"]["transformer"] | shape
            settings |= {"decoder_depth": architecture.depth, **architecture.settings}
            sizes = Vocabularies(architecture.vocabulary, architecture.vocabulary, joint=True)
            return Translator(from_json(TranslatorConfig, settings), sizes)
        shape |= {"max_positions": architecture.context}
        if architecture.kind == "encoder":
            settings = presets.BERT["bert-base"] | shape | architecture.settings
            return Bert(from_json(BertConfig, settings), architecture.vocabulary)
        settings = presets.GPT["gpt2"] | shape | architecture.settings
        return GPT(from_json(GPTConfig, settings), architecture.vocabulary)


def count(architecture: Architecture) -> Count:
    """Count the parameters of an architecture; one that is shared by several layers counts once."""
    terms = dict(architecture.extra)
    if architecture.relative:  # W_kR of Transformer-XL, https://arxiv.org/abs/1901.02860, equation in section 3.3
        terms[RELATIVE] = architecture.depth * architecture.dim**2
    return Count(parameters(build(architecture)), terms)


def usual_count(architecture: Architecture) -> int:
    """Return the count of a model of this shape as GPT-2 or BERT has it, without relative-position projections."""
    if architecture.kind == "decoder":
        return parameters(build(replace(architecture, settings={})))
    counted = count(architecture)
    return counted.total - counted.terms.get(RELATIVE, 0)


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
