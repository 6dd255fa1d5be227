"""The command export: every format with its parity line, adapters as models, messages and exit codes."""

import inspect
import json
import re

import pytest
from click.testing import CliRunner

from saccade.cli import main
from saccade.pretrained.exports import WRITERS, gguf
from saccade.pretrained.exports.parity import TEXT

for package in ("onnxruntime", "onnxscript", "gguf", "ctranslate2"):
    pytest.importorskip(package, reason="installed with the [export] extra")

SMALL = ["model.dim=32", "model.depth=1", "model.heads=2", "model.kv_heads=1", "model.hidden=48"]
DATA = ["model.max_positions=96", "data.tokenizer=bpe", "data.vocabulary_size=300", "batch_size=4"]
LOOP = ["train.device=cpu", "train.evaluate_every=3", "--json"]
NUMBER = r"(0|\d\.\de[-+]\d\d)"


def call(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def workspace(bert_folder, tmp_path_factory):
    """A folder with a language model `book`, and a classifier `pets` with LoRA adapters on the tiny BERT."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "book.txt").write_text(f"{TEXT}\n" * 40)
    (folder / "pets.csv").write_text("text,label\n" + "the cat sat,cat\nthe dog ran,dog\n" * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        book = ["--task", "language_model", "--preset", "llama-tiny", "--name", "book", "--steps", 3]
        result = call("train", "book.txt", *book, *SMALL, *DATA, *LOOP)
        assert result.exit_code == 0, result.stderr
        pets = ["--task", "text_classification", "--from", bert_folder, "--name", "pets", "--steps", 6]
        result = call("train", "pets.csv", *pets, "tune=lora", "rank=2", "pool=tanh", *LOOP)
        assert result.exit_code == 0, result.stderr
        yield folder


def test_the_command_offers_the_formats_and_types_that_exist():
    options = {option.name: option for option in main.commands["export"].params}
    assert list(options["format"].type.choices) == list(WRITERS)
    assert list(options["dtype"].type.choices) == list(gguf.TYPES)
    assert inspect.signature(gguf.export).parameters["dtype"].default == "f16"


FORMATS = {
    "onnx": ("book-onnx", "book-onnx: model.onnx, inputs input_ids, past_key_values.0.key, past_key_values.0.value, "),
    "gguf": ("book.gguf", "book.gguf: a llama for llama.cpp, f16, 0.1 MB"),
    "ctranslate2": ("book-ct2", "book-ct2: language_model for CTranslate2, float32"),
    "hf": ("book-hf", "book-hf: a llama for transformers"),
}
PARITY = {
    "onnx": rf"parity with onnxruntime: largest difference of logits {NUMBER} over 121 tokens in 5 batches, greedy",
    "gguf": rf"parity with the file read back: largest difference of logits {NUMBER} over 48 tokens, greedy",
    "ctranslate2": rf"parity with CTranslate2 [\d.]+: largest difference of logits {NUMBER} over 99 tokens in 2 ",
    "hf": r"parity with the files read back: largest difference of logits 0 over 143 tokens in 5 batches",
}


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_is_exported_and_its_parity_printed(format, workspace):
    path, note = FORMATS[format]
    result = call("export", "book", path, "--to", format)
    assert result.exit_code == 0, result.stderr
    lines = result.stderr.splitlines()
    assert lines[0].startswith(note) and re.match(PARITY[format], lines[1]), lines
    assert result.stdout == "" and (workspace / path).exists()
    again = call("export", "book", path, "--to", format)
    assert again.exit_code == 2 and f"{path} must be a new" in again.stderr


def test_a_gguf_file_and_an_adapter_are_models(workspace, bert_folder):
    assert call("export", "book", "exact.gguf", "--to", "gguf", "--dtype", "f32").exit_code == 0
    options = ["-o", "temperature=0", "-o", "max_new_tokens=5", "--json"]
    ours, theirs = (json.loads(call("predict", ref, "The eye", *options).stdout) for ref in ("book", "exact.gguf"))
    assert ours["output"] == theirs["output"]
    result = call("export", "pets", "adapter", "--to", "peft")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"adapter: a LoRA adapter of {bert_folder} for peft, 12 layers, ")
    for base in ([], ["--base", bert_folder]):
        answer = call("predict", "adapter", "the cat sat", *base, "--json")
        assert answer.exit_code == 0, answer.stderr
        expected = json.loads(call("predict", "pets", "the cat sat", "--json").stdout)["output"]["probabilities"]
        assert json.loads(answer.stdout)["output"]["probabilities"] == pytest.approx(expected, abs=1e-5)
    assert call("export", "adapter", "merged", "--to", "hf").exit_code == 0
    assert json.loads(call("models", "show", "adapter", "--json").stdout)["family"] == "bert"


def test_what_does_not_fit_is_refused_with_its_values(workspace):
    refused = {
        ("pets", "pets.gguf", "--to", "gguf"): (
            2,
            "must be one of llama, qwen2, qwen3, smollm3, gemma3_text, gpt2, mistral, but",
        ),
        ("pets", "x", "--to", "ctranslate2"): (2, "a model for CTranslate2 must be a language model (GPT-2,"),
        ("book", "x", "--to", "peft"): (2, "a model for peft must have LoRA adapters, but has none"),
        ("book", "x", "--to", "gguf"): (2, "the file must end in .gguf, but is x; name it x.gguf"),
        ("book", "x", "--to", "onnx", "--dtype", "f16"): (2, "dtype must be f32 for onnx, but is 'f16'"),
        ("book", "x", "--to", "coreml"): (2, "'coreml' is not one of 'hf', 'onnx', 'gguf', 'ctranslate2', 'peft'"),
        ("book", "x", "--base", "pets"): (2, "base must be given for an adapter of peft only, but book is a run"),
    }
    for arguments, (code, message) in refused.items():
        result = call("export", *arguments)
        assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert not (workspace / "x").exists() and not list(workspace.glob(".*tmp*"))
