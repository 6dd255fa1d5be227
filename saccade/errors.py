"""Errors a person can meet: each says what is wrong, the rule, and the next step, and has an exit code."""


class SaccadeError(Exception):
    """Something a person can put right; the command line prints it in one line."""

    exit_code = 1


class UsageError(SaccadeError):
    """A word on the command line, a setting or a name is wrong."""

    exit_code = 2


class DataError(SaccadeError):
    """A data file breaks a rule; the message names file, line and value."""

    exit_code = 3


class ModelFileError(SaccadeError):
    """A run, checkpoint or model file is damaged, foreign or not to be trusted."""

    exit_code = 4


class ResourceError(SaccadeError):
    """Disk, memory or a lock is not to be had."""

    exit_code = 5


class Interrupted(SaccadeError):
    """A signal stopped the work after everything was saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


def suggest(word: str, known: list[str]) -> str:
    """', did you mean X?' for a mistyped word, or the list of the known ones."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(known)}" if known else ""
