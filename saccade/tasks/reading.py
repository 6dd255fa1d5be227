"""Reading: the text in an image of a word or a line, letter by letter; scored in texts read without an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade.atomic_io import read_json, write_json
from saccade.config import from_json, to_json
from saccade.core import Base, Batch, Evaluation, Metric, Pretrained, Progress, Split, ignore_progress
from saccade.data.formats.image_rows import ImageRows, ImageSettings
from saccade.data.images.decoding import to_pixels
from saccade.data.images.line_augment import LineAugment, augment_lines
from saccade.data.images.resizing import Resize
from saccade.data.lengths import load_max_target_length
from saccade.data.text.tokenizer_choice import train_text_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.unknown_words import unknown_id
from saccade.data.texts import Texts
from saccade.data.tokenization import tokenize
from saccade.decode.search import Search
from saccade.errors import DataError, UsageError
from saccade.metrics.reading import score_reading
from saccade.models.columns import STRIDE
from saccade.models.seq2seq.interface import Seq2SeqLoss
from saccade.models.seq2seq.to_text import DecoderConfig, TextDecoderConfig, ToText, build_to_text
from saccade.models.vision.lines import LineConfig, LineEncoder
from saccade.models.vision.pix2tex import Pix2Tex
from saccade.pretrained.adapters import merge_lora
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._seq2seq.searching import search_memory
from saccade.tasks._seq2seq.settings import TranslationOptions
from saccade.tasks._seq2seq.to_text import TOKENIZER, SourceBatch
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer
from saccade.tasks._vision.encoders import WEIGHTS, tune
from saccade.tasks._vision.formulas import FormulaFormat, LatexTokenizer
from saccade.tasks._vision.image_format import to_array, to_tensor
from saccade.tasks._vision.image_to_text import ImageToTextTask, TextExamples

BASE = "base.json"
OF_ALPHABET = ("target.", "head.", "ctc.")  # weights with a row for each character
CTC_FRAMES = 2  # of a column: narrow letters are not wider than half of one
QUICK_IMAGES = 200  # of a quick evaluation
SIZE_TOKENS = 64  # of a formula, whose probability determines the size at which it is read

METRICS = {
    metric.name: metric
    for metric in (
        Metric("exact", True, "%"),
        Metric("cer", False, "% of the characters"),
        Metric("wer", False, "% of the words"),
        Metric("loss", False, "nats per character"),
        Metric("images", None, "images"),
    )
}
"""every value that `evaluate` returns"""


@dataclass(frozen=True)
class ReadingModel(DecoderConfig):
    """Encoder and decoder, and their shapes."""

    encoder: LineConfig = field(default_factory=LineConfig)
    transformer: TextDecoderConfig = field(default_factory=lambda: TextDecoderConfig(dim=128, hidden=256))


@dataclass(frozen=True)
class ReadingConfig:
    """All settings of a reading model except those of the training loop."""

    base: str = ""
    """run of this task to start from, whose shape and height of the images are kept; empty: from scratch"""
    tune: Literal["all", "lora", "head"] = "all"
    """trained weights of the encoder of the base: all, low-rank adapters (LoRA), or none of them (frozen)"""
    rank: int = 8
    """rank of the adapters of tune=lora"""
    model: ReadingModel = field(default_factory=ReadingModel)
    data: ImageSettings = field(default_factory=ImageSettings)
    augment: LineAugment = field(default_factory=LineAugment)
    """random changes of the training images"""
    search: Search = field(default_factory=lambda: Search(beam=3))
    height: int = 32
    """height of the images in pixels; their width follows"""
    max_width: int = 1024
    """wider images are compressed to this width"""
    batch_size: int = 24
    """images per step, about: narrow ones are more"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same, but for batch norms, each
    of which sees one micro-batch"""
    label_smoothing: float = 0.0
    """label smoothing: probability mass that is distributed evenly over all characters"""
    ctc: float = 1.0
    """weight of a CTC loss on the encoder, which then learns letters before the decoder knows where to look; 0: none"""

    def __post_init__(self) -> None:
        if self.tune != "all" and not self.base:
            raise ValueError(f"tune must be all without a base, but is {self.tune}")
        for name, least in (("rank", 1), ("height", 8), ("max_width", STRIDE), ("batch_size", 1), ("micro_batches", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, but is {self.label_smoothing}")
        if self.ctc < 0:
            raise ValueError(f"ctc must be at least 0, but is {self.ctc}")
        reduction = 2 ** len(self.model.encoder.widths)
        if self.height % reduction:
            rule = f"height must be a multiple of {reduction}, as every stage of model.encoder.widths halves it"
            raise ValueError(f"{rule}, but is {self.height}")


@dataclass(frozen=True)
class LineFormat:
    """How images become the input of a network: of one height, and of a width that is a multiple of a column."""

    height: int
    max_width: int

    @property
    def resize(self) -> Resize:
        return Resize("height", self.height, self.max_width)

    def read(self, value: bytes | Tensor, name: str = "image") -> Tensor:
        """Return an input as pixels (3, height, width)."""
        return pad_line(to_tensor(np.array(self.resize.apply(to_pixels(value, name)))[None])[0])


def pad_line(pixels: Tensor, width: int = 0) -> Tensor:
    """Repeat the last column of pixels (3, H, W) to the next multiple of a column, or to a given width."""
    width = width or -(-pixels.shape[2] // STRIDE) * STRIDE
    return torch.cat((pixels, pixels[:, :, -1:].expand(-1, -1, width - pixels.shape[2])), dim=2)


def stack_lines(lines: Sequence[Tensor]) -> SourceBatch:
    """Return lines (3, H, W) in one batch (B, 3, H, W) of the greatest width, with their real columns (B, N)."""
    widths = torch.tensor([line.shape[2] for line in lines])
    pixels = torch.stack([pad_line(line, int(widths.max())) for line in lines])
    columns = torch.arange(pixels.shape[3] // STRIDE)
    return pixels.contiguous(memory_format=torch.channels_last), columns < widths[:, None] // STRIDE


@dataclass(frozen=True, eq=False)
class LineExamples(TextExamples):
    """Lines of one split; those of similar width are batched together."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Columns of each line."""
        columns: NDArray[np.int64] = -(-self.images.shapes[self.rows.picture, 1] // STRIDE)
        return columns


@dataclass(frozen=True)
class ReadingOptions(TranslationOptions):
    """Options of a text."""

    beam: int = 3
    """beam size; 1 is greedy search"""


class Task(ImageToTextTask):
    """Convolutions over a line, a Transformer over its columns, and a decoder that attends to them at every letter."""

    Config: ClassVar[type[Any]] = ReadingConfig
    Options: ClassVar[type[Any]] = ReadingOptions
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "read the text in an image of a word or a line"
    needs: ClassVar[str] = "images of words or lines with their text"
    roles: ClassVar[tuple[str, ...]] = ("text",)
    metric = METRICS["exact"]

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return smaller steps of Muon than other tasks have: the CTC loss learns nothing for long with larger ones."""
        return ["train.precision=fastest", f"train.optim.matrix_lr={0.005 if config.base else 0.015}"]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if base is not None and not isinstance(base.config, ReadingConfig):
            kind = base.task if base.family is None else base.family.name
            rule = f"base must be a run of the task reading, but {config.base} is a {kind}"
            raise UsageError(f"{rule}; train such a run first, or leave out --from")
        train, _, notes = cls.read(config.data, data, progress)
        texts = train.texts["text"]
        tokenizer = None if base is None else covering(base.processor, texts)
        if base is not None:
            notes += write_base(base, assets, new_alphabet=tokenizer is None)
        tokenizer = tokenizer or train_text_tokenizer("characters", texts, 0, "")
        cls.write_tokenizer(tokenizer, texts, assets)
        return [*notes, f"alphabet: {tokenizer.size - len(tokenizer.specials)} characters"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        tokenizer = Tokenizer.load(assets / TOKENIZER)
        if config.base:
            described = read_json(assets / BASE)
            config = replace(config, model=from_json(ReadingModel, described["model"]), height=described["height"])
        encoder = LineEncoder(config.model.encoder, config.height)
        frames = CTC_FRAMES if config.ctc else 0
        model = build_to_text(config.model, encoder, tokenizer.size, ctc_frames=frames)
        if config.base:
            read_base(model, assets)
            tune(encoder, config.tune, config.rank)
        format = LineFormat(config.height, config.max_width)
        return cls(config, format, TargetTokenizer.of(tokenizer), load_max_target_length(assets), model)

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> LineExamples:
        examples = super().examples(rows, progress)
        return LineExamples(examples.rows, examples.images, tokens=examples.tokens)

    def stored(self, examples: TextExamples, indices: Sequence[int]) -> SourceBatch:
        return self.stack([self.example_source(examples, row) for row in indices])

    def stack(self, sources: Sequence[Tensor]) -> SourceBatch:
        return stack_lines(sources)

    def example_source(self, examples: TextExamples, index: int) -> Tensor:
        return pad_line(examples.images[int(examples.rows.picture[index])])

    def positions(self, examples: TextExamples, indices: Sequence[int]) -> list[int]:
        columns: list[int] = examples.lengths[np.asarray(indices)].tolist()
        return columns

    def augmented(self, batch: Any, seed: int) -> Batch:
        images = augment_lines(to_array(batch.pixels), self.config.augment, seed)
        changed: Batch = replace(batch, pixels=to_tensor(images))
        return changed

    # Training and evaluation

    def loss_weights(self) -> Seq2SeqLoss:
        return replace(super().loss_weights(), ctc=self.config.ctc)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Compare what is read with the texts; quick: greedy, on an even sample of the images."""
        examples = self.splits[split]
        indices = list(range(0, len(examples), max(1, -(-len(examples) // QUICK_IMAGES)) if quick else 1))
        settings = replace(self.config.search, beam=1, n_best=1) if quick else self.config.search
        outputs = self.outputs(examples, indices, settings, progress)
        texts = examples.rows.texts["text"]
        scores = score_reading(outputs, [texts[row] for row in indices])
        named = {"exact": scores["exact"], "cer": scores["character_error"], "wer": scores["word_error"]}
        return Evaluation(
            {
                **{name: score.value for name, score in named.items()},
                "loss": self.mean_loss(examples, indices),
                "images": len(indices),
            },
            {name: score.signature for name, score in named.items()},
            complete=len(indices) == len(examples) and settings.beam == self.config.search.beam,
        )

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        processor, network = pretrained.processor, pretrained.network
        if not isinstance(network, Pix2Tex):
            raise cannot_run(pretrained, "reading")
        target = LatexTokenizer(processor.tokenizer, processor.start, processor.end)
        return FormulaReader(ReadingConfig(), FormulaFormat(processor), target, processor.max_length - 1, network)

    def to_pretrained(self) -> Pretrained:
        """Return the network with its tokenizer, as the base of another run."""
        return Pretrained(merge_lora(self.model), self.config, self.target.tokenizer, None, "reading")


def covering(tokenizer: Tokenizer, texts: Texts) -> Tokenizer | None:
    """Return the tokenizer if it has a token for each character of the texts, else None."""
    unknown = unknown_id(tokenizer)
    return None if unknown is not None and tokenize(texts, tokenizer).count(unknown).any() else tokenizer


def write_base(base: Pretrained, assets: Path, *, new_alphabet: bool) -> list[str]:
    """Write the shape and the weights of a run to start from to the assets; returns a note for the user."""
    write_json(assets / BASE, {"model": to_json(base.config.model), "height": base.config.height})
    weights = base.network.state_dict()
    kept = {name: value for name, value in weights.items() if not new_alphabet or not name.startswith(OF_ALPHABET)}
    save_file({name: value.contiguous().clone() for name, value in kept.items()}, assets / WEIGHTS)
    count = sum(value.numel() for value in base.network.parameters())
    which = "new embeddings and output layers, as there are new characters" if new_alphabet else "with its alphabet"
    return [f"base: {count / 1e6:.1f} M parameters, {which}"]


def read_base(model: ToText, assets: Path) -> None:
    """Load the weights that `write_base` wrote, except those of layers the model does not have."""
    if next(model.parameters()).is_meta:
        return
    own = model.state_dict()
    model.load_state_dict({**own, **{k: value for k, value in load_file(assets / WEIGHTS).items() if k in own}})


@dataclass(frozen=True)
class FormulaOptions(ReadingOptions):
    """Options of a formula."""

    resize: bool = True
    """read the image larger and smaller too, and keep the size with the most probable text; false: its own size"""


class FormulaReader(Task):
    """pix2tex, which reads a formula as LaTeX; it runs as it is and is not trained here."""

    Options: ClassVar[type[Any]] = FormulaOptions
    summary: ClassVar[str] = "read the LaTeX of the picture of a formula"

    format: FormulaFormat  # type: ignore[assignment]

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> Any:
        examples = ImageToTextTask.examples(self, rows, progress)
        longest = int(examples.tokens.lengths.max())
        if longest > self.max_length:
            row = rows.origins.describe(int(examples.tokens.lengths.argmax()))
            raise DataError(f"{row}: a text must have at most {self.max_length} tokens, but has {longest}; remove it")
        return examples

    def stack(self, sources: Sequence[Tensor]) -> SourceBatch:
        return self.format.stack(sources, self.encoder)

    def example_source(self, examples: TextExamples, index: int) -> Tensor:
        return self.read_input(examples.images[int(examples.rows.picture[index])], FormulaOptions())

    def positions(self, examples: TextExamples, indices: Sequence[int]) -> list[int]:
        return ImageToTextTask.positions(self, examples, indices)

    @torch.no_grad()
    def read_input(self, value: bytes | Tensor, options: Any) -> Tensor:
        """Return an input at its own size, or at that with the highest probability per token of a greedy text."""
        images = self.format.sizes(value) if options.resize else [self.format.read(value)]
        if len(images) == 1:
            return images[0]
        pixels, keep = self.stack(images)
        memory = self.model.encode(pixels.to(self.device()), keep.to(self.device()))
        limits = [min(SIZE_TOKENS, self.max_length)] * len(images)
        texts = search_memory(self.model, memory, self.target, Search(beam=1), limits)
        return images[max(range(len(images)), key=lambda at: texts[at][0].score)]

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Compare what is read with the LaTeX; there is no loss, since a text can be written with other spaces."""
        evaluation = super().evaluate(split, quick=quick, progress=progress)
        return replace(evaluation, values={name: v for name, v in evaluation.values.items() if name != "loss"})

    def encode(self, name: str, text: str) -> list[int]:
        ids = super().encode(name, text)
        if len(ids) > self.max_length:
            raise UsageError(f"{name} must have at most {self.max_length} tokens, but has {len(ids)}; shorten it")
        return ids

    def limit(self, prefix: Sequence[int], positions: int) -> int:
        return self.max_length - len(prefix)

    def to_pretrained(self) -> Pretrained:
        return ImageToTextTask.to_pretrained(self)
