"""Words: pieces are put together as people read them, and never cut inside a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import END
from saccade.data.text.words import word_numbers


def words(pieces: list[bytes]) -> list[str]:
    """The pieces joined to words."""
    joined: dict[int, bytes] = {}
    for number, piece in zip(word_numbers(pieces), pieces, strict=True):
        joined[number] = joined.get(number, b"") + piece
    return [word.decode() for word in joined.values()]


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([], []),
        (["The"], [0]),
        (["The", " agree", "ment", " on"], [0, 1, 1, 2]),
        ([" The", " cat"], [0, 1]),
        (["in", " 1992", "."], [0, 1, 2]),
        (["in", " 19", "92", ".", ".", "."], [0, 1, 1, 2, 2, 2]),
        (["He", " said", ":", ' "', "No", '!"'], [0, 1, 2, 3, 4, 5]),
        (["did", "n", "'", "t", " go"], [0, 0, 0, 0, 1]),
        (["we", "'re", " here"], [0, 0, 1]),
        (["we", "\u2019", "ve"], [0, 0, 0]),
        (["L", "'", "acc", "ord"], [0, 0, 1, 1]),
        (["L", "'accord"], [0, 0]),
        (["c", "'", "est", " d", "'", "un"], [0, 0, 1, 2, 2, 2]),
        (["the", " dogs", "'", " tails"], [0, 1, 2, 3]),
        ([" '", "quoted", "'"], [0, 1, 2]),
        (["well", "-", "known"], [0, 0, 0]),
        (["1990", "-", "1992"], [0, 1, 2]),
        (["a", " -", " b"], [0, 1, 2]),
        (["3", "rd"], [0, 0]),
        (["cafe", "\u0301", "s"], [0, 0, 0]),
        (["\u4f60\u597d", "\u5417", "OK", "\u3002"], [0, 1, 2, 3]),
        (["\u0e27\u0e31", "\u0e19", "\u0e35\u0e49"], [0, 1, 1]),
        (["\u30ab\u30bf", "\u30ab\u30ca"], [0, 1]),
        (["ok", "\U0001f469", "\u200d", "\U0001f680", "!"], [0, 1, 1, 1, 1]),
    ],
)
def test_pieces_are_numbered_by_word(pieces: list[str], numbers: list[int]) -> None:
    assert word_numbers([piece.encode() for piece in pieces]) == numbers


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([b"a", b" ", b"b", b"c"], [0, 1, 1, 1]),
        ([b"a", b" ", b" b"], [0, 1, 1]),
        ([b"end", b".\n\n", b"The", b"n"], [0, 1, 2, 2]),
        ([b"end", b".", b"\n", b"The"], [0, 1, 2, 2]),
        ([b"a", b"\n"], [0, 1]),
        ([b"a\n", b"\n", b"b"], [0, 1, 2]),
    ],
)
def test_white_space_goes_with_the_word_after_it_unless_a_piece_ends_in_it(
    pieces: list[bytes], numbers: list[int]
) -> None:
    assert word_numbers(pieces) == numbers


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([b"caf", b"\xc3", b"\xa9", b"s"], [0, 0, 0, 0]),
        ([b"\xe4", b"\xbd", b"\xa0", b"\xe5\xa5", b"\xbd"], [0, 0, 0, 1, 1]),
        ([b" \xe4", b"\xbd"], [0, 0]),
        ([b"a", b"\xff", b"\xfe", b" b"], [0, 0, 0, 1]),
    ],
)
def test_parts_of_a_character_stay_together_and_broken_bytes_do_no_harm(
    pieces: list[bytes], numbers: list[int]
) -> None:
    assert word_numbers(pieces) == numbers


def test_special_tokens_are_words_by_themselves() -> None:
    assert word_numbers([b"", b'"', b"Yes", b".", b"", b"", b"."]) == [0, 1, 2, 3, 4, 5, 6]
    assert word_numbers([b"", b"didn", b"", b"'t"]) == [0, 1, 2, 3]


def test_byte_pairs_give_back_the_words_of_a_sentence() -> None:
    text = "It didn't end in 1992. L'accord sur la zone (well-known) 你好 €5!"
    tokenizer = train_tokenizer("bpe", [text], 258, [END])
    assert words(tokenizer.raw(tokenizer.encode(text))) == [
        "It", " didn't", " end", " in", " 1992", ".", " L'", "accord", " sur", " la", " zone", " (", "well-known", ")",
        " 你", "好", " €", "5", "!",
    ]  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=4)))
def test_numbers_rise_by_at_most_one_from_nought(pieces: list[bytes]) -> None:
    numbers = word_numbers(pieces)
    assert len(numbers) == len(pieces)
    assert all(after - before in (0, 1) for before, after in zip([0, *numbers], numbers, strict=False))


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("ab1 .,'-é你\n"), max_size=30))
def test_cutting_into_bytes_finds_the_same_words_as_cutting_into_characters(text: str) -> None:
    characters = [character.encode() for character in text]
    by_character = word_numbers(characters)
    expected = [number for number, character in zip(by_character, characters, strict=True) for _ in character]
    assert word_numbers([bytes([byte]) for byte in text.encode()]) == expected
