"""Rules of Whisper's text: tokens that may not be generated, and timestamps that come in pairs and never decrease.

Shapes: R rows, V vocabulary, P tokens of a prompt, T tokens so far.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from saccade.models.seq2seq.interface import DecoderState
from saccade.pretrained.speech_processor import SpeechProcessor


class TokenRules:
    """Sets the logits of tokens that may not follow to -inf."""

    def __init__(self, processor: SpeechProcessor, vocabulary: int, device: torch.device, *, timestamps: bool) -> None:
        self.processor, self.timestamps = processor, timestamps
        self.always = torch.zeros(vocabulary, device=device)
        self.always[list(processor.suppressed)] = -math.inf
        if timestamps:
            self.always[processor.no_timestamps] = -math.inf
        self.first = self.always.clone()
        self.first[list(processor.suppressed_first)] = -math.inf
        if timestamps:
            self.first[: processor.first_timestamp] = -math.inf
            if processor.max_initial_timestamp is not None:
                self.first[processor.first_timestamp + processor.max_initial_timestamp + 1 :] = -math.inf

    def apply(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits (R, V) of the token after those generated so far (R, T)."""
        if not tokens.shape[1]:
            return logits + self.first
        logits = logits + self.always
        return self._pair(logits, tokens) if self.timestamps else logits

    def _pair(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Let timestamps come in pairs, the second not before the first, except for one directly before the end."""
        begin = self.processor.first_timestamp
        for row, ids in enumerate(tokens.tolist()):
            stamps = [token for token in ids if token >= begin]
            single = ids[-1] >= begin and len(ids) > 1 and ids[-2] < begin
            if ids[-1] >= begin and not single:  # a pair: text follows
                logits[row, begin:] = -math.inf
            elif single:  # a timestamp or the end follows
                logits[row, : self.processor.end] = -math.inf
            if stamps:
                logits[row, begin : stamps[-1] + (not single)] = -math.inf
        # Where a timestamp is likelier than every other token, it is one.
        likely = logits[:, begin:].logsumexp(-1) > logits[:, :begin].amax(-1)
        logits[:, :begin] = logits[:, :begin].masked_fill(likely[:, None], -math.inf)
        return logits


class WhisperDecoder:
    """Texts being generated after their prompts, as the searches in `decode` need it; prompts are fed at once."""

    def __init__(self, state: DecoderState, prompts: Tensor, rules: TokenRules) -> None:
        """Start after prompts (B, P)."""
        self.state, self.prompts, self.rules = state, prompts, rules
        self.tokens = prompts[:, :0]

    def step(self, ids: Tensor) -> Tensor:
        """Feed the next ids (R, 1); in the first step the prompts are fed instead. Returns the logits (R, V)."""
        if self.state.cache.longest:
            self.tokens = torch.cat((self.tokens, ids.to(self.tokens.device)), dim=1)
        else:
            ids = self.prompts
        return self.rules.apply(self.state.step(ids), self.tokens)

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Replace row i by row rows[i]; keep only these sentences (None: all)."""
        self.tokens = self.tokens[rows]
        self.state.reorder(rows, sentences)
