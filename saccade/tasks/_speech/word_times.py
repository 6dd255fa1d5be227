"""Times of words from cross-attention: the attention of a few heads moves through the sound as the text is written.

Dynamic time warping finds the monotone path with the most attention (Whisper, https://arxiv.org/abs/2212.04356, and
OpenAI's release of it). Shapes: H heads, T tokens, K positions of the sound.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.tokenizers import Tokenizer

WITHOUT_SPACES = frozenset(("zh", "ja", "th", "lo", "my", "yue"))  # languages whose words are not separated by spaces
OPENING, CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # marks that belong to the word after and before them
INCOMPLETE = "\ufffd"


@dataclass(frozen=True)
class TimedText:
    """A word or a segment of a text, and when it is spoken."""

    text: str
    start: float
    """seconds from the start of the recording"""
    end: float


def attention_to_costs(weights: Tensor, positions: int, median: int) -> NDArray[np.float64]:
    """Return the cost (T, K) of each token at each of the first positions from attention weights (H, T, all).

    Weights are normalized over the tokens, so that positions to which every token attends do not count, and smoothed.
    """
    weights = weights[..., :positions].double()
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-30)
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, correction=0)
    weights = (weights - mean) / deviation.clamp_min(1e-30)
    half = median // 2
    if positions > half:
        weights = F.pad(weights, (half, half), mode="reflect").unfold(-1, median, 1).median(-1).values
    costs: NDArray[np.float64] = -weights.mean(0).numpy()
    return costs


def warp(costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the first position of each token on the cheapest monotone path through costs (T, K).

    A step goes to the next token, to the next position, or to both.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    step = np.zeros((rows + 1, columns + 1), dtype=np.int8)  # 0: both, 1: next token, 2: next position
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):  # whose cells do not depend on each other
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack((total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]))
        step[i, j] = before.argmin(0)
        total[i, j] = costs[i - 1, j - 1] + before.min(0)
    step[0, :], step[:, 0] = 2, 1
    first = np.zeros(rows, dtype=np.int64)
    i, j = rows, columns
    while i > 0 and j > 0:
        first[i - 1] = j - 1  # the last value that is written is the first position
        i, j = i - (step[i, j] != 2), j - (step[i, j] != 1)
    return first


@dataclass(frozen=True)
class Word:
    """A word of a text, and which of its tokens are spoken: punctuation beside them is not."""

    text: str
    first: int
    end: int


def split_words(tokenizer: Tokenizer, ids: Sequence[int], language: str = "en") -> list[Word]:
    """Return the words of a text; marks are part of the word beside them."""
    words: list[Word] = []
    at = 0
    for piece, count in _characters(tokenizer, ids):
        starts = piece.startswith(" ") or piece.strip() in string.punctuation or language in WITHOUT_SPACES
        if starts or not words:
            words.append(Word(piece, at, at + count))
        else:
            words[-1] = Word(words[-1].text + piece, words[-1].first, at + count)
        at += count
    return _join_marks(words)


def _characters(tokenizer: Tokenizer, ids: Sequence[int]) -> list[tuple[str, int]]:
    """Return the shortest groups of tokens that are whole characters, with the number of tokens of each."""
    groups: list[tuple[str, int]] = []
    pending = b""
    count = 0
    for raw in tokenizer.raw(ids):
        pending, count = pending + raw, count + 1
        text = pending.decode("utf-8", "replace")
        if not text.endswith(INCOMPLETE) or len(pending) > 4:
            groups.append((text, count))
            pending, count = b"", 0
    return [*groups, (pending.decode("utf-8", "replace"), count)] if count else groups


def _join_marks(words: Sequence[Word]) -> list[Word]:
    """Join opening marks with the word after them and closing marks with the one before them."""
    joined: list[Word] = []
    opening = ""
    for word in words:
        text = word.text
        if text.startswith(" ") and text.strip() and text.strip() in OPENING and word is not words[-1]:
            opening += text
        elif joined and not opening and not text.startswith(" ") and text in CLOSING:
            joined[-1] = replace(joined[-1], text=joined[-1].text + text)
        else:
            joined.append(replace(word, text=opening + text))
            opening = ""
    return joined


def time_words(
    tokenizer: Tokenizer, ids: Sequence[int], first: Sequence[float], language: str, offset: float
) -> list[TimedText]:
    """Return the words of a text; `first` are the seconds at which each of its tokens and its end start."""
    words = split_words(tokenizer, ids, language)
    times = [TimedText(word.text.strip(), offset + first[word.first], offset + first[word.end]) for word in words]
    return [word for word in times if word.text]
