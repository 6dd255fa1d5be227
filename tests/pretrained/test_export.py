"""Export: trained models open in transformers and give the same outputs."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

import saccade
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ResourceError, UsageError
from saccade.models import presets
from saccade.models.text.bert import BertConfig, BertForPreTraining
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.exports import hf as export_module
from saccade.pretrained.exports.hf import export, find_family
from saccade.pretrained.opening import open_pretrained

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

SMALL = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=48"]
LOOP = ["train.steps=3", "train.device=cpu", "train.evaluate_every=3"]
IDS = torch.randint(300, (2, 9), generator=torch.Generator().manual_seed(1))
TEXT = "The cat sat on the mat. The dog ran to the cat! Who saw the dog? Nobody did.\n" * 60


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(("preset", "family"), [("", "nanochat"), ("gpt2-tiny", "gpt2"), ("llama-tiny", "llama")])
def test_a_language_model_opens_in_transformers(preset, family, text, tmp_path):
    heads = ["model.kv_heads=1"] if preset == "llama-tiny" else []
    data = ["model.max_positions=32", "data.tokenizer=bpe", "data.vocabulary_size=300", "batch_size=4"]
    overrides = [*SMALL, *heads, *LOOP, *data]
    run = saccade.train(text, task="language_model", preset=preset, root=tmp_path / "runs", overrides=overrides)
    task = saccade.load(run, device="cpu").task
    notes = export(task.to_pretrained(), tmp_path / "out")
    assert notes == [
        f"{tmp_path / 'out'}: a {family} for transformers",
        "parity with the files read back: largest difference of logits 0 over 44 tokens in 4 batches",
    ]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    sentence = "The cat saw the dog."
    ids = tokenizer(sentence, return_tensors="pt").input_ids
    assert ids[0].tolist() == task.tokenizer.encode(sentence)
    with torch.no_grad():
        torch.testing.assert_close(task.model(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert (theirs.generation_config.eos_token_id,) == task.to_pretrained().processor.eos_ids


@pytest.mark.parametrize("preset", presets.GPT)
def test_every_preset_of_a_language_model_has_a_class_in_transformers(preset):
    config = GPTConfig(**presets.GPT[preset])
    with torch.device("meta"):
        family = find_family(GPT(config, 300), config)
    assert family.name == ("gpt2" if "gpt2" in preset else "llama" if "llama" in preset else "nanochat")


@pytest.mark.parametrize("preset", presets.BERT)
def test_every_preset_of_an_encoder_has_a_class_in_transformers(preset):
    config = BertConfig(**presets.BERT[preset])
    with torch.device("meta"):
        assert find_family(BertForPreTraining(config, 300), config).name == "bert"


def test_a_masked_language_model_opens_in_transformers(text, tmp_path):
    data = ["model.max_positions=64", "vocabulary_size=120", "max_length=48", "batch_tokens=256"]
    kind = {"task": "masked_language_model", "preset": "bert-tiny"}
    run = saccade.train(text, **kind, root=tmp_path / "runs", overrides=[*SMALL, *LOOP, *data])
    task = saccade.load(run, device="cpu").task
    notes = export(task.to_pretrained(), tmp_path / "out")
    assert notes[0] == f"{tmp_path / 'out'}: a bert for transformers"
    assert "largest difference of logits and next_sentence_logits 0 over" in notes[1]
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids, second, _ = task.encode("The cat sat.", "The dog ran.")
    inputs = tokenizer("The cat sat.", "The dog ran.", return_tensors="pt")
    assert inputs.input_ids[0].tolist() == list(ids)
    segments = (torch.arange(len(ids)) >= second).long()[None]
    assert inputs.token_type_ids.tolist() == segments.tolist()
    with torch.no_grad():
        expected = theirs(inputs.input_ids, token_type_ids=segments)
        features = task.model.bert(inputs.input_ids, None, segments)
        torch.testing.assert_close(task.model.mlm(features), expected.prediction_logits, atol=1e-4, rtol=1e-4)
        follows = task.model.next_sentence(task.model.bert.pooled(features))
        torch.testing.assert_close(follows, expected.seq_relationship_logits, atol=1e-4, rtol=1e-4)


def test_a_roberta_is_opened_and_exported_with_its_special_tokens(tmp_path):
    folder, special_tokens = tmp_path / "theirs", ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    config = transformers.RobertaConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=42,
        type_vocab_size=1,
    )
    before = transformers.RobertaForMaskedLM(config).eval()
    before.save_pretrained(folder)
    train_tokenizer("bpe", [TEXT], 300, special_tokens).save(folder / "tokenizer.json")
    written = json.loads((folder / "tokenizer.json").read_text())
    for token in written["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
    written["post_processor"] = {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
    (folder / "tokenizer.json").write_text(json.dumps(written))
    model = saccade.load(str(folder), device="cpu")
    export(model.task.to_pretrained(), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "roberta"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (tokenizer.mask_token, tokenizer.cls_token, tokenizer.pad_token) == ("<mask>", "<s>", "<pad>")
    inputs = tokenizer("The <mask> sat.", "Who?", return_tensors="pt")
    encoded = model.task.encode("The <mask> sat.", "Who?", parse_special=True)
    assert inputs.input_ids[0].tolist() == list(encoded.ids)
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    prediction = model("The <mask> sat.", n_best=300)
    ids = tokenizer("The <mask> sat.", return_tensors="pt").input_ids
    with torch.no_grad():
        for theirs in (before, again):
            logits = theirs(ids).logits[0, ids[0].tolist().index(tokenizer.mask_token_id)]
            probabilities = logits[: model.task.tokenizer.size].softmax(-1)
            expected = sorted(probabilities.tolist(), reverse=True)
            assert list(prediction.scores.values()) == pytest.approx(expected, abs=1e-5)


def test_an_unpublished_architecture_and_a_folder_in_use_are_refused(text, tmp_path):
    overrides = [*SMALL, *LOOP, "model.max_positions=32", "batch_size=4", "model.score=cosine"]
    run = saccade.train(text, task="language_model", root=tmp_path / "runs", overrides=overrides)
    pretrained = saccade.load(run, device="cpu").task.to_pretrained()
    with pytest.raises(UsageError, match="transformers has no class for this architecture; train one of the presets"):
        export(pretrained, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="must be a new or an empty folder, but is not empty"):
        export(pretrained, tmp_path / "runs")


def test_a_translation_model_cannot_be_exported_yet(marian_folder, tmp_path):
    with pytest.raises(UsageError, match="only language models, encoders and image networks can be written"):
        export(open_pretrained(str(marian_folder)), tmp_path / "out")


@pytest.mark.parametrize("kind", ["LlamaConfig", "Qwen2Config"])
def test_a_network_is_exported_to_the_family_that_has_its_biases(kind, tmp_path):
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = getattr(transformers, kind)(vocab_size=300, intermediate_size=16, **sizes, **ids)
    before = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in before.parameters():
            value.normal_(std=0.3)
    before.save_pretrained(tmp_path / "theirs")
    train_tokenizer("bpe", [TEXT], 300).save(tmp_path / "theirs" / "tokenizer.json")
    export(replace(open_pretrained(str(tmp_path / "theirs")), family=None), tmp_path / "out")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(IDS).logits, before(IDS).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("place", ["save_file", "write_json", "README.md"])
def test_a_full_disk_leaves_no_half_of_an_export(place, bert_folder, tmp_path, monkeypatch):
    pretrained, folder = open_pretrained(str(bert_folder)), tmp_path / "out"

    def full(*_, **__):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    def full_file(path, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    if place == "README.md":
        monkeypatch.setattr(Path, "write_text", full_file)
    elif place == "write_json":
        monkeypatch.setattr(os, "fsync", full_file)
    else:
        monkeypatch.setattr(export_module, "save_file", full)
    with pytest.raises(ResourceError, match=r"no space left to save .*; free some space, then run the command again"):
        export(pretrained, folder)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / "empty").mkdir()
    export(pretrained, tmp_path / "empty")
    export(pretrained, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in (tmp_path / "empty").iterdir()
    )
    with pytest.raises(UsageError, match="must be a new or an empty folder"):
        export(pretrained, folder / "config.json")
