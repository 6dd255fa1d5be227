"""Vocabularies: the tokenizer of a pretrained model, from tokenizer.json or from the older vocab.txt and merges.txt."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from saccade.data.text.auto_tokenizer import (
    CLASSES,
    TOKENIZER,
    TokenizerClass,
    build_tokenizer,
    read_auto_tokenizer,
)
from saccade.data.text.sentencepiece import SIGLIP, read_siglip
from saccade.data.text.tokenizer_checks import (
    LLAMA3,
    MAX_TOKEN,
    MAX_VOCABULARY,
    QWEN2,
    call_library,
    check_vocabulary,
    parse_json,
    read_text,
    refusal,
)
from saccade.data.text.tokenizer_settings import BACKEND, ROLES, TokenizerSettings, read_settings
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError

VOCAB_TXT, VOCAB_JSON, MERGES = "vocab.txt", "vocab.json", "merges.txt"
UNSUPPORTED = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
ADDED = "added_tokens.json"
BYTE_LEVEL_CLASSES = ("CLIPTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer", "RobertaTokenizer", "WhisperTokenizer")
# Special tokens that a class cannot do without: unknown words, and what is put around each text.
NEEDED = {"WordPiece": ("unk_token", "sep_token", "cls_token"), "BPE": ("sep_token", "cls_token")}


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


def read_tokenizer(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read the tokenizer of a folder whose config.json is `config`; it is validated before the library parses it."""
    if (folder / SIGLIP).exists() and read_settings(folder).tokenizer_class(config, "") == "SiglipTokenizer":
        return read_siglip(folder)
    if (folder / TOKENIZER).exists():
        return read_auto_tokenizer(folder, config)
    if (folder / VOCAB_TXT).exists():
        return _old_tokenizer(folder / VOCAB_TXT, _word_pieces, config, ("BertTokenizer",))
    if (folder / VOCAB_JSON).exists() and (folder / MERGES).exists():
        return _old_tokenizer(folder / VOCAB_JSON, _byte_pairs, config, BYTE_LEVEL_CLASSES)
    other = next((name for name in UNSUPPORTED if (folder / name).exists()), None)
    step = f"{other} is not supported: convert it to {TOKENIZER}" if other else "download the complete model"
    raise ModelFileError(
        f"{folder} must hold {TOKENIZER}, {VOCAB_TXT}, or {VOCAB_JSON} with {MERGES}, but does not; {step}"
    )


def _old_tokenizer(
    path: Path, read: Callable[[Path], dict[str, Any]], config: Mapping[str, Any], classes: Sequence[str]
) -> Tokenizer:
    """Read a vocabulary without rules, to which a class of transformers adds its own."""
    settings = read_settings(path.parent)
    name = settings.tokenizer_class(config, "")
    if name not in classes:
        shown = config.get("model_type") if name == BACKEND else name
        rule = f"without {TOKENIZER} the tokenizer must be a {' or '.join(classes)}, but is {shown!r:.80}"
        raise refusal(path.parent, rule)
    rules, model = CLASSES[name], read(path)
    _check_ids(path, settings, model["vocab"])
    named = [token for role in ROLES if (token := settings.special(role)) is not None]
    needed = [settings.special(role) or rules.defaults[role] for role in NEEDED[rules.model] if role in rules.defaults]
    absent = next((token for token in (*needed, *named) if token not in {**model["vocab"], **settings.added}), None)
    if absent is not None:
        raise refusal(path, f"the special token must be in the vocabulary, but {absent!r} is not")
    template = surround(*(_added_at_ends(settings, rules, role) for role in ("bos", "eos")))
    ids = {**model["vocab"], **settings.added}
    return call_library(path, lambda: build_tokenizer(path, rules, {"model": model}, settings, template(ids)))


def _added_at_ends(settings: TokenizerSettings, rules: TokenizerClass, role: str) -> str | None:
    """Return the token that is put before (bos) or after (eos) each text, if there is one."""
    token = settings.special(f"{role}_token") or rules.defaults.get(f"{role}_token")
    return token if settings.flag(f"add_{role}_token") else None


def byte_level_bpe(
    path: Path,
    vocabulary: dict[str, int],
    merges: Sequence[tuple[str, str]],
    specials: Sequence[str],
    *,
    added: Sequence[str] = (),
    pre_tokenizer: str = "gpt-2",
    template: Callable[[dict[str, int]], Any] | None = None,
    add_prefix_space: bool = False,
) -> Tokenizer:
    """Build a byte-level tokenizer from a vocabulary and merges; `pre_tokenizer` names how words are split.

    `added`: tokens that are never split, anywhere in a text; `template`: ids -> the post-processor.
    """

    def build() -> Tokenizer:
        # Llama 3 does not merge a word that is a token itself.
        model = models.BPE(vocabulary, list(merges), ignore_merges=pre_tokenizer == "llama-bpe")
        inner = library.Tokenizer(model)
        if pre_tokenizer == "qwen2":
            inner.normalizer = normalizers.NFC()
        inner.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer](add_prefix_space)
        inner.decoder = decoders.ByteLevel()
        if template is not None:
            inner.post_processor = template(vocabulary)
        inner.add_special_tokens([library.AddedToken(name, special=True) for name in specials])
        inner.add_tokens([library.AddedToken(name, normalized=False) for name in added])
        return Tokenizer(inner, path)

    return call_library(path, build)


def surround(first: str | None, last: str | None = None) -> Callable[[dict[str, int]], Any]:
    """Return the template that puts tokens before and after a text."""

    def template(ids: dict[str, int]) -> Any:
        names = [name for name in (first, "$A", last) if name is not None]
        special = [(name, ids[name]) for name in {first, last} if name is not None]
        return processors.TemplateProcessing(single=names, special_tokens=special)

    return template


def _word_pieces(path: Path) -> dict[str, Any]:
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
    return {"type": "WordPiece", "vocab": vocabulary}


def _byte_pairs(path: Path) -> dict[str, Any]:
    """Read the byte pairs of CLIP, GPT-2, Qwen 2 or RoBERTa."""
    vocabulary = parse_json(path, read_text(path))
    check_vocabulary(path, vocabulary)
    long = next((token for token in vocabulary if len(token) > MAX_TOKEN), None)
    if long is not None:
        raise refusal(path, f"a token must have at most {MAX_TOKEN:,} characters, but one has {len(long):,}")
    return {"type": "BPE", "vocab": vocabulary, "merges": _merges(path.with_name(MERGES), vocabulary)}


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


def _check_ids(path: Path, settings: TokenizerSettings, vocabulary: dict[str, int]) -> None:
    """Check that the ids of tokens that were added later follow those of the vocabulary."""
    added = sorted(number for token, number in settings.added.items() if token not in vocabulary)
    first = max(vocabulary.values()) + 1
    clash = any(vocabulary.get(token, number) != number for token, number in settings.added.items())
    if clash or added != list(range(first, first + len(added))):
        raise refusal(path.with_name(ADDED), f"ids of added tokens must follow from {first:,}, but do not")
