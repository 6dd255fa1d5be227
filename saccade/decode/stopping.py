"""Stop strings: end a streamed text before the first occurrence of one of them."""

from collections.abc import Sequence


class StopStrings:
    """The stop strings of one row; text that may be the start of one is buffered until more text follows."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ValueError("a stop string must not be empty, but one is ''")
        self.stop = tuple(stop)
        self._buffer = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Add a piece of text; returns the text that is ready, and whether a stop string follows it."""
        self._buffer += text
        matches = [self._buffer.index(stop) for stop in self.stop if stop in self._buffer]
        if matches:
            ready, self._buffer = self._buffer[: min(matches)], ""
            return ready, True
        size = len(self._buffer) - max((_overlap(self._buffer, stop) for stop in self.stop), default=0)
        ready, self._buffer = self._buffer[:size], self._buffer[size:]
        return ready, False

    def finish(self) -> str:
        """Return the buffered text, when no more follows."""
        text, self._buffer = self._buffer, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
