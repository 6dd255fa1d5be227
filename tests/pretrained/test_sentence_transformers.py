"""Folders of sentence-transformers: the same vectors in ours, whatever the pooling, and ours open there."""

import json

import pytest
import torch

import saccade
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError
from saccade.look import features
from saccade.pretrained.opening import open_pretrained
from saccade.pretrained.sentence_transformers import read_modules

reason = "the oracle; installed with the [test] extra"
library = pytest.importorskip("sentence_transformers", reason=reason)
transformers = pytest.importorskip("transformers", reason=reason)

TEXTS = ["the cat sat on the red mat.", "a dog", "The Blue dog ran, did he?", "the cat " * 40]
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def write_folder(folder, pooling, *, normalize=False, settings=None, model=None, lowercase=False, kinds=()):
    """A random BERT as sentence-transformers stores it: modules.json, 1_Pooling, perhaps 2_Normalize."""
    torch.manual_seed(4)
    tokenizer = train_tokenizer("wordpiece", [*TEXTS, "abcdefghijklmnopqrstuvwxyz TBCD"], 110, lowercase=lowercase)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    config = transformers.BertConfig(vocab_size=tokenizer.size + 3, max_position_embeddings=40, **sizes)
    network = transformers.BertModel(config)
    with torch.no_grad():
        for value in network.parameters():
            value.normal_(std=0.4)
    network.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{tokenizer.token(number)}\n" for number in range(tokenizer.size)))
    names = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    modules = ["Transformer", "Pooling", *kinds, *(["Normalize"] if normalize else [])]
    entries = []
    for number, kind in enumerate(modules):
        path = "" if number == 0 else f"{number}_{kind}"
        (folder / path).mkdir(exist_ok=True)
        kind = f"sentence_transformers.models.{kind}"
        entries.append({"idx": number, "name": str(number), "path": path, "type": kind})
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 12, **pooling}))
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings or {}))
    if model is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(model))
    return folder


def expected_vectors(folder):
    return torch.from_numpy(library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS))


def our_vectors(folder):
    model = saccade.load(str(folder), device="cpu")
    assert model.task.task_name() == "sentence_vectors"
    return torch.stack([prediction.output.values for prediction in model([{"first": text} for text in TEXTS])])


def assert_equal_vectors(folder):
    expected = expected_vectors(folder)
    torch.testing.assert_close(our_vectors(folder), expected, atol=1e-5, rtol=1e-5)
    encoder = saccade.load(str(folder), device="cpu").task
    computed = torch.stack([vector.values for vector in features.vectors(encoder, TEXTS)])
    torch.testing.assert_close(computed, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_pooling_has_the_vectors_of_sentence_transformers(mode, normalize, tmp_path):
    assert_equal_vectors(write_folder(tmp_path, {"pooling_mode": mode}, normalize=normalize))


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False},
        {"pooling_mode": ["mean", "cls"]},
        {},
    ],
    ids=str,
)
def test_flags_lists_and_several_modes_are_read(pooling, tmp_path):
    assert_equal_vectors(write_folder(tmp_path, pooling))


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_default_prompt_is_put_before_every_text(mode, include, tmp_path):
    prompts = {"prompts": {"query": "the red cat: "}, "default_prompt_name": "query"}
    assert_equal_vectors(write_folder(tmp_path, {"pooling_mode": mode, "include_prompt": include}, model=prompts))


@pytest.mark.parametrize("settings", [{"max_seq_length": 9, "do_lower_case": False}, {"do_lower_case": True}], ids=str)
def test_texts_are_cut_and_lower_cased_as_configured(settings, tmp_path):
    assert_equal_vectors(write_folder(tmp_path, {"pooling_mode": "mean"}, settings=settings))
    prediction = saccade.load(str(tmp_path), device="cpu")(TEXTS[3])
    length = settings.get("max_seq_length", 40)
    assert prediction.notes == (f"cut to {length} of 82 tokens: first '{TEXTS[3].strip()[:40]}…'",)
    assert prediction.to_json()["notes"] == list(prediction.notes)


def test_the_encoder_may_lie_in_a_folder_of_its_own(tmp_path):
    folder = write_folder(tmp_path, {"pooling_mode": "cls"})
    (folder / "0_Transformer").mkdir()
    names = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "sentence_bert_config.json")
    for name in names:
        (folder / name).rename(folder / "0_Transformer" / name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert_equal_vectors(folder)


def test_a_folder_that_the_library_saved_is_read(tmp_path):
    written = write_folder(tmp_path / "written", {"pooling_mode": "weightedmean"}, normalize=True)
    library.SentenceTransformer(str(written), device="cpu").save(str(tmp_path / "saved"), create_model_card=False)
    torch.testing.assert_close(our_vectors(tmp_path / "saved"), expected_vectors(written), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": ["Dense"]}, "the modules must be Transformer, Pooling and perhaps Normalize, but are .*Dense"),
        ({"kinds": ["LSTM"]}, "but are Transformer, Pooling, LSTM; this sentence encoder is not supported"),
        ({"pooling": {"pooling_mode": "median"}}, "pooling_mode must be of cls, max, .*, but is 'median'"),
        (
            {"pooling": {"pooling_mode_median_tokens": True}},
            "a pooling mode must be one of .*'pooling_mode_median_tokens'",
        ),
        ({"settings": {"tokenizer_args": {"a": 1}}}, "tokenizer_args must be empty, but is"),
        (
            {"settings": {"transformer_task": "fill-mask"}},
            "transformer_task must be feature-extraction, but is 'fill-mask'",
        ),
        ({"settings": {"max_seq_length": "9"}}, "max_seq_length must be null or at least 3, but is '9'"),
        ({"model": {"model_type": "SparseEncoder"}}, "model_type must be SentenceTransformer, but is 'SparseEncoder'"),
    ],
    ids=str,
)
def test_a_module_that_is_not_supported_is_refused_by_name(change, message, tmp_path):
    write_folder(tmp_path, **{"pooling": {}, **change})
    with pytest.raises(ModelFileError, match=message) as caught:
        open_pretrained(str(tmp_path))
    assert "not supported" in str(caught.value) and "again" not in str(caught.value)


def test_any_value_in_the_files_of_a_folder_is_read_or_refused(tmp_path):
    model = {"prompts": {"query": "a: "}, "default_prompt_name": "query", "model_type": "SentenceTransformer"}
    settings = {"max_seq_length": 9, "do_lower_case": True, "model_args": {}, "transformer_task": "feature-extraction"}
    settings |= {"modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}}
    settings |= {"module_output_name": "token_embeddings", "processing_kwargs": {}}
    pooling = {"pooling_mode": "mean", "pooling_mode_cls_token": True, "include_prompt": True}
    write_folder(tmp_path, pooling, normalize=True, settings=settings, model=model)
    (tmp_path / "2_Normalize" / "config.json").write_text(json.dumps({"module_input_name": "sentence_embedding"}))
    names = ("config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json")
    refused = 0
    for path in [tmp_path / name for name in (*names, "2_Normalize/config.json", "modules.json")]:
        content = json.loads(path.read_text())
        objects = content if isinstance(content, list) else [content]
        for number, entry in enumerate(objects):
            for key in entry:
                for value in (None, True, -1, 10**30, 0.5, "", "..", "x", [], ["x", 1], {"x": {}}):
                    changed = [{**other, key: value} if at == number else other for at, other in enumerate(objects)]
                    path.write_text(json.dumps(changed if isinstance(content, list) else changed[0]))
                    try:
                        read_modules(tmp_path)
                    except ModelFileError:
                        refused += 1
        path.write_text(json.dumps(content))
    assert refused > 100 and read_modules(tmp_path).normalize


@pytest.mark.parametrize("place", ["../other", "/etc", "a/b", 3])
def test_a_module_outside_the_folder_is_refused(place, tmp_path):
    write_folder(tmp_path, {})
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["path"] = place
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelFileError, match="the path of a module must be the name of a folder, but is"):
        open_pretrained(str(tmp_path))


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_trained_sentence_vectors_open_in_sentence_transformers(pool, bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    pairs = tmp_path / "pairs.tsv"
    lines = [f"the cat sat {number}\tthe dog ran {number}\t{number % 5}\n" for number in range(40)]
    pairs.write_text("first\tsecond\tscore\n" + "".join(lines))
    overrides = ["train.steps=2", "train.device=cpu", "max_length=16", "batch_tokens=200", f"base={bert_folder}"]
    run = saccade.train(pairs, task="sentence_vectors", root=tmp_path / "runs", overrides=[*overrides, f"pool={pool}"])
    model = saccade.load(run, device="cpu")
    with torch.no_grad():
        for value in model.task.model.parameters():
            value.normal_(std=0.3)
    notes = model.export(tmp_path / "out")
    assert notes[:1] == [f"{tmp_path / 'out'}: a bert for transformers and sentence-transformers"]
    expected = expected_vectors(tmp_path / "out")
    for ours in (model, saccade.load(str(tmp_path / "out"), device="cpu")):
        vectors = torch.stack([ours(text).output.values for text in TEXTS])
        torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", [{"pooling_mode": ["max", "cls"]}, {"pooling_mode": "lasttoken"}], ids=str)
def test_a_folder_is_written_back_with_its_modules(pooling, tmp_path):
    prompts = {"prompts": {"query": "a cat: "}, "default_prompt_name": "query"}
    folder = write_folder(
        tmp_path / "theirs",
        {**pooling, "include_prompt": False},
        normalize=True,
        model=prompts,
        settings={"max_seq_length": 11, "do_lower_case": True},
    )
    saccade.load(str(folder), device="cpu").export(tmp_path / "ours")
    torch.testing.assert_close(expected_vectors(tmp_path / "ours"), expected_vectors(folder), atol=1e-5, rtol=1e-5)
