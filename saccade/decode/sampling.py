"""Sampling: from logits to the next token, greedy or random.

Shapes: B rows, V vocabulary, T tokens so far.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

GREEDY = 1e-5  # a temperature below it is practically 0, and logits divided by it would overflow


@dataclass(frozen=True)
class Sampling:
    """Settings for choosing the next token."""

    temperature: float = 0.8
    """<1 sharpens, >1 flattens the distribution, 0 is greedy"""
    top_k: int = 0
    """sample from the k most probable tokens; 0: all"""
    top_p: float = 1.0
    """sample from the smallest set of tokens with at least this total probability (nucleus sampling)"""
    min_p: float = 0.0
    """exclude tokens less probable than this times the most probable one"""
    repetition_penalty: float = 1.0
    """>1 makes tokens that have already occurred less probable"""
    presence_penalty: float = 0.0
    """subtracted from the logits of tokens that were already generated"""
    frequency_penalty: float = 0.0
    """subtracted from the logits of generated tokens for each time that they were"""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 or more, but is {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 or more, but is {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, but is {self.top_p}")
        if not 0 <= self.min_p < 1:
            raise ValueError(f"min_p must be at least 0 and below 1, but is {self.min_p}")
        if not 0.01 <= self.repetition_penalty <= 100:
            raise ValueError(f"repetition_penalty must be from 0.01 to 100, but is {self.repetition_penalty}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -100 <= getattr(self, name) <= 100:
                raise ValueError(f"{name} must be from -100 to 100, but is {getattr(self, name)}")

    @property
    def penalizes(self) -> bool:
        """Whether the choice depends on the tokens so far."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


def choose(
    logits: Tensor, used: Tensor | None, sampling: Sampling, generator: torch.Generator, *, prompt: int = 0
) -> Tensor:
    """Choose the next token of each row: logits (B, V), tokens so far (B, T), `prompt` of which are given -> (B,).

    The tokens so far are needed for penalties only.
    """
    top = most_probable(logits)
    if not bool(logits.gather(-1, top[:, None]).isfinite().all()):  # -inf excludes a token, but the maximum is a number
        raise FloatingPointError("the logits of the next token must be finite, but are not")
    if used is not None:
        logits = apply_penalties(logits, used, sampling, prompt=prompt)
    if sampling.temperature < GREEDY:
        return most_probable(logits) if sampling.penalizes else top
    probs = distribution(logits, sampling)
    return torch.multinomial(probs.cpu(), 1, generator=generator)[:, 0].to(logits.device)


def apply_penalties(logits: Tensor, used: Tensor, sampling: Sampling, *, prompt: int = 0) -> Tensor:
    """Return logits (B, V) after penalties for the tokens so far (B, T), `prompt` of which are given."""
    if sampling.repetition_penalty != 1:
        logits = penalize(logits, used, sampling.repetition_penalty)
    if sampling.presence_penalty or sampling.frequency_penalty:
        generated = used[:, prompt:]  # may have more tokens than the vocabulary
        counts = torch.zeros_like(logits).scatter_add(-1, generated, torch.ones_like(generated, dtype=logits.dtype))
        logits = logits - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts
    return logits


def most_probable(logits: Tensor) -> Tensor:
    """Return the tokens (B,) with the largest logits, or one that is not a number; on a CPU by one thread.

    To wake others takes longer.
    """
    if logits.device.type != "cpu" or logits.dtype not in (torch.float32, torch.float64):
        return logits.argmax(-1)
    return torch.from_numpy(logits.numpy().argmax(-1))


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the probabilities (B, V) to sample from, after temperature and cut-offs; the most probable token stays."""
    probs = (logits.float() / sampling.temperature).softmax(-1)
    if not bool(probs[:, 0].isfinite().all()):  # the largest number divided by a small one: all of the row is nan
        raise FloatingPointError("the logits of the next token must be finite, but are not")
    if not sampling.top_k and sampling.top_p == 1 and not sampling.min_p:
        return probs
    ranked, order = probs.sort(-1, descending=True)
    cut = torch.zeros_like(ranked, dtype=torch.bool)
    if sampling.top_k:
        cut[:, sampling.top_k :] = True
    if sampling.top_p < 1:
        cut |= ranked.cumsum(-1) - ranked >= sampling.top_p  # the token that reaches top_p stays
    if sampling.min_p:
        cut |= ranked < sampling.min_p * ranked[:, :1]
    cut[:, 0] = False
    kept = torch.zeros_like(ranked).scatter(-1, order, ranked.masked_fill(cut, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def penalize(logits: Tensor, used: Tensor, penalty: float) -> Tensor:
    """Divide the positive logits of used tokens by the penalty, multiply the others (https://arxiv.org/abs/1909.05858)."""
    values = logits.gather(-1, used)
    return logits.scatter(-1, used, torch.where(values > 0, values / penalty, values * penalty))
