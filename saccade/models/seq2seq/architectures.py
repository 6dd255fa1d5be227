"""The architectures that turn one sequence into another, by name."""

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
    """The shape of each architecture; only that of the chosen one counts."""

    architecture: Architecture = "transformer"
    """rnn: one fixed vector for the source; rnn+attention; convolution; transformer; universal: one block repeated;
    decoder: one causal stack for long sources"""
    transformer: TranslatorConfig = field(default_factory=TranslatorConfig)
    universal: UniversalConfig = field(default_factory=UniversalConfig)
    rnn: RecurrentConfig = field(default_factory=RecurrentConfig)
    convolution: ConvolutionConfig = field(default_factory=ConvolutionConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)


def build(shapes: Seq2SeqConfig, sizes: Vocabularies) -> Seq2Seq:
    """A fresh model of the chosen architecture."""
    if shapes.architecture == "transformer":
        return Translator(shapes.transformer, sizes)
    if shapes.architecture == "universal":
        return UniversalTranslator(shapes.universal, sizes)
    if shapes.architecture == "convolution":
        return ConvolutionTranslator(shapes.convolution, sizes)
    if shapes.architecture == "decoder":
        return DecoderOnly(shapes.decoder, sizes)
    return RecurrentTranslator(shapes.rnn, sizes, attends=shapes.architecture == "rnn+attention")
