"""Scores equal those of the programs they are named after: sacrebleu, rouge_score and jiwer."""

import importlib.util
import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import __version__
from saccade.metrics import generation

spec = importlib.util.spec_from_file_location("regenerate", Path(__file__).parent / "fixtures" / "regenerate.py")
regenerate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(regenerate)
PAIRS = json.loads(regenerate.FILE.read_text(encoding="utf-8"))["pairs"]

ENGLISH = (
    ["The cat sat on the mat.", "It's 3.5 km, she said", "", "a Dog"],
    ["the cat sat on a mat.", "It is 3.5 km, he said!", "Yes.", "A dog"],
)
CHINESE = (["我爱北京天安门", "今天天气很好。"], ["我爱北京故宫", "今天的天气很好。"])
PAIRED = [generation.bleu, generation.chrf, generation.rouge, generation.exact, generation.token_error]


def by_command_line(folder, pairs, *words):
    """Return the output of sacrebleu's command line for the same lines."""
    for name, lines in zip(("outputs", "references"), pairs, strict=True):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "outputs", "-w", "9", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "pairs, options, words",
    [
        (ENGLISH, {}, []),
        (ENGLISH, {"lowercase": True}, ["-lc"]),
        (ENGLISH, {"tokenize": "intl"}, ["-tok", "intl"]),
        (CHINESE, {}, ["-tok", "zh"]),
    ],
)
def test_bleu_is_that_of_the_command_line(tmp_path, pairs, options, words):
    said = by_command_line(tmp_path, pairs, "-m", "bleu", *words)
    ours = generation.bleu(*pairs, **options)
    assert 0 < ours.value < 100
    assert ours.value == pytest.approx(said["score"], abs=1e-8)
    assert ours.signature == said["signature"]


@pytest.mark.parametrize("pairs", [ENGLISH, CHINESE])
def test_chrf_is_that_of_the_command_line(tmp_path, pairs):
    said = by_command_line(tmp_path, pairs, "-m", "chrf")
    ours = generation.chrf(*pairs)
    assert said["name"] == "chrF2" and 0 < ours.value < 100
    assert ours == generation.Score(pytest.approx(said["score"], abs=1e-8), said["signature"])


def test_bleu_by_hand():
    # 5 of 6 words ('the' counts once), 3 of 5 pairs, 2 of 4 triples, 1 of 3 fours: (1/12) ** (1/4).
    assert generation.bleu(["the cat sat on the mat"], ["the cat sat on a mat"]).value == pytest.approx(100 * 12**-0.25)
    # All that is there is right, but 4 words stand for 6: exp(1 - 6/4).
    assert generation.bleu(["the cat sat on"], ["the cat sat on a mat"]).value == pytest.approx(100 * math.exp(-0.5))


def test_the_signature_of_bleu():
    from sacrebleu import __version__ as theirs

    assert generation.bleu(*ENGLISH).signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{theirs}"
    assert generation.bleu(*ENGLISH, lowercase=True).signature.startswith("nrefs:1|case:lc|eff:no|tok:13a|")


@pytest.mark.parametrize(
    "reference, tokenizer",
    [
        ("The cat sat on the mat.", "13a"),
        ("Кошка сидит на ковре.", "13a"),
        ("고양이가 매트 위에 앉았다.", "13a"),
        ("बिल्ली चटाई पर बैठी।", "13a"),
        ("The word 北京 means northern capital.", "13a"),
        ("1 + 1 = 2", "13a"),
        ("我爱北京天安门。", "zh"),
        ("使用PyTorch训练Transformer模型", "zh"),
        ("日语里的假名の常常出现在中文招牌上。", "zh"),
        ("猫がマットの上に座った。", "char"),
        ("แมวนั่งบนเสื่อ", "char"),
        ("ឆ្មាអង្គុយលើកន្ទេល", "char"),
    ],
)
def test_the_tokenizer_of_bleu_follows_the_script(reference, tokenizer):
    assert f"|tok:{tokenizer}|" in generation.bleu([reference], [reference]).signature


def test_sacrebleu_does_not_talk_to_the_user(caplog, capfd):
    lines = ["This line looks tokenized ."] * 200
    assert generation.bleu(lines, lines).value == pytest.approx(100)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_sacrebleu_is_loaded_only_when_used():
    program = (
        "import sys, saccade.metrics.generation; print(sorted({'sacrebleu', 'jiwer', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", ["moses", "spm"])
def test_an_unknown_tokenizer_is_refused(name):
    with pytest.raises(ValueError, match=rf"tokenize must be one of none, zh, 13a, .*, but is '{name}'"):
        generation.bleu(*ENGLISH, tokenize=name)


@pytest.mark.parametrize("score", PAIRED)
def test_outputs_and_references_must_be_as_many(score):
    with pytest.raises(ValueError, match="outputs and references must have the same length, but have 2 and 1"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="outputs must hold at least one line, but are empty"):
        score([], [])


@pytest.mark.parametrize("stem", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_rouge_is_the_stored_one(pair, stem):
    stored = pair["stemmed" if stem else "plain"]
    ours = generation.rouge([pair["output"]], [pair["reference"]], stem=stem)
    assert {name: score.value for name, score in ours.items()} == {name: 100 * f for name, f in stored.items()}


def test_the_stored_pairs_are_varied():
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert len({pair["plain"][name] for pair in PAIRS}) > 20
        assert any(pair["plain"][name] != pair["stemmed"][name] for pair in PAIRS)
    assert any(pair["plain"]["rougeL"] != pair["plain"]["rougeLsum"] for pair in PAIRS)


WRITING = st.text("abcé \nAB1.-我", max_size=60) | st.text(max_size=30)


@settings(deadline=None)
@given(
    WRITING, st.text("abc \nAB1.-", max_size=60) | st.text(st.characters(max_codepoint=127), max_size=30), st.booleans()
)
def test_rouge_is_that_of_rouge_score(output, reference, stem):
    pytest.importorskip("rouge_score")
    ours = generation.rouge([output], [reference], stem=stem)
    theirs = regenerate.rouge_of(output, reference, stem)
    assert {name: score.value for name, score in ours.items()} == {name: 100 * f for name, f in theirs.items()}


def test_rouge_by_hand():
    scores = generation.rouge(["the cat sat", "the the the"], ["the cat sat on the mat", "the cat"])
    # F of (3/3, 3/6) and of (1/3, 1/2); F of (2/2, 2/5) and 0.
    assert scores["rouge1"].value == pytest.approx(100 * (2 / 3 + 2 / 5) / 2)
    assert scores["rouge2"].value == pytest.approx(100 * (4 / 7 + 0) / 2)
    assert scores["rougeL"].value == scores["rouge1"].value
    # In another order, line by line: only the sum over lines forgives it.
    swapped = generation.rouge(["c d\na b"], ["a b\nc d"])
    assert (swapped["rougeL"].value, swapped["rougeLsum"].value) == (50, 100)


def test_the_signature_of_rouge():
    plain, stemmed = generation.rouge(["Cats"], ["cat"]), generation.rouge(["Cats"], ["cat"], stem=True)
    assert plain["rouge1"] == generation.Score(0, f"rouge:F|stem:no|tok:ascii|version:saccade-{__version__}")
    assert stemmed["rougeL"] == generation.Score(100, f"rouge:F|stem:yes|tok:ascii|version:saccade-{__version__}")
    assert generation.rouge(["gas"], ["ga"], stem=True)["rouge1"].value == 0  # three letters are not stemmed


@pytest.mark.parametrize(
    "output, reference, rouge1",
    [
        ("我爱北京", "我爱上海", 50),  # a character each
        ("2024 我爱北京", "2024 我爱上海", 60),  # a number does not make it English
        ("2024年我爱北京", "2024年我爱上海", 100 * 4 / 6),  # nor does it swallow what follows
        ("КОШКА сидит", "кошка лежит", 50),
        ("हिन्दी भाषा", "हिन्दू भाषा", 50),  # vowel signs stay with their letters
        ("क्\u200dष भाषा", "क्ष भाषा", 100),  # nor does a joiner part them
        ("안녕 세상", "안녕 친구", 50),
        ("ねこ", "ねこ", 100),
        ("cafe\u0301 Привет мир", "caf\u00e9 привет мир", 100),  # one spelling of two
        ("", "Привет", 0),
    ],
)
def test_rouge_of_other_scripts(output, reference, rouge1):
    score = generation.rouge([output], [reference])["rouge1"]
    assert score.value == pytest.approx(rouge1)
    assert "|tok:unicode|" in score.signature


def test_one_foreign_line_does_not_change_the_others():
    english = generation.rouge(["a cat", "a dog"], ["a cat", "the dog"])["rouge1"]
    mixed = generation.rouge(["a cat", "a dog", "Мир"], ["a cat", "the dog", "Мир"])["rouge1"]
    assert mixed.signature == english.signature
    assert mixed.value == pytest.approx(english.value * 2 / 3)  # rouge_score finds nothing in the third


def seconds_of_plain_subsequence(one, two):
    """The processor time of the table that defines the longest common subsequence, cell by cell."""
    start, above = time.process_time(), [0] * (len(two) + 1)
    for word in one:
        row = [0]
        for at, other in enumerate(two):
            row.append(above[at] + 1 if word == other else max(above[at + 1], row[at]))
        above = row
    return time.process_time() - start


@pytest.mark.parametrize("lines", [1, 80])
def test_rouge_of_long_documents_is_fast(lines):
    generator = random.Random(0)
    common = [f"w{int(generator.paretovariate(0.7))}" for _ in range(4000)]
    texts = [
        "\n".join(" ".join(half[start::lines]) for start in range(lines)) for half in (common[:2000], common[2000:])
    ]
    plain = seconds_of_plain_subsequence(common[:2000], common[2000:])  # on this machine, as busy as it is now
    start = time.process_time()
    scores = generation.rouge(texts[:1], texts[1:])
    seconds = time.process_time() - start
    assert seconds < plain, f"{seconds:.2f} s, {plain:.2f} s for one table of the two that rouge_score fills"
    assert 0 < scores["rougeL"].value < scores["rouge1"].value


def test_exact():
    score = generation.exact([" a b\n", "a  b", "A b", ""], ["a b", "a b", "a b", ""])
    assert score == generation.Score(50, f"exact|strip:yes|version:saccade-{__version__}")


def test_token_error_is_that_of_jiwer():
    import jiwer

    generator = random.Random(0)
    for _ in range(300):
        count = generator.randint(1, 5)
        references = [" ".join(generator.choices("abcd", k=generator.randint(1, 90))) for _ in range(count)]
        outputs = [" ".join(generator.choices("abcd", k=generator.choice([0, 1, 8, 90]))) for _ in range(count)]
        assert generation.token_error(outputs, references).value == pytest.approx(100 * jiwer.wer(references, outputs))


def test_token_error_is_computed_by_jiwer(monkeypatch):
    import jiwer

    calls = []
    original = jiwer.process_words
    monkeypatch.setattr(jiwer, "process_words", lambda *sides: calls.append(sides) or original(*sides))
    assert generation.token_error(["a b", "x"], ["a c", ""]).value == 100
    assert calls == [(["a c"], ["a b"])], "an empty reference is counted beside it: jiwer 3 refuses one"


def test_token_error_by_hand():
    # A substitution, a deletion and an insertion in 3 + 2 + 1 tokens; then nothing said at all.
    score = generation.token_error(["HH AH  L", "W", "K\tK"], ["HH EH L", "W ER", "K"])
    assert score == generation.Score(50, f"error:edits|tok:space|version:saccade-{__version__}")
    assert generation.token_error(["", " "], ["a b", "c"]).value == 100
    assert generation.token_error(["a b c", "x"], ["z", ""]).value == 400
    with pytest.raises(ValueError, match="references must hold at least one token, but all are empty"):
        generation.token_error(["a"], [" "])


def test_scores_by_length_cover_every_pair():
    lengths = [3, 9, 10, 19, 45, 5]
    outputs, references = list("abxdxf"), list("abcdef")
    bins = generation.by_length(
        lengths, outputs, references, [5, 10, 20, 30], lambda o, r: generation.exact(o, r).value
    )
    assert bins == [(0, 5, 1, 100), (5, 10, 2, 100), (10, 20, 2, 50), (30, 46, 1, 0)]
    assert generation.by_length([1, 7], ["a", "b"], ["a", "c"], [], lambda o, r: generation.exact(o, r).value) == [
        (0, 8, 2, 50)
    ]


def test_lengths_and_edges_must_fit():
    with pytest.raises(ValueError, match="lengths and outputs must have the same length, but have 1 and 2"):
        generation.by_length([1], ["a", "b"], ["a", "b"], [], lambda o, r: 0.0)
    with pytest.raises(ValueError, match=r"edges must ascend, but are \[10, 10\]"):
        generation.by_length([1], ["a"], ["a"], [10, 10], lambda o, r: 0.0)
