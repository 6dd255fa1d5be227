"""Beam search for many sources, and streaming of one target token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch

from saccade.core import GeneratedToken, Progress, ignore_progress
from saccade.data.batching import length_groups
from saccade.data.text.tokenizers import StreamDecoder
from saccade.decode.search import Beams, Hypothesis, Search, search
from saccade.models.seq2seq.interface import DecoderState, Seq2Seq
from saccade.nn.packed import pack
from saccade.nn.probe import RecordedRow
from saccade.tasks._seq2seq.attention import cross_recorder, source_tensors
from saccade.tasks._seq2seq.tokenizers import PairTokenizers, SpecialIds

ROWS = 64  # sentences searched at once
POSITIONS = 1 << 14  # and their tokens, padding included
MIN_PACKED = 8  # minimum number of sentences for which packing the weights is faster


@torch.no_grad()
def search_targets(
    model: Seq2Seq,
    sources: Sequence[list[int]],
    special: SpecialIds,
    settings: Search,
    max_length: Callable[[int], int],
    *,
    prefix: Sequence[int] = (),
    progress: Progress = ignore_progress,
) -> list[list[Hypothesis]]:
    """Return the best targets of each source; sources of similar length are searched together.

    `max_length` returns the maximum number of target tokens for the length of a source.
    """
    device = next(model.parameters()).device
    packed = pack(model, min(len(sources), ROWS) * settings.beam) if len(sources) >= MIN_PACKED else model
    results: dict[int, list[Hypothesis]] = {}
    for group in length_groups([len(source) for source in sources], ROWS, POSITIONS):
        rows = [[*sources[index], special.source_end] for index in group]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        keep = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows], device=device)
        limits = [len(prefix) + max_length(len(row)) for row in rows]
        state = DecoderState(packed, packed.encode(ids, keep), max(limits) + 1)
        hypotheses = search(
            state,
            limits,
            start_id=special.target_start,
            end_id=special.target_end,
            settings=settings,
            prefixes=[prefix] * len(group),
        )
        results.update(zip(group, hypotheses, strict=True))
        progress(len(results) / len(sources))
    return [results[index] for index in range(len(sources))]


class StrippedText:
    """Strips leading and trailing whitespace of a streamed text."""

    def __init__(self) -> None:
        self._started, self._space = False, ""

    def feed(self, text: str) -> str:
        """Return the text that is certain to remain after stripping."""
        text = self._space + text if self._started else text.lstrip()
        body = text.rstrip()
        self._started = self._started or bool(body)
        self._space = text[len(body) :]
        return body


def stream_target(
    model: Seq2Seq,
    tokenizers: PairTokenizers,
    source: list[int],
    settings: Search,
    max_length: Callable[[int], int],
    *,
    prefix: Sequence[int] = (),
    attention: bool = False,
) -> Iterator[GeneratedToken]:
    """Yield the best target token by token; with a beam, the search finishes first and its best target is replayed.

    The recorder is active only while the network runs: a suspended stream records no other call.
    """
    special = tokenizers.special
    limit = len(prefix) + max_length(len(source) + 1)
    with torch.no_grad():
        state = DecoderState(model, model.encode(*source_tensors(model, tokenizers, source)), limit + 1)
    if settings.beam == 1:
        tokens = _greedy(state, special, settings, limit, prefix)
    else:
        best = search_targets(model, [source], special, settings, max_length, prefix=prefix)[0][0]
        tokens = _replay(state, special, best.ids) if attention else iter(best.ids)
    recorder = cross_recorder(model) if attention else None
    maps = {name: RecordedRow(recorded, 0) for name, recorded in (recorder or {}).items()}
    prompt = tuple(tokenizers.source.pieces([*source, special.source_end]))
    text, stripped = StreamDecoder(tokenizers.target), StrippedText()
    for token in tokens if recorder is None else recorder.iterate(tokens):
        yield GeneratedToken(tokenizers.target.pieces([token])[0], stripped.feed(text.feed(token)), maps, prompt)
    last = stripped.feed(text.finish())
    if last:
        yield GeneratedToken("", last, maps, prompt)


def _greedy(
    state: DecoderState, special: SpecialIds, settings: Search, limit: int, prefix: Sequence[int]
) -> Iterator[int]:
    """Yield the tokens of greedy search."""
    beams = Beams([limit], special.target_end, settings, [prefix])
    ids, count = torch.tensor([[special.target_start]]), 0
    while True:
        rows, sentences, ids = beams.choose(state.step(ids))
        if not beams.open:
            break
        state.reorder(rows, sentences)
        count += 1
        yield int(ids)
    yield from beams.results()[0][0].ids[count:]


def _replay(state: DecoderState, special: SpecialIds, target: Sequence[int]) -> Iterator[int]:
    """Yield the tokens of a given target while the decoder reads them."""
    for previous, token in pairwise([special.target_start, *target]):
        state.step(torch.tensor([[previous]]))
        yield token
