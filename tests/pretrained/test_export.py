"""What was trained here opens in transformers and gives the same numbers."""

import json

import pytest
import torch

from saccade import api
from saccade.data.text.tokenizers import train_tokenizer
from saccade.errors import UsageError
from saccade.pretrained import exporting

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

SMALL = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=48"]
LOOP = ["train.steps=3", "train.device=cpu", "train.evaluate_every=3"]
TEXT = "The cat sat on the mat. The dog ran to the cat! Who saw the dog? Nobody did.\n" * 60


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("preset", ["gpt2-tiny", "llama-tiny"])
def test_a_language_model_goes_to_transformers(preset, text, tmp_path):
    heads = ["model.kv_heads=1"] if preset == "llama-tiny" else []
    words = [*SMALL, *heads, *LOOP, "model.max_positions=32", "data.tokenizer=bpe", "data.vocabulary=300", "batch=4"]
    trained = api.train(text, words, task="language_model", preset=preset, root=tmp_path / "runs")
    opened = api.load(trained.run.folder, device="cpu")
    exporting.export(opened, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    sentence = "The cat saw the dog."
    ids = tokenizer(sentence, return_tensors="pt").input_ids
    assert ids[0].tolist() == opened.tokenizer.encode(sentence)
    with torch.no_grad():
        torch.testing.assert_close(opened.model(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert theirs.generation_config.eos_token_id == opened.end


def test_an_encoder_goes_to_transformers(text, tmp_path):
    words = [*SMALL, *LOOP, "model.max_positions=64", "vocabulary=120", "max_length=48", "tokens=256"]
    trained = api.train(text, words, task="masked_language_model", preset="bert-tiny", root=tmp_path / "runs")
    opened = api.load(trained.run.folder, device="cpu")
    exporting.export(opened, tmp_path / "out")
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    row, second = opened.framed("The cat sat.", "The dog ran.")
    given = tokenizer("The cat sat.", "The dog ran.", return_tensors="pt")
    assert given.input_ids[0].tolist() == row
    segments = (torch.arange(len(row)) >= second).long()[None]
    assert given.token_type_ids.tolist() == segments.tolist()
    with torch.no_grad():
        found = theirs(given.input_ids, token_type_ids=segments)
        features = opened.model.bert(given.input_ids, None, segments)
        torch.testing.assert_close(opened.model.words(features), found.prediction_logits, atol=1e-4, rtol=1e-4)
        follows = opened.model.next(opened.model.bert.pooled(features))
        torch.testing.assert_close(follows, found.seq_relationship_logits, atol=1e-4, rtol=1e-4)


def test_a_roberta_comes_and_goes_with_its_marks(tmp_path):
    folder, marks = tmp_path / "theirs", ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
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
    train_tokenizer("bpe", [TEXT], 300, marks).save(folder / "tokenizer.json")
    written = json.loads((folder / "tokenizer.json").read_text())
    for token in written["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
    written["post_processor"] = {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
    (folder / "tokenizer.json").write_text(json.dumps(written))
    opened = api.load(str(folder), device="cpu")
    exporting.export(opened, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (tokenizer.mask_token, tokenizer.cls_token, tokenizer.pad_token) == ("<mask>", "<s>", "<pad>")
    given = tokenizer("The <mask> sat.", "Who?", return_tensors="pt")
    assert given.input_ids[0].tolist() == opened.framed("The <mask> sat.", "Who?", parse_special=True)[0]
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    found = api.predict(opened, "The <mask> sat.", ["best=300"])
    row = tokenizer("The <mask> sat.", return_tensors="pt").input_ids
    with torch.no_grad():
        for model in (before, again):
            logits = model(row).logits[0, row[0].tolist().index(tokenizer.mask_token_id)]
            chances = logits[: opened.tokenizer.size].softmax(-1)
            assert list(found.scores.values()) == pytest.approx(sorted(chances.tolist(), reverse=True), abs=1e-5)


def test_a_shape_without_a_class_and_a_folder_in_use_are_refused(text, tmp_path):
    words = [*SMALL, *LOOP, "model.max_positions=32", "batch=4"]
    trained = api.train(text, words, task="language_model", root=tmp_path / "runs")
    opened = api.load(trained.run.folder, device="cpu")
    with pytest.raises(UsageError, match="transformers has no class for this shape; train one of the presets"):
        exporting.export(opened, tmp_path / "out")
    with pytest.raises(UsageError, match="must be a new or an empty folder, but holds something"):
        exporting.export(opened, tmp_path / "runs")
