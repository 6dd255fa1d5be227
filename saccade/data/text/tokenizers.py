"""Tokenizers: text to ids and back, by characters, words, byte pairs or word pieces, on the `tokenizers` library."""

import codecs
import functools
import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from saccade.data.text.alphabets import (
    PART,
    UNKNOWN,
    CharacterTable,
    Ids,
    check_surrogates,
    split_at_newlines,
    token_bytes,
)
from saccade.data.text.tokenizer_checks import CHARACTER, SPACE, call_library, read_tokenizer_file
from saccade.data.text.tokenizer_kinds import is_splittable, kind_of
from saccade.errors import DataError, UsageError, suggest

BEGIN = "<|begin|>"
END = "<|endoftext|>"
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTE_COUNT = 256
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")  # how SentencePiece writes a byte of an unknown character
GROUP = 16  # parts of a long text encoded at once: the library needs a hundred bytes for each character
KINDS = ("characters", "words", "bpe", "wordpiece")


class Tokenizer:
    """A vocabulary and its rules: encodes text to ids and decodes ids to text."""

    def __init__(self, inner: library.Tokenizer, name: Path | str = "tokenizer") -> None:
        """Wrap a tokenizer of the library that has been checked; for files use `load`."""
        self._inner = inner
        self._name = name
        # Settings of a file that would silently truncate or pad texts.
        inner.no_truncation()
        inner.no_padding()
        # A special token written in a text stays text: data must not be able to end a document.
        inner.encode_special_tokens = True
        self._saved = inner.to_str(pretty=False).encode()
        self.sha256: str = hashlib.sha256(self._saved).hexdigest()
        vocabulary = inner.get_vocab(with_added_tokens=True)
        self._tokens: dict[int, str] = {number: token for token, number in vocabulary.items()}
        added = inner.get_added_tokens_decoder()
        self.specials: dict[str, int] = {
            token.content: number for number, token in sorted(added.items()) if token.special
        }
        self.kind: str = kind_of(inner)
        self.size: int = max(self._tokens) + 1
        self._special_ids = frozenset(self.specials.values())
        self._characters = CharacterTable(self._tokens, self.specials) if self.kind == "characters" else None
        self._byte_level = isinstance(inner.decoder, decoders.ByteLevel)
        if self._byte_level and inner.normalizer is not None:  # the text of an added token is what it is normalized to
            normalized = [number for number, token in added.items() if token.normalized and not token.special]
            self._tokens |= {number: inner.decode([number]) for number in normalized}
        self._splittable = is_splittable(inner)
        self._byte_fallback = "ByteFallback" in str(inner.decoder)

    @functools.cached_property
    def _parser(self) -> library.Tokenizer:
        """A copy that finds special tokens in a text."""
        return library.Tokenizer.from_str(self._saved.decode())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Open a tokenizer.json from any source, after it has been checked."""
        path = Path(path)
        text = read_tokenizer_file(path)
        return call_library(path, lambda: cls(library.Tokenizer.from_str(text), path))

    def save(self, path: str | Path) -> None:
        """Write a tokenizer.json; the same tokenizer always produces the same bytes."""
        Path(path).write_bytes(self._saved)

    def same_rules(self, other: "Tokenizer") -> bool:
        """Whether another tokenizer has the same tokens and splits every text in the same way."""
        ours, theirs = (json.loads(tokenizer._saved) for tokenizer in (self, other))
        return all(ours[key] == theirs[key] for key in ("model", "added_tokens", "normalizer", "pre_tokenizer"))

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the ids of a text; `parse_special`: special tokens written in it, such as [MASK], become their ids."""
        if not parse_special or not self.specials:
            return [int(number) for number in self.encode_array(text)]
        if self._characters is None:
            return self._parse(text, add_special_tokens=False)
        parts = re.split(f"({'|'.join(map(re.escape, self.specials))})", text)
        return [
            number
            for part in parts
            for number in ([self.specials[part]] if part in self.specials else self.encode(part))
        ]

    def encode_prompt(self, text: str) -> list[int]:
        """Return the ids of a text as transformers does: with the special tokens written in it and those around it.

        Those around it, such as the beginning of a text, are added by the post-processor of the tokenizer.
        """
        if self._characters is not None:
            return self.encode(text, parse_special=True)
        return self._parse(text, add_special_tokens=True)

    def _parse(self, text: str, *, add_special_tokens: bool) -> list[int]:
        check_surrogates(text)
        parser = self._parser if text else self._inner  # the copy is made when it is needed
        encode = functools.partial(parser.encode, text, add_special_tokens=add_special_tokens)
        return list(call_library(self._name, encode).ids)

    def encode_array(self, text: str) -> Ids:
        """Return the ids of a text as an array, which is fast for long texts."""
        if self._characters is not None:
            return self._characters.encode(text)
        parts = [text]
        if self._splittable and len(text) > PART:
            parts = split_at_newlines(text, spaces=self._splits_at_spaces)
        arrays = [ids for first in range(0, len(parts), GROUP) for ids in self._run(parts[first : first + GROUP])]
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]

    @property
    def _splits_at_spaces(self) -> bool:
        """Whether no added token has white space in it or takes the space behind it."""
        added = self._inner.get_added_tokens_decoder().values()
        return not any(token.rstrip or re.search(r"\s", token.content) for token in added)

    def encode_arrays(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of several texts as arrays, computed on all cores."""
        if self._characters is not None:
            return [self._characters.encode(text) for text in texts]
        return self._run(texts)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of several texts, computed on all cores."""
        return [ids.tolist() for ids in self.encode_arrays(texts)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of several texts, and the characters (first, end) of its text that each id covers."""
        if self._characters is not None:
            return [(self.encode(text), [(at, at + 1) for at in range(len(text))]) for text in texts]
        for text in texts:
            check_surrogates(text)
        encodings = call_library(self._name, lambda: self._inner.encode_batch(list(texts), add_special_tokens=False))
        return [
            (list(encoding.ids), [(int(first), int(last)) for first, last in encoding.offsets])
            for encoding in encodings
        ]

    def special_layout(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
        """Return the special tokens before, between and after two texts; None: the tokenizer adds none."""
        encoding = call_library(self._name, lambda: self._inner.encode("a", "b"))
        owners = encoding.sequence_ids
        if not {None, 0, 1} <= set(owners):
            return None
        ends = (owners.index(0), len(owners) - owners[::-1].index(0), owners.index(1))
        last = len(owners) - owners[::-1].index(1)
        ids = tuple(encoding.ids)
        return ids[: ends[0]], ids[ends[1] : ends[2]], ids[last:]

    def lowercased(self) -> "Tokenizer":
        """Return this tokenizer with texts lower-cased first."""
        inner = library.Tokenizer.from_str(self._saved.decode())
        steps = [normalizers.Lowercase(), *([inner.normalizer] if inner.normalizer else [])]
        inner.normalizer = normalizers.Sequence(steps)
        return Tokenizer(inner, self._name)

    def _run(self, texts: Sequence[str]) -> list[Ids]:
        for text in texts:
            check_surrogates(text)
        inputs = list(texts)
        encodings = call_library(self._name, lambda: self._inner.encode_batch_fast(inputs, add_special_tokens=False))
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; an unknown character becomes U+FFFD.

        Special tokens are skipped, and ids without a token: a network may have more rows than its tokenizer.
        """
        numbers = [int(number) for number in ids]
        if self.kind == "characters" or self._byte_level:
            stream = StreamDecoder(self)
            return "".join([stream.feed(number) for number in numbers]) + stream.finish()
        known = [number for number in numbers if number in self._tokens]
        return str(call_library(self._name, lambda: self._inner.decode(known, skip_special_tokens=True)))

    def token(self, number: int) -> str:
        """Return the token with this id, as it is written in the vocabulary."""
        if number not in self._tokens:
            raise IndexError(f"id must be in the vocabulary of {self.size:,}, but is {number}")
        return self._tokens[number]

    def id(self, token: str) -> int | None:
        """Return the id of a token as it is written in the vocabulary, or None."""
        token_id: int | None = self._inner.token_to_id(token)
        return token_id

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each id as readable text: byte-level tokens as text, bytes that are part of a character as \\xe9.

        An id without a token is shown as its number.
        """
        return [self._piece(self._tokens[number]) if number in self._tokens else f"[{number}]" for number in ids]

    def _piece(self, token: str) -> str:
        if token in self.specials or self.kind not in ("bpe", "unigram"):
            return token
        return token_bytes(token).decode("utf-8", "backslashreplace") if self._byte_level else token.replace(SPACE, " ")

    def raw(self, ids: Iterable[int]) -> list[bytes]:
        """Return the bytes that each id adds to the text: none for a special token, a space before whole words.

        An id without a token adds nothing.
        """
        return [self._raw(self._tokens[number]) if number in self._tokens else b"" for number in ids]

    def _raw(self, token: str) -> bytes:
        if token in self.specials:
            # Only an unknown character is still part of the text.
            return "\ufffd".encode() if self.kind == "characters" and token == UNKNOWN else b""
        if self._byte_level:
            return token_bytes(token)
        if self.kind == "wordpiece" and token.startswith("##"):
            return token[2:].encode()
        if self._byte_fallback and (byte := BYTE_PIECE.fullmatch(token)):
            return bytes.fromhex(byte[1])
        if self.kind in ("bpe", "unigram"):
            return token.replace(SPACE, " ").encode()
        return (b" " if self.kind in ("wordpiece", "words") else b"") + token.encode()


class StreamDecoder:
    """Decodes ids one by one while they are generated; only complete characters are returned."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ids: list[int] = []
        self._sent = 0  # of _ids, how many are already in the returned text

    def feed(self, number: int) -> str:
        """Return the text that this id completes: possibly none, possibly more than one character."""
        tokenizer = self._tokenizer
        token = tokenizer._tokens.get(number)
        if token is None:  # a row of the network that the tokenizer has no token for
            return ""
        if tokenizer.kind == "characters":
            if token == UNKNOWN and self._is_special(number):
                return "\ufffd"
            return "" if self._is_special(number) else token
        if self._is_special(number):
            return ""
        if tokenizer._byte_level:
            return self._decoder.decode(token_bytes(token))
        self._ids.append(number)
        if tokenizer._byte_fallback and BYTE_PIECE.fullmatch(token):  # bytes are decoded together
            return ""
        return self._decode_window(lambda text: not text.endswith("\ufffd"))

    def finish(self) -> str:
        """Return what remains at the end: an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", True) + self._decode_window(lambda text: True)

    def _is_special(self, number: int) -> bool:
        return number in self._tokenizer._special_ids

    def _decode_window(self, ready: Callable[[str], bool]) -> str:
        """Return the new end of the text: the text of a token depends on the one before it, so both are decoded."""
        tokenizer = self._tokenizer
        before = self._ids[: self._sent]
        inner = tokenizer._inner
        text = call_library(tokenizer._name, lambda: inner.decode(self._ids, skip_special_tokens=True))
        if not ready(text):
            return ""
        previous = call_library(tokenizer._name, lambda: inner.decode(before, skip_special_tokens=True))
        self._ids = self._ids[-1:]
        self._sent = len(self._ids)
        return str(text[len(previous) :])


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


def _nonempty(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; raise an error at the end if all of them are empty."""
    empty = True
    for text in texts:
        empty = empty and not text.strip()
        yield text
    if empty:
        raise DataError("the text for the tokenizer must not be empty, but is; name a file with data in it")


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
    ranked = sorted((word for word in counts if word not in specials), key=lambda word: (-counts[word], word))
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
    vocabulary = inner.get_vocab(with_added_tokens=True)
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
