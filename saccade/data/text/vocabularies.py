"""Vocabularies: the tokenizer of a foreign folder, from tokenizer.json or from the older vocab.txt and merges.txt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from saccade.data.text import guard
from saccade.data.text.guard import (
    LARGEST_VOCABULARY,
    LLAMA3,
    LONGEST_LITERAL,
    QWEN2,
    check_vocabulary,
    guarded,
    parse,
    refusal,
)
from saccade.data.text.tokenizers import BERT, END, Tokenizer
from saccade.errors import ModelFileError

WHOLE, PIECES, TABLE, MERGES, SAID = "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json"
LONGEST_TOKEN = 1024  # characters
ROBERTA = ("<s>", "</s>", "<mask>", "<pad>", "<unk>")
NAMED = ("unk_token", "bos_token", "eos_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _pattern(pattern: str) -> Any:
    cut = pre_tokenizers.Split(library.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _digits(spaced: bool) -> Any:
    single = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([single, pre_tokenizers.ByteLevel(add_prefix_space=spaced)])


# How a text is cut into words before byte pairs are joined, by the names that GGUF files use.
CUTS: dict[str, Callable[[bool], Any]] = {
    "gpt-2": lambda spaced: pre_tokenizers.ByteLevel(add_prefix_space=spaced),
    "smollm": _digits,
    "llama-bpe": lambda _: _pattern(LLAMA3),
    "qwen2": lambda _: _pattern(QWEN2),
}


@dataclass(frozen=True)
class Said:
    """What a tokenizer_config.json and an added_tokens.json say, of the little that is asked."""

    path: Path
    values: dict[str, Any]
    added: dict[str, int]

    def flag(self, name: str) -> bool | None:
        """A setting that is true, false or not said."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, bool):
            raise refusal(self.path, f"{name} must be true or false, but is {str(found)[:80]!r}")
        return found

    def special(self, name: str) -> str | None:
        """The special token with this role, written plainly or as an object with its content."""
        found = self.values.get(name)
        text = found.get("content") if isinstance(found, dict) else found
        if text is not None and (not isinstance(text, str) or not 0 < len(text) <= LONGEST_LITERAL):
            raise refusal(self.path, f"{name} must be a short text, but is {str(text)[:80]!r}")
        return text


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder as Hugging Face writes it; what it says is checked before the library sees it."""
    if (folder / WHOLE).exists():
        return Tokenizer.load(folder / WHOLE)
    if (folder / PIECES).exists():
        return _word_pieces(folder / PIECES, _said(folder))
    if (folder / TABLE).exists() and (folder / MERGES).exists():
        return _byte_level(folder, _said(folder))
    raise ModelFileError(
        f"{folder} must hold {WHOLE}, {PIECES}, or {TABLE} with {MERGES}, but does not; get the whole model again"
    )


def byte_pairs(
    path: Path,
    vocabulary: dict[str, int],
    merges: Sequence[tuple[str, str]],
    specials: Sequence[str],
    *,
    whole: Sequence[str] = (),
    cut: str = "gpt-2",
    spaced: bool = False,
) -> Tokenizer:
    """A byte-level tokenizer of a table and its merges; `cut` names the rule for words.

    `whole`: tokens that are never cut, wherever they stand in a text.
    """

    def build() -> Tokenizer:
        # Llama 3 takes a word that is a token whole, whatever the merges would make of it.
        model = models.BPE(vocabulary, list(merges), ignore_merges=cut == "llama-bpe")
        inner = library.Tokenizer(model)
        if cut == "qwen2":
            inner.normalizer = normalizers.NFC()
        inner.pre_tokenizer = CUTS[cut](spaced)
        inner.decoder = decoders.ByteLevel()
        if {"<s>", "</s>", "<mask>"} <= set(specials):
            last, first = (("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]))
            inner.post_processor = processors.RobertaProcessing(last, first, True, spaced)
        inner.add_special_tokens([_token(name) for name in specials])
        inner.add_tokens([library.AddedToken(name, normalized=False) for name in whole])
        return Tokenizer(inner, path)

    return guarded(path, build)


def _token(name: str) -> Any:
    """RoBERTa's mask takes the space before it with it."""
    return library.AddedToken(name, special=True, normalized=False, lstrip=name == "<mask>")


def _said(folder: Path) -> Said:
    path, added = folder / SAID, folder / "added_tokens.json"
    values = parse(path, guard.read_text(path)) if path.exists() else {}
    numbers = parse(added, guard.read_text(added)) if added.exists() else {}
    if numbers:
        check_vocabulary(added, numbers)
    return Said(path, values, numbers)


def _word_pieces(path: Path, said: Said) -> Tokenizer:
    """BERT's word pieces: one token a line, numbered from 0."""
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(_lines(path)):
        if token in vocabulary:
            raise ModelFileError(
                f"{path}:{number + 1}: tokens must be different, but {token[:80]!r} is in line "
                f"{vocabulary[token] + 1:,} too; get the file again"
            )
        vocabulary[token] = number
    if not vocabulary:
        raise refusal(path, "must hold a token a line, but is empty")
    unknown = said.special("unk_token") or "[UNK]"
    separator, first = said.special("sep_token") or "[SEP]", said.special("cls_token") or "[CLS]"
    vocabulary |= _extra(vocabulary, said)
    specials = _specials(path, said, vocabulary, BERT, (unknown, separator, first))

    normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=said.flag("tokenize_chinese_chars") is not False,
        strip_accents=said.flag("strip_accents"),
        lowercase=said.flag("do_lower_case") is not False,
    )

    def build() -> Tokenizer:
        inner = library.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
        inner.normalizer = normalizer
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece()
        inner.post_processor = processors.BertProcessing((separator, vocabulary[separator]), (first, vocabulary[first]))
        inner.add_special_tokens(specials)
        return Tokenizer(inner, path)

    return guarded(path, build)


def _byte_level(folder: Path, said: Said) -> Tokenizer:
    """The byte pairs of GPT-2, or of RoBERTa where its special tokens are there."""
    path = folder / TABLE
    vocabulary = parse(path, guard.read_text(path))
    check_vocabulary(path, vocabulary)
    long = next((token for token in vocabulary if len(token) > LONGEST_TOKEN), None)
    if long is not None:
        raise refusal(path, f"a token must have at most {LONGEST_TOKEN:,} characters, but one has {len(long):,}")
    merges = _merges(folder / MERGES, vocabulary)
    roberta = all(name in vocabulary for name in ROBERTA[:3])
    vocabulary |= _extra(vocabulary, said)
    usual = ROBERTA if roberta else (END,)
    specials = _specials(path, said, vocabulary, usual, ())
    return byte_pairs(path, vocabulary, merges, specials, spaced=bool(said.flag("add_prefix_space")))


def _merges(path: Path, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Pairs of tokens that become one, in their order; both and what they become must be in the vocabulary."""
    return [
        merge(f"{path}:{number}", line, vocabulary)
        for number, line in enumerate(_lines(path), start=1)
        if line and not (number == 1 and line.startswith("#version"))
    ]


def merge(place: str, line: str, vocabulary: dict[str, int]) -> tuple[str, str]:
    """A pair of tokens, written with a space between them."""
    left, _, right = line.partition(" ")
    if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
        raise ModelFileError(
            f"{place}: a merge must be two tokens of the vocabulary that together are a third, but is {line[:80]!r}; "
            "get the model again"
        )
    return left, right


def _lines(path: Path) -> list[str]:
    """The lines of a list of tokens; only a newline ends one, since a token may hold any other separator."""
    lines = guard.read_text(path).removesuffix("\n").split("\n")
    if len(lines) > LARGEST_VOCABULARY:
        raise refusal(path, f"must have at most {LARGEST_VOCABULARY:,} lines, but has {len(lines):,}")
    for number, line in enumerate(lines, start=1):
        if len(line) > LONGEST_TOKEN:
            raise ModelFileError(
                f"{path}:{number}: a line must have at most {LONGEST_TOKEN:,} characters, but has {len(line):,}; "
                "get the file again"
            )
    return [] if lines == [""] else [line.removesuffix("\r") for line in lines]


def _extra(vocabulary: dict[str, int], said: Said) -> dict[str, int]:
    """Tokens that were added later, which must be numbered on from the end of the vocabulary."""
    added = {token: number for token, number in said.added.items() if token not in vocabulary}
    wanted = list(range(max(vocabulary.values()) + 1, max(vocabulary.values()) + 1 + len(added)))
    clash = next((token for token, number in said.added.items() if vocabulary.get(token, number) != number), None)
    if clash is not None or sorted(added.values()) != wanted:
        path = said.path.with_name("added_tokens.json")
        raise refusal(path, f"added tokens must be numbered on from {wanted[0] if wanted else 0:,}, but are not")
    return dict(sorted(added.items(), key=lambda item: item[1]))


def _specials(
    path: Path, said: Said, vocabulary: dict[str, int], usual: Sequence[str], needed: Sequence[str]
) -> list[str]:
    """The special tokens: the usual ones that are there, and all that the folder names."""
    named = [name for role in NAMED if (name := said.special(role)) is not None]
    absent = next((name for name in (*needed, *named) if name not in vocabulary), None)
    if absent is not None:
        raise refusal(path, f"the special token must be in the vocabulary, but {absent!r} is not")
    found = {name for name in (*usual, *named, *said.added) if name in vocabulary}
    return sorted(found, key=vocabulary.__getitem__)
