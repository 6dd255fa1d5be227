"""Parity: the outputs of exported files are compared with those of the network before the files get their name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import DataError, ModelFileError
from saccade.nn.cache import KVCache

LIMIT = 1e-3  # of the largest output, for files that hold the weights in float32
TOKENS, CONTINUED = 64, 32  # of the compared text, and of its greedy continuation
SEED = 20_260_101
TEXT = (
    "The eye does not move smoothly over a line of text: it jumps from one point to the next, and between two jumps it "
    "rests for about a quarter of a second. Most of what we read is seen in these rests. Such a jump is called a "
    "saccade; while it lasts, we see almost nothing."
)

NextToken = Callable[[list[int]], int]
"""ids of a text -> the most probable next one"""


@dataclass(frozen=True)
class Greedy:
    """Greedy continuations of one text by two implementations: how many tokens there are, and how many agree."""

    equal: int
    count: int

    def __str__(self) -> str:
        agreement = "equal" if self.equal == self.count else f"equal up to token {self.equal}"
        return f"greedy continuation of {self.count} tokens {agreement}"


@dataclass(frozen=True)
class Parity:
    """The largest difference of two implementations."""

    difference: float
    scale: float
    """largest output of the network, as absolute value"""
    name: str
    """what was compared, such as logits"""
    extent: str
    """over how many, such as 64 tokens"""
    greedy: Greedy | None = None

    def __str__(self) -> str:
        continuation = "" if self.greedy is None else f", {self.greedy}"
        difference = f"{self.difference:.1e}" if self.difference else "0"
        return f"largest difference of {self.name} {difference} over {self.extent}{continuation}"

    def require(self, tool: str, limit: float = LIMIT) -> str:
        """Return the line that is printed; outputs that differ more than rounding explains are refused."""
        allowed = limit * max(1.0, self.scale)
        if not self.difference <= allowed:  # also if it is not a number
            raise ModelFileError(
                f"{self.name} of {tool} must differ by at most {allowed:.1e} from those of the network, but differ by "
                f"{self.difference:.1e}; nothing was written: please report this model"
            )
        return f"parity with {tool}: {self}"


def compare(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """Return the largest difference of (expected, actual) outputs, and the largest expected absolute value."""
    difference, scale = 0.0, 0.0
    for expected, actual in pairs:
        if expected.shape != actual.shape:
            raise ModelFileError(
                f"outputs must have the shape {tuple(expected.shape)}, but have {tuple(actual.shape)}; "
                "nothing was written: please report this model"
            )
        error = (expected.double() - actual.double()).abs()
        difference = max(difference, float(error.max()) if bool(error.isfinite().all()) else float("inf"))
        scale = max(scale, float(expected.abs().max()))
    return difference, scale


def sample_ids(vocabulary: int, rows: int, length: int) -> Tensor:
    """Return random ids (rows, length), always the same ones."""
    generator = torch.Generator().manual_seed(SEED + 1000 * rows + length)
    return torch.randint(vocabulary, (rows, length), generator=generator)


def sample_text(tokenizer: Tokenizer, vocabulary: int, length: int) -> list[int]:
    """Return the ids of a text of this length; random ones where the tokenizer has no tokens for it."""
    try:
        ids = tokenizer.encode(TEXT)
    except DataError:  # a character that it never saw
        ids = []
    return ids[:length] if len(ids) >= length else sample_ids(vocabulary, 1, length)[0].tolist()


def sample_lengths(max_positions: int) -> tuple[int, int]:
    """Return how many tokens are compared and how many continued, which fit the positions of a model."""
    tokens = max(1, min(TOKENS, max_positions // 2))
    return tokens, max(0, min(CONTINUED, max_positions - tokens))


@torch.no_grad()
def continue_greedily(network: nn.Module, ids: Sequence[int], count: int) -> list[int]:
    """Return the ids of the greedy continuation by a language model."""
    cache, feed, continued = KVCache(len(ids) + count), list(ids), []
    for _ in range(count):
        feed = [int(network(torch.tensor([feed]), cache=cache)[0, -1].argmax())]
        continued += feed
    return continued


def compare_greedy(network: nn.Module, ids: Sequence[int], count: int, next_token: NextToken) -> Greedy:
    """Continue a text by the network and by another implementation, which reads the tokens of the network."""
    expected = continue_greedily(network, ids, count)
    for number, token in enumerate(expected):
        if next_token([*ids, *expected[:number]]) != token:
            return Greedy(number, count)
    return Greedy(count, count)
