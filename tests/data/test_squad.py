"""SQuAD files: every question comes back as it was written, and every bad one is named by article and id."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.formats import squad
from saccade.data.formats.squad import Answer, Question, read_squad
from saccade.data.splitting import SplitSettings
from saccade.errors import DataError
from saccade.metrics.qa import score_answers

CONTEXT = "The Normans were in France, and France was theirs."


def question(id="q1", answers=(("France", 20),), **more):
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": "Where?", "answers": listed, **more}


def document(*questions, context=CONTEXT, title="Normans"):
    return {"version": "v2.0", "data": [{"title": title, "paragraphs": [{"context": context, "qas": [*questions]}]}]}


def write(folder: Path, content, name="t.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def failure(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_squad(path)
    return str(caught.value).replace(str(path), path.name)


def test_questions_come_back(tmp_path):
    items = [
        question("a", [("France", 20), ("in France", 17)], is_impossible=False),
        question("b", [], is_impossible=True, plausible_answers=[{"text": "Normans", "answer_start": 4}]),
        question("c", [("theirs", 43)]),  # as SQuAD 1.1 writes it
        question(7, []),
    ]
    path = write(tmp_path, document(*items))
    squad_data = read_squad(path)
    assert tuple(squad_data.questions) == (
        Question("a", "Normans", CONTEXT, "Where?", (Answer("France", 20), Answer("in France", 17)), 1),
        Question("b", "Normans", CONTEXT, "Where?", (), 1),
        Question("c", "Normans", CONTEXT, "Where?", (Answer("theirs", 43),), 1),
        Question("7", "Normans", CONTEXT, "Where?", (), 1),
    )
    assert [each.impossible for each in squad_data.questions] == [False, True, False, True]
    assert squad_data.notes() == ["t.json: 4 questions about 1 article, 2 with an answer, 2 without"]
    assert squad_data.references() == {"a": ["France", "in France"], "b": [], "c": ["theirs"], "7": []}


def test_a_file_may_be_packed_or_marked_or_in_another_encoding(tmp_path):
    wanted = read_squad(write(tmp_path, document(question()))).questions
    text = json.dumps(document(question(), context=CONTEXT), ensure_ascii=False)
    for name, data in (
        ("t.json.gz", gzip.compress(text.encode())),
        ("bom.json", b"\xef\xbb\xbf" + text.encode()),
        ("wide.json", text.encode("utf-16")),
    ):
        (tmp_path / name).write_bytes(data)
        assert [*read_squad(tmp_path / name).questions] == [*wanted], name
    accents = write(tmp_path, "").with_name("l.json")
    accents.write_bytes(json.dumps(document(question("é")), ensure_ascii=False).encode("latin-1"))
    assert read_squad(accents, encoding="latin-1").questions[0].id == "é"


Q1 = "t.json: article 1, question 'q1': "
SHAPE = '{"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [...]}]}]}'


@pytest.mark.parametrize(
    "content, message",
    [
        (
            document(question(answers=[("France", 21)])),
            f"{Q1}at character 21 is 'rance,', expected the answer 'France' (it is at 20); correct answer_start",
        ),
        (
            document(question(answers=[("France", 30)])),
            f"{Q1}at character 30 is 'd Fran', expected the answer 'France' (it is at 32); correct answer_start",
        ),
        (
            document(question(answers=[("Rollo", -1)])),
            f"{Q1}'answer_start' is -1 in a context of 50 characters, expected the answer 'Rollo'; correct the "
            "answer or the context, which does not hold it",
        ),
        (
            document(question(answers=[("France", 9999)])),
            f"{Q1}'answer_start' is 9999 in a context of 50 characters, expected the answer 'France' (it is at "
            "32); correct answer_start",
        ),
        (
            document(question(answers=[("France", "20")])),
            f"{Q1}'answer_start' is '20', expected a whole number; count characters from 0",
        ),
        (
            document(question(answers=[("", 0)])),
            f"{Q1}'text' is '', expected some text; fill it in or delete the entry",
        ),
        (
            document(question(is_impossible=True)),
            f"{Q1}is_impossible is true with 1 answer, expected no answers; move them to "
            "'plausible_answers', or write false",
        ),
        (
            document(question(answers=[], is_impossible=False)),
            f'{Q1}no answers, expected at least one; add one, or write "is_impossible": true',
        ),
        (
            document(question(is_impossible="no")),
            f"{Q1}'is_impossible' is 'no', expected true or false; correct it or leave it out",
        ),
        (
            document(question(), question()),
            f"{Q1}an id that another question has, expected an id of its own for every question; change one of them",
        ),
        (
            document(question(id=None)),
            "t.json: article 1: a question without an id, expected an id of its own for every question; add it under "
            "'id'",
        ),
        (
            document({"id": "q1", "answers": []}),
            f"{Q1}no 'question', expected some text; fill it in or delete the entry",
        ),
        (
            document({"id": "q1", "question": "Where?"}),
            f"{Q1}no list under 'answers', expected a SQuAD file; write it as {SHAPE}",
        ),
        (
            document(question(), context=" "),
            "t.json: article 1: 'context' is ' ', expected some text; fill it in or delete the entry",
        ),
        (
            document(question(), context="a\x00b"),
            "t.json: article 1: 'context' holds U+0000 at character 1, expected printable text; remove it and correct "
            "the starts of the answers behind it",
        ),
        (
            document(question(), context="a" * (1 << 20) + "b"),
            "t.json: article 1: 'context' has 1,048,577 characters, expected at most 1,048,576; divide it into "
            "paragraphs of their own",
        ),
        (document(), "t.json: no questions, expected at least one; name a file with questions in it"),
        ([1], f"t.json: no list under 'data', expected a SQuAD file; write it as {SHAPE}"),
        (
            {"data": [*document(question())["data"], 3]},
            f"t.json: item 2 of 'data' is 3, expected an object; write it as {SHAPE}",
        ),
        (
            {"data": [{"title": "x"}]},
            f"t.json: article 1: no list under 'paragraphs', expected a SQuAD file; write it as {SHAPE}",
        ),
        (
            '{"data":\n [}',
            "t.json:2:3: invalid JSON (Expecting value), expected one JSON document; download the file again, or "
            "correct it",
        ),
        (
            "[" * 100_000 + "]" * 100_000,
            f"t.json: JSON nested too deeply, expected a SQuAD file; write it as {SHAPE}",
        ),
    ],
)
def test_what_breaks_a_rule_is_named(tmp_path, content, message):
    assert failure(write(tmp_path, content)) == message


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 60) | st.sampled_from([CONTEXT, "France", "", "\ud800"]),
    lambda values: (
        st.lists(values, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["data", "paragraphs", "context", "qas", "id", "question", "answers", "text", "answer_start"]
            ),
            values,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(VALUES, st.sampled_from(["document", "article", "paragraph", "question", "answer"]))
def test_any_file_is_read_or_refused_with_a_data_error(tmp_path_factory, value, place):
    whole = document(question())
    paragraph = whole["data"][0]["paragraphs"][0]
    if place == "document":
        whole = value
    elif place == "article":
        whole["data"].append(value)
    elif place == "paragraph":
        whole["data"][0]["paragraphs"].append(value)
    elif place == "question":
        paragraph["qas"].append(value)
    else:
        paragraph["qas"][0]["answers"].append(value)
    path = write(tmp_path_factory.mktemp("any"), whole)
    try:
        squad_data = read_squad(path)
    except DataError as error:
        assert str(path) in str(error)
    else:
        for each in squad_data.questions:
            assert all(each.context[mark.start :].startswith(mark.text) for mark in each.answers)


def test_every_bad_question_of_every_article_is_named(tmp_path):
    articles = [
        *document(question("a"))["data"],
        *document(question("b", [("Rollo", 0)]), question("c", [("x", 0)]))["data"],
    ]
    said = failure(write(tmp_path, {"data": articles})).split("\n")
    assert [line.partition(": at")[0] for line in said] == [
        "t.json: article 2, question 'b'",
        "t.json: article 2, question 'c'",
        "next: correct the answer or the context, which does not hold it",
    ]


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(squad, "MAX_CHARACTERS", 1000)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 5_000_000))
    assert failure(tmp_path / "bomb.json.gz") == (
        "bomb.json.gz: more than 1.0 kB of text, expected a smaller file; divide it into several files"
    )


def test_a_folder_and_a_file_that_is_not_there_are_refused(tmp_path):
    assert failure(tmp_path) == (
        f"{tmp_path.name}: a folder, expected a SQuAD file (.json); name one of the files in it"
    )
    write(tmp_path, document(question()))
    assert failure(tmp_path / "u.json") == "u.json: no such file or folder; did you mean 't.json'?"


def test_articles_are_held_out_whole(tmp_path):
    articles = [
        document(*(question(f"{number}-{each}") for each in range(3)), title=f"title {number % 18}")["data"][0]
        for number in range(20)  # two titles stand twice
    ]
    squad_data = read_squad(write(tmp_path, {"data": articles}))
    splits = [squad_data.split(SplitSettings(0.2, seed)) for seed in (0, 0, 1)]
    ids = [[question.id for question in valid.questions] for _, valid in splits]
    assert ids[0] == ids[1] != ids[2]
    for train, valid in splits:
        titles = [{each.title for each in part.questions} for part in (train, valid)]
        assert not titles[0] & titles[1]
        assert len(titles[1]) == 4
        assert sorted(each.id for each in [*train.questions, *valid.questions]) == sorted(squad_data.references())
    one = read_squad(write(tmp_path, document(question())))
    with pytest.raises(DataError) as caught:
        one.split(SplitSettings())
    assert str(caught.value) == (
        f"{tmp_path / 't.json'}: 1 distinct article, expected at least 2 to hold one out; add "
        "articles or name a file for validation"
    )


def test_real_questions_are_read(dataset):
    squad_data = read_squad(dataset("qa/squad2/dev-v2.0.json"))
    assert squad_data.notes() == [
        "dev-v2.0.json: 6,078 questions about 16 articles, 2,910 with an answer, 3,168 without"
    ]
    first = {each.id: each.answers[0].text if each.answers else "" for each in squad_data.questions}
    scores = score_answers(first, squad_data.references())
    assert (scores.exact.value, scores.f1.value, scores.count) == (100, 100, 6078)
