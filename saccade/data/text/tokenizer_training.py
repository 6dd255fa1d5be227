"""Training of tokenizers: the vocabulary and rules of characters, words, byte pairs or word pieces, from texts."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from saccade.data.text.alphabets import UNKNOWN, split_at_newlines
from saccade.data.text.tokenizer_checks import CHARACTER, MAX_TOKEN
from saccade.data.text.tokenizers import BERT, BYTE_COUNT, KINDS, Tokenizer
from saccade.errors import DataError, UsageError, suggest


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    size: int,
    specials: Sequence[str] = (),
    *,
    lowercase: bool = False,
    add_prefix_space: bool = False,
) -> Tokenizer:
    """Train a vocabulary of at most `size` tokens, special tokens included; word pieces can be lower-cased.

    Special tokens come last for characters (so that ids are the rank of the character), first otherwise.
    `add_prefix_space`: byte pairs treat the first word of a text like every other word, which follows a space.
    """
    if kind not in KINDS:
        raise UsageError(f"tokenizer must be one of {', '.join(KINDS)}, but is '{kind}'{suggest(kind, list(KINDS))}")
    if len(set(specials)) < len(specials) or not all(specials):
        raise UsageError(f"special tokens must be different and not empty, but are {list(specials)}; rename one")
    if kind == "characters":
        return _train_characters(texts, size, specials)
    if kind == "bpe":
        return _train_bytes(texts, size, specials, add_prefix_space)
    if kind == "words":
        return _train_words(texts, size, specials)
    return _train_wordpiece(texts, size, [*BERT, *(name for name in specials if name not in BERT)], lowercase)


class EmptyText(DataError):
    """There is nothing to train a tokenizer on."""


def _nonempty(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; raise an error at the end if all of them are empty."""
    empty = True
    for text in texts:
        empty = empty and not text.strip()
        yield text
    if empty:
        raise EmptyText("the text for the tokenizer must not be empty, but is; name a file with data in it")


def _check_size(size: int, minimum: int, reason: str) -> None:
    if size < minimum:
        message = f"the vocabulary size must be at least {minimum:,} ({reason}), but is {size:,}"
        raise UsageError(f"{message}; choose a larger one")


def _train_characters(texts: Iterable[str], size: int, specials: Sequence[str]) -> Tokenizer:
    """Train a vocabulary of characters; if there are too many, the rarest become the unknown token."""
    _check_size(size, len(specials) + 1, "one character and the special tokens")
    counts: Counter[str] = Counter()
    for text in _nonempty(texts):
        counts.update(text)
    clash = next((name for name in specials if name in counts), None)
    if clash is not None:
        raise UsageError(f"a special token must be longer than a character, but is '{clash}'; rename it")
    room = size - len(specials)
    if len(counts) > room and UNKNOWN not in specials:
        message = f"the text has {len(counts):,} different characters, expected at most {room:,} (the vocabulary size)"
        raise DataError(f"{message}; choose a larger size, add the special token {UNKNOWN}, or use bpe")
    kept = sorted(sorted(counts, key=lambda character: (-counts[character], character))[:room])
    vocabulary = {token: number for number, token in enumerate([*kept, *specials])}
    inner = library.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.Split(library.Regex(CHARACTER), "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(list(specials))
    return Tokenizer(inner)


def _train_words(texts: Iterable[str], size: int, specials: Sequence[str]) -> Tokenizer:
    """Train a vocabulary of words between spaces; rare and new words become the unknown token."""
    counts: Counter[str] = Counter()
    for text in _nonempty(texts):
        counts.update(text.split())
    specials = list(dict.fromkeys((*specials, UNKNOWN)))
    _check_size(size, len(specials) + 1, "one word and the special tokens")
    words = (word for word in counts if word not in specials and len(word) <= MAX_TOKEN)
    ranked = sorted(words, key=lambda word: (-counts[word], word))
    tokens = [*specials, *ranked[: size - len(specials)]]
    inner = library.Tokenizer(models.WordLevel({token: at for at, token in enumerate(tokens)}, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(specials)
    return Tokenizer(inner)


def _train_bytes(texts: Iterable[str], size: int, specials: Sequence[str], add_prefix_space: bool) -> Tokenizer:
    """Train byte pairs (Sennrich 2016) over bytes (Radford 2019): any text can be encoded, nothing is unknown."""
    _check_size(size, BYTE_COUNT + len(specials), "all bytes and the special tokens")
    inner = library.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN,
        show_progress=False,
    )
    parts: Iterable[str] = _nonempty(texts)
    if not add_prefix_space:  # which would be added to each part
        parts = (part for text in parts for part in split_at_newlines(text, spaces=True))
    inner.train_from_iterator(parts, trainer)
    return Tokenizer(inner)


def _train_wordpiece(texts: Iterable[str], size: int, specials: Sequence[str], lowercase: bool) -> Tokenizer:
    """Train word pieces as BERT does (Devlin 2018)."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        characters: set[str] = set()
        for text in _nonempty(texts):
            characters.update(normalizer.normalize_str(text))
            spool.write(json.dumps(text) + "\n")
        # The trainer numbers the inner characters in the order of a hash table, which differs between processes, and
        # breaks ties by number. Numbering them beforehand, like special tokens, makes training deterministic.
        inside = [f"##{character}" for character in sorted(characters) if not character.isspace()]
        _check_size(size, len(specials) + 2 * len(inside), "each character alone and inside a word, and special tokens")
        inner = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        inner.normalizer = normalizer
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*specials, *inside], show_progress=False)
        inner.train_from_iterator(_unspool(spool), trainer)
    tokens = sorted(inner.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    vocabulary = {token: at for at, token in enumerate(token for token, _ in tokens if len(token) <= MAX_TOKEN)}
    final = library.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    final.normalizer = normalizer
    final.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    final.decoder = decoders.WordPiece()
    final.add_special_tokens(list(specials))
    return Tokenizer(final)


def _unspool(spool: IO[str]) -> Iterator[str]:
    spool.seek(0)
    for line in spool:
        yield str(json.loads(line))
