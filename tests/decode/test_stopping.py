"""Stop strings: the text before the first of them, however it is split into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.decode.stopping import StopStrings


def run(pieces: list[str], stop: list[str]) -> tuple[str, bool]:
    strings, ready = StopStrings(stop), ""
    for piece in pieces:
        more, stopped = strings.feed(piece)
        ready += more
        if stopped:
            return ready, True
    return ready + strings.finish(), False


def test_text_that_may_start_a_stop_string_is_buffered() -> None:
    strings = StopStrings(["END", "\n\n"])
    assert strings.feed("one E") == ("one ", False)
    assert strings.feed("N") == ("", False)
    assert strings.feed("d\n") == ("ENd", False)
    assert strings.feed("\nx") == ("", True)


def test_without_stop_strings_everything_is_ready_at_once() -> None:
    assert StopStrings().feed("text") == ("text", False)
    assert StopStrings().finish() == ""


@given(st.lists(st.text("ab", max_size=4), max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_a_single_stop_string_is_found_wherever_the_pieces_are_cut(pieces: list[str], stop: list[str]) -> None:
    text, stop = "".join(pieces), stop[:1]
    at = min((text.index(string) for string in stop if string in text), default=None)
    assert run(pieces, stop) == ((text, False) if at is None else (text[:at], True))


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3))
def test_the_first_complete_stop_string_ends_the_text(text: str, stop: list[str]) -> None:
    ends = [(text.index(string) + len(string), text.index(string)) for string in stop if string in text]
    first = min((end for end, _ in ends), default=None)
    expected = (text, False) if first is None else (text[: min(at for end, at in ends if end == first)], True)
    assert run(list(text), stop) == expected


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="a stop string must not be empty, but one is ''"):
        StopStrings(["a", ""])
