"""Stems are those of nltk's PorterStemmer: as stored, and as it gives them where it is installed."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saccade.metrics.stemmer import stem

STEMS = json.loads((Path(__file__).parent / "fixtures" / "rouge.json").read_text(encoding="utf-8"))["stems"]
ENDS = ["", "s", "ies", "ied", "eed", "ed", "ing", "y", "ational", "alli", "logi", "ion", "ement", "e", "ll", "iviti"]


def test_stems_are_the_stored_ones():
    assert len(STEMS) > 500
    assert {word: stem(word) for word in STEMS} == STEMS


def test_forms_of_a_word_share_a_stem():
    assert stem("relational") == stem("relations") == stem("relate") == "relat"
    assert stem("hopping") == "hop" and stem("filing") == "file" and stem("falling") == "fall"
    assert stem("skies") == "sky" and stem("dying") == "die" and stem("news") == "news"


@given(st.builds(str.__add__, st.text("aeiouylstdngbcz0", max_size=7), st.sampled_from(ENDS)))
@example("yyyying")
def test_stems_are_those_of_nltk(word):
    porter = pytest.importorskip("nltk.stem.porter")
    assert stem(word) == porter.PorterStemmer().stem(word)
