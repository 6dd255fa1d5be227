"""Beam search for many sources, and streaming of one target token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from saccade.core import GeneratedToken, Progress, ignore_progress
from saccade.data.batching import length_groups
from saccade.data.text.tokenizers import StreamDecoder
from saccade.decode.search import Beams, Hypothesis, Search, search
from saccade.models.seq2seq.interface import DecoderState, Memory, Seq2Seq
from saccade.nn.packed import pack
from saccade.nn.probe import RecordedRow
from saccade.tasks._seq2seq.attention import cross_recorder, source_tensors
from saccade.tasks._seq2seq.joint_search import rank_jointly
from saccade.tasks._seq2seq.tokenizers import PairTokenizers, TargetTokenizer
from saccade.tasks._token_distribution import TokenDistribution

ROWS = 64  # sentences searched at once
POSITIONS = 1 << 14  # and their tokens, padding included
MIN_PACKED = 8  # minimum number of sentences for which packing the weights is faster


@torch.no_grad()
def search_targets(
    model: Seq2Seq,
    sources: Sequence[list[int]],
    tokenizers: PairTokenizers,
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
    packed = pack_for(model, len(sources), settings)
    results: dict[int, list[Hypothesis]] = {}
    for group in length_groups([len(source) for source in sources], ROWS, POSITIONS):
        rows = [[*sources[index], tokenizers.special.source_end] for index in group]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        keep = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows], device=device)
        limits = [max_length(len(row)) for row in rows]
        hypotheses = search_memory(packed, packed.encode(ids, keep), tokenizers.output, settings, limits, prefix)
        results.update(zip(group, hypotheses, strict=True))
        progress(len(results) / len(sources))
    return [results[index] for index in range(len(sources))]


def pack_for(model: Seq2Seq, sources: int, settings: Search) -> Seq2Seq:
    """Return a copy with weights packed for a search in many sources; for few the model itself."""
    return pack(model, min(sources, ROWS) * settings.beam) if sources >= MIN_PACKED else model


def search_memory(
    model: Seq2Seq,
    memory: Memory,
    target: TargetTokenizer,
    settings: Search,
    max_length: Sequence[int],
    prefix: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Return the best targets for each row of a memory, of at most this many tokens after the prefix.

    With a CTC head and a beam they are ordered by the sum of the log probabilities of the decoder and of that head.
    """
    return search_apart(model, memory, target, settings, max_length, prefix)[1]


def search_apart(
    model: Seq2Seq,
    memory: Memory,
    target: TargetTokenizer,
    settings: Search,
    max_length: Sequence[int],
    prefix: Sequence[int] = (),
) -> tuple[list[list[Hypothesis]], list[list[Hypothesis]]]:
    """Return the best targets of the decoder alone, and those of `search_memory`, which may be the same."""
    limits = [len(prefix) + limit for limit in max_length]
    joint = model.ctc is not None and settings.beam > 1 and not settings.no_repeat_ngram_size
    hypotheses = search(
        DecoderState(model, memory, max(limits) + 1),
        limits,
        start_id=target.start,
        end_id=target.end,
        settings=replace(settings, n_best=settings.beam) if joint else settings,
        prefixes=[prefix] * len(limits),
    )
    if not joint:
        return hypotheses, hypotheses
    ranked = rank_jointly(model, memory, target, hypotheses, limits, prefix)
    return hypotheses, [group[: settings.n_best] for group in ranked]


def cut_note(hypothesis: Hypothesis) -> tuple[str, ...]:
    """Return a note for the user on a target that was cut off at the maximum length; none for another one."""
    if hypothesis.ended:
        return ()
    count = len(hypothesis.ids)
    return (f"the text was cut after {count:,} tokens, the maximum for this input: its end may be missing",)


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
    """Yield the best target of a source token by token."""
    with torch.no_grad():
        memory = model.encode(*source_tensors(model, tokenizers, source))
    prompt = tuple(tokenizers.source.pieces([*source, tokenizers.special.source_end]))
    limit = max_length(len(source) + 1)
    yield from stream_memory(
        model, memory, tokenizers.output, settings, limit, prompt, prefix=prefix, attention=attention
    )


def stream_memory(
    model: Seq2Seq,
    memory: Memory,
    target: TargetTokenizer,
    settings: Search,
    limit: int,
    prompt: tuple[str, ...],
    *,
    prefix: Sequence[int] = (),
    attention: bool = False,
) -> Iterator[GeneratedToken]:
    """Yield the best target token by token; with a beam, the search finishes first and its best target is replayed.

    `prompt` names the positions of the memory. The recorder is active only while the network runs: a suspended stream
    records no other call.
    """
    state = DecoderState(model, memory, len(prefix) + limit + 1)
    tokens: Iterator[tuple[int, Tensor | None]]
    if settings.beam == 1:
        tokens = _greedy(state, target, settings, len(prefix) + limit, prefix)
    else:
        best = search_memory(model, memory, target, settings, [limit], prefix)[0][0]
        tokens = _replay(state, target, best.ids) if attention else ((token, None) for token in best.ids)
    recorder = cross_recorder(model) if attention else None
    maps = {name: RecordedRow(recorded, 0) for name, recorded in (recorder or {}).items()}
    text, stripped = StreamDecoder(target.tokenizer), StrippedText()
    for token, logits in tokens if recorder is None else recorder.iterate(tokens):
        piece = target.tokenizer.pieces([token])[0]
        distribution = None if logits is None else TokenDistribution(logits[0], target.tokenizer)
        yield GeneratedToken(piece, stripped.feed(text.feed(token)), maps, prompt, token, distribution)
    last = stripped.feed(text.finish())
    if last:
        yield GeneratedToken("", last, maps, prompt)


def _greedy(
    state: DecoderState, target: TargetTokenizer, settings: Search, limit: int, prefix: Sequence[int]
) -> Iterator[tuple[int, Tensor | None]]:
    """Yield the tokens of greedy search, with the logits (1, V) each was chosen from."""
    beams = Beams([limit], target.end, settings, [prefix])
    ids, count = torch.tensor([[target.start]]), 0
    while True:
        logits = state.step(ids)
        rows, sentences, ids = beams.choose(logits)
        if not beams.open:
            break
        state.reorder(rows, sentences)
        count += 1
        yield int(ids), logits
    yield from ((token, logits) for token in beams.results()[0][0].ids[count:])  # at most the last one


def _replay(state: DecoderState, target: TargetTokenizer, ids: Sequence[int]) -> Iterator[tuple[int, Tensor | None]]:
    """Yield the tokens of a given target while the decoder reads them."""
    for previous, token in pairwise([target.start, *ids]):
        yield token, state.step(torch.tensor([[previous]]))
