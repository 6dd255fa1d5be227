"""Sequence-to-sequence architectures by name."""

from dataclasses import dataclass, field
from typing import Literal

from saccade.models.seq2seq.convolution import ConvolutionConfig, ConvolutionTranslator
from saccade.models.seq2seq.decoder_only import DecoderConfig, DecoderOnly
from saccade.models.seq2seq.interface import Seq2Seq, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentConfig, RecurrentTranslator
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.models.seq2seq.universal import UniversalConfig, UniversalTranslator

Architecture = Literal["rnn", "rnn+attention", "convolution", "transformer", "universal", "decoder"]


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Architecture and its shape; only the shape of the chosen architecture is used."""

    architecture: Architecture = "transformer"
    """rnn: one fixed vector for the source; rnn+attention; convolution; transformer; universal: one repeated block;
    decoder: one causal stack, for long sources"""
    transformer: TranslatorConfig = field(default_factory=TranslatorConfig)
    universal: UniversalConfig = field(default_factory=UniversalConfig)
    rnn: RecurrentConfig = field(default_factory=RecurrentConfig)
    convolution: ConvolutionConfig = field(default_factory=ConvolutionConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)


def build(config: Seq2SeqConfig, sizes: Vocabularies) -> Seq2Seq:
    """Return a newly initialized model of the configured architecture."""
    if config.architecture == "transformer":
        return Translator(config.transformer, sizes)
    if config.architecture == "universal":
        return UniversalTranslator(config.universal, sizes)
    if config.architecture == "convolution":
        return ConvolutionTranslator(config.convolution, sizes)
    if config.architecture == "decoder":
        return DecoderOnly(config.decoder, sizes)
    return RecurrentTranslator(config.rnn, sizes, attention=config.architecture == "rnn+attention")
