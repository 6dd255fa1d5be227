"""LaTeX as it is written by hand: without the spaces that a tokenizer of formulas puts between all tokens."""

import re

NAMES = re.compile(r"\\(?:operatorname|mathrm|mathbf|text)\s?\*? \{.*?\}")  # whose letters are one word
SPACES = re.compile(r"(.?)\s+(?=(.?))", re.DOTALL)


def compact_latex(text: str) -> str:
    r"""Remove the spaces that have no meaning: `\frac { a b } { 2 }` becomes `\frac{a b}{2}`, as pix2tex does.

    A space stays between two letters, which may end a command, and after a backslash, where it is a command.
    """
    joined = NAMES.sub(lambda match: match[0].replace(" ", ""), text)
    return SPACES.sub(_one_space, joined.strip())


def _one_space(match: re.Match[str]) -> str:
    """Return the character before some spaces, with a space where it is needed."""
    before, after = match[1], match[2]
    return before + (" " if before == "\\" or (before.isalpha() and after.isalpha()) else "")
