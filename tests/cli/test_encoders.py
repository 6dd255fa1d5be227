"""The commands for encoders: features, export and train --from, with their messages and exit codes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from saccade import api
from saccade.cli import main
from saccade.pretrained import quantize

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

LOOP = ["train.device=cpu", "train.evaluate_every=4", "max_length=32", "batch_tokens=200"]
TEXTS = ["the cat sat on the red mat.", "a dog", "the blue dog ran"]


def call(*arguments, stdin=None):
    return CliRunner().invoke(main, list(map(str, arguments)), input=stdin)


@pytest.fixture(scope="module")
def workspace(bert_folder, tmp_path_factory):
    """A folder with labelled rows, tags, a text and a run `pets` that began from the tiny BERT."""
    folder = tmp_path_factory.mktemp("encoders")
    pets = [("cat", "dog", "blue")[number % 3] for number in range(60)]
    rows = [f"the {pet} sat {number}\t{pet}\n" for number, pet in enumerate(pets)]
    (folder / "pets.tsv").write_text("text\tlabel\n" + "".join(rows))
    tags = [f"the O\n{pet} {'O' if pet == 'blue' else 'B-PET'}\n{number} O\n\n" for number, pet in enumerate(pets)]
    (folder / "tags.conll").write_text("".join(tags))
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        arguments = ["--task", "text_classification", "--from", bert_folder, "--name", "pets", "--steps", "8", "--json"]
        result = call("train", "pets.tsv", *arguments, *LOOP, "pool=tanh")
        assert result.exit_code == 0, result.stderr
        yield folder


def vectors_of(folder, texts):
    """Mean vectors of texts by transformers."""
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).tolist() for text in texts]


def mean_vector(task, text):
    """The mean of the vectors of a text's tokens, by our own encoder."""
    ((_, vectors),) = task.features([task.encode(text)])
    return vectors.mean(0).tolist()


def test_train_from_keeps_the_base_with_the_run(workspace, bert_folder):
    described = json.loads((workspace / "runs" / "pets" / "run.json").read_text())
    assert described["config"]["base"] == str(bert_folder)
    assert described["train"]["optim"]["lr"] == 5e-5
    assert (workspace / "runs" / "pets" / "assets" / "base.safetensors").exists()
    prediction = call("predict", "pets", "the cat sat", "--json")
    output = json.loads(prediction.stdout)["output"]
    assert set(output["probabilities"]) == {"cat", "dog", "blue"}
    assert sum(output["probabilities"].values()) == pytest.approx(1)
    assert output["labels"] == [output["text"]]


def test_the_confusion_matrix_is_printed_with_the_metrics_and_in_the_card(workspace):
    shown = call("evaluate", "pets").stdout.splitlines()
    title, *table = shown[shown.index("") + 1 :]
    assert title == "confusion matrix"
    assert [line.split("|")[1].strip() for line in table] == [
        "expected, predicted as",
        "----------------------",
        *("blue", "cat", "dog"),
    ]
    rows = int(next(line.split()[1] for line in shown if line.startswith("rows")))
    assert sum(int(cell) for line in table[2:] for cell in line.strip("|").split("|")[1:]) == rows
    card = (workspace / "runs" / "pets" / "card.md").read_text().splitlines()
    assert all(line in card for line in table)
    assert set(json.loads(call("evaluate", "pets", "--json").stdout)) >= {"accuracy", "f1", "signatures"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--from", "minilmm"], 2, r"no model 'minilmm'; did you mean 'minilm'\?"),
        (["--from", "."], 4, r"config\.json"),
        (["tune=lora"], 2, r"tune must be all without a base, but is lora"),
        (["--from", "BERT", "tune=some"], 2, r"tune must be 'all', 'lora' or 'head', but is 'some'"),
    ],
)
def test_a_base_that_is_none_ends_with_one_message_and_leaves_no_run(workspace, bert_folder, arguments, code, message):
    given = [str(bert_folder) if argument == "BERT" else argument for argument in arguments]
    result = call("train", "pets.tsv", "--task", "text_classification", "--name", "bad", "--quiet", *given)
    assert result.exit_code == code
    assert re.search(message, result.stderr)
    assert result.stderr.startswith("saccade: ") and "Traceback" not in result.stderr
    assert not (workspace / "runs" / "bad").exists()


def test_features_are_json_lines_in_the_order_of_the_texts(workspace, bert_folder):
    result = call("features", bert_folder, *TEXTS[:1], "--file", "lines.txt")
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["text"] for row in rows] == [TEXTS[0], *TEXTS]
    for row, expected in zip(rows[1:], vectors_of(bert_folder, TEXTS), strict=True):
        assert row["vector"] == pytest.approx(expected, abs=1e-4)


def test_a_truncated_text_is_reported_on_stderr_and_in_the_json(workspace, bert_folder):
    long = "the cat sat on the mat " * 20
    note = "cut to 40 of 122 tokens: text 'the cat sat on the mat the cat sat on th…'"
    result = call("features", bert_folder, "a dog", long)
    assert result.stderr.splitlines() == [note]
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert "notes" not in rows[0] and rows[1]["notes"] == [note]
    assert call("features", bert_folder, long, "--output", "long.npy").stderr.splitlines() == [note]
    tokenizer = transformers.BertTokenizer.from_pretrained(bert_folder, model_max_length=40)
    with torch.no_grad():
        states = transformers.BertModel.from_pretrained(bert_folder).eval()(
            **tokenizer(long, truncation=True, return_tensors="pt")
        )
    assert rows[1]["vector"] == pytest.approx(states.last_hidden_state[0].mean(0).tolist(), abs=1e-4)
    predicted = call("predict", "pets", long, "--json")
    assert predicted.stderr.splitlines() == [note.replace("40 of", "32 of")]
    assert json.loads(predicted.stdout)["notes"] == [note.replace("40 of", "32 of")]
    assert note.replace("40 of", "32 of") in call("look", "pets", long).stderr


def test_features_of_tokens_and_layers_go_to_files(workspace, bert_folder, monkeypatch):
    arguments = ["--file", "lines.txt", "--layers", "concat_last_4"]
    assert call("features", bert_folder, *arguments, "--output", "lines.npy").exit_code == 0
    assert np.load("lines.npy").shape == (3, 32)  # there are but two layers
    assert call("features", bert_folder, *arguments, "--per", "token", "--output", "lines.jsonl").exit_code == 0
    rows = [json.loads(line) for line in Path("lines.jsonl").read_text().splitlines()]
    assert rows[1]["tokens"] == ["[CLS]", "a", "dog", "[SEP]"] and len(rows[1]["vector"]) == 4
    first = call("features", bert_folder, "a dog", "--pool", "first").stdout
    assert json.loads(first)["vector"] == pytest.approx(rows[1]["vector"][0][-16:], abs=1e-5)
    monkeypatch.setattr(quantize, "MIN_WEIGHTS", 1)  # these layers are small
    int8 = json.loads(call("features", bert_folder, "a dog", "--int8").stdout)["vector"]
    full_precision = json.loads(call("features", bert_folder, "a dog").stdout)["vector"]
    assert int8 != full_precision
    assert float(torch.cosine_similarity(torch.tensor(int8), torch.tensor(full_precision), dim=0)) > 0.95


def test_features_compares_a_word_and_layers(workspace, bert_folder):
    same = call("features", bert_folder, "a dog", "a dog", "--word", "dog")
    assert same.stdout == "1.0000\n"
    other = json.loads(call("features", bert_folder, "a dog", "the dog ran", "--word", "dog", "--json").stdout)
    assert other["word"] == "dog" and other["cosine"] < 0.9999
    table = call("features", bert_folder, "--compare", "tags.conll").stdout.splitlines()
    assert len(table) == 7 and re.fullmatch(r"use \w+(: as good as \w+, and smaller)?", table[-1])
    actual = json.loads(call("features", "pets", "--compare", "pets.tsv", "--json").stdout)
    assert len(actual) == 6 and actual[0]["score"] == 100.0  # the word itself tells
    assert [row["score"] for row in actual] == sorted((row["score"] for row in actual), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, r"no text was given; pass one, or a --file with one text per line"),
        (["a", "--layers", "lst"], 2, r"no choice of layers 'lst'; did you mean 'last'\?"),
        (["a", "--word", "a"], 2, r"--word needs two texts, but there are 1"),
        (["a dog", "a cat", "--word", "cat"], 2, r"'cat' must occur in both texts, but is not in 'a dog'"),
        (["a", "--output", "a.txt"], 2, r"--output must end on \.npy or \.jsonl, but is a\.txt"),
        (["--compare", "none.tsv"], 3, r"none\.tsv: no such file or folder"),
        (
            ["--compare", "pets.tsv", "--task", "regression"],
            2,
            r"layers are compared by tagging or text_classification, but the task is 'regression'",
        ),
    ],
)
def test_features_names_what_is_wrong(workspace, bert_folder, arguments, code, message):
    result = call("features", bert_folder, *arguments)
    assert result.exit_code == code
    assert re.search(message, result.stderr)
    assert not result.stdout


def test_features_need_an_encoder(workspace):
    shape = [
        "model.dim=16",
        "model.depth=1",
        "model.heads=2",
        "model.hidden=32",
        "model.max_positions=16",
        "batch_size=4",
    ]
    Path("book.txt").write_text("".join(f"line {number * 37 % 101} says so\n" for number in range(200)))
    result = call("train", "book.txt", "--name", "book", "--steps", "2", *shape, "train.device=cpu")
    assert result.exit_code == 0, result.stderr
    result = call("features", "book", "a")
    assert result.exit_code == 2
    message = "features need an encoder such as BERT, but this model has none; try minilm, for example"
    assert message in result.stderr


def test_export_writes_what_transformers_opens(workspace):
    result = call("export", "pets", "out", "--to", "hf")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines() == [
        "out: a bert for transformers",
        "parity with the files read back: largest difference of logits 0 over 143 tokens in 5 batches",
    ]
    assert not result.stdout
    task = api.load("pets", device="cpu").task
    expected = [mean_vector(task, text) for text in TEXTS]
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    model = transformers.AutoModel.from_pretrained("out").eval()
    assert transformers.AutoConfig.from_pretrained("out").architectures == ["BertForSequenceClassification"]
    for text, vector in zip(TEXTS, expected, strict=True):
        given = tokenizer(text, return_tensors="pt")
        assert given.input_ids[0].tolist() == task.encode(text)[0]
        with torch.no_grad():
            assert model(**given).last_hidden_state[0].mean(0).tolist() == pytest.approx(vector, abs=1e-4)
    assert tokenizer.mask_token == "[MASK]"
    assert "A model of the bert family" in Path("out/README.md").read_text()
    again = call("export", "pets", "out")
    assert again.exit_code == 2
    assert "out must be a new or an empty folder, but is not empty; name another one" in again.stderr


def test_changes_of_low_rank_are_exported_within_the_weights(workspace, bert_folder):
    arguments = ["--task", "text_classification", "--from", bert_folder, "--name", "lora", "--steps", "8", "tune=lora"]
    arguments.append("pool=tanh")
    assert call("train", "pets.tsv", *arguments, *LOOP, "train.optim.lr=0.05").exit_code == 0
    assert call("export", "lora", "merged").exit_code == 0
    task = api.load("lora", device="cpu").task
    expected = mean_vector(task, TEXTS[0])
    assert vectors_of("merged", TEXTS[:1])[0] == pytest.approx(expected, abs=1e-4)
    assert vectors_of(bert_folder, TEXTS[:1])[0] != pytest.approx(expected, abs=1e-2)  # there was something to merge


def test_what_cannot_be_exported_is_reported(workspace):
    pairs = Path("pairs.tsv")
    pairs.write_text("".join(f"{number}\t{number * 7}\n" for number in range(40)))
    shape = [
        f"model.transformer.{setting}" for setting in ("dim=16", "depth=1", "decoder_depth=1", "heads=2", "hidden=32")
    ]
    arguments = [
        "--task",
        "translation",
        "--name",
        "pairs",
        "--steps",
        "1",
        *shape,
        "batch_tokens=200",
        "search.beam=1",
    ]
    assert call("train", "pairs.tsv", *arguments, "train.device=cpu").exit_code == 0
    result = call("export", "pairs", "nowhere")
    assert result.exit_code == 2
    assert "only language models, encoders and image networks can be written for transformers so far" in result.stderr
    assert not Path("nowhere").exists()
