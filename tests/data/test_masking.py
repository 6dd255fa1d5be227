"""Masked language modelling: sentence pairs and masked tokens, their proportions, rules and determinism."""

import numpy as np
import pytest

from saccade.data.masking import Examples, Masker
from saccade.data.sentence_rows import Sentences
from saccade.data.text.sentences import cut_sentences
from saccade.data.text.templates import InputTemplate
from saccade.data.token_rows import TokenRows

BEGIN, END, MASK = 1, 2, 3
TEMPLATE = InputTemplate(BEGIN, END, (END,), MASK, 32)


def sentences(documents=5, each=40):
    """Sentence n of document d is some tokens 100 (d + 1) + n."""
    each_row = [(document, number) for document in range(documents) for number in range(each)]
    rows = [[100 * (document + 1) + number] * (1 + number % 6) for document, number in each_row]
    return Sentences(TokenRows.of(rows), np.repeat(np.arange(documents, dtype=np.int32), each))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said: "No." Then he left.', ['He said: "No."', "Then he left."]),
        ("Mr. Smith met J. R. Jones. They spoke.", ["Mr. Smith met J. R. Jones.", "They spoke."]),
        ("It cost 3.5 dollars, e.g. in Rome.", ["It cost 3.5 dollars, e.g. in Rome."]),
        ("CHAPTER I\n\nIt was\ndark.", ["CHAPTER I", "It was dark."]),
        ("\u4eca\u5929\u597d\u3002\u518d\u89c1\uff01", ["\u4eca\u5929\u597d\u3002", "\u518d\u89c1\uff01"]),
        ("the cat sat.\nthe dog ran.\n", ["the cat sat.", "the dog ran."]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_text_is_cut_where_sentences_end(text, expected):
    assert list(cut_sentences(text)) == expected


def test_a_template_adds_special_tokens_and_truncates_the_longer_text_first():
    assert TEMPLATE.build([7, 8]) == ([BEGIN, 7, 8, END], 4)
    assert TEMPLATE.build([7, 8], [9]) == ([BEGIN, 7, 8, END, 9, END], 4)
    assert TEMPLATE.build([7] * 50) == ([BEGIN, *[7] * 30, END], 32)
    row, second = TEMPLATE.build([7] * 50, [9] * 3)
    assert (len(row), row.count(9), second) == (32, 3, 28)
    row, second = TEMPLATE.build([7] * 50, [9] * 50)
    assert (len(row), row.count(7), row.count(9)) == (32, 14, 15)  # as in transformers, the odd one to the second
    row, second = TEMPLATE.build([7] * 2, [9] * 50)
    assert (len(row), row.count(7), second) == (32, 2, 4)


def test_pairs_follow_half_of_the_time_and_are_what_they_say():
    examples = Examples(sentences(), TEMPLATE, 3, pairs=True)
    drawn = [examples.at(position) for position in range(1000)]
    assert 0.42 < np.mean([one.follows for one in drawn]) < 0.55
    for one in drawn:
        inner = [token for token in one.ids if token >= 4]
        assert one.ids[0] == BEGIN and one.ids[-1] == END and len(one.ids) <= 32
        first, second = one.ids[1 : one.second - 1], one.ids[one.second : -1]
        assert first and second and inner == first + second
        assert len({token // 100 for token in first}) == 1
        if one.follows:
            assert second[0] // 100 == first[0] // 100
            assert second[0] in (first[-1] + 1, first[-1])  # the next sentence, or the rest of a long one
        else:
            assert second[0] // 100 != first[0] // 100


def test_examples_are_a_pure_function_of_seed_and_position_and_an_epoch_repeats_none():
    one, other = (Examples(sentences(), TEMPLATE, 3, pairs=True) for _ in range(2))
    assert [one.at(position) for position in (5, 900, 5)] == [other.at(position) for position in (5, 900, 5)]
    starts = [one.at(position).start for position in range(one.per_epoch)]
    assert len(set(starts)) == len(starts)
    assert one.at(0).ids != one.at(one.per_epoch).ids
    assert Examples(sentences(), TEMPLATE, 4, pairs=True).at(0) != one.at(0)


def test_one_document_alone_still_gives_pairs_that_do_not_follow():
    examples = Examples(sentences(documents=1), TEMPLATE, 1, pairs=True)
    drawn = [examples.at(position) for position in range(200)]
    assert 0.3 < np.mean([one.follows for one in drawn]) < 0.7


@pytest.mark.parametrize("pairs", [True, False])
def test_paragraphs_longer_than_a_row_are_read_to_their_end(pairs):
    """Text without punctuation has far fewer sentences than rows: every position has a row, and no token is lost."""
    rows = TokenRows.of([[10 + token % 80 for token in range(length)] for length in (900, 3, 700)])
    long = Sentences(rows, np.array([0, 0, 1], dtype=np.int32))
    examples = Examples(long, TEMPLATE, 3, pairs=pairs)
    assert examples.per_epoch > len(long)
    drawn = [examples.at(position) for position in range(2 * examples.per_epoch)]
    assert all(len(one.ids) <= TEMPLATE.max_length for one in drawn)
    assert {one.start for one in drawn} == {0, 1, 2}
    if not pairs:
        epochs = (drawn[: examples.per_epoch], drawn[examples.per_epoch :])
        seen = [sum(len(one.ids) - 2 for one in epoch) for epoch in epochs]
        assert min(seen) > 0.9 * long.tokens - examples.room


def test_without_pairs_a_row_is_one_run_of_sentences():
    one = Examples(sentences(), TEMPLATE, 3, pairs=False).at(0)
    assert one.ids.count(END) == 1 and one.second == len(one.ids)


def masker(**rest):
    settings = {"mask_id": MASK, "vocabulary_size": 1000, "mask_probability": 0.15, "masking": "80_10_10"}
    return Masker(**{**settings, "inside_word": None, "special_ids": frozenset((BEGIN, END, MASK)), **rest})


def test_the_share_is_hidden_and_eight_one_one_of_ten_become_mask_another_or_stay():
    ids = [BEGIN, *range(10, 210), END]
    kinds = {"mask": 0, "same": 0, "other": 0}
    for seed in range(200):
        shown, labels = masker().mask(ids, seed)
        positions = [position for position, label in enumerate(labels) if label >= 0]
        assert len(positions) == 30  # 15% of 200
        assert all(labels[position] == ids[position] for position in positions)
        assert all(shown[position] == ids[position] for position in range(len(ids)) if position not in positions)
        for position in positions:
            kinds["mask" if shown[position] == MASK else "same" if shown[position] == ids[position] else "other"] += 1
    total = sum(kinds.values())
    assert kinds["mask"] / total == pytest.approx(0.8, abs=0.02)
    assert kinds["same"] / total == pytest.approx(0.1, abs=0.02)
    assert kinds["other"] / total == pytest.approx(0.1, abs=0.02)


def test_the_plain_recipe_hides_with_the_mask_alone_and_the_same_seed_hides_the_same():
    ids = [BEGIN, *range(10, 30), END]
    shown, labels = masker(masking="mask_only").mask(ids, 1)
    assert {shown[position] for position, label in enumerate(labels) if label >= 0} == {MASK}
    assert masker(masking="mask_only").mask(ids, 1) == (shown, labels) != masker(masking="mask_only").mask(ids, 2)


def test_whole_words_are_masked():
    inside = np.zeros(1000, dtype=np.bool_)
    inside[500:] = True
    ids = [BEGIN, 10, 500, 501, 11, 12, 502, 13, END]
    for seed in range(50):
        _, labels = masker(inside_word=inside, mask_probability=0.3).mask(ids, seed)
        hidden = {position for position, label in enumerate(labels) if label >= 0}
        assert hidden
        for word in ({1, 2, 3}, {5, 6}):
            assert not hidden & word or word <= hidden


def test_something_is_hidden_even_in_the_shortest_row():
    _, labels = masker(mask_probability=0.01).mask([BEGIN, 10, END], 1)
    assert labels == [-1, 10, -1]
