"""Metrics of captions with several references each, equal to the COCO caption evaluation: BLEU-4, ROUGE-L, CIDEr-D.

X. Chen et al., Microsoft COCO captions: data collection and evaluation server, 2015.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from saccade import __version__
from saccade.metrics.generation import Score, lcs_length
from saccade.metrics.ptb import tokenize

Ngrams = Counter[tuple[str, ...]]
Vectors = list[dict[tuple[str, ...], float]]

MAX_ORDER = 4
BETA = 1.2  # ROUGE-L: recall weighs more than precision
SIGMA = 6.0  # CIDEr-D: standard deviation of the length penalty, in words


def score_captions(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Score]:
    """Compare each caption with the references of its picture: bleu4 and rouge_l, 0 to 100, and cider, 0 to 10.

    CIDEr weights an n-gram by how few pictures of this set have it in their references, so its value depends on the
    set; of a single picture it is 0.
    """
    if len(outputs) != len(references):
        lengths = f"{len(outputs)} and {len(references)}"
        raise ValueError(f"outputs and references must have the same length, but have {lengths}")
    if not outputs:
        raise ValueError("outputs must hold at least one caption, but are empty")
    empty = next((row for row, captions in enumerate(references) if not captions), None)
    if empty is not None:
        raise ValueError(f"each picture must have a reference, but row {empty} has none")
    predicted = [tokenize(output) for output in outputs]
    expected = [[tokenize(caption) for caption in captions] for captions in references]
    counts = {len(captions) for captions in expected}
    settings = f"nrefs:{counts.pop() if len(counts) == 1 else 'var'}|tok:ptb|version:saccade-{__version__}"
    return {
        "bleu4": Score(_bleu(predicted, expected), f"bleu:4|length:closest|smooth:none|{settings}"),
        "rouge_l": Score(100 * fmean(map(_rouge_l, predicted, expected)), f"rouge:L|beta:{BETA}|{settings}"),
        "cider": Score(_cider(predicted, expected), f"cider:D|df:references|sigma:{SIGMA:g}|{settings}"),
    }


def _ngrams(tokens: Sequence[str]) -> Ngrams:
    """Count the n-grams of one to four tokens."""
    return Counter(
        tuple(tokens[start : start + order])
        for order in range(1, MAX_ORDER + 1)
        for start in range(len(tokens) - order + 1)
    )


def _bleu(outputs: list[list[str]], references: list[list[list[str]]]) -> float:
    from sacrebleu.metrics.bleu import BLEU

    correct, total = [0] * MAX_ORDER, [0] * MAX_ORDER
    length = expected_length = 0
    for tokens, captions in zip(outputs, references, strict=True):
        most: Ngrams = Counter()
        for caption in captions:
            most |= _ngrams(caption)
        ngrams = _ngrams(tokens)
        for ngram, count in (ngrams & most).items():
            correct[len(ngram) - 1] += count
        for order in range(MAX_ORDER):
            total[order] += max(0, len(tokens) - order)
        length += len(tokens)
        # The closest length, and the shorter of two that are equally close.
        expected_length += min((abs(len(caption) - len(tokens)), len(caption)) for caption in captions)[1]
    return float(BLEU.compute_bleu(correct, total, length, expected_length).score)


def _rouge_l(output: list[str], references: list[list[str]]) -> float:
    """Return the F-measure, 0 to 1, of the best precision and the best recall, also if of different references."""
    output = output or [""]  # as the evaluation splits an empty line
    pairs = [(lcs_length(output, caption or [""]), len(caption or [""])) for caption in references]
    precision = max(length for length, _ in pairs) / len(output)
    recall = max(length / total for length, total in pairs)
    if not precision:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _cider(outputs: list[list[str]], references: list[list[list[str]]]) -> float:
    """CIDEr-D, 0 to 10: the mean similarity to a reference over n-grams of 1 to 4 words, weighted by rarity.

    R. Vedantam et al., CIDEr: consensus-based image description evaluation, CVPR 2015.
    """
    pictures: Ngrams = Counter()  # whose references contain an n-gram
    for captions in references:
        pictures.update({ngram for caption in captions for ngram in _ngrams(caption)})
    total = math.log(len(references))

    def vectors(tokens: list[str]) -> Vectors:
        weights: Vectors = [{} for _ in range(MAX_ORDER)]
        for ngram, count in _ngrams(tokens).items():
            weights[len(ngram) - 1][ngram] = count * (total - math.log(max(1, pictures[ngram])))
        return weights

    scores = []
    for tokens, captions in zip(outputs, references, strict=True):
        output = vectors(tokens)
        for caption in captions:
            # Lengths are those of the bigrams.
            difference = max(0, len(tokens) - 1) - max(0, len(caption) - 1)
            penalty = math.exp(-(difference**2) / (2 * SIGMA**2))
            similarity = fmean(map(_clipped_cosine, output, vectors(caption)))
            scores.append(10 * penalty * similarity / len(captions))
    return math.fsum(scores) / len(references)


def _clipped_cosine(output: dict[tuple[str, ...], float], reference: dict[tuple[str, ...], float]) -> float:
    """Return the cosine similarity, where repeating an n-gram more often than the reference does not help."""
    norm = math.hypot(*output.values()) * math.hypot(*reference.values())
    shared = output.keys() & reference.keys()
    product = math.fsum(min(output[ngram], reference[ngram]) * reference[ngram] for ngram in shared)
    return product / norm if norm else 0.0
