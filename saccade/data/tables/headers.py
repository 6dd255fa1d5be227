"""Headers: whether the first row of a table names the columns, judged by how it differs from the rows below it."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import median

from saccade.data.tables.numbers import is_number

# Usual names of columns.
COLUMN_NAME = re.compile(
    r"(text|sentence|content|document|body|message|label|class|category|source|target|title|"
    r"question|answer|context|id|name|summary|input|output|score|url|date|review|comment|"
    r"tweet|smiles|words|tags|premise|hypothesis|query|response|prompt|completion|src|tgt|"
    r"texte|texto|satz|phrase|klasse|clase|etikett|etiqueta|frage|antwort|文本|标签|内容|类别|评论|句子|问题|答案|"
    r"english|german|french|spanish|italian|portuguese|dutch|russian|chinese|japanese|arabic|turkish|polish|hindi)s?"
)
WORD = re.compile(r"[^\W\d]\w{0,39}")
VALUE = re.compile(r"[+\-$€£]?\d[\d\s:/.,%+\-TZ$€£]*")  # a number, an amount, a date or a time
MISSING = {"-", "?", ".", "na", "n/a", "none", "null", "nil", "unknown"}  # written where a number is missing
SYMBOL = re.compile(r"[#(){}\[\]<>→_/|]|->")
BRACKETS = re.compile(r"\s*[(\[{].*?[)\]}]\s*")
NUMBERED = re.compile(r"[\s._-]*(\d+|[ab])$")
UNSPACED = re.compile("[\u0e00-\u109f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # scripts without spaces between words
FINAL = ".!?。！？…"
QUESTION = ("?", "？")
LONG = 80  # characters of a cell that is hardly a name
PHRASE = 4  # words of a cell that is rather a sentence than a name
FEW = 10  # rows below which repeated values and final punctuation say nothing
DIFFERENCES = ({"1", "2"}, {"a", "b"}, {"A", "B"}, {"0", "1"}, {"x", "y"})  # of two names that are numbered

# How much a cell of the first row says for a header, or against it.
ABOVE_NUMBERS, USUAL, HINT = 4, 2, 1
REPEATED, SENTENCE = -4, -3
CLEAR = 2  # the difference between all that speaks for and against it that decides


def is_header(rows: Sequence[Sequence[str]]) -> bool | None:
    """Whether the first row is a header: names, unlike the values below them; None: it may be either."""
    if not rows:
        return False
    first = [cell.strip() for cell in rows[0]]
    named = [cell for cell in first if cell]
    if not named or any(is_number(cell) or VALUE.fullmatch(cell) for cell in named):
        return False
    # A header that occurs again, where files were concatenated, is not a value.
    below = [row for row in rows[1:] if len(row) == len(first) and [cell.strip() for cell in row] != first]
    evidence: list[int] = []
    for index, cell in enumerate(first):
        evidence += _evidence(cell, [row[index].strip() for row in below]) if cell else []
    if any(_are_numbered_names(rows[0], below, *pair) for pair in combinations(range(len(first)), 2)):
        evidence.append(USUAL)
    supporting = sum(value for value in evidence if value > 0)
    opposing = -sum(value for value in evidence if value < 0)
    if not supporting or opposing - supporting >= CLEAR:
        return False
    return True if not opposing or supporting - opposing >= CLEAR else None


def _evidence(name: str, values: Sequence[str]) -> list[int]:
    """Return what a cell of the first row says: positive for a header, negative against it."""
    usual = _is_usual(name)
    if not values:
        return [USUAL] if usual else []
    if name in values:
        return [REPEATED]
    if sum(map(is_number, values)) > 0.9 * len(values):
        return [] if name.lower() in MISSING else [ABOVE_NUMBERS]
    # 'Text?' above sentences is a name, 'Name?' above other short questions is not.
    short = " " not in name and median(len(value.split()) for value in values) >= PHRASE - 1
    if _is_like_sentences(name, values) and not (usual and short):
        return [SENTENCE]
    if usual:  # and so may be the values, such as 'source 0' above 'source 1'
        return [USUAL] if sum(map(_is_usual, values)) <= 0.2 * len(values) else []
    if len(name.split()) >= PHRASE - 1 and sum(len(value.split()) == 1 for value in values) > 0.9 * len(values):
        return [USUAL]  # a phrase above words
    if _is_unlike(name, values):
        return [HINT]
    if name[-1] in QUESTION and len(values) >= 2 * FEW and not any(value.endswith(QUESTION) for value in values):
        return [HINT, -HINT]  # a question above its answers, or the only question among the values
    return []


def _is_usual(name: str) -> bool:
    """Whether a name, without what stands in brackets, signs around it and a number at its end, is a usual one."""
    plain = BRACKETS.sub(" ", name.lower()).strip(" #?*:.\"'")
    plain = NUMBERED.sub("", plain)
    return any(COLUMN_NAME.fullmatch(part) for part in (plain, *plain.split("_")))


def _are_numbered_names(first: Sequence[str], below: Sequence[Sequence[str]], left: int, right: int) -> bool:
    """Whether two cells of the first row are numbered as names are, such as '#1 String' and '#2 String'."""
    numbered = sum(_are_numbered(row[left], row[right]) for row in below)
    return _are_numbered(first[left], first[right]) and numbered <= 0.05 * len(below)


def _are_numbered(name: str, other: str) -> bool:
    """Whether two texts differ in one number or letter alone."""
    if len(name) != len(other) or len(name) < 5:
        return False
    differ = [{left, right} for left, right in zip(name, other, strict=True) if left != right]
    return len(differ) == 1 and differ[0] in DIFFERENCES


def _is_like_sentences(name: str, values: Sequence[str]) -> bool:
    """Whether a cell is long, of many words or ends as a sentence does, as the values below it are."""
    if len(name) > LONG:
        return True
    words, below = len(name.split()), median(len(value.split()) for value in values)
    if name[-1] in FINAL:
        alike = sum(value.endswith(name[-1]) for value in values)
        if len(values) >= FEW:
            return alike >= 0.2 * len(values)
        return alike > 0 or below >= PHRASE
    return words >= PHRASE and below >= words / 2


def _is_unlike(name: str, values: Sequence[str]) -> bool:
    """Whether a cell is a word above texts, has a sign that values lack, or is no class above classes."""
    count = len(values)
    if WORD.fullmatch(name) and not UNSPACED.search(name):
        words = sum(bool(WORD.fullmatch(value)) for value in values)
        within = sum(name in value.split() for value in values)
        if words < 0.5 * count and within <= 0.05 * count:
            return True
    signs = set(SYMBOL.findall(name))
    if signs and sum(any(sign in value for sign in signs) for value in values) <= 0.05 * count:
        return True
    repeats = Counter(values)
    return count >= FEW and len(repeats) <= count / 5 and min(repeats.values()) > 1  # classes
