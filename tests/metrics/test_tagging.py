"""Entities: read and counted as seqeval does, from whole and from malformed tags."""

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval import scheme as schemes
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from saccade import __version__
from saccade.metrics.generation import Counts
from saccade.metrics.tagging import LETTERS, Entity, entities, find_scheme, is_entity_tag, may_follow, score_entities

TYPES = ["", "-PER", "-LOC", "-a-b"]


def tags_of(letters: str):
    return st.sampled_from(["O"] + [letter + type for letter in letters if letter != "O" for type in TYPES])


def two_taggings(letters: str):
    """Two taggings of the same sentences, mostly alike."""
    pair = st.tuples(tags_of(letters), tags_of(letters), st.booleans()).map(
        lambda drawn: (drawn[0], drawn[0] if drawn[2] else drawn[1])
    )
    return st.lists(st.lists(pair, min_size=1, max_size=9), min_size=1, max_size=4).map(
        lambda rows: ([[one for one, _ in row] for row in rows], [[two for _, two in row] for row in rows])
    )


def seqeval_counts(predictions, references, **mode):
    return classification_report(references, predictions, output_dict=True, zero_division=0, **mode)


def check_equal(ours, theirs):
    """Every figure of a report of seqeval, by type and over all."""
    counts = {**ours.by_type, "micro avg": ours.all}
    types = [name for name in theirs if not name.endswith(" avg")]
    assert sorted(ours.by_type) == sorted(types)
    for name in [*types, "micro avg"]:
        assert counts[name].precision == pytest.approx(100 * theirs[name]["precision"])
        assert counts[name].recall == pytest.approx(100 * theirs[name]["recall"])
        assert counts[name].f1 == pytest.approx(100 * theirs[name]["f1-score"])
        assert counts[name].expected == theirs[name]["support"]


@settings(max_examples=300)
@given(st.lists(tags_of("BIES"), max_size=12))
def test_entities_of_any_tags_are_those_of_seqeval(tags):
    assert entities(tags) == [Entity(type, start, last + 1) for type, start, last in get_entities(tags)]


@settings(max_examples=200)
@given(st.lists(tags_of("BILU"), max_size=12))
def test_bilou_is_read_as_iobes_with_other_letters(tags):
    # seqeval's default mode does not know L and U, and would join neighbours of one type.
    renamed = [{"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    assert entities(tags) == entities(renamed)
    assert entities(tags, "BILOU") == entities(renamed, "IOBES")


@settings(max_examples=200)
@given(two_taggings("BIES"))
def test_scores_are_those_of_seqeval(taggings):
    predictions, references = taggings
    ours = score_entities(predictions, references)
    if ours.by_type:  # seqeval fails on taggings without any entity
        check_equal(ours, seqeval_counts(predictions, references))
    else:
        assert ours.all == Counts(0, 0, 0)


@pytest.mark.parametrize("name, letters", [("IOB2", "BI"), ("IOBES", "BIES"), ("BILOU", "BILU")])
def test_strict_scores_are_those_of_seqeval(name, letters):
    @settings(max_examples=200)
    @given(two_taggings(letters))
    def check(taggings):
        predictions, references = taggings
        ours = score_entities(predictions, references, name)
        if ours.by_type:
            check_equal(ours, seqeval_counts(predictions, references, mode="strict", scheme=getattr(schemes, name)))
        else:
            assert ours.all == Counts(0, 0, 0)

    check()


@settings(max_examples=200)
@given(st.lists(tags_of("BI"), max_size=10))
def test_strict_iob1_is_that_of_seqeval(tags):
    theirs = schemes.Tokens(tags, schemes.IOB1).entities
    assert entities(tags, "IOB1") == [Entity(entity.tag, entity.start, entity.end) for entity in theirs]


@pytest.mark.parametrize(
    "tags, kind, strict, scheme",
    [
        ("B-PER I-PER O B-LOC", "PER:0-2 LOC:3-4", "PER:0-2 LOC:3-4", "IOB2"),
        ("I-PER I-PER O B-LOC", "PER:0-2 LOC:3-4", "LOC:3-4", "IOB2"),
        ("B-PER I-LOC B-LOC B-LOC", "PER:0-1 LOC:1-2 LOC:2-3 LOC:3-4", "PER:0-1 LOC:2-3 LOC:3-4", "IOB2"),
        ("I-PER B-PER I-PER I-LOC", "PER:0-1 PER:1-3 LOC:3-4", "PER:0-1 PER:1-3 LOC:3-4", "IOB1"),
        ("B-PER E-PER S-PER B-PER I-PER", "PER:0-2 PER:2-3 PER:3-5", "PER:0-2 PER:2-3", "IOBES"),
        ("U-PER U-PER B-PER L-PER L-PER", "PER:0-1 PER:1-2 PER:2-4 PER:4-5", "PER:0-1 PER:1-2 PER:2-4", "BILOU"),
    ],
)
def test_entities_by_hand(tags, kind, strict, scheme):
    def formatted(spans):
        return " ".join(f"{entity.type}:{entity.start}-{entity.end}" for entity in spans)

    assert formatted(entities(tags.split())) == kind
    assert formatted(entities(tags.split(), scheme)) == strict


@pytest.mark.parametrize(
    "sentences, scheme",
    [
        (["B-PER I-PER O", "O B-LOC"], "IOB2"),
        (["B-PER I-PER O", "O I-LOC"], "IOB1"),
        (["B-PER I-LOC"], "IOB1"),
        (["B-PER I-PER E-PER", "O"], "IOBES"),
        (["S-PER"], "IOBES"),
        (["B-PER L-PER"], "BILOU"),
        (["O O"], "IOB2"),
    ],
)
def test_the_scheme_is_seen_in_the_tags(sentences, scheme):
    assert find_scheme(sentence.split() for sentence in sentences) == scheme


@pytest.mark.parametrize("scheme", ["IOB2", "IOBES", "BILOU"])
def test_rows_whose_tags_may_follow_each_other_are_read_alike_kindly_and_strictly(scheme):
    tags = ["O", *(f"{letter}-{type}" for letter in LETTERS[scheme] if letter != "O" for type in ("A", "B"))]
    counts = [0, 0]
    for row in product(tags, repeat=3):
        whole = ("O", *row, "O")
        holds = all(may_follow(*pair, scheme) for pair in pairwise(whole))
        counts[holds] += 1
        if holds:
            assert entities(row, scheme) == entities(row)
            assert sum(one.end - one.start for one in entities(row, scheme)) == sum(tag != "O" for tag in row)
        else:  # some tag belongs to no entity of the scheme
            assert sum(one.end - one.start for one in entities(row, scheme)) < sum(tag != "O" for tag in row)
    assert min(counts) > 20
    assert all(may_follow(one, other, "IOB1") for one in ("O", "B-A", "I-B") for other in ("O", "B-A", "I-A"))


def test_the_score_has_a_signature():
    predictions, references = [["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-PER"]]
    ours = score_entities(predictions, references)
    assert ours.by_type == {"LOC": Counts(0, 1, 0), "PER": Counts(1, 1, 2)}
    assert (ours.all.precision, ours.all.recall, ours.f1.value) == (50.0, 50.0, 50.0)
    assert ours.f1.signature == f"entities:F1|average:micro|mode:conlleval|version:saccade-{__version__}"
    strict = score_entities(predictions, references, "IOB2").f1.signature
    assert strict == f"entities:F1|average:micro|mode:strict|scheme:IOB2|version:saccade-{__version__}"


def test_parts_of_speech_are_no_entities():
    assert [
        tag for tag in ("O", "B", "I-PER", "U-x", "NN", "IN", "LS", "b-PER", "O-PER", "") if is_entity_tag(tag)
    ] == [
        "O",
        "B",
        "I-PER",
        "U-x",
    ]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: entities(["O", "NN"]), "tags must be O or begin with B-, I-, E-, S-, L- or U-, but one is 'NN'"),
        (
            lambda: entities(["B-PER", "E-PER"], "IOB2"),
            "tags of IOB2 must begin with one of O, B, I, but one is 'E-PER'",
        ),
        (lambda: entities(["O"], "IOE2"), "scheme must be one of IOB1, IOB2, IOBES, BILOU, but is 'IOE2'"),
        (
            lambda: score_entities([["O"]], []),
            "predictions and references must have the same number of sentences, but have 1 and 0",
        ),
        (
            lambda: score_entities([["O"], ["O"]], [["O"], ["O", "O"]]),
            "sentence 1 must have as many predicted tags as reference tags, but has 1 and 2",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
