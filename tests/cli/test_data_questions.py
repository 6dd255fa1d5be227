"""Training on files as people have them: other encodings, odd names, unclear tables, and bases that need a task."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from saccade.cli import main

TINY = ["model.dim=16", "model.depth=1", "model.heads=2", "model.hidden=32", "model.max_positions=16", "batch_size=4"]
TINY += ["train.device=cpu", "--steps", "1"]
ENCODER = [
    "model.dim=16",
    "model.depth=1",
    "model.heads=2",
    "model.hidden=32",
    "vocabulary_size=200",
    "batch_tokens=200",
]
ENCODER += ["train.device=cpu", "--steps", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def failure(*arguments: str) -> str:
    """Return the message of a command that ends with one, without anything before it."""
    result = call(*arguments)
    assert isinstance(result.exception, SystemExit), result.output
    assert "Traceback" not in result.stderr
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    return result.stderr


LINES = "".join(f"le café numéro {number} – l’été\n" for number in range(90))


def test_an_encoding_counts_without_a_task(folder: Path) -> None:
    (folder / "book.txt").write_bytes(LINES.encode("cp1252"))
    assert re.search(
        r"book.txt:1:7: byte 0xE9 is not utf-8, expected utf-8 text; set data.encoding=cp1252",
        failure("train", "book.txt", *TINY),
    )
    result = call("train", "book.txt", "--encoding", "cp1252", *TINY)
    assert result.exit_code == 0, result.stderr
    assert "task: language_model" in result.stderr
    assert "book.txt: text, cp1252" in result.stderr


def test_an_encoding_counts_for_tables_without_a_task(folder: Path) -> None:
    rows = "".join(f"la phrase numéro {number};{'été' if number % 2 else 'hiver'}\n" for number in range(60))
    (folder / "t.csv").write_bytes(("texte;saison\n" + rows).encode("cp1252"))
    result = call("train", "t.csv", "--encoding", "cp1252", *ENCODER)
    assert result.exit_code == 0, result.stderr
    assert "task: text_classification" in result.stderr
    assert "text: column texte, label: column saison" in result.stderr


def test_bytes_of_cp1252_read_as_latin_1_are_noted(folder: Path) -> None:
    (folder / "book.txt").write_bytes(LINES.encode("cp1252"))
    result = call("train", "book.txt", "--encoding", "latin-1", *TINY)
    assert "is the encoding cp1252?" in result.stderr


def test_a_file_whose_name_is_not_utf_8_is_trained_on(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (folder / name).write_text(LINES)
    result = call("train", name, "--name", "cafe", *TINY)
    assert result.exit_code == 0, result.exception
    card = (folder / "runs" / "cafe" / "card.md").read_text(encoding="utf-8")
    assert r"trained on `caf\udce9.txt`" in card
    assert json.loads((folder / "runs" / "cafe" / "run.json").read_text())["data"].endswith(name)
    for command in (["resume", "cafe"], ["evaluate", "cafe"], ["runs", "--json"], ["predict", "cafe", "le"]):
        result = call(*command)
        assert result.exit_code == 0, (command, result.exception)


def test_a_run_is_named_after_such_a_file_without_its_odd_bytes(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (folder / name).write_text(LINES)
    assert call("train", name, *TINY).exit_code == 0
    assert [run.name for run in (folder / "runs").iterdir()] == ["caf-1"]
    assert "a run name must be at most 100 letters" in call("train", name, "--name", name, *TINY).stderr


def test_a_table_with_two_labels_is_asked_about_once(folder: Path) -> None:
    rows = [f"{n}\tso it was {n}\tand so it is {n}\t{n % 37 / 8}\t{'AB'[n % 2]}\n" for n in range(50)]
    (folder / "SICK.txt").write_text(
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n" + "".join(rows)
    )
    message = failure("train", "SICK.txt")
    assert message.startswith("saccade: SICK.txt:1: 2 columns may be the label (relatedness_score has numbers, ")
    for column, task in (("relatedness_score", "regression"), ("entailment_judgment", "text_classification")):
        result = call("train", "SICK.txt", "--label-column", column, *ENCODER)
        assert result.exit_code == 0, result.stderr
        assert f"task: {task}" in result.stderr
        assert f"second text: column sentence_B, label: column {column}" in result.stderr


def test_the_header_is_an_option(folder: Path) -> None:
    rows = "".join(f"so it was {n}, on and on.\t{'up' if n % 2 else 'down'}\n" for n in range(50))
    (folder / "t.tsv").write_text("text\tmood\n" + rows)
    result = call("train", "t.tsv", "--header", "no", "--label-column", "2", *ENCODER)
    assert result.exit_code == 0, result.stderr
    assert "no header" in result.stderr
    assert json.loads((folder / "runs" / "t-1" / "assets" / "labels.json").read_text())["labels"] == [
        "down",
        "mood",
        "up",
    ]


def test_plain_text_and_a_pretrained_encoder_need_a_task(folder: Path) -> None:
    (folder / "x.txt").write_text(LINES)
    assert failure("train", "x.txt", "--from", "minilm") == (
        "task: language_model\n"
        "saccade: task 'language_model', chosen by the data, is trained from scratch and cannot use --from minilm; say "
        "with --task what to train: captioning (images with captions), image_classification (images with labels), "
        "image_policy (images with actions and episodes), image_text (images with captions), "
        "masked_language_model (plain text), question_answering (a SQuAD file), "
        "reading (images of words or lines with their text), regression (texts with numbers), "
        "sentence_vectors (pairs of texts), tagging (a CoNLL file), "
        "text_classification (texts with labels), visual_question_answering (images with questions and answers)\n"
    )


def test_a_preset_that_extends_another_name_suggests_it(folder: Path) -> None:
    (folder / "x.txt").write_text(LINES)
    assert "no preset 'gpt2-small'; did you mean 'gpt2'?" in failure("train", "x.txt", "--preset", "gpt2-small")


def test_unknown_words_are_reported_in_the_data_and_in_inputs(folder: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six"]
    rows = [f"{words[n % 6]} {words[n // 6 % 6]} {words[n // 36]}\tx y {n % 7}\n" for n in range(200)]
    (folder / "train.tsv").write_text("".join(rows))
    (folder / "valid.tsv").write_text("one two zebra\tx y 1\nsix quagga two\tx q 2\n")
    small = ["dim=16", "heads=2", "hidden=24", "depth=1", "decoder_depth=1"]
    settings = [
        "data.tokenizer=words",
        "--steps",
        "1",
        "train.device=cpu",
        *(f"model.transformer.{one}" for one in small),
    ]
    result = call("train", "train.tsv", "--task", "translation", "--valid", "valid.tsv", "--name", "w", *settings)
    assert result.exit_code == 0, result.stderr
    note = "2 of 6 words of the validation sources (33.3%) are unknown, all read as <unk>, such as 'zebra', 'quagga'"
    assert note in result.stderr
    assert "1 of 6 words of the validation targets (16.7%) are unknown, all read as <unk>, such as 'q'" in result.stderr
    assert "training sources" not in result.stderr
    assert note.replace("validation", "evaluated") in (folder / "runs" / "w" / "card.md").read_text()
    result = call("predict", "w", "one zebra two gnu zebra")
    assert result.stderr == "unknown words, all read as <unk>: 'zebra', 'gnu'\n"
    result = call("predict", "w", "one zebra", "--json")
    assert json.loads(result.stdout)["notes"] == ["unknown words, all read as <unk>: 'zebra'"]
    assert call("predict", "w", "one two").stderr == ""
