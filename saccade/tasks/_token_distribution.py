"""The distribution of the next token: its logits, shaped by any options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from saccade.core.generation import Candidate, NextTokens
from saccade.data.text.tokenizers import Tokenizer
from saccade.decode.sampling import GREEDY, Sampling, apply_penalties, distribution, most_probable


@dataclass(frozen=True)
class TokenDistribution:
    """What the model says comes next, before any option is applied."""

    logits: Tensor
    """(V,)"""
    tokenizer: Tokenizer
    ids: Sequence[int] = ()
    """the tokens before it, and maybe further ones"""
    count: int = 0
    """number of tokens before it"""
    prompt: int = 0
    """how many of them were not generated"""
    labels: dict[int, str] = field(default_factory=dict)
    """of tokens that were candidates before, for all distributions of one text"""

    @property
    def nbytes(self) -> int:
        """Bytes of the logits."""
        return self.logits.nbytes

    def next_tokens(self, options: Any, count: int, include: int = -1) -> NextTokens:
        """Return the most probable tokens in the order of the model, and one more that may not be among them."""
        logits = self.logits[None].float().cpu()
        of_model, probs = logits[0].softmax(-1), self._shaped(logits, options)[0]
        chosen = of_model.topk(min(count, len(of_model))).indices.tolist()
        chosen += [include] if include >= 0 and include not in chosen else []
        index = torch.tensor(chosen)
        if unknown := [token for token in chosen if token not in self.labels]:
            self.labels.update(zip(unknown, self.tokenizer.pieces(unknown), strict=True))
        columns = (chosen, [self.labels[token] for token in chosen], probs[index].tolist(), of_model[index].tolist())
        candidates = tuple(Candidate(*entry) for entry in zip(*columns, strict=True))
        return NextTokens(candidates, int(probs.count_nonzero()), len(probs))

    def _shaped(self, logits: Tensor, options: Any) -> Tensor:
        """Return the probabilities (1, V) that are sampled from; without sampling those of the model."""
        if not isinstance(options, Sampling):
            return logits.softmax(-1)
        if options.penalizes:
            logits = apply_penalties(logits, torch.tensor([self.ids[: self.count]]), options, prompt=self.prompt)
        if options.temperature < GREEDY:
            return torch.zeros_like(logits).index_fill_(-1, most_probable(logits), 1.0)
        return distribution(logits, options)
