"""Bitext: pairs of texts as tokens: the tokenizers of both sides, the validation split, and batches of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade import atomic_io
from saccade.core.callback import Progress, ignore_progress
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.pair_files import PairFiles, find_pairs
from saccade.data.formats.pairs import Pairs, Skipped, empty_note, read_pairs
from saccade.data.settings import HEADERS, Header
from saccade.data.tables.counterparts import swap_rule
from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizer_choice import choose_kind, describe_kind, train_text_tokenizer, vocabulary_size
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.unknown_words import list_words, unit, unknown_id, unknown_words
from saccade.data.texts import Texts
from saccade.data.token_rows import TokenRows
from saccade.data.tokenization import tokenize
from saccade.errors import DataError

HELD_OUT = 0.1  # at most this fraction is held out,
MAX_HELD_OUT = 2000  # and at most this many pairs, if no fraction is given
SAMPLE = 20_000  # pairs that decide how to tokenize
UNKNOWN_ROWS = 5  # rows whose unknown words are listed
SIZE = "data.vocabulary_size"  # name of the setting in messages


@dataclass(frozen=True)
class PairSettings:
    """Which columns or files hold the two sides, how they are tokenized and what is held out."""

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
    """file of validation pairs, laid out like the data; without it a fraction is held out"""
    valid_fraction: float = 0.0
    """fraction of the pairs held out for validation; 0: a tenth, at most 2,000"""
    max_length: int = 256
    """pairs with more tokens on one side are skipped"""
    truncate: bool = False
    """truncate sources with more tokens instead; a target that is too long still skips its pair"""
    encoding: str = ""
    """encoding of the files, if not UTF-8"""
    header: Header = "auto"
    """whether the first row of a table names its columns; auto: decided by the rows"""
    alignments: str = ""
    """file with the true word alignment of each validation pair (0-0 1-2), to find the head that aligns words best"""

    def __post_init__(self) -> None:
        if not 0 <= self.valid_fraction < 1:
            raise ValueError(f"valid_fraction must be at least 0 and below 1, but is {self.valid_fraction}")
        for name, minimum in (("vocabulary_size", 0), ("max_length", 1)):
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} must be at least {minimum}, but is {getattr(self, name)}")
        for name in ("valid", "target", "alignments"):  # a run can be resumed from anywhere
            path = getattr(self, name)
            if path and (name != "target" or Path(path).is_file()):
                object.__setattr__(self, name, str(Path(path).resolve()))

    def find(self, data: Path, target: str = "") -> PairFiles:
        """Return the files of pairs; `target` if its name differs from that for the training file."""
        return find_pairs(
            data,
            source=self.source,
            target=target or self.target,
            encoding=self.encoding or None,
            header=HEADERS[self.header],
        )


@dataclass(frozen=True, eq=False)
class PairTexts(Sequence[tuple[str, str]]):
    """Sources with their targets as texts."""

    sources: Texts
    targets: Texts

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, row: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, row: slice) -> PairTexts: ...
    def __getitem__(self, row: int | slice) -> tuple[str, str] | PairTexts:
        if isinstance(row, slice):
            return PairTexts(self.sources[row], self.targets[row])
        return self.sources[row], self.targets[row]


@dataclass(frozen=True)
class Bitext:
    """Pairs as tokens, in the order of the file."""

    source: TokenRows
    target: TokenRows
    lines: NDArray[np.int64]
    texts: Sequence[tuple[str, str]] = ()
    """the pairs as they were written"""

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Positions of source and target in a batch, each with one special token: (N, 2)."""
        return np.stack([self.source.lengths + 1, self.target.lengths + 1], axis=1)

    def fingerprint(self) -> str:
        """Return a hash of the tokens."""
        return fingerprint((self.source, self.target))


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
    lines = tuple(int(line) for line in pairs.lines[np.asarray(rows)])
    count = int((labels >= 0).sum())
    return PairBatch(source.clamp_min(0), keep, inputs, labels, lines, count, int(keep.sum()) + count)


def train_tokenizers(
    settings: PairSettings, data: Path, assets: Path, progress: Progress = ignore_progress
) -> list[str]:
    """Train the tokenizers of both sides on the training pairs and write them to `assets`; returns notes."""
    files = settings.find(data)
    pairs = read_pairs(files, progress=progress)
    if not settings.valid:
        pairs = pairs.take(np.flatnonzero(~_held_out(pairs, settings.valid_fraction or HELD_OUT)))
    if not len(pairs):
        raise DataError(f"{data}: no pairs to train on, expected at least a few hundred; name a file with data in it")
    atomic_io.write_json(assets / "pairs.json", {"target": _target_rule(settings, data)})
    sides = {"source": pairs.sources, "target": pairs.targets}
    given = settings.tokenizer
    kinds = {side: choose_kind(texts[:SAMPLE]) if given == "auto" else given for side, texts in sides.items()}
    notes = [*files.notes(), *pairs.notes]
    if settings.joint and kinds["source"] == kinds["target"]:
        size = settings.vocabulary_size or vocabulary_size(sides.values())
        texts = (text for pair in zip(pairs.sources, pairs.targets, strict=True) for text in pair)
        joint = train_text_tokenizer(kinds["source"], texts, size, SIZE)
        joint.save(assets / "tokenizer.json")
        return [*notes, f"vocabulary of both sides: {joint.size:,} {describe_kind(kinds['source'])}"]
    for side, kind in kinds.items():
        size = settings.vocabulary_size or vocabulary_size([sides[side]])
        tokenizer = train_text_tokenizer(kind, sides[side], size, SIZE)
        tokenizer.save(assets / f"{side}.json")
        notes.append(f"vocabulary of the {side}: {tokenizer.size:,} {describe_kind(kind)}")
    return notes


def load_tokenizers(assets: Path) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizers of source and target; the same one twice where it is joint."""
    if (assets / "tokenizer.json").exists():
        joint = Tokenizer.load(assets / "tokenizer.json")
        return joint, joint
    return Tokenizer.load(assets / "source.json"), Tokenizer.load(assets / "target.json")


class PairReader:
    """Turns files of pairs into tokens, and counts what it skips or truncates."""

    def __init__(self, settings: PairSettings, assets: Path) -> None:
        self.settings = settings
        self.source, self.target = load_tokenizers(assets)
        self._target_rule = str(atomic_io.read_json(assets / "pairs.json").get("target", ""))
        self._empty, self._long, self._truncated = Skipped(), Skipped(), Skipped()
        self._notes: tuple[str, ...] = ()
        self.lengths: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)
        """tokens of source and target of each pair of the training file, before anything is truncated: (N, 2)"""

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def notes(self) -> list[str]:
        """Return notes for the user on what was skipped or truncated."""
        limit = f"of more than {self.settings.max_length} tokens"
        long = f"with a target {limit}" if self.settings.truncate else limit
        return [
            *self._notes,
            *empty_note(self._empty),
            *self._truncated.note("source", f"{limit} truncated"),
            *self._long.note("pair", f"{long} skipped"),
        ]

    def split(self, data: Path, progress: Progress = ignore_progress) -> tuple[Bitext, Bitext]:
        """Return the training pairs, and those held out or of the validation file."""
        settings = self.settings
        pairs, source, target = self._read(settings.find(data), progress)
        self.lengths = np.stack([source.lengths, target.lengths], axis=1)
        source = self._truncate(pairs, source)
        fits = np.maximum(source.lengths, target.lengths) <= settings.max_length
        self._long = self._count(self._long, pairs, ~fits)
        bitext = Bitext(source, target, pairs.origins.lines, PairTexts(pairs.sources, pairs.targets))
        if settings.valid:
            return _take(bitext, np.flatnonzero(fits)), self.read_all(Path(settings.valid), progress)
        held_out = _held_out(pairs, settings.valid_fraction or HELD_OUT)
        train, valid = np.flatnonzero(fits & ~held_out), np.flatnonzero(fits & held_out)
        if not settings.valid_fraction and len(valid) > MAX_HELD_OUT:
            # If a tenth is more than needed, the pairs with the largest hashes are trained on.
            hashes = pairs.source_hashes[valid]
            needed = hashes < np.sort(hashes)[MAX_HELD_OUT]
            train, valid = np.concatenate([train, valid[~needed]]), valid[needed]
        return _take(bitext, train), _take(bitext, valid)

    def read_all(self, data: Path, progress: Progress = ignore_progress) -> Bitext:
        """Return all pairs of another file, laid out like the training file."""
        pairs, source, target = self._read(self.settings.find(data, self._target_rule), progress)
        return Bitext(
            self._truncate(pairs, source), target, pairs.origins.lines, PairTexts(pairs.sources, pairs.targets)
        )

    def unknown_notes(self, pairs: Bitext, part: str) -> list[str]:
        """Return notes for the user on the words of a part of the data that have no token."""
        notes = []
        sides = ("source", self.source, pairs.source), ("target", self.target, pairs.target)
        for column, (side, tokenizer, rows) in enumerate(sides):
            unknown = unknown_id(tokenizer)
            counts = rows.count(unknown) if unknown is not None else np.zeros(1, np.int64)
            if not counts.any():
                continue
            words = [
                word
                for row in np.flatnonzero(counts)[:UNKNOWN_ROWS]
                for word in unknown_words(tokenizer, pairs.texts[int(row)][column])
            ]
            total, share = int(counts.sum()), counts.sum() / rows.lengths.sum()
            what = f"{total:,} of {int(rows.lengths.sum()):,} {unit(tokenizer)} of the {part} {side}s ({share:.1%})"
            notes.append(f"{what} are unknown, all read as {UNKNOWN}, such as {list_words(list(dict.fromkeys(words)))}")
        return notes

    def encode(self, sources: Sequence[str]) -> list[list[int]]:
        """Return the tokens of some sources, truncated if the settings ask for it."""
        max_length = self.settings.max_length if self.settings.truncate else None
        return [ids[:max_length] for ids in self.source.encode_batch(sources)]

    def target_lengths(self, data: Path) -> NDArray[np.int64]:
        """Return the number of tokens of every target of a file."""
        pairs = read_pairs(self.settings.find(data))
        return tokenize(pairs.targets, self.target).lengths

    def _read(self, files: PairFiles, progress: Progress) -> tuple[Pairs, TokenRows, TokenRows]:
        """Return pairs with the tokens of both sides."""
        pairs = read_pairs(files, progress=lambda fraction: progress(fraction / 3))
        source = tokenize(pairs.sources, self.source, progress=lambda fraction: progress((1 + fraction) / 3))
        target = tokenize(pairs.targets, self.target, progress=lambda fraction: progress((2 + fraction) / 3))
        self._empty = self._empty.plus(pairs.empty.count, pairs.empty.file, pairs.empty.line)
        self._notes += pairs.notes
        return pairs, source, target

    def _truncate(self, pairs: Pairs, source: TokenRows) -> TokenRows:
        """Return the sources, truncated if the settings ask for it."""
        if not self.settings.truncate:
            return source
        self._truncated = self._count(self._truncated, pairs, source.lengths > self.settings.max_length)
        return source.truncate(self.settings.max_length)

    def _count(self, counted: Skipped, pairs: Pairs, rows: NDArray[np.bool_]) -> Skipped:
        """Add pairs to a count."""
        numbers = np.flatnonzero(rows)
        if not len(numbers):
            return counted
        first = int(numbers[0])
        return counted.plus(len(numbers), pairs.origins.file(first), int(pairs.origins.lines[first]))


def _take(pairs: Bitext, rows: NDArray[np.int64]) -> Bitext:
    texts = pairs.texts
    assert isinstance(texts, PairTexts)
    chosen = PairTexts(texts.sources.take(rows), texts.targets.take(rows))
    return Bitext(pairs.source.take(rows), pairs.target.take(rows), pairs.lines[rows], chosen)


def _target_rule(settings: PairSettings, data: Path) -> str:
    """Return the part of the name that makes a source file a target file: for other data laid out like these."""
    if not settings.target or not Path(settings.target).is_file():
        return settings.target
    try:
        return swap_rule(data, settings.target)
    except DataError:  # names with nothing in common: other data must name both files
        return ""


def _held_out(pairs: Pairs, fraction: float) -> NDArray[np.bool_]:
    """Return which pairs are held out: by the source alone, so that no sentence is in both parts."""
    held_out: NDArray[np.bool_] = pairs.source_hashes < np.uint64(math.ceil(fraction * 2.0**64))
    return held_out
