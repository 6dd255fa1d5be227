"""Tiny random checkpoints of every imported family, as folders that transformers or the published package writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers

from saccade.pretrained.exports.hf import export
from tests.pretrained import odd_tokenizers, test_heads, test_pix2tex, tiny_models, tiny_whisper

HEADS = ("text_classification", "regression", "tagging", "question_answering", "sentence_vectors")
IMAGE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}


def randomize(model: torch.nn.Module) -> torch.nn.Module:
    """Give every weight a random value that makes a difference."""
    torch.manual_seed(1)
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.normal_(std=0.2)
    return model.eval()


def language_model(name: str) -> Callable[[Path], None]:
    return lambda folder: export(tiny_models.language_model(name), folder) and None


def qwen2(folder: Path) -> None:
    """With a tokenizer of the rules that transformers gives every Qwen."""
    case = odd_tokenizers.Case(odd_tokenizers.qwen2, "qwen2", settings={"tokenizer_class": "Qwen2TokenizerFast"})
    odd_tokenizers.write(case, folder)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"vocab_size": odd_tokenizers.VOCABULARY, "eos_token_id": 2, "bos_token_id": 1}
    config = transformers.Qwen2Config(**sizes, **ids, num_key_value_heads=2, max_position_embeddings=128)
    randomize(transformers.Qwen2ForCausalLM(config)).save_pretrained(folder)


def encoder(task: str) -> Callable[[Path], None]:
    return lambda folder: export(tiny_models.encoder(task), folder) and None


def masked(family: str) -> Callable[[Path], None]:
    return lambda folder: test_heads.write_folder(folder, family, "MaskedLM") and None


def vit(folder: Path) -> None:
    config = transformers.ViTConfig(**IMAGE, image_size=24, patch_size=6, id2label={0: "cat", 1: "dog", 2: "owl"})
    randomize(transformers.ViTForImageClassification(config)).save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 24, "width": 24}).save_pretrained(folder)


def deit(folder: Path) -> None:
    config = transformers.DeiTConfig(**IMAGE, image_size=24, patch_size=6, num_labels=4)
    randomize(transformers.DeiTForImageClassificationWithTeacher(config)).save_pretrained(folder)
    transformers.DeiTImageProcessorPil(size=30, crop_size=24).save_pretrained(folder)


def image_text(kind: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        content = json.loads(odd_tokenizers.trained(odd_tokenizers.clip))
        (folder / "tokenizer.json").write_text(json.dumps(content))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
        ids = {"eos_token_id": end, "pad_token_id": end, "bos_token_id": 0}
        text = {**IMAGE, "vocab_size": len(tokenizer), "max_position_embeddings": 32, **ids}
        sizes = {"text_config": text, "vision_config": {**IMAGE, "image_size": 20, "patch_size": 5}}
        config = getattr(transformers, f"{kind}Config")(**sizes)
        randomize(getattr(transformers, f"{kind}Model")(config)).save_pretrained(folder)
        square = {"height": 20, "width": 20}
        images = {"size": square} | ({"crop_size": square} if kind == "CLIP" else {})
        getattr(transformers, f"{kind}ImageProcessorPil")(**images).save_pretrained(folder)
        roles = dict.fromkeys(("eos_token", "pad_token", "unk_token"), "<|endoftext|>")
        settings = {"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>", "model_max_length": 32, **roles}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    return write


FAMILIES: dict[str, Callable[[Path], object]] = {
    **{name: language_model(name) for name in tiny_models.GPTS if name != "qwen2"},
    "qwen2": qwen2,
    **{f"bert, {task}": encoder(task) for task in HEADS},
    **{family: masked(family) for family in ("bert", "roberta", "distilbert")},
    "whisper": partial(tiny_whisper.write, stamps=True),
    "vit": vit,
    "deit": deit,
    "clip": image_text("CLIP"),
    "siglip": image_text("Siglip"),
    "pix2tex": test_pix2tex.write,
}
