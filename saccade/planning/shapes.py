"""Published architectures as data: the eleven rows of "Scaling up Transformers", each with its paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from saccade.errors import UsageError, suggest

Kind = Literal["seq2seq", "encoder", "decoder"]


@dataclass(frozen=True)
class Training:
    """The hardware and the time of a published training run."""

    device: str
    count: int
    hours: float | None
    """None: not published"""
    published: str
    """as the paper states it"""
    price: float = 0.0
    """dollars per device and hour, where the table has a price"""


@dataclass(frozen=True)
class Architecture:
    """The shape of a published model."""

    title: str
    kind: Kind
    depth: int
    """layers; of a seq2seq those of the encoder, and again of the decoder"""
    dim: int
    """width of the residual stream"""
    heads: int
    vocabulary: int
    context: int
    """tokens of a sequence in training"""
    stated: float
    """number of parameters in the table"""
    stated_text: str
    reason: str
    """why the count differs from what is stated, or what it rests on"""
    paper: str
    hidden: int = 0
    """inner width of the feed-forward layers; 0: 4 times dim"""
    relative: bool = False
    """each layer projects relative positions by a matrix (dim x dim), as in Transformer-XL"""
    settings: dict[str, object] = field(default_factory=dict)
    """settings of the real module that differ from those of GPT-2, BERT or the Transformer"""
    extra: dict[str, int] = field(default_factory=dict)
    """parameters that the real module does not have, by name, besides the relative-position projection"""
    data: str = ""
    tokens: float = 0.0
    """tokens of training, source and target of a pair together; 0: not published"""
    training: Training | None = None

    @property
    def layers(self) -> int:
        """Number of layers as the table counts them: encoder and decoder together."""
        return 2 * self.depth if self.kind == "seq2seq" else self.depth

    @property
    def feed_forward(self) -> int:
        return self.hidden or 4 * self.dim


def _decoder(title: str, depth: int, dim: int, heads: int, **others: object) -> Architecture:
    """Return a decoder-only model; by default with the vocabulary and the context of GPT-2."""
    defaults: dict[str, object] = {"vocabulary": 50257, "context": 1024}
    return Architecture(title, "decoder", depth, dim, heads, **{**defaults, **others})  # type: ignore[arg-type]


ARCHITECTURES: dict[str, Architecture] = {
    "transformer-base": Architecture(
        *("Transformer-Base", "seq2seq", 6, 512, 8, 37000, 25),
        stated=65e6,
        stated_text="65M",
        reason="counted with one matrix for source, target and output of 37,000 tokens; 6 + 6 layers and 8 heads of "
        "64 (with 6 heads, as is sometimes said, 512 would not be a multiple of them)",
        paper="https://arxiv.org/abs/1706.03762",
        tokens=100_000 * 50_000,  # section 5: steps; 25,000 source and 25,000 target tokens in a batch
        training=Training("p100", 8, 12.0, "8 x P100, 12 hours"),
    ),
    "transformer-large": Architecture(
        *("Transformer-Large", "seq2seq", 6, 1024, 16, 37000, 25),
        stated=213e6,
        stated_text="213M",
        reason="counted with one matrix for source, target and output of 37,000 tokens",
        paper="https://arxiv.org/abs/1706.03762",
        tokens=300_000 * 50_000,
        training=Training("p100", 8, 84.0, "8 x P100, 3.5 days"),
    ),
    "bert-base": Architecture(
        *("BERT-Base", "encoder", 12, 768, 12, 30522, 512),
        stated=110e6,
        stated_text="110M",
        reason="encoder with pooler, without the pretraining heads",
        paper="https://arxiv.org/abs/1810.04805",
        data="13 GB",
    ),
    "bert-large": Architecture(
        *("BERT-Large", "encoder", 24, 1024, 16, 30522, 512),
        stated=340e6,
        stated_text="340M",
        reason="encoder with pooler; with the pretraining heads it is 336.2M; no count of these shapes gives 340M",
        paper="https://arxiv.org/abs/1810.04805",
        data="13 GB",
    ),
    "xlnet-large": Architecture(
        *("XLNet-Large", "encoder", 24, 1024, 16, 32000, 512),
        stated=340e6,
        stated_text="~340M",
        reason="each layer projects relative positions; without these projections {usual}",
        paper="https://arxiv.org/abs/1906.08237",
        relative=True,
        settings={"position": "none", "segments": 0, "pooler": False},
        # The norm of the embedding (2 d) and the biases of attention (4 d a layer) are not in XLNet, which has three
        # vectors of biases and two of segments in each layer (5 d) and the embedding of the mask (d).
        extra={"segment and position biases of each layer": 24 * 1024, "mask embedding less embedding norm": -1024},
        data="126 GB",
        tokens=500_000 * 2048 * 512,  # first version of the paper: steps, batch, tokens
        training=Training("tpu-v3", 512, 60.0, "512 x TPU v3, 2.5 days"),
    ),
    "roberta": Architecture(
        *("RoBERTa", "encoder", 24, 1024, 16, 50265, 512),
        stated=355e6,
        stated_text="355M",
        reason="encoder with pooler, 514 learned positions",
        paper="https://arxiv.org/abs/1907.11692",
        settings={"segments": 1, "max_positions": 514},
        data="160 GB",
        tokens=100_000 * 8192 * 512,  # section 5: the run that took one day
        training=Training("v100", 1024, 24.0, "1024 x V100, 1 day"),
    ),
    "gpt2": _decoder(
        *("GPT-2", 48, 1600, 25),
        stated=1.5e9,
        stated_text="1.5B",
        reason="25 heads of 64; the number of heads is not in the table",
        paper="https://cdn.openai.com/better-language-models/",
        data="40 GB",
    ),
    "megatron-lm": _decoder(
        *("Megatron-LM", 72, 3072, 32),
        stated=8.3e9,
        stated_text="8.3B",
        reason="vocabulary padded to 51,200",
        paper="https://arxiv.org/abs/1909.08053",
        vocabulary=51200,
        data="174 GB",
        tokens=300_000 * 512 * 1024,
        training=Training("v100", 512, 216.0, "512 x V100, 9 days"),
    ),
    "turing-nlg": _decoder(
        *("Turing-NLG", 78, 4256, 28),
        stated=17e9,
        stated_text="17B",
        reason="vocabulary and context of GPT-2",
        paper="https://www.microsoft.com/en-us/research/blog/turing-nlg-a-17-billion-parameter-language-model"
        "-by-microsoft/",
        tokens=300_000 * 512 * 1024,
        training=Training("v100", 256, None, "256 x V100"),
    ),
    "gpt3": _decoder(
        *("GPT-3", 96, 12288, 96),
        stated=175e9,
        stated_text="175B",
        reason="vocabulary of GPT-2, context 2,048",
        paper="https://arxiv.org/abs/2005.14165",
        context=2048,
        data="694 GB",
        tokens=300e9,
    ),
    "gopher": _decoder(
        *("Gopher", 80, 16384, 128),
        stated=280e9,
        stated_text="280B",
        reason="each layer projects relative positions; the usual count, 12 L d^2 + embeddings, gives {usual}",
        paper="https://arxiv.org/abs/2112.11446",
        vocabulary=32000,
        context=2048,
        relative=True,
        settings={"position": "none", "norm": "rms", "bias": False},
        data="10.55 TB",
        tokens=300e9,
        training=Training("tpu-v3", 4096, 920.0, "4096 x TPU v3, 38 days (920 hours)", price=1.0),
    ),
}


def find_architecture(name: str) -> Architecture:
    """Return a published architecture by its name."""
    if name not in ARCHITECTURES:
        raise UsageError(f"no published model '{name}'{suggest(name, list(ARCHITECTURES))}")
    return ARCHITECTURES[name]
