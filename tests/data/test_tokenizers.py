"""Tokenizers: what is encoded comes back, training is repeatable, and downloaded files are not trusted."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.text import tokenizer_checks
from saccade.data.text.alphabets import split_at_newlines
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import BEGIN, BERT, END, StreamDecoder, Tokenizer
from saccade.errors import DataError, ModelFileError, UsageError

TEXT = "The quick brown fox jumps over the lazy dog.\n\tIt was — naïvely — 3 times, wasn't it?  \n\n日本語 ok!\n" * 20
CHARACTERS = train_tokenizer("characters", [TEXT], 500)
BYTES = train_tokenizer("bpe", [TEXT], 400, [END])
PIECES = train_tokenizer("wordpiece", TEXT.split("\n"), 300, lowercase=True)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


# round trips


def test_a_character_vocabulary_is_exactly_the_characters() -> None:
    assert CHARACTERS.size == len(set(TEXT))
    assert CHARACTERS.specials == {}
    assert [CHARACTERS.token(number) for number in range(CHARACTERS.size)] == sorted(set(TEXT))
    assert train_tokenizer("characters", [TEXT], 500, ["<unk>", END]).size == len(set(TEXT)) + 2


@settings(deadline=None)
@given(st.text(sorted(set(TEXT)), max_size=80))
def test_characters_come_back_and_agree_with_the_library(text: str) -> None:
    ids = CHARACTERS.encode(text)
    assert CHARACTERS.decode(ids) == text
    assert CHARACTERS._inner.encode(text, add_special_tokens=False).ids == ids
    assert CHARACTERS._inner.decode(ids) == text


@settings(deadline=None)
@given(ANY)
def test_byte_pairs_bring_back_any_text(text: str) -> None:
    ids = BYTES.encode(text)
    assert BYTES.decode(ids) == text
    assert END not in BYTES.pieces(ids)


@settings(deadline=None)
@given(st.lists(st.integers(0, BYTES.size - 1), max_size=40))
def test_streamed_byte_pairs_equal_the_whole_even_when_broken(ids: list[int]) -> None:
    stream = StreamDecoder(BYTES)
    pieces = [stream.feed(number) for number in ids]
    whole = "".join(pieces) + stream.finish()
    assert whole == BYTES.decode(ids) == BYTES._inner.decode(ids, skip_special_tokens=True)


@settings(deadline=None)
@given(st.lists(st.integers(0, PIECES.size - 1), max_size=20))
def test_streamed_word_pieces_equal_the_whole(ids: list[int]) -> None:
    stream = StreamDecoder(PIECES)
    assert "".join([stream.feed(number) for number in ids]) + stream.finish() == PIECES.decode(ids)


def test_a_stream_never_shows_half_a_character() -> None:
    stream = StreamDecoder(BYTES)
    shown = [stream.feed(number) for number in BYTES.encode("€ 😀 ü")]
    assert "".join(shown) == "€ 😀 ü"
    assert not any("\ufffd" in piece for piece in shown)
    assert shown[0] == ""
    assert stream.finish() == ""


def test_batches_equal_single_texts() -> None:
    texts = ["The fox", "", "It was\n"]
    for tokenizer in (CHARACTERS, BYTES, PIECES):
        assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["a", " ", "\n", "\n\n", " \n", "it's", "\t", "é", "12"]), max_size=200))
def test_long_texts_are_cut_where_it_makes_no_difference(parts: list[str]) -> None:
    text = "".join(parts) * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saccade.data.text.alphabets.PART", 10)
        patch.setattr("saccade.data.text.tokenizers.PART", 10)
        patch.setattr("saccade.data.text.tokenizers.GROUP", 2)
        assert "".join(split_at_newlines(text)) == text
        assert "".join(split_at_newlines(text, spaces=True)) == text
        assert BYTES.encode(text) == BYTES._inner.encode(text, add_special_tokens=False).ids


def test_a_long_line_is_cut_at_spaces_for_training_and_encoding() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saccade.data.text.alphabets.PART", 40)
        patch.setattr("saccade.data.text.tokenizers.PART", 40)
        line = TEXT.replace("\n", " ") * 5
        assert max(map(len, split_at_newlines(line, spaces=True))) < 100
        assert BYTES.encode(line) == BYTES._inner.encode(line, add_special_tokens=False).ids
        in_parts = train_tokenizer("bpe", [line], 300)
    assert in_parts.sha256 == train_tokenizer("bpe", [line], 300).sha256


def test_an_added_token_with_a_space_is_not_cut() -> None:
    library_tokenizer = library.Tokenizer.from_str(BYTES._inner.to_str())
    library_tokenizer.add_tokens([library.AddedToken("of it", normalized=False)])
    tokenizer = Tokenizer(library_tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saccade.data.text.alphabets.PART", 10)
        patch.setattr("saccade.data.text.tokenizers.PART", 10)
        text = "some of it and more of it " * 9
        assert tokenizer.encode(text) == tokenizer._inner.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("rule", [{"add_prefix_space": True}, {"use_regex": False}])
def test_texts_are_not_cut_under_rules_that_would_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, bool]
) -> None:
    monkeypatch.setattr("saccade.data.text.alphabets.PART", 10)
    monkeypatch.setattr("saccade.data.text.tokenizers.PART", 10)
    loaded = Tokenizer.load(change(tmp_path / "t.json", lambda content: content["pre_tokenizer"].update(rule)))
    assert loaded.encode(TEXT) == loaded._inner.encode(TEXT, add_special_tokens=False).ids


def test_a_word_level_file_is_not_read_as_characters(tmp_path: Path) -> None:
    content = json.loads(CHARACTERS._saved)
    content["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "t.json").write_text(json.dumps(content))
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert loaded.kind == "words"
    assert loaded.encode("ZEBRA".lower()[1:3]) == loaded.encode("EB")


@settings(deadline=None)
@given(st.lists(st.integers(0, BYTES.size - 1), max_size=40))
def test_the_raw_bytes_of_byte_pairs_join_to_the_text(ids: list[int]) -> None:
    raw = BYTES.raw(ids)
    assert len(raw) == len(ids)
    assert b"".join(raw).decode("utf-8", "replace") == BYTES.decode(ids)


def test_raw_bytes_of_characters_and_word_pieces() -> None:
    known = train_tokenizer("characters", ["aé"], 10, ["<unk>", END])
    ids = [*known.encode("éa?"), known.specials[END]]
    assert known.raw(ids) == ["é".encode(), b"a", "\ufffd".encode(), b""]
    ids = [PIECES.specials["[CLS]"], *PIECES.encode("The naïve dogs.")]
    assert b"".join(PIECES.raw(ids)).decode() == " the naive dogs ."
    assert [piece.startswith(b" ") for piece in PIECES.raw(ids)[1:]] == [
        not name.startswith("##") for name in PIECES.pieces(ids)[1:]
    ]
    assert PIECES.raw(ids)[0] == b""
    listed = Tokenizer(library.Tokenizer(library.models.WordLevel({"<unk>": 0, "##a": 1}, unk_token="<unk>")))
    assert listed.raw([1, 0]) == [b" ##a", b" <unk>"]
    assert BYTES.raw([9999]) == [b""] and BYTES.decode([9999]) == PIECES.decode([9999, -1]) == ""
    assert BYTES.pieces([9999]) == ["[9999]"]


# words, and byte pairs that treat every word alike

WORDS = train_tokenizer("words", ["HH AH0 L OW1", "AH0 OW1 HH\tAH0"], 100, [BEGIN, END])
SPACED = train_tokenizer("bpe", TEXT.split("\n"), 400, [END], add_prefix_space=True)


def test_words_are_separated_by_spaces() -> None:
    assert WORDS.kind == "words"
    assert list(WORDS.specials) == [BEGIN, END, "<unk>"]
    assert [WORDS.token(number) for number in range(WORDS.size)] == [BEGIN, END, "<unk>", "AH0", "HH", "OW1", "L"]
    ids = WORDS.encode("L  HH\nOW1")
    assert WORDS.pieces(ids) == ["L", "HH", "OW1"]
    assert WORDS.decode([*ids, WORDS.specials[END]]) == "L HH OW1"
    assert WORDS.raw([*ids, WORDS.specials[END]]) == [b" L", b" HH", b" OW1", b""]
    assert WORDS.encode_batch(["L HH", ""]) == [WORDS.encode("L HH"), []]


def test_new_and_rare_words_are_unknown() -> None:
    assert WORDS.encode("L ZH") == [WORDS.id("L"), WORDS.id("<unk>")]
    assert WORDS.decode(WORDS.encode("L ZH HH")) == "L HH"
    small = train_tokenizer("words", ["a a a b b c"], 3)
    assert [small.token(number) for number in range(3)] == ["<unk>", "a", "b"]
    assert small.encode("c") == [0]


def test_a_word_written_like_a_special_token_is_no_special_token() -> None:
    odd = train_tokenizer("words", [f"a {END} a"], 10, [BEGIN, END])
    assert odd.size == 4
    assert odd.decode(odd.encode("a a")) == "a a"
    assert WORDS.encode(f"L{END}") == [WORDS.id("<unk>")]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["HH", "AH0", "OW1", "L"]), max_size=9))
def test_known_words_come_back_also_streamed(words: list[str]) -> None:
    ids = WORDS.encode(" ".join(words))
    assert WORDS.decode(ids) == " ".join(words)
    stream = StreamDecoder(WORDS)
    assert "".join([stream.feed(number) for number in ids]) + stream.finish() == " ".join(words)


@settings(deadline=None)
@given(ANY)
def test_spaced_byte_pairs_bring_back_any_text_after_one_space(text: str) -> None:
    spaced = f" {text}"
    found = SPACED.decode(SPACED.encode(text))
    assert found.strip() == text.strip()
    assert found in (spaced, text)


def test_the_first_word_is_a_word_like_any_other() -> None:
    assert SPACED.encode("fox") == SPACED.encode("The fox")[len(SPACED.encode("The")) :]
    assert BYTES.encode("fox") != BYTES.encode("The fox")[len(BYTES.encode("The")) :]


# special tokens and unknown characters


def test_special_tokens_in_a_text_are_only_text_unless_marked() -> None:
    assert BYTES.id(END) == BYTES.specials[END]
    assert BYTES.specials[END] not in BYTES.encode(f"a{END}b")
    assert BYTES.decode(BYTES.encode(f"a{END}b")) == f"a{END}b"
    assert BYTES.encode(f"The{END}fox", parse_special=True) == [
        *BYTES.encode("The"),
        BYTES.specials[END],
        *BYTES.encode("fox"),
    ]
    assert PIECES.pieces(PIECES.encode("the [MASK] dog", parse_special=True)) == ["the", "[MASK]", "dog"]
    assert tuple(PIECES.specials) == BERT
    assert [PIECES.id(token) for token in BERT] == [0, 1, 2, 3, 4]


def test_an_unknown_character_is_named_or_becomes_the_unknown_token() -> None:
    with pytest.raises(DataError, match=r"character 5 of the text is 'ж' \(U\+0436\), expected one seen"):
        CHARACTERS.encode("The жук")
    knows = train_tokenizer("characters", [TEXT], 500, ["<unk>"])
    assert knows.encode("ж") == [knows.id("<unk>")] == knows._inner.encode("ж").ids
    assert knows.decode(knows.encode("The ж")) == "The \ufffd"


def test_rare_characters_give_way_to_the_size() -> None:
    small = train_tokenizer("characters", ["aaabbc"], 3, ["<unk>"])
    assert [small.token(number) for number in range(3)] == ["a", "b", "<unk>"]
    with pytest.raises(DataError, match="the text has 3 different characters, expected at most 2"):
        train_tokenizer("characters", ["aaabbc"], 2)


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(DataError, match=r"character 2 is the lone surrogate U\+D800"):
        BYTES.encode("a\ud800")
    with pytest.raises(DataError, match=r"U\+D800"):
        CHARACTERS.encode("\ud800")


def test_pieces_are_readable() -> None:
    assert "".join(BYTES.pieces(BYTES.encode("The fox"))) == "The fox"
    assert BYTES.pieces(BYTES.encode("ж")) == ["\\xd0", "\\xb6"]
    with pytest.raises(IndexError, match=f"id must be in the vocabulary of {BYTES.size}, but is 4000"):
        BYTES.token(4000)
    assert BYTES.id("no such token") is None


def test_word_pieces_can_keep_capitals() -> None:
    cased = train_tokenizer("wordpiece", ["The The the"], 100)
    assert cased.decode(cased.encode("The")) == "The"
    assert PIECES.decode(PIECES.encode("The quick")) == "the quick"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ("letters", ["a"], 10),
            UsageError,
            "tokenizer must be one of characters, words, bpe, wordpiece, but is 'letters'",
        ),
        (("bpe", ["a"], 100), UsageError, r"must be at least 256 \(all bytes .*\), but is 100"),
        (("wordpiece", ["abc"], 8), UsageError, r"must be at least 11 \(each character .*\), but is 8"),
        (("words", ["a"], 1), UsageError, r"must be at least 2 \(one word and the special tokens\), but is 1"),
        (("characters", ["a"], 0), UsageError, "must be at least 1 .*, but is 0"),
        (("bpe", ["a"], 300, ["<a>", "<a>"]), UsageError, "must be different and not empty"),
        (("characters", ["abc"], 10, ["a"]), UsageError, "must be longer than a character, but is 'a'"),
        (("characters", [" "], 10), DataError, "must not be empty, but is"),
        (("wordpiece", [], 100), DataError, "must not be empty, but is"),
    ],
)
def test_bad_wishes_are_refused(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        train_tokenizer(*arguments)


def test_an_empty_text_for_byte_pairs_is_refused() -> None:
    with pytest.raises(DataError, match="must not be empty, but is"):
        train_tokenizer("bpe", iter([""]), 300)


# saving and loading


@pytest.mark.parametrize(
    "tokenizer", [CHARACTERS, BYTES, PIECES, WORDS, SPACED], ids=lambda tokenizer: str(tokenizer.kind)
)
def test_saved_and_loaded_is_the_same(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert (loaded.sha256, loaded.kind, loaded.size) == (tokenizer.sha256, tokenizer.kind, tokenizer.size)
    assert loaded.specials == tokenizer.specials
    assert loaded.encode("The fox") == tokenizer.encode("The fox")


def test_training_gives_the_same_bytes_in_every_process() -> None:
    script = (
        "from saccade.data.text.tokenizer_training import train_tokenizer as t;"
        "x = ['the cat and the hat sat on a mat with a bat at ten'] * 3;"
        "print(*(t(k, iter(x), 270).sha256 for k in ('characters', 'words', 'bpe', 'wordpiece')))"
    )
    seen = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(3)}
    assert len(seen) == 1


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads(BYTES._saved)
    edit(content)
    path.write_text(json.dumps(content))
    return path


def split_by(pattern: dict[str, str]) -> Callable[[dict[str, Any]], object]:
    step = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return lambda content: content.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [step]})


def bomb(steps: int) -> dict[str, object]:
    """Replacements that each make a text ten times as long."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    return {"type": "Sequence", "normalizers": [step] * steps}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["model"].update(type="Evil"), "the model must be one of BPE, .*, but is 'Evil'"),
        (lambda c: c.pop("model"), "the model must be one of .*, but is None"),
        (
            split_by({"Regex": "(a+)+$"}),
            r"a pattern must be that of a known tokenizer or a short literal, but is '\(a\+\)\+\$'",
        ),
        (split_by({"String": "x" * 300}), "a pattern must be that of a known tokenizer"),
        (lambda c: c.update(normalizer={"type": "Shell"}), "a normalizer must be one of .*, but is 'Shell'"),
        (lambda c: c["model"]["vocab"].update(a=-1), "token ids must be integers .* but 'a' has -1"),
        (lambda c: c["model"]["vocab"].update(a=10**12), "but 'a' has 1000000000000"),
        (lambda c: c["model"]["vocab"].update(a=1), "token ids must be unique"),
        (lambda c: c["model"].update(vocab={}), "the vocabulary must map tokens to ids"),
        (
            lambda c: c.update(added_tokens=[{"content": "x" * 999, "id": 1}]),
            "the content of an added token must be a short text",
        ),
        (lambda c: c.update(added_tokens={}), "the tokenizer file cannot be used"),
        (lambda c: c.update(added_tokens=7), "added_tokens must be a list"),
        (lambda c: c["model"].update(merges=[["nope", "zz"]]), "the tokenizer file cannot be used"),
        (lambda c: c.update(version="9.0"), "the tokenizer file cannot be used"),
        (lambda c: c.update(normalizer=bomb(3)), "a normalizer must lengthen a text at most 64 times, not 1,000 times"),
    ],
)
def test_files_from_elsewhere_are_looked_at(tmp_path: Path, edit: Callable[..., object], message: str) -> None:
    path = change(tmp_path / "t.json", edit)
    with pytest.raises(ModelFileError, match=message):
        Tokenizer.load(path)


@pytest.mark.parametrize("pattern", [{"Regex": r"\s+"}, {"Regex": "ab-c"}, {"String": "(a+)+$"}])
def test_known_and_literal_patterns_are_allowed(tmp_path: Path, pattern: dict[str, str]) -> None:
    assert Tokenizer.load(change(tmp_path / "t.json", split_by(pattern))).size == BYTES.size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"a": 1, "a": 2}', "keys must be unique"),
        (b"[" * 200_000, "levels deep"),
        (b"\xff\xfe", "must be utf-8, but byte 0 is 0xFF"),
        (b"\x80\x04pickle", "must be utf-8"),
    ],
)
def test_what_is_no_tokenizer_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        Tokenizer.load(tmp_path / "t.json")


def test_large_and_missing_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelFileError, match="cannot be read: No such file"):
        Tokenizer.load(tmp_path / "gone.json")
    monkeypatch.setattr(tokenizer_checks, "MAX_BYTES", 10)
    with pytest.raises(ModelFileError, match=r"must be at most 10 bytes, but has \d,\d{3};"):
        Tokenizer.load(change(tmp_path / "t.json", lambda content: None))


def test_a_file_cannot_cut_texts_silently(tmp_path: Path) -> None:
    limits = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    loaded = Tokenizer.load(change(tmp_path / "t.json", lambda content: content.update(truncation=limits)))
    assert len(loaded.encode("The quick brown fox")) > 2
    assert loaded.sha256 == BYTES.sha256


def test_panics_become_errors_and_interrupts_do_not() -> None:
    class Panic(BaseException):
        pass

    def fail(error: BaseException) -> Callable[[], None]:
        def action() -> None:
            raise error

        return action

    with pytest.raises(
        ModelFileError, match=r"t.json: the tokenizer file cannot be used \(Panic: index out of range\)"
    ):
        tokenizer_checks.call_library("t.json", fail(Panic("index out of range\nmore")))
    with pytest.raises(KeyboardInterrupt):
        tokenizer_checks.call_library("t.json", fail(KeyboardInterrupt()))


def sentence_pieces() -> Tokenizer:
    """A tokenizer as SentencePiece writes it: a space is part of the word after it, and bytes are tokens."""
    words = ["<s>", "<unk>", "▁", "▁The", "▁is", "▁Paris", "Pa", "ris", "."]
    vocabulary = {token: number for number, token in enumerate([*words, *(f"<0x{byte:02X}>" for byte in range(256))])}
    inner = library.Tokenizer(library.models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    inner.normalizer = library.normalizers.Sequence(
        [library.normalizers.Prepend("▁"), library.normalizers.Replace(" ", "▁")]
    )
    parts = [library.decoders.Replace("▁", " "), library.decoders.ByteFallback(), library.decoders.Fuse()]
    inner.decoder = library.decoders.Sequence([*parts, library.decoders.Strip(" ", 1, 0)])
    inner.add_special_tokens(["<s>", "<unk>"])
    return Tokenizer(inner)


SENTENCE_PIECES = sentence_pieces()
EURO = [SENTENCE_PIECES.id(f"<0x{byte:02X}>") for byte in "€".encode()]
NEWLINE = SENTENCE_PIECES.id("<0x0A>")


def streamed(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    stream = StreamDecoder(tokenizer, prompt)
    return "".join([stream.feed(number) for number in ids]) + stream.finish()


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("tokenizer", [SENTENCE_PIECES, PIECES, WORDS, BYTES, CHARACTERS])
def test_a_streamed_continuation_is_what_a_prompt_lacks_of_the_whole(tokenizer: Tokenizer, data: st.DataObject) -> None:
    plain = [number for number in range(tokenizer.size) if number not in tokenizer.specials.values()]
    if tokenizer is SENTENCE_PIECES:
        plain = [*(number for number in plain if number < EURO[0] and tokenizer.token(number)[:3] != "<0x"), NEWLINE]
    if tokenizer is BYTES:
        plain = BYTES.encode("The quick 日本語 ok!")[:4]
    prompt = data.draw(st.lists(st.sampled_from(plain), min_size=1, max_size=8))
    ids = data.draw(st.lists(st.sampled_from(plain), max_size=8))
    assert tokenizer.decode(prompt) + streamed(tokenizer, prompt, ids) == tokenizer.decode([*prompt, *ids])


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([], "Paris"),
        (["<s>"], "Paris"),  # a special token begins a new text
        (["▁is"], " Paris"),
        (["▁is", "<0x0A>"], " Paris"),
        (["▁is", *(f"<0x{byte:02X}>" for byte in "€".encode())], " Paris"),
        (["▁is", "<0xE2>"], "Paris"),  # an incomplete character
    ],
)
def test_a_continuation_has_the_space_before_its_first_word(prompt: list[str], expected: str) -> None:
    ids = [SENTENCE_PIECES.id(token) for token in prompt]
    assert streamed(SENTENCE_PIECES, ids, [SENTENCE_PIECES.id("▁Paris")]) == expected


def test_a_byte_after_bytes_of_a_prompt_is_decoded_with_them() -> None:
    assert streamed(SENTENCE_PIECES, [SENTENCE_PIECES.id("▁is"), *EURO], [*EURO, SENTENCE_PIECES.id(".")]) == "€."
