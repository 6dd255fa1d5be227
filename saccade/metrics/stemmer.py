"""Porter's stemmer with the changes nltk made to it, so that ROUGE with stems equals the published figures.

M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980.
"""

from functools import lru_cache

IRREGULAR = {"skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "innings": "inning", "outings": "outing"}
IRREGULAR |= {"cannings": "canning"}
UNCHANGED = {"sky", "news", "inning", "outing", "canning", "howe", "proceed", "exceed", "succeed"}

# (suffix, replacement), in the order in which they are tried; only the first that matches is replaced.
DERIVED = [
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
]  # fmt: skip
ENDINGS = [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")]
LAST = ["al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate"]
LAST += ["iti", "ous", "ive", "ize"]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return the stem of a lower-case English word: 'relational' and 'relate' both become 'relat'."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word in UNCHANGED or len(word) <= 2:
        return word
    word = _past(_plural(word))
    if word.endswith("y") and len(word) > 2 and _shape(word)[-2] == "c":
        word = word[:-1] + "i"
    word = _replace(_derived(word), ENDINGS)
    word = _without_last(word)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _shape(word: str) -> str:
    """Return c for each consonant and v for each vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """Return how often a consonant follows a vowel: Porter's m."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Whether a word ends like 'hop' or 'fil', or is as short as 'at'."""
    shape = _shape(word)
    return shape == "vc" or (shape.endswith("cvc") and word[-1] not in "wxy")


def _replace(word: str, rules: list[tuple[str, str]]) -> str:
    """Replace the first suffix that matches, if the measure of the text before it is not 0."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            start = word.removesuffix(suffix)
            return start + replacement if _measure(start) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    """Remove -ed and -ing, and restore the stem: 'hopping' -> 'hop', 'filing' -> 'file'."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    start = word.removesuffix("ed") if word.endswith("ed") else word.removesuffix("ing")
    shape = _shape(start)
    if start == word or "v" not in shape:
        return word
    if start.endswith(("at", "bl", "iz")):
        return start + "e"
    if start[-2:-1] == start[-1] and shape[-1] == "c":
        return start if start[-1] in "lsz" else start[:-1]
    return start + "e" if _measure(start) == 1 and _ends_short(start) else start


def _derived(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _derived(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word
    return _replace(word, DERIVED)


def _without_last(word: str) -> str:
    for suffix in LAST:
        if word.endswith(suffix):
            start = word.removesuffix(suffix)
            return start if _measure(start) > 1 and (suffix != "ion" or start[-1] in "st") else word
    return word
