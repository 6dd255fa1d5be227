"""Settings, options and metrics of sequence-to-sequence tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.core import Metric
from saccade.data.formats.bitext import PairSettings
from saccade.decode.search import Search
from saccade.models.seq2seq.architectures import Seq2SeqConfig

METRICS = {
    metric.name: metric
    for metric in (
        Metric("bleu", True, "BLEU"),
        Metric("bleu_lowercase", True, "BLEU"),
        Metric("chrf", True, "chrF"),
        Metric("exact", True, "%"),
        Metric("token_error", False, "%"),
        Metric("rouge1", True, "ROUGE"),
        Metric("rouge2", True, "ROUGE"),
        Metric("rougeL", True, "ROUGE"),
        Metric("loss", False, "nats per token"),
        Metric("pairs", None, "pairs"),
    )
}
"""every value that `evaluate` of a sequence-to-sequence task returns"""


@dataclass(frozen=True)
class TranslationConfig:
    """All settings of a translation model except those of the training loop."""

    model: Seq2SeqConfig = field(default_factory=Seq2SeqConfig)
    data: PairSettings = field(default_factory=PairSettings)
    search: Search = field(default_factory=Search)
    batch_tokens: int = 3000
    """source and target tokens per step, padding included"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same"""
    label_smoothing: float = 0.1
    """label smoothing: probability mass that is distributed evenly over all tokens"""
    consistency: float = 0.0
    """weight of the divergence between two passes under different dropout (R-Drop): twice the work per step, better
    scores on small data in long runs"""

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.consistency and any(getattr(shape, "head_bias", False) for shape in vars(self.model).values()):
            raise ValueError("head_bias must be false with consistency, but is true")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, but is {self.label_smoothing}")
        if self.consistency < 0:
            raise ValueError(f"consistency must be 0 or more, but is {self.consistency}")
        for name in ("transformer", "universal"):
            shape, max_length = getattr(self.model, name), self.data.max_length
            if shape.position == "learned" and shape.max_positions <= max_length:
                raise ValueError(
                    f"model.{name}.max_positions must be above data.max_length ({max_length}) for learned positions, "
                    f"but is {shape.max_positions}"
                )


@dataclass(frozen=True)
class TranslationOptions(Search):
    """Options of a translation."""

    prefix: str = ""
    """start of the output"""
    target: str = ""
    """score this translation and show the model's prediction after each of its tokens (teacher forcing)"""
    attention: bool = True
    """keep the attention of every layer and head"""
