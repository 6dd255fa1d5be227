"""Tiny random models of every family that can be exported, as `Pretrained` values."""

import json
from dataclasses import replace

import tokenizers as library
import torch
from tokenizers import decoders, models, normalizers, trainers
from torch import nn

from saccade.core import Pretrained
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import surround
from saccade.models import presets
from saccade.models.text.bert import BertConfig, BertForPreTraining
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.models.text.heads import (
    BertForClassification,
    BertForQuestionAnswering,
    BertForRegression,
    BertForTokenClassification,
    SentenceEncoder,
)
from saccade.models.text.pooling import SentencePooling
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.pretrained.exports.parity import TEXT
from saccade.pretrained.families import FAMILIES
from saccade.pretrained.families.heads import Head
from saccade.pretrained.families.image_heads import ImageHead
from saccade.pretrained.image_processors import ImageProcessor
from saccade.pretrained.processors import TextProcessor
from saccade.pretrained.sentence_transformers import SentenceModules

SIZES = {"dim": 64, "depth": 2, "heads": 4, "hidden": 96, "max_positions": 128}
LLAMA = {**presets.GPT["llama-tiny"], **SIZES, "kv_heads": 2}
LLAMA3 = RotaryScaling("llama3", 8.0, 32, low_frequency_factor=1.0, high_frequency_factor=4.0)
GEMMA = {
    "depth": 7,
    "activation": "geglu_tanh",
    "score": "learned_qk_norm",
    "attention_scale": 0.25,
    "update_norm": True,
    "scale_embedding": True,
    "tie_embeddings": True,
    "window": 8,
    "full_layers": (5,),
    "window_rotary_base": 10000.0,
    "rotary_base": 1000000.0,
}
SMOLLM3 = {"depth": 5, "unrotated_layers": (3,), "tie_embeddings": True, "rotary_base": 2000000.0}
GPTS = {
    "gpt2": ("gpt2", {**presets.GPT["gpt2-tiny"], **SIZES}),
    "llama": ("llama", LLAMA),
    "llama-tied": ("llama", {**LLAMA, "tie_embeddings": True, "kv_heads": 0, "rotary_base": 5000.0}),
    "llama-biases": ("llama", {**LLAMA, "qkv_bias": True, "out_bias": True, "feed_bias": True}),
    "llama-linear": ("llama", {**LLAMA, "rotary_scaling": RotaryScaling("linear", 4.0, 128)}),
    "llama3": ("llama", {**LLAMA, "rotary_scaling": LLAMA3, "rotary_base": 500000.0}),
    "mistral": ("mistral", {**LLAMA, "head_dim": 32}),
    "qwen2": ("qwen2", {**LLAMA, "qkv_bias": True}),
    "qwen3": ("qwen3", {**LLAMA, "score": "learned_qk_norm", "head_dim": 32}),
    "smollm3": ("smollm3", {**LLAMA, **SMOLLM3}),
    "gemma3": ("gemma3_text", {**LLAMA, **GEMMA}),
    "nanochat": ("nanochat", SIZES),
}
"""name -> family and settings of a language model"""
BERT = {**presets.BERT["bert-tiny"], "dim": 32, "depth": 2, "heads": 4, "hidden": 48, "max_positions": 40}
VIT = {**presets.VIT["vit-tiny-16"], "dim": 32, "depth": 2, "heads": 4, "hidden": 48, "image_size": 24, "patch": 8}


def randomize(network: nn.Module, std: float = 0.15) -> nn.Module:
    """Give every parameter random values; gains stay near 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in network.named_parameters():
            gain = value.dim() == 1 and not name.endswith("bias")
            value.copy_(torch.randn(value.shape, generator=generator) * std + gain)
    return network.eval()


def byte_processor(**fields) -> TextProcessor:
    """A byte-level tokenizer with two special tokens, of which the first ends a text."""
    tokenizer = train_tokenizer("bpe", [TEXT], 300, ("<|endoftext|>", "<|im_end|>"))
    return TextProcessor(tokenizer, **{"eos_ids": (0, 1), "bos_id": 0, "chat_template": "{{ messages }}", **fields})


def language_model(name: str, vocabulary: int = 304, **changes) -> Pretrained:
    """A language model of GPTS with random weights; it has more rows than tokens."""
    family, settings = GPTS[name]
    config = GPTConfig(**{**settings, **changes})
    network = randomize(GPT(config, vocabulary))
    return Pretrained(network, config, byte_processor(), FAMILIES[family], "language_model")


def encoder(task: str, **changes) -> Pretrained:
    """A BERT with the head of a task."""
    config = BertConfig(**{**BERT, **changes})
    tokenizer = train_tokenizer("wordpiece", [TEXT], 200)
    size, labels = tokenizer.size, ("no", "maybe", "yes")
    networks = {
        "masked_language_model": lambda: BertForPreTraining(config, size, next_sentence=True),
        "text_classification": lambda: BertForClassification(config, size, 3, pooling="tanh"),
        "regression": lambda: BertForRegression(config, size, pooling="tanh"),
        "tagging": lambda: BertForTokenClassification(config, size, 3),
        "question_answering": lambda: BertForQuestionAnswering(config, size),
        "sentence_vectors": lambda: SentenceEncoder(config, size, pooling=SentencePooling(("mean", "cls"), True)),
    }
    heads = {
        "masked_language_model": None,
        "text_classification": Head(task, labels),
        "regression": Head(task, mean=3.0, deviation=2.0),
        "tagging": Head(task, labels),
        "question_answering": Head(task),
        "sentence_vectors": SentenceModules(("mean", "cls"), True),
    }
    processor = TextProcessor(tokenizer, max_length=config.max_positions)
    network = randomize(networks[task]())
    return Pretrained(network, replace(config), processor, FAMILIES["bert"], task, heads[task])


def image_classifier(**changes) -> Pretrained:
    """A ViT with three labels."""
    config = ViTConfig(**{**VIT, **changes})
    network = randomize(ImageClassifier(ViT(config), 3))
    processor = ImageProcessor(resize=(config.image_size, config.width))
    head = ImageHead(("cat", "dog", "eye"))
    return Pretrained(network, config, processor, FAMILIES["vit"], "image_classification", head)


def sentencepiece_processor(*, gemma: bool = False) -> TextProcessor:
    """A SentencePiece BPE tokenizer as that of Llama 2, with a space before each text, or as that of Gemma."""
    inner = library.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    replace_spaces = normalizers.Replace(" ", "▁")
    inner.normalizer = replace_spaces if gemma else normalizers.Sequence([normalizers.Prepend("▁"), replace_spaces])
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=420, special_tokens=specials, show_progress=False))
    rules = json.loads(inner.to_str())
    vocabulary = rules["model"]["vocab"]
    # Every pair of tokens that is a third one is a merge, as in the files that transformers converts.
    ranks = {"".join(pair): rank for rank, pair in enumerate(rules["model"]["merges"])}
    pairs = [
        (rank, vocabulary[token[:at]], vocabulary[token[at:]], [token[:at], token[at:]])
        for token, rank in ranks.items()
        for at in range(1, len(token))
        if token[:at] in vocabulary and token[at:] in vocabulary
    ]
    rules["model"]["merges"] = [pair for *_, pair in sorted(pairs)]
    rules["added_tokens"] = [token for token in rules["added_tokens"] if token["id"] < 3]
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner = library.Tokenizer.from_str(json.dumps(rules))
    inner.decoder = decoders.Sequence(steps if gemma else [*steps, decoders.Strip(" ", left=1)])
    inner.post_processor = surround("<s>")(vocabulary)
    return TextProcessor(Tokenizer(inner), bos_id=1, eos_ids=(2,), parse_special=True)
