"""Odd tokenizers: folders as the hub has them, and worse, each opened by transformers and by us.

Each case is equal to transformers (ids of every prompt, text of every list of ids, chat template) or refused by name.
A new case is one line in `CASES`: a tokenizer, changes of its files, and for a refusal the words of the message.

python tests/pretrained/odd_tokenizers.py     prints a line for each case and the figures
"""

import copy
import functools
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from saccade.data.text.tokenizer_checks import CLIP_WORDS, GPT4, GPT4O, LLAMA3, NANOCHAT, NEMO, QWEN2
from saccade.data.text.tokenizers import StreamDecoder
from saccade.errors import ModelFileError
from saccade.pretrained.processors import TextProcessor, read_text_processor

TEXT = [
    "The quick brown fox jumps over the lazy dog. It's 2024, and 12345 cafés don't sell naïve tea!",
    "user assistant system hello world, how are you? I am fine; thank you -- and YOU?",
    "def f(x):\n    return x + 1\n\n\nprint(f(10))",
] * 4
VOCABULARY = 1000  # rows of the embedding, more than any tokenizer here has
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PROMPTS = (
    "",
    " ",
    "hello",
    " hello",
    "hello world",
    "  two  spaces  ",
    "It's 12345 cafés.",
    "naïve ＦＵＬＬ ﬁ Å Å",
    "日本語 русский 😀 \u200d é",
    "line\n\n\nline\r\n\ttab ",
    "<|endoftext|>",
    "a<|endoftext|>b",
    "a <|endoftext|> b",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    "<s>hello</s>",
    "hello <s> world </s>",
    "<unk> <pad> [MASK] the [MASK] dog [SEP] x",
    "the <mask> sat",
    "  <tool>  hello  <tool>  ",
    "x<tool>y",
    "HELLO Tool <TOOL> TheTool",
    "<bos>hello<eos>",
    "<0x41>",
    "▁▁hello",
    "<|begin_of_text|>hi<|eot_id|>",
)


def byte_level() -> dict[str, Any]:
    """GPT-2: byte-level byte pairs."""
    inner = library.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return _train(inner, trainers.BpeTrainer, SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def byte_pattern(pattern: str, special: tuple[str, ...]) -> dict[str, Any]:
    """Llama 3 and Qwen 2: a regular expression, then bytes."""
    inner = library.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(library.Regex(pattern), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    inner.decoder = decoders.ByteLevel()
    return _train(inner, trainers.BpeTrainer, special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def llama3() -> dict[str, Any]:
    content = byte_pattern(LLAMA3, ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    content["model"]["ignore_merges"] = True
    first = {"id": "<|begin_of_text|>", "ids": [0], "tokens": ["<|begin_of_text|>"]}
    single = [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    template = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {"<|begin_of_text|>": first},
    }
    byte = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    content["post_processor"] = {"type": "Sequence", "processors": [byte, template]}
    return content


def gpt4() -> dict[str, Any]:
    return byte_pattern(GPT4, SPECIALS)


def gpt4o() -> dict[str, Any]:
    return byte_pattern(GPT4O, SPECIALS)


def nanochat() -> dict[str, Any]:
    return byte_pattern(NANOCHAT, SPECIALS)


def nemo() -> dict[str, Any]:
    return byte_pattern(NEMO, SPECIALS)


def qwen2() -> dict[str, Any]:
    content = byte_pattern(QWEN2, SPECIALS)
    content["normalizer"] = {"type": "NFC"}
    return content


BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def sentencepiece() -> dict[str, Any]:
    """Llama 2: byte pairs of pieces, unknown characters as bytes; <s> before each text."""
    inner = library.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True)
    content = _train(inner, trainers.BpeTrainer, ("<unk>", "<s>", "</s>", *BYTES))
    content["added_tokens"] = content["added_tokens"][:3]
    content["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    content["pre_tokenizer"] = None
    prepend = {"type": "Prepend", "prepend": "▁"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    content["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]}
    content["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    content["post_processor"] = _template("<s>", 1)
    return content


def gemma() -> dict[str, Any]:
    """Gemma: spaces become pieces of their own, no space is added before a text."""
    content = sentencepiece()
    content["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    content["decoder"]["decoders"].pop()
    content["model"]["vocab"] = {
        {"<s>": "<bos>", "</s>": "<eos>"}.get(token, token): number
        for token, number in content["model"]["vocab"].items()
    }
    for token, name in zip(content["added_tokens"], ("<unk>", "<bos>", "<eos>"), strict=True):
        token["content"] = name
    content["post_processor"] = _template("<bos>", 1)
    return content


def unigram() -> dict[str, Any]:
    """Pieces with scores, as T5 and XLM-RoBERTa have them."""
    inner = library.Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")]
    )
    inner.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    return _train(inner, trainers.UnigramTrainer, special, unk_token="<unk>")


def unigram_bytes() -> dict[str, Any]:
    """Unigram with the bytes of unknown characters."""
    content = unigram()
    content["model"]["vocab"] += [[piece, -20.0] for piece in BYTES]
    content["model"]["byte_fallback"] = True
    content["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteFallback"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        ],
    }
    return content


def wordpiece() -> dict[str, Any]:
    """BERT, with capitals."""
    inner = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=False)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    content = _train(inner, trainers.WordPieceTrainer, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    inner = library.Tokenizer.from_str(json.dumps(content))
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return dict(json.loads(inner.to_str()))


def roberta() -> dict[str, Any]:
    inner = library.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    content = _train(inner, trainers.BpeTrainer, special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    content["added_tokens"][-1]["lstrip"] = True
    inner = library.Tokenizer.from_str(json.dumps(content))
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return dict(json.loads(inner.to_str()))


def clip() -> dict[str, Any]:
    """CLIP: byte pairs of lower-case words, whose last token has an ending of its own."""
    inner = library.Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    steps = [normalizers.NFC(), normalizers.Replace(library.Regex(r"\s+"), " "), normalizers.Lowercase()]
    inner.normalizer = normalizers.Sequence(steps)
    split = pre_tokenizers.Split(library.Regex(CLIP_WORDS), "removed", invert=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ("<|startoftext|>", "<|endoftext|>")
    content = _train(inner, trainers.BpeTrainer, special, initial_alphabet=alphabet, end_of_word_suffix="</w>")
    content["model"] |= {"unk_token": "<|endoftext|>", "end_of_word_suffix": "</w>", "continuing_subword_prefix": ""}
    inner = library.Tokenizer.from_str(json.dumps(content))
    inner.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), False, False)
    return dict(json.loads(inner.to_str()))


def words() -> dict[str, Any]:
    inner = library.Tokenizer(models.WordLevel(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return _train(inner, trainers.WordLevelTrainer, ("<unk>", "<|endoftext|>"))


def _train(inner: library.Tokenizer, trainer: Any, special: tuple[str, ...], **options: Any) -> dict[str, Any]:
    size = 300 + 200 * (trainer is trainers.BpeTrainer)
    inner.train_from_iterator(
        TEXT, trainer(vocab_size=size, special_tokens=list(special), show_progress=False, **options)
    )
    return dict(json.loads(inner.to_str()))


def _template(first: str, number: int, *, last: str = "", last_number: int = 0) -> dict[str, Any]:
    """A post-processor that puts a token before each text, and one after it."""
    special = [(first, number), *([(last, last_number)] if last else [])]
    single = f"{first} $A {last}".strip()
    template = processors.TemplateProcessing(single=single, pair=f"{single} $B", special_tokens=special)
    inner = library.Tokenizer(models.BPE())
    inner.post_processor = template
    return dict(json.loads(inner.to_str())["post_processor"])


@functools.cache
def trained(build: Callable[[], dict[str, Any]]) -> str:
    """The tokenizer.json of a function, trained once."""
    return json.dumps(build())


# changes of a tokenizer.json


def set_(**parts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(copy.deepcopy(parts))


def first_token(token: str, number: int, **last: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(post_processor=_template(token, number, **last))


def added(text: str, **flags: bool) -> Callable[[dict[str, Any]], None]:
    """Add a token after all others."""

    def change(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        size = len(vocabulary) + sum(row["id"] >= len(vocabulary) for row in content["added_tokens"])
        row = {"id": size, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
        content["added_tokens"].append({**row, "normalized": True, "special": False, **flags})

    return change


def model(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["model"].update(values)


def not_special(content: dict[str, Any]) -> None:
    for row in content["added_tokens"]:
        row["special"] = False


def no_added(content: dict[str, Any]) -> None:
    content["added_tokens"] = []


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
MISTRAL = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
DIGITS = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizerFast"}


@dataclass(frozen=True)
class Case:
    """A folder: the function of its tokenizer, what is changed, and the words of the refusal if there is one."""

    build: Callable[[], dict[str, Any]]
    model_type: str = "llama"
    changes: tuple[Callable[[dict[str, Any]], None], ...] = ()
    settings: dict[str, Any] | None = None
    files: dict[str, Any] = field(default_factory=dict)
    """other files by name: text, or JSON; "old" in place of tokenizer.json: the older vocabulary files"""
    config: dict[str, Any] = field(default_factory=dict)
    """other values of config.json"""
    refused: str = ""


CASES: dict[str, Case] = {
    "clip": Case(clip, "clip"),
    "clip, declared": Case(clip, "clip", settings={"tokenizer_class": "CLIPTokenizerFast", "model_max_length": 77}),
    "clip without its normalizer, which its class adds": Case(clip, "clip", (set_(normalizer=None),)),
    "clip without its template, which its class adds": Case(clip, "clip", (set_(post_processor=None),)),
    "clip with another ending of texts": Case(clip, "clip", settings={"eos_token": "<|startoftext|>"}),
    "clip with a token": Case(clip, "clip", (added("<tool>"),)),
    "old clip": Case(clip, "clip", files={"old": True}),
    # byte-level byte pairs
    "gpt2": Case(byte_level, "gpt2"),
    "gpt2 as a llama": Case(byte_level),
    "gpt2, declared": Case(byte_level, "gpt2", settings={"tokenizer_class": "GPT2TokenizerFast"}),
    "gpt2, as it is": Case(byte_level, "gpt2", (set_(pre_tokenizer=DIGITS),), FAST),
    "gpt2 with digits, which its class drops": Case(byte_level, "gpt2", (set_(pre_tokenizer=DIGITS),)),
    "smollm: digits in a llama": Case(byte_level, changes=(set_(pre_tokenizer=DIGITS),)),
    "gpt2 with a beginning": Case(byte_level, "gpt2", (first_token("<|endoftext|>", 0),), FAST),
    "gpt2 class with a beginning": Case(byte_level, "gpt2", (first_token("<|endoftext|>", 0),)),
    "beginning and end": Case(
        byte_level, changes=(first_token("<|im_start|>", 1, last="<|im_end|>", last_number=2),), settings=FAST
    ),
    "add_bos_token beside a tokenizer.json": Case(
        byte_level, "gpt2", settings={"add_bos_token": True, "bos_token": "<|endoftext|>"}
    ),
    "add_eos_token beside a tokenizer.json": Case(
        byte_level, settings={**FAST, "add_eos_token": True, "eos_token": "<|im_end|>"}
    ),
    "add_prefix_space in the settings": Case(byte_level, "gpt2", settings={"add_prefix_space": True}),
    "add_prefix_space in the file": Case(
        byte_level,
        changes=(
            set_(
                pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
            ),
        ),
    ),
    "special tokens that are not special": Case(byte_level, changes=(not_special,), settings=FAST),
    "special by the settings alone": Case(
        byte_level, changes=(not_special,), settings={**FAST, "eos_token": "<|endoftext|>"}
    ),
    "tokens of the vocabulary, named by the settings": Case(
        byte_level, changes=(no_added,), settings={**FAST, "eos_token": "<|endoftext|>", "pad_token": "<|im_end|>"}
    ),
    "no added tokens": Case(byte_level, changes=(no_added,), settings=FAST),
    "named token that is nowhere": Case(byte_level, settings={**FAST, "pad_token": "<pad>"}),
    "additional special tokens": Case(byte_level, settings={**FAST, "additional_special_tokens": ["<tool>", "<s>"]}),
    "extra special tokens by name": Case(byte_level, settings={**FAST, "extra_special_tokens": {"tool": "<tool>"}}),
    "a role of its own": Case(byte_level, settings={**FAST, "tool_token": "<tool>"}),
    "added tokens of the settings": Case(
        byte_level,
        settings={
            **FAST,
            "added_tokens_decoder": {
                "500": {"content": "<tool>", "lstrip": True, "rstrip": True, "normalized": False, "special": True}
            },
        },
    ),
    "special_tokens_map.json": Case(
        byte_level,
        settings=FAST,
        files={"special_tokens_map.json": {"pad_token": {"content": "<tool>", "lstrip": True, "rstrip": False}}},
    ),
    "added_tokens.json": Case(byte_level, settings=FAST, files={"added_tokens.json": {"<tool>": 500}}),
    "a token": Case(byte_level, changes=(added("<tool>"),), settings=FAST),
    "a token that strips left": Case(byte_level, changes=(added("<tool>", lstrip=True),), settings=FAST),
    "a token that strips right": Case(byte_level, changes=(added("<tool>", rstrip=True),), settings=FAST),
    "a special token that strips both": Case(
        byte_level, changes=(added("<tool>", rstrip=True, lstrip=True, special=True, normalized=False),), settings=FAST
    ),
    "a single word": Case(byte_level, changes=(added("Tool", single_word=True),), settings=FAST),
    "a token inside a word": Case(byte_level, changes=(added("Tool"),), settings=FAST),
    "a normalized token": Case(
        byte_level, changes=(set_(normalizer={"type": "Lowercase"}), added("<TOOL>")), settings=FAST
    ),
    "a token that is not normalized": Case(
        byte_level, changes=(set_(normalizer={"type": "Lowercase"}), added("<TOOL>", normalized=False)), settings=FAST
    ),
    "NFKC": Case(byte_level, changes=(set_(normalizer={"type": "NFKC"}),), settings=FAST),
    "truncation and padding": Case(
        byte_level,
        changes=(
            set_(
                truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
                padding={
                    "strategy": {"Fixed": 9},
                    "direction": "Right",
                    "pad_to_multiple_of": None,
                    "pad_id": 0,
                    "pad_type_id": 0,
                    "pad_token": "<|endoftext|>",
                },
            ),
        ),
        settings=FAST,
    ),
    "split_special_tokens": Case(
        byte_level, settings={**FAST, "split_special_tokens": True}, refused="split_special_tokens must be false"
    ),
    # Llama 3, Qwen
    "llama 3": Case(llama3, settings=FAST),
    "llama 3 without settings": Case(llama3),
    "llama 3 with the class of llama 2": Case(llama3, settings=LLAMA),
    "llama 3, merges not ignored": Case(llama3, changes=(model(ignore_merges=False),)),
    "qwen2": Case(qwen2, "qwen2", settings={"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}),
    "qwen2 without settings": Case(qwen2, "qwen2"),
    "qwen2, whatever it declares": Case(byte_level, "qwen2", settings=FAST),
    "qwen2 with a token that strips": Case(
        qwen2,
        "qwen2",
        (added("<tool>", lstrip=True, special=True),),
        {"eos_token": "<|im_end|>", "additional_special_tokens": ["<tool>"]},
    ),
    "qwen2 with the class of llama": Case(qwen2, "qwen2", settings=LLAMA),
    "qwen3 without settings": Case(qwen2, "qwen3"),
    "qwen3, as it is": Case(byte_level, "qwen3", settings=FAST),
    "smollm3": Case(llama3, "smollm3", settings=FAST),
    "nanochat": Case(nanochat, "nanochat", (first_token("<|endoftext|>", 0),)),
    "gpt-4": Case(gpt4),
    "gpt-4o": Case(gpt4o),
    "mistral nemo": Case(nemo, "mistral", settings=FAST),
    "gpt2 with the class of llama": Case(byte_level, "gpt2", (set_(pre_tokenizer=DIGITS),), LLAMA),
    "bert with the class of gpt2": Case(byte_level, "bert", settings={"tokenizer_class": "GPT2Tokenizer"}),
    "a class of config.json": Case(
        byte_level, changes=(set_(pre_tokenizer=DIGITS),), config={"tokenizer_class": "GPT2Tokenizer"}
    ),
    # SentencePiece
    "llama 2": Case(sentencepiece, settings=LLAMA),
    "llama 2, legacy": Case(sentencepiece, settings={**LLAMA, "legacy": True}),
    "llama 2, not legacy": Case(sentencepiece, settings={**LLAMA, "legacy": False}),
    "llama 2 without a space before": Case(sentencepiece, settings={**LLAMA, "add_prefix_space": False}),
    "llama 2, as it is": Case(sentencepiece, settings=FAST),
    "llama 2 without settings": Case(sentencepiece),
    "llama 2 with flags in the settings": Case(
        sentencepiece, settings={**LLAMA, "add_bos_token": False, "add_eos_token": True}
    ),
    "llama 2 with other names": Case(
        sentencepiece, settings={**LLAMA, "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": True}}
    ),
    "mistral": Case(sentencepiece, "mistral", (set_(normalizer=None, pre_tokenizer=MISTRAL),), LLAMA),
    "metaspace before the first word": Case(
        sentencepiece, changes=(set_(normalizer=None, pre_tokenizer=METASPACE),), settings=FAST
    ),
    "no bytes, unknown pieces": Case(sentencepiece, changes=(model(byte_fallback=False),), settings=FAST),
    "unknown pieces not fused": Case(
        sentencepiece, changes=(model(byte_fallback=False, fuse_unk=False),), settings=FAST
    ),
    "gemma": Case(gemma, "gemma", settings={"tokenizer_class": "GemmaTokenizerFast"}),
    "gemma 3 without settings": Case(gemma, "gemma3_text"),
    "gemma in a llama": Case(gemma),
    "unigram": Case(unigram),
    "unigram with bytes": Case(unigram_bytes, settings=FAST),
    "xlm-roberta in a bert": Case(unigram, "bert", settings={"tokenizer_class": "XLMRobertaTokenizerFast"}),
    # encoders
    "bert": Case(wordpiece, "bert", settings={"do_lower_case": False, "tokenizer_class": "BertTokenizer"}),
    "bert without settings, which its class lower-cases": Case(wordpiece, "bert"),
    "bert, as it is": Case(wordpiece, "bert", settings=FAST),
    "bert, accents stripped": Case(wordpiece, "bert", settings={"do_lower_case": False, "strip_accents": True}),
    "distilbert": Case(wordpiece, "distilbert", settings={"tokenizer_class": "DistilBertTokenizerFast"}),
    "word pieces in a llama": Case(wordpiece, settings=FAST),
    "roberta": Case(roberta, "roberta"),
    "roberta, declared": Case(roberta, "roberta", settings={"tokenizer_class": "RobertaTokenizer"}),
    "roberta with a space before": Case(roberta, "roberta", settings={"add_prefix_space": True}),
    "roberta, as it is": Case(roberta, "roberta", settings=FAST),
    "words": Case(words, settings=FAST),
    # older vocabulary files
    "old gpt2": Case(byte_level, "gpt2", files={"old": True}),
    "old gpt2 with a beginning": Case(
        byte_level, "gpt2", settings={"add_bos_token": True, "add_eos_token": True}, files={"old": True}
    ),
    "old qwen2": Case(byte_level, "qwen2", files={"old": True}),
    "old roberta": Case(roberta, "roberta", files={"old": True}),
    "old bert": Case(wordpiece, "bert", settings={"do_lower_case": False}, files={"old": True}),
    "old llama": Case(byte_level, files={"old": True}, refused="the tokenizer must be a CLIPTokenizer or"),
    # chat templates
    "chat template in the settings": Case(byte_level, settings={**FAST, "chat_template": TEMPLATE}),
    "chat template in a file": Case(byte_level, settings=FAST, files={"chat_template.jinja": TEMPLATE}),
    "chat template in both": Case(
        byte_level, settings={**FAST, "chat_template": "settings"}, files={"chat_template.jinja": TEMPLATE}
    ),
    # refused by name
    "another pattern": Case(
        byte_level, settings={**FAST, "fix_mistral_regex": True}, refused="fix_mistral_regex must be false"
    ),
    "custom code": Case(byte_level, settings={"auto_map": {"AutoTokenizer": ["a.B", None]}}, refused="custom code"),
    "an unknown class": Case(byte_level, settings={"tokenizer_class": "T5Tokenizer"}, refused="but is 'T5Tokenizer'"),
    "a class for another model": Case(wordpiece, "gpt2", refused="the model of a GPT2Tokenizer must be BPE"),
    "beginning outside of the vocabulary": Case(
        byte_level, changes=(first_token("<|endoftext|>", 5000),), settings=FAST, refused="but has 5,001"
    ),
}


def write(case: Case, folder: Path) -> dict[str, Any]:
    """Write the folder of a case; return its config.json."""
    folder.mkdir(parents=True)
    content = json.loads(trained(case.build))
    for change in case.changes:
        change(content)
    if case.files.get("old"):
        _write_old(content, folder)
    else:
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    if case.settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(case.settings), encoding="utf-8")
    for name, value in case.files.items():
        if name != "old":
            text = value if isinstance(value, str) else json.dumps(value)
            (folder / name).write_text(text, encoding="utf-8")
    config = {"model_type": case.model_type, "vocab_size": VOCABULARY, **case.config}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return config


def _write_old(content: dict[str, Any], folder: Path) -> None:
    """Write vocab.txt, or vocab.json and merges.txt."""
    vocabulary = content["model"]["vocab"]
    if content["model"]["type"] == "WordPiece":
        names = sorted(vocabulary, key=vocabulary.__getitem__)
        (folder / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        return
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")


def differences(ours: TextProcessor, theirs: Any) -> list[str]:
    """Return what differs between our processor and transformers' tokenizer."""
    found = []
    for prompt in PROMPTS:
        expected, actual = theirs(prompt)["input_ids"], ours.encode_prompt(prompt)
        if actual != list(expected):
            found.append(f"{prompt!r}: {actual}, transformers has {list(expected)}")
    lists = [theirs(prompt)["input_ids"] for prompt in PROMPTS]
    size = len(theirs)
    lists += [[*range(start, start + 40, 3)] for start in range(0, size, 37)]  # across the end of the vocabulary
    for ids in lists:
        expected, actual = theirs.decode(ids, skip_special_tokens=True), ours.tokenizer.decode(ids)
        stream = StreamDecoder(ours.tokenizer)
        streamed = "".join([stream.feed(number) for number in ids]) + stream.finish()
        if not actual == streamed == expected:
            found.append(f"{list(ids)}: {actual!r}, streamed {streamed!r}, transformers has {expected!r}")
    if ours.chat_template != (theirs.chat_template or ""):
        found.append(f"chat template {ours.chat_template!r}, transformers has {theirs.chat_template!r}")
    return found


def run(name: str, folder: Path) -> str:
    """Return 'equal', 'refused: ...' or 'different: ...' for a case."""
    import transformers

    case = CASES[name]
    config = write(case, folder)
    try:
        ours = read_text_processor(folder, config)
    except ModelFileError as error:
        return f"refused: {error}"
    found = differences(ours, transformers.AutoTokenizer.from_pretrained(folder))
    return f"different: {len(found)} of them, such as {found[0]}" if found else "equal"


def main() -> int:
    outcomes = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(CASES):
            outcomes[name] = run(name, Path(temporary) / str(number))
            print(f"{name:50} {outcomes[name][:300]}")
    kinds = [outcome.partition(":")[0] for outcome in outcomes.values()]
    print(f"\n{len(kinds)} tokenizers: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))))
    return int("different" in kinds)


if __name__ == "__main__":
    sys.exit(main())
