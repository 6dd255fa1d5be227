"""Image models from folders: networks with processors, tokenizers and labels; timm's names; export and back."""

import gzip
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from saccade.core import Pretrained
from saccade.errors import ModelFileError, UsageError
from saccade.models import presets
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.clip import CLIP
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.pretrained.exports.hf import export
from saccade.pretrained.families.image_heads import ImageHead
from saccade.pretrained.image_processors import ImageProcessor
from saccade.pretrained.opening import describe, open_pretrained
from saccade.pretrained.processors import read_text_processor

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
pytest.importorskip("PIL", reason="decodes pictures; installed with the [images] extra")

VIT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
TEXTS = ["a photo of a cat", "Two  dogs, running!", "it's 12 o'clock", "日本 😀", ""]


def picture(height, width):
    return np.random.default_rng(height + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def randomize(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.normal_(std=0.3)
    return model.eval()


def clip_merges(dataset):
    """Return the merges of CLIP: lines 1 to 48894 of the published file."""
    with gzip.open(dataset("vocab/bpe_simple_vocab_16e6.txt.gz"), "rt", encoding="utf-8") as file:
        return [tuple(line.split()) for line in file.read().split("\n")[1 : 49152 - 256 - 2 + 1]]


def clip_tokenizer(merges):
    """Return transformers' tokenizer of CLIP."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [*map(chr, printable), *(chr(256 + number) for number in range(256 - len(printable)))]  # of bytes
    words = [*alphabet, *(f"{letter}</w>" for letter in alphabet), *("".join(merge) for merge in merges)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate(words)}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


@pytest.fixture
def vit_folder(tmp_path):
    config = transformers.ViTConfig(**VIT, image_size=24, patch_size=6, id2label={0: "cat", 1: "dog", 2: "owl"})
    model = randomize(transformers.ViTForImageClassification(config))
    model.save_pretrained(tmp_path / "vit")
    processor = transformers.ViTImageProcessorPil(size={"height": 24, "width": 24}, image_mean=[0.4, 0.5, 0.6])
    processor.save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def classify(folder, image):
    """Return the logits of transformers."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**processor(image, return_tensors="pt")).logits


def test_a_picture_gets_the_logits_of_transformers_in_both_directions(vit_folder, tmp_path):
    pretrained = open_pretrained(str(vit_folder))
    assert pretrained.task == "image_classification" and pretrained.head == ImageHead(("cat", "dog", "owl"))
    image = picture(31, 47)
    with torch.no_grad():
        ours = pretrained.network(pretrained.processor.apply(image)[None])
    torch.testing.assert_close(ours, classify(vit_folder, image), atol=1e-4, rtol=1e-4)
    notes = export(pretrained, tmp_path / "out")
    assert notes[:1] == [f"{tmp_path / 'out'}: a vit for transformers"]
    torch.testing.assert_close(classify(tmp_path / "out", image), ours, atol=1e-4, rtol=1e-4)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.id2label == {0: "cat", 1: "dog", 2: "owl"}
    again = open_pretrained(str(tmp_path / "out"))
    assert again.processor == pretrained.processor and again.head == pretrained.head


def test_the_summary_of_an_image_model_names_its_processor(vit_folder):
    summary = describe(str(vit_folder))
    assert summary["image_processor"] == "ViTImageProcessor" and summary["resize"] == [24, 24]
    assert summary["task"] == "image_classification" and summary["unused"] == []


def test_a_distilled_classifier_survives_the_round_trip(tmp_path):
    config = transformers.DeiTConfig(**VIT, image_size=24, patch_size=6, num_labels=4)
    model = randomize(transformers.DeiTForImageClassificationWithTeacher(config))
    model.save_pretrained(tmp_path / "deit")
    transformers.DeiTImageProcessorPil(size=30, crop_size=24).save_pretrained(tmp_path / "deit")
    pretrained = open_pretrained(str(tmp_path / "deit"))
    export(pretrained, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == [
        "DeiTForImageClassificationWithTeacher"
    ]
    again = transformers.DeiTForImageClassificationWithTeacher.from_pretrained(tmp_path / "out").eval()
    values = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        torch.testing.assert_close(again(values).logits, model(values).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_pictures_and_texts_get_the_logits_of_transformers_in_both_directions(kind, dataset, tmp_path):
    tokenizer = clip_tokenizer(clip_merges(dataset)[:2000])
    rows, folder = len(tokenizer), tmp_path / "model"
    text = {
        **VIT,
        "vocab_size": rows,
        "max_position_embeddings": 32,
        "eos_token_id": rows - 1,
        "pad_token_id": rows - 1,
    }
    sizes = {"text_config": text, "vision_config": {**VIT, "image_size": 20, "patch_size": 5}}
    model = randomize(getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes)))
    model.save_pretrained(folder)
    tokenizer.model_max_length = 32
    images = getattr(transformers, f"{kind}ImageProcessorPil")(size=20)
    images.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if kind == "CLIP":  # or the settings of the image processor in the file of both, as transformers writes them today
        images.crop_size = {"height": 20, "width": 20}
        transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    pretrained = open_pretrained(str(folder))
    assert pretrained.task == "image_text" and isinstance(pretrained.network, CLIP)
    assert pretrained.processor.text.max_length == 32
    shown = [picture(25, 30), picture(20, 41)]
    pixels = torch.stack([pretrained.processor.image.apply(image)[:, :20, :20] for image in shown])
    ids = [pretrained.processor.text.encode_prompt(text) for text in TEXTS]
    padded = tokenizer(TEXTS, padding="max_length", max_length=32, return_tensors="pt").input_ids
    assert [row[: len(own)].tolist() for row, own in zip(padded, ids, strict=True)] == ids
    keep = torch.arange(32) < torch.tensor([[len(own)] for own in ids])
    with torch.no_grad():
        values = pretrained.network.vision.normalize(pixels)
        theirs = model(pixel_values=values, input_ids=padded).logits_per_image
        vectors = pretrained.network.image_vectors(pixels), pretrained.network.text_vectors(padded, keep)
        ours = pretrained.network.logits(*vectors)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    export(pretrained, tmp_path / "out")
    again = getattr(transformers, f"{kind}Model").from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(
            again(pixel_values=values, input_ids=padded).logits_per_image, theirs, atol=1e-4, rtol=1e-4
        )
    reopened = open_pretrained(str(tmp_path / "out"))
    assert reopened.processor.image == pretrained.processor.image
    assert [reopened.processor.text.encode_prompt(text) for text in TEXTS] == ids


def test_the_tokenizer_of_clip_has_the_ids_of_the_published_one(dataset, tmp_path):
    tokenizer = clip_tokenizer(clip_merges(dataset))
    assert len(tokenizer) == 49408
    tokenizer.save_pretrained(tmp_path)
    processor = read_text_processor(tmp_path, {"model_type": "clip", "vocab_size": 49408})
    assert processor.encode_prompt("a photo of a cat") == [49406, 320, 1125, 539, 320, 2368, 49407]  # as published
    for text in TEXTS:
        assert processor.encode_prompt(text) == tokenizer(text).input_ids
        assert processor.tokenizer.decode(processor.encode_prompt(text)) == tokenizer.decode(
            tokenizer(text).input_ids, skip_special_tokens=True
        )
    assert processor.tokenizer.pieces(processor.encode_prompt("a photo")[1:-1]) == ["a ", "photo "]


SIGLIP_TEXTS = [*TEXTS, "A photo of 2 cats.", "  HELLO,   world!! ", "don't  (stop)", "naïve Café", "a b", "日本 cats"]


def test_the_tokenizer_of_siglip_is_read_from_its_sentencepiece_file(tmp_path):
    library = pytest.importorskip("sentencepiece", reason="the oracle; installed with the [test] extra")
    lines = ["a photo of a cat", "two dogs running on grass", "hello world 2 12", "dont stop naive café"] * 20
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "spiece"), vocab_size=60, minloglevel=2,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, model_type="unigram", hard_vocab_limit=False,
    )  # fmt: skip
    theirs = transformers.SiglipTokenizer(str(tmp_path / "spiece.model"))
    theirs.save_pretrained(tmp_path)
    ours = read_text_processor(tmp_path, {"model_type": "siglip", "vocab_size": 100})
    for text in SIGLIP_TEXTS:
        assert ours.encode_prompt(text) == theirs(text).input_ids, text
    assert ours.max_length == 64


def write_timm(folder, architecture="vit_tiny_patch16_224", **values):
    """Write random weights with timm's names; return transformers' model with the same ones and their processor."""
    distilled = "distilled" in architecture
    shape = {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768}
    shape |= {"image_size": 32, "patch_size": 16, "layer_norm_eps": 1e-6, "num_labels": 4}
    kind = "DeiT" if distilled else "ViT"
    suffix = "ForImageClassificationWithTeacher" if distilled else "ForImageClassification"
    model = randomize(getattr(transformers, kind + suffix)(getattr(transformers, f"{kind}Config")(**shape)))
    state, prefix = model.state_dict(), f"{kind.lower()}."
    tensors = {
        "cls_token": state[f"{prefix}embeddings.cls_token"],
        "pos_embed": state[f"{prefix}embeddings.position_embeddings"],
    }
    if distilled:
        tensors["dist_token"] = state[f"{prefix}embeddings.distillation_token"]
    for part in ("weight", "bias"):
        tensors[f"patch_embed.proj.{part}"] = state[f"{prefix}embeddings.patch_embeddings.projection.{part}"]
        tensors[f"norm.{part}"] = state[f"{prefix}layernorm.{part}"]
        heads = (
            {"head": "cls_classifier", "head_dist": "distillation_classifier"} if distilled else {"head": "classifier"}
        )
        tensors |= {f"{ours}.{part}": state[f"{theirs}.{part}"] for ours, theirs in heads.items()}
        for layer in range(12):
            old, new = f"{prefix}layers.{layer}", f"blocks.{layer}"
            qkv = [state[f"{old}.attention.{name}_proj.{part}"] for name in "qkv"]
            tensors[f"{new}.attn.qkv.{part}"] = torch.cat(qkv)
            names = {"attn.proj": "attention.o_proj", "norm1": "layernorm_before", "norm2": "layernorm_after"}
            names |= {"mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
            tensors |= {f"{new}.{ours}.{part}": state[f"{old}.{theirs}.{part}"] for ours, theirs in names.items()}
    folder.mkdir()
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    settings = {"input_size": [3, 32, 32], "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center"}
    settings |= {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    config = {"architecture": architecture, "num_classes": 4, "global_pool": "token", "pretrained_cfg": settings}
    (folder / "config.json").write_text(json.dumps({**config, "model_args": {"img_size": 32}, **values}))
    return model


@pytest.mark.parametrize("architecture", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224.fb_in1k"])
def test_names_of_timm_are_read(architecture, tmp_path):
    model = write_timm(tmp_path / "timm", architecture, label_names=["a", "b", "c", "d"])
    pretrained = open_pretrained(str(tmp_path / "timm"))
    assert pretrained.processor == ImageProcessor((35,), (32, 32), "bicubic", (0.5,) * 3, (0.5,) * 3)
    assert pretrained.head.labels == ("a", "b", "c", "d")
    pixels = pretrained.processor.apply(picture(50, 70))[None]
    with torch.no_grad():
        expected = model(pretrained.network.encoder.normalize(pixels)).logits
        torch.testing.assert_close(pretrained.network(pixels), expected, atol=1e-4, rtol=1e-4)
    notes = export(pretrained, tmp_path / "out")
    assert notes[0].endswith(f"a {architecture.split('_')[0]} for transformers")
    reopened = open_pretrained(str(tmp_path / "out"))
    assert reopened.processor.apply(picture(50, 70))[None].equal(pixels) and reopened.head == pretrained.head
    with torch.no_grad():
        torch.testing.assert_close(reopened.network(pixels), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architecture": "resnet50"}, "architecture must be vit_.* with a size of tiny, .*, but is 'resnet50'"),
        ({"global_pool": "avg"}, "global_pool must be token, but is 'avg'"),
        ({"model_args": {"qkv_bias": False}}, "model_args must be img_size alone, but has 'qkv_bias'"),
        ({"num_classes": 7}, r"'head\.weight' must have the shape \(7, 192\), but has \(4, 192\)"),
        ({"pretrained_cfg": {"input_size": [1, 8, 8]}}, r"input_size must be \[3, size, size\], but is \[1, 8, 8\]"),
        ({"pretrained_cfg": {"input_size": [3, 8, 8], "crop_mode": "squash"}}, "crop_mode must be center .* 'squash'"),
    ],
)
def test_an_unsupported_variant_of_timm_is_refused_by_name(values, message, tmp_path):
    write_timm(tmp_path / "timm", **values)
    with pytest.raises(ModelFileError, match=message):
        open_pretrained(str(tmp_path / "timm"))


def test_a_network_that_no_class_computes_cannot_be_exported(tmp_path):
    processor, head = ImageProcessor(), ImageHead(("a", "b"))

    def pretrained(**changes):
        config = ViTConfig(dim=24, depth=1, heads=4, hidden=40, image_size=8, patch=4, **changes)
        network = ImageClassifier(ViT(config), 2)
        return Pretrained(network, config, processor, None, "image_classification", head)

    with pytest.raises(UsageError, match=r"presets .*bert-\.\.\. or vit-.* from a published model with --from"):
        export(pretrained(), tmp_path / "out")
    published = {name: value for name, value in presets.VIT["vit-tiny-16"].items() if name not in SIZES}
    export(pretrained(**published), tmp_path / "out")
    assert classify(tmp_path / "out", picture(8, 8)).shape == (1, 2)


SIZES = ("dim", "depth", "heads", "hidden", "image_size", "patch")
