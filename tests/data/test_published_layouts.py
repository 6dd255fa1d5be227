"""Published layouts: files laid out exactly as well-known data sets are read without flags, or with one question."""

import json
from pathlib import Path

import pytest

from saccade.data.formats.labelled import read_labelled
from saccade.data.formats.labelled_files import find_labelled
from saccade.data.formats.squad import read_squad
from saccade.data.formats.tagged import read_tagged
from saccade.data.tables.columns import Columns
from saccade.errors import DataError
from saccade.tasks import guess_task

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva")
VERBS = ("saw", "met", "called", "left", "thanked")


def sentence(number: int) -> str:
    name, verb, other = NAMES[number % 5], VERBS[number // 5 % 5], NAMES[(number + 1 + number // 25) % 5]
    return f'{name} {verb} {other}, "the {number}th" of them, on the way.'


def write(path: Path, header: str, lines: list[str], end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in ([header] if header else []) + lines).encode())
    return path


# Microsoft Research Paraphrase Corpus


@pytest.fixture
def mrpc(tmp_path: Path) -> Path:
    """msr_paraphrase_train.txt: a byte order mark, CRLF, unpaired quotes, and names with number signs."""
    lines = [
        f'{int(number % 3 > 0)}\t{702876 + number}\t{702977 + 7 * number}\t{sentence(number)}\t"{sentence(number + 3)}'
        for number in range(60)
    ]
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    return write(tmp_path / "msr_paraphrase_train.txt", header, lines, "\r\n")


def test_mrpc_is_pairs_of_texts_with_two_classes(mrpc: Path) -> None:
    assert guess_task(mrpc) == "text_classification"
    files = find_labelled(mrpc)
    assert files.columns == Columns("#1 String", "Quality", "#2 String")
    assert files.notes()[-1] == "ignored: columns #1 ID, #2 ID"
    rows = read_labelled(files)
    assert rows.label_set.names == ("0", "1")
    assert (len(rows), rows.texts[0], rows.seconds[0]) == (60, sentence(0), '"' + sentence(3))


# SICK


def sick(path: Path) -> Path:
    judgments = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
    lines = [
        f"{number + 1}\t{sentence(number)}\t{sentence(number + 2)}\t{1 + number % 40 / 10:g}\t{judgments[number % 3]}"
        for number in range(60)
    ]
    return write(path, "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment", lines)


@pytest.mark.parametrize("name", ["SICK.txt", "SICK_train.tsv"])
def test_sick_has_two_labels_and_one_question(tmp_path: Path, name: str) -> None:
    path = sick(tmp_path / name)
    with pytest.raises(DataError) as caught:
        guess_task(path)
    assert str(caught.value) == (
        f"{path}:1: 2 columns may be the label (relatedness_score has numbers, entailment_judgment has classes), "
        "expected one of them; choose one with --label-column relatedness_score or --label-column entailment_judgment "
        "(data.label_column)"
    )


def test_either_label_of_sick_can_be_chosen(tmp_path: Path) -> None:
    path = sick(tmp_path / "SICK.txt")
    assert guess_task(path, ["data.label_column=relatedness_score"]) == "regression"
    assert guess_task(path, ["data.label_column=entailment_judgment"]) == "text_classification"
    scores = find_labelled(path, label_column="relatedness_score", numbers=True)
    judgments = find_labelled(path, label_column="entailment_judgment")
    assert scores.columns == Columns("sentence_A", "relatedness_score", "sentence_B")
    assert judgments.columns == Columns("sentence_A", "entailment_judgment", "sentence_B")
    assert read_labelled(scores).numbers[:3] == (1.0, 1.1, 1.2)
    assert read_labelled(judgments).label_set.names == ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")
    # A task that is named needs no choice: each kind of label has one column.
    assert find_labelled(path, numbers=True).columns == scores.columns
    assert find_labelled(path).columns == judgments.columns


def test_the_full_release_of_sick_has_the_same_question(tmp_path: Path) -> None:
    header = "pair_ID sentence_A sentence_B entailment_label relatedness_score entailment_AB entailment_BA "
    header += "sentence_A_original sentence_B_original sentence_A_dataset sentence_B_dataset SemEval_set"
    lines = [
        f"{n + 1}\t{sentence(n)}\t{sentence(n + 2)}\t{('NEUTRAL', 'ENTAILMENT')[n % 2]}\t{1 + n % 40 / 10:g}\t"
        f"A_neutral_B\tB_{('neutral', 'entails')[n % 2]}_A\t{sentence(n)}\t{sentence(n + 2)}\tFLICKR\tFLICKR\tTRAIN"
        for n in range(60)
    ]
    path = write(tmp_path / "SICK.txt", header.replace(" ", "\t"), lines)
    with pytest.raises(DataError, match=r"relatedness_score has numbers, entailment_label has classes"):
        guess_task(path)
    columns = find_labelled(path).columns
    assert columns == Columns("sentence_A", "entailment_label", "sentence_B")


def test_rows_sorted_by_their_label_are_classified(tmp_path: Path) -> None:
    lines = [f"{sentence(number)}\t{int(number >= 1200)}" for number in range(2400)]
    assert guess_task(write(tmp_path / "sorted.tsv", "text\tlabel", lines)) == "text_classification"


# GLUE and others with columns that are neither text nor label


@pytest.mark.parametrize(
    "header, row, task, columns",
    [
        (
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            lambda n: f"{n}\t{2 * n}\t{2 * n + 1}\t{sentence(n)}\t{sentence(n + 1)}\t{n % 2}",
            "text_classification",
            Columns("question1", "is_duplicate", "question2"),
        ),
        (
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            lambda n: (
                f"{n}\tmain-{n % 2}\tMSRvid\t2012test\t{n:04}\tnone\tnone\t{sentence(n)}\t{sentence(n + 1)}\t"
                f"{n % 50 / 10}"
            ),
            "regression",
            Columns("sentence1", "score", "sentence2"),
        ),
        (
            "tweet_id,airline_sentiment,airline_sentiment_confidence,airline,name,text",
            lambda n: f"{5703 + n},{('neutral', 'positive', 'negative')[n % 3]},1.0,Delta,{NAMES[n % 5]},so it was {n}",
            "text_classification",
            Columns("text", "airline_sentiment"),
        ),
        (
            "v1,v2,,,",
            lambda n: f"{'spam' if n % 4 == 0 else 'ham'},so it went on {n} times and more,,,",
            "text_classification",
            Columns("v2", "v1"),
        ),
    ],
    ids=["quora", "sts-b", "airline", "spam"],
)
def test_other_tables_are_read_by_their_header(tmp_path: Path, header: str, row, task: str, columns: Columns) -> None:
    path = write(tmp_path / ("t.tsv" if "\t" in header else "t.csv"), header, [row(number) for number in range(60)])
    assert guess_task(path) == task
    assert find_labelled(path, numbers=task == "regression").columns == columns


def test_a_table_without_a_header_and_with_codes_is_asked_about(tmp_path: Path) -> None:
    """CoLA: the source, the label, the label of the author, the sentence."""
    lines = [
        f"gj{number % 3:02}\t{int(number % 5 > 0)}\t{'' if number % 5 else '*'}\t{sentence(number)}"
        for number in range(60)
    ]
    path = write(tmp_path / "in_domain_train.tsv", "", lines)
    with pytest.raises(DataError, match=r"in_domain_train.tsv:1: 4 columns without names.*--label-column NAME"):
        guess_task(path)
    assert guess_task(path, ["data.text_column=4", "data.label_column=2"]) == "text_classification"


# CoNLL

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP O
to TO B-VP O
boycott VB I-VP O
British JJ B-NP B-MISC
lamb NN I-NP O
. . O O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
1996-08-22 CD I-NP O

"""
PARTS_OF_SPEECH = "".join(
    f"The\tDT\n{NAMES[number % 5]}{number}\tNNP\n{VERBS[number % 5]}\tVBD\nme\tPRP$\n.\t.\n\n" for number in range(10)
)


@pytest.mark.parametrize("name", ["train.txt", "eng.train", "train", "train.tsv"])
def test_four_columns_of_conll_are_tags_whatever_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(CONLL_2003)
    assert guess_task(path) == "tagging"
    tagged = read_tagged(path)
    assert [sentence.words for sentence in tagged.sentences][1:] == [("Peter", "Blackburn"), ("BRUSSELS", "1996-08-22")]
    assert tagged.names == ("O", "B-LOC", "B-MISC", "B-ORG", "B-PER", "I-PER")


def test_a_folder_of_conll_files_named_txt_is_tagged(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about these files\n")
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).write_text(CONLL_2003)
    assert guess_task(tmp_path) == "tagging"
    assert len(read_tagged(tmp_path)) == 6


def test_parts_of_speech_are_tags_too(tmp_path: Path) -> None:
    path = tmp_path / "pos.txt"
    path.write_text(PARTS_OF_SPEECH)
    assert guess_task(path) == "tagging"
    assert set(read_tagged(path).names) == {"O", "DT", "NNP", "VBD", "PRP$", "."}


@pytest.mark.parametrize(
    "text",
    [
        "Two words\nTwo more\n\nAnd these\nSix lines\n\nOf two\nOr so\n",
        "O CAPTAIN\nMY CAPTAIN\n\nOUR TRIP\nIS DONE\n\nTHE END\nIS NEAR\nAND THIS IS LONGER\n",
        "One word\tand more of them\nTwo\tof them\n\nThree\tthen\n" * 5,
        "".join(f"{sentence(number)}\n\n" for number in range(20)),
    ],
)
def test_ordinary_texts_are_not_taken_for_tagged_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "book.txt"
    path.write_text(text)
    assert guess_task(path) == "language_model"


def test_conll_u_is_refused_with_the_columns_to_keep(tmp_path: Path) -> None:
    cells = ("_",) * 4
    words = [f"{number}\tword{number}\tword\tNOUN\tNN\t_\t{'	'.join(cells)}" for number in range(1, 9)]
    path = tmp_path / "en-ud-train.txt"
    path.write_text("# sent_id = 1\n# text = words\n" + "\n".join(words) + "\n\n")
    assert guess_task(path) == "tagging"
    with pytest.raises(DataError) as caught:
        read_tagged(path)
    assert str(caught.value) == (
        f"{path}:3: ten columns of CoNLL-U, expected the word first and its tag last; keep two of them, such as: "
        f"grep -v '^#' '{path}' | cut -f2,4 > words.conll"
    )


def test_lines_of_fasttext_are_classified(tmp_path: Path) -> None:
    path = write(
        tmp_path / "cooking.train.txt", "", [f"__label__{number % 2} {sentence(number)}" for number in range(9)]
    )
    assert guess_task(path) == "text_classification"


# XQuAD


@pytest.mark.parametrize(
    "language, context, question, answer",
    [
        ("de", "Die Verteidigung der Panthers gab nur 308 Punkte ab.", "Wie viele Punkte gab sie ab?", "308"),
        ("zh", "黑豹队的防守只丢了 308分，在联赛中排名第六。", "黑豹队的防守丢了多少分？", "308分"),
    ],
)
def test_xquad_is_questions_in_any_language(
    tmp_path: Path, language: str, context: str, question: str, answer: str
) -> None:
    answers = [{"answer_start": context.index(answer), "text": answer}]
    qas = [{"answers": answers, "id": "56beb4343aeaaa14008c925b", "question": question}]
    article = {"paragraphs": [{"context": context, "qas": qas}], "title": "Super_Bowl_50"}
    path = tmp_path / f"xquad.{language}.json"
    path.write_text(json.dumps({"data": [article], "version": "1.1"}, ensure_ascii=False), encoding="utf-8")
    assert guess_task(path) == "question_answering"
    (found,) = read_squad(path).questions
    assert (found.question, found.context, found.answers[0].text) == (question, context, answer)


def test_questions_in_another_encoding_are_found_with_it(tmp_path: Path) -> None:
    document = {"data": [{"paragraphs": [{"context": "Köln", "qas": []}], "title": "é"}], "version": "1.1"}
    path = tmp_path / "old.json"
    path.write_bytes(json.dumps(document, ensure_ascii=False).encode("latin-1"))
    assert guess_task(path, ["data.encoding=latin-1"]) == "question_answering"
