"""Caption scores equal those of the COCO caption evaluation, stored by the script beside the fixture."""

import importlib.util
import json
import random
from pathlib import Path

import pytest

from saccade import __version__
from saccade.metrics.captions import score_captions
from saccade.metrics.ptb import tokenize

spec = importlib.util.spec_from_file_location(
    "regenerate_captions", Path(__file__).parent / "fixtures" / "regenerate_captions.py"
)
regenerate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(regenerate)
STORED = json.loads(regenerate.FILE.read_text(encoding="utf-8"))
SCALE = {"bleu4": 100, "rouge_l": 100, "cider": 1}


@pytest.mark.parametrize("line", STORED["tokens"])
def test_tokens_are_the_stored_ones(line):
    assert " ".join(tokenize(line)) == STORED["tokens"][line]


def test_tokens_of_ten_thousand_captions_are_those_of_the_program(dataset):
    captions = regenerate.flickr_captions(dataset(regenerate.FLICKR))
    assert regenerate.digest([" ".join(tokenize(caption)) for caption in captions]) == STORED["flickr"]


@pytest.mark.parametrize("case", STORED["sets"], ids=lambda case: f"{len(case['outputs'])} pictures")
def test_scores_are_the_stored_ones(case):
    scores = score_captions(case["outputs"], case["references"])
    for name, scale in SCALE.items():
        if name == "bleu4" and case["scores"][name] < 1e-3:
            assert scores[name].value == 0, "the evaluation adds a tiny number to counts of 0"
        else:
            assert scores[name].value == pytest.approx(scale * case["scores"][name], rel=1e-7), name


def test_the_stored_sets_are_varied():
    values = {name: [case["scores"][name] for case in STORED["sets"]] for name in SCALE}
    for name, numbers in values.items():
        assert len({round(number, 6) for number in numbers}) > 3, name
    assert values["cider"][0] == 0, "a single picture has no rare words"
    assert max(values["cider"]) > 0.8


def test_the_fixture_is_that_of_its_script():
    assert [[case["outputs"], case["references"]] for case in STORED["sets"]] == [
        list(case) for case in regenerate.cases()
    ]
    assert list(STORED["tokens"]) == regenerate.LINES


def test_the_program_itself_agrees():
    pytest.importorskip("pycocoevalcap.cider.cider")
    generator = random.Random(5)
    references = [[regenerate.caption(generator) for _ in range(5)] for _ in range(20)]
    outputs = [regenerate.caption(generator) for _ in range(20)]
    theirs = regenerate.scores_of(outputs, references)
    ours = score_captions(outputs, references)
    assert {name: ours[name].value for name in SCALE} == pytest.approx(
        {name: scale * theirs[name] for name, scale in SCALE.items()}, abs=0.05
    )


def test_captions_by_hand():
    references = [["A dog runs.", "the brown dog is running"], ["Two birds", "birds in a tree"]]
    scores = score_captions(["a dog is running", "a cat"], references)
    # 6 words of which 4 + 1 correct; 4 bigrams with dog-is, is-running; dog-is-running of 2; no four in a row
    assert scores["bleu4"].value == 0
    # LCS: precision 3/4 and recall 3/5; second picture: "a" is 1 of 2, and 1 of 4
    f = [2.44 * p * r / (r + 1.44 * p) for p, r in ((3 / 4, 2 / 3), (1 / 2, 1 / 4))]
    assert scores["rouge_l"].value == pytest.approx(100 * sum(f) / 2)
    perfect = score_captions(["a dog runs", "two birds"], [["A dog runs ."], ["Two birds !"]])
    # No four words in a row, and one caption without three: each order counts for a quarter.
    assert perfect["cider"].value == pytest.approx(10 * (3 / 4 + 2 / 4) / 2)
    assert perfect["rouge_l"].value == pytest.approx(100)


def test_repeating_a_rare_word_does_not_help():
    references = [["a dog runs on grass"], ["a cat sleeps on grass"], ["a man walks home"]]
    plain = ["a dog runs on grass", "a cat", "a man"]
    repeated = ["dog dog dog dog dog", "a cat", "a man"]
    assert score_captions(plain, references)["cider"].value > 2 * score_captions(repeated, references)["cider"].value


def test_a_caption_for_every_picture_has_bleu_but_no_cider():
    references = [[f"a man in a {word} shirt is walking", "a man walks"] for word in ("red", "blue", "green", "grey")]
    scores = score_captions(["a man in a shirt is walking"] * 4, references)
    assert scores["bleu4"].value > 50
    assert scores["cider"].value < 0.1


def test_every_score_has_a_signature():
    scores = score_captions(["a", "b"], [["a", "b"], ["c"]])
    settings = f"nrefs:var|tok:ptb|version:saccade-{__version__}"
    assert scores["bleu4"].signature == f"bleu:4|length:closest|smooth:none|{settings}"
    assert scores["rouge_l"].signature == f"rouge:L|beta:1.2|{settings}"
    assert scores["cider"].signature == f"cider:D|df:references|sigma:6|{settings}"
    assert "|nrefs:5|" in score_captions(["a"], [["a"] * 5])["cider"].signature


@pytest.mark.parametrize(
    "outputs, references, message",
    [
        (["a"], [], "outputs and references must have the same length, but have 1 and 0"),
        ([], [], "outputs must hold at least one caption, but are empty"),
        (["a", "b"], [["a"], []], "each picture must have a reference, but row 1 has none"),
    ],
)
def test_what_cannot_be_scored_is_refused(outputs, references, message):
    with pytest.raises(ValueError) as caught:
        score_captions(outputs, references)
    assert str(caught.value) == message
