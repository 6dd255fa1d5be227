"""Labelled rows: texts and labels come back as they were written, found by name or by content, small and real."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.formats.labelled import LabelSet, read_labelled
from saccade.data.formats.labelled_files import find_labelled
from saccade.data.splitting import SplitSettings, hold_out
from saccade.data.tables.columns import Columns
from saccade.errors import DataError, UsageError


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, **options):
    return read_labelled(find_labelled(path, **options))


def rows_of(rows):
    answers = rows.numbers or [labels[0] if len(labels) == 1 else labels for labels in rows.labels]
    texts = [rows.texts, rows.seconds] if rows.seconds else [rows.texts]
    return list(zip(*texts, answers, strict=True))


def failure(path: Path, **options) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **options)
    return str(caught.value).replace(str(path), path.name)


# columns


@pytest.mark.parametrize(
    "header, columns",
    [
        ("text,label", Columns("text", "label")),
        ("id,Category,Message", Columns("Message", "Category")),
        (",count,class,tweet", Columns("tweet", "class")),
        ("sentence1,sentence2,label", Columns("sentence1", "label", "sentence2")),
        ("hypothesis,premise,gold_label", Columns("premise", "gold_label", "hypothesis")),
        ("Sentence A,Sentence B,topic", Columns("Sentence A", "topic", "Sentence B")),
        ("title,text,label", Columns("text", "label")),
    ],
)
def test_columns_are_found_by_usual_names(tmp_path, header, columns):
    width = header.count(",") + 1
    body = "".join(",".join(f"cell {row} {cell}" for cell in range(width)) + "\n" for row in range(4))
    assert find_labelled(write(tmp_path, "t.csv", f"{header}\n{body}")).columns == columns


def test_the_columns_of_numbers_have_names_of_their_own(tmp_path):
    path = write(tmp_path, "t.csv", "label,text,score\na,b c,1\nb,c d,2\na,d e,2\n")
    assert find_labelled(path).columns == Columns("text", "label")
    assert find_labelled(path, numbers=True).columns == Columns("text", "score")


def test_given_columns_are_used(tmp_path):
    path = write(tmp_path, "t.tsv", "text\tlabel\tother\tmood\nq w\t1\te r\tup\na s\t2\td f\tdown\n")
    rows = read(path, text_column="other", second_column="text", label_column="mood")
    assert rows_of(rows) == [("e r", "q w", "up"), ("d f", "a s", "down")]
    assert (rows.label_set.names, rows.origins.lines.tolist(), rows.origins.describe(1)) == (
        ("down", "up"),
        [2, 3],
        "t.tsv:3",
    )


@pytest.mark.parametrize(
    "content, columns, first",
    [
        ("a fine film\t1\nno good\t0\nso so\t1\nwell done\t0\n", Columns("1", "2"), ("a fine film", "1")),
        ("good\ta fine film\nbad\tno good\ngood\twell\n", Columns("2", "1"), ("a fine film", "good")),
        (
            "1\ta man eats\ta man is eating\tyes\n2\ta dog runs\ta cat sleeps\tno\n3\ta boy\tthe child\tyes\n",
            Columns("2", "4", "3"),
            ("a man eats", "a man is eating", "yes"),
        ),
        (
            "a man eats\ta man is eating\tyes\na dog runs\ta cat sleeps\tno\na boy\tthe child\tyes\n",
            Columns("1", "3", "2"),
            ("a man eats", "a man is eating", "yes"),
        ),
    ],
)
def test_columns_are_found_by_content(tmp_path, content, columns, first):
    path = write(tmp_path, "t.tsv", content)
    assert find_labelled(path).columns == columns
    assert rows_of(read(path))[0] == first


def test_a_column_of_numbers_is_found_by_content_but_not_one_that_numbers_the_rows(tmp_path):
    path = write(tmp_path, "t.csv", "0,A man eats.,A man is eating.,4.5\n1,A dog.,A cat.,1\n2,It rains.,Rain!,5.0\n")
    files = find_labelled(path, text_column="2", second_column="3", numbers=True)
    assert files.columns == Columns("2", "4", "3")
    assert read_labelled(files).numbers == (4.5, 1.0, 5.0)


def test_notes_report_the_columns(tmp_path):
    path = write(tmp_path, "t.csv", "sentence1,sentence2,label\na b,c d,yes\ne f,g h,no\n")
    assert (
        find_labelled(path).notes()[1] == "text: column sentence1, second text: column sentence2, label: column label"
    )


# formats


def test_every_table_gives_the_same_rows(tmp_path):
    wanted = [('a "b", c', "x"), ("d\te", "y"), ("é", "x")]
    quoted = 'text,label\n"a ""b"", c",x\n"d\te",y\né,x\n'
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in wanted)
    assert rows_of(read(write(tmp_path, "t.csv", quoted))) == wanted
    assert rows_of(read(write(tmp_path, "bom.csv", b"\xef\xbb\xbf" + quoted.replace("\n", "\r\n").encode()))) == wanted
    assert rows_of(read(write(tmp_path, "l.csv", quoted.encode("latin-1")), encoding="latin-1")) == wanted
    assert rows_of(read(write(tmp_path, "t.jsonl", lines))) == wanted


def test_several_labels_are_separated_by_bars_or_in_lists(tmp_path):
    wanted = [("a b", ("y", "x")), ("c d", "x"), ("e f", ())]
    tables = {
        "t.csv": "text,labels\na b,y| x\nc d,x\ne f,\n",
        "j.csv": 'text,labels\na b,"[""y"", ""x""]"\nc d,"[""x""]"\ne f,[]\n',
        "t.jsonl": '{"text": "a b", "labels": ["y", "x"]}\n{"text": "c d", "labels": ["x"]}\n'
        '{"text": "e f", "labels": []}\n',
    }
    for name, content in tables.items():
        rows = read(write(tmp_path, name, content))
        assert (rows_of(rows), rows.label_set) == (wanted, LabelSet(("x", "y"), True)), name


def test_lists_may_hold_numbers_and_bars_and_names_may_have_brackets(tmp_path):
    lines = '{"text": "a b", "labels": [27, 3]}\n{"text": "c d", "labels": [3]}\n'
    assert rows_of(read(write(tmp_path, "t.jsonl", lines))) == [("a b", ("27", "3")), ("c d", "3")]
    lines = '{"text": "a b", "labels": ["x|y", "z"]}\n{"text": "c d", "labels": ["z"]}\n'
    assert read(write(tmp_path, "t.jsonl", lines)).label_set.names == ("x|y", "z")
    assert read(write(tmp_path, "t.csv", "text,label\na b,[x]\nc d,[y]\n")).label_set.names == ("[x]", "[y]")


def test_lines_may_begin_with_their_labels(tmp_path):
    rows = read(write(tmp_path, "t.txt", "__label__a the one\n\n__label__b __label__a the two\n"))
    assert rows_of(rows) == [("the one", "a"), ("the two", ("b", "a"))]
    assert rows.origins.lines.tolist() == [1, 3]


@pytest.mark.parametrize("names", [("r-film.neg", "r-film.pos"), ("neg.txt", "pos.txt"), ("a.neg.txt", "a.pos.txt")])
def test_names_of_files_may_be_the_labels(tmp_path, names):
    for name in names:
        write(tmp_path, name, f"one of {name}\n\ntwo of {name}\n")
    files = find_labelled(tmp_path)
    assert files.file_labels == ("neg", "pos")
    assert files.notes()[-1] == f"labels by file: {names[0]} is neg, {names[1]} is pos"
    rows = read_labelled(files)
    assert rows.labels == (("neg",), ("neg",), ("pos",), ("pos",))
    assert tuple(rows.texts[2:]) == (f"one of {names[1]}", f"two of {names[1]}")
    assert (rows.origins.lines.tolist(), rows.origins.describe(3)) == ([1, 3, 1, 3], f"{names[1]}:3")


def test_names_of_folders_may_be_the_labels(tmp_path):
    for label in ("pos", "neg"):
        (tmp_path / label).mkdir()
        for number in range(2):
            write(tmp_path / label, f"{number}_7.txt", f"{label} {number}\nsecond line\n")
    files = find_labelled(tmp_path)
    assert files.notes()[-1] == "labels by folder: neg (2), pos (2)"
    rows = read_labelled(files)
    assert rows_of(rows) == [
        (f"{label} {number}\nsecond line", label) for label in ("neg", "pos") for number in range(2)
    ]
    bad = write(tmp_path / "pos", "0_7.txt", "first\nsecond \x00\n")
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{bad}:2:8: NUL character U+0000, expected printable text; remove such")


def test_a_name_that_is_a_label_must_be_utf_8(tmp_path):
    for name in (b"r.n\xe9g", b"r.pos"):
        write(tmp_path, os.fsdecode(name), "one line\n")
    with pytest.raises(DataError, match=r"the label must be UTF-8, but is 'n.+g', a part of this path; rename it"):
        find_labelled(tmp_path)


def test_labels_that_are_numbers_are_sorted_as_numbers(tmp_path):
    assert read(write(tmp_path, "t.csv", "text,label\na b,10\nc d,9\ne f,-1\n")).label_set.names == ("-1", "9", "10")


def test_control_characters_are_read_as_spaces_and_counted(tmp_path):
    rows = read(write(tmp_path, "t.csv", "text,label\na\x12b\x01c,x\nd,y\ne\x12,x\n"))
    assert rows.texts == ("a b c", "d", "e")
    assert rows.notes() == ["3 control characters read as spaces (first: t.csv:2)"]


# errors


@pytest.mark.parametrize(
    "content, message",
    [
        (
            "text,label\na b,x\n ,y\nc d,x\n",
            "t.csv:3: empty text in column 'text', expected some text in every row; fill it in or delete the row",
        ),
        (
            "sentence1,sentence2,label\na b,c,x\nd e,,y\n",
            "t.csv:3: empty text in column 'sentence2', expected some text in every row; fill it in or delete the row",
        ),
        (
            "text,label\na b,x\nc d,\ne f,y\n",
            "t.csv:3: no label, expected a label in every row; fill it in or delete the row",
        ),
        (
            "text,label\na b,x\nc d,x\n",
            "t.csv: every label is 'x', expected at least two labels; add rows with another label, or name its "
            "column with data.label_column=NAME",
        ),
        (
            "text,label\n" + "".join(f"row {row},{row}\n" for row in range(30)),
            "t.csv: 30 different labels in 30 rows, expected labels that many rows share; name the column of "
            "the label with data.label_column=NAME; numbers are for regression",
        ),
        (
            "text,when,who\n" + "".join(f"row {row},{row},name {row}\n" for row in range(30)),
            "t.csv:1: no column looks like a label, expected one column for the label among: text, when, who; choose "
            "one with data.label_column=NAME",
        ),
        (
            "text,mood,sort\na b,x,p\nc d,y,q\ne f,x,q\ng h,y,p\n",
            "t.csv:1: 2 columns look like a label (mood, sort), expected one column for the label among: text, mood, "
            "sort; choose one with data.label_column=NAME",
        ),
        (
            "count,label\n1,x\n2,y\n",
            "t.csv:1: no column looks like text, expected one column for the text among: count, label; choose one with "
            "data.text_column=NAME",
        ),
        ("text,label\na\x00b,x\n", "t.csv:2:2: NUL character U+0000, expected printable text; remove such characters"),
    ],
)
def test_bad_rows_are_named(tmp_path, content, message):
    error = failure(write(tmp_path, "t.csv", content))
    assert error == message or (message.endswith("characters") and error.startswith(message))


@pytest.mark.parametrize(
    "value, what", [("good", "the label is 'good'"), ("nan", "the label is 'nan'"), ("", "no label")]
)
def test_a_label_that_is_no_number_is_named(tmp_path, value, what):
    error = failure(write(tmp_path, "t.csv", f"text,score\na b,1\nc d,{value}\n"), numbers=True)
    step = "correct or delete the row, or classify instead of predicting numbers"
    assert error == f"t.csv:3: {what}, expected a finite number in every row; {step}"


def test_all_bad_rows_come_together(tmp_path):
    error = failure(write(tmp_path, "t.csv", "text,label\n,x\na b,y\n,y\n"))
    assert error.split("\n") == [
        "t.csv:2: empty text in column 'text', expected some text in every row",
        "t.csv:4: empty text in column 'text', expected some text in every row",
        "next: fill it in or delete the row",
    ]


def test_a_missing_column_is_reported_with_the_existing_ones(tmp_path):
    path = write(tmp_path, "t.csv", "text,label\na b,x\nc d,y\n")
    assert failure(path, label_column="lable") == (
        "t.csv:1: no column called 'lable', expected one of: text, label; did you mean 'label'?"
    )
    with pytest.raises(UsageError) as caught:
        find_labelled(path, text_column="text", label_column="text")
    assert str(caught.value) == (
        "text, second text and label must be different columns, but two are 'text'; set data.text_column, "
        "data.second_column and data.label_column"
    )


def test_labels_of_validation_rows_are_those_of_the_training_rows(tmp_path):
    train = read(write(tmp_path, "train.csv", "text,label\na b,spam\nc d,ham\ne f,eggs\n"))
    good = find_labelled(write(tmp_path, "good.csv", "text,label\na b,ham\n"))
    assert read_labelled(good, label_set=train.label_set).label_set.names == ("eggs", "ham", "spam")
    for label, what in (
        ("spma", "label 'spma', expected one of the training rows: eggs, ham, spam; did you mean 'spam'?"),
        ("other", "label 'other', expected one of the training rows: eggs, ham, spam"),
    ):
        bad = find_labelled(write(tmp_path, "bad.csv", f"text,label\na b,ham\nc d,{label}\n"))
        with pytest.raises(DataError) as caught:
            read_labelled(bad, label_set=train.label_set)
        step = "correct it, or add rows with this label to the training data"
        assert str(caught.value) == f"{tmp_path / 'bad.csv'}:3: {what}; {step}"
    two = find_labelled(write(tmp_path, "two.csv", "text,label\na b,ham\nc d,ham|spam\n"))
    with pytest.raises(DataError) as caught:
        read_labelled(two, label_set=train.label_set)
    assert str(caught.value) == (
        f"{tmp_path / 'two.csv'}:3: 2 labels (ham, spam), expected one as in the training rows; keep one of them"
    )


def test_plain_text_without_labels_is_refused(tmp_path):
    kinds = "a table (csv, tsv, jsonl), lines that start with __label__, or a folder with a file or folder per label"
    path = write(tmp_path, "test.txt", "one\ntwo\n")
    assert failure(path) == f"test.txt:1: plain text without labels, expected {kinds}; name such a file or folder"
    assert failure(path, numbers=True) == (
        "test.txt: plain text, expected a table with a column of numbers; name a csv, tsv or jsonl file"
    )
    write(tmp_path, "train.txt", "three\nfour\n")  # parts of the data are no labels
    assert failure(tmp_path) == (
        f"{tmp_path.name}/test.txt:1: plain text without labels, expected {kinds}; name such a file or folder"
    )
    write(tmp_path, "table.csv", "text,label\na,b\n")
    assert "holds 1 csv and 2 text files, expected one format" in failure(tmp_path)


def test_files_of_blank_lines_are_refused(tmp_path):
    for name in ("x.neg", "x.pos"):
        write(tmp_path, name, "\n \n")
    assert failure(tmp_path) == (
        f"{tmp_path.name}/x.neg:1: no rows, expected at least one row; name a file with data in it"
    )


def test_the_row_that_spoils_a_table_is_named(tmp_path):
    path = write(tmp_path, "t.txt", "ham\tone a\nspam\ttwo\tb\nham\tthree c\n")
    assert failure(path) == (
        "t.txt:2: 3 columns, expected 2 as in line 1; correct the row, or rename the file to .tsv to see all such rows"
    )


def test_tables_of_a_folder_are_alike(tmp_path):
    write(tmp_path, "a.csv", "text,label\na b,x\nc d,y\n")
    write(tmp_path, "b.csv", "tweet,label\na b,x\nc d,y\n")
    assert failure(tmp_path) == (
        f"{tmp_path.name}/b.csv:1: the columns tweet and label, expected the columns text and label as in a.csv; name "
        "one file, or rename the columns"
    )


CELLS = st.lists(
    st.sampled_from(["a b", "x", "1", "", "[", '["p"]', "p|q", '"', ",", "\t", "\n", "\r", "label", "\x00", "é"])
)


@settings(max_examples=150)
@given(CELLS.map("".join).map(str.encode) | st.binary(max_size=60), st.sampled_from(["csv", "tsv", "jsonl", "txt"]))
def test_whatever_a_file_holds_it_is_read_or_refused_in_words(tmp_path_factory, content, suffix):
    path = write(tmp_path_factory.mktemp("any"), f"t.{suffix}", content)
    for numbers in (False, True):
        try:
            rows = read(path, numbers=numbers)
        except DataError as error:
            assert str(path) in str(error)
        else:
            assert len(rows.texts) == len(rows.origins) == len(rows.numbers if numbers else rows.labels) > 0
            assert all(rows.texts)


# splitting


@given(
    st.lists(st.tuples(st.text("ab", max_size=4), st.sampled_from("xyz")), min_size=2, max_size=60),
    st.floats(0.05, 0.5),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_held_out_rows_do_not_depend_on_the_order_and_copies_stay_together(rows, fraction, seed, random):
    if len({key for key, _ in rows}) < 2:
        rows = [*rows, ("other", "x"), ("another", "y")]
    chosen = SplitSettings(fraction, seed)
    held = hold_out([key for key, _ in rows], [stratum for _, stratum in rows], chosen, Path())
    sides = dict(zip((key for key, _ in rows), held, strict=True))
    assert [sides[key] for key, _ in rows] == held
    count = min(max(round(len(sides) * fraction), 1), len(sides) - 1)
    assert sum(sides.values()) == count
    random.shuffle(rows)
    again = hold_out([key for key, _ in rows], [stratum for _, stratum in rows], chosen, Path())
    assert again == [sides[key] for key, _ in rows]


def test_the_split_is_stratified_by_label(tmp_path):
    body = "".join(f"text {row},{'rare' if row % 20 == 0 else 'frequent'}\n" for row in range(1000))
    rows = read(write(tmp_path, "t.csv", "text,label\n" + body))
    splits = [rows.split(SplitSettings(0.1, seed)) for seed in (0, 0, 1)]
    for train, valid in splits:
        assert sorted([*train.texts, *valid.texts]) == sorted(rows.texts)
        assert Counter(valid.labels) == {("rare",): 5, ("frequent",): 95}
        assert all(
            int(text.split()[1]) + 2 == line for text, line in zip(valid.texts, valid.origins.lines, strict=True)
        )
    texts = [[*valid.texts] for _, valid in splits]
    assert texts[0] == texts[1] != texts[2]


def test_numbers_of_every_size_are_held_out(tmp_path):
    rows = read(write(tmp_path, "t.csv", "text,score\n" + "".join(f"text {n},{n}\n" for n in range(200))), numbers=True)
    _, valid = rows.split(SplitSettings(0.1))
    assert Counter(int(number) // 20 for number in valid.numbers) == dict.fromkeys(range(10), 2)


def test_one_text_cannot_be_split(tmp_path):
    rows = read(write(tmp_path, "t.csv", "text,label\na b,x\na b,y\n"))
    with pytest.raises(DataError) as caught:
        rows.split(SplitSettings())
    assert str(caught.value) == (
        f"{tmp_path / 't.csv'}: 1 distinct row, expected at least 2 to hold one out; add rows or "
        "name a file for validation"
    )


# real data


@pytest.mark.parametrize(
    "name, options, count, labels",
    [
        ("classification/sms_spam/SMSSpamCollection", {}, 5574, {"ham": 4827, "spam": 747}),
        ("classification/sst2/train.tsv", {}, 6920, {"0": 3310, "1": 3610}),
        ("classification/hate_offensive/labeled_data.csv", {}, 24783, {"0": 1430, "1": 19190, "2": 4163}),
        ("classification/rt_polarity", {}, 10662, {"neg": 5331, "pos": 5331}),
        ("pairs/stsb/stsb-en-train.csv", {"numbers": True}, 5749, {}),
        ("pairs/stsb/stsb-en-dev.csv", {"numbers": True}, 1500, {}),
        ("pairs/stsb/stsb-en-test.csv", {"numbers": True}, 1379, {}),
    ],
)
def test_real_data_need_no_options(dataset, name, options, count, labels):
    rows = read(dataset(name), **options)
    assert len(rows) == count
    assert Counter(label for row in rows.labels for label in row) == labels
    if "numbers" in options:
        assert (len(rows.seconds), min(rows.numbers), max(rows.numbers)) == (count, 0.0, 5.0)
    else:
        assert not rows.seconds
        assert sum(map(len, rows.texts)) / count > 40
