"""Images and texts in one space (CLIP): find one by the other, and classify images by the names of classes.

Shapes: B pairs, I images, C texts, D width of the common space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Axis,
    Base,
    Evaluation,
    ForwardTrace,
    Image,
    InputLength,
    LabelOutput,
    Metric,
    NumberOutput,
    Output,
    Prediction,
    Pretrained,
    Progress,
    Role,
    Split,
    StepAxis,
    Text,
    VectorOutput,
)
from saccade.core.callback import ignore_progress
from saccade.data.formats.image_rows import ImageRows
from saccade.data.images.decoded import decode_pictures
from saccade.errors import UsageError
from saccade.models.text.bert import EncoderInputs
from saccade.models.vision.architectures import VisionConfig
from saccade.models.vision.clip import CLIP, BertText, TextConfig, TextTransformer
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.grid_transformer import GridTransformer
from saccade.models.vision.resnet import ResNetConfig
from saccade.models.vision.vit import ViT
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import TransformerConfig, layer_outputs
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.image_processors import ImageTextProcessor
from saccade.pretrained.processors import TextProcessor
from saccade.tasks._encoder.inputs import EncodedText, check_outputs, pad_texts
from saccade.tasks._parallel import parallel_map
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._vision.frozen import FrozenConfig, FrozenImageTask
from saccade.tasks._vision.image_format import ImageFormat
from saccade.tasks._vision.pair_examples import ImageTextOptions, PairBatch, PairExamples, PairTrace
from saccade.tasks._vision.pairs import Pairs, evaluate_retrieval
from saccade.tasks._vision.processors import format_of, processor_of
from saccade.tasks._vision.text_means import token_means
from saccade.tasks._vision.texts import TextReader, may_mirror
from saccade.tasks._vision.towers import read_towers, write_towers

FORMAT = "format.json"
BATCH = 64  # images or texts of a batch at inference
QUICK_IMAGES = 500  # of a quick evaluation

Item = TypeVar("Item")


@dataclass(frozen=True)
class ImageTextConfig(FrozenConfig):
    """All settings of an image-text model except those of the training loop."""

    encoder: VisionConfig = field(
        default_factory=lambda: VisionConfig("cnn", ResNetConfig(widths=(48, 96, 128), attention_stage=1))
    )
    """image encoder that is trained from scratch"""
    image: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(dim=256, depth=1, heads=4, hidden=512, position="none", dropout=0.1)
    )
    """layers over the output of the image encoder"""
    text: TextConfig = field(default_factory=lambda: TextConfig(dim=256, depth=2, heads=4, hidden=512, dropout=0.1))
    """text encoder that is trained from scratch"""
    text_base: str = ""
    """pretrained text encoder, such as minilm: a folder, a name of `saccade models list` or owner/name; it is frozen,
    and a layer over it is trained"""
    projection: int = 256
    """width of the space that images and texts share"""
    loss: Literal["softmax", "sigmoid"] = "softmax"
    """softmax: each image must find its text among those of the batch, and each text its image; sigmoid: every pair is
    right or wrong on its own (SigLIP)"""
    vocabulary_size: int = 8000
    """number of word pieces of a text encoder that is trained from scratch"""
    max_length: int = 64
    """maximum number of tokens of a text; longer ones are truncated"""
    batch_size: int = 128
    """pairs per step, all of which are compared with each other"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("projection", 1), ("vocabulary_size", 1), ("max_length", 8), ("batch_size", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if self.micro_batches > 1:
            rule = "micro_batches must be 1, since all pairs of a step are compared"
            raise ValueError(f"{rule}, but is {self.micro_batches}; lower batch_size to save memory")


class Task(FrozenImageTask):
    """An image encoder and a text encoder whose vectors are compared by their cosine."""

    Config: ClassVar[type[Any]] = ImageTextConfig
    Options: ClassVar[type[Any]] = ImageTextOptions
    summary: ClassVar[str] = "find images by texts and texts by images; classify images by names of classes (CLIP)"
    needs: ClassVar[str] = "images with captions"
    roles: ClassVar[tuple[str, ...]] = ("caption",)
    unit: ClassVar[str] = "pairs"
    inputs = (
        Image("image", optional=True, help="alone: its vector; with a text: their similarity"),
        Text("text", optional=True, help="alone: its vector; with an image: their similarity"),
    )
    metric = Metric("mean_recall", True, "%")

    def __init__(self, config: Any, format: ImageFormat, reader: TextReader, model: CLIP) -> None:
        super().__init__(config, format)
        self.reader, self.tokenizer, self.model = reader, reader.tokenizer, model
        self.family: Any = None

    @property
    def encoder(self) -> VisionEncoder:
        vision: VisionEncoder = self.model.vision
        return vision

    @property
    def backbone(self) -> VisionEncoder:
        return self.encoder.backbone if isinstance(self.encoder, GridTransformer) else self.encoder

    @property
    def frozen(self) -> bool:
        return super().frozen and isinstance(self.encoder, GridTransformer)  # a CLIP has no layers over its encoder

    # Data

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, _, notes = cls.read(config.data, data, progress)
        format = cls.choose_format(config, train.pictures, base)
        mirror, mirror_notes = may_mirror(config.augment.flip, train.texts["caption"])
        write_json(assets / FORMAT, {"format": vars(format), "mirror": mirror})
        images = decode_pictures(train.pictures, format.resize, progress)
        notes += write_towers(config, format.size, images, train.texts["caption"], assets, base)
        return [*notes, *mirror_notes, f"images are read as {format.size} x {format.size} pixels"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described, reader = read_json(assets / FORMAT), TextReader.open(assets, config.max_length)
        config = replace(config, augment=replace(config.augment, flip=described["mirror"]))
        model = read_towers(config, assets, reader.tokenizer.size)
        return cls(config, ImageFormat(**described["format"]), reader, model)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        super().load_data(data, eval_only=eval_only, progress=progress)
        counts = (self._count(split, examples) for split, examples in self.splits.items())
        return [f"captions: {' and '.join(counts)}"]

    @staticmethod
    def _count(split: Split, examples: Any) -> str:
        purpose = "training" if split == Split.TRAIN else "validation"
        return f"{len(examples):,} of {len(np.unique(examples.pairs.images)):,} images for {purpose}"

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> PairExamples:
        images, captions = super().examples(rows, progress).images, rows.texts["caption"]
        texts, text_encoder = self.reader.encode_column(captions), self.model.text
        means = token_means(text_encoder.bert, texts, progress) if isinstance(text_encoder, BertText) else None
        pairs = Pairs.of(images.hashes[rows.picture], captions)
        return PairExamples(rows, images, pairs=pairs, texts=texts, means=means)

    def collate(self, examples: Any, indices: list[int]) -> PairBatch:
        pairs, pictures = examples.pairs, examples.rows.picture[indices]
        return PairBatch(
            rows=[examples.rows.origins.describe(row) for row in indices],
            count=len(indices),
            units=len(indices),
            pixels=examples.stored(pictures),
            pictures=tuple(pictures.tolist()),
            inputs=examples.inputs(indices),
            matches=torch.from_numpy(pairs.match(pairs.images[indices], pairs.captions[indices])),
        )

    # Training and inference

    def losses(self, batch: PairBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        inputs = batch.inputs
        yield "model", networks["model"](batch.pixels, inputs.ids, inputs.keep, matches=batch.matches)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        examples: Any = self.splits[split]
        pairs, pictures = examples.pairs, examples.rows.picture
        image_rows, text_rows = pairs.candidates(QUICK_IMAGES if quick else 0)

        def image_vectors(rows: Sequence[int]) -> Tensor:
            return self.image_vectors(self.centred(examples.stored(pictures[rows])))

        images = self.run_batches(image_rows.tolist(), image_vectors, progress)
        texts = self.run_batches(text_rows.tolist(), lambda rows: self.text_vectors(examples.inputs(rows)))
        relevant = pairs.match(pairs.images[image_rows], pairs.captions[text_rows])
        complete = len(image_rows) == len(np.unique(pairs.images))
        return evaluate_retrieval(images, texts, relevant, complete=complete)

    @staticmethod
    def run_batches(
        items: Sequence[Item], function: Callable[[Sequence[Item]], Tensor], progress: Progress = ignore_progress
    ) -> Tensor:
        """Return the results of a function for items in batches, on all cores, as one tensor."""
        batches = [items[first : first + BATCH] for first in range(0, len(items), BATCH)]
        parts = []
        for part in parallel_map(function, batches):
            parts.append(part)
            progress(len(parts) / len(batches))
        return torch.cat(parts)

    def image_vectors(self, pixels: Tensor) -> Tensor:
        """Return the vectors (I, D) of images (I, 3, H, W), of length 1."""
        with torch.no_grad():
            return check_outputs(self.model.image_vectors(pixels.to(self.device())).float().cpu())

    def text_vectors(self, inputs: EncoderInputs) -> Tensor:
        """Return the vectors (C, D) of texts, of length 1."""
        device = self.device()
        with torch.no_grad():
            keep = None if inputs.keep is None else inputs.keep.to(device)
            return check_outputs(self.model.text_vectors(inputs.ids.to(device), keep).float().cpu())

    def class_vectors(self, options: ImageTextOptions) -> Tensor:
        """Return the vectors (C, D) of classes: the means of the vectors of their texts, scaled to length 1."""
        texts = self.reader.encode("classes", options.prompts)
        vectors = self.run_batches(texts, lambda rows: self.text_vectors(pad_texts(rows)))
        return nn.functional.normalize(vectors.unflatten(0, (-1, len(options.templates))).mean(1), dim=-1)

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: ImageTextOptions) -> Iterator[Prediction]:
        for example in inputs:
            options.check(example)
        classes = self.class_vectors(options) if options.classes else None
        for first in range(0, len(inputs), BATCH):
            yield from self._predict(inputs[first : first + BATCH], options, classes)

    def _predict(
        self, inputs: Sequence[Mapping[str, Any]], options: ImageTextOptions, classes: Tensor | None
    ) -> Iterator[Prediction]:
        """Yield the predictions for examples that fit into memory together."""
        with_image = [row for row, example in enumerate(inputs) if example.get("image") is not None]
        with_text = [row for row, example in enumerate(inputs) if example.get("text")]
        texts = self.reader.encode("text", [inputs[row]["text"] for row in with_text])
        images = [self.format.read(inputs[row]["image"]) for row in with_image]
        vectors_of: list[dict[int, Tensor]] = [{}, {}]
        if images:
            vectors_of[0] = dict(zip(with_image, self.image_vectors(torch.stack(images)), strict=True))
        if texts:
            vectors_of[1] = dict(zip(with_text, self.text_vectors(pad_texts(texts)), strict=True))
        pixels, encoded = dict(zip(with_image, images, strict=True)), dict(zip(with_text, texts, strict=True))
        names = tuple(options.class_names)
        for row, example in enumerate(inputs):
            trace = PairTrace(pixels.get(row), encoded.get(row), classes, names)
            output, scores = self.output(vectors_of[0].get(row), vectors_of[1].get(row), trace)
            attention = self.attention(trace) if options.attention else AttentionMaps()
            notes = () if trace.text is None else trace.text.notes
            yield Prediction(example, output, scores, attention, trace=trace, notes=notes)

    def output(self, image: Tensor | None, text: Tensor | None, trace: PairTrace) -> tuple[Output, dict[str, float]]:
        """Return the output for the vectors of an image and of a text, or of one of them, and its scores."""
        if image is not None and trace.classes is not None:
            logits = self.class_logits(image[None], trace.classes)[0]
            probabilities = logits.softmax(-1) if self.model.logit_bias is None else logits.sigmoid()
            pairs = zip(trace.names, probabilities.tolist(), strict=True)
            ranked = dict(sorted(pairs, key=lambda pair: -pair[1]))
            return LabelOutput((next(iter(ranked)),), ranked), ranked
        if image is not None and text is not None:
            similarity = float(image @ text)
            return NumberOutput(similarity, "similarity"), {"similarity": similarity}
        vector = text if image is None else image
        assert vector is not None
        return VectorOutput(vector), {}

    def class_logits(self, images: Tensor, classes: Tensor) -> Tensor:
        """Return the logits (I, C) of classes for the vectors of images."""
        logits: Tensor = self.model.logits(images.to(self.device()), classes.to(self.device(), images.dtype))
        return logits.cpu()

    def input_lengths(self, inputs: Mapping[str, Any], options: ImageTextOptions) -> list[InputLength]:
        lengths = [self.reader.length("text", inputs["text"])] if inputs.get("text") else []
        of_classes = [self.reader.length("classes", prompt) for prompt in options.prompts]
        return [*lengths, *([max(of_classes, key=lambda length: length.tokens)] if of_classes else [])]

    # Attention and explanations

    def attention(self, trace: PairTrace) -> AttentionMaps:
        """Return the attention maps of the image encoder and of the text encoder, as far as they were used."""
        with watch(self.model) as recorder:
            if trace.pixels is not None:
                self.image_vectors(trace.pixels[None])
            if trace.text is not None:
                self.text_vectors(pad_texts([trace.text]))
        return AttentionMaps(
            AttentionMap(name, RecordedRow(recorded, 0), *self._axes(name, recorded.shape, trace))
            for name, recorded in recorder.items()
            if recorded.shape[0]
        )

    def _axes(self, name: str, shape: tuple[int, ...], trace: PairTrace) -> tuple[Axis, Axis]:
        """Return what the queries and the keys of an attention layer are."""
        if trace.text is not None and name.startswith("text."):
            tokens = self.reader.axis(trace.text)
            return tokens, tokens
        assert trace.pixels is not None
        keys = self.image_axis(trace.pixels, shape[3])
        pooled = name.startswith("vision.attention_pool")
        return StepAxis(Role.IMAGE, ("image",)) if pooled else self.image_axis(trace.pixels, shape[2]), keys

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        trace: PairTrace = prediction.trace
        if trace.pixels is None or (trace.text is None and trace.classes is None):
            message = "only a similarity or a choice of classes can be explained, but there is one vector"
            raise UsageError(f"{message}; give an image and a text, or an image and classes")
        image, by_image = self._trace_image(trace.pixels, layers)
        rows, columns = self.encoder.grid(*trace.pixels.shape[1:])
        axis = self.image_axis(trace.pixels, len(self.encoder.extra) + rows * columns)
        if trace.classes is not None:
            classes = trace.classes.to(image)
            logits, by_layer = (
                self.model.logits(image, classes),
                [(n, self.model.logits(x, classes)) for n, x in by_image],
            )
            positions, chosen = StepAxis(Role.LABEL, ("class",)), (int(logits.argmax()),)
            return ForwardTrace(logits, chosen, positions, (axis,), trace.names.__getitem__, tuple(by_layer))
        assert trace.text is not None
        text, by_text = self._trace_text(trace.text, layers)
        by_layer = [(name, (x * text).sum(-1, keepdim=True)) for name, x in by_image]
        by_layer += [(name, (image * x).sum(-1, keepdim=True)) for name, x in by_text]
        similarity = (image * text).sum(-1, keepdim=True)  # (1, 1)
        positions = StepAxis(Role.LABEL, ("similarity",))
        axes = (axis, self.reader.axis(trace.text))
        return ForwardTrace(similarity, (0,), positions, axes, lambda _: "similarity", tuple(by_layer))

    def _trace_image(self, pixels: Tensor, layers: bool) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        """Return the vector (1, D) of an image, with gradients where enabled, and that after each layer."""
        model, vision = self.model, self.encoder
        stack = getattr(vision, "encoder", None)
        with layer_outputs(stack, layers and stack is not None) as outputs:
            vector = model.image_vectors(pixels[None].to(self.device()))
        vectors = [model.project_image(vision.pool(output)) for output in outputs]
        return vector, [(f"vision.encoder.{layer}", x) for layer, x in enumerate(vectors)]

    def _trace_text(self, text: EncodedText, layers: bool) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        """Return the vector (1, D) of a text, with gradients where enabled, and that after each layer."""
        model, ids = self.model, torch.tensor([text.ids], device=self.device())
        with layer_outputs(model.text.stack, layers) as outputs:
            vector = model.text_vectors(ids)
        vectors = [model.project_text(model.text.pool(output, ids, None)) for output in outputs]
        return vector, [(f"text.encoder.{layer}", x) for layer, x in enumerate(vectors)]

    def attention_snapshot(self) -> list[Prediction]:
        examples = self.splits[Split.VALID]
        rows = list(dict.fromkeys((0, len(examples) // 2)))
        texts = [examples.rows.texts["caption"][row] for row in rows]
        images = self.centred(examples.pixels(rows))
        inputs = [{"image": image, "text": text} for image, text in zip(images, texts, strict=True)]
        return list(self.predict(inputs, ImageTextOptions(attention=True)))

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        network, processor = pretrained.network, pretrained.processor
        if not isinstance(network, CLIP):
            raise cannot_run(pretrained, "image_text")
        positions = pretrained.config.text.max_positions
        length = min(positions, processor.text.max_length or positions)
        reader = TextReader.of(processor.text.tokenizer, length)
        task = cls(ImageTextConfig(max_length=length), format_of(processor.image), reader, network)
        task.family = pretrained.family
        return task

    def to_pretrained(self) -> Pretrained:
        network = merge_lora(self.model)
        if not isinstance(network.vision, ViT) or not isinstance(network.text, TextTransformer):
            raise UsageError(
                "only a ViT with a text Transformer can be exported as a CLIP, but this model has other encoders; "
                "start from a CLIP: --from FOLDER"
            )
        text = TextProcessor(self.tokenizer, max_length=self.reader.max_length)
        kind = "CLIP" if network.logit_bias is None else "Siglip"
        processor = ImageTextProcessor(processor_of(self.format, network.vision, kind), text)
        return Pretrained(network, network.config, processor, self.family, "image_text")
