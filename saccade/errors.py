"""Errors for users: each message has the value, the rule and the next step; each class has an exit code."""

LISTED = 20  # names of a suggestion
# Characters that change the order of the text around them, with which a name can pretend to be another one.
BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
SEPARATORS = "-_. :"  # between the parts of a name
MAX_SLIPS = 2  # characters of a misspelt name that are wrong
MIN_RATIO = 0.5  # of the characters of a name that a similar one has


class SaccadeError(Exception):
    """An error that the user can fix; the command line prints it on one line."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(SaccadeError):
    """An argument, a setting or a name is invalid."""

    exit_code = 2


class DataError(SaccadeError):
    """A data file is invalid; the message names file, line and value."""

    exit_code = 3


class ModelFileError(SaccadeError):
    """A run, checkpoint or model file is damaged, unsupported or untrusted."""

    exit_code = 4


class ResourceError(SaccadeError):
    """Disk space, memory, a port or a lock is not available."""

    exit_code = 5


class Interrupted(SaccadeError):
    """A signal stopped the run after its checkpoint was saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class PeerError(SaccadeError):
    """Another process of the run has failed, and has reported why."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("another process of this run has failed, and has reported why")
        self.exit_code = exit_code


def suggest(name: str, choices: list[str]) -> str:
    """Return '; did you mean X?' for a misspelt name, or the list of valid names, of which a long one is cut."""
    close = _closest(name, choices)
    if close:
        return f"; did you mean '{close}'?"
    group = name[: name.rfind(".") + 1]
    choices = [choice for choice in choices if choice.startswith(group)] or choices
    more = f" and {len(choices) - LISTED} more" if len(choices) > LISTED else ""
    return f"; available: {', '.join(choices[:LISTED])}{more}" if choices else ""


def printable(text: str) -> str:
    """Return a text that a terminal shows as it is: control and bidirectional control characters as escapes.

    Letters of every script, the joiners within words and emoji, tabs and newlines are kept.
    """
    if text.isprintable():
        return text
    return "".join(_escape(character) if _is_control(character) else character for character in text)


def _is_control(character: str) -> bool:
    if character.isprintable() or character in "\n\t":
        return False
    code = ord(character)
    is_control = code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000  # C0, C1, lone surrogates
    return is_control or character in BIDI_CONTROLS or character in "\u2028\u2029\ufeff"


def _escape(character: str) -> str:
    return ascii(character)[1:-1]


def _closest(name: str, choices: list[str]) -> str:
    """Return the most similar choice; one that the name extends, as 'gpt2-small' does 'gpt2', is the closest."""
    import difflib

    group = name[: name.rfind(".") + 1]

    def is_similar(choice: str) -> bool:
        # The name of a group says nothing: data.tokenizer is not close to data.header.
        tails = (name[len(group) :], choice[len(group) :]) if choice.startswith(group) else (name, choice)
        return difflib.SequenceMatcher(None, *tails).ratio() >= MIN_RATIO

    extended = [choice for choice in choices if any(name.startswith(choice + separator) for separator in SEPARATORS)]
    close = next(filter(is_similar, difflib.get_close_matches(name, choices, n=LISTED)), "")
    # A slip in the last part is more likely than another last part: model.dmi is model.dim, not model.
    if close and (not extended or _edits(name, close) <= MAX_SLIPS):
        return close
    return max(extended, key=len, default="")


def _edits(name: str, other: str) -> int:
    """Return how many characters of the longer of two names have no counterpart in the other one."""
    import difflib

    matcher = difflib.SequenceMatcher(None, name, other, autojunk=False)
    return max(len(name), len(other)) - sum(block.size for block in matcher.get_matching_blocks())
