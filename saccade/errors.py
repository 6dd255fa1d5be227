"""Errors for users: each message has the value, the rule and the next step; each class has an exit code."""

LISTED = 20  # names of a suggestion


class SaccadeError(Exception):
    """An error that the user can fix; the command line prints it on one line."""

    exit_code = 1


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


def printable(text: str) -> str:
    """Return a text from a file or a file name for a terminal or a page: what cannot be printed is escaped."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def suggest(name: str, choices: list[str]) -> str:
    """Return '; did you mean X?' for a misspelt name, or the list of valid names, of which a long one is cut."""
    import difflib

    close = difflib.get_close_matches(name, choices, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    more = f" and {len(choices) - LISTED} more" if len(choices) > LISTED else ""
    return f"; available: {', '.join(choices[:LISTED])}{more}" if choices else ""
