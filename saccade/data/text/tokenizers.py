"""Tokenizers: text to ids and back, by characters, words, byte pairs or word pieces, on the `tokenizers` library."""

import codecs
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import decoders, normalizers

from saccade.data.text.alphabets import (
    PART,
    UNKNOWN,
    CharacterTable,
    Ids,
    check_surrogates,
    split_at_newlines,
    token_bytes,
)
from saccade.data.text.tokenizer_checks import SPACE, call_library, read_tokenizer_file
from saccade.data.text.tokenizer_kinds import is_splittable, kind_of

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
        # How CLIP marks the last token of a word; in a text it is a space.
        self._word_end: str = getattr(inner.model, "end_of_word_suffix", None) or ""
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

    def to_json(self) -> dict[str, Any]:
        """Return the content of tokenizer.json."""
        rules: dict[str, Any] = json.loads(self._saved)
        return rules

    def same_rules(self, other: "Tokenizer") -> bool:
        """Whether another tokenizer has the same tokens and splits every text in the same way."""
        ours, theirs = self.to_json(), other.to_json()
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

    def find_specials(self, text: str) -> list[tuple[int, int, int]]:
        """Return the special tokens written in a text: first character, end and id of each."""
        if self._characters is not None:
            pattern = "|".join(map(re.escape, self.specials))
            matches = re.finditer(pattern, text) if pattern else iter(())
            return [(*match.span(), self.specials[match[0]]) for match in matches]
        encoding = call_library(self._name, lambda: self._parser.encode(text, add_special_tokens=False))
        places = zip(encoding.offsets, encoding.ids, strict=True)
        return [(int(first), int(end), int(token)) for (first, end), token in places if token in self._special_ids]

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
            text = "".join([stream.feed(number) for number in numbers]) + stream.finish()
            return text.strip() if self._word_end else text
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
        return self._bytes(token).decode("utf-8", "backslashreplace") if self._byte_level else token.replace(SPACE, " ")

    def _bytes(self, token: str) -> bytes:
        """Return the bytes of a byte-level token."""
        return token_bytes(token.removesuffix(self._word_end)) + b" " * self._ends_word(token)

    def _ends_word(self, token: str) -> bool:
        """Whether a byte-level token is marked as the last one of a word."""
        return bool(self._word_end) and token.endswith(self._word_end)

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
            return self._bytes(token)
        if self.kind == "wordpiece" and token.startswith("##"):
            return token[2:].encode()
        if self._byte_fallback and (byte := BYTE_PIECE.fullmatch(token)):
            return bytes.fromhex(byte[1])
        if self.kind in ("bpe", "unigram"):
            return token.replace(SPACE, " ").encode()
        return (b" " if self.kind in ("wordpiece", "words") else b"") + token.encode()


class StreamDecoder:
    """Decodes ids one by one while they are generated; only complete characters are returned.

    The text of an id can depend on the one before it, as a first word has no space before it: `prompt` are the ids
    that precede the text.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._space = False  # the last word has ended: a space follows if another one does
        self._started = False  # some text was returned
        self._ids = self._end(prompt)
        self._sent = len(self._ids)  # of _ids, how many are already in the returned text

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
            data, before = tokenizer._bytes(token), self._space
            self._space = tokenizer._ends_word(token)
            text = self._decoder.decode(b" " * before + (data[:-1] if self._space else data))
            text = text if self._started or not tokenizer._word_end else text.lstrip()
            self._started |= bool(text)
            return text
        self._ids.append(number)
        if self._is_byte(number):  # bytes are decoded together
            return ""
        return self._decode_window(lambda text: not text.endswith("\ufffd"))

    def finish(self) -> str:
        """Return what remains at the end: an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", True) + self._decode_window(lambda text: True)

    def _end(self, prompt: Sequence[int]) -> list[int]:
        """Return the last id of a prompt, or all at its end that are bytes; none where they have no text of their own.

        Those are special tokens, which begin a new text, and bytes of an incomplete character.
        """
        tokenizer = self._tokenizer
        if tokenizer.kind == "characters" or tokenizer._byte_level:
            return []
        first = len(prompt)
        while first and self._is_byte(prompt[first - 1]):
            first -= 1
        ids = list(prompt[first:] or prompt[-1:])
        if not all(number in tokenizer._tokens and not self._is_special(number) for number in ids):
            return []
        return [] if "\ufffd" in tokenizer.decode(ids) else ids

    def _is_byte(self, number: int) -> bool:
        tokenizer = self._tokenizer
        return tokenizer._byte_fallback and bool(BYTE_PIECE.fullmatch(tokenizer._tokens.get(number, "")))

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
