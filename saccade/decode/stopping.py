"""Stop strings: end a text before the first of some strings, while it is generated piece by piece."""

from collections.abc import Sequence


class StopStrings:
    """The stop strings of one row; text that may be the beginning of one is held until the next pieces decide."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ValueError("a stop string must not be empty, but one is ''")
        self.stop = tuple(stop)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Add a piece of text; returns the text that is ready, and whether a stop string follows it."""
        self._held += text
        matches = [self._held.index(stop) for stop in self.stop if stop in self._held]
        if matches:
            ready, self._held = self._held[: min(matches)], ""
            return ready, True
        size = len(self._held) - max((_overlap(self._held, stop) for stop in self.stop), default=0)
        ready, self._held = self._held[:size], self._held[size:]
        return ready, False

    def finish(self) -> str:
        """Return the text that is still held, when no more follows."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that a stop string begins with."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
