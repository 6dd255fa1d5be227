"""Metrics of reading: character and word error rate, and the texts read without any error."""

from collections.abc import Sequence

from saccade import __version__
from saccade.metrics.generation import Score, check_pairs, exact, token_error


def score_reading(outputs: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """Return the character error and word error rate, which may exceed 100, and the exact match, 0 to 100."""
    return {
        "character_error": character_error(outputs, references),
        "word_error": token_error(outputs, references),
        "exact": exact(outputs, references),
    }


def character_error(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Character error rate by jiwer: edits per 100 reference characters, spaces included; may exceed 100.

    White space around a text is ignored.
    """
    import jiwer

    check_pairs(outputs, references)
    pairs = [(output.strip(), reference.strip()) for output, reference in zip(outputs, references, strict=True)]
    count = sum(len(reference) for _, reference in pairs)
    if not count:
        raise ValueError("references must hold at least one character, but all are empty")
    edits = sum(len(output) for output, reference in pairs if not reference)  # jiwer 3 refuses an empty reference
    scored = [(output, reference) for output, reference in pairs if reference]
    result = jiwer.process_characters([reference for _, reference in scored], [output for output, _ in scored])
    edits += result.substitutions + result.deletions + result.insertions
    return Score(100 * edits / count, f"error:edits|tok:character|version:saccade-{__version__}")
