"""Labels of an axis: what is displayed for a token, and its width in a terminal."""

import unicodedata

SPACE = "␣"  # a space at the start or end of a token
ELLIPSIS = "…"
CONTROLS = {"\n": "↵", "\t": "⇥"}  # other control characters as ^A to ^_: few fonts have the pictures of Unicode


def visible(label: str) -> str:
    """Return a label fit for display: control characters replaced, spaces at its ends as signs."""
    inner = label.strip(" ")
    ahead = len(label) - len(label.lstrip(" "))
    text = SPACE * (ahead if inner else len(label)) + inner + SPACE * (len(label) - ahead - len(inner) if inner else 0)
    return "".join(_visible(character) for character in text) or "∅"


def _visible(character: str) -> str:
    """Return the character, or a sign for one that moves the cursor, reverses the line or is invisible."""
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return CONTROLS.get(character) or f"^{chr(code ^ 0x40)}"
    invisible = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or code & 0xFFFE == 0xFFFE
    if invisible or unicodedata.bidirectional(character) in BIDI:
        return "\ufffd"
    return character


# Overrides and isolates: with them a label could reverse the text beside it.
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def clusters(text: str) -> list[str]:
    """Split a text into characters, each with its combining marks."""
    parts: list[str] = []
    for character in text:
        if parts and cells(character) == 0:
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def cells(text: str) -> int:
    """Return the number of terminal cells of a text: two for wide East Asian characters, none for combining marks."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def truncate(text: str, width: int) -> str:
    """Return the text in at most `width` cells, with an ellipsis where it was cut."""
    if cells(text) <= width:
        return text
    kept, used = "", 1  # the ellipsis
    for cluster in clusters(text):
        used += cells(cluster)
        if used > width:
            break
        kept += cluster
    return kept + ELLIPSIS


def align_right(text: str, width: int) -> str:
    """Return the text right-aligned in `width` cells."""
    text = truncate(text, width)
    return " " * (width - cells(text)) + text
