"""Metrics of generated text, each with the signature that reproduces it: BLEU, chrF, ROUGE, exact match, error rate."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Self

from saccade import __version__
from saccade.metrics.stemmer import stem as stem_of

# Scripts that put no spaces between words; halfwidth and rare forms included.
HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
OTHERS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
UNSPACED = re.compile(f"[{HAN}{KANA}{OTHERS}]")
LETTERS = re.compile(r"[^\W\d_]+")
ASCII_WORD = re.compile("[a-z0-9]+")


@dataclass(frozen=True)
class Score:
    """A number, and how it was computed."""

    value: float
    signature: str


@dataclass(frozen=True)
class Counts:
    """Counts behind precision and recall: correct, predicted and expected items."""

    hits: int
    predicted: int
    expected: int

    @property
    def precision(self) -> float:
        """Fraction of the predicted items that are correct, 0 to 100; 0 without any."""
        return 100 * self.hits / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the expected items that were predicted, 0 to 100; 0 without any."""
        return 100 * self.hits / self.expected if self.expected else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 100; 0 where there is no hit."""
        return 200 * self.hits / (self.predicted + self.expected) if self.hits else 0.0

    def __add__(self, other: Self) -> Counts:
        return Counts(self.hits + other.hits, self.predicted + other.predicted, self.expected + other.expected)


def bleu(outputs: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "") -> Score:
    """Corpus BLEU by sacrebleu, 0 to 100; the tokenizer is chosen by the script of the references unless named.

    K. Papineni et al., BLEU: a method for automatic evaluation of machine translation, ACL 2002.
    """
    from sacrebleu.metrics.bleu import BLEU

    check_pairs(outputs, references)
    tokenize = tokenize or _bleu_tokenizer(references)
    names = [name for name in BLEU.TOKENIZERS if name != "spm"]  # an old name of flores101, with a warning
    if tokenize not in names:
        raise ValueError(f"tokenize must be one of {', '.join(names)}, but is '{tokenize}'")
    # force: no warning to standard error about text that looks tokenized; it changes no number.
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    result = metric.corpus_score(list(outputs), [list(references)])
    return Score(float(result.score), str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 by sacrebleu, 0 to 100: character n-grams, so no tokenizer to choose.

    M. Popovic, chrF: character n-gram F-score for automatic MT evaluation, WMT 2015.
    """
    from sacrebleu.metrics.chrf import CHRF

    check_pairs(outputs, references)
    metric = CHRF()
    result = metric.corpus_score(list(outputs), [list(references)])
    return Score(float(result.score), str(metric.get_signature()))


def rouge(outputs: Sequence[str], references: Sequence[str], *, stem: bool = False) -> dict[str, Score]:
    """ROUGE-1, -2, -L and -Lsum: F-measure, 0 to 100, mean over the pairs; equal to google-research's rouge_score.

    Where most words of the references hold no ASCII letter or digit, rouge_score would drop them; there the tokens are
    words of any script, and single characters in scripts without spaces (`tok:unicode` in the signature).

    C.-Y. Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop 2004.
    """
    check_pairs(outputs, references)
    ascii_words = _mostly_ascii_words(references)

    def words(text: str) -> list[str]:
        tokens = ASCII_WORD.findall(text.lower()) if ascii_words else _unicode_words(text)
        return [stem_of(word) if len(word) > 3 and word.isascii() else word for word in tokens] if stem else tokens

    values: dict[str, list[float]] = {"rouge1": [], "rouge2": [], "rougeL": [], "rougeLsum": []}
    for output, reference in zip(outputs, references, strict=True):
        predicted, expected = words(output), words(reference)
        values["rouge1"].append(_ngram_f(predicted, expected, 1))
        values["rouge2"].append(_ngram_f(predicted, expected, 2))
        values["rougeL"].append(_f_measure(lcs_length(predicted, expected), len(predicted), len(expected)))
        lines = ([words(line) for line in text.split("\n")] for text in (output, reference))
        values["rougeLsum"].append(_f_measure(_union_hits(*lines), len(predicted), len(expected)))
    tokens = "ascii" if ascii_words else "unicode"
    signature = f"rouge:F|stem:{'yes' if stem else 'no'}|tok:{tokens}|version:saccade-{__version__}"
    return {name: Score(100 * fmean(scores), signature) for name, scores in values.items()}


def exact(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Exact match: fraction of outputs equal to their reference up to surrounding white space, 0 to 100."""
    check_pairs(outputs, references)
    equal = sum(output.strip() == reference.strip() for output, reference in zip(outputs, references, strict=True))
    return Score(100 * equal / len(references), f"exact|strip:yes|version:saccade-{__version__}")


def token_error(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Token error rate by jiwer: edits per 100 reference tokens; may exceed 100.

    Tokens are separated by white space: the word error rate of words, the phoneme error rate of phonemes.
    """
    import jiwer

    check_pairs(outputs, references)
    pairs = [(output.split(), reference.split()) for output, reference in zip(outputs, references, strict=True)]
    count = sum(len(reference) for _, reference in pairs)
    if not count:
        raise ValueError("references must hold at least one token, but all are empty")
    edits = sum(len(output) for output, reference in pairs if not reference)  # jiwer 3 refuses an empty reference
    scored = [(" ".join(output), " ".join(reference)) for output, reference in pairs if reference]
    result = jiwer.process_words([reference for _, reference in scored], [output for output, _ in scored])
    edits += result.substitutions + result.deletions + result.insertions
    return Score(100 * edits / count, f"error:edits|tok:space|version:saccade-{__version__}")


def by_length(
    lengths: Sequence[int],
    outputs: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int],
    score: Callable[[list[str], list[str]], float],
) -> list[tuple[int, int, int, float]]:
    """Return (from, to, count, score) of the pairs with from <= length < to, for each nonempty bin.

    Lengths below the first edge and from the last edge have bins too: no pair is left out.
    """
    check_pairs(outputs, references)
    if len(lengths) != len(outputs):
        raise ValueError(f"lengths and outputs must have the same length, but have {len(lengths)} and {len(outputs)}")
    if any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"edges must ascend, but are {list(edges)}")
    members: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        members.setdefault(bisect_right(edges, length), []).append(row)
    bounds = [0, *edges, max(lengths) + 1]
    return [
        (
            bounds[number],
            bounds[number + 1],
            len(rows),
            score([outputs[row] for row in rows], [references[row] for row in rows]),
        )
        for number, rows in sorted(members.items())
    ]


def check_pairs(outputs: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there are as many outputs as references, and at least one."""
    if len(outputs) != len(references):
        lengths = f"{len(outputs)} and {len(references)}"
        raise ValueError(f"outputs and references must have the same length, but have {lengths}")
    if not outputs:
        raise ValueError("outputs must hold at least one line, but are empty")


def _bleu_tokenizer(references: Sequence[str]) -> str:
    """Return zh for Chinese, char for other scripts without spaces, 13a otherwise: by the script of most words."""
    text = "\n".join(references)
    words = len(LETTERS.findall(UNSPACED.sub(" ", text)))
    han, kana, others = (len(re.findall(f"[{script}]", text)) for script in (HAN, KANA, OTHERS))
    if han + kana + others <= words:
        return "13a"
    # Japanese is half kana; a Chinese text may still quote some.
    return "zh" if han > 9 * kana and han > others else "char"


def _mostly_ascii_words(references: Sequence[str]) -> bool:
    if all(reference.isascii() for reference in references):
        return True
    words = [word for reference in references for word in _unicode_words(reference)]
    return 2 * sum(ASCII_WORD.search(word) is not None for word in words) >= len(words)


def _unicode_words(text: str) -> list[str]:
    """Split into runs of letters, marks and digits of any script; characters where the script has no spaces."""
    words: list[str] = []
    inside = False
    for character in unicodedata.normalize("NFC", text.lower()):
        kind = unicodedata.category(character)
        if kind[0] == "M" and words:
            words[-1] += character  # a vowel sign belongs to its letter, which \w does not know
        elif kind[0] in "LN":
            alone = UNSPACED.match(character) is not None
            if inside and not alone:
                words[-1] += character
            else:
                words.append(character)
            inside = not alone
        elif kind != "Cf":  # joiners occur within words
            inside = False
    return words


def _f_measure(hits: int, predicted: int, expected: int) -> float:
    """Return the harmonic mean of precision and recall, in rouge_score's order of operations."""
    if not hits:
        return 0.0
    precision, recall = hits / predicted, hits / expected
    return 2 * precision * recall / (precision + recall)


def _ngram_f(predicted: list[str], expected: list[str], size: int) -> float:
    left, right = (Counter(zip(*(words[at:] for at in range(size)), strict=False)) for words in (predicted, expected))
    return _f_measure((left & right).total(), left.total(), right.total())


def _positions(words: Sequence[str]) -> dict[str, int]:
    """Return a bit set of positions for each word."""
    positions: dict[str, int] = {}
    for position, word in enumerate(words):
        positions[word] = positions.get(word, 0) | 1 << position
    return positions


def _lcs_rows(predicted: list[str], expected: list[str]) -> Iterator[int]:
    """Yield the rows of the table of longest common subsequences, one integer per reference word.

    Bit j is 0 where the subsequence grows with output word j. H. Hyyro, Bit-parallel LCS-length computation
    revisited, AWOCA 2004.
    """
    positions = _positions(predicted)
    full = row = (1 << len(predicted)) - 1
    for word in expected:
        hits = row & positions.get(word, 0)
        row = (row + hits | row - hits) & full
        yield row


def lcs_length(predicted: list[str], expected: list[str]) -> int:
    """Return the length of the longest common subsequence."""
    length = 0
    for row in _lcs_rows(predicted, expected):
        length = len(predicted) - row.bit_count()
    return length


def _lcs_members(predicted: list[str], expected: list[str]) -> set[int]:
    """Return positions in the reference of a longest common subsequence; of several, the one rouge_score chooses."""
    rows = [(1 << len(predicted)) - 1, *_lcs_rows(predicted, expected)]
    row, column = len(expected), len(predicted)

    def length(row: int, column: int) -> int:
        return column - (rows[row] & (1 << column) - 1).bit_count()

    members = set()
    while row and column and length(row, column):
        if expected[row - 1] == predicted[column - 1]:
            row, column = row - 1, column - 1
            members.add(row)
        elif length(row, column - 1) > length(row - 1, column):
            column -= 1
        else:
            row -= 1
    return members


def _union_hits(predicted: list[list[str]], expected: list[list[str]]) -> int:
    """Count the reference words in the union of longest common subsequences with the output lines."""
    hits: Counter[str] = Counter()
    for line in expected:
        members = set().union(*(_lcs_members(other, line) for other in predicted))
        hits.update(line[position] for position in members)
    return (hits & Counter(word for line in predicted for word in line)).total()
