"""Bitext: pairs of texts as tokens: the vocabularies of both sides, the split, and what is held back as text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade import atomic_io
from saccade.core.callback import Progress, ignore_progress
from saccade.data.formats.pairs import Pair, PairFiles, Skipped, find_pairs, read_pairs, swap_rule
from saccade.data.splitting import content_hash
from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizers import BEGIN, END, Tokenizer, train_tokenizer
from saccade.data.token_rows import TokenRows
from saccade.errors import DataError, UsageError

HELD = 0.1  # at most this share is held back
MOST_HELD = 2000  # pairs, where nobody says how many
BLOCK = 4096  # pairs tokenized at once
SAMPLE = 20_000  # pairs that decide how to tokenize
FEW_WORDS = 300  # different ones: phonemes, tags, labels
FEW_CHARACTERS = 512


@dataclass(frozen=True)
class PairSettings:
    """Which columns or files hold the two sides, how they are tokenized and what is held back."""

    source: str = ""
    """column of a table that holds the source; without it the usual names, or the first column"""
    target: str = ""
    """column that holds the target; for a file of lines the second file, or the part of its name that differs (de)"""
    tokenizer: Literal["auto", "characters", "words", "bpe"] = "auto"
    """auto: words where a side has few different ones, characters where a row is one word, else byte-level bpe"""
    vocabulary_size: int = 0
    """number of bpe tokens; 0: by the size of the data, about 5,000 for 4 MB"""
    joint: bool = True
    """one vocabulary for both sides, where both have the same kind of tokens"""
    valid: str = ""
    """file of validation pairs, laid out like the data; without it a share is held back"""
    valid_fraction: float = 0.0
    """share of the pairs held back for validation; 0: a tenth, at most 2,000"""
    max_length: int = 256
    """pairs with more tokens on one side are left out"""
    truncate: bool = False
    """sources with more tokens are cut at this length instead; a target that is too long still leaves its pair out"""
    encoding: str = ""
    """encoding of the files, where it is not UTF-8"""
    alignments: str = ""
    """file with the true word alignment of each validation pair (0-0 1-2), to find the head that aligns words best"""

    def __post_init__(self) -> None:
        if not 0 <= self.valid_fraction < 1:
            raise ValueError(f"valid_fraction must be at least 0 and below 1, but is {self.valid_fraction}")
        for name, least in (("vocabulary_size", 0), ("max_length", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        for name in ("valid", "target", "alignments"):  # a run can be resumed from anywhere
            path = getattr(self, name)
            if path and (name != "target" or Path(path).is_file()):
                object.__setattr__(self, name, str(Path(path).resolve()))

    def find(self, data: Path, target: str = "") -> PairFiles:
        """The files of pairs; `target` where it is known by another name than that of the training file."""
        return find_pairs(data, source=self.source, target=target or self.target, encoding=self.encoding or None)


@dataclass(frozen=True)
class Bitext:
    """Pairs as tokens, in the order of the file."""

    source: TokenRows
    target: TokenRows
    lines: NDArray[np.int64]
    texts: tuple[tuple[str, str], ...] = ()
    """the pairs as they were written, where they are needed for a score"""

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Positions of source and target in a batch, each with one special token: (N, 2)."""
        return np.stack([self.source.lengths + 1, self.target.lengths + 1], axis=1)

    def fingerprint(self) -> str:
        return hashlib.sha256((self.source.fingerprint() + self.target.fingerprint()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PairBatch:
    """Pairs, padded; `labels` are the inputs shifted by one, -1 where there is nothing to predict."""

    source: Tensor  # (B, S)
    keep: Tensor  # (B, S)
    inputs: Tensor  # (B, T)
    labels: Tensor  # (B, T)
    lines: tuple[int, ...]
    count: int
    units: int
    """tokens of sources and targets, without padding"""

    @property
    def rows(self) -> list[str]:
        return [f"line {line}" for line in self.lines]

    def to(self, device: Any) -> PairBatch:
        source, keep, inputs, labels = (x.to(device) for x in (self.source, self.keep, self.inputs, self.labels))
        return PairBatch(source, keep, inputs, labels, self.lines, self.count, self.units)


def collate_pairs(
    pairs: Bitext, rows: Sequence[int] | NDArray[np.int64], special_ids: tuple[int, int, int]
) -> PairBatch:
    """Pad some pairs; `special_ids`: end of the source, start of the target, end of the target."""
    source_end, start, end = special_ids
    source = torch.from_numpy(pairs.source.pad(rows, after=[source_end]))
    target = torch.from_numpy(pairs.target.pad(rows, before=[start], after=[end]))
    keep, inputs, labels = source >= 0, target[:, :-1].clamp_min(0), target[:, 1:]
    lines = tuple(int(line) for line in pairs.lines[rows])
    count = int((labels >= 0).sum())
    return PairBatch(source.clamp_min(0), keep, inputs, labels, lines, count, int(keep.sum()) + count)


def train_tokenizers(settings: PairSettings, data: Path, assets: Path, progress: Progress) -> list[str]:
    """Write the tokenizers of both sides, learnt from the pairs to train on, into `assets`; says what was found."""
    files = settings.find(data)
    held = None if settings.valid else HELD if not settings.valid_fraction else settings.valid_fraction

    def training() -> Iterator[Pair]:
        pairs = read_pairs(files, advance=progress)
        return (pair for pair in pairs if held is None or not _held_back(pair.source, held))

    sample = list(islice(training(), SAMPLE))
    if not sample:
        raise DataError(f"{data}: no pairs to train on, expected at least a few hundred; name a file with data in it")
    atomic_io.write_json(assets / "pairs.json", {"target": _rule(settings, data)})
    kinds = tuple(_kind(settings, [getattr(pair, side) for pair in sample]) for side in ("source", "target"))
    notes = files.notes()
    if settings.joint and kinds[0] == kinds[1]:
        size = settings.vocabulary_size or _size(training(), ("source", "target"))
        both = (text for pair in training() for text in (pair.source, pair.target))
        joint = _train(kinds[0], both, size)
        joint.save(assets / "tokenizer.json")
        return [*notes, f"vocabulary of both sides: {joint.size:,} {_named(kinds[0])}"]
    for side, kind in zip(("source", "target"), kinds, strict=True):
        size = settings.vocabulary_size or _size(training(), (side,))
        found = _train(kind, (getattr(pair, side) for pair in training()), size)
        found.save(assets / f"{side}.json")
        notes.append(f"vocabulary of the {side}: {found.size:,} {_named(kind)}")
    return notes


def load_tokenizers(assets: Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target; the same one twice where it is joint."""
    if (assets / "tokenizer.json").exists():
        joint = Tokenizer.load(assets / "tokenizer.json")
        return joint, joint
    return Tokenizer.load(assets / "source.json"), Tokenizer.load(assets / "target.json")


@dataclass(frozen=True)
class PairTokenizers:
    """The vocabularies of both sides, for texts that come from no file."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source.size == self.target.size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.source.encode_batch(texts)


class PairReader:
    """Turns files of pairs into tokens, and remembers what it had to leave out."""

    def __init__(self, settings: PairSettings, assets: Path) -> None:
        self.settings = settings
        self.source, self.target = load_tokenizers(assets)
        self._rule = str(atomic_io.read_json(assets / "pairs.json").get("target", ""))
        self._empty, self._long, self._cut = Skipped(), Skipped(), Skipped()
        self.lengths: list[tuple[int, int]] = []
        """tokens of source and target of each pair of the training file, as they were before anything was cut"""

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def notes(self) -> list[str]:
        """What was left out, for people."""
        limit = f"of more than {self.settings.max_length} tokens"
        long = f"with a target {limit}" if self.settings.truncate else limit
        seen = ((self._cut, "source", f"{limit} cut there"), (self._long, "pair", f"{long} left out"))
        told = [
            f"{one.count:,} {what}{'' if one.count == 1 else 's'} {done} (first: {one.file.name}:{one.line})"
            for one, what, done in seen
            if one.file
        ]
        return [*self._empty.notes(), *told]

    def split(self, data: Path, progress: Progress) -> tuple[Bitext, Bitext]:
        """The pairs of the training file to learn from, and those held back or of the validation file."""
        settings = self.settings
        share = 0.0 if settings.valid else settings.valid_fraction or HELD
        train, valid = _Part(), _Part()
        self.lengths = []
        for pair, source, target in self._encoded(settings.find(data), progress):
            self.lengths.append((len(source), len(target)))
            source = self._fit(pair, source)
            if max(len(source), len(target)) > settings.max_length:
                self._long.add(pair.file, pair.line)
            else:
                (valid if share and _held_back(pair.source, share) else train).add(pair, source, target)
        if settings.valid:
            return train.bitext(texts=False), self.read_all(Path(settings.valid), progress)
        if not settings.valid_fraction:
            _give_back(train, valid)
        return train.bitext(texts=False), valid.bitext(texts=True)

    def read_all(self, data: Path, progress: Progress = ignore_progress) -> Bitext:
        """All pairs of another file, laid out like the training file."""
        part = _Part()
        for pair, source, target in self._encoded(self.settings.find(data, self._rule), progress):
            part.add(pair, self._fit(pair, source), target)
        return part.bitext(texts=True)

    def encode(self, sources: Sequence[str]) -> list[list[int]]:
        """The tokens of some sources, as the model may read them."""
        most = self.settings.max_length if self.settings.truncate else None
        return [ids[:most] for ids in self.source.encode_batch(sources)]

    def target_lengths(self, data: Path) -> Iterator[int]:
        """Tokens of the targets of a file, one by one."""
        return (len(target) for _, _, target in self._encoded(self.settings.find(data), ignore_progress))

    def _fit(self, pair: Pair, source: list[int]) -> list[int]:
        """The source, cut where that is wanted and it is too long."""
        if not self.settings.truncate or len(source) <= self.settings.max_length:
            return source
        self._cut.add(pair.file, pair.line)
        return source[: self.settings.max_length]

    def _encoded(self, files: PairFiles, progress: Progress) -> Iterator[tuple[Pair, list[int], list[int]]]:
        """Every pair with its tokens; many are tokenized at once, on all cores."""
        pairs = iter(read_pairs(files, advance=progress, skipped=self._empty))
        while block := list(islice(pairs, BLOCK)):
            source = self.source.encode_batch([pair.source for pair in block])
            target = self.target.encode_batch([pair.target for pair in block])
            yield from zip(block, source, target, strict=True)


class _Part:
    """Pairs gathered one by one."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.source: list[list[int]] = []
        self.target: list[list[int]] = []

    def add(self, pair: Pair, source: list[int], target: list[int]) -> None:
        self.pairs.append(pair)
        self.source.append(source)
        self.target.append(target)

    def bitext(self, *, texts: bool) -> Bitext:
        lines = np.array([pair.line for pair in self.pairs], dtype=np.int64)
        kept = tuple((pair.source, pair.target) for pair in self.pairs) if texts else ()
        return Bitext(TokenRows.of(self.source), TokenRows.of(self.target), lines, kept)


def _rule(settings: PairSettings, data: Path) -> str:
    """What makes the name of a target file of that of its source: for other data laid out like these."""
    if not settings.target or not Path(settings.target).is_file():
        return settings.target
    try:
        return swap_rule(data, settings.target)
    except DataError:  # names that have nothing in common: other data must name both sides themselves
        return ""


def _held_back(source: str, share: float) -> bool:
    """Whether a pair is held back: by its source alone, so that one sentence never stands on both sides."""
    return content_hash(source.strip()) < share * 2.0**64


def _give_back(train: _Part, valid: _Part) -> None:
    """Where a tenth is more than is needed, train on the rest of it: the pairs with the largest hashes."""
    hashes = [content_hash(pair.source.strip()) for pair in valid.pairs]
    if len(hashes) <= MOST_HELD:
        return
    limit, kept = sorted(hashes)[MOST_HELD], _Part()
    for number, pair, one, other in zip(hashes, valid.pairs, valid.source, valid.target, strict=True):
        (kept if number < limit else train).add(pair, one, other)
    valid.pairs, valid.source, valid.target = kept.pairs, kept.source, kept.target


def _kind(settings: PairSettings, texts: list[str]) -> str:
    """How a side is tokenized, judged by a sample of it."""
    if settings.tokenizer != "auto":
        return settings.tokenizer
    words = [text.split() for text in texts]
    count = sum(map(len, words))
    if count > 1.5 * len(texts) and len({word for row in words for word in row}) <= min(FEW_WORDS, count / 20):
        return "words"
    if count <= 1.5 * len(texts) and len(set().union(*texts)) <= FEW_CHARACTERS:
        return "characters"
    return "bpe"


def _size(pairs: Iterator[Pair], sides: tuple[str, ...]) -> int:
    """A vocabulary that grows with the square root of the text: about 5,000 tokens for 4 MB."""
    count = sum(len(getattr(pair, side).encode()) for pair in pairs for side in sides)
    return int(min(32_000, max(512, 2.5 * math.sqrt(count))))


def _train(kind: str, texts: Iterator[str], size: int) -> Tokenizer:
    specials = (BEGIN, END) if kind == "bpe" else (BEGIN, END, UNKNOWN)
    if kind == "bpe" and size < 256 + len(specials):
        raise UsageError(
            f"data.vocabulary_size must be at least {256 + len(specials)} for bpe (all bytes), but is {size}"
        )
    return train_tokenizer(kind, texts, size if kind == "bpe" else 1 << 16, specials, spaced=True)


def _named(kind: str) -> str:
    return kind if kind != "bpe" else "bpe tokens"
