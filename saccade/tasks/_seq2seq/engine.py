"""The engine of a translator: the prompt is a source, which is encoded once; the text is its target, token by token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from saccade.core.generation import TextRequest
from saccade.data.text.tokenizers import StreamDecoder
from saccade.decode.engine import Request
from saccade.decode.seq2seq_runner import Seq2SeqRunner
from saccade.errors import UsageError
from saccade.models.seq2seq.interface import Seq2Seq
from saccade.tasks._seq2seq.attention import source_tensors
from saccade.tasks._seq2seq.searching import StrippedText
from saccade.tasks._seq2seq.tokenizers import PairTokenizers
from saccade.tasks._token_engine import TokenEngine


class StrippedDecoder:
    """Decodes a target without the whitespace around it."""

    def __init__(self, tokenizers: PairTokenizers) -> None:
        self._decoder, self._stripped = StreamDecoder(tokenizers.target), StrippedText()

    def feed(self, token: int) -> str:
        return self._stripped.feed(self._decoder.feed(token))

    def finish(self) -> str:
        return self._stripped.feed(self._decoder.finish())


class Seq2SeqEngine(TokenEngine):
    """An encoder-decoder model with its tokenizers; greedy or sampled, without a beam."""

    def __init__(
        self, model: Seq2Seq, tokenizers: PairTokenizers, rows: int, context: int, max_target: Callable[[int], int]
    ) -> None:
        runner = Seq2SeqRunner(model, rows, max_target(context) + 1)
        special = tokenizers.special
        super().__init__(runner, tokenizers.target, runner.capacity, (special.target_end,))
        self.context, self._model, self._tokenizers, self._max_target = context, model, tokenizers, max_target

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a source."""
        return self._tokenizers.source.encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        raise UsageError("this model translates texts: it has no chat template")

    def check(self, request: TextRequest) -> None:
        super().check(replace(request, slide=False))  # a source is never cut
        if request.lookup:
            raise UsageError(f"lookup must be 0 for an encoder-decoder model, but is {request.lookup}")

    def _vocabulary(self) -> int:
        return self._tokenizers.source.size

    def _start(self, request: TextRequest) -> Request:
        limit = min(request.max_new_tokens, self._max_target(len(request.ids) + 1))
        start = [self._tokenizers.special.target_start]
        with torch.no_grad():
            memory = self._model.encode(*source_tensors(self._model, self._tokenizers, list(request.ids)))
        return replace(self._request(request, start), max_new_tokens=limit, memory=memory, slide=False, lookup=0)

    def _decoder(self, request: TextRequest) -> StrippedDecoder:
        return StrippedDecoder(self._tokenizers)
