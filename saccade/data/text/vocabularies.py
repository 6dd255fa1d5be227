"""Vocabularies: the tokenizer of a pretrained model, from tokenizer.json or from the older vocab.txt and merges.txt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from saccade.data.text.tokenizer_checks import (
    LLAMA3,
    MAX_LITERAL,
    MAX_VOCABULARY,
    QWEN2,
    call_library,
    check_vocabulary,
    parse_json,
    read_text,
    refusal,
)
from saccade.data.text.tokenizers import BERT, END, Tokenizer
from saccade.errors import ModelFileError

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
VOCAB_TXT, VOCAB_JSON, MERGES = "vocab.txt", "vocab.json", "merges.txt"
UNSUPPORTED = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
MAX_TOKEN = 1024  # characters
ROBERTA = ("<s>", "</s>", "<mask>", "<pad>", "<unk>")
SPECIAL_ROLES = ("unk_token", "bos_token", "eos_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _pattern(pattern: str) -> Any:
    split = pre_tokenizers.Split(library.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _digits(add_prefix_space: bool) -> Any:
    single = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([single, pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)])


# How a text is split into words before byte pairs are merged, by the names that GGUF files use.
PRE_TOKENIZERS: dict[str, Callable[[bool], Any]] = {
    "gpt-2": lambda add_prefix_space: pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space),
    "smollm": _digits,
    "llama-bpe": lambda _: _pattern(LLAMA3),
    "qwen2": lambda _: _pattern(QWEN2),
}


@dataclass(frozen=True)
class TokenizerConfig:
    """The settings that are used of a tokenizer_config.json, and the tokens of an added_tokens.json."""

    path: Path
    values: dict[str, Any]
    added: dict[str, int]

    def flag(self, name: str) -> bool | None:
        """Return a setting that is true, false or missing."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise refusal(self.path, f"{name} must be true or false, but is {str(value)[:80]!r}")
        return value

    def special(self, name: str) -> str | None:
        """Return the special token with this role, a string or an object with its content."""
        value = self.values.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None and (not isinstance(text, str) or not 0 < len(text) <= MAX_LITERAL):
            raise refusal(self.path, f"{name} must be a short text, but is {str(text)[:80]!r}")
        return text


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a folder in the Hugging Face layout; it is validated before the library parses it."""
    if (folder / TOKENIZER).exists():
        return Tokenizer.load(folder / TOKENIZER)
    if (folder / VOCAB_TXT).exists():
        return _word_pieces(folder / VOCAB_TXT, _config(folder))
    if (folder / VOCAB_JSON).exists() and (folder / MERGES).exists():
        return _byte_level(folder, _config(folder))
    other = next((name for name in UNSUPPORTED if (folder / name).exists()), None)
    step = f"{other} is not supported: convert it to {TOKENIZER}" if other else "download the complete model"
    raise ModelFileError(
        f"{folder} must hold {TOKENIZER}, {VOCAB_TXT}, or {VOCAB_JSON} with {MERGES}, but does not; {step}"
    )


def byte_level_bpe(
    path: Path,
    vocabulary: dict[str, int],
    merges: Sequence[tuple[str, str]],
    specials: Sequence[str],
    *,
    added: Sequence[str] = (),
    pre_tokenizer: str = "gpt-2",
    add_prefix_space: bool = False,
) -> Tokenizer:
    """Build a byte-level tokenizer from a vocabulary and merges; `pre_tokenizer` names how words are split.

    `added`: tokens that are never split, anywhere in a text.
    """

    def build() -> Tokenizer:
        # Llama 3 does not merge a word that is a token itself.
        model = models.BPE(vocabulary, list(merges), ignore_merges=pre_tokenizer == "llama-bpe")
        inner = library.Tokenizer(model)
        if pre_tokenizer == "qwen2":
            inner.normalizer = normalizers.NFC()
        inner.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer](add_prefix_space)
        inner.decoder = decoders.ByteLevel()
        if {"<s>", "</s>", "<mask>"} <= set(specials):
            last, first = (("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]))
            inner.post_processor = processors.RobertaProcessing(last, first, True, add_prefix_space)
        inner.add_special_tokens([_token(name) for name in specials])
        inner.add_tokens([library.AddedToken(name, normalized=False) for name in added])
        return Tokenizer(inner, path)

    return call_library(path, build)


def _token(name: str) -> Any:
    """Return a special token; RoBERTa's mask includes the space before it."""
    return library.AddedToken(name, special=True, normalized=False, lstrip=name == "<mask>")


def _config(folder: Path) -> TokenizerConfig:
    path, added = folder / CONFIG, folder / "added_tokens.json"
    values = parse_json(path, read_text(path)) if path.exists() else {}
    ids = parse_json(added, read_text(added)) if added.exists() else {}
    if ids:
        check_vocabulary(added, ids)
    return TokenizerConfig(path, values, ids)


def _word_pieces(path: Path, config: TokenizerConfig) -> Tokenizer:
    """Read BERT's word pieces: one token per line, numbered from 0."""
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(_lines(path)):
        if token in vocabulary:
            raise ModelFileError(
                f"{path}:{number + 1}: tokens must be unique, but {token[:80]!r} is in line "
                f"{vocabulary[token] + 1:,} too; download the file again"
            )
        vocabulary[token] = number
    if not vocabulary:
        raise refusal(path, "must have one token per line, but is empty")
    unknown = config.special("unk_token") or "[UNK]"
    separator, first = config.special("sep_token") or "[SEP]", config.special("cls_token") or "[CLS]"
    vocabulary |= _extra(vocabulary, config)
    specials = _specials(path, config, vocabulary, BERT, (unknown, separator, first))

    normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.flag("tokenize_chinese_chars") is not False,
        strip_accents=config.flag("strip_accents"),
        lowercase=config.flag("do_lower_case") is not False,
    )

    def build() -> Tokenizer:
        inner = library.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
        inner.normalizer = normalizer
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece()
        inner.post_processor = processors.BertProcessing((separator, vocabulary[separator]), (first, vocabulary[first]))
        inner.add_special_tokens(specials)
        return Tokenizer(inner, path)

    return call_library(path, build)


def _byte_level(folder: Path, config: TokenizerConfig) -> Tokenizer:
    """Read the byte pairs of GPT-2, or of RoBERTa where its special tokens are in the vocabulary."""
    path = folder / VOCAB_JSON
    vocabulary = parse_json(path, read_text(path))
    check_vocabulary(path, vocabulary)
    long = next((token for token in vocabulary if len(token) > MAX_TOKEN), None)
    if long is not None:
        raise refusal(path, f"a token must have at most {MAX_TOKEN:,} characters, but one has {len(long):,}")
    merges = _merges(folder / MERGES, vocabulary)
    roberta = all(name in vocabulary for name in ROBERTA[:3])
    vocabulary |= _extra(vocabulary, config)
    usual = ROBERTA if roberta else (END,)
    specials = _specials(path, config, vocabulary, usual, ())
    return byte_level_bpe(path, vocabulary, merges, specials, add_prefix_space=bool(config.flag("add_prefix_space")))


def _merges(path: Path, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Read the merges in order; both tokens and their concatenation must be in the vocabulary."""
    return [
        parse_merge(f"{path}:{number}", line, vocabulary)
        for number, line in enumerate(_lines(path), start=1)
        if line and not (number == 1 and line.startswith("#version"))
    ]


def parse_merge(origin: str, line: str, vocabulary: dict[str, int]) -> tuple[str, str]:
    """Parse a pair of tokens with a space between them; `origin` is its file and line, for the error."""
    left, _, right = line.partition(" ")
    if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
        raise ModelFileError(
            f"{origin}: a merge must be two tokens of the vocabulary that together are a third, but is {line[:80]!r}; "
            "download the model again"
        )
    return left, right


def _lines(path: Path) -> list[str]:
    """Return the lines of a list of tokens; only a newline ends one, since a token may have any other separator."""
    lines = read_text(path).removesuffix("\n").split("\n")
    if len(lines) > MAX_VOCABULARY:
        raise refusal(path, f"must have at most {MAX_VOCABULARY:,} lines, but has {len(lines):,}")
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_TOKEN:
            raise ModelFileError(
                f"{path}:{number}: a line must have at most {MAX_TOKEN:,} characters, but has {len(line):,}; "
                "download the file again"
            )
    return [] if lines == [""] else [line.removesuffix("\r") for line in lines]


def _extra(vocabulary: dict[str, int], config: TokenizerConfig) -> dict[str, int]:
    """Return tokens that were added later, whose ids must follow those of the vocabulary."""
    added = {token: number for token, number in config.added.items() if token not in vocabulary}
    expected = list(range(max(vocabulary.values()) + 1, max(vocabulary.values()) + 1 + len(added)))
    clash = next((token for token, number in config.added.items() if vocabulary.get(token, number) != number), None)
    if clash is not None or sorted(added.values()) != expected:
        path = config.path.with_name("added_tokens.json")
        raise refusal(path, f"ids of added tokens must follow from {expected[0] if expected else 0:,}, but do not")
    return dict(sorted(added.items(), key=lambda item: item[1]))


def _specials(
    path: Path, config: TokenizerConfig, vocabulary: dict[str, int], usual: Sequence[str], needed: Sequence[str]
) -> list[str]:
    """Return the special tokens: the usual ones that are in the vocabulary, and all that the folder names."""
    named = [name for role in SPECIAL_ROLES if (name := config.special(role)) is not None]
    absent = next((name for name in (*needed, *named) if name not in vocabulary), None)
    if absent is not None:
        raise refusal(path, f"the special token must be in the vocabulary, but {absent!r} is not")
    specials = {name for name in (*usual, *named, *config.added) if name in vocabulary}
    return sorted(specials, key=vocabulary.__getitem__)
