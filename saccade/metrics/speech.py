"""Metrics of speech recognition: character and word error rate by jiwer."""

from collections.abc import Sequence

from saccade.metrics.generation import Score, token_error
from saccade.metrics.reading import character_error


def error_rates(outputs: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """Return the edits per 100 characters (cer) and per 100 words (wer) of the references; they may exceed 100."""
    return {"cer": character_error(outputs, references), "wer": token_error(outputs, references)}
