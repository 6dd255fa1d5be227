"""Metrics: how near the outputs are to the references, each with a signature by which others can repeat it."""

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

Link = tuple[int, int]

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
    """How many things were found, how many there were to find, and how many of them are the same."""

    hits: int
    found: int
    wanted: int

    @property
    def precision(self) -> float:
        """Share of what was found that is right, 0 to 100; 0 where nothing was found."""
        return 100 * self.hits / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of what was wanted that was found, 0 to 100; 0 where nothing was wanted."""
        return 100 * self.hits / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 100; 0 where there is no hit."""
        return 200 * self.hits / (self.found + self.wanted) if self.hits else 0.0

    def __add__(self, other: Self) -> Counts:
        return Counts(self.hits + other.hits, self.found + other.found, self.wanted + other.wanted)


def bleu(outputs: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "") -> Score:
    """Corpus BLEU by sacrebleu, 0 to 100; the tokenizer is chosen by the script of the references unless named.

    K. Papineni et al., BLEU: a method for automatic evaluation of machine translation, ACL 2002.
    """
    from sacrebleu.metrics.bleu import BLEU

    _check_pairs(outputs, references)
    tokenize = tokenize or _bleu_tokenizer(references)
    known = [name for name in BLEU.TOKENIZERS if name != "spm"]  # an old name of flores101, with a warning
    if tokenize not in known:
        raise ValueError(f"tokenize must be one of {', '.join(known)}, but is '{tokenize}'")
    # force: no warning to standard error about text that looks tokenized; it changes no number.
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    found = metric.corpus_score(list(outputs), [list(references)])
    return Score(float(found.score), str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 by sacrebleu, 0 to 100: character n-grams, so no tokenizer to choose.

    M. Popovic, chrF: character n-gram F-score for automatic MT evaluation, WMT 2015.
    """
    from sacrebleu.metrics.chrf import CHRF

    _check_pairs(outputs, references)
    metric = CHRF()
    found = metric.corpus_score(list(outputs), [list(references)])
    return Score(float(found.score), str(metric.get_signature()))


def rouge(outputs: Sequence[str], references: Sequence[str], *, stem: bool = False) -> dict[str, Score]:
    """ROUGE-1, -2, -L and -Lsum: F-measure, 0 to 100, mean over the pairs; equal to google-research's rouge_score.

    Where most words of the references hold no ASCII letter or digit, rouge_score would drop them; there the tokens are
    words of any script, and single characters in scripts without spaces (`tok:unicode` in the signature).

    C.-Y. Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop 2004.
    """
    _check_pairs(outputs, references)
    ascii_words = _mostly_ascii_words(references)

    def words(text: str) -> list[str]:
        found = ASCII_WORD.findall(text.lower()) if ascii_words else _unicode_words(text)
        return [stem_of(word) if len(word) > 3 and word.isascii() else word for word in found] if stem else found

    values: dict[str, list[float]] = {"rouge1": [], "rouge2": [], "rougeL": [], "rougeLsum": []}
    for output, reference in zip(outputs, references, strict=True):
        found, wanted = words(output), words(reference)
        values["rouge1"].append(_ngram_f(found, wanted, 1))
        values["rouge2"].append(_ngram_f(found, wanted, 2))
        values["rougeL"].append(_f_measure(_lcs_length(found, wanted), len(found), len(wanted)))
        lines = ([words(line) for line in text.split("\n")] for text in (output, reference))
        values["rougeLsum"].append(_f_measure(_union_hits(*lines), len(found), len(wanted)))
    tokens = "ascii" if ascii_words else "unicode"
    signature = f"rouge:F|stem:{'yes' if stem else 'no'}|tok:{tokens}|version:saccade-{__version__}"
    return {name: Score(100 * fmean(each), signature) for name, each in values.items()}


def exact(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Share of outputs that equal their reference, 0 to 100; white space around them does not count."""
    _check_pairs(outputs, references)
    equal = sum(output.strip() == reference.strip() for output, reference in zip(outputs, references, strict=True))
    return Score(100 * equal / len(references), f"exact|strip:yes|version:saccade-{__version__}")


def token_error(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Edits that turn the references into the outputs, for every 100 reference tokens; may exceed 100.

    Tokens stand between white space: the word error rate of words, the phoneme error rate of phonemes.
    """
    _check_pairs(outputs, references)
    count = sum(len(reference.split()) for reference in references)
    if not count:
        raise ValueError("references must hold at least one token, but all are empty")
    pairs = zip(outputs, references, strict=True)
    edits = sum(_edit_distance(output.split(), reference.split()) for output, reference in pairs)
    return Score(100 * edits / count, f"error:edits|tok:space|version:saccade-{__version__}")


def alignment_error(found: Sequence[set[Link]], sure: Sequence[set[Link]]) -> float:
    """Alignment error rate, 0 to 1, where every possible link is a sure one: 1 - 2 |A & S| / (|A| + |S|).

    F. J. Och and H. Ney, A systematic comparison of various statistical alignment models, CL 29(1), 2003.
    """
    if len(found) != len(sure):
        raise ValueError(f"found and sure must be as many, but are {len(found)} and {len(sure)}")
    if not any(sure):
        raise ValueError(f"sure must hold at least one link, but none of its {len(sure)} sets does")
    shared = sum(len(links & wanted) for links, wanted in zip(found, sure, strict=True))
    return 1 - 2 * shared / (sum(map(len, found)) + sum(map(len, sure)))


def by_length(
    lengths: Sequence[int],
    outputs: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int],
    score: Callable[[list[str], list[str]], float],
) -> list[tuple[int, int, int, float]]:
    """(from, to, count, score) of the pairs with from <= length < to, for each class between the edges that has any.

    What is shorter than the first edge or not shorter than the last is a class too: no pair is left out.
    """
    _check_pairs(outputs, references)
    if len(lengths) != len(outputs):
        raise ValueError(f"lengths and outputs must be as many, but are {len(lengths)} and {len(outputs)}")
    if any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"edges must ascend, but are {list(edges)}")
    members: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        members.setdefault(bisect_right(edges, length), []).append(row)
    bounds = [0, *edges, max(lengths) + 1]
    return [
        (
            bounds[place],
            bounds[place + 1],
            len(rows),
            score([outputs[row] for row in rows], [references[row] for row in rows]),
        )
        for place, rows in sorted(members.items())
    ]


def _check_pairs(outputs: Sequence[str], references: Sequence[str]) -> None:
    if len(outputs) != len(references):
        raise ValueError(f"outputs and references must be as many, but are {len(outputs)} and {len(references)}")
    if not outputs:
        raise ValueError("outputs must hold at least one line, but are empty")


def _bleu_tokenizer(references: Sequence[str]) -> str:
    """zh for Chinese, char for other scripts without spaces, 13a for the rest: by what most words are in."""
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
    """Runs of letters, marks and digits of any script; a character each where the script has no spaces."""
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
        elif kind != "Cf":  # joiners stand within words
            inside = False
    return words


def _f_measure(hits: int, found: int, wanted: int) -> float:
    """The harmonic mean of precision and recall, in rouge_score's order of operations."""
    if not hits:
        return 0.0
    precision, recall = hits / found, hits / wanted
    return 2 * precision * recall / (precision + recall)


def _ngram_f(found: list[str], wanted: list[str], size: int) -> float:
    ours, theirs = (Counter(zip(*(words[at:] for at in range(size)), strict=False)) for words in (found, wanted))
    return _f_measure((ours & theirs).total(), ours.total(), theirs.total())


def _places(words: Sequence[str]) -> dict[str, int]:
    """For each word a number whose bit j says that it stands at place j."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    return places


def _lcs_rows(found: list[str], wanted: list[str]) -> Iterator[int]:
    """The rows of the table of max_length common subsequences, one a wanted word, each packed into one number.

    Bit j is 0 where the subsequence grows with found word j. H. Hyyro, Bit-parallel LCS-length computation
    revisited, AWOCA 2004.
    """
    places = _places(found)
    full = row = (1 << len(found)) - 1
    for word in wanted:
        hits = row & places.get(word, 0)
        row = (row + hits | row - hits) & full
        yield row


def _lcs_length(found: list[str], wanted: list[str]) -> int:
    grown = 0
    for row in _lcs_rows(found, wanted):
        grown = len(found) - row.bit_count()
    return grown


def _lcs_members(found: list[str], wanted: list[str]) -> set[int]:
    """Places of one max_length common subsequence in `wanted`; among equals the one that rouge_score takes."""
    rows = [(1 << len(found)) - 1, *_lcs_rows(found, wanted)]
    row, column = len(wanted), len(found)

    def length(row: int, column: int) -> int:
        return column - (rows[row] & (1 << column) - 1).bit_count()

    members = set()
    while row and column and length(row, column):
        if wanted[row - 1] == found[column - 1]:
            row, column = row - 1, column - 1
            members.add(row)
        elif length(row, column - 1) > length(row - 1, column):
            column -= 1
        else:
            row -= 1
    return members


def _union_hits(found: list[list[str]], wanted: list[list[str]]) -> int:
    """Words of the wanted lines that a common subsequence with any found line holds, none counted twice."""
    hits: Counter[str] = Counter()
    for line in wanted:
        members = set().union(*(_lcs_members(other, line) for other in found))
        hits.update(line[place] for place in members)
    return (hits & Counter(word for line in found for word in line)).total()


def _edit_distance(found: list[str], wanted: list[str]) -> int:
    """Levenshtein's distance of two lists of words, a column of its table packed into two numbers.

    G. Myers, A fast bit-vector algorithm for approximate string matching, JACM 46(3), 1999.
    """
    if not wanted:
        return len(found)
    places, distance = _places(wanted), len(wanted)
    full, last = (1 << len(wanted)) - 1, 1 << len(wanted) - 1
    up, down = full, 0  # where the column rises and falls by one
    for word in found:
        same = places.get(word, 0)
        flat = ((same & up) + up ^ up) | same | down
        rise, fall = down | ~(flat | up) & full, up & flat
        distance += bool(rise & last) - bool(fall & last)
        rise = rise << 1 | 1
        up, down = (fall << 1 | ~(flat | rise)) & full, rise & flat & full
    return distance
