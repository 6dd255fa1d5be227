"""Labels: how the words of an axis are shown and how wide they are, for terminals and pictures."""

import unicodedata

SPACE = "␣"  # the end of a piece that begins or ends a word
CUT = "…"


def shown(label: str) -> str:
    """A label fit to be seen: no control characters, spaces at its ends as signs."""
    inner = label.strip(" ")
    ahead = len(label) - len(label.lstrip(" "))
    text = SPACE * (ahead if inner else len(label)) + inner + SPACE * (len(label) - ahead - len(inner) if inner else 0)
    return "".join(_visible(character) for character in text) or "∅"


def _visible(character: str) -> str:
    """The character, or a picture of one that would move the cursor, turn the line round or not be seen."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    unseen = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or code & 0xFFFE == 0xFFFE
    if unseen or unicodedata.bidirectional(character) in BIDI:
        return "\ufffd"
    return character


# Overrides and isolates: with them a label could turn the text of the page beside it round.
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def clusters(text: str) -> list[str]:
    """The characters of a text, each with the marks that stand on it."""
    found: list[str] = []
    for character in text:
        if found and cells(character) == 0:
            found[-1] += character
        else:
            found.append(character)
    return found


def cells(text: str) -> int:
    """How many cells of a terminal a text fills: two for wide East Asian characters, none for marks."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis where something was left out."""
    if cells(text) <= width:
        return text
    kept, used = "", 1  # the ellipsis
    for cluster in clusters(text):
        used += cells(cluster)
        if used > width:
            break
        kept += cluster
    return kept + CUT


def rightwards(text: str, width: int) -> str:
    """The text at the right end of `width` cells."""
    text = cut(text, width)
    return " " * (width - cells(text)) + text
