"""Reading: error rates equal to jiwer's, and some by hand."""

import random

import jiwer
import pytest

from saccade import __version__
from saccade.metrics.generation import Score
from saccade.metrics.reading import character_error, score_reading


def test_error_rates_are_those_of_jiwer():
    generator = random.Random(0)
    for _ in range(100):
        count = generator.randint(1, 5)
        references = ["".join(generator.choices("abc d", k=generator.randint(1, 30))) + "z" for _ in range(count)]
        outputs = ["".join(generator.choices("abc d", k=generator.choice([0, 1, 8, 30]))) for _ in range(count)]
        scores = score_reading(outputs, references)
        assert scores["character_error"].value == pytest.approx(100 * jiwer.cer(references, outputs))
        plain = [" ".join(line.split()) for line in references], [" ".join(line.split()) for line in outputs]
        assert scores["word_error"].value == pytest.approx(100 * jiwer.wer(*plain))


def test_reading_by_hand():
    # 1 substitution and 1 insertion in 7 + 4 characters; 2 wrong words of 3; no text without an error but the last
    scores = score_reading(["the cot", "words", "A1"], ["the cat", "word", "A1"])
    version = f"version:saccade-{__version__}"
    assert scores["character_error"] == Score(pytest.approx(100 * 2 / 13), f"error:edits|tok:character|{version}")
    assert scores["word_error"] == Score(50, f"error:edits|tok:space|{version}")
    assert scores["exact"] == Score(pytest.approx(100 / 3), f"exact|strip:yes|{version}")


def test_spaces_count_inside_a_text_but_not_around_it():
    assert character_error([" ab \n"], ["ab"]).value == 0
    assert character_error(["ab"], ["a b"]).value == pytest.approx(100 / 3)


def test_an_empty_reference_counts_what_was_read_into_it():
    assert character_error(["ab", "xy"], ["ab", ""]).value == 100
    assert character_error(["", ""], ["ab", ""]).value == 100
    with pytest.raises(ValueError, match="references must hold at least one character, but all are empty"):
        character_error(["a"], [" "])


def test_outputs_and_references_must_be_as_many():
    with pytest.raises(ValueError, match="outputs and references must have the same length, but have 2 and 1"):
        score_reading(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="outputs must hold at least one line, but are empty"):
        score_reading([], [])
