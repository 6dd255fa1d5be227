"""Errors: what comes from a file cannot control a terminal."""

import pytest

from saccade.errors import DataError, SaccadeError, printable

LETTERS = "日本語 עברית العربية हिन्दी 👨‍👩‍👧 می\u200cخواهم e\u0301"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2Jroot\x07", "\\x1b[2Jroot\\x07"),
        ("txt.\u202egnp", "txt.\\u202egnp"),
        ("\u2066a\u2069\u200f\u061c", "\\u2066a\\u2069\\u200f\\u061c"),
        ("a\u2028b\ud800\x85", "a\\u2028b\\ud800\\x85"),
        (
            "日本語 עברית العربية हिन्दी 👨‍👩‍👧 می\u200cخواهم e\u0301",
            "日本語 עברית العربية हिन्दी 👨‍👩‍👧 می\u200cخواهم e\u0301",
        ),
    ],
)
def test_control_characters_are_escaped_and_letters_are_kept(text, expected):
    assert printable(text) == expected


def test_messages_of_errors_have_no_control_characters():
    assert str(SaccadeError("a\u202eb")) == "a\\u202eb"
    assert str(DataError("日本\x1b")) == "日本\\x1b"
